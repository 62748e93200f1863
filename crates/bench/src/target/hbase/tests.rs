//! The driver against servers that do as a test says: everything that goes wrong with a real cluster now and then.

mod scripted;

use crate::target::{Columns, Connection, Put, Row, Scan, TargetError};
use bytes::Bytes;
use parking_lot::Mutex;
use scripted::{Map, Reaction, answer, answer_with, start};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use stele_wire::cell::CellReader;
use stele_wire::exception;
use stele_wire::frame::Request;
use stele_wire::messages::*;

const TABLE: &str = "bench-t";

async fn connect(address: &str) -> Arc<dyn Connection> {
    let target = crate::target::open(&format!("hbase://{address}?timeout_ms=1000"))
        .await
        .unwrap();
    target.connect().await.unwrap()
}

fn one_cell(value: &str) -> Reaction {
    let result = Some(RowResult {
        associated_cell_count: Some(1),
        ..RowResult::default()
    });
    answer_with(&GetResponse { result }, &[("r", "q", value)])
}

async fn get(c: &Arc<dyn Connection>, key: &'static str) -> Result<String, TargetError> {
    let row = c
        .get(TABLE, Bytes::from_static(key.as_bytes()), &Columns::default())
        .await?;
    Ok(row
        .map(|row| row.cells[0].value.escape_ascii().to_string())
        .unwrap_or_default())
}

/// One server that has everything, and plays reactions one after another.
async fn one_server(reactions: Vec<Reaction>) -> (Arc<Map>, Arc<dyn Connection>) {
    let map = Arc::new(Map::default());
    let mut reactions: VecDeque<Reaction> = reactions.into();
    let address = start(&map, move |_, _| {
        reactions.pop_front().expect("no more calls were expected")
    })
    .await;
    map.all_at(&address);
    (map, connect(&address).await)
}

#[tokio::test]
async fn a_region_that_has_moved_is_looked_up_again() {
    let map = Arc::new(Map::default());
    let new = start(&map, |_, _| one_cell("new")).await;
    let (moved, to) = (map.clone(), new.clone());
    let old = start(&map, move |_, _| {
        moved.all_at(&to);
        Reaction::Exception(exception::NOT_SERVING_REGION)
    })
    .await;
    map.all_at(&old);
    let c = connect(&old).await;
    assert_eq!(get(&c, "a").await.unwrap(), "new");
    assert_eq!(get(&c, "a").await.unwrap(), "new");
    assert_eq!((c.retries(), *map.lookups.lock()), (1, 2));
}

#[tokio::test]
async fn a_busy_region_is_waited_for_where_it_is() {
    let busy = || Reaction::Exception(exception::REGION_TOO_BUSY);
    let (map, c) = one_server(vec![busy(), busy(), one_cell("done")]).await;
    assert_eq!(get(&c, "a").await.unwrap(), "done");
    assert_eq!((c.retries(), *map.lookups.lock()), (2, 1));
}

#[tokio::test]
async fn what_the_server_refuses_is_not_repeated() {
    let (_, c) = one_server(vec![Reaction::Exception(exception::NO_SUCH_FAMILY)]).await;
    let refused = get(&c, "a").await;
    let text = format!("{}: the script says so", exception::NO_SUCH_FAMILY);
    assert!(
        matches!(&refused, Err(TargetError::Refused(why)) if *why == text),
        "{refused:?}"
    );
    let unknown = c.get("bench-other", "a".into(), &Columns::default()).await;
    assert!(matches!(unknown, Err(TargetError::Refused(_))), "{unknown:?}");
    assert_eq!(c.retries(), 0);
}

#[tokio::test]
async fn a_broken_connection_is_made_again() {
    let (_, c) = one_server(vec![one_cell("1"), Reaction::HangUp, one_cell("2")]).await;
    assert_eq!(get(&c, "a").await.unwrap(), "1");
    assert_eq!(get(&c, "a").await.unwrap(), "2");
    assert_eq!(c.retries(), 1);
}

