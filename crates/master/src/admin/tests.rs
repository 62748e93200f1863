//! Ranges of new tables, and changes whose callers go away.
//!
//! Snapshots of unknown outcome are in `snapshots`.

#![allow(clippy::disallowed_methods, reason = "the test drops a caller by the real clock")]

mod automated;
mod kept;
mod lost_answers;
mod snapshots;

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use stele_catalog::Catalog;
use stele_client::{Cancellation, GroupUpdate, NewFamily, SnapshotFiles, SplitPolicy, TabletControl};
use stele_coord::{Coord, CoordError, EmbeddedCoord, Txn, TxnOutcome, Watch, Write};
use stele_env::Env;
use stele_env::tokio_env::TokioRuntime;
use stele_storage::StorageError;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_storage::memory::MemoryStorage;
use stele_types::{SnapshotId, ValueType};

/// A server that records the tablets it makes, drops and divides, and has nothing else to do.
#[derive(Default)]
struct Noting {
    made: parking_lot::Mutex<Vec<TabletId>>,
    dropped: parking_lot::Mutex<Vec<TabletId>>,
    flushed: parking_lot::Mutex<Vec<TabletId>>,
    /// Flushes that find the tablet on its way to another server.
    flushes_missed: AtomicUsize,
    /// Tablets that answer the next drop of rows from between two servers.
    drops_missed: parking_lot::Mutex<BTreeSet<TabletId>>,
    /// Snapshots that were taken, and not dropped.
    snapshots: parking_lot::Mutex<Vec<SnapshotId>>,
    /// Those of which it does not know yet that the catalog names them.
    taking: parking_lot::Mutex<BTreeSet<SnapshotId>>,
    /// Snapshots are refused.
    takes_no_snapshots: AtomicBool,
    /// Writes are refused for want of space.
    is_full: AtomicBool,
    /// No tablet has a middle.
    is_small: AtomicBool,
    /// Divided at `m` when it is asked for.
    large: parking_lot::Mutex<Option<TabletId>>,
    /// Splits that ended, and whether the halves are served.
    ended: parking_lot::Mutex<Vec<(TabletId, bool)>>,
    /// Looked at whenever a schema is told.
    catalog: parking_lot::Mutex<Option<Arc<Catalog>>>,
    /// Families that were told of, and those that the catalog showed by then.
    told: parking_lot::Mutex<Vec<(usize, usize)>>,
    servers: AtomicUsize,
    /// Of the last search for tablets to split.
    policy: parking_lot::Mutex<SplitPolicy>,
}

#[async_trait]
impl TabletControl for Noting {
    async fn create_tablets(&self, _: Arc<TableSchema>, tablets: Vec<(TabletId, RowRange)>) -> ServiceResult<()> {
        self.made.lock().extend(tablets.iter().map(|(id, _)| *id));
        Ok(())
    }

    async fn drop_tablets(&self, tablets: Vec<TabletId>) {
        self.dropped.lock().extend(tablets);
    }

    async fn set_schema(&self, schema: Arc<TableSchema>) {
        let catalog = self.catalog.lock().clone();
        if let Some(shown) = catalog.and_then(|catalog| catalog.table(&schema.name).ok()) {
            let families = (schema.families.len(), shown.schema.families.len());
            self.told.lock().push(families);
        }
    }

    /// In halves, as if compactions had moved the family in the tablet since it was divided.
    async fn unsettled(&self, tablet: TabletId, _: u64) -> ServiceResult<BTreeSet<FamilyId>> {
        let is_half = !self.made.lock().contains(&tablet);
        Ok(is_half.then_some(FamilyId(1)).into_iter().collect())
    }

    async fn drop_rows(&self, tablet: TabletId, _: RowRange) -> ServiceResult<()> {
        match self.drops_missed.lock().remove(&tablet) {
            true => Err(ServiceError::new(ErrorKind::Unavailable, "it is not served here")),
            false => Ok(()),
        }
    }

