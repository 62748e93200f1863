//! Attributes of tables and families: pairs of bytes, nearly all of them text.

use crate::failure::{Failure, Outcome};
use bytes::Bytes;
use std::str::FromStr;
use stele_wire::messages::BytesBytesPair;

pub(crate) const VERSIONS: &str = "VERSIONS";
pub(crate) const MIN_VERSIONS: &str = "MIN_VERSIONS";
pub(crate) const TTL: &str = "TTL";
pub(crate) const COMPRESSION: &str = "COMPRESSION";
pub(crate) const BLOCKSIZE: &str = "BLOCKSIZE";
pub(crate) const BLOOMFILTER: &str = "BLOOMFILTER";
pub(crate) const IN_MEMORY: &str = "IN_MEMORY";
pub(crate) const KEEP_DELETED_CELLS: &str = "KEEP_DELETED_CELLS";
pub(crate) const NEW_VERSION_BEHAVIOR: &str = "NEW_VERSION_BEHAVIOR";
pub(crate) const ENCRYPTION: &str = "ENCRYPTION";

pub(crate) const DURABILITY: &str = "DURABILITY";
pub(crate) const MAX_FILESIZE: &str = "MAX_FILESIZE";
pub(crate) const MEMSTORE_FLUSHSIZE: &str = "MEMSTORE_FLUSHSIZE";
pub(crate) const READONLY: &str = "READONLY";
pub(crate) const REGION_REPLICATION: &str = "REGION_REPLICATION";
pub(crate) const SPLIT_POLICY: &str = "SPLIT_POLICY";
pub(crate) const ERASURE_CODING_POLICY: &str = "ERASURE_CODING_POLICY";

/// The value of an attribute, if it is text.
pub(crate) fn get<'a>(attributes: &'a [BytesBytesPair], name: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|pair| pair.first == name.as_bytes());
    found.and_then(|pair| std::str::from_utf8(&pair.second).ok())
}

/// Gives an attribute a value.
pub(crate) fn set(attributes: &mut Vec<BytesBytesPair>, name: &'static str, value: impl Into<Bytes>) {
    let value = value.into();
    match attributes.iter_mut().find(|pair| pair.first == name.as_bytes()) {
        Some(pair) => pair.second = value,
        None => attributes.push(BytesBytesPair {
            first: Bytes::from_static(name.as_bytes()),
            second: value,
        }),
    }
}

/// Takes an attribute away.
pub(crate) fn remove(attributes: &mut Vec<BytesBytesPair>, name: &str) {
    attributes.retain(|pair| pair.first != name.as_bytes());
}

/// The number that an attribute holds.
pub(crate) fn number<T: FromStr>(attributes: &[BytesBytesPair], name: &str) -> Outcome<Option<T>> {
    let Some(text) = get(attributes, name) else {
        return Ok(None);
    };
    let parsed = text.parse().map(Some);
    parsed.map_err(|_| Failure::do_not_retry(format!("{name} is {text:?}, which is not a number in its range")))
}

/// Whether an attribute is true. HBase takes any text but `true` for false.
pub(crate) fn is_true(attributes: &[BytesBytesPair], name: &str) -> bool {
    get(attributes, name).is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// Whether an attribute is false, and not only absent.
pub(crate) fn is_false(attributes: &[BytesBytesPair], name: &str) -> bool {
    get(attributes, name).is_some_and(|text| text.eq_ignore_ascii_case("false"))
}
