//! Encodes rows as the chunks of a ReadRows stream.
//!
//! The encoder is pure. It writes the rows of a batch one after the other into the buffers that the transport sends,
//! and builds no message in between. A small value is copied once, a large one not at all.
//!
//! Clients enforce these rules, and their state machines fail on violations:
//!
//! * A row's first chunk carries row key, family and qualifier. A later chunk leaves each out where it is unchanged,
//!   and carries the qualifier wherever it carries the family.
//! * A row's last chunk, and no other, has `commit_row`. A stream does not end within a row.
//! * A cell that is split has its total size in `value_size` of all parts but the last. Labels and timestamp are in the
//!   first part.
//! * Messages stay below 4 MiB, the default receive limit of gRPC clients.
//! * The Go client wants every message to end with a row, regardless of the row's size. It raises its receive limit to
//!   256 MiB where it can.
//! * A chunk with `reset_row`, and nothing else, takes back the part of a row that the client has.
//!
//! So a message has whole rows. Only a row that does not fit into one message is spread over several, with its large
//! cells split, and never for the Go client. A batch may begin and end with a partial row (`RowBatch::continues`); then
//! a message ends within a row. For the sizes of messages a partial row counts as a row: one of the usual mebibyte is one
//! message.

use crate::messages::PREFIX_BYTES;
use crate::protobuf::{bytes_field_len, put_bytes_field, put_bytes_head, put_varint_field, varint_len};
use crate::times::TableTime;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use stele_types::{Cell, FamilyId, RowBatch, TableSchema};
use tonic::Status;

/// How large messages get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageSizes {
    /// Bytes past which no further row is added, and the largest piece of a cell.
    pub target: usize,
    /// Bytes of the largest row that stays in one message.
    pub row_max: usize,
}

impl MessageSizes {
    /// The target is large enough that per-message costs vanish. It is small enough that little remains with the
    /// transport when a client stops reading, and that little ends with a row. Rows up to `row_max` stay below 4 MiB
    /// with all overhead.
    pub const DEFAULT: MessageSizes = MessageSizes {
        target: 64 << 10,
        row_max: 7 << 19,
    };

    /// For clients that want every message to end with a row.
    pub const WHOLE_ROWS: MessageSizes = MessageSizes {
        row_max: usize::MAX,
        ..MessageSizes::DEFAULT
    };
}

/// Bytes of a chunk on the wire in addition to its content, at most: tags, lengths and numbers.
const CHUNK_OVERHEAD_BYTES: usize = 48;

/// Size from which a value is a piece of its own, shared with its block. Copying a smaller value costs less than
/// another frame.
pub(crate) const SHARED_BYTES_MIN: usize = 32 << 10;

/// Estimates the bytes of a batch's messages that are copies. If a filter makes many cells of one, each of them takes
/// its own copy, unless its value is shared.
pub(crate) fn copied_bytes(batch: &RowBatch) -> usize {
    let value = |len: usize| {
        if len < SHARED_BYTES_MIN {
            len
        } else {
            // The rest after the shared parts may be small.
            Some(len % MessageSizes::DEFAULT.target)
                .filter(|rest| *rest < SHARED_BYTES_MIN)
                .unwrap_or(0)
        }
    };
    let cells = batch.rows().flat_map(|(_, cells)| cells);
    cells.map(|cell| CHUNK_OVERHEAD_BYTES + value(cell.value.len())).sum()
}

/// Appends the messages for a batch of rows, in pieces to be sent in order, and returns the rows and cells sent. It
/// leaves out cells of families that the schema does not have: they were created after the read began. A row is counted
/// when it ends. `within_row` says whether chunks of the first row have been sent, and afterwards the same of the last
/// row.
pub(crate) fn encode(
    schema: &TableSchema,
    batch: &RowBatch,
    sizes: MessageSizes,
    within_row: &mut bool,
    pieces: &mut VecDeque<Bytes>,
) -> Result<(u64, u64), Status> {
    let time = TableTime::of(schema);
    let mut encoder = Encoder {
        sizes,
        message: Message::default(),
        bytes: 0,
        rows_left: batch.len(),
        ends: true,
        pieces,
    };
    let (mut rows, mut cells) = (0, 0);
    let mut chunks = Vec::new();
    for (row, row_cells) in batch.rows() {
        // A client that has a part of the row knows its key.
        let key = if *within_row { &[] } else { row };
        encoder.ends = !batch.unfinished || encoder.rows_left > 1;
        let count = if row_cells.len() <= KEPT_CHUNKS_MAX {
            for chunk in row_chunks(schema, time, key, row_cells) {
                chunks.push(chunk?);
            }
            encoder.row(chunks.len(), chunks.iter().map(|chunk| Ok(*chunk)))?;
            chunks.len()
        } else {
            let count = row_chunks(schema, time, key, row_cells).count();
            encoder.row(count, row_chunks(schema, time, key, row_cells))?;
            count
        };
        chunks.clear();
        cells += count as u64;
        let (began, ends) = (*within_row || count > 0, encoder.rows_left > 0 || !batch.unfinished);
        if ends && began && count == 0 {
            return Err(no_last_cell());
        }
        *within_row = began && !ends;
        rows += u64::from(began && ends);
    }
    encoder.flush()?;
    Ok((rows, cells))
}

