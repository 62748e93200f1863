//! Logs that are replayed, and the tablets whose records in them are wanted.
//!
//! Where the number of streams is known, only those are read in which the tablets have records ([`stele_types::stream_of`]).
//! A log that has a record in another stream than that, or not as many streams, was not written by that rule, and is read whole.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_commitlog::{LogError, OpenedLog, Record, ReplayReport, replay_through};
use stele_storage::Storage;
use stele_tablet::{Batch, Tablet};
use stele_types::{SeqNo, ServerId, TabletId, stream_of};

/// A log, and the tablets whose records in it are wanted. Of other tablets it may have records, too: of tablets that were
/// dropped or split, which are in their successors' files, or that another server has.
pub(crate) struct Source<'a> {
    /// The root of the log.
    pub(crate) storage: &'a dyn Storage,
    /// The last segment that is read.
    pub(crate) last_segment: u64,
    /// Whose log it is, and how many streams it has; `None` if a tablet may have records in any.
    pub(crate) streams: Option<(ServerId, u32)>,
    /// The log as it was opened before the replay; the first replay takes it. It may have more streams than are wanted.
    pub(super) opened: Mutex<Option<OpenedLog>>,
    /// Whose records.
    pub(crate) tablets: BTreeMap<TabletId, Arc<Tablet>>,
}

/// Why the replay of a part of a log has ended.
enum Ended {
    Failed(LogError),
    /// A record is in another stream than that of its tablet.
    Misplaced(TabletId),
    /// Some of the streams that were stated have no segments: nothing was written to them, or the number is too large.
    FewerStreams,
    /// The log has streams beyond those that were stated.
    MoreStreams,
}

impl From<LogError> for Ended {
    fn from(error: LogError) -> Ended {
        Ended::Failed(error)
    }
}

impl<'a> Source<'a> {
    /// A whole log.
    pub(crate) fn whole(storage: &'a dyn Storage, tablets: BTreeMap<TabletId, Arc<Tablet>>) -> Self {
        Source {
            storage,
            last_segment: u64::MAX,
            streams: None,
            opened: Mutex::default(),
            tablets,
        }
    }

    /// The streams of the tablets in the log of a server that has `streams`, and may be open already.
    pub(crate) fn streams_of(
        (storage, opened): (&'a dyn Storage, Option<OpenedLog>),
        (server, streams): (ServerId, u32),
        tablets: BTreeMap<TabletId, Arc<Tablet>>,
    ) -> Self {
        assert!(streams > 0, "a log has a stream");
        Source {
            streams: Some((server, streams)),
            opened: Mutex::new(opened),
            ..Source::whole(storage, tablets)
        }
    }

    /// Shows the records of the wanted tablets that `wants` accepts: each batch with its first and last sequence number. Some may
    /// be shown twice.
    pub(super) async fn replay(
        &self,
        wants: impl Fn(&TabletId) -> bool,
        mut visit: impl FnMut(&Tablet, &Batch, SeqNo, SeqNo),
    ) -> Result<ReplayReport, LogError> {
        if let Some((server, count)) = self.streams {
            match self.replay_part((server, count), &wants, &mut visit).await {
                Ok(report) => return Ok(report),
                Err(Ended::Failed(error)) => return Err(error),
                Err(Ended::FewerStreams) => tracing::debug!(
                    streams = count,
                    "a log has no segments of some streams; it is read whole"
                ),
                Err(Ended::MoreStreams) => {
                    tracing::warn!(streams = count, "a log has more streams than these; it is read whole")
                }
                Err(Ended::Misplaced(tablet)) => tracing::error!(
                    %tablet,
                    streams = count,
                    "a log has a record in another stream than that of its tablet; it is read whole"
                ),
            }
        }
        replay_through(self.storage, self.last_segment, |record| {
            self.show(&record, &wants, &mut visit)
        })
        .await
    }

    /// Replays the streams of the wanted tablets.
    async fn replay_part(
        &self,
        (server, count): (ServerId, u32),
        wants: &impl Fn(&TabletId) -> bool,
        visit: &mut impl FnMut(&Tablet, &Batch, SeqNo, SeqNo),
    ) -> Result<ReplayReport, Ended> {
        let wanted = self.tablets.keys().filter(|tablet| wants(tablet));
        let streams: BTreeSet<u32> = wanted.map(|tablet| stream_of(server, *tablet, count)).collect();
        let before = self.opened.lock().take();
        let opened = match before.filter(|opened| streams.is_subset(opened.wanted())) {
            Some(opened) => opened,
            None => OpenedLog::open(self.storage, streams.clone()).await?,
        };
        // A wrong number may name a stream that does not exist, in which no record would be found.
        let found = opened.found();
        match found.last().is_none_or(|last| *last < count) {
            true if found.len() == count as usize => {}
            true => return Err(Ended::FewerStreams),
            false => return Err(Ended::MoreStreams),
        }
        let replayed = opened.replay(&streams, |stream, record| {
            if stream_of(server, record.tablet, count) != stream {
                return Err(Ended::Misplaced(record.tablet));
            }
            self.show(&record, wants, visit).map_err(Ended::Failed)
        });
        replayed.await
    }

    fn show(
        &self,
        record: &Record,
        wants: &impl Fn(&TabletId) -> bool,
        visit: &mut impl FnMut(&Tablet, &Batch, SeqNo, SeqNo),
    ) -> Result<(), LogError> {
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
        visit(tablet, &batch, first, last);
        Ok(())
    }
}

/// All tablets of some sources.
pub(super) fn tablets_of(sources: &[Source<'_>]) -> BTreeMap<TabletId, Arc<Tablet>> {
    let tablets = sources.iter().flat_map(|source| &source.tablets);
    tablets.map(|(id, tablet)| (*id, tablet.clone())).collect()
}
