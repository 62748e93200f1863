//! `hbase:meta`, the table in which clients look regions up.
//!
//! It is not stored. Its rows are made from the tables and their tablets when they are read, so they are always true.
//! Rows sort as HBase sorts them ([`stele_wire::meta::compare`]), and not by bytes.

use crate::call::{Call, Reply};
use crate::cells::{ResultRow, RowsBlock};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::regions;
use crate::selection::{Selection, Wanted};
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use stele_client::TabletPlace;
use stele_types::{
    Cell, Compression, DeleteRule, Family, FamilyId, GroupId, LocalityGroup, TableId, TableName, TableSchema, TimeUnit,
    Timestamp, ValueType,
};
use stele_wire::messages::{Column, Get, GetResponse, RowResult, TableStateKind};
use stele_wire::{meta, region};

const INFO: FamilyId = FamilyId(1);
const TABLE: FamilyId = FamilyId(2);

/// Column of the server that a region is meant to be on.
const PLANNED_SERVER: &[u8] = b"sn";
/// Column of a region's state.
const REGION_STATE: &[u8] = b"state";

/// The schema of `hbase:meta`.
pub(crate) static SCHEMA: LazyLock<Arc<TableSchema>> = LazyLock::new(|| {
    let family = |name: &[u8]| Family {
        name: String::from_utf8_lossy(name).into_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    Arc::new(TableSchema {
        id: TableId(0),
        name: TableName::new(names::SYSTEM_NAMESPACE, "meta"),
        version: 1,
        time_unit: TimeUnit::Millis,
        granularity: 1,
        delete_rule: DeleteRule::ByTimestamp,
        durability: None,
        deletion_protection: true,
        enabled: true,
        read_only: false,
        families: BTreeMap::from([(INFO, family(meta::INFO_FAMILY)), (TABLE, family(meta::TABLE_FAMILY))]),
        next_family: FamilyId(3),
        groups: vec![LocalityGroup::new(GroupId(0), "default", Compression::None)],
        tablet_bytes_max: 0,
        row_cache: false,
        front_end_data: Vec::new(),
    })
});

/// A range of keys, of which either end may be absent.
#[derive(Clone, Debug)]
pub(crate) struct KeyRange {
    pub low: Option<(Bytes, Included)>,
    pub high: Option<(Bytes, Included)>,
}

/// Whether a bound belongs to its range.
pub(crate) type Included = bool;

impl KeyRange {
    fn contains(&self, key: &[u8]) -> bool {
        let above = |(low, included): &(Bytes, Included)| match meta::compare(key, low) {
            Ordering::Greater => true,
            Ordering::Equal => *included,
            Ordering::Less => false,
        };
        let below = |(high, included): &(Bytes, Included)| match meta::compare(key, high) {
            Ordering::Less => true,
            Ordering::Equal => *included,
            Ordering::Greater => false,
        };
        self.low.as_ref().is_none_or(above) && self.high.as_ref().is_none_or(below)
    }

    /// The table that all keys of the range are of, if it is one: the text before the first comma. The upper end of a
    /// table's regions has a space there.
    fn table(&self) -> Option<&[u8]> {
        let of = |key: &'_ Bytes| -> usize { key.iter().position(|b| *b == b',').unwrap_or(key.len()) };
        let (low, high) = (&self.low.as_ref()?.0, &self.high.as_ref()?.0);
        let (low, high) = (low.get(..of(low))?, high.get(..of(high))?);
        let high = high.strip_suffix(b" ").unwrap_or(high);
        (low == high).then_some(low)
    }
}

/// The row of a table's state.
fn table_row(schema: &TableSchema, time: Timestamp) -> ResultRow {
    let state = if schema.enabled {
        TableStateKind::Enabled
    } else {
        TableStateKind::Disabled
    };
    ResultRow {
        row: names::to_text(&schema.name).into(),
        cells: vec![Cell::put(
            TABLE,
            Bytes::from_static(meta::TABLE_STATE),
            time,
            // The encoding of the first state is not empty in HBase.
            Bytes::from(vec![8, state as u8]),
        )],
    }
}

/// The row of a region.
fn region_row(shared: &Context, schema: &TableSchema, place: &TabletPlace) -> ResultRow {
    let info = regions::info(&schema.name, place);
    let identity = &shared.identity;
    let time = Timestamp(identity.start_code as i64);
    let number = |n: u64| Bytes::copy_from_slice(&n.to_be_bytes());
    let state = if schema.enabled { "OPEN" } else { "CLOSED" };
    let columns: [(&'static [u8], Bytes); 6] = [
        (meta::REGION_INFO, meta::encode_region_info(&info)),
        (meta::SEQUENCE_NUMBER, number(identity.start_code)),
        (meta::SERVER, format!("{}:{}", identity.host, identity.port).into()),
        (meta::SERVER_START_CODE, number(identity.start_code)),
        (
            PLANNED_SERVER,
            format!("{},{},{}", identity.host, identity.port, identity.start_code).into(),
        ),
        (REGION_STATE, Bytes::from_static(state.as_bytes())),
    ];
    let cell = |(qualifier, value)| Cell::put(INFO, Bytes::from_static(qualifier), time, value);
    ResultRow {
        row: region::name(&info),
        cells: columns.into_iter().map(cell).collect(),
    }
}

/// The tables whose rows may be in a range.
async fn tables_in(shared: &Context, range: &KeyRange) -> Outcome<Vec<Arc<TableSchema>>> {
    if let Some(table) = range.table() {
        let named = names::from_text(table).and_then(|name| Ok(shared.service.schema(&name)?));
        return Ok(named.into_iter().collect());
    }
    all_tables(shared).await
}

/// The schemas of all tables whose names HBase can have.
pub(crate) async fn all_tables(shared: &Context) -> Outcome<Vec<Arc<TableSchema>>> {
    let mut tables = Vec::new();
    for (namespace, _) in shared.admin.list_namespaces().await? {
        tables.extend(shared.admin.list_tables(&namespace).await?);
    }
    tables.retain(|schema| names::is_legal(&schema.name));
    Ok(tables)
}

/// The first `count` rows of a range, from its lower end or in reverse from its upper end. Whether there are more.
pub(crate) async fn rows(
    shared: &Context,
    range: &KeyRange,
    reversed: bool,
    count: usize,
) -> Outcome<(Vec<ResultRow>, bool)> {
    let time = Timestamp(shared.identity.start_code as i64);
    let mut found: Vec<ResultRow> = Vec::new();
    for schema in tables_in(shared, range).await? {
        let state = table_row(&schema, time);
        if range.contains(&state.row) {
            found.push(state);
        }
        // A table that is dropped meanwhile has no rows.
        let places = shared.service.places(&schema.name).unwrap_or_default();
        for place in window(&places, range, reversed, count) {
            let row = region_row(shared, &schema, place);
            if range.contains(&row.row) {
                found.push(row);
            }
        }
    }
    found.sort_by(|a, b| match reversed {
        false => meta::compare(&a.row, &b.row),
        true => meta::compare(&b.row, &a.row),
    });
    let more = found.len() > count;
    found.truncate(count);
    Ok((found, more))
}

/// The regions of one table that the first rows of a range may be of. A lookup of one row in a table of many regions
/// reads a few of them.
fn window<'a>(places: &'a [TabletPlace], range: &KeyRange, reversed: bool, count: usize) -> &'a [TabletPlace] {
    let row_of = |key: &Bytes| {
        let first = key.iter().position(|b| *b == b',')?;
        let last = key.iter().rposition(|b| *b == b',')?;
        (first < last).then(|| key.slice(first + 1..last))
    };
    if range.table().is_none() {
        return places;
    }
    let low = range.low.as_ref().and_then(|(key, _)| row_of(key)).unwrap_or_default();
    let high = range.high.as_ref().and_then(|(key, _)| row_of(key));
    let begin = places.partition_point(|place| place.range.start < low);
    // Only the key of a single region has a first row; the end of a table has none.
    let end = match high.filter(|high| !high.is_empty()) {
        Some(high) => places.partition_point(|place| place.range.start <= high),
        None if range.high.as_ref().is_some_and(|(key, _)| !key.contains(&b' ')) => {
            places.partition_point(|place| place.range.start.is_empty())
        }
        None => places.len(),
    };
    let all = places.get(begin..end.max(begin)).unwrap_or(&[]);
    let few = all.len().min(count.saturating_add(2));
    if reversed { &all[all.len() - few..] } else { &all[..few] }
}

