//! Rows of `hbase:meta` in its order, made one by one.
//!
//! A client that looks up one row costs one lookup of a tablet, however many there are. Only a read of more rows lists
//! the tablets of a table.

use crate::acl_table;
use crate::cells::ResultRow;
use crate::context::Context;
use crate::failure::Outcome;
use crate::meta_table::{self, KeyRange};
use crate::names;
use crate::pace::{Pace, ROW_UNITS};
use crate::regions;
use bytes::Bytes;
use std::sync::Arc;
use std::vec::IntoIter;
use stele_client::TabletPlace;
use stele_types::TableSchema;
use stele_wire::region;

/// Up to this many rows are looked up one by one.
const LOOKUPS_MAX: usize = 16;

/// Places that are passed over within one unit of work.
const UNIT_PLACES: usize = 2;

/// The rows of a range, in one direction.
pub(crate) struct MetaRows<'a> {
    shared: &'a Context,
    range: KeyRange,
    reversed: bool,
    /// Rows that the reader wants at most.
    wanted: usize,
    /// Tables that were not begun; the next one is the last.
    tables: Vec<Arc<TableSchema>>,
    table: Option<TableRows>,
}

/// The rows of one table.
struct TableRows {
    schema: Arc<TableSchema>,
    /// The row of the table's state is to come.
    has_state: bool,
    regions: Walk,
}

/// The regions of a table that are to come.
enum Walk {
    /// The one of this row, then those behind it.
    At(Bytes),
    /// Those that begin before this row, in reverse.
    Before(Bytes),
    Listed(IntoIter<TabletPlace>),
    Done,
}

/// The first row in the key of a region; empty if there is none. `None` for a key of another table.
fn first_row_of(key: &Bytes, table: &[u8]) -> Option<Bytes> {
    let rest = key.strip_prefix(table)?;
    match rest.first() {
        None => Some(Bytes::new()),
        Some(b',') => {
            let rest = key.slice(table.len() + 1..);
            let end = rest.iter().rposition(|b| *b == b',').unwrap_or(rest.len());
            Some(rest.slice(..end))
        }
        Some(_) => None,
    }
}

/// The row of one key, if there is one.
pub(crate) async fn row(shared: &Context, key: &Bytes) -> Outcome<Option<ResultRow>> {
    let only = Some((key.clone(), true));
    let range = KeyRange {
        low: only.clone(),
        high: only,
    };
    let mut rows = MetaRows::new(shared, range, false, 1).await?;
    rows.next(&mut Pace::new(&shared.env)).await
}

impl<'a> MetaRows<'a> {
    /// The rows of a range, of which `wanted` are read at most.
    pub async fn new(shared: &'a Context, range: KeyRange, reversed: bool, wanted: usize) -> Outcome<Self> {
        let mut tables = tables_in(shared, &range).await?;
        tables.sort_by_cached_key(|schema| names::to_text(&schema.name));
        if !reversed {
            tables.reverse();
        }
        Ok(MetaRows {
            shared,
            range,
            reversed,
            wanted,
            tables,
            table: None,
        })
    }

    /// Whether there may be more rows.
    pub fn has_more(&self) -> bool {
        let has_rows = |table: &TableRows| table.has_state || !matches!(table.regions, Walk::Done);
        !self.tables.is_empty() || self.table.as_ref().is_some_and(has_rows)
    }

    /// The next row.
    pub async fn next(&mut self, pace: &mut Pace<'_>) -> Outcome<Option<ResultRow>> {
        loop {
            let Some(mut table) = self.table.take().or_else(|| self.next_table()) else {
                return Ok(None);
            };
            let row = self.next_of(&mut table, pace).await;
            if row.is_some() {
                self.table = Some(table);
                return Ok(row);
            }
        }
    }

