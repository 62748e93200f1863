//! Records of the row cache are cached results of a row. Hits borrow from them.
//!
//! A result is one *record*: one piece of memory with everything that a hit compares and everything that it returns. The
//! cache's table leads to it; a hit reads no other memory.
//!
//! ```text
//! 8 words       tablet; schema; shape; valid from; valid until; rows seen, and bytes of the filter; cells seen; bytes of the
//!               row's name, and number of cells (two numbers in a word: the first is the lower half)
//! row           its name
//! 24 B × cells  family u32; bytes of qualifier, value and labels u32 each; timestamp i64
//! bytes         of each cell: qualifier, value, labels; a label is its length as u32 and its bytes
//! ```
//!
//! In the machine's byte order: a record never leaves the process.

use super::{ALWAYS, RowRead, VARIANTS_MAX};
use bytes::Bytes;
use std::io::Write as _;
use std::sync::Arc;
use stele_filter::Filter;
use stele_tablet::SchemaMark;
use stele_types::key::CellKind;
use stele_types::{Cell, FamilyId, Labels, ReadCounts, RowBatch, TabletId, Timestamp};

const WORD_BYTES: usize = size_of::<u64>();
const HEAD_WORDS: usize = 8;
const HEAD_BYTES: usize = HEAD_WORDS * WORD_BYTES;
/// The fixed part of a cell in a record: its position and lengths.
const CELL_HEAD_BYTES: usize = 24;
/// The reference counts of a record, in front of it.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// A row with the results of reading it.
pub(super) struct CachedRow {
    /// The newest.
    first: Variant,
    /// Oldest first; with `first` at most [`VARIANTS_MAX`].
    #[expect(clippy::box_collection, reason = "nearly always absent, and every row has one")]
    others: Option<Box<Vec<Variant>>>,
}

/// With the cache's own fields, a row takes one cache line of its table.
const _: () = assert!(size_of::<CachedRow>() <= 32);

/// The result under one filter.
#[derive(Clone)]
pub(super) struct Variant {
    record: Kept,
    filter: Option<Arc<Filter>>,
}

/// The read that a result answers.
pub(super) struct Provenance<'a> {
    pub tablet: TabletId,
    pub row: &'a [u8],
    pub schema: SchemaMark,
    pub shape: u64,
    pub filter: Option<&'a Arc<Filter>>,
    /// Memory that the filter holds on to.
    pub filter_bytes: usize,
    /// Wall-clock microseconds between which no age rule changes the result.
    pub valid: (i64, i64),
}

/// A result that the cache has, shared with it: at most one row.
#[derive(Clone)]
pub struct Kept(Arc<[u8]>);

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kept").field(&self.to_batch()).finish()
    }
}

impl Kept {
    /// Number of cells; none of a row that does not exist, or of which the filter lets nothing through.
    #[inline]
    pub fn cells_len(&self) -> usize {
        self.halves(7).1
    }

    /// A batch that shares the memory.
    pub fn to_batch(&self) -> RowBatch {
        let memory = Bytes::from_owner(self.clone());
        let cell = |place: Place| Cell {
            family: place.family,
            kind: CellKind::Put,
            qualifier: memory.slice(place.qualifier_at..place.value_at()),
            timestamp: place.timestamp,
            value: memory.slice(place.value_at()..place.labels_at()),
            labels: decode_labels(self.slice(place.labels_at(), place.labels_len)),
        };
        let (row_len, cells_len) = self.halves(7);
        let mut cells = Vec::with_capacity(cells_len);
        cells.extend(self.places().map(cell));
        let mut batch = match cells.is_empty() {
            true => RowBatch::default(),
            false => RowBatch::of_row(memory.slice(HEAD_BYTES..HEAD_BYTES + row_len), cells),
        };
        batch.seen = ReadCounts {
            rows: self.halves(5).0 as u64,
            cells: self.word(6),
        };
        batch
    }

    /// The n-th word of the head.
    #[inline(always)]
    fn word(&self, n: usize) -> u64 {
        let word = self.0.as_chunks().0.get(n);
        word.map_or(0, |word| u64::from_ne_bytes(*word))
    }

    #[inline(always)]
    fn halves(&self, n: usize) -> (usize, usize) {
        let word = self.word(n);
        ((word & u64::from(u32::MAX)) as usize, (word >> 32) as usize)
    }

