//! The control calls that a member answers about itself.

use crate::codec::{self, Outcome, outcome};
use crate::members::Members;
use crate::messages::{Call, Request, ServerReport, TabletReport, TabletState};
use crate::peers::Peers;
use crate::reporting::Reporting;
use crate::retirement::Retirement;
use crate::tablet_answers;
use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stele_access::Forwarded;
use stele_catalog::{Catalog, SchemaListener};
use stele_client::{
    Assignment, Cancellation, Closing, Confirm, ServiceError, ServiceResult, TabletAssignments, TabletControl,
};
use stele_commitlog::LogClock;
use stele_env::{Env, Priority};
use stele_peer::{ControlService, Origin, Probe};
use stele_tabletserver::TabletServer;
use stele_types::{Epoch, ErrorKind, ServerId, TableSchema, TabletId};

/// Longest wait until a revision of the catalog is followed.
const CATCH_UP_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for the coordinator's answer before a tablet is handed over.
const CONFIRM_WAIT: Duration = Duration::from_secs(2);
/// Closed tablets that are remembered: more than move at one time.
const CLOSED_MAX: usize = 1 << 16;

/// Answers calls to the leader, while this server leads.
#[async_trait]
pub(crate) trait LeaderCalls: Send + Sync + 'static {
    /// Answers an administrative call, or one about the cluster.
    async fn answer(&self, request: Request) -> ServiceResult<Bytes>;
}

/// How a tablet was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// All is in its files.
    Flushed,
    /// Its records may be in the log alone.
    Abandoned,
    /// It was never served under its epoch.
    Unopened,
}

/// This member.
pub(crate) struct Local {
    pub(crate) env: Env,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) members: Arc<Members>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) server: Arc<TabletServer>,
    /// Of the log, where it is archived.
    pub(crate) clock: Option<Arc<LogClock>>,
    reporting: Reporting,
    /// Tablets that are being opened.
    opening: Mutex<BTreeMap<TabletId, Epoch>>,
    /// Tablets of which a replacement is being prepared. Locked after `opening`.
    replacing: Mutex<BTreeSet<TabletId>>,
    /// Tablets that were closed here, under the newest such epoch, and in which state. They are not opened again under that epoch:
    /// sequence numbers would begin again, or another server may have them.
    closed: Mutex<BTreeMap<TabletId, (Epoch, Left)>>,
    leader: Mutex<Option<Arc<dyn LeaderCalls>>>,
    /// The leader, if its last probe was not answered.
    unreached: Mutex<Option<ServerId>>,
    pub(crate) retirement: Retirement,
    /// The newest term of a leader that has called.
    term: Mutex<u64>,
    /// It is being found out whether tablets that were abandoned here are dropped.
    forgetting: AtomicBool,
}

impl Local {
    pub(crate) fn new(
        env: Env,
        (catalog, members): (Arc<Catalog>, Arc<Members>),
        peers: Arc<Peers>,
        server: Arc<TabletServer>,
    ) -> Arc<Local> {
        Arc::new(Local {
            env,
            catalog,
            members,
            peers,
            clock: server.archived_log().map(|log| log.clock().clone()),
            server,
            reporting: Reporting::default(),
            opening: Mutex::default(),
            replacing: Mutex::default(),
            closed: Mutex::default(),
            leader: Mutex::new(None),
            unreached: Mutex::new(None),
            retirement: Retirement::new(),
            term: Mutex::new(0),
            forgetting: AtomicBool::new(false),
        })
    }

    /// Has calls to the leader answered, or refused.
    pub(crate) fn set_leader(&self, leader: Option<Arc<dyn LeaderCalls>>) {
        *self.leader.lock() = leader;
    }

    /// The leader, if it is this server.
    pub(crate) fn leader(&self) -> Option<Arc<dyn LeaderCalls>> {
        self.leader.lock().clone()
    }

    /// Notes the leader, if its last probe was not answered.
    pub(crate) fn note_unreached(&self, leader: Option<ServerId>) {
        *self.unreached.lock() = leader;
    }

