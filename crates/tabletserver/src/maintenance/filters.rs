//! Chooses the bloom filters to load when those of all open files exceed memory.
//!
//! The worth of a filter is the block reads that it spares. Above the oldest run of a group nearly every probe spares one; in the
//! oldest run, which mostly has the row, few do. A smaller filter leaves more memory to others. Filters of new files are
//! loaded when the file is opened, if they fit. Every few seconds the filters with the highest worth per byte are chosen,
//! and loaded one after the other, the best first. For each, the worst ones are dropped until it fits.

use crate::parts::Parts;
use crate::stopping::Stopping;
use crate::tablets::Tablets;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use stele_env::Env;
use stele_sstable::Sstable;
use stele_tablet::FileRegistry;

/// How much more a question is worth above the oldest run: one of as many of the rows that are read there is taken to be absent.
const ABOVE_OLDEST: f64 = 8.0;
/// How much more one must be worth than one in memory to take its place: each exchange is a read.
const EXCHANGED_FOR: f64 = 2.0;
/// Probes that are added to those counted of every filter. The count is a sample: a few more or less are chance.
const ASKED_ANYWAY: f64 = 16.0;
/// The largest part of the memory that is exchanged in one round.
const EXCHANGED_PART: usize = 16;
/// Filters that cannot be read before storage is taken to be out of reach.
const FAILURES_MAX: u32 = 3;

/// Chooses the filters that are in memory.
pub(crate) struct FilterChooser {
    env: Env,
    files: Arc<FileRegistry>,
    tablets: Arc<Tablets>,
    stopping: Stopping,
    /// A choice is under way.
    is_busy: AtomicBool,
}

/// A filter that may be in memory.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    bytes: usize,
    asks: u32,
    is_oldest: bool,
    is_held: bool,
}

impl Candidate {
    /// The worth of each byte of it.
    fn worth(&self) -> f64 {
        let asked = f64::from(self.asks) + ASKED_ANYWAY;
        let denied = if self.is_oldest { 1.0 } else { ABOVE_OLDEST };
        let stays = if self.is_held { EXCHANGED_FOR } else { 1.0 };
        asked * denied * stays / self.bytes.max(1) as f64
    }
}

/// The filters to be exchanged, by places among the candidates.
#[derive(Debug, Default, PartialEq)]
struct Exchange {
    /// To come to memory, the worthiest first.
    wanted: Vec<usize>,
    /// To be left out for those, as far as memory is short: the least worthy first.
    releasing: Vec<usize>,
}

/// The filters with the highest worth per byte that fit into this many bytes are to be in memory.
fn choose(candidates: &[Candidate], bytes_max: usize) -> Exchange {
    let mut order: Vec<(usize, &Candidate)> = candidates.iter().enumerate().collect();
    order.sort_by(|(_, a), (_, b)| b.worth().total_cmp(&a.worth()));
    let held: usize = candidates.iter().filter(|one| one.is_held).map(|one| one.bytes).sum();
    // Free memory is filled without counting as an exchange.
    let (mut left, mut exchanged) = (bytes_max, bytes_max / EXCHANGED_PART + bytes_max.saturating_sub(held));
    let mut exchange = Exchange::default();
    for (at, candidate) in order {
        let fits = left.checked_sub(candidate.bytes);
        left = fits.unwrap_or(left);
        match (fits, candidate.is_held) {
            (Some(_), false) if candidate.bytes <= exchanged || exchange.wanted.is_empty() => {
                exchanged = exchanged.saturating_sub(candidate.bytes);
                exchange.wanted.push(at);
            }
            (None, true) => exchange.releasing.push(at),
            _ => {}
        }
    }
    exchange.releasing.reverse();
    debug_assert!(
        exchange
            .wanted
            .iter()
            .all(|at| candidates.get(*at).is_some_and(|one| !one.is_held)),
        "only filters that are not in memory are brought there"
    );
    debug_assert!(
        exchange
            .releasing
            .iter()
            .all(|at| candidates.get(*at).is_some_and(|one| one.is_held)),
        "only filters that are in memory are left out for others"
    );
    exchange
}

