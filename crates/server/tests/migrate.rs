//! `stele migrate` between two servers of Stele, which speaks HBase's protocol as a source, too.

use crate::support::server::{Server, stele};
use bytes::Bytes;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use stele_hbaseclient::scan::{Rows, Scanner, View};
use stele_hbaseclient::{Cluster, Settings, batch, master};
use stele_migrate::changes::Converter;
use stele_migrate::digest::RowDigests;
use stele_wire::cell::{Cell, CellType};
use stele_wire::messages::{
    BytesBytesPair, ColumnFamilySchema, CreateTableRequest, GetTableDescriptorsRequest, GetTableDescriptorsResponse,
    NameStringPair, NamespaceDescriptor, NamespaceMessage, RegionInfo, SplitRegionRequest, TableName, TableSchema,
};

const TABLE: &str = "shop:orders";

/// A server with its HBase API, and a client of it.
struct End {
    /// Removed when dropped.
    data: tempfile::TempDir,
    server: Server,
    address: String,
    cluster: Arc<Cluster>,
}

impl End {
    fn start() -> End {
        let data = tempfile::tempdir().unwrap();
        let address = free_address();
        let server = Server::start(data.path(), &["--hbase", &address]);
        let cluster = Arc::new(Cluster::new(vec![address.clone()], Settings::default()));
        End {
            data,
            server,
            address,
            cluster,
        }
    }

    /// The same after the process was killed and started again.
    fn restarted(self) -> End {
        let End {
            data,
            server,
            address,
            cluster,
        } = self;
        drop(server);
        let server = Server::start(data.path(), &["--hbase", &address]);
        End {
            data,
            server,
            address,
            cluster,
        }
    }

    /// Splits the region of a row there.
    async fn split(&self, row: &'static str) {
        let regions = self.cluster.regions(TABLE).await.unwrap();
        let region = regions.iter().find(|region| region.contains(row.as_bytes())).unwrap();
        let name = String::from_utf8_lossy(&region.name).into_owned();
        let id = name.rsplit_once(',').unwrap().1.split('.').next().unwrap();
        let request = SplitRegionRequest {
            region_info: RegionInfo {
                region_id: id.parse().unwrap(),
                table_name: table_name(),
                start_key: Some(region.start.clone()),
                end_key: Some(region.end.clone()),
                ..RegionInfo::default()
            },
            split_row: Some(row.into()),
            nonce_group: None,
            nonce: None,
        };
        master::procedure(&self.cluster, "SplitRegion", &request, None)
            .await
            .unwrap();
    }

    /// Makes the namespace and the table of all tests, split at `g` and `p`.
    async fn create(&self) {
        self.create_as(schema()).await;
    }

    async fn create_as(&self, table_schema: TableSchema) {
        let namespace = NamespaceMessage {
            namespace_descriptor: NamespaceDescriptor {
                name: "shop".into(),
                configuration: vec![NameStringPair {
                    name: "owner".to_owned(),
                    value: "me".to_owned(),
                }],
            },
            nonce_group: None,
            nonce: None,
        };
        master::procedure(&self.cluster, "CreateNamespace", &namespace, None)
            .await
            .unwrap();
        let request = CreateTableRequest {
            table_schema,
            split_keys: vec!["g".into(), "p".into()],
            ..CreateTableRequest::default()
        };
        master::procedure(&self.cluster, "CreateTable", &request, None)
            .await
            .unwrap();
    }

    async fn write(&self, cells: &[Cell]) {
        let cells = cells.iter().map(|cell| (cell.clone(), Bytes::new())).collect();
        let (changes, _) = Converter::new(false).convert(cells).unwrap();
        batch::write(&self.cluster, TABLE, &changes).await.unwrap();
    }

    /// All cells of the table, as text.
    async fn cells(&self, view: View) -> Vec<String> {
        let rows = Rows::between(Bytes::new(), Bytes::new());
        let mut scanner = Scanner::new(Arc::clone(&self.cluster), TABLE, rows, view);
        let mut all = Vec::new();
        while let Some(cells) = scanner.next().await.unwrap() {
            all.extend(cells.cells.iter().map(|(cell, _)| format!("{cell:?}")));
        }
        all
    }

