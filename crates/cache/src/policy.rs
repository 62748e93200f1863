//! The replacement policy: the S3-FIFO queues, single-threaded. Callers that share it hold a lock around it.
//!
//! Entries live in a slab (`slots`). A table of slot numbers finds them: four bytes for each, so that the table stays
//! in the processor's caches where entries do not. The queues hold slot numbers with a *ticket*, the number of entries
//! that the slot has held. Removing an entry leaves its place in the queue. A place whose ticket differs from its
//! slot's is stale and is skipped. That makes removal as cheap as a lookup.
//!
//! There are two kinds of admission. [`Admission::Probation`] is S3-FIFO as published: new entries go through the small
//! queue. [`Admission::Returning`] has no small queue. It admits new entries while they fit, so that an empty cache
//! fills up immediately. When an insertion would evict another entry, it leaves only a ghost. The entry is admitted
//! when it returns while the ghost is remembered. This suits values that are expensive to prepare for caching and
//! mostly never read again.
//!
//! The small queue does not pay when hardly any of its entries are read again: a new entry then only replaces another
//! one of equal value. Where values are cheap to load again, a caller can ask first ([`S3Fifo::is_worth_keeping`]). The
//! policy checks whether recent entries were used before they would have left the small queue, were all entries
//! admitted. While few were, most new entries are rejected and leave only a ghost, as under [`Admission::Returning`].
//!
//! *Retained* entries (`kept`) have a queue of their own. A caller that knows that an entry will be read inserts it
//! there, and the entry need not prove its use. It is evicted only for another retained entry, or when the retained
//! entries alone exceed the share. Retained entries take at most three quarters of the share, so that other entries
//! always have a cache. Beyond that they are inserted like any other entry.
//!
//! Invariants:
//! * `used` is the sum of the charges of all entries and at most `share`. `kept_used` is that of the retained ones and
//!   at most [`KEPT_QUARTERS`] quarters of it.
//! * Every entry has exactly one place with a current ticket, in `small`, in `main` or in `kept`.
//! * Stale places are at most as many as entries, plus [`STALE_SLACK`].

mod ghosts;
mod probation;

use crate::stats::{CacheStats, ENTRY_OVERHEAD_BYTES};
use ghosts::Ghosts;
use hashbrown::HashTable;
use probation::Probation;
use std::collections::VecDeque;

/// Largest counted number of uses: an entry goes round the main queue at most this often without being used.
const USES_MAX: u8 = 3;

/// Uses within the small queue that earn a place in main.
const USES_TO_MAIN: u8 = 2;

/// The small queue is one part in this many of the share.
const SMALL_FRACTION: usize = 10;

/// Quarters of the share that retained entries may take.
const KEPT_QUARTERS: usize = 3;

/// Under [`Admission::Returning`] the ghosts' charges are the share divided by this. Entries that return later than
/// that would not stay long, and are copied in vain. It was measured with Zipf-distributed reads (exponent 0.99, a
/// quarter to half of the rows fit). Compared with as many ghosts as entries, half as many give two thirds of the
/// insertions and the same hits. With an eighth, hits decrease when the load changes.
const GHOSTS_FRACTION: usize = 2;

/// Retained entries that an insertion checks for one to replace.
const RETAINED_PROBES: u32 = 4;

/// Slots per entry above which a change of the share frees their memory. To move the entries costs about as much as to
/// evict as many.
const SLOTS_TIMES_MAX: usize = 2;

/// Stale places tolerated besides one for each entry; spares small caches frequent clean-ups.
const STALE_SLACK: usize = 64;

/// The key of an entry.
pub trait CacheKey: Copy + Eq {
    /// A well mixed hash: all its bits are used, for different purposes.
    fn hash64(self) -> u64;
}

/// The admission of new entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Through the small queue.
    Probation,
    /// While they fit; otherwise only when they return.
    Returning,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    /// Weight plus overhead.
    charge: usize,
    /// Saturates at `USES_MAX`.
    uses: u8,
    queue: Queue,
    /// Number of arrivals before this one.
    arrival: u32,
}

/// The queue of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Small,
    Main,
    Kept,
}

#[derive(Debug)]
struct Slot<K, V> {
    /// Number of entries it has held before; wraps.
    ticket: u32,
    entry: Option<Entry<K, V>>,
}

impl<K: CacheKey, V> Slot<K, V> {
    #[inline]
    fn holds(&self, key: K) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.key == key)
    }

    fn hash(&self) -> u64 {
        self.entry.as_ref().map_or(0, |entry| entry.key.hash64())
    }
}

