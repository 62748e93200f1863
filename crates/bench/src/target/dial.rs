//! TLS of a target, as the parameters of its address say.
//!
//! * `ca=FILE`: makes TLS connections to servers whose certificate one of these authorities (PEM) has signed.
//! * `cert=FILE`, `key=FILE`: the client's own certificate and its key (PEM).
//! * `token=FILE`: a bearer token.

use super::{Result, TargetError, TargetUrl};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
pub use stele_hbaseclient::dial::Dial;

/// Parameters of a target's address that this module reads.
pub const PARAMETERS: [&str; 4] = ["ca", "cert", "key", "token"];

/// Sockets as the parameters of an address say. `application` is the protocol to announce; empty for none.
///
/// # Errors
/// Files that cannot be read, or that do not fit together.
pub fn dial(url: &TargetUrl, application: &[u8]) -> Result<Dial> {
    let bad = |why: String| TargetError::Unsupported(format!("{}: {why}", url.text));
    let own = match (url.parameter("cert"), url.parameter("key")) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(bad("cert and key are needed together".to_owned())),
    };
    match url.parameter("ca") {
        Some(ca) => Ok(Dial::tls(config(ca, own, application).map_err(bad)?)),
        None if own.is_some() => Err(bad("cert needs ca".to_owned())),
        None => Ok(Dial::default()),
    }
}

/// The bearer token of an address, if it has one.
///
/// # Errors
/// A file that cannot be read.
pub fn token(url: &TargetUrl) -> Result<Option<String>> {
    let Some(path) = url.parameter("token") else {
        return Ok(None);
    };
    let bad = |e: std::io::Error| TargetError::Unsupported(format!("`token` file {path}: {e}"));
    let token = std::fs::read_to_string(path).map_err(bad)?;
    Ok(Some(token.trim().to_owned()))
}

fn config(ca: &str, own: Option<(&str, &str)>, application: &[u8]) -> std::result::Result<ClientConfig, String> {
    let certificates = |path: &str| -> std::result::Result<Vec<CertificateDer<'static>>, String> {
        let found = CertificateDer::pem_file_iter(Path::new(path)).and_then(Iterator::collect);
        found.map_err(|e| format!("{path}: {e}"))
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(ca)? {
        roots.add(authority).map_err(|e| format!("{ca}: {e}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| e.to_string())?.with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((cert, key_file)) => {
            let key = PrivateKeyDer::from_pem_file(Path::new(key_file)).map_err(|e| format!("{key_file}: {e}"))?;
            let config = builder.with_client_auth_cert(certificates(cert)?, key);
            config.map_err(|e| format!("{cert}: {e}"))?
        }
    };
    if !application.is_empty() {
        config.alpn_protocols = vec![application.to_vec()];
    }
    Ok(config)
}
