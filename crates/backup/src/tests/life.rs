//! The archiver of one life of a server of a cluster.

use super::cluster::archive_at;
use super::node::{archive_place, try_start_archiving};
use crate::archive::{ArchiveMetrics, ArchiveSettings, Archiver, Chain, Life, LifeOf, Notes};
use crate::error::Result;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stele_env::metrics::Metrics;
use stele_storage::memory::MemoryStorage;
use stele_storage::{Storage, StorageError};

/// Counts the chains that it begins.
#[derive(Default)]
struct Counted {
    noted: Mutex<i64>,
    chains: AtomicU64,
}

#[async_trait]
impl Notes for Counted {
    async fn noted_moment(&self) -> Result<i64> {
        Ok(*self.noted.lock())
    }

    async fn note_moment(&self, micros: i64) -> Result<()> {
        let mut noted = self.noted.lock();
        *noted = micros.max(*noted);
        Ok(())
    }

    async fn begin_chain(&self) -> Result<Chain> {
        self.chains.fetch_add(1, Ordering::Relaxed);
        Ok([9; 16])
    }
}

/// A place whose first put of a part fails, before or after it takes effect.
struct FirstPart {
    inner: Arc<MemoryStorage>,
    takes_effect: bool,
    fails: AtomicBool,
}

#[async_trait]
impl stele_storage::Layer for FirstPart {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> stele_storage::Result<()> {
        let fails = path.contains("part") && self.fails.swap(false, Ordering::Relaxed);
        if !fails || self.takes_effect {
            self.inner.put_if_absent(path, content).await?;
        }
        match fails {
            true => Err(StorageError::Io {
                path: path.to_owned(),
                operation: "put",
                message: "planted".to_owned(),
            }),
            false => Ok(()),
        }
    }
}

/// A gap would keep the whole cluster from being restored to any moment until its next backup.
#[tokio::test]
async fn a_first_part_that_fails_is_tried_again_and_leaves_no_gap() {
    for takes_effect in [false, true] {
        let [data, backups, other]: [Arc<dyn Storage>; 3] = std::array::from_fn(|_| MemoryStorage::new() as _);
        let node = try_start_archiving(&data, &backups, Some((&other, 1 << 30)))
            .await
            .unwrap();
        let place = Arc::new(FirstPart {
            inner: MemoryStorage::new(),
            takes_effect,
            fails: AtomicBool::new(true),
        });
        let archive = archive_at(place.clone());
        let life = Life {
            server: 3,
            from_micros: node.clock.now(),
            ended_micros: 0,
            gaps: 0,
        };
        let notes = Arc::new(Counted::default());
        let of = LifeOf {
            root: [7; 16],
            life,
            notes: notes.clone(),
        };
        let settings = ArchiveSettings {
            place: archive_place(),
            interval: Duration::from_secs(1),
            waiting_bytes_max: 1 << 30,
        };
        let log = node.server.archived_log().unwrap();
        let metrics = ArchiveMetrics::new(&Metrics::new());
        let archiver = Archiver::of_life(node.env.clone(), log, of, (&archive, settings), metrics);
        node.make_table("t").await;
        assert!(archiver.round().await.is_err(), "the first part fails");
        assert!(!place.fails.load(Ordering::Relaxed));
        archiver.round().await.unwrap();
        assert_eq!(notes.chains.load(Ordering::Relaxed), 0, "no log was let go");
        let written = archive.server(3).open(false).await.unwrap();
        let ranges = written.ranges().await.unwrap();
        assert_eq!(ranges.len(), 1);
        assert_eq!(ranges[0].from_micros, life.from_micros);
    }
}
