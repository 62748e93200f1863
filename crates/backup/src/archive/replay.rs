//! Reads the records of an archive back, up to a moment.
//!
//! Invariants:
//! * Records of a tablet come in the order of their sequence numbers, each once. A repaired log may have some twice.
//! * A hole in a stream is an error, and so is a byte that does not check: nothing is skipped.

use super::format::{Part, Piece};
use super::store::{Archive, damaged};
use crate::error::Result;
use std::collections::BTreeMap;
use stele_commitlog::{BadPiece, Mark, Pieces, Record};
use stele_types::{SeqNo, TabletId};

/// Bytes of a header: a segment of no more has no group.
const HEADER_BYTES: u64 = stele_commitlog::format::SEGMENT_HEADER_BYTES as u64;

/// A reader of the parts of one range, in their order.
pub struct Replay<'a> {
    archive: &'a Archive,
    /// Records of later groups are left out.
    at: i64,
    /// The segment and the offset at which each stream ended in the parts so far.
    ends: BTreeMap<u32, (u64, u64)>,
    /// The newest record of each tablet.
    newest: BTreeMap<TabletId, SeqNo>,
    part: Option<Reading>,
}

/// A part that is being read.
struct Reading {
    part: Part,
    /// The next piece.
    index: usize,
    /// The segment of the last one.
    open: Option<Pieces>,
    last: Option<Piece>,
}

impl Reading {
    /// Ends a segment: its last piece ends with a group.
    fn finish(&mut self) -> Result<()> {
        let path = self.part.piece_path(self.index.saturating_sub(1));
        let open = self.open.take();
        let finished = open.map_or(Ok(()), |open| open.finish());
        finished.map_err(|error| damaged(&path, &error.to_string()))
    }
}

impl<'a> Replay<'a> {
    /// Of the records up to a moment.
    pub fn new(archive: &'a Archive, at: i64) -> Self {
        Replay {
            archive,
            at,
            ends: BTreeMap::new(),
            newest: BTreeMap::new(),
            part: None,
        }
    }

    /// Begins with the next part.
    pub fn begin_part(&mut self, part: Part) {
        self.part = Some(Reading {
            part,
            index: 0,
            open: None,
            last: None,
        });
    }

    /// The records of the next piece of the part; `None` behind the last one.
    pub async fn next(&mut self) -> Result<Option<Vec<Record>>> {
        let Some(mut reading) = self.part.take() else {
            return Ok(None);
        };
        let Some(piece) = reading.part.pieces.get(reading.index).copied() else {
            reading.finish()?;
            return Ok(None);
        };
        let bytes = self.archive.piece(&reading.part, reading.index).await?;
        let records = self.read(&mut reading, piece, &bytes)?;
        reading.index += 1;
        self.part = Some(reading);
        Ok(Some(records))
    }

    fn read(&mut self, reading: &mut Reading, piece: Piece, bytes: &[u8]) -> Result<Vec<Record>> {
        let path = reading.part.piece_path(reading.index);
        let bad = |error: BadPiece| damaged(&path, &error.to_string());
        let goes_on = reading.last.is_some_and(|last| {
            (last.stream, last.segment, last.from + last.len) == (piece.stream, piece.segment, piece.from)
        });
        if !goes_on {
            reading.finish()?;
            self.begin(&path, &piece)?;
        }
        let fresh = || Pieces::new(piece.stream, piece.segment, piece.from);
        let pieces = reading.open.get_or_insert_with(fresh);
        pieces.push(bytes);
        if let Some(header) = pieces.take_header().map_err(bad)?
            && header.previous > 0
            && header.previous_len > HEADER_BYTES
            && let Some(end) = self.ends.get(&piece.stream)
            && *end != (header.previous, header.previous_len)
        {
            let detail = format!(
                "the segment follows {:016x} with {} bytes, and the archive has {:016x} up to {}",
                header.previous, header.previous_len, end.0, end.1
            );
            return Err(damaged(&path, &detail));
        }
        let mut records = Vec::new();
        while let Some(group) = pieces.next_group().map_err(bad)? {
            self.take(&path, group, &mut records)?;
        }
        self.ends.insert(piece.stream, (piece.segment, piece.from + piece.len));
        reading.last = Some(piece);
        Ok(records)
    }

    /// Fails if a piece does not go on where its stream ended.
    fn begin(&self, path: &str, piece: &Piece) -> Result<()> {
        match self.ends.get(&piece.stream) {
            Some((segment, end)) if *segment == piece.segment && *end != piece.from => {
                let detail = format!(
                    "it begins at {}, and the archive has the segment up to {end}",
                    piece.from
                );
                Err(damaged(path, &detail))
            }
            Some((segment, _)) if *segment != piece.segment && piece.from > 0 => {
                Err(damaged(path, "the beginning of its segment is not in the archive"))
            }
            _ => Ok(()),
        }
    }

    /// Takes the records of a group that are not after the moment, and were not taken before.
    fn take(&mut self, path: &str, group: Vec<Record>, out: &mut Vec<Record>) -> Result<()> {
        let time = group.first().and_then(Mark::of);
        let Some(time) = time else {
            return Err(damaged(
                path,
                "a group has no time, because a later version wrote it, or one that archived no log",
            ));
        };
        if time.micros() > self.at {
            return Ok(());
        }
        for record in group {
            if Mark::is_one(&record) {
                continue;
            }
            let newest = self.newest.entry(record.tablet).or_default();
            if record.first > *newest {
                *newest = record.last;
                out.push(record);
            }
        }
        Ok(())
    }
}
