//! Decides which segments are still needed.
//!
//! A segment is kept for its records, and for its header. The header states where the segment before it ends and how
//! much of it was synced. The header is needed while the segment before is needed itself, or is not *settled*.
//! Unsettled means that refused bytes may lie behind its end, or that power loss may still take that end. In the latter
//! case recovery drops the segments behind it. Hence one unflushable tablet keeps the segments of its records, one
//! behind each of them, and no others.
//!
//! Where another process may take the log over while this one runs, the rules are stricter. It may have found refused bytes and serve
//! their rows, and rely on the segment until it has flushed them. Or it found a header that leaves them out, and relies on that. So a
//! segment that was given up is kept until the next one has a durable header, and one whose beginning failed is kept like any that tells
//! of another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use stele_types::{SeqNo, TabletId};

/// Segments of failed beginnings that are kept behind one segment. While storage fails, there is one for each group.
const UNBEGUN_MAX: usize = 8;

/// How durable a closed segment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentState {
    /// Power loss may take its end. It ends with an acknowledged group, or another process left it.
    #[default]
    Unsynced,
    /// It ends with its last acknowledged group, and survives power loss.
    Settled,
    /// It was given up after a failure, or recovery found a torn tail in it. Its groups that count survive power loss; refused
    /// bytes may lie behind them.
    GivenUp,
    /// Acknowledged groups may be lost in a power loss, and will never be synced: a sync has failed, of this segment or
    /// of one that recovery needs to keep it. Only a flush makes their records durable.
    NotDurable,
}

/// A closed or open segment and its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its path.
    pub path: String,
    /// Its bytes.
    pub len: u64,
    /// Where its groups that count end.
    pub end: u64,
    /// It must stay because it is not archived yet.
    pub awaits_archive: bool,
    /// The cost of reading it back, in bytes, where that is more.
    pub reading_cost: u64,
    /// The number of the segment whose length its header states; 0 when it is the first of its process's stream.
    pub follows: u64,
    /// The newest sequence number of each tablet in it.
    pub tablets: HashMap<TabletId, SeqNo>,
    /// How durable it is.
    pub state: SegmentState,
    /// Nobody knows whether its header is durable, and nothing else was written to it.
    pub is_unbegun: bool,
}

impl SegmentInfo {
    fn bytes(&self) -> u64 {
        self.len.max(self.reading_cost)
    }

    /// Notes a record.
    pub fn note(&mut self, tablet: TabletId, last: SeqNo) {
        let newest = self.tablets.entry(tablet).or_default();
        *newest = (*newest).max(last);
    }

    /// Notes that all of it survives power loss.
    pub fn note_synced(&mut self) {
        if self.state == SegmentState::Unsynced {
            self.state = SegmentState::Settled;
        }
    }
}

/// A segment that waits for the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The segment.
    pub number: u64,
    /// Its path.
    pub path: String,
    /// Where its groups that count end. A segment without such groups has 0, or the length of a header.
    pub end: u64,
    /// Whether it is not written any more.
    pub is_closed: bool,
}

/// The closed segments of a stream, and perhaps those of earlier processes.
#[derive(Debug, Default)]
pub struct Retention {
    /// The open segment with its acknowledged bytes, of a stream whose log is archived.
    open: Option<LogPosition>,
    /// By segment number.
    closed: BTreeMap<u64, SegmentInfo>,
    /// Another process may take the log over while this one runs.
    may_be_taken: bool,
    /// The segment that was given up last, until a durable header states where it ends.
    unstated: Option<u64>,
    /// Some unneeded segments could not be taken out because older ones are unsynced.
    awaits_sync: bool,
}

/// The segments that must stay.
#[derive(Default)]
struct Kept {
    numbers: BTreeSet<u64>,
    /// One that is kept only for its header is unsynced, and therefore keeps those behind it.
    awaits_sync: bool,
}

