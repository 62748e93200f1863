//! Traces of requests at a collector, and collectors that do not take them.

use crate::support::collector::{Collector, SERVER, Span};
use crate::support::server::Server;
use crate::support::table::{TABLE, connect, create_table};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use rustix::process::Signal;
use std::net::TcpListener;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tonic::Request;
use tonic::transport::Channel;
use v2::bigtable_client::BigtableClient;
use v2::mutation::{Mutation as Kind, SetCell};

const KEY: &[u8] = b"the-key-of-a-row";
const QUALIFIER: &[u8] = b"the-qualifier";
const VALUE: &[u8] = b"the-value-of-a-cell";

/// The example of the standard.
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
const PARENT: u64 = 0x00f0_67aa_0ba9_02b7;

fn start(dir: &TempDir, collector: &str, part: &str) -> Server {
    let arguments = [
        "--memory",
        "64MiB",
        "--hbase",
        "off",
        "--otlp",
        collector,
        "--trace-sample",
        part,
    ];
    Server::start(&dir.path().join("data"), &arguments)
}

fn mutations() -> Vec<v2::Mutation> {
    let cell = SetCell {
        family_name: "f".to_owned(),
        column_qualifier: QUALIFIER.into(),
        timestamp_micros: 1_000,
        value: VALUE.into(),
    };
    vec![v2::Mutation {
        mutation: Some(Kind::SetCell(cell)),
    }]
}

fn write() -> v2::MutateRowRequest {
    v2::MutateRowRequest {
        table_name: TABLE.to_owned(),
        row_key: KEY.into(),
        mutations: mutations(),
        ..v2::MutateRowRequest::default()
    }
}

fn ping() -> v2::PingAndWarmRequest {
    v2::PingAndWarmRequest {
        name: "projects/p/instances/i".to_owned(),
        ..v2::PingAndWarmRequest::default()
    }
}

/// Reads all rows of a table; how many messages came.
async fn read(client: &mut BigtableClient<Channel>, request: v2::ReadRowsRequest) -> Result<usize, tonic::Status> {
    let (mut rows, mut messages) = (client.read_rows(request).await?.into_inner(), 0);
    while rows.message().await?.is_some() {
        messages += 1;
    }
    Ok(messages)
}

/// Writes and reads the row in every way.
async fn work(client: &mut BigtableClient<Channel>) {
    client.mutate_row(write()).await.unwrap();
    let entry = v2::mutate_rows_request::Entry {
        row_key: KEY.into(),
        mutations: mutations(),
        ..v2::mutate_rows_request::Entry::default()
    };
    let several = v2::MutateRowsRequest {
        table_name: TABLE.to_owned(),
        entries: vec![entry],
        ..v2::MutateRowsRequest::default()
    };
    let mut outcomes = client.mutate_rows(several).await.unwrap().into_inner();
    while outcomes.message().await.unwrap().is_some() {}
    let conditional = v2::CheckAndMutateRowRequest {
        table_name: TABLE.to_owned(),
        row_key: KEY.into(),
        true_mutations: mutations(),
        ..v2::CheckAndMutateRowRequest::default()
    };
    client.check_and_mutate_row(conditional).await.unwrap();
    let all = v2::ReadRowsRequest {
        table_name: TABLE.to_owned(),
        ..v2::ReadRowsRequest::default()
    };
    assert!(read(client, all).await.unwrap() > 0);
    let samples = v2::SampleRowKeysRequest {
        table_name: TABLE.to_owned(),
        ..v2::SampleRowKeysRequest::default()
    };
    let mut sampled = client.sample_row_keys(samples).await.unwrap().into_inner();
    while sampled.message().await.unwrap().is_some() {}
    let missing = v2::ReadRowsRequest {
        table_name: format!("{TABLE}-missing"),
        ..v2::ReadRowsRequest::default()
    };
    assert!(read(client, missing).await.is_err());
}

/// The requests of a method.
fn requests<'s>(spans: &'s [Span], method: &str) -> Vec<&'s Span> {
    let is_it = |span: &&Span| span.kind == SERVER && span.name == method;
    spans.iter().filter(is_it).collect()
}

/// The stages of a request. Each is within it.
fn stages<'s>(spans: &'s [Span], request: &Span) -> Vec<&'s Span> {
    let stages: Vec<&Span> = spans
        .iter()
        .filter(|span| span.parent_span_id == request.span_id)
        .collect();
    for stage in &stages {
        assert_eq!(stage.trace_id, request.trace_id);
        assert!(request.start_time_unix_nano <= stage.start_time_unix_nano, "{stage:?}");
        assert!(stage.start_time_unix_nano <= stage.end_time_unix_nano, "{stage:?}");
        assert!(stage.end_time_unix_nano <= request.end_time_unix_nano, "{stage:?}");
    }
    stages
}

