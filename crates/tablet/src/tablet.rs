//! A tablet: the rows of one range of one table.
//!
//! Three things happen to a tablet, and each has its own order:
//!
//! * **Writes.** [`Tablet::sequence`] fixes a batch's place in the commit order while the caller queues it for the log.
//!   [`Tablet::apply`] is called in that order when the log has the batch, and makes it visible.
//! * **Reads** hold an immutable state and a sequence number (`scan`).
//! * **Maintenance**: flushes, compactions, splits. One flush runs at a time, and only compactions without a run in common run
//!   concurrently. Each commits a manifest and then publishes the state it describes, under one lock (`commit`).
//!
//! Invariants:
//! * The visible sequence number only grows. All batches applied at or below it are in the state.
//! * Batches are applied in ascending order; only recovery applies them in another ([`Tablet::replay`]).
//! * A manifest is durable before the state it describes is published, and before any file it no longer names is freed.
//! * `flushed_through` in the manifest never exceeds the content of its files.

mod commit;
mod reserved;

use crate::batch::Batch;
use crate::claims::Claims;
use crate::detached::{DetachedScans, Pinned};
use crate::error::{Result, TabletError};
use crate::files::FileRegistry;
use crate::manifest::{Manifest, ManifestLog};
use crate::metrics::TabletMetrics;
use crate::schema_mark::SchemaMark;
use crate::state::State;
use crate::summary::Debt;
use crate::tokens::{TokenMemory, TokenRecord, TokenTable};
use arc_swap::ArcSwap;
use commit::Committer;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use reserved::Ahead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use stele_env::{Env, PlantedBug};
use stele_memtable::{MemoryAccount, Memtable};
use stele_storage::Storage;
use stele_types::key;
use stele_types::{Durability, Epoch, FamilyId, RowRange, SeqNo, TableSchema, TabletId};

/// The resources that all tablets of a server share.
#[derive(Clone)]
pub struct TabletContext {
    /// Clock, chance, tasks.
    pub env: Env,
    /// The storage backend.
    pub storage: Arc<dyn Storage>,
    /// The open sstables.
    pub files: Arc<FileRegistry>,
    /// Memory of all memtables.
    pub memory: MemoryAccount,
    /// Instruments.
    pub metrics: TabletMetrics,
    /// Memory of recent request tokens.
    pub tokens: TokenMemory,
}

/// How much of a tablet waits for maintenance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteLoad {
    /// Bytes in active memtables.
    pub active_bytes: u64,
    /// How far merges are behind in the locality group where they are furthest, as of the last flush or compaction:
    /// [`crate::picker::compaction_pressure`].
    pub compaction_pressure: u64,
}

/// No compaction of the tablet runs.
pub struct Stopped<'a> {
    _alone: tokio::sync::RwLockWriteGuard<'a, ()>,
}

/// One tablet. Shared by its readers, its writers and maintenance.
pub struct Tablet {
    id: TabletId,
    range: RowRange,
    epoch: Epoch,
    pub(crate) context: TabletContext,
    schema: RwLock<Arc<TableSchema>>,
    /// Where the schema is in memory, to recognize it by without the lock. Changed under it.
    schema_address: AtomicUsize,
    /// Its mark, changed after the address: a reader of a mark reads under that schema or a newer one. Changed under the
    /// lock of the state.
    schema_mark: AtomicU64,
    /// Writers of batches share it, and changes have it alone ([`Tablet::publish`]).
    state: RwLock<Arc<State>>,
    /// The same for readers, which wait for neither and do not count themselves in a counter that all cores share.
    current: ArcSwap<State>,
    /// Everything applied up to this is visible.
    visible: AtomicU64,
    sequencer: Mutex<SeqNo>,
    ahead: Ahead,
    /// Held while runs from outside are written and added.
    pub(crate) ingesting: tokio::sync::Mutex<()>,
    /// Something was replayed since the last flush.
    replayed: AtomicBool,
    closed: AtomicBool,
    /// Held while a flush writes.
    pub(crate) flushing: tokio::sync::Mutex<()>,
    /// Compactions share it while they write; a job that replaces files of whole groups has it alone.
    pub(crate) compacting: tokio::sync::RwLock<()>,
    /// The runs that compactions are at.
    pub(crate) claims: Claims,
    /// Held while a manifest is committed and its state published.
    committer: tokio::sync::Mutex<Committer>,
    /// `flushed_through` of the committed manifest.
    flushed: AtomicU64,
    /// The compaction debt in bytes; updated by flushes and compactions.
    debt: AtomicU64,
    /// The share of bytes that compactions are expected to free, in thousandths; likewise.
    garbage_share: AtomicU64,
    /// How far merges are behind; likewise.
    compaction_pressure: AtomicU64,
    /// Scans that wait for their readers.
    pub(crate) detached: DetachedScans,
    /// Recent request tokens.
    tokens: TokenTable,
}

