//! Tests of the cost of a failure, and of appends that do not wait.

use super::*;
use crate::format::{Payload, Record};
use crate::retention::{SegmentInfo, SegmentState};
use crate::tests::{env, record, replayed};
use stele_env::metrics::Metrics;
use stele_storage::StorageError;
use stele_storage::memory::MemoryStorage;
use tokio::sync::oneshot;

async fn append(segments: &mut Segments, record: RecordRef<'_>) {
    segments
        .append(std::iter::once(record), std::iter::empty())
        .await
        .unwrap();
    segments.acknowledge(std::iter::once(record));
}

fn segments_in(storage: &Arc<dyn Storage>) -> Segments {
    let metrics = LogMetrics::new(&Metrics::new());
    let shared = Arc::new(Shared::new(storage.clone(), metrics, Retention::default()));
    let numbers = AtomicU64::new(2);
    let next = Arc::new(move || numbers.fetch_add(1, Ordering::Relaxed));
    Segments::new(env(1), 0, 1 << 20, next, shared)
}

/// A closed segment that is not synced, number 1.
fn with_unsynced(segments: &mut Segments, file: Box<dyn AppendFile>) {
    segments.previous.number = 1;
    segments.shared.retention.lock().add(1, SegmentInfo::default());
    segments.shared.unsynced.lock().insert(1, file);
}

/// The full segment is synced only when the next one is begun, after its first header has failed. The header that counts must
/// state it, or damage in the full segment would pass for a torn tail.
#[tokio::test]
async fn the_header_states_that_the_segment_before_was_synced_late() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let mut segments = segments_in(&storage);
    let file = storage.create("log/late").await.unwrap();
    with_unsynced(&mut segments, file);
    segments.previous = super::open::Previous::unsynced(1, 100);
    append(&mut segments, record(1, 0).borrowed()).await;
    let path = segments.open.as_ref().expect("a segment was begun").info.path.clone();
    let bytes = storage.open(&path).await.unwrap().read_at(0, 56).await.unwrap();
    let header = crate::format::SegmentHeader::decode(&bytes).unwrap();
    assert_eq!(
        (header.previous, header.previous_len, header.previous_synced),
        (1, 100, 100)
    );
}

fn sync_error() -> StorageError {
    StorageError::Io {
        path: String::new(),
        operation: "sync",
        message: "planted".to_owned(),
    }
}

/// The next segment could not be begun behind a full one; then the sync of the full one fails while none is open. Later
/// groups must not rest on it.
#[tokio::test]
async fn a_sync_that_fails_while_no_segment_is_open_is_not_forgotten() {
    for seen_by_settling in [true, false] {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let mut segments = segments_in(&storage);
        with_unsynced(&mut segments, Box::new(FailsToSync));
        if seen_by_settling {
            segments.settle().await.unwrap_err();
            segments.settle().await.unwrap();
        }
        append(&mut segments, record(1, 0).borrowed()).await;
        let open = segments.open.as_ref().expect("a segment was begun");
        assert!(open.synced > 0, "its beginning rests on a segment that was lost");
        assert_eq!(replayed(&storage).await.unwrap(), [0]);
        let states: Vec<_> = segments.shared.retention.lock().states();
        assert_eq!(states, [SegmentState::NotDurable]);
    }
}

