//! The leader compares the catalog with reports, and carries out the orders that follow.
//!
//! A round is short, and keeps no state that matters: everything that it decides on is read from the coordinator's records and
//! from reports. Orders are carried out in tasks; one that is under way is not begun again.

mod orders;
mod view;

use crate::control::ClusterControl;
use crate::local::Local;
use crate::messages::{Request, ServerReport};
use crate::roots::LogRoots;
use orders::Orders;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_assignment::{Suspicions, decide};
use stele_catalog::Catalog;
use stele_client::ServiceResult;
use stele_coord::{Condition, Coord};
use stele_peer::Probe;
use stele_storage::Storage;
use stele_types::ServerId;
use tokio::sync::watch;
use view::Observed;

/// Pause between two rounds, if nothing changes meanwhile.
const ROUND: Duration = Duration::from_millis(200);
/// Time for a report. A server that takes longer has none in this round.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// One term of leadership.
pub(crate) struct Leader {
    pub(crate) local: Arc<Local>,
    pub(crate) coord: Arc<dyn Coord>,
    /// Of the term.
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) control: Arc<ClusterControl>,
    pub(crate) roots: Arc<dyn LogRoots>,
    /// The shared data root.
    pub(crate) data: Arc<dyn Storage>,
    /// Holds while this server leads.
    pub(crate) fence: Condition,
    pub(crate) term: u64,
    orders: Arc<Orders>,
    /// Facts that were observed over time.
    observed: Mutex<Observed>,
    suspicions: Mutex<Suspicions>,
    /// The newest reports, for status pages.
    reports: Mutex<BTreeMap<ServerId, ServerReport>>,
}

impl Leader {
    pub(crate) fn new(
        local: Arc<Local>,
        (coord, catalog): (Arc<dyn Coord>, Arc<Catalog>),
        control: Arc<ClusterControl>,
        (roots, data): (Arc<dyn LogRoots>, Arc<dyn Storage>),
        (fence, term): (Condition, u64),
    ) -> Arc<Leader> {
        Arc::new(Leader {
            local,
            coord,
            catalog,
            control,
            roots,
            data,
            fence,
            term,
            orders: Arc::default(),
            observed: Mutex::default(),
            suspicions: Mutex::default(),
            reports: Mutex::default(),
        })
    }

    /// The newest reports of servers.
    pub(crate) fn reports(&self) -> BTreeMap<ServerId, ServerReport> {
        self.reports.lock().clone()
    }

    /// Leads until `ended` says that the term is over.
    pub(crate) async fn lead(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        let mut changes = self.local.members.changes();
        loop {
            if *ended.borrow() {
                return;
            }
            self.round().await;
            changes.mark_unchanged();
            tokio::select! {
                biased;
                () = self.local.env.sleep(ROUND) => {}
                _ = changes.changed() => {}
                _ = ended.changed() => {}
            }
        }
    }

    async fn round(self: &Arc<Self>) {
        // Reports first: the catalog must be at least as new.
        let mut reports = self.gather().await;
        let now = self.local.env.now();
        // Before the catalog, too: a tablet that is not coming any more has its record.
        let coming = self.control.coming();
        for report in reports.values_mut() {
            report.tablets.retain(|report| !coming.contains(&report.tablet));
        }
        let view = {
            let members = self.local.members.view();
            let catalog = self.local.catalog.view();
            self.observed.lock().view(&members, &catalog, &reports, now)
        };
        *self.reports.lock() = reports.clone();
        let condemned = {
            let mut suspicions = self.suspicions.lock();
            suspicions.expire(&view, now);
            suspicions.condemned(&view, now)
        };
        for server in &condemned.held_back {
            tracing::warn!(%server, "the server looks dead, but so do more than half of all: its tablets stay");
        }
        for order in decide(&view, &condemned.dead) {
            self.orders.begin(self, order, &view);
        }
        self.orders.commit(self).await;
        self.undo_abandoned(&reports);
    }

    /// Asks every server for its report; searches for evidence about those that do not answer.
    async fn gather(self: &Arc<Self>) -> BTreeMap<ServerId, ServerReport> {
        let members = self.local.members.view();
        let asked = members.servers.keys().map(|server| async move {
            let report: ServiceResult<ServerReport> =
                self.local.order(self.term, *server, Request::Report, REPORT_WAIT).await;
            match report {
                Ok(report) => {
                    self.suspicions.lock().answered(*server);
                    Some((*server, report))
                }
                Err(error) => {
                    tracing::debug!(%server, %error, "no report of a server");
                    self.investigate(*server).await;
                    None
                }
            }
        });
        futures::future::join_all(asked).await.into_iter().flatten().collect()
    }

    async fn investigate(&self, suspect: ServerId) {
        match self.local.peers.probe(suspect).await {
            Probe::Answered => self.suspicions.lock().answered(suspect),
            Probe::Silent => {}
            Probe::Gone => {
                let witnesses = self.local.peers.witnesses(suspect).await;
                let now = self.local.env.now();
                let mut suspicions = self.suspicions.lock();
                suspicions.refused(self.local.peers.own(), suspect, now);
                for witness in witnesses {
                    suspicions.refused(witness, suspect, now);
                }
            }
        }
    }

    /// Tells servers the outcome of replacements that a former leader began, or whose preparation got no answer. Only this
    /// leader changes the catalog, so the catalog knows.
    fn undo_abandoned(self: &Arc<Self>, reports: &BTreeMap<ServerId, ServerReport>) {
        for (server, report) in reports {
            for (first, number) in &report.prepared {
                if self.control.is_replacing(*server, *first) {
                    continue;
                }
                let committed = self.local.catalog.owner_of(*first).is_none();
                tracing::info!(%server, tablet = %first, committed, "a replacement of a former leader ends");
                let (leader, server) = (self.clone(), *server);
                let end = Request::EndPreparation {
                    first: *first,
                    number: *number,
                    committed,
                };
                // Should it fail, the next report has the preparation again.
                let tell = async move {
                    let told: ServiceResult<bool> = leader.local.order(leader.term, server, end, REPORT_WAIT).await;
                    leader.note("ending a replacement", server, told.map(drop));
                };
                self.orders.run_once(self, orders::Task::Tell(server, *first), tell);
            }
        }
    }
}
