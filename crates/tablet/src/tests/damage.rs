//! Tablets with a damaged sstable: the rows still readable, and compactions over them.

mod gaps;

use super::*;
use crate::TabletError;
use crate::manifest::{FileRef, ManifestLog, StoredFile};
use stele_storage::StorageError;
use stele_types::{Epoch, ErrorKind, FileId, RowRange, TabletId};

fn context(storage: &Arc<dyn Storage>, epoch: u32) -> TabletContext {
    TabletContext {
        env: TokioRuntime::current(),
        storage: storage.clone(),
        files: Arc::new(FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), epoch)),
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(&Metrics::new()),
        tokens: crate::TokenMemory::default(),
    }
}

async fn open(storage: &Arc<dyn Storage>, epoch: u32) -> Arc<Tablet> {
    let schema = schema(DeleteRule::BySequence, None);
    let opened = Tablet::open(context(storage, epoch), schema, TabletId(1), Epoch(epoch)).await;
    opened.expect("damaged sstables are no reason not to open a tablet")
}

/// A tablet with a file for each of the rows `0` to `files - 1`; every file has the row `all`, too.
async fn device(files: u64) -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    fill(&storage, files).await;
    storage
}

async fn fresh(storage: &Arc<dyn Storage>) -> Arc<Tablet> {
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    let schema = schema(DeleteRule::BySequence, None);
    Tablet::create(context(storage, 1), schema, manifest).await.unwrap()
}

async fn fill(storage: &Arc<dyn Storage>, files: u64) {
    let tablet = fresh(storage).await;
    add_files(&tablet, 0..files).await;
}

async fn add_files(tablet: &Tablet, rows: std::ops::Range<u64>) {
    for row in rows {
        write_row(tablet, Bytes::from(format!("{row}")), vec![put(1, "v")]);
        write_row(tablet, Bytes::from_static(b"all"), vec![put(row as i64, "v")]);
        tablet.flush().await.unwrap();
    }
}

/// Flips a bit of a file, negative positions counted from its end.
pub(super) async fn flip(storage: &Arc<dyn Storage>, path: &str, at: isize) {
    let mut bytes = storage.read_all(path).await.unwrap().to_vec();
    let at = if at < 0 {
        bytes.len().wrapping_add_signed(at)
    } else {
        at as usize
    };
    bytes[at] ^= 1;
    storage.delete(path).await.unwrap();
    storage.put_if_absent(path, bytes.into()).await.unwrap();
}

async fn files_of(tablet: &Tablet) -> Vec<FileId> {
    tablet.manifest().await.all_files().map(FileRef::id).collect()
}

pub(super) async fn read_row(tablet: &Arc<Tablet>, row: &str) -> Result<usize, TabletError> {
    let spec = ScanSpec {
        rows: RowSet::new(vec![RowRange::single(&Bytes::copy_from_slice(row.as_bytes()))]),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let mut cells = 0;
    while let Some(batch) = scanner.next_batch().await? {
        cells += batch.rows().map(|(_, cells)| cells.len()).sum::<usize>();
    }
    Ok(cells)
}

/// Neither tried again and again, nor reached across: newer runs are merged by themselves.
#[tokio::test]
async fn compactions_leave_a_damaged_file_and_all_older_ones_alone() {
    let storage = device(3).await;
    let tablet = open(&storage, 2).await;
    let damaged = files_of(&tablet).await[1];
    flip(&storage, &FileRef::path(damaged), 5).await;
    // The bytes of a file that is open already do not change in memory.
    let tablet = {
        tablet.close();
        open(&storage, 3).await
    };
    let old = files_of(&tablet).await;
    add_files(&tablet, 3..10).await;
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        let outcome = tablet.compact_if_due().await;
        outcomes.push(outcome.map_err(|e| e.kind()));
    }
    assert_eq!(outcomes, [Err(ErrorKind::Corruption), Ok(true), Ok(false), Ok(false)]);
    let left = files_of(&tablet).await;
    assert_eq!((&left[..2], left.len()), (&old[..2], 3), "{left:?}");
    let found = tablet.context.files.damaged();
    assert_eq!(found.iter().map(|d| d.file.id()).collect::<Vec<_>>(), [damaged]);
    // A merge that is asked for meets it, and leaves everything as it is.
    let error = tablet.compact_all().await.unwrap_err();
    assert!(error.to_string().contains(&FileRef::path(damaged)), "{error}");
    assert_eq!(files_of(&tablet).await, left);
    for row in ["0", "2", "5", "7"] {
        assert_eq!(read_row(&tablet, row).await.unwrap(), 1, "row {row}");
    }
    assert_eq!(
        read_row(&tablet, "all").await.unwrap_err().kind(),
        ErrorKind::Corruption
    );
}

