//! Coordination within one process, durable on a [`Storage`].
//!
//! All keys are in memory; every transaction is one synced record of a log; a log is preceded by a snapshot
//! (`docs/formats/coord-log.md`). A *generation* is a snapshot with its log.
//!
//! Invariants:
//! * Memory holds what is durable, and only that: a transaction changes memory after its record was synced.
//! * One transaction at a time, so at most one record of a log is unsynced.
//! * A log is used no more after anything about it failed, or its transaction's future was dropped. The next transaction
//!   begins a new generation first, whose snapshot is made from memory. So a record that failed and is on the medium
//!   nevertheless can count only if the process ends before another transaction succeeds; then it is as if it had
//!   happened late, which [`crate::CoordError::is_ambiguous`] warns of.
//! * A generation's number is never used twice, because a put that failed may have happened.
//!
//! Sessions are leases on the environment's clock. They do not outlive the process, so keys bound to them are not
//! recovered, and ending a session writes nothing.
//!
//! The generation before the last one stays: with it a damaged snapshot can be made again ([`salvage`]).
//!
//! One owner at a time is the storage's business (the lock of a local data root, the owner records of an object store).
//! Where the storage numbers its owners, each begins with generations above those of every owner before: what a former
//! owner that does not know yet puts is superseded already, and its log it cannot make. Should there be two owners of the
//! same number, the second one's snapshot collides with the first one's, and the loser answers `Fenced` from then on.

mod recovery;
pub mod salvage;
mod state;

use crate::error::{CoordError, Result};
use crate::format::{encode_log_header, encode_record};
use crate::session::{Session, SessionBackend, SessionId};
use crate::watch::Watch;
use crate::{Coord, STATE_BYTES_MAX, Txn, TxnOutcome, Versioned, Write};
use async_trait::async_trait;
use parking_lot::Mutex;
use state::State;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_env::Env;
use stele_storage::{AppendFile, Storage, StorageError};
use tokio::sync::Notify;

/// A log is replaced by a snapshot when it is this long, or as long as the last snapshot if that is longer: then writing
/// snapshots at most doubles what is written, and opening reads at most twice the state and 1 MiB.
pub const COMPACT_LOG_BYTES: u64 = 1 << 20;

/// A log is replaced also when reading it back takes as long as so many bytes do, or as the last snapshot if that is longer. On an
/// object store each transaction is an object, which takes as long as 64 KiB: by its bytes alone a log would grow to some 7,000 of
/// them, and a takeover wait five seconds for it. So it is 128, four waves of requests; and a snapshot, which is some seven
/// requests, comes with every 128th transaction.
pub const COMPACT_COST_BYTES: u64 = 8 << 20;

/// Generations of one owner, where owners are numbered. A generation is made by a start, a failure, or a log that is long enough, at
/// least 128 transactions: a process that gets so far has changed the catalog a hundred million times.
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
    /// Held through a transaction, and while a session ends, so that no transaction sees half of either.
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
    /// Set once another owner was met.
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
        // What was read need not be durable; a snapshot makes it so before anybody acts on it.
        let mut writer = inner.writer.lock().await;
        let log = match inner.storage.owner_epoch() {
            None => inner.begin_clean_generation(&mut writer).await?,
            // A medium that is far away: whoever takes over does not wait for it.
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

    /// Whether what was opened ended with a torn record. That is a transaction which nobody was told of, or, if the medium
    /// damaged just that record, the last one that somebody was told of: the bytes cannot tell.
    pub fn was_torn(&self) -> bool {
        self.torn
    }
}

impl Inner {
    /// Makes `writes` durable and then visible. The caller holds `writer` and has checked everything.
    async fn commit(&self, writer: &mut Writer, writes: Vec<Write>) -> Result<u64> {
        let mut log = self.log_with_space(writer).await?;
        let revision = self.state.lock().next_revision();
        let record = encode_record(log.generation, revision, &writes);
        log.file.append(&[record]).await?;
        log.file.sync().await?;
        self.state.lock().apply(revision, writes);
        writer.log = Some(log);
        Ok(revision)
    }

    /// A log to append to. Whoever gets it gives it back only after success.
    async fn log_with_space(&self, writer: &mut Writer) -> Result<Log> {
        match writer.log.take() {
            Some(log) if log.has_space() => Ok(log),
            None => self.begin_clean_generation(writer).await,
            Some(mut log) => match self.begin_clean_generation(writer).await {
                // The snapshot is certainly not there, so this log still counts. Deletions, which make room, need it.
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

    /// Begins a generation, and deletes what it supersedes.
    async fn begin_clean_generation(&self, writer: &mut Writer) -> Result<Log> {
        let log = self.begin_generation(writer).await?;
        // What cannot be deleted now is found again by the next generation.
        let _ = recovery::delete_before(&self.storage, log.generation).await;
        Ok(log)
    }

    /// Puts a snapshot of what is in memory and makes a log after it. From the moment the put begins no other log may
    /// be appended to (unless it failed for lack of space), because recovery may find the snapshot.
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
        // Becomes durable with the first record; a log without one may as well not exist.
        file.append(&[encode_log_header(generation)]).await?;
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
                // Passed or woken, look again.
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
