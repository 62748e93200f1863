//! Control of tablets on all servers, for the master of the leader.

mod new_tablets;
mod passing;
mod replacing;
mod snapshots;

pub(crate) use new_tablets::NewTablets;

use crate::codec::{Outcome, result};
use crate::local::Local;
use crate::members;
use crate::messages::Request;
use crate::tablet_calls::TabletCall;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use passing::until_served;
use replacing::Replacing;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stele_assignment::{Assignment, Owner};
use stele_catalog::{Catalog, Homes, Reassignment};
use stele_client::{CompactionState, ServiceError, ServiceResult, SnapshotFiles, SplitPolicy, TabletControl};
use stele_coord::Coord;
use stele_storage::Storage;
use stele_types::{Epoch, ErrorKind, FamilyId, RowRange, ServerId, SnapshotId, TableSchema, TabletId};

/// Longest time of a call: flushes and compactions that it waits for.
const CALL_WAIT: Duration = Duration::from_secs(120);
/// Time for a server to follow.
const CATCH_UP_WAIT: Duration = Duration::from_secs(10);
/// Longest time until every server follows the catalog up to a change, or has ended.
const BARRIER_WAIT: Duration = Duration::from_secs(60);
/// Longest time until tablets that are to be merged are on one server.
const GATHER_WAIT: Duration = Duration::from_secs(30);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// Calls to servers at one time.
const CONCURRENT_CALLS: usize = 64;

/// The tablets of all servers, as the leader's master controls them.
pub(crate) struct ClusterControl {
    local: Arc<Local>,
    coord: Arc<dyn Coord>,
    /// The shared data root.
    data: Arc<dyn Storage>,
    /// Of the term.
    catalog: Arc<Catalog>,
    /// Of the leader.
    term: u64,
    /// The number of the next drop of rows.
    drops: AtomicU64,
    homes: Arc<NewTablets>,
    replacing: Replacing,
    /// Snapshots that are being taken, until the catalog names them or never will.
    taking: Mutex<BTreeSet<SnapshotId>>,
    /// The term is over.
    ended: AtomicBool,
}

impl ClusterControl {
    pub(crate) fn new(
        local: Arc<Local>,
        coord: Arc<dyn Coord>,
        data: Arc<dyn Storage>,
        (catalog, homes, term): (Arc<Catalog>, Arc<NewTablets>, u64),
    ) -> Arc<Self> {
        Arc::new(ClusterControl {
            local,
            coord,
            data,
            catalog,
            term,
            drops: AtomicU64::new(1),
            homes,
            replacing: Replacing::default(),
            taking: Mutex::default(),
            ended: AtomicBool::new(false),
        })
    }

