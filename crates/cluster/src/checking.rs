//! The leader's continuous check: that storage, catalog and servers agree.
//!
//! Each round of the sweep reads all manifests and lists all files, and compares them ([`stele_tablet::sweep::Checked`]). Here its
//! results are kept, together with servers that serve a tablet of another one in two rounds. In one round that may be a move.

use crate::messages::{ServerReport, TabletState};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_catalog::CatalogView;
use stele_client::ClusterCheck;
use stele_env::metrics::{IntGauge, Metrics};
use stele_tablet::TabletError;
use stele_tablet::sweep::{Checked, Result, Round};
use stele_types::{ErrorKind, ServerId, TabletId};

/// The name of the metric for alerts.
pub const CHECK_FINDINGS: &str = "stele_cluster_check_findings";

/// Instruments of the check. A server that does not lead shows zeros.
#[derive(Clone, Debug)]
pub(crate) struct CheckMetrics {
    findings: IntGauge,
    tablets: IntGauge,
}

impl CheckMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        CheckMetrics {
            findings: metrics.gauge(
                CHECK_FINDINGS,
                "Contradictions between catalog, manifests, files and servers that the leader has found in its last check.",
            ),
            tablets: metrics.gauge(
                "stele_cluster_check_tablets",
                "Tablets that the leader has compared in its last check; 0 before the first one and on other servers.",
            ),
        }
    }
}

/// Servers that serve a tablet without being its owner.
pub(crate) type Strangers = BTreeSet<(TabletId, ServerId)>;

/// The results of one leader.
pub(crate) struct Checks {
    metrics: CheckMetrics,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last complete round: when it began.
    completed: Option<(Duration, Checked)>,
    /// The file that cannot be read, so that no round is completed.
    unreadable: Option<String>,
    /// Why the last round was not completed; empty if it was.
    waits_for: String,
    strangers: Strangers,
    /// Those of two rounds.
    lasting: Strangers,
    /// The term has ended, and the metrics are those of the next leader.
    is_over: bool,
}

impl State {
    fn findings(&self) -> Vec<String> {
        let strangers = self
            .lasting
            .iter()
            .map(|(tablet, server)| format!("tablet {tablet}: server {server} serves it without being its owner"));
        let compared = self.completed.iter().flat_map(|(_, checked)| &checked.findings);
        let compared = compared.map(ToString::to_string);
        self.unreadable
            .clone()
            .into_iter()
            .chain(strangers)
            .chain(compared)
            .collect()
    }

    fn more(&self) -> u64 {
        self.completed.as_ref().map_or(0, |(_, checked)| checked.more)
    }
}

impl Checks {
    pub(crate) fn new(metrics: CheckMetrics) -> Checks {
        Checks {
            metrics,
            state: Mutex::default(),
        }
    }

    /// Takes in the outcome of a round of the sweep that began at a time.
    pub(crate) fn note(
        &self,
        began: Duration,
        outcome: &Result<Round>,
        checked: Option<&Checked>,
        strangers: Strangers,
    ) {
        let mut state = self.state.lock();
        let known = state.findings();
        if let Some(checked) = checked {
            state.completed = Some((began, checked.clone()));
        }
        state.unreadable = match outcome {
            Err(error) if error.kind() == ErrorKind::Corruption => Some(error.to_string()),
            _ => None,
        };
        state.waits_for = waits_for(outcome);
        state.lasting = state.strangers.intersection(&strangers).copied().collect();
        state.strangers = strangers;
        let findings = state.findings();
        for finding in findings.iter().filter(|finding| !known.contains(finding)) {
            tracing::error!(finding, "the check of the cluster has found a contradiction");
        }
        if state.is_over {
            return;
        }
        self.metrics.findings.set(findings.len() as i64 + state.more() as i64);
        let tablets = state.completed.as_ref().map_or(0, |(_, checked)| checked.tablets);
        self.metrics.tablets.set(tablets as i64);
    }

    /// Shows zeros from now on, also if a round of the term goes on.
    pub(crate) fn end_term(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        self.metrics.findings.set(0);
        self.metrics.tablets.set(0);
    }

    /// The results, as of now.
    pub(crate) fn status(&self, now: Duration) -> ClusterCheck {
        let state = self.state.lock();
        let (began, checked) = match &state.completed {
            Some((began, checked)) => (Some(*began), checked.clone()),
            None => (None, Checked::default()),
        };
        ClusterCheck {
            began_millis_ago: began.map(|began| now.saturating_sub(began).as_millis() as u64),
            tablets: checked.tablets,
            files: checked.files,
            bytes: checked.bytes,
            unneeded: checked.unneeded,
            findings: state.findings(),
            more: state.more(),
            waits_for: state.waits_for.clone(),
        }
    }
}

