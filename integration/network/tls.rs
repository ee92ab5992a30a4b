//! Whom we believe and who we are: a conversation with the official server behind TLS, and what a
//! person is told where TLS fails.

use super::authority::{Authority, Issued, Validity};
use super::relay::{Kind, Relay};
use super::{TRIED_SHORTLY, answer, converse, message, refusal, until, unusable};
use crate::peers::agent::Served;
use crate::peers::conversation::{initialize, new_session, prompt};
use crate::peers::editor::Editor;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const BOTH: &[&str] = &["h2", "http/1.1"];

/// The official server behind TLS.
struct Behind {
    relay: Relay,
    /// With the name `localhost`.
    url: String,
    served: Served,
}

impl Behind {
    fn tls(issued: &Issued, protocols: &[&str], clients: Option<&Authority>) -> Self {
        let served = Served::start();
        let config = Arc::new(Authority::server(issued, protocols, clients));
        let relay = Relay::start(Kind::Tls(config), &served.url);
        let url = format!("https://localhost:{}/acp", relay.address.port());
        Self { relay, url, served }
    }
}

#[test]
fn l6_a_conversation_passes_over_tls_and_http_2_behind_a_private_authority() {
    let authority = Authority::new();
    let issued = authority.issue("localhost", Validity::Now);
    let behind = Behind::tls(&issued, BOTH, None);
    let mut editor = Editor::connect(&behind.url, &["--ca-file", &authority.file]);
    converse(&mut editor, &behind.served, &behind.relay);
    let noted = behind.relay.noted();
    assert!(noted.len() > 2 && noted.iter().all(|protocol| protocol == "h2"), "{noted:?}");
}

#[test]
fn l6_a_server_whose_tls_offers_no_http_2_is_spoken_to_in_http_1() {
    let authority = Authority::new();
    let issued = authority.issue("localhost", Validity::Now);
    for protocols in [&["http/1.1"][..], &[]] {
        let behind = Behind::tls(&issued, protocols, None);
        let mut editor = Editor::connect(&behind.url, &["--ca-file", &authority.file]);
        converse(&mut editor, &behind.served, &behind.relay);
        let spoken = protocols.first().copied().unwrap_or_default();
        let noted = behind.relay.noted();
        assert!(noted.iter().all(|protocol| protocol == spoken), "{noted:?}");
    }
}

#[test]
fn l6_http_1_is_asked_for_alone_where_the_person_wants_that() {
    let authority = Authority::new();
    for flag in [["--http", "1.1"], ["--header", "Host: localhost"]] {
        let behind = Behind::tls(&authority.issue("localhost", Validity::Now), BOTH, None);
        let flags = [&flag[..], &["--ca-file", &authority.file]].concat();
        initialize(&mut Editor::connect(&behind.url, &flags));
        let noted = behind.relay.noted();
        let is_1 = |protocol: &String| protocol == "http/1.1";
        assert!(!noted.is_empty() && noted.iter().all(is_1), "{flag:?}: {noted:?}");
    }
}

