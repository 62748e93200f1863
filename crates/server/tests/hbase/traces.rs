//! Traces of HBase calls at a collector.

use super::{CLIENT_SERVICE, Connection, create, put, region_of};
use crate::support::collector::{Collector, SERVER};
use crate::support::server::Server;
use bytes::Bytes;
use prost::Message;
use rustix::process::Signal;
use stele_wire::messages::{Get, GetRequest, GetResponse, TraceHeader, TraceInfo};
use tempfile::TempDir;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[test]
fn calls_are_spans_of_the_clients_trace() {
    let dir = TempDir::new().unwrap();
    let collector = Collector::start();
    let arguments = [
        "--hbase",
        "127.0.0.1:0",
        "--memory",
        "64MiB",
        "--otlp",
        &collector.url,
        "--trace-sample",
        "0",
    ];
    let server = Server::start(&dir.path().join("data"), &arguments);
    let address = server.hbase.clone().unwrap();
    create(&address);
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    let region = region_of(&mut client, b"the-key-of-a-row");
    let info = TraceInfo {
        headers: vec![TraceHeader {
            name: "traceparent".to_owned(),
            value: format!("00-{TRACE}-00f067aa0ba902b7-01"),
        }],
    };
    client.trace_info = Some(Bytes::from(info.encode_to_vec()));
    put(&mut client, &region, "the-key-of-a-row", "the-value-of-a-cell");
    let get = GetRequest {
        region: region.clone(),
        get: Get {
            row: "the-key-of-a-row".into(),
            ..Get::default()
        },
    };
    let (_, cells): (GetResponse, _) = client.ask("Get", &get);
    assert_eq!(cells.len(), 1, "{cells:?}");
    client.trace_info = None;
    let _: (GetResponse, _) = client.ask("Get", &get);
    assert_eq!(server.stop(Signal::TERM), Some(0));

    let spans = collector.spans();
    let calls: Vec<_> = spans.iter().filter(|span| span.kind == SERVER).collect();
    let names: Vec<&str> = calls.iter().map(|span| &span.name[..]).collect();
    assert_eq!(names, ["Multi", "Get"], "{spans:#?}");
    for (call, stage) in calls.iter().zip(["commit", "read row"]) {
        let attributes = call.attributes();
        assert_eq!(
            (&attributes["rpc.system"][..], &attributes["stele.outcome"][..]),
            ("hbase", "ok")
        );
        assert_eq!(attributes["stele.table"], "default/t");
        assert_eq!(
            (&attributes["stele.rows"][..], &attributes["stele.tablets"][..]),
            ("1", "1")
        );
        assert_eq!(call.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
        let below = spans.iter().filter(|span| span.parent_span_id == call.span_id);
        assert!(below.clone().any(|span| span.name == stage), "{spans:#?}");
    }
    let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(
        spans.iter().all(|span| hexadecimal(&span.trace_id) == TRACE),
        "{spans:#?}"
    );
    assert!(!collector.has_seen(b"the-key") && !collector.has_seen(b"the-value"));
}
