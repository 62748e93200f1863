//! Assigns tablets to servers, as a master would, and has servers fail.
//!
//! One thing at a time: a move, the failure of a server with all that follows, or a round of cleaning. While a server's
//! tablets are assigned to others the network may have faults and other servers may fail, too.

use super::host::root_of;
use super::member::Member;
use super::{Fleet, FleetBug, LETTERS, Place, ROOT, STREAMS, ranges};
use crate::backend::network_faults;
use crate::requests::Network;
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_client::{Assignment, Closing, TabletAssignments, TabletControl, unconfirmed};
use stele_commitlog::LogError;
use stele_storage::Storage;
use stele_tablet::manifest::{self, ManifestLog, StoredFile};
use stele_tablet::sweep::{Knowledge, NamedTablet, Round, Sweep};
use stele_tablet::{TabletError, sweep};
use stele_tabletserver::{ServerError, delete_log, settle_log};
use stele_types::{Epoch, FileId, FilesInUse, ServerId, SnapshotId, TabletId};

/// Servers that the driver keeps alive.
const MEMBERS: usize = 3;
/// Actions of a run.
const ACTIONS_MIN: u64 = 8;
const ACTIONS_MAX: u64 = 20;
/// Attempts at something that succeeds when there are no faults.
const ATTEMPTS_MAX: u32 = 200;
/// Attempts to open tablets before the faults end: on a slow network each may take longer than a call.
const FAULTY_ATTEMPTS_MAX: u32 = 5;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(300);
/// The sweep's grace period.
const GRACE: Duration = Duration::from_secs(5);
/// Longest time for which a zombie is paused.
const STILL_MS_MAX: u64 = 20_000;

/// Tablets to be assigned, with the logs that each needs.
type Wanted = BTreeMap<TabletId, BTreeSet<ServerId>>;

/// The driver.
pub(super) struct Driver {
    fleet: Arc<Fleet>,
    sweep: Sweep,
    /// Sealed logs that some tablet may need.
    sealed: BTreeMap<ServerId, Arc<dyn Storage>>,
}

impl Driver {
    pub(super) fn new(fleet: Arc<Fleet>) -> Self {
        let grace = match fleet.has(FleetBug::SweepEarly) {
            true => Duration::ZERO,
            false => GRACE,
        };
        Driver {
            fleet,
            sweep: Sweep::new(grace),
            sealed: BTreeMap::new(),
        }
    }

    /// Starts the servers, and makes the tablets on the first of them.
    pub(super) async fn begin(&mut self) -> Result<(), String> {
        self.fill_up().await?;
        let first = self.fleet.members().into_iter().next().ok_or("no server")?;
        let (server, schema) = (first.server.clone(), self.fleet.schema.clone());
        let made = first
            .call(
                &self.fleet.env,
                async move { server.create_tablets(schema, ranges()).await },
            )
            .await;
        made.map_err(|_| "no answer")?.map_err(|e| e.to_string())?;
        let mut table = self.fleet.table.lock();
        for (tablet, _) in ranges() {
            let place = Place {
                server: first.id,
                epoch: Epoch(first.id.0),
                logs: BTreeSet::new(),
            };
            table.places.insert(tablet, place);
        }
        Ok(())
    }

    /// Does one thing after the other.
    pub(super) async fn drive(&mut self) -> Result<(), String> {
        let actions = ACTIONS_MIN + self.fleet.below(ACTIONS_MAX - ACTIONS_MIN);
        for _ in 0..actions {
            let pause = Duration::from_millis(self.fleet.below(3_000));
            self.fleet.env.sleep(pause).await;
            self.fleet
                .shared
                .requests()
                .set_network(network_faults(&self.fleet.env));
            match self.fleet.below(10) {
                0..4 => self.move_some().await?,
                4..7 => self.fail_some().await?,
                7..9 => self.clean().await,
                _ => {}
            }
            self.fill_up().await?;
        }
        Ok(())
    }

    /// Ends all faults, and has every tablet flushed. Afterwards no tablet needs a log of a server that is no more.
    pub(super) async fn calm(&mut self) -> Result<(), String> {
        self.fleet.shared.requests().set_network(Network::default());
        // Late requests arrive, and paused processes go on.
        self.fleet.env.sleep(Duration::from_secs(60)).await;
        for member in self.fleet.members() {
            if member.process.has_ended() {
                self.give_up(member).await?;
            }
        }
        for (tablet, place) in self.places() {
            let member = self.member(place.server).ok_or("a tablet without a server")?;
            let server = member.server.clone();
            let flushed = member
                .call(&self.fleet.env, async move { server.flush(tablet).await })
                .await;
            flushed
                .map_err(|_| "no answer")?
                .map_err(|e| format!("tablet {tablet}: {e}"))?;
        }
        for _ in 0..3 {
            self.fleet.env.sleep(GRACE).await;
            self.clean().await;
        }
        match self.sealed.is_empty() {
            true => Ok(()),
            false => Err(format!("logs are still needed: {:?}", self.sealed.keys())),
        }
    }

