//! Growing files: a directory of pieces, `<path>/@<number, 8 hex digits>`. The last one may still be written.
//!
//! * Piece 0 is empty. The file exists as long as it does; it is created first, and the whole directory is deleted in
//!   one operation.
//! * Pieces 1, 2, … are append streams. The name of the piece being written ends in `.open`. Mostly there is one piece.
//!   A file is cut only when this process reads it while it writes it. The block places that readers request do not
//!   cover the block being written.
//! * A piece loses its `.open` when all its bytes are durable: its writer closed it, which syncs, or a new owner copied
//!   it.
//! * Only pieces without `.open` are ever read. A file with an open piece is not readable, except by its writer up to
//!   that piece. An open piece without synced bytes is no obstacle: a replaced owner creates one and then checks the
//!   ownership.
//!
//! A sync is one packet through the pipeline, which makes every DataNode call `fsync`, and one call of the NameNode.
//! The NameNode answers only to the holder of the lease.

pub(crate) mod pieces;
pub(crate) mod reader;
pub(crate) mod sealing;

use crate::client::FileWriter;
use crate::cluster::Cluster;
use crate::shared::Shared;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use pieces::{Pieces, open_key, piece_key};
use sealing::{SEALS_CONCURRENT, finish, seal_own, try_seal_own};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use stele_storage::{AppendFile, Result, StorageError};
use tokio::sync::Mutex;

pub(crate) async fn delete(writers: &Writers, path: &str) -> Result<()> {
    writers.by_path.lock().remove(path);
    writers.shared.cluster.delete(path, true).await
}

/// Creates piece 0, and with it the file.
async fn mark(cluster: &Cluster, path: &str) -> Result<()> {
    let first = piece_key(path, 0);
    let mut marker = cluster.create(&first, true).await.map_err(|error| match error {
        StorageError::AlreadyExists { .. } => StorageError::AlreadyExists { path: path.to_owned() },
        other => other,
    })?;
    cluster.close(&first, &mut *marker).await
}

/// Creates a whole file: piece 1 first, so that the file appears with its content or not at all.
pub(crate) async fn put(shared: &Shared, path: &str, content: Bytes) -> Result<()> {
    let cluster = &shared.cluster;
    let there = Pieces::list(cluster, path).await?;
    if there.is_file() {
        return Err(StorageError::AlreadyExists { path: path.to_owned() });
    }
    if !there.is_empty() {
        // The remains of an interrupted put.
        cluster.delete(path, true).await?;
    }
    if !content.is_empty() {
        cluster.put_new(&piece_key(path, 1), &content).await?;
    }
    mark(cluster, path).await?;
    shared.verify(path).await
}

pub(crate) async fn create(writers: &Arc<Writers>, path: &str) -> Result<GrowingAppend> {
    let shared = &writers.shared;
    mark(&shared.cluster, path).await?;
    let writer = Arc::new(Writer {
        shared: Arc::clone(shared),
        path: path.to_owned(),
        state: Mutex::new(State::Between { next: 1 }),
    });
    let begun = match writer.begin(1).await {
        Ok(begun) => begun,
        Err(error) => {
            if !matches!(error, StorageError::Fenced { .. }) {
                // No caller knows of it, and there may be one for each group of writes while the cluster refuses.
                let (shared, path) = (Arc::clone(shared), path.to_owned());
                let env = shared.env.clone();
                env.spawn("log file given up", async move {
                    let _ = shared.cluster.delete(&path, true).await;
                });
            }
            return Err(error);
        }
    };
    *writer.state.lock().await = begun;
    writers.by_path.lock().insert(path.to_owned(), Arc::downgrade(&writer));
    Ok(GrowingAppend {
        writers: Arc::clone(writers),
        writer,
        len: 0,
    })
}

enum State {
    Open {
        number: u32,
        stream: Box<dyn FileWriter>,
        /// Whether the piece has bytes, and whether some were appended since the last sync.
        used: bool,
        dirty: bool,
    },
    /// The last piece is finished; the next append begins this one.
    Between { next: u32 },
    /// An operation failed or was abandoned.
    Broken,
}

/// The writer of a file, shared by its appender and by readers in this process, which cut the file.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    path: String,
    /// Held across an operation: a file has one appender, and a reader that needs a cut waits for it. An operation that
    /// fails or is dropped in the middle leaves it `Broken`.
    state: Mutex<State>,
}

impl Writer {
    /// Begins a piece: creates it and then checks the ownership. Either this sees the new owner, or the new owner saw
    /// the piece.
    async fn begin(&self, number: u32) -> Result<State> {
        assert!(number > 0, "piece 0 has no content");
        let key = open_key(&self.path, number);
        let stream = self.shared.cluster.create(&key, false).await?;
        self.shared.verify(&self.path).await?;
        Ok(State::Open {
            number,
            stream,
            used: false,
            dirty: false,
        })
    }

    fn refused(&self, operation: &'static str) -> StorageError {
        StorageError::Io {
            path: self.path.clone(),
            operation,
            message: "refused, because an earlier write of this file failed or was abandoned".to_owned(),
        }
    }

    /// A failure may be due to a new owner.
    async fn why(&self, error: StorageError) -> StorageError {
        match self.shared.verify(&self.path).await {
            Err(fenced @ StorageError::Fenced { .. }) => fenced,
            _ => error,
        }
    }

