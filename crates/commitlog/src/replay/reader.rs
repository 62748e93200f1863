//! Reads one segment: its header, its groups, and whether its end is torn or damaged.

use crate::error::LogError;
use crate::format::{
    GROUP_HEADER_BYTES, GROUP_MAGIC, GroupHeader, PAYLOAD_BYTES_MAX, Record, SEGMENT_HEADER_BYTES, SegmentHeader,
    VERSION,
};
use crate::replay::ahead::Ahead;
use crate::replay::gap::Gap;
use bytes::Bytes;
use std::sync::Arc;
use stele_storage::ReadFile;

/// Bytes fetched by one read at most, unless a group is larger.
pub(super) const READ_BYTES: usize = 4 << 20;
/// Largest group: a full queue of records, the last of which may be of the largest size.
const GROUP_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + (64 << 20);

/// The header, or `None` for a segment that was cut off before its first group was synced.
pub(crate) async fn read_header(
    file: &dyn ReadFile,
    stream: u32,
    number: u64,
) -> Result<Option<SegmentHeader>, LogError> {
    let (header, _) = read_header_and(file, (stream, number), 0).await?;
    Ok(header)
}

/// The same with as many of the bytes behind the header as are asked for and there: one read for both.
pub(super) async fn read_header_and(
    file: &dyn ReadFile,
    (stream, number): (u32, u64),
    more: usize,
) -> Result<(Option<SegmentHeader>, Bytes), LogError> {
    let mut behind = Bytes::new();
    let header = if file.len() < SEGMENT_HEADER_BYTES as u64 {
        None
    } else {
        let len = file.len().min((SEGMENT_HEADER_BYTES + more) as u64);
        let mut bytes = file.read_at(0, len as usize).await?;
        behind = bytes.split_off(SEGMENT_HEADER_BYTES);
        SegmentHeader::decode(&bytes)
    };
    Ok((check_header(file, (stream, number), header).await?, behind))
}

async fn check_header(
    file: &dyn ReadFile,
    (stream, number): (u32, u64),
    header: Option<SegmentHeader>,
) -> Result<Option<SegmentHeader>, LogError> {
    let corruption = |detail: String| LogError::Corruption {
        path: Arc::from(file.path()),
        offset: 0,
        detail,
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
            // A group that states synced bytes proves that the header had been written, too.
            match find_synced_past(file, number, 0).await? {
                Some(later) => Err(corruption(format!("no valid header, yet a synced group at {later}"))),
                None => Ok(None),
            }
        }
    }
}

/// The lengths of a segment that the following one states.
#[derive(Clone, Copy)]
pub(crate) struct KnownLengths {
    pub(crate) acknowledged: u64,
    pub(crate) synced: u64,
}

impl KnownLengths {
    /// The lengths that a header states of the segment before its own.
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
    pub(super) end: u64,
    known: Option<KnownLengths>,
    /// The offset of the next group.
    pub(crate) at: u64,
    buffer: Bytes,
    /// File offset of the buffer's first byte.
    buffer_at: u64,
    /// The bytes behind the buffer, for a walk through the whole segment, and those of the segments behind this one.
    ahead: Option<Ahead>,
    /// The buffer ends where `ahead` is.
    walks: bool,
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
            ahead: None,
            walks: false,
        }
    }

    /// The same reader for a walk through the whole segment, whose bytes come next.
    pub(super) fn walking(self, ahead: Ahead) -> Self {
        assert_eq!(ahead.at(), self.at, "a walk begins at the reader's place");
        SegmentReader {
            buffer_at: self.at,
            ahead: Some(ahead),
            walks: true,
            ..self
        }
    }

    /// For the next segment.
    pub(super) fn into_ahead(self) -> Option<Ahead> {
        self.ahead
    }

    /// The gap at the reader's place, if the next segment says that more was acknowledged.
    pub(crate) fn gap(&self) -> Option<Gap> {
        self.known.filter(|known| self.at < known.acknowledged).map(|_| Gap {
            path: Arc::from(self.file.path()),
            offset: self.at,
        })
    }

    pub(super) fn torn_bytes(&self) -> u64 {
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
                assert!(
                    len > GROUP_HEADER_BYTES as u64 && self.at <= self.end,
                    "a reader moves forward, and not past the end"
                );
                Ok(Some(records))
            }
            None => self.check_end().await,
        }
    }

    /// The group at the reader's place and its length, or `None` where it does not check.
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

    /// Exactly `len` bytes, or `None` where the segment ends earlier.
    async fn bytes_at(&mut self, offset: u64, len: usize) -> Result<Option<Bytes>, LogError> {
        if offset + len as u64 > self.end {
            return Ok(None);
        }
        let buffered = self.buffer_at + self.buffer.len() as u64;
        if offset < self.buffer_at || offset + len as u64 > buffered {
            self.buffer = match &mut self.ahead {
                Some(ahead) if self.walks && (self.buffer_at..=buffered).contains(&offset) => {
                    debug_assert_eq!(
                        ahead.at(),
                        buffered,
                        "nothing is between the buffer and the bytes behind it"
                    );
                    let rest = self.buffer.slice((offset - self.buffer_at) as usize..);
                    ahead.extend(rest, len).await?
                }
                _ => {
                    self.walks = false;
                    let want = len.max(READ_BYTES).min((self.end - offset) as usize);
                    self.file.read_at(offset, want).await?
                }
            };
            self.buffer_at = offset;
        }
        debug_assert!(offset >= self.buffer_at, "the buffer covers the bytes asked for");
        let from = (offset - self.buffer_at) as usize;
        Ok(Some(self.buffer.slice(from..from + len)))
    }

    /// Decides at the first offset that does not check: `None` for a torn tail, an error for damage to bytes that were synced.
    async fn check_end(&mut self) -> Result<Option<Vec<Record>>, LogError> {
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

/// Finds a group behind `bad` that states that `bad` was synced.
pub(super) async fn find_synced_past(file: &dyn ReadFile, number: u64, bad: u64) -> Result<Option<u64>, LogError> {
    find_group(file, number, bad, |group| group.synced_through() > bad).await
}

/// The offset of the first group at or behind `offset` whose header is wanted. Its records need not be intact.
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
