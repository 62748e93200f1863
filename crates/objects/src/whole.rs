//! Files that are one object. Small ones are put at their first `sync`, large ones are uploaded in pieces before that.
//!
//! Such a file is invisible before it is complete. A writer that dies leaves nothing, except the pieces of an upload
//! that was begun, which the bucket's rule for unfinished uploads removes. Small files are created with put-if-absent.
//! An upload in pieces is not conditional: names of sstables carry the server's epoch, and no two processes have the
//! same.

use crate::shared::Shared;
use crate::store::Upload;
use async_trait::async_trait;
use bytes::Bytes;
use object_store::multipart::PartId;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use stele_memory::bounds::{UPLOAD_PIECE_BYTES, UPLOADS};
use stele_storage::remote::cache::Object;
use stele_storage::{AppendFile, ReadFile, Result, StorageError, check_range};
use tokio::sync::oneshot;

/// Bytes of a piece. S3 takes at most 10,000 pieces of at least 5 MiB: files of up to 80 GiB, larger than any tablet.
const PIECE_BYTES: usize = UPLOAD_PIECE_BYTES as usize;
/// Most pieces of an upload.
const PIECES_MAX: usize = 10_000;
/// Largest number of pieces of one file under way.
const PIECES_CONCURRENT: usize = 4;
/// Pieces of all files under way.
pub(crate) const PIECES_IN_ALL: usize = UPLOADS.of(0) as usize / PIECE_BYTES;

const _: () = assert!(PIECE_BYTES >= 5 << 20 && PIECES_MAX <= 10_000, "the limits of S3");
const _: () = assert!(PIECES_CONCURRENT <= PIECES_IN_ALL, "one file may use all it is allowed");

/// Begins a file; `AlreadyExists` when it exists. A conflict with a concurrent writer shows at `sync`.
pub(crate) async fn create(shared: &Arc<Shared>, path: &str) -> Result<WholeAppend> {
    match shared.store.head(path).await {
        Ok(_) => Err(StorageError::AlreadyExists { path: path.to_owned() }),
        Err(StorageError::NotFound { .. }) => Ok(WholeAppend {
            shared: Arc::clone(shared),
            path: path.to_owned(),
            state: State::Open,
            filling: Vec::new(),
            filling_bytes: 0,
            upload: None,
            len: 0,
        }),
        Err(error) => Err(error),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Takes bytes.
    Open,
    /// Complete and visible.
    Finished,
    /// An operation failed or was abandoned.
    Broken,
}

struct Pieces {
    upload: Arc<Upload>,
    /// Under way, oldest first.
    pending: VecDeque<oneshot::Receiver<Result<PartId>>>,
    done: Vec<PartId>,
}

pub(crate) struct WholeAppend {
    shared: Arc<Shared>,
    path: String,
    state: State,
    /// Not yet under way.
    filling: Vec<Bytes>,
    filling_bytes: usize,
    upload: Option<Pieces>,
    len: u64,
}

impl WholeAppend {
    /// Takes the right to continue; an operation that succeeds gives it back.
    fn begin(&mut self, operation: &'static str) -> Result<()> {
        self.shared.fence.check(&self.path)?;
        if self.state != State::Open {
            return Err(StorageError::Io {
                path: self.path.clone(),
                operation,
                message: match self.state {
                    State::Finished => "refused, because the file was finished by its first sync".to_owned(),
                    _ => "refused, because an earlier write of this file failed or was abandoned".to_owned(),
                },
            });
        }
        self.state = State::Broken;
        Ok(())
    }

    /// Starts to upload the buffered bytes.
    async fn send_piece(&mut self) -> Result<()> {
        assert!(
            (1..=PIECE_BYTES).contains(&self.filling_bytes),
            "a piece has bytes, and at most those of a full one"
        );
        debug_assert_eq!(
            self.filling.iter().map(Bytes::len).sum::<usize>(),
            self.filling_bytes,
            "the buffered bytes are counted"
        );
        let bytes = self.filling_bytes as u64;
        if self.upload.is_none() {
            let upload = Arc::new(self.shared.store.begin_upload(&self.path).await?);
            self.upload = Some(Pieces {
                upload,
                pending: VecDeque::new(),
                done: Vec::new(),
            });
        }
        self.wait_for_pieces(PIECES_CONCURRENT - 1).await?;
        // A permit belongs to a piece that is being sent, which ends, so no waiter depends on another waiter. Never
        // closed.
        let under_way = Arc::clone(&self.shared.pieces).acquire_owned().await.ok();
        let content = std::mem::take(&mut self.filling);
        self.filling_bytes = 0;
        let Some(pieces) = self.upload.as_mut() else {
            return Ok(());
        };
        let index = pieces.done.len() + pieces.pending.len();
        assert_eq!(
            index as u64 * PIECE_BYTES as u64 + bytes,
            self.len,
            "pieces are consecutive, and bytes uploaded equal bytes appended"
        );
        if index >= PIECES_MAX {
            return Err(StorageError::NoSpace {
                path: self.path.clone(),
            });
        }
        let (done, outcome) = oneshot::channel();
        let (shared, path, upload) = (Arc::clone(&self.shared), self.path.clone(), Arc::clone(&pieces.upload));
        self.shared.env.spawn("object upload", async move {
            let uploaded = shared.store.upload_piece(&path, &upload, index, &content).await;
            drop((content, under_way));
            // The receiver is gone when the file was abandoned.
            let _ = done.send(uploaded);
        });
        pieces.pending.push_back(outcome);
        Ok(())
    }

    /// Waits until at most `most` pieces are under way.
    async fn wait_for_pieces(&mut self, most: usize) -> Result<()> {
        let Some(pieces) = self.upload.as_mut() else {
            return Ok(());
        };
        while pieces.pending.len() > most {
            let Some(outcome) = pieces.pending.pop_front() else {
                break;
            };
            let gone = |_| StorageError::Io {
                path: self.path.clone(),
                operation: "upload",
                message: "the runtime is shutting down".to_owned(),
            };
            pieces.done.push(outcome.await.map_err(gone)??);
        }
        debug_assert!(pieces.pending.len() <= most, "the uploads under way are bounded");
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        if self.upload.is_none() {
            assert_eq!(
                self.filling_bytes as u64, self.len,
                "a file below one piece is buffered whole"
            );
            return self.shared.store.put_new(&self.path, &self.filling).await;
        }
        if self.filling_bytes > 0 {
            self.send_piece().await?;
        }
        self.wait_for_pieces(0).await?;
        let Some(pieces) = self.upload.as_mut() else {
            return Ok(());
        };
        let done = std::mem::take(&mut pieces.done);
        assert!(
            pieces.pending.is_empty(),
            "an upload is completed when no piece is under way"
        );
        assert_eq!(
            done.len() as u64,
            self.len.div_ceil(PIECE_BYTES as u64),
            "every piece of the file was uploaded"
        );
        self.shared
            .store
            .complete_upload(&self.path, &pieces.upload, done, self.len)
            .await?;
        self.upload = None;
        Ok(())
    }
}

#[async_trait]
impl AppendFile for WholeAppend {
    async fn append(&mut self, slices: &[Bytes]) -> Result<()> {
        self.begin("append")?;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            let mut rest = slice.clone();
            while !rest.is_empty() {
                let room = PIECE_BYTES - self.filling_bytes;
                let head = rest.split_to(rest.len().min(room));
                self.filling_bytes += head.len();
                self.len += head.len() as u64;
                self.filling.push(head);
                if self.filling_bytes == PIECE_BYTES {
                    self.send_piece().await?;
                }
            }
        }
        debug_assert!(self.filling_bytes < PIECE_BYTES, "a full piece is sent");
        self.state = State::Open;
        Ok(())
    }

    async fn sync(&mut self) -> Result<()> {
        if self.state == State::Finished {
            return self.shared.fence.check(&self.path);
        }
        self.begin("sync")?;
        self.finish().await?;
        assert!(self.upload.is_none(), "a finished file has no upload under way");
        self.state = State::Finished;
        self.filling = Vec::new();
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }
}

