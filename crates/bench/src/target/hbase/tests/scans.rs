//! Scans of servers that lose scanners, split rows, and respond slowly.

use super::scripted::{Map, Reaction, answer, answer_with, start};
use super::{TABLE, connect};
use crate::target::{Row, Scan};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use stele_wire::exception;
use stele_wire::frame::Request;
use stele_wire::messages::{ScanRequest, ScanResponse, decode};

fn scan_answer(rows: &[u32], partial: &[bool], more: bool) -> ScanResponse {
    ScanResponse {
        cells_per_result: rows.to_vec(),
        partial_flag_per_result: partial.to_vec(),
        scanner_id: Some(5),
        more_results: Some(true),
        more_results_in_region: Some(more),
        ..ScanResponse::default()
    }
}

fn text(row: &Row) -> String {
    let qualifiers: Vec<_> = row
        .cells
        .iter()
        .map(|c| c.qualifier.escape_ascii().to_string())
        .collect();
    format!("{}:{}", row.key.escape_ascii(), qualifiers.join(","))
}

/// Scans a server's reactions, and returns the rows, the requests and the retries.
async fn scanned(
    scan: Scan,
    regions: &[(&'static str, &'static str)],
    reactions: Vec<Reaction>,
) -> (Vec<String>, Vec<ScanRequest>, u64) {
    let map = Arc::new(Map::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, mut reactions) = (seen.clone(), VecDeque::from(reactions));
    let address = start(&map, move |_, request: Request| {
        log.lock().push(decode("ScanRequest", request.message).unwrap());
        reactions.pop_front().unwrap_or(Reaction::Silence)
    })
    .await;
    *map.regions.lock() = regions
        .iter()
        .map(|(start, end)| (*start, *end, address.clone()))
        .collect();
    let c = connect(&address).await;
    let mut rows = Vec::new();
    let mut sink = |row: &Row| {
        rows.push(text(row));
        if row.key == "stop" {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    c.scan(TABLE, &scan, &mut sink).await.unwrap();
    let seen = std::mem::take(&mut *seen.lock());
    (rows, seen, c.retries())
}

#[tokio::test]
async fn a_scan_goes_from_region_to_region() {
    let scan = Scan {
        start: "b".into(),
        end: "z".into(),
        ..Scan::default()
    };
    let (rows, seen, _) = scanned(
        scan,
        &[("", "m"), ("m", "")],
        vec![
            answer_with(&scan_answer(&[1], &[], true), &[("b", "1", "")]),
            // A sign of life.
            answer(&ScanResponse {
                heartbeat_message: Some(true),
                ..scan_answer(&[], &[], true)
            }),
            // One row in three parts. The last part ends with the region and does not announce it.
            answer_with(
                &scan_answer(&[1, 1], &[true, true], true),
                &[("c", "1", ""), ("c", "2", "")],
            ),
            answer_with(&scan_answer(&[1], &[true], false), &[("c", "3", "")]),
            answer_with(
                &scan_answer(&[2, 1], &[], false),
                &[("m", "1", ""), ("m", "2", ""), ("n", "1", "")],
            ),
        ],
    )
    .await;
    assert_eq!(rows, ["b:1", "c:1,2,3", "m:1,2", "n:1"]);
    let opened: Vec<_> = seen
        .iter()
        .filter_map(|r| r.scan.as_ref())
        .map(|s| s.start_row.clone().unwrap())
        .collect();
    assert_eq!(opened, ["b", "m"]);
    let sequence: Vec<_> = seen.iter().map(|r| r.next_call_seq).collect();
    assert_eq!(sequence, [None, Some(0), Some(1), Some(2), None]);
}

#[tokio::test]
async fn a_lost_scanner_is_opened_behind_the_last_whole_row() {
    let (rows, seen, retries) = scanned(
        Scan::default(),
        &[("", "")],
        vec![
            answer_with(
                &scan_answer(&[1, 1], &[false, true], true),
                &[("a", "1", ""), ("b", "1", "")],
            ),
            Reaction::Exception(exception::CALL_QUEUE_TOO_BIG),
            Reaction::Exception(exception::UNKNOWN_SCANNER),
            answer_with(&scan_answer(&[2], &[false], true), &[("b", "1", ""), ("b", "2", "")]),
            Reaction::HangUp,
            answer_with(&scan_answer(&[1], &[false], false), &[("c", "1", "")]),
        ],
    )
    .await;
    assert_eq!(rows, ["a:1", "b:1,2", "c:1"]);
    assert_eq!(
        (seen[1].next_call_seq, seen[2].next_call_seq),
        (Some(0), Some(0)),
        "a busy server has not counted it"
    );
    let opened = |at: usize| {
        seen[at]
            .scan
            .as_ref()
            .map(|s| (s.start_row.clone().unwrap(), s.include_start_row()))
    };
    assert_eq!(opened(3), Some(("a".into(), false)));
    assert_eq!(opened(5), Some(("b".into(), false)));
    assert_eq!(retries, 3);
}

#[tokio::test]
async fn a_limit_is_kept_and_a_scan_broken_off_is_closed() {
    let scan = Scan {
        limit: Some(3),
        rows_per_fetch: Some(2),
        ..Scan::default()
    };
    let two = || answer_with(&scan_answer(&[1, 1], &[], true), &[("a", "1", ""), ("b", "1", "")]);
    let last = ScanResponse {
        more_results: Some(false),
        ..scan_answer(&[1], &[], false)
    };
    let last = answer_with(&last, &[("c", "1", "")]);
    let (rows, seen, _) = scanned(scan, &[("", "")], vec![two(), last]).await;
    assert_eq!(rows, ["a:1", "b:1", "c:1"]);
    let limits: Vec<_> = seen.iter().map(|r| (r.number_of_rows, r.limit_of_rows)).collect();
    assert_eq!(
        limits,
        [(Some(2), Some(3)), (Some(2), Some(1))],
        "and no close: the server has closed it"
    );

    let three = [("a", "1", ""), ("stop", "1", ""), ("z", "1", "")];
    let reactions = vec![answer_with(&scan_answer(&[1, 1, 1], &[], true), &three)];
    let (rows, seen, _) = scanned(Scan::default(), &[("", "")], reactions).await;
    assert_eq!(rows, ["a:1", "stop:1"]);
    // The close is sent without waiting, so it may not have arrived yet.
    assert!(
        seen.len() == 1 || (seen[1].close_scanner() && seen[1].scanner_id == Some(5)),
        "{seen:?}"
    );
}
