//! The versions of each key that a read may return, given this process's writes.
//!
//! Terms: a key's *versions* are counted from one in the order in which this process began to write them. Version zero
//! is the state of the key before that. A write is *open* from its beginning until the server has acknowledged it. A
//! failed write stays open for ever, because the server may still carry it out. The *candidates* of a key are the
//! versions that a read beginning now may return.
//!
//! The rule: version V has certainly been overwritten once some W is acknowledged that began after V was acknowledged.
//! The candidates are the open versions and the acknowledged ones that no such W has followed. A read may return any
//! candidate of the moment it began, or any version begun since. A register that behaves as one copy never raises an
//! alarm. One that returns a value which was certainly overwritten before the read began always does (tests below).
//! Nearly all keys have one candidate; they take eight bytes, and only keys with writes in progress more.
//!
//! A read that overlaps no write makes its result the only candidate: any other candidate would be a step back in time.
//!
//! This process does not know the writes of other processes. Their versions carry another writer's number and are never
//! judged by this rule. They cannot make it wrong either: a version of this process that a later one of its own has
//! overwritten stays overwritten. With several workers, a stale read is therefore noticed if the worker that reads the
//! stale version has written it.

use super::values::Version;
use anyhow::ensure;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys that a `Ledger` can hold, at eight bytes each: 4 GiB.
pub const KEYS_MAX: u64 = 1 << 29;
/// Locks; a power of two well above the number of generator threads.
const SHARDS: u64 = 64;
/// Replaced versions that are remembered of a key with many concurrent writers.
const REPLACED_MAX: usize = 64;
/// Failed writes of one key beyond which it is no longer judged.
const FAILED_MAX: usize = 32;
/// An entry is: whether the key is in `busy` (1 bit), versions issued (31 bits), the only candidate (32 bits).
const BUSY: u64 = 1 << 63;

/// The writes of this process to one table.
pub struct Ledger {
    keys: u64,
    shards: Vec<Mutex<Shard>>,
    /// Writes begun, and writes no longer open: equal when none is in progress.
    begun: AtomicU64,
    closed: AtomicU64,
}

struct Shard {
    /// By key / [`SHARDS`]; keys beyond its length have never been written.
    entries: Vec<u64>,
    busy: HashMap<u64, Busy>,
}

/// A key with more than one candidate.
struct Busy {
    /// Counts beginnings and acknowledgements of this key's writes: the order of events.
    clock: u64,
    candidates: Vec<Candidate>,
    failed: usize,
    /// Versions that conditional writes have replaced recently.
    replaced: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Candidate {
    version: u32,
    began: u64,
    acknowledged: Option<u64>,
}

/// A write under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a write that is not closed stays open for ever"]
pub struct Write {
    /// Its key.
    pub key: u64,
    /// Its version.
    pub version: u32,
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The server has acknowledged it.
    Acknowledged,
    /// The server has certainly not carried it out: the condition of a conditional write was not met.
    Refused,
    /// It failed. It may be carried out at any time from its beginning on.
    Unknown,
}

/// Candidates at the beginning of a read.
#[derive(Debug, Clone)]
pub struct Snapshot {
    key: u64,
    issued: u32,
    candidates: Candidates,
    newest: u32,
    is_quiet: bool,
}

#[derive(Debug, Clone)]
enum Candidates {
    One(u32),
    Several(Vec<u32>),
    UpTo(u32),
    Any,
}

/// Conclusions from a returned version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// It may be returned.
    Right,
    /// It had been overwritten before the read began.
    Stale,
    /// It was never written.
    NeverWritten,
}

impl Snapshot {
    /// Whether any write of the key has begun.
    pub fn has_writes(&self) -> bool {
        self.issued > 0
    }

    /// Makes every version begun so far a candidate: for reads that began at an unknown earlier time.
    pub fn forgive(&mut self) {
        self.candidates = Candidates::UpTo(self.issued);
    }

    /// The newest acknowledged candidate. The flag is set if it is the only candidate and no write is in progress.
    pub fn newest(&self) -> (u32, bool) {
        (
            self.newest,
            self.is_quiet && matches!(self.candidates, Candidates::One(_)),
        )
    }
}

