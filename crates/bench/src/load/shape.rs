//! Rows: their columns, their construction, and the check of returned rows.
//!
//! Every put writes all columns of a row with one version. If the columns of a row have different versions, the server
//! has torn the row, although all of the family promise atomic rows.
//!
//! Families are named [`family`]`(0)`, …; counters are a column of their own in the first one ([`COUNTER`]).

use super::values::{Mismatch, ValueMaker, Version, key_hash};
use crate::plan::Values;
use crate::target::{Cell, Row};
use anyhow::ensure;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Qualifier of the counter that [`crate::plan::Operation::Increment`] adds to.
pub const COUNTER: Bytes = Bytes::from_static(b"n");
/// Most columns of a row, in as many families. The documents tried up to 600, and 2000 are to be shown.
const COLUMNS_MAX: u32 = 10_000;
/// Bytes of a block from which keys and values are cut. Below glibc's threshold for mapping fresh pages from the
/// system.
const ARENA_BYTES: usize = 64 << 10;

/// Name of a table's family.
pub fn family(index: u32) -> String {
    format!("f{index}")
}

/// Names of the families of a table with such values.
pub fn families(values: &Values) -> Vec<String> {
    (0..values.families.max(1)).map(family).collect()
}

/// One put's cells: family, qualifier, value.
pub type Cells = Vec<(Arc<str>, Bytes, Bytes)>;

/// Memory from which keys and values are cut, so that an operation allocates almost nothing.
#[derive(Default)]
pub struct Arena(BytesMut);

impl Arena {
    /// Appends with `fill`, which writes at most `bytes` bytes, and returns the written part.
    pub fn cut(&mut self, bytes: usize, fill: impl FnOnce(&mut BytesMut)) -> Bytes {
        if self.0.capacity() < bytes {
            self.0.reserve(bytes.max(ARENA_BYTES));
        }
        fill(&mut self.0);
        self.0.split().freeze()
    }
}

/// The columns of a table's rows.
pub struct Shape {
    maker: ValueMaker,
    columns: Vec<(Arc<str>, Bytes)>,
    /// Columns in the order in which servers return them: by family, then qualifier.
    sorted: Vec<u32>,
}

/// Reasons why a row was never written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A value is wrong.
    #[error("column {column}: {mismatch}")]
    Value {
        /// Family and qualifier.
        column: String,
        /// The mismatch.
        mismatch: Mismatch,
    },
    /// Two versions in one row.
    #[error("torn row: column {column} has version {found}, another one has {other}")]
    Torn {
        /// Family and qualifier.
        column: String,
        /// Its version.
        found: Version,
        /// The version of a column before it.
        other: Version,
    },
    /// Not all columns, or more.
    #[error("{found} columns, expected {expected}")]
    Count {
        /// Columns of each row.
        expected: usize,
        /// Different columns found.
        found: usize,
    },
    /// A column that was never written, or appears twice in one response.
    #[error("column {0} is none of the row's, or came twice")]
    Column(String),
}

impl Shape {
    /// Of rows with such values.
    ///
    /// # Errors
    /// Too many columns.
    pub fn new(values: &Values, maker: ValueMaker) -> anyhow::Result<Self> {
        let count = if values.families > 0 {
            values.families
        } else {
            values.columns.max(1)
        };
        ensure!(count <= COLUMNS_MAX, "{count} columns; a row may have {COLUMNS_MAX}");
        let column = |index: u32| -> (Arc<str>, Bytes) {
            if values.families > 0 {
                (family(index).into(), Bytes::from_static(b"0"))
            } else {
                (family(0).into(), index.to_string().into())
            }
        };
        let mut columns: Vec<(Arc<str>, Bytes)> = (0..count).map(column).collect();
        if values.families == 0 {
            // All in one family: one name for all of them.
            let first = columns
                .first()
                .map(|(family, _)| Arc::clone(family))
                .unwrap_or_default();
            columns.iter_mut().for_each(|(family, _)| *family = Arc::clone(&first));
        }
        let mut sorted: Vec<u32> = (0..count).collect();
        sorted.sort_by_key(|&index| columns.get(index as usize).cloned());
        Ok(Self { maker, columns, sorted })
    }

    /// The column that conditional writes compare, and the family of counters.
    pub fn first_column(&self) -> (Arc<str>, Bytes) {
        self.columns.first().cloned().unwrap_or_default()
    }

