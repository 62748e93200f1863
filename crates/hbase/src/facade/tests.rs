//! The façade as a client of ZooKeeper sees it.
#![allow(clippy::disallowed_methods, reason = "the façade waits by the real clock")]

use super::*;
use bytes::Bytes;
use stele_env::tokio_env::TokioRuntime;
use stele_wire::messages::ServerName;
use stele_wire::zookeeper::nodes::{self, ClusterId, Master, MetaRegionServer};
use tokio::io::DuplexStream;

fn identity(start_code: u64) -> Identity {
    Identity {
        host: "host".to_owned(),
        port: 16020,
        start_code,
        cluster_id: "an-id".to_owned(),
    }
}

/// A client, and its session.
struct Client {
    socket: DuplexStream,
    received: BytesMut,
    session: i64,
    timeout_ms: i32,
}

impl Client {
    /// Connects to a server with this start code, with this session or a new one.
    async fn connect(start_code: u64, session_id: i64) -> Client {
        let (socket, served) = tokio::io::duplex(1 << 16);
        let env = TokioRuntime::current();
        tokio::spawn(async move { serve(&env, &identity(start_code), served).await });
        let mut client = Client {
            socket,
            received: BytesMut::new(),
            session: 0,
            timeout_ms: 0,
        };
        let mut out = BytesMut::new();
        let request = ConnectRequest {
            timeout_ms: 90_000,
            session_id,
            password: Bytes::from_static(&[0; 16]),
            read_only: Some(false),
            ..ConnectRequest::default()
        };
        request.encode(&mut out);
        client.socket.write_all(&out).await.unwrap();
        let response = ConnectResponse::decode(client.frame().await.unwrap()).unwrap();
        (client.session, client.timeout_ms) = (response.session_id, response.timeout_ms);
        client
    }

    /// `None` at the end.
    async fn frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = take_frame(&mut self.received).unwrap() {
                return Some(frame);
            }
            if self.socket.read_buf(&mut self.received).await.unwrap() == 0 {
                return None;
            }
        }
    }

    /// Error and record of the response to a request.
    async fn ask(&mut self, request: Request) -> (i32, Bytes) {
        let mut out = BytesMut::new();
        request.encode(77, &mut out);
        self.socket.write_all(&out).await.unwrap();
        let frame = self.frame().await.unwrap();
        assert_eq!(frame.get(..4), Some(&77i32.to_be_bytes()[..]));
        let code = i32::from_be_bytes(frame.get(12..16).unwrap().try_into().unwrap());
        (code, frame.slice(16..))
    }

    /// The message of a node.
    async fn node<M: prost::Message + Default>(&mut self, path: &str) -> M {
        let (code, record) = self.ask(Request::GetData(path.to_owned())).await;
        assert_eq!(code, 0, "{path}");
        let length = i32::from_be_bytes(record.get(..4).unwrap().try_into().unwrap());
        nodes::decode("node", record.slice(4..4 + length as usize)).unwrap()
    }
}

#[tokio::test]
async fn the_nodes_name_the_only_server() {
    let mut client = Client::connect(1_700_000_000_000, 0).await;
    assert_eq!(client.timeout_ms, SESSION_MS.1);
    let server = ServerName {
        host_name: "host".to_owned(),
        port: Some(16020),
        start_code: Some(1_700_000_000_000),
    };
    let id: ClusterId = client.node("/hbase/hbaseid").await;
    assert_eq!(id.cluster_id, "an-id");
    let master: Master = client.node("/hbase/master").await;
    assert_eq!(master.master, server);
    let meta: MetaRegionServer = client.node("/hbase/meta-region-server").await;
    assert_eq!((meta.server, meta.state), (server, Some(3)));
    let (code, names) = client.ask(Request::GetChildren("/hbase/rs".to_owned())).await;
    assert_eq!(code, 0);
    assert_eq!(&names[..], b"\0\0\0\x01\0\0\0\x18host,16020,1700000000000");
    let (code, stat) = client.ask(Request::Exists("/hbase".to_owned())).await;
    assert_eq!((code, stat.len()), (0, 68));
    assert_eq!(
        client.ask(Request::GetAllChildrenNumber("/".to_owned())).await.1[..],
        [0, 0, 0, 10]
    );
}

#[tokio::test]
async fn writes_and_unknown_operations_get_errors_and_the_session_goes_on() {
    let mut client = Client::connect(5, 0).await;
    for (request, code) in [
        (Request::Write(1), Code::NotReadOnly),
        (Request::Write(14), Code::NotReadOnly),
        (Request::Other(106), Code::Unimplemented),
        (Request::GetData("/hbase/none".to_owned()), Code::NoNode),
        (Request::Exists(String::new()), Code::NoNode),
        (Request::Ping, Code::Ok),
        (Request::Auth("digest".to_owned(), Bytes::new()), Code::Ok),
    ] {
        assert_eq!(client.ask(request.clone()).await.0, code as i32, "{request:?}");
    }
    // A record that is cut has its number, so it gets a response.
    client
        .socket
        .write_all(&[0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 4])
        .await
        .unwrap();
    let refused = client.frame().await.unwrap();
    assert_eq!(refused.get(12..16), Some(&(-8i32).to_be_bytes()[..]));
    assert_eq!(client.ask(Request::Close).await.0, 0);
    assert_eq!(client.frame().await, None);
}

#[tokio::test]
async fn a_session_goes_on_in_the_same_process_only() {
    let first = Client::connect(5, 0).await;
    assert_ne!(first.session, 0);
    assert_eq!(Client::connect(5, first.session).await.session, first.session);
    let mut expired = Client::connect(6, first.session).await;
    assert_eq!((expired.session, expired.timeout_ms), (0, 0));
    assert_eq!(expired.frame().await, None);
}

#[tokio::test]
async fn other_protocols_and_long_frames_end_the_connection() {
    for (sent, received) in [
        (&b"ruok"[..], &b"imok"[..]),
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (b"\xff\xff\xff\xff", b""),
        (b"\0\0\0\x01\x07", b""),
    ] {
        let (mut socket, served) = tokio::io::duplex(1 << 16);
        let env = TokioRuntime::current();
        let served = tokio::spawn(async move { serve(&env, &identity(5), served).await });
        socket.write_all(sent).await.unwrap();
        let mut all = Vec::new();
        socket.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, received);
        assert_eq!(served.await.unwrap().is_ok(), !received.is_empty());
    }
}
