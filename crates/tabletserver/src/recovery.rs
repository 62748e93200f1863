//! Recovery turns a data root into tablets that can be served. See Bigtable §5.3, §6 "Speeding up tablet recovery".
//!
//! 1. The caller takes a new server epoch, so that no name given from now on was given before.
//! 2. `Opened`: every tablet that the catalog names is opened, and its manifest claimed under the new epoch. Where storage has
//!    one owner at a time and tablets are many, they are inherited: one request makes everything durable, and no claim is
//!    written.
//! 3. `Replayed`: the memtables have the records of the commit log that files lack. Segments behind a gap that power loss left
//!    are deleted first. A log that does not fit into memory is replayed and flushed in parts (`parts`).
//! 4. Still in that stage, the replayed segments are synced. After a kill -9 the page cache gave back bytes that the device may
//!    not have, and clients see them from now on.
//! 5. `Tablets` serves them. Files that nothing refers to (sstables, value files, manifests of tablets that are no more) are
//!    deleted concurrently: no request is served during a start, so it does only the work that must come first.
//!
//! Stages 2 and 3 work for any set of tablets, so single tablets can be taken up while the server runs (`Opened::again`), also
//! tablets of other servers with the logs of these (`assigned`).
//!
//! Damage (`docs/adr/0008-serve-around-damage.md`): a tablet whose manifest is damaged or missing is set aside, and the
//! rest is served. Its log records stay in the log, and no sstable is deleted that its manifest might refer to. When the
//! device can read the manifest again, the tablet is served (`maintenance::unread`). A damaged log ends the start, because
//! nobody could tell which writes were acknowledged.
//!
//! Damage to the last transaction of the catalog is indistinguishable from a torn end. The transaction may have been a split. Then
//! the catalog names the parent, which has no manifest any more, and the halves, which have everything, are *strays*
//! (orphans). So while a tablet is damaged, and after a torn end, strays keep their manifests, the files those name, and
//! their log records. The transaction may also have been the epoch, which would be given twice, with every sequence number:
//! so a new epoch is above that of any log segment, too ([`last_epoch`]).

mod assigned;
mod leftovers;
mod parts;
mod snapshots;
mod source;

pub(crate) use assigned::{Claimed, Log, ReplayLimit};
pub(crate) use leftovers::Leftovers;
pub(crate) use snapshots::hold_snapshots;
pub(crate) use source::Source;

use crate::error::ServerError;
use crate::log::{epoch_of_segment, last_segment_before};
use crate::options::{OPENED_CONCURRENTLY, ServerOptions};
use crate::tablets::{DamagedTablet, Tablets};
use futures::{StreamExt, TryStreamExt};
use leftovers::find_leftovers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_catalog::Catalog;
use stele_commitlog::ReplayReport;
use stele_commitlog::format::parse_segment_path;
use stele_storage::{Storage, StorageError};
use stele_tablet::{Tablet, TabletContext, TabletError, manifest};
use stele_types::{Epoch, ErrorKind, TableSchema, TabletId};

/// Figures of a start.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Tablets opened.
    pub tablets: usize,
    /// Tablets whose manifest cannot be read.
    pub damaged_tablets: usize,
    /// Log bytes read.
    pub log_bytes: u64,
    /// Log records replayed.
    pub log_records: u64,
    /// Log bytes dropped as a torn tail.
    pub torn_bytes: u64,
    /// How long it took.
    pub duration: Duration,
}

impl RecoveryReport {
    /// Of a start that has replayed the log, and has no duration yet.
    pub(crate) fn new(tablets: usize, damaged_tablets: usize, log: &ReplayReport) -> Self {
        RecoveryReport {
            tablets,
            damaged_tablets,
            log_bytes: log.bytes,
            log_records: log.records,
            torn_bytes: log.torn_bytes,
            duration: Duration::ZERO,
        }
    }
}

/// Eighths of a budget that replayed memtables may take: as many as memtables may have had under the same budget;
/// caches are empty.
const REPLAYED_EIGHTHS: u64 = 7;

/// The first stage: tablets whose manifests this process has claimed. Their memtables lack the records of the log.
#[must_use]
pub(crate) struct Opened {
    tablets: BTreeMap<TabletId, Arc<Tablet>>,
}

/// The second stage: the memtables of the tablets have the records of the log, which are durable. The third is a
/// tablet that [`Tablets`] serves.
#[must_use]
pub(crate) struct Replayed {
    tablets: BTreeMap<TabletId, Arc<Tablet>>,
}

