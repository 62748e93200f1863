//! Row cache: the results of reads of single rows that are asked for again and again (Hypertable's query cache).
//!
//! Terms: a *variant* is the result of one row under one filter; the variants of a row are kept and forgotten together. A
//! *reading* is a read on its way that may become a variant.
//!
//! Consistency. A hit must be what a read of the tablet would give at that moment. Rows share *stripes* by hash; a stripe
//! counts the writes that have begun to apply, and those that have not finished. A write announces itself before it becomes
//! visible ([`RowCache::writing`]): that takes the row's variants out and raises the count. A reading notes the count before
//! it takes its snapshot, provided that no write is in progress, and is installed only if the count is still the same.
//! So a reading that began before a write's end is never installed after that write's beginning.
//!
//! What changes without a write: the schema (a variant belongs to one version of it), age rules (a variant says how long
//! none of them applies, and is of no use at other times, also when the clock is set back), and rows dropped by range
//! ([`RowCache::clearing`]). Ids of tablets are not used again, so what is left of a closed tablet is merely garbage that
//! newer rows push out.
//!
//! Invariants:
//! * A variant holds memory of its own: a slice of a block would keep the whole block from being freed.
//! * Scans, raw reads and filters that draw lots are never cached; a row is cached when it is read the second time.
//! * Charged bytes never exceed the capacity.