    async fn described(&self) -> TableSchema {
        let request = GetTableDescriptorsRequest {
            table_names: vec![table_name()],
            ..GetTableDescriptorsRequest::default()
        };
        let answer: GetTableDescriptorsResponse = master::call(&self.cluster, "GetTableDescriptors", &request)
            .await
            .unwrap();
        answer.table_schema.into_iter().next().unwrap()
    }
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn table_name() -> TableName {
    TableName {
        namespace: "shop".into(),
        qualifier: "orders".into(),
    }
}

fn schema() -> TableSchema {
    let pair = |(first, second): (&'static str, &'static str)| BytesBytesPair {
        first: first.into(),
        second: second.into(),
    };
    let family = |name: &'static str, attributes: &[(&'static str, &'static str)]| ColumnFamilySchema {
        name: name.into(),
        attributes: attributes.iter().copied().map(pair).collect(),
        configuration: Vec::new(),
    };
    TableSchema {
        table_name: Some(table_name()),
        attributes: vec![pair(("owner of the table", "me")), pair(("MAX_FILESIZE", "1073741824"))],
        column_families: vec![
            family("f", &[("VERSIONS", "3"), ("REPLICATION_SCOPE", "1"), ("note", "kept")]),
            family("g", &[("VERSIONS", "1"), ("TTL", "864000000"), ("COMPRESSION", "GZ")]),
        ],
        ..TableSchema::default()
    }
}

fn cell(row: &str, column: &str, timestamp: i64, kind: CellType, value: &str) -> Cell {
    let (family, qualifier) = column.split_once(':').unwrap();
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Cell {
        row: bytes(row),
        family: bytes(family),
        qualifier: bytes(qualifier),
        timestamp,
        kind,
        value: bytes(value),
    }
}

fn put(row: &str, column: &str, timestamp: i64, value: &str) -> Cell {
    cell(row, column, timestamp, CellType::Put, value)
}

/// Rows in all ranges, with versions, every kind of delete, hidden cells, and odd keys.
fn sample() -> Vec<Cell> {
    let mut cells = Vec::new();
    for row in ["a", "g", "k\0", "p", "zz"] {
        for timestamp in [5, 4, 3] {
            cells.push(put(row, "f:q", timestamp, &format!("{row}{timestamp}")));
        }
        cells.push(put(row, "g:", 4_000_000_000_000, ""));
    }
    cells.extend([
        cell("b", "f:", 7, CellType::DeleteFamily, ""),
        put("b", "f:q", 8, "seen"),
        put("b", "f:q", 6, "hidden"),
        cell("c", "f:q", 5, CellType::Delete, ""),
        put("c", "f:q", 5, "hidden"),
        put("c", "f:q", 4, "seen"),
        cell("d", "f:q", 5, CellType::DeleteColumn, ""),
        put("d", "f:q", 6, "seen"),
        put("d", "f:q", 4, "hidden"),
        cell("e", "f:", 5, CellType::DeleteFamilyVersion, ""),
        put("e", "f:q", 5, "hidden"),
        put("e", "f:r", 6, "seen"),
    ]);
    cells
}

/// Runs the command with a progress file in `folder`.
fn migrate(folder: &Path, source: &End, target: &End, options: &[&str]) -> Output {
    let url = format!("hbase://{}", source.address);
    let mut command = stele(&["migrate", &url, "--to", &target.address]);
    command.args(options).current_dir(folder).output().unwrap()
}

fn text(output: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    format!("{out}{err}")
}

#[tokio::test]
async fn a_table_arrives_with_its_options_versions_and_tombstones() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (End::start(), End::start());
    source.create().await;
    source.write(&sample()).await;
    let made = migrate(folder.path(), &source, &target, &["--schema-only"]);
    assert!(made.status.success(), "{}", text(&made));
    assert_eq!(target.described().await, source.described().await);
    let starts = |regions: Vec<Arc<stele_hbaseclient::locations::Region>>| -> Vec<Bytes> {
        regions.iter().map(|region| region.start.clone()).collect()
    };
    let regions = starts(target.cluster.regions(TABLE).await.unwrap());
    assert_eq!(regions, ["", "g", "p"].map(Bytes::from));
    assert!(target.cells(View::Raw).await.is_empty());

    let copied = migrate(folder.path(), &source, &target, &["--verify", "--parallel", "2"]);
    let said = text(&copied);
    assert!(copied.status.success() && said.contains("no differences"), "{said}");
    assert_eq!(target.cells(View::Raw).await, source.cells(View::Raw).await);
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "no progress file stays"
    );

    // A tombstone is one in the target, too: it hides a late cell, as in the source.
    for end in [&source, &target] {
        end.write(&[put("d", "f:q", 2, "late")]).await;
    }
    let visible = target.cells(View::Visible).await;
    assert_eq!(visible, source.cells(View::Visible).await);
    assert!(
        !visible
            .iter()
            .any(|cell| cell.contains("late") || cell.contains("hidden"))
    );

    // A copy that is repeated, after a newer cell of a peer, changes nothing more.
    target.write(&[put("a", "f:q", 9, "of the peer")]).await;
    let before = target.cells(View::Visible).await;
    let again = migrate(folder.path(), &source, &target, &["--tables", "shop:.*"]);
    assert!(again.status.success(), "{}", text(&again));
    assert_eq!(target.cells(View::Visible).await, before);
}

