//! Decides what to compact next in one locality group.
//!
//! Merging compactions are size-tiered: files of about equal size, adjacent in age, are merged, so an entry is rewritten
//! once per tier (Bigtable §5.4 bounds the number of files this way). A major compaction rewrites all files into one; it
//! is chosen when markers make up too much, or when most of what a reference's file holds belongs to somebody else.
//!
//! Pure: `tabletserver::maintenance` decides *when*, this module decides *what*.

use std::ops::Range;

/// What the picker knows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// About how many bytes are referenced.
    pub bytes: u64,
    /// Entries of the whole file.
    pub cells: u64,
    /// Markers of the whole file.
    pub deletes: u64,
    /// Bytes of the whole file.
    pub file_bytes: u64,
}

/// Files to merge, as a range of positions, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Which files.
    pub files: Range<usize>,
    /// All of them, and everything that can go shall go.
    pub major: bool,
}

/// Files of a tier that make a merge worth its writes: with 4, an entry is rewritten log4(size) times and a reader merges
/// at most about 4 files per tier.
const TIER_FILES: usize = 4;
/// Files merged at once; bounds open readers and memory.
const FILES_MAX: usize = 32;
/// A file joins a tier when it is at most this much larger than all newer ones of the run together.
const TIER_RATIO: u64 = 2;
/// Markers as a share of entries, in percent, that trigger a major compaction: Hypertable's garbage threshold.
const GARBAGE_PERCENT: u64 = 20;

/// Files that are this many times larger than what is referenced of them are worth rewriting: two splits, say, or most
/// rows dropped.
const FOREIGN_RATIO: u64 = 4;

/// The next compaction, if one is due. `files` is ordered oldest first.
pub fn pick(files: &[FileSummary]) -> Option<Pick> {
    if files.is_empty() {
        return None;
    }
    let cells: u64 = files.iter().map(|f| f.cells).sum();
    let deletes: u64 = files.iter().map(|f| f.deletes).sum();
    let garbage = deletes * 100 > cells * GARBAGE_PERCENT;
    let (bytes, file_bytes) = files.iter().fold((0, 0), |(a, b), f| (a + f.bytes, b + f.file_bytes));
    let foreign = bytes * FOREIGN_RATIO < file_bytes;
    if (garbage || foreign) && files.len() <= FILES_MAX {
        return Some(Pick {
            files: 0..files.len(),
            major: true,
        });
    }
    pick_tier(files)
}

/// The longest run of similar files, counted from the newest.
fn pick_tier(files: &[FileSummary]) -> Option<Pick> {
    let mut end = files.len();
    while end > 0 {
        let mut start = end - 1;
        let mut bytes = files[start].bytes;
        while start > 0 && end - start < FILES_MAX && files[start - 1].bytes <= bytes.saturating_mul(TIER_RATIO) {
            start -= 1;
            bytes += files[start].bytes;
        }
        if end - start >= TIER_FILES {
            return Some(Pick {
                files: start..end,
                major: start == 0 && end == files.len(),
            });
        }
        end = start;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files as `bytes[/deletes][:file bytes]` of 100 entries each; the pick as text.
    fn check(files: &str, expected: &str) {
        let parse = |word: &str| {
            let (word, whole) = word.split_once(':').unwrap_or((word, ""));
            let (bytes, deletes) = word.split_once('/').unwrap_or((word, "0"));
            let bytes = bytes.parse().unwrap();
            FileSummary {
                bytes,
                cells: 100,
                deletes: deletes.parse().unwrap(),
                file_bytes: whole.parse().unwrap_or(bytes),
            }
        };
        let files: Vec<FileSummary> = files.split_whitespace().map(parse).collect();
        let picked = match pick(&files) {
            None => "nothing".to_owned(),
            Some(p) => format!("{:?}{}", p.files, if p.major { " major" } else { "" }),
        };
        assert_eq!(picked, expected);
    }

    #[test]
    fn picks() {
        check("", "nothing");
        check("100", "nothing");
        check("10 10 10", "nothing");
        check("10 10 10 10", "0..4 major");
        check("1000 10 10 10 10", "1..5");
        check("1000 10 10 10", "nothing");
        // A small newest file does not hide the tier below it.
        check("1000 100 100 100 100 1", "1..5");
        check("1000/30 10", "nothing");
        check("1000/50 10", "0..2 major");
        check("100/21", "0..1 major");
        check("500:1000", "nothing");
        check("240:1000", "0..1 major");
        check("240:1000 200", "nothing");
    }
}