#[tokio::test]
async fn a_call_without_an_answer_is_repeated() {
    let (_, c) = one_server(vec![Reaction::Silence, one_cell("late")]).await;
    assert_eq!(get(&c, "a").await.unwrap(), "late");
    assert_eq!(c.retries(), 1);
}

#[tokio::test]
async fn answers_may_come_in_another_order() {
    let first = match one_cell("first") {
        Reaction::Answer(message, cells) => Reaction::AfterNext(message, cells),
        other => other,
    };
    let (_, c) = one_server(vec![one_cell("warm"), first, one_cell("second")]).await;
    get(&c, "a").await.unwrap();
    let (a, b) = futures::join!(get(&c, "a"), get(&c, "b"));
    assert_eq!((a.unwrap(), b.unwrap()), ("first".into(), "second".into()));
}

#[tokio::test]
async fn an_answer_that_is_not_one_is_an_error_and_not_a_value() {
    let broken = Reaction::Answer(vec![0xff], Bytes::new());
    let two = Some(RowResult {
        associated_cell_count: Some(2),
        ..RowResult::default()
    });
    let too_few = answer_with(&GetResponse { result: two }, &[("r", "q", "v")]);
    let none = Some(RowResult {
        associated_cell_count: Some(0),
        ..RowResult::default()
    });
    let too_many = answer_with(&GetResponse { result: none }, &[("r", "q", "v")]);
    let (_, c) = one_server(vec![broken, too_few, too_many, one_cell("fine")]).await;
    for _ in 0..3 {
        let refused = get(&c, "a").await;
        assert!(matches!(refused, Err(TargetError::Protocol(_))), "{refused:?}");
    }
    assert_eq!(get(&c, "a").await.unwrap(), "fine");
}

#[tokio::test]
async fn conditions_and_counters() {
    let counted = Some(RowResult {
        associated_cell_count: Some(1),
        ..RowResult::default()
    });
    let value = "\0\0\0\0\0\0\0\u{7}";
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let map = Arc::new(Map::default());
    let address = start(&map, move |_, request: Request| {
        let request: MutateRequest = decode("MutateRequest", request.message).unwrap();
        log.lock().push(request.clone());
        match request.mutation.mutate_type() {
            MutationType::Increment if log.lock().len() == 1 => Reaction::Exception("java.io.IOException"),
            MutationType::Increment => answer_with(
                &MutateResponse {
                    result: counted,
                    processed: None,
                },
                &[("r", "q", value)],
            ),
            _ => answer(&MutateResponse {
                result: None,
                processed: Some(false),
            }),
        }
    })
    .await;
    map.all_at(&address);
    let c = connect(&address).await;
    assert_eq!(c.increment(TABLE, "r".into(), "f", "q".into(), 3).await.unwrap(), 7);
    let put = Put {
        key: "r".into(),
        cells: vec![("f".into(), "q".into(), "v".into())],
    };
    assert!(!c.check_and_put(TABLE, "f", "q".into(), None, put).await.unwrap());
    let seen = seen.lock();
    let nonce = |at: usize| (seen[at].nonce_group.unwrap(), seen[at].mutation.nonce.unwrap());
    assert_eq!(nonce(0), nonce(1), "a repeated increment must be known as such");
    let condition = seen[2].condition.clone().unwrap();
    let comparator = condition.comparator.clone().unwrap();
    assert_eq!(condition.compare_type(), CompareType::Equal);
    assert_eq!(comparator.name, BINARY_COMPARATOR);
    assert_eq!(
        &comparator.serialized_comparator.unwrap()[..],
        &[10, 2, 10, 0],
        "an empty value"
    );
}

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
            // One row in three pieces, the last of which ends with the region and does not say so.
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