// The connections of clients end while the test waits for the end of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_a_trace_with_its_stages() {
    let dir = TempDir::new().unwrap();
    let collector = Collector::start();
    let server = start(&dir, &collector.url, "1");
    create_table(&server.bigtable).await;
    work(&mut connect(&server.bigtable).await).await;
    assert_eq!(server.stop(Signal::TERM), Some(0));

    let spans = collector.spans();
    for (method, stage, outcome) in [
        ("CreateTable", "receive", "OK"),
        ("MutateRow", "commit", "OK"),
        ("MutateRows", "commit", "OK"),
        ("CheckAndMutateRow", "read for write", "OK"),
        ("ReadRows", "read rows", "OK"),
        ("SampleRowKeys", "receive", "OK"),
    ] {
        let found = requests(&spans, method);
        let request = found.iter().find(|span| span.attributes()["stele.outcome"] == outcome);
        assert!(request.is_some(), "{method}: {spans:#?}");
        let (request, attributes) = (request.unwrap(), request.unwrap().attributes());
        assert!(request.parent_span_id.is_empty(), "{request:?}");
        assert_eq!(
            (&attributes["rpc.system"][..], &attributes["rpc.method"][..]),
            ("grpc", method)
        );
        let stages = stages(&spans, request);
        assert!(
            stages.iter().any(|span| span.name == stage),
            "{method} has no {stage}: {stages:?}"
        );
        if method.starts_with("Mutate") || method == "ReadRows" {
            assert_eq!(attributes["stele.table"], "i/t", "{method}");
            assert_eq!(attributes["stele.rows"], "1", "{method}");
            assert!(attributes.contains_key("stele.tablet"), "{method}");
            assert!(attributes["stele.request_bytes"].parse::<u64>().unwrap() > 0);
            assert!(attributes["stele.response_bytes"].parse::<u64>().unwrap() > 0);
        }
    }
    let failed = requests(&spans, "ReadRows");
    let outcomes: Vec<String> = failed
        .iter()
        .map(|span| span.attributes()["stele.outcome"].clone())
        .collect();
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
    assert!(outcomes.contains(&"NOT_FOUND".to_owned()), "{outcomes:?}");
    let roots = spans.iter().filter(|span| span.parent_span_id.is_empty());
    assert_eq!(roots.clone().count(), 7, "{spans:#?}");
    let mut traces: Vec<&Vec<u8>> = roots.map(|span| &span.trace_id).collect();
    traces.sort();
    traces.dedup();
    assert_eq!(traces.len(), 7, "each request has a trace of its own");
    for bytes in [KEY, QUALIFIER, VALUE] {
        assert!(!collector.has_seen(bytes), "{:?} left the server", bytes.escape_ascii());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_decides_where_it_sends_a_trace() {
    let send = async |server: &Server, traceparent: Option<&'static str>| {
        let mut request = Request::new(ping());
        if let Some(traceparent) = traceparent {
            let metadata = request.metadata_mut();
            metadata.insert("traceparent", traceparent.parse().unwrap());
            metadata.insert("tracestate", "vendor=x".parse().unwrap());
        }
        connect(&server.bigtable).await.ping_and_warm(request).await.unwrap();
    };
    let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    for (part, roots) in [("0", 0), ("1", 1)] {
        let dir = TempDir::new().unwrap();
        let collector = Collector::start();
        let server = start(&dir, &collector.url, part);
        send(&server, None).await;
        send(&server, Some(unsampled)).await;
        send(&server, Some(TRACEPARENT)).await;
        assert_eq!(server.stop(Signal::TERM), Some(0));
        let spans = collector.spans();
        let pings = requests(&spans, "PingAndWarm");
        assert_eq!(pings.len(), roots + 1, "{spans:#?}");
        let of_client = pings.iter().find(|span| span.trace_id == TRACE.to_be_bytes());
        let of_client = of_client.unwrap();
        assert_eq!(of_client.parent_span_id, PARENT.to_be_bytes());
        assert_eq!(of_client.trace_state, "vendor=x");
        assert_ne!(of_client.span_id, PARENT.to_be_bytes());
        assert!(!stages(&spans, of_client).is_empty());
    }
}

/// The collector accepts connections and never answers. More spans come than the queue holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_collector_costs_spans_and_delays_nothing() {
    let dir = TempDir::new().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = start(&dir, &format!("http://{}", silent.local_addr().unwrap()), "1");
    let client = connect(&server.bigtable).await;
    let dropped = || server.metric("stele_trace_spans_total{outcome=\"dropped\"}");
    let mut longest = Duration::ZERO;
    for round in 0..4_000 {
        if round % 50 == 0 && dropped() > 0 {
            break;
        }
        let pings = (0..50).map(|_| {
            let mut client = client.clone();
            async move { client.ping_and_warm(ping()).await.unwrap() }
        });
        let began = Instant::now();
        futures::future::join_all(pings).await;
        longest = longest.max(began.elapsed());
    }
    assert!(dropped() > 0, "the queue took them all");
    // The exporter gives the collector ten seconds for a batch.
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    assert_eq!(server.stop(Signal::TERM), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absent_collector_costs_spans() {
    let dir = TempDir::new().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = start(&dir, &format!("http://{gone}"), "1");
    let mut client = connect(&server.bigtable).await;
    client.ping_and_warm(ping()).await.unwrap();
    let failed = "stele_trace_spans_total{outcome=\"failed\"}";
    let began = Instant::now();
    while server.metric(failed) == 0 && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.metric(failed), 2, "the request and its stage");
    client.ping_and_warm(ping()).await.unwrap();
    assert_eq!(server.stop(Signal::TERM), Some(0));
}