/// The place of an entry in a queue.
#[derive(Clone, Copy, Debug)]
struct EntryIndex {
    slot: u32,
    ticket: u32,
}

/// A byte-bounded cache for one thread at a time.
#[derive(Debug)]
pub struct S3Fifo<K, V> {
    /// The slots that have an entry, by its key.
    table: HashTable<u32>,
    slots: Vec<Slot<K, V>>,
    free: Vec<u32>,
    small: VecDeque<EntryIndex>,
    main: VecDeque<EntryIndex>,
    kept: VecDeque<EntryIndex>,
    ghosts: Ghosts,
    admission: Admission,
    probation: Probation,
    share: usize,
    small_used: usize,
    kept_used: usize,
    used: usize,
    hits: u64,
    misses: u64,
    ghost_hits: u64,
    turned_away: u64,
    inserted: u64,
    evicted: u64,
}

impl<K: CacheKey, V> S3Fifo<K, V> {
    /// An empty cache of at most `share` charged bytes.
    pub fn new(share: usize, admission: Admission) -> Self {
        S3Fifo {
            table: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            kept: VecDeque::new(),
            ghosts: Ghosts::default(),
            admission,
            probation: Probation::default(),
            share,
            small_used: 0,
            kept_used: 0,
            used: 0,
            hits: 0,
            misses: 0,
            ghost_hits: 0,
            turned_away: 0,
            inserted: 0,
            evicted: 0,
        }
    }

    /// The value and its charge, if the key is present. `hash` is the key's own.
    pub fn get_hashed(&mut self, key: K, hash: u64) -> Option<(&V, usize)> {
        let slot = self.slot_of(key, hash);
        let found = slot.and_then(|slot| self.slots.get_mut(slot as usize)?.entry.as_mut());
        let Some(entry) = found else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        if entry.uses == 0 && entry.queue == Queue::Small {
            let places = self.share / SMALL_FRACTION / entry.charge.max(1);
            self.probation.used(entry.arrival, places);
        }
        entry.uses = (entry.uses + 1).min(USES_MAX);
        Some((&entry.value, entry.charge))
    }

    /// The value, if the key is present.
    pub fn get(&mut self, key: K) -> Option<&V> {
        self.get_hashed(key, key.hash64()).map(|(value, _)| value)
    }

    /// The value, if the key is present, without counting as a use.
    pub fn peek(&self, key: K) -> Option<&V> {
        let slot = self.slot_of(key, key.hash64())?;
        Some(&self.slots.get(slot as usize)?.entry.as_ref()?.value)
    }

    /// Whether an insertion of the key would be admitted, by its history. Under [`Admission::Returning`] a new key that
    /// does not fit is remembered from now on.
    pub fn admits(&mut self, key: K, weight: usize) -> bool {
        let hash = key.hash64();
        let charge = weight.saturating_add(ENTRY_OVERHEAD_BYTES);
        if charge > self.share {
            return false;
        }
        if self.admission == Admission::Probation
            || self.has_space(charge)
            || self.slot_of(key, hash).is_some()
            || self.ghosts.contains(hash)
        {
            return true;
        }
        self.ghosts.push(hash, charge, self.ghosts_max());
        false
    }

    /// Whether a value that is cheap to load again should be inserted. If not, its key is remembered.
    pub fn is_worth_keeping(&mut self, key: K, weight: usize) -> bool {
        let hash = key.hash64();
        let charge = weight.saturating_add(ENTRY_OVERHEAD_BYTES);
        let ghosts_max = self.share / GHOSTS_FRACTION;
        // A ghost that takes the whole limit would evict all others.
        let is_large = charge > ghosts_max / 2;
        if is_large || self.has_space(charge) || self.ghosts.contains(hash) || !self.probation.turns_away() {
            return true;
        }
        self.ghosts.push(hash, charge, ghosts_max);
        self.turned_away += 1;
        false
    }

    /// Bytes that all entries may be charged.
    pub fn share(&self) -> usize {
        self.share
    }

    /// Whether a value that takes `weight` bytes would evict no other.
    pub fn has_space_for(&self, weight: usize) -> bool {
        self.has_space(weight.saturating_add(ENTRY_OVERHEAD_BYTES))
    }

    /// Inserts `value`, which takes `weight` bytes, if it is admitted. Replaces an older value of the key. Returns the
    /// evicted values, which the caller drops after it has released its lock.
    pub fn insert(&mut self, key: K, value: V, weight: usize) -> Vec<V> {
        self.insert_as(key, value, weight, false)
    }

