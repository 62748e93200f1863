//! Counters of a cache, and the charge that every entry carries.

/// Charged on top of an entry's weight: slot, queue position, map entry and the value's own header.
pub const ENTRY_OVERHEAD_BYTES: usize = 128;

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
