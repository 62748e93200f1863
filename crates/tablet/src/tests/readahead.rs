//! Reads ahead of compactions keep within their limit.

use super::*;
use async_trait::async_trait;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stele_storage::{ReadFile, Result};

/// Memory that notes the largest read of an sstable.
struct Measured {
    device: Arc<dyn Storage>,
    largest: Arc<AtomicUsize>,
}

struct MeasuredFile {
    file: Arc<dyn ReadFile>,
    largest: Arc<AtomicUsize>,
}

#[async_trait]
impl stele_storage::Layer for Measured {
    fn below(&self) -> &dyn Storage {
        &*self.device
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        let file = self.device.open(path).await?;
        let largest = self.largest.clone();
        Ok(Arc::new(MeasuredFile { file, largest }))
    }
}

#[async_trait]
impl ReadFile for MeasuredFile {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.largest.fetch_max(len, Ordering::Relaxed);
        self.file.read_at(offset, len).await
    }

    /// A remote storage, for which reading ahead is made.
    fn try_read_at(&self, _: u64, _: usize) -> Option<Result<Bytes>> {
        None
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &str {
        self.file.path()
    }
}

/// A tablet with two files of 4 MB whose rows alternate, of which jobs may read `job_bytes` ahead; and the largest read
/// so far.
async fn two_files(job_bytes: usize) -> (Arc<Tablet>, Arc<AtomicUsize>) {
    let largest = Arc::new(AtomicUsize::new(0));
    let storage: Arc<dyn Storage> = Arc::new(Measured {
        device: MemoryStorage::new(),
        largest: largest.clone(),
    });
    let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1).with_job_readahead(job_bytes);
    let context = TabletContext {
        env: TokioRuntime::current(),
        storage,
        files: Arc::new(files),
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(&Metrics::new()),
        tokens: crate::TokenMemory::default(),
    };
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    let schema = schema(DeleteRule::BySequence, None);
    let tablet = Tablet::create(context, schema, manifest).await.unwrap();
    for file in 0..2 {
        for row in 0..2_000 {
            let value = Bytes::from(vec![file; 2_000]);
            let (family, qualifier, timestamp) = (FamilyId(1), Bytes::from_static(b"q"), Timestamp(1));
            let put = Mutation::Put {
                family,
                qualifier,
                timestamp,
                value,
            };
            write_row(&tablet, Bytes::from(format!("{row:04}-{file}")), vec![put]);
        }
        tablet.flush().await.unwrap();
    }
    (tablet, largest)
}

/// The largest read of a compaction of two files of 4 MB when jobs may read `job_bytes` ahead.
async fn largest_read(job_bytes: usize) -> usize {
    let (tablet, largest) = two_files(job_bytes).await;
    largest.store(0, Ordering::Relaxed);
    tablet.compact_all().await.unwrap();
    largest.load(Ordering::Relaxed)
}

#[tokio::test]
async fn sources_of_a_job_share_what_it_may_read_ahead() {
    // A block may be more than the rest of the window.
    let block = 64 << 10;
    let largest = largest_read(512 << 10).await;
    assert!(largest <= (256 << 10) + block, "{largest}");
    let unbounded = largest_read(usize::MAX).await;
    assert!(unbounded > 512 << 10, "{unbounded}");
}

/// Blocks read ahead for an absent reader are released, and read again when it comes back.
#[tokio::test]
async fn what_was_read_ahead_for_nobody_is_given_back() {
    let (tablet, _) = two_files(0).await;
    let spec = ScanSpec {
        rows: RowSet::all(),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let (mut rows, mut given_back) = (0, 0);
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        rows += batch.len();
        assert_eq!(tablet.drop_readahead(Duration::from_secs(3_600)), 0);
        given_back += tablet.drop_readahead(Duration::ZERO);
        assert_eq!(tablet.drop_readahead(Duration::ZERO), 0);
    }
    assert_eq!(rows, 4_000);
    assert!(given_back > 256 << 10, "{given_back}");
}

/// Its share goes back as well, or readers that pause would leave those that do not without reading ahead.
#[tokio::test]
async fn a_reader_that_does_not_come_back_keeps_no_share() {
    let (tablet, _) = two_files(0).await;
    let taken = || tablet.context.files.scan_ahead().taken();
    let spec = ScanSpec {
        rows: RowSet::all(),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let mut rows = scanner.next_batch().await.unwrap().unwrap().len();
    assert!(taken() > 0);
    tablet.drop_readahead(Duration::from_secs(3_600));
    assert!(taken() > 0, "it may come any moment");
    tablet.drop_readahead(Duration::ZERO);
    assert_eq!(taken(), 0);
    rows += scanner.next_batch().await.unwrap().unwrap().len();
    assert!(taken() > 0, "it has another one");
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        rows += batch.len();
    }
    assert_eq!((rows, taken()), (4_000, 0));
}
