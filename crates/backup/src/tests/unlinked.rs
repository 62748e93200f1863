//! Folders that fail to make the name of a new file durable.
//!
//! The same happens where the process ends before that. All find the file until power is lost. So it is made durable before anything is
//! deleted because of it.

use super::cluster;
use super::node::*;
use crate::archive::format;
use crate::destination::Destination;
use crate::format::Entry;
use crate::paths;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_env::tokio_env::TokioRuntime;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_storage::memory::MemoryStorage;
use stele_storage::{Result, Storage};

/// Power loss takes each name that is not durable or leaves it, as likely as not.
const ROUNDS: u64 = 16;

/// A folder that does so on demand, once, below some path.
struct Folder {
    device: Arc<FaultyStorage>,
    below: &'static str,
    fails: AtomicBool,
}

impl Folder {
    fn new(below: &'static str) -> Arc<Folder> {
        Arc::new(Folder {
            device: FaultyStorage::new(TokioRuntime::current()),
            below,
            fails: AtomicBool::new(false),
        })
    }

    fn fail_once(&self) {
        self.fails.store(true, Ordering::Relaxed);
    }

    fn has_failed(&self) -> bool {
        !self.fails.load(Ordering::Relaxed)
    }

    /// The numbers of the parts that are left when power has been lost.
    async fn parts_after_crash(&self) -> Vec<u64> {
        self.device.crash();
        let listed = self.device.reopen().list(format::PARTS).await.unwrap();
        listed
            .iter()
            .filter_map(|file| format::parse_part(&file.path))
            .collect()
    }
}

#[async_trait::async_trait]
impl stele_storage::Layer for Folder {
    fn below(&self) -> &dyn Storage {
        &*self.device
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        let fails = path.starts_with(self.below) && self.fails.swap(false, Ordering::Relaxed);
        self.device.set_plan(FaultPlan {
            put_unlinked: f64::from(u8::from(fails)),
            ..FaultPlan::default()
        });
        let put = self.device.put_if_absent(path, content).await;
        assert!(put.is_err() || !fails, "{path}");
        put
    }
}

async fn node(root: &Arc<dyn Storage>, folder: &Arc<Folder>) -> Node {
    let nowhere: Arc<dyn Storage> = MemoryStorage::new();
    let archive: Arc<dyn Storage> = folder.clone();
    let started = try_start_archiving(root, &nowhere, Some((&archive, 1 << 30))).await;
    started.unwrap()
}

#[tokio::test]
async fn a_part_that_a_repeated_round_finds_survives_power_loss() {
    let root: Arc<dyn Storage> = MemoryStorage::new();
    let folder = Folder::new(format::PARTS);
    let node = node(&root, &folder).await;
    node.make_table("t").await;
    node.archive().await;
    for n in 0..ROUNDS {
        node.write("t", 0..1, n as i64).await;
        folder.fail_once();
        assert!(node.archiver.as_ref().unwrap().round().await.is_err());
        node.archive().await;
    }
    let expected: Vec<u64> = (1..=ROUNDS + 1).collect();
    assert_eq!(folder.parts_after_crash().await, expected);
}

#[tokio::test]
async fn a_part_of_a_server_that_ended_survives_power_loss_when_the_next_one_goes_on() {
    let root: Arc<dyn Storage> = MemoryStorage::new();
    let folder = Folder::new(format::PARTS);
    let first = node(&root, &folder).await;
    first.make_table("t").await;
    first.archive().await;
    first.stop().await;
    for n in 0..ROUNDS {
        let dying = node(&root, &folder).await;
        dying.write("t", 0..1, n as i64).await;
        folder.fail_once();
        assert!(dying.archiver.as_ref().unwrap().round().await.is_err());
        dying.server.shut_down().await;
        let next = node(&root, &folder).await;
        next.archive().await;
        next.stop().await;
    }
    let parts = folder.parts_after_crash().await;
    let last = *parts.last().unwrap();
    assert!(last > ROUNDS, "{parts:?}");
    assert_eq!(parts, (1..=last).collect::<Vec<u64>>());
}

#[tokio::test]
async fn the_last_part_of_a_log_survives_power_loss_when_the_log_is_deleted() {
    for server in 0..ROUNDS as u32 {
        let folder = Folder::new(format::PARTS);
        let archive = cluster::archive_at(folder.clone());
        let life = cluster::life(5 + server, 1);
        let log = cluster::log(life.server, &[(10, 7, 1)]).await;
        folder.fail_once();
        let mut failed = 0;
        while cluster::end(&archive, life, &log).await.is_err() {
            failed += 1;
        }
        assert!(failed == 1 && folder.has_failed());
        // One for the begin, one for the log, and the last one.
        let before = folder.device.list(format::PARTS).await.unwrap().len() as u64;
        assert_eq!(folder.parts_after_crash().await, (1..=before).collect::<Vec<u64>>());
    }
}

#[tokio::test]
async fn a_state_that_a_repeated_change_finds_survives_power_loss() {
    for _ in 0..ROUNDS {
        let folder = Folder::new(paths::STATES);
        let destination = Destination::open(folder.clone(), true).await.unwrap();
        folder.fail_once();
        let change = destination.change(|state| {
            if state.backups.is_empty() {
                let id = 7;
                state.backups.push(Entry { id, ..Entry::default() });
            }
            Ok(())
        });
        change.await.unwrap();
        assert!(folder.has_failed());
        folder.device.crash();
        let reopened = Destination::open(folder.device.reopen(), false).await.unwrap();
        assert_eq!(reopened.state().await.unwrap().backups.len(), 1);
    }
}
