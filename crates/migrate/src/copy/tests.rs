//! Copies between scripted servers.

use super::*;
use stele_hbaseclient::testing::{self, Answer, block};
use stele_hbaseclient::{Cluster, Settings};
use stele_wire::cell::{CellRef, CellType};
use stele_wire::frame::Request;
use stele_wire::messages::{
    MultiRequest, MultiResponse, MutationType, RegionActionResult, ResultOrException, ScanRequest, ScanResponse, decode,
};

/// Cells of a response, and whether the last row continues.
type Piece = (&'static [&'static str], bool);

type Noted = Arc<Mutex<Vec<String>>>;

/// A cell of `row qualifier kind`.
fn cell(text: &'static str) -> CellRef<'static> {
    let mut words = text.split(' ').map(str::as_bytes);
    let mut word = || words.next().unwrap_or_default();
    CellRef {
        row: word(),
        family: b"f",
        qualifier: word(),
        timestamp: 7,
        kind: if word() == b"delete" {
            CellType::DeleteColumn
        } else {
            CellType::Put
        },
        value: b"",
    }
}

/// A response with one result for each cell.
fn give(answer: &mut Answer, (cells, continues): Piece, has_more: bool) {
    let is_partial = |at: usize| {
        let row = |at: usize| cells.get(at).map(|text| cell(text).row);
        row(at) == row(at + 1) || (at + 1 == cells.len() && continues)
    };
    let response = ScanResponse {
        cells_per_result: vec![1; cells.len()],
        partial_flag_per_result: (0..cells.len()).map(is_partial).collect(),
        scanner_id: Some(1),
        ttl: Some(60),
        more_results: Some(has_more),
        more_results_in_region: Some(has_more),
        ..ScanResponse::default()
    };
    answer.give(&response, &block(cells.iter().map(|text| cell(text))));
}

/// Whether a scan reads a single row.
fn is_of_one_row(request: &ScanRequest) -> bool {
    request.scan.as_ref().is_some_and(|scan| scan.include_stop_row())
}

/// A source: a scan gets the pieces in turn, but one of a single row `one`. It notes renewals of leases.
async fn source(noted: &Noted, pieces: &'static [Piece], one: Piece) -> String {
    let (noted, mut left) = (Arc::clone(noted), pieces.iter());
    testing::start(move |_, request: &Request, answer: &mut Answer| {
        let request: ScanRequest = decode("ScanRequest", request.message.clone()).unwrap();
        if request.renew() {
            noted.lock().push("renewal".to_owned());
            return answer.give(&ScanResponse::default(), &Bytes::new());
        }
        match is_of_one_row(&request) {
            true => give(answer, one, false),
            false => give(answer, *left.next().unwrap(), left.len() > 0),
        }
    })
    .await
}

/// A target that notes the changes which it gets.
async fn target(noted: &Noted) -> String {
    let noted = Arc::clone(noted);
    testing::start(move |_, request: &Request, answer: &mut Answer| {
        let request: MultiRequest = decode("MultiRequest", request.message.clone()).unwrap();
        let done = |index| ResultOrException {
            index: Some(index),
            ..ResultOrException::default()
        };
        let mut response = MultiResponse::default();
        for region in &request.region_action {
            for mutation in region.action.iter().filter_map(|action| action.mutation.as_ref()) {
                let is_put = mutation.mutate_type == Some(MutationType::Put as i32);
                let (kind, row) = (if is_put { "put" } else { "delete" }, mutation.row.as_ref().unwrap());
                let cells = mutation.associated_cell_count.unwrap();
                noted.lock().push(format!("{kind} {} {cells}", row.escape_ascii()));
            }
            response.region_action_result.push(RegionActionResult {
                result_or_exception: region
                    .action
                    .iter()
                    .filter_map(|action| action.index)
                    .map(done)
                    .collect(),
                ..RegionActionResult::default()
            });
        }
        answer.give(&response, &Bytes::new());
    })
    .await
}

/// Changes that the target gets in a copy, with `through R` where rows are noted as copied.
async fn copied(pieces: &'static [Piece], one: Piece, bytes_per_second: Option<u64>) -> Vec<String> {
    let noted = Noted::default();
    let cluster = |address| Arc::new(Cluster::new(vec![address], Settings::default()));
    let ends = Ends {
        source: cluster(source(&noted, pieces, one).await),
        source_id: "source".to_owned(),
        target: cluster(target(&noted).await),
        target_id: "target".to_owned(),
    };
    let transfer = Transfer {
        ends: Arc::new(ends),
        pace: Arc::new(Pace::new(bytes_per_second)),
        ignore_tags: false,
    };
    let note = |whole: Option<Bytes>, _, _| {
        noted
            .lock()
            .extend(whole.map(|row| format!("through {}", row.escape_ascii())));
    };
    let rows = Rows::between(Bytes::new(), Bytes::new());
    transfer.run("t", View::Raw, rows, note).await.unwrap();
    noted.lock().clone()
}

#[test]
fn a_range_continues_behind_its_last_whole_row() {
    let mut range = Range {
        start: "a".into(),
        end: "m".into(),
        ..Range::default()
    };
    assert_eq!(left(&range), Rows::between("a".into(), "m".into()));
    range.through = Some("c".into());
    let rows = left(&range);
    assert_eq!((&rows.start[..], rows.include_start), (&b"c"[..], false));
}

/// A compaction of the target between the responses drops the tombstone, and the hidden cells would be visible.
#[tokio::test]
async fn tombstones_of_a_row_of_several_responses_are_written_after_its_cells_too() {
    const PIECES: &[Piece] = &[
        (&["a q put", "w p delete", "w p put"], true),
        (&["w q put"], true),
        (&["w r put", "x q delete", "x q put"], false),
    ];
    const ONE: Piece = (&["w p delete", "w p put", "w q put", "w r put"], false);
    let changes = copied(PIECES, ONE, None).await;
    let expected = [
        "put a 1",
        "delete w 1",
        "put w 1",
        "through a",
        "put w 1",
        "put w 1",
        "delete x 1",
        "put x 1",
        "delete w 1",
        "through x",
    ];
    assert_eq!(changes, expected);
}

#[tokio::test]
async fn rows_of_one_response_are_written_once() {
    const PIECES: &[Piece] = &[(&["a q delete", "a q put"], false), (&["b q delete", "b q put"], false)];
    let changes = copied(PIECES, (&[], false), None).await;
    let expected = [
        "delete a 1",
        "put a 1",
        "through a",
        "delete b 1",
        "put b 1",
        "through b",
    ];
    assert_eq!(changes, expected);
}

/// A wide row would otherwise begin again after each pause, and the copy would never end.
#[tokio::test]
async fn a_scanner_outlives_the_pauses_of_a_limit_on_the_rate() {
    const PIECES: &[Piece] = &[(&["w p put"], true), (&["w q put"], true), (&["w r put"], false)];
    // Pauses of a tenth of a second, with a lease of less.
    let changes = copied(PIECES, (&[], false), Some(270)).await;
    let (renewals, others): (Vec<_>, Vec<_>) = changes.iter().partition(|change| *change == "renewal");
    assert!(!renewals.is_empty());
    assert_eq!(others, ["put w 1", "put w 1", "put w 1", "through w"]);
}
