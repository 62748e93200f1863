//! Scans of scripted responses and servers.

use super::*;
use crate::settings::Settings;
use crate::testing::{self, Answer};
use parking_lot::Mutex;
use stele_wire::cell::{CellRef, CellType};
use stele_wire::exception::{REGION_TOO_BUSY, UNKNOWN_SCANNER};
use stele_wire::frame::Request;

fn scanner(rows: Rows) -> Scanner {
    let cluster = Cluster::new(vec!["127.0.0.1:1".to_owned()], Settings::default());
    Scanner::new(Arc::new(cluster), "t", rows, View::Raw)
}

fn cell(row: &str) -> CellRef<'_> {
    CellRef {
        row: row.as_bytes(),
        family: b"f",
        qualifier: b"q",
        timestamp: 1,
        kind: CellType::Put,
        value: b"v",
    }
}

fn block(rows: &[&str]) -> Bytes {
    testing::block(rows.iter().map(|row| cell(row)))
}

fn response(counts: &[u32], partial: &[bool]) -> ScanResponse {
    ScanResponse {
        cells_per_result: counts.to_vec(),
        partial_flag_per_result: partial.to_vec(),
        ..ScanResponse::default()
    }
}

#[test]
fn rows_know_whether_they_can_be_there() {
    let between = |start: &'static str, end: &'static str| Rows::between(start.into(), end.into());
    assert!(between("b", "a").is_empty() && between("a", "a").is_empty());
    assert!(!between("a", "b").is_empty() && !between("a", "").is_empty() && !Rows::one("a".into()).is_empty());
}

#[test]
fn a_partial_row_is_whole_when_another_begins() {
    let mut scanner = scanner(Rows::between(Bytes::new(), Bytes::new()));
    let first = scanner
        .take(&response(&[1, 1], &[false, true]), block(&["a", "b"]))
        .unwrap();
    assert_eq!(
        (first.whole, first.cells.len(), first.again),
        (Some("a".into()), 2, false)
    );
    let second = scanner
        .take(&response(&[1, 1], &[true, true]), block(&["b", "c"]))
        .unwrap();
    assert_eq!(second.whole, Some("b".into()));
    assert_eq!(
        (scanner.pending.clone(), scanner.rows.start.clone()),
        (Some("c".into()), "b".into())
    );
}

#[test]
fn results_that_are_none_are_refused() {
    let new = || scanner(Rows::between("b".into(), Bytes::new()));
    assert!(
        new().take(&response(&[1], &[]), block(&["a"])).is_err(),
        "before the start"
    );
    assert!(
        new().take(&response(&[2], &[]), block(&["b", "c"])).is_err(),
        "two rows"
    );
    assert!(
        new().take(&response(&[1], &[]), block(&["b", "c"])).is_err(),
        "too many cells"
    );
    assert!(
        new().take(&response(&[2], &[]), block(&["b"])).is_err(),
        "too few cells"
    );
    assert!(
        new().take(&response(&[1, 1], &[true]), block(&["c", "b"])).is_err(),
        "out of order"
    );
    assert!(
        new().take(&response(&[1, 1], &[]), block(&["b", "b"])).is_err(),
        "twice"
    );
}

/// A result of a scripted scan: its row, and whether the row continues.
type Piece = (&'static str, bool);

/// A server with one region, whose responses are pieces of these rows. It notes openings, renewals and closes.
async fn server(rows: &'static [&'static [Piece]], ttl: u32) -> (Arc<Cluster>, Arc<Mutex<Vec<String>>>) {
    let noted = Arc::new(Mutex::new(Vec::new()));
    let (notes, mut after, mut at, mut next_call, mut id) = (Arc::clone(&noted), Bytes::new(), 0, 0, 0);
    let script = move |_: &str, request: &Request, answer: &mut Answer| {
        let request: ScanRequest = decode("ScanRequest", request.message.clone()).unwrap();
        let note = |text: String| notes.lock().push(text);
        if let Some(scan) = &request.scan {
            let start = scan.start_row.as_ref().unwrap();
            note(format!("open {}", start.escape_ascii()));
            after = start.clone();
            let is_behind = |pieces: &&[Piece]| pieces.iter().any(|(row, _)| *row.as_bytes() > after[..]);
            (at, next_call, id) = (rows.iter().position(is_behind).unwrap(), 0, id + 1);
        } else if request.close_scanner() {
            note(format!("close {}", request.scanner_id()));
            return answer.give(&ScanResponse::default(), &Bytes::new());
        } else {
            if (request.scanner_id(), request.next_call_seq()) != (id, next_call) {
                return answer.throw(UNKNOWN_SCANNER);
            }
            next_call += 1;
            if request.renew() {
                note("renew".to_owned());
                return answer.give(&ScanResponse::default(), &Bytes::new());
            }
        }
        let behind = rows[at].iter().filter(|(row, _)| *row.as_bytes() > after[..]);
        let pieces: Vec<&Piece> = behind.collect();
        at += 1;
        let response = ScanResponse {
            cells_per_result: vec![1; pieces.len()],
            partial_flag_per_result: pieces.iter().map(|(_, partial)| *partial).collect(),
            scanner_id: Some(id),
            ttl: Some(ttl),
            more_results: Some(at < rows.len()),
            more_results_in_region: Some(at < rows.len()),
            ..ScanResponse::default()
        };
        answer.give(&response, &testing::block(pieces.iter().map(|(row, _)| cell(row))));
    };
    let address = testing::start(script).await;
    (Arc::new(Cluster::new(vec![address], Settings::default())), noted)
}

