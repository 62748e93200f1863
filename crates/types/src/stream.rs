//! Tells which stream of a commit log has the records of a tablet.
//!
//! A server divides its tablets over the streams of its log. After its end others read only the streams of the tablets that they
//! take up, so all versions of the program must agree: this function never changes (`docs/formats/commit-log.md`).

use crate::{ServerId, TabletId};

/// Bits of an identifier below the number of its block.
const BLOCK_BITS: u32 = 20;

/// The fractional parts of the square roots of the first primes, times 2^64. Multiples of each are spread evenly, also those of a selection
/// by another one.
const FACTORS: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// The stream, counted from 0, of a server's log with this many. A log without a stream has all records in the first.
///
/// Servers divide their tablets in different ways. Otherwise the tablets of one stream, which another server takes up together, would be
/// in one stream of that server's log as well, and nobody could divide its replay.
///
/// A table and each split take a block of identifiers of their own, so the number of the block counts, too. By its identifier alone the
/// tablet of each table that was not divided when it was made would be in the same stream.
pub fn stream_of(server: ServerId, tablet: TabletId, streams: u32) -> u32 {
    let block = tablet.0 >> BLOCK_BITS;
    let factor = FACTORS[server.0 as usize % FACTORS.len()];
    let place = block.wrapping_add(tablet.0).wrapping_mul(factor);
    let stream = (u128::from(place) * u128::from(streams.max(1))) >> 64;
    u32::try_from(stream).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Other servers find records by these numbers in logs that were written years before.
    #[test]
    fn tablets_stay_in_their_streams() {
        let streams =
            |server: u32, id: u64| [0, 1, 2, 3, 4].map(|streams| stream_of(ServerId(server), TabletId(id), streams));
        assert_eq!(streams(1, 1), [0, 0, 1, 2, 2]);
        assert_eq!(streams(1, 2), [0, 0, 0, 1, 1]);
        assert_eq!(streams(2, (1 << 20) + 1), [0, 0, 1, 2, 2]);
        assert_eq!(streams(3, (7 << 20) + 12), [0, 0, 1, 1, 2]);
        assert_eq!(streams(u32::MAX, u64::MAX), [0, 0, 0, 0, 0]);
    }

    /// How many of the tablets are in each stream.
    fn counts(server: u32, tablets: &[u64], streams: u32) -> Vec<usize> {
        let mut counts = vec![0; streams as usize];
        for tablet in tablets {
            counts[stream_of(ServerId(server), TabletId(*tablet), streams) as usize] += 1;
        }
        counts
    }

    /// Identifiers as `Catalog::allocate_ids` gives them, the first of a block to the table.
    #[test]
    fn streams_have_about_as_many_tablets_however_these_were_made() {
        let first = |block: u64| block << 20;
        let of_tables: Vec<u64> = (1..=240).map(|block| first(block) + 1).collect();
        let halves: Vec<u64> = (1..=120).flat_map(|block| [first(block), first(block) + 1]).collect();
        let of_one_table: Vec<u64> = (1..=240).map(|number| first(7) + number).collect();
        for ids in [of_tables, halves, of_one_table] {
            for (server, streams) in (1..=8).flat_map(|server| [1, 2, 3, 4].map(|streams| (server, streams))) {
                let counts = counts(server, &ids, streams);
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(4 * *most <= 5 * *least, "server {server}, from {}: {counts:?}", ids[0]);
            }
        }
    }

    /// Servers whose numbers differ by less than eight. If both used the same division, the second log would have one stream with all.
    #[test]
    fn the_tablets_of_one_stream_are_divided_over_those_of_another_server() {
        let tablets: Vec<u64> = (1..=240).map(|number| (7 << 20) + number).collect();
        for (server, next) in (1..=8).flat_map(|server| (1..8).map(move |after| (server, server + after))) {
            let mut taken: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
            for tablet in &tablets {
                let stream = stream_of(ServerId(server), TabletId(*tablet), 2);
                taken.entry(stream).or_default().push(*tablet);
            }
            for taken in taken.values() {
                let counts = counts(next, taken, 2);
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(2 * *most <= 3 * *least, "server {server}, then {next}: {counts:?}");
            }
        }
    }
}
