//! Which way we go: a conversation with the official server through proxies, and what a person is told
//! where a proxy lets nothing through.
//!
//! `agent.test` is a name that only the proxies know.

use super::authority::{Authority, Validity};
use super::relay::{Kind, REFUSED, Relay};
use super::{TRIED_SHORTLY, answer, converse, message, refusal, until, unusable};
use crate::peers::agent::Served;
use crate::peers::conversation::{initialize, new_session, prompt, said, say};
use crate::peers::editor::Editor;
use crate::program::program;
use rustls::ServerConnection;
use rustls::version::{TLS12, TLS13};
use serde_json::json;
use std::fs;
use std::net::TcpListener;
use std::sync::Arc;

const PLAIN: &str = "http://agent.test/acp";
const SECURE: &str = "https://agent.test/acp";
/// A password with all that URLs give a meaning, and the header that it makes with the name `anna`.
const PASSWORD: &str = "s3cr%t@/: ü";
const CREDENTIAL: &str = "Basic YW5uYTpzM2NyJXRALzogw7w=";

/// The official server, over `http://` and over `https://`, for a proxy to find.
struct Agent {
    served: Served,
    authority: Authority,
    tls: Relay,
}

impl Agent {
    fn start() -> Self {
        let (served, authority) = (Served::start(), Authority::new());
        let issued = authority.issue("agent.test", Validity::Now);
        let config = Authority::server(&issued, &["h2", "http/1.1"], None);
        let tls = Relay::start(Kind::Tls(Arc::new(config)), &served.url);
        Self { served, authority, tls }
    }

    /// A proxy before the server with this URL.
    fn proxy(&self, kind: Kind, url: &str) -> Relay {
        let secure = self.tls.address.to_string();
        Relay::start(kind, if url == SECURE { &secure } else { &self.served.url })
    }

    fn flags<'a>(&'a self, proxy: &'a str) -> Vec<&'a str> {
        vec!["--ca-file", &self.authority.file, "--proxy", proxy]
    }
}

fn url_of(scheme: &str, proxy: &Relay) -> String {
    format!("{scheme}://{}", proxy.address)
}

#[test]
fn a_conversation_passes_through_a_forward_proxy() {
    let agent = Agent::start();
    for (url, asked) in
        [(SECURE, "CONNECT agent.test:443 "), (PLAIN, "POST http://agent.test/acp ")]
    {
        let proxy = agent.proxy(Kind::Forward(None), url);
        let mut editor = Editor::connect(url, &agent.flags(&url_of("http", &proxy)));
        converse(&mut editor, &agent.served, &proxy);
        let noted = proxy.noted();
        assert!(noted[0].starts_with(asked), "{noted:?}");
        let is_ours =
            |head: &String| head.contains("agent.test") && !head.contains("authorization");
        assert!(noted.len() > 2 && noted.iter().all(is_ours), "{noted:?}");
    }
}

/// It would take the greeting of HTTP/2 for a request.
#[test]
fn a_proxy_that_reads_the_requests_gets_them_in_http_1_whatever_is_asked_for() {
    let agent = Agent::start();
    let proxy = agent.proxy(Kind::Forward(None), PLAIN);
    let named = url_of("http", &proxy);
    initialize(&mut Editor::connect(PLAIN, &["--proxy", &named, "--http", "2"]));
    let noted = proxy.noted();
    assert!(noted[0].starts_with("POST http://agent.test/acp HTTP/1.1"), "{noted:?}");
}

#[test]
fn k93_the_credential_of_a_proxy_comes_from_the_environment_whatever_it_holds() {
    let agent = Agent::start();
    for url in [SECURE, PLAIN] {
        let proxy = agent.proxy(Kind::Forward(Some(CREDENTIAL.to_owned())), url);
        let named = format!("http://anna:${{PASSWORD}}@{}", proxy.address);
        let environment = [("PASSWORD", PASSWORD)];
        let mut editor = Editor::connect_in(&environment, url, &agent.flags(&named));
        converse(&mut editor, &agent.served, &proxy);
        let whole = format!("http://anna:s3cr%25t%40%2F%3A%20%C3%BC@{}", proxy.address);
        let environment = [("PROXY_URL", whole.as_str())];
        initialize(&mut Editor::connect_in(&environment, url, &agent.flags("${PROXY_URL}")));
    }
}

