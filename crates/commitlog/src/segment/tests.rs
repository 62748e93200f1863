//! What a failure costs, and what is appended at once.

use super::*;
use crate::format::{Payload, Record};
use crate::tests::{env, record, replayed};
use stele_env::metrics::Metrics;
use stele_storage::StorageError;
use stele_storage::memory::MemoryStorage;

/// Records whose second reading is the moment at which a sync in the background turns out to have failed.
struct Untimely<I> {
    records: I,
    fail: Arc<Mutex<Option<oneshot::Sender<SyncOutcome>>>>,
}

impl<I: Clone> Clone for Untimely<I> {
    fn clone(&self) -> Self {
        if let Some(fail) = self.fail.lock().take() {
            let _ = fail.send(Err(sync_error()));
        }
        Untimely {
            records: self.records.clone(),
            fail: self.fail.clone(),
        }
    }
}

impl<I: Iterator> Iterator for Untimely<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.records.next()
    }
}

async fn append(segments: &mut Segments, record: RecordRef<'_>) {
    segments
        .append(std::iter::once(record), std::iter::empty())
        .await
        .unwrap();
    segments.acknowledge(std::iter::once(record));
}

fn segments_in(storage: &Arc<dyn Storage>) -> Segments {
    let shared = Arc::new(Shared {
        storage: storage.clone(),
        metrics: LogMetrics::new(&Metrics::new()),
        retention: Mutex::default(),
        deleting: tokio::sync::Mutex::default(),
        readers: AtomicU64::new(0),
        unsynced: Mutex::default(),
        open_bytes: AtomicU64::new(0),
    });
    let numbers = AtomicU64::new(1);
    Segments {
        env: env(1),
        stream: 0,
        segment_bytes: 1 << 20,
        next_segment: Arc::new(move || numbers.fetch_add(1, Ordering::Relaxed)),
        shared,
        open: None,
        previous: Previous::default(),
        tail: None,
        since_demand: 0,
        next: Next::default(),
        frame: Vec::new(),
        told_at: None,
    }
}

fn sync_error() -> StorageError {
    StorageError::Io {
        path: String::new(),
        operation: "sync",
        message: "planted".to_owned(),
    }
}

/// A full segment was relieved, but the next one could not be begun; then the sync of the full one fails, as an order
/// or a look tells while none is open. What comes then must not rest on it.
#[tokio::test]
async fn a_sync_that_fails_while_no_segment_is_open_is_not_forgotten() {
    for seen_by_settling in [true, false] {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let mut segments = segments_in(&storage);
        let (done, tail) = oneshot::channel();
        done.send(Err(sync_error())).unwrap();
        segments.tail = Some(tail);
        if seen_by_settling {
            segments.settle().await.unwrap_err();
        } else {
            segments.probe_ahead();
        }
        segments.settle().await.unwrap();
        append(&mut segments, record(1, 0).borrowed()).await;
        let open = segments.open.as_ref().expect("a segment was begun");
        assert!(open.synced > 0, "its beginning rests on what was lost");
    }
}

/// Nobody says that a sync is done whose task is gone: by an order to be durable, or by a look while appends go on.
#[tokio::test]
async fn a_sync_that_vanished_has_failed() {
    for (of_tail, seen_by_settling) in [(true, true), (true, false), (false, true), (false, false)] {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let mut segments = segments_in(&storage);
        append(&mut segments, record(1, 0).borrowed()).await;
        let (vanishing, outcome) = oneshot::channel();
        drop(vanishing);
        match (&mut segments.open, of_tail) {
            (Some(open), false) => open.ahead = Some(outcome),
            _ => segments.tail = Some(outcome),
        }
        if seen_by_settling {
            let synced = async {
                segments.settle().await?;
                segments.sync().await
            };
            synced.await.unwrap_err();
        } else {
            segments.probe_ahead();
            assert!(segments.open.is_none(), "the segment is given up");
        }
    }
}

/// The group is not refused because something else failed just then.
#[tokio::test]
async fn a_sync_that_fails_while_a_group_is_appended_costs_the_group_nothing() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let mut segments = segments_in(&storage);
    let all = [record(1, 0), record(1, 1), record(1, 2)];
    append(&mut segments, all[0].borrowed()).await;
    let (fail, ahead) = oneshot::channel();
    if let Some(open) = &mut segments.open {
        open.ahead = Some(ahead);
    }
    let untimely = Untimely {
        records: std::iter::once(all[1].borrowed()),
        fail: Arc::new(Mutex::new(Some(fail))),
    };
    segments.append(untimely, std::iter::empty()).await.unwrap();
    segments.acknowledge(std::iter::once(all[1].borrowed()));
    append(&mut segments, all[2].borrowed()).await;
    assert_eq!(segments.previous.number, 1, "the segment was given up");
    assert_eq!(replayed(&storage).await.unwrap(), [0, 1, 2]);
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

/// Synced at once; tells which thread let go of it.
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

/// The last to close a deleted file waits for the device.
#[tokio::test]
async fn no_thread_that_runs_tasks_closes_a_segment() {
    for in_background in [true, false] {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let mut segments = segments_in(&storage);
        segments.env = stele_env::tokio_env::TokioRuntime::current();
        let (told, closed) = oneshot::channel();
        segments
            .shared
            .unsynced
            .lock()
            .insert(1, Box::new(ClosedOn(Some(told))));
        if in_background {
            segments.sync_oldest();
        } else {
            segments.settle().await.unwrap();
        }
        assert_ne!(closed.await.unwrap(), std::thread::current().id());
    }
}

/// A disk that has become read-only refuses every write at once, and clients come back at once.
#[test]
fn a_medium_that_fails_for_long_is_told_of_once_a_second() {
    let mut told_at = None;
    let told: Vec<u64> = (0..3_500)
        .filter(|millis| turnover::tells(&mut told_at, Duration::from_millis(*millis)))
        .collect();
    assert_eq!(told, [0, 1_000, 2_000, 3_000]);
}
