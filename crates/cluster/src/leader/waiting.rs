//! Since when tablets wait, as the leader sees it. The status and metrics tell it.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use stele_assignment::{ServedState, TabletView, View};
use stele_env::metrics::{IntGauge, Metrics};
use stele_types::TabletId;

/// The name of the metric for alerts.
pub const TABLETS_UNSERVED_SECONDS: &str = "stele_cluster_tablets_unserved_seconds";

/// Instruments. A server that does not lead shows zeros.
#[derive(Clone, Debug)]
pub(crate) struct WaitingMetrics {
    unserved: IntGauge,
    longest_seconds: IntGauge,
}

impl WaitingMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        WaitingMetrics {
            unserved: metrics.gauge(
                "stele_cluster_tablets_unserved",
                "Tablets that no server serves, as far as the leader knows; 0 on other servers.",
            ),
            longest_seconds: metrics.gauge(
                TABLETS_UNSERVED_SECONDS,
                "Seconds for which the leader has seen the one of them unserved that waits longest; 0 on other servers.",
            ),
        }
    }
}

/// The tablets that wait.
pub(crate) struct Waiting {
    metrics: WaitingMetrics,
    /// `None` after the term: another server sees for itself.
    tablets: Mutex<Option<BTreeMap<TabletId, Since>>>,
}

/// Since when a tablet waits.
#[derive(Clone, Copy)]
struct Since {
    /// For anything, also for the end of a move while it is served.
    waits: Duration,
    unserved: Option<Duration>,
}

impl Waiting {
    pub(crate) fn new(metrics: WaitingMetrics) -> Waiting {
        Waiting {
            metrics,
            tablets: Mutex::new(Some(BTreeMap::new())),
        }
    }

    /// Takes in a view.
    pub(crate) fn note(&self, view: &View, now: Duration) {
        let mut tablets = self.tablets.lock();
        let Some(known) = &mut *tablets else { return };
        let mut waiting = BTreeMap::new();
        for tablet in view.tablets() {
            let serves = is_served(view, tablet);
            if serves && tablet.assignment.moving_to.is_none() {
                continue;
            }
            let before = known.get(&tablet.id);
            let since = Since {
                waits: before.map_or(now, |before| before.waits),
                unserved: (!serves).then(|| before.and_then(|before| before.unserved).unwrap_or(now)),
            };
            waiting.insert(tablet.id, since);
        }
        let unserved = || waiting.values().filter_map(|since| since.unserved);
        let longest = unserved()
            .map(|since| now.saturating_sub(since))
            .max()
            .unwrap_or_default();
        self.metrics.unserved.set(unserved().count() as i64);
        self.metrics.longest_seconds.set(longest.as_secs() as i64);
        *known = waiting;
    }

    /// Shows zeros from now on, also if a task of the term goes on.
    pub(crate) fn end_term(&self) {
        let mut tablets = self.tablets.lock();
        *tablets = None;
        self.metrics.unserved.set(0);
        self.metrics.longest_seconds.set(0);
    }

    /// How long a tablet has waited; zero for one that does not, or has just begun to.
    pub(crate) fn waited(&self, tablet: TabletId, now: Duration) -> Duration {
        let tablets = self.tablets.lock();
        let since = tablets.as_ref().and_then(|tablets| tablets.get(&tablet));
        since.map_or(Duration::ZERO, |since| now.saturating_sub(since.waits))
    }
}

/// Whether its owner serves it, as far as that has reported.
fn is_served(view: &View, tablet: &TabletView) -> bool {
    let Some(owner) = tablet.assignment.owner else {
        return false;
    };
    let report = view.report(owner.server, tablet.id);
    report.is_some_and(|report| {
        report.epoch == owner.epoch && matches!(report.state, ServedState::Serving | ServedState::Replayed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_assignment::{Assignment, Attempted, LogState, Owner, Report, ServerView, Session, TableView};
    use stele_types::{Epoch, ServerId, TableId};

    const SERVER: ServerId = ServerId(1);

    /// One server that serves some of two tablets.
    fn view(served: &[u64], moves: &[u64]) -> View {
        let owner = Owner {
            server: SERVER,
            epoch: Epoch(3),
        };
        let tablet = |id: u64| TabletView {
            id: TabletId(id),
            bytes: 0,
            requests: 0,
            unchanged_for: Duration::ZERO,
            assignment: Assignment {
                owner: Some(owner),
                moving_to: moves.contains(&id).then_some(ServerId(2)),
                ..Assignment::default()
            },
            attempts: Attempted::default(),
        };
        let report = |id: &u64| {
            let report = Report {
                epoch: owner.epoch,
                state: ServedState::Serving,
            };
            (TabletId(*id), report)
        };
        let server = ServerView {
            session: Session::Alive,
            log: LogState::Open,
            log_streams: 0,
            draining: false,
            answers: true,
            report: served.iter().map(report).collect(),
        };
        View {
            servers: BTreeMap::from([(SERVER, server)]),
            tables: vec![TableView {
                id: TableId(1),
                tablets: vec![tablet(1), tablet(2)],
            }],
            no_balance: false,
        }
    }

    #[test]
    fn the_time_of_a_wait_begins_with_it() {
        let metrics = Metrics::new();
        let waiting = Waiting::new(WaitingMetrics::new(&metrics));
        let second = Duration::from_secs;
        let shows = |unserved: u64, seconds: u64| {
            let shown = metrics.render();
            assert!(
                shown.contains(&format!("stele_cluster_tablets_unserved {unserved}\n")),
                "{shown}"
            );
            assert!(
                shown.contains(&format!("stele_cluster_tablets_unserved_seconds {seconds}\n")),
                "{shown}"
            );
        };
        let waited = |now| [1, 2].map(|id| waiting.waited(TabletId(id), second(now)).as_secs());
        waiting.note(&view(&[1, 2], &[2]), second(10));
        shows(0, 0);
        assert_eq!(waited(15), [0, 5], "a move is a wait, and the tablet is served");
        waiting.note(&view(&[], &[2]), second(20));
        waiting.note(&view(&[2], &[2]), second(22));
        shows(1, 2);
        waiting.note(&view(&[], &[2]), second(30));
        shows(2, 10);
        assert_eq!(waited(30), [10, 20]);
        waiting.note(&view(&[1, 2], &[]), second(40));
        shows(0, 0);
        waiting.note(&view(&[1], &[]), second(50));
        assert_eq!(waited(51), [0, 1]);
        waiting.end_term();
        waiting.note(&view(&[], &[]), second(60));
        shows(0, 0);
    }
}
