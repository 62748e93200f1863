//! State that the clients of one worker share in a run, made before it.
//!
//! Terms: a table is *versioned* as soon as some workload both reads and overwrites it. Its writes are then numbered by
//! a [`Ledger`]. Any other table is *static*: only puts write it, and values follow from their keys, so writing a key
//! twice, or by two workers, changes nothing. Every value has [`Version::LOADED`].
//!
//! A `Ledger` has a random writer number of its own. It is kept from run to run as long as the list of versioned
//! workloads of the table only grows. Otherwise a new `Ledger` begins with another number, and treats existing rows as
//! another process's.

use super::Written;
use super::contents::{Contents, Presence};
use super::counters::Counters;
use super::held::Held;
use super::keys::KeyCoder;
use super::ledger::Ledger;
use super::operations::Operations;
use super::recent::Recent;
use super::shape::Shape;
use super::values::{Pool, ValueMaker, Version};
use crate::plan::{Operation, ValueSource, Values, Workload};
use anyhow::{Context, ensure};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Tables whose state is kept from run to run; an experiment uses one or two at a time.
const TABLES_MAX: usize = 4;
/// Capacity of a `Ledger` for inserted rows. Memory is used only as it is touched.
const INSERTS_MAX: u64 = 1 << 26;

/// Most keys that are sorted in row order, at eight bytes each: half a GiB.
const SORTED_KEYS_MAX: u64 = 1 << 26;

/// State for the clients of one workload, read-only or locked inside.
pub struct Prepared {
    pub(super) workload: Workload,
    pub(super) seed: u64,
    pub(super) operations: Operations,
    pub(super) coder: KeyCoder,
    pub(super) shape: Shape,
    pub(super) contents: Arc<Contents>,
    /// Present keys in row order, for scans where that is not the order of numbers. Absent if there are too many.
    pub(super) sorted: Option<Arc<Vec<u64>>>,
    /// One beyond the last number that a scan of the whole table covers.
    pub(super) scan_end: u64,
    /// Whether keys that are not in `contents` may exist nevertheless: this run creates rows.
    pub(super) is_open: bool,
    /// Whether rows must have their value columns; false if only increments created them.
    pub(super) has_values: bool,
    /// Versioned tables only.
    pub(super) ledger: Option<Arc<Ledger>>,
    /// The number of `ledger`.
    pub(super) writer: u16,
    pub(super) counters: Option<Arc<Counters>>,
    /// Values of counters after earlier runs. Only where such a run has incremented, and this one reads.
    pub(super) held: Option<Arc<Held>>,
    /// Whether this run increments.
    pub(super) is_counting: bool,
    pub(super) recent: Arc<Recent>,
}

/// State kept from run to run.
#[derive(Default)]
pub(super) struct Kept {
    pools: Vec<(ValueSource, Arc<Pool>)>,
    tables: HashMap<String, Table>,
    prepared: HashMap<String, Arc<Prepared>>,
    clock: u64,
}

#[derive(Default)]
struct Table {
    used: u64,
    /// Versioned workloads of `ledger`, with their seeds.
    history: Vec<(Workload, u64)>,
    ledger: Option<(u16, u64, Arc<Ledger>)>,
    counted: Vec<(Workload, u64)>,
    counters: Option<Arc<Counters>>,
    held: Option<Arc<Held>>,
    replayed: Vec<Written>,
    contents: Arc<Contents>,
    sorted: Option<Arc<Vec<u64>>>,
    recent: Arc<Recent>,
}

/// Whether a workload's reads depend on the order of its writes.
pub fn needs_versions(workload: &Workload) -> bool {
    use Operation::{BufferedPut, CheckAndPut, Get, Insert, Put, ReadModifyWrite, Scan, ShortScan};
    let has = |test: fn(&Operation) -> bool| {
        workload
            .mix
            .iter()
            .any(|(operation, weight)| *weight > 0.0 && test(operation))
    };
    let writes = has(|o| matches!(o, Put | BufferedPut { .. } | Insert));
    let reads = has(|o| matches!(o, Get | ShortScan { .. } | Scan { .. }));
    workload.verify && (writes && reads || has(|o| matches!(o, CheckAndPut | ReadModifyWrite)))
}

fn has_operation(workload: &Workload, wanted: fn(&Operation) -> bool) -> bool {
    workload.mix.iter().any(|(operation, _)| wanted(operation))
}

/// The end of the table's keys. Rows inserted into these records are included.
fn scan_end(workload: &Workload, written: &[Written]) -> u64 {
    let records = workload.keys.records;
    let inserted = written.iter().filter(|w| w.workload.keys.records == records);
    inserted
        .map(super::contents::keys_end_of)
        .max()
        .map_or(records, |end| end.max(records))
}

fn puts(workload: &Workload) -> bool {
    has_operation(workload, |o| super::contents::writes(o) && *o != Operation::Increment)
}

