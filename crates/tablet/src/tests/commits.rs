//! Commits of manifests whose outcome is unknown.

use super::*;
use crate::TabletError;
use async_trait::async_trait;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_storage::{FileInfo, StorageError};
use stele_types::{Epoch, TabletId};

/// No listing succeeds while it is cut off, so a commit cannot confirm that its put is the newest version.
struct Listings {
    inner: Arc<MemoryStorage>,
    fail: AtomicBool,
}

#[async_trait]
impl stele_storage::Layer for Listings {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<FileInfo>> {
        match self.fail.load(Ordering::Relaxed) {
            true => Err(StorageError::Io {
                path: prefix.to_owned(),
                operation: "list",
                message: "cut off".to_owned(),
            }),
            false => self.inner.list(prefix).await,
        }
    }
}

/// A version that took effect and was not confirmed is not another owner's.
#[tokio::test]
async fn the_claim_is_ones_own_after_a_flush_of_unknown_outcome() {
    let storage = Arc::new(Listings {
        inner: MemoryStorage::new(),
        fail: AtomicBool::new(false),
    });
    let tablet = tablet_on(storage.clone(), schema(DeleteRule::BySequence, None), 1 << 20).await;
    write(&tablet, vec![put(1, "a")]);
    storage.fail.store(true, Ordering::Relaxed);
    let failed = tablet.flush().await.unwrap_err();
    assert!(matches!(failed, TabletError::Storage(_)), "{failed}");
    assert!(tablet.check_claim().await.is_err(), "nobody knows");
    storage.fail.store(false, Ordering::Relaxed);
    tablet.check_claim().await.unwrap();
    tablet.flush().await.unwrap();
    assert_eq!(read(&tablet).await, "1=a");
    // A real successor is still found.
    let (context, schema) = (tablet.context.clone(), tablet.schema());
    let next = Tablet::open(context, schema, TabletId(1), Epoch(2)).await.unwrap();
    assert_eq!(read(&next).await, "1=a");
    let fenced = tablet.check_claim().await.unwrap_err();
    assert!(matches!(fenced, TabletError::Fenced { .. }), "{fenced}");
}