    fn next_table(&mut self) -> Option<TableRows> {
        let schema = self.tables.pop()?;
        let name = names::to_text(&schema.name);
        let of = |bound: &Option<(Bytes, bool)>| bound.as_ref().and_then(|(key, _)| first_row_of(key, name.as_bytes()));
        let (low, high) = (of(&self.range.low), of(&self.range.high));
        let regions = match (self.reversed, high) {
            (false, _) if self.wanted <= LOOKUPS_MAX => Walk::At(low.unwrap_or_default()),
            (true, Some(high)) if self.wanted <= LOOKUPS_MAX => Walk::At(high),
            (true, high) => self.listed(&schema, |places| match &high {
                Some(high) => places.partition_point(|place| place.range.start <= *high),
                None => places.len(),
            }),
            (false, _) => {
                let low = low.unwrap_or_default();
                self.listed(&schema, |places| {
                    places.partition_point(|place| place.range.start < low)
                })
            }
        };
        Some(TableRows {
            schema,
            has_state: true,
            regions,
        })
    }

    /// The tablets from an index on, or in reverse those before it.
    fn listed(&self, schema: &TableSchema, at: impl FnOnce(&[TabletPlace]) -> usize) -> Walk {
        // A table that is dropped meanwhile has no rows.
        let mut places = match acl_table::place_in(schema) {
            Some(place) => vec![place],
            None => self.shared.service.places(&schema.name).unwrap_or_default(),
        };
        let at = at(&places).min(places.len());
        let places = match self.reversed {
            false => places.split_off(at),
            true => {
                places.truncate(at);
                places.reverse();
                places
            }
        };
        Walk::Listed(places.into_iter())
    }

    async fn next_of(&self, table: &mut TableRows, pace: &mut Pace<'_>) -> Option<ResultRow> {
        if !self.reversed
            && let Some(state) = self.state(table)
        {
            return Some(state);
        }
        while let Some(place) = self.next_place(table) {
            let key = region::name(&regions::info(&table.schema.name, &place));
            pace.spend(ROW_UNITS / UNIT_PLACES).await;
            if self.range.contains(&key) {
                pace.spend(ROW_UNITS).await;
                return Some(meta_table::region_row(self.shared, &table.schema, &place, key));
            }
            if self.range.is_passed(&key, self.reversed) {
                table.regions = Walk::Done;
            }
        }
        self.state(table)
    }

    /// The row of the table's state, once.
    fn state(&self, table: &mut TableRows) -> Option<ResultRow> {
        let has_state = std::mem::take(&mut table.has_state);
        let row = has_state.then(|| meta_table::table_row(self.shared, &table.schema));
        row.filter(|row| self.range.contains(&row.row))
    }

    fn next_place(&self, table: &mut TableRows) -> Option<TabletPlace> {
        loop {
            match std::mem::replace(&mut table.regions, Walk::Done) {
                Walk::Done => return None,
                Walk::At(row) => {
                    let place = match acl_table::place_in(&table.schema) {
                        Some(place) => place,
                        None => self.shared.service.place_of(&table.schema.name, &row).ok()?,
                    };
                    table.regions = match (&place.range.end, self.reversed) {
                        (Some(end), false) => Walk::At(end.clone()),
                        (_, true) if !place.range.start.is_empty() => Walk::Before(place.range.start.clone()),
                        _ => Walk::Done,
                    };
                    return Some(place);
                }
                Walk::Before(row) => {
                    let before = |places: &[TabletPlace]| places.partition_point(|place| place.range.start < row);
                    table.regions = self.listed(&table.schema, before);
                }
                Walk::Listed(mut places) => {
                    let place = places.next()?;
                    table.regions = match places.len() {
                        0 => Walk::Done,
                        _ => Walk::Listed(places),
                    };
                    return Some(place);
                }
            }
        }
    }
}

/// The tables whose rows may be in a range.
async fn tables_in(shared: &Context, range: &KeyRange) -> Outcome<Vec<Arc<TableSchema>>> {
    if let Some(table) = range.table() {
        if let Some(schema) = acl_table::schema_of(table) {
            return Ok(vec![schema]);
        }
        let named = names::from_text(table).and_then(|name| Ok(shared.service.schema(&name)?));
        return Ok(named
            .into_iter()
            .filter(|schema| names::is_legal(&schema.name))
            .collect());
    }
    let mut tables = meta_table::all_tables(shared).await?;
    tables.retain(|schema| range.may_hold(names::to_text(&schema.name).as_bytes()));
    Ok(tables)
}

#[cfg(test)]
mod tests;
