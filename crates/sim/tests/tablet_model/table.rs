//! A table of tablets without a server, with its model.

#[path = "outage.rs"]
mod outage;

use super::history::{Change, Setup, Step};
use bytes::Bytes;
use outage::unless_unread;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_env::metrics::Metrics;
use stele_env::{Env, Priority};
use stele_filter::Filter;
use stele_sim::model::Model;
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_tablet::values::load::ValueMemory;
use stele_tablet::{
    Batch, BatchBuilder, FileRegistry, Manifest, MemoryAccount, ScanSpec, StoredFile, Tablet, TabletContext,
    TabletMetrics, TabletScanner,
};
use stele_types::{
    Cell, DeleteRule, Epoch, FamilyId, GroupId, GroupOptions, LocalityGroup, Mutation, RowMutation, RowRange, RowSet,
    SeqNo, TableSchema, TabletId,
};

/// Polls the storage until it must have only referenced files.
const CHECKS_MAX: u32 = 100;
/// Short compared with the distance of timestamps, however often it is waited for.
const LATENCY_MAX: Duration = Duration::from_micros(20);
/// Small, so that a bottom level has several files.
const FILE_BYTES: u64 = 600;

type Outcome<T> = Result<T, String>;

pub struct Table {
    env: Env,
    storage: Arc<FaultyStorage>,
    cache: Arc<Cache>,
    context: TabletContext,
    /// In row order, without holes.
    tablets: Vec<Served>,
    model: Model,
    /// Files that the device cannot read for now.
    unread: BTreeSet<String>,
    epoch: u32,
    next_tablet: u64,
    next_value: u64,
}

/// A tablet and the content of its commit log.
struct Served {
    tablet: Arc<Tablet>,
    log: Vec<(SeqNo, SeqNo, Batch)>,
    /// Number of the model's newest write when the tablet was last flushed.
    flushed: u64,
}

impl Served {
    fn new(tablet: Arc<Tablet>, flushed: u64) -> Self {
        Served {
            tablet,
            log: Vec::new(),
            flushed,
        }
    }
}

fn context(env: &Env, storage: &Arc<FaultyStorage>, cache: &Arc<Cache>, epoch: u32) -> TabletContext {
    let storage: Arc<dyn Storage> = storage.clone();
    // Of every value that qualifies, of the long ones, of none. Values that earlier processes chose stay.
    let separate_bytes = [1, 8, 100, 1 << 20][env.random_below(4) as usize];
    let files = FileRegistry::new(storage.clone(), cache.clone(), epoch)
        .with_file_bytes(FILE_BYTES)
        .with_values(separate_bytes, ValueMemory::new(1 << 20));
    TabletContext {
        env: env.clone(),
        storage: storage.clone(),
        files: Arc::new(files),
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(&Metrics::new()),
        tokens: stele_tablet::TokenMemory::default(),
    }
}

impl Table {
    pub async fn create(env: Env, setup: Setup) -> Outcome<Table> {
        let storage = FaultyStorage::new(env.clone());
        storage.set_plan(FaultPlan {
            read_miss: setup.read_miss,
            ..FaultPlan::default()
        });
        let cache = Arc::new(Cache::with_shards(setup.cache_bytes, 1));
        let context = context(&env, &storage, &cache, 1);
        let manifest = Manifest {
            tablet: 1,
            table: 1,
            epoch: 1,
            ..Manifest::default()
        };
        let schema = Arc::new(setup.schema.clone());
        let tablet = Tablet::create(context.clone(), schema, manifest).await.map_err(text)?;
        let tablets = vec![Served::new(tablet, 0)];
        let model = Model::new(setup.schema);
        Ok(Table {
            env,
            storage,
            cache,
            context,
            tablets,
            model,
            unread: BTreeSet::new(),
            epoch: 1,
            next_tablet: 2,
            next_value: 0,
        })
    }

