//! The bloom filters of open files share a bounded amount of memory.
//!
//! At 10 bits per row, filters take a thousandth of the data for rows of a kilobyte, and a twentieth for 10-byte
//! values. There may be a thousand times as much data as memory. Open files therefore share a [`BloomMemory`], the
//! capacity for filters. A file whose filter does not fit is read without it. A read of a row that the file does not
//! contain then reads one of its blocks.
//!
//! The caller picks the filters that are worth their memory, because it knows the reads
//! ([`crate::Sstable::filter_asks`]).

use super::Filter;
use crate::frame::Handle;
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use stele_memory::{Consumer, Part, Pool, Reservation};

/// One probe in this many, by the row's hash, is counted: a counter shared by all threads is expensive.
const ASKED_PER_COUNTED: u64 = 64;
/// Attempts to load a filter that are skipped after a failed read, because a device may take seconds to fail.
const OCCASIONS_LET_PASS: u32 = 11;

/// The memory for filters that open files share.
#[derive(Debug)]
pub struct BloomMemory {
    consumer: Consumer,
    left_out: AtomicUsize,
}

impl BloomMemory {
    /// Limits bloom filters to `bytes_max`, in a pool of their own.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Self::of(&Pool::with_limits(|_| bytes_max))
    }

    /// The part of a pool that is for bloom filters.
    pub fn of(pool: &Pool) -> Arc<Self> {
        Arc::new(BloomMemory {
            consumer: pool.of(Part::BloomFilters),
            left_out: AtomicUsize::new(0),
        })
    }

    /// Memory for all filters.
    pub fn unlimited() -> Arc<Self> {
        Self::new(usize::MAX)
    }

    /// Most bytes of filters in memory.
    pub fn bytes_max(&self) -> usize {
        self.consumer.limit()
    }

    /// Bytes of filters that are in memory or being read.
    pub fn taken(&self) -> usize {
        self.consumer.used()
    }

    /// Bytes of the filters of open files that are not in memory.
    pub fn left_out(&self) -> usize {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Bytes of filters that may be read now.
    pub fn left(&self) -> usize {
        self.bytes_max().saturating_sub(self.taken())
    }

    fn take(&self, bytes: usize) -> Option<Reservation> {
        let reservation = self.consumer.empty();
        reservation.try_grow(bytes).ok().map(|()| reservation)
    }
}

#[derive(Debug)]
struct InMemory {
    filter: Filter,
    _reservation: Reservation,
}

/// The filter of an open file.
#[derive(Debug)]
pub(crate) struct HeldFilter {
    space: Arc<BloomMemory>,
    /// Position of the filter; `None` when the file has none, or a filter that cannot be read.
    handle: Option<Handle>,
    held: ArcSwapOption<InMemory>,
    asks: AtomicU32,
    /// The filter is damaged.
    is_lost: AtomicBool,
    /// Attempts still to be skipped.
    passes: AtomicU32,
}

impl HeldFilter {
    /// A filter at this place in its file, not in memory.
    pub(crate) fn new(space: &Arc<BloomMemory>, handle: Option<Handle>) -> Self {
        let left_out = handle.map_or(0, |handle| handle.len as usize);
        space.left_out.fetch_add(left_out, Ordering::Relaxed);
        HeldFilter {
            space: Arc::clone(space),
            handle,
            held: ArcSwapOption::empty(),
            asks: AtomicU32::new(0),
            is_lost: AtomicBool::new(false),
            passes: AtomicU32::new(0),
        }
    }

    /// The filter of a file that has none.
    pub(crate) fn none(space: &Arc<BloomMemory>) -> Self {
        Self::new(space, None)
    }

    /// Memory that the filter takes when it is loaded: filters are stored uncompressed.
    pub(crate) fn bytes(&self) -> usize {
        let handle = self.handle.filter(|_| !self.is_lost.load(Ordering::Relaxed));
        handle.map_or(0, |handle| handle.len as usize)
    }

    /// Memory that the filter takes now.
    pub(crate) fn held_bytes(&self) -> usize {
        if self.is_held() { self.bytes() } else { 0 }
    }