    /// Has a server, which may be this one, carry out an order of a leader.
    pub(crate) async fn order<T: DeserializeOwned>(
        self: &Arc<Self>,
        term: u64,
        server: ServerId,
        request: Request,
        wait: Duration,
    ) -> ServiceResult<T> {
        let call = Call { term, request };
        if server != self.peers.own() {
            return self.peers.call(server, &call, wait).await;
        }
        codec::decode(&self.answer(call).await?)
    }

    /// Refuses orders of a leader when another one has begun its term.
    fn check_term(&self, term: u64) -> ServiceResult<()> {
        let mut newest = self.term.lock();
        if term > 0 && term < *newest {
            let message = format!("the leader of term {term} is not the newest: there is one of term {newest}");
            return Err(ServiceError::new(ErrorKind::FailedPrecondition, message));
        }
        *newest = term.max(*newest);
        Ok(())
    }

    /// Opens tablets that are assigned to this server.
    pub(crate) async fn open(&self, mut assignments: Vec<Assignment>) -> Vec<Outcome> {
        self.bring_up_to_date(&mut assignments);
        let mut outcomes: Vec<Outcome> = vec![Ok(()); assignments.len()];
        let (mut places, mut wanted) = (Vec::new(), Vec::new());
        for (place, assignment) in assignments.into_iter().enumerate() {
            match self.begin(&assignment) {
                Ok(()) => {
                    places.push((place, assignment.tablet, assignment.epoch));
                    wanted.push(assignment);
                }
                Err(error) => outcomes[place] = outcome(Err(error)),
            }
        }
        let opened = self.server.open_tablets(wanted).await;
        let mut opening = self.opening.lock();
        for ((place, tablet, epoch), result) in places.into_iter().zip(opened) {
            if opening.get(&tablet) == Some(&epoch) {
                opening.remove(&tablet);
            }
            if let Err(error) = &result {
                tracing::warn!(%tablet, %epoch, %error, "a tablet is not opened");
            }
            outcomes[place] = outcome(result);
        }
        outcomes
    }

    /// Gives assignments the schemas of the catalog here where those are newer. A call may wait while a server starts. A schema that
    /// changes meanwhile is in its first listing of the catalog, and the server is told of later ones only.
    fn bring_up_to_date(&self, assignments: &mut [Assignment]) {
        let view = self.catalog.view();
        for assignment in assignments {
            let given = &assignment.schema;
            let known = view.table(&given.name).map(|table| &table.schema);
            if let Some(newer) = known.filter(|known| known.id == given.id && known.version > given.version) {
                assignment.schema = Arc::clone(newer);
            }
        }
    }

    fn begin(&self, assignment: &Assignment) -> ServiceResult<()> {
        let Assignment { tablet, epoch, .. } = assignment;
        // A mark stays until the catalog here has a newer owner.
        let has_newer = || self.catalog.owner_of(*tablet).is_some_and(|owner| owner.epoch > *epoch);
        if self.has_left(*tablet, *epoch) || has_newer() {
            // A late request: its assignment has ended.
            let message = format!("tablet {tablet} has left this server since epoch {epoch}");
            return Err(ServiceError::new(ErrorKind::FailedPrecondition, message));
        }
        let mut opening = self.opening.lock();
        self.check_idle(*tablet, &opening)?;
        opening.insert(*tablet, *epoch);
        Ok(())
    }

    /// Whether a tablet was closed here under this epoch, or a newer one.
    fn has_left(&self, tablet: TabletId, epoch: Epoch) -> bool {
        let closed = self.closed.lock();
        closed.get(&tablet).is_some_and(|(closed, _)| *closed >= epoch)
    }

    /// Fails while a tablet is being opened, made or replaced.
    fn check_idle(&self, tablet: TabletId, opening: &BTreeMap<TabletId, Epoch>) -> ServiceResult<()> {
        if opening.contains_key(&tablet) || self.server.coming_tablets().contains_key(&tablet) {
            return Err(ServiceError::new(ErrorKind::Busy, "the tablet is being opened"));
        }
        if self.replacing.lock().contains(&tablet) || self.server.is_being_replaced(tablet) {
            return Err(ServiceError::new(ErrorKind::Busy, "the tablet is being replaced"));
        }
        Ok(())
    }