impl Tablet {
    /// Makes a tablet that does not exist yet, empty or over files a manifest names.
    pub async fn create(context: TabletContext, schema: Arc<TableSchema>, manifest: Manifest) -> Result<Arc<Tablet>> {
        let log = ManifestLog::create(context.storage.clone(), &manifest).await?;
        let first = SeqNo(manifest.flushed_through)
            .max(SeqNo::new(Epoch(manifest.epoch), 0))
            .plus(1);
        Self::assemble(context, schema, manifest, log, first).await
    }

    /// Opens a tablet for a new owner: claims it by committing a manifest under a new epoch.
    pub async fn open(
        context: TabletContext,
        schema: Arc<TableSchema>,
        id: TabletId,
        epoch: Epoch,
    ) -> Result<Arc<Tablet>> {
        let (log, manifest) = ManifestLog::claim(context.storage.clone(), id, epoch, context.env.wall_micros()).await?;
        Self::assemble(context, schema, manifest, log, SeqNo::new(epoch, 1)).await
    }

    /// The same for an owner that could not open it at first ([`ManifestLog::claim_again`]).
    pub async fn open_again(
        context: TabletContext,
        schema: Arc<TableSchema>,
        id: TabletId,
        epoch: Epoch,
    ) -> Result<Arc<Tablet>> {
        let now = context.env.wall_micros();
        let (log, manifest) = ManifestLog::claim_again(context.storage.clone(), id, epoch, now).await?;
        Self::assemble(context, schema, manifest, log, SeqNo::new(epoch, 1)).await
    }

    /// The same with the versions of its manifest that a listing showed ([`ManifestLog::claim_listed`]).
    pub async fn open_listed(
        context: TabletContext,
        schema: Arc<TableSchema>,
        id: TabletId,
        epoch: Epoch,
        listed: Vec<u64>,
    ) -> Result<Arc<Tablet>> {
        let now = context.env.wall_micros();
        let (log, manifest) = ManifestLog::claim_listed(context.storage.clone(), id, epoch, now, listed).await?;
        Self::assemble(context, schema, manifest, log, SeqNo::new(epoch, 1)).await
    }

    /// Opens a tablet for a new owner to whom [`Storage::inherit`] gave the whole storage: nothing is written.
    ///
    /// [`Storage::inherit`]: stele_storage::Storage::inherit
    pub async fn inherit(
        context: TabletContext,
        schema: Arc<TableSchema>,
        id: TabletId,
        epoch: Epoch,
        listed: Vec<u64>,
    ) -> Result<Arc<Tablet>> {
        let (log, manifest) = ManifestLog::inherit(context.storage.clone(), id, epoch, listed).await?;
        Self::assemble(context, schema, manifest, log, SeqNo::new(epoch, 1)).await
    }