/// The selection of a read of `hbase:meta`.
pub(crate) fn selection(columns: &[Column]) -> Outcome<Selection> {
    let selection = Selection::new(
        &SCHEMA,
        &Wanted {
            columns,
            times: None,
            family_times: &[],
            versions: Some(1),
            store_limit: None,
            store_offset: 0,
            raw: false,
        },
    )?;
    Ok(selection.without_pushdown())
}

/// Serves `Get` of a row of `hbase:meta`.
pub(crate) async fn get(shared: &Context, call: &Call, get: &Get) -> Outcome<Reply> {
    let only = Some((get.row.clone(), true));
    let range = KeyRange {
        low: only.clone(),
        high: only,
    };
    let (mut rows, _) = rows(shared, &range, false, 1).await?;
    let selection = selection(&get.column)?;
    let mut row = rows.pop().unwrap_or(ResultRow {
        row: get.row.clone(),
        cells: Vec::new(),
    });
    selection.apply(&SCHEMA, &mut row.cells);
    let result = if get.existence_only() {
        let exists = Some(!row.cells.is_empty());
        row.cells.clear();
        RowResult {
            associated_cell_count: Some(0),
            exists,
            ..RowResult::default()
        }
    } else {
        call.client.cells.result(&SCHEMA, &row)
    };
    let response = GetResponse { result: Some(result) };
    let rows = [row];
    call.reply_with(
        &response,
        &RowsBlock {
            schema: &SCHEMA,
            rows: &rows,
        },
    )
}

/// Clients may not write it.
pub(crate) fn read_only() -> Failure {
    Failure::do_not_retry("hbase:meta is made from the catalog and cannot be written")
}
