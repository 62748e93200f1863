//! The notes of archivers in the coordinator.

use super::{from_coord, life, record};
use crate::records::{self, ARCHIVED_CHAIN, LIVES, LOGS};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_backup::Result;
use stele_backup::archive::{Chain, Life, Lives, Notes, new_chain};
use stele_catalog::{note_moment, noted_moment};
use stele_client::{ServiceError, ServiceResult};
use stele_coord::{Condition, Coord, Txn, TxnOutcome, Write};
use stele_env::Env;
use stele_tabletserver::Moments;
use stele_types::{ErrorKind, ServerId};

/// The moments of all servers.
pub(crate) struct CoordMoments(pub(crate) Arc<dyn Coord>);

#[async_trait]
impl Moments for CoordMoments {
    async fn noted(&self) -> ServiceResult<i64> {
        let noted = noted_moment(&*self.0).await;
        noted.map_err(|error| ServiceError::new(error.kind(), error.to_string()))
    }

    async fn note(&self, micros: i64) -> ServiceResult<()> {
        let noted = note_moment(&*self.0, micros).await;
        noted
            .map(drop)
            .map_err(|error| ServiceError::new(error.kind(), error.to_string()))
    }
}

/// The notes of an archiver.
pub(super) struct CoordNotes {
    pub(super) coord: Arc<dyn Coord>,
    pub(super) of: Subject,
}

/// The subject of notes.
pub(super) enum Subject {
    /// The log of a server.
    Log(ServerId),
    /// The tables, in a term of a leader whose fence this is.
    Tables(Env, Condition),
}

#[async_trait]
impl Notes for CoordNotes {
    async fn noted_moment(&self) -> Result<i64> {
        Ok(noted_moment(&*self.coord).await?)
    }

    async fn note_moment(&self, micros: i64) -> Result<()> {
        note_moment(&*self.coord, micros).await?;
        Ok(())
    }

    async fn begin_chain(&self) -> Result<Chain> {
        match &self.of {
            Subject::Log(server) => self.count_gap(*server).await,
            Subject::Tables(env, fence) => self.begin_tables(new_chain(env), fence).await,
        }
    }
}

impl CoordNotes {
    async fn count_gap(&self, server: ServerId) -> Result<Chain> {
        let key = records::key(LIVES, server);
        let found = self.coord.get(&key).await.map_err(|error| from_coord(&error))?;
        let given_up = || ServiceError::new(ErrorKind::FailedPrecondition, "the server was given up");
        let found = found.ok_or_else(given_up)?;
        let mut record = record(&found.value)?;
        if record.closing || record.ended_micros > 0 {
            return Err(given_up().into());
        }
        record.gaps += 1;
        let condition = Condition::version(&key, found.version);
        match self.put(condition, key, records::encode(&record)).await? {
            true => Ok(life(server, &record).chain()),
            false => Err(given_up().into()),
        }
    }

    async fn begin_tables(&self, chain: Chain, fence: &Condition) -> Result<Chain> {
        let (key, value) = (ARCHIVED_CHAIN.to_owned(), Bytes::copy_from_slice(&chain));
        match self.put(fence.clone(), key, value).await? {
            true => Ok(chain),
            false => Err(no_leader().into()),
        }
    }

    /// Writes a record; `false` if the condition does not hold.
    async fn put(&self, condition: Condition, key: String, value: Bytes) -> ServiceResult<bool> {
        let txn = Txn {
            conditions: vec![condition],
            writes: vec![Write::Put { key, value }],
        };
        match self.coord.txn(txn).await.map_err(|error| from_coord(&error))? {
            TxnOutcome::Committed { .. } => Ok(true),
            TxnOutcome::Conflict { .. } => Ok(false),
        }
    }
}

fn no_leader() -> ServiceError {
    ServiceError::new(ErrorKind::Unavailable, "this server does not lead the cluster any more")
}

/// The servers by the coordinator.
pub(super) struct ClusterLives {
    pub(super) coord: Arc<dyn Coord>,
    /// The address of the archive of the cluster.
    pub(super) place: String,
    pub(super) fence: Condition,
}

#[async_trait]
impl Lives for ClusterLives {
    async fn list(&self, chain: Chain) -> Result<std::result::Result<Vec<Life>, String>> {
        let listed = self
            .coord
            .list(records::ALL)
            .await
            .map_err(|error| from_coord(&error))?;
        let (mut lives, mut logs, mut is_chained) = (BTreeMap::new(), BTreeSet::new(), false);
        for (key, found) in listed {
            if let Some(server) = records::server_of(LIVES, &key) {
                let record = record(&found.value)?;
                if record.place == self.place {
                    lives.insert(server, life(server, &record));
                }
            } else if let Some(server) = records::server_of(LOGS, &key) {
                logs.insert(server);
            } else if key == ARCHIVED_CHAIN {
                is_chained = found.value == chain[..];
            }
        }
        // A leader of an earlier version has deleted the log of a server, and did not note its end.
        let is_lost = |(server, life): &(&ServerId, &Life)| life.ended_micros == 0 && !logs.contains(*server);
        if let Some((server, _)) = lives.iter().find(is_lost) {
            self.forget(*server).await.map_err(|error| from_coord(&error))?;
            return Ok(Err(format!("the log of server {server} was deleted and not archived")));
        }
        if let Some(server) = logs.iter().find(|server| !lives.contains_key(server)) {
            return Ok(Err(format!("server {server} does not archive its log here")));
        }
        match is_chained {
            true => Ok(Ok(lives.into_values().collect())),
            false => Ok(Err(
                "a server that does not archive its log here has joined or led".to_owned()
            )),
        }
    }

    async fn archived(&self, lives: &[Life]) {
        for ended in lives.iter().filter(|life| life.ended_micros > 0) {
            // The next part names it again.
            if let Err(error) = self.forget(ServerId(ended.server)).await {
                tracing::debug!(server = ended.server, %error, "the record of a server that has ended stays");
            }
        }
    }
}

impl ClusterLives {
    /// Deletes the record of a server whose log is deleted.
    async fn forget(&self, server: ServerId) -> stele_coord::Result<()> {
        let key = records::key(LIVES, server);
        let txn = Txn {
            conditions: vec![self.fence.clone(), Condition::absent(records::key(LOGS, server))],
            writes: vec![Write::Delete { key }],
        };
        self.coord.txn(txn).await.map(drop)
    }
}
