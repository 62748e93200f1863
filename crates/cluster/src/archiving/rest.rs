//! Archives the rest of the logs of servers that have ended.
//!
//! While the archive is out of reach the log stays, up to a bound for all such logs. Beyond it the log goes, and its gap is counted.

use super::notes::CoordMoments;
use super::{Archiving, from_coord, life, next, record};
use crate::records::{self, ARCHIVED_CHAIN, LIVES, LOGS, LifeRecord};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_backup::archive::{ClusterArchive, Rest, archive_rest};
use stele_client::{ServiceError, ServiceResult};
use stele_commitlog::LogClock;
use stele_coord::{Condition, Coord, Txn, TxnOutcome, Write};
use stele_env::Env;
use stele_storage::Storage;
use stele_types::{ErrorKind, ServerId};

/// Pause after a failed attempt.
const PAUSE: Duration = Duration::from_secs(10);

/// Logs of servers that have ended, for one term of a leader.
pub(crate) struct Rests {
    env: Env,
    coord: Arc<dyn Coord>,
    fence: Condition,
    archiving: Archiving,
    clock: Option<Arc<LogClock>>,
    /// The number of the leader.
    own: ServerId,
    /// The number of the data root, if this leader archives its own log.
    root: Option<[u8; 16]>,
    /// Logs that wait for the archive: their bytes, and when the next attempt is due.
    waiting: Mutex<BTreeMap<ServerId, (u64, Duration)>>,
}

impl Rests {
    pub(crate) fn new(
        env: Env,
        (coord, fence): (Arc<dyn Coord>, Condition),
        (archiving, clock): (Archiving, Option<Arc<LogClock>>),
        (own, root): (ServerId, Option<[u8; 16]>),
    ) -> Rests {
        Rests {
            env,
            coord,
            fence,
            archiving,
            clock,
            own,
            root,
            waiting: Mutex::default(),
        }
    }

    /// Archives the rest of a log of this many bytes that nothing needs, and that this process owns. It may be deleted afterwards. An error
    /// says that it must stay for now.
    pub(crate) async fn end(&self, server: ServerId, log: &dyn Storage, bytes: u64) -> ServiceResult<()> {
        let key = records::key(LIVES, server);
        let Some(found) = self.get(&key).await? else {
            return self.end_unarchived(server).await;
        };
        let mut found = found;
        if found.1.ended_micros > 0 {
            return Ok(());
        }
        if !found.1.closing {
            // From here on the server itself lets nothing go.
            let closing = LifeRecord {
                closing: true,
                ..found.1.clone()
            };
            let is_same = Condition::version(&key, found.0);
            self.put(&key, &closing, Some(is_same)).await?;
            found.1 = closing;
        }
        let (_, life_record) = found;
        let archived = match self.target(&life_record) {
            Some(target) => self.archive(target, (server, &life_record), log).await,
            None => Ok(false),
        };
        let is_archived = match archived {
            Ok(is_archived) => is_archived,
            Err(error) => {
                self.keep(server, bytes, error)?;
                false
            }
        };
        if !is_archived {
            tracing::error!(%server, "the log of a server is deleted that the archive does not have: moments cannot be restored until a backup is taken");
        }
        self.waiting.lock().remove(&server);
        let ended = LifeRecord {
            gaps: life_record.gaps + u32::from(!is_archived),
            ended_micros: self.moment().await?,
            ..life_record
        };
        self.put(&key, &ended, None).await
    }

    /// A server has ended that archives its log nowhere. If its log has no record, it was deleted before: the life of a server that archives
    /// its log may be gone by then.
    async fn end_unarchived(&self, server: ServerId) -> ServiceResult<()> {
        let found = self
            .coord
            .get(ARCHIVED_CHAIN)
            .await
            .map_err(|error| from_coord(&error))?;
        if found.is_none() {
            return Ok(());
        }
        let key = ARCHIVED_CHAIN.to_owned();
        let has_log = Condition::present(records::key(LOGS, server));
        self.change(vec![self.fence.clone(), has_log], Write::Delete { key })
            .await
    }

    /// The archive of a server, if this leader archives its own log there.
    fn target(&self, record: &LifeRecord) -> Option<(ClusterArchive, &LogClock, [u8; 16])> {
        let (archive, _) = self.archiving.archive()?;
        let (clock, root) = (self.clock.as_ref()?, self.root?);
        (archive.address() == record.place).then_some((archive, clock, root))
    }

    async fn archive(
        &self,
        (archive, clock, root): (ClusterArchive, &LogClock, [u8; 16]),
        (server, record): (ServerId, &LifeRecord),
        log: &dyn Storage,
    ) -> ServiceResult<bool> {
        let is_due = |(_, due): &(u64, Duration)| *due <= self.env.now();
        if !self.waiting.lock().get(&server).is_none_or(is_due) {
            let message = "the log waits for the archive";
            return Err(ServiceError::new(ErrorKind::Unavailable, message));
        }
        let moments = CoordMoments(self.coord.clone());
        let rest = Rest {
            env: &self.env,
            root,
            epoch: self.own.0,
            life: life(server, record),
            log,
            clock,
            moments: &moments,
            metrics: &self.archiving.metrics,
        };
        archive_rest(&archive, &rest).await?;
        Ok(true)
    }

    /// Fails if the log can wait for the archive.
    fn keep(&self, server: ServerId, bytes: u64, error: ServiceError) -> ServiceResult<()> {
        let Some(settings) = &self.archiving.own else {
            return Ok(());
        };
        let mut waiting = self.waiting.lock();
        let due = self.env.now() + PAUSE;
        let entry = waiting.entry(server).or_insert((bytes, due));
        if entry.1 <= self.env.now() {
            entry.1 = due;
        }
        let all: u64 = waiting.values().map(|(bytes, _)| *bytes).sum();
        match all <= settings.waiting_bytes_max {
            true => Err(error),
            false => Ok(()),
        }
    }

    async fn moment(&self) -> ServiceResult<i64> {
        let clock = self.clock.clone();
        let clock = clock.unwrap_or_else(|| LogClock::new(self.env.clone(), 0));
        let moment = next(&*self.coord, &clock).await;
        moment.map_err(|error| ServiceError::new(error.kind(), error.to_string()))
    }

    async fn get(&self, key: &str) -> ServiceResult<Option<(u64, LifeRecord)>> {
        match self.coord.get(key).await.map_err(|error| from_coord(&error))? {
            Some(found) => Ok(Some((found.version, record(&found.value)?))),
            None => Ok(None),
        }
    }

    async fn put(&self, key: &str, record: &LifeRecord, condition: Option<Condition>) -> ServiceResult<()> {
        let conditions = [self.fence.clone()].into_iter().chain(condition).collect();
        let write = Write::Put {
            key: key.to_owned(),
            value: records::encode(record),
        };
        self.change(conditions, write).await
    }

    async fn change(&self, conditions: Vec<Condition>, write: Write) -> ServiceResult<()> {
        let writes = vec![write];
        match self.coord.txn(Txn { conditions, writes }).await {
            Ok(TxnOutcome::Committed { .. }) => Ok(()),
            Ok(TxnOutcome::Conflict { key }) => Err(ServiceError::new(
                ErrorKind::Unavailable,
                format!("{key} was changed meanwhile"),
            )),
            Err(error) => Err(from_coord(&error)),
        }
    }
}
