//! The row cache retains results of repeated reads of single rows (Hypertable's query cache).
//!
//! Terms: a *variant* is the result of one row under one filter; the variants of a row are kept and forgotten together. A
//! *reading* is a read on its way that may become a variant.
//!
//! Consistency. A hit must equal a read of the tablet at that moment. Rows share *stripes* by hash; a stripe
//! counts the writes that have begun to apply, and those that have not finished, in one atomic word (`gate`). A write
//! announces itself before it becomes visible ([`RowCache::writing`]): that raises the counts, and then takes the row's
//! variants out. A reading notes the word before it takes its snapshot, provided that no write is in progress, and is
//! installed only if as many writes have begun as then. So a reading that began before a write's end is never installed
//! after that write's beginning:
//! * A reading that notes the word after a write's end sees that write: the end is a release, the note an acquire.
//! * A reading that noted it before a write's beginning checks again when it holds the shard's lock. Either it sees the
//!   beginning, and is not installed, or the writer comes for the variants later and takes them out before the write is
//!   visible.
//! * The writer comes only if the shard *holds* rows. An installation says that it does before it checks the count; a
//!   writer raises the count before it asks. Both change the one word, in one order or the other: either the check finds it
//!   raised, or the raise takes over from the check, and the writer sees the earlier installation.
//!
//! Results also change without a write, in four cases:
//! * The schema changes: a variant belongs to one version of it.
//! * A compaction that began under a former schema drops cells: from then on the tablet has another [`SchemaMark`].
//! * An age rule begins to apply: a variant says how long none applies. It is of no use at other times, also when the
//!   clock is set back.
//! * Rows are dropped by range ([`RowCache::clearing`]).
//! * A tablet comes back from another server, which has changed its rows: likewise.
//!
//! Otherwise variants of a closed tablet are merely garbage that newer rows push out.
//! Garbage that compactions drop makes no difference to nearly all rows. A result to which it may is not cached
//! ([`RowBatch::unstable`]), which costs less than to forget a tablet's rows whenever one of its compactions ends.
//!
//! Invariants:
//! * A variant is memory of its own, in one piece (`kept`): a slice of a block would keep the whole block from being freed,
//!   and a hit waits for memory more than for anything else.
//! * Scans, raw reads, filters that sample and results that compactions may change are never cached. A row is cached
//!   while there is space, and otherwise when it is read the second time.
//! * A shard whose `holds` is false has no rows; it changes under the shard's lock.
//! * Charged bytes never exceed the capacity.

mod gate;
mod kept;
mod shape;
mod sync {
    //! The parts of `gate`.
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}

use gate::{Holds, Stripe};
use kept::{CachedRow, Provenance, Variant};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use stele_cache::{Admission, CacheKey, CacheStats, ENTRY_OVERHEAD_BYTES, Profile, ProfileCounts, ProfilePlan, S3Fifo};
use stele_env::{Env, PlantedBug};
use stele_filter::Filter;
use stele_tablet::SchemaMark;
use stele_types::{Cell, RowBatch, TableSchema, TabletId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use kept::Kept;
use shape::Shape;

/// Enough that two dozen cores rarely meet on one lock.
const SHARDS: usize = 64;
/// 16 KiB of them, so that a write rarely spoils a reading of another row.
const STRIPES: usize = 2048;
/// Filters under which one row is kept. Applications read a row in few ways.
const VARIANTS_MAX: usize = 4;
/// Largest result worth a place: copying more costs more than finding it again.
const RESULT_BYTES_MAX: usize = 256 << 10;
/// Where no age rule applies.
const ALWAYS: (i64, i64) = (i64::MIN, i64::MAX);

/// The row cache of a server.
pub struct RowCache {
    env: Env,
    /// The key's hash picks one.
    shards: Box<[Shard]>,
    stripes: Box<[Stripe]>,
    /// Constant: a cache that could be switched on later would not know of writes on their way.
    enabled: bool,
    profile: OnceLock<Profile>,
    /// Of misses, those whose number has none of these bits get a chance to be kept: all, or one in eight.
    chance: AtomicU64,
}

/// Aligned, so that neighbours do not slow each other down.
#[repr(align(128))]
struct Shard {
    holds: Holds,
    /// Lookups that found a shard without rows, and did not take its lock; roughly.
    missed: AtomicU64,
    rows: Mutex<S3Fifo<RowKey, CachedRow>>,
}

/// Which row of which tablet, as a hash; a collision is noticed at a hit, and costs too much forgotten at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey(u64);

impl CacheKey for RowKey {
    fn hash64(self) -> u64 {
        self.0
    }
}

impl RowKey {
    pub(crate) fn new(tablet: TabletId, row: &[u8]) -> Self {
        RowKey(xxh3_64_with_seed(row, tablet.0))
    }

    fn shard(self) -> usize {
        (self.0 >> 40) as usize % SHARDS
    }

    fn stripe(self) -> usize {
        (self.0 >> 46) as usize % STRIPES
    }
}

/// A read of a single row that may be in the cache.
pub(crate) struct RowRead<'a> {
    pub tablet: TabletId,
    /// The tablet's at the beginning of the read.
    pub schema: SchemaMark,
    pub row: &'a [u8],
    pub filter: Option<&'a Arc<Filter>>,
}

