//! Caches chunks of remote files on the local disk.
//!
//! Terms: an *object* is an immutable remote file under a path, with a *tag* that distinguishes it from another object
//! that had the path. A *source* reads it.
//!
//! Objects are read in aligned *chunks* of [`CHUNK_BYTES`]: neighbouring blocks come with one request, and concurrent
//! readers of a chunk share the request. A few chunks stay in memory, which is the whole cache if there is no folder.
//! With a folder, every chunk becomes a file of it, up to a number of bytes. Beyond that, or when the disk is full, the
//! oldest chunk is evicted unless it was read since it was last at the front (second chance). A read of several chunks
//! in one request (a compaction reading ahead) bypasses the cache. A sequential reader finds the next chunks in memory
//! ([`memory`]).
//!
//! A chunk's file has a checksum over its content and its origin (range and object), and an invalid file is dropped.
//! The folder may therefore lose anything at any time, and nothing in it is ever synced. Chunks of a former process are
//! found by their names.
//!
//! A folder that hangs delays readers by a limited time, and takes a limited number of threads. Then the source is read
//! instead, and chunks are not kept.
#![allow(
    clippy::disallowed_methods,
    reason = "a cache that may vanish needs no promise of the storage seam; sees the file system through Env::blocking"
)]

pub mod chunk;
mod disk;
mod memory;

pub use chunk::HEADER_BYTES;

use crate::{Result, StorageError};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use chunk::{Chunk, ChunkId};
use disk::Disk;
use futures::future::{BoxFuture, FutureExt, Shared, try_join_all};
use memory::{Ahead, Memory};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
pub use stele_memory::bounds::CHUNK_BYTES;
use stele_memory::bounds::{CHUNKS_AHEAD, CHUNKS_KEPT};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Chunks being fetched ahead of any reader.
const AHEAD_CONCURRENT: usize = (CHUNKS_AHEAD.of(0) / CHUNK_BYTES) as usize;
/// Chunks being written to the folder after their readers were served.
const KEEPING_CONCURRENT: usize = (CHUNKS_KEPT.of(0) / CHUNK_BYTES) as usize;
/// Chunks being read from the folder. A read that hangs has a thread until the folder answers.
const READING_CONCURRENT: usize = 64;
/// Longest wait for a chunk of the folder. A disk takes milliseconds, and a busy one some tenths of a second.
const READING_LIMIT: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 3_000 });
/// Time for which a folder is not read after that.
const AVOIDED: Duration = Duration::from_secs(10);
/// Reads of at least this many bytes bypass the cache.
const DIRECT_BYTES: usize = 1 << 20;

/// Folder and size of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// A folder of this process's own; created when missing.
    pub dir: PathBuf,
    /// Most bytes of files in it.
    pub bytes: u64,
}

/// Reads from the remote storage the bytes that are not cached.
#[async_trait]
pub trait Source: Clone + Send + Sync + 'static {
    /// Exactly these bytes of an object.
    async fn fetch(&self, path: &str, offset: u64, len: usize) -> Result<Bytes>;

    /// Counts a requested chunk as cached or not.
    fn count(&self, found: bool);
}

/// An immutable file.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    /// Its path.
    pub path: &'a str,
    /// Distinguishes it from other objects that have had the path.
    pub tag: &'a str,
    /// Its bytes.
    pub len: u64,
}

impl Object<'_> {
    fn chunk(self, number: u64) -> ChunkId {
        ChunkId::of(self.path, self.tag, number)
    }
}

type Fetch = Shared<BoxFuture<'static, Result<Bytes>>>;

/// The cache of one owner.
pub struct ChunkCache {
    env: Env,
    memory: Arc<Mutex<Memory>>,
    /// Chunks being fetched, or being written to the folder.
    fetching: Arc<Mutex<HashMap<ChunkId, Fetch>>>,
    ahead: Arc<Semaphore>,
    keeping: Arc<Semaphore>,
    folder: Option<Folder>,
}

impl ChunkCache {
    /// Opens the folder, if there is one, with the chunks of an earlier process.
    pub async fn open(options: Option<CacheOptions>, env: Env) -> Result<ChunkCache> {
        let disk = match options.filter(|options| options.bytes > 0) {
            None => None,
            Some(options) => Some(Arc::new(blocking(&env, move || Disk::open(options)).await??)),
        };
        Ok(ChunkCache {
            env,
            memory: Arc::default(),
            fetching: Arc::default(),
            ahead: Arc::new(Semaphore::new(AHEAD_CONCURRENT)),
            keeping: Arc::new(Semaphore::new(KEEPING_CONCURRENT)),
            folder: disk.map(Folder::of),
        })
    }

