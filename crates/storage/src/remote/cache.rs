//! What was read of a remote medium, kept on the local disk.
//!
//! Terms: an *object* is a file there that never changes, under a path, with a *tag* that tells it from another one that had
//! the path; a *source* is what reads it.
//!
//! Objects are read in *chunks* of [`CHUNK_BYTES`], aligned: neighbouring blocks come with one request, and readers that
//! want the same chunk at the same time share it. A few chunks stay in memory, which is all there is without a folder;
//! with one, every chunk becomes a file of it, up to a number of bytes. Beyond that the oldest goes, unless it was read
//! since it last came up (second chance). A read of several chunks at once (a compaction reading ahead) goes by the cache.
//!
//! A chunk's file carries a checksum over its content and over which bytes of which object it is, and a file that does not
//! check is thrown away. So the folder may lose anything at any time, and nothing in it is ever synced. A former process's
//! chunks are found again by their names.
#![allow(
    clippy::disallowed_methods,
    reason = "a cache that may vanish needs no promise of the storage seam; sees the file system through Env::blocking"
)]

pub mod chunk;

pub use chunk::HEADER_BYTES;

use crate::{Result, StorageError};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use chunk::{Chunk, ChunkId};
use futures::future::{BoxFuture, FutureExt, Shared};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stele_env::Env;

/// Bytes of a chunk. An object store takes 20–50 ms to answer and gives 50–100 MB/s to one reader: half a MiB adds 5–10 ms to
/// the first block and makes the next thirty free.
pub const CHUNK_BYTES: u64 = 512 << 10;
/// Chunks in memory: 16 MiB, so that scans of a few dozen files at once do not fetch every chunk for every block.
const MEMORY_CHUNKS: usize = 32;
/// Places in the order of chunks that are no more, besides as many as there are chunks.
const FORGOTTEN_MAX: usize = 64;
/// A read of so many bytes goes to the medium as it is.
const DIRECT_BYTES: usize = 1 << 20;

/// Where chunks are kept, and how many bytes of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// A folder of this process's own; made when missing.
    pub dir: PathBuf,
    /// Most bytes of files in it.
    pub bytes: u64,
}

/// Reads from the medium what the cache does not have.
#[async_trait]
pub trait Source: Clone + Send + Sync + 'static {
    /// Exactly these bytes of an object.
    async fn fetch(&self, path: &str, offset: u64, len: usize) -> Result<Bytes>;

    /// A chunk was wanted, and was in the cache or not.
    fn count(&self, found: bool);
}

type Fetch = Shared<BoxFuture<'static, Result<Bytes>>>;

/// The cache of one owner.
pub struct ChunkCache {
    env: Env,
    memory: Mutex<Memory>,
    /// Being fetched.
    fetching: Arc<Mutex<HashMap<ChunkId, Fetch>>>,
    disk: Option<Arc<Disk>>,
}

/// The last chunks used, oldest first.
#[derive(Default)]
struct Memory {
    chunks: VecDeque<(ChunkId, Bytes)>,
}

impl Memory {
    fn get(&mut self, id: ChunkId) -> Option<Bytes> {
        let at = self.chunks.iter().position(|(other, _)| *other == id)?;
        let (id, bytes) = self.chunks.remove(at)?;
        self.chunks.push_back((id, bytes.clone()));
        Some(bytes)
    }

    fn insert(&mut self, id: ChunkId, bytes: Bytes) {
        if self.get(id).is_some() {
            return;
        }
        if self.chunks.len() >= MEMORY_CHUNKS {
            self.chunks.pop_front();
        }
        self.chunks.push_back((id, bytes));
    }
}

struct Disk {
    dir: PathBuf,
    bytes_max: u64,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    /// Length, and whether it was read since it last came up for eviction.
    files: BTreeMap<ChunkId, (u64, bool)>,
    /// In the order in which they come up.
    order: VecDeque<ChunkId>,
    bytes: u64,
}

impl Index {
    fn insert(&mut self, id: ChunkId, len: u64) {
        match self.files.insert(id, (len, false)) {
            Some((old, _)) => self.bytes -= old,
            None => {
                self.order.push_back(id);
                self.forget();
            }
        }
        self.bytes += len;
    }