    /// The same for an entry to be retained, as long as it fits among the retained ones.
    pub fn insert_kept(&mut self, key: K, value: V, weight: usize) -> Vec<V> {
        self.insert_as(key, value, weight, true)
    }

    /// Bytes that may still be charged for retained entries.
    pub fn retained_space(&self) -> usize {
        self.kept_max().saturating_sub(self.kept_used)
    }

    fn kept_max(&self) -> usize {
        self.share / 4 * KEPT_QUARTERS
    }

    fn insert_as(&mut self, key: K, value: V, weight: usize, keep: bool) -> Vec<V> {
        let hash = key.hash64();
        let charge = weight.saturating_add(ENTRY_OVERHEAD_BYTES);
        let mut dropped = Vec::new();
        let (mut uses, mut known) = (0, false);
        if let Some(slot) = self.slot_of(key, hash) {
            if let Some(old) = self.slots.get_mut(slot as usize).and_then(|s| s.entry.as_mut()) {
                if old.charge == charge && (old.queue == Queue::Kept || !keep) {
                    // A racing reader loaded the same block: only the value changes.
                    dropped.push(std::mem::replace(&mut old.value, value));
                    return dropped;
                }
                (uses, known) = (old.uses, true);
            }
            dropped.extend(self.release(slot));
            self.drop_stale_places();
        }
        if charge > self.share {
            dropped.push(value);
            return dropped;
        }
        let returned = self.ghosts.take(hash);
        self.ghost_hits += u64::from(returned);
        if self.admission == Admission::Returning && !returned && !known && !self.has_space(charge) {
            self.ghosts.push(hash, charge, self.ghosts_max());
            dropped.push(value);
            return dropped;
        }
        let queue = if keep && self.make_space_to_keep(charge, &mut dropped) {
            Queue::Kept
        } else if returned || self.admission == Admission::Returning {
            Queue::Main
        } else {
            Queue::Small
        };
        self.shrink_to(self.share - charge, &mut dropped);
        let entry = Entry {
            key,
            value,
            charge,
            uses,
            queue,
            arrival: self.probation.arrivals(),
        };
        let place = self.store(entry);
        let slots = &self.slots;
        let hash_of = |slot: &u32| slots.get(*slot as usize).map_or(0, Slot::hash);
        self.table.insert_unique(hash, place.slot, hash_of);
        self.used += charge;
        self.inserted += charge as u64;
        match queue {
            Queue::Main => self.main.push_back(place),
            Queue::Small => {
                self.probation.arrived();
                self.small_used += charge;
                self.small.push_back(place);
            }
            Queue::Kept => {
                self.kept_used += charge;
                self.kept.push_back(place);
            }
        }
        assert!(self.used <= self.share, "a cache never exceeds its share");
        assert!(
            queue != Queue::Kept || self.kept_used <= self.kept_max(),
            "retained entries stay within their part"
        );
        dropped
    }

    /// Whether the byte counters are the sums over the entries. Walks everything.
    fn counters_agree(&self) -> bool {
        let (mut used, mut small, mut kept, mut entries) = (0, 0, 0, 0);
        for entry in self.slots.iter().filter_map(|slot| slot.entry.as_ref()) {
            entries += 1;
            used += entry.charge;
            match entry.queue {
                Queue::Small => small += entry.charge,
                Queue::Kept => kept += entry.charge,
                Queue::Main => {}
            }
        }
        (used, small, kept, entries) == (self.used, self.small_used, self.kept_used, self.table.len())
    }

    /// Limit of the ghosts' charges.
    fn ghosts_max(&self) -> usize {
        match self.admission {
            Admission::Probation => self.share,
            Admission::Returning => self.share / GHOSTS_FRACTION,
        }
    }

    fn slot_of(&self, key: K, hash: u64) -> Option<u32> {
        let is_it = |slot: &u32| self.slots.get(*slot as usize).is_some_and(|slot| slot.holds(key));
        self.table.find(hash, is_it).copied()
    }

    /// Whether an entry fits without an eviction.
    fn has_space(&self, charge: usize) -> bool {
        self.used.saturating_add(charge) <= self.share
    }

