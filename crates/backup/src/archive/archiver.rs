//! Copies the commit log of a server to its archive, while the server writes it.
//!
//! A *round* takes the acknowledged bytes of all segments since the round before, and the changes of tables, and writes them as one
//! part: first the pieces, then the document. A round that fails is tried again with the same bytes. A segment may be deleted once a
//! part has all of it.
//!
//! A *chain* is a number in the catalog that says which log is archived without a hole. It is changed before any segment is let go
//! that is not archived, so a process that dies after that finds the gap.
//!
//! Modules: [`opening`]: where the archive ends. [`gap`]: log that is given up, and the range that begins behind it.
//!
//! Invariants:
//! * A part has every write that was acknowledged before its end and is not in an earlier part of its range.
//! * Parts of a tablet's records are in the order of these: segments are copied in the order of their numbers.

mod gap;
mod opening;

use super::changes::Changes;
use super::format::{Life, Part, StreamEnd, TableChange};
use super::metrics::ArchiveMetrics;
use super::notes::{Chain, Lives, Notes, OfCatalog};
use super::round::{Round, Statement, Waiting};
use super::site::{ClusterArchive, Site};
use super::store::Archive;
use crate::error::{BackupError, Result};
use crate::places::Places;
use futures::future::{Either, select};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stele_catalog::{Catalog, CatalogView};
use stele_client::BackupDestination;
use stele_env::{Env, PlantedBug};
use stele_tabletserver::ArchivedLog;

/// Longest wait after a failure: an archive that is back is used soon, and one that is gone costs few requests.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest wait for one step: to open the archive, to copy a segment, or to write a document. Slower is as good as gone: with the default
/// size of segments, 50 KB a second.
const STEP_WAIT_MAX: Duration = Duration::from_secs(600);
/// The time between two checks of the log that waits: beyond the bound there is at most the log of this time.
const WATCHED_EVERY: Duration = Duration::from_secs(1);
/// Intervals without a write after which a part is written nevertheless, so that the moments meanwhile can be restored.
const IDLE_INTERVALS: u32 = 6;

/// Settings of an archive.
#[derive(Clone, Debug)]
pub struct ArchiveSettings {
    /// Where it is.
    pub place: BackupDestination,
    /// The time between two rounds.
    pub interval: Duration,
    /// Bytes of log that may wait for the archive. Beyond these it has a gap.
    pub waiting_bytes_max: u64,
}

/// The archiver of a server. In a cluster each server has one of its log, and the leader has one of the tables.
pub struct Archiver {
    env: Env,
    log: ArchivedLog,
    notes: Arc<dyn Notes>,
    /// Of the archiver that archives changes of tables.
    tables: Option<Tables>,
    /// Of the log of a server of a cluster.
    life: Option<Life>,
    /// Of the archiver of the tables of a cluster.
    lives: Option<Arc<dyn Lives>>,
    site: Site,
    settings: ArchiveSettings,
    metrics: ArchiveMetrics,
    root: Vec<u8>,
    is_stopped: AtomicBool,
    state: tokio::sync::Mutex<State>,
}

/// The tables of an archiver.
struct Tables {
    catalog: Arc<Catalog>,
    changes: Arc<Changes>,
}

impl Tables {
    /// Begins to note their changes; the tables as they are.
    fn observe(catalog: Arc<Catalog>, log: &ArchivedLog) -> (Tables, Arc<CatalogView>) {
        let changes = Changes::new(log.clock().clone(), log.pool());
        let noting = changes.clone();
        let view = catalog.observe(Arc::new(move |before, after| noting.note(before, after)));
        (Tables { catalog, changes }, view)
    }
}

/// A server of a cluster that archives its log.
pub struct LifeOf {
    /// The number of the data root.
    pub root: [u8; 16],
    /// Its life, as the coordinator has it.
    pub life: Life,
    /// Its notes.
    pub notes: Arc<dyn Notes>,
}

/// The tables of a cluster, of which the leader archives the changes.
pub struct TablesOf {
    /// The number of the data root.
    pub root: [u8; 16],
    /// The catalog of the term.
    pub catalog: Arc<Catalog>,
    /// The chain that is noted; `None` if a leader was between that did not archive.
    pub chain: Option<Chain>,
    /// The notes of the term.
    pub notes: Arc<dyn Notes>,
    /// The servers.
    pub lives: Arc<dyn Lives>,
}