impl FilterChooser {
    /// Of the open files of a server.
    pub(crate) fn new(parts: &Parts) -> Self {
        FilterChooser {
            env: parts.context.env.clone(),
            files: parts.context.files.clone(),
            tablets: parts.tablets.clone(),
            stopping: parts.stopping.clone(),
            is_busy: AtomicBool::new(false),
        }
    }

    /// Begins to choose again, if filters are left out.
    pub(super) fn begin(self: &Arc<Self>) {
        if self.files.bloom_memory().left_out() == 0 || self.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let chooser = self.clone();
        self.env.spawn_background("choose filters", async move {
            chooser.exchange_filters().await;
            let was_busy = chooser.is_busy.swap(false, Ordering::AcqRel);
            assert!(was_busy, "one choice at a time: no other may end this one");
        });
    }

    async fn exchange_filters(&self) {
        let (wanted, releasing) = self.chosen_filters();
        let reservation = self.files.bloom_memory();
        let mut releasing = releasing.into_iter();
        let mut failures = 0;
        // Nothing is kept for this that becomes obsolete meanwhile: it is deleted when nobody has it.
        for sstable in wanted.iter().filter_map(Weak::upgrade) {
            while reservation.left() < sstable.filter_bytes() {
                let Some(other) = releasing.next() else { break };
                if let Some(other) = other.upgrade() {
                    other.leave_filter_out();
                }
            }
            if let Err(error) = sstable.hold_filter().await {
                tracing::warn!(path = sstable.path(), %error, "a row filter cannot be read; reads do without it for now");
                failures += 1;
            }
            if failures == FAILURES_MAX || self.stopping.is_stopping() {
                return;
            }
        }
    }

    /// The files of an [`Exchange`]: those whose filters are wanted, and those whose filters yield.
    fn chosen_filters(&self) -> (Vec<Weak<Sstable>>, Vec<Weak<Sstable>>) {
        let files = self.files_with_filters();
        let weighed = files.iter().map(|(sstable, is_oldest)| Candidate {
            bytes: sstable.filter_bytes(),
            asks: sstable.filter_asks(),
            is_oldest: *is_oldest,
            is_held: sstable.holds_filter(),
        });
        let weighed: Vec<Candidate> = weighed.collect();
        // Some are of files that readers hold and no tablet has any more.
        let held: usize = weighed.iter().filter(|one| one.is_held).map(|one| one.bytes).sum();
        let reservation = self.files.bloom_memory();
        let others = reservation.taken().saturating_sub(held);
        let Exchange { wanted, releasing } = choose(&weighed, reservation.bytes_max().saturating_sub(others));
        let of = |places: Vec<usize>| {
            let files = places.into_iter().filter_map(|at| files.get(at));
            files.map(|(sstable, _)| Arc::downgrade(sstable)).collect()
        };
        (of(wanted), of(releasing))
    }

