//! Decides which certificates and keys can be used, and whose are not checked.

use super::kind;
use super::proxy::is_loopback;
use crate::cli::NetworkFlags;
use reqwest::Url;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

const CA_FILE: &str = "--ca-file";
/// The flag that names who we are.
pub const CLIENT_CERT: &str = "--client-cert";
const CLIENT_KEY: &str = "--client-key";

/// What a key is locked with: a kind of block, or a line in one.
const LOCKS: [&str; 2] = ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED"];

/// Whom to believe, and who to be.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Authorities that are trusted beside those of the system.
    pub authorities: Vec<CertificateDer<'static>>,
    /// Who we are, for a server that asks.
    pub identity: Option<Identity>,
    /// The hosts whose certificates are not checked.
    pub unchecked: Unchecked,
}

/// A file that cannot be used, or a host that was not meant. Holds nothing of a file (X1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// What is in a file cannot be used.
    #[error("{flag} {}: {why}", path.display())]
    File {
        /// The flag that names the file.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// `--insecure` speaks of other hosts than the URL's.
    #[error(
        "--insecure is for {named}, and the URL's host is another: better than to write \
         --insecure=HOST with that host is to name the file of its authority with --ca-file"
    )]
    OtherHost {
        /// The hosts that it speaks of.
        named: String,
    },
}

impl Tls {
    /// Reads the files that the flags name.
    ///
    /// # Errors
    /// A file cannot be used, or `--insecure` does not speak of the URL's host.
    pub fn new(flags: &NetworkFlags, url: &Url) -> Result<Self, Problem> {
        let mut authorities = Vec::new();
        for path in &flags.ca_files {
            authorities.extend(File::read(CA_FILE, path)?.authorities()?);
        }
        let identity = flags
            .client_cert
            .as_ref()
            .map(|certificate| Identity::read(certificate.clone(), flags.client_key.clone()));
        let unchecked = Unchecked::new(&flags.insecure, url)?;
        Ok(Self { authorities, identity: identity.transpose()?, unchecked })
    }
}

/// A certificate that we show, with its key, and where both come from.
#[derive(Clone, Debug)]
pub struct Identity {
    /// What is shown.
    pub key: Arc<CertifiedKey>,
    certificate_file: PathBuf,
    key_file: Option<PathBuf>,
    modified: Vec<Option<SystemTime>>,
}

impl Identity {
    fn read(certificate_file: PathBuf, key_file: Option<PathBuf>) -> Result<Self, Problem> {
        let files = [Some(&certificate_file), key_file.as_ref()];
        let modified = files.into_iter().flatten().map(|path| modified(path)).collect();
        let certificate = File::read(CLIENT_CERT, &certificate_file)?;
        let chain = certificate.certificates()?;
        let key = match &key_file {
            Some(path) => File::read(CLIENT_KEY, path)?.key(chain)?,
            None => certificate.key(chain)?,
        };
        Ok(Self { key: Arc::new(key), certificate_file, key_file, modified })
    }

    /// Reads the files again where one was written since; `None` where none was. A pipe was read once
    /// and for all.
    pub fn renewed(&self) -> Option<Result<Self, Problem>> {
        let files = [Some(&self.certificate_file), self.key_file.as_ref()];
        let now: Vec<_> = files.into_iter().flatten().map(|path| modified(path)).collect();
        let is_changed = now != self.modified && now.iter().all(Option::is_some);
        is_changed.then(|| Self::read(self.certificate_file.clone(), self.key_file.clone()))
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    metadata.modified().ok()
}

/// The hosts whose certificates are not checked. A command line that is copied for another host checks
/// that one's.
#[derive(Clone, Debug, Default)]
pub struct Unchecked(Vec<String>);

impl Unchecked {
    pub(super) fn new(named: &[String], url: &Url) -> Result<Self, Problem> {
        let hosts = Self::of(named.iter().cloned());
        let is_meant = hosts.0.is_empty() || hosts.contains(url.host_str().unwrap_or_default());
        is_meant.then_some(hosts).ok_or_else(|| Problem::OtherHost { named: named.join(", ") })
    }

