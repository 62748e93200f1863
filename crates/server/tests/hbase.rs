//! HBase's protocol over a real socket.

mod bulk_load;
mod traces;

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
    /// Sent with each call.
    trace_info: Option<Bytes>,
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
            trace_info: None,
        }
    }

    fn call(&mut self, method: &'static str, message: &impl prost::Message, cells: &impl CellBlock) -> Response {
        self.calls += 1;
        let header = RequestHeader {
            call_id: Some(self.calls),
            method_name: Some(Bytes::from_static(method.as_bytes())),
            trace_info: self.trace_info.clone(),
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

/// A request for a table with family `f`, split at `m`.
fn creation(table_name: TableName, attributes: Vec<BytesBytesPair>) -> CreateTableRequest {
    let schema = TableSchema {
        table_name: Some(table_name),
        column_families: vec![ColumnFamilySchema {
            name: "f".into(),
            attributes,
            ..ColumnFamilySchema::default()
        }],
        ..TableSchema::default()
    };
    CreateTableRequest {
        table_schema: schema,
        split_keys: vec!["m".into()],
        ..CreateTableRequest::default()
    }
}

fn make(master: &mut Connection, request: &CreateTableRequest) {
    let (made, _): (ProcedureResponse, _) = master.ask("CreateTable", request);
    let state = GetProcedureResultRequest {
        proc_id: made.proc_id.unwrap(),
    };
    let (done, _): (GetProcedureResultResponse, _) = master.ask("getProcedureResult", &state);
    assert_eq!(done.state, ProcedureState::Finished as i32);
}

/// Makes table `t`.
fn create(address: &str) {
    let request = creation(table(), Vec::new());
    let mut master = Connection::open(address, MASTER_SERVICE);
    make(&mut master, &request);
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
    put_if(client, region, row, value, None)
}

/// The same with a condition as clients before 2.4 send it.
fn put_if(
    client: &mut Connection,
    region: &RegionSpecifier,
    row: &'static str,
    value: &'static str,
    condition: Option<Condition>,
) -> Response {
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
        condition,
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
            condition: None,
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

/// Holds when column `f:q` of a row has this value.
fn is(row: &'static str, value: Bytes) -> Condition {
    let comparable = ByteArrayComparable { value: Some(value) };
    let comparator = Comparator {
        name: BINARY_COMPARATOR.into(),
        serialized_comparator: Some(prost::Message::encode_to_vec(&BinaryComparator { comparable }).into()),
    };
    Condition {
        row: row.into(),
        family: Some("f".into()),
        qualifier: Some("q".into()),
        compare_type: Some(CompareType::Equal as i32),
        comparator: Some(comparator),
        ..Condition::default()
    }
}

#[test]
fn a_condition_of_a_whole_batch_decides() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let _server = server(data.path(), &address);
    create(&address);
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    let region = region_of(&mut client, b"a");
    put(&mut client, &region, "a", "first");
    let mut put_if_value_is = |expected: &'static str, value: &'static str| {
        let condition = is("a", expected.into());
        let response = put_if(&mut client, &region, "a", value, Some(condition));
        let response: MultiResponse = decode("MultiResponse", response.message).unwrap();
        response.processed
    };
    assert_eq!(put_if_value_is("other", "second"), Some(false));
    assert_eq!(put_if_value_is("first", "third"), Some(true));
    assert_eq!(put_if_value_is("second", "fourth"), Some(false));
    // A condition is about the row of its mutation.
    let request = MutateRequest {
        region: region.clone(),
        mutation: put_of("b", "f", "v".into()),
        condition: Some(is("a", "third".into())),
        nonce_group: None,
    };
    let refused = client.call("Mutate", &request, &()).header.exception.unwrap();
    assert_eq!(refused.exception_class_name.unwrap(), exception::DO_NOT_RETRY);
}

#[test]
fn a_scan_returns_full_results_without_a_search_for_more_and_ends_when_its_table_changes() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let server = server(data.path(), &address);
    create(&address);
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    let region = region_of(&mut client, b"a");
    for row in ["a", "b"] {
        put(&mut client, &region, row, row);
    }
    let scan = ScanRequest {
        region: Some(region),
        scan: Some(Scan::default()),
        number_of_rows: Some(2),
        ..ScanRequest::default()
    };
    let (opened, cells) = client.ask::<ScanResponse>("Scan", &scan);
    assert_eq!((opened.more_results_in_region, cells.len()), (Some(true), 2));
    server.client(&["alter-table", "default/t", "--row-cache", "false"]);
    let next = ScanRequest {
        scanner_id: opened.scanner_id,
        number_of_rows: Some(2),
        next_call_seq: Some(0),
        ..ScanRequest::default()
    };
    let failed = client.call("Scan", &next, &()).header.exception.unwrap();
    assert_eq!(failed.exception_class_name.as_deref(), Some(exception::UNKNOWN_SCANNER));
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

/// A put of a column of family `f`, with its cells in the message.
fn put_of(row: &'static str, family: &'static str, value: Bytes) -> MutationProto {
    MutationProto {
        row: Some(row.into()),
        mutate_type: Some(MutationType::Put as i32),
        column_value: vec![ColumnValue {
            family: family.into(),
            qualifier_value: vec![QualifierValue {
                qualifier: Some("q".into()),
                value: Some(value),
                ..QualifierValue::default()
            }],
        }],
        ..MutationProto::default()
    }
}

/// Calls a method of a service of a region.
fn exec(
    client: &mut Connection,
    region: &RegionSpecifier,
    (service, method): (&str, &str),
    argument: &impl prost::Message,
) -> Result<Bytes, String> {
    let request = CoprocessorServiceRequest {
        region: region.clone(),
        call: CoprocessorServiceCall {
            row: Bytes::new(),
            service_name: service.to_owned(),
            method_name: method.to_owned(),
            request: argument.encode_to_vec().into(),
        },
    };
    let response = client.call("ExecService", &request, &());
    match response.header.exception {
        Some(thrown) => Err(thrown.exception_class_name.unwrap()),
        None => {
            let done: CoprocessorServiceResponse = decode("response", response.message).unwrap();
            Ok(done.value.value.unwrap())
        }
    }
}

#[test]
fn rows_are_mutated_together_and_summed_where_they_are() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let server = server(data.path(), &address);
    create(&address);
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    let region = region_of(&mut client, b"a");
    let mut mutate = |mutations: &[MutationProto]| {
        let request = MutateRowsRequest {
            mutation_request: mutations.to_vec(),
            ..MutateRowsRequest::default()
        };
        exec(
            &mut client,
            &region,
            ("MultiRowMutationService", "MutateRows"),
            &request,
        )
        .map(drop)
    };
    let number = |n: i64| Bytes::copy_from_slice(&n.to_be_bytes());
    let puts = [("a", 5), ("b", -2), ("c", 40)].map(|(row, n)| put_of(row, "f", number(n)));
    assert_eq!(mutate(&puts), Ok(()));
    let no_number = put_of("d", "f", "none".into());
    assert_eq!(mutate(&[no_number]), Ok(()));
    // One bad row, and none is written.
    for (bad, class) in [
        (put_of("z", "f", number(1)), exception::WRONG_REGION),
        (put_of("e", "g", number(1)), exception::NO_SUCH_FAMILY),
    ] {
        let refused = mutate(&[put_of("e", "f", number(1)), bad]);
        assert_eq!(refused, Err(class.to_owned()));
    }

    let mut ask = |method, class: &str, family: &'static str| {
        let request = AggregateRequest {
            interpreter_class_name: format!("org.apache.hadoop.hbase.client.coprocessor.{class}"),
            scan: Scan {
                column: vec![Column {
                    family: family.into(),
                    qualifier: Vec::new(),
                }],
                ..Scan::default()
            },
            ..AggregateRequest::default()
        };
        let answer = exec(&mut client, &region, ("AggregateService", method), &request)?;
        let answer: AggregateResponse = decode("AggregateResponse", answer).unwrap();
        let long = |bytes: Bytes| decode::<LongMsg>("LongMsg", bytes).unwrap().long_msg;
        Ok::<_, String>(match method {
            "GetRowNum" => vec![i64::from_be_bytes(answer.first_part[0][..].try_into().unwrap())],
            _ => answer.first_part.into_iter().map(long).collect(),
        })
    };
    let mut long = |method| ask(method, "LongColumnInterpreter", "f").unwrap();
    assert_eq!(long("GetRowNum"), [4]);
    assert_eq!(long("GetSum"), [43]);
    assert_eq!(long("GetMax"), [40]);
    assert_eq!(long("GetMin"), [-2]);
    assert_eq!(long("GetStd"), [43, 25 + 4 + 1600]);
    assert_eq!(long("GetMedian"), [43, i64::MIN]);
    let unknown = exception::UNKNOWN_PROTOCOL.to_owned();
    assert_eq!(ask("GetMode", "LongColumnInterpreter", "f"), Err(unknown));
    let other = Err(exception::DO_NOT_RETRY.to_owned());
    assert_eq!(ask("GetSum", "OtherInterpreter", "f"), other);
    let no_family = Err(exception::NO_SUCH_FAMILY.to_owned());
    assert_eq!(ask("GetSum", "LongColumnInterpreter", "g"), no_family);
    assert_eq!(server.stop(rustix::process::Signal::TERM), Some(0));
}

