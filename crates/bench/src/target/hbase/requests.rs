//! Requests of single rows, in the form of HBase's own client.

use crate::target::{Columns, Put, TargetError};
use bytes::{Bytes, BytesMut};
use prost::Message;
use std::sync::Arc;
use stele_hbaseclient::Failure;
use stele_hbaseclient::batch::RowChange;
use stele_wire::WireError;
use stele_wire::cell::{CELL_OVERHEAD_BYTES, CellRef, CellType, LATEST};
use stele_wire::messages::{
    BINARY_COMPARATOR, BinaryComparator, ByteArrayComparable, Column, ColumnValue, Comparator, CompareType, Condition,
    DeleteType, Get, MutationProto, MutationType, QualifierValue,
};

/// Columns of a read.
pub fn columns(columns: &Columns) -> Vec<Column> {
    let of = |family: &Arc<str>| Column {
        family: bytes(family),
        qualifier: columns.qualifiers.clone(),
    };
    columns.families.iter().map(of).collect()
}

/// Newest versions of each column; absent for one, which is HBase's default too.
pub fn max_versions(columns: &Columns) -> Option<u32> {
    (columns.versions > 1).then_some(columns.versions)
}

/// A read of one row.
pub fn get(key: Bytes, wanted: &Columns) -> Get {
    Get {
        row: key,
        column: columns(wanted),
        max_versions: max_versions(wanted),
        ..Get::default()
    }
}

/// A write with its cells in the message, the form of a Mutate.
pub fn put(put: &Put) -> MutationProto {
    let mut column_value: Vec<ColumnValue> = Vec::with_capacity(1);
    for (family, qualifier, value) in &put.cells {
        let cell = QualifierValue {
            qualifier: Some(qualifier.clone()),
            value: Some(value.clone()),
            ..QualifierValue::default()
        };
        match column_value
            .last_mut()
            .filter(|last| *last.family == *family.as_bytes())
        {
            Some(last) => last.qualifier_value.push(cell),
            None => column_value.push(ColumnValue {
                family: bytes(family),
                qualifier_value: vec![cell],
            }),
        }
    }
    MutationProto {
        column_value,
        ..mutation(put.key.clone(), MutationType::Put)
    }
}

/// An addition to one counter. The nonce makes it safe to repeat.
pub fn increment(key: Bytes, family: &str, qualifier: Bytes, by: i64, nonce: u64) -> MutationProto {
    let cell = QualifierValue {
        qualifier: Some(qualifier),
        value: Some(Bytes::copy_from_slice(&by.to_be_bytes())),
        ..QualifierValue::default()
    };
    let column_value = vec![ColumnValue {
        family: bytes(family),
        qualifier_value: vec![cell],
    }];
    MutationProto {
        column_value,
        nonce: Some(nonce),
        ..mutation(key, MutationType::Increment)
    }
}

/// A delete of all versions of some columns, of a family, or of the row.
pub fn delete(key: Bytes, family: Option<&str>, qualifiers: &[Bytes]) -> MutationProto {
    let cell = |qualifier: &Bytes, what: DeleteType| QualifierValue {
        qualifier: Some(qualifier.clone()),
        delete_type: Some(what as i32),
        ..QualifierValue::default()
    };
    let cells = |family: &str| ColumnValue {
        family: bytes(family),
        qualifier_value: match qualifiers {
            [] => vec![cell(&Bytes::new(), DeleteType::Family)],
            some => some.iter().map(|q| cell(q, DeleteType::MultipleVersions)).collect(),
        },
    };
    MutationProto {
        column_value: family.map(cells).into_iter().collect(),
        ..mutation(key, MutationType::Delete)
    }
}

/// "The newest version equals `expected`". An empty value stands for "missing or empty" in HBase, which uses it for
/// "has no value".
pub fn condition(key: Bytes, family: &str, qualifier: Bytes, expected: Option<Bytes>) -> Condition {
    let comparable = ByteArrayComparable {
        value: Some(expected.unwrap_or_default()),
    };
    Condition {
        row: key,
        family: Some(bytes(family)),
        qualifier: Some(qualifier),
        compare_type: Some(CompareType::Equal as i32),
        comparator: Some(Comparator {
            name: Bytes::from_static(BINARY_COMPARATOR.as_bytes()),
            serialized_comparator: Some(BinaryComparator { comparable }.encode_to_vec().into()),
        }),
        ..Condition::default()
    }
}

fn mutation(key: Bytes, kind: MutationType) -> MutationProto {
    MutationProto {
        row: Some(key),
        mutate_type: Some(kind as i32),
        ..MutationProto::default()
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// A counter's value.
pub fn counter(value: &[u8]) -> Result<i64, TargetError> {
    let bytes: [u8; 8] = value
        .try_into()
        .map_err(|_| Failure::Protocol(format!("a counter of {} bytes where 8 were expected", value.len())))?;
    Ok(i64::from_be_bytes(bytes))
}

/// A write with its cells in the cell block, the form of a Multi.
impl RowChange for Put {
    fn row(&self) -> &Bytes {
        &self.key
    }

    fn cell_bytes(&self) -> usize {
        let cell =
            |(f, q, v): &(Arc<str>, Bytes, Bytes)| CELL_OVERHEAD_BYTES + self.key.len() + f.len() + q.len() + v.len();
        self.cells.iter().map(cell).sum()
    }

    fn proto(&self) -> MutationProto {
        MutationProto {
            associated_cell_count: Some(self.cells.len() as i32),
            ..mutation(self.key.clone(), MutationType::Put)
        }
    }

    fn encode_cells(&self, out: &mut BytesMut) -> Result<(), WireError> {
        self.cells.iter().try_for_each(|(family, qualifier, value)| {
            let (row, family) = (&*self.key, family.as_bytes());
            let cell = CellRef {
                row,
                family,
                qualifier,
                timestamp: LATEST,
                kind: CellType::Put,
                value,
            };
            cell.encode(out)
        })
    }
}
