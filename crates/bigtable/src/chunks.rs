//! Rows as the chunks of a ReadRows stream.
//!
//! Pure: a batch of rows becomes messages. What clients enforce, and their state machines fail on:
//!
//! * A row's first chunk carries row key, family and qualifier; a later one leaves each out where it is unchanged, and
//!   carries the qualifier wherever it carries the family.
//! * A row's last chunk, and no other, has `commit_row`; a stream does not end within a row.
//! * A cell split into pieces has its total size in `value_size` of all pieces but the last; labels and timestamp are
//!   in the first piece.
//! * Messages stay below 4 MiB, the receive limit of every gRPC client that was not told otherwise.
//! * The Go client wants every message to end with a row, whatever the row's size; it raises its receive limit to
//!   256 MiB where it can.
//!
//! So a message has whole rows. Only a row that alone would not fit is spread over several messages, with its large cells
//! in pieces, and that not for the Go client.

use crate::times::TableTime;
use crate::wire::{CellChunk, ReadRowsResponse};
use bytes::Bytes;
use std::collections::VecDeque;
use stele_types::{Cell, FamilyId, RowBatch, TableSchema};
use tonic::Status;

/// How large messages get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageSizes {
    /// Bytes past which no further row is added, and the largest piece of a cell.
    pub target: usize,
    /// Bytes of the largest row that is kept in one message.
    pub row_max: usize,
}

impl MessageSizes {
    /// A target large enough that per-message costs vanish and small enough that a client sees progress; rows up to a
    /// size that stays below 4 MiB with all overhead.
    pub const DEFAULT: MessageSizes = MessageSizes {
        target: 1 << 20,
        row_max: 7 << 19,
    };

    /// For clients that want every message to end with a row.
    pub const WHOLE_ROWS: MessageSizes = MessageSizes {
        row_max: usize::MAX,
        ..MessageSizes::DEFAULT
    };
}

/// Bytes a chunk takes on the wire beside its content, at most: tags, lengths and numbers.
const CHUNK_OVERHEAD_BYTES: usize = 48;

/// Appends the messages for a batch of rows and returns the rows and cells sent. Cells of families that the schema does
/// not have are left out: they belong to families made after the read began.
pub(crate) fn encode(
    schema: &TableSchema,
    batch: &RowBatch,
    sizes: MessageSizes,
    messages: &mut VecDeque<ReadRowsResponse>,
) -> Result<(u64, u64), Status> {
    let time = TableTime::of(schema);
    let mut encoder = Encoder {
        sizes,
        chunks: Vec::new(),
        bytes: 0,
        messages,
    };
    let (mut rows, mut cells) = (0, 0);
    for (row, row_cells) in batch.shared_rows() {
        let chunks = row_chunks(schema, time, &row, row_cells)?;
        cells += chunks.len() as u64;
        rows += u64::from(!chunks.is_empty());
        encoder.row(chunks);
    }
    encoder.flush();
    Ok((rows, cells))
}

/// One chunk for each cell of a row, the last one with `commit_row`.
fn row_chunks(schema: &TableSchema, time: TableTime, row: &Bytes, cells: &[Cell]) -> Result<Vec<CellChunk>, Status> {
    let mut chunks = Vec::with_capacity(cells.len());
    let mut previous: Option<(FamilyId, &Bytes)> = None;
    for cell in cells {
        let same_family = previous.is_some_and(|(id, _)| id == cell.family);
        let family_name = if same_family {
            None
        } else if let Some(family) = schema.families.get(&cell.family) {
            Some(family.name.clone())
        } else {
            continue;
        };
        let same_column = same_family && previous.is_some_and(|(_, qualifier)| *qualifier == cell.qualifier);
        chunks.push(CellChunk {
            row_key: if previous.is_none() { row.clone() } else { Bytes::new() },
            family_name,
            qualifier: (!same_column).then(|| cell.qualifier.clone()),
            timestamp_micros: time.micros(cell.timestamp)?,
            labels: cell.labels.to_vec(),
            value: cell.value.clone(),
            ..CellChunk::default()
        });
        previous = Some((cell.family, &cell.qualifier));
    }
    if let Some(last) = chunks.last_mut() {
        last.commit_row = true;
    }
    Ok(chunks)
}

struct Encoder<'m> {
    sizes: MessageSizes,
    /// Of the message in the making.
    chunks: Vec<CellChunk>,
    /// Of the message in the making.
    bytes: usize,
    messages: &'m mut VecDeque<ReadRowsResponse>,
}

