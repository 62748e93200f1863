//! Requests of a caller whose view of the catalog is old.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

mod requested;

use super::*;
use crate::options::{MemtableLimits, ServerOptions};
use crate::recovery::tests::{TABLETS, Watched, first, first_with, options};
use futures::FutureExt as _;
use std::ops::Range;
use std::time::Duration;
use stele_client::{BatchReservation, Condition, RmwOperation, RmwRule, ServiceError, Step};
use stele_env::tokio_env::TokioRuntime;
use stele_memory::{Part, Pool};
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_storage::memory::MemoryStorage;
use stele_tablet::SpaceLimit;
use stele_types::{
    Cell, Durability, ErrorKind, GcRule, Mutation, RowMutation, RowSet, ServerTime, TimeUnit, Timestamp,
};

fn put(row: &Bytes) -> RowMutation {
    let mutation = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value: Bytes::from_static(b"v"),
    };
    RowMutation {
        row: row.clone(),
        mutations: vec![mutation],
    }
}

/// Applies steps if the row has a cell that the filter lets through.
fn conditional(row: &Bytes, reads: Option<Filter>, steps: Vec<Step>, otherwise: Vec<Step>) -> TabletRowOperation {
    TabletRowOperation {
        row: row.clone(),
        condition: Some(Condition::any_cell(reads.map(Arc::new))),
        steps,
        otherwise,
        durability: None,
        token: None,
    }
}

fn unconditional(row: &Bytes, steps: Vec<Step>) -> TabletRowOperation {
    TabletRowOperation {
        row: row.clone(),
        condition: None,
        steps,
        otherwise: Vec::new(),
        durability: None,
        token: None,
    }
}

fn steps(row: RowMutation) -> Vec<Step> {
    row.mutations.into_iter().map(Step::Mutate).collect()
}

fn append_to(qualifier: impl Into<Bytes>, value: impl Into<Bytes>) -> Step {
    let operation = RmwOperation::Append(value.into());
    Step::Modify(RmwRule::new(FamilyId(1), qualifier.into(), operation))
}

async fn check_and_mutate(server: &TabletServer, tablet: TabletId, row: &Bytes) -> ServiceResult<bool> {
    let operation = conditional(row, None, Vec::new(), steps(put(row)));
    Ok(server.row_operation(tablet, operation).await?.matched)
}

async fn append(server: &TabletServer, tablet: TabletId, row: &Bytes) -> ServiceResult<Vec<Cell>> {
    let operation = unconditional(row, vec![append_to("q", "v")]);
    Ok(server.row_operation(tablet, operation).await?.written)
}

/// All rows that a tablet has of those asked for.
async fn scan(server: &TabletServer, tablet: TabletId, rows: RowSet) -> usize {
    let request = TabletRead {
        rows,
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
        waits: true,
    };
    let mut stream = TabletService::read(server, tablet, request).await.unwrap();
    let mut found = 0;
    while let Some(batch) = stream.next().await.unwrap() {
        found += batch.rows().count();
    }
    found
}

fn kind(outcome: Result<impl Sized, ServiceError>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind)
}

/// Clocks differ: the time of the server that a client called may be behind that of an earlier write.
#[tokio::test]
async fn a_write_has_the_time_of_the_server_that_has_the_tablet() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let row = Bytes::from_static(b"left");
    let dated = |at: i64, is_foreign| {
        let (at, mut put) = (Timestamp(at), put(&row));
        put.mutations = put.mutations.into_iter().map(|put| put.at(at)).collect();
        RowWrites::from(vec![put]).with_server_time(Some(ServerTime { at, is_foreign }))
    };
    let newest = async || {
        let read = server.try_read_row(TABLETS[0], &row, None).unwrap();
        read.unwrap().rows().next().unwrap().1[0].timestamp
    };
    let served = server.env().wall_micros();
    let early = served - 1_000_000;
    server.mutate(TABLETS[0], dated(early, false), None).await.unwrap();
    assert!(
        newest().await.0 >= served,
        "another server may have had the tablet then"
    );
    let before = server_timestamp(TimeUnit::Micros, 1, server.env().wall_micros());
    server.mutate(TABLETS[0], dated(1, true), None).await.unwrap();
    assert!(newest().await >= before);
    let read = served + 3_600_000_000;
    server.mutate(TABLETS[0], dated(read, false), None).await.unwrap();
    assert_eq!(newest().await, Timestamp(read), "this server has read its clock");
    let other = server.mutate(TABLETS[1], dated(1, true), None).await;
    assert_eq!(kind(other), Some(ErrorKind::Unavailable));
}

