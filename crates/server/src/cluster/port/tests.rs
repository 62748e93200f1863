//! Servers and strangers at the port for other servers.

use super::*;
use crate::open_files;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use stele_client::{
    RowOutcome, RowStream, ServiceError, ServiceResult, TabletRead, TabletRowOperation, TabletSample, TabletService,
};
use stele_env::tokio_env::TokioRuntime;
use stele_memory::Pool;
use stele_peer::{ControlService, Identity, Origin, Peer, Probe, RemoteOptions, RemoteTablets, probe};
use stele_serving::testing::{Authority, Signed};
use stele_serving::{PeerConnector, PeerMaterial};
use stele_types::{Durability, ErrorKind, RowWrites, TabletId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Longest time until something happens, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const OWNER: Identity = Identity {
    cluster: [7; 16],
    server: 2,
    epoch: 2,
};
const CALLER: Identity = Identity {
    server: 1,
    epoch: 1,
    ..OWNER
};

/// Answers samples, and notes the origin of control calls.
#[derive(Default)]
struct Served {
    origins: Mutex<Vec<Origin>>,
}

fn nothing<T>() -> ServiceResult<T> {
    Err(ServiceError::new(ErrorKind::Unimplemented, "not in this test"))
}

#[async_trait]
impl TabletService for Served {
    async fn read(&self, _: TabletId, _: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        nothing()
    }

    async fn mutate(&self, _: TabletId, _: RowWrites, _: Option<Durability>) -> ServiceResult<()> {
        nothing()
    }

    async fn row_operation(&self, _: TabletId, _: TabletRowOperation) -> ServiceResult<RowOutcome> {
        nothing()
    }

    async fn sample(&self, _: TabletId, every: u64) -> ServiceResult<TabletSample> {
        let rows = Vec::new();
        Ok(TabletSample { bytes: every, rows })
    }
}

#[async_trait]
impl ControlService for Served {
    async fn control(&self, origin: Origin, request: Bytes) -> ServiceResult<Bytes> {
        self.origins.lock().push(origin);
        Ok(request)
    }
}

/// A port that is served.
struct Port {
    at: SocketAddr,
    served: Arc<Served>,
    tls: Option<Arc<PeerTls>>,
    metrics: Metrics,
    _stop: watch::Sender<bool>,
}

async fn port(material: Option<&PeerMaterial>) -> Port {
    let env = TokioRuntime::current();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let metrics = Metrics::new();
    let tls = material.map(|material| Arc::new(PeerTls::new(material, env.clone()).unwrap()));
    let served = Arc::new(Served::default());
    let server = PeerServer::new(env.clone(), &Pool::default(), OWNER, served.clone());
    let server = server.with_control(served.clone());
    let port = PeerPort::new(listener, tls.clone(), env, &metrics);
    let loops = Arc::new(EventLoops::start(2).unwrap());
    Port {
        at,
        served,
        tls,
        metrics,
        _stop: port.serve(server, loops),
    }
}

impl Port {
    fn peer(&self) -> Peer {
        Peer {
            identity: OWNER,
            address: self.at.to_string(),
        }
    }

    /// The environment of a server with these certificates.
    fn env_of(material: Option<&PeerMaterial>) -> Env {
        let env = TokioRuntime::current();
        match material {
            None => env,
            Some(material) => {
                let tls = Arc::new(PeerTls::new(material, env.clone()).unwrap());
                env.clone().connecting_by(PeerConnector::new(tls, env))
            }
        }
    }

    /// The tablets of this server, for another one.
    fn remote(&self, material: Option<&PeerMaterial>) -> RemoteTablets {
        let options = RemoteOptions::default();
        RemoteTablets::new(Port::env_of(material), &Pool::default(), CALLER, self.peer(), options)
    }

    async fn probe(&self, material: Option<&PeerMaterial>) -> Probe {
        probe(&Port::env_of(material), CALLER, &self.peer(), PATIENCE).await
    }

    /// Whether a failed handshake is counted soon: its client may know of it earlier.
    async fn counts(&self, cause: &str) -> bool {
        let name = format!("stele_peer_tls_handshakes_failed_total{{cause=\"{cause}\"}}");
        let env = TokioRuntime::current();
        let counted = async {
            while !self.metrics.render().contains(&name) {
                env.sleep(Duration::from_millis(2)).await;
            }
        };
        env.timeout(PATIENCE, counted).await.is_ok()
    }
}

/// Material with a certificate and key of its own.
fn with(material: &PeerMaterial, own: &Signed) -> PeerMaterial {
    PeerMaterial {
        certificate: own.certificate.clone().into_bytes(),
        key: own.key.clone().into_bytes(),
        ..material.clone()
    }
}

#[tokio::test]
async fn servers_call_each_other_under_tls() {
    let authority = Authority::new("servers");
    let port = port(Some(&authority.peer(None))).await;
    let other = authority.peer(None);
    let remote = port.remote(Some(&other));
    assert_eq!(remote.sample(TabletId(1), 5).await.unwrap().bytes, 5);
    // Larger than the records and buffers of TLS.
    let large = Bytes::from(vec![7; 3 << 20]);
    assert_eq!(remote.control(large.clone(), PATIENCE).await.unwrap(), large);
    let origin = port.served.origins.lock().pop().unwrap();
    assert!(origin.is_proven && origin.caller.is_none() && origin.from == CALLER);
    assert_eq!(port.probe(Some(&other)).await, Probe::Answered);
}

#[tokio::test]
async fn plain_text_is_served_only_without_tls_and_proves_nothing() {
    let authority = Authority::new("servers");
    let plain = port(None).await;
    plain.remote(None).control(Bytes::new(), PATIENCE).await.unwrap();
    let origin = plain.served.origins.lock().pop().unwrap();
    assert!(!origin.is_proven && origin.server() == "server 1, not proven");
    // A server with TLS does not fall back to plain text.
    let error = plain.remote(Some(&authority.peer(None))).sample(TabletId(1), 5).await;
    assert_eq!(error.unwrap_err().kind, ErrorKind::Unavailable);
    // And one without TLS gets no answer, which says nothing about the process.
    let secured = port(Some(&authority.peer(None))).await;
    let error = secured.remote(None).sample(TabletId(1), 5).await;
    assert_eq!(error.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(secured.probe(None).await, Probe::Silent);
    assert!(secured.counts("refused").await);
}

#[tokio::test]
async fn forged_servers_are_refused() {
    let (authority, other) = (Authority::new("servers"), Authority::new("servers"));
    let port = port(Some(&authority.peer(None))).await;
    let good = authority.peer(None);
    // Each of them could connect if it were checked at its own side only, so the checks of the port are those that count.
    for own in [
        other.peer_certificate(&[]),
        authority.client_certificate("alice"),
        authority.server_certificate(),
    ] {
        let stranger = Stranger::new(&authority, Some(&own));
        assert!(stranger.hello(port.at).await.is_err());
    }
    assert!(Stranger::new(&authority, None).hello(port.at).await.is_err());
    assert!(port.counts("refused").await);
    Stranger::new(&authority, Some(&authority.peer_certificate(&[])))
        .hello(port.at)
        .await
        .unwrap();
    assert!(PeerTls::new(&with(&good, &other.peer_certificate(&[])), TokioRuntime::current()).is_err());
    assert_eq!(port.probe(Some(&good)).await, Probe::Answered);
}

/// A program that speaks the protocol under TLS, with a certificate of its choice.
struct Stranger(Arc<rustls::ClientConfig>);

impl Stranger {
    fn new(authority: &Authority, own: Option<&Signed>) -> Self {
        let mut config = rustls::ClientConfig::clone(&authority.client(own));
        config.alpn_protocols = vec![b"stele-peer".to_vec()];
        Stranger(Arc::new(config))
    }

    /// Says hello, and reads the answer.
    async fn hello(&self, at: SocketAddr) -> std::io::Result<()> {
        let hello = stele_peer::Hello {
            versions: stele_peer::VERSIONS,
            caller: CALLER,
            owner: OWNER,
        };
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let socket = TcpStream::connect(at).await?;
        let mut stream = tokio_rustls::TlsConnector::from(Arc::clone(&self.0))
            .connect(name, socket)
            .await?;
        stream.write_all(&hello.encode()).await?;
        stream.flush().await?;
        let mut answer = [0; stele_peer::ANSWER_BYTES];
        stream.read_exact(&mut answer).await.map(drop)
    }
}

#[tokio::test]
async fn a_thousand_connections_that_never_begin_keep_nobody_out() {
    open_files::raise_limit();
    let authority = Authority::new("servers");
    let port = port(Some(&authority.peer(None))).await;
    let mut silent = Vec::new();
    for n in 0..1_000 {
        let mut socket = TcpStream::connect(port.at).await.unwrap();
        // Some send nothing, some the beginning of a record.
        socket.write_all(&b"\x16\x03\x01\x02"[..n % 5]).await.unwrap();
        silent.push(socket);
    }
    let began = Instant::now();
    let other = authority.peer(None);
    assert_eq!(port.remote(Some(&other)).sample(TabletId(1), 5).await.unwrap().bytes, 5);
    assert!(
        began.elapsed() < stele_serving::HANDSHAKE_WAIT,
        "it did not wait for them"
    );
    assert!(port.counts("crowded").await);
    for mut socket in silent {
        let mut alert = [0; 64];
        let ended = tokio::time::timeout(PATIENCE, socket.read(&mut alert)).await;
        let _ = ended.expect("every connection is cut off");
    }
    assert!(port.counts("slow").await);
}

#[tokio::test]
async fn connections_from_before_end_with_the_trust_in_them() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let port = port(Some(&old.peer(None))).await;
    let former = old.peer(None);
    let remote = port.remote(Some(&former));
    remote.sample(TabletId(1), 5).await.unwrap();
    let tls = port.tls.clone().unwrap();
    // A renewal ends nothing.
    tls.replace(&old.peer(None)).unwrap();
    remote.sample(TabletId(1), 5).await.unwrap();
    tls.replace(&new.peer(None)).unwrap();
    let began = Instant::now();
    while remote.sample(TabletId(1), 5).await.is_ok() {
        assert!(began.elapsed() < PATIENCE, "the connection goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let successor = new.peer(None);
    assert_eq!(
        port.remote(Some(&successor))
            .sample(TabletId(1), 6)
            .await
            .unwrap()
            .bytes,
        6
    );
}
