//! The descriptor of `hbase:meta`, as HBase shows it.

use super::attributes::{self, set};
use super::defaults;
use bytes::Bytes;
use stele_wire::messages::{BytesBytesPair, ColumnFamilySchema, TableSchema};
use stele_wire::{meta, region};

/// The descriptor.
pub(crate) fn meta_table() -> TableSchema {
    let family = |name: &'static [u8], versions: &'static str| {
        let mut family = ColumnFamilySchema {
            name: Bytes::from_static(name),
            ..ColumnFamilySchema::default()
        };
        for (name, value) in [
            (attributes::VERSIONS, versions),
            (attributes::IN_MEMORY, "true"),
            (attributes::BLOCKSIZE, "8192"),
            (attributes::BLOOMFILTER, "ROWCOL"),
            ("DATA_BLOCK_ENCODING", "ROW_INDEX_V1"),
        ] {
            set(&mut family.attributes, name, value);
        }
        defaults::add_to_family(&mut family);
        family
    };
    let mut table = TableSchema {
        table_name: Some(region::table_name(&Bytes::from_static(region::META_TABLE.as_bytes()))),
        attributes: vec![BytesBytesPair {
            first: Bytes::from_static(b"IS_META"),
            second: Bytes::from_static(b"true"),
        }],
        column_families: vec![family(meta::INFO_FAMILY, "3"), family(meta::TABLE_FAMILY, "3")],
        configuration: Vec::new(),
    };
    defaults::add_to_table(&mut table);
    table
}