/// The router may know a newer schema. The next flush would drop cells of a family that the tablet does not know.
#[tokio::test]
async fn a_family_that_the_tablet_does_not_know_yet_is_refused() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let tablet = server.served(TABLETS[0]).unwrap().tablet.clone();
    let row = Bytes::from_static(b"left");
    let next = FamilyId(tablet.schema().families.keys().last().unwrap().0 + 7);
    let mut write = put(&row);
    write.mutations.push(Mutation::DeleteFamily {
        family: next,
        up_to: Timestamp::MAX,
    });
    let plain = || server.mutate(TABLETS[0], vec![write.clone()].into(), None);
    let operation = || server.row_operation(TABLETS[0], unconditional(&row, steps(write.clone())));
    assert_eq!(kind(plain().await), Some(ErrorKind::Unavailable));
    assert_eq!(kind(operation().await), Some(ErrorKind::Unavailable));
    assert_eq!(tablet.state().memtable_bytes(), 0);
    let version = tablet.schema().version + 1;
    let unsettled = || server.unsettled(TABLETS[0], version);
    assert_eq!(kind(unsettled().await), Some(ErrorKind::Unavailable));
    let mut newer = TableSchema::clone(&tablet.schema());
    (newer.version, newer.next_family) = (version, FamilyId(next.0 + 1));
    let family = newer.families.values().next().unwrap().clone();
    newer.families.insert(next, family);
    server.set_schema(Arc::new(newer)).await;
    plain().await.unwrap();
    operation().await.unwrap();
    unsettled().await.unwrap();
}

/// A write reads the clock before it waits for the latch of its row. A read-modify-write that is earlier in line reads it later.
#[tokio::test]
async fn a_write_that_waited_for_read_modify_writes_is_not_older_than_theirs() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let (row, other) = (Bytes::from_static(b"left"), Bytes::from_static(b"lefu"));
    let newest = async |row: &Bytes| {
        let read = server.try_read_row(TABLETS[0], row, None).unwrap();
        let cell = read.unwrap().rows().next().unwrap().1[0].clone();
        (cell.value, cell.timestamp)
    };
    let decoded = server.env().wall_micros();
    let dated = |rows: &[&Bytes]| {
        let at = Timestamp(decoded - 1);
        let dated = |row: &&Bytes| RowMutation {
            mutations: put(row).mutations.into_iter().map(|put| put.at(at)).collect(),
            row: (*row).clone(),
        };
        let rows: Vec<_> = rows.iter().map(dated).collect();
        RowWrites::from(rows).with_server_time(Some(ServerTime { at, is_foreign: false }))
    };
    for writes in [dated(&[&row]), dated(&[&other, &row])] {
        let appended = append(&server, TABLETS[0], &row).await.unwrap()[0].clone();
        assert!(appended.timestamp.0 >= decoded);
        server.mutate(TABLETS[0], writes, None).await.unwrap();
        let (value, timestamp) = newest(&row).await;
        assert_eq!(value, "v", "the earlier append hides the write");
        assert!(timestamp >= appended.timestamp);
    }
    // A time that the client gave stays.
    append(&server, TABLETS[0], &row).await.unwrap();
    server.mutate(TABLETS[0], vec![put(&row)].into(), None).await.unwrap();
    assert_ne!(newest(&row).await.0, "v");
}

