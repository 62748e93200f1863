//! Reads the log back: at recovery, and for people.

use crate::error::LogError;
use crate::format::{
    self, GROUP_HEADER_BYTES, GROUP_MAGIC, GroupHeader, PAYLOAD_BYTES_MAX, Record, SEGMENT_HEADER_BYTES, SegmentHeader,
    VERSION,
};
use crate::retention::SegmentInfo;
use bytes::Bytes;
use futures::StreamExt;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::Arc;
use stele_storage::{FileInfo, ReadFile, Storage, StorageError};

/// What recovery found.
#[derive(Debug, Default)]
pub struct ReplayReport {
    /// The segments, to be kept until flushed: (stream, number, content).
    pub segments: Vec<(u32, u64, SegmentInfo)>,
    /// Records handed out.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Segments of which nothing counts because the one before lost its end: to be deleted, in this order, before anything
    /// that was found is built on, or they would count when that one is gone.
    pub dropped: Vec<String>,
    /// Bytes dropped behind the last good group, and with segments.
    pub torn_bytes: u64,
}

/// Bytes fetched at once. Groups larger than this are fetched whole.
const READ_BYTES: usize = 4 << 20;
/// Segments opened at once.
const OPENED_CONCURRENTLY: usize = 32;
/// Segments whose first bytes are fetched at once, in advance: 32 MiB, before there is anything else in memory.
const READ_CONCURRENTLY: usize = 8;
/// Largest group: a full queue of records, the last of which may be of the largest size.
const GROUP_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + (64 << 20);

/// Reads every segment under `log/` and hands every record that counts to `visit`. Sequence numbers, not file order,
/// order the records of a tablet: its stream may have changed between processes.
///
/// Where a medium lets a new owner in while the former one still works, that one may delete segments meanwhile, until it
/// learns of its end. It deletes what is flushed by manifests it committed, and those count, so nothing is missed by
/// leaving out a segment that is no more. A segment that lost a part of itself is not one that is no more.
pub async fn replay<E: From<LogError>>(
    storage: &dyn Storage,
    visit: impl FnMut(Record) -> Result<(), E>,
) -> Result<ReplayReport, E> {
    replay_through(storage, u64::MAX, visit).await
}

/// The same of the segments up to the number `last`: while a process writes others, those of earlier processes.
pub async fn replay_through<E: From<LogError>>(
    storage: &dyn Storage,
    last: u64,
    mut visit: impl FnMut(Record) -> Result<(), E>,
) -> Result<ReplayReport, E> {
    let mut report = ReplayReport::default();
    let mut files = storage.list("log/").await.map_err(LogError::from)?;
    files.retain(|file| format::parse_segment_path(&file.path).is_some_and(|(_, number)| number <= last));
    let segments = open_all(storage, files).await?;
    // What the next segment of the same process says about the length of each.
    let known: HashMap<(u32, u64), KnownLengths> = segments
        .iter()
        .filter_map(|(stream, _, _, header)| header.map(|h| ((*stream, h.previous), KnownLengths::stated_by(&h))))
        .collect();
    // The segments that lost their end, a torn tail, and those dropped for it; and where the hole is.
    let mut holes: HashMap<(u32, u64), Hole> = HashMap::new();
    let beginnings = segments.into_iter().map(|segment| {
        let lengths = known.get(&(segment.0, segment.1)).copied();
        read_beginning(segment, lengths)
    });
    // What follows is read while records are handed out.
    let beginnings: Vec<_> = beginnings.collect();
    let mut beginnings = futures::stream::iter(beginnings).buffered(READ_CONCURRENTLY);
    'segments: while let Some(((stream, number, file, header), beginning)) = beginnings.next().await {
        let lengths = known.get(&(stream, number)).copied();
        if let Some(header) = header
            && let Some(hole) = holes.get(&(stream, header.previous)).cloned()
            && let Some(counts) = unless_deleted(counts_behind(&hole, &*file, &header, lengths).await)?
            && !counts
        {
            holes.insert((stream, number), hole);
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
            let Some(beginning) = unless_deleted(beginning)? else {
                continue;
            };
            let mut reader = SegmentReader::new(file, number, lengths).beginning_with(beginning);
            loop {
                let Some(group) = unless_deleted(reader.next_group().await)? else {
                    continue 'segments;
                };
                let Some(records) = group else { break };
                for record in records {
                    info.note(record.tablet, record.last);
                    report.records += 1;
                    visit(record)?;
                }
            }
            report.torn_bytes += reader.torn_bytes();
            info.whole = reader.torn_bytes() == 0 && reader.hole().is_none();
            if let Some(hole) = reader.hole() {
                holes.insert((stream, number), hole);
            }
        } else {
            report.torn_bytes += file.len();
            if let Some(hole) = hole_without_header(&info.path, lengths)? {
                holes.insert((stream, number), hole);
            }
        }
        report.segments.push((stream, number, info));
    }
    report.dropped.reverse();
    Ok(report)
}

