//! Decides when the live values of a value file are moved to delete it.
//!
//! A value is garbage when no entry refers to it any more. Merges find that out as they drop entries, without reading values:
//! the part of a tablet's share of a file without references is garbage. A file that consists of garbage is not
//! named any more. A file that consists of garbage for the most part is *collected*: the sstables that refer to it are
//! rewritten, each by itself, and their values in it move to a new file.
//!
//! Collecting must not write more than it frees, sstables included. So each byte is moved once for
//! each byte of garbage at most, and values take at most about twice their space.
//!
//! Small files are *gathered* as well. A flush writes the values of one tablet: a few where a thousand tablets are
//! written to. As nothing becomes garbage there, no other rule would ever make fewer of these files, each of which is
//! open. So a job that refers to many small ones of about one size moves their values to one file, since it rewrites the
//! referring sstables in any case. Each byte is moved about once for each factor of eight between a flush and a file
//! that is not small.
//!
//! Pure: no I/O, no clock.

use std::collections::{BTreeMap, BTreeSet};
use stele_types::FileId;

/// The unit of rewriting, oldest first: a file of the bottom, or an upper run.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    /// Bytes of sstables.
    pub bytes: u64,
    /// The bytes of the records it refers to, by file.
    pub live: BTreeMap<FileId, u64>,
}

/// A value file of a tablet.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// The tablet's share.
    pub bytes: u64,
    /// Its values can be read, as far as is known.
    pub sound: bool,
}

/// Garbage that makes a file worth looking at, as a part of the tablet's share of it: with half, moving the rest writes as
/// much as is freed.
const GARBAGE_PART: u64 = 2;
/// The same where everything is rewritten on request.
const GARBAGE_PART_WHEN_ASKED: u64 = 8;
/// Files of less than this part of a full one are small.
const SMALL_PART: u64 = 16;
/// Files of this size are not small, however large a full one is: a terabyte takes 250,000 of them. Besides, flushes and
/// compactions of upper runs end their files at 16 MiB. If those were small, every compaction of upper runs would move
/// all values, into as many files as before.
const SMALL_BYTES_MAX: u64 = 4 << 20;
/// Small files of about one size that are worth moving: as many as runs that are worth merging.
const SMALL_FILES_MIN: usize = 8;
/// Files are of about one size when their lengths have equally many octal digits, of this many bits: eight make one of
/// the next size.
const SIZE_BITS: u32 = 3;

/// The first unit to rewrite of those that may be now, and the files whose values it moves, when collecting them is worth it.
pub fn pick(
    units: &[Unit],
    files: &BTreeMap<FileId, Shared>,
    mut may_be: impl FnMut(usize) -> bool,
) -> Option<(usize, BTreeSet<FileId>)> {
    let live = live_bytes(units);
    let collected = mostly_garbage(&live, files, GARBAGE_PART);
    let refers = |unit: &Unit| unit.live.keys().any(|file| collected.contains(file));
    let freed: u64 = collected
        .iter()
        .filter_map(|file| files.get(file))
        .map(|f| f.bytes)
        .sum();
    let moved: u64 = collected.iter().filter_map(|file| live.get(file)).sum();
    let rewritten: u64 = units.iter().filter(|unit| refers(unit)).map(|unit| unit.bytes).sum();
    let mut referring = units.iter().enumerate().filter(|(_, unit)| refers(unit));
    let (first, _) = referring.find(|(at, _)| may_be(*at))?;
    debug_assert!(first < units.len(), "a unit that is rewritten is there");
    // A value that is moved is freed and written again.
    (freed >= moved.saturating_mul(2).saturating_add(rewritten)).then_some((first, collected))
}

/// The files worth collecting when all units are rewritten in any case.
pub fn when_asked(units: &[Unit], files: &BTreeMap<FileId, Shared>) -> BTreeSet<FileId> {
    mostly_garbage(&live_bytes(units), files, GARBAGE_PART_WHEN_ASKED)
}

/// Of the files that a job refers to, given with their bytes, those that are gathered. A full one has `full_bytes`.
pub fn gathered(files: &BTreeMap<FileId, u64>, full_bytes: u64) -> BTreeSet<FileId> {
    let small_bytes = (full_bytes / SMALL_PART).min(SMALL_BYTES_MAX);
    let mut sizes: BTreeMap<u32, Vec<FileId>> = BTreeMap::new();
    for (file, bytes) in files {
        if *bytes < small_bytes {
            let size = (*bytes).max(1).ilog2() / SIZE_BITS;
            sizes.entry(size).or_default().push(*file);
        }
    }
    let many = sizes
        .into_values()
        .filter(|same_column| same_column.len() >= SMALL_FILES_MIN);
    many.flatten().collect()
}

fn live_bytes(units: &[Unit]) -> BTreeMap<FileId, u64> {
    let mut live: BTreeMap<FileId, u64> = BTreeMap::new();
    for (file, bytes) in units.iter().flat_map(|unit| &unit.live) {
        *live.entry(*file).or_default() += bytes;
    }
    live
}

