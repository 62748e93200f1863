//! Requests made to take a server down.
//!
//! Under each of them the memory of the real process stays within its budget plus 200 MB.

use crate::support::server;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use server::{OVERDRAFT_BYTES, Server};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use tempfile::TempDir;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

const BUDGET_BYTES: u64 = 64 << 20;

/// How long scans stand still.
const STALL: Duration = Duration::from_secs(3);

/// Longest time until a request is served, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

const DATA: &str = "/google.bigtable.v2.Bigtable/";
const TABLES: &str = "/google.bigtable.admin.v2.BigtableTableAdmin/";
const INSTANCES: &str = "/google.bigtable.admin.v2.BigtableInstanceAdmin/";
const TABLE: &str = "projects/p/instances/i/tables/t";

/// A folder, and a server with that budget over it, which is dropped first.
fn start() -> (TempDir, Server) {
    let data = tempfile::tempdir().unwrap();
    let budget = BUDGET_BYTES.to_string();
    let server = Server::start(&data.path().join("data"), &["--memory", &budget]);
    (data, server)
}

async fn connect(server: &Server) -> Channel {
    // The smallest window of a stream, and one of the connection that holds up none of them.
    let endpoint = Endpoint::new(format!("http://{}", server.bigtable))
        .unwrap()
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(64 << 20);
    endpoint.connect().await.unwrap()
}

/// Bytes in, bytes out.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }
}

/// A scan whose response the client does not read, except for the bytes that fit the windows; `None` when it is
/// refused, or has no response yet.
async fn stalled_scan(channel: Channel) -> Option<tonic::Streaming<Bytes>> {
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let path = PathAndQuery::try_from(format!("{DATA}ReadRows")).unwrap();
    let scan = client.server_streaming(Request::new(field(1, TABLE.as_bytes())), path, Raw);
    let answer = tokio::time::timeout(STALL, scan).await.ok()?;
    answer.ok().map(tonic::Response::into_inner)
}

async fn call(channel: Channel, service: &str, method: &str, message: Bytes) -> Result<(), Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let path = PathAndQuery::try_from(format!("{service}{method}")).unwrap();
    let mut answer = client
        .server_streaming(Request::new(message), path, Raw)
        .await?
        .into_inner();
    while answer.message().await?.is_some() {}
    Ok(())
}

/// A length-delimited field.
fn field(number: u8, content: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(number << 3 | 2);
    let mut len = content.len();
    while len >= 0x80 {
        out.put_u8(len as u8 | 0x80);
        len >>= 7;
    }
    out.put_u8(len as u8);
    out.extend_from_slice(content);
    out.freeze()
}

fn all(fields: &[Bytes]) -> Bytes {
    fields.concat().into()
}

/// As many empty elements of a list as fit.
fn empties(number: u8, bytes: usize) -> Bytes {
    [number << 3 | 2, 0].repeat(bytes / 2).into()
}

/// An entry of a `MutateRows` with one cell.
fn entry(row: &[u8], value: &[u8]) -> Bytes {
    let cell = all(&[field(1, b"f"), field(2, b"q"), field(4, value)]);
    field(2, &all(&[field(1, row), field(2, &field(1, &cell))]))
}

