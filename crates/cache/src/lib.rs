//! Block cache: sharded, byte-weighted, scan-resistant.
//!
//! Holds decoded blocks by (file, offset). Replacement is S3-FIFO (Yang et al., SOSP 2023), per shard:
//!
//! * a *small* queue takes what is new, about a tenth of the bytes; what nobody asks for again leaves from here, so a
//!   scan of any length displaces at most that tenth;
//! * the *main* queue holds what proved useful; on the way out an entry that was used goes round again;
//! * the *ghost* queue remembers keys (not values) that left the small queue; when one of them comes back it goes to
//!   main at once. Ghost hits tell a memory governor what more capacity would be worth.
//!
//! As long as next to nothing in the small queue is asked for again, most of what is new and cheap to have again is not
//! worth keeping ([`BlockCache::is_worth_keeping`]).
//!
//! Invariants:
//! * The charged bytes of a shard never exceed its share, `capacity / shards`, also not between two calls.
//! * Charged bytes are the given weight plus [`ENTRY_OVERHEAD_BYTES`], so tiny entries cannot grow it without bound.
//! * An entry that exceeds the share is not admitted.
#![forbid(unsafe_code)]

//!
//! [`Profile`] says what other capacities would have done; [`S3Fifo`] is the policy by itself, for caches of other things.

mod policy;
mod profile;

use parking_lot::Mutex;
pub use policy::{Admission, CacheKey, S3Fifo};
pub use profile::{Profile, ProfileCounts, ProfilePlan};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Charged on top of an entry's weight: slot, queue position, map entry and the value's own header.
pub const ENTRY_OVERHEAD_BYTES: usize = 128;

/// Enough that two dozen cores rarely meet on one lock, few enough that a 64 MB cache still admits 4 MB blocks.
const SHARDS: usize = 16;

/// Which block: file ids are unique within one data root and files are immutable, so an entry is never stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockKey {
    /// The file's id.
    pub file: u64,
    /// Where the block begins in the file.
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

/// Counters since creation, and the current fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// `get` found it.
    pub hits: u64,
    /// `get` did not.
    pub misses: u64,
    /// Inserted keys that had left the small queue not long ago: hits a larger cache would have had.
    pub ghost_hits: u64,
    /// Blocks that were not worth keeping.
    pub turned_away: u64,
    /// Bytes charged by insertions.
    pub inserted_bytes: u64,
    /// Bytes released by replacement, shrinking, and removal.
    pub evicted_bytes: u64,
    /// Bytes charged now.
    pub used_bytes: u64,
    /// Bytes of them that are charged for what is to be kept.
    pub kept_bytes: u64,
    /// Bytes allowed.
    pub capacity: u64,
    /// Entries now.
    pub entries: u64,
}

/// Monotonic time since an arbitrary origin.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// A concurrent cache of cheaply clonable values.
pub struct BlockCache<V> {
    /// Power of two in number; the key's hash picks one.
    shards: Box<[Mutex<S3Fifo<BlockKey, V>>]>,
    /// Set once, when somebody wants to know what other capacities would do.
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
        let share = capacity_bytes / shards;
        BlockCache {
            shards: (0..shards)
                .map(|_| Mutex::new(S3Fifo::new(share, Admission::Probation)))
                .collect(),
            profile: OnceLock::new(),
        }
    }

    /// Begins to find out what other capacities would do; `clock` times how long missing blocks take to come. The first
    /// call counts.
    pub fn start_profile(&self, plan: &ProfilePlan, clock: Clock) {
        let _ = self.profile.set((Profile::new(plan, Admission::Probation), clock));
    }

    /// What has been found out about other capacities, if anybody wanted to know.
    pub fn profile(&self) -> Option<ProfileCounts> {
        Some(self.profile.get()?.0.counts())
    }

    /// The block, when it is here.
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

    /// The block, when it is here, without counting as a use: for readers whose interest says nothing about the future,
    /// such as a compaction that is about to make the file obsolete.
    pub fn peek(&self, key: &BlockKey) -> Option<V> {
        self.shard(key.hash64()).lock().peek(*key).cloned()
    }

    /// Whether a block that did not have to be waited for is to be inserted after all, now that [`BlockCache::get`] has not found it:
    /// not where hardly any is asked for again while it is here. The caller has it all the same, and says so by
    /// [`BlockCache::had`].
    pub fn is_worth_keeping(&self, key: BlockKey, weight: usize) -> bool {
        self.shard(key.hash64()).lock().is_worth_keeping(key, weight)
    }

    /// A block that `get` did not find was had, and is not inserted.
    pub fn had(&self, key: BlockKey, weight: usize) {
        self.note_loaded(key.hash64(), weight);
    }

    /// Keeps `value`, which holds on to `weight` bytes, if it fits at all. Replaces an older value of the key.
    pub fn insert(&self, key: BlockKey, value: V, weight: usize) {
        self.insert_with(key, weight, |shard| shard.insert(key, value, weight));
    }

    /// The same for a block that is to be kept before all that are not, as far as there is room: such blocks take at most
    /// three quarters of the capacity.
    pub fn insert_kept(&self, key: BlockKey, value: V, weight: usize) {
        self.insert_with(key, weight, |shard| shard.insert_kept(key, value, weight));
    }

    /// Bytes that blocks to be kept may still take.
    pub fn retained_space(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().retained_space()).sum()
    }

    fn insert_with(&self, key: BlockKey, weight: usize, insert: impl FnOnce(&mut S3Fifo<BlockKey, V>) -> Vec<V>) {
        let hash = key.hash64();
        // Values are dropped after the lock: freeing a block may return memory to the system.
        let dropped = insert(&mut self.shard(hash).lock());
        drop(dropped);
        self.note_loaded(hash, weight);
    }

    fn note_loaded(&self, hash: u64, weight: usize) {
        if let Some((profile, clock)) = self.profile.get()
            && profile.samples(hash)
        {
            profile.loaded(hash, weight, clock());
        }
    }

    /// Changes the capacity, evicting at once when it shrinks.
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

    /// Counters, summed over the shards one after the other (so not one instant's).
    pub fn stats(&self) -> CacheStats {
        let mut sum = CacheStats::default();
        for shard in &self.shards {
            shard.lock().add_stats(&mut sum);
        }
        sum
    }

    fn shard(&self, hash: u64) -> &Mutex<S3Fifo<BlockKey, V>> {
        // The map within a shard uses the lowest and highest bits; take some in between.
        let mask = self.shards.len() - 1;
        &self.shards[(hash >> 40) as usize & mask]
    }
}

#[cfg(test)]
mod tests;