    async fn append(&self, slices: &[Bytes]) -> Result<()> {
        debug_assert!(
            slices.iter().any(|slice| !slice.is_empty()),
            "an append to the stream has bytes"
        );
        let mut state = self.state.lock().await;
        let (number, mut stream) = match std::mem::replace(&mut *state, State::Broken) {
            State::Open { number, stream, .. } => (number, stream),
            State::Between { next } => match self.begin(next).await? {
                State::Open { number, stream, .. } => {
                    assert_eq!(number, next, "pieces are numbered consecutively");
                    (number, stream)
                }
                _ => return Err(self.refused("append")),
            },
            State::Broken => return Err(self.refused("append")),
        };
        let key = open_key(&self.path, number);
        if let Err(error) = self.shared.cluster.write(&key, &mut *stream, slices).await {
            return Err(self.why(error).await);
        }
        *state = State::Open {
            number,
            stream,
            used: true,
            dirty: true,
        };
        Ok(())
    }

    async fn sync(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        match std::mem::replace(&mut *state, State::Broken) {
            State::Open {
                number,
                mut stream,
                used,
                dirty,
            } => {
                assert!(used || !dirty, "a piece with unsynced bytes has bytes");
                let key = open_key(&self.path, number);
                if dirty && let Err(error) = self.shared.cluster.sync(&key, &mut *stream).await {
                    return Err(self.why(error).await);
                }
                *state = State::Open {
                    number,
                    stream,
                    used,
                    dirty: false,
                };
                Ok(())
            }
            State::Between { next } => {
                *state = State::Between { next };
                Ok(())
            }
            State::Broken => Err(self.refused("sync")),
        }
    }

    /// Finishes the piece being written, if it has bytes. Returns the number of the first piece that is not finished.
    async fn cut(&self) -> Result<u32> {
        let mut state = self.state.lock().await;
        match std::mem::replace(&mut *state, State::Broken) {
            State::Open {
                number,
                mut stream,
                used: true,
                ..
            } => {
                assert!(number > 0, "piece 0 has no content");
                let open = open_key(&self.path, number);
                self.shared.cluster.close(&open, &mut *stream).await?;
                finish(&self.shared.cluster, &open, &piece_key(&self.path, number)).await?;
                let next = number.checked_add(1).ok_or_else(|| self.refused("cut"))?;
                *state = State::Between { next };
                Ok(next)
            }
            State::Open { number, stream, .. } => {
                *state = State::Open {
                    number,
                    stream,
                    used: false,
                    dirty: false,
                };
                Ok(number)
            }
            State::Between { next } => {
                *state = State::Between { next };
                Ok(next)
            }
            State::Broken => Err(self.refused("cut")),
        }
    }
}

pub(crate) struct GrowingAppend {
    writers: Arc<Writers>,
    writer: Arc<Writer>,
    len: u64,
}

#[async_trait]
impl AppendFile for GrowingAppend {
    async fn append(&mut self, slices: &[Bytes]) -> Result<()> {
        self.writer.shared.fence.check(&self.writer.path)?;
        let bytes: usize = slices.iter().map(Bytes::len).sum();
        if bytes > 0 {
            self.writer.append(slices).await?;
        }
        self.len += bytes as u64;
        Ok(())
    }

    async fn sync(&mut self) -> Result<()> {
        self.writer.shared.fence.check(&self.writer.path)?;
        self.writer.sync().await
    }

    fn len(&self) -> u64 {
        self.len
    }
}

impl Drop for GrowingAppend {
    /// Finishes the file, or seals it where that fails: this process may read it, and the next owner has less work.
    fn drop(&mut self) {
        let (writers, writer) = (Arc::clone(&self.writers), Arc::clone(&self.writer));
        let env = writer.shared.env.clone();
        env.spawn("hdfs finish", async move {
            if writer.shared.fence.by().is_none()
                && let Err(error) = writer.cut().await
            {
                tracing::debug!(path = writer.path, %error, "a file is sealed that cannot be finished");
                if let Err(error) = seal_own(&writer.shared, &writer.path).await {
                    tracing::warn!(path = writer.path, %error, "a file was left open, and cannot be read until the next start");
                }
            }
            writers.forget(&writer);
        });
    }
}

/// Finishes every growing file that this process writes, or seals it where that fails. The next owner seals those that are left.
pub(crate) async fn finish_all(writers: &Writers) {
    if writers.shared.fence.by().is_some() {
        return;
    }
    // Includes dropped ones that are being finished, and waits for them.
    let writing: Vec<Arc<Writer>> = {
        let by_path = writers.by_path.lock();
        by_path.values().filter_map(Weak::upgrade).collect()
    };
    futures::stream::iter(writing)
        .for_each_concurrent(SEALS_CONCURRENT, |writer| async move {
            if writer.cut().await.is_err()
                && let Err(error) = try_seal_own(&writer.shared, &writer.path).await
            {
                tracing::debug!(path = writer.path, %error, "a file was left open");
            }
        })
        .await;
}

/// The writers of this process, by the path of their files.
pub(crate) struct Writers {
    shared: Arc<Shared>,
    by_path: parking_lot::Mutex<BTreeMap<String, Weak<Writer>>>,
}

impl Writers {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Writers> {
        Arc::new(Writers {
            shared,
            by_path: parking_lot::Mutex::default(),
        })
    }

    /// Forgets a writer, but not a later writer of a file with the same path.
    fn forget(&self, writer: &Arc<Writer>) {
        let mut by_path = self.by_path.lock();
        let known = by_path.get(&writer.path);
        if known.is_some_and(|known| known.as_ptr() == Arc::as_ptr(writer)) {
            by_path.remove(&writer.path);
        }
    }
}