impl Encoder<'_> {
    fn row(&mut self, chunks: Vec<CellChunk>) {
        let bytes: usize = chunks.iter().map(chunk_bytes).sum();
        if self.bytes + bytes > self.sizes.target {
            self.flush();
        }
        if bytes > self.sizes.row_max {
            chunks.into_iter().for_each(|chunk| self.spread(chunk));
            return self.flush();
        }
        self.bytes += bytes;
        if self.chunks.is_empty() {
            self.chunks = chunks
        } else {
            self.chunks.extend(chunks)
        }
    }

    /// Adds a chunk of a row that is spread over messages.
    fn spread(&mut self, mut chunk: CellChunk) {
        let piece_bytes = self.sizes.target;
        let total = i32::try_from(chunk.value.len()).unwrap_or(i32::MAX);
        let commit_row = std::mem::take(&mut chunk.commit_row);
        while chunk.value.len() > piece_bytes {
            let rest = chunk.value.split_off(piece_bytes);
            chunk.value_size = total;
            let next = CellChunk {
                value: rest,
                ..CellChunk::default()
            };
            self.push(std::mem::replace(&mut chunk, next));
        }
        self.push(CellChunk { commit_row, ..chunk });
    }

    /// Adds a chunk, to a new message when the one in the making would get too large.
    fn push(&mut self, chunk: CellChunk) {
        let bytes = chunk_bytes(&chunk);
        if self.bytes + bytes > self.sizes.target {
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
        + chunk.labels.iter().map(|label| label.len() + 2).sum::<usize>()
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

    fn encoded(rows: &[(&'static str, Vec<Cell>)], sizes: MessageSizes) -> Vec<ReadRowsResponse> {
        let mut batch = RowBatch::default();
        for (row, cells) in rows {
            batch.push_row(Bytes::from_static(row.as_bytes()), cells.clone());
        }
        let mut messages = VecDeque::new();
        encode(&testing::schema(), &batch, sizes, &mut messages).unwrap();
        messages.into()
    }

    fn merged(messages: &[ReadRowsResponse]) -> Vec<testing::MergedRow> {
        let mut merger = RowMerger::new(false);
        for message in messages {
            merger.feed(message).unwrap();
        }
        merger.finish().unwrap()
    }

    fn ends_with_a_row(message: &ReadRowsResponse) -> bool {
        message.chunks.last().is_some_and(|chunk| chunk.commit_row)
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
            MessageSizes::DEFAULT,
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
                ("a", vec![cell(1, "a", 0, "x"), labelled.clone(), cell(2, "z", 0, "y")]),
                ("b", vec![labelled]),
            ];
            let messages = encoded(
                &rows,
                MessageSizes {
                    target: 100,
                    row_max: 120,
                },
            );
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
            let whole = encoded(
                &rows,
                MessageSizes {
                    target: 100,
                    row_max: usize::MAX,
                },
            );
            assert_eq!(whole.len(), 2);
            assert!(whole.iter().all(ends_with_a_row));
            assert_eq!(merged(&whole), got);
        }
    }

    #[test]
    fn messages_stay_below_the_limit_of_clients() {
        let large = |bytes: usize| cell(1, "q", 0, Bytes::from(vec![7; bytes]));
        let tiny = |count: usize| {
            (0..count)
                .map(|_| cell(1, "q", i64::MAX / 1_000 * 1_000, "v"))
                .collect::<Vec<_>>()
        };
        let fits = MessageSizes::DEFAULT.row_max - 100;
        let rows = [
            ("a", vec![large(10 << 20)]),
            ("b", vec![large(fits)]),
            ("c", tiny(200_000)),
            ("d", tiny(30_000)),
            ("e", tiny(1)),
        ];
        let messages = encoded(&rows, MessageSizes::DEFAULT);
        for message in &messages {
            assert!(message.encoded_len() < 4_000_000, "{}", message.encoded_len());
        }
        let ends_b = messages
            .iter()
            .position(|m| m.chunks.iter().any(|c| c.row_key == "b"))
            .unwrap();
        assert!(ends_with_a_row(&messages[ends_b]), "a row that fits is whole");
        let got = merged(&messages);
        assert_eq!(
            got.iter().map(|row| row.cells.len()).collect::<Vec<_>>(),
            [1, 1, 200_000, 30_000, 1]
        );
    }

    #[test]
    fn small_rows_share_a_message() {
        let rows: Vec<_> = ["a", "b", "c", "d"].map(|row| (row, vec![cell(1, "q", 0, "v")])).into();
        let messages = encoded(
            &rows,
            MessageSizes {
                target: 150,
                row_max: 1_000,
            },
        );
        assert_eq!(messages.iter().map(|m| m.chunks.len()).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn cells_of_unknown_families_are_not_rows() {
        assert!(encoded(&[("r", vec![cell(9, "q", 0, "v")])], MessageSizes::DEFAULT).is_empty());
        let rows = [
            ("r", vec![cell(1, "q", 0, "v"), cell(9, "q", 0, "v")]),
            ("s", vec![cell(9, "q", 0, "v")]),
        ];
        assert_eq!(merged(&encoded(&rows, MessageSizes::DEFAULT)).len(), 1);
    }
}