/// A bare container has no authorities of its own. Elsewhere the system is not asked by variables.
#[cfg(target_os = "linux")]
#[test]
fn a_private_authority_is_enough_where_the_system_has_none() {
    let authority = Authority::new();
    let behind = Behind::tls(&authority.issue("localhost", Validity::Now), BOTH, None);
    let empty = authority.write("empty.pem", "");
    let bare = [("SSL_CERT_FILE", empty.as_str()), ("SSL_CERT_DIR", "/no/such/directory")];
    initialize(&mut Editor::connect_in(&bare, &behind.url, &["--ca-file", &authority.file]));
    initialize(&mut Editor::connect_in(&bare, &behind.url, &["--insecure"]));
    let answer = answer(&mut Editor::connect_in(&bare, &behind.url, &TRIED_SHORTLY));
    let message = message(&answer);
    assert!(message.contains("ca-certificates") && message.contains("--ca-file"), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_private_authority_is_trusted_beside_the_system_s_and_beside_another() {
    let (systems, private) = (Authority::new(), Authority::new());
    let both = systems.write(
        "both.pem",
        &[&systems, &private].map(|one| fs::read_to_string(&one.file).unwrap()).concat(),
    );
    let system = [("SSL_CERT_FILE", systems.file.as_str())];
    for authority in [&systems, &private] {
        let behind = Behind::tls(&authority.issue("localhost", Validity::Now), BOTH, None);
        initialize(&mut Editor::connect_in(&system, &behind.url, &["--ca-file", &private.file]));
        let two = ["--ca-file", &private.file, "--ca-file", &systems.file];
        initialize(&mut Editor::connect(&behind.url, &two));
        initialize(&mut Editor::connect(&behind.url, &["--ca-file", &both]));
    }
}

#[test]
fn a_certificate_that_cannot_be_believed_is_told_with_what_to_do() {
    let authority = Authority::new();
    let known = ["--ca-file", authority.file.as_str()];
    let cases: [(_, _, &[&str], &[&str]); 4] = [
        (
            "localhost",
            Validity::Now,
            &[],
            &["authority that this machine does not know", "--ca-file"],
        ),
        ("other.example", Validity::Now, &known, &["another host", "other.example", "localhost"]),
        (
            "localhost",
            Validity::Past,
            &known,
            &["expired on Tue, 01 Jan 2002 00:00:00 GMT", "clock"],
        ),
        (
            "localhost",
            Validity::Future,
            &known,
            &["valid on Sun, 01 Jan 2090 00:00:00 GMT", "clock"],
        ),
    ];
    for (name, validity, flags, expected) in cases {
        let behind = Behind::tls(&authority.issue(name, validity), BOTH, None);
        let message = refusal(&behind.url, flags);
        for text in expected {
            assert!(message.contains(text), "{name}, {validity:?}: {message}");
        }
    }
}

#[test]
fn a_server_that_shows_the_certificate_of_an_authority_is_told_in_words() {
    let authority = Authority::new();
    let behind = Behind::tls(&authority.own(), BOTH, None);
    let message = refusal(&behind.url, &["--ca-file", &authority.file]);
    assert!(message.contains("basicConstraints=CA:FALSE"), "{message}");
}

#[test]
fn a_port_without_tls_and_a_port_with_it_are_told_from_each_other() {
    let authority = Authority::new();
    let served = Served::start();
    let message = refusal(&served.url.replace("http:", "https:"), &["--ca-file", &authority.file]);
    assert!(message.contains("does not speak TLS"), "{message}");
    let behind = Behind::tls(&authority.issue("localhost", Validity::Now), BOTH, None);
    for http in ["auto", "1.1", "2"] {
        let message = refusal(&behind.url.replace("https:", "http:"), &["--http", http]);
        assert!(message.contains("let the URL begin with https:"), "{message}");
    }
}

/// As servers written in Node and Python do, before or after they have read what was said.
#[test]
fn a_port_that_closes_without_a_word_may_be_one_with_tls() {
    for is_read in [true, false] {
        let silent = Relay::start(Kind::Answering(""), "127.0.0.1:9");
        silent.set_gone(!is_read);
        for http in ["auto", "1.1", "2"] {
            let message = refusal(&format!("http://{}", silent.address), &["--http", http]);
            let expected = "if it speaks TLS, let the URL begin with https:";
            assert!(message.contains(expected), "--http {http}, read {is_read}: {message}");
        }
    }
}

#[test]
fn l6_a_server_without_http_2_that_is_spoken_to_in_it_is_told_from_others() {
    let old = Relay::start(Kind::Answering("HTTP/1.1 400 Bad Request\r\n\r\n"), "127.0.0.1:9");
    let message = refusal(&format!("http://{}", old.address), &["--http", "2"]);
    assert!(message.contains("it does not speak HTTP/2: leave `--http 2` out"), "{message}");
    let silent = Relay::start(Kind::Answering(""), "127.0.0.1:9");
    let message = refusal(&format!("http://{}", silent.address), &["--http", "2"]);
    assert!(message.contains("if it speaks HTTP/1.1 only, leave `--http 2` out"), "{message}");
}

#[test]
fn a_conversation_passes_where_both_ends_show_certificates() {
    let authority = Authority::new();
    let us = authority.issue("anna", Validity::Now);
    let behind = Behind::tls(&authority.issue("localhost", Validity::Now), BOTH, Some(&authority));
    let certificate = authority.write("us.pem", &us.certificate);
    let key = authority.write("us.key", &us.key);
    let one = authority.write("one.pem", &format!("{}{}", us.key, us.certificate));
    for flags in
        [&["--client-cert", &certificate, "--client-key", &key][..], &["--client-cert", &one]]
    {
        let flags = [flags, &["--ca-file", &authority.file]].concat();
        converse(&mut Editor::connect(&behind.url, &flags), &behind.served, &behind.relay);
    }
}

/// TLS 1.3 tells it only when we have begun to talk. Nothing of that was read.
#[test]
fn a_certificate_of_ours_that_is_missing_or_refused_is_told_and_nothing_was_taken() {
    let authority = Authority::new();
    let issued = authority.issue("localhost", Validity::Now);
    let foreign = Authority::new().issue("anna", Validity::Now);
    let foreign =
        authority.write("foreign.pem", &format!("{}{}", foreign.key, foreign.certificate));
    let expired = authority.issue("anna", Validity::Past);
    let expired =
        authority.write("expired.pem", &format!("{}{}", expired.key, expired.certificate));
    for protocols in [BOTH, &["http/1.1"]] {
        let behind = Behind::tls(&issued, protocols, Some(&authority));
        let cases = [
            (None, "it wants to see a certificate of ours: name one with --client-cert"),
            (Some(&foreign), "it refuses our certificate (DecryptError)"),
            (Some(&expired), "it refuses our certificate (CertificateExpired)"),
        ];
        for (certificate, expected) in cases {
            let mut flags = vec!["--ca-file", &authority.file];
            flags.extend(certificate.iter().flat_map(|path| ["--client-cert", path]));
            let message = refusal(&behind.url, &flags);
            if protocols == BOTH {
                // Over HTTP/2 the connection may be gone before its complaint was read.
                assert!(message.contains("--client-cert"), "{message}");
            } else {
                let expected = format!("the remote agent cannot be reached: {expected}");
                assert!(message.contains(&expected), "{message}");
            }
        }
    }
}

#[test]
fn a_certificate_of_ours_that_was_renewed_is_shown_without_a_restart() {
    let authority = Authority::new();
    let behind = Behind::tls(&authority.issue("localhost", Validity::Now), BOTH, Some(&authority));
    let text = |issued: Issued| format!("{}{}", issued.key, issued.certificate);
    let expired = text(authority.issue("anna", Validity::Past));
    let path = authority.write("us.pem", &expired);
    let us = ["--ca-file", &authority.file, "--client-cert", &path];
    let flags = [&us[..], &TRIED_SHORTLY].concat();
    let mut editor = Editor::connect(&behind.url, &flags);
    let refused = answer(&mut editor);
    assert!(message(&refused).contains("--client-cert"), "{refused}");
    // What is half written is told, and nothing comes of it.
    authority.write("us.pem", &expired[..expired.len() / 2]);
    later(&path, 10);
    let refused = answer(&mut editor);
    assert!(message(&refused).contains("--client-cert"), "{refused}");
    authority.write("us.pem", &text(authority.issue("anna", Validity::Now)));
    later(&path, 20);
    initialize(&mut editor);
}

/// A session that is resumed would go on being that of the certificate before.
#[test]
fn a_certificate_of_ours_that_worked_is_shown_no_more_once_another_replaces_it() {
    let authority = Authority::new();
    for protocols in [BOTH, &["http/1.1"]] {
        let issued = authority.issue("localhost", Validity::Now);
        let behind = Behind::tls(&issued, protocols, Some(&authority));
        let text = |issued: Issued| format!("{}{}", issued.key, issued.certificate);
        let path = authority.write("us.pem", &text(authority.issue("anna", Validity::Now)));
        let log = authority.write("log", "");
        let flags = ["--ca-file", &authority.file, "--client-cert", &path, "--log-file", &log];
        let mut editor = Editor::connect(&behind.url, &flags);
        initialize(&mut editor);
        authority.write("us.pem", &text(authority.issue("anna", Validity::Past)));
        later(&path, 10);
        let before = behind.relay.noted().len();
        behind.relay.cut();
        let is_refused = || fs::read_to_string(&log).unwrap().contains("--client-cert");
        until("nobody comes again", || is_refused() || behind.relay.noted().len() > before);
        assert!(is_refused(), "{:?}", behind.relay.noted());
    }
}

/// Sets when a file was written, which the system may tell in whole seconds only.
fn later(path: &str, seconds: u64) {
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(seconds)).unwrap();
}

#[test]
fn insecure_is_for_the_host_of_the_url_and_for_no_other() {
    let authority = Authority::new();
    let behind = Behind::tls(&authority.issue("other.example", Validity::Past), BOTH, None);
    let by_address = behind.url.replace("localhost", "127.0.0.1");
    let cases = [
        (&behind.url, "--insecure"),
        (&by_address, "--insecure"),
        (&by_address, "--insecure=127.0.0.1"),
    ];
    for (url, flag) in cases {
        let mut editor = Editor::connect(url, &[flag]);
        initialize(&mut editor);
        let session = new_session(&mut editor);
        prompt(&mut editor, &session);
    }
    let cases = [
        ("https://agents.example.com", "--insecure"),
        ("https://agents.example.com", "--insecure=example.com"),
        ("https://localhost.example.com", "--insecure=localhost"),
        ("https://127.0.0.1", "--insecure=127.0.0.2"),
    ];
    for (url, flag) in cases {
        let message = unusable(url, &[flag]);
        assert!(message.contains("the URL's host is another"), "{url} {flag}: {message}");
    }
}

#[test]
fn insecure_is_warned_of_at_each_start() {
    let authority = Authority::new();
    let behind = Behind::tls(&authority.issue("other.example", Validity::Now), BOTH, None);
    let log = authority.write("log", "");
    for _ in 0..2 {
        initialize(&mut Editor::connect(&behind.url, &["--insecure", "--log-file", &log]));
    }
    let log = fs::read_to_string(log).unwrap();
    let warnings = log.lines().filter(|line| line.contains("is taken for the agent"));
    assert_eq!(warnings.count(), 2, "{log}");
}

#[test]
fn s9_x1_a_file_that_cannot_be_used_is_named_with_what_to_do_and_not_shown() {
    let authority = Authority::new();
    let (us, other) =
        (authority.issue("anna", Validity::Now), authority.issue("bert", Validity::Now));
    let file = |name, text: &str| authority.write(name, text);
    let certificate = file("us.pem", &us.certificate);
    let secret = "c2VjcmV0";
    let body: String = us.certificate.lines().filter(|line| !line.contains("---")).collect();
    let no_certificate = us.certificate.replace(&body[..40], &body[40..80]);
    let locked = us
        .key
        .replace("BEGIN PRIVATE", "BEGIN ENCRYPTED PRIVATE")
        .replace("END PRIVATE", "END ENCRYPTED PRIVATE");
    let old_lock = format!(
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{secret}\n-----END RSA PRIVATE KEY-----\n"
    );
    let no_key = format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n");
    let cases = [
        ("--ca-file", "/no/such/file".to_owned(), "cannot be read"),
        ("--ca-file", file("empty", ""), "no certificate in PEM form"),
        ("--ca-file", file("text", secret), "no certificate in PEM form"),
        ("--ca-file", file("key.pem", &us.key), "no certificate in PEM form"),
        ("--ca-file", file("cut.pem", &us.certificate[..us.certificate.len() / 2]), "damaged"),
        (
            "--ca-file",
            file("changed.pem", &no_certificate),
            "certificate number 1 in it is damaged",
        ),
        ("--client-cert", "/no/such/file".to_owned(), "cannot be read"),
        ("--client-cert", file("key2.pem", &us.key), "no certificate in PEM form"),
        ("--client-cert", certificate.clone(), "name the file of the key with --client-key"),
        (
            "--client-cert",
            file("two.pem", &format!("{}{}", us.certificate, other.key)),
            "is not that of the first certificate",
        ),
        ("--client-key", "/no/such/file".to_owned(), "cannot be read"),
        ("--client-key", file("other.key", &other.key), "is not that of the first certificate"),
        ("--client-key", file("empty.key", ""), "no private key in PEM form"),
        ("--client-key", file("locked.key", &locked), "locked with a passphrase"),
        ("--client-key", file("old.key", &old_lock), "locked with a passphrase"),
        ("--client-key", file("no.key", &no_key), "damaged or of a kind that is not supported"),
    ];
    for (flag, path, expected) in cases {
        let with = ["--client-cert", &certificate];
        let flags = if flag == "--client-key" { &with[..] } else { &[] };
        let message = unusable("https://127.0.0.1:9", &[flags, &[flag, &path]].concat());
        assert!(message.contains(expected), "{flag} {path}: {message}");
        assert!(message.contains(flag) && message.contains(&path), "{message}");
        assert!(!message.contains(secret) && !message.contains(&body[..20]), "{message}");
    }
}
