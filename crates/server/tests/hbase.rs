//! HBase's protocol over a real socket.

use crate::support::server::Server;
use bytes::{Bytes, BytesMut};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use stele_wire::cell::{CellReader, CellRef, CellType};
use stele_wire::frame::{self, CellBlock, REGISTRY_OPENING, Response};
use stele_wire::messages::*;
use stele_wire::{exception, meta};

/// A connection for one service.
struct Connection {
    socket: TcpStream,
    received: BytesMut,
    calls: u32,
}

impl Connection {
    fn open(address: &str, service: &str) -> Connection {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let header = ConnectionHeader {
            service_name: Some(service.to_owned()),
            cell_block_codec_class: Some(KEY_VALUE_CODEC.to_owned()),
            ..ConnectionHeader::default()
        };
        let mut out = BytesMut::new();
        frame::encode_preamble(&mut out, &header);
        socket.write_all(&out).unwrap();
        Connection {
            socket,
            received: BytesMut::new(),
            calls: 0,
        }
    }

    fn call(&mut self, method: &'static str, message: &impl prost::Message, cells: &impl CellBlock) -> Response {
        self.calls += 1;
        let header = RequestHeader {
            call_id: Some(self.calls),
            method_name: Some(Bytes::from_static(method.as_bytes())),
            ..RequestHeader::default()
        };
        let mut out = BytesMut::new();
        frame::encode_request(&mut out, header, message, cells).unwrap();
        self.socket.write_all(&out).unwrap();
        let response = read(&mut self.socket, &mut self.received).expect("the connection stays open");
        assert_eq!(response.header.call_id, Some(self.calls));
        response
    }

    /// The message of a call that succeeds, and its cells as `row family:qualifier=value`.
    fn ask<M: prost::Message + Default>(
        &mut self,
        method: &'static str,
        message: &impl prost::Message,
    ) -> (M, Vec<String>) {
        let response = self.call(method, message, &());
        assert_eq!(response.header.exception, None, "{method}");
        (decode("response", response.message).unwrap(), shown(response.cells))
    }
}

fn read(socket: &mut TcpStream, received: &mut BytesMut) -> Option<Response> {
    let mut bytes = [0; 4096];
    loop {
        if let Some(frame) = frame::take_frame(received, 1 << 20).unwrap() {
            return Some(frame::decode_response(frame).unwrap());
        }
        match socket.read(&mut bytes).unwrap() {
            0 => return None,
            n => received.extend_from_slice(&bytes[..n]),
        }
    }
}

fn shown(cells: Bytes) -> Vec<String> {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let cell = |cell: stele_wire::cell::Cell| {
        let (row, family) = (text(&cell.row), text(&cell.family));
        format!("{row} {family}:{}={}", text(&cell.qualifier), text(&cell.value))
    };
    CellReader::new(cells).map(|read| cell(read.unwrap())).collect()
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string()
}

fn table() -> TableName {
    TableName {
        namespace: "default".into(),
        qualifier: "t".into(),
    }
}

/// Makes table `t` with family `f`, split at `m`.
fn create(address: &str) {
    let schema = TableSchema {
        table_name: Some(table()),
        column_families: vec![ColumnFamilySchema {
            name: "f".into(),
            ..ColumnFamilySchema::default()
        }],
        ..TableSchema::default()
    };
    let request = CreateTableRequest {
        table_schema: schema,
        split_keys: vec!["m".into()],
        ..CreateTableRequest::default()
    };
    let mut master = Connection::open(address, MASTER_SERVICE);
    let (made, _): (ProcedureResponse, _) = master.ask("CreateTable", &request);
    let state = GetProcedureResultRequest {
        proc_id: made.proc_id.unwrap(),
    };
    let (done, _): (GetProcedureResultResponse, _) = master.ask("getProcedureResult", &state);
    assert_eq!(done.state, ProcedureState::Finished as i32);
    let again = master.call("CreateTable", &request, &());
    let class = again.header.exception.unwrap().exception_class_name;
    assert_eq!(class.as_deref(), Some(exception::TABLE_EXISTS));
}

