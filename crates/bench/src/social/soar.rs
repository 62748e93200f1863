//! BG's ratings: the Social Action Rating (SoAR) and the Socialites rating.
//!
//! A service level agreement demands, for example, that 95 % of actions take at most 100 ms and at most 0.01 % of reads
//! are unpredictable, for ten minutes. SoAR is the highest rate of actions with which a store fulfils it. Socialites is
//! the highest number of simultaneous clients with which it does (Barahmand and Ghandeharizadeh, "BG: A Benchmark to
//! Evaluate Interactive Social Networking Actions"). The document did not use them.
//!
//! The search doubles clients until the agreement is broken, then halves the gap between fulfilled and broken:
//! Socialites. Rates rise with clients up to a peak and fall behind it. The peak therefore lies between the neighbours
//! of the best trial, and the search narrows that interval in the same way: SoAR. Like BG's own search it assumes both
//! properties.
//!
//! Pure: it decides the next trial from the earlier trials, and can continue from recorded trials.

use super::IDLE;
use crate::outcome::{RunOutcome, histogram};
use serde::{Deserialize, Serialize};

/// A service level agreement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Actions that must be fast enough, as a share of all.
    pub fast_share: f64,
    /// Limit of a fast action.
    pub fast_millis: f64,
    /// Reads that may be unpredictable (stale or otherwise wrong), as a share of all checked reads.
    pub unpredictable_share: f64,
}

impl Default for Agreement {
    /// BG's example.
    fn default() -> Self {
        Self {
            fast_share: 0.95,
            fast_millis: 100.0,
            unpredictable_share: 0.000_1,
        }
    }
}

impl Agreement {
    /// Whether a trial fulfilled it. A figure that is not a number does not.
    pub fn is_kept_by(&self, trial: &Trial) -> bool {
        trial.actions_per_second > 0.0
            && trial.fast_share >= self.fast_share
            && trial.unpredictable_share <= self.unpredictable_share
    }
}

/// A run with some number of clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Clients.
    pub clients: u32,
    /// Actions per second.
    pub actions_per_second: f64,
    /// Share of fast ones. Failed ones are not fast.
    pub fast_share: f64,
    /// Share of the checked reads that were unpredictable.
    pub unpredictable_share: f64,
}

impl Trial {
    /// A run in the terms of an agreement.
    ///
    /// # Errors
    /// Histograms that cannot be read.
    pub fn of(run: &RunOutcome, agreement: &Agreement) -> Result<Self, String> {
        let kinds = || run.kinds.iter().filter(|kind| kind.name != IDLE);
        let latencies = histogram::merge(kinds().map(|kind| &kind.histogram))?;
        let fast = latencies.count_between(0, (agreement.fast_millis * 1000.0) as u64);
        let failures: u64 = kinds().flat_map(|kind| kind.failures.values()).sum();
        let actions: u64 = kinds().map(|kind| kind.operations).sum();
        let verdict = &run.verdict;
        let unpredictable = verdict.stale + verdict.missing + verdict.unexpected + verdict.wrong;
        Ok(Self {
            clients: run.clients,
            actions_per_second: actions as f64 / run.seconds,
            fast_share: share(fast, latencies.len() + failures),
            unpredictable_share: share(unpredictable, verdict.checked),
        })
    }
}

/// A share of a whole that may be zero.
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// How far a search goes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Most clients tried.
    pub clients_max: u32,
    /// Gap between two numbers of clients, relative to the smaller, that is not narrowed further.
    pub precision: f64,
    /// Most trials; each may take ten minutes.
    pub trials_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            clients_max: 1024,
            precision: 0.1,
            trials_max: 24,
        }
    }
}

/// The next step of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    /// A run with this many clients.
    Try(u32),
    /// Nothing: this is the rating.
    Done(Rating),
}

/// Both ratings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rating {
    /// Actions per second; zero if even one client broke the agreement.
    pub soar: f64,
    /// Clients at that rate.
    pub soar_clients: u32,
    /// Most clients that fulfilled the agreement.
    pub socialites: u32,
    /// Whether `socialites` is only the most that was tried.
    pub socialites_unbounded: bool,
    /// Whether the search ran out of trials: both are then lower bounds.
    pub incomplete: bool,
}

