//! One round of an archiver: the bytes that it copies, and how far it is.

use super::changes;
use super::format::{Barrier, CHANGES_BYTES, ChangesPiece, Part, Piece, StreamEnd, TableChange, TableChanges};
use super::metrics::ArchiveMetrics;
use super::store::Archive;
use crate::error::{BackupError, Result};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_catalog::CatalogView;
use stele_commitlog::format::parse_segment_path;
use stele_commitlog::{BarrierCause, LogPosition, Mark, Pieces, Record};
use stele_storage::Storage;

const HEADER_BYTES: u64 = stele_commitlog::format::SEGMENT_HEADER_BYTES as u64;
/// Bytes of a piece at most, so that memory is bounded: one is in memory at a time.
const PIECE_BYTES: u64 = 8 << 20;

/// The log that waits for the archive.
#[derive(Default)]
pub(super) struct Waiting {
    /// Pieces with the path of their segment, in the order of segments.
    pub(super) pieces: Vec<(Piece, String)>,
    /// How far the streams are with them.
    pub(super) ends: BTreeMap<u32, StreamEnd>,
    /// Closed segments of which nothing waits.
    pub(super) complete: Vec<u64>,
    /// Bytes of the pieces.
    pub(super) bytes: u64,
}

impl Waiting {
    /// Everything behind `done`.
    pub(super) fn of(positions: &[LogPosition], done: &BTreeMap<u32, StreamEnd>) -> Waiting {
        let mut waiting = Waiting {
            ends: done.clone(),
            ..Waiting::default()
        };
        for position in positions {
            let Some((stream, segment)) = parse_segment_path(&position.path) else {
                continue;
            };
            let from = match done.get(&stream) {
                Some(end) if end.segment > segment => position.end,
                Some(end) if end.segment == segment => end.end,
                _ => 0,
            };
            // A header alone has nothing. After failures several segments of this kind follow one, and the next that counts follows it, too:
            // as a piece they would seem to be a gap.
            if from >= position.end || position.end <= HEADER_BYTES {
                waiting.complete.extend(Some(segment).filter(|_| position.is_closed));
                continue;
            }
            let pieces = pieces_of(stream, segment, from, position.end);
            waiting
                .pieces
                .extend(pieces.map(|piece| (piece, position.path.clone())));
            waiting.bytes += position.end - from;
            let end = position.end;
            waiting.ends.insert(stream, StreamEnd { stream, segment, end });
        }
        waiting
    }
}

/// The pieces from one offset of a segment to another.
fn pieces_of(stream: u32, segment: u64, from: u64, end: u64) -> impl Iterator<Item = Piece> {
    let count = end.saturating_sub(from).div_ceil(PIECE_BYTES);
    (0..count).map(move |n| {
        let begin = from + n * PIECE_BYTES;
        Piece {
            stream,
            segment,
            from: begin,
            len: PIECE_BYTES.min(end - begin),
            crc: 0,
        }
    })
}

/// Tables as they are at a moment.
pub(super) type Statement = (i64, Arc<CatalogView>);

/// A part on its way into the archive.
pub(super) struct Round {
    /// Its document; checksums of pieces are there once these are written, and so are changes.
    pub(super) part: Part,
    /// The first of its changes: all tables at a moment.
    stated: Option<Statement>,
    /// Those behind.
    pub(super) noted: Vec<TableChange>,
    /// Pieces of changes that may be written.
    changes_tried: usize,
    /// The part has its changes, or their pieces.
    has_changes: bool,
    /// The paths of the segments of its pieces.
    sources: Vec<String>,
    /// Pieces that are written.
    written: usize,
}

impl Round {
    pub(super) fn new(part: Part, stated: Option<Statement>, pieces: Vec<(Piece, String)>) -> Round {
        debug_assert_eq!(part.pieces.len(), pieces.len(), "each piece has a segment");
        Round {
            part,
            stated,
            noted: Vec::new(),
            changes_tried: 0,
            has_changes: false,
            sources: pieces.into_iter().map(|(_, path)| path).collect(),
            written: 0,
        }
    }

    /// Numbers of pieces that it has used up.
    pub(super) fn numbers(&self) -> u32 {
        u32::try_from(self.part.pieces.len() + self.changes_tried).unwrap_or(u32::MAX)
    }