/// Rows of all responses; `again` in front of a row that begins again.
async fn all(scanner: &mut Scanner) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(cells) = scanner.next().await.unwrap() {
        let mut again = if cells.again { "again " } else { "" };
        for (cell, _) in cells.cells {
            all.push(format!("{}{}", std::mem::take(&mut again), cell.row.escape_ascii()));
        }
    }
    all
}

fn everything() -> Rows {
    Rows::between(Bytes::new(), Bytes::new())
}

/// Deletes that come after the opening of a scanner are seen by the next one only.
#[tokio::test]
async fn a_scanner_of_a_raw_scan_is_replaced_at_a_whole_row_after_a_while() {
    const ROWS: &[&[Piece]] = &[&[("a", false), ("b", false)], &[("c", false)], &[("d", false)]];
    for (view, age_max, openings) in [
        (
            View::Raw,
            Some(Duration::ZERO),
            vec!["open ", "close 1", "open b", "close 2", "open c"],
        ),
        (View::Raw, Some(RAW_AGE_MAX), vec!["open "]),
        (View::Visible, None, vec!["open "]),
    ] {
        let (cluster, noted) = server(ROWS, 60_000).await;
        let mut scanner = Scanner::new(cluster, "t", everything(), view);
        assert_eq!(scanner.age_max, age_max.map(|_| RAW_AGE_MAX));
        scanner.age_max = age_max;
        assert_eq!(all(&mut scanner).await, ["a", "b", "c", "d"]);
        assert_eq!(*noted.lock(), openings, "{view:?} {age_max:?}");
    }
}

#[tokio::test]
async fn a_row_of_several_responses_is_read_to_its_end_by_one_scanner() {
    const ROWS: &[&[Piece]] = &[
        &[("a", false), ("b", true)],
        &[("b", true)],
        &[("b", true)],
        &[("b", false), ("c", true)],
        &[("c", false)],
    ];
    let (cluster, noted) = server(ROWS, 60_000).await;
    let mut scanner = Scanner::new(Arc::clone(&cluster), "t", everything(), View::Raw);
    scanner.age_max = Some(Duration::ZERO);
    let rows = all(&mut scanner).await;
    assert_eq!(rows, ["a", "b", "again b", "b", "b", "b", "c", "again c", "c"]);
    assert_eq!(*noted.lock(), ["open ", "close 1", "open a", "close 2", "open b"]);
    // One that becomes old within a row.
    let mut scanner = Scanner::new(cluster, "t", everything(), View::Raw);
    for _ in 0..2 {
        scanner.next().await.unwrap();
    }
    scanner.age_max = Some(Duration::ZERO);
    assert_eq!(all(&mut scanner).await, ["b", "b", "c", "again c", "c"]);
}

#[tokio::test]
async fn a_scanner_stays_open_while_its_reader_waits() {
    const ROWS: &[&[Piece]] = &[&[("a", true)], &[("a", true)], &[("a", false)]];
    let (cluster, noted) = server(ROWS, 30).await;
    let mut scanner = Scanner::new(cluster, "t", everything(), View::Raw);
    let mut rows = Vec::new();
    while let Some(cells) = scanner.next().await.unwrap() {
        rows.extend(cells.cells);
        assert!(!cells.again);
        scanner.wait_until(Instant::now() + Duration::from_millis(50)).await;
    }
    assert_eq!(rows.len(), 3);
    let renewals = noted.lock().iter().filter(|note| *note == "renew").count();
    assert!(renewals >= 2, "one in each pause at least: {renewals}");
}

