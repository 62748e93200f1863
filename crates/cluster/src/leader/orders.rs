//! Carries out orders.
//!
//! Changes of assignments of one round go into few transactions. Calls to servers, and steps on logs, are tasks. A task that is
//! under way is not begun again; after it has ended, the next round decides from the state that it left.

use super::Leader;
use crate::codec::{Outcome, result};
use crate::messages::Request;
use crate::openings::Openings;
use crate::records::{self, LOGS, LogRecord, NUMBERS, SERVERS};
use futures::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_assignment::{Assignment, Order, Owner, Session, View};
use stele_catalog::Reassignment;
use stele_client::{Closing, ServiceError, ServiceResult};
use stele_coord::{Condition, Txn, TxnOutcome, Write, next_epoch};
use stele_env::PlantedBug;
use stele_tabletserver::{delete_log, settle_log};
use stele_types::{Epoch, ErrorKind, ServerId, TableSchema, TabletId};

/// Longest time of a call to a server: the replay of a log, or two flushes.
const CALL_WAIT: Duration = Duration::from_secs(120);

/// Concurrent calls to one server by which it opens tablets.
const OPEN_CALLS: usize = 8;

/// The subject of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// The log of a server is sealed or deleted.
    Log(ServerId),
    /// A tablet is opened or closed.
    Tablet(TabletId),
    /// A tablet is abandoned by a server that does not own it.
    Abandon(TabletId, ServerId),
    /// A server is told the outcome of a replacement.
    Tell(ServerId, TabletId),
}

/// Orders under way, and those of the present round.
#[derive(Default)]
pub(crate) struct Orders {
    running: Mutex<BTreeSet<Task>>,
    pending: Mutex<Pending>,
}

/// Gathered in a round, and carried out together.
#[derive(Default)]
struct Pending {
    /// With a new owner under an epoch that is drawn for all of them.
    assign: Vec<(TabletId, Assignment, ServerId, Vec<ServerId>)>,
    change: Vec<Reassignment>,
    open: BTreeMap<ServerId, Vec<(TabletId, Owner, Vec<ServerId>)>>,
}

/// How a server has come to count as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    /// Its session has ended.
    Session,
    /// Its process is gone.
    Evidence,
    /// It answers nothing, and has its session.
    Silence,
}

/// Clocks of two machines need not run equally fast.
const SESSION_MARGIN: Duration = Duration::from_secs(2);

impl Orders {
    /// Begins an order, or gathers it for [`Orders::commit`].
    pub(crate) fn begin(self: &Arc<Self>, leader: &Arc<Leader>, order: Order, view: &View) {
        match order {
            Order::Seal(server) => {
                let of = leader.clone();
                let known = view.servers.get(&server);
                let death = match known.map(|known| known.session) {
                    Some(Session::Ended(_)) => Death::Session,
                    _ if leader.silent.lock().contains(&server) => Death::Silence,
                    _ => Death::Evidence,
                };
                self.run_once(leader, Task::Log(server), async move {
                    of.note("sealing a log", server, of.seal(server, death).await);
                });
            }
            Order::DeleteLog(server) => {
                let of = leader.clone();
                self.run_once(leader, Task::Log(server), async move {
                    of.note("deleting a log", server, of.delete_log(server).await);
                });
            }
            Order::Assign { tablet, seen, to, logs } => self.pending.lock().assign.push((tablet, seen, to, logs)),
            Order::Move { tablet, seen, to } => {
                let next = Assignment {
                    moving_to: Some(to),
                    ..seen.clone()
                };
                self.change(tablet, seen, next);
            }
            Order::Stay { tablet, seen } => {
                let next = Assignment {
                    moving_to: None,
                    ..seen.clone()
                };
                self.change(tablet, seen, next);
            }
            Order::Forget { tablet, seen } => {
                let next = Assignment {
                    logs: Vec::new(),
                    ..seen.clone()
                };
                self.change(tablet, seen, next);
            }
            Order::Open { tablet, owner, logs } => {
                let mut pending = self.pending.lock();
                pending
                    .open
                    .entry(owner.server)
                    .or_default()
                    .push((tablet, owner, logs));
            }
            Order::Close { tablet, owner } => {
                let of = leader.clone();
                self.run_once(leader, Task::Tablet(tablet), async move {
                    of.note("closing a tablet", owner.server, of.hand_over(tablet, owner).await);
                });
            }
            Order::Abandon { tablet, server } => {
                let report = view.servers.get(&server).and_then(|server| server.report.get(&tablet));
                let Some(epoch) = report.map(|report| report.epoch) else {
                    return;
                };
                let of = leader.clone();
                self.run_once(leader, Task::Abandon(tablet, server), async move {
                    let closed = of.close(server, tablet, epoch, Closing::Abandon).await;
                    of.note("abandoning a tablet", server, closed);
                });
            }
        }
    }