mod shape;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use stele_cache::{Admission, CacheKey, CacheStats, Profile, ProfileCounts, ProfilePlan, S3Fifo};
use stele_env::{Env, PlantedBug};
use stele_filter::Filter;
use stele_types::{Cell, RowBatch, TableSchema, TabletId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use shape::Shape;

/// Enough that two dozen cores rarely meet on one lock.
const SHARDS: usize = 64;
/// Per shard: 2,048 in all, so that a write rarely spoils a reading of another row.
const STRIPES: usize = 32;
/// Filters under which one row is kept. Applications read a row in few ways.
const VARIANTS_MAX: usize = 4;
/// Largest result worth a place: copying more costs more than finding it again.
const RESULT_BYTES_MAX: usize = 256 << 10;
/// Charged for a variant beyond its cells: the variant itself and the vectors' headers.
const VARIANT_BYTES: usize = size_of::<Variant>() + 64;

/// The row cache of a server.
pub struct RowCache {
    env: Env,
    /// The key's hash picks one.
    shards: Box<[Mutex<Shard>]>,
    /// Constant: a cache that could be switched on later would not know of writes on their way.
    enabled: bool,
    profile: OnceLock<Profile>,
    /// Of misses, those whose number has none of these bits get a chance to be kept: all, or one in eight.
    chance: AtomicU64,
}

struct Shard {
    rows: S3Fifo<RowKey, Arc<CachedRow>>,
    misses: u64,
    stripes: [Stripe; STRIPES],
}

#[derive(Clone, Copy, Default)]
struct Stripe {
    /// Writes that have begun to apply.
    begun: u64,
    /// Those that have not finished.
    in_progress: u32,
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

struct CachedRow {
    tablet: TabletId,
    row: Bytes,
    /// Oldest first; at most [`VARIANTS_MAX`].
    variants: Vec<Variant>,
}

#[derive(Clone)]
struct Variant {
    shape: u64,
    filter: Option<Arc<Filter>>,
    schema_version: u64,
    /// Wall-clock microseconds between which no age rule changes the result.
    valid: (i64, i64),
    batch: RowBatch,
    bytes: usize,
}

/// A read of a single row that may be in the cache.
pub(crate) struct RowRead<'a> {
    pub tablet: TabletId,
    pub schema: &'a TableSchema,
    pub row: &'a Bytes,
    pub filter: Option<&'a Arc<Filter>>,
}

/// What a lookup found.
pub(crate) enum Lookup {
    /// The result.
    Hit(RowBatch),
    /// Nothing; the result may be worth keeping.
    Miss(Reading),
    /// Nothing, and the result cannot be kept.
    Uncached,
}

/// A read on its way. Must be made before the read takes its snapshot.
pub(crate) struct Reading {
    key: RowKey,
    tablet: TabletId,
    row: Bytes,
    filter: Option<Arc<Filter>>,
    shape: Shape,
    schema_version: u64,
    /// Wall-clock microseconds before the read.
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

/// Keeps everything out of the cache while rows of a tablet are dropped.
pub(crate) struct Clearing<'a> {
    cache: &'a RowCache,
    tablet: TabletId,
}

impl RowCache {
    /// An empty cache; a capacity of 0 switches it off for good.
    pub(crate) fn new(env: Env, capacity_bytes: usize) -> Arc<Self> {
        let shard = || Shard {
            rows: S3Fifo::new(capacity_bytes / SHARDS, Admission::Returning),
            misses: 0,
            stripes: [Stripe::default(); STRIPES],
        };
        Arc::new(RowCache {
            env,
            shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(),
            enabled: capacity_bytes > 0,
            profile: OnceLock::new(),
            chance: AtomicU64::new(0),
        })
    }

    /// Begins to find out what other capacities would do.
    pub(crate) fn start_profile(&self, plan: &ProfilePlan) {
        let _ = self.profile.set(Profile::new(plan, Admission::Returning));
    }

    /// What has been found out about other capacities.
    pub(crate) fn profile(&self) -> Option<ProfileCounts> {
        Some(self.profile.get()?.counts())
    }

    /// Changes the capacity. Does nothing to a cache that is off.
    pub(crate) fn set_capacity(&self, capacity_bytes: usize) {
        if self.enabled {
            for shard in &self.shards {
                let dropped = shard.lock().rows.set_share(capacity_bytes / SHARDS);
                drop(dropped);
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
        self.shards
            .iter()
            .for_each(|shard| shard.lock().rows.add_stats(&mut sum));
        sum
    }

    /// The result of a read, or the right to install it when it has been found elsewhere.
    pub(crate) fn lookup(&self, read: &RowRead<'_>, now_micros: i64) -> Lookup {
        if !self.enabled || !read.schema.row_cache {
            return Lookup::Uncached;
        }
        let Some(shape) = Shape::of(read.filter.map(|f| &**f)) else {
            return Lookup::Uncached;
        };
        let key = RowKey::new(read.tablet, read.row);
        let (found, stripe, number) = {
            let mut shard = self.shards[key.shard()].lock();
            let found = shard
                .rows
                .get_hashed(key, key.0)
                .map(|(row, charge)| (row.clone(), charge));
            shard.misses += u64::from(found.is_none());
            (found, shard.stripes[key.stripe()], shard.misses)
        };
        if let Some((row, charge)) = found
            && let Some(variant) = row.find(read, shape.hash, now_micros)
        {
            if let Some(profile) = self.sampled(key) {
                profile.accessed(key.0, charge);
            }
            return Lookup::Hit(variant.batch.clone());
        }
        let sampled = self.sampled(key);
        let has_chance = number & self.chance.load(Ordering::Relaxed) == 0 || sampled.is_some();
        if stripe.in_progress > 0 || !has_chance {
            return Lookup::Uncached;
        }
        if let Some(profile) = sampled {
            profile.missed(key.0, self.env.now());
        }
        Lookup::Miss(Reading {
            key,
            tablet: read.tablet,
            row: read.row.clone(),
            filter: read.filter.cloned(),
            shape,
            schema_version: read.schema.version,
            began_micros: now_micros,
            begun: stripe.begun,
            sampled: sampled.is_some(),
        })
    }

    /// Keeps the result of a reading, if nothing has happened to the row since, and the row is read again and again.
    /// `schema` is the tablet's now, which the result was made under if its version has not changed.
    pub(crate) fn install(&self, reading: Reading, batch: &RowBatch, schema: &TableSchema, now_micros: i64) {
        let bytes = weigh(&reading, batch);
        if reading.sampled
            && let Some(profile) = self.sampled(reading.key)
        {
            profile.loaded(reading.key.0, bytes, self.env.now());
        }
        if schema.version != reading.schema_version || !schema.row_cache || bytes > RESULT_BYTES_MAX {
            return;
        }
        let shard = &self.shards[reading.key.shard()];
        if !shard.lock().rows.admits(reading.key, bytes) {
            return;
        }
        let Some(valid) = validity(&reading, batch, schema, now_micros) else {
            return;
        };
        let (key, begun) = (reading.key, reading.begun);
        let variant = Variant {
            shape: reading.shape.hash,
            filter: reading.filter,
            schema_version: reading.schema_version,
            valid,
            batch: own_memory(batch),
            bytes,
        };
        let mut guard = shard.lock();
        let stripe = guard.stripes[key.stripe()];
        // Nothing was in progress when the count was noted, so nothing is now either.
        if stripe.begun != begun && !self.env.planted(PlantedBug::StaleRow) {
            return;
        }
        let row = CachedRow::with(guard.rows.peek(key), reading.tablet, reading.row, variant);
        let weight = row.bytes();
        let dropped = guard.rows.insert(key, Arc::new(row), weight);
        drop(guard);
        drop(dropped);
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
            let mut shard = self.shards[key.shard()].lock();
            let stripe = &mut shard.stripes[key.stripe()];
            stripe.begun += 1;
            stripe.in_progress += 1;
            let dropped = if shard.rows.is_empty() {
                None
            } else {
                shard.rows.remove(*key)
            };
            drop(shard);
            drop(dropped);
        }
        Writing {
            cache: self.clone(),
            keys,
        }
    }

    /// Rows of a tablet vanish without a write while the guard lives.
    pub(crate) fn clearing(&self, tablet: TabletId) -> Clearing<'_> {
        self.clear(tablet, |stripe| {
            stripe.begun += 1;
            stripe.in_progress += 1;
        });
        Clearing { cache: self, tablet }
    }

    fn clear(&self, tablet: TabletId, change: impl Fn(&mut Stripe)) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.stripes.iter_mut().for_each(&change);
            let dropped = shard.rows.remove_all(|_, row| row.tablet == tablet);
            drop(shard);
            drop(dropped);
        }
    }

    fn sampled(&self, key: RowKey) -> Option<&Profile> {
        self.profile.get().filter(|profile| profile.samples(key.0))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        for key in &self.keys {
            self.cache.shards[key.shard()].lock().stripes[key.stripe()].in_progress -= 1;
        }
    }
}