    fn places(&self) -> BTreeMap<TabletId, Place> {
        self.fleet.table.lock().places.clone()
    }

    fn member(&self, server: ServerId) -> Option<Arc<Member>> {
        self.fleet.table.lock().members.get(&server).cloned()
    }

    fn some_member(&self) -> Option<Arc<Member>> {
        let members = self.fleet.members();
        let count = members.len() as u64;
        (count > 0).then(|| members[self.fleet.below(count) as usize].clone())
    }

    /// Starts servers until there are enough.
    async fn fill_up(&mut self) -> Result<(), String> {
        for _ in 0..ATTEMPTS_MAX {
            if self.fleet.members().len() >= MEMBERS {
                return Ok(());
            }
            match Member::start(&self.fleet).await {
                Ok(member) => {
                    self.fleet.sim.note(&format!("server {} has joined", member.id));
                    self.fleet.table.lock().members.insert(member.id, member);
                }
                Err(why) => self.fleet.sim.note(&why),
            }
        }
        Err("no server starts".to_owned())
    }

    /// Moves a tablet from one running server to another.
    async fn move_some(&mut self) -> Result<(), String> {
        let tablet = TabletId(1 + self.fleet.below(LETTERS.len() as u64));
        let Some(place) = self.places().get(&tablet).cloned() else {
            return Ok(());
        };
        let Some(from) = self.member(place.server) else {
            return Ok(());
        };
        let (server, epoch) = (from.server.clone(), place.epoch);
        let close = async move {
            server
                .close_tablet(tablet, epoch, Closing::HandOver, unconfirmed())
                .await
        };
        match from.call(&self.fleet.env, close).await {
            Ok(Ok(_)) => {
                self.fleet
                    .sim
                    .note(&format!("tablet {tablet} leaves server {}", from.id));
                self.fleet.verdict.lock().moves += 1;
                self.assign(BTreeMap::from([(tablet, BTreeSet::new())])).await
            }
            Ok(Err(error)) => {
                self.fleet.sim.note(&format!("tablet {tablet} stays: {error}"));
                Ok(())
            }
            // Nobody knows whether it has closed the tablet.
            Err(_) => self.give_up(from).await,
        }
    }

    /// Has a server fail: it is killed, or declared dead while it runs on or is paused.
    async fn fail_some(&mut self) -> Result<(), String> {
        let Some(member) = self.some_member() else {
            return Ok(());
        };
        match self.fleet.below(3) {
            0 => member.process.kill(),
            1 => {
                let still = Duration::from_millis(self.fleet.below(STILL_MS_MAX));
                member.process.stand_still(still);
            }
            _ => {}
        }
        self.give_up(member).await
    }

    /// Gives a server up, and all its tablets to others.
    async fn give_up(&mut self, member: Arc<Member>) -> Result<(), String> {
        let wanted = self.seal(member).await?;
        self.assign(wanted).await
    }

    /// Seals the log of a server; the tablets that it had.
    async fn seal(&mut self, member: Arc<Member>) -> Result<Wanted, String> {
        let id = member.id;
        {
            let mut table = self.fleet.table.lock();
            table.members.remove(&id);
            table.leaving.insert(id, member.clone());
        }
        let runs = !member.process.has_ended();
        self.fleet.sim.note(&format!("server {id} is given up, runs {runs}"));
        let (log, tablets) = self.sealed_log(id).await?;
        {
            let mut verdict = self.fleet.verdict.lock();
            verdict.failovers += 1;
            verdict.zombies += u64::from(runs);
        }
        self.sealed.insert(id, log);
        self.fleet.table.lock().zombies.insert(id, member);
        let places = self.places().into_iter().filter(|(_, place)| place.server == id);
        let needed = places.map(|(tablet, place)| {
            // A log without records of a tablet is not read for it.
            let has_records = tablets.as_ref().is_none_or(|tablets| tablets.contains(&tablet));
            let own = has_records.then_some(id);
            (tablet, place.logs.into_iter().chain(own).collect())
        });
        Ok(needed.collect())
    }

