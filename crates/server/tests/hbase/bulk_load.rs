//! A bulk load of a file of HBase through the process, which is killed afterwards.

use super::*;
use rustix::process::Signal;
use std::path::Path;

/// 24 rows of family `cf`.
const FILE: &[u8] = include_bytes!("../../../hfile/testdata/fast_diff_snappy.hfile");
const ROWS: usize = 24;

fn start(data: &Path, address: &str, root: &Path) -> Server {
    let root = format!("file://{}", root.display());
    Server::start(data, &["--hbase", address, "--bulk-load-root", &root])
}

fn create_with_family(address: &str, family: &'static str) {
    let request = CreateTableRequest {
        table_schema: TableSchema {
            table_name: Some(table()),
            column_families: vec![ColumnFamilySchema {
                name: family.into(),
                ..ColumnFamilySchema::default()
            }],
            ..TableSchema::default()
        },
        split_keys: vec!["x".into()],
        ..CreateTableRequest::default()
    };
    let mut master = Connection::open(address, MASTER_SERVICE);
    master.ask::<ProcedureResponse>("CreateTable", &request);
}

fn request(region: RegionSpecifier, url: String) -> BulkLoadHFileRequest {
    BulkLoadHFileRequest {
        region,
        family_path: vec![FamilyPath {
            family: "cf".into(),
            path: url,
        }],
        bulk_token: Some("load".into()),
        ..BulkLoadHFileRequest::default()
    }
}

fn rows(client: &mut Connection) -> usize {
    let scan = ScanRequest {
        region: Some(region_of(client, b"row")),
        scan: Some(Scan::default()),
        number_of_rows: Some(1_000),
        ..ScanRequest::default()
    };
    let (_, cells) = client.ask::<ScanResponse>("Scan", &scan);
    let rows: std::collections::BTreeSet<_> = cells.iter().filter_map(|cell| cell.split(' ').next()).collect();
    rows.len()
}

#[test]
fn a_loaded_file_is_there_after_a_kill() {
    let (data, stage) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let address = free_address();
    let file = stage.path().join("cf/0123456789abcdef");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, FILE).unwrap();
    let url = format!("file:{}", file.display());
    let server = start(data.path(), &address, stage.path());
    create_with_family(&address, "cf");
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    let region = region_of(&mut client, b"row");
    let prepare = PrepareBulkLoadRequest {
        table_name: table(),
        region: Some(region.clone()),
    };
    let (prepared, _): (PrepareBulkLoadResponse, _) = client.ask("PrepareBulkLoad", &prepare);
    assert!(!prepared.bulk_token.is_empty());
    let other = region_of(&mut client, b"z");
    let (loaded, _): (BulkLoadHFileResponse, _) = client.ask("BulkLoadHFile", &request(other, url.clone()));
    assert!(!loaded.loaded, "its rows are of another region");
    let outside = client.call(
        "BulkLoadHFile",
        &request(region.clone(), "file:/etc/passwd".into()),
        &(),
    );
    let thrown = outside.header.exception.unwrap();
    assert!(thrown.stack_trace.unwrap().contains("--bulk-load-root"));
    for _ in 0..2 {
        let (loaded, _): (BulkLoadHFileResponse, _) =
            client.ask("BulkLoadHFile", &request(region.clone(), url.clone()));
        assert!(loaded.loaded);
        assert_eq!(rows(&mut client), ROWS);
    }
    assert_eq!(
        server.metric("stele_tablet_bulk_loads_total"),
        1,
        "the second call has the same token"
    );
    server.stop(Signal::KILL);
    let server = start(data.path(), &address, stage.path());
    let mut client = Connection::open(&address, CLIENT_SERVICE);
    assert_eq!(rows(&mut client), ROWS);
    assert_eq!(server.stop(Signal::TERM), Some(0));
    assert!(file.exists(), "the client's file stays");
}