#[tokio::test]
async fn rows_of_another_tablet_are_refused_and_nothing_happens() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let (left, right) = (Bytes::from_static(b"left"), Bytes::from_static(b"right"));
    for (tablet, own, other) in [(TABLETS[0], &left, &right), (TABLETS[1], &right, &left)] {
        let refused = Some(ErrorKind::Unavailable);
        for rows in [vec![put(other)], vec![put(own), put(other)], vec![put(other), put(own)]] {
            assert_eq!(kind(server.mutate(tablet, rows.into(), None).await), refused);
        }
        assert_eq!(kind(check_and_mutate(&server, tablet, other).await), refused);
        assert_eq!(kind(append(&server, tablet, other).await), refused);
        assert_eq!(kind(server.try_read_row(tablet, other, None)), refused);
        assert_eq!(server.served(tablet).unwrap().tablet.state().memtable_bytes(), 0);
    }
    for (tablet, own, other) in [(TABLETS[0], &left, &right), (TABLETS[1], &right, &left)] {
        server.mutate(tablet, vec![put(own)].into(), None).await.unwrap();
        assert!(check_and_mutate(&server, tablet, own).await.unwrap());
        assert_eq!(append(&server, tablet, own).await.unwrap()[0].value, "vv");
        for rows in [
            RowSet::all(),
            RowSet::new(vec![RowRange::single(own), RowRange::single(other)]),
        ] {
            assert_eq!(
                scan(&server, tablet, rows).await,
                1,
                "a read passes over what is not the tablet's"
            );
        }
        assert_eq!(
            scan(&server, tablet, RowSet::new(vec![RowRange::single(other)])).await,
            0
        );
    }
}

/// Reservation of a reader that takes large rows as partial rows.
struct PartialRows(usize);

#[async_trait]
impl BatchReservation for PartialRows {
    fn bytes(&self) -> usize {
        self.0
    }

    fn takes_partial_rows(&self) -> bool {
        true
    }

    async fn renew(&mut self, bytes: usize) -> ServiceResult<()> {
        self.0 = bytes;
        Ok(())
    }
}

/// Reads one row, and waits for it if need be.
async fn read_row(server: &TabletServer, tablet: TabletId, row: &Bytes, filter: Option<Filter>) -> Box<dyn RowStream> {
    let request = TabletRead {
        rows: RowSet::new(vec![RowRange::single(row)]),
        filter: filter.map(Arc::new),
        reversed: false,
        raw: false,
        rows_limit: None,
        waits: false,
    };
    TabletService::read(server, tablet, request).await.unwrap()
}

/// Cells of a row for a reader that takes it in pieces.
async fn cells_in_partial_rows(server: &TabletServer, tablet: TabletId, row: &Bytes, filter: Option<Filter>) -> usize {
    let stream = read_row(server, tablet, row, filter).await;
    rest_in_partial_rows(stream).await
}

/// The same for a read that has begun, counting the cells that it returns in the end.
async fn rest_in_partial_rows(mut stream: Box<dyn RowStream>) -> usize {
    let (mut reservation, mut cells) = (PartialRows(2 << 20), 0);
    while let Some(batch) = stream.next_within(&mut reservation).await.unwrap() {
        if !batch.continues {
            cells = 0;
        }
        cells += batch.into_cells().len();
    }
    cells
}

/// Columns of 10,000 bytes each.
fn put_columns(row: &Bytes, columns: Range<usize>, byte: u8) -> RowMutation {
    let column = |n: usize| Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from(format!("{n:04}")),
        timestamp: Timestamp(1),
        value: Bytes::from(vec![byte; 10_000]),
    };
    RowMutation {
        row: row.clone(),
        mutations: columns.map(column).collect(),
    }
}

/// A first partial row without cells is not a row without cells, regardless of the cells behind it.
#[tokio::test]
async fn the_row_cache_keeps_no_beginnings_of_rows() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let (large, late) = (Bytes::from_static(b"large"), Bytes::from_static(b"late"));
    let mut write = put(&large);
    let Mutation::Put { value, .. } = &mut write.mutations[0] else {
        unreachable!("it is a put");
    };
    *value = Bytes::from(vec![7; 1_200_000]);
    let late_a = put_columns(&late, 0..190, b'a');
    let late_b = put_columns(&late, 190..200, b'b');
    server
        .mutate(TABLETS[0], vec![write, late_a, late_b].into(), None)
        .await
        .unwrap();
    for round in 0..3 {
        let one = cells_in_partial_rows(&server, TABLETS[0], &large, None).await;
        let filter = Filter::ValueRegex(Bytes::from_static(b"b+"));
        let wanted = cells_in_partial_rows(&server, TABLETS[0], &late, Some(filter)).await;
        assert_eq!((one, wanted), (1, 10), "round {round}");
    }
}

fn put_at(row: &Bytes, at: i64) -> RowMutation {
    let mut write = put(row);
    let Mutation::Put { timestamp, .. } = &mut write.mutations[0] else {
        unreachable!("it is a put");
    };
    *timestamp = Timestamp(at);
    write
}

