//! Tests the cache of [`stele_storage::remote::cache`] over a store in memory.
#![allow(clippy::disallowed_methods, reason = "reads the folder from outside")]

use super::env;
use crate::store::Store;
use crate::{CacheOptions, ObjectMetrics, ObjectStorage};
use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_storage::Storage;
use stele_storage::remote::cache::{CHUNK_BYTES, HEADER_BYTES};
use tempfile::TempDir;

const CHUNK: usize = CHUNK_BYTES as usize;
/// Latency of a distant store.
const ANSWER: Duration = Duration::from_secs(1);

/// A file of several chunks, each with bytes of its own, in a store of its own.
struct Bench {
    env: Env,
    client: Arc<InMemory>,
    folder: TempDir,
    bytes: u64,
}

impl Bench {
    async fn new(chunks: usize, bytes: u64) -> Bench {
        let bench = Bench {
            env: env(1),
            client: Arc::default(),
            folder: TempDir::new().unwrap(),
            bytes,
        };
        let content: Vec<u8> = (0..chunks * CHUNK).map(|i| (i / CHUNK) as u8).collect();
        let storage = bench.open().await;
        storage.put_if_absent("sst/1.sst", content.into()).await.unwrap();
        bench
    }

    async fn open(&self) -> Arc<ObjectStorage> {
        let store = Store::new(self.client.clone(), "", self.env.clone(), ObjectMetrics::default());
        let options = CacheOptions {
            dir: self.folder.path().to_owned(),
            bytes: self.bytes,
        };
        ObjectStorage::over(store, self.env.clone(), Some(options))
            .await
            .unwrap()
    }

    fn files(&self) -> Vec<(PathBuf, u64)> {
        let entries = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(std::result::Result::unwrap);
        let mut files: Vec<_> = entries.map(|e| (e.path(), e.metadata().unwrap().len())).collect();
        files.sort();
        files
    }
}

/// Reads the middle of each chunk. Returns the number of requests.
async fn read_chunks(storage: &Arc<ObjectStorage>, chunks: impl Iterator<Item = usize>) -> u64 {
    let before = storage.metrics().gets.get();
    let file = storage.open("sst/1.sst").await.unwrap();
    for chunk in chunks {
        let read = file.read_at((chunk * CHUNK + 1_000) as u64, 100).await.unwrap();
        assert_eq!(read, vec![chunk as u8; 100]);
    }
    storage.metrics().gets.get() - before
}

