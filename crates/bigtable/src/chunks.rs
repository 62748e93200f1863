//! Rows as the chunks of a ReadRows stream.
//!
//! Pure: a batch of rows becomes messages. What clients enforce, and their state machines fail on:
//!
//! * A row's first chunk carries row key, family and qualifier; a later one leaves each out where it is unchanged, and
//!   carries the qualifier wherever it carries the family.
//! * A row's last chunk, and no other, has `commit_row`; a stream does not end within a row.
//! * A cell split into pieces has its total size in `value_size` of all pieces but the last; labels and timestamp are
//!   in the first piece.
//! * Messages stay well below 4 MiB, the receive limit of every gRPC client that was not told otherwise.

use crate::times::TableTime;
use crate::wire::{CellChunk, ReadRowsResponse};
use bytes::Bytes;
use std::collections::VecDeque;
use stele_types::{Cell, FamilyId, RowBatch, TableSchema};
use tonic::Status;

/// Bytes at which a message is sent, and the largest piece of a cell: large enough that per-message costs vanish, small
/// enough that a client sees progress and that a message with one piece more is below half of 4 MiB.
pub(crate) const MESSAGE_BYTES: usize = 1 << 20;

/// Bytes a chunk takes on the wire beside its content: tags, lengths and timestamp.
const CHUNK_OVERHEAD_BYTES: usize = 40;

/// Chunks in a message, so that many tiny cells do not make a message that is slow to decode.
const MESSAGE_CHUNKS_MAX: usize = 16_384;

/// Appends the messages for a batch of rows and returns the rows and cells sent. Cells of families that the schema does
/// not have are left out: they belong to families made after the read began.
pub(crate) fn encode(
    schema: &TableSchema,
    batch: &RowBatch,
    message_bytes: usize,
    messages: &mut VecDeque<ReadRowsResponse>,
) -> Result<(u64, u64), Status> {
    let mut encoder = Encoder {
        time: TableTime::of(schema),
        message_bytes,
        chunks: Vec::new(),
        bytes: 0,
        messages,
    };
    let (mut rows, mut cells) = (0, 0);
    for (row, row_cells) in batch.rows() {
        let sent = encoder.row(schema, row, row_cells)?;
        cells += sent;
        rows += u64::from(sent > 0);
    }
    encoder.flush();
    Ok((rows, cells))
}

struct Encoder<'m> {
    time: TableTime,
    message_bytes: usize,
    /// Of the message in the making.
    chunks: Vec<CellChunk>,
    /// Of the message in the making.
    bytes: usize,
    messages: &'m mut VecDeque<ReadRowsResponse>,
}

impl Encoder<'_> {
    /// Encodes one row. The last chunk stays in the making until `commit_row` is set, because only then it is known to
    /// be the last.
    fn row(&mut self, schema: &TableSchema, row: &Bytes, cells: &[Cell]) -> Result<u64, Status> {
        let mut sent = 0;
        let mut previous: Option<(FamilyId, &Bytes)> = None;
        for cell in cells {
            let Some(family) = schema.families.get(&cell.family) else {
                continue;
            };
            let same_family = previous.is_some_and(|(id, _)| id == cell.family);
            let same_column =
                same_family && previous.is_some_and(|(_, qualifier)| *qualifier == cell.qualifier);
            let head = CellChunk {
                row_key: if previous.is_none() {
                    row.clone()
                } else {
                    Bytes::new()
                },
                family_name: (!same_family).then(|| family.name.clone()),
                qualifier: (!same_column).then(|| cell.qualifier.clone()),
                timestamp_micros: self.time.micros(cell.timestamp)?,
                labels: cell.labels.clone(),
                ..CellChunk::default()
            };
            self.cell(head, &cell.value);
            previous = Some((cell.family, &cell.qualifier));
            sent += 1;
        }
        if let Some(last) = self.chunks.last_mut()
            && sent > 0
        {
            last.commit_row = true;
        }
        Ok(sent)
    }

    fn cell(&mut self, head: CellChunk, value: &Bytes) {
        if value.len() <= self.message_bytes {
            self.push(CellChunk {
                value: value.clone(),
                ..head
            });
            return;
        }
        let total = i32::try_from(value.len()).unwrap_or(i32::MAX);
        let mut next = head;
        let mut rest = value.clone();
        while rest.len() > self.message_bytes {
            let piece = rest.split_to(self.message_bytes);
            self.push(CellChunk {
                value: piece,
                value_size: total,
                ..next
            });
            next = CellChunk::default();
        }
        self.push(CellChunk {
            value: rest,
            ..next
        });
    }

    /// Adds a chunk, to a new message when the one in the making would get too large.
    fn push(&mut self, chunk: CellChunk) {
        let bytes = chunk_bytes(&chunk);
        if self.bytes + bytes > self.message_bytes || self.chunks.len() >= MESSAGE_CHUNKS_MAX {
            self.flush();
        }
        self.bytes += bytes;
        self.chunks.push(chunk);
    }

    fn flush(&mut self) {
        if self.chunks.is_empty() {
            return;
        }
        let chunks = std::mem::take(&mut self.chunks);
        self.bytes = 0;
        self.messages.push_back(ReadRowsResponse {
            chunks,
            ..ReadRowsResponse::default()
        });
    }
}