/// The status when a partial row cannot be ended, because all families of its last cells were created after the read
/// began.
fn no_last_cell() -> Status {
    Status::unavailable("The families of the table have changed during the read; retry")
}

/// Cells of a row whose chunks are put into a list before they are written, instead of being computed once for each
/// pass. The list takes as much memory as the list of cells.
const KEPT_CHUNKS_MAX: usize = 4_096;

/// One chunk for each cell of a row, except cells of families that the schema does not have.
fn row_chunks<'a>(
    schema: &'a TableSchema,
    time: TableTime,
    row: &'a [u8],
    cells: &'a [Cell],
) -> impl Iterator<Item = Result<Chunk<'a>, Status>> + Clone {
    let mut previous: Option<(FamilyId, &Bytes)> = None;
    cells.iter().filter_map(move |cell| {
        let same_family = previous.is_some_and(|(id, _)| id == cell.family);
        let family = if same_family {
            None
        } else {
            Some(schema.families.get(&cell.family)?.name.as_str())
        };
        let same_column = same_family && previous.is_some_and(|(_, qualifier)| *qualifier == cell.qualifier);
        let row_key = if previous.is_none() { row } else { &[] };
        previous = Some((cell.family, &cell.qualifier));
        Some(time.micros(cell.timestamp).map(|timestamp_micros| Chunk {
            row_key,
            family,
            qualifier: (!same_column).then_some(&cell.qualifier),
            timestamp_micros,
            labels: &cell.labels,
            value: &cell.value,
        }))
    })
}

/// `google.bigtable.v2.ReadRowsResponse.CellChunk` of a whole cell; empty and absent are the same but for family and
/// qualifier.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    row_key: &'a [u8],
    family: Option<&'a str>,
    qualifier: Option<&'a Bytes>,
    timestamp_micros: i64,
    labels: &'a [String],
    value: &'a Bytes,
}

impl Chunk<'_> {
    /// Bytes of everything but the value, at most.
    fn overhead(&self) -> usize {
        CHUNK_OVERHEAD_BYTES
            + self.row_key.len()
            + self.family.map_or(0, str::len)
            + self.qualifier.map_or(0, Bytes::len)
            + self.labels.iter().map(|label| label.len() + 2).sum::<usize>()
    }
}

struct Encoder<'m> {
    sizes: MessageSizes,
    /// The message that rows are added to.
    message: Message,
    /// Its bytes, at most.
    bytes: usize,
    /// Rows of the batch that are not in a message yet.
    rows_left: usize,
    /// The row that is added next ends with its last chunk.
    ends: bool,
    pieces: &'m mut VecDeque<Bytes>,
}

impl Encoder<'_> {
    /// Adds a row of `count` chunks, the last one with `commit_row` if the row ends.
    fn row<'c>(
        &mut self,
        count: usize,
        chunks: impl Iterator<Item = Result<Chunk<'c>, Status>> + Clone,
    ) -> Result<(), Status> {
        let rows_left = self.rows_left;
        self.rows_left -= 1;
        let mut bytes = 0;
        for chunk in chunks.clone() {
            let chunk = chunk?;
            bytes += chunk.overhead() + chunk.value.len();
        }
        if self.bytes + bytes > self.sizes.target {
            self.flush()?;
        }
        let count = if self.ends { count } else { usize::MAX };
        let chunks = chunks.zip(1..).map(|(chunk, number)| (chunk, number == count));
        if bytes > self.sizes.row_max {
            for (chunk, is_last) in chunks {
                self.spread(&chunk?, is_last)?;
            }
            return self.flush();
        }
        if self.message.is_empty() {
            // A row that is larger has its message to itself, which then need not move while it grows.
            self.message
                .reserve(bytes.saturating_mul(rows_left).min(self.sizes.target.max(bytes)));
        }
        self.bytes += bytes;
        for (chunk, is_last) in chunks {
            let chunk = chunk?;
            self.message.put(&chunk, chunk.value, 0, is_last);
        }
        Ok(())
    }

    /// Adds a chunk of a row that is spread over messages, a large value in several chunks.
    fn spread(&mut self, chunk: &Chunk<'_>, commit_row: bool) -> Result<(), Status> {
        let bare = Chunk {
            row_key: &[],
            family: None,
            qualifier: None,
            timestamp_micros: 0,
            labels: &[],
            ..*chunk
        };
        let total = i32::try_from(chunk.value.len()).unwrap_or(i32::MAX);
        let (mut chunk, mut rest) = (*chunk, chunk.value.clone());
        while rest.len() > self.sizes.target {
            let piece = rest.split_to(self.sizes.target);
            self.push(&chunk, &piece, total, false)?;
            chunk = bare;
        }
        self.push(&chunk, &rest, 0, commit_row)
    }

    /// Adds a chunk, to a new message when the current one would get too large.
    fn push(&mut self, chunk: &Chunk<'_>, value: &Bytes, value_size: i32, commit_row: bool) -> Result<(), Status> {
        let bytes = chunk.overhead() + value.len();
        if self.bytes + bytes > self.sizes.target {
            self.flush()?;
        }
        self.bytes += bytes;
        self.message.put(chunk, value, value_size, commit_row);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Status> {
        self.bytes = 0;
        std::mem::take(&mut self.message).finish(self.pieces)
    }
}

