//! Decides which servers are believed and who we are to them, and tells what was wrong with TLS.

use super::request::Failure;
use super::trouble::{self, Reason};
use crate::config::tls::{Identity, Tls, Unchecked, plain};
use crate::lock::lock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, InvalidMessage, SignatureScheme,
};
use rustls_platform_verifier::Verifier;
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// How TLS is done with the remote.
#[derive(Clone, Debug)]
pub(super) struct Handshake {
    /// All of it but the protocols that are offered.
    pub(super) config: ClientConfig,
    identity: Arc<Shown>,
    seen: Arc<Seen>,
}

/// A certificate that a host showed.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    /// It, in DER.
    pub(crate) der: CertificateDer<'static>,
    /// When it was shown.
    pub(crate) at: Instant,
    /// We believe it.
    pub(crate) is_believed: bool,
}

/// The last certificate of each host.
type Seen = Mutex<BTreeMap<String, Certificate>>;

impl Handshake {
    /// Where it cannot be done: why, for people.
    pub(super) fn new(tls: &Tls) -> Result<Self, Reason> {
        let provider = Arc::new(ring::default_provider());
        let identity = tls.identity.clone().map(Mutex::new);
        let identity = Arc::new(Shown { identity, is_asked_for: AtomicBool::new(false) });
        let trust = Trust::new(tls, Arc::clone(&provider))?;
        let seen = Arc::clone(&trust.seen);
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(trust))
            .with_client_cert_resolver(Arc::clone(&identity) as _);
        if identity.has_certs() {
            // A session that is resumed is that of the certificate it began with, also after a renewal.
            config.resumption = Resumption::disabled();
        }
        Ok(Self { config, identity, seen })
    }

    /// The last certificate of this host.
    pub(super) fn seen(&self, host: &str) -> Option<Certificate> {
        lock(&self.seen).get(plain(host)).cloned()
    }

    /// The remote answered: it takes us for who we are.
    pub(super) fn answered(&self) {
        self.identity.is_asked_for.store(false, Ordering::Relaxed);
    }

    /// The same failure, or that nothing was read of what we sent: the server refused who we are, which in
    /// TLS 1.3 it tells when we have begun to talk. Once it has answered, a refusal proves nothing any more.
    pub(super) fn judged(&self, failure: Failure) -> Failure {
        let is_asked_for = self.identity.is_asked_for.load(Ordering::Relaxed);
        match failure {
            Failure::Broken(reason) if is_asked_for && is_refusal(&reason) => {
                Failure::Unsent(reason)
            }
            other => other,
        }
    }

    /// What to say of us where the remote breaks off, if it wanted to know and has not answered since.
    /// In HTTP/2 its complaint is lost behind that.
    pub(super) fn doubt(&self) -> Option<Trouble> {
        let is_asked_for = self.identity.is_asked_for.load(Ordering::Relaxed);
        is_asked_for.then_some(Trouble::AskedForCertificate(match self.identity.identity {
            None => "name one with --client-cert",
            Some(_) => "does it take that of --client-cert?",
        }))
    }
}

/// Whom we believe: the system's authorities and the person's; of some hosts, everybody.
#[derive(Debug)]
struct Trust {
    unchecked: Unchecked,
    /// `None` where there are no authorities to check by.
    verifier: Option<Verifier>,
    provider: Arc<CryptoProvider>,
    seen: Arc<Seen>,
}

