//! Reads the log back: at recovery, and for people.
//!
//! The segments of a stream are read in their order. Reading a segment stops at the first group that does not check. If the
//! next segment says that more was acknowledged, this is a *gap*. Then the later segments are dropped, or the gap is
//! reported as damage ([`gap`]).

mod ahead;
mod gap;
mod independent;
mod inspect;
mod reader;

use ahead::Ahead;
pub(crate) use gap::{Gap, counts_behind, gap_without_header};
pub use independent::independent_bytes;
pub use inspect::inspect;
use reader::read_header_and;
pub(crate) use reader::{KnownLengths, SegmentReader, find, find_group, read_header};

use crate::error::LogError;
use crate::format::{self, Record, SegmentHeader};
use crate::mark::Mark;
use crate::retention::{SegmentInfo, SegmentState};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use stele_storage::{FileInfo, ReadFile, Storage, StorageError};

/// The result of a replay.
#[derive(Debug, Default)]
pub struct ReplayReport {
    /// The segments, to be kept until flushed: (stream, number, content).
    pub segments: Vec<(u32, u64, SegmentInfo)>,
    /// Records handed out.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Segments that do not count because one before them lost its end. They must be deleted, in this order, before the
    /// caller builds on the replayed records: they would count when the one that lost its end is gone.
    pub dropped: Vec<String>,
    /// Bytes dropped behind the last good group, and with segments.
    pub torn_bytes: u64,
    /// The newest time of a mark, 0 if there is none.
    pub last_micros: i64,
}

/// Segments of one listing that are opened concurrently.
const OPENED_CONCURRENTLY: usize = 32;

/// Reads every segment under `log/` and hands every record that counts to `visit`. Sequence numbers, not file order,
/// order the records of a tablet: its stream may have changed between processes.
///
/// Some storages let a new owner in while the former one still works. That one may delete segments until it learns that it was
/// replaced. It deletes only segments that are flushed by manifests it committed, and those count. So a segment that is
/// deleted meanwhile is left out. A segment that lost a part of itself is not a deleted one.
pub async fn replay<E: From<LogError>>(
    storage: &dyn Storage,
    visit: impl FnMut(Record) -> Result<(), E>,
) -> Result<ReplayReport, E> {
    replay_through(storage, u64::MAX, visit).await
}

/// Replays the segments up to the number `last`: those of earlier processes, while this process writes others.
pub async fn replay_through<E: From<LogError>>(
    storage: &dyn Storage,
    last: u64,
    mut visit: impl FnMut(Record) -> Result<(), E>,
) -> Result<ReplayReport, E> {
    let segments = open_wanted(storage, ("log/", &|_, number| number <= last), 0).await?;
    replay_opened((segments, None), |_, record| visit(record)).await
}

/// Some streams of a log whose segments are open, with their headers. Nothing else of their content is in memory before it is read ahead.
///
/// Nobody appends to the log any more. A segment that is deleted after the opening is left out by the replay, as any other.
pub struct OpenedLog {
    segments: Vec<Opened>,
    found: BTreeSet<u32>,
    wanted: BTreeSet<u32>,
    /// Reads all segments, once it has begun.
    ahead: Option<Ahead>,
}

impl OpenedLog {
    /// Opens the segments of some streams. Others are not even listed, where the storage can tell which there are without that.
    pub async fn open(storage: &dyn Storage, wanted: BTreeSet<u32>) -> Result<OpenedLog, LogError> {
        let (found, segments) = match storage.directories("log/").await? {
            Some(names) => {
                let found: BTreeSet<u32> = names
                    .iter()
                    .filter_map(|name| format::parse_stream_name(name))
                    .collect();
                let opening = wanted.intersection(&found).map(|stream| async move {
                    let wants = |of: u32, _: u64| of == *stream;
                    open_wanted(storage, (&format::stream_directory(*stream), &wants), 0).await
                });
                let segments = futures::future::try_join_all(opening).await?;
                (found, segments.into_iter().flatten().collect::<Vec<Opened>>())
            }
            None => {
                let found = Mutex::new(BTreeSet::new());
                let wants = |stream: u32, _: u64| {
                    found.lock().insert(stream);
                    wanted.contains(&stream)
                };
                let segments = open_wanted(storage, ("log/", &wants), 0).await?;
                (found.into_inner(), segments)
            }
        };
        assert!(
            segments.iter().all(|segment| wanted.contains(&segment.stream)),
            "only streams that are wanted are opened"
        );
        Ok(OpenedLog {
            segments,
            found,
            wanted,
            ahead: None,
        })
    }

