//! Coordination within one process, durable on a [`Storage`].
//!
//! All keys are in memory; every transaction is one synced record of a log; a log is preceded by a snapshot
//! (`docs/formats/coord-log.md`). A *generation* is a snapshot with its log.
//!
//! Invariants:
//! * Memory holds exactly the durable state: a transaction changes memory after its record was synced.
//! * One transaction at a time, so at most one record of a log is unsynced.
//! * A log is abandoned after any operation on it failed, or its transaction's future was dropped. The next transaction
//!   begins a new generation first, whose snapshot is made from memory. So a failed record that is in the file nevertheless
//!   can count only if the process ends before another transaction succeeds. Then the transaction happens late, of which
//!   [`crate::CoordError::is_ambiguous`] warns.
//! * A generation's number is never used twice, because a put that failed may have happened.
//!
//! Sessions are leases on the environment's clock. They do not outlive the process, so keys bound to them are not
//! recovered, and ending a session writes nothing.
//!
//! The generation before the last one stays: with it a damaged snapshot can be made again ([`salvage`]).
//!
//! The storage ensures that there is one owner (by the lock of a local data root, or the owner records of an object store).
//! Where the storage numbers its owners, each begins with generations above those of every earlier owner. So a snapshot that
//! a former owner puts before it learns of its end is superseded already, and it cannot make a log. If there were two
//! owners of the same number, the second one's snapshot would collide with the first one's, and the loser would return
//! `Fenced` from then on.

mod recovery;
pub mod salvage;
mod state;

use crate::coord::Coord;
use crate::error::{CoordError, Result};
use crate::format::{LOG_HEADER_BYTES, encode_log_header, encode_record};
use crate::limits::STATE_BYTES_MAX;
use crate::session::{Session, SessionBackend};
use crate::session_id::SessionId;
use crate::txn::{Txn, TxnOutcome, Versioned, Write};
use crate::watch::Watch;
use async_trait::async_trait;
use parking_lot::Mutex;
use state::State;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_env::Env;
use stele_storage::{AppendFile, Storage, StorageError};
use tokio::sync::Notify;

/// A snapshot replaces a log that is this long, or as long as the last snapshot if that is longer. So snapshots at most
/// double the bytes written, and opening reads at most twice the state and 1 MiB.
pub const COMPACT_LOG_BYTES: u64 = 1 << 20;

/// A log is also replaced when reading it back costs as much as this number of bytes, or as the last snapshot if that is more. On an
/// object store each transaction is an object and costs as much as 64 KiB. By its bytes alone a log would grow to some 7,000
/// objects, and a takeover would wait five seconds for it. With this limit it has 128 objects, four waves of requests; a
/// snapshot, some seven requests, comes with every 128th transaction.
pub const COMPACT_COST_BYTES: u64 = 8 << 20;

/// Generations of one owner, where owners are numbered. A generation is made by a start, a failure, or a log at its
/// limit, at least 128 transactions: a process that uses them all has changed the catalog a hundred million times.
pub const OWNER_GENERATIONS: u64 = 1 << 20;

/// The embedded coordinator.
pub struct EmbeddedCoord {
    inner: Arc<Inner>,
    torn: bool,
}

struct Inner {
    storage: Arc<dyn Storage>,
    env: Env,
    /// Never held across an await.
    state: Mutex<State>,
    /// Held during a transaction, and while a session ends, so that no transaction sees half of either.
    writer: tokio::sync::Mutex<Writer>,
    /// Wakes the task that ends sessions.
    session_begun: Arc<Notify>,
}

struct Writer {
    /// The last generation whose snapshot was put, successfully or not.
    generation: u64,
    /// Absent before the first transaction after a failure. Taken out while in use, so that a dropped future loses it.
    log: Option<Log>,
    /// The last generation this owner may use.
    generation_max: u64,
    /// Set once another owner was detected.
    fenced: Option<String>,
}

struct Log {
    file: Box<dyn AppendFile>,
    generation: u64,
    /// Length at which the next generation begins.
    compact_at: u64,
}

impl Log {
    /// Whether it takes another transaction.
    fn has_space(&self) -> bool {
        self.file.len() < self.compact_at && self.file.reading_cost() < self.compact_at.max(COMPACT_COST_BYTES)
    }
}

