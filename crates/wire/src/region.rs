//! Names of regions and tables.
//!
//! A region's name is `<table>,<first row>,<id>.<hash>.`. The id is the time of its creation in ms. The hash is the
//! MD5, in lower-case hex, of the part before the first of the two dots. The hash alone is the region's *encoded name*.
//! `hbase:meta` is older than that scheme: its region is `hbase:meta,,1`, and its encoded name is fixed.

use crate::messages::{DEFAULT_NAMESPACE, RegionInfo, TableName};
use bytes::{BufMut, Bytes, BytesMut};
use md5::{Digest, Md5};

/// Name of the table of regions, namespace included.
pub const META_TABLE: &str = "hbase:meta";

/// Name of its only region.
pub const META_REGION: &str = "hbase:meta,,1";

/// Encoded name of that region.
pub const META_REGION_ENCODED: &str = "1588230740";

/// A table's name as text: without the namespace if that is the default one.
pub fn table_text(table: &TableName) -> Bytes {
    if table.namespace.is_empty() || table.namespace == DEFAULT_NAMESPACE {
        return table.qualifier.clone();
    }
    let mut text = BytesMut::with_capacity(table.namespace.len() + 1 + table.qualifier.len());
    text.put_slice(&table.namespace);
    text.put_u8(b':');
    text.put_slice(&table.qualifier);
    text.freeze()
}

/// The table of a text. The reverse of [`table_text`].
pub fn table_name(text: &Bytes) -> TableName {
    match text.iter().position(|b| *b == b':') {
        Some(colon) => TableName {
            namespace: text.slice(..colon),
            qualifier: text.slice(colon + 1..),
        },
        None => TableName {
            namespace: Bytes::from_static(DEFAULT_NAMESPACE.as_bytes()),
            qualifier: text.clone(),
        },
    }
}

/// A region's name.
pub fn name(region: &RegionInfo) -> Bytes {
    let mut name = BytesMut::new();
    name.put_slice(&table_text(&region.table_name));
    name.put_u8(b',');
    name.put_slice(region.start_key.as_deref().unwrap_or_default());
    name.put_u8(b',');
    name.put_slice(region.region_id.to_string().as_bytes());
    if name == META_REGION.as_bytes() {
        return name.freeze();
    }
    match region.replica_id {
        Some(replica) if replica > 0 => name.put_slice(format!("_{replica:04X}").as_bytes()),
        _ => {}
    }
    let hash = hash(&name);
    name.put_u8(b'.');
    name.put_slice(hash.as_bytes());
    name.put_u8(b'.');
    name.freeze()
}

/// The encoded name: the part between the last two dots. `None` if the name does not end in a hash.
pub fn encoded(name: &[u8]) -> Option<&[u8]> {
    if name == META_REGION.as_bytes() {
        return Some(META_REGION_ENCODED.as_bytes());
    }
    let hash = name.strip_suffix(b".")?;
    let dot = hash.iter().rposition(|b| *b == b'.')?;
    let hash = hash.get(dot + 1..)?;
    (hash.len() == 32).then_some(hash)
}

fn hash(bytes: &[u8]) -> String {
    let digest = Md5::digest(bytes);
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(table: &'static str, start: &'static str, region_id: u64) -> RegionInfo {
        RegionInfo {
            region_id,
            table_name: table_name(&Bytes::from_static(table.as_bytes())),
            start_key: Some(Bytes::from_static(start.as_bytes())),
            ..RegionInfo::default()
        }
    }

    #[test]
    fn a_name_ends_in_the_hash_of_its_beginning() {
        // The hash as `printf 't1,,1396437624367' | md5sum` prints it.
        let name = name(&region("t1", "", 1_396_437_624_367));
        assert_eq!(name, "t1,,1396437624367.33fe702ff20c1a8d1900b304283a3b12.");
        assert_eq!(encoded(&name), Some(&b"33fe702ff20c1a8d1900b304283a3b12"[..]));
    }

    #[test]
    fn a_name_is_the_one_that_hbase_gave() {
        let name = name(&region("bench-hbase-live-again", "c", 1_795_235_367_096));
        assert_eq!(
            name,
            "bench-hbase-live-again,c,1795235367096.43fe562af038b0a5df6ab12bd6cdbfda."
        );
    }

    #[test]
    fn the_region_of_meta_has_no_hash() {
        let name = name(&region(META_TABLE, "", 1));
        assert_eq!(name, META_REGION);
        assert_eq!(encoded(&name), Some(META_REGION_ENCODED.as_bytes()));
        assert_eq!(encoded(b"t,,1."), None);
        assert_eq!(encoded(b""), None);
    }

    #[test]
    fn the_default_namespace_is_not_written() {
        for text in ["t", "ns:t", META_TABLE] {
            let text = Bytes::from_static(text.as_bytes());
            assert_eq!(table_text(&table_name(&text)), text);
        }
        assert_eq!(table_name(&Bytes::from_static(b"t")).namespace, DEFAULT_NAMESPACE);
    }
}
