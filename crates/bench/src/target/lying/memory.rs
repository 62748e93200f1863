//! A lying target's memory of rows, from which it returns an old value.

use crate::target::{Put, Row};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

/// Most rows that are remembered. Later ones get true responses.
pub const KEYS_MAX: usize = 100_000;

/// Key and value bytes that are remembered, for rows with large values.
const BYTES_MAX: usize = 256 << 20;

/// The values of a put, by family and qualifier.
#[derive(Clone, Default)]
pub(super) struct Values(Vec<(Arc<str>, Bytes, Bytes)>);

impl Values {
    pub(super) fn of(put: &Put) -> Self {
        Self(put.cells.clone())
    }

    /// Replaces the values of the same columns in `row`.
    pub(super) fn put_into(&self, row: &mut Row) {
        for cell in &mut row.cells {
            let same = self
                .0
                .iter()
                .find(|(f, q, _)| f.as_bytes() == cell.family && *q == cell.qualifier);
            if let Some((_, _, value)) = same {
                cell.value = value.clone();
            }
        }
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(_, q, v)| q.len() + v.len()).sum()
    }
}

/// The last two puts of rows, by table and key.
#[derive(Default)]
pub(super) struct Remembered {
    rows: HashMap<(String, Bytes), Puts>,
    bytes: usize,
}

struct Puts {
    last: Values,
    /// The one before, if there was one.
    before: Option<Values>,
}

impl Remembered {
    /// Records an acknowledged put.
    pub(super) fn written(&mut self, table: &str, key: Bytes, values: Values) {
        let more = values.bytes() + key.len();
        let full = self.rows.len() >= KEYS_MAX || self.bytes + more > BYTES_MAX;
        let place = (table.to_owned(), key);
        match self.rows.get_mut(&place) {
            Some(puts) => {
                self.bytes += values.bytes();
                let last = std::mem::replace(&mut puts.last, values);
                let forgotten = puts.before.replace(last);
                self.bytes -= forgotten.map_or(0, |values| values.bytes());
            }
            None if full => {}
            None => {
                self.bytes += more;
                let puts = Puts {
                    last: values,
                    before: None,
                };
                self.rows.insert(place, puts);
            }
        }
    }

    /// The values of the put before the last one, if there were two.
    pub(super) fn before(&self, table: &str, key: &Bytes) -> Option<Values> {
        let puts = self.rows.get(&(table.to_owned(), key.clone()))?;
        puts.before.clone()
    }
}