    async fn assemble(
        context: TabletContext,
        schema: Arc<TableSchema>,
        manifest: Manifest,
        log: ManifestLog,
        first: SeqNo,
    ) -> Result<Arc<Tablet>> {
        let tokens = TokenTable::load(manifest.tablet(), manifest.request_tokens.as_ref(), &context.tokens)?;
        let state = State::load(&manifest, schema.clone(), &context.files, &context.memory).await?;
        let state = Arc::new(state);
        context.metrics.open_tablets.inc();
        let tablet = Arc::new(Tablet {
            id: manifest.tablet(),
            range: manifest.range(),
            epoch: Epoch(manifest.epoch),
            schema_address: AtomicUsize::new(Arc::as_ptr(&schema).addr()),
            schema_mark: AtomicU64::new(SchemaMark::of(&schema).word()),
            schema: RwLock::new(schema),
            current: ArcSwap::new(state.clone()),
            state: RwLock::new(state),
            visible: AtomicU64::new(manifest.flushed_through),
            sequencer: Mutex::new(first),
            ahead: Ahead::default(),
            ingesting: tokio::sync::Mutex::new(()),
            replayed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            flushing: tokio::sync::Mutex::new(()),
            compacting: tokio::sync::RwLock::new(()),
            claims: Claims::default(),
            flushed: AtomicU64::new(manifest.flushed_through),
            committer: tokio::sync::Mutex::new(Committer::new(log, manifest)),
            garbage_share: AtomicU64::new(0),
            debt: AtomicU64::new(0),
            compaction_pressure: AtomicU64::new(0),
            detached: DetachedScans::default(),
            tokens,
            context,
        });
        tablet.note_debt();
        Ok(tablet)
    }

    /// Which tablet.
    pub fn id(&self) -> TabletId {
        self.id
    }

    /// Its rows; never change.
    pub fn range(&self) -> &RowRange {
        &self.range
    }

    /// The current schema.
    pub fn schema(&self) -> Arc<TableSchema> {
        self.schema.read().clone()
    }

    /// Calls `look` with the current schema without taking a reference to it. `look` is short, and calls nothing of the
    /// tablet.
    pub fn with_schema<R>(&self, look: impl FnOnce(&Arc<TableSchema>) -> R) -> R {
        look(&self.schema.read())
    }

    /// The mark of the current schema. A read that begins afterwards is under that schema or a newer one. The mark also
    /// changes where a job drops cells that a read under this schema may have found.
    pub fn schema_mark(&self) -> SchemaMark {
        SchemaMark::from_word(self.schema_mark.load(Ordering::Acquire))
    }

    /// Whether this is the current schema. The caller holds it, so no other can have its address.
    pub(crate) fn has_schema(&self, schema: &Arc<TableSchema>) -> bool {
        self.schema_address.load(Ordering::Acquire) == Arc::as_ptr(schema).addr()
    }

    /// Durability of the table's writes where the request does not say; `None` leaves it to the server.
    pub fn durability(&self) -> Option<Durability> {
        self.schema.read().durability
    }

    /// The load that admission checks with every write. Takes no reference to the state.
    pub fn write_load(&self) -> WriteLoad {
        let state = self.current.load();
        WriteLoad {
            active_bytes: state.active_bytes(),
            compaction_pressure: self.compaction_pressure.load(Ordering::Relaxed),
        }
    }

    /// Replaces the schema. Batches applied before have gone to the groups of the old one, and batches applied from now
    /// on go to those of the new one. When a family has moved, the memtables that may hold it are set aside. After that
    /// only its own group's memtable has entries of it. Returns whether a memtable waits for a flush because of that. A schema
    /// that is older than the present one, told late, changes nothing.
    pub fn set_schema(&self, schema: Arc<TableSchema>) -> bool {
        // As `apply` does: the state, then the schema.
        let mut state = self.state.write();
        let mut current = self.schema.write();
        if schema.version < current.version {
            return false;
        }
        let mut next = State::clone(&state);
        let moved =
            |id: &FamilyId| schema.families.contains_key(id) && schema.group_of(*id) != state.schema.group_of(*id);
        let frozen = state.schema.families.keys().any(moved) && next.freeze(&self.context.memory);
        next.adopt(schema.clone(), &self.context.memory);
        next.refresh();
        next.generation += 1;
        let former = self.publish(&mut state, next);
        self.schema_address
            .store(Arc::as_ptr(&schema).addr(), Ordering::Release);
        // The same schema once more must not bring back a mark under which older results were kept.
        if !self.schema_mark().is_of(&schema) {
            self.schema_mark
                .store(SchemaMark::of(&schema).word(), Ordering::Release);
        }
        *current = schema;
        drop(current);
        drop(state);
        drop(former);
        self.unpark();
        frozen
    }

