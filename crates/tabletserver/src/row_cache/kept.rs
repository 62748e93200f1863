//! What the row cache keeps of a row, and lends.

use super::{ALWAYS, RowRead, VARIANTS_MAX};
use bytes::{Bytes, BytesMut};
use std::ops::Deref;
use std::sync::Arc;
use stele_filter::Filter;
use stele_tablet::SchemaMark;
use stele_types::{Cell, RowBatch, TabletId};

/// Longest row that is kept in place: with it, a name takes a cache line.
const SHORT_BYTES_MAX: usize = 62;

/// A row with the results of reading it. Its parts lie in the order in which a hit asks for them.
#[repr(C)]
pub(super) struct CachedRow {
    row: RowName,
    pub(super) tablet: TabletId,
    /// The newest.
    first: Variant,
    /// Oldest first; with `first` at most [`VARIANTS_MAX`].
    others: Vec<Variant>,
}

/// The result under one filter.
#[derive(Clone)]
#[repr(C)]
pub(super) struct Variant {
    pub(super) shape: u64,
    pub(super) schema: SchemaMark,
    pub(super) filter: Option<Arc<Filter>>,
    /// Wall-clock microseconds between which no age rule changes the result.
    pub(super) valid: (i64, i64),
    pub(super) batch: RowBatch,
    pub(super) bytes: usize,
}

/// A row's name; most are short.
enum RowName {
    Short(u8, [u8; SHORT_BYTES_MAX]),
    Long(Box<[u8]>),
}

impl RowName {
    fn new(row: &[u8]) -> Self {
        let mut short = [0; SHORT_BYTES_MAX];
        match (short.get_mut(..row.len()), u8::try_from(row.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(row);
                RowName::Short(len, short)
            }
            _ => RowName::Long(row.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            RowName::Short(len, bytes) => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            RowName::Long(bytes) => bytes,
        }
    }

    fn is(&self, row: &[u8]) -> bool {
        // The empty row has no memory to compare: see `RowRange::begins_by`.
        row.is_empty() && self.bytes().is_empty() || self.bytes() == row
    }
}

/// A result that the cache has, shared with it.
#[derive(Clone)]
pub struct Kept {
    row: Arc<CachedRow>,
    /// Which of the other variants it is, if it is not the first.
    other: Option<usize>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kept").field(&**self).finish()
    }
}

impl Deref for Kept {
    type Target = RowBatch;

    #[inline]
    fn deref(&self) -> &RowBatch {
        let other = self.other.and_then(|other| self.row.others.get(other));
        &other.unwrap_or(&self.row.first).batch
    }
}

impl Kept {
    /// The result of a read in a row's variants.
    pub(super) fn find(
        row: &Arc<CachedRow>,
        read: &RowRead<'_>,
        shape: u64,
        now_micros: &impl Fn() -> i64,
    ) -> Option<Kept> {
        if row.tablet != read.tablet || !row.row.is(read.row) {
            return None;
        }
        let is_it = |variant: &Variant| {
            variant.shape == shape
                && variant.schema == read.schema
                && variant.is_valid(now_micros)
                && same_filter(variant.filter.as_ref(), read.filter)
        };
        let other = match is_it(&row.first) {
            true => None,
            false => Some(row.others.iter().position(is_it)?),
        };
        let row = row.clone();
        Some(Kept { row, other })
    }
}

impl CachedRow {
    /// The row with one more variant, in place of an older one of the same shape or schema.
    pub(super) fn with(before: Option<&Arc<CachedRow>>, tablet: TabletId, row: &[u8], variant: Variant) -> CachedRow {
        let before = before.filter(|before| before.tablet == tablet && before.row.is(row));
        let older = before.into_iter().flat_map(|row| row.others.iter().chain([&row.first]));
        let of_use = |v: &&Variant| v.schema == variant.schema && v.shape != variant.shape;
        let mut others: Vec<Variant> = older.filter(of_use).cloned().collect();
        if others.len() >= VARIANTS_MAX {
            others.remove(0);
        }
        CachedRow {
            tablet,
            row: RowName::new(row),
            first: variant,
            others,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let variants = self.others.iter().chain([&self.first]);
        // The first is in the row, and charged with the others.
        let row = size_of::<CachedRow>() - size_of::<Variant>() + self.row.bytes().len();
        row + variants.map(|v| v.bytes).sum::<usize>()
    }
}

impl Variant {
    fn is_valid(&self, now_micros: &impl Fn() -> i64) -> bool {
        if self.valid == ALWAYS {
            return true;
        }
        let now = now_micros();
        self.valid.0 <= now && now <= self.valid.1
    }
}

fn same_filter(a: Option<&Arc<Filter>>, b: Option<&Arc<Filter>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
        _ => false,
    }
}

/// The same result in memory of its own, values and qualifiers in one piece.
pub(super) fn own_memory(batch: &RowBatch) -> RowBatch {
    let parts = |cells: &[Cell]| cells.iter().map(|c| c.qualifier.len() + c.value.len()).sum::<usize>();
    let through = batch.scanned_through.as_ref().map_or(0, Bytes::len);
    let mut memory = BytesMut::with_capacity(through + batch.rows().map(|(_, cells)| parts(cells)).sum::<usize>());
    for cell in batch.rows().flat_map(|(_, cells)| cells) {
        memory.extend_from_slice(&cell.qualifier);
        memory.extend_from_slice(&cell.value);
    }
    memory.extend_from_slice(batch.scanned_through.as_deref().unwrap_or_default());
    let mut memory = memory.freeze();
    let mut next = |like: &Bytes| memory.split_to(like.len());
    let keys = batch.rows().map(|(row, _)| row.len()).sum();
    let mut own = RowBatch::with_capacity(batch.len(), keys);
    for (row, cells) in batch.rows() {
        let cells = cells.iter().map(|cell| Cell {
            qualifier: next(&cell.qualifier),
            value: next(&cell.value),
            ..cell.clone()
        });
        own.push_row(row, cells);
    }
    own.seal();
    own.scanned_through = batch.scanned_through.as_ref().map(&mut next);
    own.seen = batch.seen;
    own
}