#[tokio::test(start_paused = true)]
async fn chunks_outlive_the_process() {
    let bench = Bench::new(4, 64 << 20).await;
    assert_eq!(read_chunks(&bench.open().await, (0..4).chain(0..4)).await, 4);
    assert_eq!(bench.files().len(), 4);
    assert_eq!(read_chunks(&bench.open().await, 0..4).await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_chunk_is_in_memory_after_a_read_of_it() {
    let bench = Bench::new(4, 64 << 20).await;
    let file = bench.open().await.open("sst/1.sst").await.unwrap();
    let offset = (CHUNK + 1_000) as u64;
    assert!(file.around(offset).is_none(), "nothing was read yet");
    file.read_at(offset, 100).await.unwrap();
    let (start, bytes) = file.around(offset).unwrap();
    assert_eq!((start, bytes.len()), (CHUNK_BYTES, CHUNK));
    assert!(bytes.iter().all(|byte| *byte == 1), "it is that chunk");
    assert!(file.around(0).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_does_not_check_is_fetched_again() {
    let bench = Bench::new(4, 64 << 20).await;
    read_chunks(&bench.open().await, 0..4).await;
    let files = bench.files();
    let damage = |index: usize, change: &dyn Fn(&mut Vec<u8>)| {
        let (path, _) = &files[index];
        let mut content = std::fs::read(path).unwrap();
        change(&mut content);
        std::fs::write(path, content).unwrap();
    };
    damage(0, &|content| content[HEADER_BYTES + 1_050] ^= 1);
    damage(1, &|content| content.truncate(2_000));
    damage(2, &|content| content.clear());
    // One chunk's file in place of another's.
    std::fs::copy(&files[0].0, &files[3].0).unwrap();
    assert_eq!(read_chunks(&bench.open().await, 0..4).await, 4);
    assert_eq!(read_chunks(&bench.open().await, 0..4).await, 0, "and is whole then");
}

#[tokio::test(start_paused = true)]
async fn the_folder_is_bounded_and_keeps_what_is_read_again() {
    let bench = Bench::new(12, 4 * (CHUNK_BYTES + HEADER_BYTES as u64)).await;
    read_chunks(&bench.open().await, 0..4).await;
    // The memory of this process is empty, so its reads reach the folder.
    let storage = bench.open().await;
    assert_eq!(read_chunks(&storage, [1].into_iter()).await, 0);
    assert_eq!(read_chunks(&storage, 4..7).await, 3);
    assert_eq!(bench.files().len(), 4);
    assert_eq!(
        read_chunks(&bench.open().await, [1].into_iter()).await,
        0,
        "it was in use"
    );
    read_chunks(&bench.open().await, 0..12).await;
    assert!(bench.files().iter().map(|(_, len)| len).sum::<u64>() <= bench.bytes);
}

/// A second server starts with a folder that cannot be created: that server fails, and the first continues.
#[tokio::test(start_paused = true)]
async fn a_folder_that_cannot_be_used_ends_no_owner() {
    let bench = Bench::new(1, 64 << 20).await;
    let owner = bench.open().await;
    let file = bench.folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let store = Store::new(bench.client.clone(), "", bench.env.clone(), ObjectMetrics::default());
    let options = CacheOptions {
        dir: file.join("folder"),
        bytes: bench.bytes,
    };
    let next = ObjectStorage::over(store, bench.env.clone(), Some(options)).await;
    assert!(next.is_err(), "a folder below a file");
    owner.confirm_owner().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_small_read_keeps_no_chunk_in_memory() {
    let bench = Bench::new(1, 64 << 20).await;
    let storage = bench.open().await;
    let file = storage.open("sst/1.sst").await.unwrap();
    let read = file.read_at(1_000, 32 << 10).await.unwrap();
    assert!(read.is_unique(), "a slice of something larger");
    let again = file.try_read_at(1_000, 32 << 10).expect("in memory now").unwrap();
    assert!(again.is_unique(), "a slice of something larger");
    assert_eq!(again, read);
}

/// A store with a latency of one second, by the clock of the tests.
#[derive(Debug)]
struct Slow(Arc<InMemory>, Env);

impl std::fmt::Display for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slow")
    }
}

#[async_trait]
impl ObjectStore for Slow {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.put_opts(location, payload, options).await
    }
    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, opts).await
    }
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.1.sleep(ANSWER).await;
        self.0.get_opts(location, options).await
    }
    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartStore for Slow {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        self.0.create_multipart(path).await
    }
    async fn put_part(&self, path: &Path, id: &MultipartId, index: usize, data: PutPayload) -> Result<PartId> {
        self.0.put_part(path, id, index, data).await
    }
    async fn complete_multipart(&self, path: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
        self.0.complete_multipart(path, id, parts).await
    }
    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.0.abort_multipart(path, id).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_of_several_chunks_takes_as_long_as_one() {
    let bench = Bench::new(3, 64 << 20).await;
    let client = Arc::new(Slow(bench.client.clone(), bench.env.clone()));
    let store = Store::new(client, "", bench.env.clone(), ObjectMetrics::default());
    let storage = ObjectStorage::over(store, bench.env.clone(), None).await.unwrap();
    let file = storage.open("sst/1.sst").await.unwrap();
    let (before, begun) = (storage.metrics().gets.get(), bench.env.now());
    // The end of the first, all of the second, the beginning of the third.
    let read = file.read_at(CHUNK_BYTES - 10, CHUNK + 20).await.unwrap();
    assert_eq!(read, [vec![0; 10], vec![1; CHUNK], vec![2; 10]].concat());
    assert_eq!(storage.metrics().gets.get() - before, 3);
    let took = bench.env.now() - begun;
    assert!(took < 2 * ANSWER, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn who_reads_on_seldom_waits_and_nothing_is_read_twice() {
    const CHUNKS: usize = 16;
    let bench = Bench::new(CHUNKS, 64 << 20).await;
    let client = Arc::new(Slow(bench.client.clone(), bench.env.clone()));
    let store = Store::new(client, "", bench.env.clone(), ObjectMetrics::default());
    let storage = ObjectStorage::over(store, bench.env.clone(), None).await.unwrap();
    let file = storage.open("sst/1.sst").await.unwrap();
    let (before, begun) = (storage.metrics().gets.get(), bench.env.now());
    // Like a cursor: windows end where blocks do.
    let (window, mut at) = (200_000, 0);
    while at < file.len() {
        let len = window.min(file.len() - at);
        let read = match file.try_read_at(at, len as usize) {
            Some(read) => read.unwrap(),
            None => file.read_at(at, len as usize).await.unwrap(),
        };
        for (at, byte) in (at..).zip(&read) {
            assert_eq!(u64::from(*byte), at / CHUNK_BYTES);
        }
        at += len;
    }
    assert_eq!(storage.metrics().gets.get() - before, CHUNKS as u64);
    let took = bench.env.now() - begun;
    // The first, the second with two ahead, and then four by four.
    assert!(took < 7 * ANSWER, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn who_reads_here_and_there_has_nothing_read_ahead() {
    let bench = Bench::new(16, 64 << 20).await;
    let storage = bench.open().await;
    let file = storage.open("sst/1.sst").await.unwrap();
    let before = storage.metrics().gets.get();
    for number in [3, 4, 5, 9, 8, 7] {
        file.read_at(number * CHUNK_BYTES + 1000, 20_000).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(storage.metrics().gets.get() - before, 6);
}

/// They lie across chunks, and a reader of one does not continue after it.
#[tokio::test(start_paused = true)]
async fn who_reads_large_values_here_and_there_has_nothing_read_ahead() {
    let bench = Bench::new(32, 64 << 20).await;
    let storage = bench.open().await;
    let file = storage.open("sst/1.sst").await.unwrap();
    let before = storage.metrics().gets.get();
    let len = CHUNK + 20_000;
    for number in [3, 20, 9, 14] {
        let at = number * CHUNK_BYTES + 1000;
        assert!(file.try_read_at(at, len).is_none());
        assert_eq!(file.read_at(at, len).await.unwrap().len(), len);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(storage.metrics().gets.get() - before, 2 * 4);
}

#[tokio::test(start_paused = true)]
async fn readers_at_the_same_time_share_a_request() {
    let bench = Bench::new(1, 64 << 20).await;
    let storage = bench.open().await;
    let file = storage.open("sst/1.sst").await.unwrap();
    let before = storage.metrics().gets.get();
    let reads = (0..50u64).map(|i| file.read_at(i * 4096, 4096));
    for read in futures::future::join_all(reads).await {
        assert_eq!(read.unwrap(), vec![0; 4096]);
    }
    assert_eq!(storage.metrics().gets.get() - before, 1);
    assert!(file.try_read_at(0, 100).is_some(), "it is in memory now");
    let across = file.try_read_at(CHUNK_BYTES - 1, 2);
    assert!(across.is_some_and(|read| read.is_err()), "past the end");
}
