//! A catalog that several processes share: all follow its records, the leader changes them.

use super::{Catalog, Result, Shown, next_part};
use crate::error::CatalogError;
use crate::following::{Following, Homes, Leading, Records, SchemaListener, note_unreadable};
use crate::record;
use crate::view::{CatalogView, TabletEntry};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
use stele_assignment::{Assignment, Owner};
use stele_coord::{Condition, Coord, Versioned, Watch, WatchEvent, Write};
use stele_env::Env;
use stele_types::{TableId, TabletId};

/// Prefix of all records.
const ALL: &str = "catalog/";
/// Changed by every transaction, as its last write: the revision of each is then one of a record that exists, also after a
/// deletion, and its event comes behind those of the other changes.
const CHANGED: &str = "catalog/changed";
/// Pause before records are listed again after a failure.
const PAUSE: Duration = Duration::from_millis(200);

/// A change of a tablet's assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassignment {
    /// Which tablet.
    pub tablet: TabletId,
    /// The assignment that it must have.
    pub seen: Assignment,
    /// The one that it gets.
    pub next: Assignment,
}

/// Keeps the view of a shared catalog up to date.
pub struct Follower {
    catalog: Arc<Catalog>,
    watch: Watch,
    records: Records,
    /// The revision of the last listing. Events up to it may still come: they would bring back records that are deleted in it.
    listed: u64,
}

impl Catalog {
    /// A catalog that follows the records of a cluster. Nothing can be changed before [`Catalog::lead`].
    pub async fn follow(coord: Arc<dyn Coord>) -> Result<(Arc<Catalog>, Follower)> {
        // Before the listing, so that no change is missed.
        let watch = coord.watch(ALL).await?;
        let listing = coord.list(ALL).await?;
        let revision = newest(&listing);
        let mut records = Records::of_listing(listing)?;
        let mut view = CatalogView::default();
        records.update(&mut view);
        let following = Following::default();
        *following.owners.write() = records.owners();
        following.applied.send_replace(revision);
        let catalog = Arc::new(Catalog {
            coord,
            shown: Shown::new(view, Some(following)),
            unsettled: AtomicBool::new(false),
            committed: AtomicU64::new(0),
            leading: None,
        });
        let follower = Follower {
            catalog: catalog.clone(),
            watch,
            records,
            listed: revision,
        };
        Ok((catalog, follower))
    }

    /// Adds the condition under which the leader of a cluster may change records.
    pub(super) fn add_fence(&self, conditions: &mut Vec<Condition>, writes: &mut Vec<Write>) -> Result<()> {
        if self.shown.following.is_some() {
            let leading = self.leading.as_ref().ok_or(CatalogError::NotLeader)?;
            conditions.push(leading.fence.clone());
            writes.push(Write::Put {
                key: CHANGED.to_owned(),
                value: Bytes::new(),
            });
        }
        Ok(())
    }