    /// Keeps tablets that are not open from being opened until their replacement is prepared: writes to one that is opened
    /// meanwhile would not be kept out. Once it is prepared, [`TabletServer::is_being_replaced`] says so.
    pub(crate) fn keep_closed(&self, tablets: &[TabletId]) -> ServiceResult<KeptClosed<'_>> {
        let opening = self.opening.lock();
        if let Some(tablet) = tablets.iter().find(|tablet| opening.contains_key(tablet)) {
            let message = format!("tablet {tablet} is being opened");
            return Err(ServiceError::new(ErrorKind::Unavailable, message));
        }
        let mut replacing = self.replacing.lock();
        if let Some(tablet) = tablets.iter().find(|tablet| replacing.contains(tablet)) {
            let message = format!("another replacement of tablet {tablet} is being prepared");
            return Err(ServiceError::new(ErrorKind::Busy, message));
        }
        replacing.extend(tablets);
        Ok(KeptClosed {
            local: self,
            tablets: tablets.to_vec(),
        })
    }

    /// Stops serving a tablet. One that is to be handed over and is not open is not opened any more.
    pub(crate) async fn close(&self, tablet: TabletId, epoch: Epoch, closing: Closing) -> ServiceResult<()> {
        if closing == Closing::HandOver && self.opening.lock().contains_key(&tablet) {
            return Err(ServiceError::new(ErrorKind::Busy, "the tablet is being opened"));
        }
        // Asked before, it may be given up unflushed in between.
        let closed = self
            .server
            .close_tablet(tablet, epoch, closing, self.reaches_coordinator());
        let was_served = closed.await?;
        match (closing, was_served) {
            (Closing::HandOver, true) => self.note_closed(tablet, epoch, Left::Flushed),
            (Closing::Abandon, true) => self.note_closed(tablet, epoch, Left::Abandoned),
            // A tablet that was not here has not been flushed here.
            (Closing::HandOver, false) => self.decline(tablet, epoch).await?,
            (Closing::Abandon, false) => {}
        }
        Ok(())
    }

    /// Fails if the coordinator is away: then no other server can get a tablet.
    fn reaches_coordinator(&self) -> Confirm {
        let (env, catalog) = (self.env.clone(), self.catalog.clone());
        let reached = async move {
            let caught_up = env.timeout(CONFIRM_WAIT, catalog.catch_up()).await;
            if matches!(caught_up, Ok(Ok(_))) {
                return Ok(());
            }
            let message = "the coordinator is not reached, so no other server could get the tablet";
            Err(ServiceError::new(ErrorKind::Unavailable, message))
        };
        reached.boxed()
    }

    fn note_closed(&self, tablet: TabletId, epoch: Epoch, left: Left) {
        let mut closed = self.closed.lock();
        closed.insert(tablet, (epoch, left));
        if closed.len() > CLOSED_MAX {
            closed.pop_first();
        }
    }

    /// Has a tablet go to another server that was not opened here, and perhaps cannot be.
    async fn decline(&self, tablet: TabletId, epoch: Epoch) -> ServiceResult<()> {
        if self.has_left(tablet, epoch) {
            return Ok(());
        }
        // Before it is known whether it is served: a tablet that comes is served next.
        self.check_idle(tablet, &self.opening.lock())?;
        if self.server.decline_tablet(tablet, epoch).await? {
            self.note_closed(tablet, epoch, Left::Unopened);
        }
        Ok(())
    }

    /// The state of all tablets here.
    pub(crate) async fn report(&self) -> ServiceResult<ServerReport> {
        let load = self.server.load().await?;
        let mut tablets: BTreeMap<TabletId, TabletReport> = BTreeMap::new();
        {
            let mut closed = self.closed.lock();
            // The catalog here may be behind, so only a newer owner says that the mark is not needed any more.
            closed
                .retain(|tablet, (epoch, _)| self.catalog.owner_of(*tablet).is_none_or(|owner| owner.epoch <= *epoch));
            let own = |tablet: TabletId, epoch: Epoch| {
                let owner = self.catalog.owner_of(tablet);
                owner.is_some_and(|owner| owner.server == self.peers.own() && owner.epoch == epoch)
            };
            let marks = closed.iter().filter_map(|(tablet, (epoch, left))| match left {
                Left::Flushed => Some((*tablet, *epoch, TabletState::Closed)),
                Left::Unopened => Some((*tablet, *epoch, TabletState::Unopened)),
                Left::Abandoned => None,
            });
            let marks = marks.filter(|(tablet, epoch, _)| own(*tablet, *epoch));
            let opening: Vec<_> = self
                .opening
                .lock()
                .iter()
                .map(|(tablet, epoch)| (*tablet, *epoch))
                .collect();
            let opening = opening.into_iter().chain(self.server.coming_tablets());
            let marks = marks.chain(opening.map(|(tablet, epoch)| (tablet, epoch, TabletState::Opening)));
            for (tablet, epoch, state) in marks {
                let report = TabletReport {
                    tablet,
                    epoch,
                    state,
                    bytes: 0,
                    requests: 0,
                };
                tablets.insert(tablet, report);
            }
        }
        for of_tablet in load.tablets {
            let state = match of_tablet.logs.is_empty() {
                true => TabletState::Serving,
                false => TabletState::Replayed,
            };
            let report = TabletReport {
                tablet: of_tablet.tablet,
                epoch: of_tablet.epoch,
                state,
                bytes: of_tablet.bytes + of_tablet.memtable_bytes,
                requests: of_tablet.requests,
            };
            tablets.insert(of_tablet.tablet, report);
        }
        Ok(ServerReport {
            version: 0,
            changes: 0,
            tablets: Some(tablets.into_values().collect()),
            memtable_bytes: load.memtable_bytes,
            log_bytes: load.log_bytes,
            prepared: self.server.prepared_replacements(),
            unreached: *self.unreached.lock(),
        })
    }

    /// Lets go of the records of abandoned tablets that the catalog does not have any more: no server replays them. A drop may not
    /// have reached this server, and the leader has such a tablet abandoned afterwards.
    fn forget_dropped(self: &Arc<Self>) {
        let abandoned = self.unknown_of(self.server.abandoned_tablets());
        if abandoned.is_empty() || self.forgetting.swap(true, Ordering::Relaxed) {
            return;
        }
        let local = self.clone();
        self.env.spawn("dropped tablets", async move {
            // The catalog here may be behind: a tablet that was abandoned had its record before.
            match local.catalog.catch_up().await {
                Ok(()) => {
                    let dropped = local.unknown_of(abandoned);
                    tracing::debug!(?dropped, "the records of dropped tablets need not be retained");
                    local.server.forget_abandoned(&dropped);
                }
                Err(error) => tracing::debug!(%error, "it is not known yet whether abandoned tablets are dropped"),
            }
            local.forgetting.store(false, Ordering::Relaxed);
        });
    }

    /// Those among some tablets that no table has, by the catalog here. The record of a tablet may be left over when its table has
    /// others. It counts only while some table is not known here as it is.
    fn unknown_of(&self, mut tablets: Vec<TabletId>) -> Vec<TabletId> {
        if !tablets.is_empty() {
            let view = self.catalog.view();
            let known = view.tablets_among(&tablets.iter().copied().collect());
            let has_record = |tablet| self.catalog.owner_of(tablet).is_some();
            let is_known = |tablet: &TabletId| known.contains(tablet) || view.is_outdated && has_record(*tablet);
            tablets.retain(|tablet| !is_known(tablet));
        }
        tablets
    }

    async fn catch_up(&self, revision: u64) -> ServiceResult<()> {
        let waiting = self.catalog.wait_applied(revision);
        self.env.timeout(CATCH_UP_WAIT, waiting).await.map_err(|_| {
            ServiceError::new(
                ErrorKind::Unavailable,
                "the catalog is not followed up to that revision yet",
            )
        })
    }

    /// Answers a request to this server as a member.
    pub(crate) async fn answer(self: &Arc<Self>, call: Call) -> ServiceResult<Bytes> {
        self.check_term(call.term)?;
        match call.request {
            Request::Report(known) => {
                self.forget_dropped();
                let report = self.report().await?;
                codec::encode(&self.reporting.shorten(report, known, self.env.now()))
            }
            Request::Open(openings) => codec::encode(&self.open(openings.into_assignments()?).await),
            Request::Close { tablet, epoch, closing } => {
                self.close(tablet, epoch, closing).await?;
                codec::encode(&true)
            }
            Request::EndPreparation {
                first,
                number,
                committed,
            } => {
                self.server.end_preparation(first, number, committed).await;
                codec::encode(&true)
            }
            Request::CatchUp(revision) => {
                self.catch_up(revision).await?;
                codec::encode(&true)
            }
            Request::Clock(micros) => codec::encode(&self.clock.as_ref().map_or(0, |clock| {
                clock.raise(micros);
                clock.now()
            })),
            Request::FilesInUse => codec::encode(&self.server.files_in_use().await?),
            Request::Probe(suspect) => {
                let probe = self.peers.probe(suspect).await;
                codec::encode(&(probe == Probe::Gone))
            }
            Request::Tablets(call) => {
                tablet_answers::answer(&self.server, |tablets| self.keep_closed(tablets), call).await
            }
            request @ (Request::Admin(_) | Request::Cluster(_) | Request::Backups(_)) => match self.leader() {
                Some(leader) => leader.answer(request).await,
                None => Err(ServiceError::new(
                    ErrorKind::Unavailable,
                    "this server does not lead the cluster",
                )),
            },
        }
    }
}