/// A merge drops a version that shows only because a newer one is deleted where the merge does not see it.
#[tokio::test]
async fn a_hit_of_the_row_cache_is_what_a_merge_has_left() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let tablet = server.served(TABLETS[0]).unwrap().tablet.clone();
    let mut schema = TableSchema::clone(&tablet.schema());
    schema.version += 1;
    schema.families.get_mut(&FamilyId(1)).unwrap().gc_rule = Some(GcRule::MaxVersions(1));
    tablet.set_schema(Arc::new(schema));
    // So that the next flush is not into the bottom, and drops nothing.
    let (other, row) = (Bytes::from_static(b"a"), Bytes::from_static(b"left"));
    for writes in [vec![put_at(&other, 1)], vec![put_at(&row, 30), put_at(&row, 20)]] {
        server.mutate(TABLETS[0], writes.into(), None).await.unwrap();
        tablet.flush().await.unwrap();
    }
    let mut delete = put(&row);
    delete.mutations = vec![Mutation::DeleteVersion {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(30),
    }];
    server.mutate(TABLETS[0], vec![delete].into(), None).await.unwrap();
    let read = || {
        let found = server.get_row(TABLETS[0], &row, None).unwrap().unwrap();
        let stored = tablet.get_row(&row, None).unwrap().unwrap();
        [found.into_batch(), stored].map(|batch| batch.into_cells().len())
    };
    assert_eq!([read(), read()], [[1, 1], [1, 1]]);
    while tablet.compact_for_space(SpaceLimit::UNLIMITED).await.unwrap().is_some() {}
    assert_eq!(read(), [0, 0]);
}

/// Readers that pause within a large row keep memtables that are flushed already: a part of the memtables' share, and no more.
#[tokio::test]
async fn readers_that_pause_do_not_stop_writes() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let tablet = server.served(TABLETS[0]).unwrap().tablet.clone();
    let large = Bytes::from_static(b"large");
    let row = put_columns(&large, 0..400, b'a');
    server.mutate(TABLETS[0], vec![row].into(), None).await.unwrap();
    tablet.flush().await.unwrap();
    let share = server.parts.options.memtables.bytes_max();
    // As much between two flushes as there is of a tablet that is flushed because of its size.
    let columns = (share / 4) as usize / 10_000;
    let (mut readers, mut reservation) = (Vec::new(), PartialRows(2 << 20));
    for n in 0..8 {
        let filler = put_columns(&Bytes::from(format!("a{n}")), 0..columns, b'b');
        server.mutate(TABLETS[0], vec![filler].into(), None).await.unwrap();
        let mut stream = read_row(&server, TABLETS[0], &large, None).await;
        let partial_row = stream.next_within(&mut reservation).await.unwrap().unwrap();
        assert!(partial_row.unfinished);
        readers.push((stream, partial_row.into_cells().len()));
        tablet.flush().await.unwrap();
        let mut looks = 0;
        while server.parts.context.memory.bytes() > share / 2 {
            // Looked at by the flushes of the server every 200 ms; the longest that a pin lasts is ten seconds.
            tokio::time::sleep(Duration::from_millis(20)).await;
            looks += 1;
            assert!(
                looks < 100,
                "{} bytes of {share} after {n}",
                server.parts.context.memory.bytes()
            );
        }
    }
    // The last reader to come keeps its place, the others begin again, and all get their row.
    assert_eq!(server.parts.metrics.pins_released.get(), 7);
    let (last, partial_row) = readers.pop().unwrap();
    assert_eq!(partial_row + rest_in_partial_rows(last).await, 400);
    let (released, _) = readers.swap_remove(0);
    assert_eq!(rest_in_partial_rows(released).await, 400);
}

/// A pool with `bytes` for large values, and for rows of writes.
fn values_pool(bytes: usize) -> Pool {
    Pool::default()
        .limited(Part::Values, bytes)
        .limited(Part::WriteRows, bytes)
}