    /// Notes that the term is over: another leader tells servers the outcome of replacements.
    pub(crate) fn end_term(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Tablets that a change under way may come to name.
    pub(crate) fn coming(&self) -> BTreeSet<TabletId> {
        self.homes.coming(&self.catalog)
    }

    async fn call<T: DeserializeOwned>(&self, server: ServerId, call: TabletCall) -> ServiceResult<T> {
        self.local
            .order(self.term, server, Request::Tablets(call), CALL_WAIT)
            .await
    }

    async fn done(&self, server: ServerId, call: TabletCall) -> ServiceResult<()> {
        result(self.call::<Outcome>(server, call).await?)
    }

    fn owner(&self, tablet: TabletId) -> ServiceResult<Owner> {
        let owner = self
            .local
            .catalog
            .owner_of(tablet)
            .or_else(|| self.homes.home_of(tablet));
        owner.ok_or_else(|| {
            let message = format!("tablet {tablet} has no server now");
            ServiceError::new(ErrorKind::Unavailable, message)
        })
    }

    async fn call_owner<T: DeserializeOwned>(&self, tablet: TabletId, call: TabletCall) -> ServiceResult<T> {
        self.call(self.owner(tablet)?.server, call).await
    }

    /// Servers that may get tablets, with the number that each has.
    fn targets(&self) -> BTreeSet<(usize, ServerId)> {
        let view = self.local.members.view();
        let mut counts: BTreeMap<ServerId, usize> = view
            .servers
            .keys()
            .filter(|id| !view.draining.contains(id) && view.logs.get(id).is_some_and(|log| !log.sealed))
            .map(|id| (*id, 0))
            .collect();
        for table in self.local.catalog.view().tables.values() {
            for owner in table.tablets().iter().filter_map(|tablet| tablet.assignment.owner) {
                if let Some(count) = counts.get_mut(&owner.server) {
                    *count += 1;
                }
            }
        }
        counts.into_iter().map(|(server, count)| (count, server)).collect()
    }

    /// Divides new tablets over the servers.
    fn divide<T>(&self, tablets: Vec<T>) -> ServiceResult<BTreeMap<ServerId, Vec<T>>> {
        let mut targets = self.targets();
        let mut shares: BTreeMap<ServerId, Vec<T>> = BTreeMap::new();
        for tablet in tablets {
            let (count, server) = targets
                .pop_first()
                .ok_or_else(|| ServiceError::new(ErrorKind::Unavailable, "no server may get tablets now"))?;
            shares.entry(server).or_default().push(tablet);
            targets.insert((count + 1, server));
        }
        Ok(shares)
    }

    /// The tablets by the server that owns each.
    fn by_owner(&self, tablets: &[TabletId]) -> ServiceResult<BTreeMap<ServerId, Vec<TabletId>>> {
        let mut by_owner: BTreeMap<ServerId, Vec<TabletId>> = BTreeMap::new();
        for tablet in tablets {
            by_owner.entry(self.owner(*tablet)?.server).or_default().push(*tablet);
        }
        Ok(by_owner)
    }

    /// Completes when every server follows the catalog up to a revision, or has no session any more and a sealed log. The
    /// change is made already, so no error is one after which the call is repeated.
    pub(crate) async fn barrier(&self, revision: u64) -> ServiceResult<()> {
        let caught_up = self.ask_all::<bool>(&Request::CatchUp(revision)).await;
        caught_up.map(drop).map_err(|why| {
            let message = format!("the change is made, but {why}");
            ServiceError::new(ErrorKind::Aborted, message)
        })
    }

    /// Moves the clocks of all servers that archive their logs to a moment at least; the newest moment that one of them has.
    pub(crate) async fn level(&self, micros: i64) -> ServiceResult<i64> {
        let clocks = self.ask_all::<i64>(&Request::Clock(micros)).await;
        let clocks = clocks.map_err(|why| ServiceError::new(ErrorKind::Unavailable, format!("clocks: {why}")))?;
        Ok(clocks.into_iter().max().unwrap_or(0).max(micros))
    }

    /// Asks every server, until each has answered or has a sealed log; their answers. The error says which have not answered.
    async fn ask_all<T: DeserializeOwned>(&self, request: &Request) -> Result<Vec<T>, String> {
        let env = &self.local.env;
        let deadline = env.now() + BARRIER_WAIT;
        let mut behind: Option<BTreeSet<ServerId>> = None;
        let mut answers = Vec::new();
        loop {
            // The coordinator is asked: a server may have joined just now.
            let view = match members::list(&*self.coord).await {
                Ok(view) => view,
                Err(error) if env.now() < deadline => {
                    tracing::debug!(%error, ?request, "the servers cannot be listed");
                    env.sleep(PAUSE).await;
                    continue;
                }
                Err(error) => return Err(format!("the servers cannot be listed: {error}")),
            };
            let open = |id: &ServerId| view.logs.get(id).is_some_and(|log| !log.sealed);
            let all = view.logs.keys().filter(|id| open(id)).copied();
            let missing: Vec<ServerId> = match behind.take() {
                None => all.collect(),
                Some(behind) => behind.into_iter().filter(open).collect(),
            };
            let asked = missing.into_iter().map(|server| async move {
                let answer: ServiceResult<T> = self
                    .local
                    .order(self.term, server, request.clone(), CATCH_UP_WAIT)
                    .await;
                (server, answer)
            });
            let mut asked = futures::stream::iter(asked).buffer_unordered(CONCURRENT_CALLS);
            let mut rest = BTreeSet::new();
            while let Some((server, answer)) = asked.next().await {
                match answer {
                    Ok(answer) => answers.push(answer),
                    Err(error) => {
                        tracing::debug!(%server, %error, ?request, "a server does not answer");
                        rest.insert(server);
                    }
                }
            }
            if rest.is_empty() {
                return Ok(answers);
            }
            if env.now() >= deadline {
                return Err(format!("servers {rest:?} have not answered"));
            }
            behind = Some(rest);
            env.sleep(PAUSE).await;
        }
    }

    /// Moves tablets until one server has all of them.
    async fn gather(&self, tablets: &[TabletId]) -> ServiceResult<ServerId> {
        let env = &self.local.env;
        let deadline = env.now() + GATHER_WAIT;
        let mut target = None;
        loop {
            let by_owner = self.by_owner(tablets)?;
            if let (1, Some((server, _))) = (by_owner.len(), by_owner.first_key_value()) {
                return Ok(*server);
            }
            let to = *target.get_or_insert_with(|| {
                let most = by_owner.iter().max_by_key(|(_, tablets)| tablets.len());
                most.map_or(self.local.peers.own(), |(server, _)| *server)
            });
            let moves = self.moves_to(tablets, to);
            self.catalog.reassign(&moves).await.map_err(from_catalog)?;
            if env.now() >= deadline {
                let message = "the tablets are on several servers, and cannot be moved to one now";
                return Err(ServiceError::new(ErrorKind::Busy, message));
            }
            env.sleep(PAUSE).await;
        }
    }

    /// Changes that have tablets move to a server.
    pub(crate) fn moves_to(&self, tablets: &[TabletId], to: ServerId) -> Vec<Reassignment> {
        let wanted: BTreeSet<TabletId> = tablets.iter().copied().collect();
        let view = self.local.catalog.view();
        let all = view.tables.values().flat_map(|table| table.tablets());
        let moves = all.filter(|tablet| wanted.contains(&tablet.id)).filter_map(|tablet| {
            let seen = tablet.assignment.clone();
            let is_there = seen.owner.is_some_and(|owner| owner.server == to);
            let next = Assignment {
                moving_to: (!is_there).then_some(to),
                ..seen.clone()
            };
            (seen != next).then_some(Reassignment {
                tablet: tablet.id,
                seen,
                next,
            })
        });
        moves.collect()
    }

    /// The calls that prepare a truncation, each for the owner of some of the tablets. New tablets stay with the owners of the
    /// old ones, or with the first if their number is another.
    fn truncations(
        &self,
        schema: Arc<TableSchema>,
        tablets: Vec<TabletId>,
        empty: Vec<(TabletId, RowRange)>,
    ) -> ServiceResult<Vec<(ServerId, TabletId, TabletCall)>> {
        let by_owner = self.by_owner(&tablets)?;
        let mut shares: BTreeMap<ServerId, Vec<(TabletId, RowRange)>> = BTreeMap::new();
        if empty.len() == tablets.len() {
            for (old, new) in tablets.iter().zip(empty) {
                shares.entry(self.owner(*old)?.server).or_default().push(new);
            }
        } else if let Some((first, _)) = by_owner.first_key_value() {
            shares.insert(*first, empty);
        }
        let calls = by_owner.into_iter().filter_map(|(server, old)| {
            let first = *old.first()?;
            let empty = shares.remove(&server).unwrap_or_default();
            let made = empty.iter().map(|(tablet, _)| *tablet);
            self.homes.note(server, Epoch(server.0), made);
            let call = TabletCall::PrepareTruncation {
                schema: schema.clone(),
                tablets: old,
                empty,
            };
            Some((server, first, call))
        });
        Ok(calls.collect())
    }

    /// Has every server drop tablets. One that is not reached is told to abandon them later.
    async fn drop_everywhere(&self, tablets: Vec<TabletId>) {
        let view = self.local.members.view();
        let calls = view.servers.keys().map(|server| {
            let tablets = tablets.clone();
            async move { (*server, self.done(*server, TabletCall::Drop(tablets)).await) }
        });
        for (server, outcome) in futures::future::join_all(calls).await {
            if let Err(error) = outcome {
                tracing::warn!(%server, %error, "dropped tablets are left for the next round");
            }
        }
        self.homes.forget(&tablets);
    }
}

fn from_catalog(error: stele_catalog::CatalogError) -> ServiceError {
    ServiceError::new(error.kind(), error.to_string())
}

#[async_trait]
impl TabletControl for ClusterControl {
    async fn create_tablets(&self, schema: Arc<TableSchema>, tablets: Vec<(TabletId, RowRange)>) -> ServiceResult<()> {
        let shares = self.divide(tablets)?;
        for (server, share) in &shares {
            let made = share.iter().map(|(tablet, _)| *tablet);
            self.homes.note(*server, Epoch(server.0), made);
        }
        let calls = shares.into_iter().map(|(server, tablets)| {
            let schema = schema.clone();
            self.done(server, TabletCall::Create { schema, tablets })
        });
        // All are awaited: none must be made after a failure is known.
        let outcomes = futures::future::join_all(calls).await;
        outcomes.into_iter().collect()
    }