impl Trust {
    fn new(tls: &Tls, provider: Arc<CryptoProvider>) -> Result<Self, Trouble> {
        let unchecked = tls.unchecked.clone();
        let authorities = tls.authorities.iter().cloned();
        let verifier = match Verifier::new_with_extra_roots(authorities, Arc::clone(&provider)) {
            Ok(verifier) => Some(verifier),
            Err(_) if !unchecked.is_empty() => None,
            Err(error) => return Err(Trouble::NoAuthorities(error.to_string())),
        };
        Ok(Self { unchecked, verifier, provider, seen: Arc::default() })
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = match &self.verifier {
            _ if self.unchecked.contains(&name.to_str()) => Ok(ServerCertVerified::assertion()),
            Some(verifier) => {
                verifier.verify_server_cert(certificate, intermediates, name, ocsp_response, now)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        let seen = Certificate {
            der: certificate.clone().into_owned(),
            at: Instant::now(),
            is_believed: verified.is_ok(),
        };
        lock(&self.seen).insert(name.to_str().into_owned(), seen);
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The certificate that we show, if we have one. One that was renewed is read for the next connection.
#[derive(Debug)]
struct Shown {
    identity: Option<Mutex<Identity>>,
    is_asked_for: AtomicBool,
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.is_asked_for.store(true, Ordering::Relaxed);
        let mut identity = lock(self.identity.as_ref()?);
        match identity.renewed() {
            None => {}
            Some(Ok(renewed)) => *identity = renewed,
            // It may be half written.
            Some(Err(problem)) => {
                tracing::warn!("{problem}; the certificate that was read before stays");
            }
        }
        Some(Arc::clone(&identity.key))
    }

    fn has_certs(&self) -> bool {
        self.identity.is_some()
    }
}

/// What is wrong with TLS. Its text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("it wants to see a certificate of ours: name one with --client-cert")]
    WantsCertificate,
    #[error("it refuses our certificate ({0}): name one that it takes with --client-cert")]
    RefusesCertificate(String),
    /// The remote broke off behind that.
    #[error("it asked for a certificate of ours: {0}")]
    AskedForCertificate(&'static str),
    #[error(
        "this machine knows no authority to check the agent's certificate by ({0}): install the package \
         ca-certificates, or name a file with --ca-file"
    )]
    NoAuthorities(String),
    #[error(
        "its certificate is signed by an authority that this machine does not know: if you trust it, name the file \
         of the authority with --ca-file"
    )]
    UnknownIssuer,
    #[error(
        "its certificate expired on {until}: have it renewed, or set the clock of this machine, on which it is \
         {now}"
    )]
    Expired { until: String, now: String },
    #[error(
        "its certificate begins to be valid on {from}: set the clock of this machine, on which it is {now}"
    )]
    NotYetValid { from: String, now: String },
    #[error("its certificate is for another host ({0}): use the name that it is for")]
    OtherHost(String),
    #[error(
        "its certificate is one of an authority, as openssl makes them when asked for a self-signed one, and no \
         server's: let it be made with basicConstraints=CA:FALSE, or with an authority sign another one for the \
         server"
    )]
    OfAuthority,
    #[error("its certificate cannot be used: {0}")]
    Unusable(String),
    #[error("it takes no version of HTTP that is offered to it (NoApplicationProtocol)")]
    NoProtocol,
    #[error(
        "what answers there does not speak TLS: is the port right, or must the URL begin with http:?"
    )]
    NotSpoken,
    /// `http:` meets it.
    #[error("it speaks TLS at this port: let the URL begin with https:")]
    Spoken,
}

/// What a server complains with where it does not take our certificate, as rustls names it.
const REFUSALS: [&str; 8] = [
    "AccessDenied",
    "BadCertificate",
    "CertificateExpired",
    "CertificateRevoked",
    "CertificateUnknown",
    "DecryptError",
    "UnknownCA",
    "UnsupportedCertificate",
];

impl Trouble {
    /// What is wrong, if it is TLS.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(complaint) = alert(error).and_then(|alert| complaint(&alert)) {
            return Some(complaint);
        }
        match found(error)? {
            rustls::Error::InvalidCertificate(error) => Some(certificate(error)),
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                Some(Self::NotSpoken)
            }
            _ => None,
        }
    }
}

/// Whether the server refused who we are.
fn is_refusal(reason: &Reason) -> bool {
    matches!(
        reason.trouble(),
        Some(trouble::Trouble::Tls(Trouble::WantsCertificate | Trouble::RefusesCertificate(_)))
    )
}

/// What a server means by an alert.
fn complaint(alert: &str) -> Option<Trouble> {
    match alert {
        "CertificateRequired" => Some(Trouble::WantsCertificate),
        "NoApplicationProtocol" => Some(Trouble::NoProtocol),
        alert if REFUSALS.contains(&alert) => Some(Trouble::RefusesCertificate(alert.to_owned())),
        _ => None,
    }
}

fn certificate(error: &CertificateError) -> Trouble {
    let date =
        |time: &UnixTime| httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(time.as_secs()));
    match error {
        CertificateError::UnknownIssuer => Trouble::UnknownIssuer,
        CertificateError::ExpiredContext { time, not_after } => {
            Trouble::Expired { until: date(not_after), now: date(time) }
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            Trouble::NotYetValid { from: date(not_before), now: date(time) }
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Trouble::OtherHost(error.to_string())
        }
        // The error of webpki, whose type is not ours to name.
        CertificateError::Other(error) if error.to_string().contains("CaUsedAsEndEntity") => {
            Trouble::OfAuthority
        }
        CertificateError::Other(error) => Trouble::Unusable(error.0.to_string()),
        _ => Trouble::Unusable(error.to_string()),
    }
}

/// The name of the alert that a server sent. Of one that came over HTTP/2 the text is all that is left.
fn alert(error: &(dyn Error + 'static)) -> Option<String> {
    let mut causes = std::iter::successors(Some(error), |&cause| cause.source());
    causes.find_map(|cause| {
        let text = cause.to_string();
        text.rsplit_once("received fatal alert: ").map(|(_, name)| name.to_owned())
    })
}

/// The error of TLS among the causes of an error. An [`io::Error`] does not name as its cause what it
/// wraps.
fn found<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error
        .downcast_ref()
        .or_else(|| wrapped.and_then(|error| found(error)))
        .or_else(|| error.source().and_then(found))
}