/// Conditions, increments and deletes of several rows.
#[test]
fn several_rows_are_read_and_written_as_one() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let _server = server(data.path(), &address);
    create(&address);
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    let region = region_of(&mut client, b"a");
    let mut mutate = |mutation_request: Vec<MutationProto>, condition: Vec<Condition>, nonce| {
        let request = MutateRowsRequest {
            mutation_request,
            condition,
            nonce,
            ..MutateRowsRequest::default()
        };
        let call = ("MultiRowMutationService", "MutateRows");
        let done: MutateRowsResponse = decode("response", exec(&mut client, &region, call, &request)?).unwrap();
        Ok::<_, String>(done.processed.unwrap())
    };
    let count = |row| increment(row, 0);
    let delete = MutationProto {
        row: Some("b".into()),
        mutate_type: Some(MutationType::Delete as i32),
        ..MutationProto::default()
    };
    let changes = || vec![count("a"), count("a"), delete.clone(), put_of("c", "f", "new".into())];
    let start = vec![put_of("a", "f", "x".into()), put_of("b", "f", "y".into())];
    assert_eq!(mutate(start, Vec::new(), None), Ok(true));
    let (holds, fails) = (|| is("a", "x".into()), || is("b", "x".into()));
    assert_eq!(mutate(changes(), vec![holds(), fails()], None), Ok(false));
    assert_eq!(mutate(changes(), vec![holds(), is("b", "y".into())], None), Ok(true));
    // It is done: `b` is gone, `c` is there, and `a` was counted once, as in HBase.
    assert_eq!(
        mutate(Vec::new(), vec![is("c", "new".into()), is("b", Bytes::new())], None),
        Ok(true)
    );
    let counted = Condition {
        qualifier: Some("n".into()),
        ..is("a", 1i64.to_be_bytes().to_vec().into())
    };
    assert_eq!(mutate(Vec::new(), vec![counted.clone()], None), Ok(true));
    // Refused as a whole.
    let refused = Err(exception::DO_NOT_RETRY.to_owned());
    assert_eq!(mutate(vec![count("a")], Vec::new(), Some(7)), refused);
    let wrong = Err(exception::WRONG_REGION.to_owned());
    assert_eq!(mutate(vec![count("a")], vec![is("z", "x".into())], None), wrong);
    assert_eq!(mutate(Vec::new(), vec![counted], None), Ok(true));
}