/// The outcome of a lookup.
pub(crate) enum Lookup {
    /// The result.
    Hit(Kept),
    /// Nothing; the result may be worth keeping.
    Miss(Reading),
    /// Nothing, and the result cannot be kept.
    Uncached,
}

/// A read in flight. Must be made before the read takes its snapshot. It has only the hashes of row and filter: most
/// readings come to nothing, and a caller that installs one has both.
pub(crate) struct Reading {
    key: RowKey,
    shape: Shape,
    schema: SchemaMark,
    /// Wall-clock microseconds before the read; 0 when no rule asks for it.
    began_micros: i64,
    /// Writes of the stripe that had begun.
    begun: u64,
    /// Whether the profile waits for it.
    sampled: bool,
}

/// Keeps rows out of the cache while a write to them becomes visible.
pub(crate) struct Writing {
    cache: Arc<RowCache>,
    keys: Vec<RowKey>,
}

/// Keeps everything out of the cache while rows of a tablet are dropped, or the tablet comes back.
pub(crate) struct Clearing<'a> {
    cache: &'a RowCache,
}

impl RowCache {
    /// An empty cache; a capacity of 0 switches it off for good.
    pub(crate) fn new(env: Env, capacity_bytes: usize) -> Arc<Self> {
        let shard = || Shard {
            holds: Holds::default(),
            missed: AtomicU64::new(0),
            rows: Mutex::new(S3Fifo::new(capacity_bytes / SHARDS, Admission::Returning)),
        };
        Arc::new(RowCache {
            env,
            shards: (0..SHARDS).map(|_| shard()).collect(),
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            enabled: capacity_bytes > 0,
            profile: OnceLock::new(),
            chance: AtomicU64::new(0),
        })
    }

    /// Begins to estimate the effect of other capacities.
    pub(crate) fn start_profile(&self, plan: &ProfilePlan) {
        let _ = self.profile.set(Profile::new(plan, Admission::Returning));
    }

    /// The counts of other capacities.
    pub(crate) fn profile(&self) -> Option<ProfileCounts> {
        Some(self.profile.get()?.counts())
    }

    /// Changes the capacity. Does nothing to a cache that is off.
    pub(crate) fn set_capacity(&self, capacity_bytes: usize) {
        if self.enabled {
            for shard in &self.shards {
                shard.change(|rows| rows.set_share(capacity_bytes / SHARDS));
            }
        }
    }

    /// Has the cache take less trouble while it does not help: reads all over a large table would only be remembered and
    /// forgotten again. One in eight, and all that are sampled, still have their chance, so that it finds out when it
    /// would help again.
    pub(crate) fn set_helpful(&self, helpful: bool) {
        self.chance.store(if helpful { 0 } else { 7 }, Ordering::Relaxed);
    }

    /// Counters and fill. A hit of the row that is none of the filter counts as a hit.
    pub(crate) fn stats(&self) -> CacheStats {
        let mut sum = CacheStats::default();
        for shard in &self.shards {
            shard.rows.lock().add_stats(&mut sum);
            sum.misses += shard.missed.load(Ordering::Relaxed);
        }
        sum
    }

