//! The leader compares the catalog with reports, and carries out the orders that follow.
//!
//! A round is short, and keeps no state that matters: everything that it decides on is read from the coordinator's records and
//! from reports. Orders are carried out in tasks; one that is under way is not begun again.

mod orders;
mod reach;
mod view;
mod waiting;

pub(crate) use reach::Patience;
pub use waiting::TABLETS_UNSERVED_SECONDS;
pub(crate) use waiting::{Waiting, WaitingMetrics};

use crate::archiving::Rests;
use crate::checking::Checks;
use crate::control::ClusterControl;
use crate::election;
use crate::local::Local;
use crate::members;
use crate::messages::{Request, ServerReport};
use crate::pace::Pace;
use crate::roots::LogRoots;
use futures::future::{BoxFuture, Shared};
use orders::Orders;
use parking_lot::Mutex;
use reach::{Count, Reach, Reached};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_assignment::{Suspicions, View, decide};
use stele_catalog::Catalog;
use stele_client::{ServiceError, ServiceResult};
use stele_coord::{Condition, Coord};
use stele_env::PlantedBug;
use stele_peer::Probe;
use stele_storage::Storage;
use stele_types::{Epoch, ErrorKind, ServerId, TabletId};
use tokio::sync::Notify;
use view::Observed;

/// Pause between two rounds, if nothing changes meanwhile and no connection is lost.
const ROUND: Duration = Duration::from_millis(200);
/// Longest time between two decisions. Between them a round decides nothing if nothing has changed since the last one.
const DECISION_INTERVAL: Duration = Duration::from_secs(2);
/// Time for a report. A server that takes longer has none in this round.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// Completes when the term has ended. Its tasks learn it in the order in which they wait, so that a simulation repeats.
pub(crate) type TermEnd = Shared<BoxFuture<'static, ()>>;

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
    /// Archives logs before they are deleted.
    rests: Rests,
    /// Holds while this server leads.
    pub(crate) fence: Condition,
    pub(crate) term: u64,
    orders: Arc<Orders>,
    /// An epoch for the next assignments, drawn while a log was sealed.
    drawn: Mutex<Option<Epoch>>,
    /// Facts that were observed over time.
    observed: Mutex<Observed>,
    suspicions: Mutex<Suspicions>,
    /// Servers that count as dead since they are silent.
    silent: Mutex<BTreeSet<ServerId>>,
    /// Until when servers that this leader has given up may trust their sessions.
    trusted: Mutex<BTreeMap<ServerId, Duration>>,
    /// The newest reports, with all tablets.
    reports: Mutex<BTreeMap<ServerId, Arc<ServerReport>>>,
    /// When servers have reported last.
    heard: Mutex<BTreeMap<ServerId, Duration>>,
    decided: Mutex<Decided>,
    reach: Mutex<Reach>,
    /// It has been cut off for too long.
    cut_off: Notify,
    pub(crate) checks: Checks,
    pub(crate) waiting: Waiting,
}

/// The state at the last decision.
#[derive(Default)]
struct Decided {
    /// When the next decision is made at the latest.
    until: Duration,
    /// The revision of the catalog, and the counts of changes that servers report.
    from: (u64, BTreeMap<ServerId, u64>),
    /// Whether there was nothing to do, and no server was silent.
    is_calm: bool,
}

impl Leader {
    pub(crate) fn new(
        local: Arc<Local>,
        (coord, catalog): (Arc<dyn Coord>, Arc<Catalog>),
        control: Arc<ClusterControl>,
        (roots, data, rests): (Arc<dyn LogRoots>, Arc<dyn Storage>, Rests),
        (fence, term, patience): (Condition, u64, Patience),
        (checks, waiting): (Checks, Waiting),
    ) -> Arc<Leader> {
        Arc::new(Leader {
            local,
            coord,
            catalog,
            control,
            roots,
            data,
            rests,
            fence,
            term,
            orders: Arc::default(),
            drawn: Mutex::default(),
            observed: Mutex::default(),
            suspicions: Mutex::default(),
            silent: Mutex::default(),
            trusted: Mutex::default(),
            reports: Mutex::default(),
            heard: Mutex::default(),
            decided: Mutex::default(),
            reach: Mutex::new(Reach::new(patience)),
            cut_off: Notify::new(),
            checks,
            waiting,
        })
    }