/// Tablets and manifests that a start finds in addition to the tablets that it opens.
#[derive(Default)]
pub(crate) struct Found {
    /// Tablets of the catalog whose manifest cannot be read.
    damaged: BTreeMap<TabletId, DamagedTablet>,
    /// The manifests of all tablets in storage, listed when these had been opened.
    manifests: BTreeMap<TabletId, Vec<u64>>,
    /// Versions of theirs that are superseded.
    superseded: Vec<String>,
}

/// The findings of a start, sorted: tablets that the server must know of, and files that it deletes.
pub(crate) struct Kept {
    /// Tablets of the catalog whose manifest cannot be read.
    pub(crate) damaged: BTreeMap<TabletId, DamagedTablet>,
    /// Tablets that the catalog does not name, and perhaps should.
    pub(crate) strays: BTreeSet<TabletId>,
    /// Files that nothing refers to.
    pub(crate) leftovers: Leftovers,
}

impl Found {
    /// Decides which files stay and which go. More stay in doubt about the catalog.
    pub(crate) async fn sort(self, context: &TabletContext, opened: &Opened, in_doubt: bool) -> Kept {
        let (strays, leftovers) = find_leftovers(context, opened, &self, in_doubt).await;
        Kept {
            damaged: self.damaged,
            strays,
            leftovers,
        }
    }
}

impl Opened {
    /// Opens the tablets that the catalog names. Two listings and, for each tablet, two requests and one for each of its files,
    /// many at a time: nobody is served as long as this takes.
    pub(crate) async fn of_catalog(
        context: &TabletContext,
        catalog: &Catalog,
        epoch: Epoch,
        inherit_from: usize,
    ) -> Result<(Opened, Found), ServerError> {
        let view = catalog.view();
        let named: Vec<(TabletId, Arc<TableSchema>)> = view
            .tables
            .values()
            .flat_map(|t| t.tablets().iter().map(|e| (e.id, t.schema.clone())))
            .collect();
        let (mut tablets, mut found) = (BTreeMap::new(), Found::default());
        let inherited = named.len() >= inherit_from && context.storage.inherit().await?;
        let listed = manifest::list_all(&*context.storage).await?;
        let opening = named.into_iter().map(|(id, schema)| {
            let (context, listed) = (context.clone(), listed.get(&id).cloned().unwrap_or_default());
            async move {
                let opened = match inherited {
                    true => Tablet::inherit(context, schema.clone(), id, epoch, listed).await,
                    false => Tablet::open_listed(context, schema.clone(), id, epoch, listed).await,
                };
                set_damaged_aside(id, schema, opened)
            }
        });
        let mut opening = futures::stream::iter(opening).buffer_unordered(OPENED_CONCURRENTLY);
        while let Some((id, opened)) = opening.try_next().await? {
            match opened {
                Ok(tablet) => drop(tablets.insert(id, tablet)),
                Err(damaged) => drop(found.damaged.insert(id, damaged)),
            }
        }
        drop(opening);
        found.manifests = match inherited {
            true => listed,
            // A version of another owner may have come between.
            false => manifest::list_all(&*context.storage).await?,
        };
        for (id, tablet) in &tablets {
            assert!(
                !found.damaged.contains_key(id),
                "a tablet is in one stage: opened or damaged"
            );
            let listed = found.manifests.get(id).map_or(&[][..], Vec::as_slice);
            let superseded = tablet.superseded(listed).await;
            found
                .superseded
                .extend(superseded.map_err(|error| ServerError::Tablet { tablet: *id, error })?);
        }
        Ok((Opened { tablets }, found))
    }

    /// Opens those of some damaged tablets whose manifests can be read by now.
    pub(crate) async fn again(
        context: &TabletContext,
        unread: Vec<(TabletId, Arc<TableSchema>)>,
        epoch: Epoch,
    ) -> Opened {
        let mut tablets = BTreeMap::new();
        for (id, schema) in unread {
            match Tablet::open_again(context.clone(), schema, id, epoch).await {
                Ok(tablet) => {
                    let former = tablets.insert(id, tablet);
                    assert!(former.is_none(), "a damaged tablet is opened once in a round");
                }
                Err(error) => tracing::debug!(tablet = %id, %error, "the tablet still cannot be served"),
            }
        }
        Opened { tablets }
    }

    /// Whether no tablet could be opened.
    pub(crate) fn is_empty(&self) -> bool {
        self.tablets.is_empty()
    }

    /// How many were opened.
    pub(crate) fn len(&self) -> usize {
        self.tablets.len()
    }

