//! Which tablets may need a compaction, and which of them is next.
//!
//! A tablet is announced when something has happened to it: a flush, a compaction, an end of a split.
//!
//! A second job of a tablet is begun concurrently with the first when no other tablet waits: a short merge may be due behind
//! a long one. Whether one is, the tablet knows. So another worker checks once a job has begun, and again after a flush.
//!
//! A small tablet would never be the most urgent while writes to larger ones go on. So every other job may go to a tablet that has
//! waited long, unless the disk is full: there the order is that of the space that jobs free.
//!
//! A tablet whose compaction fails is left alone for a time, longer each time. It may be the most urgent of all and stay so,
//! and each attempt reads and writes until it comes to the place that fails. The others are not to wait for that.
//!
//! A client may request a compaction of a tablet. A minor one is a check as any other. A major one rewrites all files of the
//! tablet; it has the tablet for itself, and one worker. It is stopped after a part while somebody waits for the tablet's
//! compactions to end, and begins again later.
//!
//! Invariants:
//! * Each set has a tablet at most once, so all are bounded by the number of tablets.
//! * Of the tablets that have waited for [`WAIT_LONG`], the one that has waited longest is among the next two that begin, unless
//!   the disk is full.
//! * A tablet has at most one requested major compaction, waiting or running, and no second job meanwhile.
//! * A tablet has between one and two jobs while it is among the running ones, and every job that began ends once.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_client::CompactionState;
use stele_types::TabletId;
use tokio::sync::Notify;

/// Concurrent jobs of one tablet: a third is hardly ever due before one of two ends, and each has buffers.
const JOBS_OF_TABLET_MAX: usize = 2;
/// How long a tablet is left alone when its compaction fails for the first time: longer than the worker pauses, so that it takes
/// up something else then.
const COMPACTION_RETRY_MIN: Duration = Duration::from_millis(1_500);
/// The same at most: twice as long each time up to here. A job may write hundreds of megabytes before it fails.
const COMPACTION_RETRY_MAX: Duration = Duration::from_secs(60);

/// A tablet that has waited this long may begin before more urgent ones. The order of urgency matters for less: a job of a
/// hundred megabytes takes seconds.
const WAIT_LONG: Duration = Duration::from_secs(30);

/// The tablets that wait for a check.
#[derive(Default)]
pub(crate) struct Compactions {
    inner: Mutex<Inner>,
    wanted: Notify,
}

#[derive(Default)]
struct Inner {
    /// Tablets that wait, each with the time of the first check since which it could have begun its first job.
    waiting: BTreeMap<TabletId, Option<Duration>>,
    /// Whether the last first job of a tablet went to the one that had waited longest.
    was_longest: bool,
    /// Tablets with one job, which may have another concurrently.
    beside: BTreeSet<TabletId>,
    /// Jobs by tablet; never 0.
    running: BTreeMap<TabletId, usize>,
    /// Those of which the last compaction failed.
    failed: BTreeMap<TabletId, Failed>,
    /// Those of which a check was requested that has not begun.
    requested: BTreeSet<TabletId>,
    /// Requested compactions of everything.
    majors: BTreeMap<TabletId, Major>,
    /// How many wait for the compactions of a tablet to end, or need that they have ended; never 0.
    held: BTreeMap<TabletId, usize>,
}

/// How far a requested compaction of everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Major {
    Waiting,
    Running,
}

/// The compactions of a tablet that run or wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionStage {
    /// Jobs that run.
    pub(crate) jobs: usize,
    /// It waits for a check.
    pub(crate) is_waiting: bool,
    /// Its last compaction failed, and it is left alone for a time.
    pub(crate) is_backing_off: bool,
    /// A compaction of everything was requested.
    pub(crate) has_major: bool,
}

/// That a tablet is left alone because its compaction failed.
#[derive(Clone, Copy)]
struct Failed {
    pause: Duration,
    until: Duration,
}

impl Inner {
    fn jobs(&self, tablet: TabletId) -> usize {
        self.running.get(&tablet).copied().unwrap_or(0)
    }