    async fn drop_tablets(&self, tablets: Vec<TabletId>) {
        self.drop_everywhere(tablets).await;
    }

    async fn set_schema(&self, schema: Arc<TableSchema>) {
        // Servers tell their tablets as soon as they follow the catalog.
        let revision = self.local.catalog.applied();
        if let Err(error) = self.barrier(revision).await {
            tracing::warn!(table = %schema.name, %error, "a schema is not known everywhere yet");
        }
    }

    async fn unsettled(&self, tablet: TabletId, version: u64) -> ServiceResult<BTreeSet<FamilyId>> {
        self.call_owner(tablet, TabletCall::Unsettled(tablet, version)).await
    }

    /// Also of a tablet that moves meanwhile: rows of other tablets are dropped already. A lost answer may have them dropped twice,
    /// at moments of the same call. An attempt that arrives after a later one is refused.
    async fn drop_rows(&self, tablet: TabletId, range: RowRange) -> ServiceResult<()> {
        let drop_them = || async {
            let owner = self.owner(tablet)?;
            let call = TabletCall::DropRows {
                tablet,
                epoch: owner.epoch,
                number: (self.term, self.drops.fetch_add(1, Ordering::Relaxed)),
                range: range.clone(),
            };
            self.done(owner.server, call).await
        };
        until_served(&self.local.env, tablet, drop_them).await
    }