/// A segment: stream, number, file, header.
type Opened = (u32, u64, Arc<dyn ReadFile>, Option<SegmentHeader>);

/// Opens the segments of a listing, several at once: of a remote medium each costs a few requests one after the other.
async fn open_all(storage: &dyn Storage, files: Vec<FileInfo>) -> Result<Vec<Opened>, LogError> {
    let opening = files.into_iter().filter_map(|info| {
        let (stream, number) = format::parse_segment_path(&info.path)?;
        Some(async move {
            let opened = async {
                let file = storage.open(&info.path).await?;
                let header = read_header(&*file, stream, number).await?;
                Ok((stream, number, file, header))
            };
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

/// What a walk over the segment reads first.
async fn read_beginning(segment: Opened, lengths: Option<KnownLengths>) -> (Opened, Result<Bytes, LogError>) {
    let reader = SegmentReader::new(segment.2.clone(), segment.1, lengths);
    let len = reader.end.saturating_sub(reader.at).min(READ_BYTES as u64) as usize;
    let read = match (&segment.3, len) {
        (None, _) | (_, 0) => Ok(Bytes::new()),
        _ => segment.2.read_at(reader.at, len).await,
    };
    (segment, read.map_err(LogError::from))
}

/// Where a segment lost its end.
#[derive(Clone, Debug)]
pub(crate) struct Hole {
    pub(crate) path: Arc<str>,
    pub(crate) offset: u64,
}

/// What is missing of a segment without a valid header. An error when the next one says that something of it was synced: the header
/// comes before anything else, so it was too, also where a single group behind it says nothing of that.
pub(crate) fn hole_without_header(path: &str, lengths: Option<KnownLengths>) -> Result<Option<Hole>, LogError> {
    let (path, offset): (Arc<str>, u64) = (Arc::from(path), 0);
    match lengths {
        Some(known) if known.synced > 0 => Err(LogError::Corruption {
            path,
            offset,
            detail: format!(
                "no valid header, yet the next segment says that {} bytes were synced",
                known.synced
            ),
        }),
        Some(known) if known.acknowledged > 0 => Ok(Some(Hole { path, offset })),
        _ => Ok(None),
    }
}

/// Whether a segment counts although one before it has a hole. It does when its beginning was synced before its first group
/// was written: then it began after a failure, and rests on nothing. Else it relieved the one before, and nothing in it was
/// synced before all earlier ones were whole; so if anything in it is known to have been synced, the hole is damage.
pub(crate) async fn counts_behind(
    hole: &Hole,
    file: &dyn ReadFile,
    header: &SegmentHeader,
    lengths: Option<KnownLengths>,
) -> Result<bool, LogError> {
    let begin = SEGMENT_HEADER_BYTES as u64;
    let mut said = lengths.is_some_and(|known| known.synced > begin);
    if file.len() >= begin + GROUP_HEADER_BYTES as u64 {
        let first = file.read_at(begin, GROUP_HEADER_BYTES).await?;
        let first = GroupHeader::decode(header.number, &first).filter(|group| group.offset == begin);
        if first.is_some_and(|group| group.unsynced == 0) {
            return Ok(true);
        }
        // Its header had been synced when the first group was written, for which all before it had to be.
        said |= first.is_some_and(|group| group.synced_through() > 0);
    }
    if said || find_synced_past(file, header.number, begin).await?.is_some() {
        return Err(LogError::Corruption {
            path: hole.path.clone(),
            offset: hole.offset,
            detail: format!(
                "no valid group here, yet it was synced before anything of {}",
                file.path()
            ),
        });
    }
    Ok(false)
}

/// What was listed and could not be opened must not be listed any more.
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
            detail: "the medium lists the segment and does not open it".to_owned(),
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

/// The header, or `None` for a segment that was cut off before its first group was synced.
pub(crate) async fn read_header(
    file: &dyn ReadFile,
    stream: u32,
    number: u64,
) -> Result<Option<SegmentHeader>, LogError> {
    let corruption = |detail: String| LogError::Corruption {
        path: Arc::from(file.path()),
        offset: 0,
        detail,
    };
    let header = if file.len() < SEGMENT_HEADER_BYTES as u64 {
        None
    } else {
        SegmentHeader::decode(&file.read_at(0, SEGMENT_HEADER_BYTES).await?)
    };
    match header {
        Some(h) if h.version > VERSION => Err(LogError::TooNew {
            path: Arc::from(file.path()),
            found: h.version,
            supported: VERSION,
        }),
        Some(h) if h.stream != stream || h.number != number => {
            let found = format!("header of stream {} segment {:016x}", h.stream, h.number);
            Err(corruption(format!(
                "expected stream {stream} segment {number:016x}, found {found}"
            )))
        }
        Some(h) => Ok(Some(h)),
        None => {
            // A group that says "synced" proves that the header had been written, too.
            match find_synced_past(file, number, 0).await? {
                Some(later) => Err(corruption(format!("no valid header, yet a synced group at {later}"))),
                None => Ok(None),
            }
        }
    }
}

/// What the following segment says of a segment.
#[derive(Clone, Copy)]
pub(crate) struct KnownLengths {
    pub(crate) acknowledged: u64,
    pub(crate) synced: u64,
}

impl KnownLengths {
    /// What a header says of the segment before its own.
    pub(crate) fn stated_by(header: &SegmentHeader) -> Self {
        KnownLengths {
            acknowledged: header.previous_len,
            synced: header.previous_synced,
        }
    }
}

/// Walks the groups of one segment.
pub(crate) struct SegmentReader {
    file: Arc<dyn ReadFile>,
    number: u64,
    /// Where valid content ends at the latest: the acknowledged length, where it is known, else the file's.
    end: u64,
    known: Option<KnownLengths>,
    pub(crate) at: u64,
    buffer: Bytes,
    /// File offset of the buffer's first byte.
    buffer_at: u64,
}

impl SegmentReader {
    pub(crate) fn new(file: Arc<dyn ReadFile>, number: u64, known: Option<KnownLengths>) -> Self {
        let end = known.map_or(file.len(), |k| k.acknowledged.min(file.len()));
        SegmentReader {
            file,
            number,
            end,
            known,
            at: SEGMENT_HEADER_BYTES as u64,
            buffer: Bytes::new(),
            buffer_at: 0,
        }
    }

    /// The same with what was read of its beginning already.
    fn beginning_with(self, buffer: Bytes) -> Self {
        SegmentReader {
            buffer_at: self.at,
            buffer,
            ..self
        }
    }

    /// Where something is missing that the next segment says was acknowledged.
    pub(crate) fn hole(&self) -> Option<Hole> {
        self.known.filter(|known| self.at < known.acknowledged).map(|_| Hole {
            path: Arc::from(self.file.path()),
            offset: self.at,
        })
    }

    fn torn_bytes(&self) -> u64 {
        self.file.len().saturating_sub(self.at)
    }

    /// The records of the next group, or `None` at the end or at a torn tail.
    pub(crate) async fn next_group(&mut self) -> Result<Option<Vec<Record>>, LogError> {
        if self.at >= self.end {
            return self.check_end().await;
        }
        match self.try_group().await? {
            Some((records, len)) => {
                self.at += len;
                Ok(Some(records))
            }
            None => self.check_end().await,
        }
    }

    pub(crate) async fn try_group(&mut self) -> Result<Option<(Vec<Record>, u64)>, LogError> {
        let Some(bytes) = self.bytes_at(self.at, GROUP_HEADER_BYTES).await? else {
            return Ok(None);
        };
        let Some(header) = GroupHeader::decode(self.number, &bytes) else {
            return Ok(None);
        };
        let records_len = header.records_len as usize;
        if header.offset != self.at || records_len > GROUP_BYTES_MAX {
            return Ok(None);
        }
        let records_at = self.at + GROUP_HEADER_BYTES as u64;
        let Some(mut bytes) = self.bytes_at(records_at, records_len).await? else {
            return Ok(None);
        };
        let mut records = Vec::new();
        while !bytes.is_empty() {
            match Record::decode(&mut bytes) {
                Some(record) => records.push(record),
                None => return Ok(None),
            }
        }
        let complete = records.len() == header.records as usize;
        Ok(complete.then_some((records, (GROUP_HEADER_BYTES + records_len) as u64)))
    }

    /// Exactly `len` bytes, or `None` where the segment ends before.
    async fn bytes_at(&mut self, offset: u64, len: usize) -> Result<Option<Bytes>, LogError> {
        if offset + len as u64 > self.end {
            return Ok(None);
        }
        let buffered = self.buffer_at + self.buffer.len() as u64;
        if offset < self.buffer_at || offset + len as u64 > buffered {
            let want = len.max(READ_BYTES).min((self.end - offset) as usize);
            self.buffer = self.file.read_at(offset, want).await?;
            self.buffer_at = offset;
        }
        let from = (offset - self.buffer_at) as usize;
        Ok(Some(self.buffer.slice(from..from + len)))
    }

    /// At the first spot that does not check: a torn tail, or damage to what was promised?
    async fn check_end(&self) -> Result<Option<Vec<Record>>, LogError> {
        let corruption = |detail| LogError::Corruption {
            path: Arc::from(self.file.path()),
            offset: self.at,
            detail,
        };
        if let Some(known) = self.known {
            if self.at >= known.acknowledged {
                return Ok(None);
            }
            if self.at < known.synced {
                return Err(corruption(format!(
                    "the next segment says that {} bytes were synced",
                    known.synced
                )));
            }
        }
        match find_synced_past(&*self.file, self.number, self.at).await? {
            Some(later) => Err(corruption(format!(
                "no valid group here, yet the one at {later} says it was synced"
            ))),
            None => Ok(None),
        }
    }
}

/// Looks behind `bad` for a group that knows `bad` to have been synced.
async fn find_synced_past(file: &dyn ReadFile, number: u64, bad: u64) -> Result<Option<u64>, LogError> {
    find_group(file, number, bad, |group| group.synced_through() > bad).await
}

/// Where the first group at or behind an offset begins whose header is wanted. Its records need not be intact.
pub(crate) async fn find_group(
    file: &dyn ReadFile,
    number: u64,
    offset: u64,
    is_wanted: impl Fn(GroupHeader) -> bool,
) -> Result<Option<u64>, LogError> {
    let mut at = offset;
    while at < file.len() {
        let want = READ_BYTES.min((file.len() - at) as usize);
        let chunk = file.read_at(at, want).await?;
        let mut from = 0;
        while let Some(found) = find(&chunk[from..], &GROUP_MAGIC) {
            let here = from + found;
            if let Some(header) = GroupHeader::decode(number, &chunk[here..])
                && header.offset == at + here as u64
                && is_wanted(header)
            {
                return Ok(Some(header.offset));
            }
            from = here + 1;
        }
        if want < READ_BYTES {
            break;
        }
        at += (want - GROUP_HEADER_BYTES) as u64;
    }
    Ok(None)
}

pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

/// Prints a segment: its header and, per group, its records. `describe` renders a payload.
pub async fn inspect(file: Arc<dyn ReadFile>, describe: impl Fn(&Record) -> String) -> Result<String, LogError> {
    let corruption = |detail: &str| LogError::Corruption {
        path: Arc::from(file.path()),
        offset: 0,
        detail: detail.to_owned(),
    };
    if file.len() < SEGMENT_HEADER_BYTES as u64 {
        return Err(corruption("shorter than a segment header"));
    }
    let header = SegmentHeader::decode(&file.read_at(0, SEGMENT_HEADER_BYTES).await?)
        .ok_or_else(|| corruption("the segment header does not check"))?;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "commit log segment {:016x}, stream {}, version {}",
        header.number, header.stream, header.version
    );
    let _ = writeln!(
        out,
        "previous segment {:016x}, {} bytes acknowledged",
        header.previous, header.previous_len
    );
    let mut reader = SegmentReader::new(file, header.number, None);
    while let Some(records) = {
        let at = reader.at;
        let group = reader.next_group().await?;
        if let Some(records) = &group {
            let _ = writeln!(
                out,
                "group at {at}: {} records, {} bytes",
                records.len(),
                reader.at - at
            );
        }
        group
    } {
        for record in &records {
            let Record {
                tablet,
                first,
                last,
                payload,
            } = record;
            let _ = writeln!(
                out,
                "  tablet {tablet} seq {first}..={last} {} bytes",
                payload.bytes().len()
            );
            out.push_str(&describe(record));
        }
    }
    let _ = writeln!(out, "ends at {}, {} bytes behind it", reader.at, reader.torn_bytes());
    Ok(out)
}