/// Decides the next trial from the trials so far, in any order.
pub fn next(agreement: &Agreement, bounds: &Bounds, trials: &[Trial]) -> Next {
    let search = Search::new(agreement, trials);
    let wanted = search
        .double(bounds)
        .or_else(|| search.bisect(bounds))
        .or_else(|| search.climb(bounds));
    match wanted {
        Some(clients) if trials.len() < bounds.trials_max => Next::Try(clients),
        _ => Next::Done(search.rating(bounds, wanted.is_some())),
    }
}

/// Trials in order of clients, cut into those before the agreement is first broken and that one.
struct Search {
    kept: Vec<Trial>,
    broken: Option<u32>,
}

impl Search {
    fn new(agreement: &Agreement, trials: &[Trial]) -> Self {
        let broken = trials
            .iter()
            .filter(|t| !agreement.is_kept_by(t))
            .map(|t| t.clients)
            .min();
        let mut kept: Vec<Trial> = trials
            .iter()
            .copied()
            .filter(|t| broken.is_none_or(|b| t.clients < b))
            .collect();
        kept.sort_by_key(|trial| trial.clients);
        Self { kept, broken }
    }

    fn most(&self) -> u32 {
        self.kept.last().map_or(0, |trial| trial.clients)
    }

    fn double(&self, bounds: &Bounds) -> Option<u32> {
        let most = self.most();
        let more = most.saturating_mul(2).clamp(1, bounds.clients_max.max(1));
        (self.broken.is_none() && more > most).then_some(more)
    }

    fn bisect(&self, bounds: &Bounds) -> Option<u32> {
        between(self.most(), self.broken?, bounds)
    }

    /// Narrows the interval around the highest rate, from the wider side.
    fn climb(&self, bounds: &Bounds) -> Option<u32> {
        let best = self.best()?;
        let at = |index: usize| self.kept.get(index).map(|trial| trial.clients);
        let below = best.checked_sub(1).and_then(at).unwrap_or(0);
        let peak = at(best)?;
        // The trial that breaks the agreement is no neighbour: the gap to it has been closed already.
        let above = at(best + 1).unwrap_or(peak);
        let (lower, upper) = (between(below, peak, bounds), between(peak, above, bounds));
        if above - peak >= peak - below {
            upper.or(lower)
        } else {
            lower.or(upper)
        }
    }

    fn best(&self) -> Option<usize> {
        let rate = |index: &usize| self.kept.get(*index).map_or(0.0, |trial| trial.actions_per_second);
        (0..self.kept.len()).max_by(|a, b| rate(a).total_cmp(&rate(b)).then(b.cmp(a)))
    }

    fn rating(&self, bounds: &Bounds, incomplete: bool) -> Rating {
        let best = self
            .best()
            .and_then(|index| self.kept.get(index))
            .copied()
            .unwrap_or_default();
        Rating {
            soar: best.actions_per_second,
            soar_clients: best.clients,
            socialites: self.most(),
            socialites_unbounded: self.broken.is_none() && self.most() >= bounds.clients_max,
            incomplete,
        }
    }
}