/// Trying again would get the person's account locked.
#[test]
fn l10_a_proxy_that_wants_another_credential_is_asked_once_and_told_from_the_agent() {
    let agent = Agent::start();
    let socks = Kind::Socks(Some(("anna", "right")));
    let cases = [
        (SECURE, "http", Kind::Forward(Some(CREDENTIAL.to_owned()))),
        (PLAIN, "http", Kind::Forward(Some(CREDENTIAL.to_owned()))),
        (SECURE, "socks5h", socks.clone()),
        (PLAIN, "socks5h", socks),
    ];
    for (url, scheme, kind) in cases {
        for user_info in ["", "anna:${PASSWORD}@"] {
            let proxy = agent.proxy(kind.clone(), url);
            let named = format!("{scheme}://{user_info}{}", proxy.address);
            let mut editor =
                Editor::connect_in(&[("PASSWORD", "s3cret")], url, &agent.flags(&named));
            let answer = answer(&mut editor);
            let form = format!("{scheme}://NAME:${{PASSWORD}}@{}", proxy.address);
            let expected = format!("the proxy {} wants a user name", url_of(scheme, &proxy));
            let told = message(&answer);
            assert!(told.contains(&expected) && told.contains(&form), "{url}: {answer}");
            assert_eq!(answer["error"]["data"]["kind"], "auth", "{answer}");
            assert_eq!(answer["error"]["data"]["delivery"], "unsent", "{answer}");
            assert!(!answer.to_string().contains("s3cret"), "{answer}");
            assert_eq!(proxy.noted().len(), 1, "{:?}", proxy.noted());
        }
    }
}

#[test]
fn a_socks_proxy_that_takes_no_name_and_no_password_is_told() {
    let agent = Agent::start();
    let proxy = agent.proxy(Kind::Socks(None), SECURE);
    let named = format!("socks5h://anna:${{PASSWORD}}@{}", proxy.address);
    let environment = [("PASSWORD", "s3cret")];
    let answer = answer(&mut Editor::connect_in(&environment, SECURE, &agent.flags(&named)));
    assert!(message(&answer).contains("or takes none"), "{answer}");
}

#[test]
fn a_proxy_that_is_not_there_or_lets_nothing_through_is_told_from_the_agent() {
    let agent = Agent::start();
    for url in [SECURE, PLAIN] {
        for scheme in ["http", "https", "socks5h"] {
            let named = format!("{scheme}://anna:s3cret@127.0.0.1:9");
            let message = refusal(url, &agent.flags(&named));
            let expected = format!("the proxy {scheme}://127.0.0.1:9 cannot be reached");
            assert!(message.contains(&expected), "{url}: {message}");
        }
    }
    let page = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\n\r\n<p>Ask your administrator";
    let proxy = agent.proxy(Kind::Answering(page), SECURE);
    let message = refusal(SECURE, &agent.flags(&url_of("http", &proxy)));
    let expected = format!("the proxy {} lets nothing through", url_of("http", &proxy));
    assert!(message.contains(&expected), "{message}");
    assert!(message.contains("`acp-tether doctor` tells more"), "{message}");
    let proxy = agent.proxy(Kind::Silent, SECURE);
    let message = refusal(SECURE, &agent.flags(&url_of("http", &proxy)));
    let expected = format!("through the proxy {} in time", url_of("http", &proxy));
    assert!(message.contains(&expected), "{message}");
    let proxy = agent.proxy(Kind::Forward(None), SECURE);
    let message = refusal(SECURE, &["--proxy", &url_of("http", &proxy)]);
    assert!(!message.contains("the proxy"), "it is the agent's certificate: {message}");
    assert!(message.contains("--ca-file"), "{message}");
}