    fn is_backing_off(&self, tablet: TabletId, now: Duration) -> bool {
        self.failed.get(&tablet).is_some_and(|failed| now < failed.until)
    }

    /// Something happened to a tablet; whether it did not wait before.
    fn add(&mut self, tablet: TabletId) -> bool {
        let former = self.waiting.len();
        self.waiting.entry(tablet).or_default();
        self.waiting.len() > former
    }

    /// Notes since when tablets wait. Those that have a job, or are left alone, do not wait for a worker.
    fn note_waits(&mut self, now: Duration) {
        let (running, failed) = (&self.running, &self.failed);
        for (tablet, since) in &mut self.waiting {
            let is_left_alone = failed.get(tablet).is_some_and(|failed| now < failed.until);
            *since = match running.contains_key(tablet) || is_left_alone {
                true => None,
                false => since.or(Some(now)),
            };
        }
    }

    /// The tablet without a job that has waited longest, if that is long.
    fn longest(&self, now: Duration) -> Option<TabletId> {
        let waits = self.waiting.iter();
        let waits = waits.filter_map(|(tablet, since)| Some((since.as_ref()?, *tablet)));
        let (since, tablet) = waits.min()?;
        (now.saturating_sub(*since) >= WAIT_LONG).then_some(tablet)
    }

    /// The most urgent tablet without a job, or, when there is none, of those that may have another; none that is left alone.
    fn next(&self, now: Duration, urgency: impl Fn(TabletId) -> u64) -> Option<TabletId> {
        let may_begin = |tablet: &&TabletId| !self.is_backing_off(**tablet, now);
        let idle = self.waiting.keys().filter(|tablet| self.jobs(**tablet) == 0);
        let may_have = |tablet: &&TabletId| {
            (1..JOBS_OF_TABLET_MAX).contains(&self.jobs(**tablet)) && !self.majors.contains_key(*tablet)
        };
        let busy = self.waiting.keys().chain(&self.beside).filter(may_have);
        let most = |tablets: &mut dyn Iterator<Item = &TabletId>| tablets.copied().max_by_key(|id| (urgency(*id), *id));
        most(&mut idle.filter(may_begin)).or_else(|| most(&mut busy.filter(may_begin)))
    }
}

/// No compaction of everything of a tablet begins, and one that runs ends soon.
pub(crate) struct MajorsHeld {
    compactions: Arc<Compactions>,
    tablet: TabletId,
}

impl Drop for MajorsHeld {
    fn drop(&mut self) {
        let mut inner = self.compactions.inner.lock();
        if let Some(holders) = inner.held.get_mut(&self.tablet).filter(|holders| **holders > 1) {
            *holders -= 1;
            return;
        }
        inner.held.remove(&self.tablet);
        if inner.majors.contains_key(&self.tablet) {
            inner.add(self.tablet);
            self.compactions.wanted.notify_one();
        }
    }
}

impl Compactions {
    /// Something happened to a tablet that may make a compaction due.
    pub(crate) fn announce(&self, tablet: TabletId) {
        if self.inner.lock().add(tablet) {
            self.wanted.notify_one();
        }
    }

    /// A client requests a compaction of a tablet: of everything if it is `major`.
    pub(crate) fn request(&self, tablet: TabletId, major: bool) {
        let mut inner = self.inner.lock();
        if major {
            inner.majors.entry(tablet).or_insert(Major::Waiting);
        } else {
            inner.requested.insert(tablet);
        }
        // The client may know that it succeeds now.
        inner.failed.remove(&tablet);
        inner.add(tablet);
        self.wanted.notify_one();
    }

    /// The compactions of a tablet that run or were requested.
    pub(crate) fn state(&self, tablet: TabletId) -> CompactionState {
        let inner = self.inner.lock();
        let major = inner.majors.get(&tablet);
        let of_major = usize::from(major == Some(&Major::Running));
        let is_minor = inner.requested.contains(&tablet) || inner.jobs(tablet) > of_major;
        match (major.is_some(), is_minor) {
            (false, false) => CompactionState::None,
            (false, true) => CompactionState::Minor,
            (true, false) => CompactionState::Major,
            (true, true) => CompactionState::MajorAndMinor,
        }
    }