/// The region as calls of the master name it.
fn info_of(region: &RegionSpecifier, end: &'static str) -> RegionInfo {
    let name = String::from_utf8(region.value.to_vec()).unwrap();
    let id = name.split(',').next_back().unwrap().split('.').next().unwrap();
    RegionInfo {
        region_id: id.parse().unwrap(),
        table_name: table(),
        start_key: Some(Bytes::new()),
        end_key: Some(end.into()),
        offline: None,
        split: None,
        replica_id: None,
    }
}

#[test]
fn regions_are_truncated_and_procedures_take_snapshots() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let _server = server(data.path(), &address);
    create(&address);
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    let (first, last) = (region_of(&mut client, b"a"), region_of(&mut client, b"z"));
    put(&mut client, &first, "a", "v");
    put(&mut client, &last, "z", "v");
    let mut master = Connection::open(&address, MASTER_SERVICE);
    let request = TruncateRegionRequest {
        region_info: info_of(&first, "m"),
        nonce_group: None,
        nonce: None,
    };
    master.ask::<ProcedureResponse>("TruncateRegion", &request);
    let mut get = |region: &RegionSpecifier, row: &'static str| {
        let get = Get {
            row: row.into(),
            ..Get::default()
        };
        let region = region.clone();
        client.ask::<GetResponse>("Get", &GetRequest { region, get }).1
    };
    assert_eq!(
        (get(&first, "a"), get(&last, "z")),
        (vec![], vec!["z f:q=v".to_owned()])
    );
    let procedure = ProcedureDescription {
        signature: "online-snapshot".into(),
        instance: Some("s".into()),
        configuration: vec![NameStringPair {
            name: "table".into(),
            value: "t".into(),
        }],
        ..ProcedureDescription::default()
    };
    let request = ExecProcedureRequest {
        procedure: Some(procedure),
    };
    master.ask::<ExecProcedureResponse>("ExecProcedure", &request);
    let (taken, _): (GetCompletedSnapshotsResponse, _) = master.ask("GetCompletedSnapshots", &Empty {});
    let names: Vec<_> = taken.snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
    assert_eq!(names, ["s"]);
    // hbase:meta has no recorded state.
    let (enabled, _): (TableNames, _) = master.ask("ListTableNamesByState", &ListByStateRequest { is_enabled: true });
    assert_eq!(enabled.table_name, [table()]);
}

