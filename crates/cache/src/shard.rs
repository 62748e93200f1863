//! One shard of the cache: the S3-FIFO queues, under the caller's lock.
//!
//! Entries live in a slab (`slots`) and the queues hold slot numbers, so moving an entry between queues moves four
//! bytes. A slot number is in exactly one of `small`, `main` and `free`.

use crate::{BlockKey, CacheStats, ENTRY_OVERHEAD_BYTES};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Uses past this count no more: an entry goes round the main queue at most this often without being used.
const USES_MAX: u8 = 3;

/// Uses within the small queue that earn a place in main.
const USES_TO_MAIN: u8 = 2;

/// The small queue's part of the share.
const SMALL_FRACTION: usize = 10;

#[derive(Debug)]
struct Entry<V> {
    key: BlockKey,
    value: V,
    /// Weight plus overhead.
    charge: usize,
    /// Saturates at `USES_MAX`.
    uses: u8,
    in_main: bool,
}

/// Keys that left the small queue, oldest first, as hashes: a collision costs a slightly wrong placement.
#[derive(Debug, Default)]
struct Ghosts {
    order: VecDeque<(u64, usize)>,
    present: HashSet<u64, BuildHasherDefault<PassThrough>>,
    /// Sum of the charges the ghosts had; bounded by the shard's share.
    charge: usize,
}

/// The keys are hashed already.
#[derive(Debug, Default)]
pub(crate) struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = BlockKey {
            file: self.0,
            offset: value,
        }
        .hash64();
    }
}

#[derive(Debug)]
pub(crate) struct Shard<V> {
    map: HashMap<BlockKey, u32, BuildHasherDefault<PassThrough>>,
    slots: Vec<Option<Entry<V>>>,
    free: Vec<u32>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: Ghosts,
    share: usize,
    small_used: usize,
    used: usize,
    hits: u64,
    misses: u64,
    ghost_hits: u64,
    inserted: u64,
    evicted: u64,
}

impl<V: Clone> Shard<V> {
    pub(crate) fn new(share: usize) -> Self {
        Shard {
            map: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: Ghosts::default(),
            share,
            small_used: 0,
            used: 0,
            hits: 0,
            misses: 0,
            ghost_hits: 0,
            inserted: 0,
            evicted: 0,
        }
    }

    pub(crate) fn get(&mut self, key: &BlockKey) -> Option<V> {
        let found = self
            .map
            .get(key)
            .and_then(|&slot| self.slots.get_mut(slot as usize)?.as_mut());
        let Some(entry) = found else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        entry.uses = (entry.uses + 1).min(USES_MAX);
        Some(entry.value.clone())
    }

    pub(crate) fn peek(&self, key: &BlockKey) -> Option<V> {
        let slot = *self.map.get(key)?;
        Some(self.slots.get(slot as usize)?.as_ref()?.value.clone())
    }