    /// Replays the whole log of former owners, as far as it fits into memory, and flushes the rest. At a start,
    /// before any request is served.
    pub(crate) async fn replay(
        self,
        context: &TabletContext,
        options: &ServerOptions,
    ) -> Result<(Replayed, ReplayReport), ServerError> {
        let storage = &*context.storage;
        let source = [Source::whole(storage, self.tablets)];
        let budget = options.memory.as_ref().map_or(u64::MAX, |memory| memory.bytes);
        let bytes_max = budget / 8 * REPLAYED_EIGHTHS;
        let (reports, too_much) = parts::replay_within(&source, &context.memory, bytes_max).await?;
        let report = reports.into_iter().next().unwrap_or_default();
        delete_dropped(storage, &report.dropped).await?;
        for (_, _, segment) in &report.segments {
            storage.sync_file(&segment.path).await?;
        }
        // An owner that has been replaced meanwhile must not begin to serve.
        storage.confirm_owner().await?;
        if let Some(sizes) = too_much {
            parts::replay_in_parts(&source, &sizes, &context.memory, bytes_max).await?;
        }
        let [Source { tablets, .. }] = source;
        Ok((Replayed { tablets }, report))
    }

    /// Replays the records of these tablets that owners before `epoch` have logged; this owner has logged none yet.
    /// The start has made all of them durable, and the caller keeps the segments from being deleted. At run time, for
    /// tablets that come one by one. Gives the tablets back with an error.
    pub(crate) async fn replay_former(
        self,
        context: &TabletContext,
        epoch: Epoch,
    ) -> Result<Replayed, (Opened, ServerError)> {
        match replay_before(&*context.storage, &self.tablets, epoch).await {
            Ok(()) => Ok(Replayed { tablets: self.tablets }),
            Err(error) => Err((self, error)),
        }
    }

    /// Closes tablets that cannot be served after all. Nothing of them is deleted that a damaged tablet may refer to: a server
    /// that began with one keeps all files of earlier owners.
    pub(crate) async fn give_up(self) {
        for tablet in self.tablets.into_values() {
            tablet.close();
            tablet.release_files().await;
        }
    }
}

impl Replayed {
    /// Begins to serve the tablets.
    pub(crate) fn serve(self, tablets: &Tablets) {
        self.tablets.into_values().for_each(|tablet| tablets.serve(tablet));
    }

    /// The tablets, for a caller that serves them one by one.
    pub(crate) fn into_tablets(self) -> impl Iterator<Item = Arc<Tablet>> {
        self.tablets.into_values()
    }
}

/// The tablet, or why it is damaged; any other error ends the start.
fn set_damaged_aside(
    tablet: TabletId,
    schema: Arc<TableSchema>,
    opened: Result<Arc<Tablet>, TabletError>,
) -> Result<(TabletId, Result<Arc<Tablet>, DamagedTablet>), ServerError> {
    let error = match opened {
        Ok(opened) => return Ok((tablet, Ok(opened))),
        Err(TabletError::Storage(StorageError::NotFound { path })) => TabletError::Corruption {
            path: Arc::from(path),
            detail: "the catalog names the tablet, but it has no manifest".to_owned(),
        },
        Err(error) if error.kind() == ErrorKind::Corruption => error,
        Err(error) => return Err(ServerError::Tablet { tablet, error }),
    };
    tracing::error!(%tablet, %error, "the tablet is damaged and not served; `stele check` says more");
    Ok((tablet, Err(DamagedTablet { error, schema })))
}

/// Replays the segments of owners before this epoch into tablets.
async fn replay_before(
    storage: &dyn Storage,
    tablets: &BTreeMap<TabletId, Arc<Tablet>>,
    epoch: Epoch,
) -> Result<(), ServerError> {
    let source = Source {
        last_segment: last_segment_before(epoch),
        ..Source::whole(storage, tablets.clone())
    };
    source.replay(|_| true, Tablet::replay).await?;
    // An owner that has been replaced meanwhile must not serve them.
    storage.confirm_owner().await?;
    Ok(())
}

/// Deletes the log segments that do not count because the one before lost its end.
pub(crate) async fn delete_dropped(storage: &dyn Storage, dropped: &[String]) -> Result<(), StorageError> {
    if dropped.is_empty() {
        return Ok(());
    }
    tracing::warn!(
        segments = dropped.len(),
        "the log lost its end: what nobody had synced is gone"
    );
    storage.confirm_owner().await?;
    for path in dropped {
        storage.delete(path).await?;
    }
    Ok(())
}

/// The highest epoch of which there is a log segment; 0 when there is none.
pub async fn last_epoch(storage: &dyn Storage) -> Result<u64, StorageError> {
    let segments = storage.list("log/").await?;
    let numbers = segments.iter().filter_map(|file| parse_segment_path(&file.path));
    Ok(numbers.map(|(_, number)| epoch_of_segment(number)).max().unwrap_or(0))
}

#[cfg(test)]
pub(crate) mod tests;
