//! Counters of a cache, and the charge that every entry carries.

/// Charged on top of an entry's weight: slot, queue position, map entry and the value's own header.
pub const ENTRY_OVERHEAD_BYTES: usize = 128;

/// Counters since creation, and the current usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that found an entry.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Insertions of keys that had left the small queue recently: hits that a larger cache would have had.
    pub ghost_hits: u64,
    /// Blocks that were not admitted.
    pub turned_away: u64,
    /// Bytes charged by insertions.
    pub inserted_bytes: u64,
    /// Bytes released by replacement, shrinking, and removal.
    pub evicted_bytes: u64,
    /// Bytes charged now.
    pub used_bytes: u64,
    /// Bytes of them that are charged for retained entries.
    pub kept_bytes: u64,
    /// Bytes allowed.
    pub capacity: u64,
    /// Entries now.
    pub entries: u64,
}