    async fn flush(&self, tablet: TabletId) -> ServiceResult<()> {
        let missed = self.flushes_missed.load(Ordering::Relaxed);
        if missed > 0 {
            self.flushes_missed.store(missed - 1, Ordering::Relaxed);
            return Err(ServiceError::new(ErrorKind::Unavailable, "it is not served here"));
        }
        self.flushed.lock().push(tablet);
        Ok(())
    }

    async fn compact(&self, _: TabletId, _: bool) -> ServiceResult<()> {
        Ok(())
    }

    async fn compaction(&self, _: TabletId) -> ServiceResult<CompactionState> {
        Ok(CompactionState::None)
    }

    fn servers(&self) -> usize {
        self.servers.load(Ordering::Relaxed).max(1)
    }

    async fn split_candidates(&self, policy: &SplitPolicy) -> Vec<TabletId> {
        *self.policy.lock() = policy.clone();
        self.large.lock().iter().copied().collect()
    }

    async fn prepare_split(
        &self,
        _: TabletId,
        _: (TabletId, TabletId),
        at: Option<Bytes>,
    ) -> ServiceResult<Option<Bytes>> {
        let middle = (!self.is_small.load(Ordering::Relaxed)).then(|| Bytes::from_static(b"m"));
        Ok(at.or(middle))
    }

    async fn prepare_merge(&self, _: Vec<TabletId>, _: TabletId) -> ServiceResult<()> {
        Ok(())
    }

    async fn prepare_truncation(
        &self,
        _: Arc<TableSchema>,
        _: Vec<TabletId>,
        _: Vec<(TabletId, RowRange)>,
    ) -> ServiceResult<()> {
        Ok(())
    }

    async fn take_snapshot(&self, snapshot: SnapshotId, _: Vec<TabletId>, _: bool) -> ServiceResult<SnapshotFiles> {
        if self.takes_no_snapshots.load(Ordering::Relaxed) {
            return Err(ServiceError::new(ErrorKind::Corruption, "damaged"));
        }
        self.snapshots.lock().push(snapshot);
        self.taking.lock().insert(snapshot);
        Ok(SnapshotFiles { parts: 1, bytes: 0 })
    }

    fn note_snapshot(&self, snapshot: SnapshotId) {
        self.taking.lock().remove(&snapshot);
    }

