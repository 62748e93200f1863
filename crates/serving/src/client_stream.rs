//! A connection of a client: plain, or under TLS.
//!
//! An enum and not a boxed stream: a plain connection costs one branch per read and write, and the protocols above have one
//! compiled form for both.

use crate::handshakes::Handshakes;
use crate::tls::{Application, PeerTls, Tls, check_protocol, name_of_certificate};
use futures::future::BoxFuture;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// The protection of a port.
#[derive(Clone, Default)]
pub struct PortSecurity(Option<Secured>);

#[derive(Clone)]
struct Secured {
    certificates: Certificates,
    handshakes: Arc<Handshakes>,
}

/// The certificates of a port.
#[derive(Clone)]
enum Certificates {
    /// For clients.
    Clients(Arc<Tls>, Application),
    /// For the other servers of a cluster.
    Peers(Arc<PeerTls>),
}

/// A connection of a client.
pub struct ClientStream(Inner);

enum Inner {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// The handshake goes on with the first read or write.
    Begins(BoxFuture<'static, io::Result<TlsStream<TcpStream>>>),
    /// The handshake failed.
    Failed,
}

impl PortSecurity {
    /// Connections are plain.
    pub fn plain() -> Self {
        PortSecurity(None)
    }

    /// Every connection begins with a handshake.
    pub fn tls(tls: Arc<Tls>, application: Application, handshakes: Arc<Handshakes>) -> Self {
        PortSecurity(Some(Secured {
            certificates: Certificates::Clients(tls, application),
            handshakes,
        }))
    }

    /// The same on the port for the other servers of a cluster, which all show a certificate.
    pub fn peers(tls: Arc<PeerTls>, handshakes: Arc<Handshakes>) -> Self {
        PortSecurity(Some(Secured {
            certificates: Certificates::Peers(tls),
            handshakes,
        }))
    }

    /// Whether connections are under TLS.
    pub fn is_tls(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a connection: performs the handshake, if there is one. `None` if it failed.
    pub async fn begin(&self, socket: TcpStream) -> Option<ClientStream> {
        let Some(secured) = &self.0 else {
            return Some(ClientStream(Inner::Plain(socket)));
        };
        let stream = secured.accept(socket).await.ok()?;
        Some(ClientStream(Inner::Tls(Box::new(stream))))
    }

    /// The same, for a caller that must not wait: the handshake is part of the first read or write.
    pub fn begin_later(&self, socket: TcpStream) -> ClientStream {
        let Some(secured) = self.0.clone() else {
            return ClientStream(Inner::Plain(socket));
        };
        ClientStream(Inner::Begins(Box::pin(async move { secured.accept(socket).await })))
    }
}

impl Secured {
    /// Performs the handshake. A failure is logged.
    async fn accept(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let caller = socket.peer_addr();
        let outcome = self.handshake(socket).await;
        if let Err(error) = &outcome {
            let caller = caller.map_or_else(|_| "a caller that is gone".to_owned(), |address| address.to_string());
            let port = match self.certificates {
                Certificates::Clients(..) => "a port for clients",
                Certificates::Peers(_) => "the port for other servers",
            };
            let event = format!("a TLS handshake with {caller} on {port} failed");
            self.handshakes.tell(&event, error);
        }
        outcome
    }

    async fn handshake(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        match &self.certificates {
            Certificates::Clients(tls, application) => self.handshakes.accept(socket, tls.config(*application)).await,
            Certificates::Peers(tls) => {
                let stream = self.handshakes.accept(socket, tls.server_config()).await?;
                check_protocol(stream.get_ref().1.alpn_protocol())?;
                Ok(stream)
            }
        }
    }
}

impl ClientStream {
    /// The name in the client's certificate, which the handshake has verified. `None` without a certificate.
    pub fn certificate_name(&self) -> Option<String> {
        let Inner::Tls(stream) = &self.0 else { return None };
        let certificates = stream.get_ref().1.peer_certificates()?;
        name_of_certificate(certificates.first()?)
    }

    /// Continues the handshake of a stream that has not begun.
    fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Inner::Begins(handshake) = &mut self.0 else {
            return Poll::Ready(match self.0 {
                Inner::Failed => Err(io::ErrorKind::NotConnected.into()),
                _ => Ok(()),
            });
        };
        match ready!(handshake.as_mut().poll(cx)) {
            Ok(stream) => {
                self.0 = Inner::Tls(Box::new(stream));
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                self.0 = Inner::Failed;
                Poll::Ready(Err(error))
            }
        }
    }
}

/// Calls a method of the stream that is there, or continues the handshake first.
macro_rules! of_stream {
    ($this:expr, $cx:expr, $method:ident $(, $argument:expr)*) => {
        loop {
            match &mut $this.0 {
                Inner::Plain(stream) => return Pin::new(stream).$method($cx $(, $argument)*),
                Inner::Tls(stream) => return Pin::new(stream).$method($cx $(, $argument)*),
                Inner::Begins(_) | Inner::Failed => ready!($this.poll_begun($cx))?,
            }
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, cx, poll_read, into)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        of_stream!(self, cx, poll_write, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_stream!(self, cx, poll_write_vectored, slices)
    }

    fn is_write_vectored(&self) -> bool {
        // Both kinds take several slices with one call.
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, cx, poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A failed handshake has closed the socket.
        if matches!(self.0, Inner::Failed) {
            return Poll::Ready(Ok(()));
        }
        of_stream!(self, cx, poll_shutdown)
    }
}