/// In TLS 1.2 the agent sees before the end of the handshake that there is no certificate.
#[test]
fn an_agent_behind_a_proxy_that_breaks_off_without_a_certificate_of_ours_is_told_from_the_proxy() {
    let authority = Authority::new();
    let issued = authority.issue("agent.test", Validity::Now);
    let config = Authority::server_in(&[&TLS12], &issued, &["http/1.1"], Some(&authority));
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (mut socket, config) = (socket.unwrap(), Arc::clone(&config));
            let mut tls = ServerConnection::new(config).unwrap();
            // What it complains with is not written.
            while tls.process_new_packets().is_ok() {
                while tls.wants_write() {
                    tls.write_tls(&mut socket).unwrap();
                }
                if tls.read_tls(&mut socket).unwrap_or(0) == 0 {
                    break;
                }
            }
        }
    });
    let proxy = Relay::start(Kind::Forward(None), &address);
    let flags = ["--ca-file", &authority.file, "--proxy", &url_of("http", &proxy)];
    let message = refusal(SECURE, &flags);
    assert!(message.contains("it asked for a certificate of ours"), "{message}");
    assert!(message.contains("name one with --client-cert"), "{message}");
}

#[test]
fn l12_a_proxy_that_goes_away_and_comes_back_costs_no_message() {
    let agent = Agent::start();
    for (url, scheme, kind) in
        [(SECURE, "http", Kind::Forward(None)), (SECURE, "socks5h", Kind::Socks(None))]
    {
        let proxy = agent.proxy(kind, url);
        let mut editor = Editor::connect(url, &agent.flags(&url_of(scheme, &proxy)));
        initialize(&mut editor);
        let session = new_session(&mut editor);
        prompt(&mut editor, &session);
        proxy.set_gone(true);
        let refused = || proxy.noted().iter().filter(|noted| *noted == REFUSED).count();
        until("nobody tries", || refused() > 0);
        let id = say(&mut editor, &session, "echo it waited");
        let before = refused();
        until("nobody tries again", || refused() > before);
        proxy.set_gone(false);
        let (before, answer) = editor.until_answer(id);
        let told: Vec<&str> = before.iter().map(|message| said(message, &session)).collect();
        assert_eq!(told, ["it waited"]);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    }
}

#[test]
fn a_conversation_passes_through_a_socks_proxy_that_knows_the_name() {
    let agent = Agent::start();
    for url in [SECURE, PLAIN] {
        let proxy = agent.proxy(Kind::Socks(Some(("anna", PASSWORD))), url);
        let named = format!("socks5h://anna:${{PASSWORD}}@{}", proxy.address);
        let environment = [("PASSWORD", PASSWORD)];
        let mut editor = Editor::connect_in(&environment, url, &agent.flags(&named));
        converse(&mut editor, &agent.served, &proxy);
        assert!(proxy.noted().iter().all(|host| host == "agent.test"), "{:?}", proxy.noted());
    }
}

#[test]
fn a_name_is_resolved_here_for_socks5() {
    let agent = Agent::start();
    let proxy = agent.proxy(Kind::Socks(None), PLAIN);
    let named = url_of("socks5", &proxy);
    initialize(&mut Editor::connect("http://127.0.0.1:9", &agent.flags(&named)));
    let noted = proxy.noted();
    assert!(!noted.is_empty() && noted.iter().all(|host| host == "127.0.0.1"), "{noted:?}");
    let message = refusal(PLAIN, &agent.flags(&named));
    assert!(message.contains("socks5h://"), "{message}");
}

#[test]
fn a_proxy_may_speak_tls_itself_and_is_checked_by_its_own_name() {
    let agent = Agent::start();
    let issued = agent.authority.issue("localhost", Validity::Now);
    for url in [SECURE, PLAIN] {
        let proxy = agent.proxy(Kind::Forward(None), url);
        let tls = Kind::Tls(Arc::new(Authority::server(&issued, &[], None)));
        let end = Relay::start(tls, &proxy.address.to_string());
        let named = format!("https://localhost:{}", end.address.port());
        converse(&mut Editor::connect(url, &agent.flags(&named)), &agent.served, &end);
        // That the agent's certificate is not checked says nothing of the proxy's.
        let message = refusal(url, &["--insecure=agent.test", "--proxy", &named]);
        let expected = format!("the proxy {named} cannot be reached: its certificate is signed by");
        assert!(message.contains(&expected), "{message}");
        let named = named.as_str();
        let both = ["--insecure=agent.test", "--insecure=localhost", "--proxy", named];
        initialize(&mut Editor::connect(url, &both));
    }
}

