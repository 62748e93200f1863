//! Bounds the memory of all scans' readahead.
//!
//! A scan retains blocks that it has read ahead until its reader asks for them, and some readers ask once a second. Each scan
//! gets a share when it begins a range: at most half of the free memory. So all shares together never exceed the bound, and a
//! late scan still gets something. A scan whose share would be too small to be useful reads block by block.

use stele_memory::{Consumer, Part, Pool, Reservation};

/// Bytes fetched ahead of each run by scans of more than one row.
pub(crate) const RUN_BYTES: usize = 256 << 10;
/// Bytes fetched ahead of all runs together, those of 32. There are more only while compactions are far behind, and then as
/// many scans as ever need memory.
const SCAN_BYTES_MAX: usize = 8 << 20;
/// Less than this for a run is five blocks, which come without reading ahead.
const RUN_BYTES_MIN: usize = 32 << 10;

/// Memory for the blocks that all scans read ahead.
#[derive(Clone, Debug)]
pub struct ScanAhead(Consumer);

/// The share of one range of a scan, until it is dropped.
#[derive(Debug)]
pub(crate) struct AheadShare {
    reservation: Option<Reservation>,
    runs: usize,
}

impl ScanAhead {
    /// A limit of this many bytes together, in a pool of their own.
    pub fn new(bytes_max: usize) -> Self {
        ScanAhead::of(&Pool::with_limits(|_| bytes_max))
    }

    /// The part of a pool that is for readahead.
    pub fn of(pool: &Pool) -> Self {
        ScanAhead(pool.of(Part::Readahead))
    }

    /// Bytes of all shares.
    pub fn taken(&self) -> usize {
        self.0.used()
    }

    /// A share for a range that is read from this many runs.
    pub(crate) fn share(&self, runs: usize) -> AheadShare {
        let runs = runs.max(1);
        let wanted = (RUN_BYTES * runs).min(SCAN_BYTES_MAX);
        let bytes = wanted.min(self.0.limit().saturating_sub(self.taken()) / 2);
        let is_worth_it = bytes / runs >= RUN_BYTES_MIN.min(wanted / runs);
        // Another scan may have taken a share meanwhile. Half of the rest nearly always fits nevertheless; if not, this scan
        // reads block by block.
        let reservation = if is_worth_it { self.0.try_reserve(bytes) } else { None };
        debug_assert!(
            reservation.as_ref().is_none_or(|reserved| reserved.bytes() == bytes),
            "a scan reserves all of its share or nothing"
        );
        AheadShare { reservation, runs }
    }
}

impl AheadShare {
    /// No share, as for reads of one row.
    pub(crate) fn none() -> Self {
        AheadShare {
            reservation: None,
            runs: 1,
        }
    }

    fn bytes(&self) -> usize {
        self.reservation.as_ref().map_or(0, Reservation::bytes)
    }

    /// Of each run.
    pub(crate) fn run_bytes(&self) -> usize {
        self.bytes() / self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn one_scan_has_what_it_wants() {
        let ahead = ScanAhead::new(64 * MIB);
        assert_eq!(ahead.share(1).run_bytes(), RUN_BYTES);
        assert_eq!(ahead.share(32).run_bytes(), RUN_BYTES);
        assert_eq!(ahead.share(64).run_bytes(), RUN_BYTES / 2);
        // Of very many runs there is less for each than would be worth it by itself.
        assert_eq!(ahead.share(1024).run_bytes(), SCAN_BYTES_MAX / 1024);
        assert_eq!(ahead.taken(), 0);
    }

    #[test]
    fn many_scans_share_what_there_is() {
        let ahead = ScanAhead::new(16 * MIB);
        let mut shares: Vec<AheadShare> = (0..1000).map(|_| ahead.share(8)).collect();
        assert!((15 * MIB..=16 * MIB).contains(&ahead.taken()), "{}", ahead.taken());
        assert_eq!(shares[0].run_bytes(), RUN_BYTES);
        assert_eq!(shares[999].run_bytes(), 0, "block by block");
        assert!(
            shares
                .iter()
                .all(|share| share.bytes() == 0 || share.run_bytes() >= RUN_BYTES_MIN)
        );
        shares.truncate(1);
        assert_eq!(ahead.taken(), 2 * MIB);
        assert_eq!(ahead.share(8).run_bytes(), RUN_BYTES);
    }
}
