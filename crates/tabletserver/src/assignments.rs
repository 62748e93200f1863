//! Opens and closes tablets while the server runs, where several servers share the data root.
//!
//! Opening (Bigtable §5.3): the manifest is claimed under the epoch of the assignment, the records of the tablet in the logs
//! of its former servers are replayed, and the tablet is served. Closing is a hand-over with two flushes: one while the
//! tablet is served, and one of the rest when its writers are stopped.
//!
//! Invariants:
//! * At most one opening or closing of a tablet is under way.
//! * A tablet is served only after all its records in the logs of its assignment were replayed.
//! * A log that cannot be replayed keeps only the tablets that need it from being served.
//! * A tablet that left without a flush keeps its records in this server's log.
//! * A tablet that left does not come back under the same epoch: no assignment of that epoch names this server's own log.
//! * Where logs are archived, records of a tablet have no earlier times than those that its former owners have written.

mod ahead;
mod load;

use crate::admission::Admission;
use crate::error::from_tablet;
use crate::log::CommitLog;
use crate::maintenance::UnreadFiles;
use crate::options::{MemtableLimits, OPENED_CONCURRENTLY};
use crate::parts::Parts;
use crate::recovery::{Claimed, Log, ReplayLimit};
use crate::roots::SealedLogs;
use crate::row_cache::RowCache;
use crate::schemas::ChangedSchemas;
use crate::stopping::Stopping;
use crate::tablets::{Served, Shut, Tablets};
use crate::times::Times;
use crate::work::{Compactions, FlushDemand, HeldFlushes};
use ahead::{OpenedLogs, wanted_streams};
use futures::future::{BoxFuture, Either};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_client::{Assignment, Closing, Confirm, ServiceError, ServiceResult};
use stele_tablet::{Tablet, TabletContext};
use stele_types::{Epoch, ErrorKind, SeqNo, ServerId, TableSchema, TabletId};

/// Tablets that left this server and may come back with other rows, as far as they are remembered.
const LEFT_MAX: usize = 1 << 16;

/// How long flushes wait after a replay. Servers that divide the tablets of a failed one end within about as long.
const HELD_FOR_OTHERS: Duration = Duration::from_secs(1);

/// Opens and closes tablets.
pub(crate) struct Assignments {
    context: TabletContext,
    tablets: Arc<Tablets>,
    log: Arc<CommitLog>,
    row_cache: Arc<RowCache>,
    flushes: Arc<FlushDemand>,
    compactions: Arc<Compactions>,
    admission: Arc<Admission>,
    unread: Arc<UnreadFiles>,
    memtables: MemtableLimits,
    /// How long a hand-over waits for writers.
    wait_max: Duration,
    /// Absent where this server owns the whole data root.
    sealed: Option<Arc<dyn SealedLogs>>,
    /// Where servers archive their logs.
    times: Option<Arc<Times>>,
    /// Tablets that are being opened or closed.
    under_way: Mutex<BTreeSet<TabletId>>,
    /// One replay at a time: they share the memory for it.
    replaying: tokio::sync::Mutex<()>,
    /// One log at a time is read ahead before its replay.
    reading_ahead: Arc<tokio::sync::Semaphore>,
    /// Served tablets with records that are in logs of other servers and not in files.
    replayed: Mutex<BTreeMap<TabletId, FromLogs>>,
    /// Tablets that were served here once, last under these epochs, or declined. The row cache may have results of their rows.
    left: Mutex<BTreeMap<TabletId, Epoch>>,
    /// An assignment may have an older schema than the newest.
    schemas: Arc<ChangedSchemas>,
    stopping: Stopping,
}

/// The origin of replayed records.
struct FromLogs {
    /// The newest of them: a flush through it makes the logs superfluous.
    through: SeqNo,
    logs: BTreeSet<ServerId>,
}

/// Keeps other openings and closings of a tablet away while it lives.
struct Turn<'a> {
    assignments: &'a Assignments,
    tablet: TabletId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let was_under_way = self.assignments.under_way.lock().remove(&self.tablet);
        assert!(was_under_way, "a turn ends once");
    }
}