    /// Reads bytes of an object, within which they must lie.
    pub async fn read(&self, source: &impl Source, object: Object<'_>, offset: u64, len: usize) -> Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        if len >= DIRECT_BYTES {
            return source.fetch(object.path, offset, len).await;
        }
        let end = offset + len as u64;
        debug_assert!(end <= object.len, "a read lies within the object");
        let numbers = offset / CHUNK_BYTES..=(end - 1) / CHUNK_BYTES;
        // Decided by earlier reads: a large value lies in several chunks, and most of its readers need nothing after
        // it.
        let reads_on = self.was_read_to(object, offset);
        // Missing chunks are requested concurrently: three at most, which together take as long as one.
        let chunks = numbers.clone().map(|number| {
            let wanted = (end - number * CHUNK_BYTES).min(CHUNK_BYTES) as usize;
            self.chunk(source, object, number, wanted, reads_on)
        });
        let chunks = try_join_all(chunks).await?;
        let mut content = BytesMut::new();
        for (number, chunk) in numbers.zip(chunks) {
            let start = number * CHUNK_BYTES;
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
    pub fn try_read(&self, source: &impl Source, object: Object<'_>, offset: u64, len: usize) -> Option<Bytes> {
        let number = offset / CHUNK_BYTES;
        let from = (offset - number * CHUNK_BYTES) as usize;
        if from + len > CHUNK_BYTES as usize {
            return None;
        }
        let (chunk, ahead) = self.memory.lock().read(object.chunk(number), from + len)?;
        if let Some(ahead) = ahead {
            self.fetch_ahead(source, object, &ahead);
        }
        (from + len <= chunk.len()).then(|| apart(chunk.slice(from..from + len), &chunk))
    }

    /// The chunk in memory that contains an offset, and its beginning. This does not count as a use.
    pub fn around(&self, object: Object<'_>, offset: u64) -> Option<(u64, Bytes)> {
        let number = offset / CHUNK_BYTES;
        let chunk = self.memory.lock().peek(object.chunk(number))?;
        Some((number * CHUNK_BYTES, chunk))
    }

    /// Whether some read ended at `offset` in its chunk, or read the previous chunk to its end.
    fn was_read_to(&self, object: Object<'_>, offset: u64) -> bool {
        let (number, within) = (offset / CHUNK_BYTES, (offset % CHUNK_BYTES) as usize);
        let memory = self.memory.lock();
        let was_read_whole = |before: u64| memory.was_read_to(object.chunk(before), CHUNK_BYTES as usize);
        within > 0 && memory.was_read_to(object.chunk(number), within)
            || number.checked_sub(1).is_some_and(was_read_whole)
    }

    /// A chunk, for a reader of its bytes up to `end`.
    async fn chunk(
        &self,
        source: &impl Source,
        object: Object<'_>,
        number: u64,
        end: usize,
        reads_on: bool,
    ) -> Result<Bytes> {
        let id = object.chunk(number);
        let found = self.memory.lock().read(id, end);
        if let Some((bytes, ahead)) = found {
            source.count(true);
            if let Some(ahead) = ahead {
                self.fetch_ahead(source, object, &ahead);
            }
            return Ok(bytes);
        }
        let known = self.fetching.lock().get(&id).cloned();
        // This fetch comes before the ones ahead. A reader that waits for a chunk fetched ahead takes its mark after
        // the wait.
        let fetch = match known {
            Some(fetch) => fetch,
            None => {
                let fetch = self.fetch(source, object, number, None);
                if reads_on {
                    self.fetch_ahead(source, object, &Ahead::after(number));
                }
                fetch
            }
        };
        let bytes = fetch.await?;
        let mark = self.memory.lock().read(id, end).and_then(|(_, mark)| mark);
        if let Some(ahead) = mark {
            self.fetch_ahead(source, object, &ahead);
        }
        Ok(bytes)
    }

    /// Starts to fetch chunks, as far as the object extends and the limits allow. Nothing waits for them, and an error
    /// shows when they are read.
    fn fetch_ahead(&self, source: &impl Source, object: Object<'_>, ahead: &Ahead) {
        let space = self.memory.lock().readahead_space().min(ahead.0.clone().count());
        let chunks = ahead.0.clone().take_while(|number| number * CHUNK_BYTES < object.len);
        for number in chunks.take(space) {
            let id = object.chunk(number);
            let there = self.memory.lock().has(id);
            if there || self.fetching.lock().contains_key(&id) {
                continue;
            }
            let Ok(permit) = Arc::clone(&self.ahead).try_acquire_owned() else {
                return;
            };
            let mark = (number == ahead.0.start).then(|| ahead.next());
            drop(self.fetch(source, object, number, Some((permit, mark))));
        }
    }

    /// Starts to fetch a chunk into memory, unless a fetch is under way: for a waiting reader, or ahead.
    fn fetch(
        &self,
        source: &impl Source,
        object: Object<'_>,
        number: u64,
        ahead: Option<(OwnedSemaphorePermit, Option<Ahead>)>,
    ) -> Fetch {
        let id = object.chunk(number);
        let mut fetching = self.fetching.lock();
        if let Some(fetch) = fetching.get(&id) {
            return fetch.clone();
        }
        let wanted = Chunk::of(object.path, object.tag, number, object.len);
        let (done, outcome) = oneshot::channel();
        let gone = StorageError::Io {
            path: wanted.path.clone(),
            operation: "read",
            message: "the runtime is shutting down".to_owned(),
        };
        let work = fetch(source.clone(), self.folder.clone(), self.env.clone(), wanted.clone());
        let (folder, env, keeping) = (self.folder.clone(), self.env.clone(), Arc::clone(&self.keeping));
        let (list, memory) = (Arc::clone(&self.fetching), Arc::clone(&self.memory));
        // A task of its own, because the first reader may stop waiting.
        self.env.spawn("remote chunk", async move {
            let (fetched, is_new) = match work.await {
                Ok((bytes, is_new)) => (Ok(bytes), is_new),
                Err(error) => (Err(error), false),
            };
            // Where the folder is slower than the source, some chunks are not kept: no reader waits for it.
            let keep = fetched.as_ref().ok().cloned().zip(folder.filter(|_| is_new));
            let keep = keep.and_then(|keep| Some((keep, keeping.try_acquire_owned().ok()?)));
            let unread = ahead.is_some();
            let mark = ahead.and_then(|(_permit, mark)| mark);
            if let Ok(bytes) = &fetched {
                memory.lock().insert(id, bytes.clone(), unread, mark);
            }
            let Some(((content, folder), _keeping)) = keep else {
                list.lock().remove(&id);
                let _ = done.send(fetched);
                return;
            };
            let _ = done.send(fetched);
            // A failed write to the folder does not concern the reader. The chunk stays in the list until then, so that
            // its file has one writer.
            let _ = blocking(&env, move || folder.disk.write(&wanted, &content)).await;
            list.lock().remove(&id);
        });
        let fetch = async move { outcome.await.unwrap_or(Err(gone)) }.boxed().shared();
        fetching.insert(id, fetch.clone());
        fetch
    }
}

/// A piece of a chunk in memory of its own, unless it is most of the chunk. A slice would retain the whole chunk as
/// long as its reader, which accounts for the piece alone. Examples are a value on its way to a client and a cursor's
/// read-ahead. The copy costs microseconds.
fn apart(piece: Bytes, chunk: &Bytes) -> Bytes {
    if piece.len() > chunk.len() / 2 {
        piece
    } else {
        Bytes::copy_from_slice(&piece)
    }
}

/// Reads from the folder, or else from the source. The flag is true for a chunk that is to be kept in the folder.
async fn fetch(source: impl Source, folder: Option<Folder>, env: Env, wanted: Chunk) -> Result<(Bytes, bool)> {
    let mut is_new = true;
    if let Some(folder) = folder.filter(|folder| folder.disk.touch(wanted.id)) {
        match folder.read(&env, &wanted).await? {
            InFolder::Content(content) => {
                source.count(true);
                return Ok((content, false));
            }
            InFolder::Nothing => {}
            // Its file may still be there, and be in use.
            InFolder::NoAnswer => is_new = false,
        }
    }
    source.count(false);
    let content = source.fetch(&wanted.path, wanted.start, wanted.len).await?;
    Ok((content, is_new))
}

/// The folder, and the care for one that hangs.
#[derive(Clone)]
struct Folder {
    disk: Arc<Disk>,
    reading: Arc<Semaphore>,
    /// It is not read before.
    avoided_until: Arc<Mutex<Duration>>,
}

/// The outcome of a read from the folder.
enum InFolder {
    Content(Bytes),
    Nothing,
    NoAnswer,
}

impl Folder {
    fn of(disk: Arc<Disk>) -> Folder {
        Folder {
            disk,
            reading: Arc::new(Semaphore::new(READING_CONCURRENT)),
            avoided_until: Arc::default(),
        }
    }

