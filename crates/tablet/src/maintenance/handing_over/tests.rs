use crate::error::TabletError;
use crate::files::{FileRegistry, Ownership};
use crate::manifest::Manifest;
use crate::metrics::TabletMetrics;
use crate::tablet::{Tablet, TabletContext};
use crate::tests::{put, read, schema, write};
use std::sync::Arc;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_memtable::MemoryAccount;
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::{DeleteRule, Epoch, SeqNo, TabletId};

fn context(storage: &Arc<dyn Storage>, server: u32) -> TabletContext {
    let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), server).with_ownership(Ownership::Shared);
    TabletContext {
        env: TokioRuntime::current(),
        storage: storage.clone(),
        files: Arc::new(files),
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(&Metrics::new()),
        tokens: crate::TokenMemory::default(),
    }
}

async fn open(context: &TabletContext, epoch: u32) -> crate::Result<Arc<Tablet>> {
    let schema = schema(DeleteRule::BySequence, None);
    Tablet::open(context.clone(), schema, TabletId(1), Epoch(epoch)).await
}

async fn hand_over(tablet: &Tablet) {
    let stopped = tablet.stop_compactions().await;
    tablet.hand_over(&stopped).await.unwrap();
}

/// Server 2 began later than server 1. Epochs belong to assignments, so the tablet comes back nevertheless.
#[tokio::test]
async fn a_tablet_moves_to_an_older_server_and_back() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let (older, younger) = (context(&storage, 1), context(&storage, 2));
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 3,
        ..Manifest::default()
    };
    let first = Tablet::create(younger.clone(), schema(DeleteRule::BySequence, None), manifest)
        .await
        .unwrap();
    write(&first, vec![put(1, "a")]);
    hand_over(&first).await;
    assert!(first.check_open().is_err());
    let second = open(&older, 4).await.unwrap();
    write(&second, vec![put(2, "b")]);
    hand_over(&second).await;
    let third = open(&younger, 7).await.unwrap();
    assert_eq!(read(&third).await, "2=b 1=a");
    assert_eq!(third.next_sequence(), SeqNo::new(Epoch(7), 1));
    for used in [4, 7] {
        let refused = open(&older, used).await.err().expect("an epoch is given once");
        assert!(matches!(refused, TabletError::Fenced { .. }), "{refused}");
    }
    drop(second);
    let held = older.files.in_use().held;
    assert!(held.is_empty(), "a tablet that was handed over holds no file: {held:?}");
}

/// A refused record may be in the log, without a later header that excludes it.
#[tokio::test]
async fn numbers_of_refused_writes_are_settled() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let (one, two) = (context(&storage, 1), context(&storage, 2));
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    let tablet = Tablet::create(one.clone(), schema(DeleteRule::BySequence, None), manifest)
        .await
        .unwrap();
    write(&tablet, vec![put(1, "a")]);
    let refused = tablet.sequence(3, |first| first).unwrap();
    hand_over(&tablet).await;
    assert_eq!(tablet.flushed_through(), refused.plus(2));
    let next = open(&two, 2).await.unwrap();
    assert_eq!(next.flushed_through(), refused.plus(2), "a replay skips it");
}

/// Another owner has claimed the tablet: the hand-over must not say that everything is in its files.
#[tokio::test]
async fn an_owner_that_was_replaced_hands_nothing_over() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let (one, two) = (context(&storage, 1), context(&storage, 2));
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    let tablet = Tablet::create(one.clone(), schema(DeleteRule::BySequence, None), manifest)
        .await
        .unwrap();
    write(&tablet, vec![put(1, "a")]);
    let _next = open(&two, 2).await.unwrap();
    let stopped = tablet.stop_compactions().await;
    let refused = tablet.hand_over(&stopped).await.unwrap_err();
    assert!(matches!(refused, TabletError::Fenced { .. }), "{refused}");
    assert!(tablet.check_open().is_err(), "and serves it no more");
}
