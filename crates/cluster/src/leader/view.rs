//! The view of the cluster for a decision, with facts that only time tells.

use crate::members;
use crate::messages::{ServerReport, TabletState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_assignment::{
    Attempts, LogState, Owner, Report, ServedState, ServerView, Session, TableView, TabletView, View,
};
use stele_catalog::{CatalogView, TabletEntry};
use stele_types::{ServerId, TabletId};

/// Servers that own tablets by the catalog, and have no log by the records that are known here.
pub(crate) fn owners_without_log(members: &members::View, catalog: &CatalogView) -> BTreeSet<ServerId> {
    let tablets = catalog.tables.values().flat_map(|table| table.tablets());
    let owners = tablets.filter_map(|tablet| tablet.assignment.owner.map(|owner| owner.server));
    owners.filter(|server| !members.logs.contains_key(server)).collect()
}

/// Observations of one term of leadership.
#[derive(Default)]
pub(crate) struct Observed {
    /// When a server was first seen without a session.
    ended: BTreeMap<ServerId, Duration>,
    tablets: BTreeMap<TabletId, Observation>,
    /// Those to open and to close tablets that failed.
    pub(crate) attempts: Attempts,
}

/// Observations of one tablet.
struct Observation {
    owner: Option<Owner>,
    /// Since when it has this owner.
    since: Duration,
    bytes: u64,
    requests: u64,
}

impl Observed {
    /// The view now, without tablets that are coming: nothing is decided about them.
    pub(crate) fn view(
        &mut self,
        (members, catalog): (&members::View, &CatalogView),
        reports: &BTreeMap<ServerId, Arc<ServerReport>>,
        coming: &BTreeSet<TabletId>,
        now: Duration,
    ) -> View {
        self.ended.retain(|server, _| !members.servers.contains_key(server));
        let mut servers = BTreeMap::new();
        for (server, log) in &members.logs {
            let session = match members.servers.contains_key(server) {
                true => Session::Alive,
                // A leader has decided that already.
                false if log.given_up => Session::Ended(Duration::MAX),
                false => Session::Ended(now.saturating_sub(*self.ended.entry(*server).or_insert(now))),
            };
            let view = ServerView {
                session,
                log: if log.sealed { LogState::Sealed } else { LogState::Open },
                log_streams: log.streams,
                draining: members.draining.contains(server),
                answers: reports.contains_key(server),
                report: reports
                    .get(server)
                    .map(|report| report_of(report, coming))
                    .unwrap_or_default(),
            };
            servers.insert(*server, view);
        }
        self.ended.retain(|server, _| members.logs.contains_key(server));
        self.note(reports, now);
        let mut tables = Vec::with_capacity(catalog.tables.len());
        let mut seen = 0;
        for table in catalog.tables.values() {
            let tablets = table.tablets().iter().map(|tablet| self.tablet(tablet, now));
            let tablets: Vec<TabletView> = tablets.collect();
            seen += tablets.len();
            tables.push(TableView {
                id: table.schema.id,
                tablets,
            });
        }
        if self.tablets.len() > 2 * seen + 1024 {
            let known: BTreeSet<TabletId> = tables
                .iter()
                .flat_map(|table| &table.tablets)
                .map(|tablet| tablet.id)
                .collect();
            self.tablets.retain(|tablet, _| known.contains(tablet));
            self.attempts.retain(|tablet| known.contains(&tablet));
        }
        View {
            servers,
            tables,
            no_balance: !catalog.switches.balance,
        }
    }

    fn note(&mut self, reports: &BTreeMap<ServerId, Arc<ServerReport>>, now: Duration) {
        let reports = reports.iter().flat_map(|(server, report)| {
            let tablets = report.tablets.iter().flatten();
            tablets.map(|tablet| (*server, tablet))
        });
        for (server, report) in reports {
            let Some(known) = self.tablets.get_mut(&report.tablet) else {
                continue;
            };
            if known.owner.is_some_and(|owner| owner.epoch == report.epoch) {
                (known.bytes, known.requests) = (report.bytes, report.requests);
                if matches!(report.state, TabletState::Replayed | TabletState::Serving) {
                    self.attempts.opened(report.tablet, server, now);
                }
            }
        }
    }

    fn tablet(&mut self, tablet: &TabletEntry, now: Duration) -> TabletView {
        let owner = tablet.assignment.owner;
        let known = self.tablets.entry(tablet.id).or_insert(Observation {
            owner,
            since: now,
            bytes: 0,
            requests: 0,
        });
        let is_handed_over = known.owner != owner;
        if is_handed_over {
            (known.owner, known.since) = (owner, now);
        }
        if is_handed_over || tablet.assignment.moving_to.is_none() {
            // Failures of a move say nothing of the next one.
            self.attempts.closed(tablet.id);
        }
        TabletView {
            id: tablet.id,
            bytes: known.bytes,
            requests: known.requests,
            unchanged_for: now.saturating_sub(known.since),
            assignment: tablet.assignment.clone(),
            attempts: self.attempts.of(tablet.id, owner, now),
        }
    }
}

fn report_of(report: &ServerReport, coming: &BTreeSet<TabletId>) -> BTreeMap<TabletId, Report> {
    let state = |state| match state {
        TabletState::Opening => ServedState::Opening,
        TabletState::Replayed => ServedState::Replayed,
        TabletState::Serving => ServedState::Serving,
        TabletState::Closed => ServedState::Closed,
        TabletState::Unopened => ServedState::Unopened,
    };
    let known = report.tablets.iter().flatten();
    let tablets = known.filter(|tablet| !coming.contains(&tablet.tablet)).map(|tablet| {
        let report = Report {
            epoch: tablet.epoch,
            state: state(tablet.state),
        };
        (tablet.tablet, report)
    });
    tablets.collect()
}