    pub async fn step(&mut self, step: &Step) -> Outcome<()> {
        if let Some((range, reversed)) = step.reads().filter(|_| self.is_outage()) {
            return self.check_during_outage(range, reversed).await;
        }
        match step {
            Step::Write(rows) => self.write(rows),
            Step::Flush => self.flush().await,
            Step::CompactIfDue => self.compact_if_due().await,
            Step::CompactConcurrently(reads) => self.compact_concurrently(*reads).await,
            Step::CompactAll => self.compact_all().await,
            Step::SampleConcurrently(every) => self.sample_concurrently(*every).await,
            Step::DropRows(range) => self.drop_rows(range).await,
            Step::Divide(row) => self.divide(row).await,
            Step::Reopen => self.reopen().await,
            Step::Scan { range, reversed } => self.check_scan(range, *reversed).await,
            Step::Filtered {
                range,
                reversed,
                filter,
            } => self.check_filtered(range, *reversed, filter).await,
            Step::Raw(range) => self.check_raw(range).await,
            Step::Advance(micros) => {
                self.env.sleep(Duration::from_micros(*micros)).await;
                Ok(())
            }
            Step::DropFamily(family) => self.drop_family(*family),
            Step::MoveFamily(family, group, options) => self.move_family(*family, *group, options),
            Step::AlterGroup(group, options) => self.alter_group(*group, options),
            Step::Outage {
                first,
                count,
                from_end,
                reopens,
            } => {
                self.begin_outage(*first, *count, *from_end).await?;
                if *reopens {
                    self.reopen().await?;
                }
                self.check_during_outage(&RowRange::all(), false).await
            }
            Step::OutageEnds(but) => self.end_outage(*but).await,
        }
    }

    pub async fn check_everything(&mut self) -> Outcome<()> {
        if self.is_outage() {
            self.end_outage(0).await?;
        }
        for reversed in [false, true] {
            self.check_scan(&RowRange::all(), reversed).await?;
        }
        self.reopen().await?;
        self.check_scan(&RowRange::all(), false).await?;
        self.compact_all().await?;
        if let Some(served) = self.tablets.iter().find(|s| !s.tablet.state().misplaced().is_empty()) {
            let misplaced = served.tablet.state().misplaced().to_vec();
            return Err(format!("everything was compacted, and there still are {misplaced:?}"));
        }
        self.check_scan(&RowRange::all(), false).await?;
        self.check_files().await
    }

    fn write(&mut self, rows: &[(Bytes, Vec<Change>)]) -> Outcome<()> {
        let rows: Vec<RowMutation> = rows
            .iter()
            .filter_map(|(row, changes)| self.mutation(row, changes))
            .collect();
        for served in &mut self.tablets {
            let own: Vec<RowMutation> = rows
                .iter()
                .filter(|r| served.tablet.range().contains(&r.row))
                .cloned()
                .collect();
            if own.is_empty() {
                continue;
            }
            let mut builder = BatchBuilder::default();
            own.iter().for_each(|row| builder.push_row(row));
            let batch = builder.finish();
            let decoded = Batch::decode(batch.to_bytes());
            if decoded.as_ref() != Some(&batch) {
                return Err("an encoded batch does not decode to itself".to_owned());
            }
            let first = served.tablet.sequence(batch.len(), |first| first).map_err(text)?;
            served.tablet.apply(&batch, first);
            served.log.push((first, first.plus(batch.len() - 1), batch));
            self.model.apply(&own);
        }
        Ok(())
    }

    fn mutation(&mut self, row: &Bytes, changes: &[Change]) -> Option<RowMutation> {
        let exists = |family: &FamilyId| self.model.schema().families.contains_key(family);
        let mutations: Vec<Mutation> = changes
            .iter()
            .map(|change| self.next_value(change))
            .collect::<Vec<_>>()
            .into_iter()
            .filter(|m| m.family().is_none_or(|f| exists(&f)))
            .collect();
        self.next_value += mutations.len() as u64;
        (!mutations.is_empty()).then(|| RowMutation {
            row: row.clone(),
            mutations,
        })
    }