    /// Whether a key is that of the leader.
    pub(super) fn is_fence(&self, key: &str) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.fence.key == key)
    }

    /// A catalog with which this process changes records, under the fence of its leadership. Removes tablet records that belong
    /// to no table. A change of one term is never made in another one, also if the same process leads again: a server may
    /// have been told meanwhile that it has failed.
    pub async fn lead(&self, fence: Condition, homes: Arc<dyn Homes>) -> Result<Arc<Catalog>> {
        let leader = Catalog {
            coord: self.coord.clone(),
            shown: self.shown.clone(),
            unsettled: AtomicBool::new(false),
            committed: AtomicU64::new(0),
            leading: Some(Leading { fence, homes }),
        };
        leader.begin_term().await?;
        Ok(Arc::new(leader))
    }

    async fn begin_term(&self) -> Result<()> {
        // A record that this version cannot read may name files: a leader that left it out would sweep them. Of a namespace that it
        // left out it would give up all kept tables. Nobody else adds a record during the term.
        Records::of_listing(self.coord.list(ALL).await?)?;
        let mut named = BTreeSet::new();
        for (key, table) in self.coord.list(record::TABLES).await? {
            let (_, set) =
                record::decode_table(&table.value).map_err(|detail| CatalogError::Corruption { key, detail })?;
            named.insert(set);
        }
        let mut leftover: BTreeMap<TableId, Vec<TabletId>> = BTreeMap::new();
        for (key, _) in self.coord.list(record::TABLETS).await? {
            if let Some((set, tablet)) = record::parse_tablet_key(&key)
                && !named.contains(&set)
            {
                leftover.entry(set).or_default().push(tablet);
            }
        }
        for (set, tablets) in leftover {
            self.delete_tablet_records(set, tablets.into_iter()).await?;
        }
        // A condition that fails here says that another leads already. And nothing of a former leader comes later.
        self.commit(Vec::new(), Vec::new()).await.map(drop)
    }

    /// The revision up to which the view has all changes.
    pub fn applied(&self) -> u64 {
        let following = self.shown.following.as_ref();
        following.map_or(0, |following| *following.applied.borrow())
    }

    /// Waits until the view has all changes up to a revision.
    pub async fn wait_applied(&self, revision: u64) {
        if let Some(following) = &self.shown.following {
            let mut applied = following.applied.subscribe();
            // The sender lives as long as this catalog.
            let _ = applied.wait_for(|applied| *applied >= revision).await;
        }
    }

    /// Completes when the view has all changes that were made before the call.
    pub async fn catch_up(&self) -> Result<()> {
        let changed = self.coord.get(CHANGED).await?;
        self.wait_applied(changed.map_or(0, |changed| changed.version)).await;
        Ok(())
    }

    /// The owner of a tablet, as far as it is known here. Also that of a tablet which no table has, or not yet: its record is the first
    /// to be written and the last to be deleted.
    pub fn owner_of(&self, tablet: TabletId) -> Option<Owner> {
        let following = self.shown.following.as_ref()?;
        following.owners.read().get(&tablet).copied()
    }

    /// Replaces the assignments of tablets. Those whose assignment is not the expected one are left out. Returns the number of
    /// those that were replaced. One transaction takes a part of them; if it fails, the others are tried nevertheless.
    pub async fn reassign(&self, changes: &[Reassignment]) -> Result<usize> {
        let wanted: HashMap<TabletId, &Reassignment> = changes.iter().map(|change| (change.tablet, change)).collect();
        let view = self.view();
        let all = view.tables.values().flat_map(|table| {
            let set = table.tablet_set;
            table.tablets().iter().map(move |tablet| (set, tablet))
        });
        let is_expected = |(set, tablet): &(TableId, &TabletEntry)| {
            let change = wanted.get(&tablet.id)?;
            (change.seen == tablet.assignment).then(|| (*set, (*tablet).clone(), change.next.clone()))
        };
        let found: Vec<(TableId, TabletEntry, Assignment)> = all.filter_map(|place| is_expected(&place)).collect();
        let replacement = |(set, tablet, next): &(TableId, TabletEntry, Assignment)| {
            let key = record::tablet_key(*set, tablet.id);
            let value = record::encode_tablet(&tablet.range, next);
            let condition = Condition::version(&key, tablet.version);
            (Some(condition), Write::Put { key, value })
        };
        let mut changes = found.iter().map(replacement).peekable();
        let mut conflict = None;
        while changes.peek().is_some() {
            let (conditions, writes) = next_part(&mut changes);
            match self.commit(conditions, writes).await {
                Err(error @ CatalogError::Conflict { .. }) => conflict = Some(error),
                committed => drop(committed?),
            }
        }
        conflict.map_or(Ok(found.len()), Err)
    }
}

/// The newest version in a listing.
fn newest(listing: &[(String, Versioned)]) -> u64 {
    listing.iter().map(|(_, current)| current.version).max().unwrap_or(0)
}

impl Follower {
    /// Follows the records until the coordinator is shut down.
    pub async fn run(mut self, env: Env, listener: Arc<dyn SchemaListener>) {
        while let Some(first) = self.watch.next().await {
            let mut events = vec![first];
            while let Some(event) = self.watch.try_next() {
                events.push(event);
            }
            let is_lost = events.contains(&WatchEvent::Resync);
            let through = match is_lost {
                true => self.list_again(&env).await,
                false => self.take_in(&events),
            };
            let view = self.catalog.view();
            for schema in self.records.changed_schemas(&view) {
                listener.changed(schema).await;
            }
            drop(view);
            self.catalog.change_view(|view| self.records.update(view));
            if let Some(following) = &self.catalog.shown.following {
                following.applied.send_if_modified(|applied| {
                    let is_newer = through > *applied;
                    *applied = through.max(*applied);
                    is_newer
                });
            }
        }
    }

    /// The newest revision whose changes are all among the events. The mark is the last event of a transaction, which may come in
    /// parts.
    fn take_in(&mut self, events: &[WatchEvent]) -> u64 {
        for event in events {
            if event.revision().is_some_and(|revision| revision <= self.listed) {
                continue;
            }
            if let Err(error) = self.records.apply(event) {
                note_unreadable(&error);
            }
        }
        if let Some(following) = &self.catalog.shown.following {
            let mut owners = following.owners.write();
            for (tablet, owner) in events.iter().filter_map(|event| self.records.owner_at(event.key()?)) {
                match owner {
                    Some(owner) => drop(owners.insert(tablet, owner)),
                    None => drop(owners.remove(&tablet)),
                }
            }
        }
        let marks = events.iter().filter(|event| event.key() == Some(CHANGED));
        marks.filter_map(WatchEvent::revision).max().unwrap_or(0)
    }

    async fn list_again(&mut self, env: &Env) -> u64 {
        loop {
            // Everything queued is older than the listing.
            while self.watch.try_next().is_some() {}
            match self.catalog.coord.list(ALL).await {
                Ok(listing) => {
                    let revision = newest(&listing);
                    let mut records = self.records.listed_again(listing);
                    records.touch_all(&self.catalog.view());
                    if let Some(following) = &self.catalog.shown.following {
                        *following.owners.write() = records.owners();
                    }
                    self.records = records;
                    self.listed = revision;
                    return revision;
                }
                Err(error) => tracing::warn!(%error, "the catalog cannot be listed; it is tried again"),
            }
            env.sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests;