    /// The environment.
    pub fn env(&self) -> &Env {
        &self.context.env
    }

    /// Wall-clock microseconds.
    pub fn wall_micros(&self) -> i64 {
        self.context.env.wall_micros()
    }

    /// Ownership generation.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Everything applied up to this is visible.
    pub fn visible(&self) -> SeqNo {
        SeqNo(self.visible.load(Ordering::Acquire))
    }

    /// Every mutation up to this is in files.
    pub fn flushed_through(&self) -> SeqNo {
        SeqNo(self.flushed.load(Ordering::Acquire))
    }

    /// The current state.
    pub fn state(&self) -> Arc<State> {
        self.current.load_full()
    }

    /// Calls `look` with the current state without taking a reference to it. `look` is short.
    pub(crate) fn with_state<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.current.load())
    }

    /// Grows with every change of the state.
    pub fn generation(&self) -> u64 {
        self.current.load().generation
    }

    /// Refuses everything from now on. Batches in the log's queue are still applied.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.context.metrics.open_tablets.dec();
            self.unpark();
        }
    }

    /// Fails when the tablet has been closed.
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            Err(TabletError::Closed { tablet: self.id })
        } else {
            Ok(())
        }
    }

    /// Gives a batch of `count` mutations its place in the commit order. `queue(first)` runs under the tablet's sequencer
    /// lock, so that batches reach the log in the order of their numbers; it must not block.
    pub fn sequence<R>(&self, count: u64, queue: impl FnOnce(SeqNo) -> R) -> Result<R> {
        let mut next = self.sequencer.lock();
        self.check_open()?;
        if next.counter() + count > SeqNo::COUNTER_MAX {
            // 10^12 mutations under one owner: the next owner has a new epoch.
            return Err(TabletError::Closed { tablet: self.id });
        }
        let first = *next;
        let reused = self.context.env.planted(PlantedBug::ReuseSequence) && self.context.env.random_below(50) == 0;
        if !reused {
            *next = first.plus(count);
        }
        assert_eq!(next.epoch(), first.epoch(), "all numbers of an owner are of its epoch");
        Ok(queue(first))
    }

    /// Applies a batch the log holds, and makes it visible. Called in the order of sequence numbers.
    pub fn apply(&self, batch: &Batch, first: SeqNo) {
        let before = self.insert_batch(batch, first);
        let reuses = self.context.env.planted(PlantedBug::ReuseSequence);
        assert!(
            batch.is_empty() || before < first.0 || reuses,
            "batches are applied in ascending order"
        );
    }

    /// Inserts a batch into the memtables and makes it visible; everything up to which number was visible before.
    fn insert_batch(&self, batch: &Batch, first: SeqNo) -> u64 {
        if batch.is_empty() {
            return self.visible.load(Ordering::Acquire);
        }
        // Held across the insertion, so that `freeze` never leaves a batch half in a frozen memtable. Held until the batch
        // is visible, or a flush could drop entries that the batch replaces before any reader sees the batch.
        let mut state = self.state.read();
        if state.groups.iter().any(|group| group.active.is_full()) {
            // Long past the size at which it should have been flushed.
            drop(state);
            self.freeze();
            state = self.state.read();
        }
        if let Some(record) = batch.token() {
            // Before the batch: a flush that writes the batch stores the record.
            self.add_token(record, first);
        }
        match state.groups.as_slice() {
            [only] => insert(&only.active, batch, first, |_| true),
            groups => {
                for group in groups {
                    // A tombstone of a whole row concerns all groups.
                    let wanted = |family: FamilyId| family.0 == 0 || state.schema.group_of(family) == group.id;
                    insert(&group.active, batch, first, wanted);
                }
            }
        }
        self.visible.fetch_max(first.plus(batch.len() - 1).0, Ordering::AcqRel)
    }

    fn add_token(&self, record: &TokenRecord, first: SeqNo) {
        let is_replayed = first.epoch() < self.epoch;
        if is_replayed && self.context.env.planted(PlantedBug::ForgetReplayedTokens) {
            return;
        }
        let forgotten = self.tokens.add(record.clone(), first);
        self.context.metrics.tokens_forgotten.inc_by(forgotten);
    }

    /// Forgets the tokens that have expired. With little memory left it also forgets its oldest ones beyond `fair` bytes.
    pub fn forget_tokens(&self, fair: Option<usize>) {
        self.tokens.forget_expired(self.wall_micros());
        let forgotten = fair.map_or(0, |bytes| self.tokens.forget_beyond(bytes));
        self.context.metrics.tokens_forgotten.inc_by(forgotten);
    }

    /// Recent request tokens.
    pub fn tokens(&self) -> &TokenTable {
        &self.tokens
    }

    /// At recovery: applies a record of the log unless files hold it already. [`Batch::decode_record`] has checked its numbers.
    pub fn replay(&self, batch: &Batch, first: SeqNo, last: SeqNo) {
        assert_eq!(
            last.0.checked_sub(first.0),
            batch.len().checked_sub(1),
            "a decoded record numbers each mutation of its batch once"
        );
        if last > self.flushed_through() {
            self.replayed.store(true, Ordering::Release);
            self.insert_batch(batch, first);
        }
    }

    /// Whether something was replayed since this was asked before.
    pub(crate) fn take_replayed(&self) -> bool {
        self.replayed.swap(false, Ordering::AcqRel)
    }

    /// At recovery: forgets all replayed batches, for a caller that replays them again. No reader has seen them.
    pub fn forget_replayed(&self) {
        self.freeze();
        self.update_state(None, |state| state.frozen.clear());
    }

    /// Waits for running compactions and keeps others out while the guard lives.
    pub async fn stop_compactions(&self) -> Stopped<'_> {
        Stopped {
            _alone: self.compacting.write().await,
        }
    }

    /// Sets the active memtables aside for a flush, which comes before that of others; whether there was anything in them.
    pub fn freeze(&self) -> bool {
        let mut state = self.state.write();
        if state.groups.iter().all(|g| g.active.is_empty()) {
            return false;
        }
        let mut next = State::clone(&state);
        next.freeze(&self.context.memory);
        next.refresh();
        next.generation += 1;
        // Freed when nobody waits for the lock: it may be the last to hold a hundred megabytes of memtables.
        let former = self.publish(&mut state, next);
        drop(state);
        drop(former);
        self.unpark();
        true
    }

    /// Makes `next` the state, for readers and for writers. Everything in it is visible: batches are applied and made
    /// visible while their writers share the lock. Returns the former state, for the caller to drop without the lock.
    #[must_use = "it is dropped when nobody waits for the lock"]
    fn publish(&self, state: &mut RwLockWriteGuard<'_, Arc<State>>, next: State) -> Arc<State> {
        assert_eq!(
            next.generation,
            state.generation + 1,
            "each change makes the next generation"
        );
        debug_assert!(!next.groups.is_empty(), "a tablet has a locality group");
        let next = Arc::new(next);
        self.current.store(next.clone());
        std::mem::replace(&mut **state, next)
    }

    /// Publishes a changed state. `made_under` is the schema that its new files were made under, if it has any: a rule that
    /// has been loosened since would have retained more. Then the mark changes, so that no earlier result of a read is
    /// taken for the present one.
    pub(crate) fn update_state(&self, made_under: Option<&Arc<TableSchema>>, change: impl FnOnce(&mut State)) {
        let mut state = self.state.write();
        let mut next = State::clone(&state);
        change(&mut next);
        next.refresh();
        next.generation += 1;
        let mark = self.schema_mark();
        let is_late = made_under.is_some_and(|schema| !Arc::ptr_eq(schema, &next.schema));
        if is_late {
            self.schema_mark
                .store(mark.without_row_cache().word(), Ordering::Release);
        }
        // Freed when nobody waits for the lock: it may be the last to hold a hundred megabytes of memtables.
        let former = self.publish(&mut state, next);
        if is_late {
            self.schema_mark.store(mark.renewed().word(), Ordering::Release);
        }
        drop(state);
        drop(former);
        self.unpark();
    }

    /// Scans that wait for their readers within a row, and keep memtables that are flushed already.
    pub fn pinned(&self) -> Vec<Pinned> {
        let scans = self.detached.all();
        if scans.is_empty() {
            return Vec::new();
        }
        let current = self.state();
        scans.into_iter().filter_map(|scan| scan.pinned(&current)).collect()
    }

    /// Frees the readahead of scans whose readers have not come for so long; how many bytes. They read it again when they
    /// go on. Frees their shares of the readahead budget, too, except for scans within a row.
    pub fn drop_readahead(&self, idle: Duration) -> usize {
        let before = self.env().now().saturating_sub(idle);
        self.detached.all().iter().map(|scan| scan.drop_readahead(before)).sum()
    }

    /// Frees the positions of detached scans in a former state, except for those that are pinned for a time. Frees all of
    /// them when the tablet is closed: their readers go on elsewhere.
    fn unpark(&self) {
        let is_open = self.check_open().is_ok();
        for scan in self.detached.all() {
            match is_open {
                true => scan.release(self.env()),
                false => scan.discard(),
            }
        }
    }

    /// The states of the tablet, as readers see them.
    pub(crate) fn states(&self) -> &ArcSwap<State> {
        &self.current
    }

    /// Recomputes the compaction debt that writers are slowed by, after a change of files.
    pub(crate) fn note_debt(&self) {
        debug_assert!(
            self.range.end.as_ref().is_none_or(|end| self.range.start < *end),
            "a tablet has rows"
        );
        let debt = Debt::of(&self.state(), &self.range.start, self.env());
        self.debt.store(debt.bytes, Ordering::Relaxed);
        self.garbage_share.store(debt.garbage_share, Ordering::Relaxed);
        self.compaction_pressure
            .store(debt.compaction_pressure, Ordering::Relaxed);
    }

    /// The compaction debt: bytes that compactions have to read until nothing is due any more. As of the last flush or
    /// compaction.
    pub fn compaction_debt(&self) -> u64 {
        self.debt.load(Ordering::Relaxed)
    }

    /// Of a thousand bytes of files, how many merges are expected to free. As of the last flush or compaction.
    pub fn garbage_share(&self) -> u64 {
        self.garbage_share.load(Ordering::Relaxed)
    }

    pub(crate) fn set_flushed(&self, through: SeqNo) {
        self.flushed.fetch_max(through.0, Ordering::AcqRel);
    }

    /// The sequence number the next batch would get.
    pub fn next_sequence(&self) -> SeqNo {
        *self.sequencer.lock()
    }
}

fn insert(table: &Memtable, batch: &Batch, first: SeqNo, wanted: impl Fn(FamilyId) -> bool) {
    table.insert_all(|insert| {
        batch.entries_of(first, wanted, |key, value| {
            insert.insert(
                key,
                value,
                key::seq_of(key).expect("an entry of a batch has a sequence number"),
            );
        });
    });
}