#[tokio::test]
async fn only_the_failed_part_of_a_batch_is_sent_again() {
    let map = Arc::new(Map::default());
    let seen: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let (log, mut failed) = (seen.clone(), Vec::new());
    // Row b and the region of the x fail once, each in its own way.
    let mut fails_now = move |row: &str| {
        let new = !failed.iter().any(|f| f == row);
        failed.push(row.to_owned());
        new
    };
    let address = start(&map, move |_, request: Request| {
        let multi: MultiRequest = decode("MultiRequest", request.message).unwrap();
        let mut cells = CellReader::new(request.cells);
        let mut rows = Vec::new();
        let mut result = |action: &Action| {
            let mutation = action.mutation.as_ref().unwrap();
            let row = mutation.row.as_ref().unwrap().escape_ascii().to_string();
            for _ in 0..mutation.associated_cell_count.unwrap() {
                assert_eq!(cells.read().unwrap().row, row, "cells are in the order of the actions");
            }
            let busy = NameBytesPair {
                name: exception::REGION_TOO_BUSY.into(),
                value: None,
            };
            let exception = (row == "b" && fails_now("b")).then_some(busy);
            rows.push(row);
            ResultOrException {
                index: action.index,
                result: Some(RowResult::default()),
                exception,
            }
        };
        let mut results: Vec<_> = multi
            .region_action
            .iter()
            .map(|region| {
                let mut results: Vec<_> = region.action.iter().map(&mut result).collect();
                // Their order is free.
                results.reverse();
                RegionActionResult {
                    result_or_exception: results,
                    ..RegionActionResult::default()
                }
            })
            .collect();
        assert_eq!(cells.remaining(), 0);
        if rows.iter().any(|row| row == "x1") && fails_now("x") {
            let gone = NameBytesPair {
                name: exception::NOT_SERVING_REGION.into(),
                value: None,
            };
            results[0] = RegionActionResult {
                exception: Some(gone),
                ..RegionActionResult::default()
            };
        }
        log.lock().push(rows);
        answer(&MultiResponse {
            region_action_result: results,
            processed: None,
        })
    })
    .await;
    *map.regions.lock() = vec![("", "m", address.clone()), ("m", "", address.clone())];
    let c = connect(&address).await;
    let put = |key: &'static str| {
        let cell = |q: &'static str| {
            (
                Arc::from("f"),
                Bytes::from_static(q.as_bytes()),
                Bytes::from_static(b"v"),
            )
        };
        Put {
            key: key.into(),
            cells: vec![cell("1"), cell("2")],
        }
    };
    c.put_many(TABLE, ["a", "b", "x1", "c", "x2"].map(put).into())
        .await
        .unwrap();
    let mut seen = seen.lock().clone();
    seen.sort();
    assert_eq!(
        seen,
        [vec!["a", "b", "c"], vec!["b"], vec!["x1", "x2"], vec!["x1", "x2"]]
    );
    assert_eq!(c.retries(), 1);
}

#[tokio::test]
async fn a_batch_that_is_not_answered_for_in_full_is_an_error() {
    let none = MultiResponse::default();
    let empty = MultiResponse {
        region_action_result: vec![RegionActionResult::default()],
        processed: None,
    };
    let mut strange = empty.clone();
    strange.region_action_result[0].result_or_exception = vec![ResultOrException {
        index: Some(1),
        result: Some(RowResult::default()),
        exception: None,
    }];
    for response in [none, empty, strange] {
        let (_, c) = one_server(vec![answer(&response)]).await;
        let put = Put {
            key: "a".into(),
            cells: vec![("f".into(), "q".into(), "v".into())],
        };
        let refused = c.put_many(TABLE, vec![put]).await;
        assert!(
            matches!(refused, Err(TargetError::Protocol(_))),
            "{response:?}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn only_tables_of_the_bench_are_dropped() {
    let target = crate::target::open("hbase://127.0.0.1:1").await.unwrap();
    assert!(matches!(
        target.drop_table("users").await,
        Err(TargetError::Unsupported(_))
    ));
    assert!(crate::target::open("hbase://127.0.0.1").await.is_err(), "no port");
    assert!(crate::target::open("hbase://127.0.0.1:1/x").await.is_err());
    assert!(crate::target::open("hbase://127.0.0.1:1?timout_ms=1").await.is_err());
}