    /// Of whatever URL.
    pub(crate) fn of(named: impl IntoIterator<Item = String>) -> Self {
        Self(named.into_iter().map(|host| plain(&host).to_ascii_lowercase()).collect())
    }

    /// Whether none is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the certificate of `host` is not checked. `localhost` is this machine under all its names.
    pub fn contains(&self, host: &str) -> bool {
        let host = plain(host);
        let is_here = is_loopback(host);
        self.0.iter().any(|named| named == host || named == "localhost" && is_here)
    }

    /// What a person is told at each start.
    pub fn warning(&self) -> Option<String> {
        (!self.is_empty()).then(|| {
            format!(
                "--insecure: whoever answers as {} is taken for the agent, and can read and change all \
                 that is sent, credentials too; --ca-file with the file of its authority is the safe way",
                self.0.join(", ")
            )
        })
    }
}

/// A host as certificates have it, without the brackets of an IPv6 address and the dot that ends a name.
pub(crate) fn plain(host: &str) -> &str {
    host.trim_matches(['[', ']']).trim_end_matches('.')
}

/// A PEM file that a flag names.
struct File<'a> {
    flag: &'static str,
    path: &'a Path,
    text: Vec<u8>,
}

impl<'a> File<'a> {
    fn read(flag: &'static str, path: &'a Path) -> Result<Self, Problem> {
        let text =
            kind::to_read(path).and_then(|()| fs::read(path)).map_err(|error| Problem::File {
                flag,
                path: path.to_owned(),
                why: format!(
                    "it cannot be read ({error}): name a file that is there and that you can read"
                ),
            })?;
        Ok(Self { flag, path, text })
    }

    /// The certificates of authorities, each of which can be one.
    fn authorities(&self) -> Result<Vec<CertificateDer<'static>>, Problem> {
        let certificates = self.certificates()?;
        let mut store = RootCertStore::empty();
        for (index, certificate) in certificates.iter().enumerate() {
            store.add(certificate.clone()).map_err(|_| {
                let number = index + 1;
                self.problem(format!(
                    "certificate number {number} in it is damaged: get the file anew"
                ))
            })?;
        }
        Ok(certificates)
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Problem> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.text).collect();
        let certificates = certificates.map_err(|_| self.damaged())?;
        if certificates.is_empty() {
            return Err(self.problem(
                "it has no certificate in PEM form, with -----BEGIN CERTIFICATE-----; make a DER file \
                 one by: openssl x509 -inform der -in FILE -out FILE.pem",
            ));
        }
        Ok(certificates)
    }

    /// The key of a chain of certificates, with them.
    fn key(&self, chain: Vec<CertificateDer<'static>>) -> Result<CertifiedKey, Problem> {
        let text = String::from_utf8_lossy(&self.text);
        if LOCKS.iter().any(|lock| text.contains(lock)) {
            return Err(self.problem(
                "the private key is locked with a passphrase, and nobody can be asked for it: write it \
                 unlocked to a file that only you can read by: openssl pkey -in FILE -out OTHER",
            ));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.text).map_err(|error| match error {
            pem::Error::NoItemsFound if self.flag == CLIENT_CERT => {
                self.problem("it has no private key: name the file of the key with --client-key")
            }
            pem::Error::NoItemsFound => self.problem(
                "it has no private key in PEM form, with -----BEGIN PRIVATE KEY-----, RSA PRIVATE KEY or \
                 EC PRIVATE KEY",
            ),
            _ => self.damaged(),
        })?;
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => self.problem(
                "the private key is not that of the first certificate: name the two that were made together",
            ),
            rustls::Error::InvalidCertificate(_) => {
                self.problem("the first certificate is damaged: get the file anew")
            }
            _ => self.problem(
                "the private key is damaged or of a kind that is not supported: RSA from 2048 bits on, \
                 ECDSA P-256 and P-384, and Ed25519 are",
            ),
        })
    }

    fn damaged(&self) -> Problem {
        self.problem("a block in it is damaged: copy the whole file anew")
    }

    fn problem(&self, why: impl Into<String>) -> Problem {
        Problem::File { flag: self.flag, path: self.path.to_owned(), why: why.into() }
    }
}