impl Ledger {
    /// For keys below `keys`.
    ///
    /// # Errors
    /// More than [`KEYS_MAX`] keys.
    pub fn new(keys: u64) -> anyhow::Result<Self> {
        ensure!(
            keys <= KEYS_MAX,
            "{keys} keys that are read and overwritten; their versions can be followed for {KEYS_MAX}"
        );
        let shards = (0..SHARDS).map(|_| {
            // Zeroed memory comes from the system as it is touched.
            Mutex::new(Shard {
                entries: vec![0; keys.div_ceil(SHARDS) as usize],
                busy: HashMap::new(),
            })
        });
        Ok(Self {
            keys,
            shards: shards.collect(),
            begun: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        })
    }

    /// Begins a write. `None` for a key outside of the `Ledger`. Also returns the versions that a read just before it
    /// might have returned.
    ///
    /// # Errors
    /// The key's versions are used up.
    pub fn begin_write(&self, key: u64) -> Result<Option<(Write, Snapshot)>, String> {
        let Some((mut shard, place)) = self.shard(key) else {
            return Ok(None);
        };
        let shard = &mut *shard;
        let Some(entry) = shard.entries.get_mut(place) else {
            return Ok(None);
        };
        let version = issued(*entry) + 1;
        if version > Version::COUNT_MAX {
            return Err(format!("more than {} versions of key {key}", Version::COUNT_MAX));
        }
        let before = snapshot(key, *entry, &shard.busy);
        let busy = shard.busy.entry(key).or_insert_with(|| Busy::after(*entry as u32));
        busy.clock += 1;
        busy.candidates.push(Candidate {
            version,
            began: busy.clock,
            acknowledged: None,
        });
        *entry = BUSY | u64::from(version) << 32 | *entry & u64::from(u32::MAX);
        self.begun.fetch_add(1, Ordering::AcqRel);
        Ok(Some((Write { key, version }, before)))
    }

    /// Ends a write. Returns whether no other write of its key overlapped it.
    pub fn end_write(&self, write: Write, ending: Ending) -> bool {
        let Some((mut shard, place)) = self.shard(write.key) else {
            return false;
        };
        let shard = &mut *shard;
        let (Some(entry), Some(busy)) = (shard.entries.get_mut(place), shard.busy.get_mut(&write.key)) else {
            return false;
        };
        let is_open = |c: &Candidate| c.acknowledged.is_none();
        let is_alone = issued(*entry) == write.version && busy.candidates.iter().filter(|c| is_open(c)).count() == 1;
        match ending {
            Ending::Acknowledged => busy.acknowledge(write.version),
            Ending::Refused => busy.candidates.retain(|c| c.version != write.version),
            Ending::Unknown => busy.fail(write.version),
        }
        if ending != Ending::Unknown {
            self.closed.fetch_add(1, Ordering::AcqRel);
        }
        if let [only] = busy.candidates.as_slice()
            && only.acknowledged.is_some()
            && busy.failed <= FAILED_MAX
        {
            *entry = u64::from(issued(*entry)) << 32 | u64::from(only.version);
            shard.busy.remove(&write.key);
        }
        is_alone
    }

    /// Ends a conditional write that replaced version `expected`. Returns whether no other one has replaced that
    /// version too. If one has, an update was lost.
    pub fn end_conditional_write(&self, write: Write, expected: u32) -> bool {
        let is_first = self
            .shard(write.key)
            .is_none_or(|(mut shard, _)| shard.busy.get_mut(&write.key).is_none_or(|busy| busy.replace(expected)));
        self.end_write(write, Ending::Acknowledged);
        is_first
    }

    /// The versions that a read that begins now may return; `None` for a key outside of the `Ledger`.
    pub fn begin_read(&self, key: u64) -> Option<Snapshot> {
        let (shard, place) = self.shard(key)?;
        shard.entries.get(place).map(|entry| snapshot(key, *entry, &shard.busy))
    }