/// Tablets that are not opened while this lives.
pub(crate) struct KeptClosed<'a> {
    local: &'a Local,
    tablets: Vec<TabletId>,
}

impl Drop for KeptClosed<'_> {
    fn drop(&mut self) {
        let mut replacing = self.local.replacing.lock();
        for tablet in &self.tablets {
            replacing.remove(tablet);
        }
    }
}

#[async_trait]
impl SchemaListener for Local {
    async fn changed(&self, schema: Arc<TableSchema>) {
        self.server.set_schema(schema).await;
    }
}

/// Control calls from other servers.
pub(crate) struct Control {
    pub(crate) local: Arc<Local>,
    /// Writes those of clients to the audit log.
    pub(crate) forwarded: Option<Arc<Forwarded>>,
}

#[async_trait]
impl ControlService for Control {
    async fn control(&self, origin: Origin, request: Bytes) -> ServiceResult<Bytes> {
        let (time, request) = codec::untimed(&request)?;
        let call: Call = codec::decode(request)?;
        self.local.peers.clocks().follow(origin.from.server, time);
        let (local, forwarded) = (self.local.clone(), self.forwarded.clone());
        // A caller that goes away does not stop it half-way. A change that has not begun is called off.
        let (_caller, cancellation) = Cancellation::pair();
        let task = cancellation.scope(async move {
            let audited = call.request.audited();
            let answer = local.answer(call).await;
            if let (Some(log), Some((operation, on)), Some(caller)) = (forwarded, audited, &origin.caller) {
                let error = answer.as_ref().err().map(|error| error.message.as_str());
                log.note(&origin.server(), caller, operation, on.to_string(), error);
            }
            answer
        });
        let env = &self.local.env;
        let answered = env.spawn_join(Priority::Foreground, "control call", task).await;
        let answer = answered.unwrap_or_else(|_| Err(ServiceError::new(ErrorKind::Aborted, "the server stopped")))?;
        Ok(codec::timed(self.local.peers.clocks().now_micros(), &answer))
    }
}

#[cfg(test)]
mod tests;