    /// Whether it is in memory.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load().is_some()
    }

    /// The filter's place and memory for it, if there is some and it is not in memory yet. Calls that load it, leave it
    /// out or evict it run one after the other.
    pub(crate) fn attempt(&self) -> Option<(Handle, Reservation)> {
        let handle = self.handle.filter(|_| self.bytes() > 0 && !self.is_held())?;
        Some((handle, self.space.take(self.bytes())?))
    }

    /// Records that the filter could not be read.
    pub(crate) fn failed(&self) {
        self.passes.store(OCCASIONS_LET_PASS, Ordering::Relaxed);
    }

    /// Whether a caller should load the filter now. False for some calls after a failed read.
    pub(crate) fn takes_occasion(&self) -> bool {
        let passes = self
            .passes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        passes.is_err()
    }

    /// Records that the filter is damaged: from now on the file has none.
    pub(crate) fn lose(&self) {
        self.leave_out();
        self.no_longer_left_out();
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Has it in memory from now on.
    pub(crate) fn hold(&self, filter: Filter, reservation: Reservation) {
        let before = self.held.swap(Some(Arc::new(InMemory {
            filter,
            _reservation: reservation,
        })));
        if before.is_none() {
            self.no_longer_left_out();
        }
    }

    fn no_longer_left_out(&self) {
        let before = self.space.left_out.fetch_sub(self.bytes(), Ordering::Relaxed);
        assert!(before >= self.bytes(), "a filter outside memory was counted as such");
    }

    /// Removes the filter from memory.
    pub(crate) fn leave_out(&self) {
        if self.held.swap(None).is_some() {
            self.space.left_out.fetch_add(self.bytes(), Ordering::Relaxed);
        }
    }

    /// False when the row is certainly absent.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        if hash.is_multiple_of(ASKED_PER_COUNTED) {
            self.asks.fetch_add(1, Ordering::Relaxed);
        }
        self.held
            .load()
            .as_ref()
            .is_none_or(|held| held.filter.may_contain(hash))
    }

    /// Recent probes, sampled and without a unit, to compare files. Each call halves the count.
    pub(crate) fn asks(&self) -> u32 {
        let halve = |asks| Some(asks / 2);
        let asks = self.asks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, halve);
        asks.unwrap_or_else(|asks| asks)
    }
}

impl Drop for HeldFilter {
    fn drop(&mut self) {
        self.lose();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{FilterBuilder, row_hash};
    use bytes::Bytes;

    fn filter() -> (Filter, Handle) {
        let mut builder = FilterBuilder::new(10);
        (0..100u8).for_each(|row| builder.add(&[row]));
        let content = builder.finish().expect("there are rows");
        let handle = Handle {
            offset: 0,
            len: content.len() as u32,
        };
        (Filter::parse(Bytes::from(content)).expect("just built"), handle)
    }

    #[test]
    fn room_is_taken_once_for_each_and_given_back() {
        let (filter, handle) = filter();
        let bytes = handle.len as usize;
        let space = BloomMemory::new(2 * bytes);
        let held: Vec<HeldFilter> = (0..3).map(|_| HeldFilter::new(&space, Some(handle))).collect();
        assert_eq!((space.taken(), space.left_out()), (0, 3 * bytes));
        for (at, one) in held.iter().enumerate() {
            match one.attempt() {
                Some((_, taken)) => one.hold(filter.clone(), taken),
                None => assert_eq!(at, 2, "two filters fit"),
            }
            assert!(!one.is_held() || one.attempt().is_none());
        }
        assert_eq!((space.taken(), space.left_out()), (2 * bytes, bytes));
        let absent = row_hash(b"absent");
        let answers: Vec<bool> = held.iter().map(|one| one.may_contain(absent)).collect();
        assert_eq!(answers, [false, false, true], "a filter outside memory denies no row");
        held[0].leave_out();
        held[0].leave_out();
        assert_eq!((space.taken(), space.left_out()), (bytes, 2 * bytes));
        let (first, second) = (held[2].attempt().expect("one is left out"), held[2].attempt());
        assert!(second.is_none());
        drop(first);
        held[2].lose();
        assert_eq!((space.taken(), space.left_out(), space.left()), (bytes, bytes, bytes));
        assert!(held[2].attempt().is_none());
        held[0].failed();
        let passed = (0..).take_while(|_| !held[0].takes_occasion()).count();
        assert_eq!(passed, OCCASIONS_LET_PASS as usize);
        drop(held);
        assert_eq!((space.taken(), space.left_out()), (0, 0));
    }

    /// Twice as many probes count twice, and old probes count little.
    #[test]
    fn asks_are_sampled_and_forgotten() {
        let space = BloomMemory::unlimited();
        let held = HeldFilter::none(&space);
        (0..64_000u64).for_each(|hash| assert!(held.may_contain(hash)));
        assert_eq!([held.asks(), held.asks(), held.asks()], [1_000, 500, 250]);
    }
}
