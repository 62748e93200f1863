//! Reads the records of an archive back, up to a moment.
//!
//! Invariants:
//! * Records of a row come once, in the order of their sequence numbers. This holds where its tablet was split or merged, and other
//!   tablets are in other streams: streams are merged by the times of their groups, and groups of one time by sequence numbers.
//! * A hole in a stream is an error, and so is a byte that does not check: nothing is skipped.
//!
//! A group may be in a part although a group before it in another stream is in the next part. Its time is then not before the end of the
//! part, so it waits for that part.
//!
//! A stream has a group and the bytes of one read in memory, which are reserved.

use super::format::{Part, Piece, StreamEnd, part_path};
use super::memory::{RestoreMemory, StreamMemory};
use super::pieces::PieceReader;
use super::store::{Archive, damaged};
use crate::error::{BackupError, Result};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use stele_commitlog::{BadPiece, Mark, Pieces, Record};
use stele_types::{SeqNo, TabletId};

/// Bytes of a header: a segment of no more has no group.
const HEADER_BYTES: u64 = stele_commitlog::format::SEGMENT_HEADER_BYTES as u64;
/// Bytes of records of one time that are sorted: the log of seconds in which the clock stood still.
const SORTED_BYTES: usize = 64 << 20;

/// A segment, and an offset in it.
type Position = (u64, u64);

/// A reader of the parts of one range, in their order.
pub(crate) struct Replay<'a> {
    archive: &'a Archive,
    memory: &'a RestoreMemory,
    /// Records of later groups are left out.
    at: i64,
    /// Where each stream ends in the parts so far.
    ends: BTreeMap<u32, Position>,
    /// Whether `ends` has all streams.
    is_seeded: bool,
    /// The newest record of each tablet.
    newest: BTreeMap<TabletId, SeqNo>,
    streams: BTreeMap<u32, Cursor>,
    /// The end of the last part. Groups from there on wait for the next one.
    until: i64,
    /// The time of the last records.
    micros: i64,
    times: Times,
}

/// The times of servers, one after the other.
struct Times {
    epoch: u64,
    /// The newest so far.
    newest: i64,
    /// The newest of servers before this one.
    former: i64,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            epoch: 0,
            newest: i64::MIN,
            former: i64::MIN,
        }
    }
}

impl Times {
    /// Goes on with a group. Fails if a server has given it an earlier time than one before it has given, and the moment is between
    /// these: no state of the tables was that of the moment. Archives of earlier versions may have such groups.
    fn check(&mut self, (epoch, micros): (u64, i64), at: i64) -> Result<()> {
        if epoch != self.epoch {
            (self.epoch, self.former) = (epoch, self.newest);
        }
        self.newest = self.newest.max(micros);
        match micros <= at && at < self.former {
            true => Err(set_back(micros, self.former)),
            false => Ok(()),
        }
    }
}

/// A group of records.
struct Group {
    /// The epoch of the server, and its time.
    key: (u64, i64),
    records: Vec<Record>,
}

/// A piece that is to be read.
struct Next {
    part: Arc<Part>,
    index: usize,
    piece: Piece,
    /// Where the stream ended before it.
    after: Option<Position>,
}

/// A stream that is being read.
struct Cursor {
    left: VecDeque<Next>,
    /// The segment of the last piece.
    open: Option<Pieces>,
    /// The last piece, and the number of its part.
    last: Option<Last>,
    head: Option<Group>,
    memory: StreamMemory,
}

/// A piece that is being read, or was read.
struct Last {
    part: u64,
    piece: Piece,
    after: Option<Position>,
    reader: PieceReader,
}

impl Last {
    fn goes_on_with(&self, next: &Next) -> bool {
        let end = (self.piece.segment, self.piece.from + self.piece.len);
        (self.part, end) == (next.part.number, (next.piece.segment, next.piece.from))
    }
}

impl Cursor {
    fn new(memory: &RestoreMemory) -> Cursor {
        Cursor {
            left: VecDeque::new(),
            open: None,
            last: None,
            head: None,
            memory: memory.of_stream(),
        }
    }

    /// Reads the next group, if there is one, with the pieces that it needs.
    async fn fill(&mut self, archive: &Archive, memory: &RestoreMemory) -> Result<()> {
        while self.head.is_none() {
            if self.take_group()? {
                continue;
            }
            if self.last.as_ref().is_some_and(|last| last.reader.left() > 0) {
                self.read(memory).await?;
            } else if let Some(next) = self.left.pop_front() {
                self.open(archive, memory, next).await?;
            } else {
                return self.finish();
            }
        }
        Ok(())
    }

