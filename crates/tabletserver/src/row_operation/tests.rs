//! Row operations on a server.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

use crate::options::ServerOptions;
use crate::recovery::tests::{TABLETS, Watched, first, first_with, options};
use crate::server::TabletServer;
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::Arc;
use stele_client::{
    CellsTest, Condition, ConditionTest, RmwOperation, RmwRule, RowOutcome, ServiceError, ServiceResult, Step,
    TabletRowOperation, TabletService as _,
};
use stele_filter::Filter;
use stele_memory::{OVERDRAFT_BYTES, Part, Pool};
use stele_storage::memory::MemoryStorage;
use stele_types::{Cell, ErrorKind, FamilyId, Mutation, RowMutation, SeqNo, Timestamp, lifetime, limits};

const ROW: &[u8] = b"a row";
const FAMILY: FamilyId = FamilyId(1);
/// A family that the schema lacks.
const UNKNOWN: FamilyId = FamilyId(9);
/// Enough that no filter leaves out the cells of others.
const MANY_COLUMNS: usize = 40;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn put(qualifier: &str, at: i64, value: impl Into<Bytes>) -> Step {
    Step::Mutate(Mutation::Put {
        family: FAMILY,
        qualifier: bytes(qualifier),
        timestamp: Timestamp(at),
        value: value.into(),
    })
}

fn delete_newest(qualifier: &str) -> Step {
    Step::DeleteNewest {
        family: FAMILY,
        qualifier: bytes(qualifier),
    }
}

fn rule(qualifier: &str, operation: RmwOperation) -> RmwRule {
    RmwRule {
        timestamp: Some(Timestamp(100)),
        ..RmwRule::new(FAMILY, bytes(qualifier), operation)
    }
}

fn increment(qualifier: &str, by: i64) -> Step {
    Step::Modify(rule(qualifier, RmwOperation::Increment(by)))
}

fn append(qualifier: &str, value: &str) -> Step {
    Step::Modify(rule(qualifier, RmwOperation::Append(bytes(value))))
}

fn number(value: i64) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

/// The cells of one column.
fn column(qualifier: &str) -> Filter {
    Filter::ColumnRange {
        family: "f".to_owned(),
        start: Bound::Included(bytes(qualifier)),
        end: Bound::Included(bytes(qualifier)),
    }
}

/// A server, and its tablet with the row of these tests.
struct Row {
    server: Arc<TabletServer>,
}

impl Row {
    async fn with(cells: Vec<Step>) -> Row {
        let row = Row {
            server: first(&Watched::over(MemoryStorage::new()), None).await,
        };
        row.apply(cells).await.unwrap();
        row
    }

    /// The same with 2 MB in a file that come before the row's own columns: it is read in pieces.
    async fn large_with(mut cells: Vec<Step>) -> Row {
        cells.extend((0..200).map(|n| put(&format!("!{n:04}"), 1, vec![7; 10_000])));
        let row = Row::with(cells).await;
        let served = row.server.served(TABLETS[0]).unwrap();
        served.tablet.flush().await.unwrap();
        assert!(served.tablet.get_row(ROW, None).unwrap().is_none(), "it is not small");
        row
    }

    async fn apply(&self, steps: Vec<Step>) -> ServiceResult<RowOutcome> {
        self.apply_if(None, steps, Vec::new()).await
    }

    async fn apply_if(
        &self,
        condition: Option<Condition>,
        steps: Vec<Step>,
        otherwise: Vec<Step>,
    ) -> ServiceResult<RowOutcome> {
        let operation = TabletRowOperation {
            row: Bytes::from_static(ROW),
            condition,
            steps,
            otherwise,
            durability: None,
            token: None,
        };
        self.server.row_operation(TABLETS[0], operation).await
    }

    /// The cells of a column: timestamps and values.
    async fn versions(&self, qualifier: &str) -> Vec<(i64, Bytes)> {
        let found = Arc::new(Mutex::new(Vec::new()));
        let sees = {
            let found = found.clone();
            move |cells: &[Cell]| {
                *found.lock() = cells
                    .iter()
                    .map(|cell| (cell.timestamp.0, cell.value.clone()))
                    .collect();
                Ok(true)
            }
        };
        let condition = condition(Some(column(qualifier)), sees);
        self.apply_if(Some(condition), Vec::new(), Vec::new()).await.unwrap();
        std::mem::take(&mut *found.lock())
    }