fn chunk_bytes(chunk: &CellChunk) -> usize {
    CHUNK_OVERHEAD_BYTES
        + chunk.row_key.len()
        + chunk.family_name.as_ref().map_or(0, String::len)
        + chunk.qualifier.as_ref().map_or(0, Bytes::len)
        + chunk
            .labels
            .iter()
            .map(|label| label.len() + 2)
            .sum::<usize>()
        + chunk.value.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, RowMerger};
    use prost::Message as _;
    use stele_types::Timestamp;

    fn cell(family: u32, qualifier: &'static str, timestamp: i64, value: impl Into<Bytes>) -> Cell {
        Cell::put(
            FamilyId(family),
            Bytes::from_static(qualifier.as_bytes()),
            Timestamp(timestamp),
            value.into(),
        )
    }

    fn encoded(rows: &[(&'static str, Vec<Cell>)], message_bytes: usize) -> Vec<ReadRowsResponse> {
        let mut batch = RowBatch::default();
        for (row, cells) in rows {
            batch.push_row(Bytes::from_static(row.as_bytes()), cells.clone());
        }
        let mut messages = VecDeque::new();
        encode(&testing::schema(), &batch, message_bytes, &mut messages).unwrap();
        messages.into()
    }

    fn merged(messages: &[ReadRowsResponse]) -> Vec<testing::MergedRow> {
        let mut merger = RowMerger::new(false);
        for message in messages {
            merger.feed(message).unwrap();
        }
        merger.finish().unwrap()
    }

    #[test]
    fn repeated_names_are_left_out() {
        let cells = vec![
            cell(1, "", 2_000, "a"),
            cell(1, "", 1_000, "b"),
            cell(1, "q", 0, "c"),
            cell(2, "q", 0, ""),
        ];
        let messages = encoded(
            &[("r", cells), ("s", vec![cell(2, "q", 0, "d")])],
            MESSAGE_BYTES,
        );
        assert_eq!(messages.len(), 1);
        let shape: Vec<_> = messages[0]
            .chunks
            .iter()
            .map(|c| {
                (
                    &c.row_key[..],
                    c.family_name.as_deref(),
                    c.qualifier.as_deref(),
                    c.commit_row,
                )
            })
            .collect();
        assert_eq!(
            shape,
            [
                (&b"r"[..], Some("f"), Some(&b""[..]), false),
                (b"", None, None, false),
                (b"", None, Some(b"q"), false),
                (b"", Some("g"), Some(b"q"), true),
                (b"s", Some("g"), Some(b"q"), true),
            ]
        );
    }

    #[test]
    fn large_cells_are_split_and_rejoined() {
        for size in [99, 100, 101, 200, 201, 1_000] {
            let value = Bytes::from((0..size).map(|i| i as u8).collect::<Vec<u8>>());
            let mut labelled = cell(1, "big", 3_000, value);
            labelled.labels.push("l".into());
            let rows = [
                (
                    "a",
                    vec![cell(1, "a", 0, "x"), labelled.clone(), cell(2, "z", 0, "y")],
                ),
                ("b", vec![labelled]),
            ];
            let messages = encoded(&rows, 100);
            let got = merged(&messages);
            assert_eq!(got.len(), 2, "{size}");
            assert_eq!(got[0].cells[1].value.len(), size);
            assert_eq!(got[0].cells[1].labels, ["l"]);
            assert_eq!(got[0].cells[1].value, got[1].cells[0].value);
            assert!(
                messages
                    .iter()
                    .all(|m| m.chunks.iter().map(|c| c.value.len()).sum::<usize>() <= 100)
            );
        }
    }

    #[test]
    fn messages_stay_small() {
        let value = Bytes::from(vec![7; 10 << 20]);
        let many = (0..40_000).map(|_| cell(1, "q", 0, "v")).collect();
        let messages = encoded(
            &[("a", vec![cell(1, "q", 0, value)]), ("b", many)],
            MESSAGE_BYTES,
        );
        assert!(messages.len() > 10);
        for message in &messages {
            assert!(message.encoded_len() < 2 << 20, "{}", message.encoded_len());
            assert!(message.chunks.len() <= MESSAGE_CHUNKS_MAX);
        }
        assert_eq!(merged(&messages)[1].cells.len(), 40_000);
    }

    #[test]
    fn cells_of_unknown_families_are_not_rows() {
        assert!(encoded(&[("r", vec![cell(9, "q", 0, "v")])], MESSAGE_BYTES).is_empty());
        let messages = encoded(
            &[
                ("r", vec![cell(1, "q", 0, "v"), cell(9, "q", 0, "v")]),
                ("s", vec![cell(9, "q", 0, "v")]),
            ],
            MESSAGE_BYTES,
        );
        assert_eq!(merged(&messages).len(), 1);
    }
}
