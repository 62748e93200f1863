//! Salvage replaces damaged segments by new ones with their intact groups.
//!
//! Recovery refuses a log with damage that is not a torn tail, because acknowledged records are missing. As a last resort, a
//! repair writes each damaged segment again with all its intact groups, including those behind the damage. Every record
//! is a batch of its own, so a later one is valid without an earlier one.
//!
//! The new segment has a number that no server gives. No other segment refers to that number, so no reader misses bytes in
//! it. The length that the next segment stated of the damaged one is respected here.
//!
//! Segments that recovery would drop because of a gap before them are not written again: later writes would come back
//! without earlier ones ([`judge`]).

mod judge;

use crate::error::LogError;
use crate::format::{self, GROUP_MAGIC, GroupHeader, Record, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION};
use crate::replay::{KnownLengths, SegmentReader, find};
use bytes::BytesMut;
use judge::{Headers, Judgement};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_storage::past_unreadable::{self, PastUnreadable};
use stele_storage::{ReadFile, Storage, StorageError};
use stele_types::{SeqNo, TabletId};

/// A segment that lacks acknowledged bytes, or that is dropped with such a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedSegment {
    /// Its path.
    pub path: String,
    /// Its stream.
    pub stream: u32,
    /// Its number.
    pub number: u64,
    /// Bytes of it that count, if its successor states them.
    end: u64,
    /// The parts that cannot be read.
    pub lost: Vec<LostPart>,
    /// Records in the other parts.
    pub kept_records: u64,
    /// Nothing of it counts, and nothing of it was synced: there is a gap before it.
    pub dropped: bool,
}

/// A part of a segment that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostPart {
    /// Its offset.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
    /// The sequence numbers around it, for each tablet with records in the segment: the last before it and the first behind
    /// it, if there are any.
    pub tablets: BTreeMap<TabletId, (Option<SeqNo>, Option<SeqNo>)>,
}

/// The damaged segments of a log, in the order in which they must be replaced. Those that recovery would drop come first,
/// newest first: if one were gone, those behind it would count.
pub async fn damaged_segments(storage: &dyn Storage) -> Result<Vec<DamagedSegment>, LogError> {
    let mut segments: Vec<(u32, u64, Arc<PastUnreadable>)> = Vec::new();
    let mut headers = Headers::default();
    for info in storage.list("log/").await? {
        let Some((stream, number)) = format::parse_segment_path(&info.path) else {
            continue;
        };
        let file = past_unreadable::open_or_lost(storage, &info.path).await?;
        headers.add(stream, number, &file).await?;
        segments.push((stream, number, file));
    }
    let mut taken: BTreeSet<(u32, u64)> = BTreeSet::new();
    let (mut dropped, mut damaged) = (Vec::new(), Vec::new());
    for (stream, number, file) in segments {
        let known = headers.known_lengths(stream, number);
        if taken.contains(&(stream, number)) {
            dropped.push(DamagedSegment::of(stream, number, file, known, true).await?);
            continue;
        }
        let judgement = headers.judge(stream, number, &file).await?;
        // `judge` has read all bytes that recovery reads.
        if file.unreadable_bytes() > 0 || matches!(judgement, Judgement::Damaged) {
            damaged.push(DamagedSegment::of(stream, number, file, known, false).await?);
        } else if let Judgement::Takes(behind) = judgement {
            taken.extend(behind.into_iter().map(|number| (stream, number)));
        }
    }
    dropped.reverse();
    dropped.append(&mut damaged);
    Ok(dropped)
}

/// Writes the intact groups and the header of a damaged segment as a new segment. Returns its path, or `None` when neither is
/// left, or when the segment is dropped. The damaged one stays, for the caller to move away. May be called again after an
/// interruption: the new segment is made whole or not at all, and its number follows from the damaged one's.
pub async fn rewrite(storage: &dyn Storage, damaged: &DamagedSegment) -> Result<Option<String>, LogError> {
    if damaged.dropped {
        return Ok(None);
    }
    let number = number_of_rewritten(damaged.number);
    let original = past_unreadable::open_or_lost(storage, &damaged.path).await?;
    let mut header = SegmentHeader {
        version: VERSION,
        stream: damaged.stream,
        number,
        previous: 0,
        previous_len: 0,
        previous_synced: 0,
    };
    let stated = header_of(&*original, damaged.stream, damaged.number).await?;
    let speaks_of_one_before = stated.as_ref().is_some_and(|stated| stated.previous != 0);
    if damaged.kept_records == 0 && !speaks_of_one_before {
        return Ok(None);
    }
    if let Some(stated) = stated {
        // Without these facts, bytes that were refused in the segment before would come back.
        header.previous = stated.previous;
        header.previous_len = stated.previous_len;
        header.previous_synced = stated.previous_synced;
    }
    let mut content = BytesMut::new();
    content.extend_from_slice(&header.encode()[..]);
    let mut walk = Walk::new(original, damaged);
    while let Some(part) = walk.next().await? {
        let Part::Intact(records) = part else { continue };
        let records_len: usize = records.iter().map(Record::frame_len).sum();
        let group = GroupHeader {
            records_len: u32::try_from(records_len).unwrap_or(u32::MAX),
            records: u32::try_from(records.len()).unwrap_or(u32::MAX),
            offset: content.len() as u64,
            unsynced: 0,
        };
        content.extend_from_slice(&group.encode(number)[..]);
        for record in &records {
            content.extend_from_slice(&record.encode_header()[..]);
            content.extend_from_slice(record.payload.bytes());
        }
    }
    let path = format::segment_path(damaged.stream, number);
    match storage.put_if_absent(&path, content.freeze()).await {
        Ok(()) => Ok(Some(path)),
        Err(StorageError::AlreadyExists { .. }) => {
            // A repair that ended early made it, perhaps without making the name durable.
            storage.sync_file(&path).await?;
            Ok(Some(path))
        }
        Err(error) => Err(error.into()),
    }
}

