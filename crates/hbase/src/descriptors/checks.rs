//! Checks of descriptors.
//!
//! Refused are values that HBase refuses, and attributes whose absence a user would notice in results: replicas, encryption, code on
//! the server.

use super::attributes::{self, get, number};
use crate::failure::{Failure, Outcome};
use stele_wire::messages::{self, ColumnFamilySchema};

/// A smaller file size makes too many regions, says HBase.
const FILE_BYTES_MIN: i64 = 2 << 20;
/// And smaller memtables, too many flushes.
const MEMTABLE_BYTES_MIN: i64 = 1 << 20;

/// Values of `REPLICATION_SCOPE`.
const SCOPES: std::ops::RangeInclusive<i64> = 0..=2;

/// Values of `IN_MEMORY_COMPACTION`.
const MEMTABLE_POLICIES: [&str; 4] = ["NONE", "BASIC", "EAGER", "ADAPTIVE"];

/// Classes of coprocessors that a table may name: their services are there for every table.
const CLASSES: [&str; 2] = [
    "org.apache.hadoop.hbase.coprocessor.AggregateImplementation",
    "org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint",
];

/// The setting of tiers by age.
const TIERS: &str = "hbase.hstore.datatiering.type";
/// The setting of the kind of files.
const STORE_ENGINE: &str = "hbase.hstore.engine.class";

/// Checks a table's own attributes.
pub(super) fn check_table(table: &messages::TableSchema) -> Outcome<()> {
    let attributes = &table.attributes;
    let refused = |name: &str, value: &str| {
        let message = format!("{name} => {value} is not supported by this server");
        Err(Failure::do_not_retry(message))
    };
    if number::<i64>(attributes, attributes::MAX_FILESIZE)?.is_some_and(|bytes| bytes < FILE_BYTES_MIN) {
        let message = "MAX_FILESIZE for table descriptor or \"hbase.hregion.max.filesize\" is too small, which might \
                       cause over splitting into unmanageable number of regions.";
        return Err(Failure::do_not_retry(message));
    }
    if number::<i64>(attributes, attributes::MEMSTORE_FLUSHSIZE)?.is_some_and(|bytes| bytes < MEMTABLE_BYTES_MIN) {
        let message = "MEMSTORE_FLUSHSIZE for table descriptor or \"hbase.hregion.memstore.flush.size\" is too small, \
                       which might cause very frequent flushing.";
        return Err(Failure::do_not_retry(message));
    }
    check_tiers(table)?;
    match number::<i32>(attributes, attributes::REGION_REPLICATION)? {
        None | Some(1) => {}
        Some(..=0) => {
            return Err(Failure::do_not_retry(
                "Table region replication should be at least one.",
            ));
        }
        Some(replicas) => return refused(attributes::REGION_REPLICATION, &replicas.to_string()),
    }
    if let Some(policy) = get(attributes, attributes::ERASURE_CODING_POLICY).filter(|policy| !policy.is_empty()) {
        return refused(attributes::ERASURE_CODING_POLICY, policy);
    }
    let code = attributes
        .iter()
        .filter(|pair| pair.first.to_ascii_lowercase().starts_with(b"coprocessor$"))
        .find(|pair| !is_served_everywhere(&pair.second));
    match code {
        Some(code) => refused(
            &code.first.escape_ascii().to_string(),
            &code.second.escape_ascii().to_string(),
        ),
        None => Ok(()),
    }
}

/// Tiers by age need files by age, says HBase. The settings of the table hold for a family without settings of its own.
fn check_tiers(table: &messages::TableSchema) -> Outcome<()> {
    let of_table = |name| get(&table.attributes, name);
    let mut schemas = vec![(of_table(TIERS), of_table(STORE_ENGINE))];
    for family in &table.column_families {
        let of_family = |name: &str| {
            let own = family.configuration.iter().find(|pair| pair.name == name);
            own.map(|pair| pair.value.as_str())
        };
        schemas.push((
            of_family(TIERS).or_else(|| of_table(TIERS)),
            of_family(STORE_ENGINE).or_else(|| of_table(STORE_ENGINE)),
        ));
    }
    let is_bad = |(tiers, engine): &(Option<&str>, Option<&str>)| {
        *tiers == Some("TIME_RANGE") && *engine != Some("org.apache.hadoop.hbase.regionserver.DateTieredStoreEngine")
    };
    match schemas.iter().any(is_bad) {
        true => Err(Failure::do_not_retry(
            "Time Range Data Tiering should be enabled with Date Tiered Compaction.",
        )),
        false => Ok(()),
    }
}

/// Whether a coprocessor, `jar|class|priority|settings`, has a service that every table has.
fn is_served_everywhere(coprocessor: &[u8]) -> bool {
    let class = coprocessor.split(|byte| *byte == b'|').nth(1).unwrap_or_default();
    CLASSES.iter().any(|served| served.as_bytes() == class.trim_ascii())
}

/// Checks a family. The rules of garbage collection and the options of files have checks of their own.
pub(super) fn check_family(family: &ColumnFamilySchema) -> Outcome<()> {
    let attributes = &family.attributes;
    let name = family.name.escape_ascii();
    if number::<i64>(attributes, "DFS_REPLICATION")?.is_some_and(|copies| copies < 0) {
        let message = format!("HFile Replication for column family {name}  must be greater than zero.");
        return Err(Failure::do_not_retry(message));
    }
    let scope = number::<i64>(attributes, "REPLICATION_SCOPE")?.unwrap_or(0);
    if !SCOPES.contains(&scope) {
        let message = format!("Replication scope for column family {name} is {scope} which is invalid.");
        return Err(Failure::do_not_retry(message));
    }
    let policy = get(attributes, "IN_MEMORY_COMPACTION").unwrap_or("NONE");
    if !MEMTABLE_POLICIES.contains(&policy.to_ascii_uppercase().as_str()) {
        let message = format!("IN_MEMORY_COMPACTION {policy:?} of column family {name} does not exist");
        return Err(Failure::do_not_retry(message));
    }
    let encrypted = get(attributes, attributes::ENCRYPTION).unwrap_or_default();
    if encrypted.is_empty() {
        return Ok(());
    }
    let attribute = attributes::ENCRYPTION;
    let message = format!("{attribute} => {encrypted} of column family {name} is not supported by this server");
    Err(Failure::do_not_retry(message))
}
