//! Sockets to a server: plain, or under TLS.
//!
//! Parameters of a target's address:
//! * `ca=FILE`: makes TLS connections to servers whose certificate one of these authorities (PEM) has signed.
//! * `cert=FILE`, `key=FILE`: the client's own certificate and its key (PEM).

use super::{Result, TargetError, TargetUrl};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Makes sockets.
#[derive(Clone, Default)]
pub struct Dial(Option<TlsConnector>);

/// A socket to a server.
pub enum Wire {
    /// Plain text.
    Plain(TcpStream),
    /// Under TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_tls() { "Dial(TLS)" } else { "Dial(plain)" })
    }
}

impl Dial {
    /// Parameters of a target's address that this module reads.
    pub const PARAMETERS: [&'static str; 3] = ["ca", "cert", "key"];

    /// As the parameters of an address say. `application` is the protocol to announce; empty for none.
    ///
    /// # Errors
    /// Files that cannot be read, or that do not fit together.
    pub fn of(url: &TargetUrl, application: &[u8]) -> Result<Self> {
        let bad = |why: String| TargetError::Unsupported(format!("{}: {why}", url.text));
        let own = match (url.parameter("cert"), url.parameter("key")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(bad("cert and key are needed together".to_owned())),
        };
        match url.parameter("ca") {
            Some(ca) => {
                let connector = connector(ca, own, application).map_err(bad)?;
                Ok(Dial(Some(connector)))
            }
            None if own.is_some() => Err(bad("cert needs ca".to_owned())),
            None => Ok(Dial(None)),
        }
    }

    /// Whether sockets are under TLS.
    pub fn is_tls(&self) -> bool {
        self.0.is_some()
    }

    /// Connects to `host:port`.
    ///
    /// # Errors
    /// A server that cannot be reached, or that the authorities do not vouch for.
    pub async fn connect(&self, address: &str) -> io::Result<Wire> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let Some(connector) = &self.0 else {
            return Ok(Wire::Plain(socket));
        };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let stream = connector.connect(name, socket).await?;
        Ok(Wire::Tls(Box::new(stream)))
    }
}

fn connector(ca: &str, own: Option<(&str, &str)>, application: &[u8]) -> std::result::Result<TlsConnector, String> {
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
    Ok(TlsConnector::from(Arc::new(config)))
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Wire::Plain(socket) => Pin::new(socket).poll_read(cx, into),
            Wire::Tls(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Wire::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Wire::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Wire::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Wire::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Wire::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Wire::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
