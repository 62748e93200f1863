//! Filters as HBase evaluates them.

mod decoding;
mod fuzzy;
mod meanings;
mod narrowing;
mod recorded;

use super::{FamilyVersions, FilterCell, FilterError, RowVerdict, ScanFilter, ScanShape};
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;
use stele_wire::cell::CellType;
use stele_wire::messages::{self, CompareType};

const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

/// A message with its class.
fn filter(class: &str, message: &impl Message) -> messages::Filter {
    messages::Filter {
        name: format!("{PACKAGE}{class}").into(),
        serialized_filter: Some(message.encode_to_vec().into()),
    }
}

fn list(operator: messages::ListOperator, filters: &[messages::Filter]) -> messages::Filter {
    let message = messages::FilterList {
        operator: operator as i32,
        filters: filters.to_vec(),
    };
    filter("FilterList", &message)
}

fn all(filters: &[messages::Filter]) -> messages::Filter {
    list(messages::ListOperator::MustPassAll, filters)
}

fn one(filters: &[messages::Filter]) -> messages::Filter {
    list(messages::ListOperator::MustPassOne, filters)
}

fn wrapping(class: &str, inner: messages::Filter) -> messages::Filter {
    filter(class, &messages::WrappingFilter { filter: inner })
}

fn binary(value: &'static str) -> messages::Comparator {
    let value = Some(Bytes::from_static(value.as_bytes()));
    let message = messages::BinaryComparator {
        comparable: messages::ByteArrayComparable { value },
    };
    messages::Comparator {
        name: messages::BINARY_COMPARATOR.into(),
        serialized_comparator: Some(message.encode_to_vec().into()),
    }
}

/// A filter that compares with a `BinaryComparator`.
fn comparing(class: &str, op: CompareType, value: &'static str) -> messages::Filter {
    let compare_filter = messages::CompareFilter {
        compare_op: op as i32,
        comparator: Some(binary(value)),
    };
    filter(class, &messages::ComparingFilter { compare_filter })
}

fn prefix(prefix: &'static str) -> messages::Filter {
    let prefix = Some(prefix.into());
    filter("PrefixFilter", &messages::PrefixFilter { prefix })
}

fn page(page_size: i64) -> messages::Filter {
    filter("PageFilter", &messages::PageFilter { page_size })
}

fn key_only(len_as_val: bool) -> messages::Filter {
    filter("KeyOnlyFilter", &messages::KeyOnlyFilter { len_as_val })
}

fn first_key() -> messages::Filter {
    filter("FirstKeyOnlyFilter", &())
}

/// A cell as `FAMILY:QUALIFIER@TIMESTAMP=VALUE`.
fn cell(text: &'static str) -> FilterCell {
    let (column, value) = text.split_once('=').unwrap();
    let (column, timestamp) = column.split_once('@').unwrap();
    let (family, qualifier) = column.split_once(':').unwrap();
    FilterCell {
        family: family.into(),
        qualifier: qualifier.into(),
        timestamp: timestamp.parse().unwrap(),
        kind: CellType::Put,
        value: value.into(),
    }
}

fn shape() -> ScanShape {
    let family = |family: &'static str| FamilyVersions {
        family: family.into(),
        versions_max: 2,
    };
    ScanShape {
        families: vec![family("f"), family("g")],
        ..ScanShape::default()
    }
}

fn decoded(filter: &messages::Filter, shape: &ScanShape) -> Result<ScanFilter, FilterError> {
    let random: super::Random = Arc::new(|| u64::MAX / 2);
    ScanFilter::decode(filter, shape, &random)
}

type Rows<'a> = &'a [(&'static str, &'a [&'static str])];

/// The rows that a scan returns, as `ROW{CELL CELL}`, with `.` if the filter ended it.
fn scan_as(filter: &messages::Filter, shape: &ScanShape, rows: Rows<'_>) -> String {
    let mut filter = decoded(filter, shape).unwrap();
    let mut shown = Vec::new();
    for (row, cells) in rows {
        let mut cells = cells.iter().map(|text| cell(text)).collect();
        if filter.row(row.as_bytes(), &mut cells).unwrap() == RowVerdict::Kept {
            let cells: Vec<_> = cells.iter().map(show).collect();
            shown.push(format!("{row}{{{}}}", cells.join(" ")));
        }
        if filter.all_remaining_filtered() {
            shown.push(".".to_owned());
            break;
        }
    }
    shown.join(" ")
}

fn scan(filter: &messages::Filter, rows: Rows<'_>) -> String {
    scan_as(filter, &shape(), rows)
}

fn show(cell: &FilterCell) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let (family, qualifier, value) = (text(&cell.family), text(&cell.qualifier), text(&cell.value));
    format!("{family}:{qualifier}@{}={value}", cell.timestamp)
}
