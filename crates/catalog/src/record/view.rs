//! Authorized views in the record of a table.

use bytes::Bytes;
use prost::Message;
use stele_types::{ColumnSubset, View};

/// A view.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ViewRecord {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    row_prefixes: Vec<Bytes>,
    #[prost(message, repeated, tag = "3")]
    families: Vec<SubsetRecord>,
    #[prost(bool, tag = "4")]
    is_protected: bool,
    #[prost(uint64, tag = "5")]
    version: u64,
}

/// Columns of a family.
#[derive(Clone, PartialEq, Message)]
struct SubsetRecord {
    #[prost(string, tag = "1")]
    family: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    qualifiers: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    prefixes: Vec<Bytes>,
}

pub(super) fn encode_view((name, view): (&String, &View)) -> ViewRecord {
    let subset = |(family, subset): (&String, &ColumnSubset)| SubsetRecord {
        family: family.clone(),
        qualifiers: subset.qualifiers.clone(),
        prefixes: subset.prefixes.clone(),
    };
    ViewRecord {
        name: name.clone(),
        row_prefixes: view.row_prefixes.clone(),
        families: view.families.iter().map(subset).collect(),
        is_protected: view.is_protected,
        version: view.version,
    }
}

pub(super) fn decode_view(record: ViewRecord) -> (String, View) {
    let subset = |record: SubsetRecord| {
        let subset = ColumnSubset {
            qualifiers: record.qualifiers,
            prefixes: record.prefixes,
        };
        (record.family, subset)
    };
    let view = View {
        row_prefixes: record.row_prefixes,
        families: record.families.into_iter().map(subset).collect(),
        is_protected: record.is_protected,
        version: record.version,
    };
    (record.name, view)
}
