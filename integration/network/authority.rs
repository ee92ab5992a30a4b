//! An authority made in the test, with the files that it writes.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ALL_VERSIONS, RootCertStore, ServerConfig, SupportedProtocolVersion};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// The authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
    /// The file of its certificate.
    pub file: String,
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug)]
pub enum Validity {
    /// Today.
    Now,
    /// From 2001 to 2002.
    Past,
    /// From 2090 on.
    Future,
}

/// A certificate with its key, in PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Authority {
    /// A new one.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Authority of a test");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = TempDir::new().unwrap();
        let file = write(directory.path(), "authority.pem", &issuer.pem());
        Self { issuer, directory, file }
    }

    /// Its own certificate, with its key.
    pub fn own(&self) -> Issued {
        Issued { certificate: self.issuer.pem(), key: self.issuer.key().serialize_pem() }
    }

    /// A certificate for a name, that of a host or of a person.
    pub fn issue(&self, name: &str, validity: Validity) -> Issued {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        match validity {
            Validity::Now => {}
            Validity::Past => {
                params.not_before = date_time_ymd(2001, 1, 1);
                params.not_after = date_time_ymd(2002, 1, 1);
            }
            Validity::Future => params.not_before = date_time_ymd(2090, 1, 1),
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Issued { certificate, key: key.serialize_pem() }
    }

    /// Writes a file beside that of the authority, and returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        write(self.directory.path(), name, text)
    }

    /// TLS of a server that shows this certificate and offers these protocols. With `clients` it wants
    /// a certificate of that authority.
    pub fn server(issued: &Issued, protocols: &[&str], clients: Option<&Self>) -> ServerConfig {
        Self::server_in(ALL_VERSIONS, issued, protocols, clients)
    }

    /// The same in these versions of TLS.
    pub fn server_in(
        versions: &[&'static SupportedProtocolVersion],
        issued: &Issued,
        protocols: &[&str],
        clients: Option<&Self>,
    ) -> ServerConfig {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.issuer.der().clone()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let chain = vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}