fn attribute(name: &'static str, value: &'static str) -> BytesBytesPair {
    BytesBytesPair {
        first: name.into(),
        second: value.into(),
    }
}

/// By sequence the tombstones of a row, which come first, would hide nothing.
#[tokio::test]
async fn no_hidden_cell_appears_in_a_target_whose_deletes_act_by_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (End::start(), End::start());
    source.create().await;
    source.write(&sample()).await;
    let mut other = schema();
    other.column_families[0]
        .attributes
        .push(attribute("NEW_VERSION_BEHAVIOR", "true"));
    target.create_as(other).await;
    let copied = migrate(folder.path(), &source, &target, &["--verify", "--attempts", "1"]);
    let said = text(&copied);
    assert!(
        copied.status.success() && said.contains("only visible cells are copied"),
        "{said}"
    );
    let visible = target.cells(View::Visible).await;
    assert!(!visible.iter().any(|cell| cell.contains("hidden")), "{visible:?}");
    assert_eq!(visible, source.cells(View::Visible).await);
}

#[tokio::test]
async fn copied_cells_survive_the_process_in_a_table_without_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (End::start(), End::start());
    let mut unlogged = schema();
    unlogged.attributes.push(attribute("DURABILITY", "SKIP_WAL"));
    source.create_as(unlogged).await;
    source.write(&sample()).await;
    let copied = migrate(folder.path(), &source, &target, &[]);
    assert!(copied.status.success(), "{}", text(&copied));
    let before = target.cells(View::Raw).await;
    let target = target.restarted();
    assert!(!before.is_empty());
    assert_eq!(target.cells(View::Raw).await, before);
}