    /// Grows with everything that is logged.
    fn last_write(&self) -> SeqNo {
        self.server.served(TABLETS[0]).unwrap().tablet.visible()
    }
}

fn condition(
    reads: Option<Filter>,
    test: impl Fn(&[Cell]) -> ServiceResult<bool> + Send + Sync + 'static,
) -> Condition {
    Condition {
        reads: reads.map(Arc::new),
        test: ConditionTest::Cells(Arc::new(test)),
    }
}

fn written(outcome: RowOutcome) -> Vec<(Bytes, i64, Bytes)> {
    let cells = outcome.written.into_iter();
    cells
        .map(|cell| (cell.qualifier, cell.timestamp.0, cell.value))
        .collect()
}

#[tokio::test]
async fn a_condition_decides_over_the_cells_that_it_reads() {
    for row in [
        Row::with(vec![put("q", 1, "v")]).await,
        Row::large_with(vec![put("q", 1, "v")]).await,
    ] {
        let absent = || condition(Some(column("absent")), |cells| Ok(cells.is_empty()));
        let steps = || (vec![put("then", 1, "then")], vec![put("else", 1, "else")]);
        let (then, otherwise) = steps();
        let outcome = row.apply_if(Some(absent()), then, otherwise).await.unwrap();
        assert!(outcome.matched && outcome.written.is_empty());
        assert_eq!(row.versions("then").await, [(1, bytes("then"))]);
        assert_eq!(row.versions("else").await, []);
        // It is there now.
        row.apply(vec![put("absent", 1, "")]).await.unwrap();
        let (then, otherwise) = steps();
        let outcome = row.apply_if(Some(absent()), then, otherwise).await.unwrap();
        assert!(!outcome.matched);
        assert_eq!(row.versions("else").await, [(1, bytes("else"))]);
    }
}

#[tokio::test]
async fn a_condition_sees_all_cells_of_a_row_in_their_order() {
    let row = Row::large_with(vec![put("q", 1, "old"), put("q", 2, "new")]).await;
    let test = |cells: &[Cell]| {
        let newest_first = |cells: &[Cell]| cells.iter().map(|cell| cell.timestamp.0).collect::<Vec<_>>();
        let (others, own) = cells.split_at(200);
        let is_large =
            others.is_sorted_by_key(|cell| &cell.qualifier) && others.iter().all(|c| c.value.len() == 10_000);
        Ok(is_large && newest_first(own) == [2, 1])
    };
    let steps = vec![put("then", 1, "then")];
    let outcome = row.apply_if(Some(condition(None, test)), steps, Vec::new()).await;
    assert!(outcome.unwrap().matched);
    assert_eq!(row.versions("then").await, [(1, bytes("then"))]);
}

#[tokio::test]
async fn an_error_of_a_condition_ends_the_operation() {
    let row = Row::with(vec![put("q", 1, "v")]).await;
    let before = row.last_write();
    let refuses = condition(None, |_| Err(ServiceError::invalid("not comparable")));
    let steps = || vec![put("q", 2, "w")];
    let refused = row.apply_if(Some(refuses), steps(), steps()).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidArgument);
    assert_eq!(row.last_write(), before);
}

/// The row is small, and the filter's copies of it are not.
#[tokio::test]
async fn a_condition_that_takes_more_memory_than_there_is_is_refused() {
    let options = ServerOptions {
        pool: Pool::default().limited(Part::WriteRows, 4 << 20),
        ..options()
    };
    let row = Row {
        server: first_with(&Watched::over(MemoryStorage::new()), None, options).await,
    };
    let value = vec![7; 1 << 20];
    row.apply(vec![put("q", 1, value), increment("n", 1)]).await.unwrap();
    let copies = |count| Some(Filter::Interleave(vec![Filter::PassAll; count]));
    let cells = |count: usize| condition(copies(count), move |cells| Ok(cells.len() == 2 * count));
    let outcome = row.apply_if(Some(cells(10)), vec![increment("n", 1)], Vec::new()).await;
    assert_eq!(outcome.unwrap().written[0].value, number(2));
    // One cell is enough where any is, however large the others are.
    let many = OVERDRAFT_BYTES / (1 << 20) + 1;
    let any = Condition::any_cell(copies(many).map(Arc::new));
    assert!(row.apply_if(Some(any), Vec::new(), Vec::new()).await.unwrap().matched);
    let refused = row
        .apply_if(Some(cells(many)), vec![increment("n", 1)], Vec::new())
        .await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::ResourceExhausted);
    assert_eq!(row.server.parts.admission.rows.taken(), 0);
}

