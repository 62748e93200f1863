//! Tests of deletions that are given up half-way.

use super::*;
use async_trait::async_trait;
use futures::FutureExt;
use std::sync::atomic::AtomicBool;
use stele_storage::memory::MemoryStorage;

/// A storage that never answers a deletion once it has answered some.
struct Unanswering {
    device: Arc<MemoryStorage>,
    /// Deletions that it answers.
    answers: AtomicU64,
    /// Whether a deletion without an answer takes effect.
    takes_effect: AtomicBool,
}

#[async_trait]
impl stele_storage::Layer for Unanswering {
    fn below(&self) -> &dyn Storage {
        &*self.device
    }

    async fn delete(&self, path: &str) -> stele_storage::Result<()> {
        let answers = self.answers.load(Ordering::Relaxed);
        if answers > 0 {
            self.answers.store(answers - 1, Ordering::Relaxed);
            return self.device.delete(path).await;
        }
        if self.takes_effect.load(Ordering::Relaxed) {
            self.device.delete(path).await?;
        }
        futures::future::pending().await
    }
}

#[tokio::test]
async fn a_deletion_that_is_given_up_forgets_no_segment() {
    let unanswering = Arc::new(Unanswering {
        device: MemoryStorage::new(),
        answers: AtomicU64::new(0),
        takes_effect: AtomicBool::new(false),
    });
    let storage: Arc<dyn Storage> = unanswering.clone();
    let log = Log::start(&storage, &Numbers::default(), 200, Vec::new());
    for n in 0..30 {
        log.write(n, Durability::Sync).await.unwrap();
    }
    log.stream.rotate().await;
    let on_storage = || async {
        let files = storage.list("log/").await.unwrap();
        files.iter().map(|file| file.len).sum::<u64>()
    };
    for (answers, takes_effect) in [(0, false), (1, false), (2, true)] {
        let before = segments(&storage).await.len();
        let bytes = log.stream.retained_bytes();
        unanswering.answers.store(answers, Ordering::Relaxed);
        unanswering.takes_effect.store(takes_effect, Ordering::Relaxed);
        let deletion = log.stream.delete_unneeded(|_, _| true).now_or_never();
        assert!(deletion.is_none(), "{deletion:?}");
        let left = segments(&storage).await.len();
        assert_eq!(left, before - answers as usize - usize::from(takes_effect));
        let retained = log.stream.retained_bytes();
        assert_eq!(retained < bytes, answers > 0, "{retained} of {bytes}");
        assert!(retained >= on_storage().await && retained > 0);
    }
    let left = segments(&storage).await.len();
    assert!(left > 3, "{left} segments");
    unanswering.answers.store(u64::MAX, Ordering::Relaxed);
    // One of them is gone, which the stream could not know.
    assert_eq!(log.stream.delete_unneeded(|_, _| true).await.unwrap(), left + 1);
    assert_eq!(segments(&storage).await, Vec::<String>::new());
    assert_eq!(log.stream.retained_bytes(), 0);
}