fn table_with_family() -> Bytes {
    let family = field(3, &all(&[field(1, b"f"), field(2, b"")]));
    all(&[field(1, b"projects/p/instances/i"), field(2, b"t"), field(3, &family)])
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Each of them gets a reset, which waits in memory until the client reads it: that must end.
#[test]
fn a_connection_of_nothing_but_broken_streams_is_closed() {
    const DATA_FRAME: u8 = 0;
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const GOAWAY: u8 = 7;
    let (_data, server) = start();
    let mut client = TcpStream::connect(&server.bigtable).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    // A request that is only a method makes all streams before its own former ones, of which there can be no data.
    sent.extend(frame(HEADERS, 5, 20_001, &[0x82]));
    for stream in 0..5_000 {
        sent.extend(frame(DATA_FRAME, 1, 2 * stream + 1, &[]));
    }
    sent.extend(frame(PING, 0, 0, &[7; 8]));
    // It may be closed meanwhile.
    let _ = client.write_all(&sent);
    let mut head = [0; 9];
    while client.read_exact(&mut head).is_ok() {
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        if client.read_exact(&mut payload).is_err() {
            break;
        }
        assert!(
            kind != PING || flags == 0,
            "the server has answered all of it, and goes on"
        );
        if kind == GOAWAY {
            assert_eq!(payload[4..8], 11u32.to_be_bytes(), "ENHANCE_YOUR_CALM");
            break;
        }
    }
    assert!(TcpStream::connect(&server.bigtable).is_ok());
}

/// Service, method, message.
type Hostile = (&'static str, &'static str, Bytes);

/// Messages of the largest size that is taken, made of the smallest parts.
fn hostile_requests() -> Vec<Hostile> {
    let large = 30 << 20;
    let middle = 15 << 20;
    let named = |number, rest: Bytes| all(&[field(number, TABLE.as_bytes()), rest]);
    let row = field(2, b"r");
    let array = field(5, &field(4, &field(4, &empties(1, middle))));
    let rules = field(1, &field(4, &empties(1, middle)));
    let clusters = |n: u32| -> Bytes {
        let names = (0..n).map(|i| field(4, &field(1, &i.to_be_bytes())));
        all(&names.collect::<Vec<_>>())
    };
    vec![
        (DATA, "MutateRows", named(1, empties(2, large))),
        (DATA, "MutateRows", named(1, field(2, &empties(2, large)))),
        (
            DATA,
            "MutateRow",
            all(&[field(1, TABLE.as_bytes()), row.clone(), empties(3, large)]),
        ),
        (
            DATA,
            "MutateRow",
            all(&[field(1, TABLE.as_bytes()), row.clone(), field(3, &array)]),
        ),
        (
            DATA,
            "CheckAndMutateRow",
            all(&[field(1, TABLE.as_bytes()), row.clone(), empties(4, large)]),
        ),
        (
            DATA,
            "CheckAndMutateRow",
            all(&[
                field(1, TABLE.as_bytes()),
                row.clone(),
                field(6, &field(1, &empties(1, large))),
            ]),
        ),
        (
            DATA,
            "ReadModifyWriteRow",
            all(&[field(1, TABLE.as_bytes()), row, empties(3, large)]),
        ),
        (DATA, "ReadRows", named(1, field(2, &empties(1, middle)))),
        (DATA, "ReadRows", named(1, field(2, &empties(2, middle)))),
        (DATA, "ReadRows", named(1, field(3, &field(2, &empties(1, middle))))),
        (DATA, "SampleRowKeys", named(1, empties(6, middle))),
        (TABLES, "CreateTable", all(&[table_with_family(), empties(4, middle)])),
        (
            TABLES,
            "CreateTable",
            all(&[table_with_family(), field(3, &empties(3, middle))]),
        ),
        (
            TABLES,
            "CreateTable",
            all(&[table_with_family(), field(3, &field(15, &empties(1, middle)))]),
        ),
        (TABLES, "ModifyColumnFamilies", named(1, empties(2, middle))),
        (TABLES, "ModifyColumnFamilies", named(1, field(2, &field(2, &rules)))),
        (
            TABLES,
            "ModifyColumnFamilies",
            named(1, field(2, &field(6, &empties(1, middle)))),
        ),
        (
            TABLES,
            "UpdateTable",
            all(&[field(1, &field(1, TABLE.as_bytes())), field(2, &empties(1, middle))]),
        ),
        (INSTANCES, "CreateInstance", clusters(350_000)),
        (DATA, "MutateRows", named(1, vec![0; 257 << 20].into())),
        // Names that a refusal quotes.
        (DATA, "MutateRow", all(&[field(1, &vec![b'x'; large]), field(2, b"r")])),
        (
            DATA,
            "MutateRow",
            all(&[
                field(1, TABLE.as_bytes()),
                field(2, b"r"),
                field(3, &field(1, &field(1, &vec![b'x'; large]))),
            ]),
        ),
    ]
}

#[tokio::test]
async fn no_request_takes_more_memory_than_there_is() {
    let (_data, server) = start();
    let channel = connect(&server).await;
    call(channel.clone(), TABLES, "CreateTable", table_with_family())
        .await
        .unwrap();
    let mut over = Vec::new();
    for (service, method, message) in hostile_requests() {
        server.forget_peak();
        let len = message.len();
        let status = call(channel.clone(), service, method, message).await.unwrap_err();
        let peak = server.peak_bytes();
        println!(
            "{method:<22} {:>4} MiB  peak {:>4} MiB  {:?}: {}",
            len >> 20,
            peak >> 20,
            status.code(),
            status.message()
        );
        let told = matches!(
            status.code(),
            Code::InvalidArgument | Code::ResourceExhausted | Code::NotFound
        );
        if !told || peak > BUDGET_BYTES + OVERDRAFT_BYTES {
            over.push(format!("{method}: {} MiB, {status}", peak >> 20));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
    let fine = all(&[field(1, TABLE.as_bytes()), entry(b"r", b"v")]);
    call(channel, DATA, "MutateRows", fine).await.unwrap();
}

#[tokio::test]
async fn many_large_requests_at_once_do_not_add_up() {
    let (_data, server) = start();
    let channel = connect(&server).await;
    call(channel, TABLES, "CreateTable", table_with_family()).await.unwrap();
    let value = vec![7; 4 << 20];
    let message = all(&[
        field(1, TABLE.as_bytes()),
        entry(b"a", &value),
        entry(b"b", &value),
        entry(b"c", &value),
    ]);
    server.forget_peak();
    let mut calls = Vec::new();
    for _ in 0..64 {
        let channel = connect(&server).await;
        calls.push(tokio::spawn(call(channel, DATA, "MutateRows", message.clone())));
    }
    let mut written = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(()) => written += 1,
            Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
        }
    }
    let peak = server.peak_bytes();
    println!("{written} of 64 batches of 12 MiB written, peak {} MiB", peak >> 20);
    assert!(written > 0, "some of them fit");
    assert!(peak <= BUDGET_BYTES + OVERDRAFT_BYTES, "{} MiB", peak >> 20);
}

/// Creates a table of 48 batches with this number of rows and bytes per row.
async fn filled(server: &Server, rows: u16, bytes: usize) -> Channel {
    let channel = connect(server).await;
    call(channel.clone(), TABLES, "CreateTable", table_with_family())
        .await
        .unwrap();
    for batch in 0..48u8 {
        let value = vec![batch; bytes];
        let entries = (0..rows).map(|n| entry(&[&[b'A' + batch][..], &n.to_be_bytes()].concat(), &value));
        let message = all(&[field(1, TABLE.as_bytes()), all(&entries.collect::<Vec<_>>())]);
        call(channel.clone(), DATA, "MutateRows", message).await.unwrap();
    }
    channel
}

/// Such values have a memory pool of their own, which responses use as well: a sixteenth of the budget.
#[tokio::test]
async fn readers_that_take_nothing_do_not_keep_large_values_from_others() {
    let (_data, server) = start();
    let channel = filled(&server, 12, 100 << 10).await;
    // More than memtables may take, and so in files.
    assert!(server.metric("stele_tablet_flushes_total") >= 2);
    let stalled = connect(&server).await;
    let scans: Vec<_> = (0..24).map(|_| tokio::spawn(stalled_scan(stalled.clone()))).collect();
    let mut held = Vec::new();
    for scan in scans {
        held.extend(scan.await.unwrap());
    }
    assert!(held.len() > 8, "{} stand still", held.len());
    for _ in 0..2 {
        call(channel.clone(), DATA, "ReadRows", field(1, TABLE.as_bytes()))
            .await
            .unwrap();
    }
    drop(held);
}

#[tokio::test]
async fn answers_that_nobody_takes_do_not_add_up() {
    let (_data, server) = start();
    let channel = filled(&server, 1_000, 1_000).await;
    println!("while written: peak {} MiB", server.peak_bytes() >> 20);
    server.forget_peak();
    println!("at rest: {} MiB", server.peak_bytes() >> 20);
    let mut scans = Vec::new();
    for _ in 0..8 {
        let channel = connect(&server).await;
        for _ in 0..50 {
            scans.push(tokio::spawn(stalled_scan(channel.clone())));
        }
    }
    let mut held = Vec::new();
    for scan in scans {
        held.extend(scan.await.unwrap());
    }
    println!("stalled: peak {} MiB", server.peak_bytes() >> 20);
    // Single rows are read nevertheless.
    let row = all(&[field(1, TABLE.as_bytes()), field(2, &field(1, b"none"))]);
    call(channel, DATA, "ReadRows", row).await.unwrap();
    let peak = server.peak_bytes();
    println!("{} of 400 scans have answers, peak {} MiB", held.len(), peak >> 20);
    assert!(
        held.len() >= 16 && peak <= BUDGET_BYTES + OVERDRAFT_BYTES,
        "{} MiB",
        peak >> 20
    );
}

/// Waiters for memory get that of clients that read nothing, over real connections: these lose the bytes behind their
/// windows.
#[tokio::test]
async fn scans_that_stand_still_do_not_stop_others() {
    let (_data, server) = start();
    let channel = filled(&server, 200, 5_000).await;
    let stalled = connect(&server).await;
    let mut held = Vec::new();
    // Some are refused as long as those that came before may pause.
    for _ in 0..4 {
        let scans: Vec<_> = (0..40).map(|_| tokio::spawn(stalled_scan(stalled.clone()))).collect();
        for scan in scans {
            held.extend(scan.await.unwrap());
        }
    }
    assert!(held.len() >= 40, "{}", held.len());
    let read = call(channel, DATA, "ReadRows", field(1, TABLE.as_bytes()));
    tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
    // Those that were in the way end in a way that clients retry; others go on.
    let mut broken = 0;
    for stream in &mut held {
        let end = loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(status) => break Err(status),
            }
        };
        if let Err(status) = end {
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            broken += 1;
        }
    }
    println!("{broken} were given up");
    assert!(broken > 0);
}

