//! Sockets to a server: plain, or under TLS.

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::fmt;
use std::io;
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
    /// Sockets under TLS.
    pub fn tls(config: ClientConfig) -> Self {
        Dial(Some(TlsConnector::from(Arc::new(config))))
    }

    /// Whether sockets are under TLS.
    pub fn is_tls(&self) -> bool {
        self.0.is_some()
    }

    /// Connects to `host:port`. Under TLS the certificate of the server must be one of the host.
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