    async fn read(&self, env: &Env, wanted: &Chunk) -> Result<InFolder> {
        if env.now() < *self.avoided_until.lock() {
            return Ok(InFolder::NoAnswer);
        }
        let (disk, wanted) = (self.disk.clone(), wanted.clone());
        let read = async {
            let permit = Arc::clone(&self.reading).acquire_owned().await;
            // With the closure, which may outlive this wait.
            blocking(env, move || {
                let _permit = permit;
                disk.read(&wanted)
            })
            .await
        };
        match env.timeout(READING_LIMIT, read).await {
            Ok(read) => Ok(read?.map_or(InFolder::Nothing, InFolder::Content)),
            Err(_) => {
                let mut until = self.avoided_until.lock();
                if *until <= env.now() {
                    tracing::warn!("the cache folder does not answer; it is not read for {AVOIDED:?}");
                }
                *until = env.now() + AVOIDED;
                Ok(InFolder::NoAnswer)
            }
        }
    }
}

async fn blocking<T: Send + 'static>(env: &Env, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    env.blocking(work).await.map_err(|_| StorageError::Io {
        path: "cache".to_owned(),
        operation: "cache",
        message: "the runtime is shutting down".to_owned(),
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
    use stele_env::tokio_env::TokioRuntime;

    #[derive(Clone)]
    struct Sevens;