#[tokio::test]
async fn steps_of_all_kinds_are_one_write() {
    let cells = || {
        vec![
            put("counter", 1, number(40)),
            put("text", 1, "old"),
            put("versions", 1, "first"),
            put("versions", 2, "second"),
        ]
    };
    for row in [Row::with(cells()).await, Row::large_with(cells()).await] {
        let before = row.last_write();
        let steps = vec![
            put("text", 50, "put before"),
            append("text", "+"),
            delete_newest("versions"),
            increment("counter", 1),
            increment("counter", 1),
            put("versions", 50, "put behind"),
            append("text", "+"),
            put("counter", 100, "put behind"),
        ];
        let outcome = row.apply(steps).await.unwrap();
        assert!(outcome.matched);
        // Rules see the row as it was and each other, and no puts.
        let expected = [("counter", 100, number(42)), ("text", 100, bytes("old++"))];
        assert_eq!(written(outcome), expected.map(|(q, at, value)| (bytes(q), at, value)));
        assert_eq!(
            row.versions("counter").await,
            [(100, bytes("put behind")), (1, number(40))]
        );
        let text = [(100, "old++"), (50, "put before"), (1, "old")];
        assert_eq!(row.versions("text").await, text.map(|(at, value)| (at, bytes(value))));
        let versions = [(50, "put behind"), (1, "first")];
        assert_eq!(
            row.versions("versions").await,
            versions.map(|(at, value)| (at, bytes(value)))
        );
        // Three puts, one delete, and one cell for each of the two columns of rules, in one batch.
        assert_eq!(row.last_write(), before.plus(6));
    }
}

#[tokio::test]
async fn the_newest_version_is_deleted_if_there_is_one() {
    let cells = || [5, 3, 1].map(|at| put("q", at, "v")).to_vec();
    for row in [Row::with(cells()).await, Row::large_with(cells()).await] {
        let versions = async || {
            let versions = row.versions("q").await.into_iter();
            versions.map(|(at, _)| at).collect::<Vec<_>>()
        };
        row.apply(vec![delete_newest("q")]).await.unwrap();
        assert_eq!(versions().await, [3, 1]);
        let others = (0..MANY_COLUMNS).map(|n| delete_newest(&format!("absent {n}")));
        row.apply(others.chain([delete_newest("q")]).collect()).await.unwrap();
        assert_eq!(versions().await, [1]);
        row.apply(vec![delete_newest("q")]).await.unwrap();
        assert_eq!(versions().await, [0_i64; 0]);
        let before = row.last_write();
        assert!(row.apply(vec![delete_newest("q")]).await.unwrap().matched);
        assert_eq!(row.last_write(), before, "there is nothing to delete");
    }
}

#[tokio::test]
async fn an_increment_chooses_its_operand_by_time() {
    let cells = || [(9, 900), (6, 600), (3, 300)].map(|(at, value)| put("n", at, number(value)));
    for row in [
        Row::with(cells().to_vec()).await,
        Row::large_with(cells().to_vec()).await,
    ] {
        for others in [0, MANY_COLUMNS] {
            let of = async |times| {
                let one = RmwRule {
                    times,
                    timestamp: Some(Timestamp(1)),
                    ..rule("n", RmwOperation::Increment(1))
                };
                // Its newest cell is read also where another step of the column only deletes it.
                let mut steps: Vec<Step> = (0..others).map(|n| delete_newest(&format!("absent {n}"))).collect();
                steps.extend([delete_newest("zz"), Step::Modify(one)]);
                let outcome = row.apply(steps).await.unwrap();
                row.apply(vec![Step::Mutate(Mutation::DeleteVersion {
                    family: FAMILY,
                    qualifier: bytes("n"),
                    timestamp: Timestamp(1),
                })])
                .await
                .unwrap();
                outcome.written[0].value.clone()
            };
            assert_eq!(of(None).await, number(901));
            assert_eq!(of(Some((3, 6))).await, number(301));
            assert_eq!(of(Some((3, 7))).await, number(601));
            assert_eq!(of(Some((9, i64::MAX))).await, number(901));
            assert_eq!(of(Some((4, 6))).await, number(1));
            assert_eq!(of(Some((6, 3))).await, number(1));
        }
        // The new cell is the newest, though its operand was not. The server's clock is far behind.
        row.apply(vec![put("n", i64::MAX - 1, number(0))]).await.unwrap();
        let old = RmwRule {
            times: Some((3, 6)),
            ..RmwRule::new(FAMILY, bytes("n"), RmwOperation::Increment(1))
        };
        let outcome = row.apply(vec![Step::Modify(old)]).await.unwrap();
        assert_eq!(written(outcome), [(bytes("n"), i64::MAX - 1, number(301))]);
    }
}