    #[inline]
    fn slice(&self, at: usize, len: usize) -> &[u8] {
        debug_assert!(at + len <= self.0.len(), "places in a record are within it");
        self.0.get(at..at + len).unwrap_or(&[])
    }

    #[inline]
    fn row(&self) -> &[u8] {
        self.slice(HEAD_BYTES, self.halves(7).0)
    }

    fn tablet(&self) -> TabletId {
        TabletId(self.word(0))
    }

    fn valid(&self) -> (i64, i64) {
        (self.word(3) as i64, self.word(4) as i64)
    }

    #[inline]
    fn is_of(&self, tablet: TabletId, row: &[u8]) -> bool {
        // The empty row has no memory to compare: see `RowRange::begins_by`.
        self.tablet() == tablet && (row.is_empty() && self.halves(7).0 == 0 || self.row() == row)
    }

    /// Whether it is the result of a read under `schema` and a filter of this shape, at this time.
    #[inline]
    fn is_result(&self, schema: SchemaMark, shape: u64, now_micros: &impl Fn() -> i64) -> bool {
        if self.word(1) != schema.word() || self.word(2) != shape {
            return false;
        }
        let (from, until) = self.valid();
        (from, until) == ALWAYS || (from..=until).contains(&now_micros())
    }

    #[inline]
    fn places(&self) -> impl Iterator<Item = Place> {
        let (row_len, cells) = self.halves(7);
        let heads_at = HEAD_BYTES + row_len;
        let mut at = heads_at + cells * CELL_HEAD_BYTES;
        let heads = self.slice(heads_at, cells * CELL_HEAD_BYTES);
        heads.as_chunks::<CELL_HEAD_BYTES>().0.iter().map(move |head| {
            let place = Place::decode(head, at);
            at = place.labels_at() + place.labels_len;
            place
        })
    }
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// How a cell lies in a record.
struct Place {
    family: FamilyId,
    timestamp: Timestamp,
    qualifier_at: usize,
    qualifier_len: usize,
    value_len: usize,
    labels_len: usize,
}

impl Place {
    #[inline]
    fn decode(head: &[u8; CELL_HEAD_BYTES], at: usize) -> Place {
        let (numbers, _) = head.as_chunks::<4>();
        let number = |n: usize| numbers.get(n).map_or(0, |number| u32::from_ne_bytes(*number));
        let timestamp = head.last_chunk().map_or(0, |bytes| i64::from_ne_bytes(*bytes));
        Place {
            family: FamilyId(number(0)),
            timestamp: Timestamp(timestamp),
            qualifier_at: at,
            qualifier_len: number(1) as usize,
            value_len: number(2) as usize,
            labels_len: number(3) as usize,
        }
    }

    #[inline]
    fn value_at(&self) -> usize {
        self.qualifier_at + self.qualifier_len
    }

    #[inline]
    fn labels_at(&self) -> usize {
        self.value_at() + self.value_len
    }
}

impl CachedRow {
    /// The row with one more variant, in place of an older one of the same shape or schema.
    pub(super) fn with(before: Option<&CachedRow>, variant: Variant) -> CachedRow {
        let record = &variant.record;
        let before = before.filter(|before| before.is_of(record.tablet(), record.row()));
        let older = before
            .into_iter()
            .flat_map(|row| row.others().iter().chain([&row.first]));
        let of_use = |v: &&Variant| v.record.word(1) == record.word(1) && v.record.word(2) != record.word(2);
        let mut others: Vec<Variant> = older.filter(of_use).cloned().collect();
        if others.len() >= VARIANTS_MAX {
            others.remove(0);
        }
        assert!(
            others.len() < VARIANTS_MAX,
            "a row is kept under at most {VARIANTS_MAX} filters"
        );
        CachedRow {
            first: variant,
            others: (!others.is_empty()).then(|| Box::new(others)),
        }
    }

    pub(super) fn tablet(&self) -> TabletId {
        self.first.record.tablet()
    }

    fn is_of(&self, tablet: TabletId, row: &[u8]) -> bool {
        self.first.record.is_of(tablet, row)
    }

    fn others(&self) -> &[Variant] {
        self.others.as_ref().map_or(&[], |others| others)
    }

    /// The result of a read.
    #[inline]
    pub(super) fn find(&self, read: &RowRead<'_>, shape: u64, now_micros: &impl Fn() -> i64) -> Option<Kept> {
        if !self.is_of(read.tablet, read.row) {
            return None;
        }
        let is_it = |variant: &&Variant| {
            variant.record.is_result(read.schema, shape, now_micros)
                && same_filter(variant.filter.as_ref(), read.filter)
        };
        let mut variants = std::iter::once(&self.first).chain(self.others());
        Some(variants.find(is_it)?.record.clone())
    }

