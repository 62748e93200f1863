//! Creation, splits and removal of tablets: what the master asks of the server.

use crate::error::from_tablet;
use crate::server::{PreparedSplit, Served, Shut, TabletServer};
use bytes::Bytes;
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{ServiceError, ServiceResult};
use stele_tablet::{Manifest, Tablet, TabletError, manifest};
use stele_types::{ErrorKind, RowRange, TableSchema, TabletId};

/// Tablets made at once; each waits for a durable write.
const CREATED_PER_BATCH: usize = 32;
/// How long a tablet is left alone when a split of it failed: an attempt flushes it, waits for its compactions, and may keep its
/// writers waiting.
const AFTER_FAILED_SPLIT: Duration = Duration::from_secs(10);
/// Looks for tablets to split that are left out at most while no file is made: a schema may have changed.
const PROBES_SKIPPED_MAX: u32 = 20;

/// What a look at all tablets for those to split has found. There may be ten thousand, and two looks a second.
#[derive(Default)]
pub(crate) struct SplitCheck {
    /// Bytes of files made so far: without another the sizes are the same.
    made_bytes: u64,
    /// Tablets served.
    tablets: usize,
    /// Whether none was too large, tried or not.
    is_idle: bool,
    /// Looks left out since.
    left_out: u32,
}

impl SplitCheck {
    /// Whether another look would find what the last one did: nothing.
    fn may_leave_out(&mut self, made_bytes: u64, tablets: usize) -> bool {
        let is_same = self.made_bytes == made_bytes && self.tablets == tablets;
        let may = is_same && self.is_idle && self.left_out < PROBES_SKIPPED_MAX;
        self.left_out = if may { self.left_out + 1 } else { 0 };
        (self.made_bytes, self.tablets) = (made_bytes, tablets);
        may
    }
}

impl TabletServer {
    pub(crate) async fn create_empty(
        &self,
        schema: Arc<TableSchema>,
        tablets: Vec<(TabletId, RowRange)>,
    ) -> ServiceResult<()> {
        let making = tablets.into_iter().map(|(id, range)| {
            let manifest = Manifest {
                tablet: id.0,
                table: schema.id.0,
                epoch: self.epoch.0,
                start: range.start,
                end: range.end,
                flushed_through: 0,
                groups: Vec::new(),
                written_micros: self.env.wall_micros(),
            };
            Tablet::create(self.context.clone(), schema.clone(), manifest)
        });
        let mut making = futures::stream::iter(making).buffer_unordered(CREATED_PER_BATCH);
        // To the end also after a failure: the caller drops what is served, and nothing must be made after that.
        let mut outcome = Ok(());
        while let Some(made) = making.next().await {
            match made {
                Ok(tablet) => self.serve(tablet),
                Err(error) => outcome = Err(from_tablet(error)),
            }
        }
        outcome
    }

    pub(crate) async fn drop_all(&self, tablets: Vec<TabletId>) {
        for id in tablets {
            // First: who begins to serve a damaged tablet after all looks here when it is served already. One of the two
            // finds what the other has done.
            let damaged = self.damaged.write().remove(&id);
            if let Some(served) = self.unserve(id) {
                self.forget(&served.tablet).await;
            } else if damaged.is_some() {
                // Its sstables, which nobody can name, are left to the next start.
                self.delete_manifests(id).await;
            }
        }
        self.work.notify_one();
    }

    /// Gives up what a tablet that is no more has on the medium. What cannot be deleted now, the next start deletes.
    pub(crate) async fn forget(&self, tablet: &Tablet) {
        tablet.release_files().await;
        self.delete_manifests(tablet.id()).await;
    }