#[tokio::test]
async fn a_payload_in_pieces_is_one_on_the_medium() {
    let head = Bytes::from_static(b"head");
    let in_partial_rows = |n: u64, lens: &[usize]| {
        let rest: Vec<Bytes> = lens.iter().map(|len| Bytes::from(vec![*len as u8; *len])).collect();
        let crc = Payload::checksum(&head, &rest);
        Record {
            payload: Payload::with_crc(head.clone(), rest, crc),
            ..record(1, n)
        }
    };
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let mut segments = segments_in(&storage);
    let mut expected = Vec::new();
    let all: [&[usize]; 6] = [
        &[],
        &[10],
        &[INLINE_BYTES_MAX],
        &[INLINE_BYTES_MAX, 0, 3, INLINE_BYTES_MAX],
        &[1, 2, 3],
        &[INLINE_RECORD_BYTES_MAX, 7, INLINE_BYTES_MAX],
    ];
    for (n, lens) in (1..).zip(all) {
        let pieces = in_partial_rows(n, lens);
        let (records, payloads) = (std::iter::once(pieces.borrowed()), std::iter::once(&pieces.payload));
        segments.append(records, payloads).await.unwrap();
        segments.acknowledge(std::iter::once(pieces.borrowed()));
        let joined: Vec<u8> = pieces.payload.pieces().flatten().copied().collect();
        expected.push(Record {
            payload: Payload::new(joined.into()),
            ..record(1, n)
        });
    }
    let mut found = Vec::new();
    let keep = |record| {
        found.push(record);
        Ok::<(), LogError>(())
    };
    crate::replay(&*storage, keep).await.unwrap();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_large_record_by_itself_is_appended_at_once() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let mut segments = segments_in(&storage);
    append(&mut segments, record(1, 0).borrowed()).await;
    let large = |n: u64, len| Record {
        payload: Payload::new(Bytes::from(vec![n as u8; len])),
        ..record(1, n)
    };
    let all = [large(1, INLINE_BYTES_MAX), large(2, INLINE_BYTES_MAX)];
    assert!(segments.try_append(all.iter().map(Record::borrowed)).is_none());
    let too_large = large(3, INLINE_RECORD_BYTES_MAX);
    assert!(segments.try_append(std::iter::once(too_large.borrowed())).is_none());
    for record in &all {
        let appended = segments.try_append(std::iter::once(record.borrowed()));
        appended.expect("nothing to wait for").unwrap();
        segments.acknowledge(std::iter::once(record.borrowed()));
    }
    let mut found = Vec::new();
    let keep = |record| {
        found.push(record);
        Ok::<(), LogError>(())
    };
    crate::replay(&*storage, keep).await.unwrap();
    assert_eq!(found[1..], all);
}

/// A file that was appended to; its sync fails.
struct FailsToSync;

#[async_trait::async_trait]
impl AppendFile for FailsToSync {
    async fn append(&mut self, _: &[Bytes]) -> stele_storage::Result<()> {
        Err(sync_error())
    }

    async fn sync(&mut self) -> stele_storage::Result<()> {
        Err(sync_error())
    }

    fn len(&self) -> u64 {
        0
    }
}

/// A file that syncs without waiting, and tells which thread closed it.
struct ClosedOn(Option<oneshot::Sender<std::thread::ThreadId>>);

#[async_trait::async_trait]
impl AppendFile for ClosedOn {
    async fn append(&mut self, _: &[Bytes]) -> stele_storage::Result<()> {
        Err(sync_error())
    }

    async fn sync(&mut self) -> stele_storage::Result<()> {
        Ok(())
    }

    fn len(&self) -> u64 {
        0
    }
}

impl Drop for ClosedOn {
    fn drop(&mut self) {
        if let Some(closed) = self.0.take() {
            let _ = closed.send(std::thread::current().id());
        }
    }
}

/// The last close of a deleted file waits for the device.
#[tokio::test]
async fn no_thread_that_runs_tasks_closes_a_segment() {
    for for_the_bound in [true, false] {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let mut segments = segments_in(&storage);
        segments.env = stele_env::tokio_env::TokioRuntime::current();
        let (told, closed) = oneshot::channel();
        with_unsynced(&mut segments, Box::new(ClosedOn(Some(told))));
        if for_the_bound {
            segments.sync_oldest(0).await.unwrap();
        } else {
            segments.settle().await.unwrap();
        }
        assert_ne!(closed.await.unwrap(), std::thread::current().id());
    }
}

/// A read-only disk refuses every write without delay, and clients come back as fast.
#[test]
fn a_medium_that_fails_for_long_is_told_of_once_a_second() {
    let mut told_at = None;
    let told: Vec<u64> = (0..3_500)
        .filter(|millis| turnover::tells(&mut told_at, Duration::from_millis(*millis)))
        .collect();
    assert_eq!(told, [0, 1_000, 2_000, 3_000]);
}