/// With any file damaged or gone, the tablet opens, and rows that might be there are errors. Without a filter they are
/// not.
#[tokio::test]
async fn an_unreadable_file_fails_all_rows_that_it_may_have_had() {
    for (what, at) in [("footer", -1), ("footer checksum", -14), ("properties", -74)] {
        let storage = device(2).await;
        let path = FileRef::path(FileId::new(1, 1));
        flip(&storage, &path, at).await;
        let tablet = open(&storage, 2).await;
        for row in ["0", "1", "other"] {
            let error = read_row(&tablet, row).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
            assert!(error.to_string().contains(&path), "{what}: {error}");
        }
        write_row(&tablet, Bytes::from_static(b"new"), vec![put(1, "v")]);
        tablet.flush().await.unwrap();
    }
    let storage = device(2).await;
    let path = FileRef::path(FileId::new(1, 1));
    storage.delete(&path).await.unwrap();
    let tablet = open(&storage, 2).await;
    let error = read_row(&tablet, "1").await.unwrap_err();
    assert!(error.to_string().contains("which is missing"), "{error}");
}

/// As when an outage of a network is over that said EIO.
#[tokio::test]
async fn a_file_that_could_not_be_opened_is_taken_up_when_it_can_be_read() {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = memory.clone();
    fill(&storage, 2).await;
    let path = FileRef::path(FileId::new(1, 1));
    let len = storage.read_all(&path).await.unwrap().len() as u64;
    memory.make_unreadable(&path, len - 1..len);
    let tablet = open(&storage, 2).await;
    let files = tablet.context.files.clone();
    let unopened = files.unopened();
    assert_eq!(unopened, [StoredFile::Sstable(FileId::new(1, 1))]);
    assert!(!files.open_again(unopened[0]).await && !tablet.hold_opened().await.unwrap());
    let error = read_row(&tablet, "0").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");

    memory.make_readable(&path);
    assert!(files.open_again(unopened[0]).await && tablet.hold_opened().await.unwrap());
    assert!(files.unopened().is_empty() && !tablet.hold_opened().await.unwrap());
    for (row, cells) in [("0", 1), ("1", 1), ("all", 2)] {
        assert_eq!(read_row(&tablet, row).await.unwrap(), cells, "row {row}");
    }
    // It is counted as before: it goes with the last reference, and not sooner.
    assert_eq!(files.delete_obsolete().await.unwrap(), 0);
    tablet.compact_all().await.unwrap();
    assert_eq!(files.delete_obsolete().await.unwrap(), 2);
}

/// Which files a damaged manifest refers to is unknown: none of a former process may go.
#[tokio::test]
async fn former_files_can_be_kept() {
    let storage = device(4).await;
    let tablet = open(&storage, 2).await;
    tablet.context.files.keep_former_files();
    tablet.compact_all().await.unwrap();
    add_files(&tablet, 4..5).await;
    tablet.compact_all().await.unwrap();
    assert!(tablet.context.files.delete_obsolete().await.unwrap() > 0);
    let left = storage.list("sst/").await.unwrap();
    let left: Vec<FileId> = left.iter().filter_map(|f| FileRef::parse_path(&f.path)).collect();
    let former: Vec<FileId> = (1..5).map(|n| FileId::new(1, n)).collect();
    assert_eq!(left[..4], former);
    assert_eq!(left.len(), 5, "{left:?}");
    let gone = storage.open(&FileRef::path(FileId::new(2, 1))).await;
    assert!(matches!(gone, Err(StorageError::NotFound { .. })));
}