    /// Memory that it holds on to.
    pub(super) fn bytes(&self) -> usize {
        let others = self.others().iter().map(|v| size_of::<Variant>() + v.bytes());
        self.first.bytes() + others.sum::<usize>()
    }
}

impl Variant {
    /// The result in memory of its own; `None` when it is none of one row as readers get it, or too large.
    pub(super) fn new(of: &Provenance<'_>, batch: &RowBatch) -> Option<Variant> {
        let (row, cells) = batch.rows().next().unwrap_or((of.row, &[]));
        let is_plain = |cell: &Cell| cell.kind == CellKind::Put;
        if batch.len() > 1 || row != of.row || !cells.iter().all(is_plain) {
            return None;
        }
        let valid = [of.valid.0 as u64, of.valid.1 as u64];
        let head = [
            of.tablet.0,
            of.schema.word(),
            of.shape,
            valid[0],
            valid[1],
            halves(batch.seen.rows as usize, of.filter_bytes)?,
            batch.seen.cells,
            halves(row.len(), cells.len())?,
        ];
        let mut record: Arc<[u8]> = std::iter::repeat_n(0, record_bytes(row, cells)).collect();
        let bytes = Arc::get_mut(&mut record).expect("nobody else has a record that is being made");
        write_record(bytes, &head, row, cells)?;
        Some(Variant {
            record: Kept(record),
            filter: of.filter.cloned(),
        })
    }

    fn bytes(&self) -> usize {
        COUNTS_BYTES + self.record.0.len() + self.record.halves(5).1
    }
}

/// The memory that the first variant of this result would retain, beyond its filter.
pub(super) fn weight(row: &[u8], batch: &RowBatch) -> usize {
    let cells = batch.rows().next().map_or(&[][..], |(_, cells)| cells);
    COUNTS_BYTES + record_bytes(row, cells)
}

/// Fills a record; `None` when a number does not fit, or all of it.
fn write_record(mut to: &mut [u8], head: &[u64; HEAD_WORDS], row: &[u8], cells: &[Cell]) -> Option<()> {
    let mut put = |bytes: &[u8]| to.write_all(bytes).ok();
    let number = |n: usize| Some(u32::try_from(n).ok()?.to_ne_bytes());
    for word in head {
        put(&word.to_ne_bytes())?;
    }
    put(row)?;
    for cell in cells {
        put(&cell.family.0.to_ne_bytes())?;
        for len in [cell.qualifier.len(), cell.value.len(), labels_bytes(cell)] {
            put(&number(len)?)?;
        }
        put(&cell.timestamp.0.to_ne_bytes())?;
    }
    for cell in cells {
        put(&cell.qualifier)?;
        put(&cell.value)?;
        for label in cell.labels.iter() {
            put(&number(label.len())?)?;
            put(label.as_bytes())?;
        }
    }
    assert!(
        to.is_empty(),
        "a record is as long as its parts: {} bytes are left",
        to.len()
    );
    Some(())
}

fn record_bytes(row: &[u8], cells: &[Cell]) -> usize {
    let cell = |c: &Cell| CELL_HEAD_BYTES + c.qualifier.len() + c.value.len() + labels_bytes(c);
    HEAD_BYTES + row.len() + cells.iter().map(cell).sum::<usize>()
}

fn labels_bytes(cell: &Cell) -> usize {
    cell.labels.iter().map(|label| size_of::<u32>() + label.len()).sum()
}

fn halves(low: usize, high: usize) -> Option<u64> {
    Some(u64::from(u32::try_from(low).ok()?) | u64::from(u32::try_from(high).ok()?) << 32)
}

#[inline]
fn decode_labels(mut bytes: &[u8]) -> Labels {
    let mut labels = Labels::none();
    while let Some((len, rest)) = bytes.split_first_chunk() {
        let Some((label, rest)) = rest.split_at_checked(u32::from_ne_bytes(*len) as usize) else {
            debug_assert!(false, "a label that leaves its record");
            break;
        };
        labels.push(String::from_utf8_lossy(label).into_owned());
        bytes = rest;
    }
    labels
}

fn same_filter(a: Option<&Arc<Filter>>, b: Option<&Arc<Filter>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
        _ => false,
    }
}