    /// Reads the beginning of the log into memory, as much as a replay reads ahead. The future may be dropped: the replay goes on from there.
    /// An error is the replay's.
    pub async fn read_ahead(&mut self) {
        let segments = &self.segments;
        let ahead = self
            .ahead
            .get_or_insert_with(|| ahead_of(segments, &known_lengths(segments)));
        ahead.fill().await;
    }

    /// All streams of which the log has a file.
    pub fn found(&self) -> &BTreeSet<u32> {
        &self.found
    }

    /// The streams that were opened.
    pub fn wanted(&self) -> &BTreeSet<u32> {
        &self.wanted
    }

    /// Replays some of the streams that were opened. The caller knows that no other has a record that it wants. No segment depends on one
    /// of another stream. `visit` is told the stream of each record.
    pub async fn replay<E: From<LogError>>(
        self,
        streams: &BTreeSet<u32>,
        visit: impl FnMut(u32, Record) -> Result<(), E>,
    ) -> Result<ReplayReport, E> {
        assert!(
            streams.is_subset(&self.wanted),
            "streams are opened before they are replayed"
        );
        let mut segments = self.segments;
        let opened = segments.len();
        segments.retain(|segment| streams.contains(&segment.stream));
        let ahead = self.ahead.filter(|_| segments.len() == opened);
        replay_opened((segments, ahead), visit).await
    }
}

/// Replays segments that are open, and perhaps read ahead.
async fn replay_opened<E: From<LogError>>(
    (segments, ahead): (Vec<Opened>, Option<Ahead>),
    mut visit: impl FnMut(u32, Record) -> Result<(), E>,
) -> Result<ReplayReport, E> {
    let mut report = ReplayReport::default();
    let known = known_lengths(&segments);
    // The segments with a gap, and those dropped for it, with the place of the gap.
    let mut gaps: HashMap<(u32, u64), Gap> = HashMap::new();
    let mut ahead = ahead.or_else(|| Some(ahead_of(&segments, &known)));
    for (place, segment) in segments.into_iter().enumerate() {
        let Opened {
            stream,
            number,
            file,
            header,
            ..
        } = segment;
        let lengths = known.get(&(stream, number)).copied();
        if let Some(header) = header
            && let Some(gap) = gaps.get(&(stream, header.previous)).cloned()
            && let Some(counts) = unless_deleted(counts_behind(&gap, &*file, &header, lengths).await)?
            && !counts
        {
            gaps.insert((stream, number), gap);
            report.torn_bytes += file.len();
            report.dropped.push(file.path().to_owned());
            continue;
        }
        let mut info = SegmentInfo {
            path: file.path().to_owned(),
            len: file.len(),
            reading_cost: file.reading_cost(),
            follows: header.map_or(0, |header| header.previous),
            ..SegmentInfo::default()
        };
        report.bytes += file.len();
        if header.is_some() {
            let mut bytes = ahead.take().expect("each reader gives it back");
            bytes.begin(place);
            let mut reader = SegmentReader::new(file, number, lengths).walking(bytes);
            let is_there = hand_out(&mut reader, &mut info, &mut report, |record| visit(stream, record)).await?;
            info.end = reader.at;
            let (torn_bytes, gap) = (reader.torn_bytes(), reader.gap());
            ahead = reader.into_ahead();
            if !is_there {
                continue;
            }
            report.torn_bytes += torn_bytes;
            if torn_bytes > 0 || gap.is_some() {
                info.state = SegmentState::GivenUp;
            }
            if let Some(gap) = gap {
                gaps.insert((stream, number), gap);
            }
        } else {
            info.state = SegmentState::GivenUp;
            report.torn_bytes += file.len();
            if let Some(gap) = gap_without_header(&info.path, lengths)? {
                gaps.insert((stream, number), gap);
            }
        }
        report.segments.push((stream, number, info));
    }
    report.dropped.reverse();
    Ok(report)
}

/// Reads all segments.
fn ahead_of(segments: &[Opened], known: &HashMap<(u32, u64), KnownLengths>) -> Ahead {
    Ahead::new(segments.iter().map(|segment| {
        let lengths = known.get(&(segment.stream, segment.number)).copied();
        let reader = SegmentReader::new(segment.file.clone(), segment.number, lengths);
        // Of one without a header nothing counts.
        (segment.file.clone(), segment.header.map_or(0, |_| reader.end))
    }))
}