    #[async_trait]
    impl Source for Sevens {
        async fn fetch(&self, _: &str, _: u64, len: usize) -> Result<Bytes> {
            Ok(Bytes::from(vec![7; len]))
        }

        fn count(&self, _: bool) {}
    }

    const OBJECT: Object<'static> = Object {
        path: "sst/1.sst",
        tag: "tag",
        len: 20 * CHUNK_BYTES,
    };

    async fn open(folder: &tempfile::TempDir, env: &Env) -> ChunkCache {
        let options = CacheOptions {
            dir: folder.path().to_owned(),
            bytes: 64 << 20,
        };
        let opened = ChunkCache::open(Some(options), env.clone()).await;
        opened.expect("the folder is there")
    }

    /// Pipes in place of the files of the first chunks simulate a disk that accepts nothing: opening one blocks until its other
    /// end is opened, too.
    fn pipes(folder: &tempfile::TempDir, number: u64) -> Vec<PathBuf> {
        let pipe = |chunk| {
            let pipe = folder.path().join(OBJECT.chunk(chunk).file_name());
            mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
            pipe
        };
        (0..number).map(pipe).collect()
    }

    async fn is_read(cache: &ChunkCache, env: &Env, chunk: u64) -> bool {
        let read = cache.read(&Sevens, OBJECT, chunk * CHUNK_BYTES + 10, 5);
        match env.timeout(Duration::from_secs(5), read).await {
            Ok(read) => read.is_ok_and(|read| read == Bytes::from_static(&[7; 5])),
            Err(_) => false,
        }
    }

    #[tokio::test]
    async fn who_reads_does_not_wait_for_writes_to_the_folder() {
        let (folder, env) = (tempfile::TempDir::new().unwrap(), TokioRuntime::current());
        let cache = open(&folder, &env).await;
        let pipes = pipes(&folder, KEEPING_CONCURRENT as u64);
        let mut read = Vec::new();
        for chunk in 0..KEEPING_CONCURRENT as u64 + 2 {
            read.push(is_read(&cache, &env, chunk).await);
        }
        // Lets the writers continue, because the end of the test would wait for them.
        for pipe in pipes {
            let kept = env.blocking(move || std::fs::read(pipe).unwrap()).await;
            assert_eq!(
                kept.map(|file| file.len()).ok(),
                Some(HEADER_BYTES + CHUNK_BYTES as usize)
            );
        }
        assert_eq!(read, [true; KEEPING_CONCURRENT + 2], "the folder was waited for");
    }

    #[tokio::test]
    async fn who_reads_does_not_wait_long_for_reads_of_the_folder() {
        let (folder, env) = (tempfile::TempDir::new().unwrap(), TokioRuntime::current());
        let pipes = pipes(&folder, 3);
        let cache = open(&folder, &env).await;
        let mut read = Vec::new();
        for chunk in 0..3 {
            read.push(is_read(&cache, &env, chunk).await);
        }
        let free = cache.folder.as_ref().unwrap().reading.available_permits();
        // Lets the readers continue, because the end of the test would wait for them. Only the first one has begun.
        let let_go = |pipe: &PathBuf| rustix::fs::open(pipe, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).is_ok();
        let begun: Vec<bool> = pipes.iter().map(let_go).collect();
        assert_eq!((read, begun), (vec![true; 3], vec![true, false, false]));
        assert_eq!(free, READING_CONCURRENT - 1);
    }
}
