//! `hbase:acl`, the table at which clients before 2.2 administer the rights of users.
//!
//! It has no rows. It is found by its name, and is in no list. Each server answers for it.

use crate::meta_table;
use crate::names;
use std::sync::{Arc, LazyLock};
use stele_client::TabletPlace;
use stele_types::{RowRange, TableName, TableSchema, TabletId};

/// The table as its description in `hbase:meta` has it.
pub(crate) static SCHEMA: LazyLock<Arc<TableSchema>> = LazyLock::new(|| {
    Arc::new(TableSchema {
        name: TableName::new(names::SYSTEM_NAMESPACE, "acl"),
        ..TableSchema::clone(&meta_table::SCHEMA)
    })
});

/// The schema of `hbase:acl` if this text is its name.
pub(crate) fn schema_of(table: &[u8]) -> Option<Arc<TableSchema>> {
    (table == names::ACL_TABLE.as_bytes()).then(|| Arc::clone(&SCHEMA))
}

/// The only region of `hbase:acl`, on every server, if this is its schema.
pub(crate) fn place_in(schema: &TableSchema) -> Option<TabletPlace> {
    (schema.name == SCHEMA.name).then(|| TabletPlace::here(TabletId(0), RowRange::all()))
}
