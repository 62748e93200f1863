//! Samples of a tablet that changes while they are taken.

use super::*;
use async_trait::async_trait;
use futures::{FutureExt, poll};
use std::task::Poll;
use stele_storage::{ReadFile, Result};

/// Memory of which every read takes a turn of its own, as of a remote storage.
struct Far(Arc<MemoryStorage>);

struct FarFile(Arc<dyn ReadFile>);

#[async_trait]
impl stele_storage::Layer for Far {
    fn below(&self) -> &dyn Storage {
        &*self.0
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(FarFile(self.0.open(path).await?)))
    }
}

#[async_trait]
impl ReadFile for FarFile {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        tokio::task::yield_now().await;
        self.0.read_at(offset, len).await
    }

    fn try_read_at(&self, _: u64, _: usize) -> Option<Result<Bytes>> {
        None
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn path(&self) -> &str {
        self.0.path()
    }
}

const ROWS: usize = 500;
const VALUE_BYTES: usize = 2_000;
/// A tenth of one version of all rows, of which the tablet has four.
const EVERY: u64 = (ROWS * VALUE_BYTES / 10) as u64;

/// However much a compaction drops between two rows, before the second lies no less than before the first.
#[tokio::test]
async fn a_sample_is_of_one_moment() {
    let schema = schema(DeleteRule::BySequence, None);
    let tablet = tablet_on(Arc::new(Far(MemoryStorage::new())), schema, 64 << 20).await;
    for version in 0..4 {
        for row in 0..ROWS {
            let overwrite = Mutation::Put {
                family: FamilyId(1),
                qualifier: Bytes::from_static(b"q"),
                timestamp: Timestamp(1),
                value: Bytes::from(vec![version; VALUE_BYTES]),
            };
            write_row(&tablet, Bytes::from(format!("{row:03}")), vec![overwrite]);
        }
        tablet.flush().await.unwrap();
    }
    let mut undisturbed = tablet.sample(EVERY, usize::MAX).boxed();
    let mut turns = 0;
    let sample = loop {
        match poll!(&mut undisturbed) {
            Poll::Ready(sample) => break sample.unwrap(),
            Poll::Pending => turns += 1,
        }
    };
    let (bytes, rows) = &sample;
    assert!(
        *bytes > 4 * 9 * EVERY && rows.len() > 5 && turns > rows.len(),
        "{sample:?}"
    );
    assert!(rows.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{sample:?}");

    let mut disturbed = tablet.sample(EVERY, usize::MAX).boxed();
    for _ in 0..turns / 2 {
        assert!(poll!(&mut disturbed).is_pending());
    }
    tablet.compact_all().await.unwrap();
    assert_eq!(disturbed.await.unwrap(), sample);
    let (less, _) = tablet.sample(EVERY, usize::MAX).await.unwrap();
    assert!(less < bytes / 2, "{less} of {bytes}");
}