/// An assignment that is to be opened, with its place in the request.
struct Wanted<'a> {
    place: usize,
    turn: Turn<'a>,
}

/// Outcomes of assignments, by their places in the request.
type Outcomes = Vec<(usize, ServiceResult<()>)>;

impl Assignments {
    /// Of the tablets of a server. Without `sealed` logs every call is refused.
    pub(crate) fn new(parts: &Parts, sealed: Option<Arc<dyn SealedLogs>>, unread: Arc<UnreadFiles>) -> Self {
        Assignments {
            context: parts.context.clone(),
            tablets: parts.tablets.clone(),
            log: parts.log.clone(),
            row_cache: parts.row_cache.clone(),
            flushes: parts.flushes.clone(),
            compactions: parts.compactions.clone(),
            admission: parts.admission.clone(),
            unread,
            memtables: parts.options.memtables.clone(),
            wait_max: parts.options.admission_wait_max,
            sealed,
            times: parts.times.clone(),
            under_way: Mutex::default(),
            replaying: tokio::sync::Mutex::default(),
            replayed: Mutex::default(),
            left: Mutex::default(),
            reading_ahead: Arc::new(tokio::sync::Semaphore::new(1)),
            schemas: parts.schemas.clone(),
            stopping: parts.stopping.clone(),
        }
    }

    /// Notes a changed schema before the tablets that are served are told of it: tablets that are being opened get it, too.
    pub(crate) fn note_schema(&self, schema: &Arc<TableSchema>) {
        if self.sealed.is_some() {
            self.schemas.note(schema);
        }
    }

    fn sealed(&self) -> ServiceResult<&Arc<dyn SealedLogs>> {
        self.sealed.as_ref().ok_or_else(|| {
            let message = "this server owns its whole data root: tablets are not assigned to it";
            ServiceError::new(ErrorKind::FailedPrecondition, message)
        })
    }

