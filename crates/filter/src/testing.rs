//! Shared by tests of filters: a schema, a row, and a short notation for cells.

use bytes::Bytes;
use std::fmt::Write as _;
use stele_types::{Cell, Family, FamilyId, GroupId, TableId, TableName, TableSchema, Timestamp, ValueType};

/// A table with the families `a`, `b` and `c`, numbered from 1.
pub(crate) fn schema() -> TableSchema {
    let family = |name: &str| Family {
        name: name.to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    TableSchema {
        families: (1..).map(FamilyId).zip(["a", "b", "c"].map(family)).collect(),
        next_family: FamilyId(4),
        groups: Vec::new(),
        ..TableSchema::new(TableId(1), TableName::new("instance", "table"))
    }
}

/// A cell whose value is `v` and its timestamp.
pub(crate) fn cell(family: u32, qualifier: &str, timestamp: i64) -> Cell {
    let qualifier = Bytes::copy_from_slice(qualifier.as_bytes());
    let value = Bytes::from(format!("v{timestamp}"));
    Cell::put(FamilyId(family), qualifier, Timestamp(timestamp), value)
}

/// Two families, four columns, seven cells.
pub(crate) fn row() -> Vec<Cell> {
    let cells = [(1, "x", 3), (1, "x", 2), (1, "x", 1), (1, "y", 2)];
    let more = [(2, "x", 5), (2, "x", 4), (2, "z", 1)];
    cells.into_iter().chain(more).map(|(f, q, t)| cell(f, q, t)).collect()
}

/// A generator of random numbers that always gives the middle.
pub(crate) fn middle() -> f64 {
    0.5
}

/// `family:qualifier@timestamp=value[labels]` for each cell.
pub(crate) fn show(cells: &[Cell]) -> String {
    let mut out = String::new();
    for cell in cells {
        let family = ["?", "a", "b", "c"][cell.family.0 as usize];
        let (qualifier, value) = (cell.qualifier.escape_ascii(), cell.value.escape_ascii());
        let _ = write!(out, "{family}:{qualifier}@{}={value}", cell.timestamp);
        if !cell.labels.is_empty() {
            let _ = write!(out, "[{}]", cell.labels.join(","));
        }
        out.push(' ');
    }
    out.trim_end().to_owned()
}