    /// The sealed log of a server, with the tablets that have records in it if it was settled.
    async fn sealed_log(&self, server: ServerId) -> Result<(Arc<dyn Storage>, Option<BTreeSet<TabletId>>), String> {
        let env = self.fleet.env.clone();
        for _ in 0..ATTEMPTS_MAX {
            let opened = match self.fleet.has(FleetBug::SkipFence) {
                true => self.fleet.shared.look(&root_of(server), env.clone()).await,
                false => {
                    let owned = self.fleet.shared.own(&root_of(server), env.clone()).await;
                    owned.map(|owned| owned.storage())
                }
            };
            match opened {
                Ok(log) if self.fleet.has(FleetBug::SkipFence) => return Ok((log, None)),
                Ok(log) => match settled(&*log).await {
                    Ok(tablets) => return Ok((log, Some(tablets))),
                    Err(error) => self.fleet.sim.note(&format!("log of {server}: {error}")),
                },
                Err(error) => self.fleet.sim.note(&format!("log of {server}: {error}")),
            }
            env.sleep(PAUSE).await;
        }
        Err(format!("the log of server {server} cannot be sealed"))
    }

    /// Assigns tablets to servers until all are open.
    async fn assign(&mut self, mut wanted: Wanted) -> Result<(), String> {
        for attempt in 0..ATTEMPTS_MAX {
            if wanted.is_empty() {
                return Ok(());
            }
            if attempt == FAULTY_ATTEMPTS_MAX {
                self.fleet.shared.requests().set_network(Network::default());
            }
            self.fill_up().await?;
            let mut shares: BTreeMap<ServerId, Wanted> = BTreeMap::new();
            for (tablet, logs) in std::mem::take(&mut wanted) {
                let member = self.some_member().ok_or("no server")?;
                shares.entry(member.id).or_default().insert(tablet, logs);
            }
            for (server, share) in shares {
                wanted.extend(self.open(server, share).await?);
            }
            if !wanted.is_empty() {
                self.fleet.env.sleep(PAUSE).await;
            }
        }
        Err(format!("tablets cannot be opened: {wanted:?}"))
    }

    /// Has a server open tablets; returns those that it does not serve, and its others if it gave no answer.
    async fn open(&mut self, server: ServerId, share: Wanted) -> Result<Wanted, String> {
        let Some(member) = self.member(server) else {
            return Ok(share);
        };
        let epoch = Epoch(self.fleet.next_number());
        let mut assignments = Vec::with_capacity(share.len());
        {
            let mut table = self.fleet.table.lock();
            for (tablet, logs) in &share {
                let former = table.places.get(tablet).map(|place| place.epoch);
                let epoch = match former.filter(|_| self.fleet.has(FleetBug::ReuseEpoch)) {
                    Some(former) => former,
                    None => epoch,
                };
                let place = Place {
                    server,
                    epoch,
                    logs: logs.clone(),
                };
                table.places.insert(*tablet, place);
                assignments.push(Assignment {
                    tablet: *tablet,
                    epoch,
                    schema: self.fleet.schema.clone(),
                    logs: logs.iter().copied().collect(),
                    streams: logs.iter().map(|log| (*log, STREAMS)).collect(),
                });
            }
        }
        self.drop_logs_early().await;
        let target = member.server.clone();
        let opened = member
            .call(&self.fleet.env, async move { target.open_tablets(assignments).await })
            .await;
        let Ok(outcomes) = opened else {
            // It may serve them: its log is one of theirs from now on.
            return Box::pin(self.seal(member)).await;
        };
        let mut left = Wanted::new();
        for ((tablet, logs), outcome) in share.into_iter().zip(outcomes) {
            self.fleet.sim.note(&format!(
                "tablet {tablet} on server {server} under {epoch}: {outcome:?}"
            ));
            if outcome.is_err() {
                left.insert(tablet, logs);
            }
        }
        Ok(left)
    }

    /// Their tablets have new owners, which have not replayed them yet.
    async fn drop_logs_early(&mut self) {
        if self.fleet.has(FleetBug::DropLogEarly) {
            for (_, log) in std::mem::take(&mut self.sealed) {
                let _ = delete_log(&*log).await;
            }
        }
    }

    /// Deletes logs and files that nothing needs.
    async fn clean(&mut self) {
        self.learn_of_logs().await;
        let needed: BTreeSet<ServerId> = self.places().into_values().flat_map(|place| place.logs).collect();
        let unneeded: Vec<ServerId> = self.sealed.keys().filter(|id| !needed.contains(id)).copied().collect();
        for server in unneeded {
            let Some(log) = self.sealed.get(&server).cloned() else {
                continue;
            };
            match delete_log(&*log).await {
                Ok(_) => {
                    self.sealed.remove(&server);
                    self.fleet.verdict.lock().logs_deleted += 1;
                }
                Err(error) => self.fleet.sim.note(&format!("log of {server} stays: {error}")),
            }
        }
        let round = self.sweep_round().await;
        for finding in self.sweep.checked().iter().flat_map(|checked| &checked.findings) {
            self.fleet.violate(format!("a check found: {finding}"));
        }
        match round {
            Ok(Round::Swept { files, .. }) => {
                self.fleet.sim.note(&format!("{files} files swept"));
                self.fleet.verdict.lock().swept += files as u64;
            }
            outcome => self.fleet.sim.note(&format!("nothing swept: {outcome:?}")),
        }
    }