#[test]
fn the_facade_of_zookeeper_names_the_server() {
    use stele_wire::zookeeper::nodes::{self, Master};
    use stele_wire::zookeeper::{ConnectRequest, ConnectResponse, Request, take_frame};
    let data = tempfile::tempdir().unwrap();
    let (address, facade) = (free_address(), free_address());
    let server = Server::start(data.path(), &["--hbase", &address, "--zookeeper-facade", &facade]);
    let mut socket = TcpStream::connect(&facade).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut out = BytesMut::new();
    ConnectRequest::default().encode(&mut out);
    Request::GetData("/hbase/master".to_owned()).encode(1, &mut out);
    socket.write_all(&out).unwrap();
    let mut received = BytesMut::new();
    let mut frame = || loop {
        if let Some(frame) = take_frame(&mut received).unwrap() {
            return frame;
        }
        let mut bytes = [0; 4096];
        let n = socket.read(&mut bytes).unwrap();
        assert!(n > 0, "the connection stays open");
        received.extend_from_slice(&bytes[..n]);
    };
    assert_ne!(ConnectResponse::decode(frame()).unwrap().session_id, 0);
    let data = frame().slice(20..);
    let data = data.slice(..data.len() - 68);
    let master: Master = nodes::decode("master", data).unwrap();
    let port = master.master.port.unwrap();
    assert_eq!(format!("{}:{port}", master.master.host_name), address);
    assert_eq!(server.stop(rustix::process::Signal::TERM), Some(0));
}

/// A cell of a log.
fn logged(out: &mut BytesMut, row: &str, timestamp: i64, kind: CellType, value: &str) {
    let cell = CellRef {
        row: row.as_bytes(),
        family: b"f",
        qualifier: b"q",
        timestamp,
        kind,
        value: value.as_bytes(),
    };
    cell.encode(out).unwrap();
}

/// The same with a tag.
fn tagged(out: &mut BytesMut, row: &str, timestamp: i64, kind: u8, value: &[u8]) {
    let mut cell = BytesMut::new();
    logged(&mut cell, row, timestamp, CellType::Put, "v");
    let tag = [&[0, value.len() as u8 + 3, 0, value.len() as u8 + 1, kind][..], value].concat();
    cell[3] += tag.len() as u8;
    out.extend_from_slice(&cell);
    out.extend_from_slice(&tag);
}

/// The cells of the first region.
fn first_rows(client: &mut Connection) -> Vec<String> {
    let scan = ScanRequest {
        region: Some(region_of(client, b"a")),
        scan: Some(Scan::default()),
        number_of_rows: Some(10),
        ..ScanRequest::default()
    };
    client.ask::<ScanResponse>("Scan", &scan).1
}

/// Sends an entry of a log, as a source of replication does; the class of the exception in the response.
fn ship(admin: &mut Connection, table: &'static str, cells: BytesMut, count: i32) -> Option<String> {
    let entry = WalEntry {
        key: WalKey {
            table_name: table.into(),
            ..WalKey::default()
        },
        key_value_bytes: Vec::new(),
        associated_cell_count: Some(count),
    };
    let request = ReplicateWalEntryRequest {
        entry: vec![entry],
        replication_cluster_id: Some("other".to_owned()),
    };
    let response = admin.call("ReplicateWALEntry", &request, &cells.freeze());
    let thrown = response.header.exception?;
    Some(thrown.exception_class_name.unwrap())
}