    /// A version's cells.
    pub fn cells(&self, key_hash: u64, version: Version, arena: &mut Arena) -> Cells {
        let column = |((family, qualifier), index): (&(Arc<str>, Bytes), u32)| {
            let value = self.value(key_hash, index, version, arena);
            (Arc::clone(family), qualifier.clone(), value)
        };
        self.columns.iter().zip(0u32..).map(column).collect()
    }

    /// One column's value.
    pub fn value(&self, key_hash: u64, column: u32, version: Version, arena: &mut Arena) -> Bytes {
        arena.cut(self.maker.bytes_max(), |out| {
            self.maker.write(key_hash, column, version, out);
        })
    }

    /// The version of a row; `None` if it has only a counter.
    ///
    /// # Errors
    /// A row that was never written.
    pub fn read(&self, row: &Row) -> Result<Option<Version>, Fault> {
        let hash = key_hash(&row.key);
        let mut version: Option<Version> = None;
        let mut found = 0;
        let mut seen = Seen::new(self.columns.len());
        // Columns come in order, at least within a family. This is the place at which the next one is expected.
        let mut cursor = 0;
        for cell in &row.cells {
            let place = match self.find(&cell.family, &cell.qualifier, cursor) {
                Some(place) if seen.is_new(place) => place,
                None if cell.qualifier == COUNTER => continue,
                _ => return Err(Fault::Column(name(&cell.family, &cell.qualifier))),
            };
            cursor = place + 1;
            found += 1;
            let index = self.sorted.get(place).copied().unwrap_or_default();
            let this = self
                .maker
                .read(hash, index, &cell.value)
                .map_err(|mismatch| Fault::Value {
                    column: name(&cell.family, &cell.qualifier),
                    mismatch,
                })?;
            match version {
                Some(other) if other != this => {
                    return Err(Fault::Torn {
                        column: name(&cell.family, &cell.qualifier),
                        found: this,
                        other,
                    });
                }
                _ => version = Some(this),
            }
        }
        if found != self.columns.len() && (found > 0 || row.cells.is_empty()) {
            return Err(Fault::Count {
                expected: self.columns.len(),
                found,
            });
        }
        Ok(version)
    }

    /// The value of a row's counter.
    pub fn counter<'r>(&self, row: &'r Row) -> Option<&'r [u8]> {
        let (family, _) = self.columns.first()?;
        let is_counter = |cell: &&Cell| cell.qualifier == COUNTER && cell.family == *family.as_bytes();
        row.cells.iter().find(is_counter).map(|cell| &cell.value[..])
    }

    /// Index of a column among the sorted ones: `cursor`, unless the server has another order of families.
    fn find(&self, family: &[u8], qualifier: &[u8], cursor: usize) -> Option<usize> {
        let column = |place: &u32| {
            let (family, qualifier) = self.columns.get(*place as usize)?;
            Some((family.as_bytes(), qualifier.as_ref()))
        };
        let wanted = Some((family, qualifier));
        if self.sorted.get(cursor).is_some_and(|place| column(place) == wanted) {
            return Some(cursor);
        }
        self.sorted.binary_search_by(|place| column(place).cmp(&wanted)).ok()
    }
}

/// Columns of a row that have arrived; a set that allocates nothing for up to 64.
struct Seen {
    first: u64,
    rest: Vec<u64>,
}

impl Seen {
    fn new(columns: usize) -> Self {
        Self {
            first: 0,
            rest: vec![0; columns.saturating_sub(1) / 64],
        }
    }

    fn is_new(&mut self, place: usize) -> bool {
        let word = match place / 64 {
            0 => Some(&mut self.first),
            other => self.rest.get_mut(other - 1),
        };
        let bit = 1 << (place % 64);
        word.is_some_and(|word| {
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new
        })
    }
}

fn name(family: &[u8], qualifier: &[u8]) -> String {
    format!("{}:{}", family.escape_ascii(), qualifier.escape_ascii())
}

/// Key and value bytes of a row that was read.
pub fn row_bytes(row: &Row) -> u64 {
    (row.key.len() + row.cells.iter().map(|cell| cell.value.len()).sum::<usize>()) as u64
}

/// Key and value bytes of a row to be written.
pub fn put_bytes(key: &[u8], cells: &Cells) -> u64 {
    (key.len() + cells.iter().map(|(_, _, value)| value.len()).sum::<usize>()) as u64
}