/// A conditional write that holds its row's latch does not wait for memory of a plain write that waits for the latch.
#[tokio::test]
async fn who_holds_a_latch_waits_for_nobody_who_wants_it() {
    // Memtables have memory for one value of the first size at a time. A value of the second size is copied for the
    // log, which has memory for one copy.
    for value_bytes in [3 << 20, 100 << 10] {
        let options = ServerOptions {
            pool: Pool::default().limited(Part::Batches, 64 << 10),
            memtables: MemtableLimits::for_share(4 << 20),
            // Writes that wait for each other in a circle are refused then.
            admission_wait_max: Duration::from_secs(30),
            ..options()
        };
        let server = first_with(&Watched::over(MemoryStorage::new()), None, options).await;
        let row = Bytes::from_static(b"a row");
        let latched = server.writer.latches.own(&row).await;
        let put = |qualifier| put_column(&row, qualifier, value_bytes);
        let request = conditional(&row, None, Vec::new(), steps(put("conditional")));
        let conditional = server.row_operation(TABLETS[0], request);
        let rule = append_to("rule", vec![7; value_bytes]);
        let modify = server.row_operation(TABLETS[0], unconditional(&row, vec![rule]));
        let plain = server.mutate(TABLETS[0], vec![put("plain")].into(), None);
        let release = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            drop(latched);
        };
        let (conditional, modify, plain, ()) = tokio::join!(conditional, modify, plain, release);
        assert!(!conditional.unwrap().matched);
        modify.unwrap();
        plain.unwrap();
        server.shut_down().await;
    }
}

/// Writers to a tablet with a shut gate do not take the memory for batches of other tablets.
#[tokio::test]
async fn who_waits_for_a_gate_holds_no_memory() {
    let options = ServerOptions {
        pool: Pool::default().limited(Part::Batches, 8 << 20),
        ..options()
    };
    let server = first_with(&Watched::over(MemoryStorage::new()), None, options).await;
    // A megabyte, in values that are copied.
    let row = |row: String| {
        let row = Bytes::from(row);
        let columns = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        let mutations = columns.map(|qualifier| put_column(&row, qualifier, 105_000).mutations);
        RowMutation {
            row,
            mutations: mutations.concat(),
        }
    };
    let served = server.served(TABLETS[0]).unwrap();
    served.gate.own().await;
    let plain = |n| server.mutate(TABLETS[0], vec![row(format!("a{n}"))].into(), None);
    let conditional = |n| {
        let request = unconditional(&Bytes::from(format!("b{n}")), steps(row(format!("b{n}"))));
        server.row_operation(TABLETS[0], request)
    };
    let blocked = async {
        let plain = futures::future::join_all((0..8).map(plain));
        tokio::join!(plain, futures::future::join_all((0..8).map(conditional)))
    };
    let mut blocked = std::pin::pin!(blocked);
    let other = put_column(&Bytes::from_static(b"z"), "q", 100_000);
    tokio::select! {
        biased;
        _ = &mut blocked => unreachable!("the gate is shut"),
        written = server.mutate(TABLETS[1], vec![other].into(), None) => written.unwrap(),
    }
    assert_eq!(server.parts.admission.batches.taken(), 0);
    served.gate.disown();
    let (plain, conditional) = blocked.await;
    assert!(plain.into_iter().all(|written| written.is_ok()));
    assert!(conditional.into_iter().all(|written| written.is_ok()));
    server.shut_down().await;
}

/// The log and the memtables still take its batch then.
#[tokio::test]
async fn a_write_keeps_its_memory_after_its_caller_has_gone() {
    let storage = FaultyStorage::new(TokioRuntime::current());
    let server = first_with(&Watched::over(storage.clone()), None, options()).await;
    let row = Bytes::from_static(b"a");
    let columns = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let mutations = columns.map(|qualifier| put_column(&row, qualifier, 105_000).mutations);
    let mutations = mutations.concat();
    let rows = RowMutation { row, mutations };
    let slow = Duration::from_millis(500);
    storage.set_plan(FaultPlan {
        latency_min: slow,
        latency_max: slow,
        ..FaultPlan::default()
    });
    let write = server.mutate(TABLETS[0], vec![rows].into(), Some(Durability::Sync));
    let given_up = tokio::time::timeout(slow / 5, write).await;
    assert!(given_up.is_err(), "the log waits for the device");
    assert!(server.parts.admission.batches.taken() > 1 << 20, "it was submitted");
    let applied = async {
        while server.parts.admission.batches.taken() > 0 {
            tokio::time::sleep(slow / 50).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), applied).await.unwrap();
    storage.set_plan(FaultPlan::default());
    server.shut_down().await;
}

