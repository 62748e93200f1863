//! Opens the logs of former servers while tablets are claimed: rows wait for both.
//!
//! Listings, the headers of segments and the beginning of one log are read. No record is applied before the claims. The logs are sealed,
//! so a listing before the claim shows every record that one after it would. A segment that a former server deletes in between is
//! flushed by manifests that it had committed by then, and the claims come after those. Then its records that were read before are left out.

use crate::recovery::Log;
use crate::roots::SealedLogs;
use futures::StreamExt;
use futures::future::{self, Either};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use stele_client::Assignment;
use stele_commitlog::{LogError, OpenedLog};
use stele_storage::Storage;
use stele_types::{ServerId, TabletId, stream_of};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Logs opened concurrently. One server has died, mostly.
const LOGS_CONCURRENT: usize = 4;

/// Logs that are open, of those that are wanted.
#[derive(Default)]
pub(super) struct OpenedLogs {
    logs: BTreeMap<ServerId, (Arc<dyn Storage>, OpenedLog)>,
    /// Allows the reading ahead of one of them, until all are replayed.
    permit: Option<OwnedSemaphorePermit>,
}

impl OpenedLogs {
    /// Opens the logs that assignments need, as far as the numbers of their streams are known. Where that fails, the replay tries again and
    /// tells why.
    pub(super) async fn open(sealed: &dyn SealedLogs, wanted: BTreeMap<ServerId, BTreeSet<u32>>) -> OpenedLogs {
        let opening = wanted.into_iter().map(|(server, streams)| async move {
            let opened = async {
                let root = sealed.open(server).await?;
                let log = OpenedLog::open(&*root, streams).await?;
                Ok::<_, LogError>((server, (root, log)))
            };
            let opened = opened.await;
            opened
                .inspect_err(|error| tracing::debug!(%server, %error, "the log of a former server is not opened yet"))
                .ok()
        });
        let opening: Vec<_> = opening.collect();
        let opened = futures::stream::iter(opening).buffered(LOGS_CONCURRENT);
        OpenedLogs {
            logs: opened.filter_map(future::ready).collect().await,
            permit: None,
        }
    }

    /// Allows to read the beginning of a log: of one at a time and server, so that a bounded number of bytes is in memory.
    pub(super) fn begin_reading(&mut self, turns: &Arc<Semaphore>) {
        self.permit = turns.clone().try_acquire_owned().ok();
    }

    /// Waits for something and reads the beginning of the log meanwhile, if that is allowed. Its requests are so polled until the replay
    /// polls them: one of them may hold a lock of the store's client, for which those of other tablets wait.
    pub(super) async fn reading_while<T>(&mut self, other: impl Future<Output = T>) -> T {
        let log = self.logs.values_mut().next().filter(|_| self.permit.is_some());
        let reading = async {
            if let Some((_, log)) = log {
                log.read_ahead().await;
            }
        };
        match future::select(pin!(other), pin!(reading)).await {
            Either::Left((done, _)) => done,
            Either::Right(((), other)) => other.await,
        }
    }

    /// Whether the log of a server is open.
    pub(super) fn has(&self, server: ServerId) -> bool {
        self.logs.contains_key(&server)
    }

    /// The log of a server, if it is open.
    pub(super) fn take(&mut self, server: ServerId) -> Option<Log> {
        let (root, log) = self.logs.remove(&server)?;
        Some((root, Some(log)))
    }
}

/// The streams in which the tablets of some assignments have records, of the logs for which all of them state the same number of streams.
pub(super) fn wanted_streams(assignments: &[Assignment]) -> BTreeMap<ServerId, BTreeSet<u32>> {
    let needed = assignments.iter().flat_map(|assignment| {
        let servers = assignment.logs.iter();
        servers.map(|server| {
            let stated = assignment.streams.get(server).copied().filter(|count| *count > 0);
            (*server, assignment.tablet, stated)
        })
    });
    let needed: Vec<(ServerId, TabletId, Option<u32>)> = needed.collect();
    let mut counts: BTreeMap<ServerId, BTreeSet<Option<u32>>> = BTreeMap::new();
    for (server, _, stated) in &needed {
        counts.entry(*server).or_default().insert(*stated);
    }
    let mut wanted: BTreeMap<ServerId, BTreeSet<u32>> = BTreeMap::new();
    for (server, tablet, stated) in needed {
        let is_agreed = counts.get(&server).is_some_and(|counts| counts.len() == 1);
        if let Some(count) = stated.filter(|_| is_agreed) {
            wanted
                .entry(server)
                .or_default()
                .insert(stream_of(server, tablet, count));
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_types::{Epoch, TableId, TableName, TableSchema};

    fn assignment(tablet: u64, logs: &[u32], streams: &[(u32, u32)]) -> Assignment {
        Assignment {
            tablet: TabletId(tablet),
            epoch: Epoch(1),
            schema: Arc::new(TableSchema::new(TableId(1), TableName::new("n", "t"))),
            logs: logs.iter().copied().map(ServerId).collect(),
            streams: streams.iter().map(|(log, count)| (ServerId(*log), *count)).collect(),
        }
    }

    #[test]
    fn streams_are_wanted_where_all_tablets_state_the_same_number() {
        let both = BTreeSet::from([1, 2].map(|tablet| stream_of(ServerId(7), TabletId(tablet), 2)));
        let of = |assignments: &[Assignment]| wanted_streams(assignments);
        let agreeing = [assignment(1, &[7], &[(7, 2)]), assignment(2, &[7], &[(7, 2), (8, 1)])];
        assert_eq!(of(&agreeing), BTreeMap::from([(ServerId(7), both)]));
        for other in [&[][..], &[(7, 0)], &[(7, 3)]] {
            let differing = [assignment(1, &[7], &[(7, 2)]), assignment(2, &[7], other)];
            assert_eq!(of(&differing), BTreeMap::new(), "{other:?}");
        }
        assert_eq!(of(&[assignment(1, &[], &[(7, 2)])]), BTreeMap::new());
        let unknown = [assignment(1, &[7, 8], &[(8, 1)])];
        assert_eq!(of(&unknown), BTreeMap::from([(ServerId(8), BTreeSet::from([0]))]));
    }
}
