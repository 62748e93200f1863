//! TLS of the ports: certificates, and their replacement while the server runs.
//!
//! One certificate serves all ports; the application protocol that a port announces differs. [`Tls::replace`] takes effect
//! for later handshakes, and ends the resumption of sessions that were made before. So a certificate authority that is no
//! longer trusted admits nobody.
//!
//! The bytes of certificates are given by the caller: this module reads no files.

mod peers;
mod subject;

pub(crate) use peers::check_protocol;
pub use peers::{PeerConnector, PeerMaterial, PeerTls};
pub use subject::name_of_certificate;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::sync::Arc;

/// Certificates and keys as PEM text, as they were read from their files.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsMaterial {
    /// The server's certificate, followed by those that lead to an authority.
    pub certificate: Vec<u8>,
    /// Its private key: PKCS #8, PKCS #1 or SEC1.
    pub key: Vec<u8>,
    /// The authorities of clients' certificates; `None` if clients are not asked for one.
    pub client_ca: Option<Vec<u8>>,
    /// A client without a certificate is refused.
    pub requires_client: bool,
}

impl std::fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsMaterial")
    }
}

/// The application protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// gRPC. A client that names only other protocols is refused.
    Http2,
    /// Pages.
    Http1,
    /// HBase's and ZooKeeper's, which have no name.
    Unnamed,
}

/// The fault of certificates or keys.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Text that is not PEM, or lacks the expected item.
    #[error("{what}: {why}")]
    Pem {
        /// Which of the files.
        what: &'static str,
        /// The fault.
        why: String,
    },
    /// The key is not that of the certificate, or is of an unknown kind.
    #[error("certificate and key: {0}")]
    Pair(String),
    /// The authorities cannot be used.
    #[error("authorities: {0}")]
    Authorities(String),
}

/// The certificates in use.
pub struct Tls(ArcSwap<Configs>);

struct Configs {
    http2: Arc<ServerConfig>,
    http1: Arc<ServerConfig>,
    unnamed: Arc<ServerConfig>,
}

impl Tls {
    /// Serves with these certificates.
    pub fn new(material: &TlsMaterial) -> Result<Self, TlsError> {
        Ok(Tls(ArcSwap::from_pointee(Configs::new(material)?)))
    }

    /// Serves later handshakes with others. After an error the former ones stay.
    pub fn replace(&self, material: &TlsMaterial) -> Result<(), TlsError> {
        self.0.store(Arc::new(Configs::new(material)?));
        Ok(())
    }

    /// The configuration of the next handshake on a port.
    pub fn config(&self, application: Application) -> Arc<ServerConfig> {
        let configs = self.0.load();
        Arc::clone(match application {
            Application::Http2 => &configs.http2,
            Application::Http1 => &configs.http1,
            Application::Unnamed => &configs.unnamed,
        })
    }
}

impl Configs {
    fn new(material: &TlsMaterial) -> Result<Self, TlsError> {
        let with = |protocols: &[&[u8]]| -> Result<Arc<ServerConfig>, TlsError> {
            let mut config = server_config(material)?;
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Ok(Arc::new(config))
        };
        Ok(Configs {
            http2: with(&[b"h2"])?,
            http1: with(&[b"http/1.1"])?,
            unnamed: with(&[])?,
        })
    }
}

fn server_config(material: &TlsMaterial) -> Result<ServerConfig, TlsError> {
    let chain = certificates("certificate", &material.certificate)?;
    let key = private_key(&material.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = versions.map_err(|error| TlsError::Pair(error.to_string()))?;
    let builder = match &material.client_ca {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates("client authorities", authorities)? {
                let added = roots.add(authority);
                added.map_err(|error| TlsError::Authorities(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match material.requires_client {
                true => verifier,
                false => verifier.allow_unauthenticated(),
            };
            let built = verifier.build();
            builder.with_client_cert_verifier(built.map_err(|error| TlsError::Authorities(error.to_string()))?)
        }
    };
    let config = builder.with_single_cert(chain, key);
    let mut config = config.map_err(|error| TlsError::Pair(error.to_string()))?;
    if material.client_ca.is_some() {
        // A resumed session is not verified again, and would outlive the client's certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// The private key of a PEM text.
fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| TlsError::Pem {
        what: "key",
        why: error.to_string(),
    })
}

/// The certificates of a PEM text, at least one.
fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fault = |why: String| TlsError::Pem { what, why };
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| fault(error.to_string()))?;
    match found.is_empty() {
        true => Err(fault("no certificate in PEM form".to_owned())),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests;