    fn change(&self, tablet: TabletId, seen: Assignment, next: Assignment) {
        self.pending.lock().change.push(Reassignment { tablet, seen, next });
    }

    /// Runs a task unless one of the same subject is under way.
    pub(crate) fn run_once(
        self: &Arc<Self>,
        leader: &Leader,
        subject: Task,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        if !self.running.lock().insert(subject) {
            return;
        }
        let orders = self.clone();
        leader.local.env.spawn("order of the leader", async move {
            task.await;
            orders.running.lock().remove(&subject);
        });
    }

    /// Carries out the gathered changes.
    pub(crate) async fn commit(self: &Arc<Self>, leader: &Arc<Leader>) {
        let Pending {
            assign,
            change,
            mut open,
        } = std::mem::take(&mut *self.pending.lock());
        if !change.is_empty() {
            let changed = leader.catalog.reassign(&change).await;
            leader.note_catalog("changing assignments", changed);
        }
        if !assign.is_empty() {
            match leader.assign(&assign).await {
                // They are opened without waiting for a report that says that they are not open.
                Ok(assigned) => {
                    tracing::info!(servers = assigned.len(), "tablets get new owners");
                    for (server, tablets) in assigned {
                        open.entry(server).or_default().extend(tablets);
                    }
                }
                Err(error) => tracing::warn!(%error, "tablets are not assigned; the next round tries again"),
            }
        }
        for (server, tablets) in open {
            self.open(leader, server, tablets);
        }
    }

    /// Has a server open tablets, in one call.
    fn open(self: &Arc<Self>, leader: &Arc<Leader>, server: ServerId, tablets: Vec<(TabletId, Owner, Vec<ServerId>)>) {
        let mut running = self.running.lock();
        let tablets: Vec<_> = tablets
            .into_iter()
            .filter(|(tablet, _, _)| running.insert(Task::Tablet(*tablet)))
            .collect();
        drop(running);
        if tablets.is_empty() {
            return;
        }
        let (orders, of) = (self.clone(), leader.clone());
        leader.local.env.spawn("open tablets", async move {
            let subjects: Vec<Task> = tablets.iter().map(|(tablet, _, _)| Task::Tablet(*tablet)).collect();
            let opened = of.open(server, tablets).await;
            of.note("opening tablets", server, opened);
            orders.running.lock().retain(|task| !subjects.contains(task));
        });
    }
}

impl Leader {
    pub(super) fn note(&self, what: &'static str, server: ServerId, outcome: ServiceResult<()>) {
        if let Err(error) = outcome {
            tracing::warn!(%server, %error, "{what} failed; it is tried again");
        }
    }

    fn note_catalog(&self, what: &'static str, outcome: Result<usize, stele_catalog::CatalogError>) {
        if let Err(error) = outcome {
            tracing::warn!(%error, "{what} failed; it is tried again");
        }
    }

    /// Seals the log of a server: afterwards it acknowledges no write, and its record goes. Fails if the session of the server had ended,
    /// and it has another one now.
    pub(super) async fn seal(&self, server: ServerId, death: Death) -> ServiceResult<()> {
        let unheard = self.unheard_for(server);
        tracing::info!(%server, ?unheard, "a server is given up: its log is sealed");
        if self.local.env.planted(PlantedBug::SealNothing) {
            return self.record_sealed(server, 0).await;
        }
        if !self.local.env.planted(PlantedBug::SealFirst) {
            let given_up = self.record_given_up(server, death).await?;
            if given_up.may_live {
                self.outlast(server, given_up.session()).await?;
            }
        }
        let begun = self.local.env.now();
        // Its tablets are assigned next, and rows wait.
        let (settled, ()) = futures::join!(self.seal_and_settle(server), self.draw_ahead());
        let (bytes, sealed_in) = settled?;
        let took = self.local.env.now().saturating_sub(begun);
        tracing::info!(%server, bytes, ?sealed_in, "the log of a former server is sealed and settled, in {took:?}");
        self.record_sealed(server, bytes).await?;
        self.trusted.lock().remove(&server);
        Ok(())
    }