impl Retention {
    /// Notes whether another process may take the log over while this one runs.
    pub(crate) fn set_may_be_taken(&mut self, may_be_taken: bool) {
        self.may_be_taken = may_be_taken;
    }

    /// Adds a segment whose header may be durable or not, if it must stay. Otherwise it may be deleted.
    pub(crate) fn add_unbegun(&mut self, number: u64, info: SegmentInfo) -> bool {
        assert!(info.is_unbegun && info.tablets.is_empty(), "nothing counts in it");
        let tells_the_same = |known: &&SegmentInfo| known.is_unbegun && known.follows == info.follows;
        let stays = self.may_be_taken && self.closed.values().filter(tells_the_same).count() < UNBEGUN_MAX;
        if stays {
            self.add(number, info);
        }
        stays
    }

    /// Adds a segment that will not be written again. Returns the one that had the same number: none, unless it was found
    /// on storage.
    pub fn add(&mut self, number: u64, info: SegmentInfo) -> Option<SegmentInfo> {
        self.closed.insert(number, info)
    }

    /// Notes that an unsynced segment survives power loss. It may have been deleted meanwhile.
    pub fn synced(&mut self, number: u64) {
        if let Some(info) = self.closed.get_mut(&number) {
            assert_eq!(info.state, SegmentState::Unsynced, "a segment is synced once");
            info.note_synced();
        }
    }

    /// Notes that an unsynced segment will not be synced. It may have been deleted meanwhile.
    pub fn set_not_durable(&mut self, number: u64) {
        if let Some(info) = self.closed.get_mut(&number) {
            assert_eq!(
                info.state,
                SegmentState::Unsynced,
                "a synced segment does not become less durable"
            );
            info.state = SegmentState::NotDurable;
        }
    }