    async fn delete_manifests(&self, tablet: TabletId) {
        let storage = &self.context.storage;
        let left = match storage.list(&manifest::directory(tablet)).await {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(%tablet, %error, "manifests left over");
                return;
            }
        };
        for file in left {
            if let Err(error) = storage.delete(&file.path).await {
                tracing::warn!(path = file.path, %error, "manifest left over");
            }
        }
    }

    pub(crate) async fn drop_tablet_rows(&self, tablet: TabletId, range: RowRange) -> ServiceResult<()> {
        let served = self.served(tablet)?;
        // Both in the order of a split, and for its reasons.
        let stopped = served.tablet.stop_compactions().await;
        served.tablet.flush().await.map_err(from_tablet)?;
        let _gate = Shut::shut(&served).await;
        served.tablet.check_open().map_err(from_tablet)?;
        let clearing = self.row_cache.clearing(tablet);
        served.tablet.drop_rows(&range, &stopped).await.map_err(from_tablet)?;
        drop(clearing);
        self.work.notify_one();
        Ok(())
    }

    /// Tablets past their table's split size, or the server's. One that could not be divided is tried again when it has
    /// doubled, one of which a split failed otherwise, after a while.
    pub(crate) fn tablets_to_split(&self) -> Vec<TabletId> {
        let mut candidates = Vec::new();
        let metrics = &self.context.metrics;
        let made_bytes = metrics.flush_bytes.get() + metrics.compaction_written_bytes.get();
        let mut looked = self.looked.lock();
        if looked.may_leave_out(made_bytes, self.tablets.read().len()) {
            return candidates;
        }
        looked.is_idle = true;
        let now = self.env.now();
        let mut failed = self.failed_splits.lock();
        failed.retain(|tablet, until| now < *until && self.is_served(*tablet));
        let mut indivisible = self.indivisible.lock();
        for served in self.all_served() {
            let bytes = served.tablet.state().lasting_bytes();
            let own = served.tablet.schema().tablet_bytes_max;
            let most = if own == 0 { self.options.tablet_bytes_max } else { own };
            let grown = indivisible
                .get(&served.tablet.id())
                .is_none_or(|tried| bytes > tried * 2);
            if bytes > most && grown {
                looked.is_idle = false;
                if !failed.contains_key(&served.tablet.id()) {
                    candidates.push(served.tablet.id());
                }
            }
        }
        indivisible.retain(|tablet, _| self.tablets.read().contains_key(tablet));
        candidates
    }

    pub(crate) async fn prepare(
        &self,
        tablet: TabletId,
        left: TabletId,
        right: TabletId,
    ) -> ServiceResult<Option<Bytes>> {
        let prepared = self.try_prepare(tablet, left, right).await;
        if prepared.is_err() {
            let until = self.env.now() + AFTER_FAILED_SPLIT;
            self.failed_splits.lock().insert(tablet, until);
        }
        prepared
    }

    async fn try_prepare(&self, tablet: TabletId, left: TabletId, right: TabletId) -> ServiceResult<Option<Bytes>> {
        let served = self.served(tablet)?;
        // A compaction would replace the files that the halves are made of. One that runs takes seconds: it is waited for
        // while writes still flow.
        let _compacting = served.tablet.stop_compactions().await;
        // Most of the memtable goes before writes are stopped for the rest.
        served.tablet.flush().await.map_err(from_tablet)?;
        let row = served.tablet.split_row().await;
        let Some(row) = row.map_err(|error| self.not_divided(&served, error))? else {
            self.note_indivisible(&served);
            return Ok(None);
        };
        let gate = Shut::shut(&served).await;
        served.tablet.check_open().map_err(from_tablet)?;
        served.tablet.flush().await.map_err(from_tablet)?;
        let halves = self
            .make_halves(&served, &row, left, right)
            .await
            .map_err(|error| self.not_divided(&served, error))?;
        self.splits.lock().insert(tablet, PreparedSplit { halves, _gate: gate });
        Ok(Some(row))
    }

    fn note_indivisible(&self, served: &Served) {
        let bytes = served.tablet.state().lasting_bytes();
        self.indivisible.lock().insert(served.tablet.id(), bytes);
    }

    /// What the master is told of a split that failed. A tablet with a damaged file is not tried again soon.
    fn not_divided(&self, served: &Served, error: TabletError) -> ServiceError {
        if error.kind() == ErrorKind::Corruption {
            self.note_indivisible(served);
        }
        from_tablet(error)
    }

    /// The caller keeps writes and compactions out.
    async fn make_halves(
        &self,
        served: &Served,
        row: &Bytes,
        left: TabletId,
        right: TabletId,
    ) -> Result<[Arc<Tablet>; 2], TabletError> {
        let tablet = &served.tablet;
        let (below, above) = tablet.divide(row, left, right).await?;
        let schema = tablet.schema();
        let below = Tablet::create(self.context.clone(), schema.clone(), below).await?;
        match Tablet::create(self.context.clone(), schema, above).await {
            Ok(above) => {
                let halves = [below, above];
                halves.iter().for_each(|half| half.learn_from(tablet));
                Ok(halves)
            }
            Err(error) => {
                below.close();
                self.forget(&below).await;
                Err(error)
            }
        }
    }

    pub(crate) async fn finish(&self, tablet: TabletId, committed: bool) {
        let Some(prepared) = self.splits.lock().remove(&tablet) else {
            return;
        };
        if committed {
            // The halves first: between the two a row is found in either.
            let schema = self.served(tablet).map(|served| served.tablet.schema());
            for half in &prepared.halves {
                if let Ok(schema) = &schema {
                    half.set_schema(schema.clone());
                }
                self.serve(half.clone());
                self.note_unopened(half);
            }
            if let Some(served) = self.unserve(tablet) {
                self.forget(&served.tablet).await;
            }
            self.metrics.splits.inc();
        } else {
            for half in prepared.halves {
                half.close();
                self.forget(&half).await;
            }
        }
        self.work.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_left_out_only_while_nothing_changes() {
        let mut look = SplitCheck::default();
        assert!(!look.may_leave_out(0, 2), "nobody has looked yet");
        look.is_idle = true;
        for _ in 0..PROBES_SKIPPED_MAX {
            assert!(look.may_leave_out(0, 2));
        }
        assert!(!look.may_leave_out(0, 2), "now and then all the same");
        assert!(look.may_leave_out(0, 2));
        assert!(!look.may_leave_out(10, 2), "a file was made");
        assert!(!look.may_leave_out(10, 3), "a tablet is there");
        look.is_idle = false;
        assert!(!look.may_leave_out(10, 3), "one is to be split");
    }
}
