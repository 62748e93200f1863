//! Block cache: sharded, byte-weighted, scan-resistant.
//!
//! It holds decoded blocks by (file, offset). Replacement is S3-FIFO (Yang et al., SOSP 2023), per shard:
//!
//! * The *small* queue takes new entries, about a tenth of the bytes. Entries that are not read again leave from here,
//!   so a scan of any length displaces at most that tenth.
//! * The *main* queue holds entries that proved useful. An entry at its end that was used goes round again.
//! * The *ghost* queue remembers the keys (not values) of entries that left the small queue. When one is inserted
//!   again, it goes to main directly. Ghost hits tell a memory governor the value of more capacity.
//!
//! While hardly any entry of the small queue is read again, most new entries that are cheap to load again are not worth
//! caching ([`BlockCache::is_worth_keeping`]).
//!
//! Invariants:
//! * The charged bytes of a shard never exceed its share, `capacity / shards`, also not between two calls.
//! * Charged bytes are the given weight plus [`ENTRY_OVERHEAD_BYTES`], so tiny entries cannot grow it without bound.
//! * An entry that exceeds the share is not admitted.
//!
//! [`Profile`] simulates other capacities; [`S3Fifo`] is the policy by itself, for caches of other things.
#![forbid(unsafe_code)]

mod policy;
mod profile;
mod stats;

use parking_lot::Mutex;
pub use policy::{Admission, CacheKey, S3Fifo};
pub use profile::{Profile, ProfileCounts, ProfilePlan};
pub use stats::{CacheStats, ENTRY_OVERHEAD_BYTES};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Enough that two dozen cores rarely meet on one lock, few enough that a 64 MB cache still admits 4 MB blocks.
const SHARDS: usize = 16;

/// A block that takes more than a shard's share divided by this is bulky. Three that are not fit into the small queue.
const BULKY_FRACTION: usize = 32;

/// The key of a block. File ids are unique within one data root and files are immutable, so an entry is never stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockKey {
    /// The file's id.
    pub file: u64,
    /// The block's offset in the file.
    pub offset: u64,
}

impl CacheKey for BlockKey {
    /// Mixes both halves (the finalizer of MurmurHash3); file ids and offsets are not chosen by an adversary.
    fn hash64(self) -> u64 {
        let mut h = self.file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.offset;
        h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        h ^ (h >> 33)
    }
}

/// Monotonic time since an arbitrary origin.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// A concurrent cache of cheaply clonable values.
pub struct BlockCache<V> {
    /// Power of two in number; the key's hash selects one.
    shards: Box<[Mutex<S3Fifo<BlockKey, V>>]>,
    /// Set once, when profiling begins.
    profile: OnceLock<(Profile, Clock)>,
}

impl<V> std::fmt::Debug for BlockCache<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache")
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}

impl<V: Clone> BlockCache<V> {
    /// An empty cache. A capacity of 0 admits nothing.
    pub fn new(capacity_bytes: usize) -> Self {
        Self::with_shards(capacity_bytes, SHARDS)
    }

    /// An empty cache of a given number of shards, rounded up to a power of two.
    pub fn with_shards(capacity_bytes: usize, shards: usize) -> Self {
        let shards = shards.clamp(1, 1 << 16).next_power_of_two();
        debug_assert!(shards.is_power_of_two(), "a mask of the hash selects a shard");
        let share = capacity_bytes / shards;
        BlockCache {
            shards: (0..shards)
                .map(|_| Mutex::new(S3Fifo::new(share, Admission::Probation)))
                .collect(),
            profile: OnceLock::new(),
        }
    }

    /// Begins to simulate other capacities. `clock` times the loading of missing blocks. Only the first call has an
    /// effect.
    pub fn start_profile(&self, plan: &ProfilePlan, clock: Clock) {
        let _ = self.profile.set((Profile::new(plan, Admission::Probation), clock));
    }

    /// The results of the simulation; `None` before it began.
    pub fn profile(&self) -> Option<ProfileCounts> {
        Some(self.profile.get()?.0.counts())
    }

    /// The block, if it is cached.
    pub fn get(&self, key: &BlockKey) -> Option<V> {
        let hash = key.hash64();
        let mut shard = self.shard(hash).lock();
        let found = shard
            .get_hashed(*key, hash)
            .map(|(value, charge)| (value.clone(), charge));
        drop(shard);
        if let Some((profile, clock)) = self.profile.get()
            && profile.samples(hash)
        {
            match &found {
                Some((_, charge)) => profile.accessed(hash, charge.saturating_sub(ENTRY_OVERHEAD_BYTES)),
                None => profile.missed(hash, clock()),
            }
        }
        found.map(|(value, _)| value)
    }