    /// Begins the requested compaction of everything of a tablet of which a job has begun; whether there is one. It is the
    /// tablet's only job.
    pub(crate) fn begin_major(&self, tablet: TabletId) -> bool {
        let mut inner = self.inner.lock();
        let may_begin = inner.jobs(tablet) == 1 && !inner.held.contains_key(&tablet);
        match inner.majors.get_mut(&tablet) {
            Some(major) if may_begin => {
                assert_eq!(
                    *major,
                    Major::Waiting,
                    "a compaction of everything is its tablet's only job"
                );
                *major = Major::Running;
                true
            }
            _ => false,
        }
    }

    /// Whether the running compaction of everything of a tablet goes on: nobody waits for its end.
    pub(crate) fn major_goes_on(&self, tablet: TabletId) -> bool {
        !self.inner.lock().held.contains_key(&tablet)
    }

    /// A compaction of everything has ended. One that was stopped waits to begin `again`.
    pub(crate) fn end_major(&self, tablet: TabletId, again: bool) {
        let mut inner = self.inner.lock();
        let ended = inner.majors.remove(&tablet);
        assert_eq!(ended, Some(Major::Running), "a compaction of everything ends once");
        if again {
            inner.majors.insert(tablet, Major::Waiting);
        }
        // Something may have come up meanwhile.
        inner.add(tablet);
    }

    /// Has a running compaction of everything of a tablet end after its present part, and begins none, while the guard
    /// lives: for a caller who waits for the compactions of the tablet to end.
    pub(crate) fn hold_majors(self: &Arc<Self>, tablet: TabletId) -> MajorsHeld {
        *self.inner.lock().held.entry(tablet).or_default() += 1;
        MajorsHeld {
            compactions: self.clone(),
            tablet,
        }
    }

    /// Forgets the requests for a tablet, which is no more.
    pub(crate) fn forget_requests(&self, tablet: TabletId) {
        let mut inner = self.inner.lock();
        inner.requested.remove(&tablet);
        inner.majors.remove(&tablet);
    }

    /// A compaction of a tablet failed: it waits for another, and is left alone for a time. That does not grow where it failed
    /// for want of space, which may be there at any moment.
    pub(crate) fn failed(&self, tablet: TabletId, now: Duration, is_for_space: bool) {
        let mut inner = self.inner.lock();
        let before = inner.failed.get(&tablet).map_or(Duration::ZERO, |failed| failed.pause);
        let pause = match is_for_space {
            true => COMPACTION_RETRY_MIN,
            false => (before * 2).clamp(COMPACTION_RETRY_MIN, COMPACTION_RETRY_MAX),
        };
        let until = now + pause;
        inner.failed.insert(tablet, Failed { pause, until });
        inner.add(tablet);
        assert!(
            (COMPACTION_RETRY_MIN..=COMPACTION_RETRY_MAX).contains(&pause),
            "a tablet is left alone for a bounded time: {pause:?}"
        );
    }

    /// The due compactions of a tablet have been done, or the tablet is no more.
    pub(crate) fn forget_failures(&self, tablet: TabletId) {
        self.inner.lock().failed.remove(&tablet);
    }

    /// The compactions of a tablet now.
    pub(crate) fn stage(&self, tablet: TabletId, now: Duration) -> CompactionStage {
        let inner = self.inner.lock();
        CompactionStage {
            jobs: inner.jobs(tablet),
            is_waiting: inner.waiting.contains_key(&tablet),
            is_backing_off: inner.is_backing_off(tablet, now),
            has_major: inner.majors.contains_key(&tablet),
        }
    }

    /// How many compactions are running.
    pub(crate) fn running(&self) -> usize {
        self.inner.lock().running.values().sum()
    }

