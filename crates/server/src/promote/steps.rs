//! The steps of a promotion, over any storages and any coordinator.

use super::copying::{self, Copied, Needed};
use crate::check::report::Progress;
use crate::data_dir::FORMAT;
use crate::data_dir::marks::{self, INCOMING, PROMOTED, Promoted, read_if_there};
use crate::node::next_server_epoch;
use anyhow::{Context, bail};
use bytes::Bytes;
use std::sync::Arc;
use stele_catalog::{Catalog, CatalogView};
use stele_cluster::{Begun, PromotedRoot, Promotion, carried_records, promotion_of};
use stele_coord::{Coord, EmbeddedCoord};
use stele_env::Env;
use stele_settings::sizes::show_bytes;
use stele_sstable::Cache;
use stele_storage::{Storage, StorageError};
use stele_tabletserver::{RecoveryReport, ServerOptions, delete_log, flush_all};

/// The names of the places, for records and sentences.
#[derive(Clone, Debug)]
pub struct Names {
    /// The data root of the single server.
    pub source: String,
    /// That of the cluster.
    pub target: String,
    /// The cluster.
    pub cluster: String,
}

/// A promotion to be done.
pub struct Task {
    pub env: Env,
    /// Owned by this process in [`Task::run`].
    pub source: Arc<dyn Storage>,
    /// Absent where the source becomes the data root of the cluster.
    pub target: Option<Arc<dyn Storage>>,
    pub coord: Arc<dyn Coord>,
    pub names: Names,
    /// For memtables and caches.
    pub memory: u64,
    /// Files copied concurrently.
    pub parallel: usize,
    pub progress: Progress,
}

/// The data of the single server when all of them are in files.
struct Flushed {
    coord: Arc<EmbeddedCoord>,
    view: Arc<CatalogView>,
    root: [u8; 16],
    report: RecoveryReport,
}

/// The work that was done.
#[derive(Debug)]
pub struct Summary {
    names: Names,
    tables: usize,
    tablets: usize,
    snapshots: usize,
    /// Replayed from the log.
    log_records: u64,
    /// `None` in place.
    pub(super) copied: Option<Copied>,
    /// Records that were written.
    pub(super) records: usize,
}

impl Summary {
    /// For people.
    pub fn to_text(&self) -> String {
        let Names {
            source,
            target,
            cluster,
        } = &self.names;
        let files = match &self.copied {
            None => "no file copied, the data stay where they are".to_owned(),
            Some(Copied { files, bytes, same }) => {
                format!("{files} files of {} copied, {same} were there", show_bytes(*bytes))
            }
        };
        format!(
            "{source} is promoted to {cluster}: {} tables, {} tablets, {} snapshots; {} records replayed from the log, {files}, {} \
             records of the catalog written\nstart its servers with\n  stele start --cluster {cluster} --data {target}\n",
            self.tables, self.tablets, self.snapshots, self.log_records, self.records
        )
    }
}

impl Task {
    /// Takes all steps.
    pub async fn run(&self) -> anyhow::Result<Summary> {
        let flushed = self.flush().await?;
        let needed = copying::find(&*self.source, &flushed.view).await?;
        let attempt = match Promotion::begin(self.coord.clone(), self.root(flushed.root)).await? {
            Begun::Attempt(attempt) => attempt,
            Begun::Finished(earlier) => bail!(
                "{} has the data of this root already, from {} and in {}: give another name in --cluster, and an empty TARGET",
                self.names.cluster,
                earlier.source,
                earlier.target
            ),
        };
        let copied = match &self.target {
            None => None,
            Some(target) => Some(self.copy(&**target, &needed, &flushed.root).await?),
        };
        let records = carried_records(&*flushed.coord, u64::from(needed.epochs)).await?;
        let written = attempt.write(&records).await?;
        self.seal(flushed.root, attempt).await?;
        let tables = flushed.view.tables.values();
        Ok(Summary {
            names: self.names.clone(),
            tables: flushed.view.tables.len(),
            tablets: tables.map(|table| table.tablets().len()).sum(),
            snapshots: flushed.view.snapshots.len(),
            log_records: flushed.report.log_records,
            copied,
            records: written,
        })
    }

    /// The last steps of a promotion that was interrupted behind the point of no return: the source has the mark, and its
    /// `FORMAT` was being replaced. By then all records were in the coordinator, and all files in the target.
    pub async fn end_after(&self, mark: &Promoted) -> anyhow::Result<String> {
        let Names {
            source,
            target,
            cluster,
        } = &self.names;
        if mark.data != *target {
            bail!("{source} was promoted to {}, not to {target}", mark.destination());
        }
        let known = promotion_of(&*self.coord).await?;
        if known.is_none_or(|known| known.of.root != mark.root) {
            bail!(
                "{source} was promoted to {}, and {cluster} knows nothing of it",
                mark.destination()
            );
        }
        match Promotion::begin(self.coord.clone(), self.root(mark.root)).await? {
            Begun::Attempt(attempt) => self.end(mark, attempt).await?,
            Begun::Finished(_) => self.tidy().await?,
        }
        Ok(format!(
            "{source} is promoted to {cluster}\nstart its servers with\n  stele start --cluster {cluster} --data {target}\n"
        ))
    }