    /// Judges the version that a read returned.
    pub fn end_read(&self, before: &Snapshot, version: u32) -> Finding {
        let is_candidate = match &before.candidates {
            Candidates::One(only) => *only == version,
            Candidates::Several(several) => several.contains(&version),
            Candidates::UpTo(newest) => version <= *newest,
            Candidates::Any => true,
        };
        if is_candidate && !matches!(before.candidates, Candidates::Several(_)) {
            return Finding::Right;
        }
        let Some((mut shard, place)) = self.shard(before.key) else {
            return Finding::Right;
        };
        let shard = &mut *shard;
        let Some(entry) = shard.entries.get_mut(place) else {
            return Finding::Right;
        };
        let now = issued(*entry);
        if is_candidate {
            if before.is_quiet && now == before.issued {
                *entry = u64::from(now) << 32 | u64::from(version);
                shard.busy.remove(&before.key);
            }
            return Finding::Right;
        }
        match version {
            version if version > now => Finding::NeverWritten,
            version if version > before.issued => Finding::Right,
            _ => Finding::Stale,
        }
    }

    /// Number of writes that have begun, if none is open now. As long as it stays the same, the table does not change,
    /// and every version read must be a current candidate.
    pub fn quiet(&self) -> Option<u64> {
        // `closed` first: a write that ends in between makes the table seem busier than it is, never quieter.
        let closed = self.closed.load(Ordering::Acquire);
        (self.begun.load(Ordering::Acquire) == closed).then_some(closed)
    }

    fn shard(&self, key: u64) -> Option<(parking_lot::MutexGuard<'_, Shard>, usize)> {
        if key >= self.keys {
            return None;
        }
        let shard = self.shards.get((key % SHARDS) as usize)?;
        Some((shard.lock(), (key / SHARDS) as usize))
    }
}

impl Busy {
    fn after(current: u32) -> Self {
        let current = Candidate {
            version: current,
            began: 0,
            acknowledged: Some(0),
        };
        Self {
            clock: 0,
            candidates: vec![current],
            failed: 0,
            replaced: Vec::new(),
        }
    }

    fn replace(&mut self, version: u32) -> bool {
        let is_first = !self.replaced.contains(&version);
        if self.replaced.len() >= REPLACED_MAX {
            self.replaced.remove(0);
        }
        self.replaced.push(version);
        is_first
    }

    fn fail(&mut self, version: u32) {
        self.failed += 1;
        if self.failed > FAILED_MAX {
            // From here on any version may be returned, so none needs to be remembered.
            self.candidates.retain(|c| c.version != version);
        }
    }

    fn acknowledge(&mut self, version: u32) {
        self.clock += 1;
        let Some(write) = self.candidates.iter_mut().find(|c| c.version == version) else {
            return;
        };
        write.acknowledged = Some(self.clock);
        let began = write.began;
        self.candidates.retain(|c| c.acknowledged.is_none_or(|at| at > began));
    }
}

fn issued(entry: u64) -> u32 {
    (entry >> 32) as u32 & (u32::MAX >> 1)
}

fn snapshot(key: u64, entry: u64, busy: &HashMap<u64, Busy>) -> Snapshot {
    let mut snapshot = Snapshot {
        key,
        issued: issued(entry),
        candidates: Candidates::One(entry as u32),
        newest: entry as u32,
        is_quiet: true,
    };
    if entry & BUSY != 0
        && let Some(busy) = busy.get(&key)
    {
        let acknowledged = busy.candidates.iter().filter(|c| c.acknowledged.is_some());
        // There is always one: only a later one ends a candidate that was acknowledged.
        snapshot.newest = acknowledged.map(|c| c.version).max().unwrap_or_default();
        snapshot.is_quiet = busy.candidates.iter().all(|c| c.acknowledged.is_some());
        snapshot.candidates = if busy.failed > FAILED_MAX {
            Candidates::Any
        } else {
            Candidates::Several(busy.candidates.iter().map(|c| c.version).collect())
        };
    }
    snapshot
}

#[cfg(test)]
mod tests;