    fn next_value(&self, change: &Change) -> Mutation {
        match change.clone() {
            Change::Put {
                family,
                qualifier,
                timestamp,
                long,
            } => {
                // Aggregates want eight bytes. Long values make files of several blocks.
                let number = (self.next_value as i64 + timestamp.0 % 7).to_be_bytes();
                let long = long && family.0 % 2 == 1;
                let value = if long {
                    number.repeat(1_000).into()
                } else {
                    Bytes::copy_from_slice(&number)
                };
                Mutation::Put {
                    family,
                    qualifier,
                    timestamp,
                    value,
                }
            }
            Change::Add {
                family,
                qualifier,
                timestamp,
                operand,
            } => {
                let operand = Bytes::copy_from_slice(&operand.to_be_bytes());
                Mutation::Merge {
                    family,
                    qualifier,
                    timestamp,
                    operand,
                }
            }
            Change::DeleteRow(up_to) => Mutation::DeleteRow { up_to },
            Change::DeleteFamily(family, up_to) => Mutation::DeleteFamily { family, up_to },
            Change::DeleteFamilyVersion(family, timestamp) => Mutation::DeleteFamilyVersion { family, timestamp },
            Change::DeleteColumn(family, qualifier, from, to) => Mutation::DeleteColumn {
                family,
                qualifier,
                from,
                to,
            },
            Change::DeleteVersion(family, qualifier, timestamp) => Mutation::DeleteVersion {
                family,
                qualifier,
                timestamp,
            },
        }
    }

    async fn flush(&mut self) -> Outcome<()> {
        for served in &mut self.tablets {
            served.tablet.flush().await.map_err(text)?;
            served.flushed = self.model.newest();
        }
        Ok(())
    }

    async fn compact_if_due(&mut self) -> Outcome<()> {
        for served in &self.tablets {
            let due = served.tablet.compaction_due();
            let done = served.tablet.compact_next().await;
            let Some(done) = unless_unread(self.is_outage(), done)? else {
                continue;
            };
            if done.is_some() != due {
                return Err("what is due and what is done do not agree".to_owned());
            }
            if let Some(done) = done.filter(|done| done.major) {
                self.model.compact_major(&done.rows, done.group, served.flushed);
            }
        }
        self.context.files.delete_obsolete().await.map_err(text)?;
        Ok(())
    }

    /// Each of a few compactions begins and goes on at random times.
    async fn compact_concurrently(&mut self, reads: usize) -> Outcome<()> {
        for served in &self.tablets {
            let state = served.tablet.state();
            state
                .groups
                .iter()
                .for_each(|group| group.compaction_stats.read(reads + 1));
            let spawn = |_| {
                let (tablet, env) = (served.tablet.clone(), self.env.clone());
                self.env.spawn_join(Priority::Background, "compact", async move {
                    for _ in 0..env.random_below(8) {
                        env.yield_now().await;
                    }
                    tablet.compact_next().await
                })
            };
            for done in futures::future::join_all((0..3).map(spawn)).await {
                let done = done.map_err(|_| "a compaction is gone".to_owned())?;
                let done = unless_unread(self.is_outage(), done)?.flatten();
                if let Some(done) = done.filter(|done| done.major) {
                    self.model.compact_major(&done.rows, done.group, served.flushed);
                }
            }
        }
        self.context.files.delete_obsolete().await.map_err(text)?;
        Ok(())
    }

    async fn compact_all(&mut self) -> Outcome<()> {
        let is_outage = self.is_outage();
        for served in &mut self.tablets {
            if unless_unread(is_outage, served.tablet.compact_all().await)?.is_none() {
                continue;
            }
            served.flushed = self.model.newest();
            let groups: Vec<GroupId> = self.model.schema().groups.iter().map(|g| g.id).collect();
            for group in groups {
                self.model.compact_major(served.tablet.range(), group, served.flushed);
            }
        }
        Ok(())
    }