/// An unfinished message of chunks, behind its prefix.
#[derive(Default)]
struct Message {
    /// The piece with the prefix, which is filled in last; `None` while that is `tail`.
    head: Option<BytesMut>,
    /// Between head and tail.
    middle: Vec<Bytes>,
    /// The buffer that is appended to; empty before the first chunk.
    tail: BytesMut,
    /// Of head and middle.
    len: usize,
}

impl Message {
    fn is_empty(&self) -> bool {
        self.tail.is_empty() && self.head.is_none()
    }

    fn reserve(&mut self, bytes: usize) {
        self.tail.reserve(PREFIX_BYTES + bytes);
    }

    /// Appends a chunk with this value.
    fn put(&mut self, chunk: &Chunk<'_>, value: &Bytes, value_size: i32, commit_row: bool) {
        if self.is_empty() {
            self.tail.put_bytes(0, PREFIX_BYTES);
        }
        let unless_empty = |len: usize| if len == 0 { 0 } else { bytes_field_len(len) };
        let family_len = chunk.family.map(|name| unless_empty(name.len()));
        let qualifier_len = chunk.qualifier.map(|qualifier| unless_empty(qualifier.len()));
        let number = |value: u64| if value == 0 { 0 } else { 1 + varint_len(value) };
        let timestamp = chunk.timestamp_micros.cast_unsigned();
        let size = i64::from(value_size).cast_unsigned();
        let len = unless_empty(chunk.row_key.len())
            + family_len.map_or(0, bytes_field_len)
            + qualifier_len.map_or(0, bytes_field_len)
            + number(timestamp)
            + chunk.labels.iter().map(|l| bytes_field_len(l.len())).sum::<usize>()
            + unless_empty(value.len())
            + number(size)
            + 2 * usize::from(commit_row);
        let out = &mut self.tail;
        put_bytes_head(out, 1, len);
        if !chunk.row_key.is_empty() {
            put_bytes_field(out, 1, chunk.row_key);
        }
        if let (Some(name), Some(len)) = (chunk.family, family_len) {
            put_bytes_head(out, 2, len);
            put_wrapped(out, name.as_bytes());
        }
        if let (Some(qualifier), Some(len)) = (chunk.qualifier, qualifier_len) {
            put_bytes_head(out, 3, len);
            put_wrapped(out, qualifier);
        }
        if timestamp != 0 {
            put_varint_field(out, 4, timestamp);
        }
        for label in chunk.labels {
            put_bytes_field(out, 5, label.as_bytes());
        }
        self.put_value(value);
        if size != 0 {
            put_varint_field(&mut self.tail, 7, size);
        }
        if commit_row {
            put_varint_field(&mut self.tail, 9, 1);
        }
    }

    fn put_value(&mut self, value: &Bytes) {
        if value.len() < SHARED_BYTES_MIN {
            if !value.is_empty() {
                put_bytes_field(&mut self.tail, 6, value);
            }
            return;
        }
        put_bytes_head(&mut self.tail, 6, value.len());
        let before = self.tail.split();
        self.len += before.len() + value.len();
        match self.head {
            None => self.head = Some(before),
            Some(_) => self.middle.push(before.freeze()),
        }
        self.middle.push(value.clone());
    }

    /// Appends the pieces of the message; none for a message without chunks.
    fn finish(mut self, pieces: &mut VecDeque<Bytes>) -> Result<(), Status> {
        if self.is_empty() {
            return Ok(());
        }
        let len = self.len + self.tail.len() - PREFIX_BYTES;
        let len = u32::try_from(len).map_err(|_| {
            Status::resource_exhausted(format!("A row makes a message of {len} bytes, more than fit in one"))
        })?;
        let first = self.head.as_mut().unwrap_or(&mut self.tail);
        if let Some(prefix) = first.first_chunk_mut::<PREFIX_BYTES>() {
            prefix[1..].copy_from_slice(&len.to_be_bytes());
        }
        pieces.extend(self.head.map(BytesMut::freeze));
        pieces.extend(self.middle);
        if !self.tail.is_empty() {
            pieces.push_back(self.tail.freeze());
        }
        Ok(())
    }
}