    /// Takes the waiting tablet with the highest urgency or the longest wait, and whether it has another job. While the disk is
    /// full, as `one` says, it takes the most urgent, and none while another job runs.
    pub(crate) fn begin(
        &self,
        one: bool,
        now: Duration,
        urgency: impl Fn(TabletId) -> u64,
    ) -> Option<(TabletId, bool)> {
        let mut inner = self.inner.lock();
        if one && !inner.running.is_empty() {
            return None;
        }
        inner.note_waits(now);
        let longest = match one || inner.was_longest {
            true => None,
            false => inner.longest(now),
        };
        let tablet = longest.or_else(|| inner.next(now, urgency))?;
        inner.waiting.remove(&tablet);
        inner.beside.remove(&tablet);
        inner.requested.remove(&tablet);
        let is_second = inner.jobs(tablet) > 0;
        assert!(
            !is_second || longest.is_none(),
            "a tablet that has a job does not wait for a worker"
        );
        if !is_second {
            inner.was_longest = longest.is_some();
        }
        *inner.running.entry(tablet).or_default() += 1;
        assert!(
            inner.jobs(tablet) <= JOBS_OF_TABLET_MAX,
            "a tablet has at most {JOBS_OF_TABLET_MAX} jobs, because each holds buffers"
        );
        if !is_second {
            inner.beside.insert(tablet);
        }
        if inner.next(now, |_| 0).is_some() {
            self.wanted.notify_one();
        }
        Some((tablet, is_second))
    }

    /// A job of a tablet has ended.
    pub(crate) fn end(&self, tablet: TabletId) {
        let mut inner = self.inner.lock();
        let jobs = inner.jobs(tablet);
        assert!(jobs > 0, "a job ends once: tablet {tablet} has none");
        match jobs - 1 {
            0 => {
                inner.running.remove(&tablet);
                inner.beside.remove(&tablet);
            }
            left => drop(inner.running.insert(tablet, left)),
        }
    }

