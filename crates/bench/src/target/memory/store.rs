//! One table of a memory store: a map of rows.
//!
//! Each row is a map of columns, each column a few versions, newest first.

use super::super::{Cell, Columns, Put, Result, Row, TableSpec, TargetError};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// A family's name.
pub(super) type Family = Arc<str>;

/// Versions of one column, newest first; never empty.
type Versions = VecDeque<(i64, Bytes)>;

/// A row's columns; never empty.
type Columned = BTreeMap<(Family, Bytes), Versions>;

/// One table.
pub(super) struct Table {
    families: Vec<Family>,
    versions_max: usize,
    rows: BTreeMap<Bytes, Columned>,
    /// Of keys (once for each row), qualifiers and values, as [`Put::volume`] counts them.
    bytes: u64,
    /// Writes so far: the next timestamp.
    clock: i64,
}

impl Table {
    /// An empty one.
    pub(super) fn new(spec: &TableSpec) -> Self {
        Self {
            families: spec.families.iter().map(|name| Family::from(name.as_str())).collect(),
            versions_max: spec.max_versions.max(1) as usize,
            rows: BTreeMap::new(),
            bytes: 0,
            clock: 0,
        }
    }

    /// Key and value bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes one row, or none of it if it is invalid.
    pub(super) fn put(&mut self, put: Put) -> Result<()> {
        if put.key.is_empty() || put.cells.is_empty() {
            return Err(TargetError::Refused("a row has a key and at least one cell".into()));
        }
        for (family, _, _) in &put.cells {
            self.check_family(family)?;
        }
        self.clock += 1;
        if !self.rows.contains_key(&put.key) {
            self.bytes += put.key.len() as u64;
        }
        let row = self.rows.entry(put.key).or_default();
        for (family, qualifier, value) in put.cells {
            self.bytes += (qualifier.len() + value.len()) as u64;
            let width = qualifier.len();
            let versions = row.entry((family, qualifier)).or_default();
            // Two cells of one put in one column have one timestamp, so the later one replaces the earlier.
            let replaced = versions.pop_front_if(|(timestamp, _)| *timestamp == self.clock);
            versions.push_front((self.clock, value));
            let dropped = versions.drain(self.versions_max.min(versions.len())..);
            for (_, value) in dropped.chain(replaced) {
                self.bytes -= (width + value.len()) as u64;
            }
        }
        Ok(())
    }

    /// One row; `None` if it has none of the columns.
    pub(super) fn row(&self, key: &Bytes, columns: &Columns) -> Option<Row> {
        self.rows.get(key).and_then(|row| select(key, row, columns))
    }

    /// Up to `most` rows with any of the columns, and the key at which to continue, unless the range is done.
    pub(super) fn rows(
        &self,
        from: Bound<Bytes>,
        end: &Bytes,
        columns: &Columns,
        most: usize,
    ) -> (Vec<Row>, Option<Bytes>) {
        let mut found = Vec::new();
        for (key, row) in self.rows.range((from, Bound::Unbounded)) {
            if !end.is_empty() && key >= end {
                break;
            }
            found.extend(select(key, row, columns));
            if found.len() >= most {
                return (found, Some(key.clone()));
            }
        }
        (found, None)
    }

    /// The newest value of a column.
    pub(super) fn newest(&self, key: &Bytes, family: &str, qualifier: &Bytes) -> Result<Option<Bytes>> {
        self.check_family(family)?;
        let versions = self
            .rows
            .get(key)
            .and_then(|row| row.get(&(Family::from(family), qualifier.clone())));
        Ok(versions.and_then(VecDeque::front).map(|(_, value)| value.clone()))
    }

    /// Deletes columns, a family, or the row.
    pub(super) fn delete(&mut self, key: &Bytes, family: Option<&str>, qualifiers: &[Bytes]) -> Result<()> {
        if let Some(family) = family {
            self.check_family(family)?;
        }
        let Some(row) = self.rows.get_mut(key) else {
            return Ok(());
        };
        let doomed = |f: &Family, q: &Bytes| match family {
            None => true,
            Some(family) => **f == *family && (qualifiers.is_empty() || qualifiers.contains(q)),
        };
        let bytes = &mut self.bytes;
        row.retain(|(f, q), versions| {
            let keep = !doomed(f, q);
            if !keep {
                *bytes -= versions.iter().map(|(_, v)| (q.len() + v.len()) as u64).sum::<u64>();
            }
            keep
        });
        if row.is_empty() {
            self.rows.remove(key);
            self.bytes -= key.len() as u64;
        }
        Ok(())
    }

    fn check_family(&self, family: &str) -> Result<()> {
        if self.families.iter().any(|known| **known == *family) {
            Ok(())
        } else {
            Err(TargetError::Refused(format!("no family {family:?}")))
        }
    }
}

/// The part of a row that `columns` selects.
fn select(key: &Bytes, row: &Columned, columns: &Columns) -> Option<Row> {
    let mut cells = Vec::new();
    for ((family, qualifier), versions) in row {
        let wanted = (columns.families.is_empty() || columns.families.contains(family))
            && (columns.qualifiers.is_empty() || columns.qualifiers.contains(qualifier));
        if !wanted {
            continue;
        }
        let newest = versions.iter().take(columns.versions.max(1) as usize);
        cells.extend(newest.map(|(timestamp, value)| Cell {
            family: Bytes::copy_from_slice(family.as_bytes()),
            qualifier: qualifier.clone(),
            timestamp: *timestamp,
            value: value.clone(),
        }));
    }
    let key = key.clone();
    (!cells.is_empty()).then_some(Row { key, cells })
}