/// A plain write that waits for the latch may have the overdraft: it has it from when it arrives.
#[tokio::test]
async fn who_waits_for_the_allowance_holds_no_latch() {
    let pool = values_pool(4 << 20);
    let options = ServerOptions {
        pool: pool.clone(),
        memtables: MemtableLimits::for_share(64 << 20),

        // Writes that wait for each other in a circle are refused then.
        admission_wait_max: Duration::from_secs(30),
        ..options()
    };
    let server = first_with(&Watched::over(MemoryStorage::new()), None, options).await;
    let row = Bytes::from_static(b"a row");
    let columns = put_columns(&row, 0..200, b'a');
    server.mutate(TABLETS[0], vec![columns].into(), None).await.unwrap();
    let taken = pool.overdraft_permit(server.env()).await;
    // Must see the row as a whole, and makes enough copies that it needs more than all the reserved memory.
    let whole = Filter::Condition {
        predicate: Box::new(Filter::PassAll),
        on_true: Some(Box::new(Filter::PassAll)),
        on_false: None,
    };
    let copies = Filter::Interleave(vec![Filter::PassAll; 20]);
    let reads = Filter::Chain(vec![whole, copies.clone(), copies]);
    let request = conditional(&row, Some(reads), steps(put(&row)), Vec::new());
    let conditional = server.row_operation(TABLETS[0], request);
    let plain = async {
        while pool.overdraft_waiters() == 0 {
            tokio::task::yield_now().await;
        }
        let plain = server.mutate(TABLETS[0], vec![put_column(&row, "plain", 10)].into(), None);
        let plain = tokio::time::timeout(Duration::from_secs(10), plain).await;
        drop(taken);
        plain.expect("it waits for the conditional write").unwrap();
    };
    let (conditional, ()) = tokio::join!(conditional, plain);
    assert!(conditional.unwrap().matched);
    assert_eq!((server.parts.admission.rows.taken(), pool.is_overdrawn()), (0, false));
    // 200 columns, one that was written meanwhile, and the cell that the condition wrote.
    assert_eq!(cells_in_partial_rows(&server, TABLETS[0], &row, None).await, 202);
    server.shut_down().await;
}

/// The predicate's row sample is taken once, though a row that is read as a whole is begun again in a larger
/// reservation.
#[tokio::test]
async fn a_condition_samples_once_for_a_row() {
    const ROWS: usize = 400;
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let row = |n: usize| Bytes::from(format!("a{n:04}"));
    let column = |n: usize| Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from(format!("{n:04}")),
        timestamp: Timestamp(1),
        value: Bytes::from_static(b"v"),
    };
    let written = |n| RowMutation {
        row: row(n),
        mutations: (0..30).map(column).collect(),
    };
    let rows: Vec<RowMutation> = (0..ROWS).map(written).collect();
    server.mutate(TABLETS[0], rows.into(), None).await.unwrap();
    // Must see the row as a whole, and makes enough copies that thirty cells need more than a megabyte.
    let whole = Filter::Condition {
        predicate: Box::new(Filter::PassAll),
        on_true: Some(Box::new(Filter::PassAll)),
        on_false: None,
    };
    let copies = Filter::Interleave(vec![Filter::PassAll; 20]);
    let sample = Filter::Chain(vec![Filter::RowSample(0.5), whole, copies.clone(), copies]);
    let mut matched = 0;
    for n in 0..ROWS {
        let request = conditional(&row(n), Some(sample.clone()), Vec::new(), Vec::new());
        let outcome = server.row_operation(TABLETS[0], request).await;
        matched += usize::from(outcome.unwrap().matched);
    }
    // Drawn twice it would be a quarter of them.
    assert!((150..=250).contains(&matched), "{matched} of {ROWS}");
}