/// Servers count the segments of an epoch in the lower half of their numbers, and never reach its highest bits.
fn number_of_rewritten(number: u64) -> u64 {
    let bits = (28..32).rev().map(|bit| 1u64 << bit);
    let unset = bits.into_iter().find(|bit| number & bit == 0);
    unset.map_or(number.wrapping_add(1), |bit| number | bit)
}

impl DamagedSegment {
    /// Reads all of a segment.
    async fn of(
        stream: u32,
        number: u64,
        file: Arc<PastUnreadable>,
        known: Option<KnownLengths>,
        dropped: bool,
    ) -> Result<Self, LogError> {
        let len = file.len();
        let acknowledged = known.map_or(len, |known| known.acknowledged);
        let mut segment = DamagedSegment {
            path: file.path().to_owned(),
            stream,
            number,
            end: acknowledged.min(len),
            lost: Vec::new(),
            kept_records: 0,
            dropped,
        };
        let mut walk = Walk::new(file, &segment);
        let mut last: BTreeMap<TabletId, SeqNo> = BTreeMap::new();
        while let Some(part) = walk.next().await? {
            segment.note(part, &mut last);
        }
        if acknowledged > len {
            // The segment was cut off.
            let (offset, len) = (len, acknowledged - len);
            segment.note(Part::Lost { offset, len }, &mut last);
        }
        Ok(segment)
    }

    fn note(&mut self, part: Part, last: &mut BTreeMap<TabletId, SeqNo>) {
        let records = match part {
            Part::Lost { offset, len } => {
                let tablets = last.iter().map(|(tablet, seq)| (*tablet, (Some(*seq), None)));
                self.lost.push(LostPart {
                    offset,
                    len,
                    tablets: tablets.collect(),
                });
                return;
            }
            Part::Intact(records) => records,
        };
        for record in records {
            self.kept_records += 1;
            for lost in &mut self.lost {
                let (_, behind) = lost.tablets.entry(record.tablet).or_default();
                behind.get_or_insert(record.first);
            }
            last.insert(record.tablet, record.last);
        }
    }
}

/// The header, if it is this segment's. The header of a misplaced file says nothing about the segments before this one.
async fn header_of(file: &dyn ReadFile, stream: u32, number: u64) -> Result<Option<SegmentHeader>, LogError> {
    if file.len() < SEGMENT_HEADER_BYTES as u64 {
        return Ok(None);
    }
    let header = SegmentHeader::decode(&file.read_at(0, SEGMENT_HEADER_BYTES).await?);
    Ok(header.filter(|header| header.stream == stream && header.number == number))
}

/// A part of a damaged segment.
enum Part {
    Intact(Vec<Record>),
    Lost { offset: u64, len: u64 },
}

/// Walks over a segment, past the parts that cannot be read.
struct Walk {
    file: Arc<dyn ReadFile>,
    number: u64,
    end: u64,
    reader: SegmentReader,
}

impl Walk {
    fn new(file: Arc<dyn ReadFile>, segment: &DamagedSegment) -> Self {
        let known = KnownLengths {
            acknowledged: segment.end,
            synced: 0,
        };
        Walk {
            reader: SegmentReader::new(file.clone(), segment.number, Some(known)),
            file,
            number: segment.number,
            end: segment.end,
        }
    }

    async fn next(&mut self) -> Result<Option<Part>, LogError> {
        let at = self.reader.at;
        if at >= self.end {
            return Ok(None);
        }
        if let Some((records, len)) = self.reader.try_group().await? {
            self.reader.at += len;
            return Ok(Some(Part::Intact(records)));
        }
        let next = self.next_group_behind(at).await?.unwrap_or(self.end);
        self.reader.at = next;
        Ok(Some(Part::Lost {
            offset: at,
            len: next - at,
        }))
    }

    /// The offset of the next group that is intact as a whole.
    async fn next_group_behind(&mut self, bad: u64) -> Result<Option<u64>, LogError> {
        let mut at = bad + 1;
        while at < self.end {
            let want = SEARCHED_BYTES.min(usize::try_from(self.end - at).unwrap_or(usize::MAX));
            let chunk = self.file.read_at(at, want).await?;
            let mut from = 0;
            while let Some(found) = chunk.get(from..).and_then(|rest| find(rest, &GROUP_MAGIC)) {
                let here = from + found;
                let offset = at + here as u64;
                let header = chunk
                    .get(here..)
                    .and_then(|rest| GroupHeader::decode(self.number, rest));
                // A header that is cut off at the end of the chunk is whole at the front of the next one.
                if header.is_some_and(|header| header.offset == offset) {
                    self.reader.at = offset;
                    if self.reader.try_group().await?.is_some() {
                        return Ok(Some(offset));
                    }
                }
                from = here + 1;
            }
            if want < SEARCHED_BYTES {
                break;
            }
            at += (want - format::GROUP_HEADER_BYTES) as u64;
        }
        Ok(None)
    }
}

/// Bytes searched for a group with one read.
const SEARCHED_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests;
