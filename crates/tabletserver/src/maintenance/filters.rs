//! Which row filters are in memory where there is no room for those of all open files.
//!
//! A filter is worth the blocks that it keeps reads from looking into. Above the oldest run of a group that is nearly every
//! question; in the oldest run, which mostly has the row, few. And the smaller it is, the more others have room beside it. New files find
//! room when they are opened, or not; every few seconds those are chosen that are worth most for what they take.

use crate::server::TabletServer;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_sstable::Sstable;

/// How much more a question is worth above the oldest run: one of as many of the rows that are read there is taken to be absent.
const ABOVE_OLDEST: f64 = 8.0;
/// How much more one must be worth than one in memory to take its place: each exchange is a read.
const EXCHANGED_FOR: f64 = 2.0;

/// Whether filters are being chosen.
#[derive(Default)]
pub(crate) struct Choice {
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
    /// What each byte of it is worth.
    fn worth(&self) -> f64 {
        let asked = f64::from(self.asks) + 1.0;
        let denied = if self.is_oldest { 1.0 } else { ABOVE_OLDEST };
        let stays = if self.is_held { EXCHANGED_FOR } else { 1.0 };
        asked * denied * stays / self.bytes.max(1) as f64
    }
}

/// Those to be in memory, by their places: the worthiest that fit.
fn choose(candidates: &[Candidate], bytes_max: usize) -> Vec<bool> {
    let mut order: Vec<(usize, &Candidate)> = candidates.iter().enumerate().collect();
    order.sort_by(|(_, a), (_, b)| b.worth().total_cmp(&a.worth()));
    let mut chosen = vec![false; candidates.len()];
    let mut left = bytes_max;
    for (at, candidate) in order {
        if let (Some(rest), Some(is_chosen)) = (left.checked_sub(candidate.bytes), chosen.get_mut(at)) {
            left = rest;
            *is_chosen = true;
        }
    }
    chosen
}

impl TabletServer {
    /// Begins to choose anew, if filters are left out.
    pub(super) fn choose_filters(self: &Arc<Self>) {
        if self.context.files.filter_room().left_out() == 0 || self.choice.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let server = self.clone();
        self.env.spawn_background("choose filters", async move {
            server.exchange_filters().await;
            server.choice.is_busy.store(false, Ordering::Release);
        });
    }

    async fn exchange_filters(&self) {
        let files = self.files_with_filters();
        let weighed = files.iter().map(|(sstable, is_oldest)| Candidate {
            bytes: sstable.filter_bytes(),
            asks: sstable.filter_asks(),
            is_oldest: *is_oldest,
            is_held: sstable.holds_filter(),
        });
        let weighed: Vec<Candidate> = weighed.collect();
        let chosen = choose(&weighed, self.context.files.filter_room().bytes_max());
        let outcome = || files.iter().zip(&chosen);
        for ((sstable, _), _) in outcome().filter(|(_, is_chosen)| !**is_chosen) {
            sstable.leave_filter_out();
        }
        for ((sstable, _), _) in outcome().filter(|(_, is_chosen)| **is_chosen) {
            if self.is_stopping() {
                return;
            }
            if let Err(error) = sstable.hold_filter().await {
                // A medium out of reach: there is a next time.
                tracing::debug!(path = sstable.path(), %error, "filter not read");
                return;
            }
        }
    }

    /// The sstables of all tablets that have filters fit to be used, each once: parts of one may be of several tablets.
    fn files_with_filters(&self) -> Vec<(Arc<Sstable>, bool)> {
        let mut files = BTreeMap::new();
        for served in self.all_served() {
            for (sstable, is_oldest) in served.tablet.sstables() {
                if sstable.filter_bytes() > 0 && sstable.damage().of_filter().is_none() {
                    let (_, oldest) = files
                        .entry(sstable.file_id())
                        .or_insert_with(|| (Arc::clone(&sstable), is_oldest));
                    *oldest &= is_oldest;
                }
            }
        }
        files.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::options::ServerOptions;
    use crate::recovery::tests::{TABLETS, Watched, first_with, options, write};
    use stele_storage::memory::MemoryStorage;

    /// One tablet is asked, the other is not.
    #[tokio::test]
    async fn filters_follow_the_questions() {
        let options = ServerOptions {
            filter_room_bytes: 65,
            ..options()
        };
        let medium = Watched::over(MemoryStorage::new());
        let server = first_with(&medium, None, options).await;
        for (row, tablet) in [("a", TABLETS[0]), ("z", TABLETS[1])] {
            write(&server, tablet, row, "v").await;
            server.served(tablet).unwrap().tablet.flush().await.unwrap();
        }
        let held = || {
            server
                .files_with_filters()
                .iter()
                .map(|(file, _)| file.holds_filter())
                .collect::<Vec<_>>()
        };
        assert_eq!(held(), [true, false], "there is room for the first that is opened");
        let ask = |at: usize, times| {
            let files = server.files_with_filters();
            // Of all hashes this one is counted.
            (0..times).for_each(|_| assert!(files[at].0.may_contain_hash(0) || files[at].0.holds_filter()));
        };
        ask(1, 1);
        server.exchange_filters().await;
        assert_eq!(held(), [true, false], "not for a question more");
        ask(1, 100);
        server.exchange_filters().await;
        assert_eq!(held(), [false, true]);
        ask(0, 20);
        server.exchange_filters().await;
        assert_eq!(
            held(),
            [false, true],
            "it is the less asked one, counting half of what was before"
        );
        ask(0, 200);
        server.exchange_filters().await;
        assert_eq!(held(), [true, false]);
        let room = server.context.files.filter_room();
        assert_eq!((room.taken(), room.left_out()), (65, 65));
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
            let chosen = choose(candidates, bytes_max).into_iter().enumerate();
            chosen
                .filter_map(|(at, is_chosen)| is_chosen.then_some(at))
                .collect::<Vec<_>>()
        };
        assert_eq!(chosen(&[OLDEST, ABOVE, OLDEST], 300), [0, 1, 2]);
        assert_eq!(chosen(&[OLDEST, ABOVE, OLDEST], 299), [0, 1]);
        assert_eq!(chosen(&[OLDEST, ABOVE, held(OLDEST)], 200), [1, 2]);
        // Questions make up for age, but one in eight only.
        assert_eq!(chosen(&[asked(7, ABOVE), asked(62, OLDEST)], 100), [0]);
        assert_eq!(chosen(&[asked(7, ABOVE), asked(64, OLDEST)], 100), [1]);
        // What is in memory stays there for a little more.
        assert_eq!(chosen(&[held(asked(9, ABOVE)), asked(18, ABOVE)], 100), [0]);
        assert_eq!(chosen(&[held(asked(9, ABOVE)), asked(20, ABOVE)], 100), [1]);
        // A large one that does not fit leaves the room to others.
        let large = Candidate {
            bytes: 1_000,
            ..asked(1_000, ABOVE)
        };
        assert_eq!(chosen(&[large, OLDEST, ABOVE], 999), [1, 2]);
        assert_eq!(chosen(&[large, OLDEST, ABOVE], 1_000), [0]);
        assert!(chosen(&[OLDEST], 0).is_empty());
    }
}