    /// The sstables of all tablets that have filters, each once, though parts of one may be of several tablets. Those of which the
    /// filter could not be read a short while ago are not among them.
    fn files_with_filters(&self) -> Vec<(Arc<Sstable>, bool)> {
        let mut files = BTreeMap::new();
        for served in self.tablets.all() {
            for (sstable, is_oldest) in served.tablet.sstables() {
                if sstable.filter_bytes() > 0 {
                    let (_, oldest) = files
                        .entry(sstable.file_id())
                        .or_insert_with(|| (Arc::clone(&sstable), is_oldest));
                    *oldest &= is_oldest;
                }
            }
        }
        let files = files.into_values();
        files
            .filter(|(sstable, _)| sstable.holds_filter() || sstable.takes_occasion())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_memory::{Part, Pool};

    use crate::options::ServerOptions;
    use crate::recovery::tests::{TABLETS, Watched, first_with, options, write};
    use stele_storage::memory::MemoryStorage;

    /// One tablet is asked, the other is not.
    #[tokio::test]
    async fn filters_follow_the_questions() {
        let options = ServerOptions {
            pool: Pool::default().limited(Part::BloomFilters, 65),
            ..options()
        };
        let device = Watched::over(MemoryStorage::new());
        let server = first_with(&device, None, options).await;
        let chooser = FilterChooser::new(&server.parts);
        for (row, tablet) in [("a", TABLETS[0]), ("z", TABLETS[1])] {
            write(&server, tablet, row, "v").await;
            server.served(tablet).unwrap().tablet.flush().await.unwrap();
        }
        let held = || {
            chooser
                .files_with_filters()
                .iter()
                .map(|(file, _)| file.holds_filter())
                .collect::<Vec<_>>()
        };
        assert_eq!(held(), [true, false], "there is room for the first that is opened");
        let ask = |at: usize, times| {
            let files = chooser.files_with_filters();
            // Of all hashes this one is counted.
            (0..times).for_each(|_| assert!(files[at].0.may_contain_hash(0) || files[at].0.holds_filter()));
        };
        ask(1, 1);
        chooser.exchange_filters().await;
        assert_eq!(held(), [true, false], "not for a question more");
        ask(1, 40);
        chooser.exchange_filters().await;
        assert_eq!(held(), [false, true]);
        ask(0, 20);
        chooser.exchange_filters().await;
        assert_eq!(
            held(),
            [false, true],
            "it is the less asked one, counting half of what was before"
        );
        ask(0, 200);
        chooser.exchange_filters().await;
        assert_eq!(held(), [true, false]);
        let reservation = server.parts.context.files.bloom_memory();
        assert_eq!((reservation.taken(), reservation.left_out()), (65, 65));
    }

    const OLDEST: Candidate = Candidate {
        bytes: 100,
        asks: 0,
        is_oldest: true,
        is_held: false,
    };
    const ABOVE: Candidate = Candidate {
        is_oldest: false,
        ..OLDEST
    };

    fn held(candidate: Candidate) -> Candidate {
        Candidate {
            is_held: true,
            ..candidate
        }
    }

    fn asked(asks: u32, candidate: Candidate) -> Candidate {
        Candidate { asks, ..candidate }
    }

    #[test]
    fn the_worthiest_that_fit_are_chosen() {
        let chosen = |candidates: &[Candidate], bytes_max| {
            let Exchange { wanted, releasing } = choose(candidates, bytes_max);
            (wanted, releasing)
        };
        let nothing = (vec![], vec![]);
        let (small, larger) = (held(ABOVE), Candidate { bytes: 101, ..OLDEST });
        assert_eq!(chosen(&[small, held(OLDEST)], 200), nothing, "there is room for all");
        assert_eq!(
            chosen(&[small, OLDEST, held(larger)], 201),
            nothing,
            "as much are as can be"
        );
        assert_eq!(chosen(&[held(OLDEST), ABOVE], 199), (vec![1], vec![0]));
        assert_eq!(chosen(&[held(OLDEST), ABOVE], 200), (vec![1], vec![]), "there is room");
        // Questions make up for age, but one in eight only.
        let busy = |asks| chosen(&[held(ABOVE), asked(asks, OLDEST)], 100);
        assert_eq!((busy(238), busy(242)), (nothing.clone(), (vec![1], vec![0])));
        // A filter in memory stays there for a little more.
        let busy = |asks| chosen(&[held(ABOVE), asked(asks, ABOVE)], 100);
        assert_eq!((busy(15), busy(17)), (nothing.clone(), (vec![1], vec![0])));
        // A filter that does not fit at all leaves the memory to others, regardless of its worth.
        let large = Candidate {
            bytes: 1_000,
            ..asked(1_000_000, ABOVE)
        };
        assert_eq!(chosen(&[large, held(OLDEST)], 999), nothing);
        assert_eq!(chosen(&[large, held(OLDEST)], 1_000), (vec![0], vec![1]));
    }

    #[test]
    fn little_is_exchanged_at_once_and_the_worst_yields_first() {
        let mut all: Vec<Candidate> = (0..64).map(|at| held(asked(at, OLDEST))).collect();
        all.extend((0..64).map(|at| asked(at, ABOVE)));
        let Exchange { wanted, releasing } = choose(&all, 6_400);
        assert_eq!(wanted, [127, 126, 125, 124]);
        assert_eq!(releasing[..4], [0, 1, 2, 3]);
        // All filters that fit in memory are loaded together.
        let Exchange { wanted, .. } = choose(&all, 7_000);
        assert_eq!(wanted.len(), 10);
        all.iter_mut().for_each(|one| one.is_held = false);
        assert_eq!(choose(&all, 12_800).wanted.len(), 128);
    }
}