    /// Removes an entry. Ghosts stay.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let slot = self.slot_of(key, key.hash64())?;
        let value = self.release(slot);
        self.drop_stale_places();
        value
    }

    /// Removes all entries for which `unwanted` holds. Walks everything.
    pub fn remove_all(&mut self, mut unwanted: impl FnMut(&K, &V) -> bool) -> Vec<V> {
        let mut slots = Vec::new();
        for (number, slot) in self.slots.iter().enumerate() {
            if slot.entry.as_ref().is_some_and(|e| unwanted(&e.key, &e.value)) {
                slots.push(number as u32);
            }
        }
        let removed = slots.into_iter().filter_map(|slot| self.release(slot)).collect();
        self.drop_stale_places();
        debug_assert!(self.counters_agree(), "usage is the sum of the entries' charges");
        removed
    }

    /// Changes the share, and evicts immediately when it shrinks.
    pub fn set_share(&mut self, share: usize) -> Vec<V> {
        self.share = share;
        let mut dropped = Vec::new();
        self.shrink_to(share, &mut dropped);
        while self.kept_used > self.kept_max() {
            self.evict_kept(&mut dropped);
        }
        let ghosts_max = self.ghosts_max();
        self.ghosts.shrink_to(ghosts_max);
        if self.slots.capacity() > SLOTS_TIMES_MAX * self.table.len() + STALE_SLACK {
            self.compact();
        }
        self.ghosts.compact();
        assert!(
            self.used <= self.share && self.kept_used <= self.kept_max(),
            "a cache never exceeds its share after an eviction"
        );
        debug_assert!(self.counters_agree(), "usage is the sum of the entries' charges");
        dropped
    }

    /// Moves the entries to adjacent slots, and frees the memory of the others. Walks everything, and nothing else
    /// changes.
    pub(crate) fn compact(&mut self) {
        let before = std::mem::take(&mut self.slots);
        let mut entries = Vec::with_capacity(self.table.len());
        // Indexed by former slot.
        let mut moved = vec![None; before.len()];
        for (slot, moved) in before.into_iter().zip(&mut moved) {
            if let Some(entry) = slot.entry {
                let place = EntryIndex {
                    slot: entries.len() as u32,
                    ticket: 0,
                };
                *moved = Some((slot.ticket, place));
                entries.push(Slot {
                    ticket: 0,
                    entry: Some(entry),
                });
            }
        }
        for queue in [&mut self.small, &mut self.main, &mut self.kept] {
            let is_at = |place: EntryIndex| {
                moved
                    .get(place.slot as usize)
                    .copied()
                    .flatten()
                    .filter(|(ticket, _)| *ticket == place.ticket)
            };
            *queue = queue.iter().filter_map(|place| Some(is_at(*place)?.1)).collect();
        }
        self.slots = entries;
        self.free = Vec::new();
        let slots = &self.slots;
        let hash_of = |slot: &u32| slots.get(*slot as usize).map_or(0, Slot::hash);
        self.table = HashTable::with_capacity(slots.len());
        for number in 0..slots.len() as u32 {
            self.table.insert_unique(hash_of(&number), number, hash_of);
        }
        debug_assert!(self.counters_agree(), "a compaction of slots moves every entry once");
    }

    /// Number of lookups so far that found nothing.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Places in the queues, stale ones included.
    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        self.small.len() + self.main.len() + self.kept.len()
    }

    /// Bytes of memory that slots, queues, table and ghosts take, used or not.
    #[cfg(test)]
    pub(crate) fn memory_of_places(&self) -> usize {
        let queues = self.small.capacity() + self.main.capacity() + self.kept.capacity();
        self.slots.capacity() * size_of::<Slot<K, V>>()
            + self.free.capacity() * size_of::<u32>()
            + queues * size_of::<EntryIndex>()
            + self.table.capacity() * (size_of::<u32>() + 1)
            + self.ghosts.memory()
    }

    /// Adds the counters to `sum`.
    pub fn add_stats(&self, sum: &mut CacheStats) {
        sum.hits += self.hits;
        sum.misses += self.misses;
        sum.ghost_hits += self.ghost_hits;
        sum.turned_away += self.turned_away;
        sum.inserted_bytes += self.inserted;
        sum.evicted_bytes += self.evicted;
        sum.used_bytes += self.used as u64;
        sum.kept_bytes += self.kept_used as u64;
        sum.capacity += self.share as u64;
        sum.entries += self.table.len() as u64;
    }

    /// Evicts until at most `limit` bytes are charged. It terminates: every step removes a place from a queue, moves
    /// one from small to main, or lowers a use count.
    fn shrink_to(&mut self, limit: usize, dropped: &mut Vec<V>) {
        while self.used > limit {
            let small_first = self.small_used > self.share / SMALL_FRACTION || self.main.is_empty();
            if small_first && !self.small.is_empty() {
                self.evict_small(dropped);
            } else if !self.main.is_empty() {
                self.evict_main(dropped);
            } else {
                self.evict_kept(dropped);
            }
        }
    }

    /// Whether `charge` more bytes may be retained, perhaps after the eviction of a retained entry that was not used
    /// recently.
    fn make_space_to_keep(&mut self, charge: usize, dropped: &mut Vec<V>) -> bool {
        for _ in 0..RETAINED_PROBES {
            if self.kept_used + charge <= self.kept_max() {
                break;
            }
            let Some(place) = self.kept.pop_front() else { break };
            match self.entry_at(place) {
                Some(entry) if entry.uses > 0 => {
                    entry.uses -= 1;
                    self.kept.push_back(place);
                }
                Some(_) => dropped.extend(self.release(place.slot)),
                None => {}
            }
        }
        self.kept_used + charge <= self.kept_max()
    }

    fn evict_kept(&mut self, dropped: &mut Vec<V>) {
        let Some(place) = self.kept.pop_front() else { return };
        if self.entry_at(place).is_some() {
            dropped.extend(self.release(place.slot));
        }
    }

    fn entry_at(&mut self, place: EntryIndex) -> Option<&mut Entry<K, V>> {
        let slot = self.slots.get_mut(place.slot as usize)?;
        slot.entry.as_mut().filter(|_| slot.ticket == place.ticket)
    }

    fn evict_small(&mut self, dropped: &mut Vec<V>) {
        let Some(place) = self.small.pop_front() else { return };
        let Some(entry) = self.entry_at(place) else { return };
        let charge = entry.charge;
        if entry.uses >= USES_TO_MAIN {
            entry.uses = 0;
            entry.queue = Queue::Main;
            self.small_used -= charge;
            self.main.push_back(place);
            return;
        }
        let hash = entry.key.hash64();
        self.ghosts.push(hash, charge, self.ghosts_max());
        dropped.extend(self.release(place.slot));
    }

    fn evict_main(&mut self, dropped: &mut Vec<V>) {
        let Some(place) = self.main.pop_front() else { return };
        let Some(entry) = self.entry_at(place) else { return };
        if entry.uses > 0 {
            entry.uses -= 1;
            self.main.push_back(place);
            return;
        }
        let (hash, charge) = (entry.key.hash64(), entry.charge);
        if self.admission == Admission::Returning {
            self.ghosts.push(hash, charge, self.ghosts_max());
        }
        dropped.extend(self.release(place.slot));
    }

    /// Empties a slot. Its place in a queue, if there still is one, is stale from now on.
    fn release(&mut self, number: u32) -> Option<V> {
        let slot = self.slots.get_mut(number as usize)?;
        let entry = slot.entry.take()?;
        slot.ticket = slot.ticket.wrapping_add(1);
        let hash = entry.key.hash64();
        let found = self.table.find_entry(hash, |&slot| slot == number);
        debug_assert!(found.is_ok(), "every entry is in the table");
        if let Ok(found) = found {
            found.remove();
        }
        assert!(entry.charge <= self.used, "an entry's charge is part of the usage");
        self.used -= entry.charge;
        self.evicted += entry.charge as u64;
        match entry.queue {
            Queue::Small => self.small_used -= entry.charge,
            Queue::Kept => self.kept_used -= entry.charge,
            Queue::Main => {}
        }
        self.free.push(number);
        Some(entry.value)
    }

    /// Removes stale places when there are many.
    fn drop_stale_places(&mut self) {
        if self.small.len() + self.main.len() + self.kept.len() <= 2 * self.table.len() + STALE_SLACK {
            return;
        }
        let slots = &self.slots;
        let current = |place: &EntryIndex| {
            slots
                .get(place.slot as usize)
                .is_some_and(|s| s.entry.is_some() && s.ticket == place.ticket)
        };
        self.small.retain(current);
        self.main.retain(current);
        self.kept.retain(current);
    }

    fn store(&mut self, entry: Entry<K, V>) -> EntryIndex {
        if let Some(number) = self.free.pop() {
            let slot = &mut self.slots[number as usize];
            debug_assert!(slot.entry.is_none(), "a free slot has no entry");
            slot.entry = Some(entry);
            return EntryIndex {
                slot: number,
                ticket: slot.ticket,
            };
        }
        self.slots.push(Slot {
            ticket: 0,
            entry: Some(entry),
        });
        // 2^32 entries of at least ENTRY_OVERHEAD_BYTES each would be half a terabyte in one shard.
        debug_assert!(u32::try_from(self.slots.len()).is_ok(), "slot numbers have 32 bits");
        EntryIndex {
            slot: (self.slots.len() - 1) as u32,
            ticket: 0,
        }
    }
}
