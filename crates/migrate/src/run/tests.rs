//! Whole runs between scripted servers.

use super::*;
use std::collections::BTreeSet;
use std::path::Path;
use stele_hbaseclient::testing::{self, Answer, block};
use stele_wire::cell::{CellRef, CellType};
use stele_wire::frame::Request;
use stele_wire::messages::{
    ColumnFamilySchema, GetTableDescriptorsResponse, GetTableStateResponse, MultiRequest, MultiResponse,
    RegionActionResult, ResultOrException, ScanRequest, ScanResponse, TableName, TableSchema, TableState,
    TableStateKind, decode,
};

/// Rows of one cell each.
type Rows = Arc<Mutex<BTreeSet<Bytes>>>;

/// A cluster with the table `t`. Rows that are written are added, except for `lost`.
async fn server(rows: &Rows, lost: &'static str) -> String {
    let rows = Arc::clone(rows);
    testing::start(move |method, request: &Request, answer: &mut Answer| match method {
        "GetTableDescriptors" => answer.give(&described(), &Bytes::new()),
        "GetTableState" => answer.give(
            &GetTableStateResponse {
                table_state: TableState {
                    state: TableStateKind::Enabled as i32,
                },
            },
            &Bytes::new(),
        ),
        "Scan" => {
            let request: ScanRequest = decode("ScanRequest", request.message.clone()).unwrap();
            let scan = request.scan.unwrap();
            let mut rows = rows.lock().clone();
            if scan.include_stop_row() {
                rows.retain(|row| scan.start_row.as_ref() == Some(row));
            }
            give(&rows, answer);
        }
        "Multi" => {
            let request: MultiRequest = decode("MultiRequest", request.message.clone()).unwrap();
            let mut response = MultiResponse::default();
            for region in &request.region_action {
                let mutations = region.action.iter().filter_map(|action| action.mutation.as_ref());
                let written = mutations.filter_map(|mutation| mutation.row.clone());
                rows.lock().extend(written.filter(|row| row != lost));
                let done = |index| ResultOrException {
                    index: Some(index),
                    ..ResultOrException::default()
                };
                let indexes = region.action.iter().filter_map(|action| action.index);
                response.region_action_result.push(RegionActionResult {
                    result_or_exception: indexes.map(done).collect(),
                    ..RegionActionResult::default()
                });
            }
            answer.give(&response, &Bytes::new());
        }
        other => unreachable!("{other}"),
    })
    .await
}

fn described() -> GetTableDescriptorsResponse {
    let family = ColumnFamilySchema {
        name: "f".into(),
        ..ColumnFamilySchema::default()
    };
    let table = TableSchema {
        table_name: Some(TableName {
            namespace: "default".into(),
            qualifier: "t".into(),
        }),
        column_families: vec![family],
        ..TableSchema::default()
    };
    GetTableDescriptorsResponse {
        table_schema: vec![table],
    }
}

/// Gives these rows in one response.
fn give(rows: &BTreeSet<Bytes>, answer: &mut Answer) {
    let cell = |row| CellRef {
        row,
        family: b"f",
        qualifier: b"q",
        timestamp: 7,
        kind: CellType::Put,
        value: b"",
    };
    let response = ScanResponse {
        cells_per_result: vec![1; rows.len()],
        scanner_id: Some(1),
        ttl: Some(60_000),
        more_results: Some(false),
        more_results_in_region: Some(false),
        ..ScanResponse::default()
    };
    answer.give(&response, &block(rows.iter().map(|row| cell(row))));
}

async fn migrate(source: &str, target: &str, state: &Path, options: &[&str]) -> ExitCode {
    let source = format!("hbase://{source}");
    let state = state.to_str().unwrap();
    let all = [&["migrate", &source, "--to", target, "--state", state][..], options].concat();
    run(MigrateArgs::of(all).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_run_after_a_comparison_with_differences_copies_again() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let (source, target) = (Rows::default(), Rows::default());
    source.lock().extend(["a", "b"].map(Bytes::from));
    let (from, to) = (server(&source, "").await, server(&target, "b").await);
    let compared = migrate(&from, &to, &state, &["--verify", "--attempts", "1"]).await;
    assert_eq!((compared, target.lock().len()), (ExitCode::FAILURE, 1));
    source.lock().insert("c".into());
    target.lock().clear();
    // A run that compares goes on with the comparison.
    let compared = migrate(&from, &to, &state, &["--verify", "--attempts", "1"]).await;
    assert_eq!((compared, target.lock().len()), (ExitCode::FAILURE, 0));
    assert_eq!(migrate(&from, &to, &state, &[]).await, ExitCode::SUCCESS);
    assert_eq!(*target.lock(), ["a", "c"].map(Bytes::from).into());
    assert!(!state.exists(), "it is done");
}
