//! Batches that servers carry out only in part.

use super::scripted::{Map, answer, start};
use super::{TABLE, connect, one_server};
use crate::target::{Put, TargetError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use stele_wire::cell::CellReader;
use stele_wire::exception;
use stele_wire::frame::Request;
use stele_wire::messages::{
    Action, MultiRequest, MultiResponse, NameBytesPair, RegionActionResult, ResultOrException, RowResult, decode,
};

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