/// The source deletes its own log then, and never ships the entry again.
#[test]
fn an_entry_of_a_log_survives_the_process_in_a_table_without_a_log() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let first = server(data.path(), &address);
    let mut unlogged = creation(table(), Vec::new());
    unlogged.table_schema.attributes.push(BytesBytesPair {
        first: "DURABILITY".into(),
        second: "SKIP_WAL".into(),
    });
    make(&mut Connection::open(&address, MASTER_SERVICE), &unlogged);
    let mut cells = BytesMut::new();
    logged(&mut cells, "a", 5, CellType::Put, "v");
    let mut admin = Connection::open(&address, ADMIN_SERVICE);
    assert_eq!(ship(&mut admin, "t", cells, 1), None);
    // Kills it.
    drop(first);
    let second = server(data.path(), &address);
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    assert_eq!(first_rows(&mut client), ["a f:q=v"]);
    assert_eq!(second.stop(rustix::process::Signal::TERM), Some(0));
}

#[test]
fn a_lifetime_in_a_log_is_kept_and_other_tags_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let server = server(data.path(), &address);
    create(&address);
    let mut admin = Connection::open(&address, ADMIN_SERVICE);
    let mut ship = |cells: BytesMut, count| ship(&mut admin, "t", cells, count);
    let mut cells = BytesMut::new();
    tagged(&mut cells, "a", 5, 8, &1_i64.to_be_bytes());
    tagged(&mut cells, "b", 5, 8, &(i64::MAX / 2).to_be_bytes());
    logged(&mut cells, "c", 5, CellType::Put, "v");
    assert_eq!(ship(cells, 3), None);
    for (kind, value) in [(2, &b"label"[..]), (8, b"short")] {
        let mut cells = BytesMut::new();
        tagged(&mut cells, "d", 5, kind, value);
        assert_eq!(ship(cells, 1).as_deref(), Some(exception::DO_NOT_RETRY));
    }
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    assert_eq!(first_rows(&mut client), ["b f:q=v", "c f:q=v"], "the first has expired");
    assert_eq!(server.stop(rustix::process::Signal::TERM), Some(0));
}

#[test]
fn entries_of_a_log_are_applied_once_however_often_they_come() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let server = server(data.path(), &address);
    create(&address);
    let by_sequence = BytesBytesPair {
        first: "NEW_VERSION_BEHAVIOR".into(),
        second: "true".into(),
    };
    let name = TableName {
        qualifier: "by_sequence".into(),
        ..table()
    };
    let mut master = Connection::open(&address, MASTER_SERVICE);
    make(&mut master, &creation(name, vec![by_sequence]));
    let mut admin = Connection::open(&address, ADMIN_SERVICE);
    let mut ship = |table, cells: &BytesMut, count| ship(&mut admin, table, cells.clone(), count);
    let mut first = BytesMut::new();
    logged(&mut first, "a", 5, CellType::Put, "old");
    logged(&mut first, "z", 5, CellType::Put, "kept");
    logged(&mut first, "a", 7, CellType::DeleteColumn, "");
    let mut second = BytesMut::new();
    logged(&mut second, "a", 9, CellType::Put, "new");
    // The first entry comes once more behind the second, as after a lost response.
    for cells in [&first, &second, &first] {
        let count = if cells.len() == first.len() { 3 } else { 1 };
        assert_eq!(ship("t", cells, count), None);
    }
    assert_eq!(ship("hbase:meta", &first, 3), None, "system tables are passed over");
    let refused = ship("by_sequence", &first, 3);
    assert_eq!(
        refused.as_deref(),
        Some(exception::DO_NOT_RETRY),
        "the delete would come again"
    );
    assert_eq!(ship("none", &first, 3).as_deref(), Some(exception::TABLE_NOT_FOUND));
    assert_eq!(ship("t", &second, 2).as_deref(), Some(exception::DO_NOT_RETRY));
    let mut marker = BytesMut::new();
    let bulk_load = CellRef {
        row: b"a",
        family: b"METAFAMILY",
        qualifier: b"HBASE::BULK_LOAD",
        timestamp: 1,
        kind: CellType::Put,
        value: b"",
    };
    bulk_load.encode(&mut marker).unwrap();
    assert_eq!(ship("t", &marker, 1).as_deref(), Some(exception::DO_NOT_RETRY));
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    for (row, found) in [("a", vec!["a f:q=new"]), ("z", vec!["z f:q=kept"])] {
        let request = GetRequest {
            region: region_of(&mut client, row.as_bytes()),
            get: Get {
                row: row.into(),
                max_versions: Some(10),
                ..Get::default()
            },
        };
        assert_eq!(client.ask::<GetResponse>("Get", &request).1, found);
    }
    assert_eq!(server.stop(rustix::process::Signal::TERM), Some(0));
}