    /// Fails unless this server leads. A leader that was cut off from the coordinator does not know its successor's changes: by
    /// its catalog a table that the successor has made does not exist.
    pub(crate) async fn confirm_term(&self) -> ServiceResult<()> {
        let unavailable = |message: String| ServiceError::new(ErrorKind::Unavailable, message);
        match election::leads(&*self.coord, self.term).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(unavailable("another server leads the cluster now".to_owned())),
            Err(error) => Err(unavailable(format!("no server can be sure that it leads: {error}"))),
        }
    }

    /// The newest reports of servers, with all tablets.
    pub(crate) fn reports(&self) -> BTreeMap<ServerId, Arc<ServerReport>> {
        self.reports.lock().clone()
    }

    /// The last error of each tablet that its owner does not open.
    pub(crate) fn errors(&self) -> BTreeMap<TabletId, String> {
        self.observed.lock().attempts.errors()
    }

    /// The last error of each tablet that its owner does not close for its move.
    pub(crate) fn closing_errors(&self) -> BTreeMap<TabletId, String> {
        self.observed.lock().attempts.closing_errors()
    }

    /// The time since a server has reported last; `None` if it has not reported to this leader.
    fn unheard_for(&self, server: ServerId) -> Option<Duration> {
        let heard = self.heard.lock().get(&server).copied();
        heard.map(|heard| self.local.env.now().saturating_sub(heard))
    }

    /// Completes when this leader has been cut off from the other servers for too long.
    pub(crate) async fn cut_off(&self) {
        self.cut_off.notified().await;
    }

    /// Leads until the term has ended. A lost connection only brings the next round forward, which decides on evidence as any other.
    pub(crate) async fn lead(self: Arc<Self>, ended: TermEnd) {
        let mut changes = self.local.members.changes();
        let (mut losses, mut pace) = (self.local.peers.losses().watch(), Pace::of(ROUND));
        let mut members_changed = true;
        loop {
            self.round(members_changed).await;
            tokio::select! {
                biased;
                () = ended.clone() => return,
                () = pace.wait(&self.local.env, &mut losses) => members_changed = false,
                _ = changes.changed() => members_changed = true,
            }
        }
    }

    async fn round(self: &Arc<Self>, members_changed: bool) {
        // Reports first: the catalog must be at least as new.
        let (reports, answering) = self.gather().await;
        let now = self.local.env.now();
        if !self.may_decide(&reports, &answering, now) {
            return self.waiting.note(&self.view(&reports, now), now);
        }
        if !members_changed && self.is_calm(&reports, now) {
            return;
        }
        // Before the catalog, too: a tablet that is not coming any more has its record.
        let coming = self.control.coming();
        let revision = self.local.catalog.applied();
        let (members, catalog) = (self.local.members.view(), self.local.catalog.view());
        if !self.have_no_log(&view::owners_without_log(&members, &catalog)).await {
            return;
        }
        let view = self.observed.lock().view((&members, &catalog), &reports, &coming, now);
        self.waiting.note(&view, now);
        let condemned = {
            let mut suspicions = self.suspicions.lock();
            suspicions.expire(&view, now);
            let mut condemned = suspicions.condemned(&view, now);
            // Another program may have written more than this one would keep.
            condemned.dead.retain(|server| !members.unreadable.contains(server));
            condemned
        };
        for server in &condemned.held_back {
            tracing::warn!(%server, "the server looks dead, but so do too many of all: its tablets stay");
        }
        let orders = decide(&view, &condemned.dead);
        *self.silent.lock() = condemned.silent;
        let prepared = reports.values().any(|report| !report.prepared.is_empty());
        let everybody = reports.len() == view.servers.len();
        let due = self.observed.lock().attempts.next_due(now).unwrap_or(Duration::MAX);
        *self.decided.lock() = Decided {
            until: due.min(now + DECISION_INTERVAL),
            from: (revision, changes(&reports)),
            is_calm: orders.is_empty() && !prepared && everybody && coming.is_empty(),
        };
        for order in orders {
            self.orders.begin(self, order, &view);
        }
        self.orders.commit(self).await;
        self.undo_abandoned(&reports);
    }

    /// Whether enough servers are reached for a decision. Ends the term if they were too few for too long.
    fn may_decide(
        &self,
        reports: &BTreeMap<ServerId, Arc<ServerReport>>,
        answering: &BTreeSet<ServerId>,
        now: Duration,
    ) -> bool {
        let (own, members) = (self.local.peers.own(), self.local.members.view());
        let others = members.servers.keys().filter(|server| **server != own);
        let all = others.clone().count() + 1;
        let reaches_leader = |server: &ServerId| {
            let unreached = reports.get(server).and_then(|report| report.unreached);
            unreached != Some(own)
        };
        let others: Vec<ServerId> = others.copied().filter(reaches_leader).collect();
        let reported = others.iter().filter(|server| reports.contains_key(server)).count();
        let answered = others.iter().filter(|server| answering.contains(server)).count();
        let mut reach = self.reach.lock();
        let count = Count {
            reported: reported + 1,
            answered: answered + 1,
            servers: all,
        };
        match reach.note(count, now) {
            Reached::Enough => return true,
            Reached::FewForLong if !self.local.env.planted(PlantedBug::LeadAlone) => self.cut_off.notify_one(),
            Reached::Few | Reached::FewForLong => {}
        }
        tracing::debug!(reported, answered, all, "too few of the other servers are reached");
        reach.is_last_resort()
    }

    /// The state of the cluster by the catalog, the records of servers, and these reports.
    pub(crate) fn view(&self, reports: &BTreeMap<ServerId, Arc<ServerReport>>, now: Duration) -> View {
        // Before the catalog: a tablet that is not coming any more has its record.
        let coming = self.control.coming();
        let members = self.local.members.view();
        let catalog = self.local.catalog.view();
        self.observed.lock().view((&members, &catalog), reports, &coming, now)
    }

    /// Whether the coordinator confirms that the logs of servers were deleted. This server may follow the records of logs with a
    /// delay, and a tablet whose owner has no log gets another owner that replays none.
    async fn have_no_log(&self, servers: &BTreeSet<ServerId>) -> bool {
        if servers.is_empty() {
            return true;
        }
        match members::list(&*self.coord).await {
            Ok(listed) => {
                let known = servers.iter().find(|server| listed.logs.contains_key(server));
                if let Some(server) = known {
                    tracing::debug!(%server, "the log of an owner is not known here yet; nothing is decided");
                }
                known.is_none()
            }
            Err(error) => {
                tracing::debug!(%error, "the logs of owners cannot be listed; nothing is decided");
                false
            }
        }
    }

    /// Whether the last decision stands: it had no orders, it is not old, and is from the same state.
    fn is_calm(&self, reports: &BTreeMap<ServerId, Arc<ServerReport>>, now: Duration) -> bool {
        let prepared = reports.values().any(|report| !report.prepared.is_empty());
        let decided = self.decided.lock();
        decided.is_calm
            && !prepared
            && now < decided.until
            && decided.from == (self.local.catalog.applied(), changes(reports))
    }

    /// Asks every server for its report; searches for evidence about those that do not answer.
    /// The reports of this round, and the servers that answer.
    async fn gather(self: &Arc<Self>) -> (BTreeMap<ServerId, Arc<ServerReport>>, BTreeSet<ServerId>) {
        let members = self.local.members.view();
        let known = self.reports();
        let asked = members.servers.keys().map(|server| {
            let known = known.get(server).cloned();
            async move {
                match self.report_of(*server, known).await {
                    Ok(report) => {
                        self.suspicions.lock().answered(*server);
                        (*server, Some(report), true)
                    }
                    Err(error) => {
                        tracing::debug!(%server, %error, "no report of a server");
                        (*server, None, self.investigate(*server).await)
                    }
                }
            }
        });
        let (mut reports, mut answering) = (BTreeMap::new(), BTreeSet::new());
        let begun = self.local.env.now();
        for (server, report, answers) in futures::future::join_all(asked).await {
            reports.extend(report.map(|report| (server, report)));
            answering.extend(answers.then_some(server));
        }
        *self.reports.lock() = reports.clone();
        let mut heard = self.heard.lock();
        heard.retain(|server, _| members.servers.contains_key(server));
        heard.extend(reports.keys().map(|server| (*server, begun)));
        drop(heard);
        (reports, answering)
    }

    /// The report of a server with all tablets, of which `known` is the one before.
    async fn report_of(&self, server: ServerId, known: Option<Arc<ServerReport>>) -> ServiceResult<Arc<ServerReport>> {
        let request = Request::Report(known.as_ref().map_or(0, |known| known.version));
        let mut report: ServerReport = self.local.order(self.term, server, request, REPORT_WAIT).await?;
        if report.tablets.is_none() {
            let known = known.filter(|known| known.version == report.version).ok_or_else(|| {
                let message = format!("the report of server {server} has no tablets");
                ServiceError::new(ErrorKind::Internal, message)
            })?;
            report.tablets.clone_from(&known.tablets);
        }
        Ok(Arc::new(report))
    }

    /// Whether a server answers. If its process is gone, others are asked, too.
    async fn investigate(&self, suspect: ServerId) -> bool {
        let probe = self.local.peers.probe(suspect).await;
        let now = self.local.env.now();
        match probe {
            Probe::Answered => self.suspicions.lock().answered(suspect),
            Probe::Silent => self.suspicions.lock().silent(suspect, now),
            Probe::Gone => {
                let witnesses = self.local.peers.witnesses(suspect).await;
                let now = self.local.env.now();
                let mut suspicions = self.suspicions.lock();
                suspicions.silent(suspect, now);
                suspicions.refused(self.local.peers.own(), suspect, now);
                for witness in witnesses {
                    suspicions.refused(witness, suspect, now);
                }
            }
        }
        probe == Probe::Answered
    }

    /// Tells servers the outcome of replacements that a former leader began, or whose preparation got no answer. Only this
    /// leader changes the catalog, so the catalog knows.
    fn undo_abandoned(self: &Arc<Self>, reports: &BTreeMap<ServerId, Arc<ServerReport>>) {
        for (server, report) in reports {
            for (first, number) in &report.prepared {
                if self.control.is_replacing(*server, *first) {
                    continue;
                }
                let catalog = self.local.catalog.view();
                if catalog.is_outdated {
                    continue;
                }
                // Not by the tablet's record: that may be left over when its table has other tablets.
                let committed = catalog.tablets_among(&BTreeSet::from([*first])).is_empty();
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

fn changes(reports: &BTreeMap<ServerId, Arc<ServerReport>>) -> BTreeMap<ServerId, u64> {
    reports
        .iter()
        .map(|(server, report)| (*server, report.changes))
        .collect()
}

#[cfg(test)]
mod tests;