/// Its progress.
struct State {
    /// `None` until it could be opened, and after another writer was met.
    archive: Option<Archive>,
    chain: [u8; 16],
    /// No part has this chain, not even perhaps.
    is_fresh: bool,
    /// A part may be of this process.
    has_written: bool,
    /// The last part.
    last: Option<Part>,
    done: BTreeMap<u32, StreamEnd>,
    /// Tables that the next part states.
    restated: Option<Statement>,
    /// Changes that no part has.
    noted: Vec<TableChange>,
    /// The next part begins a range.
    gap: Option<String>,
    pending: Option<Round>,
    first_piece: u32,
    /// Rounds in a row that could not read the log.
    unreadable: u32,
}

impl State {
    fn new(chain: Chain) -> State {
        State {
            archive: None,
            chain,
            is_fresh: false,
            has_written: false,
            last: None,
            done: BTreeMap::new(),
            restated: None,
            noted: Vec::new(),
            gap: None,
            pending: None,
            first_piece: 0,
            unreadable: 0,
        }
    }
}

impl Archiver {
    /// Prepares the archive of a server, before it serves anybody.
    pub async fn new(
        env: Env,
        catalog: Arc<Catalog>,
        log: ArchivedLog,
        places: Arc<Places>,
        settings: ArchiveSettings,
        metrics: ArchiveMetrics,
    ) -> Result<Arc<Archiver>> {
        let root = catalog.root_id([env.random_u64(), env.random_u64()]).await?;
        let found = catalog.archived_log().await?;
        let notes = Arc::new(OfCatalog {
            env: env.clone(),
            catalog: catalog.clone(),
        });
        let chain = match found {
            Some(chain) => chain.number,
            None => notes.begin_chain().await?,
        };
        let site = Site::single(places, settings.place.clone());
        let (tables, view) = Tables::observe(catalog, &log);
        let state = State {
            is_fresh: found.is_none(),
            restated: Some((log.clock().now(), view)),
            ..State::new(chain)
        };
        let archiver = Archiver::with(env, log, (notes, root), (site, settings), metrics, state);
        Ok(Arc::new(Archiver {
            tables: Some(tables),
            ..archiver
        }))
    }

    /// The same of a server of a cluster, from its start on.
    pub fn of_life(
        env: Env,
        log: ArchivedLog,
        of: LifeOf,
        (archive, settings): (&ClusterArchive, ArchiveSettings),
        metrics: ArchiveMetrics,
    ) -> Arc<Archiver> {
        let LifeOf { root, life, notes } = of;
        let site = archive.server(life.server);
        let archiver = Archiver::with(
            env,
            log,
            (notes, root),
            (site, settings),
            metrics,
            State::new(life.chain()),
        );
        Arc::new(Archiver {
            life: Some(life),
            ..archiver
        })
    }

    /// The same of the tables of a cluster, for one term of its leader. `log` has a number that is above those of former terms.
    pub async fn of_tables(
        env: Env,
        log: ArchivedLog,
        of: TablesOf,
        (archive, settings): (&ClusterArchive, ArchiveSettings),
        metrics: ArchiveMetrics,
    ) -> Result<Arc<Archiver>> {
        let chain = match of.chain {
            Some(chain) => chain,
            None => of.notes.begin_chain().await?,
        };
        let (tables, view) = Tables::observe(of.catalog, &log);
        let state = State {
            is_fresh: of.chain.is_none(),
            restated: Some((log.clock().now(), view)),
            ..State::new(chain)
        };
        let site = archive.tables();
        let archiver = Archiver::with(env, log, (of.notes, of.root), (site, settings), metrics, state);
        Ok(Arc::new(Archiver {
            tables: Some(tables),
            lives: Some(of.lives),
            ..archiver
        }))
    }

    fn with(
        env: Env,
        log: ArchivedLog,
        (notes, root): (Arc<dyn Notes>, [u8; 16]),
        (site, settings): (Site, ArchiveSettings),
        metrics: ArchiveMetrics,
        state: State,
    ) -> Archiver {
        Archiver {
            env,
            log,
            notes,
            tables: None,
            life: None,
            lives: None,
            site,
            settings,
            metrics,
            root: root.to_vec(),
            is_stopped: AtomicBool::new(false),
            state: tokio::sync::Mutex::new(state),
        }
    }