    /// The result of a read, or the right to install it when it has been found elsewhere. The clock is asked only where
    /// age rules make a difference.
    pub(crate) fn lookup(&self, read: &RowRead<'_>, now_micros: impl Fn() -> i64) -> Lookup {
        if !self.enabled || !read.schema.row_cache() {
            return Lookup::Uncached;
        }
        let Some(shape) = Shape::of(read.filter.map(|f| &**f)) else {
            return Lookup::Uncached;
        };
        let key = RowKey::new(read.tablet, read.row);
        let shard = &self.shards[key.shard()];
        // A row that is installed at this moment is as good as installed a moment later.
        let number = if shard.holds.any() {
            match shard.find(key, read, shape.hash, &now_micros) {
                Ok((kept, charge)) => {
                    if let Some(profile) = self.sampled(key) {
                        profile.accessed(key.0, charge.saturating_sub(ENTRY_OVERHEAD_BYTES));
                    }
                    return Lookup::Hit(kept);
                }
                Err(number) => number,
            }
        } else {
            // Not in one step: a count that gets lost costs less than an atomic addition for every read of a row.
            let number = shard.missed.load(Ordering::Relaxed);
            shard.missed.store(number + 1, Ordering::Relaxed);
            number
        };
        let sampled = self.sampled(key);
        if number & self.chance.load(Ordering::Relaxed) != 0 && sampled.is_none() {
            return Lookup::Uncached;
        }
        let Some(reading) = self.begin_reading(read, key, shape, now_micros) else {
            return Lookup::Uncached;
        };
        if let Some(profile) = sampled {
            profile.missed(key.0, self.env.now());
        }
        Lookup::Miss(reading)
    }

    /// The right to install the result of a read, for one that has looked it up a moment ago in vain and begins only now. It
    /// is not looked up again, nor counted.
    pub(crate) fn reading(&self, read: &RowRead<'_>, now_micros: impl Fn() -> i64) -> Option<Reading> {
        if !self.enabled || !read.schema.row_cache() {
            return None;
        }
        let shape = Shape::of(read.filter.map(|f| &**f))?;
        self.begin_reading(read, RowKey::new(read.tablet, read.row), shape, now_micros)
    }

    fn begin_reading(
        &self,
        read: &RowRead<'_>,
        key: RowKey,
        shape: Shape,
        now_micros: impl Fn() -> i64,
    ) -> Option<Reading> {
        Some(Reading {
            key,
            shape,
            schema: read.schema,
            began_micros: if read.schema.has_ages() { now_micros() } else { 0 },
            begun: self.stripes[key.stripe()].quiet()?,
            sampled: self.sampled(key).is_some(),
        })
    }

    /// Caches the result of a reading, if nothing has happened to the row since, and the row is read again and again.
    /// `read` is the looked up read, but for the schema, which is the tablet's now: the result was made under it if
    /// it has not changed. The whole schema is asked for where age rules make a difference.
    pub(crate) fn install(
        &self,
        reading: Reading,
        read: &RowRead<'_>,
        batch: &RowBatch,
        schema: impl FnOnce() -> Arc<TableSchema>,
        now_micros: impl Fn() -> i64,
    ) {
        let key = reading.key;
        let bytes = kept::weight(read.row, batch) + reading.shape.bytes;
        if reading.sampled
            && let Some(profile) = self.sampled(key)
        {
            profile.loaded(key.0, bytes, self.env.now());
        }
        if read.schema != reading.schema || bytes > RESULT_BYTES_MAX || batch.unstable {
            return;
        }
        let shard = &self.shards[key.shard()];
        if !shard.rows.lock().admits(key, bytes) {
            return;
        }
        let Some(valid) = validity(&reading, batch, schema, now_micros) else {
            return;
        };
        let of = Provenance {
            tablet: read.tablet,
            row: read.row,
            schema: reading.schema,
            shape: reading.shape.hash,
            filter: read.filter,
            filter_bytes: reading.shape.bytes,
            valid,
        };
        let Some(variant) = Variant::new(&of, batch) else {
            return;
        };
        shard.change(|rows| {
            // Before the count is asked for: see the file's header.
            shard.holds.set(true);
            let still = self.stripes[key.stripe()].is_still(reading.begun);
            if !still && !self.env.planted(PlantedBug::StaleRow) {
                return Vec::new();
            }
            let row = CachedRow::with(rows.peek(key), variant);
            let weight = row.bytes();
            rows.insert(key, row, weight)
        });
    }