impl EmbeddedCoord {
    /// Recovers the keys from `storage`, or begins with none. Bound keys of former sessions are gone.
    pub async fn open(storage: Arc<dyn Storage>, env: Env) -> Result<Arc<EmbeddedCoord>> {
        let recovered = recovery::recover(&storage).await?;
        // Session ids of this opening begin where no earlier opening's are.
        let state = State::new(recovered.revision, recovered.entries, recovered.generation << 24);
        let (base, generation_max) = match storage.owner_epoch() {
            None => (0, u64::MAX),
            Some(owner) => {
                let base = owner.saturating_mul(OWNER_GENERATIONS);
                (base, base.saturating_add(OWNER_GENERATIONS - 1))
            }
        };
        let writer = Writer {
            generation: recovered.generation.max(base),
            generation_max,
            log: None,
            fenced: None,
        };
        let inner = Inner {
            storage,
            env,
            state: Mutex::new(state),
            writer: tokio::sync::Mutex::new(writer),
            session_begun: Arc::new(Notify::new()),
        };
        // The keys that were read need not be durable; a snapshot makes them so before a caller acts on them.
        let mut writer = inner.writer.lock().await;
        let log = match inner.storage.owner_epoch() {
            None => inner.begin_clean_generation(&mut writer).await?,
            // The storage is remote: a takeover does not wait for deletions.
            Some(_) => {
                let log = inner.begin_generation(&mut writer).await?;
                let (storage, generation) = (inner.storage.clone(), log.generation);
                inner.env.spawn("coord cleaning", async move {
                    let _ = recovery::delete_before(&storage, generation).await;
                });
                log
            }
        };
        writer.log = Some(log);
        drop(writer);
        let inner = Arc::new(inner);
        let expiry = expire(
            Arc::downgrade(&inner),
            inner.env.clone(),
            Arc::clone(&inner.session_begun),
        );
        inner.env.spawn("coord session expiry", expiry);
        Ok(Arc::new(EmbeddedCoord {
            inner,
            torn: recovered.torn,
        }))
    }

    /// Whether the opened log ended with a torn record. Its transaction was never acknowledged; or, if the device damaged just
    /// that record, it was the last acknowledged one. The bytes cannot tell.
    pub fn was_torn(&self) -> bool {
        self.torn
    }
}

impl Inner {
    /// Makes `writes` durable and then visible. The caller holds `writer` and has checked everything.
    async fn commit(&self, writer: &mut Writer, writes: Vec<Write>) -> Result<u64> {
        assert!(!writes.is_empty(), "a transaction without writes has no record");
        let mut log = self.log_with_space(writer).await?;
        assert!(writer.log.is_none(), "a log is out of the writer while it is written");
        assert!(
            log.generation <= writer.generation,
            "a log's generation is among those that were used"
        );
        let revision = self.state.lock().next_revision();
        let record = encode_record(log.generation, revision, &writes);
        let end = log.file.len() + record.len() as u64;
        log.file.append(&[record]).await?;
        assert_eq!(log.file.len(), end, "an append writes exactly the bytes of the record");
        log.file.sync().await?;
        self.state.lock().apply(revision, writes);
        writer.log = Some(log);
        Ok(revision)
    }

    /// A log to append to. The caller puts it back only after success.
    async fn log_with_space(&self, writer: &mut Writer) -> Result<Log> {
        match writer.log.take() {
            Some(log) if log.has_space() => Ok(log),
            None => self.begin_clean_generation(writer).await,
            Some(mut log) => match self.begin_clean_generation(writer).await {
                // The snapshot certainly does not exist, so this log still counts. Deletions of keys, which free space, need it.
                Err(CoordError::Storage(StorageError::NoSpace { path }))
                    if path == recovery::snapshot_path(writer.generation) =>
                {
                    log.compact_at = log.file.len() + COMPACT_LOG_BYTES;
                    Ok(log)
                }
                other => other,
            },
        }
    }

    /// Begins a generation, and deletes the files that it supersedes.
    async fn begin_clean_generation(&self, writer: &mut Writer) -> Result<Log> {
        let log = self.begin_generation(writer).await?;
        // The next generation finds the files that could not be deleted now.
        let _ = recovery::delete_before(&self.storage, log.generation).await;
        Ok(log)
    }

