//! The cache of [`stele_storage::remote::cache`] over a store in memory.
#![allow(clippy::disallowed_methods, reason = "looks into the folder from outside")]

use super::env;
use crate::store::Store;
use crate::{CacheOptions, ObjectMetrics, ObjectStorage};
use object_store::memory::InMemory;
use std::path::PathBuf;
use std::sync::Arc;
use stele_env::Env;
use stele_storage::Storage;
use stele_storage::remote::cache::{CHUNK_BYTES, HEADER_BYTES};
use tempfile::TempDir;

const CHUNK: usize = CHUNK_BYTES as usize;

/// A file of so many chunks, each of bytes of its own, in a store of its own.
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

/// Reads the middle of each chunk; how many requests that took.
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
    // One chunk's file in the place of another's.
    std::fs::copy(&files[0].0, &files[3].0).unwrap();
    assert_eq!(read_chunks(&bench.open().await, 0..4).await, 4);
    assert_eq!(read_chunks(&bench.open().await, 0..4).await, 0, "and is whole then");
}

#[tokio::test(start_paused = true)]
async fn the_folder_is_bounded_and_keeps_what_is_read_again() {
    let bench = Bench::new(12, 4 * (CHUNK_BYTES + HEADER_BYTES as u64)).await;
    read_chunks(&bench.open().await, 0..4).await;
    // The memory of this process is empty, so its reads are seen by the folder.
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
