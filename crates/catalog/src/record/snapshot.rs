//! The record of a snapshot as an entry of the view, and back.

use super::access::{decode_rules, encode_rules};
use super::{SnapshotRecord, decode, decode_table, encode, encode_table};
use crate::view::SnapshotEntry;
use bytes::Bytes;
use std::sync::Arc;
use stele_types::{AccessRule, Kept, Resource, SnapshotId};

/// Decodes a snapshot; the error says why not.
pub fn decode_snapshot(bytes: &[u8], version: u64) -> Result<SnapshotEntry, String> {
    let record: SnapshotRecord = decode(bytes)?;
    let (schema, tablet_set) = decode_table(&record.table).map_err(|why| format!("the table: {why}"))?;
    let kept = match record.kept {
        0 => None,
        number => Some(Kept::from_number(number).ok_or_else(|| format!("kept for reason {number}"))?),
    };
    let rules: Vec<AccessRule> = match record.rules.is_empty() {
        true => Vec::new(),
        false => decode_rules(&Resource::Table(schema.name.clone()), &record.rules)?,
    };
    Ok(SnapshotEntry {
        kept,
        rules: rules.into(),
        id: SnapshotId(record.id),
        name: (record.namespace, record.name),
        schema: Arc::new(schema),
        tablet_set,
        created_micros: record.created_micros,
        completed_micros: record.completed_micros,
        expires_micros: record.expires_micros,
        front_end_data: record.front_end_data,
        parts: record.parts,
        tablets: record.tablets,
        bytes: record.bytes,
        version,
    })
}

/// Encodes a snapshot, without its version.
pub fn encode_snapshot(entry: &SnapshotEntry) -> Bytes {
    let (namespace, name) = entry.name.clone();
    encode(&SnapshotRecord {
        id: entry.id.0,
        namespace,
        name,
        table: encode_table(&entry.schema, entry.tablet_set),
        created_micros: entry.created_micros,
        completed_micros: entry.completed_micros,
        expires_micros: entry.expires_micros,
        front_end_data: entry.front_end_data.clone(),
        parts: entry.parts,
        tablets: entry.tablets,
        bytes: entry.bytes,
        kept: entry.kept.map_or(0, |kept| kept as u32),
        rules: match entry.rules.is_empty() {
            true => Bytes::new(),
            false => encode_rules(&entry.rules),
        },
    })
}
