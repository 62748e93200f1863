//! The shape of a filter is part of a key. It consists of a hash, a weight, and the dependence on cells that are not
//! returned.

use std::ops::Bound;
use stele_filter::Filter;
use xxhash_rust::xxh3::xxh3_64;

/// Deeper filters are not worth keeping.
const DEPTH_MAX: usize = 16;

/// Larger ones neither.
const BYTES_MAX: usize = 4096;

/// A filter as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub hash: u64,
    /// Memory it holds on to.
    pub bytes: usize,
    /// As cells of a row grow too old, oldest versions of each column first, the answer only loses those cells. Not so
    /// where a cell's place among all cells of the row counts, or whether some other cell is there.
    pub by_cell: bool,
}

impl Shape {
    /// `None` when answers cannot be kept.
    pub(super) fn of(filter: Option<&Filter>) -> Option<Shape> {
        let mut shape = Shape {
            hash: 0x9e37_79b9_7f4a_7c15,
            bytes: 0,
            by_cell: true,
        };
        if let Some(filter) = filter {
            shape.walk(filter, 0)?;
        }
        (shape.bytes <= BYTES_MAX).then_some(shape)
    }

    fn mix(&mut self, value: u64) {
        self.hash = (self.hash.rotate_left(23) ^ value).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }

    fn mix_bytes(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.mix(xxh3_64(bytes));
    }

    fn mix_bound(&mut self, bound: &Bound<bytes::Bytes>) {
        match bound {
            Bound::Unbounded => self.mix(1),
            Bound::Included(bytes) => {
                self.mix(2);
                self.mix_bytes(bytes);
            }
            Bound::Excluded(bytes) => {
                self.mix(3);
                self.mix_bytes(bytes);
            }
        }
    }

    fn walk(&mut self, filter: &Filter, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.bytes += size_of::<Filter>();
        self.mix(number_of(filter));
        match filter {
            // A read of the past is rarely repeated.
            Filter::RowSample(_) | Filter::FamiliesBefore(_) => return None,
            Filter::Chain(members) | Filter::Interleave(members) => {
                self.mix(members.len() as u64);
                for member in members {
                    self.walk(member, depth + 1)?;
                }
            }
            Filter::Condition {
                predicate,
                on_true,
                on_false,
            } => {
                self.by_cell = false;
                for branch in [Some(predicate), on_true.as_ref(), on_false.as_ref()] {
                    self.mix(u64::from(branch.is_some()));
                    if let Some(branch) = branch {
                        self.walk(branch, depth + 1)?;
                    }
                }
            }
            Filter::Sink | Filter::PassAll | Filter::BlockAll | Filter::StripValue => {}
            Filter::RowKeyRegex(bytes)
            | Filter::FamilyRegex(bytes)
            | Filter::QualifierRegex(bytes)
            | Filter::ValueRegex(bytes)
            | Filter::ValueBitmask(bytes) => self.mix_bytes(bytes),
            Filter::Families(families) => {
                self.bytes += size_of_val(&families[..]);
                self.mix(families.len() as u64);
                families.iter().for_each(|family| self.mix(u64::from(family.0)));
            }
            Filter::ColumnRange { family, start, end } => {
                self.mix_bytes(family.as_bytes());
                self.mix_bound(start);
                self.mix_bound(end);
            }
            Filter::TimestampRange { start, end } => {
                self.mix(*start as u64);
                self.mix(u64::from(end.is_some()));
                self.mix(end.unwrap_or(0) as u64);
            }
            Filter::ValueRange { start, end } => {
                self.mix_bound(start);
                self.mix_bound(end);
            }
            Filter::CellsPerRowOffset(n) | Filter::CellsPerRow(n) => {
                self.by_cell = false;
                self.mix(*n as u64);
            }
            Filter::CellsPerColumn(n) => self.mix(*n as u64),
            Filter::ApplyLabel(label) => self.mix_bytes(label.as_bytes()),
        }
        Some(())
    }
}

fn number_of(filter: &Filter) -> u64 {
    match filter {
        Filter::Chain(_) => 1,
        Filter::Interleave(_) => 2,
        Filter::Condition { .. } => 3,
        Filter::Sink => 4,
        Filter::PassAll => 5,
        Filter::BlockAll => 6,
        Filter::RowKeyRegex(_) => 7,
        Filter::RowSample(_) => 8,
        Filter::FamilyRegex(_) => 9,
        Filter::QualifierRegex(_) => 10,
        Filter::ColumnRange { .. } => 11,
        Filter::TimestampRange { .. } => 12,
        Filter::ValueRegex(_) => 13,
        Filter::ValueRange { .. } => 14,
        Filter::ValueBitmask(_) => 15,
        Filter::CellsPerRowOffset(_) => 16,
        Filter::CellsPerRow(_) => 17,
        Filter::CellsPerColumn(_) => 18,
        Filter::StripValue => 19,
        Filter::ApplyLabel(_) => 20,
        Filter::FamiliesBefore(_) => 21,
        Filter::Families(_) => 22,
    }
}