    /// The tablets with a record that is in a [`SegmentState::NotDurable`] segment and not flushed. The record was acknowledged
    /// and is in memory; only a flush makes it durable.
    pub fn forsaken_holders(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> BTreeSet<TabletId> {
        let segments = self.closed.values();
        let not_durable = segments.filter(|info| info.state == SegmentState::NotDurable);
        let records = not_durable.flat_map(|info| &info.tablets);
        let held = records.filter(|(tablet, seq)| !is_flushed(**tablet, **seq));
        held.map(|(tablet, _)| *tablet).collect()
    }

    /// Notes how much of the open segment is acknowledged.
    pub(crate) fn set_open(&mut self, number: u64, path: &str, end: u64) {
        match &mut self.open {
            Some(open) if open.number == number => {
                assert!(
                    open.end <= end,
                    "the acknowledged bytes of a segment do not become fewer"
                );
                open.end = end;
            }
            open => {
                *open = Some(LogPosition {
                    number,
                    path: path.to_owned(),
                    end,
                    is_closed: false,
                });
            }
        }
    }

    /// Adds the segment that was open. One call, so that nobody finds it neither here nor there.
    pub(crate) fn close_open(&mut self, number: u64, info: SegmentInfo) -> Option<SegmentInfo> {
        let open = self.open.take();
        assert!(
            open.is_none_or(|open| (open.number, open.end) == (number, info.end)),
            "a segment is closed as it was open"
        );
        if self.may_be_taken && matches!(info.state, SegmentState::GivenUp | SegmentState::NotDurable) {
            self.unstated = Some(number);
        }
        self.add(number, info)
    }

    /// Notes that a durable header states where the newest closed segment ends.
    pub(crate) fn begin_next(&mut self) {
        assert!(
            self.unstated.is_none_or(|number| self.closed.contains_key(&number)),
            "the segment of which a header tells is still there"
        );
        self.unstated = None;
    }

    /// The segments that wait for the archive, oldest first, and the open one.
    pub fn positions(&self) -> Vec<LogPosition> {
        let closed = self.closed.iter().filter(|(_, info)| info.awaits_archive);
        let closed = closed.map(|(number, info)| LogPosition {
            number: *number,
            path: info.path.clone(),
            end: info.end,
            is_closed: true,
        });
        let positions: Vec<LogPosition> = closed.chain(self.open.clone()).collect();
        debug_assert!(
            positions.is_sorted_by_key(|position| position.number),
            "the open segment is the newest one"
        );
        positions
    }

    /// Notes that a segment is archived, or never will be.
    pub fn archived(&mut self, number: u64) {
        if let Some(info) = self.closed.get_mut(&number) {
            assert!(info.end > 0, "a segment without groups waits for no archive");
            info.awaits_archive = false;
        }
    }

    /// Bytes that only the archive keeps.
    pub fn bytes_kept_for_archive(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> u64 {
        let waiting = self.closed.values().filter(|info| info.awaits_archive);
        let flushed = waiting.filter(|info| info.tablets.iter().all(|(tablet, seq)| is_flushed(*tablet, *seq)));
        flushed.map(SegmentInfo::bytes).sum()
    }

    /// Takes out the segments of which every record `is_flushed`, except those whose header is still needed. The oldest
    /// segments of one process do not wait for those of another.
    pub fn take_unneeded(&mut self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Vec<(u64, SegmentInfo)> {
        let before = self.closed.len();
        let kept = self.kept_by(true, |tablet, seq| !is_flushed(tablet, seq));
        self.awaits_sync = kept.awaits_sync;
        let numbers: Vec<u64> = self
            .closed
            .keys()
            .filter(|n| !kept.numbers.contains(n))
            .copied()
            .collect();
        let taken: Vec<(u64, SegmentInfo)> = numbers
            .iter()
            .filter_map(|n| self.closed.remove(n).map(|info| (*n, info)))
            .collect();
        assert_eq!(
            taken.len() + self.closed.len(),
            before,
            "each segment is either kept or taken out"
        );
        taken
    }

    /// The segments that must stay because a caller `needs` a record in them, or for the archive, or for their headers.
    fn kept_by(&self, or_archive: bool, needs: impl Fn(TabletId, SeqNo) -> bool) -> Kept {
        let (mut kept, mut told_of) = (Kept::default(), BTreeSet::new());
        for (number, info) in &self.closed {
            let waits = or_archive && info.awaits_archive;
            let is_unstated = self.unstated == Some(*number);
            let is_needed = waits || is_unstated || info.tablets.iter().any(|(t, s)| needs(*t, *s));
            let tells = told_of.contains(&info.follows);
            if is_needed || tells {
                kept.numbers.insert(*number);
            }
            kept.awaits_sync |= tells && !is_needed && info.state == SegmentState::Unsynced;
            if is_needed || (tells && info.state != SegmentState::Settled) {
                told_of.insert(*number);
            }
        }
        kept
    }

    /// Whether unneeded segments stay until older ones are synced, as of the last [`Retention::take_unneeded`].
    pub fn awaits_sync(&self) -> bool {
        self.awaits_sync
    }

    /// Bytes that cannot be deleted while a caller `needs` a record.
    pub fn bytes_kept_by(&self, needs: impl Fn(TabletId, SeqNo) -> bool) -> u64 {
        let kept = self.kept_by(false, needs);
        let kept = kept.numbers.iter().filter_map(|number| self.closed.get(number));
        kept.map(SegmentInfo::bytes).sum()
    }

    /// Bytes in closed segments, or the cost of reading them back.
    pub fn bytes(&self) -> u64 {
        self.closed.values().map(SegmentInfo::bytes).sum()
    }

    /// The states of the segments, oldest first.
    #[cfg(test)]
    pub(crate) fn states(&self) -> Vec<SegmentState> {
        self.closed.values().map(|info| info.state).collect()
    }

    /// Number of closed segments.
    pub fn len(&self) -> usize {
        self.closed.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty()
    }

    /// The tablets with an unflushed record in the oldest segments that have such records, for each process's segments.
    pub fn oldest_holders(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Vec<TabletId> {
        let mut holders = Vec::new();
        // Segments that are held, or are behind one that is.
        let mut behind = BTreeSet::new();
        for (number, info) in &self.closed {
            let before = holders.len();
            if behind.contains(&info.follows) {
                behind.insert(*number);
                continue;
            }
            let held = info.tablets.iter().filter(|(t, s)| !is_flushed(**t, **s));
            holders.extend(held.map(|(t, _)| *t));
            if holders.len() > before {
                behind.insert(*number);
            }
        }
        holders.sort_unstable();
        holders.dedup();
        holders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(follows: u64, tablet: u64) -> SegmentInfo {
        let mut info = SegmentInfo {
            len: 10,
            follows,
            ..SegmentInfo::default()
        };
        info.note(TabletId(tablet), SeqNo(1));
        info
    }

    /// Tablet 1 is not flushed, in the oldest segment that an earlier process wrote.
    #[test]
    fn a_process_that_is_no_more_keeps_its_own_segments_only() {
        let mut retention = Retention::default();
        for (number, follows, tablet) in [(1, 0, 1), (2, 1, 2), (11, 0, 2), (12, 11, 2), (13, 12, 3)] {
            retention.add(number, segment(follows, tablet));
        }
        let needs_1 = |tablet: TabletId, _| tablet == TabletId(1);
        assert_eq!(retention.bytes_kept_by(needs_1), 20, "the second follows the first");
        assert_eq!(retention.oldest_holders(|_, _| false), [1, 2].map(TabletId));
        let unneeded = retention.take_unneeded(|tablet, _| tablet == TabletId(2));
        assert_eq!(unneeded.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [11, 12]);
        assert_eq!(
            retention.oldest_holders(|tablet, _| tablet == TabletId(2)),
            [1, 3].map(TabletId)
        );
        let unneeded = retention.take_unneeded(|tablet, _| tablet != TabletId(3));
        assert_eq!(unneeded.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2]);
    }

    /// Tablet 1 is in the first segment of eight.
    fn one_holds_the_first(settled: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut retention = Retention::default();
        for number in 1..=8 {
            let info = segment(number - 1, if number == 1 { 1 } else { 2 });
            retention.add(number, info);
            if settled(number) {
                retention.synced(number);
            }
        }
        let needs_1 = |tablet: TabletId, _| tablet == TabletId(1);
        let kept = retention.bytes_kept_by(needs_1) / 10;
        assert_eq!(
            retention.oldest_holders(|tablet, _| tablet == TabletId(1)),
            [TabletId(2)]
        );
        let unneeded = retention.take_unneeded(|tablet, _| tablet != TabletId(1));
        assert_eq!(unneeded.len() as u64 + kept, 8);
        unneeded.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn a_segment_that_is_needed_keeps_the_one_that_tells_of_it() {
        assert_eq!(one_holds_the_first(|_| true), [3, 4, 5, 6, 7, 8]);
        // Power loss may take the end of the first four, and the segments behind them go with it.
        assert_eq!(one_holds_the_first(|number| number > 4), [6, 7, 8]);
        assert_eq!(one_holds_the_first(|number| number == 1), []);
        assert_eq!(one_holds_the_first(|number| number < 3), [3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_segment_behind_whose_end_something_was_refused_is_not_settled() {
        let mut retention = Retention::default();
        for number in 1..=4 {
            let mut info = segment(number - 1, number);
            info.state = match number {
                2 => SegmentState::GivenUp,
                _ => SegmentState::Settled,
            };
            retention.add(number, info);
        }
        let unneeded = retention.take_unneeded(|tablet, _| tablet != TabletId(1));
        assert_eq!(unneeded.into_iter().map(|(number, _)| number).collect::<Vec<_>>(), [4]);
    }
}