    /// Waits until a server that was given up cannot trust its session any more. Until then it answers reads that its successor's rows make
    /// stale. A leader that did not see the beginning waits as long.
    async fn outlast(&self, server: ServerId, session: Duration) -> ServiceResult<()> {
        let now = self.local.env.now();
        let until = *self
            .trusted
            .lock()
            .entry(server)
            .or_insert(now + session + SESSION_MARGIN);
        self.local.env.sleep(until.saturating_sub(now)).await;
        // Another leader may have done the rest meanwhile.
        self.confirm_term().await
    }

    /// The bytes of a log that is sealed and settled afterwards, and the time until it was sealed.
    async fn seal_and_settle(&self, server: ServerId) -> ServiceResult<(u64, Duration)> {
        let begun = self.local.env.now();
        let log = self.roots.take_over(server).await;
        let log = log.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
        let sealed_in = self.local.env.now().saturating_sub(begun);
        // Segments behind a gap are deleted before anybody reads the log. A former owner that does not know yet that it was replaced
        // may delete the segment with the gap. A later reader would then take the others for valid.
        let bytes = settle_log(&*log).await;
        let bytes = bytes.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
        Ok((bytes, sealed_in))
    }

    /// Draws an epoch for the next assignments, unless there is one. They draw one themselves if it fails.
    async fn draw_ahead(&self) {
        if self.drawn.lock().is_some() {
            return;
        }
        match self.draw_epoch().await {
            Ok(epoch) => *self.drawn.lock() = Some(epoch),
            Err(error) => tracing::debug!(%error, "no epoch is drawn for the next assignments yet"),
        }
    }