    async fn flush(&self, tablet: TabletId) -> ServiceResult<()> {
        result(self.call_owner(tablet, TabletCall::Flush(tablet)).await?)
    }

    async fn compact(&self, tablet: TabletId, major: bool) -> ServiceResult<()> {
        result(self.call_owner(tablet, TabletCall::Compact { tablet, major }).await?)
    }

    async fn compaction(&self, tablet: TabletId) -> ServiceResult<CompactionState> {
        self.call_owner(tablet, TabletCall::Compaction(tablet)).await
    }

    fn servers(&self) -> usize {
        self.targets().len()
    }

    async fn split_candidates(&self, policy: &SplitPolicy) -> Vec<TabletId> {
        let view = self.local.members.view();
        let asked = view.servers.keys().map(|server| async move {
            let call = TabletCall::SplitCandidates(policy.clone());
            let candidates: ServiceResult<Vec<TabletId>> = self.call(*server, call).await;
            candidates.unwrap_or_default()
        });
        futures::future::join_all(asked).await.concat()
    }

    async fn prepare_split(
        &self,
        tablet: TabletId,
        halves: (TabletId, TabletId),
        at: Option<Bytes>,
    ) -> ServiceResult<Option<Bytes>> {
        let owner = self.owner(tablet)?;
        // Halves have the files of their tablet, so their sequence numbers go on in its epoch.
        let new = vec![halves.0, halves.1];
        self.homes.note(owner.server, owner.epoch, new.iter().copied());
        self.note_preparing(tablet, owner.server, new);
        let call = TabletCall::PrepareSplit { tablet, halves, at };
        let prepared: ServiceResult<(Option<Bytes>, Option<u64>)> = self.call(owner.server, call).await;
        match prepared {
            Ok((Some(row), Some(number))) => {
                self.note_prepared(tablet, owner.server, number);
                Ok(Some(row))
            }
            other => {
                self.end_replacement(tablet, false).await;
                other.map(|_| None)
            }
        }
    }