/// In TLS 1.2 it is told in the handshake, in TLS 1.3 when it is spoken to.
#[test]
fn a_proxy_that_wants_a_certificate_of_ours_is_told_from_the_agent() {
    let agent = Agent::start();
    let issued = agent.authority.issue("localhost", Validity::Now);
    for (url, version) in [(SECURE, &TLS12), (SECURE, &TLS13), (PLAIN, &TLS12), (PLAIN, &TLS13)] {
        let proxy = agent.proxy(Kind::Forward(None), url);
        let config = Authority::server_in(&[version], &issued, &[], Some(&agent.authority));
        let end = Relay::start(Kind::Tls(Arc::new(config)), &proxy.address.to_string());
        let named = format!("https://localhost:{}", end.address.port());
        let message = refusal(url, &agent.flags(&named));
        let expected = format!("the proxy {named} cannot be reached: it wants to see");
        assert!(message.contains(&expected), "{url} {version:?}: {message}");
        assert!(message.contains("--client-cert"), "{message}");
        let flags = [&["doctor", url][..], &agent.flags(&named)].concat();
        let told = program().args(flags).output().unwrap();
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let line = told.lines().find(|line| line.contains(&expected));
        assert!(line.is_some_and(|line| line.contains("proxy ")), "{url} {version:?}: {told}");
    }
}

#[test]
fn k91_hosts_that_are_excepted_are_reached_directly() {
    let agent = Agent::start();
    let proxy = agent.proxy(Kind::Forward(None), PLAIN);
    let (url, named) = (&agent.served.url, url_of("http", &proxy));
    for hosts in ["127.0.0.1", "*", "a.test, 127.0.0.0/8", "localhost,127.0.0.1"] {
        initialize(&mut Editor::connect(url, &["--proxy", &named, "--no-proxy", hosts]));
        assert!(proxy.noted().is_empty(), "{hosts}: {:?}", proxy.noted());
    }
    let mut direct = 0;
    for hosts in ["", "0.0.1", "127.0.0.2", "10.0.0.0/8"] {
        initialize(&mut Editor::connect(url, &["--proxy", &named, "--no-proxy", hosts]));
        assert!(proxy.noted().len() > direct, "{hosts}");
        direct = proxy.noted().len();
    }
}

/// A person who names a proxy for a URL means it; the environment means others.
#[test]
fn k91_the_environment_s_proxy_is_not_for_this_machine_and_a_named_one_is() {
    let agent = Agent::start();
    let proxy = agent.proxy(Kind::Forward(None), PLAIN);
    let named = url_of("http", &proxy);
    let environment =
        [("HTTP_PROXY", named.as_str()), ("ALL_PROXY", &named), ("NO_PROXY", "127.0.0.1")];
    initialize(&mut Editor::connect_in(&environment[..2], &agent.served.url, &[]));
    assert!(proxy.noted().is_empty(), "{:?}", proxy.noted());
    initialize(&mut Editor::connect_in(&environment, &agent.served.url, &["--proxy", &named]));
    assert!(!proxy.noted().is_empty());
}

#[test]
fn the_environment_says_which_proxy_and_flags_come_before_it() {
    let agent = Agent::start();
    let (secure, plain) =
        (agent.proxy(Kind::Forward(None), SECURE), agent.proxy(Kind::Socks(None), PLAIN));
    let (https, all) = (url_of("http", &secure), url_of("socks5h", &plain));
    let trusted = ["--ca-file", &agent.authority.file];
    let environment = [("https_proxy", https.as_str()), ("ALL_PROXY", &all)];
    let mut editor = Editor::connect_in(&environment, SECURE, &trusted);
    converse(&mut editor, &agent.served, &secure);
    let mut editor = Editor::connect_in(&environment, PLAIN, &[]);
    converse(&mut editor, &agent.served, &plain);

    // A host that is not this machine, as far as names go, and is reached directly all the same.
    if cfg!(target_os = "linux") {
        let url = agent.served.url.replace("127.0.0.1", "0.0.0.0");
        let before = plain.noted().len();
        for hosts in ["0.0.0.0", "0.0.0.0:80"] {
            let excepted = [environment[1], ("NO_PROXY", hosts)];
            initialize(&mut Editor::connect_in(&excepted, &url, &[]));
        }
        for flags in [&["--proxy", "off"], &["--no-proxy", "0.0.0.0"]] {
            initialize(&mut Editor::connect_in(&environment, &url, flags));
        }
        assert_eq!(plain.noted().len(), before, "{:?}", plain.noted());
        initialize(&mut Editor::connect_in(&environment, &url, &[]));
        assert!(plain.noted().len() > before);
    }
}