fn waits_for(outcome: &Result<Round>) -> String {
    match outcome {
        Ok(Round::Swept { .. }) => String::new(),
        Ok(Round::TabletsChanged) => "a round in which no tablet comes or goes".to_owned(),
        Ok(Round::Unclaimed(tablet)) => format!("the owner of tablet {tablet} to claim it"),
        Err(TabletError::Busy { detail }) => (*detail).to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Servers that report a tablet as served without being its owner by the catalog.
pub(crate) fn strangers(catalog: &CatalogView, reports: &BTreeMap<ServerId, Arc<ServerReport>>) -> Strangers {
    let tablets = catalog.tables.values().flat_map(|table| table.tablets());
    let owners: BTreeMap<TabletId, Option<ServerId>> = tablets
        .map(|tablet| (tablet.id, tablet.assignment.owner.map(|owner| owner.server)))
        .collect();
    let mut strangers = Strangers::new();
    for (server, report) in reports {
        let served = report.tablets.iter().flatten();
        let served = served.filter(|tablet| matches!(tablet.state, TabletState::Serving | TabletState::Replayed));
        for tablet in served {
            // New tablets are served before the catalog names them.
            if owners.get(&tablet.tablet).is_some_and(|owner| *owner != Some(*server)) {
                strangers.insert((tablet.tablet, *server));
            }
        }
    }
    strangers
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_tablet::sweep::Finding;

    const SWEPT: Round = Round::Swept {
        files: 0,
        manifests: 0,
        parts: 0,
    };

    fn checks() -> (Metrics, Checks) {
        let metrics = Metrics::new();
        let checks = Checks::new(CheckMetrics::new(&metrics));
        (metrics, checks)
    }

    #[test]
    fn the_last_complete_round_is_shown_with_its_age() {
        let (metrics, checks) = checks();
        assert_eq!(checks.status(Duration::from_secs(1)), ClusterCheck::default());
        let checked = Checked {
            tablets: 3,
            findings: vec![Finding::OtherRows(TabletId(7))],
            more: 2,
            ..Checked::default()
        };
        checks.note(Duration::from_secs(5), &Ok(SWEPT), Some(&checked), Strangers::new());
        checks.note(
            Duration::from_secs(9),
            &Ok(Round::Unclaimed(TabletId(8))),
            None,
            Strangers::new(),
        );
        let status = checks.status(Duration::from_secs(10));
        assert_eq!(
            (status.began_millis_ago, status.tablets, status.more),
            (Some(5_000), 3, 2)
        );
        assert_eq!(
            status.findings,
            ["tablet 7: its manifest has other rows than the catalog"]
        );
        assert_eq!(status.waits_for, "the owner of tablet 8 to claim it");
        let shown = metrics.render();
        assert!(shown.contains("stele_cluster_check_findings 3"), "{shown}");
        checks.end_term();
        assert!(metrics.render().contains("stele_cluster_check_findings 0"));
        // A round that has begun before.
        checks.note(Duration::from_secs(9), &Ok(SWEPT), Some(&checked), Strangers::new());
        let shown = metrics.render();
        assert!(shown.contains("stele_cluster_check_findings 0"), "{shown}");
        assert!(shown.contains("stele_cluster_check_tablets 0"), "{shown}");
    }

    #[test]
    fn a_server_that_goes_on_serving_a_tablet_of_another_one_is_found() {
        let (_, checks) = checks();
        let round = |pairs: &[(u64, u32)]| {
            let strangers = pairs
                .iter()
                .map(|(tablet, server)| (TabletId(*tablet), ServerId(*server)));
            checks.note(
                Duration::ZERO,
                &Ok(SWEPT),
                Some(&Checked::default()),
                strangers.collect(),
            );
            checks.status(Duration::ZERO).findings
        };
        assert_eq!(round(&[(1, 2), (3, 2)]), Vec::<String>::new(), "it may move");
        assert_eq!(
            round(&[(3, 2), (4, 2)]),
            ["tablet 3: server 2 serves it without being its owner"]
        );
        assert_eq!(round(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_finding() {
        let (_, checks) = checks();
        let unreadable = TabletError::Corruption {
            path: Arc::from("tablets/1"),
            detail: "damaged".to_owned(),
        };
        checks.note(Duration::ZERO, &Err(unreadable), None, Strangers::new());
        let findings = checks.status(Duration::ZERO).findings;
        assert!(findings.len() == 1 && findings[0].contains("damaged"), "{findings:?}");
        let busy = TabletError::Busy {
            detail: "a server does not answer",
        };
        checks.note(Duration::ZERO, &Err(busy), None, Strangers::new());
        let status = checks.status(Duration::ZERO);
        assert_eq!(
            (status.findings.len(), &*status.waits_for),
            (0, "a server does not answer")
        );
    }
}