/// The region of a row, as `hbase:meta` has it.
fn region_of(client: &mut Connection, row: &[u8]) -> RegionSpecifier {
    let request = ScanRequest {
        region: Some(RegionSpecifier::named("hbase:meta,,1".into())),
        scan: Some(Scan {
            start_row: Some(meta::lookup_start(b"t", row)),
            stop_row: Some(meta::table_start(b"t")),
            include_stop_row: Some(true),
            reversed: Some(true),
            ..Scan::default()
        }),
        number_of_rows: Some(1),
        ..ScanRequest::default()
    };
    let response = client.call("Scan", &request, &());
    let cells: Vec<_> = CellReader::new(response.cells).map(Result::unwrap).collect();
    RegionSpecifier::named(meta::MetaRow::decode(&cells).unwrap().name)
}

fn put(client: &mut Connection, region: &RegionSpecifier, row: &'static str, value: &'static str) -> Response {
    let action = Action {
        index: Some(0),
        mutation: Some(MutationProto {
            row: Some(row.into()),
            mutate_type: Some(MutationType::Put as i32),
            associated_cell_count: Some(1),
            ..MutationProto::default()
        }),
        get: None,
    };
    let request = MultiRequest {
        region_action: vec![RegionAction {
            region: region.clone(),
            action: vec![action],
            ..RegionAction::default()
        }],
        nonce_group: None,
    };
    let mut cells = BytesMut::new();
    let cell = CellRef {
        row: row.as_bytes(),
        family: b"f",
        qualifier: b"q",
        timestamp: stele_wire::cell::LATEST,
        kind: CellType::Put,
        value: value.as_bytes(),
    };
    cell.encode(&mut cells).unwrap();
    client.call("Multi", &request, &cells.freeze())
}

fn server(data: &std::path::Path, address: &str) -> Server {
    Server::start(data, &["--hbase", address])
}

#[test]
fn a_table_is_made_written_and_read() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let server = server(data.path(), &address);
    create(&address);
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    let (first, last) = (region_of(&mut client, b"a"), region_of(&mut client, b"z"));
    assert_ne!(first, last);
    for (region, row) in [(&first, "a"), (&first, "b"), (&last, "z")] {
        let done: MultiResponse = decode("MultiResponse", put(&mut client, region, row, row).message).unwrap();
        let result = &done.region_action_result[0].result_or_exception[0];
        assert_eq!(result.exception, None);
    }
    let get = |region: &RegionSpecifier, row: &'static str| GetRequest {
        region: region.clone(),
        get: Get {
            row: row.into(),
            ..Get::default()
        },
    };
    let (_, cells) = client.ask::<GetResponse>("Get", &get(&last, "z"));
    assert_eq!(cells, ["z f:q=z"]);
    let wrong = client.call("Get", &get(&first, "z"), &());
    let class = wrong.header.exception.unwrap().exception_class_name;
    assert_eq!(class.as_deref(), Some(exception::WRONG_REGION));

    let scan = ScanRequest {
        region: Some(first.clone()),
        scan: Some(Scan::default()),
        number_of_rows: Some(1),
        ..ScanRequest::default()
    };
    let (opened, cells) = client.ask::<ScanResponse>("Scan", &scan);
    assert_eq!(
        (opened.more_results_in_region, &cells[..]),
        (Some(true), &["a f:q=a".to_owned()][..])
    );
    let next = |sequence| ScanRequest {
        scanner_id: opened.scanner_id,
        number_of_rows: Some(10),
        next_call_seq: Some(sequence),
        ..ScanRequest::default()
    };
    let (ended, cells) = client.ask::<ScanResponse>("Scan", &next(0));
    assert_eq!(
        (ended.more_results_in_region, &cells[..]),
        (Some(false), &["b f:q=b".to_owned()][..])
    );
    let unknown = client.call("Scan", &next(1), &()).header.exception.unwrap();
    assert_eq!(
        unknown.exception_class_name.as_deref(),
        Some(exception::UNKNOWN_SCANNER)
    );
    assert_eq!(server.stop(rustix::process::Signal::TERM), Some(0));
}

/// An increment of a row with a nonce; its delta is in the message.
fn increment(row: &'static str, nonce: u64) -> MutationProto {
    MutationProto {
        row: Some(row.into()),
        mutate_type: Some(MutationType::Increment as i32),
        column_value: vec![ColumnValue {
            family: "f".into(),
            qualifier_value: vec![QualifierValue {
                qualifier: Some("n".into()),
                value: Some(1i64.to_be_bytes().to_vec().into()),
                ..QualifierValue::default()
            }],
        }],
        nonce: Some(nonce),
        ..MutationProto::default()
    }
}