#[tokio::test]
async fn an_operation_without_anything_to_write_writes_nothing() {
    let row = Row::with(vec![put("q", 1, "v")]).await;
    let before = row.last_write();
    let absent = Condition::any_cell(Some(Arc::new(column("absent"))));
    let outcome = row.apply_if(Some(absent), vec![put("q", 2, "w")], Vec::new()).await;
    assert!(!outcome.unwrap().matched);
    assert!(row.apply(Vec::new()).await.unwrap().matched);
    assert_eq!(row.last_write(), before);
    assert_eq!(row.versions("q").await, [(1, bytes("v"))]);
}

#[tokio::test]
async fn steps_on_a_family_that_the_schema_lacks_are_not_found() {
    let row = Row::with(vec![put("q", 1, "v")]).await;
    let before = row.last_write();
    let qualifier = Bytes::new;
    let unknown = [
        Step::DeleteNewest {
            family: UNKNOWN,
            qualifier: qualifier(),
        },
        Step::Modify(RmwRule::new(UNKNOWN, qualifier(), RmwOperation::Increment(1))),
    ];
    for step in unknown {
        let refused = row.apply(vec![put("q", 2, "w"), step.clone()]).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::NotFound);
        // Only the steps that are chosen matter.
        let any = Condition::any_cell(None);
        assert!(row.apply_if(Some(any), Vec::new(), vec![step]).await.unwrap().matched);
    }
    assert_eq!(row.last_write(), before);
    let wrong = row.apply(vec![put("q", 2, "w"), increment("q", 1)]).await.unwrap_err();
    assert_eq!((wrong.kind, row.last_write()), (ErrorKind::InvalidArgument, before));
}

/// The log could not be read again: no later start would succeed.
#[tokio::test]
async fn parts_that_are_longer_than_a_cell_may_have_are_not_logged() {
    let row = Row::with(vec![put("q", 1, "v")]).await;
    let before = row.last_write();
    let long = "q".repeat(limits::QUALIFIER_BYTES_MAX + 1);
    let largest = vec![0; limits::VALUE_BYTES_MAX];
    let expiring = Mutation::ExpiringPut {
        family: FAMILY,
        qualifier: bytes("q"),
        timestamp: Timestamp(1),
        stored: lifetime::stored(1_000, &largest),
    };
    let refused = [
        put(&long, 1, "v"),
        put("q", 1, [&largest[..], b"1"].concat()),
        delete_newest(&long),
        increment(&long, 1),
        Step::Mutate(expiring),
    ];
    for step in refused {
        let error = row.apply(vec![step.clone()]).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
        if let Step::Mutate(mutation) = step {
            let rows = vec![RowMutation {
                row: Bytes::from_static(ROW),
                mutations: vec![mutation],
            }];
            let written = row.server.mutate(TABLETS[0], rows.into(), None).await;
            assert_eq!(written.unwrap_err().kind, ErrorKind::InvalidArgument);
        }
    }
    assert_eq!(row.last_write(), before);
    row.apply(vec![put("q", 2, "w")]).await.unwrap();
}

/// A write between the condition and the steps would let more of them match.
#[tokio::test]
async fn operations_on_a_row_exclude_each_other() {
    let row = Row::with(vec![put("n", 1, number(0))]).await;
    let below = |limit: i64| {
        let test = move |cells: &[Cell]| {
            let value = cells.first().map(|cell| &cell.value[..]);
            Ok(value.and_then(|value| value.try_into().ok()).map(i64::from_be_bytes) < Some(limit))
        };
        condition(Some(column("n")), test)
    };
    let one = || row.apply_if(Some(below(3)), vec![increment("n", 1)], vec![increment("refused", 1)]);
    let outcomes = futures::future::join_all((0..10).map(|_| one())).await;
    let matched = outcomes.into_iter().filter(|outcome| outcome.as_ref().unwrap().matched);
    assert_eq!(matched.count(), 3);
    assert_eq!(row.versions("n").await[0].1, number(3));
    assert_eq!(row.versions("refused").await, [(100, number(7))]);
}