    /// Puts the changes of tables into the part, or into pieces if they are too many. After a failure the next call writes the same again.
    pub(super) async fn upload_changes(&mut self, archive: &Archive) -> Result<()> {
        if self.has_changes {
            return Ok(());
        }
        let (mut pieces, mut some, mut bytes) = (Vec::new(), Vec::new(), 0);
        let stated = self.stated.iter().flat_map(|(at, view)| changes::all(*at, view));
        for change in stated.chain(self.noted.iter().cloned()) {
            let len = change.encoded_len();
            if bytes + len > CHANGES_BYTES && !some.is_empty() {
                self.changes_tried = self.changes_tried.max(pieces.len() + 1);
                let path = self.part.change_path(pieces.len());
                pieces.push(put_changes(archive, &path, std::mem::take(&mut some)).await?);
                bytes = 0;
            }
            bytes += len;
            some.push(change);
        }
        if !pieces.is_empty() {
            self.changes_tried = self.changes_tried.max(pieces.len() + 1);
            let path = self.part.change_path(pieces.len());
            pieces.push(put_changes(archive, &path, std::mem::take(&mut some)).await?);
        }
        (self.part.changes, self.part.change_pieces) = (some, pieces);
        self.has_changes = true;
        Ok(())
    }

    /// Writes the pieces of the next segment that are not written yet; whether there are more. Every group is checked on the way.
    /// After a failure the next call goes on with the segment that failed.
    pub(super) async fn upload_segment(
        &mut self,
        archive: &Archive,
        log: &dyn Storage,
        metrics: &ArchiveMetrics,
    ) -> Result<bool> {
        let begin = self.written;
        let segment = self.part.pieces.get(begin).map(|piece| piece.segment);
        let left = self.part.pieces.iter().skip(begin);
        let end = begin + left.take_while(|piece| Some(piece.segment) == segment).count();
        self.upload_pieces(archive, log, metrics, begin..end).await?;
        self.written = end;
        Ok(end < self.part.pieces.len())
    }

    async fn upload_pieces(
        &mut self,
        archive: &Archive,
        log: &dyn Storage,
        metrics: &ArchiveMetrics,
        indices: std::ops::Range<usize>,
    ) -> Result<()> {
        let Some((path, first)) = self.sources.get(indices.start).zip(self.part.pieces.get(indices.start)) else {
            return Ok(());
        };
        let file = log.open(path).await.map_err(BackupError::Data)?;
        let mut checked = Pieces::new(first.stream, first.segment, first.from);
        let mut barriers = Vec::new();
        for index in indices {
            let at = self.part.piece_path(index);
            let Some(piece) = self.part.pieces.get_mut(index) else {
                break;
            };
            let bytes = file
                .read_at(piece.from, piece.len as usize)
                .await
                .map_err(BackupError::Data)?;
            checked.push(&bytes);
            let damaged = |error: stele_commitlog::BadPiece| BackupError::Damaged {
                path: path.clone(),
                detail: error.to_string(),
            };
            checked.take_header().map_err(damaged)?;
            while let Some(group) = checked.next_group().map_err(damaged)? {
                barriers.extend(group.iter().filter_map(barrier));
            }
            piece.crc = crc32fast::hash(&bytes);
            metrics.bytes.inc_by(piece.len);
            archive.put_piece(&at, bytes).await?;
        }
        checked.finish().map_err(|error| BackupError::Damaged {
            path: path.clone(),
            detail: error.to_string(),
        })?;
        self.part.barriers.append(&mut barriers);
        Ok(())
    }
}

async fn put_changes(archive: &Archive, path: &str, changes: Vec<TableChange>) -> Result<ChangesPiece> {
    let content = TableChanges { changes }.encode_file()?;
    let piece = ChangesPiece {
        len: content.len() as u64,
        crc: crc32fast::hash(&content),
    };
    archive.put_piece(path, content).await?;
    Ok(piece)
}

fn barrier(record: &Record) -> Option<Barrier> {
    match Mark::of(record)? {
        Mark::Barrier { micros, tablet, cause } => Some(Barrier {
            at_micros: micros,
            tablet: tablet.0,
            cause: match cause {
                BarrierCause::DroppedRows => 1,
                BarrierCause::BulkLoad => 2,
            },
        }),
        Mark::Time { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_commitlog::format::segment_path;

    fn closed(number: u64, end: u64) -> LogPosition {
        LogPosition {
            number,
            path: segment_path(0, number),
            end,
            is_closed: true,
        }
    }

    #[test]
    fn segments_without_groups_are_no_pieces() {
        let positions = [closed(1, 500), closed(2, HEADER_BYTES), closed(3, 0), closed(4, 300)];
        let waiting = Waiting::of(&positions, &BTreeMap::new());
        let segments: Vec<u64> = waiting.pieces.iter().map(|(piece, _)| piece.segment).collect();
        assert_eq!(segments, [1, 4]);
        assert_eq!((waiting.complete, waiting.bytes), (vec![2, 3], 800));
    }
}