/// Whether a workload reads rows, by themselves or before it writes them.
fn reads(workload: &Workload) -> bool {
    use Operation::{CheckAndPut, Get, ReadModifyWrite, Scan, ShortScan};
    has_operation(workload, |o| {
        matches!(o, Get | ShortScan { .. } | Scan { .. } | CheckAndPut | ReadModifyWrite)
    })
}

fn increments(workload: &Workload) -> bool {
    has_operation(workload, |o| *o == Operation::Increment)
}

impl Prepared {
    /// Start of the part that operation `index` stands for in a scan of the whole table.
    pub(super) fn scan_place(&self, index: u64) -> u128 {
        let (records, places) = (u128::from(self.workload.keys.records), self.coder.places());
        if self.coder.is_ordered() {
            // The last operation continues with the rows inserted later.
            let number = if index >= self.workload.keys.records {
                index.max(self.scan_end)
            } else {
                index
            };
            return u128::from(number).min(places);
        }
        let index = u128::from(index).min(records);
        // Index × places / records, in an order that cannot overflow.
        places / records * index + places % records * index / records
    }

    /// Knowledge about a key's row.
    pub(super) fn presence(&self, key: u64) -> Presence {
        match self.contents.presence(key) {
            Presence::Absent if self.is_open => Presence::Unsure,
            known => known,
        }
    }
}

impl Kept {
    /// Makes the state that a run's clients share.
    pub(super) fn prepare(
        &mut self,
        workload: &Workload,
        seed: u64,
        workers: u32,
        written: &[Written],
    ) -> anyhow::Result<()> {
        check(workload)?;
        let values = values_of(workload, written)?;
        let coder = KeyCoder::new(&workload.keys.format)?;
        let records = workload.keys.records;
        ensure!(
            records <= coder.capacity(),
            "{records} records, and keys of {:?}",
            workload.keys.format
        );
        let pool = self.pool(&values.source)?;
        self.forget_oldest(&workload.table);
        self.clock += 1;
        let table = self.tables.entry(workload.table.clone()).or_default();
        table.used = self.clock;
        if workload.verify {
            table.follow(workload, seed, workers, written)?;
            table.sort(workload, &coder);
        }
        let ledger = table.ledger.as_ref().filter(|_| workload.verify);
        let prepared = Prepared {
            operations: Operations::new(workload, seed)?,
            shape: Shape::new(&values, ValueMaker::new(&values, pool)?)?,
            coder,
            contents: Arc::clone(&table.contents),
            sorted: table.sorted.clone(),
            scan_end: scan_end(workload, written),
            is_open: workload
                .mix
                .iter()
                .any(|(operation, _)| super::contents::writes(operation)),
            has_values: puts(workload) || written.is_empty() || written.iter().any(|w| puts(&w.workload)),
            ledger: ledger.map(|(_, _, ledger)| Arc::clone(ledger)),
            writer: ledger.map_or(0, |(writer, _, _)| *writer),
            counters: table
                .counters
                .clone()
                .filter(|_| workload.verify && increments(workload)),
            held: table.held.clone().filter(|_| workload.verify),
            is_counting: increments(workload),
            recent: Arc::clone(&table.recent),
            workload: workload.clone(),
            seed,
        };
        self.prepared.insert(workload.table.clone(), Arc::new(prepared));
        Ok(())
    }

    /// The state prepared for this workload.
    pub(super) fn prepared(&self, workload: &Workload, seed: u64) -> anyhow::Result<Arc<Prepared>> {
        let prepared = self.prepared.get(&workload.table);
        let prepared = prepared.filter(|p| p.workload == *workload && p.seed == seed);
        prepared
            .cloned()
            .context("a client of a run that was not prepared on this worker")
    }

    fn pool(&mut self, source: &ValueSource) -> anyhow::Result<Arc<Pool>> {
        if let Some((_, pool)) = self.pools.iter().find(|(known, _)| known == source) {
            return Ok(Arc::clone(pool));
        }
        // Two at most: random bytes and a text.
        self.pools.retain(|(known, _)| *known == ValueSource::Incompressible);
        let pool = Arc::new(Pool::open(source)?);
        self.pools.push((source.clone(), Arc::clone(&pool)));
        Ok(pool)
    }

    fn forget_oldest(&mut self, table: &str) {
        while self.tables.len() >= TABLES_MAX && !self.tables.contains_key(table) {
            let oldest = self
                .tables
                .iter()
                .min_by_key(|(_, table)| table.used)
                .map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { return };
            self.tables.remove(&oldest);
            self.prepared.remove(&oldest);
        }
    }
}

impl Table {
    /// Updates the knowledge about the table.
    fn follow(&mut self, workload: &Workload, seed: u64, workers: u32, written: &[Written]) -> anyhow::Result<()> {
        if self.replayed != written {
            self.contents = Arc::new(Contents::replay(written)?);
            self.replayed = written.to_vec();
            self.sorted = None;
            self.held = None;
        }
        let is_counted = written.iter().any(|w| increments(&w.workload));
        if is_counted && reads(workload) && self.held.is_none() {
            self.held = Some(Arc::new(Held::replay(written)?));
        }
        if written.is_empty() {
            self.recent = Arc::default();
        }
        self.follow_versions(workload, seed, written)?;
        self.follow_counters(workload, seed, workers, written)
    }