/// The cells that a write keeps of its row are in the reservation for rows of writes. Values that it reads besides have
/// their own and do not wait for that.
#[tokio::test]
async fn values_that_are_read_for_a_write_do_not_wait_for_those_it_keeps() {
    let options = ServerOptions {
        pool: values_pool(4 << 20),
        ..options()
    };
    let server = first_with(&Watched::over(MemoryStorage::new()), None, options).await;
    let row = Bytes::from_static(b"a row");
    // The cell that is kept comes before the other, and there is no memory for both.
    for qualifier in ["a", "z"] {
        let put = put_column(&row, qualifier, 5 << 19);
        server.mutate(TABLETS[0], vec![put].into(), None).await.unwrap();
    }
    let served = server.served(TABLETS[0]).unwrap();
    served.tablet.flush().await.unwrap();
    // Enough columns that no filter leaves out the cells of others.
    let others = (0..40).map(|n| format!("n{n:02}"));
    let rules = std::iter::once("a".to_owned()).chain(others);
    let rules = rules.map(|qualifier| append_to(qualifier, "v")).collect();
    let outcome = server.row_operation(TABLETS[0], unconditional(&row, rules)).await;
    let written = outcome.unwrap().written;
    assert_eq!(written.len(), 41);
    assert_eq!(written[0].value.len(), (5 << 19) + 1);
}

/// Readers that take nothing may have all memory for values. Nobody waits for them under a latch.
#[tokio::test]
async fn a_value_that_is_read_for_a_write_does_not_wait_for_readers() {
    let pool = Pool::default().limited(Part::Values, 4 << 20);
    let options = ServerOptions {
        pool: pool.clone(),
        ..options()
    };
    let server = first_with(&Watched::over(MemoryStorage::new()), None, options).await;
    let row = Bytes::from_static(b"a row");
    let put = put_column(&row, "q", 2 << 20);
    server.mutate(TABLETS[0], vec![put].into(), None).await.unwrap();
    server.served(TABLETS[0]).unwrap().tablet.flush().await.unwrap();
    let readers = pool.of(Part::Values).try_reserve(4 << 20).unwrap();
    let written = append(&server, TABLETS[0], &row).await.unwrap();
    assert_eq!(written[0].value.len(), (2 << 20) + 1);
    drop(readers);
    server.shut_down().await;
}

/// The kept cells of a row may take all of its reservation: where nothing is left to read, no more is asked for.
#[tokio::test]
async fn what_a_write_keeps_of_its_row_may_fill_the_room() {
    let pool = values_pool(16 << 20);
    let options = ServerOptions {
        pool: pool.clone(),
        memtables: MemtableLimits::for_share(64 << 20),

        admission_wait_max: Duration::from_millis(200),
        ..options()
    };
    let server = first_with(&Watched::over(MemoryStorage::new()), None, options).await;
    let row = Bytes::from_static(b"a row");
    // The read gets eight megabytes for it, and would wait for the overdraft if it were to have more than all sixteen.
    let put = put_column(&row, "q", 5 << 20);
    server.mutate(TABLETS[0], vec![put].into(), None).await.unwrap();
    server.served(TABLETS[0]).unwrap().tablet.flush().await.unwrap();
    let taken = pool.overdraft_permit(server.env()).await;
    let written = append(&server, TABLETS[0], &row).await.unwrap();
    assert_eq!(written[0].value.len(), (5 << 20) + 1);
    drop(taken);
}

/// A byte may be appended to many, which are on their way into the log though who asked for it has gone away.
#[tokio::test]
async fn what_a_write_makes_of_its_row_is_in_its_room_until_it_is_applied() {
    const VALUE_BYTES: usize = 10 << 20;
    let options = ServerOptions {
        pool: values_pool(16 << 20),
        memtables: MemtableLimits::for_share(64 << 20),
        ..options()
    };
    let server = first_with(&Watched::over(MemoryStorage::new()), None, options).await;
    let row = Bytes::from_static(b"a row");
    let put = put_column(&row, "q", VALUE_BYTES);
    server.mutate(TABLETS[0], vec![put].into(), None).await.unwrap();
    let is_counted = || {
        let admission = &server.parts.admission;
        (admission.rows.taken() > 0, admission.expected_bytes() > 0)
    };
    assert_eq!(is_counted(), (false, false));
    // With a sync, it queues for the log's task.
    let operation = TabletRowOperation {
        durability: Some(Durability::Sync),
        ..unconditional(&row, vec![append_to("q", "v")])
    };
    let mut appended = Box::pin(server.row_operation(TABLETS[0], operation));
    loop {
        assert!(futures::poll!(&mut appended).is_pending());
        if server.parts.admission.expected_bytes() > 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    drop(appended);
    assert!(server.writer.latches.try_share(&row).is_none(), "it is on its way");
    assert_eq!(is_counted(), (true, true));
    drop(server.writer.latches.own(&row).await);
    assert_eq!(is_counted(), (false, false));
    let written = append(&server, TABLETS[0], &row).await.unwrap();
    assert_eq!(written[0].value.len(), VALUE_BYTES + 2);
    server.shut_down().await;
}

fn put_column(row: &Bytes, qualifier: &'static str, value_bytes: usize) -> RowMutation {
    let mutation = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(qualifier.as_bytes()),
        timestamp: Timestamp(1),
        value: Bytes::from(vec![7; value_bytes]),
    };
    RowMutation {
        row: row.clone(),
        mutations: vec![mutation],
    }
}