    /// Asks servers which logs their tablets still need.
    async fn learn_of_logs(&self) {
        for member in self.fleet.members() {
            let server = member.server.clone();
            let Ok(Ok(load)) = member.call(&self.fleet.env, async move { server.load().await }).await else {
                continue;
            };
            let mut table = self.fleet.table.lock();
            for of_tablet in load.tablets {
                let place = table.places.get_mut(&of_tablet.tablet);
                if let Some(place) = place.filter(|p| p.server == member.id && p.epoch == of_tablet.epoch) {
                    place.logs = of_tablet.logs.into_iter().collect();
                }
            }
        }
    }

    async fn data(&self) -> Result<Arc<dyn Storage>, TabletError> {
        let data = self.fleet.shared.share(ROOT, self.fleet.env.clone()).await?;
        Ok(data)
    }

    async fn sweep_round(&mut self) -> sweep::Result<Round> {
        let data = self.data().await?;
        let fleet = self.fleet.clone();
        let now = fleet.env.now();
        self.sweep.round(&data, now, &Leading(fleet)).await
    }

    /// Every file that a manifest names exists, and only files that a server uses exist besides.
    pub(super) async fn check_files(&self) -> Result<(), String> {
        let text = |e: TabletError| e.to_string();
        let data = self.data().await.map_err(text)?;
        let tablets = manifest::list_all(&*data).await.map_err(|e| e.to_string())?;
        let mut named: BTreeSet<StoredFile> = BTreeSet::new();
        for tablet in tablets.into_keys() {
            let (_, manifest) = ManifestLog::open(data.clone(), tablet).await.map_err(text)?;
            named.extend(manifest.stored());
        }
        let listed = data.list("sst/").await.map_err(|e| e.to_string())?;
        let listed: BTreeSet<StoredFile> = listed.iter().filter_map(|f| StoredFile::parse_path(&f.path)).collect();
        let missing: Vec<_> = named.difference(&listed).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!("manifests name files that are not there: {missing:?}")),
        }
    }
}

/// A driver, which takes no snapshots.
struct Leading(Arc<Fleet>);

#[async_trait]
impl sweep::Leader for Leading {
    async fn knowledge(&self) -> sweep::Result<Knowledge> {
        knowledge(&self.0).await
    }

    async fn snapshots(&self) -> sweep::Result<BTreeMap<SnapshotId, u32>> {
        Ok(BTreeMap::new())
    }

    async fn confirm(&self) -> sweep::Result<()> {
        Ok(())
    }
}

/// The knowledge of a master: files in use by each server, and the places of tablets.
async fn knowledge(fleet: &Fleet) -> sweep::Result<Knowledge> {
    let early = fleet.has(FleetBug::SweepEarly);
    let mut servers = BTreeMap::new();
    for member in fleet.members() {
        let server = member.server.clone();
        let in_use = match member
            .call(&fleet.env, async move { server.files_in_use().await })
            .await
        {
            Ok(Ok(_)) if early => FilesInUse {
                settled_below: FileId(u64::MAX),
                ..FilesInUse::default()
            },
            Ok(Ok(in_use)) => in_use,
            // It may have files that it has not committed yet.
            _ => {
                return Err(TabletError::Busy {
                    detail: "a server does not answer",
                });
            }
        };
        servers.insert(member.id, in_use);
    }
    let table = fleet.table.lock();
    let named = |(id, range)| {
        let epoch = table.places.get(&id)?.epoch;
        Some((id, NamedTablet { epoch, range }))
    };
    Ok(Knowledge {
        servers,
        next_server: ServerId(table.number + 1),
        tablets: ranges().into_iter().filter_map(named).collect(),
        coming: BTreeSet::new(),
    })
}

/// Settles a log; the tablets with records in it.
async fn settled(log: &dyn Storage) -> Result<BTreeSet<TabletId>, ServerError> {
    settle_log(log).await?;
    let mut tablets = BTreeSet::new();
    stele_commitlog::replay::<LogError>(log, |record| {
        tablets.insert(record.tablet);
        Ok(())
    })
    .await?;
    Ok(tablets)
}