    /// Gives up places of chunks that are no more, or have a later one, when they are many: somebody else may delete files all
    /// the time, and nothing comes up while there is room.
    fn forget(&mut self) {
        if self.order.len() <= 2 * self.files.len() + FORGOTTEN_MAX {
            return;
        }
        let mut kept: VecDeque<ChunkId> = VecDeque::with_capacity(self.files.len());
        let mut seen = BTreeSet::new();
        for id in self.order.drain(..).rev() {
            if self.files.contains_key(&id) && seen.insert(id) {
                kept.push_front(id);
            }
        }
        self.order = kept;
    }

    /// Takes out what is too much.
    fn evict(&mut self, bytes_max: u64) -> Vec<ChunkId> {
        let mut gone = Vec::new();
        while self.bytes > bytes_max {
            let Some(id) = self.order.pop_front() else { break };
            match self.files.get_mut(&id) {
                Some((_, used)) if *used => {
                    *used = false;
                    self.order.push_back(id);
                }
                Some(_) => {
                    self.remove(id);
                    gone.push(id);
                }
                None => {}
            }
        }
        gone
    }

    fn remove(&mut self, id: ChunkId) {
        if let Some((len, _)) = self.files.remove(&id) {
            self.bytes -= len;
        }
    }

    fn touch(&mut self, id: ChunkId) -> bool {
        match self.files.get_mut(&id) {
            Some((_, used)) => {
                *used = true;
                true
            }
            None => false,
        }
    }
}

impl ChunkCache {
    /// Opens the folder, if there is to be one, with what an earlier process left in it.
    pub async fn open(options: Option<CacheOptions>, env: Env) -> Result<ChunkCache> {
        let disk = match options.filter(|options| options.bytes > 0) {
            None => None,
            Some(options) => Some(Arc::new(blocking(&env, move || Disk::open(options)).await??)),
        };
        Ok(ChunkCache {
            env,
            memory: Mutex::default(),
            fetching: Arc::default(),
            disk,
        })
    }

    /// Bytes of an object of `file_len` bytes, within which they must lie.
    pub async fn read(
        &self,
        source: &impl Source,
        path: &str,
        tag: &str,
        file_len: u64,
        offset: u64,
        len: usize,
    ) -> Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        if len >= DIRECT_BYTES {
            return source.fetch(path, offset, len).await;
        }
        let end = offset + len as u64;
        let mut content = BytesMut::new();
        for number in offset / CHUNK_BYTES..=(end - 1) / CHUNK_BYTES {
            let start = number * CHUNK_BYTES;
            let chunk = self.chunk(source, path, tag, number, file_len).await?;
            let (from, to) = (offset.max(start) - start, (end - start).min(chunk.len() as u64));
            let piece = chunk.slice(from as usize..(to.max(from)) as usize);
            if piece.len() == len {
                return Ok(apart(piece, &chunk));
            }
            content.extend_from_slice(&piece);
        }
        Ok(content.freeze())
    }

    /// The same when the chunk is in memory.
    pub fn try_read(&self, path: &str, tag: &str, offset: u64, len: usize) -> Option<Bytes> {
        let number = offset / CHUNK_BYTES;
        let from = (offset - number * CHUNK_BYTES) as usize;
        let chunk = self.memory.lock().get(ChunkId::of(path, tag, number))?;
        (from + len <= chunk.len()).then(|| apart(chunk.slice(from..from + len), &chunk))
    }

    async fn chunk(&self, source: &impl Source, path: &str, tag: &str, number: u64, file_len: u64) -> Result<Bytes> {
        let id = ChunkId::of(path, tag, number);
        if let Some(bytes) = self.memory.lock().get(id) {
            source.count(true);
            return Ok(bytes);
        }
        let wanted = Chunk::of(path, tag, number, file_len);
        let fetch = {
            let mut fetching = self.fetching.lock();
            match fetching.get(&id) {
                Some(fetch) => fetch.clone(),
                None => {
                    let (done, outcome) = tokio::sync::oneshot::channel();
                    let work = fetch(source.clone(), self.disk.clone(), self.env.clone(), wanted.clone());
                    let list = Arc::clone(&self.fetching);
                    // A task of its own: whoever asked first may stop waiting.
                    self.env.spawn("remote chunk", async move {
                        let fetched = work.await;
                        list.lock().remove(&id);
                        let _ = done.send(fetched);
                    });
                    let gone = StorageError::Io {
                        path: wanted.path.clone(),
                        operation: "read",
                        message: "the runtime is shutting down".to_owned(),
                    };
                    let fetch = async move { outcome.await.unwrap_or(Err(gone)) }.boxed().shared();
                    fetching.insert(id, fetch.clone());
                    fetch
                }
            }
        };
        let bytes = fetch.await?;
        self.memory.lock().insert(id, bytes.clone());
        Ok(bytes)
    }
}