/// Appends the content of a `google.protobuf.StringValue` or `BytesValue`.
fn put_wrapped(out: &mut BytesMut, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_bytes_field(out, 1, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, RowMerger};
    use crate::wire::ReadRowsResponse;
    use proptest::prelude::*;
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
        let mut pieces = VecDeque::new();
        encode(&testing::schema(), &batch, sizes, &mut false, &mut pieces).unwrap();
        messages(pieces)
    }

    /// The messages in some pieces.
    fn messages(pieces: VecDeque<Bytes>) -> Vec<ReadRowsResponse> {
        let joined: Vec<u8> = pieces.iter().flatten().copied().collect();
        let mut rest = &joined[..];
        let mut messages = Vec::new();
        while let Some((prefix, after)) = rest.split_first_chunk::<PREFIX_BYTES>() {
            let [compressed, length @ ..] = *prefix;
            assert_eq!(compressed, 0);
            let (message, after) = after.split_at(u32::from_be_bytes(length) as usize);
            let decoded = ReadRowsResponse::decode(message).unwrap();
            assert_eq!(decoded.encode_to_vec(), message, "as prost would have written it");
            messages.push(decoded);
            rest = after;
        }
        assert!(rest.is_empty());
        messages
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

    proptest! {
        /// `messages` checks that prost would have written the same bytes.
        #[test]
        fn rows_come_out_as_they_went_in(
            rows in prop::collection::vec(prop::collection::vec((1u32..4, 0usize..3, 0usize..80, 0i64..4), 1..6), 1..6),
            target in 60usize..400,
            row_max in 60usize..600,
        ) {
            let names = ["", "q", "quite a long qualifier"];
            let mut batch = RowBatch::default();
            let mut expected = Vec::new();
            for (number, cells) in rows.iter().enumerate() {
                let mut cells: Vec<Cell> = cells
                    .iter()
                    .map(|&(family, name, value, time)| {
                        let mut cell = cell(family, names[name], time * 1_000, vec![name as u8; value]);
                        (0..time / 2).for_each(|n| cell.labels.push(format!("l{n}")));
                        cell
                    })
                    .collect();
                cells.sort_by(|a, b| {
                    (a.family, &a.qualifier, b.timestamp).cmp(&(b.family, &b.qualifier, a.timestamp))
                });
                let key = Bytes::from(format!("row{number}"));
                let schema = testing::schema();
                let merged = cells.iter().map(|cell| testing::MergedCell {
                    family: schema.families[&cell.family].name.clone(),
                    qualifier: cell.qualifier.clone(),
                    timestamp: cell.timestamp.0,
                    value: cell.value.to_vec(),
                    labels: cell.labels.to_vec(),
                });
                expected.push(testing::MergedRow { key: key.clone(), cells: merged.collect() });
                batch.push_row(key, cells);
            }
            let mut pieces = VecDeque::new();
            let sizes = MessageSizes { target, row_max };
            let counts = encode(&testing::schema(), &batch, sizes, &mut false, &mut pieces).unwrap();
            let cells: usize = expected.iter().map(|row| row.cells.len()).sum();
            prop_assert_eq!(counts, (expected.len() as u64, cells as u64));
            prop_assert_eq!(merged(&messages(pieces)), expected);
        }
    }

    #[test]
    fn large_values_are_not_copied() {
        let value = Bytes::from(vec![7; SHARED_BYTES_MIN]);
        let mut batch = RowBatch::default();
        let row = || {
            vec![
                cell(1, "a", 0, "x"),
                cell(1, "b", 0, value.clone()),
                cell(1, "c", 0, value.clone()),
            ]
        };
        batch.push_row(Bytes::from_static(b"r"), row());
        batch.push_row(Bytes::from_static(b"s"), vec![cell(1, "a", 0, "y")]);
        let mut pieces = VecDeque::new();
        encode(
            &testing::schema(),
            &batch,
            MessageSizes::DEFAULT,
            &mut false,
            &mut pieces,
        )
        .unwrap();
        let shared = pieces.iter().filter(|piece| piece.as_ptr() == value.as_ptr());
        // The second row has a message of its own.
        assert_eq!((pieces.len(), shared.count()), (6, 2));
        let rows = merged(&messages(pieces));
        assert_eq!((rows.len(), rows[0].cells.len()), (2, 3));
    }
}