#[tokio::test]
async fn rows_that_differ_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (End::start(), End::start());
    source.create().await;
    source.write(&sample()).await;
    let copied = migrate(folder.path(), &source, &target, &[]);
    assert!(copied.status.success(), "{}", text(&copied));
    let verify = |options: &[&str]| {
        let all = [&["--verify-only", "--attempts", "1"], options].concat();
        let output = migrate(folder.path(), &source, &target, &all);
        (output.status.code(), text(&output))
    };
    assert_eq!(verify(&[]).0, Some(0));
    target.write(&[put("g", "f:q", 5, "other value")]).await;
    source.write(&[put("newer", "f:q", 1, "x")]).await;
    let (code, said) = verify(&[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("rows from \"g\" to \"p\": 2 rows differ"), "{said}");
    assert!(
        said.contains("row g: 4 cells in the source, 4 cells in the target"),
        "{said}"
    );
    assert!(
        said.contains("row newer: 1 cell in the source, 0 cells in the target"),
        "{said}"
    );
    assert_eq!(verify(&["--repair"]).0, Some(0));
    assert_eq!(target.cells(View::Visible).await, source.cells(View::Visible).await);

    // A row that only the target has cannot be repaired by a copy.
    target.write(&[put("only here", "f:q", 1, "x")]).await;
    let (code, said) = verify(&["--repair"]);
    assert!(
        code == Some(1) && said.contains("row only here: 0 cells in the source, 1 cell in the target"),
        "{said}"
    );
    let (code, said) = verify(&["--repair", "--delete-extra"]);
    assert!(code == Some(0) && said.contains("deleted 1 cell"), "{said}");
    assert_eq!(target.cells(View::Visible).await, source.cells(View::Visible).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_follows_a_changing_row_does_not_differ() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (Arc::new(End::start()), Arc::new(End::start()));
    source.create().await;
    source.write(&sample()).await;
    assert!(migrate(folder.path(), &source, &target, &[]).status.success());
    // The target is always one write behind, so both sides are never equal.
    let hot = |i: i64| put("hot", "f:q", i, "x");
    source.write(&[hot(100)]).await;
    let ends = (Arc::clone(&source), Arc::clone(&target));
    let peer = tokio::spawn(async move {
        for i in 100.. {
            ends.0.write(&[hot(i + 1)]).await;
            ends.1.write(&[hot(i)]).await;
        }
    });
    let verify = || {
        let output = migrate(folder.path(), &source, &target, &["--verify-only", "--attempts", "1"]);
        (output.status.code(), text(&output))
    };
    let (code, said) = verify();
    assert_eq!(code, Some(0), "{said}");
    peer.abort();
    let _ = peer.await;
    let (code, said) = verify();
    assert!(code == Some(1) && said.contains("1 row differs"), "{said}");
    assert!(
        said.contains("row hot: 3 cells in the source, 3 cells in the target"),
        "{said}"
    );
    assert!(!said.contains("changing"), "{said}");
}

/// Some responses of 2 MiB in one range.
fn large_rows() -> Vec<Cell> {
    let value = "v".repeat(100_000);
    (0..100).map(|i| put(&format!("h{i:03}"), "f:q", 1, &value)).collect()
}

#[tokio::test]
async fn a_scan_goes_on_through_a_split_and_a_restart() {
    let mut source = End::start();
    source.create().await;
    source.write(&large_rows()).await;
    let rows = Rows::between("h".into(), "i".into());
    let mut scanner = Scanner::new(Arc::clone(&source.cluster), TABLE, rows, View::Raw);
    let mut seen = Vec::new();
    for step in 0.. {
        let Some(cells) = scanner.next().await.unwrap() else {
            break;
        };
        assert!(!cells.again, "no row here is larger than a response");
        seen.extend(cells.cells.into_iter().map(|(cell, _)| cell.row));
        match step {
            0 => source.split("h010").await,
            1 => source.split("h060").await,
            2 => source = source.restarted(),
            _ => {}
        }
    }
    let expected: Vec<Bytes> = large_rows().into_iter().map(|cell| cell.row).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_row_whose_scanner_is_lost_is_read_once_more() {
    let mut source = End::start();
    source.create().await;
    let value = "v".repeat(100_000);
    let wide: Vec<Cell> = (0..60).map(|i| put("wide", &format!("f:{i:02}"), 1, &value)).collect();
    for some in wide.chunks(10) {
        source.write(some).await;
    }
    let scanner = || {
        let rows = Rows::between(Bytes::new(), Bytes::new());
        Scanner::new(Arc::clone(&source.cluster), TABLE, rows, View::Visible)
    };
    let expected = RowDigests::new(scanner()).next().await.unwrap().unwrap();
    assert_eq!((&expected.0[..], expected.1.cells), (&b"wide"[..], 60));
    let mut scanner = scanner();
    let first = scanner.next().await.unwrap().unwrap();
    assert!(first.whole.is_none() && !first.cells.is_empty() && first.cells.len() < 60);
    source = source.restarted();
    let second = scanner.next().await.unwrap().unwrap();
    assert!(second.again && second.cells[0].0 == first.cells[0].0);
    drop(source);
}

#[tokio::test]
async fn an_interrupted_copy_continues() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (End::start(), End::start());
    source.create().await;
    source.write(&large_rows()).await;
    source.write(&sample()).await;
    let url = format!("hbase://{}", source.address);
    let state = folder.path().join("stele-migrate.state");
    // So slow that it cannot end before the signal.
    let slow: [&str; 6] = [
        "migrate",
        &url,
        "--to",
        &target.address,
        "--max-bytes-per-second",
        "100KiB",
    ];
    let mut child = stele(&slow)
        .current_dir(folder.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let has_rows = || std::fs::read_to_string(&state).is_ok_and(|text| text.contains("\"through\":\"aDA"));
    while !has_rows() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    let stopped = child.wait_with_output().unwrap();
    assert_eq!(stopped.status.code(), Some(1));
    assert!(
        text(&stopped).contains("run the same command again to continue"),
        "{}",
        text(&stopped)
    );
    let before = target.cells(View::Raw).await.len();
    assert!(before > 0 && before < source.cells(View::Raw).await.len());

    source.split("h050").await;
    let other = End::start();
    let refused = migrate(folder.path(), &source, &other, &[]);
    assert!(
        !refused.status.success() && text(&refused).contains("belongs to other work"),
        "{}",
        text(&refused)
    );
    let copied = migrate(folder.path(), &source, &target, &["--verify", "--attempts", "1"]);
    let said = text(&copied);
    assert!(copied.status.success() && said.contains("continuing after"), "{said}");
    assert_eq!(target.cells(View::Raw).await, source.cells(View::Raw).await);
}

#[tokio::test]
async fn mistakes_are_told_before_anything_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (End::start(), End::start());
    source.create().await;
    let refused = |source: &End, target: &End, options: &[&str], expected: &str| {
        let output = migrate(folder.path(), source, target, options);
        let said = text(&output);
        assert!(!output.status.success() && said.contains(expected), "{said}");
    };
    refused(&source, &source, &[], "are the same cluster");
    refused(&source, &target, &["--tables", "other|shop:order"], "no such table");
    refused(&source, &target, &["--verify-only"], "no table");
    let url = format!("http://{}", source.address);
    let wrong = stele(&["migrate", &url]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    drop(source.server);
    drop(target.server);
}