    /// The epoch that was drawn ahead, if it is newer than those of all these assignments. It is given out once: a tablet that got another
    /// owner since it was drawn has a newer one.
    fn take_drawn<'a>(&self, mut seen: impl Iterator<Item = &'a Assignment>) -> Option<Epoch> {
        let drawn = self.drawn.lock().take()?;
        let is_newer = |seen: &Assignment| seen.owner.is_some_and(|owner| owner.epoch < drawn);
        seen.all(is_newer).then_some(drawn)
    }

    /// A number that was never given out as an epoch.
    async fn draw_epoch(&self) -> ServiceResult<Epoch> {
        let epoch = next_epoch(&*self.coord, NUMBERS).await;
        let epoch = epoch.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
        let epoch = u32::try_from(epoch).ok().filter(|epoch| *epoch < 1 << 24);
        let epoch = epoch.ok_or_else(|| ServiceError::new(ErrorKind::ResourceExhausted, "epochs are used up"))?;
        Ok(Epoch(epoch))
    }

    /// Before storage refuses its appends: if this leader ends in between, the server must not go on as a member that cannot write.
    async fn record_given_up(&self, server: ServerId, death: Death) -> ServiceResult<LogRecord> {
        let view = self.local.members.view();
        let log = view.logs.get(&server).cloned().unwrap_or_default();
        if log.given_up && !view.servers.contains_key(&server) {
            return Ok(log);
        }
        // A server with a new session trusts its lease. Until the lease is over, it would answer reads that its successor's rows make stale.
        let record = records::key(SERVERS, server);
        let still_gone = (death == Death::Session && !log.given_up).then(|| Condition::absent(&record));
        let given_up = LogRecord {
            given_up: true,
            may_live: log.may_live || death == Death::Silence,
            ..log
        };
        self.record(server, given_up.clone(), still_gone).await?;
        Ok(given_up)
    }

    async fn record_sealed(&self, server: ServerId, bytes: u64) -> ServiceResult<()> {
        let known = self.local.members.view().logs.get(&server).cloned().unwrap_or_default();
        let record = LogRecord {
            sealed: true,
            bytes,
            given_up: true,
            ..known
        };
        self.record(server, record, None).await
    }

    /// Writes the record of the log of a server that is no member from then on. A log that is deleted gets none again.
    async fn record(&self, server: ServerId, record: LogRecord, only_if: Option<Condition>) -> ServiceResult<()> {
        let writes = vec![
            Write::Put {
                key: records::key(LOGS, server),
                value: records::encode(&record),
            },
            Write::Delete {
                key: records::key(SERVERS, server),
            },
        ];
        let has_log = Condition::present(records::key(LOGS, server));
        self.commit_if(only_if.into_iter().chain([has_log]).collect(), writes)
            .await
    }

    /// Deletes the log of a server that nothing needs. The order may come again after it was carried out, from records that are followed
    /// with a delay. Nothing happens then: a server without its record counts as one whose log was never archived.
    async fn delete_log(&self, server: ServerId) -> ServiceResult<()> {
        self.expect_unneeded(server).await?;
        let record = self.coord.get(&records::key(LOGS, server)).await;
        let record = record.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
        if record.is_none() {
            return Ok(());
        }
        let log = self.roots.take_over(server).await;
        let log = log.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
        let bytes = self.local.members.view().logs.get(&server).map_or(0, |log| log.bytes);
        self.rests.end(server, &*log, bytes).await?;
        let deleted = delete_log(&*log).await;
        deleted.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
        tracing::info!(%server, "the log of a former server is deleted");
        self.commit(vec![
            Write::Delete {
                key: records::key(LOGS, server),
            },
            Write::Delete {
                key: records::key(records::DRAINING, server),
            },
        ])
        .await
    }

    /// Fails unless this server leads, and no tablet needs the log of a server by the newest catalog. Records of servers and the
    /// catalog are followed separately. A leader that was cut off may thus know that a log is sealed, and not yet know the tablets
    /// that its successor had given to that server. No tablet comes to need a sealed log.
    async fn expect_unneeded(&self, server: ServerId) -> ServiceResult<()> {
        let caught_up = self.local.catalog.catch_up().await;
        caught_up.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
        let catalog = self.local.catalog.view();
        let mut tablets = catalog.tables.values().flat_map(|table| table.tablets());
        if let Some(tablet) = tablets.find(|tablet| tablet.assignment.needs_log_of(server)) {
            let message = format!("tablet {} needs it", tablet.id);
            return Err(ServiceError::new(ErrorKind::Unavailable, message));
        }
        self.confirm_term().await
    }

    /// Changes records of servers, as long as this server leads.
    pub(crate) async fn commit(&self, writes: Vec<Write>) -> ServiceResult<()> {
        self.commit_if(Vec::new(), writes).await
    }

    /// The same under further conditions.
    async fn commit_if(&self, mut conditions: Vec<Condition>, writes: Vec<Write>) -> ServiceResult<()> {
        conditions.push(self.fence.clone());
        match self.coord.txn(Txn { conditions, writes }).await {
            Ok(TxnOutcome::Committed { .. }) => Ok(()),
            Ok(TxnOutcome::Conflict { .. }) => Err(ServiceError::new(
                ErrorKind::Unavailable,
                "this server does not lead the cluster any more, or the record of the other server has changed",
            )),
            Err(error) => Err(ServiceError::new(error.kind(), error.to_string())),
        }
    }

    /// Gives tablets new owners, all under one epoch; those that were changed, by server.
    async fn assign(
        &self,
        assign: &[(TabletId, Assignment, ServerId, Vec<ServerId>)],
    ) -> ServiceResult<BTreeMap<ServerId, Vec<(TabletId, Owner, Vec<ServerId>)>>> {
        let drawn = self.take_drawn(assign.iter().map(|(_, seen, _, _)| seen));
        let epoch = match drawn {
            Some(drawn) => drawn,
            None => self.draw_epoch().await?,
        };
        let changes: Vec<Reassignment> = assign
            .iter()
            .map(|(tablet, seen, to, logs)| Reassignment {
                tablet: *tablet,
                seen: seen.clone(),
                next: Assignment {
                    owner: Some(Owner {
                        server: *to,
                        epoch: match seen.owner {
                            Some(former) if self.local.env.planted(PlantedBug::ReuseEpochs) => former.epoch,
                            _ => epoch,
                        },
                    }),
                    moving_to: None,
                    logs: logs.clone(),
                },
            })
            .collect();
        let turn = self.control.assigning().await;
        let changes: Vec<Reassignment> = changes
            .into_iter()
            .filter(|change| !self.control.keeps_owner(change.tablet))
            .collect();
        let assigned = self.catalog.reassign(&changes).await;
        drop(turn);
        assigned.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
        let mut open: BTreeMap<ServerId, Vec<(TabletId, Owner, Vec<ServerId>)>> = BTreeMap::new();
        for change in changes {
            let is_made = |owner: &Owner| self.local.catalog.owner_of(change.tablet) == Some(*owner);
            if let Some(owner) = change.next.owner.filter(is_made) {
                let tablets = open.entry(owner.server).or_default();
                tablets.push((change.tablet, owner, change.next.logs));
            }
        }
        Ok(open)
    }

    async fn open(&self, server: ServerId, tablets: Vec<(TabletId, Owner, Vec<ServerId>)>) -> ServiceResult<()> {
        let catalog = self.local.catalog.view();
        let wanted: BTreeSet<TabletId> = tablets.iter().map(|(tablet, _, _)| *tablet).collect();
        let mut schemas: BTreeMap<TabletId, Arc<TableSchema>> = BTreeMap::new();
        for table in catalog.tables.values() {
            let of_table = table.tablets().iter().filter(|tablet| wanted.contains(&tablet.id));
            schemas.extend(of_table.map(|tablet| (tablet.id, table.schema.clone())));
        }
        let members = self.local.members.view();
        let streams_of = |log: &ServerId| {
            let record = members.logs.get(log).filter(|record| record.streams > 0)?;
            Some((*log, record.streams))
        };
        let assignments = tablets.into_iter().filter_map(|(tablet, owner, logs)| {
            Some(stele_client::Assignment {
                tablet,
                epoch: owner.epoch,
                schema: schemas.get(&tablet)?.clone(),
                streams: logs.iter().filter_map(streams_of).collect(),
                logs,
            })
        });
        let calls = Openings::of(assignments.collect())?;
        let calls = stream::iter(calls).map(|call| async move {
            let (tablets, request) = (call.tablets(), Request::Open(call));
            let outcomes: Vec<Outcome> = self.local.order(self.term, server, request, CALL_WAIT).await?;
            self.suspicions.lock().answered(server);
            self.note_openings(server, tablets.into_iter().zip(outcomes));
            Ok(())
        });
        // All are made: tablets that can be opened do not wait for others.
        let outcomes: Vec<ServiceResult<()>> = calls.buffer_unordered(OPEN_CALLS).collect().await;
        outcomes.into_iter().collect()
    }

    fn note_openings(&self, server: ServerId, outcomes: impl Iterator<Item = (TabletId, Outcome)>) {
        let now = self.local.env.now();
        let mut observed = self.observed.lock();
        for (tablet, outcome) in outcomes {
            match result(outcome) {
                Ok(()) => observed.attempts.opened(tablet, server, now),
                Err(error) => {
                    tracing::debug!(%server, %tablet, %error, "a tablet is not open yet");
                    let error = (error.kind, error.message.as_str());
                    observed.attempts.failed(tablet, server, error, now);
                }
            }
        }
    }

    /// Has an owner give a tablet up, if another server can get it: without the coordinator nobody would have it.
    async fn hand_over(&self, tablet: TabletId, owner: Owner) -> ServiceResult<()> {
        self.confirm_term().await?;
        let closed = self.close(owner.server, tablet, owner.epoch, Closing::HandOver).await;
        let now = self.local.env.now();
        let attempts = &mut self.observed.lock().attempts;
        match &closed {
            Ok(()) => attempts.closed(tablet),
            Err(error) => attempts.closing_failed(tablet, owner, (error.kind, &error.message), now),
        }
        closed
    }

    async fn close(&self, server: ServerId, tablet: TabletId, epoch: Epoch, closing: Closing) -> ServiceResult<()> {
        let request = Request::Close { tablet, epoch, closing };
        let closed: ServiceResult<bool> = self.local.order(self.term, server, request, CALL_WAIT).await;
        closed.map(|_| self.suspicions.lock().answered(server))
    }
}

#[cfg(test)]
mod tests;