#[tokio::test]
async fn readers_of_a_wide_row_do_not_add_up() {
    let (_data, server) = start();
    let channel = connect(&server).await;
    call(channel.clone(), TABLES, "CreateTable", table_with_family())
        .await
        .unwrap();
    let named = |rest: &[Bytes]| all(&[field(1, TABLE.as_bytes()), all(rest)]);
    for part in 0..6u32 {
        let cells = (0..10_000u32).map(|n| {
            let qualifier = (part * 10_000 + n).to_be_bytes();
            field(
                3,
                &field(1, &all(&[field(1, b"f"), field(2, &qualifier), field(4, &[7; 10])])),
            )
        });
        let message = named(&[field(2, b"wide"), all(&cells.collect::<Vec<_>>())]);
        call(channel.clone(), DATA, "MutateRow", message).await.unwrap();
    }
    server.forget_peak();
    // Half of them through a filter that makes four cells of one.
    let pass = Bytes::from_static(&[17 << 3 & 0x7f | 0x80, 1, 1]);
    let copies = field(3, &field(2, &vec![field(1, &pass); 4].concat()));
    let row = field(2, &field(1, b"wide"));
    let mut calls = Vec::new();
    for reader in 0..24 {
        let channel = connect(&server).await;
        let message = match reader % 2 {
            0 => named(std::slice::from_ref(&row)),
            _ => named(&[row.clone(), copies.clone()]),
        };
        calls.push(tokio::spawn(call(channel, DATA, "ReadRows", message)));
    }
    let mut read = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(()) => read += 1,
            Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
        }
    }
    let peak = server.peak_bytes();
    println!("{read} of 24 readers of 60,000 cells answered, peak {} MiB", peak >> 20);
    assert!(read > 0, "one after the other they fit");
    assert!(peak <= BUDGET_BYTES + OVERDRAFT_BYTES, "{} MiB", peak >> 20);
}
