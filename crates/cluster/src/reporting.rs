//! Reports of this member, without tablets that its leader knows already.
//!
//! A leader asks several times a second, and a server may have thousands of tablets that change rarely.

use crate::messages::{ServerReport, TabletReport};
use parking_lot::Mutex;
use std::time::Duration;

/// How long sizes and loads of tablets may be old, in which nothing else has changed.
const LOADS_INTERVAL: Duration = Duration::from_secs(2);

/// The newest list of tablets that a leader may know.
#[derive(Default)]
pub(crate) struct Reporting(Mutex<Sent>);

#[derive(Default)]
struct Sent {
    version: u64,
    changes: u64,
    at: Duration,
    tablets: Vec<TabletReport>,
}

impl Reporting {
    /// Leaves the tablets out of a report if the leader, which knows the list of this version, knows them. `report` has them.
    pub(crate) fn shorten(&self, mut report: ServerReport, known: u64, now: Duration) -> ServerReport {
        let tablets = report.tablets.take().unwrap_or_default();
        let mut sent = self.0.lock();
        let is_old = now.saturating_sub(sent.at) >= LOADS_INTERVAL;
        let is_changed = sent.version == 0 || !is_same(&sent.tablets, &tablets);
        if is_changed || is_old {
            *sent = Sent {
                version: sent.version + 1,
                changes: sent.changes + u64::from(is_changed),
                at: now,
                tablets,
            };
        }
        (report.version, report.changes) = (sent.version, sent.changes);
        report.tablets = (known != sent.version).then(|| sent.tablets.clone());
        report
    }
}

/// Whether a leader decides the same for both, but for sizes and loads.
fn is_same(one: &[TabletReport], other: &[TabletReport]) -> bool {
    let key = |report: &TabletReport| (report.tablet, report.epoch, report.state);
    one.len() == other.len() && one.iter().map(key).eq(other.iter().map(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::TabletState;
    use stele_types::{Epoch, TabletId};

    fn report(state: TabletState, bytes: u64) -> ServerReport {
        ServerReport {
            tablets: Some(vec![TabletReport {
                tablet: TabletId(1),
                epoch: Epoch(1),
                state,
                bytes,
                requests: 0,
            }]),
            ..ServerReport::default()
        }
    }

    #[test]
    fn a_leader_gets_only_what_it_does_not_know() {
        let reporting = Reporting::default();
        let at = Duration::from_millis;
        let ask = |state, bytes, known, now| reporting.shorten(report(state, bytes), known, at(now));
        let first = ask(TabletState::Opening, 1, 0, 0);
        assert_eq!((first.version, first.tablets.is_some()), (1, true));
        assert_eq!(ask(TabletState::Opening, 1, 1, 200).tablets, None);
        // Another leader knows nothing.
        assert!(ask(TabletState::Opening, 1, 0, 300).tablets.is_some());
        // The answer that had the change may have been lost.
        for now in [400, 600] {
            let changed = ask(TabletState::Serving, 1, 1, now);
            assert_eq!((changed.version, changed.changes), (2, 2));
            assert_eq!(changed.tablets.unwrap()[0].state, TabletState::Serving);
        }
        assert_eq!(
            ask(TabletState::Serving, 9, 2, 2_300).tablets,
            None,
            "sizes are not urgent"
        );
        let sizes = ask(TabletState::Serving, 9, 2, 2_500);
        assert_eq!((sizes.version, sizes.changes), (3, 2));
        assert_eq!(sizes.tablets.unwrap()[0].bytes, 9);
    }
}
