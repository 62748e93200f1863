//! Operations on several rows.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

use super::*;
use crate::options::ServerOptions;
use crate::recovery::tests::{TABLETS, Watched, first, first_with, options};
use crate::server::TabletServer;
use std::ops::Bound;
use std::sync::Arc;
use stele_client::{ConditionTest, RmwOperation, RmwRule, TabletService as _};
use stele_filter::Filter;
use stele_memory::{Part, Pool};
use stele_storage::memory::MemoryStorage;
use stele_types::{Cell, FamilyId, Mutation, Timestamp};

const FAMILY: FamilyId = FamilyId(1);

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn put(row: &str, value: impl Into<Bytes>) -> (Bytes, Vec<Step>) {
    let put = Mutation::Put {
        family: FAMILY,
        qualifier: bytes("q"),
        timestamp: Timestamp(5),
        value: value.into(),
    };
    (bytes(row), vec![Step::Mutate(put)])
}

fn append(row: &str, value: &str) -> (Bytes, Vec<Step>) {
    let rule = RmwRule::new(FAMILY, bytes("q"), RmwOperation::Append(bytes(value)));
    (bytes(row), vec![Step::Modify(rule)])
}

fn column() -> Filter {
    Filter::ColumnRange {
        family: "f".to_owned(),
        start: Bound::Included(bytes("q")),
        end: Bound::Included(bytes("q")),
    }
}

/// Holds when the newest value of the row is this.
fn has(row: &str, value: &'static str) -> (Bytes, Condition) {
    let test = move |cells: &[Cell]| Ok(cells.first().is_some_and(|cell| cell.value == value));
    let condition = Condition {
        reads: Some(Arc::new(column())),
        test: ConditionTest::Cells(Arc::new(test)),
    };
    (bytes(row), condition)
}

async fn apply(
    server: &TabletServer,
    conditions: Vec<(Bytes, Condition)>,
    rows: Vec<(Bytes, Vec<Step>)>,
) -> ServiceResult<bool> {
    let operation = TabletRowsOperation {
        conditions,
        rows,
        durability: None,
    };
    server.rows_operation(TABLETS[0], operation).await
}

/// Whether the newest values of rows are these.
async fn have(server: &TabletServer, values: &[(&str, &'static str)]) -> bool {
    let conditions = values.iter().map(|(row, value)| has(row, value)).collect();
    apply(server, conditions, Vec::new()).await.expect("it only reads")
}

#[tokio::test]
async fn all_conditions_hold_or_nothing_is_written() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let start = vec![put("a", "1"), put("b", "2")];
    assert_eq!(apply(&server, Vec::new(), start).await, Ok(true));
    let steps = || vec![append("a", "x"), append("b", "y"), put("c", "3"), append("a", "z")];
    let (true_of_a, false_of_b) = (has("a", "1"), has("b", "1"));
    let before = server.served(TABLETS[0]).expect("it is served").tablet.visible();
    assert_eq!(apply(&server, vec![true_of_a, false_of_b], steps()).await, Ok(false));
    let visible = server.served(TABLETS[0]).expect("it is served").tablet.visible();
    assert_eq!(visible, before, "nothing is written");
    // Rows of conditions need not be written, and the steps of a row apply in their order.
    let all = vec![has("a", "1"), has("b", "2")];
    assert_eq!(apply(&server, all, steps()).await, Ok(true));
    assert!(have(&server, &[("a", "1xz"), ("b", "2y"), ("c", "3")]).await);
    assert!(!have(&server, &[("a", "1xz"), ("b", "2")]).await);
}

#[tokio::test]
async fn an_error_of_one_row_leaves_all_as_they_were() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let counted = RmwRule::new(FAMILY, bytes("q"), RmwOperation::Increment(1));
    let start = vec![put("a", "1"), put("b", "no number")];
    assert_eq!(apply(&server, Vec::new(), start).await, Ok(true));
    let bad = vec![append("a", "x"), (bytes("b"), vec![Step::Modify(counted)])];
    let refused = apply(&server, Vec::new(), bad).await.expect_err("it is no number");
    assert_eq!(refused.kind, ErrorKind::InvalidArgument);
    assert!(have(&server, &[("a", "1")]).await);
}

/// Two operations that take their rows in opposite orders, many times: neither waits for the other in a circle, and no append is
/// lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn operations_on_the_same_rows_follow_each_other() {
    const TURNS: usize = 200;
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let work = |rows: [&'static str; 2]| {
        let server = server.clone();
        tokio::spawn(async move {
            for _ in 0..TURNS {
                let steps = rows.map(|row| append(row, "."));
                assert_eq!(apply(&server, Vec::new(), steps.into()).await, Ok(true));
            }
        })
    };
    let tasks = [work(["a", "b"]), work(["b", "a"])];
    for task in tasks {
        task.await.expect("it does not panic");
    }
    let all: &'static str = ".".repeat(2 * TURNS).leak();
    assert!(have(&server, &[("a", all), ("b", all)]).await);
}

/// Rows that are read in pieces take reserved memory, and wait for that of all of them together.
#[tokio::test]
async fn large_rows_are_read_within_their_memory() {
    const VALUE_BYTES: usize = 1 << 20;
    let options = ServerOptions {
        pool: Pool::default().limited(Part::WriteRows, 24 << 20),
        ..options()
    };
    let server = first_with(&Watched::over(MemoryStorage::new()), None, options).await;
    let start = vec![put("a", vec![7; VALUE_BYTES]), put("b", vec![7; VALUE_BYTES])];
    assert_eq!(apply(&server, Vec::new(), start).await, Ok(true));
    server
        .served(TABLETS[0])
        .expect("it is served")
        .tablet
        .flush()
        .await
        .expect("it flushes");
    let appends = vec![append("a", "x"), append("b", "x")];
    assert_eq!(apply(&server, Vec::new(), appends).await, Ok(true));
    let longer = |cells: &[Cell]| Ok(cells.first().is_some_and(|cell| cell.value.len() == VALUE_BYTES + 1));
    let condition = Condition {
        reads: Some(Arc::new(column())),
        test: ConditionTest::Cells(Arc::new(longer)),
    };
    let conditions = ["a", "b"].map(|row| (bytes(row), condition.clone()));
    assert_eq!(
        apply(&server, conditions.to_vec(), vec![append("b", "x")]).await,
        Ok(true)
    );
    // More than all the memory for such rows.
    let many = ["a", "b"].map(|row| append(row, "x")).into_iter().cycle().take(2);
    let start = ["c", "d", "e", "f", "g", "h", "i", "j"].map(|row| put(row, vec![7; VALUE_BYTES * 4]));
    for row in start.clone() {
        assert_eq!(apply(&server, Vec::new(), vec![row]).await, Ok(true));
    }
    let tablet = &server.served(TABLETS[0]).expect("it is served").tablet;
    tablet.flush().await.expect("it flushes");
    let all = start
        .into_iter()
        .map(|(row, _)| append(std::str::from_utf8(&row).expect("it is text"), "x"));
    let refused = apply(&server, Vec::new(), many.chain(all).collect())
        .await
        .expect_err("it is too much");
    assert_eq!(refused.kind, ErrorKind::ResourceExhausted);
}