    /// Waits until a tablet is announced, or may have another job.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_first_and_a_second_job_when_nothing_else_waits() {
        let compactions = Compactions::default();
        for id in [1, 2, 3, 2] {
            compactions.announce(TabletId(id));
        }
        let urgency = |tablet: TabletId| [0, 10, 30, 20][tablet.0 as usize];
        let begin = |second| {
            compactions
                .begin(second, Duration::ZERO, urgency)
                .map(|(tablet, is_second)| (tablet.0, is_second))
        };
        assert_eq!(begin(false), Some((2, false)));
        compactions.announce(TabletId(2));
        assert_eq!(begin(false), Some((3, false)));
        assert_eq!(begin(false), Some((1, false)));
        assert_eq!((begin(true), compactions.running()), (None, 3));
        // Each is checked once more.
        assert_eq!([begin(false), begin(false)], [Some((2, true)), Some((3, true))]);
        compactions.end(TabletId(2));
        assert_eq!([begin(false), begin(false)], [Some((1, true)), None]);
        // A check that has found nothing is not repeated until something happens.
        compactions.end(TabletId(1));
        assert_eq!(begin(false), None);
        compactions.announce(TabletId(1));
        compactions.announce(TabletId(3));
        assert_eq!([begin(false), begin(false)], [Some((1, true)), None]);
        for id in [1, 1, 2, 3, 3] {
            compactions.end(TabletId(id));
        }
        assert_eq!((begin(true), compactions.running()), (Some((3, false)), 1));
        compactions.end(TabletId(3));
        assert_eq!((begin(false), compactions.running()), (None, 0));
    }

    #[test]
    fn a_small_tablet_does_not_wait_for_large_ones_for_ever() {
        let compactions = Compactions::default();
        let at = Duration::from_secs;
        let begin = |now| {
            let begun = compactions.begin(false, at(now), |tablet| tablet.0);
            begun.map(|(tablet, _)| tablet.0)
        };
        // Two large tablets are announced again whenever a job of theirs has begun, and one worker takes two seconds for a job.
        let mut small = Vec::new();
        for now in (0..120).step_by(2) {
            for id in [1, 2, 8, 9] {
                compactions.announce(TabletId(id));
            }
            let begun = begin(now).unwrap();
            if begun < 8 {
                small.push((now, begun));
            }
            compactions.end(TabletId(begun));
        }
        // Two that have waited long do not have all jobs, and announced again they wait again.
        assert_eq!(small, [(30, 1), (34, 2), (62, 1), (66, 2), (94, 1), (98, 2)]);
        // On a full disk the wait makes no difference.
        compactions.announce(TabletId(9));
        let begun = compactions.begin(true, at(1_000), |tablet| tablet.0);
        assert_eq!(begun, Some((TabletId(9), false)));
        assert_eq!([begin(1_000), begin(1_001)], [Some(1), Some(8)]);
    }

    #[test]
    fn the_others_do_not_wait_for_one_that_fails() {
        let compactions = Compactions::default();
        let at = Duration::from_millis;
        // One at a time, as on a full disk; the second is always the most urgent.
        let begin = |millis| {
            let begun = compactions.begin(true, at(millis), |tablet| tablet.0);
            begun.map(|(tablet, _)| tablet.0)
        };
        let fail = |millis, is_for_space| {
            compactions.failed(TabletId(2), at(millis), is_for_space);
            compactions.end(TabletId(2));
        };
        compactions.announce(TabletId(1));
        compactions.announce(TabletId(2));
        assert_eq!(begin(0), Some(2));
        fail(0, false);
        // Events meanwhile make no difference.
        compactions.announce(TabletId(2));
        assert_eq!(begin(1_000), Some(1));
        compactions.end(TabletId(1));
        assert_eq!([begin(1_499), begin(1_500)], [None, Some(2)]);
        fail(10_000, false);
        assert_eq!([begin(12_999), begin(13_000)], [None, Some(2)]);
        for _ in 0..9 {
            compactions.failed(TabletId(2), at(100_000), false);
        }
        fail(100_000, false);
        assert_eq!([begin(159_999), begin(160_000)], [None, Some(2)]);
        fail(200_000, true);
        assert_eq!([begin(201_499), begin(201_500)], [None, Some(2)]);
        fail(210_000, false);
        compactions.forget_failures(TabletId(2));
        assert_eq!(begin(210_000), Some(2));
        fail(220_000, false);
        assert_eq!([begin(221_499), begin(221_500)], [None, Some(2)]);
    }

    #[test]
    fn a_compaction_of_everything_has_its_tablet_for_itself() {
        let compactions = Arc::new(Compactions::default());
        let tablet = TabletId(1);
        let begin = || {
            compactions
                .begin(false, Duration::ZERO, |_| 0)
                .map(|(_, is_second)| is_second)
        };
        // Requested while a job runs: no second job begins, or the two might never both have ended.
        compactions.announce(tablet);
        assert_eq!(begin(), Some(false));
        compactions.request(tablet, true);
        compactions.request(tablet, true);
        assert_eq!(
            (begin(), compactions.state(tablet)),
            (None, CompactionState::MajorAndMinor)
        );
        compactions.end(tablet);
        assert_eq!(begin(), Some(false));
        assert!(compactions.begin_major(tablet) && compactions.major_goes_on(tablet));
        compactions.announce(tablet);
        assert_eq!((begin(), compactions.state(tablet)), (None, CompactionState::Major));
        // Somebody waits for its end: it begins again after that.
        let held = [compactions.hold_majors(tablet), compactions.hold_majors(tablet)];
        assert!(!compactions.major_goes_on(tablet));
        compactions.end_major(tablet, true);
        compactions.end(tablet);
        assert_eq!((begin(), compactions.begin_major(tablet)), (Some(false), false));
        compactions.end(tablet);
        let [first, second] = held;
        drop(first);
        assert_eq!(begin(), None, "a check has found nothing");
        drop(second);
        assert_eq!((begin(), compactions.begin_major(tablet)), (Some(false), true));
        compactions.end_major(tablet, false);
        compactions.end(tablet);
        assert_eq!(compactions.state(tablet), CompactionState::None);
        compactions.request(tablet, true);
        compactions.request(tablet, false);
        compactions.forget_requests(tablet);
        assert_eq!(compactions.state(tablet), CompactionState::None);
    }
}