/// A client that tries for this long, and a server whose only row `a` comes in parts without end. `fails` is asked before each
/// part that continues a scanner: for the class of a failure.
async fn endless(
    retry_for: Duration,
    mut fails: impl FnMut(usize) -> Option<&'static str> + Send + 'static,
) -> Scanner {
    let mut parts = 0;
    let script = move |_: &str, request: &Request, answer: &mut Answer| {
        let request: ScanRequest = decode("ScanRequest", request.message.clone()).unwrap();
        if request.scan.is_none() {
            if let Some(class) = fails(parts) {
                return answer.throw(class);
            }
            parts += 1;
        }
        let response = ScanResponse {
            scanner_id: Some(1),
            more_results: Some(true),
            more_results_in_region: Some(true),
            ..response(&[1], &[true])
        };
        answer.give(&response, &block(&["a"]));
    };
    let settings = Settings {
        retry_for,
        ..Settings::default()
    };
    let cluster = Cluster::new(vec![testing::start(script).await], settings);
    Scanner::new(Arc::new(cluster), "t", everything(), View::Visible)
}

#[tokio::test]
async fn a_server_may_be_busy_once_before_each_part_of_a_row() {
    let mut is_busy = false;
    let once = move |_: usize| {
        is_busy = !is_busy;
        is_busy.then_some(REGION_TOO_BUSY)
    };
    // The pauses after two failures of one call are longer.
    let mut scanner = endless(Duration::from_millis(250), once).await;
    for _ in 0..5 {
        let part = scanner.next().await.unwrap().unwrap();
        assert!(part.whole.is_none() && !part.again);
    }
}

#[tokio::test]
async fn a_scanner_may_be_lost_again_long_after_it_was() {
    let mut lost = 0;
    let at_parts = move |parts: usize| {
        let is_lost = parts == 2 * (lost + 1);
        lost += usize::from(is_lost);
        is_lost.then_some(UNKNOWN_SCANNER)
    };
    let retry_for = Duration::from_millis(20);
    let mut scanner = endless(retry_for, at_parts).await;
    let mut begun_again = 0;
    for _ in 0..15 {
        begun_again += usize::from(scanner.next().await.unwrap().unwrap().again);
        scanner.wait_until(Instant::now() + 2 * retry_for).await;
    }
    assert!(begun_again >= 3, "{begun_again}");
}

#[tokio::test]
async fn a_scanner_that_is_lost_after_every_opening_is_given_up() {
    let mut scanner = endless(Duration::from_millis(250), |_| Some(UNKNOWN_SCANNER)).await;
    let gives_up = async { while scanner.next().await.is_ok() {} };
    assert!(tokio::time::timeout(Duration::from_secs(20), gives_up).await.is_ok());
}

/// A server that loses its scanner after the first part of row `b`, which is deleted then.
#[tokio::test]
async fn a_last_row_that_goes_while_it_is_read_is_reported() {
    let mut opened = 0;
    let script = move |_: &str, request: &Request, answer: &mut Answer| {
        let request: ScanRequest = decode("ScanRequest", request.message.clone()).unwrap();
        if request.close_scanner() {
            return answer.give(&ScanResponse::default(), &Bytes::new());
        }
        if request.scan.is_none() {
            return answer.throw(UNKNOWN_SCANNER);
        }
        opened += 1;
        let has_cells = opened == 1;
        let response = ScanResponse {
            scanner_id: Some(opened),
            more_results: Some(has_cells),
            more_results_in_region: Some(has_cells),
            ..if has_cells {
                self::response(&[1, 1], &[false, true])
            } else {
                ScanResponse::default()
            }
        };
        let rows: &[&str] = if has_cells { &["a", "b"] } else { &[] };
        answer.give(&response, &block(rows));
    };
    let cluster = Cluster::new(vec![testing::start(script).await], Settings::default());
    let mut scanner = Scanner::new(Arc::new(cluster), "t", everything(), View::Raw);
    let first = scanner.next().await.unwrap().unwrap();
    assert_eq!(
        (first.cells.len(), first.whole, first.again),
        (2, Some("a".into()), false)
    );
    let second = scanner.next().await.unwrap().unwrap();
    assert!(second.again && second.cells.is_empty() && second.whole.is_none());
    assert!(scanner.next().await.unwrap().is_none());
}
