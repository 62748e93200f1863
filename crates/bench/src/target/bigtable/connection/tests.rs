//! The driver over a proxy that cuts its connections to the echo server.

use crate::target::{Columns, Connection, Put, Row, Scan, TargetError, null, open};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// An echo server behind a proxy, both ended with this value.
struct Cut {
    address: String,
    /// Connections that will still be cut.
    cuts: Arc<AtomicI64>,
    tasks: [JoinHandle<()>; 2],
}

impl Cut {
    /// A proxy that cuts connections once this many bytes have come from the server.
    async fn after(bytes: usize) -> Self {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let behind = server.local_addr().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cuts = Arc::new(AtomicI64::new(0));
        let left = cuts.clone();
        let server = tokio::spawn(async move { drop(null::bigtable::serve(server).await) });
        let proxy = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(behind).await.unwrap();
                tokio::spawn(pass(client, server, bytes, left.clone()));
            }
        });
        let tasks = [server, proxy];
        Self { address, cuts, tasks }
    }

    async fn connect(&self) -> Arc<dyn Connection> {
        let target = open(&format!("bigtable://{}/cut?connections=1", self.address))
            .await
            .unwrap();
        target.connect().await.unwrap()
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn pass(client: TcpStream, server: TcpStream, bytes: usize, cuts: Arc<AtomicI64>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let upwards = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await.map(drop) });
    let mut passed = 0;
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
        passed += count;
        if passed > bytes && cuts.fetch_sub(1, Ordering::SeqCst) > 0 {
            break;
        }
        if to_client.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    upwards.abort();
}

fn put(key: u32) -> Put {
    Put {
        key: format!("k{key:05}").into(),
        cells: vec![("f".into(), "q".into(), vec![0; 1000].into())],
    }
}

#[tokio::test]
async fn a_scan_goes_on_where_it_broke() {
    let cut = Cut::after(1_000_000).await;
    let connection = cut.connect().await;
    cut.cuts.store(3, Ordering::SeqCst);
    let scan = Scan {
        limit: Some(5_000),
        ..Scan::default()
    };
    let mut keys = Vec::new();
    let sink = &mut |row: &Row| {
        keys.push(row.key.clone());
        ControlFlow::Continue(())
    };
    connection.scan("bench-t", &scan, sink).await.unwrap();
    assert_eq!(keys.len(), 5_000);
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert_eq!(connection.retries(), 3);
}

/// Of two servers one is gone: its sockets go to the other.
#[tokio::test]
async fn another_server_of_a_cluster_is_called() {
    let cut = Cut::after(0).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let absent = gone.local_addr().unwrap();
    drop(gone);
    for url in [
        format!("bigtable://{absent}/cut?connections=3&peer={}", cut.address),
        format!("bigtable://{}/cut?connections=3&peer={absent}", cut.address),
    ] {
        let connection = open(&url).await.unwrap().connect().await.unwrap();
        for number in 0..6 {
            connection.put("bench-t", put(number)).await.unwrap();
        }
        assert_eq!(connection.retries(), 0);
    }
    let absent = open(&format!("bigtable://{absent}/cut")).await.unwrap();
    assert!(absent.connect().await.is_err());
}

#[tokio::test]
async fn what_may_be_done_twice_is_sent_again() {
    let cut = Cut::after(0).await;
    let connection = cut.connect().await;
    connection.put("bench-t", put(0)).await.unwrap();
    let again = async |what: &str| {
        let retries = connection.retries();
        cut.cuts.store(2, Ordering::SeqCst);
        match what {
            "get" => connection
                .get("bench-t", "k".into(), &Columns::default())
                .await
                .map(drop),
            "put" => connection.put("bench-t", put(1)).await,
            _ => connection.put_many("bench-t", (0..10_000).map(put).collect()).await,
        }
        .unwrap();
        assert!(connection.retries() > retries, "{what}");
        assert!(cut.cuts.load(Ordering::SeqCst) < 2, "{what}");
        cut.cuts.store(0, Ordering::SeqCst);
    };
    again("get").await;
    again("put").await;
    again("put_many").await;
}

#[tokio::test]
async fn what_may_not_be_done_twice_is_sent_once() {
    let cut = Cut::after(0).await;
    let connection = cut.connect().await;
    connection.put("bench-t", put(0)).await.unwrap();
    let retries = connection.retries();
    cut.cuts.store(1, Ordering::SeqCst);
    let increment = connection.increment("bench-t", "k".into(), "f", "q".into(), 1).await;
    assert!(matches!(increment, Err(TargetError::Connection(_))), "{increment:?}");
    cut.cuts.store(1, Ordering::SeqCst);
    let check = connection.check_and_put("bench-t", "f", "q".into(), None, put(0)).await;
    assert!(matches!(check, Err(TargetError::Connection(_))), "{check:?}");
    assert_eq!(connection.retries(), retries);
    // The connection is dialled again all the same.
    cut.cuts.store(0, Ordering::SeqCst);
    assert_eq!(
        connection
            .increment("bench-t", "k".into(), "f", "q".into(), 1)
            .await
            .unwrap(),
        1
    );
}