    async fn is_short_of_space(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    async fn copy_snapshot(&self, _: (SnapshotId, u32), to: SnapshotId) -> ServiceResult<SnapshotFiles> {
        self.snapshots.lock().push(to);
        Ok(SnapshotFiles { parts: 1, bytes: 0 })
    }

    async fn drop_snapshot(&self, snapshot: SnapshotId, _: u32) {
        self.taking.lock().remove(&snapshot);
        self.snapshots.lock().retain(|taken| *taken != snapshot);
    }

    async fn clone_snapshot(
        &self,
        _: Arc<TableSchema>,
        _: (SnapshotId, u32),
        tablets: Vec<TabletId>,
    ) -> ServiceResult<Vec<(TabletId, RowRange)>> {
        self.made.lock().extend(&tablets);
        Ok(tablets.into_iter().map(|id| (id, RowRange::all())).collect())
    }

    async fn prepare_restore(
        &self,
        _: Arc<TableSchema>,
        _: (SnapshotId, u32),
        _: Vec<TabletId>,
        new: Vec<TabletId>,
    ) -> ServiceResult<Vec<(TabletId, RowRange)>> {
        Ok(new.into_iter().map(|id| (id, RowRange::all())).collect())
    }

    async fn finish_replacement(&self, tablet: TabletId, committed: bool) {
        self.ended.lock().push((tablet, committed));
    }
}

fn new_table(name: &TableName) -> NewTable {
    NewTable::new(name.clone())
}

fn new_family() -> NewFamily {
    NewFamily {
        name: "f".to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        front_end_data: Vec::new(),
    }
}

async fn load(storage: &Arc<FaultyStorage>, env: &Env) -> Catalog {
    let coord = EmbeddedCoord::open(storage.clone(), env.clone()).await;
    Catalog::load(coord.unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_change_survives_its_caller() {
    let env = TokioRuntime::current();
    let storage = FaultyStorage::new(env.clone());
    let catalog = Arc::new(load(&storage, &env).await);
    let master = Master::new(env.clone(), catalog.clone(), Arc::new(Noting::default()));
    let name = TableName::new("n", "t");
    master.create_table(new_table(&name)).await.unwrap();

    let pause = Duration::from_millis(20);
    storage.set_plan(FaultPlan {
        latency_min: pause,
        latency_max: pause,
        ..FaultPlan::default()
    });
    // The caller goes away while the storage works.
    assert!(env.timeout(pause / 2, master.delete_table(&name)).await.is_err());
    env.sleep(pause * 20).await;
    let in_memory = catalog.view().table(&name).is_some();
    storage.kill();
    let storage = storage.reopen();
    storage.set_plan(FaultPlan::default());
    let on_storage = load(&storage, &env).await.view().table(&name).is_some();
    assert_eq!((in_memory, on_storage), (false, false));
}

/// The caller has perhaps made the change again, and others after it.
#[tokio::test]
async fn a_change_that_waits_is_called_off_with_its_caller_on_another_server() {
    let env = TokioRuntime::current();
    let catalog = Arc::new(load(&FaultyStorage::new(env.clone()), &env).await);
    let master = Master::new(env, catalog.clone(), Arc::new(Noting::default()));
    let name = TableName::new("n", "t");
    master.create_table(new_table(&name)).await.unwrap();
    for is_gone in [true, false] {
        let turn = master.changing.clone().lock_owned().await;
        let (caller, cancellation) = Cancellation::pair();
        let mut deletion = Box::pin(cancellation.scope(master.delete_table(&name)));
        assert!(futures::poll!(&mut deletion).is_pending());
        let caller = Some(caller).filter(|_| !is_gone);
        drop(turn);
        let kind = deletion.await.map_err(|error| error.kind);
        assert_eq!(kind, if is_gone { Err(ErrorKind::Cancelled) } else { Ok(()) });
        assert_eq!(catalog.view().table(&name).is_some(), is_gone);
        drop(caller);
    }
}

/// A coordinator of which transactions fail, carried out or not.
struct Unsure {
    coord: Arc<dyn Coord>,
    fails: AtomicBool,
    /// It certainly carries out none that puts a record.
    is_full: AtomicBool,
    /// It cannot be reached by transactions that remove, or put, keys that begin so.
    unreachable: parking_lot::Mutex<Option<(&'static str, bool)>>,
    carries_out: bool,
}

#[async_trait]
impl stele_coord::Layer for Unsure {
    fn below(&self) -> &dyn Coord {
        &*self.coord
    }

    async fn txn(&self, txn: Txn) -> stele_coord::Result<TxnOutcome> {
        // Identifiers, and records of tablets: the writes that precede the table's own record.
        let comes_before = |write: &Write| match write {
            Write::Put { key, .. } => {
                key.starts_with("epoch/") || key.starts_with("catalog/tablet/") || key == "catalog/changed"
            }
            _ => false,
        };
        let comes_before = txn.writes.iter().all(comes_before);
        let grows = txn.writes.iter().any(|write| matches!(write, Write::Put { .. }));
        if self.is_full.load(Ordering::Relaxed) && !comes_before && grows {
            let message = "the last generation of this owner".to_owned();
            return Err(CoordError::Full { message });
        }
        if let Some((prefix, removes)) = *self.unreachable.lock() {
            let is_met =
                |write: &Write| write.key().starts_with(prefix) && matches!(write, Write::Delete { .. }) == removes;
            if txn.writes.iter().any(is_met) {
                let message = "planted".to_owned();
                return Err(CoordError::Unavailable { message });
            }
        }
        if !self.fails.load(Ordering::Relaxed) || comes_before {
            return self.coord.txn(txn).await;
        }
        if self.carries_out {
            let _ = self.coord.txn(txn).await?;
        }
        Err(CoordError::Storage(StorageError::Io {
            path: "coord".to_owned(),
            operation: "sync",
            message: "planted".to_owned(),
        }))
    }
}

/// A master over a coordinator that can be made unsure, and a server that notes.
async fn unsure(carries_out: bool) -> (Arc<Unsure>, Arc<Catalog>, Arc<Noting>, Arc<Master>) {
    let env = TokioRuntime::current();
    let coord = Arc::new(Unsure {
        coord: EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await.unwrap(),
        fails: AtomicBool::new(false),
        is_full: AtomicBool::new(false),
        unreachable: parking_lot::Mutex::default(),
        carries_out,
    });
    let catalog = Arc::new(Catalog::load(coord.clone()).await.unwrap());
    let tablets = Arc::new(Noting::default());
    let master = Master::new(env, catalog.clone(), tablets.clone());
    (coord, catalog, tablets, master)
}

/// The device is full, say. A change that would wait for the tablet's writers is refused, and all other changes
/// proceed. Dropping the table decides the split, too.
#[tokio::test]
async fn a_split_of_unknown_outcome_keeps_no_change_waiting() {
    let limit = Duration::from_secs(10);
    for is_dropped in [false, true] {
        let (coord, catalog, tablets, master) = unsure(false).await;
        let (name, other) = (TableName::new("n", "t"), TableName::new("n", "u"));
        master.create_table(new_table(&name)).await.unwrap();
        master.create_table(new_table(&other)).await.unwrap();
        let large = tablets.made.lock()[0];
        *tablets.large.lock() = Some(large);

        coord.fails.store(true, Ordering::Relaxed);
        for _ in 0..2 {
            let split = master.env.timeout(limit, master.split_due()).await;
            assert!(matches!(split, Ok(Err(_))), "asked for ever: {split:?}");
        }
        assert!(master.drop_row_range(&name, RowRange::all()).await.is_err());
        master.drop_row_range(&other, RowRange::all()).await.unwrap();
        assert!(tablets.ended.lock().is_empty(), "it is not known yet");

        coord.fails.store(false, Ordering::Relaxed);
        if is_dropped {
            master.delete_table(&name).await.unwrap();
            master.split_due().await.unwrap_err();
        } else {
            assert_eq!(master.split_due().await.unwrap(), 1);
        }
        assert_eq!(*tablets.ended.lock(), [(large, !is_dropped)]);
        let known = catalog.view().table(&name).map(|entry| entry.tablets().len());
        assert_eq!(known, (!is_dropped).then_some(2));
        assert_eq!(master.split_due().await.unwrap(), 0);
        let records = coord.list("catalog/tablet/").await.unwrap().len();
        assert_eq!(records, if is_dropped { 1 } else { 3 });
    }
}

/// A table of one tablet is on one server. Of four servers each would have a part of it soon.
#[tokio::test]
async fn tables_with_few_tablets_are_divided_sooner_among_several_servers() {
    let (_, _, tablets, master) = unsure(false).await;
    master.create_table(new_table(&TableName::new("n", "t"))).await.unwrap();
    let large = tablets.made.lock()[0];
    *tablets.large.lock() = Some(large);
    assert_eq!(master.split_due().await.unwrap(), 1);
    assert_eq!(
        *tablets.policy.lock(),
        SplitPolicy {
            servers: 1,
            ..SplitPolicy::default()
        }
    );
    *tablets.large.lock() = None;
    tablets.servers.store(4, Ordering::Relaxed);
    master.split_due().await.unwrap();
    let policy = tablets.policy.lock().clone();
    assert_eq!(policy.servers, 4);
    assert_eq!(policy.divisors.values().copied().collect::<Vec<_>>(), [4]);
}

/// Moved back while a half still has its oldest cells where they were, a family would have them taken for its newest.
#[tokio::test]
async fn a_family_does_not_move_back_beside_a_split_of_unknown_outcome() {
    let (coord, _, tablets, master) = unsure(false).await;
    let name = TableName::new("n", "t");
    let new = NewTable {
        families: vec![new_family()],
        ..new_table(&name)
    };
    master.create_table(new).await.unwrap();
    let cold = GroupChange::Create {
        name: "cold".to_owned(),
        options: GroupUpdate::default(),
    };
    let to = |group: &str| GroupChange::MoveFamily {
        family: "f".to_owned(),
        group: group.to_owned(),
    };
    master.modify_groups(&name, vec![cold, to("cold")]).await.unwrap();
    let large = tablets.made.lock()[0];
    *tablets.large.lock() = Some(large);

    coord.fails.store(true, Ordering::Relaxed);
    master.split_due().await.unwrap_err();
    let moved = master.modify_groups(&name, vec![to("default")]).await;
    assert!(moved.is_err() && tablets.ended.lock().is_empty(), "it is not known yet");

    coord.fails.store(false, Ordering::Relaxed);
    let moved = master.modify_groups(&name, vec![to("default")]).await;
    let refused = moved.map(drop).expect_err("the halves are asked, and not the tablet");
    assert_eq!(refused.kind, ErrorKind::FailedPrecondition, "{refused:?}");
    assert_eq!(*tablets.ended.lock(), [(large, true)]);
}

/// A flush of a tablet leaves out cells of a family that the tablet does not know.
#[tokio::test]
async fn tablets_know_a_family_before_anybody_can_write_to_it() {
    let (_, catalog, tablets, master) = unsure(false).await;
    let name = TableName::new("n", "t");
    master.create_table(new_table(&name)).await.unwrap();
    *tablets.catalog.lock() = Some(catalog.clone());
    let create = FamilyChange::Create(new_family());
    let made = master.modify_families(&name, vec![create]).await.unwrap();
    assert_eq!(*tablets.told.lock(), [(1, 0)], "told, and shown by then");
    let shown = catalog.table(&name).unwrap();
    assert_eq!((made.families.len(), shown.schema.families.len()), (1, 1));
}

/// The owner has used up its numbers, say: from then on nothing is written, and at the next start the catalog may name the halves.
#[tokio::test]
async fn a_refusal_decides_no_split_that_may_have_happened() {
    for is_unknown in [true, false] {
        let (coord, _, tablets, master) = unsure(false).await;
        let name = TableName::new("n", "t");
        master.create_table(new_table(&name)).await.unwrap();
        let large = tablets.made.lock()[0];
        *tablets.large.lock() = Some(large);

        if is_unknown {
            coord.fails.store(true, Ordering::Relaxed);
            master.split_due().await.unwrap_err();
            coord.fails.store(false, Ordering::Relaxed);
        }
        coord.is_full.store(true, Ordering::Relaxed);
        master.split_due().await.unwrap_err();
        if !is_unknown {
            assert_eq!(*tablets.ended.lock(), [(large, false)], "its only try was refused");
            continue;
        }
        assert!(master.drop_row_range(&name, RowRange::all()).await.is_err());
        assert!(tablets.ended.lock().is_empty(), "its first try may have happened");
        coord.is_full.store(false, Ordering::Relaxed);
        assert_eq!(master.split_due().await.unwrap(), 1);
        assert_eq!(*tablets.ended.lock(), [(large, true)]);
    }
}

/// Until that is known no other table is made; then its tablets go, or it is there. No start is needed for either.
#[tokio::test]
async fn a_table_of_unknown_outcome_is_there_or_leaves_nothing() {
    for carries_out in [false, true] {
        let (coord, catalog, tablets, master) = unsure(carries_out).await;
        coord.fails.store(true, Ordering::Relaxed);
        let (name, other) = (TableName::new("n", "t"), TableName::new("n", "u"));
        let new = NewTable {
            initial_splits: vec![Bytes::from_static(b"m")],
            ..new_table(&name)
        };
        master.create_table(new).await.unwrap_err();
        master.create_table(new_table(&other)).await.unwrap_err();
        let made = tablets.made.lock().clone();
        assert_eq!((made.len(), tablets.dropped.lock().len()), (2, 0), "of the first only");

        coord.fails.store(false, Ordering::Relaxed);
        if carries_out {
            master.settle().await;
        } else {
            master.create_table(new_table(&other)).await.unwrap();
        }
        let dropped = tablets.dropped.lock().clone();
        assert_eq!(dropped, if carries_out { vec![] } else { made.clone() });
        let records = coord.list("catalog/tablet/").await.unwrap().len();
        assert_eq!(records, if carries_out { 2 } else { 1 });
        let known = catalog.view().table(&name).map(|entry| entry.tablets().len());
        assert_eq!(known, carries_out.then_some(2));
        if carries_out {
            master.delete_table(&name).await.unwrap();
            assert_eq!(*tablets.dropped.lock(), made);
        } else {
            master.create_table(new_table(&name)).await.unwrap();
        }
    }
}

/// Of two changes of one record the second, made without the first, is refused; one that is repeated is not.
#[tokio::test]
async fn a_record_of_a_namespace_is_changed_by_one_that_has_read_it() {
    let (_, catalog, _, master) = unsure(false).await;
    master.create_namespace("n", b"0".to_vec()).await.unwrap();
    let read = Bytes::from_static(b"0");
    let update = |to: &[u8]| master.update_namespace("n", read.clone(), to.to_vec());
    update(b"1").await.unwrap();
    update(b"1").await.unwrap();
    assert_eq!(update(b"2").await.unwrap_err().kind, ErrorKind::Aborted);
    assert_eq!(catalog.view().namespaces["n"].0, b"1"[..]);
}

#[tokio::test]
async fn no_new_namespace_has_the_name_of_the_whole_cluster() {
    let (_, catalog, _, master) = unsure(false).await;
    let name = TableName::new("cluster", "t");
    let refused = [
        master.create_namespace("cluster", Vec::new()).await.err(),
        master.create_table(new_table(&name)).await.err(),
    ];
    for error in refused {
        let error = error.unwrap();
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
        assert!(error.message.contains("the whole cluster"), "{}", error.message);
    }
    // An earlier version has made it.
    catalog.create_namespace("cluster", Bytes::new()).await.unwrap();
    master.create_table(new_table(&name)).await.unwrap();
}

/// It would be there again, in a namespace of which there is no record.
#[tokio::test]
async fn a_table_of_unknown_outcome_goes_with_its_namespace() {
    let (coord, catalog, tablets, master) = unsure(true).await;
    master.create_namespace("n", Vec::new()).await.unwrap();
    coord.fails.store(true, Ordering::Relaxed);
    let name = TableName::new("n", "t");
    master.create_table(new_table(&name)).await.unwrap_err();
    coord.fails.store(false, Ordering::Relaxed);
    master.delete_namespace("n", false).await.unwrap();
    master.settle().await;
    let view = catalog.view();
    assert!(view.table(&name).is_none() && !view.namespaces.contains_key("n"));
    let made = tablets.made.lock().clone();
    assert_eq!(*tablets.dropped.lock(), made);
}

#[tokio::test]
async fn a_namespace_with_tables_goes_only_if_they_may_go() {
    let (_, catalog, _, master) = unsure(false).await;
    let name = TableName::new("n", "t");
    master.create_table(new_table(&name)).await.unwrap();
    let refused = master.delete_namespace("n", true).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::FailedPrecondition, "{refused:?}");
    assert!(catalog.view().table(&name).is_some());
    master.delete_table(&name).await.unwrap();
    master.delete_namespace("n", true).await.unwrap();
    master.create_table(new_table(&name)).await.unwrap();
    master.delete_namespace("n", false).await.unwrap();
    assert!(!catalog.view().namespaces.contains_key("n"));
}

/// The tablets of a table, and where each but the first begins.
fn tablets_of(catalog: &Catalog, name: &TableName) -> (Vec<TabletId>, Vec<Bytes>) {
    let entry = catalog.table(name).unwrap();
    let starts = entry.tablets().iter().skip(1).map(|tablet| tablet.range.start.clone());
    (
        entry.tablets().iter().map(|tablet| tablet.id).collect(),
        starts.collect(),
    )
}

#[tokio::test]
async fn a_client_splits_merges_and_truncates() {
    let (_, catalog, tablets, master) = unsure(false).await;
    let name = TableName::new("n", "t");
    master.create_table(new_table(&name)).await.unwrap();
    let (ids, _) = tablets_of(&catalog, &name);
    let kind = |outcome: ServiceResult<(TabletId, TabletId)>| outcome.map_err(|error| error.kind);
    let row = |row: &'static str| Some(Bytes::from_static(row.as_bytes()));

    let (left, right) = master.split(&name, ids[0], row("d")).await.unwrap();
    for (tablet, at) in [(left, "d"), (left, "x"), (right, "d"), (right, "a"), (left, "")] {
        let refused = kind(master.split(&name, tablet, row(at)).await);
        assert_eq!(refused, Err(ErrorKind::InvalidArgument), "{tablet} at {at:?}");
    }
    assert_eq!(kind(master.split(&name, ids[0], None).await), Err(ErrorKind::NotFound));
    tablets.is_small.store(true, Ordering::Relaxed);
    let refused = kind(master.split(&name, right, None).await);
    assert_eq!(refused, Err(ErrorKind::FailedPrecondition));
    tablets.is_small.store(false, Ordering::Relaxed);
    let (middle, last) = master.split(&name, right, None).await.unwrap();
    assert_eq!(
        tablets_of(&catalog, &name),
        (vec![left, middle, last], vec!["d".into(), "m".into()])
    );

    let change = |on| SwitchesChange {
        split: Some(on),
        merge: Some(on),
        ..SwitchesChange::default()
    };
    assert!(master.set_switches(change(false)).await.unwrap().split, "they were on");
    let refused = kind(master.split(&name, last, None).await);
    assert_eq!(refused, Err(ErrorKind::FailedPrecondition), "by the switch");
    let refused = master.merge(&name, vec![middle, last]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::FailedPrecondition, "by the switch");
    *tablets.large.lock() = Some(last);
    assert_eq!(master.split_due().await.unwrap(), 0, "large ones stay, too");
    *tablets.large.lock() = None;
    assert!(!master.set_switches(change(true)).await.unwrap().merge);

    master.truncate(&name, true).await.unwrap();
    let (kept, starts) = tablets_of(&catalog, &name);
    assert_eq!((kept.len(), starts), (3, vec!["d".into(), "m".into()]));
    assert!(!kept.contains(&left), "others replace them");
    let merged = master.merge(&name, vec![kept[2], kept[1]]).await.unwrap();
    assert_eq!(tablets_of(&catalog, &name), (vec![kept[0], merged], vec!["d".into()]));
    master.truncate(&name, false).await.unwrap();
    assert_eq!(tablets_of(&catalog, &name).1, Vec::<Bytes>::new());
    let firsts: Vec<TabletId> = tablets.ended.lock().iter().map(|(first, _)| *first).collect();
    assert_eq!(firsts, [ids[0], right, left, kept[1], kept[0]]);
}

/// Nor does any other replacement happen in the meantime.
#[tokio::test]
async fn a_truncation_of_unknown_outcome_is_asked_again() {
    let (coord, catalog, tablets, master) = unsure(false).await;
    let name = TableName::new("n", "t");
    master.create_table(new_table(&name)).await.unwrap();
    let (old, _) = tablets_of(&catalog, &name);
    coord.fails.store(true, Ordering::Relaxed);
    master.truncate(&name, false).await.unwrap_err();
    assert!(master.merge(&name, old.clone()).await.is_err());
    assert!(tablets.ended.lock().is_empty(), "it is not known yet");
    coord.fails.store(false, Ordering::Relaxed);
    assert_eq!(master.split_due().await.unwrap(), 1);
    assert_eq!(*tablets.ended.lock(), [(old[0], true)]);
    assert_ne!(tablets_of(&catalog, &name).0, old);
    assert_eq!(coord.list("catalog/tablet/").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_flush_is_of_all_tablets_or_of_one_that_is_there() {
    let (_, _, tablets, master) = unsure(false).await;
    let name = TableName::new("n", "t");
    let new = NewTable {
        initial_splits: vec![Bytes::from_static(b"m")],
        ..new_table(&name)
    };
    master.create_table(new).await.unwrap();
    let made = tablets.made.lock().clone();
    master.flush(&name, None).await.unwrap();
    master.flush(&name, Some(made[1])).await.unwrap();
    assert_eq!(*tablets.flushed.lock(), [made[0], made[1], made[1]]);
    // A tablet that moves is flushed by its next server.
    tablets.flushes_missed.store(2, Ordering::Relaxed);
    master.flush(&name, Some(made[0])).await.unwrap();
    assert_eq!(tablets.flushed.lock().last(), Some(&made[0]));
    let stranger = Some(TabletId(7));
    let refused = [
        master.flush(&name, stranger).await.unwrap_err().kind,
        master.compact(&name, stranger, true).await.unwrap_err().kind,
        master.flush(&TableName::new("n", "u"), None).await.unwrap_err().kind,
    ];
    assert_eq!(refused, [ErrorKind::NotFound; 3]);
    let states = master.compactions(&name).await.unwrap();
    assert_eq!(
        states,
        [(made[0], CompactionState::None), (made[1], CompactionState::None)]
    );
}

#[tokio::test]
async fn an_update_changes_the_state_and_the_front_ends_data_alone() {
    let (_, _, _, master) = unsure(false).await;
    let name = TableName::new("n", "t");
    let family = NewFamily {
        value_type: ValueType::Aggregate(stele_types::AggregateKind::Sum),
        deletes: Default::default(),
        ..new_family()
    };
    let new = NewTable {
        families: vec![family],
        ..new_table(&name)
    };
    assert!(master.create_table(new).await.unwrap().enabled);
    let disable = TableUpdate {
        enabled: Some(false),
        ..TableUpdate::default()
    };
    assert!(!master.update_table(&name, disable).await.unwrap().enabled);
    let change = FamilyChange::Update {
        name: "f".to_owned(),
        gc_rule: None,
        value_type: None,
        deletes: None,
        front_end_data: Some(b"data".to_vec()),
    };
    let changed = master.modify_families(&name, vec![change]).await.unwrap();
    let (_, family) = changed.family_named("f").unwrap();
    assert_eq!(family.front_end_data, b"data");
    assert_eq!(family.value_type, ValueType::Aggregate(stele_types::AggregateKind::Sum));
    assert!(!changed.enabled);
    master.delete_table(&name).await.unwrap();
}

#[test]
fn splits_become_ranges_that_cover_everything() {
    let key = |k: &'static str| Bytes::from_static(k.as_bytes());
    let ranges = initial_ranges(vec![key("m"), key(""), key("c"), key("m")]).unwrap();
    let expected = [("", Some("c")), ("c", Some("m")), ("m", None)];
    let expected: Vec<RowRange> = expected
        .into_iter()
        .map(|(s, e)| RowRange {
            start: key(s),
            end: e.map(key),
        })
        .collect();
    assert_eq!(ranges, expected);
    assert_eq!(initial_ranges(vec![]).unwrap(), vec![RowRange::all()]);
}

/// The tablets take no writes yet, and the split may still be made.
#[tokio::test]
async fn an_undecided_split_is_not_repeated() {
    let (coord, catalog, tablets, master) = unsure(false).await;
    let name = TableName::new("n", "t");
    master.create_table(new_table(&name)).await.unwrap();
    let tablet = tablets.made.lock()[0];
    coord.fails.store(true, Ordering::Relaxed);
    master.create_namespace("m", Vec::new()).await.unwrap_err();
    coord.fails.store(false, Ordering::Relaxed);
    *coord.unreachable.lock() = Some(("catalog/settled", false));
    let at = Some(Bytes::from_static(b"m"));
    let undecided = master.split(&name, tablet, at).await.unwrap_err();
    assert_eq!(undecided.kind, ErrorKind::Aborted, "{undecided:?}");
    *coord.unreachable.lock() = None;
    assert_eq!(master.split_due().await.unwrap(), 1);
    assert_eq!(catalog.table(&name).unwrap().tablets().len(), 2);
}