    /// Takes the next group from the bytes that were read, if all of it was.
    fn take_group(&mut self) -> Result<bool> {
        let (Some(open), Some(last)) = (&mut self.open, &self.last) else {
            return Ok(false);
        };
        let path = last.reader.path();
        let Some(records) = open.next_group().map_err(|error| bad(path, &error))? else {
            return Ok(false);
        };
        let key = (last.piece.segment >> 32, time(path, &records)?);
        let bytes: usize = records.iter().map(|record| record.payload.bytes().len()).sum();
        self.memory.set(open.buffered() + bytes);
        self.head = Some(Group { key, records });
        Ok(true)
    }

    async fn open(&mut self, archive: &Archive, memory: &RestoreMemory, next: Next) -> Result<()> {
        if !self.last.as_ref().is_some_and(|last| last.goes_on_with(&next)) {
            self.finish()?;
        }
        let (piece, after) = (next.piece, next.after);
        let first = memory.bytes_to_read(piece.len);
        let reader = archive.open_piece(&next.part, next.index, first).await?;
        let fresh = || Pieces::new(piece.stream, piece.segment, piece.from);
        self.open.get_or_insert_with(fresh);
        self.last = Some(Last {
            part: next.part.number,
            piece,
            after,
            reader,
        });
        Ok(())
    }

    /// Reads more of the last piece.
    async fn read(&mut self, memory: &RestoreMemory) -> Result<()> {
        let (Some(open), Some(last)) = (&mut self.open, &mut self.last) else {
            return Ok(());
        };
        let len = memory.bytes_to_read(last.reader.left());
        self.memory.set(open.buffered() + len);
        let bytes = last.reader.next(len).await?;
        open.push(&bytes);
        let path = last.reader.path();
        let header = open.take_header().map_err(|error| bad(path, &error))?;
        if let (Some(header), Some(end)) = (header, last.after)
            && header.previous > 0
            && header.previous_len > HEADER_BYTES
            && end != (header.previous, header.previous_len)
        {
            let detail = format!(
                "the segment follows {:016x} with {} bytes, and the archive has {:016x} up to {}",
                header.previous, header.previous_len, end.0, end.1
            );
            return Err(damaged(path, &detail));
        }
        Ok(())
    }

    /// Ends a segment of a part: its last piece ends with a group.
    fn finish(&mut self) -> Result<()> {
        let path = self.last.as_ref().map_or("", |last| last.reader.path());
        self.memory.set(0);
        let finished = self.open.take().map_or(Ok(()), |open| open.finish());
        finished.map_err(|error| bad(path, &error))
    }
}

impl<'a> Replay<'a> {
    /// Of the records up to a moment. `before` is the part before the first one that is read, if it is there.
    pub(crate) fn new((archive, memory): (&'a Archive, &'a RestoreMemory), at: i64, before: Option<&Part>) -> Self {
        let ends = before.map(|part| part.ends.iter().map(position).collect());
        Replay {
            archive,
            memory,
            at,
            is_seeded: ends.is_some(),
            ends: ends.unwrap_or_default(),
            newest: BTreeMap::new(),
            streams: BTreeMap::new(),
            until: i64::MIN,
            micros: i64::MIN,
            times: Times::default(),
        }
    }

    /// Begins with the next part. Fails if its pieces do not go on where the log of the parts before ends, or do not lead to its own end.
    pub(crate) fn begin_part(&mut self, part: Part) -> Result<()> {
        if part.begins_range() {
            self.ends = part.ends.iter().map(position).collect();
            self.is_seeded = true;
        }
        let part = Arc::new(part);
        for (index, piece) in part.pieces.iter().enumerate() {
            let after = self.ends.get(&piece.stream).copied();
            self.check_begin(&part, index, piece, after)?;
            let end = (piece.segment, piece.from.saturating_add(piece.len));
            self.ends.insert(piece.stream, end);
            let next = Next {
                part: part.clone(),
                index,
                piece: *piece,
                after,
            };
            let memory = self.memory;
            let stream = self.streams.entry(piece.stream);
            stream.or_insert_with(|| Cursor::new(memory)).left.push_back(next);
        }
        for (stream, end) in part.ends.iter().map(position) {
            let found = self.ends.insert(stream, end);
            if found != Some(end) && (found.is_some() || self.is_seeded) {
                let (segment, to) = found.unwrap_or_default();
                let detail = format!(
                    "the archive lacks log of stream {stream}: it has segment {segment:016x} up to {to}, and should have {:016x} up to {}",
                    end.0, end.1
                );
                return Err(damaged(&part_path(part.number), &detail));
            }
        }
        self.is_seeded = true;
        self.until = part.to_micros;
        Ok(())
    }