    /// The block, if it is cached, without counting as a use. For readers that predict no further reads, such as a
    /// compaction that will make the file obsolete.
    pub fn peek(&self, key: &BlockKey) -> Option<V> {
        self.shard(key.hash64()).lock().peek(*key).cloned()
    }

    /// Whether the block is cached, without counting as a use.
    pub fn contains(&self, key: &BlockKey) -> bool {
        self.shard(key.hash64()).lock().peek(*key).is_some()
    }

    /// Whether a block is so large that it would displace many others: more than a 32nd of its shard.
    pub fn is_bulky(&self, key: &BlockKey, weight: usize) -> bool {
        weight > self.shard(key.hash64()).lock().share() / BULKY_FRACTION
    }

    /// Whether a block that takes `weight` bytes would evict no other.
    pub fn has_space(&self, key: &BlockKey, weight: usize) -> bool {
        self.shard(key.hash64()).lock().has_space_for(weight)
    }

    /// Whether to insert a block that [`BlockCache::get`] did not find and that was read without waiting. False while
    /// hardly any block is read again during its time in the cache. The caller then uses its copy and calls
    /// [`BlockCache::had`].
    pub fn is_worth_keeping(&self, key: BlockKey, weight: usize) -> bool {
        self.shard(key.hash64()).lock().is_worth_keeping(key, weight)
    }

    /// Reports a block that `get` did not find and that was read but not inserted.
    pub fn had(&self, key: BlockKey, weight: usize) {
        self.note_loaded(key.hash64(), weight);
    }

    /// Inserts `value`, which takes `weight` bytes, if it fits. Replaces an older value of the key.
    pub fn insert(&self, key: BlockKey, value: V, weight: usize) {
        self.insert_ahead(key, value, weight);
        self.note_loaded(key.hash64(), weight);
    }

    /// Inserts a block that nobody has asked for yet. It is no access, by which the profile would judge the capacity.
    pub fn insert_ahead(&self, key: BlockKey, value: V, weight: usize) {
        self.insert_with(key, |shard| shard.insert(key, value, weight));
    }

    /// Inserts a block with priority over all other blocks, as long as it fits: such blocks take at most three quarters
    /// of the capacity.
    pub fn insert_kept(&self, key: BlockKey, value: V, weight: usize) {
        self.insert_with(key, |shard| shard.insert_kept(key, value, weight));
        self.note_loaded(key.hash64(), weight);
    }

    /// Bytes that retained blocks may still take.
    pub fn retained_space(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().retained_space()).sum()
    }

    fn insert_with(&self, key: BlockKey, insert: impl FnOnce(&mut S3Fifo<BlockKey, V>) -> Vec<V>) {
        // Values are dropped after the lock: freeing a block may return memory to the system.
        let dropped = insert(&mut self.shard(key.hash64()).lock());
        drop(dropped);
    }

    fn note_loaded(&self, hash: u64, weight: usize) {
        if let Some((profile, clock)) = self.profile.get()
            && profile.samples(hash)
        {
            profile.loaded(hash, weight, clock());
        }
    }

    /// Changes the capacity, and evicts immediately when it shrinks.
    pub fn set_capacity(&self, capacity_bytes: usize) {
        let share = capacity_bytes / self.shards.len();
        for shard in &self.shards {
            let dropped = shard.lock().set_share(share);
            drop(dropped);
        }
    }

    /// Drops all blocks of a file. Walks the whole cache: for deleted files, not for the read path.
    pub fn remove_file(&self, file: u64) {
        for shard in &self.shards {
            let dropped = shard.lock().remove_all(|key, _| key.file == file);
            drop(dropped);
        }
    }

    /// Counters, summed over the shards one after the other (so not of one instant).
    pub fn stats(&self) -> CacheStats {
        let mut sum = CacheStats::default();
        for shard in &self.shards {
            shard.lock().add_stats(&mut sum);
        }
        sum
    }

    fn shard(&self, hash: u64) -> &Mutex<S3Fifo<BlockKey, V>> {
        // The map within a shard uses the lowest and highest bits; this takes some in between.
        let mask = self.shards.len() - 1;
        &self.shards[(hash >> 40) as usize & mask]
    }
}

#[cfg(test)]
mod tests;