#[test]
fn x1_the_credential_of_a_proxy_is_in_no_log_no_error_and_no_status() {
    let agent = Agent::start();
    let log = agent.authority.write("log", "");
    let kind = Kind::Forward(Some("Basic YW5uYTpzM2NyZXQ=".to_owned()));
    let proxy = agent.proxy(kind, SECURE);
    let whole = format!("http://anna:s3cret@{}", proxy.address);
    let environment = [("SECRET", "s3cret"), ("HTTPS_PROXY", &whole), ("RUST_LOG", "trace")];
    let ours = format!("http://anna:${{SECRET}}@{}", proxy.address);
    for flags in [&["--proxy", &ours][..], &[]] {
        let trusted = ["--ca-file", &agent.authority.file, "--log-file", &log];
        let flags = [&trusted[..], flags, &TRIED_SHORTLY].concat();
        let mut editor = Editor::connect_in(&environment, SECURE, &flags);
        initialize(&mut editor);
        proxy.set_gone(true);
        until("nobody tries", || proxy.noted().iter().any(|noted| noted == REFUSED));
        editor.ask("_acp-tether/status", &json!({}));
        if cfg!(target_os = "linux") {
            let arguments = fs::read(format!("/proc/{}/cmdline", editor.pid())).unwrap();
            assert!(!String::from_utf8_lossy(&arguments).contains("s3cret"));
        }
        editor.close();
        proxy.set_gone(false);
        for line in &editor.seen {
            let line = String::from_utf8_lossy(line);
            assert!(!line.contains("s3cret") && !line.contains("YW5uYTpzM2NyZXQ"), "{line}");
        }
    }
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains(&format!("the proxy {} ", url_of("http", &proxy))), "{log}");
    assert!(!log.contains("s3cret") && !log.contains("YW5uYTpzM2NyZXQ"), "{log}");
}

#[test]
fn k93_a_password_that_others_can_read_is_warned_of_and_masked() {
    let agent = Agent::start();
    let proxy = agent.proxy(Kind::Forward(None), PLAIN);
    for (password, warned) in [("s3cret", 1), ("${SECRET}", 0)] {
        let log = agent.authority.write("log", "");
        let named = format!("http://anna:{password}@{}", proxy.address);
        let flags = ["--proxy", &named, "--log-file", &log];
        initialize(&mut Editor::connect_in(&[("SECRET", "x")], PLAIN, &flags));
        let log = fs::read_to_string(log).unwrap();
        let warnings = log.lines().filter(|line| line.contains("--proxy: others can read"));
        assert_eq!(warnings.count(), warned, "{log}");
        assert!(!log.contains("s3cret"), "{log}");
    }
}

#[test]
fn s9_x1_a_proxy_that_cannot_be_used_is_refused_without_its_credential() {
    let cases = [
        ("proxy.test:3128", "begins with something else"),
        ("ftp://anna:s3cret@proxy.test", "begins with something else"),
        ("socks4://proxy.test", "begins with something else"),
        ("//anna:s3cret@proxy.test", "is no URL"),
        ("http://anna:s3cret@", "is no URL"),
        ("socks5h://", "names no host"),
        ("", "is no URL"),
        ("http://anna:${ABSENT}@proxy.test", "the environment variable ABSENT is not set"),
        ("http://anna:${@proxy.test", "write ${NAME}"),
    ];
    for (proxy, expected) in cases {
        let message = unusable("http://127.0.0.1:9", &["--proxy", proxy]);
        assert!(message.contains("--proxy") && message.contains(expected), "{proxy}: {message}");
        assert!(!message.contains("s3cret"), "{message}");
    }
}
