//! The echo server under the usual driver: every operation gets a response of the requested size.

use crate::target::{Columns, Connection, Put, Row, Scan, TableSpec, Target};
use bytes::Bytes;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::sync::Arc;

const TABLE: &str = "bench-null";

async fn target(value_bytes: usize) -> Arc<dyn Target> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    super::start(listener, value_bytes).unwrap();
    crate::target::open(&format!("hbase://{address}")).await.unwrap()
}

fn put(i: u32) -> Put {
    let cell = (Arc::from("f"), Bytes::from_static(b"q"), Bytes::from(vec![b'v'; 1000]));
    Put {
        key: format!("row{i:06}").into(),
        cells: vec![cell.clone(), cell],
    }
}

#[tokio::test]
async fn every_operation_is_answered() {
    let target = target(300).await;
    let spec = TableSpec {
        name: TABLE.into(),
        families: vec!["f".into()],
        ..TableSpec::default()
    };
    target.create_table(&spec).await.unwrap();
    assert!(
        target
            .describe()
            .await
            .unwrap()
            .contains(&("version".to_owned(), "null".to_owned()))
    );
    let c = target.connect().await.unwrap();
    c.put(TABLE, put(1)).await.unwrap();
    // Several requests of a few megabytes.
    c.put_many(TABLE, (0..4000).map(put).collect()).await.unwrap();
    let row = c.get(TABLE, "a".into(), &Columns::default()).await.unwrap().unwrap();
    assert_eq!((row.cells.len(), row.cells[0].value.len()), (1, 300));
    assert_eq!(c.increment(TABLE, "a".into(), "f", "q".into(), 5).await.unwrap(), 1);
    assert!(c.check_and_put(TABLE, "f", "q".into(), None, put(1)).await.unwrap());
    c.delete(TABLE, "a".into(), None, &[]).await.unwrap();
    target.flush_table(TABLE).await.unwrap();
    target.drop_table(TABLE).await.unwrap();
    assert_eq!(c.retries(), 0);
}

#[tokio::test]
async fn a_scan_returns_as_many_rows_as_its_limit() {
    let c = target(1000).await.connect().await.unwrap();
    for (limit, rows_per_fetch) in [
        (None, None),
        (Some(0), None),
        (Some(1), None),
        (Some(7), Some(3)),
        (Some(9000), None),
    ] {
        let mut rows = 0;
        let mut sink = |row: &Row| {
            assert_eq!(row.cells.len(), 1);
            rows += 1;
            ControlFlow::Continue(())
        };
        let scan = Scan {
            limit,
            rows_per_fetch,
            ..Scan::default()
        };
        c.scan(TABLE, &scan, &mut sink).await.unwrap();
        assert_eq!(rows, limit.unwrap_or_default(), "{scan:?}");
    }
}

#[tokio::test]
async fn many_clients_share_the_connection() {
    let c = target(1000).await.connect().await.unwrap();
    let clients = (0..64).map(|_| async {
        for _ in 0..50 {
            assert!(c.get(TABLE, "a".into(), &Columns::default()).await.unwrap().is_some());
        }
    });
    futures::future::join_all(clients).await;
    assert_eq!(c.retries(), 0);
}

#[test]
fn a_connection_outlives_its_runtime() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let get = async |c: &Arc<dyn Connection>| c.get(TABLE, "a".into(), &Columns::default()).await.unwrap().is_some();
    let first = runtime();
    let c = first.block_on(async {
        let c = target(10).await.connect().await.unwrap();
        assert!(get(&c).await);
        c
    });
    drop(first);
    assert!(runtime().block_on(get(&c)));
}
