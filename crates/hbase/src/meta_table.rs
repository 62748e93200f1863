//! `hbase:meta`, the table in which clients look regions up.
//!
//! It is not stored. Its rows are made from the tables and their tablets when they are read ([`crate::meta_rows`]), so
//! they are always true. Rows sort as HBase sorts them ([`stele_wire::meta::compare`]), and not by bytes.

use crate::cells::ResultRow;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::regions::{self, Region};
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use stele_client::TabletPlace;
use stele_types::{
    Cell, DeleteRule, Family, FamilyId, GroupId, RowRange, TableId, TableName, TableSchema, TabletId, TimeUnit,
    Timestamp, ValueType,
};
use stele_wire::messages::TableStateKind;
use stele_wire::meta;

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
        time_unit: TimeUnit::Millis,
        delete_rule: DeleteRule::ByTimestamp,
        deletion_protection: true,
        families: BTreeMap::from([(INFO, family(meta::INFO_FAMILY)), (TABLE, family(meta::TABLE_FAMILY))]),
        next_family: FamilyId(3),
        row_cache: false,
        ..TableSchema::new(TableId(0), TableName::new(names::SYSTEM_NAMESPACE, "meta"))
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

/// The text before the first comma: the table.
fn table_of(key: &[u8]) -> &[u8] {
    key.split(|b| *b == b',').next().unwrap_or_default()
}

impl KeyRange {
    /// Whether a key is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.is_passed(key, false) && !self.is_passed(key, true)
    }

    /// Whether a key is behind the range in a direction, so that all later ones are.
    pub fn is_passed(&self, key: &[u8], reversed: bool) -> bool {
        let (bound, behind) = match reversed {
            false => (&self.high, Ordering::Greater),
            true => (&self.low, Ordering::Less),
        };
        bound.as_ref().is_some_and(|(bound, included)| {
            let order = meta::compare(key, bound);
            order == behind || (order == Ordering::Equal && !included)
        })
    }

    /// Whether keys of a table may be in the range.
    pub fn may_hold(&self, table: &[u8]) -> bool {
        let is_above = |(low, _): &(Bytes, Included)| table >= table_of(low);
        let is_below = |(high, _): &(Bytes, Included)| table <= table_of(high);
        self.low.as_ref().is_none_or(is_above) && self.high.as_ref().is_none_or(is_below)
    }

    /// The table that all keys of the range are of, if it is one: the text before the first comma. The upper end of a
    /// table's regions has a space there.
    pub fn table(&self) -> Option<&[u8]> {
        let (low, high) = (table_of(&self.low.as_ref()?.0), table_of(&self.high.as_ref()?.0));
        let high = high.strip_suffix(b" ").unwrap_or(high);
        (low == high).then_some(low)
    }
}

/// The row of a table's state.
pub(crate) fn table_row(shared: &Context, schema: &TableSchema) -> ResultRow {
    let time = Timestamp(shared.identity.start_code as i64);
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

/// The row of a region, whose key is known.
pub(crate) fn region_row(shared: &Context, schema: &TableSchema, place: &TabletPlace, row: Bytes) -> ResultRow {
    let info = regions::info(&schema.name, place);
    let own = &shared.identity;
    let (host, port, start_code) = match &place.server {
        Some(server) => (&server.host, server.port, server.start_code),
        None => (&own.host, own.port, own.start_code),
    };
    let time = Timestamp(start_code as i64);
    let number = |n: u64| Bytes::copy_from_slice(&n.to_be_bytes());
    let state = if schema.enabled { "OPEN" } else { "CLOSED" };
    let columns: [(&'static [u8], Bytes); 6] = [
        (meta::REGION_INFO, meta::encode_region_info(&info)),
        (meta::SEQUENCE_NUMBER, number(regions::place_number(place, start_code))),
        (meta::SERVER, format!("{host}:{port}").into()),
        (meta::SERVER_START_CODE, number(start_code)),
        (PLANNED_SERVER, format!("{host},{port},{start_code}").into()),
        (REGION_STATE, Bytes::from_static(state.as_bytes())),
    ];
    let cell = |(qualifier, value)| Cell::put(INFO, Bytes::from_static(qualifier), time, value);
    ResultRow {
        row,
        cells: columns.into_iter().map(cell).collect(),
    }
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

/// The only region of `hbase:meta`.
pub(crate) fn region() -> Region {
    Region {
        table: SCHEMA.name.clone(),
        tablet: TabletId(0),
        range: RowRange::all(),
        cell_bytes_max: None,
    }
}

/// Clients may not write it.
pub(crate) fn read_only() -> Failure {
    Failure::do_not_retry("hbase:meta is made from the catalog and cannot be written")
}