    /// Puts a snapshot of the keys in memory and makes a log after it. From the begin of the put no other log may be appended to
    /// (unless the put failed for lack of space), because recovery may find the snapshot.
    async fn begin_generation(&self, writer: &mut Writer) -> Result<Log> {
        if let Some(file) = &writer.fenced {
            return Err(CoordError::Fenced { file: file.clone() });
        }
        if writer.generation >= writer.generation_max {
            return Err(CoordError::Full {
                message: format!(
                    "generation {} is the last of this owner; restart the server",
                    writer.generation
                ),
            });
        }
        writer.generation += 1;
        let generation = writer.generation;
        assert!(
            generation <= writer.generation_max,
            "an owner stays within its generations"
        );
        let path = recovery::snapshot_path(generation);
        let snapshot = self.state.lock().snapshot(generation);
        let compact_at = COMPACT_LOG_BYTES.max(snapshot.len() as u64);
        match self.storage.put_if_absent(&path, snapshot).await {
            Err(StorageError::AlreadyExists { path }) => {
                writer.fenced = Some(path.clone());
                return Err(CoordError::Fenced { file: path });
            }
            other => other?,
        }
        let mut file = self.storage.create(&recovery::log_path(generation)).await?;
        // It becomes durable with the first record; a log without records may be missing.
        file.append(&[encode_log_header(generation)]).await?;
        assert_eq!(
            file.len(),
            LOG_HEADER_BYTES as u64,
            "a log begins with its header and nothing else"
        );
        Ok(Log {
            file,
            generation,
            compact_at,
        })
    }

    async fn txn(&self, txn: Txn) -> Result<TxnOutcome> {
        txn.check()?;
        let mut writer = self.writer.lock().await;
        {
            let state = self.state.lock();
            if let Some(key) = state.first_conflict(&txn.conditions) {
                return Ok(TxnOutcome::Conflict { key });
            }
            if txn.writes.is_empty() {
                return Ok(TxnOutcome::Committed {
                    revision: state.revision(),
                });
            }
            state.check_sessions(&txn.writes, self.env.now())?;
            let bytes = state.bytes_after(&txn.writes);
            if bytes > STATE_BYTES_MAX && bytes > state.bytes() {
                return Err(CoordError::Full {
                    message: format!("{bytes} bytes of keys and values, at most {STATE_BYTES_MAX}"),
                });
            }
        }
        let revision = self.commit(&mut writer, txn.writes).await?;
        Ok(TxnOutcome::Committed { revision })
    }

    async fn end_session(&self, session: SessionId) {
        let _no_transaction = self.writer.lock().await;
        self.state.lock().end_session(session);
    }
}

/// Ends sessions when their time is up. Lives as long as the coordinator, whose end wakes it.
async fn expire(inner: Weak<Inner>, env: Env, session_begun: Arc<Notify>) {
    while let Some(strong) = inner.upgrade() {
        let expired = strong.state.lock().expired(env.now());
        for session in expired {
            strong.end_session(session).await;
        }
        let deadline = strong.state.lock().next_deadline();
        drop(strong);
        match deadline {
            Some(deadline) => {
                let wait = deadline.saturating_sub(env.now());
                // After a timeout and after a wake-up the sessions are checked again.
                let _ = env.timeout(wait, session_begun.notified()).await;
            }
            None => session_begun.notified().await,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.session_begun.notify_one();
    }
}

#[async_trait]
impl SessionBackend for Inner {
    async fn keep_alive(&self, session: SessionId) -> Result<()> {
        self.state.lock().keep_alive(session, self.env.now())
    }

    fn ends_at(&self, session: SessionId) -> Option<Duration> {
        self.state.lock().ends_at(session, self.env.now())
    }

    async fn revoke(&self, session: SessionId) -> Result<()> {
        self.end_session(session).await;
        Ok(())
    }
}

#[async_trait]
impl Coord for EmbeddedCoord {
    async fn get(&self, key: &str) -> Result<Option<Versioned>> {
        Ok(self.inner.state.lock().get(key))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Versioned)>> {
        Ok(self.inner.state.lock().list(prefix))
    }

    async fn txn(&self, txn: Txn) -> Result<TxnOutcome> {
        self.inner.txn(txn).await
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        self.inner.state.lock().watchers.watch(prefix)
    }

    async fn session(&self, ttl: Duration) -> Result<Session> {
        let id = self.inner.state.lock().begin_session(ttl, self.inner.env.now())?;
        self.inner.session_begun.notify_one();
        Ok(Session::new(
            id,
            ttl,
            Arc::clone(&self.inner) as Arc<dyn SessionBackend>,
        ))
    }
}

#[cfg(test)]
pub(crate) mod tests;