    fn turn(&self, tablet: TabletId) -> ServiceResult<Turn<'_>> {
        match self.under_way.lock().insert(tablet) {
            true => Ok(Turn {
                assignments: self,
                tablet,
            }),
            false => Err(ServiceError::new(
                ErrorKind::Busy,
                format!("tablet {tablet} is being opened or closed: retry later"),
            )),
        }
    }

    /// Opens tablets; an outcome for each assignment.
    pub(crate) async fn open(&self, assignments: Vec<Assignment>) -> Vec<ServiceResult<()>> {
        let mut outcomes = vec![Ok(()); assignments.len()];
        let (mut wanted, mut claims) = (Vec::new(), Vec::new());
        for (place, assignment) in assignments.into_iter().enumerate() {
            match self.begin(assignment.tablet, assignment.epoch).await {
                Ok(Some(turn)) => {
                    wanted.push(Wanted { place, turn });
                    claims.push(assignment);
                }
                Ok(None) => {}
                Err(error) => outcomes[place] = Err(error),
            }
        }
        let needs_logs = claims.iter().any(|claim| !claim.logs.is_empty());
        let held = needs_logs.then(|| self.flushes.hold());
        let (opening, claimed) = self.claim(claims).await;
        assert_eq!(claimed.len(), wanted.len(), "each claim has an outcome");
        let (mut free, mut needing) = (Vec::new(), Vec::new());
        for (wanted, claimed) in wanted.into_iter().zip(claimed) {
            match claimed {
                Ok(claimed) if claimed.logs().is_empty() => free.push((wanted, claimed)),
                Ok(claimed) => needing.push((wanted, claimed)),
                Err(error) => outcomes[wanted.place] = Err(error),
            }
        }
        // Together: the opening of the logs may hold a lock, say of fresh credentials, for which a request of the free tablets waits.
        let (mut opened, (has_replayed, with_logs)) =
            futures::join!(self.follow_and_serve(free), self.replay_and_serve(needing, opening));
        opened.extend(with_logs);
        for (place, outcome) in opened {
            outcomes[place] = outcome;
        }
        // A replay that fails is soon tried again, and again: flushes begin in between.
        if let Some(held) = held.filter(|_| has_replayed) {
            self.hold_for_others(held);
        }
        debug_assert!(
            outcomes.iter().all(|outcome| outcome.is_ok() || self.sealed.is_some())
                || outcomes.iter().all(Result::is_err),
            "a server that owns its data root refuses every assignment"
        );
        outcomes
    }

    /// Claims tablets, and begins to open the logs that they need meanwhile. An outcome for each assignment. Tablets that need no log do not
    /// wait for those.
    async fn claim(&self, assignments: Vec<Assignment>) -> (BoxFuture<'_, OpenedLogs>, Vec<ServiceResult<Claimed>>) {
        let env = &self.context.env;
        let (begun, wanted) = (env.now(), wanted_streams(&assignments));
        let (tablets, logs) = (assignments.len(), wanted.len());
        let opening = async move {
            let Some(sealed) = self.sealed.as_ref().filter(|_| logs > 0) else {
                return OpenedLogs::default();
            };
            let opened = OpenedLogs::open(&**sealed, wanted).await;
            tracing::info!(logs, "logs of former servers are opened, in {:?}", env.now() - begun);
            opened
        };
        let claiming = async move {
            let claimed = Claimed::claim(&self.context, assignments).await;
            if logs > 0 {
                tracing::info!(
                    tablets,
                    "tablets of former servers are claimed, in {:?}",
                    env.now() - begun
                );
            }
            claimed
        };
        match futures::future::select(claiming.boxed(), opening.boxed()).await {
            Either::Left((claimed, opening)) => (opening, claimed),
            Either::Right((mut opened, claiming)) => {
                opened.begin_reading(&self.reading_ahead);
                let claimed = opened.reading_while(claiming).await;
                (futures::future::ready(opened).boxed(), claimed)
            }
        }
    }

    /// Replays and serves tablets that need logs. Each log is read once for all of them. Only if that fails, it is read for each group
    /// of tablets that need the same logs: one that cannot be replayed keeps no others closed. Returns whether a replay succeeded, and
    /// the outcomes by place.
    async fn replay_and_serve(
        &self,
        needing: Vec<(Wanted<'_>, Claimed)>,
        logs: BoxFuture<'_, OpenedLogs>,
    ) -> (bool, Outcomes) {
        if needing.is_empty() {
            return (false, Vec::new());
        }
        let limit = self.replay_limit();
        let (wanted, claimed): (Vec<Wanted<'_>>, Vec<Claimed>) = needing.into_iter().unzip();
        let all = self.replay_and_follow(&claimed, logs.await, limit).await;
        let Err(error) = all else {
            return (true, self.serve_all(wanted, claimed).await);
        };
        let mut groups: BTreeMap<BTreeSet<ServerId>, (Vec<Wanted<'_>>, Vec<Claimed>)> = BTreeMap::new();
        for (wanted, claimed) in wanted.into_iter().zip(claimed) {
            let group = groups.entry(claimed.logs().clone()).or_default();
            group.0.push(wanted);
            group.1.push(claimed);
        }
        if groups.len() == 1 {
            let (wanted, claimed) = groups.into_values().next().unwrap_or_default();
            return (false, give_up_all(wanted, claimed, &error).await);
        }
        let (mut has_replayed, mut opened) = (false, Vec::new());
        for (wanted, claimed) in groups.into_values() {
            claimed.iter().for_each(Claimed::forget_replayed);
            let replayed = self.replay_and_follow(&claimed, OpenedLogs::default(), limit).await;
            has_replayed |= replayed.is_ok();
            opened.extend(match replayed {
                Ok(()) => self.serve_all(wanted, claimed).await,
                Err(error) => give_up_all(wanted, claimed, &error).await,
            });
        }
        (has_replayed, opened)
    }

    /// Serves tablets that need no logs.
    async fn follow_and_serve(&self, free: Vec<(Wanted<'_>, Claimed)>) -> Outcomes {
        if free.is_empty() {
            return Vec::new();
        }
        let (wanted, claimed): (Vec<Wanted<'_>>, Vec<Claimed>) = free.into_iter().unzip();
        // The former owner may have noted later times than this server's clock has.
        match self.follow(0).await {
            Ok(()) => self.serve_all(wanted, claimed).await,
            Err(error) => give_up_all(wanted, claimed, &error).await,
        }
    }

    /// Serves tablets whose records are replayed. Each is a request to storage, for which rows wait.
    async fn serve_all(&self, wanted: Vec<Wanted<'_>>, replayed: Vec<Claimed>) -> Outcomes {
        let serving = wanted.into_iter().zip(replayed).map(|(wanted, claimed)| async move {
            let Wanted { place, turn } = wanted;
            let served = self.serve(claimed).await;
            drop(turn);
            (place, served)
        });
        let serving: Vec<_> = serving.collect();
        let serving = futures::stream::iter(serving).buffered(OPENED_CONCURRENTLY);
        serving.collect().await
    }

    /// Goes on holding flushes while other servers replay the same logs.
    fn hold_for_others(&self, held: HeldFlushes) {
        let env = self.context.env.clone();
        self.context.env.spawn_background("flushes after a replay", async move {
            env.sleep(HELD_FOR_OTHERS).await;
            drop(held);
        });
    }

    /// The turn of an assignment that is to be opened; `None` when it is served already.
    async fn begin(&self, tablet: TabletId, epoch: Epoch) -> ServiceResult<Option<Turn<'_>>> {
        self.sealed()?;
        if self.stopping.is_stopping() {
            let message = "the server is shutting down: it opens no tablets";
            return Err(ServiceError::new(ErrorKind::Unavailable, message));
        }
        let turn = self.turn(tablet)?;
        let Ok(served) = self.tablets.served(tablet) else {
            self.check_returns(tablet, epoch)?;
            return Ok(Some(turn));
        };
        let is_open = served.tablet.check_open().is_ok();
        if is_open && served.tablet.epoch() == epoch {
            return Ok(None);
        }
        if is_open {
            let message = format!(
                "tablet {tablet} is served here under epoch {}: close it first",
                served.tablet.epoch()
            );
            return Err(ServiceError::new(ErrorKind::FailedPrecondition, message));
        }
        // Another owner had it, and it comes back.
        self.abandon(tablet, served.tablet.epoch()).await;
        assert!(
            !self.tablets.is_served(tablet),
            "the former life of a tablet has ended before it comes back"
        );
        self.check_returns(tablet, epoch)?;
        Ok(Some(turn))
    }

    /// Refuses an assignment from now on, unless its tablet is served. Fails where it could not be opened either: if it could, this
    /// server's log has nothing of it, and another server can open it with the logs of the same assignment.
    pub(crate) async fn decline(&self, tablet: TabletId, epoch: Epoch) -> ServiceResult<bool> {
        let Some(_turn) = self.begin(tablet, epoch).await? else {
            return Ok(false);
        };
        self.note_left(tablet, epoch);
        assert!(
            self.check_returns(tablet, epoch).is_err(),
            "an assignment that was declined is not opened"
        );
        tracing::info!(%tablet, %epoch, "the tablet is left to another server unopened");
        Ok(true)
    }

    /// Refuses an assignment under which the tablet was served here before: records in this server's log would be left out. Also one that
    /// was declined: another server may have the tablet.
    fn check_returns(&self, tablet: TabletId, epoch: Epoch) -> ServiceResult<()> {
        match self.left.lock().get(&tablet) {
            Some(left) if *left >= epoch => {
                let message = format!("tablet {tablet} was served here under epoch {left}, and not to its end");
                Err(ServiceError::new(ErrorKind::FailedPrecondition, message))
            }
            _ => Ok(()),
        }
    }

    async fn replay_and_follow(&self, claimed: &[Claimed], logs: OpenedLogs, limit: ReplayLimit) -> ServiceResult<()> {
        let newest = self.replay(claimed, logs, limit).await?;
        self.follow(newest).await
    }

    /// Lets the times of this server's log go on behind those of former owners.
    async fn follow(&self, newest: i64) -> ServiceResult<()> {
        match &self.times {
            Some(times) => times.follow(newest).await,
            None => Ok(()),
        }
    }

    /// The memory that the replays of one call may take.
    fn replay_limit(&self) -> ReplayLimit {
        let bytes_max = self.memtables.bytes_max();
        // A quarter, so that the tablets that are served already need not be flushed for it. More where these have little: writers
        // are throttled when the memtables are full.
        let part_bytes = bytes_max / 4;
        let with_part = self.context.memory.bytes().saturating_add(part_bytes);
        ReplayLimit {
            memtable_bytes: with_part.max(bytes_max - part_bytes),
            part_bytes,
        }
    }

    /// The newest time in the logs that were read; 0 if they have none. Some of them may be open already.
    async fn replay(&self, claimed: &[Claimed], mut opened: OpenedLogs, limit: ReplayLimit) -> ServiceResult<i64> {
        let servers: BTreeSet<ServerId> = claimed.iter().flat_map(Claimed::logs).copied().collect();
        debug_assert!(!servers.is_empty(), "tablets without logs are not replayed");
        let sealed = self.sealed()?;
        let unopened: Vec<ServerId> = servers.iter().copied().filter(|server| !opened.has(*server)).collect();
        let preparing = async {
            let alone = self.replaying.lock().await;
            let mut logs: BTreeMap<ServerId, Log> = BTreeMap::new();
            for server in unopened {
                let root = sealed.open(server).await;
                let refused = |error: stele_storage::StorageError| {
                    ServiceError::new(error.kind(), format!("the log of server {server}: {error}"))
                };
                logs.insert(server, (root.map_err(refused)?, None));
            }
            ServiceResult::Ok((alone, logs))
        };
        let (_alone, mut logs) = opened.reading_while(preparing).await?;
        logs.extend(
            servers
                .into_iter()
                .filter_map(|server| Some((server, opened.take(server)?))),
        );
        debug_assert!(
            claimed
                .iter()
                .all(|tablet| tablet.logs().iter().all(|log| logs.contains_key(log))),
            "a tablet is replayed from every log that it needs"
        );
        let replayed = Claimed::replay_all(claimed, logs, &self.context, limit).await;
        replayed.map_err(|error| ServiceError::new(error.kind(), error.to_string()))
    }

    async fn serve(&self, claimed: Claimed) -> ServiceResult<()> {
        let logs = claimed.logs().clone();
        let tablet = claimed.into_tablet().await?;
        let id = tablet.id();
        let left = self.left.lock().remove(&id);
        assert!(
            left.is_none_or(|left| left < tablet.epoch()),
            "a tablet comes back under a newer epoch"
        );
        if left.is_some() {
            // Results of reads from before, when it was served here under another epoch.
            drop(self.row_cache.clearing(id));
        }
        assert!(
            !self.tablets.is_served(id),
            "a tablet is opened once: its turn keeps others away"
        );
        let has_replayed = tablet.state().memtable_bytes() > 0;
        assert!(
            !has_replayed || !logs.is_empty(),
            "before a tablet is served only a replay fills its memtables"
        );
        if has_replayed {
            let through = tablet.visible();
            self.replayed.lock().insert(id, FromLogs { through, logs });
            // They are in no log of this server, and the next owner would replay the former one, too. So they are flushed soon,
            // however few they are.
            tablet.freeze();
        } else {
            self.replayed.lock().remove(&id);
        }
        tracing::info!(tablet = %id, epoch = %tablet.epoch(), has_replayed, "the tablet is served here");
        self.unread.note_unopened(&tablet);
        self.tablets.serve(tablet.clone());
        let newer = self.schemas.newer_than(&tablet.schema());
        let is_frozen = newer.is_some_and(|newer| tablet.set_schema(newer));
        if has_replayed || is_frozen {
            self.flushes.ripen(id);
            self.flushes.wake();
        }
        self.compactions.announce(id);
        Ok(())
    }

    /// Stops serving the tablet of an assignment; whether it was served.
    pub(crate) async fn close(
        &self,
        tablet: TabletId,
        epoch: Epoch,
        closing: Closing,
        confirm: Confirm,
    ) -> ServiceResult<bool> {
        self.sealed()?;
        let _turn = self.turn(tablet)?;
        let Ok(served) = self.tablets.served(tablet) else {
            return Ok(false);
        };
        if served.tablet.epoch() != epoch {
            // A late request: that assignment has ended before.
            return Ok(false);
        }
        match closing {
            Closing::HandOver => self.hand_over(&served, confirm).await?,
            Closing::Abandon => self.abandon(tablet, epoch).await,
        }
        tracing::info!(%tablet, %epoch, ?closing, "the tablet is not served here any more");
        Ok(true)
    }

    async fn hand_over(&self, served: &Arc<Served>, confirm: Confirm) -> ServiceResult<()> {
        let id = served.tablet.id();
        // In the order of a split, and for its reasons: compactions, most of the memtables, writers, the rest.
        let _held = self.compactions.hold_majors(id);
        let stopped = served.tablet.stop_compactions().await;
        served.tablet.flush().await.map_err(from_tablet)?;
        // The flush may have taken long.
        confirm.await?;
        let shut = self.context.env.timeout(self.wait_max, Shut::shut(served)).await;
        let gate = shut.map_err(|_| {
            let message = "writers of the tablet do not end, or it is being split: retry later";
            ServiceError::new(ErrorKind::Busy, message)
        })?;
        if let Some(times) = &self.times {
            times.leave().await?;
        }
        served.tablet.hand_over(&stopped).await.map_err(from_tablet)?;
        let removed = self.tablets.unserve(id);
        // It may have been dropped just now.
        assert!(
            removed.is_none_or(|removed| Arc::ptr_eq(&removed, served)),
            "a tablet has one closing at a time"
        );
        // Writers that waited find it closed.
        drop(gate);
        self.forget(id, served.tablet.epoch());
        Ok(())
    }

    async fn abandon(&self, tablet: TabletId, epoch: Epoch) {
        if let Some(served) = self.tablets.abandon(tablet) {
            served.tablet.release_files().await;
        }
        self.forget(tablet, epoch);
    }

    fn forget(&self, tablet: TabletId, epoch: Epoch) {
        self.replayed.lock().remove(&tablet);
        self.admission.unflushable.ended(tablet);
        self.note_left(tablet, epoch);
        self.flushes.wake();
    }

    fn note_left(&self, tablet: TabletId, epoch: Epoch) {
        let mut left = self.left.lock();
        left.insert(tablet, epoch);
        if left.len() > LEFT_MAX
            && let Some(forgotten) = left.keys().find(|known| **known != tablet).copied()
        {
            left.remove(&forgotten);
            drop(left);
            drop(self.row_cache.clearing(forgotten));
        }
    }

    /// The logs of other servers that a tablet still needs.
    fn logs_of(&self, tablet: &Tablet) -> Vec<ServerId> {
        let mut replayed = self.replayed.lock();
        let is_flushed = |from: &FromLogs| tablet.flushed_through() >= from.through;
        if replayed.get(&tablet.id()).is_some_and(is_flushed) {
            replayed.remove(&tablet.id());
        }
        let from = replayed.get(&tablet.id());
        from.map_or_else(Vec::new, |from| from.logs.iter().copied().collect())
    }
}

/// Gives tablets up for the same reason; their outcomes.
async fn give_up_all(wanted: Vec<Wanted<'_>>, claimed: Vec<Claimed>, error: &ServiceError) -> Outcomes {
    Claimed::give_up_all(claimed, error).await;
    wanted.iter().map(|wanted| (wanted.place, Err(error.clone()))).collect()
}

#[cfg(test)]
mod tests;