/// Hands out, notes and counts the records of a segment, and skips marks; `false` when it was deleted meanwhile.
async fn hand_out<E: From<LogError>>(
    reader: &mut SegmentReader,
    info: &mut SegmentInfo,
    report: &mut ReplayReport,
    mut visit: impl FnMut(Record) -> Result<(), E>,
) -> Result<bool, E> {
    while let Some(group) = unless_deleted(reader.next_group().await)? {
        let Some(records) = group else { return Ok(true) };
        for record in records {
            if Mark::is_one(&record) {
                let micros = Mark::of(&record).map_or(0, |mark| mark.micros());
                report.last_micros = report.last_micros.max(micros);
                continue;
            }
            info.note(record.tablet, record.last);
            report.records += 1;
            visit(record)?;
        }
    }
    Ok(false)
}

/// The lengths of each segment that the next one of the same process states, by stream and number.
fn known_lengths(segments: &[Opened]) -> HashMap<(u32, u64), KnownLengths> {
    let stated = segments.iter().filter_map(|segment| {
        let header = segment.header.as_ref()?;
        Some(((segment.stream, header.previous), KnownLengths::stated_by(header)))
    });
    stated.collect()
}

/// A segment that is open.
struct Opened {
    stream: u32,
    number: u64,
    file: Arc<dyn ReadFile>,
    header: Option<SegmentHeader>,
    /// The bytes behind the header that were read with it.
    behind: Bytes,
}

impl Opened {
    /// Reads the header, and some bytes behind it.
    async fn of(file: Arc<dyn ReadFile>, (stream, number): (u32, u64), more: usize) -> Result<Opened, LogError> {
        let (header, behind) = read_header_and(&*file, (stream, number), more).await?;
        Ok(Opened {
            stream,
            number,
            file,
            header,
            behind,
        })
    }
}

/// Opens the segments below a prefix that are wanted, by stream and number, and reads their headers with some bytes behind these. Nobody appends to them.
async fn open_wanted(
    storage: &dyn Storage,
    (prefix, wants): (&str, &(dyn Fn(u32, u64) -> bool + Sync)),
    more: usize,
) -> Result<Vec<Opened>, LogError> {
    let is_wanted = |path: &str| format::parse_segment_path(path).is_some_and(|(stream, number)| wants(stream, number));
    let Some(files) = storage.open_listed(prefix, &is_wanted).await? else {
        let mut files = storage.list(prefix).await?;
        files.retain(|file| is_wanted(&file.path));
        return open_all(storage, files, more).await;
    };
    assert!(
        files.iter().all(|file| is_wanted(file.path())),
        "only segments that are wanted are opened"
    );
    let reading = files.into_iter().filter_map(|file| {
        let place = format::parse_segment_path(file.path())?;
        Some(async move { unless_deleted(Opened::of(file, place, more).await) })
    });
    let reading: Vec<_> = reading.collect();
    let read = futures::stream::iter(reading).buffered(OPENED_CONCURRENTLY);
    let segments: Vec<Option<Opened>> = read.try_collect().await?;
    Ok(segments.into_iter().flatten().collect())
}

/// Opens the segments of a listing, several concurrently: on a remote storage each costs a few requests one after the other.
async fn open_all(storage: &dyn Storage, files: Vec<FileInfo>, more: usize) -> Result<Vec<Opened>, LogError> {
    let opening = files.into_iter().filter_map(|info| {
        let place = format::parse_segment_path(&info.path)?;
        Some(async move {
            let opened = async { Opened::of(storage.open(&info.path).await?, place, more).await };
            (unless_deleted(opened.await), info.path)
        })
    });
    let opening: Vec<_> = opening.collect();
    let mut opening = futures::stream::iter(opening).buffered(OPENED_CONCURRENTLY);
    let mut segments = Vec::new();
    let mut missing = BTreeSet::new();
    while let Some((opened, path)) = opening.next().await {
        match opened? {
            Some(segment) => segments.push(segment),
            None => drop(missing.insert(path)),
        }
    }
    drop(opening);
    check_deleted(storage, &missing).await?;
    Ok(segments)
}

/// Segments that were listed and could not be opened must not be listed any more.
async fn check_deleted(storage: &dyn Storage, missing: &BTreeSet<String>) -> Result<(), LogError> {
    if missing.is_empty() {
        return Ok(());
    }
    let still = storage.list("log/").await?;
    match still.into_iter().find(|file| missing.contains(&file.path)) {
        None => Ok(()),
        Some(file) => Err(LogError::Corruption {
            path: Arc::from(file.path),
            offset: 0,
            detail: "the storage lists the segment and does not open it".to_owned(),
        }),
    }
}

/// `None` when the segment was deleted meanwhile.
fn unless_deleted<T>(outcome: Result<T, LogError>) -> Result<Option<T>, LogError> {
    match outcome {
        Err(LogError::Storage(StorageError::NotFound { .. })) => Ok(None),
        other => other.map(Some),
    }
}