    fn root(&self, root: [u8; 16]) -> PromotedRoot {
        PromotedRoot {
            root,
            source: self.names.source.clone(),
            target: self.names.target.clone(),
        }
    }

    /// Recovers the data as a start does, and flushes everything.
    async fn flush(&self) -> anyhow::Result<Flushed> {
        let coord = EmbeddedCoord::open(self.source.clone(), self.env.clone()).await;
        let coord = coord.context("coordination")?;
        let epoch = next_server_epoch(&*coord, &*self.source).await?;
        let catalog = Catalog::load(coord.clone()).await.context("catalog")?;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let options = ServerOptions {
            catalog_in_doubt: coord.was_torn(),
            ..ServerOptions::for_machine(self.memory, cores)
        };
        if options.catalog_in_doubt {
            tracing::warn!(
                "the coordination log ends with a torn record: a transaction that was not acknowledged, unless it is damage. The \
                 cluster gets the catalog without it"
            );
        }
        let cache = Arc::new(Cache::new(ServerOptions::block_cache_bytes(self.memory)));
        let owned = (self.env.clone(), self.source.clone());
        let report = flush_all(owned, &catalog, epoch, cache, options).await;
        let report = report.context("recovery; `stele check` says more")?;
        let random = [self.env.random_u64(), self.env.random_u64()];
        Ok(Flushed {
            root: catalog.root_id(random).await.context("catalog")?,
            view: catalog.view(),
            coord,
            report,
        })
    }

    async fn copy(&self, target: &dyn Storage, needed: &Needed, root: &[u8; 16]) -> anyhow::Result<Copied> {
        let mark = marks::incoming(root);
        let Names { target: place, .. } = &self.names;
        match read_if_there(target, INCOMING).await? {
            Some(found) if found == mark.as_bytes() => {}
            Some(_) => bail!("{place} has a part of other data: give an empty place"),
            None => {
                if let Some(file) = target.list("").await?.into_iter().next() {
                    bail!("{place} is not empty (it has {:?}): give an empty place", file.path);
                }
                target.put_if_absent(INCOMING, mark.into()).await?;
            }
        }
        copying::copy_all((&*self.source, target), needed, self.parallel, &self.progress).await
    }

    /// The point of no return: no single server starts on the source any more.
    async fn seal(&self, root: [u8; 16], attempt: Promotion) -> anyhow::Result<()> {
        let mark = Promoted {
            root,
            cluster: self.names.cluster.clone(),
            data: self.names.target.clone(),
        };
        replace(&*self.source, PROMOTED, mark.to_text()).await?;
        // Every later owner finds the mark. An earlier one may have looked for it before, and goes on to serve.
        self.source.confirm_owner().await?;
        self.end(&mark, attempt).await
    }

    /// Everything behind it; it may be repeated.
    async fn end(&self, mark: &Promoted, attempt: Promotion) -> anyhow::Result<()> {
        let shared = marks::shared_format(&mark.root);
        let format = match &self.target {
            None => shared,
            Some(target) => {
                put_format(&**target, &self.names.target, shared.into()).await?;
                mark.format_of_source()
            }
        };
        replace(&*self.source, FORMAT, format).await?;
        attempt.finish().await?;
        self.tidy().await
    }

    /// Removes the files that have no use any more. In place that is the log: everything is in other files, and the cluster
    /// does not know it.
    async fn tidy(&self) -> anyhow::Result<()> {
        match &self.target {
            None => {
                delete_log(&*self.source).await.context("deleting the log")?;
                Ok(())
            }
            Some(target) => Ok(target.delete(INCOMING).await?),
        }
    }
}

/// Gives the target the format of a shared root.
async fn put_format(target: &dyn Storage, place: &str, format: Bytes) -> anyhow::Result<()> {
    match target.put_if_absent(FORMAT, format.clone()).await {
        Err(StorageError::AlreadyExists { .. }) if target.read_all(FORMAT).await? == format => Ok(()),
        Err(StorageError::AlreadyExists { .. }) => bail!("{place} has got a {FORMAT} of another program meanwhile"),
        put => Ok(put?),
    }
}

/// Makes this the content of a small file. For a moment there is no such file.
async fn replace(storage: &dyn Storage, path: &str, content: String) -> stele_storage::Result<()> {
    match read_if_there(storage, path).await? {
        Some(found) if found == content.as_bytes() => return Ok(()),
        Some(_) => storage.delete(path).await?,
        None => {}
    }
    storage.put_if_absent(path, content.into()).await
}