/// A piece of a chunk in memory of its own, unless it is most of it: as a slice it would keep the whole chunk for as long as
/// somebody has it, who counts the piece alone (a value on its way to a reader, what a cursor has read ahead). To copy it
/// costs microseconds.
fn apart(piece: Bytes, chunk: &Bytes) -> Bytes {
    match piece.len() > chunk.len() / 2 {
        true => piece,
        false => Bytes::copy_from_slice(&piece),
    }
}

/// From the disk, or else from the medium and onto the disk.
async fn fetch(source: impl Source, disk: Option<Arc<Disk>>, env: Env, wanted: Chunk) -> Result<Bytes> {
    if let Some(disk) = disk.clone().filter(|disk| disk.index.lock().touch(wanted.id)) {
        let from_disk = wanted.clone();
        if let Some(content) = blocking(&env, move || disk.read(&from_disk)).await? {
            source.count(true);
            return Ok(content);
        }
    }
    source.count(false);
    let content = source.fetch(&wanted.path, wanted.start, wanted.len).await?;
    if let Some(disk) = disk {
        let kept = content.clone();
        // The reader has what it wanted; whether it can be kept is no business of its.
        blocking(&env, move || disk.write(&wanted, &kept)).await?;
    }
    Ok(content)
}

impl Disk {
    fn open(options: CacheOptions) -> Result<Disk> {
        let failed = |operation: &'static str, error: std::io::Error| StorageError::Io {
            path: options.dir.display().to_string(),
            operation,
            message: error.to_string(),
        };
        std::fs::create_dir_all(&options.dir).map_err(|e| failed("making the cache folder", e))?;
        let mut index = Index::default();
        for entry in std::fs::read_dir(&options.dir).map_err(|e| failed("listing the cache folder", e))? {
            let entry = entry.map_err(|e| failed("listing the cache folder", e))?;
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(ChunkId::parse) else {
                continue;
            };
            let len = entry
                .metadata()
                .map_err(|e| failed("listing the cache folder", e))?
                .len();
            index.insert(id, len);
        }
        let disk = Disk {
            bytes_max: options.bytes,
            dir: options.dir,
            index: Mutex::new(index),
        };
        disk.make_room();
        Ok(disk)
    }

    fn path(&self, id: ChunkId) -> PathBuf {
        self.dir.join(id.file_name())
    }

    fn read(&self, wanted: &Chunk) -> Option<Bytes> {
        let path = self.path(wanted.id);
        let file = std::fs::read(&path).ok().map(Bytes::from);
        let content = file.and_then(|file| wanted.decode(&file));
        if content.is_none() {
            self.index.lock().remove(wanted.id);
            discard(&path);
        }
        content
    }

    fn write(&self, wanted: &Chunk, content: &Bytes) {
        let file = wanted.encode(content);
        let path = self.path(wanted.id);
        // Not atomic and not synced: the checksum finds what became of it.
        match std::fs::write(&path, &file) {
            Ok(()) => {
                self.index.lock().insert(wanted.id, file.len() as u64);
                self.make_room();
            }
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "a chunk could not be kept");
                self.index.lock().remove(wanted.id);
                discard(&path);
            }
        }
    }

    fn make_room(&self) {
        let gone = self.index.lock().evict(self.bytes_max);
        gone.iter().for_each(|id| discard(&self.path(*id)));
    }
}

/// Removes a chunk's file, if it is there. One that stays is found by the next process.
fn discard(path: &Path) {
    let _ = std::fs::remove_file(path);
}

async fn blocking<T: Send + 'static>(env: &Env, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    env.blocking(work).await.map_err(|_| StorageError::Io {
        path: "cache".to_owned(),
        operation: "cache",
        message: "the runtime is shutting down".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_vanish_again_and_again_are_forgotten() {
        let chunks: Vec<ChunkId> = (0..10).map(|number| ChunkId::of("path", "tag", number)).collect();
        let mut index = Index::default();
        for _ in 0..1000 {
            for id in &chunks {
                index.insert(*id, 1);
                index.remove(*id);
                index.insert(*id, 1);
            }
        }
        assert_eq!((index.files.len(), index.bytes), (10, 10));
        assert!(index.order.len() <= 2 * 10 + FORGOTTEN_MAX, "{}", index.order.len());
        let mut gone = index.evict(0);
        gone.sort_unstable();
        assert_eq!(gone, chunks);
    }
}