    /// The keys of rows about to be written, for [`RowCache::writing`].
    pub(crate) fn keys<'a>(&self, tablet: TabletId, rows: impl Iterator<Item = &'a [u8]>) -> Vec<RowKey> {
        if self.enabled {
            rows.map(|row| RowKey::new(tablet, row)).collect()
        } else {
            Vec::new()
        }
    }

    /// A write to these rows becomes visible while the guard lives. Taken before, dropped after, and before the write is
    /// acknowledged.
    pub(crate) fn writing(self: &Arc<Self>, keys: Vec<RowKey>) -> Writing {
        for key in &keys {
            self.stripes[key.stripe()].begin();
            let shard = &self.shards[key.shard()];
            // After the beginning: see the file's header.
            if shard.holds.any() {
                shard.change(|rows| rows.remove(*key).into_iter().collect());
            }
        }
        Writing {
            cache: self.clone(),
            keys,
        }
    }

    /// Rows of a tablet vanish without a write while the guard lives.
    pub(crate) fn clearing(&self, tablet: TabletId) -> Clearing<'_> {
        self.stripes.iter().for_each(Stripe::begin);
        for shard in &self.shards {
            shard.change(|rows| rows.remove_all(|_, row| row.tablet() == tablet));
        }
        Clearing { cache: self }
    }

    fn sampled(&self, key: RowKey) -> Option<&Profile> {
        self.profile.get().filter(|profile| profile.samples(key.0))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        for key in &self.keys {
            self.cache.stripes[key.stripe()].end();
        }
    }
}

impl Drop for Clearing<'_> {
    fn drop(&mut self) {
        self.cache.stripes.iter().for_each(Stripe::end);
    }
}

impl Shard {
    /// The result of a read and the charge of its row, or how many reads have missed before.
    fn find(
        &self,
        key: RowKey,
        read: &RowRead<'_>,
        shape: u64,
        now_micros: &impl Fn() -> i64,
    ) -> Result<(Kept, usize), u64> {
        let mut rows = self.rows.lock();
        let misses = rows.misses();
        let found = rows
            .get_hashed(key, key.0)
            .and_then(|(row, charge)| Some((row.find(read, shape, now_micros)?, charge)));
        drop(rows);
        found.ok_or(misses)
    }

    /// Changes the rows under the lock, and drops the rows that `change` removes after it.
    fn change(&self, change: impl FnOnce(&mut S3Fifo<RowKey, CachedRow>) -> Vec<CachedRow>) {
        let mut rows = self.rows.lock();
        let dropped = change(&mut rows);
        if rows.is_empty() {
            self.holds.set(false);
        }
        debug_assert!(
            rows.is_empty() || self.holds.any(),
            "a shard says that it has rows before it has one, or writers would leave them"
        );
        drop(rows);
        drop(dropped);
    }
}

/// The time around now in which no age rule changes the result; `None` when that cannot be told.
fn validity(
    reading: &Reading,
    batch: &RowBatch,
    schema: impl FnOnce() -> Arc<TableSchema>,
    now_micros: impl Fn() -> i64,
) -> Option<(i64, i64)> {
    if !reading.schema.has_ages() {
        return Some(ALWAYS);
    }
    if !reading.shape.by_cell {
        // The result may depend on cells that are not in it.
        return None;
    }
    let schema = schema();
    if !reading.schema.is_of(&schema) {
        return None;
    }
    let rule_of = |cell: &Cell| schema.families.get(&cell.family).and_then(|f| f.gc_rule.as_ref());
    let now_micros = now_micros();
    // The read looked at the clock at some time in between.
    let (from, earliest) = (
        now_micros.max(reading.began_micros),
        now_micros.min(reading.began_micros),
    );
    let cells = batch.rows().flat_map(|(_, cells)| cells);
    let changes = cells.filter_map(|cell| {
        let written = schema.time_unit.to_micros_saturating(cell.timestamp);
        rule_of(cell)?.next_change(written, earliest)
    });
    let until = changes.min().unwrap_or(i64::MAX);
    (from <= until).then_some((from, until))
}

#[cfg(test)]
mod tests;