impl Drop for Clearing<'_> {
    fn drop(&mut self) {
        self.cache.clear(self.tablet, |stripe| stripe.in_progress -= 1);
    }
}

impl CachedRow {
    fn find(&self, read: &RowRead<'_>, shape: u64, now_micros: i64) -> Option<&Variant> {
        if self.tablet != read.tablet || self.row != *read.row {
            return None;
        }
        self.variants.iter().find(|v| {
            v.shape == shape
                && v.schema_version == read.schema.version
                && v.valid.0 <= now_micros
                && now_micros <= v.valid.1
                && same_filter(v.filter.as_ref(), read.filter)
        })
    }

    /// The row with one more variant, in place of an older one of the same shape or schema.
    fn with(before: Option<&Arc<CachedRow>>, tablet: TabletId, row: Bytes, variant: Variant) -> CachedRow {
        let mut variants: Vec<Variant> = match before {
            Some(before) if before.tablet == tablet && before.row == row => before
                .variants
                .iter()
                .filter(|v| v.schema_version == variant.schema_version && v.shape != variant.shape)
                .cloned()
                .collect(),
            _ => Vec::new(),
        };
        if variants.len() >= VARIANTS_MAX {
            variants.remove(0);
        }
        variants.push(variant);
        // The row as one variant holds it would keep the request's memory.
        let row = Bytes::copy_from_slice(&row);
        CachedRow { tablet, row, variants }
    }

    fn bytes(&self) -> usize {
        size_of::<CachedRow>() + self.row.len() + self.variants.iter().map(|v| v.bytes).sum::<usize>()
    }
}

fn same_filter(a: Option<&Arc<Filter>>, b: Option<&Arc<Filter>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
        _ => false,
    }
}

/// Bytes a variant of this result would hold on to.
fn weigh(reading: &Reading, batch: &RowBatch) -> usize {
    let rows = batch.rows();
    let content: usize = rows
        .map(|(row, cells)| row.len() + cells.iter().map(Cell::weight).sum::<usize>())
        .sum();
    VARIANT_BYTES + content + reading.shape.bytes
}

/// The time around now in which no age rule changes the result; `None` when that cannot be told.
fn validity(reading: &Reading, batch: &RowBatch, schema: &TableSchema, now_micros: i64) -> Option<(i64, i64)> {
    let rule_of = |cell: &Cell| schema.families.get(&cell.family).and_then(|f| f.gc_rule.as_ref());
    let ages = schema.families.values().filter_map(|f| f.gc_rule.as_ref());
    if !ages.into_iter().any(|rule| rule.has_age()) {
        return Some((i64::MIN, i64::MAX));
    }
    if !reading.shape.by_cell {
        // Cells that are not in the result may decide what is.
        return None;
    }
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

/// The same result in one piece of memory of its own.
fn own_memory(batch: &RowBatch) -> RowBatch {
    let parts = |cells: &[Cell]| cells.iter().map(|c| c.qualifier.len() + c.value.len()).sum::<usize>();
    let through = batch.scanned_through.as_ref().map_or(0, Bytes::len);
    let mut memory = BytesMut::with_capacity(through + batch.rows().map(|(_, cells)| parts(cells)).sum::<usize>());
    for cell in batch.rows().flat_map(|(_, cells)| cells) {
        memory.extend_from_slice(&cell.qualifier);
        memory.extend_from_slice(&cell.value);
    }
    memory.extend_from_slice(batch.scanned_through.as_deref().unwrap_or_default());
    let mut memory = memory.freeze();
    let mut next = |like: &Bytes| memory.split_to(like.len());
    let mut own = RowBatch::default();
    for (row, cells) in batch.rows() {
        let cells = cells.iter().map(|cell| Cell {
            qualifier: next(&cell.qualifier),
            value: next(&cell.value),
            ..cell.clone()
        });
        own.push_row(row, cells.collect::<Vec<_>>());
    }
    own.seal();
    own.scanned_through = batch.scanned_through.as_ref().map(&mut next);
    own.seen = batch.seen;
    own
}

#[cfg(test)]
mod tests;