/// The files of which at least one part in `part` is garbage.
fn mostly_garbage(live: &BTreeMap<FileId, u64>, files: &BTreeMap<FileId, Shared>, part: u64) -> BTreeSet<FileId> {
    let garbage = |(file, shared): (&FileId, &Shared)| {
        let live = live.get(file).copied().unwrap_or(0);
        let garbage = shared.bytes.saturating_sub(live);
        (shared.sound && garbage.saturating_mul(part) >= shared.bytes && garbage > 0).then_some(*file)
    };
    files.iter().filter_map(garbage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(bytes: u64, live: &[(u64, u64)]) -> Unit {
        Unit {
            bytes,
            live: live.iter().map(|(file, bytes)| (FileId(*file), *bytes)).collect(),
        }
    }

    fn files(shares: &[(u64, u64)]) -> BTreeMap<FileId, Shared> {
        let shared = |(file, bytes): &(u64, u64)| {
            (
                FileId(*file),
                Shared {
                    bytes: *bytes,
                    sound: true,
                },
            )
        };
        shares.iter().map(shared).collect()
    }

    fn check(units: &[Unit], files: &BTreeMap<FileId, Shared>, expected: Option<(usize, &[u64])>) {
        let expected = expected.map(|(at, files)| (at, files.iter().map(|file| FileId(*file)).collect()));
        assert_eq!(pick(units, files, |_| true), expected);
    }

    #[test]
    fn files_are_collected_when_that_frees_more_than_it_writes() {
        let two = files(&[(1, 100), (2, 100)]);
        check(&[], &two, None);
        check(&[unit(1, &[(1, 100), (2, 100)])], &two, None);
        check(&[unit(1, &[(1, 50), (2, 100)])], &two, None);
        check(&[unit(2, &[(1, 49), (2, 100)])], &two, Some((0, &[1])));
        check(&[unit(3, &[(1, 49), (2, 100)])], &two, None);
        // The sstables of one file are rewritten for both.
        check(&[unit(3, &[(1, 49), (2, 49)])], &two, Some((0, &[1, 2])));
        check(
            &[unit(9, &[(2, 90)]), unit(2, &[(1, 20), (2, 10)])],
            &two,
            Some((1, &[1])),
        );
    }

    #[test]
    fn what_may_not_be_rewritten_now_does_not_hold_up_the_rest() {
        let one = files(&[(1, 100)]);
        let units = [unit(1, &[(1, 1)]), unit(1, &[]), unit(1, &[(1, 1)])];
        let at = |may_be: &dyn Fn(usize) -> bool| pick(&units, &one, may_be).map(|(at, _)| at);
        assert_eq!(at(&|_| true), Some(0));
        assert_eq!(at(&|unit| unit > 0), Some(2));
        assert_eq!(at(&|unit| unit == 1), None);
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        let mut one = files(&[(1, 100)]);
        check(&[unit(1, &[(1, 1)])], &one, Some((0, &[1])));
        one.insert(
            FileId(1),
            Shared {
                bytes: 100,
                sound: false,
            },
        );
        check(&[unit(1, &[(1, 1)])], &one, None);
    }

    #[test]
    fn many_small_files_of_about_one_size_are_gathered() {
        let count_of = |lens: &[u64], full_bytes| {
            let files = lens.iter().zip(1..).map(|(bytes, file)| (FileId(file), *bytes));
            gathered(&files.collect(), full_bytes).len()
        };
        let count = |lens: &[u64]| count_of(lens, 16 << 20);
        assert_eq!(count(&[1_000; 7]), 0);
        assert_eq!(count(&[1_000; 8]), 8);
        // Files larger than all of the small ones together are not gathered with them: they would be moved again and
        // again.
        assert_eq!(count(&[&[1_000; 8][..], &[100_000; 7][..]].concat()), 8);
        assert_eq!(count(&[&[1_000; 8][..], &[100_000; 8][..]].concat()), 16);
        // Large enough as they are.
        assert_eq!(count(&[1 << 20; 20]), 0);
        // In a group of large files those of a flush are large enough, too, and a compaction of upper runs makes no
        // larger ones of them.
        assert_eq!(count_of(&[16 << 20; 20], 4 << 30), 0);
        assert_eq!(count_of(&[4 << 20; 20], 4 << 30), 0);
        assert_eq!(count_of(&[(4 << 20) - 1; 20], 4 << 30), 20);
    }

    /// Rewriting the unit that is picked makes the rest no less worth it, down to the last.
    #[test]
    fn a_collection_goes_through() {
        let mut shares = files(&[(1, 100)]);
        let mut units = vec![unit(5, &[(1, 10)]), unit(5, &[(1, 10)]), unit(5, &[(1, 10)])];
        for at in 0..3 {
            check(&units, &shares, Some((at, &[1])));
            units[at] = unit(5, &[(9, 10)]);
            shares.insert(
                FileId(9),
                Shared {
                    bytes: 10 * (at as u64 + 1),
                    sound: true,
                },
            );
        }
        check(&units, &shares, None);
    }
}
