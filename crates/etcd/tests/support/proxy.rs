//! A proxy in front of one member that can hold requests back, and cut connections.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A request is sent in one piece. Later bytes of its connection are its cancellation, which is never delivered.
const REQUEST_TIME: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pass,
    /// Requests do not reach the member before `release`.
    Hold,
    /// Requests reach the member, and its responses reach nobody. Connections stay so.
    Mute,
    /// Connections are closed, and new ones as well.
    Cut,
}

/// Forwards connections to one address.
pub struct Proxy {
    address: String,
    mode: watch::Sender<Mode>,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// The bytes that were held back, each with the connection they are for.
    held: Mutex<Vec<(Vec<u8>, OwnedWriteHalf)>>,
    /// Connections that never move a byte again.
    frozen: Mutex<Vec<OwnedReadHalf>>,
    /// Connections that were accepted.
    accepted: AtomicUsize,
}

impl Proxy {
    pub async fn start(member: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (mode, modes) = watch::channel(Mode::Pass);
        let shared = Arc::new(Shared::default());
        let (member, of_tasks) = (member.to_owned(), Arc::clone(&shared));
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                of_tasks.accepted.fetch_add(1, Ordering::Relaxed);
                if *modes.borrow() == Mode::Cut {
                    continue;
                }
                let server = TcpStream::connect(&member).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(forward(from_client, to_server, modes.clone(), Arc::clone(&of_tasks)));
                tokio::spawn(back(from_server, to_client, modes.clone()));
            }
        });
        Proxy {
            address,
            mode,
            shared,
            accepting,
        }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Number of connections so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// From now on requests are held back, also those of new connections.
    pub fn hold(&self) {
        self.mode.send_replace(Mode::Hold);
    }

    /// From now on responses get lost, also those to later requests of the same connections.
    pub fn mute(&self) {
        self.mode.send_replace(Mode::Mute);
    }

    /// New requests pass. Those that were held back stay where they are.
    pub fn pass(&self) {
        self.mode.send_replace(Mode::Pass);
    }

    /// Closes all connections, and refuses new ones.
    pub fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }

    /// The number of connections whose requests were held back.
    pub fn held(&self) -> usize {
        self.shared.held.lock().len()
    }

    /// Delivers the requests that were held back.
    pub async fn release(&self) {
        let held = std::mem::take(&mut *self.shared.held.lock());
        for (bytes, mut server) in held {
            server.write_all(&bytes).await.unwrap();
            // The connection stays open, or the member would cancel the request.
            server.forget();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    mut modes: watch::Receiver<Mode>,
    shared: Arc<Shared>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = tokio::select! {
            read = client.read(&mut buffer) => read.unwrap_or(0),
            _ = modes.wait_for(|mode| *mode == Mode::Cut) => return,
        };
        if read == 0 {
            return;
        }
        let mode = *modes.borrow();
        match mode {
            Mode::Cut => return,
            Mode::Pass | Mode::Mute => {
                if server.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
            Mode::Hold => {
                let mut bytes = buffer[..read].to_vec();
                let rest = async {
                    while let Ok(read @ 1..) = client.read(&mut buffer).await {
                        bytes.extend_from_slice(&buffer[..read]);
                    }
                };
                let _ = tokio::time::timeout(REQUEST_TIME, rest).await;
                shared.held.lock().push((bytes, server));
                shared.frozen.lock().push(client);
                return;
            }
        }
    }
}

async fn back(mut server: OwnedReadHalf, mut client: OwnedWriteHalf, mut modes: watch::Receiver<Mode>) {
    let mut buffer = vec![0; 64 << 10];
    let mut is_mute = false;
    loop {
        let read = tokio::select! {
            read = server.read(&mut buffer) => read.unwrap_or(0),
            _ = modes.wait_for(|mode| *mode == Mode::Cut) => return,
        };
        if read == 0 {
            return;
        }
        is_mute |= *modes.borrow() == Mode::Mute;
        // The client may be gone; the member must be able to respond nevertheless.
        if !is_mute {
            let _ = client.write_all(&buffer[..read]).await;
        }
    }
}
