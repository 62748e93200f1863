//! The table that tests write to when its schema is of no account to them.

use bytes::Bytes;
use stele_client::{NewFamily, NewTable};
use stele_types::{TableName, ValueType};

/// A table of one family `f` that keeps everything, with a tablet more than there are splits.
pub fn plain_table(name: TableName, splits: Vec<Bytes>) -> NewTable {
    NewTable {
        families: vec![NewFamily {
            name: "f".to_owned(),
            gc_rule: None,
            value_type: ValueType::Bytes,
            deletes: Default::default(),
            front_end_data: Vec::new(),
        }],
        initial_splits: splits,
        ..NewTable::new(name)
    }
}
