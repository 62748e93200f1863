//! Counters of disks: `/proc/diskstats`, and the selection of whole disks among its lines.
//!
//! Partitions repeat the counts of their disk, and loop and RAM devices repeat those of other disks, so only whole
//! disks are kept. The directory `/sys/block` lists them.

use super::DiskSample;
use std::collections::BTreeMap;

/// Bytes of a sector in the kernel's counters, for disks of any sector size.
const SECTOR_BYTES: u64 = 512;

/// Reads the lines of the devices that `is_whole_disk` accepts.
pub fn disks(diskstats: &str, is_whole_disk: impl Fn(&str) -> bool) -> BTreeMap<String, DiskSample> {
    diskstats
        .lines()
        .filter_map(line)
        .filter(|(name, sample)| is_whole_disk(name) && !is_stacked(name) && sample.operations > 0)
        .collect()
}

/// Devices without a disk of their own: made of memory, of files or of nothing.
fn is_stacked(name: &str) -> bool {
    ["loop", "ram", "zram", "nbd"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn line(line: &str) -> Option<(String, DiskSample)> {
    let mut fields = line.split_ascii_whitespace().skip(2);
    let name = fields.next()?.to_owned();
    let counters: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    // reads merged sectors ms, writes merged sectors ms, in flight, busy ms, weighted ms
    let field = |place: usize| counters.get(place).copied();
    let sample = DiskSample {
        operations: field(0)?.saturating_add(field(4)?),
        read_bytes: field(2)?.saturating_mul(SECTOR_BYTES),
        written_bytes: field(6)?.saturating_mul(SECTOR_BYTES),
        in_flight: field(8)?,
        busy_millis: field(9)?,
        wait_millis: field(10)?,
    };
    Some((name, sample))
}

/// Names of whole disks: the entries of `/sys/block`.
pub fn whole_disks() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/block").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "   8       0 sda 100 5 2048 30 200 7 4096 90 3 110 150 0 0 0 0 4 5\n   8       1 sda1 90 5 2000 30 200 7 \
                        4096 90 0 110 150\n   7       0 loop0 9 0 9 0 0 0 0 0 0 1 1\n 259       0 nvme0n1 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn whole_disks_that_were_used_are_kept() {
        let found = disks(TEXT, |name| name != "sda1");
        let expected = DiskSample {
            operations: 300,
            read_bytes: 2048 * 512,
            written_bytes: 4096 * 512,
            busy_millis: 110,
            wait_millis: 150,
            in_flight: 3,
        };
        assert_eq!(found, BTreeMap::from([("sda".to_owned(), expected)]));
        assert_eq!(disks(TEXT, |_| true).len(), 2);
    }

    #[test]
    fn lines_of_another_form_are_left_out() {
        assert!(disks("", |_| true).is_empty());
        assert!(disks("8 0 sda 1 2 3 4\n8 0\nfoo bar baz qux\n", |_| true).is_empty());
        let huge = "8 0 sda 18446744073709551615 0 18446744073709551615 0 5 0 0 0 0 0 0\n";
        assert_eq!(disks(huge, |_| true).get("sda").map(|d| d.operations), Some(u64::MAX));
    }
}
