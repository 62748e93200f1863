//! Changes of the state by several writers.

use crate::destination::Destination;
use crate::format::{Entry, State};
use crate::paths;
use bytes::Bytes;
use futures::StreamExt;
use std::sync::Arc;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;

fn add(id: u64) -> impl FnMut(&mut State) -> crate::Result<()> {
    move |state| {
        if state.backups.iter().all(|entry| entry.id != id) {
            state.backups.push(Entry { id, ..Entry::default() });
        }
        Ok(())
    }
}

#[tokio::test]
async fn concurrent_changes_all_count() {
    let at: Arc<dyn Storage> = MemoryStorage::new();
    let destination = Destination::open(at.clone(), true).await.unwrap();
    let changes = (1..=90).map(|id| destination.change(add(id)));
    let outcomes: Vec<_> = futures::stream::iter(changes).buffer_unordered(8).collect().await;
    assert!(outcomes.iter().all(Result::is_ok));
    let state = destination.state().await.unwrap();
    assert_eq!((state.number, state.backups.len()), (90, 90));
    assert!(
        at.list(paths::STATES).await.unwrap().len() <= 66,
        "old states are deleted"
    );
    let (same, ()) = destination.change(add(5)).await.unwrap();
    assert_eq!(same.number, 90, "what has no effect makes no state");
}

/// The writer had slept since state 0: its place is free again.
#[tokio::test]
async fn a_writer_that_slept_for_long_finds_out() {
    let at: Arc<dyn Storage> = MemoryStorage::new();
    let destination = Destination::open(at.clone(), true).await.unwrap();
    for id in 1..=80 {
        destination.change(add(id)).await.unwrap();
    }
    assert!(at.read_all(&paths::state(1)).await.is_err());
    let sleeper = Destination::open(stale(&at), false).await.unwrap();
    sleeper.change(add(1_000)).await.unwrap();
    let state = destination.state().await.unwrap();
    assert_eq!((state.number, state.backups.len()), (81, 81));
    assert!(
        at.read_all(&paths::state(1)).await.is_err(),
        "what does not count is deleted"
    );
}

/// The same storage, whose first listing of states is from before any was made.
fn stale(at: &Arc<dyn Storage>) -> Arc<dyn Storage> {
    Arc::new(Stale {
        inner: at.clone(),
        is_first: true.into(),
    })
}

struct Stale {
    inner: Arc<dyn Storage>,
    is_first: std::sync::atomic::AtomicBool,
}

#[async_trait::async_trait]
impl stele_storage::Layer for Stale {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<stele_storage::FileInfo>> {
        let is_first = self.is_first.swap(false, std::sync::atomic::Ordering::Relaxed);
        match is_first && prefix == paths::STATES {
            true => Ok(Vec::new()),
            false => self.inner.list(prefix).await,
        }
    }
}

#[tokio::test]
async fn a_place_of_something_else_is_refused() {
    let other: Arc<dyn Storage> = MemoryStorage::new();
    other.put_if_absent("x", Bytes::from_static(b"x")).await.unwrap();
    assert!(Destination::open(other.clone(), true).await.is_err());
    other
        .put_if_absent("FORMAT", Bytes::from_static(b"stele-data 1\n"))
        .await
        .unwrap();
    assert!(Destination::open(other, true).await.is_err());
    let later: Arc<dyn Storage> = MemoryStorage::new();
    later
        .put_if_absent("FORMAT", Bytes::from_static(b"stele-backups 2\n"))
        .await
        .unwrap();
    let refused = Destination::open(later, true).await.err().unwrap();
    assert!(refused.to_string().contains("later version"), "{refused}");
    let empty: Arc<dyn Storage> = MemoryStorage::new();
    assert!(Destination::open(empty.clone(), false).await.is_err());
    assert!(empty.list("").await.unwrap().is_empty());
}