impl Drop for WholeAppend {
    fn drop(&mut self) {
        if let Some(pieces) = self.upload.take() {
            let (shared, path) = (Arc::clone(&self.shared), self.path.clone());
            self.shared.env.spawn("object upload given up", async move {
                shared.store.abort_upload(&path, &pieces.upload).await;
            });
        }
    }
}

/// Opens a file with one request, for its length.
pub(crate) async fn open(shared: &Arc<Shared>, path: &str) -> Result<WholeRead> {
    let (len, tag) = shared.store.head(path).await?;
    Ok(WholeRead {
        shared: Arc::clone(shared),
        path: path.to_owned(),
        len,
        tag,
        first: Mutex::default(),
    })
}

/// The same for a caller that knows the file's length and the first range it will read. It requests that range, and the
/// response contains the length and the tag.
pub(crate) async fn open_known(shared: &Arc<Shared>, path: &str, len: u64, first: Range<u64>) -> Result<WholeRead> {
    let first = first.start..first.end.min(len);
    if first.is_empty() {
        return open(shared, path).await;
    }
    match shared.store.get_known(path, first.clone()).await? {
        Some((content, found, tag)) if found == len => Ok(WholeRead {
            shared: Arc::clone(shared),
            path: path.to_owned(),
            len,
            tag,
            first: Mutex::new(Some((first.start, content))),
        }),
        _ => open(shared, path).await,
    }
}

pub(crate) struct WholeRead {
    shared: Arc<Shared>,
    path: String,
    len: u64,
    /// Distinguishes this file from another one that had its path.
    tag: String,
    /// The bytes of the first response and their position in the file; retained until they are read.
    first: Mutex<Option<(u64, Bytes)>>,
}

impl WholeRead {
    fn object(&self) -> Object<'_> {
        Object {
            path: &self.path,
            tag: &self.tag,
            len: self.len,
        }
    }

    fn take_first(&self, offset: u64, len: usize) -> Option<Bytes> {
        let mut first = self.first.lock();
        let (start, content) = first.as_ref()?;
        let from = usize::try_from(offset.checked_sub(*start)?).ok()?;
        let to = from.checked_add(len).filter(|to| *to <= content.len())?;
        let read = content.slice(from..to);
        *first = None;
        Some(read)
    }
}

#[async_trait]
impl ReadFile for WholeRead {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.shared.fence.check(&self.path)?;
        check_range(&self.path, offset, len, self.len)?;
        if let Some(read) = self.take_first(offset, len) {
            return Ok(read);
        }
        let cache = &self.shared.cache;
        cache.read(&self.shared.store, self.object(), offset, len).await
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        if let Err(error) = check_range(&self.path, offset, len, self.len) {
            return Some(Err(error));
        }
        let cache = &self.shared.cache;
        cache.try_read(&self.shared.store, self.object(), offset, len).map(Ok)
    }

    fn around(&self, offset: u64) -> Option<(u64, Bytes)> {
        self.shared.cache.around(self.object(), offset)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &str {
        &self.path
    }
}
