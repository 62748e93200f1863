//! Default attributes: the server adds those that a client left out.

use super::attributes::{self, get, set};
use stele_wire::messages::{ColumnFamilySchema, TableSchema};

/// Of a family, as HBase 2.6 gives them.
const OF_FAMILY: [(&str, &str); 12] = [
    (attributes::VERSIONS, "1"),
    (attributes::MIN_VERSIONS, "0"),
    (attributes::TTL, "2147483647"),
    (attributes::KEEP_DELETED_CELLS, "FALSE"),
    (attributes::BLOOMFILTER, "ROW"),
    (attributes::COMPRESSION, "NONE"),
    ("DATA_BLOCK_ENCODING", "NONE"),
    ("INDEX_BLOCK_ENCODING", "NONE"),
    (attributes::IN_MEMORY, "false"),
    ("BLOCKCACHE", "true"),
    (attributes::BLOCKSIZE, "65536"),
    ("REPLICATION_SCOPE", "0"),
];

/// Of a table. The second is the way in which HBase keeps track of files; clients show it.
const OF_TABLE: [(&str, &str); 2] = [("IS_META", "false"), ("hbase.store.file-tracker.impl", "DEFAULT")];

/// Adds the attributes of a family that are absent.
pub(super) fn add_to_family(family: &mut ColumnFamilySchema) {
    for (name, value) in OF_FAMILY {
        if get(&family.attributes, name).is_none() {
            set(&mut family.attributes, name, value);
        }
    }
}

/// Adds the attributes of a table that are absent.
pub(super) fn add_to_table(table: &mut TableSchema) {
    for (name, value) in OF_TABLE {
        if get(&table.attributes, name).is_none() {
            set(&mut table.attributes, name, value);
        }
    }
}
