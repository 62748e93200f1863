//! When tablets are split and merged, as far as the number of servers decides it.
//!
//! A table begins with small tablets, so that all servers soon have a part of it: the *soft* limit of Hypertable. It doubles
//! with the number of tablets until it is the table's own limit.

use crate::view::{TableView, TabletView};
use std::time::Duration;
use stele_types::TabletId;

/// The soft limit begins at the table's limit divided by at most this.
const SOFT_DIVISOR_MAX: u64 = 64;
/// A tablet with this part of its server's requests, or more, is split although it is small.
const HOT_PART: u64 = 4;
/// Requests per second below which no tablet is hot. A core serves some ten thousands.
const HOT_REQUESTS_MIN: u64 = 5_000;
/// Bytes below which a tablet is not split for its load: a few of its rows have it, and a split does not divide them.
const HOT_BYTES_MIN: u64 = 1 << 20;
/// Neighbours are merged if together they have less than this part of the limit, so that the result is not split again soon.
const SMALL_PART: u64 = 4;
/// Requests per second above which a small tablet stays: it was split for its load.
const IDLE_REQUESTS_MAX: u64 = 100;

/// The part of a table's limit at which its tablets are split: the limit is divided by this. More `tablets` divide it less.
pub fn limit_divisor(servers: usize, tablets: usize) -> u64 {
    if servers < 2 {
        return 1;
    }
    let divisor = (2 * servers as u64).min(SOFT_DIVISOR_MAX);
    let doublings = tablets.max(1).ilog2();
    divisor.checked_shr(doublings).unwrap_or(0).max(1)
}

/// Whether a tablet is split for its load, with its bytes and its requests per second. `requests_of_server` are those of all
/// tablets of its server, this one included.
pub fn splits_for_load(bytes: u64, requests: u64, requests_of_server: u64, servers: usize) -> bool {
    let is_hot = requests >= HOT_REQUESTS_MIN && requests >= requests_of_server / HOT_PART;
    servers > 1 && bytes >= HOT_BYTES_MIN && is_hot
}

/// Two neighbours that are worth merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeCandidate {
    /// The lower one.
    pub left: TabletId,
    /// The upper one.
    pub right: TabletId,
}

/// Neighbours of a table to merge, each tablet at most once, of which both are unchanged for at least the time `quiet`. The
/// table keeps at least two tablets for each server.
pub fn merges(table: &TableView, limit: u64, servers: usize, quiet: Duration) -> Vec<MergeCandidate> {
    let mut spare = table.tablets.len().saturating_sub(2 * servers.max(1));
    let small = limit / SMALL_PART;
    let is_quiet = |tablet: &TabletView| tablet.requests <= IDLE_REQUESTS_MAX && tablet.unchanged_for >= quiet;
    let mut merges = Vec::new();
    let mut tablets = table.tablets.iter().peekable();
    while let Some(left) = tablets.next() {
        let Some(right) = tablets.peek() else { break };
        let fits = left.bytes.saturating_add(right.bytes) < small;
        if spare > 0 && fits && is_quiet(left) && is_quiet(right) {
            merges.push(MergeCandidate {
                left: left.id,
                right: right.id,
            });
            spare -= 1;
            tablets.next();
        }
    }
    merges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Assignment, Attempted};
    use stele_types::TableId;

    const QUIET: Duration = Duration::from_secs(60);

    fn tablet(id: u64, bytes: u64, requests: u64, unchanged_for: Duration) -> TabletView {
        TabletView {
            id: TabletId(id),
            bytes,
            requests,
            unchanged_for,
            assignment: Assignment::default(),
            attempts: Attempted::default(),
        }
    }

    #[test]
    fn the_soft_limit_doubles_up_to_the_limit() {
        assert_eq!(limit_divisor(1, 1), 1);
        let with_four = [0, 1, 2, 7, 8, 1 << 40].map(|tablets| limit_divisor(4, tablets));
        assert_eq!(with_four, [8, 8, 4, 2, 1, 1]);
        assert_eq!(limit_divisor(1000, 1), SOFT_DIVISOR_MAX);
        assert_eq!(limit_divisor(1000, usize::MAX), 1);
    }

    #[test]
    fn a_hot_tablet_is_split_where_another_server_can_help() {
        let large = 1 << 30;
        assert!(splits_for_load(large, 8_000, 20_000, 2));
        assert!(!splits_for_load(large, 8_000, 20_000, 1));
        assert!(!splits_for_load(large, 8_000, 40_000, 2));
        assert!(!splits_for_load(large, 4_000, 4_000, 2));
        assert!(!splits_for_load(1000, 8_000, 20_000, 2));
    }

    #[test]
    fn small_quiet_neighbours_merge_in_pairs() {
        let table = |tablets: Vec<TabletView>| TableView {
            id: TableId(1),
            tablets,
        };
        let quiet = |id| tablet(id, 10, 0, QUIET);
        let pair = |left, right| MergeCandidate {
            left: TabletId(left),
            right: TabletId(right),
        };
        let all = table((0..6).map(quiet).collect());
        assert_eq!(merges(&all, 1000, 1, QUIET), vec![pair(0, 1), pair(2, 3), pair(4, 5)]);
        assert_eq!(merges(&all, 1000, 2, QUIET), vec![pair(0, 1), pair(2, 3)]);
        assert_eq!(merges(&all, 1000, 3, QUIET), vec![]);
        assert_eq!(merges(&all, 80, 1, QUIET), vec![]);
        let others = [
            tablet(1, 300, 0, QUIET),
            tablet(1, 10, 101, QUIET),
            tablet(1, 10, 0, QUIET - Duration::from_secs(1)),
        ];
        for other in others {
            let tablets = vec![quiet(0), other.clone(), quiet(2)];
            assert_eq!(merges(&table(tablets), 1000, 0, QUIET), vec![], "{other:?}");
        }
    }
}
