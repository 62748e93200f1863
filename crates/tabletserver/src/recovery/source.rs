//! Logs that are replayed, and the tablets whose records in them are wanted.

use std::collections::BTreeMap;
use std::sync::Arc;
use stele_commitlog::{LogError, ReplayReport, replay_through};
use stele_storage::Storage;
use stele_tablet::{Batch, Tablet};
use stele_types::{SeqNo, TabletId};

/// A log, and the tablets whose records in it are wanted. Of other tablets it may have records, too: of tablets that were
/// dropped or split, which are in their successors' files, or that another server has.
pub(crate) struct Source<'a> {
    /// The root of the log.
    pub(crate) storage: &'a dyn Storage,
    /// The last segment that is read.
    pub(crate) last_segment: u64,
    /// Whose records.
    pub(crate) tablets: BTreeMap<TabletId, Arc<Tablet>>,
}

impl<'a> Source<'a> {
    /// A whole log.
    pub(crate) fn whole(storage: &'a dyn Storage, tablets: BTreeMap<TabletId, Arc<Tablet>>) -> Self {
        Source {
            storage,
            last_segment: u64::MAX,
            tablets,
        }
    }

    /// Shows the records of the wanted tablets that `wants` accepts: each batch with its first and last sequence number.
    pub(super) async fn replay(
        &self,
        wants: impl Fn(&TabletId) -> bool,
        mut visit: impl FnMut(&Tablet, &Batch, SeqNo, SeqNo),
    ) -> Result<ReplayReport, LogError> {
        replay_through(self.storage, self.last_segment, |record| {
            let Some(tablet) = self.tablets.get(&record.tablet).filter(|tablet| wants(&tablet.id())) else {
                return Ok(());
            };
            let (payload, first, last) = (record.payload.bytes(), record.first, record.last);
            let batch = Batch::decode_record(payload.clone(), first, last).ok_or_else(|| LogError::Corruption {
                path: Arc::from("log"),
                offset: 0,
                detail: format!(
                    "record {first}..={last} of tablet {}: checksum right, batch not decodable or of another length",
                    record.tablet
                ),
            })?;
            visit(tablet, &batch, record.first, record.last);
            Ok(())
        })
        .await
    }
}

/// All tablets of some sources.
pub(super) fn tablets_of(sources: &[Source<'_>]) -> BTreeMap<TabletId, Arc<Tablet>> {
    let tablets = sources.iter().flat_map(|source| &source.tablets);
    tablets.map(|(id, tablet)| (*id, tablet.clone())).collect()
}