    /// A sample is of one moment, however much goes while it is taken.
    async fn sample_concurrently(&mut self, every: u64) -> Outcome<()> {
        let tablets: Vec<Arc<Tablet>> = self.tablets.iter().map(|served| served.tablet.clone()).collect();
        let sampling = async {
            let mut samples = Vec::new();
            for tablet in &tablets {
                samples.push(tablet.sample(every, usize::MAX).await);
            }
            samples
        };
        let (storage, plan) = (self.storage.clone(), self.storage.plan());
        // Without latency one would come to its end before the other begins.
        storage.set_plan(FaultPlan {
            read_miss: 1.0,
            latency_max: LATENCY_MAX,
            ..plan.clone()
        });
        let (samples, compacted) = futures::future::join(sampling, self.compact_all()).await;
        storage.set_plan(plan);
        compacted?;
        for sample in samples {
            let Some((bytes, rows)) = unless_unread(self.is_outage(), sample)? else {
                continue;
            };
            let ascends = rows.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1);
            if !ascends || rows.last().is_some_and(|(_, before)| *before > bytes) {
                return Err(format!("a sample of {bytes} bytes is {rows:?}"));
            }
        }
        Ok(())
    }

    async fn drop_rows(&mut self, range: &RowRange) -> Outcome<()> {
        if range.is_empty() {
            return Ok(());
        }
        let is_outage = self.is_outage();
        for served in &mut self.tablets {
            if served.tablet.range().overlaps(range) {
                let stopped = served.tablet.stop_compactions().await;
                let dropped = unless_unread(is_outage, served.tablet.drop_rows(range, &stopped).await)?;
                drop(stopped);
                served.flushed = self.model.newest();
                if dropped.is_some() {
                    self.model.drop_rows(&served.tablet.range().intersect(range));
                }
            }
        }
        Ok(())
    }

    async fn divide(&mut self, row: &Bytes) -> Outcome<()> {
        let at = self
            .tablets
            .iter()
            .position(|s| s.tablet.range().contains(row) && s.tablet.range().start != *row);
        let Some(at) = at.filter(|_| self.tablets.len() < 6) else {
            return Ok(());
        };
        let tablet = self.tablets[at].tablet.clone();
        tablet.flush().await.map_err(text)?;
        let ids = [TabletId(self.next_tablet), TabletId(self.next_tablet + 1)];
        self.next_tablet += 2;
        let halves = tablet.divide(row, ids[0], ids[1]).await;
        let Some((left, right)) = unless_unread(self.is_outage(), halves)? else {
            return Ok(());
        };
        let parent = self.tablets.remove(at);
        for manifest in [right, left] {
            let child = Tablet::create(self.context.clone(), parent.tablet.schema(), manifest)
                .await
                .map_err(text)?;
            self.tablets.insert(at, Served::new(child, self.model.newest()));
        }
        parent.tablet.close();
        parent.tablet.release_files().await;
        Ok(())
    }

    /// The process ends without a word, or the power goes, and the next one replays all it ever logged.
    async fn reopen(&mut self) -> Outcome<()> {
        self.check_files().await?;
        self.epoch += 1;
        // Files that a manifest names are durable.
        match self.env.random_below(2) {
            0 => self.storage.kill(),
            _ => self.storage.crash(),
        }
        self.storage = self.storage.reopen();
        self.context = context(&self.env, &self.storage, &self.cache, self.epoch);
        let schema = Arc::new(self.model.schema().clone());
        for served in &mut self.tablets {
            let id = served.tablet.id();
            let tablet = Tablet::open(self.context.clone(), schema.clone(), id, Epoch(self.epoch))
                .await
                .map_err(text)?;
            for (first, last, batch) in &served.log {
                tablet.replay(batch, *first, *last);
            }
            served.tablet = tablet;
        }
        // As a server does when it starts.
        let referenced = self.referenced().await;
        self.context.files.sweep(&referenced).await.map_err(text)?;
        Ok(())
    }

    fn drop_family(&mut self, family: FamilyId) -> Outcome<()> {
        let mut schema = self.model.schema().clone();
        // The default group must not lose its last family, or there is little left to test.
        if schema.families.len() < 3 || schema.families.remove(&family).is_none() {
            return Ok(());
        }
        for group in &mut schema.groups {
            group.left.remove(&family);
        }
        self.publish(schema);
        Ok(())
    }

    fn publish(&mut self, mut schema: TableSchema) {
        schema.version += 1;
        let published: Arc<TableSchema> = Arc::new(schema.clone());
        for served in &self.tablets {
            served.tablet.set_schema(published.clone());
        }
        self.model.set_schema(schema);
    }

    /// A family may be moved with any content; a second time only when all of it has arrived.
    fn move_family(&mut self, family: FamilyId, group: usize, options: &GroupOptions) -> Outcome<()> {
        let mut schema = self.model.schema().clone();
        let is_settled = |served: &Served| served.tablet.state().is_settled(family);
        let Some(from) = schema.families.get(&family).map(|family| family.group) else {
            return Ok(());
        };
        if schema.delete_rule == DeleteRule::ByTimestamp || !self.tablets.iter().all(is_settled) {
            return Ok(());
        }
        let at = group % (schema.groups.len() + usize::from(schema.groups.len() < 4));
        if at == schema.groups.len() {
            let id = GroupId(at as u32);
            schema.groups.push(LocalityGroup {
                options: options.clone(),
                ..LocalityGroup::new(id, format!("g{at}"), options.compression)
            });
        }
        let to = schema.groups[at].id;
        if to == from {
            return Ok(());
        }
        for group in &mut schema.groups {
            group.left.remove(&family);
            if group.id == from {
                group.left.insert(family);
            }
        }
        if let Some(moved) = schema.families.get_mut(&family) {
            moved.group = to;
        }
        self.publish(schema);
        Ok(())
    }

    fn alter_group(&mut self, group: usize, options: &GroupOptions) -> Outcome<()> {
        let mut schema = self.model.schema().clone();
        let at = group % schema.groups.len();
        schema.groups[at].options = options.clone();
        self.publish(schema);
        Ok(())
    }

    /// All rows of a range, in the order of the scan.
    async fn scan(
        &self,
        range: &RowRange,
        reversed: bool,
        raw: bool,
        filter: Option<&Filter>,
    ) -> Outcome<Vec<(Bytes, Vec<Cell>)>> {
        let mut tablets: Vec<&Served> = self.tablets.iter().collect();
        if reversed {
            tablets.reverse();
        }
        let filter = match filter {
            Some(filter) => Some(Arc::new(filter.compile(self.model.schema()).map_err(text)?)),
            None => None,
        };
        let mut rows = Vec::new();
        for served in tablets {
            let set = RowSet::new(vec![range.clone()]);
            let spec = ScanSpec {
                rows: set,
                filter: filter.clone(),
                reversed,
                raw,
                rows_limit: None,
            };
            let mut found = Vec::new();
            let mut scanner = TabletScanner::new(served.tablet.clone(), spec.clone());
            while let Some(batch) = scanner.next_batch().await.map_err(text)? {
                found.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
            }
            if scan_partial_rows(served, spec).await? != found {
                return Err("rows in pieces are others".to_owned());
            }
            rows.append(&mut found);
        }
        let ordered = |a: &Bytes, b: &Bytes| if reversed { a > b } else { a < b };
        if !rows.windows(2).all(|pair| ordered(&pair[0].0, &pair[1].0)) {
            return Err("rows are out of order".to_owned());
        }
        Ok(rows)
    }

    async fn check_scan(&self, range: &RowRange, reversed: bool) -> Outcome<()> {
        let now = self.env.wall_micros();
        let mut rows: BTreeMap<Bytes, Vec<Cell>> = self.scan(range, reversed, false, None).await?.into_iter().collect();
        self.check_gets(range, None, &rows)?;
        for row in self.model.rows().into_iter().filter(|row| range.contains(row)) {
            let cells = rows.remove(&row).unwrap_or_default();
            self.model.check_row(&row, &cells, now)?;
        }
        match rows.pop_first() {
            Some((row, cells)) => Err(format!("row {} was never written: {cells:?}", row.escape_ascii())),
            None => Ok(()),
        }
    }

    /// A filtered scan gives the result of the filter on the rows of an unfiltered one.
    async fn check_filtered(&self, range: &RowRange, reversed: bool, filter: &Filter) -> Outcome<()> {
        let compiled = filter.compile(self.model.schema()).map_err(text)?;
        let mut expected = Vec::new();
        for (row, cells) in self.scan(range, reversed, false, None).await? {
            let cells = compiled.apply(&row, cells, &mut || 0.5).map_err(text)?;
            if !cells.is_empty() {
                expected.push((row, cells));
            }
        }
        let found = self.scan(range, reversed, false, Some(filter)).await?;
        if found != expected {
            return Err(format!("filtered scan gave {found:?}\nexpected {expected:?}"));
        }
        self.check_gets(range, Some(filter), &found.into_iter().collect())
    }

    /// A read of a row without waiting, where that is possible, gives the result of a scan.
    fn check_gets(
        &self,
        range: &RowRange,
        filter: Option<&Filter>,
        scanned: &BTreeMap<Bytes, Vec<Cell>>,
    ) -> Outcome<()> {
        let filter = match filter {
            Some(filter) => Some(Arc::new(filter.compile(self.model.schema()).map_err(text)?)),
            None => None,
        };
        for row in self.model.rows().into_iter().filter(|row| range.contains(row)) {
            for served in &self.tablets {
                let Some(read) = served.tablet.get_row(&row, filter.as_ref()).map_err(text)? else {
                    continue;
                };
                let here = served.tablet.range().contains(&row);
                let expected = scanned.get(&row).filter(|_| here).map_or(&[][..], |cells| cells);
                let found = read.rows().next().map_or(&[][..], |(_, cells)| cells);
                if found != expected || read.rows().any(|(name, _)| name != row) {
                    let row = row.escape_ascii();
                    return Err(format!("a get of {row} gave {found:?}\na scan {expected:?}"));
                }
            }
        }
        Ok(())
    }

    /// A raw scan shows nothing that was not written, and all that a plain one shows.
    async fn check_raw(&self, range: &RowRange) -> Outcome<()> {
        let raw: BTreeMap<Bytes, Vec<Cell>> = self.scan(range, false, true, None).await?.into_iter().collect();
        for (row, cells) in &raw {
            if let Some(cell) = cells.iter().find(|cell| !self.model.was_written(row, cell)) {
                return Err(format!("raw read of {} shows {cell:?}", row.escape_ascii()));
            }
        }
        for (row, cells) in self.scan(range, false, false, None).await? {
            let stored = raw.get(&row).map_or(&[][..], Vec::as_slice);
            let is_stored = |cell: &&Cell| {
                stored
                    .iter()
                    .any(|s| (s.family, &s.qualifier, s.timestamp) == (cell.family, &cell.qualifier, cell.timestamp))
            };
            if !cells.iter().all(|cell| is_stored(&cell)) {
                return Err(format!("raw read of {} lacks a cell of {cells:?}", row.escape_ascii()));
            }
        }
        Ok(())
    }

    /// The references in the manifests of the tablets.
    async fn referenced(&self) -> BTreeSet<StoredFile> {
        let mut referenced = BTreeSet::new();
        for served in &self.tablets {
            referenced.extend(served.tablet.manifest().await.stored());
        }
        referenced
    }

    /// The storage has exactly the files to which the manifests of the tablets refer. No sweep runs before: it would
    /// also remove files that this process has forgotten as soon as it is an earlier one.
    async fn check_files(&self) -> Outcome<()> {
        let referenced = self.referenced().await;
        for attempt in 0.. {
            self.context.files.delete_obsolete().await.map_err(text)?;
            let there = self.storage.list("sst/").await.map_err(text)?;
            let there: BTreeSet<String> = there.into_iter().map(|info| info.path).collect();
            let expected: BTreeSet<String> = referenced.iter().map(|file| file.path()).collect();
            if there == expected {
                break;
            }
            // Tasks that read ahead may hold one for a moment.
            if attempt == CHECKS_MAX {
                let extra: Vec<_> = there.difference(&expected).collect();
                let missing: Vec<_> = expected.difference(&there).collect();
                return Err(format!("files that nothing refers to: {extra:?}; missing: {missing:?}"));
            }
            self.env.sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }
}

/// The rows of a scan that gives them in pieces of a few cells.
async fn scan_partial_rows(served: &Served, spec: ScanSpec) -> Outcome<Vec<(Bytes, Vec<Cell>)>> {
    let mut rows: Vec<(Bytes, Vec<Cell>)> = Vec::new();
    let mut scanner = TabletScanner::new(served.tablet.clone(), spec);
    scanner.set_partial_rows(Some(400));
    while let Some(batch) = scanner.next_batch().await.map_err(text)? {
        let mut goes_on = batch.continues;
        for (row, cells) in batch.shared_rows() {
            match rows.last_mut().filter(|_| std::mem::take(&mut goes_on)) {
                Some((open, before)) if *open == row => before.extend_from_slice(cells),
                Some((open, _)) => return Err(format!("{row:?} does not go on {open:?}")),
                None => rows.push((row, cells.to_vec())),
            }
        }
    }
    Ok(rows)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