fn number(cells: Bytes) -> i64 {
    let cell = CellReader::new(cells).next().unwrap().unwrap();
    i64::from_be_bytes(cell.value[..].try_into().unwrap())
}

#[test]
fn an_increment_with_one_nonce_counts_once() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let server = server(data.path(), &address);
    create(&address);
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    let region = region_of(&mut client, b"a");
    let single = |client: &mut Connection, group, nonce| {
        let request = MutateRequest {
            region: region.clone(),
            mutation: increment("a", nonce),
            condition: None,
            nonce_group: Some(group),
        };
        number(client.call("Mutate", &request, &()).cells)
    };
    let batch = |client: &mut Connection, atomic, nonce| {
        let action = Action {
            index: Some(0),
            mutation: Some(increment("a", nonce)),
            get: None,
        };
        let request = MultiRequest {
            region_action: vec![RegionAction {
                region: region.clone(),
                atomic: Some(atomic),
                action: vec![action],
                ..RegionAction::default()
            }],
            nonce_group: Some(7),
        };
        let done: MultiResponse = decode("MultiResponse", client.call("Multi", &request, &()).message).unwrap();
        assert_eq!(done.region_action_result[0].exception, None);
    };
    assert_eq!([1, 1, 2, 1].map(|nonce| single(&mut client, 7, nonce)), [1, 1, 2, 1]);
    // Another client, and no nonce.
    assert_eq!(
        [
            single(&mut client, 8, 1),
            single(&mut client, 7, 0),
            single(&mut client, 7, 0)
        ],
        [3, 4, 5]
    );
    for atomic in [false, true] {
        for _ in 0..3 {
            batch(&mut client, atomic, 100 + u64::from(atomic));
        }
    }
    assert_eq!(single(&mut client, 7, 3), 8);
    assert_eq!(server.stop(rustix::process::Signal::KILL), None);
    let address = free_address();
    let _server = self::server(data.path(), &address);
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    batch(&mut client, true, 101);
    assert_eq!([2, 3, 4].map(|nonce| single(&mut client, 7, nonce)), [2, 8, 9]);
}

#[test]
fn openings_are_answered_or_refused() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let _server = server(data.path(), &address);
    let only_response = |opening: &[u8]| {
        let mut socket = TcpStream::connect(&address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(opening).unwrap();
        let mut received = BytesMut::new();
        let response = read(&mut socket, &mut received).unwrap();
        assert!(read(&mut socket, &mut received).is_none(), "the connection ends");
        response
    };
    let known: GetClusterIdResponse = decode("id", only_response(REGISTRY_OPENING).message).unwrap();
    assert!(!known.cluster_id.unwrap().is_empty());
    for (opening, class) in [
        (&b"Securi"[..], exception::SECURITY_NOT_ENABLED),
        (b"GET / HTTP/1.1\r\n\r\n", exception::FATAL_CONNECTION),
        (b"HBas\x01\x50", exception::WRONG_VERSION),
        (b"HBas\x00\x51", exception::BAD_AUTH),
    ] {
        let refused = only_response(opening).header.exception.unwrap();
        assert_eq!(refused.exception_class_name.as_deref(), Some(class));
    }
}

#[test]
fn broken_frames_end_in_an_error_and_nothing_else() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let server = server(data.path(), &address);
    create(&address);
    for garbage in [
        &[0xff; 64][..],
        &[0, 0, 0, 3, 200, 1, 2],
        &[0, 0, 0, 0],
        &[0, 0, 0, 2, 9, 9],
    ] {
        let mut client = Connection::open(&address, CLIENT_SERVICE);
        client.socket.write_all(garbage).unwrap();
        let _ = client.socket.shutdown(std::net::Shutdown::Write);
        // An error may come first; the connection ends in any case.
        while read(&mut client.socket, &mut client.received).is_some() {}
    }
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    let region = region_of(&mut client, b"a");
    let refused = client.call("Get", &region, &());
    assert!(refused.header.exception.is_some(), "the message is of another type");
    put(&mut client, &region, "a", "v");
    assert_eq!(server.stop(rustix::process::Signal::TERM), Some(0));
}