    /// Does rounds until the archiver is dropped or stopped.
    pub fn start(self: &Arc<Self>) {
        let (this, env) = (Arc::downgrade(self), self.env.clone());
        let interval = self.settings.interval;
        self.env.spawn_background("log archive", async move {
            // The first round begins the archive, and moments before it cannot be restored.
            let mut wait = Duration::ZERO;
            loop {
                env.sleep(wait).await;
                let Some(archiver) = this.upgrade().filter(|archiver| !archiver.is_stopped()) else {
                    return;
                };
                wait = match archiver.round().await {
                    Ok(()) => interval,
                    // The log is not kept for an archive that is another server's, so a round follows nevertheless.
                    Err(BackupError::OtherArchiver(_)) => WAIT_MAX.max(interval),
                    // The first wait is none, which would stay so.
                    Err(_) => (wait.max(interval) * 2).min(WAIT_MAX.max(interval)),
                };
            }
        });
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Archives the end of the log of a server that has stopped. At a failure the next start goes on.
    pub async fn finish(&self) {
        self.stop();
        let _ = self.round().await;
    }

    /// Begins no round any more.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Copies everything that was acknowledged before the call. A failure is logged and counted.
    pub async fn round(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        let outcome = self.try_round(&mut state).await;
        if let Err(error) = &outcome {
            self.metrics.failures.inc();
            tracing::warn!(%error, archive = ?self.settings.place, "the log is not archived now; it stays on the server");
            self.bound(&mut state, error).await;
        }
        self.measure(&state);
        outcome
    }

    async fn try_round(&self, state: &mut State) -> Result<()> {
        // A round that was begun earlier, or begins a range, lacks the log since then.
        while self.write_part(state).await? {}
        Ok(())
    }

    /// Writes the next part, if there is anything; whether another one may follow.
    async fn write_part(&self, state: &mut State) -> Result<bool> {
        let archive = match &state.archive {
            Some(archive) => archive.clone(),
            None => {
                let done = state.done.clone();
                self.within_bound(&done, self.connect(state)).await?
            }
        };
        let done = state.done.clone();
        let goes_on = state.pending.is_some() || state.gap.is_some();
        if state.pending.is_none() {
            let to_micros = self.log.clock().now();
            let lives = self.list_lives(state, to_micros).await?;
            state.pending = match state.gap.clone() {
                Some(gap) => Some(self.begin_range(state, gap).await?),
                None => self.begin_round(state, to_micros)?,
            };
            if let Some(pending) = &mut state.pending {
                pending.part.lives = lives;
            }
        }
        let Some(pending) = &mut state.pending else {
            return Ok(false);
        };
        self.within_bound(&done, pending.upload_changes(&archive)).await?;
        loop {
            let segment = pending.upload_segment(&archive, &**self.log.root(), &self.metrics);
            if !self.within_bound(&done, segment).await? {
                break;
            }
            self.check_bound(&done)?;
        }
        let part = pending.part.clone();
        if self.env.planted(PlantedBug::ArchiveEarly) {
            let ends = part.ends.iter().map(|end| (end.stream, *end)).collect();
            self.log.archived(Waiting::of(&self.log.positions(), &ends).complete);
        }
        // A later process begins with this time, so that its writes and backups are after the part.
        self.notes.note_moment(part.to_micros).await?;
        // It may be there even if the answer is lost.
        (state.is_fresh, state.has_written) = (false, true);
        if let Some(other) = self.within_bound(&done, archive.put_part(&part)).await? {
            // Its streams may be further than was known here.
            state.archive = None;
            self.give_up_round(state);
            return match other.epoch > self.log.epoch().0 {
                true => Err(BackupError::OtherArchiver(other.epoch)),
                false => Err(BackupError::Contended),
            };
        }
        if let Some(lives) = &self.lives {
            lives.archived(&part.lives).await;
        }
        self.advance(state, part);
        Ok(goes_on)
    }

    /// The servers of the cluster for a part that ends at this moment. Each that is missing has joined afterwards: its clock is behind the moment, which
    /// is noted first.
    async fn list_lives(&self, state: &mut State, to_micros: i64) -> Result<Vec<Life>> {
        let Some(lives) = &self.lives else {
            return Ok(Vec::new());
        };
        self.notes.note_moment(to_micros).await?;
        let listed = match lives.list(state.chain).await? {
            Ok(listed) => listed,
            Err(why) => {
                state.gap.get_or_insert(why);
                Vec::new()
            }
        };
        let known: BTreeMap<u32, u32> = state
            .last
            .iter()
            .flat_map(|last| &last.lives)
            .map(|life| (life.server, life.gaps))
            .collect();
        let lost = listed
            .iter()
            .find(|life| life.gaps != known.get(&life.server).copied().unwrap_or(0));
        if let Some(Life { server, .. }) = lost {
            let why = format!("server {server} has let log go that the archive does not have");
            state.gap.get_or_insert(why);
        }
        Ok(listed)
    }

    /// Does something with the archive, but not for so long that too much log waits for it meanwhile. A round that never fails, but takes longer
    /// than its log needs to come, must end as well.
    async fn within_bound<T>(
        &self,
        done: &BTreeMap<u32, StreamEnd>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let watch = async {
            let mut waited = Duration::ZERO;
            loop {
                self.env.sleep(WATCHED_EVERY).await;
                waited += WATCHED_EVERY;
                if waited >= STEP_WAIT_MAX || self.check_bound(done).is_err() {
                    return;
                }
            }
        };
        match select(pin!(work), pin!(watch)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => Err(BackupError::ArchiveTooSlow),
        }
    }

    fn check_bound(&self, done: &BTreeMap<u32, StreamEnd>) -> Result<()> {
        match Waiting::of(&self.log.positions(), done).bytes > self.settings.waiting_bytes_max {
            true => Err(BackupError::ArchiveTooSlow),
            false => Ok(()),
        }
    }

    /// Everything since the last part; `None` if there is nothing, for a short while.
    fn begin_round(&self, state: &mut State, to_micros: i64) -> Result<Option<Round>> {
        let Some(last) = state.last.clone() else {
            return Err(BackupError::Contended);
        };
        // The moment was first, then the log: it has every write that was acknowledged before that moment.
        let waiting = Waiting::of(&self.log.positions(), &state.done);
        let noted = self
            .tables
            .as_ref()
            .map_or(Some(Vec::new()), |tables| tables.changes.take());
        match noted {
            Some(mut changes) => state.noted.append(&mut changes),
            None => {
                state.gap = Some("tables changed too often while the archive could not be reached".to_owned());
                return Err(BackupError::Contended);
            }
        }
        let idle = self.settings.interval.as_micros() as i64 * i64::from(IDLE_INTERVALS);
        let is_idle = waiting.pieces.is_empty() && state.noted.is_empty() && state.restated.is_none();
        if is_idle && to_micros < last.to_micros.saturating_add(idle) && !self.is_stopped() {
            self.log.archived(waiting.complete);
            return Ok(None);
        }
        let part = Part {
            range_first: last.range_first,
            range_from: last.range_from,
            from_micros: last.to_micros,
            to_micros: to_micros.max(last.to_micros),
            pieces: waiting.pieces.iter().map(|(piece, _)| *piece).collect(),
            ends: waiting.ends.values().copied().collect(),
            is_last: self.life.is_some() && self.is_stopped(),
            ..self.part(state, last.number + 1)
        };
        let mut round = Round::new(part, state.restated.clone(), waiting.pieces);
        round.noted = std::mem::take(&mut state.noted);
        Ok(Some(round))
    }

    fn part(&self, state: &State, number: u64) -> Part {
        Part {
            number,
            root: self.root.clone(),
            chain: state.chain.to_vec(),
            epoch: self.log.epoch().0,
            ends: state.done.values().copied().collect(),
            restated_micros: state.restated.as_ref().map_or(0, |(micros, _)| *micros),
            first_piece: state.first_piece,
            ..Part::default()
        }
    }

    /// The part is in the archive.
    fn advance(&self, state: &mut State, part: Part) {
        self.metrics.parts.inc();
        if part.begins_range() && self.life.is_some() && part.number == 1 {
            self.metrics.gaps.inc();
            tracing::info!(from_micros = part.range_from, "the log of this server is archived");
        } else if part.begins_range() {
            self.metrics.gaps.inc();
            tracing::warn!(
                reason = part.gap,
                from_micros = part.range_from,
                "the archive of the log has a new range: take a backup, from which on moments can be restored"
            );
        }
        state.done = part.ends.iter().map(|end| (end.stream, *end)).collect();
        (state.gap, state.pending, state.restated) = (None, None, None);
        self.forget_changes();
        (state.first_piece, state.unreadable) = (0, 0);
        state.is_fresh = false;
        state.last = Some(part);
        self.log
            .archived(Waiting::of(&self.log.positions(), &state.done).complete);
    }

    fn forget_changes(&self) {
        if let Some(tables) = &self.tables {
            tables.changes.archived();
        }
    }

    fn measure(&self, state: &State) {
        let waiting = Waiting::of(&self.log.positions(), &state.done).bytes;
        self.metrics.lag_bytes.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        let since = state
            .last
            .as_ref()
            .map_or(0, |last| self.log.clock().now() - last.to_micros);
        self.metrics.lag_seconds.set(since / 1_000_000);
    }
}
