//! Tells which stream of a commit log has the records of a tablet.
//!
//! A server divides its tablets over the streams of its log. After its end others read only the streams of the tablets that they
//! take up, so all versions of the program must agree: this function never changes (`docs/formats/commit-log.md`).

use crate::TabletId;

/// Bits of an identifier below the number of its block.
const BLOCK_BITS: u32 = 20;

/// The stream, counted from 0, of a log with this many. A log without a stream has all records in the first.
///
/// A table and each split take a block of identifiers of their own. So by its identifier alone the tablet of a table that was
/// not divided when it was made would be in the second stream, and every half in the first two.
pub fn stream_of(tablet: TabletId, streams: u32) -> u32 {
    let block = tablet.0 >> BLOCK_BITS;
    let place = block.wrapping_add(tablet.0) % u64::from(streams.max(1));
    u32::try_from(place).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other servers find records by these numbers in logs that were written years before.
    #[test]
    fn tablets_stay_in_their_streams() {
        let streams = |id: u64| [0, 1, 2, 3, 4].map(|streams| stream_of(TabletId(id), streams));
        assert_eq!(streams(1), [0, 0, 1, 1, 1]);
        assert_eq!(streams(2), [0, 0, 0, 2, 2]);
        assert_eq!(streams((1 << 20) + 1), [0, 0, 0, 0, 2]);
        assert_eq!(streams((7 << 20) + 12), [0, 0, 1, 2, 3]);
        assert_eq!(streams(u64::MAX), [0, 0, 0, 2, 2]);
    }
}
