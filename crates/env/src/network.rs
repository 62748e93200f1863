//! Connections between servers, behind the seam.
//!
//! In production they are TCP. In simulation they are pipes in memory that delay, lose and partition by the seed. Sockets of
//! clients are not behind this seam: event loops own them.

use futures::future::BoxFuture;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};

/// Both directions of a connection. Dropping it closes them.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection of either side.
pub type Connection = Box<dyn Stream>;

/// Takes connections at one address until it is dropped.
pub trait Listener: Send {
    /// The next connection. An error concerns one connection, or is worth a pause.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Connection>>;

    /// The address to connect to: with port 0 the system has chosen a port.
    fn address(&self) -> String;
}

/// Connects to other servers in another way than the runtime does: under TLS, for one.
pub trait Connector: Send + Sync + 'static {
    /// Connects to a server. An error of kind `ConnectionRefused` says that no process listens there.
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Connection>>;
}

/// The error of a runtime without a network.
pub(crate) fn no_network() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this runtime has no network")
}

/// TCP on the runtime of the calling task.
pub(crate) mod tcp {
    use super::{Connection, Listener};
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use std::io;
    use tokio::net::{TcpListener, TcpStream};

    pub(crate) async fn connect(address: String) -> io::Result<Connection> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        Ok(Box::new(socket))
    }

    pub(crate) async fn listen(address: String) -> io::Result<Box<dyn Listener>> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?.to_string();
        Ok(Box::new(Tcp { listener, address }))
    }

    struct Tcp {
        listener: TcpListener,
        address: String,
    }

    impl Listener for Tcp {
        fn accept(&mut self) -> BoxFuture<'_, io::Result<Connection>> {
            async {
                let (socket, _) = self.listener.accept().await?;
                socket.set_nodelay(true)?;
                Ok(Box::new(socket) as Connection)
            }
            .boxed()
        }

        fn address(&self) -> String {
            self.address.clone()
        }
    }
}