/// Its memtable would have no addresses left, however much memory there is.
#[tokio::test]
async fn a_key_that_is_repeated_to_gigabytes_is_refused() {
    let options = ServerOptions {
        memtables: MemtableLimits::for_share(64 << 30),
        ..options()
    };
    let server = first_with(&Watched::over(MemoryStorage::new()), None, options).await;
    let delete = Mutation::DeleteFamily {
        family: FamilyId(1),
        up_to: Timestamp(1),
    };
    let long = |mutations: usize| RowMutation {
        row: vec![0; 32 << 10].into(),
        mutations: vec![delete.clone(); mutations],
    };
    let refused = server.mutate(TABLETS[0], vec![long(17_000)].into(), None).await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::ResourceExhausted);
    server.mutate(TABLETS[0], vec![long(100)].into(), None).await.unwrap();
}

/// A response that waits for its reader retains little more of a flushed memtable than its own bytes.
#[tokio::test]
async fn answers_that_wait_do_not_stop_writes() {
    const VALUE_BYTES: usize = 40 << 10;
    let options = ServerOptions {
        memtables: MemtableLimits::for_share(64 << 20),
        ..options()
    };
    let server = first_with(&Watched::over(MemoryStorage::new()), None, options).await;
    let tablet = server.served(TABLETS[0]).unwrap().tablet.clone();
    let share = server.parts.options.memtables.bytes_max();
    // As much as one tablet has when it is flushed for its size. Neighbours in the row were not written one after the other.
    let columns = share as usize / 4 / VALUE_BYTES;
    let mut answers = Vec::new();
    for n in 0..6 {
        let row = Bytes::from(format!("a{n}"));
        for at in 0..columns {
            let put = Mutation::Put {
                family: FamilyId(1),
                qualifier: Bytes::from(format!("{:04}", at * 41 % columns)),
                timestamp: Timestamp(1),
                value: Bytes::from(vec![b'v'; VALUE_BYTES]),
            };
            let mutation = RowMutation {
                row: row.clone(),
                mutations: vec![put],
            };
            server.mutate(TABLETS[0], vec![mutation].into(), None).await.unwrap();
        }
        let mut stream = read_row(&server, TABLETS[0], &row, None).await;
        let partial_row = stream.next_within(&mut PartialRows(2 << 20)).await.unwrap().unwrap();
        answers.push(partial_row.into_cells());
        drop(stream);
        tablet.flush().await.unwrap();
    }
    let lie: usize = answers.iter().flatten().map(|cell| cell.value.len()).sum();
    let kept = server.parts.context.memory.bytes();
    assert!(lie > 5 << 20 && kept < 4 * lie as u64, "{kept} for {lie}");
}

/// A connection polls its requests one after the other. Those of them that write share one append, and need no task.
#[tokio::test]
async fn writes_that_are_polled_together_share_an_append() {
    let faulty = FaultyStorage::new(TokioRuntime::current());
    let server = first(&Watched::over(faulty.clone()), None).await;
    let row = |n: usize| Bytes::from(format!("a{n:04}"));
    let write = |n| server.mutate(TABLETS[0], vec![put(&row(n))].into(), Some(Durability::Flush));
    // Begins a segment, for which it needs the task of the log.
    write(0).await.unwrap();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let before = faulty.counts().appends;
    let mut writes: Vec<_> = (1..=20).map(|n| Box::pin(write(n))).collect();
    for write in &mut writes {
        assert!(write.now_or_never().is_none(), "they let each other queue");
    }
    // Its client goes away; the others do not notice.
    drop(writes.remove(0));
    for write in writes {
        write.now_or_never().expect("all are applied").unwrap();
    }
    assert_eq!(faulty.counts().appends, before + 1);
    assert_eq!(scan(&server, TABLETS[0], RowSet::all()).await, 21);
    server.shut_down().await;
}