    /// Fails if a piece does not go on where its stream ended.
    fn check_begin(&self, part: &Part, index: usize, piece: &Piece, after: Option<Position>) -> Result<()> {
        let detail = match after {
            Some((segment, end)) if segment == piece.segment && end != piece.from => format!(
                "the archive lacks log before it: it begins at {}, and the archive has the segment up to {end}",
                piece.from
            ),
            Some((segment, _)) if segment != piece.segment && piece.from > 0 => no_beginning(),
            None if self.is_seeded && piece.from > 0 => no_beginning(),
            _ => return Ok(()),
        };
        Err(damaged(&part.piece_path(index), &detail))
    }

    /// No part follows: the next calls return all that is left.
    pub(crate) fn end_parts(&mut self) {
        self.until = i64::MAX;
    }

    /// The time of the records that came last.
    pub(crate) fn micros(&self) -> i64 {
        self.micros
    }

    /// The next records; `None` when the next part is needed for more.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Record>>> {
        let Some(key) = self.next_key().await? else {
            return Ok(None);
        };
        self.micros = key.1;
        self.times.check(key, self.at)?;
        let is_next = |cursor: &Cursor| cursor.head.as_ref().is_some_and(|group| group.key == key);
        let of_several = self.streams.values().filter(|cursor| is_next(cursor)).count() > 1;
        let (mut bytes, mut taken) = (0, Vec::new());
        for cursor in self.streams.values_mut() {
            while let Some(group) = cursor.head.take_if(|group| group.key == key) {
                if key.1 <= self.at {
                    let records = group.records.into_iter().filter(|record| !Mark::is_one(record));
                    let before = taken.len();
                    taken.extend(records);
                    let added = taken.iter().skip(before);
                    bytes += added.map(|record| record.payload.bytes().len()).sum::<usize>();
                }
                if !of_several {
                    break;
                }
                if bytes > SORTED_BYTES {
                    return Err(stood_still(key.1));
                }
                cursor.fill(self.archive, self.memory).await?;
            }
        }
        if of_several {
            // Those of a row ascend, and so do those of a tablet.
            taken.sort_by_key(|record: &Record| record.first);
        }
        taken.retain(|record| {
            let newest = self.newest.entry(record.tablet).or_default();
            let is_new = record.first > *newest;
            if is_new {
                *newest = record.last;
            }
            is_new
        });
        Ok(Some(taken))
    }

    /// The epoch and the time of the next groups.
    async fn next_key(&mut self) -> Result<Option<(u64, i64)>> {
        let mut first = None;
        for cursor in self.streams.values_mut() {
            cursor.fill(self.archive, self.memory).await?;
            let key = cursor.head.as_ref().map(|group| group.key);
            first = first.into_iter().chain(key).min();
        }
        Ok(first.filter(|(_, micros)| *micros < self.until))
    }
}

fn position(end: &StreamEnd) -> (u32, Position) {
    (end.stream, (end.segment, end.end))
}

fn no_beginning() -> String {
    "the archive lacks the beginning of its segment".to_owned()
}

fn bad(path: &str, error: &BadPiece) -> BackupError {
    damaged(path, &error.to_string())
}

/// The time of a group.
fn time(path: &str, group: &[Record]) -> Result<i64> {
    let mark = group.first().and_then(Mark::of);
    let detail = "a group has no time, because a later version wrote it, or one that archived no log";
    mark.map(|mark| mark.micros()).ok_or_else(|| damaged(path, detail))
}

fn set_back(micros: i64, former: i64) -> BackupError {
    BackupError::Moment(format!(
        "the moment cannot be restored: the clock was set back between two servers, and the later one has written at {micros} and the one before at {former}; moments before {micros} can be restored, and those from {former} on"
    ))
}

fn stood_still(micros: i64) -> BackupError {
    BackupError::Moment(format!(
        "the moment cannot be restored: the clock of the server stood still at {micros}, so the order of the writes of that time is not known; the latest moment that can be restored with this backup is {}, and a later backup leads further",
        micros.saturating_sub(1)
    ))
}

#[cfg(test)]
mod tests;