    /// Sorts the present keys in row order, if this workload's scans need that.
    fn sort(&mut self, workload: &Workload, coder: &KeyCoder) {
        let scans = |o: &Operation| matches!(o, Operation::Scan { .. } | Operation::ShortScan { .. });
        let is_needed = !coder.is_ordered() && has_operation(workload, scans);
        if is_needed && self.sorted.is_none() && self.contents.count(0..u64::MAX) <= SORTED_KEYS_MAX {
            let mut sorted: Vec<u64> = self.contents.present().collect();
            sorted.sort_unstable_by_key(|&number| coder.place(number));
            self.sorted = Some(Arc::new(sorted));
        }
    }

    fn follow_versions(&mut self, workload: &Workload, seed: u64, written: &[Written]) -> anyhow::Result<()> {
        let earlier = history(written, needs_versions);
        let is_versioned = !earlier.is_empty() || needs_versions(workload);
        if !is_versioned {
            self.ledger = None;
            self.history.clear();
            return Ok(());
        }
        let inserts = has_operation(workload, |o| *o == Operation::Insert);
        let room = if inserts { INSERTS_MAX } else { 0 };
        let largest = written
            .iter()
            .map(|w| w.workload.keys.records)
            .max()
            .unwrap_or_default();
        let keys = largest.max(workload.keys.records) + room;
        let is_known = !earlier.is_empty() && self.history == earlier;
        let is_kept = is_known && self.ledger.as_ref().is_some_and(|(_, known, _)| *known >= keys);
        if !is_kept {
            let writer = 1 + (RandomState::new().hash_one(seed) % u64::from(Version::WRITER_MAX)) as u16;
            self.ledger = Some((writer, keys, Arc::new(Ledger::new(keys)?)));
            self.recent = Arc::default();
        }
        self.history = earlier;
        if puts(workload) || increments(workload) {
            self.history.push((workload.clone(), seed));
        }
        Ok(())
    }

    fn follow_counters(
        &mut self,
        workload: &Workload,
        seed: u64,
        workers: u32,
        written: &[Written],
    ) -> anyhow::Result<()> {
        if !increments(workload) {
            return Ok(());
        }
        let earlier = history(written, increments);
        let is_kept = !earlier.is_empty() && self.counted == earlier && workers == 1;
        if !is_kept || self.counters.is_none() {
            let is_alone = earlier.is_empty() && workers == 1;
            self.counters = Some(Arc::new(Counters::new(workload.keys.records, is_alone)?));
        }
        self.counted = earlier;
        self.counted.push((workload.clone(), seed));
        Ok(())
    }
}

/// The writing workloads since the first one of that kind, which determines the table from there on.
fn history(written: &[Written], sort: fn(&Workload) -> bool) -> Vec<(Workload, u64)> {
    let since = written
        .iter()
        .map(|w| (&w.workload, w.seed))
        .skip_while(|(w, _)| !sort(w));
    since
        .filter(|(w, _)| puts(w) || increments(w))
        .map(|(w, seed)| (w.clone(), seed))
        .collect()
}

fn check(workload: &Workload) -> anyhow::Result<()> {
    for (operation, _) in &workload.mix {
        match operation {
            Operation::BufferedPut { buffer_bytes } => {
                ensure!(
                    *buffer_bytes <= BUFFER_BYTES_MAX,
                    "a buffer of {buffer_bytes} B; {BUFFER_BYTES_MAX} at most"
                );
            }
            Operation::ShortScan { rows, .. } => ensure!(*rows > 0, "a short scan of no rows"),
            Operation::Scan { .. } => ensure!(workload.mix.len() == 1, "scans of ranges cannot be mixed"),
            _ => {}
        }
    }
    Ok(())
}

/// Bytes of one client's write buffer; the documents' clients used 12 MB.
const BUFFER_BYTES_MAX: u64 = 256 << 20;

/// The values of the table: as already written, or else as the workload will write them.
fn values_of(workload: &Workload, written: &[Written]) -> anyhow::Result<Values> {
    let mut known: Option<&Workload> = puts(workload).then_some(workload);
    for writes in written.iter().map(|w| &w.workload).filter(|w| puts(w)) {
        ensure!(
            writes.keys.format == workload.keys.format,
            "table {} holds keys of {:?}, not of {:?}",
            workload.table,
            writes.keys.format,
            workload.keys.format
        );
        if let Some(other) = known {
            ensure!(
                writes.values == other.values,
                "table {} would hold values of {:?} and of {:?}",
                workload.table,
                writes.values,
                other.values
            );
        }
        known = Some(writes);
    }
    let mut values = known.unwrap_or(workload).values.clone();
    if known.is_none() {
        // Only counters, or no rows at all: sizes do not matter.
        values.bytes = values.bytes.max(super::values::VALUE_BYTES_MIN);
    }
    Ok(values)
}
