//! The files of TLS for clients.

use std::path::PathBuf;

/// The files of TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of clients.
    pub client_ca: Option<PathBuf>,
    /// A client without a certificate is refused.
    pub requires_client: bool,
}