#[tokio::test]
async fn a_change_at_the_time_of_the_operation_is_not_before_the_cell_that_was_tested() {
    let far = i64::MAX / 2;
    let row = Row::with(vec![put("tested", far, "free")]).await;
    let stale = |qualifier: &str| match put(qualifier, 5, "taken") {
        Step::Mutate(mutation) => Step::MutateNow(mutation),
        other => other,
    };
    // Without a condition it is the server's time, and never that of the caller.
    row.apply(vec![stale("other")]).await.unwrap();
    let written = row.versions("other").await;
    assert!(written.iter().all(|(at, _)| *at > 5 && *at < far), "{written:?}");
    let is_free = |cells: &[Cell]| Ok(cells.first().is_some_and(|cell| cell.value == "free"));
    let take = || {
        row.apply_if(
            Some(condition(Some(column("tested")), is_free)),
            vec![stale("tested")],
            Vec::new(),
        )
    };
    assert!(take().await.unwrap().matched);
    assert_eq!(row.versions("tested").await.first(), Some(&(far, bytes("taken"))));
    assert!(!take().await.unwrap().matched, "a second caller takes it as well");
}

/// It would hide every later write without a time.
#[tokio::test]
async fn a_delete_at_the_time_of_the_operation_is_not_at_that_of_the_cell_that_was_tested() {
    let far = i64::MAX / 2;
    let row = Row::with(vec![put("tested", far, "v"), put("other", 1, "v")]).await;
    let delete = Step::MutateNow(Mutation::DeleteFamily {
        family: FAMILY,
        up_to: Timestamp(0),
    });
    let any = condition(None, |cells| Ok(!cells.is_empty()));
    assert!(row.apply_if(Some(any), vec![delete], Vec::new()).await.unwrap().matched);
    assert_eq!(row.versions("other").await, []);
    assert_eq!(row.versions("tested").await, [(far, bytes("v"))]);
}

/// A cell that the test leaves out has nothing to do with the time of a put.
#[tokio::test]
async fn a_put_is_not_before_the_cell_that_decided() {
    struct Second;
    impl CellsTest for Second {
        fn decide(&self, cells: &[Cell]) -> ServiceResult<(bool, Option<Timestamp>)> {
            Ok((true, cells.get(1).map(|cell| cell.timestamp)))
        }
    }
    let far = i64::MAX / 2;
    let row = Row::with(vec![put("a", far, "v"), put("b", 5, "v")]).await;
    let condition = Condition {
        reads: None,
        test: ConditionTest::Cells(Arc::new(Second)),
    };
    let put_now = match put("b", 0, "w") {
        Step::Mutate(mutation) => Step::MutateNow(mutation),
        other => other,
    };
    row.apply_if(Some(condition), vec![put_now], Vec::new()).await.unwrap();
    let newest = row.versions("b").await[0].0;
    assert!(newest > 5 && newest < far, "{newest}");
}

#[tokio::test]
async fn each_delete_of_a_newest_version_takes_the_next() {
    let cells = || (1..=5).map(|at| put("q", at, "v")).chain([put("r", 1, "v")]).collect();
    for row in [Row::with(cells()).await, Row::large_with(cells()).await] {
        let steps = vec![
            delete_newest("q"),
            delete_newest("r"),
            delete_newest("q"),
            delete_newest("r"),
        ];
        row.apply(steps).await.unwrap();
        let left: Vec<i64> = row.versions("q").await.into_iter().map(|(at, _)| at).collect();
        assert_eq!(left, [3, 2, 1]);
        assert_eq!(row.versions("r").await, []);
        // With more columns than a filter is made for, and with a rule on the column.
        let mut steps: Vec<Step> = (0..MANY_COLUMNS).map(|n| delete_newest(&format!("c{n}"))).collect();
        steps.extend([delete_newest("q"), delete_newest("q"), append("q", "w")]);
        let outcome = row.apply(steps).await.unwrap();
        assert_eq!(written(outcome), [(bytes("q"), 100, bytes("vw"))]);
        let left: Vec<i64> = row.versions("q").await.into_iter().map(|(at, _)| at).collect();
        assert_eq!(left, [100, 1]);
    }
}