/// The middle of a gap, if it is wide enough to be narrowed.
fn between(lower: u32, upper: u32, bounds: &Bounds) -> Option<u32> {
    let gap = upper.saturating_sub(lower);
    let narrow = (f64::from(lower) * bounds.precision).max(1.0);
    (f64::from(gap) > narrow).then_some(lower + gap / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_trial() {
        use crate::outcome::Verdict;
        use crate::outcome::{EncodedHistogram, KindOutcome};
        let kind = |name: &str, micros: &[u64], failures: &[(String, u64)]| {
            let mut latencies = histogram::new();
            micros
                .iter()
                .for_each(|&micros| histogram::record(&mut latencies, micros));
            KindOutcome {
                name: name.to_owned(),
                operations: if name == IDLE { 0 } else { micros.len() as u64 },
                failures: failures.iter().cloned().collect(),
                histogram: EncodedHistogram::encode(&latencies),
                ..KindOutcome::default()
            }
        };
        let run = RunOutcome {
            clients: 7,
            seconds: 2.0,
            kinds: vec![
                kind("view-profile", &[100, 99_000, 101_000], &[]),
                kind("invite-friend", &[5000], &[("timeout".to_owned(), 1)]),
                kind(IDLE, &[1; 100], &[]),
            ],
            verdict: Verdict {
                checked: 1000,
                stale: 2,
                missing: 1,
                ..Verdict::default()
            },
            ..RunOutcome::default()
        };
        let trial = Trial::of(&run, &Agreement::default()).unwrap();
        let expected = Trial {
            clients: 7,
            actions_per_second: 2.0,
            fast_share: 0.6,
            unpredictable_share: 0.003,
        };
        assert_eq!(trial, expected);
        assert!(!Agreement::default().is_kept_by(&trial));
        let nothing = Trial::of(&RunOutcome::default(), &Agreement::default()).unwrap();
        assert!(!Agreement::default().is_kept_by(&nothing));
    }

    /// Searches on a store with these figures for each number of clients, and counts trials.
    fn search(bounds: Bounds, figures: impl Fn(f64) -> (f64, f64, f64)) -> (Rating, usize) {
        let mut trials = Vec::new();
        loop {
            match next(&Agreement::default(), &bounds, &trials) {
                Next::Done(rating) => return (rating, trials.len()),
                Next::Try(clients) => {
                    assert!(
                        trials.iter().all(|t: &Trial| t.clients != clients),
                        "{clients} twice: {trials:?}"
                    );
                    assert!((1..=bounds.clients_max).contains(&clients));
                    let (actions_per_second, fast_share, unpredictable_share) = figures(f64::from(clients));
                    trials.push(Trial {
                        clients,
                        actions_per_second,
                        fast_share,
                        unpredictable_share,
                    });
                }
            }
        }
    }

    fn exact() -> Bounds {
        Bounds {
            clients_max: 1000,
            precision: 0.0,
            trials_max: 100,
        }
    }

    #[test]
    fn finds_a_peak_below_the_most_clients() {
        // The highest rate is at 137 clients, and the agreement breaks from 411 on.
        let rate = |c: f64| 1000.0 - (c - 137.0).abs();
        let fast = |c: f64| if c <= 410.0 { 0.99 } else { 0.90 };
        let (rating, trials) = search(exact(), |c| (rate(c), fast(c), 0.0));
        assert_eq!(
            (rating.soar, rating.soar_clients, rating.socialites),
            (1000.0, 137, 410)
        );
        assert!(!rating.socialites_unbounded && !rating.incomplete);
        assert!(trials <= 40, "{trials}");
    }

    #[test]
    fn the_agreement_bounds_a_rate_that_keeps_rising() {
        let (rating, _) = search(exact(), |c| (c, 1.0, if c <= 77.0 { 0.0 } else { 0.001 }));
        assert_eq!((rating.soar, rating.socialites), (77.0, 77));
    }

    #[test]
    fn a_saturated_store_is_rated_by_its_fewest_clients_and_its_most() {
        let (rating, _) = search(exact(), |c| {
            (c.min(64.0) * 10.0, if c < 500.0 { 1.0 } else { 0.5 }, 0.0)
        });
        assert_eq!((rating.soar, rating.soar_clients, rating.socialites), (640.0, 64, 499));
    }

    #[test]
    fn one_client_may_be_too_many() {
        let (rating, trials) = search(exact(), |_| (10.0, 0.5, 0.0));
        assert_eq!((rating, trials), (Rating::default(), 1));
        let (rating, _) = search(exact(), |_| (f64::NAN, f64::NAN, f64::NAN));
        assert_eq!(rating, Rating::default());
    }

    #[test]
    fn the_search_stops_at_its_bounds_and_says_so() {
        let (rating, _) = search(exact(), |c| (c, 1.0, 0.0));
        assert_eq!((rating.socialites, rating.socialites_unbounded), (1000, true));
        let few = Bounds {
            trials_max: 3,
            ..exact()
        };
        let (rating, trials) = search(few, |c| (c, 1.0, 0.0));
        assert_eq!(
            (rating.soar, rating.socialites, rating.incomplete, trials),
            (4.0, 4, true, 3)
        );
    }

    #[test]
    fn a_coarse_search_is_short_and_close() {
        let (rating, trials) = search(Bounds::default(), |c| {
            (1000.0 - (c - 137.0).abs(), if c <= 410.0 { 0.99 } else { 0.90 }, 0.0)
        });
        assert!(trials <= 20, "{trials}");
        assert!((370..=410).contains(&rating.socialites), "{rating:?}");
        assert!(rating.soar >= 985.0, "{rating:?}");
    }
}