    /// Returns what had to go, for the caller to drop outside the lock.
    pub(crate) fn insert(&mut self, key: BlockKey, value: V, weight: usize) -> Vec<V> {
        let charge = weight.saturating_add(ENTRY_OVERHEAD_BYTES);
        let mut dropped = Vec::new();
        let mut uses = 0;
        if let Some(&slot) = self.map.get(&key) {
            if let Some(old) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) {
                if old.charge == charge {
                    // A racing reader loaded the same block: only the value changes.
                    dropped.push(std::mem::replace(&mut old.value, value));
                    return dropped;
                }
                uses = old.uses;
            }
            self.unlink(slot);
            dropped.extend(self.release(slot));
        }
        if charge > self.share {
            dropped.push(value);
            return dropped;
        }
        self.shrink_to(self.share - charge, &mut dropped);
        let in_main = self.ghosts.take(key.hash64());
        self.ghost_hits += u64::from(in_main);
        let slot = self.store(Entry {
            key,
            value,
            charge,
            uses,
            in_main,
        });
        self.map.insert(key, slot);
        self.used += charge;
        self.inserted += charge as u64;
        if in_main {
            self.main.push_back(slot);
        } else {
            self.small_used += charge;
            self.small.push_back(slot);
        }
        assert!(self.used <= self.share, "cache shard above its share");
        dropped
    }

    pub(crate) fn set_share(&mut self, share: usize) -> Vec<V> {
        self.share = share;
        let mut dropped = Vec::new();
        self.shrink_to(share, &mut dropped);
        self.ghosts.shrink_to(share);
        dropped
    }

    pub(crate) fn remove_file(&mut self, file: u64) -> Vec<V> {
        let of_file = |slots: &[Option<Entry<V>>], slot: u32| {
            slots
                .get(slot as usize)
                .and_then(Option::as_ref)
                .is_some_and(|e| e.key.file == file)
        };
        let mut gone = Vec::new();
        for queue in [&mut self.small, &mut self.main] {
            queue.retain(|&slot| {
                let remove = of_file(&self.slots, slot);
                if remove {
                    gone.push(slot);
                }
                !remove
            });
        }
        gone.into_iter().filter_map(|slot| self.release(slot)).collect()
    }

    pub(crate) fn add_stats(&self, sum: &mut CacheStats) {
        sum.hits += self.hits;
        sum.misses += self.misses;
        sum.ghost_hits += self.ghost_hits;
        sum.inserted_bytes += self.inserted;
        sum.evicted_bytes += self.evicted;
        sum.used_bytes += self.used as u64;
        sum.capacity += self.share as u64;
        sum.entries += self.map.len() as u64;
    }

    /// Evicts until at most `limit` bytes are charged. Ends: every step removes an entry, moves one out of small, or
    /// lowers a use count.
    fn shrink_to(&mut self, limit: usize, dropped: &mut Vec<V>) {
        while self.used > limit {
            if self.small_used > self.share / SMALL_FRACTION || self.main.is_empty() {
                self.evict_small(dropped);
            } else {
                self.evict_main(dropped);
            }
        }
    }

    fn evict_small(&mut self, dropped: &mut Vec<V>) {
        let Some(slot) = self.small.pop_front() else {
            return;
        };
        let Some(entry) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        if entry.uses >= USES_TO_MAIN {
            entry.uses = 0;
            entry.in_main = true;
            self.small_used -= entry.charge;
            self.main.push_back(slot);
            return;
        }
        self.ghosts.push(entry.key.hash64(), entry.charge, self.share);
        dropped.extend(self.release(slot));
    }

    fn evict_main(&mut self, dropped: &mut Vec<V>) {
        let Some(slot) = self.main.pop_front() else {
            return;
        };
        let Some(entry) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        if entry.uses > 0 {
            entry.uses -= 1;
            self.main.push_back(slot);
            return;
        }
        dropped.extend(self.release(slot));
    }

    /// Takes a slot out of its queue. Linear, but only a replaced key comes here.
    fn unlink(&mut self, slot: u32) {
        let in_main = self.slots[slot as usize].as_ref().is_some_and(|e| e.in_main);
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.retain(|&s| s != slot);
    }

    /// Frees a slot that is in no queue any more.
    fn release(&mut self, slot: u32) -> Option<V> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        self.map.remove(&entry.key);
        self.used -= entry.charge;
        self.evicted += entry.charge as u64;
        if !entry.in_main {
            self.small_used -= entry.charge;
        }
        self.free.push(slot);
        Some(entry.value)
    }

    fn store(&mut self, entry: Entry<V>) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(entry);
            return slot;
        }
        self.slots.push(Some(entry));
        // 2^32 entries of at least ENTRY_OVERHEAD_BYTES each would be half a terabyte in one shard.
        (self.slots.len() - 1) as u32
    }
}

impl Ghosts {
    fn push(&mut self, hash: u64, charge: usize, limit: usize) {
        if self.present.insert(hash) {
            self.order.push_back((hash, charge));
            self.charge += charge;
        }
        self.shrink_to(limit);
    }

    /// Whether the key was here; it is not afterwards. Its place in `order` stays until its turn comes, which only
    /// makes the memory a little shorter.
    fn take(&mut self, hash: u64) -> bool {
        self.present.remove(&hash)
    }

    fn shrink_to(&mut self, limit: usize) {
        while self.charge > limit {
            let Some((hash, charge)) = self.order.pop_front() else {
                return;
            };
            self.present.remove(&hash);
            self.charge -= charge;
        }
    }
}