    async fn prepare_merge(&self, tablets: Vec<TabletId>, merged: TabletId) -> ServiceResult<()> {
        let server = self.gather(&tablets).await?;
        let epochs = tablets
            .iter()
            .map(|tablet| self.owner(*tablet).map(|owner| owner.epoch));
        let epoch = epochs.collect::<ServiceResult<Vec<_>>>()?.into_iter().max();
        self.homes.note(server, epoch.unwrap_or_default(), [merged].into_iter());
        let Some(first) = tablets.first().copied() else {
            return Err(ServiceError::invalid("no tablets are merged"));
        };
        let call = TabletCall::PrepareMerge { tablets, merged };
        self.prepare(first, vec![(server, first, call)], vec![merged]).await
    }

    async fn prepare_truncation(
        &self,
        schema: Arc<TableSchema>,
        tablets: Vec<TabletId>,
        empty: Vec<(TabletId, RowRange)>,
    ) -> ServiceResult<()> {
        let Some(first) = tablets.first().copied() else {
            return Err(ServiceError::invalid("a table without tablets cannot be truncated"));
        };
        let new = empty.iter().map(|(tablet, _)| *tablet).collect();
        self.keep_owners(&tablets).await;
        match self.truncations(schema, tablets, empty) {
            Ok(calls) => self.prepare(first, calls, new).await,
            Err(error) => {
                self.end_replacement(first, false).await;
                Err(error)
            }
        }
    }

    async fn take_snapshot(
        &self,
        snapshot: SnapshotId,
        tablets: Vec<TabletId>,
        flush: bool,
    ) -> ServiceResult<SnapshotFiles> {
        self.take(snapshot, tablets, flush).await
    }

    async fn copy_snapshot(&self, from: (SnapshotId, u32), to: SnapshotId) -> ServiceResult<SnapshotFiles> {
        self.copy(from, to).await
    }

    fn expect_snapshot(&self, snapshot: SnapshotId) {
        self.taking.lock().insert(snapshot);
    }

    fn note_snapshot(&self, snapshot: SnapshotId) {
        self.taking.lock().remove(&snapshot);
    }

    async fn drop_snapshot(&self, snapshot: SnapshotId, _: u32) {
        // The sweep deletes its parts, and files that nothing else names.
        self.taking.lock().remove(&snapshot);
    }

    async fn clone_snapshot(
        &self,
        schema: Arc<TableSchema>,
        snapshot: (SnapshotId, u32),
        tablets: Vec<TabletId>,
    ) -> ServiceResult<Vec<(TabletId, RowRange)>> {
        self.clone_tablets(schema, snapshot, tablets).await
    }

    async fn prepare_restore(
        &self,
        schema: Arc<TableSchema>,
        snapshot: (SnapshotId, u32),
        old: Vec<TabletId>,
        new: Vec<TabletId>,
    ) -> ServiceResult<Vec<(TabletId, RowRange)>> {
        self.prepare_restored(schema, snapshot, old, new).await
    }

    async fn finish_replacement(&self, first: TabletId, committed: bool) {
        self.end_replacement(first, committed).await;
    }
}

#[cfg(test)]
mod tests;
