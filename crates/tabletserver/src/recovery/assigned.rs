//! Takes up tablets of other servers while this one serves.
//!
//! They are claimed under the epochs of their assignments, and replayed from the logs of their former servers.
//!
//! The caller has sealed these logs, so that they hold all acknowledged writes and no other is acknowledged. A claim comes
//! before the replay: from then on no former owner commits, so each record is in the files that the claim names, or in the
//! logs. These may have been opened before. A log that a former server still deletes from loses only records that are in files.
//!
//! The first flush of a tablet makes the logs superfluous for it. Until then the next owner replays them again.

use super::parts::{replay_in_parts, replay_within};
use super::source::Source;
use crate::error::{ServerError, from_tablet};
use crate::options::OPENED_CONCURRENTLY;
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_client::{Assignment, ServiceError, ServiceResult};
use stele_commitlog::OpenedLog;
use stele_env::PlantedBug;
use stele_storage::Storage;
use stele_tablet::{Tablet, TabletContext};
use stele_types::{ServerId, TabletId, stream_of};

/// A log for a replay: its root, and its segments if they are open already.
pub(crate) type Log = (Arc<dyn Storage>, Option<OpenedLog>);

/// A log, whose it is and how many streams it has if that is known, and the tablets that need it.
type LogOfTablets = (Log, Option<(ServerId, u32)>, BTreeMap<TabletId, Arc<Tablet>>);

/// How much memory replayed records may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayLimit {
    /// Of all memtables of the server, which others are written to meanwhile.
    pub(crate) memtable_bytes: u64,
    /// Of the memtables of these tablets alone, when they are flushed in parts.
    pub(crate) part_bytes: u64,
}

/// A tablet whose manifest this process has claimed. Its memtables lack the records of the logs.
#[must_use]
pub(crate) struct Claimed {
    tablet: Arc<Tablet>,
    logs: BTreeSet<ServerId>,
    /// The number of streams of those of which it is known.
    streams: BTreeMap<ServerId, u32>,
}

impl Claimed {
    /// Claims each tablet; the outcomes are in the order of the assignments. An earlier attempt may have claimed it already:
    /// the epoch of an assignment is given to one server.
    pub(crate) async fn claim(context: &TabletContext, assignments: Vec<Assignment>) -> Vec<ServiceResult<Claimed>> {
        let claiming = assignments.into_iter().map(|assignment| async move {
            let Assignment {
                tablet,
                epoch,
                schema,
                logs,
                streams,
            } = assignment;
            let opened = Tablet::open_again(context.clone(), schema, tablet, epoch).await;
            let tablet = opened.map_err(from_tablet)?;
            assert_eq!(
                tablet.epoch(),
                epoch,
                "a tablet is claimed under the epoch of its assignment"
            );
            Ok(Claimed {
                tablet,
                logs: logs.into_iter().collect(),
                streams,
            })
        });
        let claiming: Vec<_> = claiming.collect();
        futures::stream::iter(claiming)
            .buffered(OPENED_CONCURRENTLY)
            .collect()
            .await
    }

    /// Which tablet.
    pub(crate) fn id(&self) -> TabletId {
        self.tablet.id()
    }

    /// The logs that it needs.
    pub(crate) fn logs(&self) -> &BTreeSet<ServerId> {
        &self.logs
    }

    /// Forgets the records of a replay that failed, before another one.
    pub(crate) fn forget_replayed(&self) {
        self.tablet.forget_replayed();
    }

    /// Replays the records of the tablets, each from the logs that it needs, as far as they fit into memory, and flushes the
    /// rest. After an error the tablets have a part of the records, and must not be served. Returns the newest time of a mark.
    pub(crate) async fn replay_all(
        claimed: &[Claimed],
        logs: BTreeMap<ServerId, Log>,
        context: &TabletContext,
        limit: ReplayLimit,
    ) -> Result<i64, ServerError> {
        let source = |(server, log): (ServerId, Log)| {
            let needing = || claimed.iter().filter(|tablet| tablet.logs.contains(&server));
            let mut tablets: BTreeMap<TabletId, Arc<Tablet>> = needing()
                .map(|claimed| (claimed.id(), claimed.tablet.clone()))
                .collect();
            let stated = || needing().map(|claimed| claimed.streams.get(&server).copied().filter(|count| *count > 0));
            // Leaders that know different things give none.
            let streams = stated()
                .next()
                .flatten()
                .filter(|one| stated().all(|other| other == Some(*one)));
            if context.env.planted(PlantedBug::LeaveStreamsOut) {
                tablets.retain(|tablet, _| stream_of(server, *tablet, streams.unwrap_or(1)) == 0);
            }
            (log, streams.map(|count| (server, count)), tablets)
        };
        let servers: BTreeSet<ServerId> = logs.keys().copied().collect();
        let mut logs: Vec<LogOfTablets> = logs.into_iter().map(source).collect();
        let sources = logs
            .iter_mut()
            .map(|((storage, opened), streams, tablets)| match streams {
                Some(streams) => Source::streams_of((&**storage, opened.take()), *streams, tablets.clone()),
                None => Source::whole(&**storage, tablets.clone()),
            });
        let sources: Vec<Source<'_>> = sources.collect();
        assert!(
            claimed
                .iter()
                .flat_map(|tablet| &tablet.logs)
                .all(|log| servers.contains(log)),
            "every log that a tablet needs is replayed"
        );
        let begun = context.env.now();
        let (reports, too_much) = replay_within(&sources, &context.memory, limit.memtable_bytes).await?;
        tracing::info!(
            tablets = claimed.len(),
            logs = reports.len(),
            bytes = reports.iter().map(|report| report.bytes).sum::<u64>(),
            records = reports.iter().map(|report| report.records).sum::<u64>(),
            "logs of former servers are replayed, in {:?}",
            context.env.now() - begun
        );
        if let Some(sizes) = too_much {
            replay_in_parts(&sources, &sizes, &context.memory, limit.part_bytes).await?;
        }
        Ok(reports.iter().map(|report| report.last_micros).max().unwrap_or(0))
    }

    /// The tablet, for a caller that has replayed its records and serves it. Fails when another owner has claimed it
    /// meanwhile: the replay of a long log takes time.
    pub(crate) async fn into_tablet(self) -> ServiceResult<Arc<Tablet>> {
        let claim = self.tablet.check_claim().await;
        match claim {
            Ok(()) => Ok(self.tablet),
            Err(error) => {
                self.give_up().await;
                Err(from_tablet(error))
            }
        }
    }

    /// Gives the tablet up without serving it. It may be claimed again under the same epoch.
    pub(crate) async fn give_up(self) {
        self.tablet.close();
        assert!(
            self.tablet.check_open().is_err(),
            "a tablet that is given up takes no writes"
        );
        self.tablet.release_files().await;
    }

    /// Gives all up, for the same reason.
    pub(crate) async fn give_up_all(claimed: Vec<Claimed>, error: &ServiceError) {
        tracing::warn!(tablets = claimed.len(), %error, "tablets of other servers are not taken up");
        for tablet in claimed {
            tablet.give_up().await;
        }
    }
}
