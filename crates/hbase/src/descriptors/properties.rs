//! The properties of a table that a descriptor asks for.
//!
//! An attribute acts, or is kept for its reader, or is refused. Refused are those whose absence a user would notice in
//! results: replicas, encryption, code on the server.

use super::attributes::{self, get, is_false, is_true, number, remove, set};
use super::files::FileOptions;
use super::{deletes, names, rules};
use crate::coprocessor::CLASSES;
use crate::failure::{Failure, Outcome};
use std::collections::BTreeMap;
use stele_client::NewFamily;
use stele_types::limits::TABLET_BYTES;
use stele_types::{DeleteRule, Durability, TableSchema, ValueType};
use stele_wire::messages::{self, BytesBytesPair, ColumnFamilySchema};

/// A smaller file size makes too many regions, says HBase.
const FILE_BYTES_MIN: i64 = 2 << 20;
/// And smaller memtables, too many flushes.
const MEMTABLE_BYTES_MIN: i64 = 1 << 20;

/// Names of split policies begin with this.
const POLICIES: &str = "org.apache.hadoop.hbase.regionserver.";
/// Policies that split by size, as the server here does.
const POLICIES_BY_SIZE: [&str; 4] = [
    "ConstantSizeRegionSplitPolicy",
    "IncreasingToUpperBoundRegionSplitPolicy",
    "SteppingSplitPolicy",
    "BusyRegionSplitPolicy",
];
/// The policy of tables that are not split.
const NO_SPLITS: &str = "DisabledRegionSplitPolicy";

/// The properties that a descriptor asks for.
#[derive(Clone, Debug)]
pub(crate) struct Properties {
    pub families: Vec<NewFamily>,
    pub durability: Option<Durability>,
    /// 0 for the server's.
    pub tablet_bytes_max: u64,
    /// Whether writes of rows are refused.
    pub read_only: bool,
    /// How the files of each family are written.
    pub files: BTreeMap<String, FileOptions>,
}

impl Properties {
    /// Reads and checks a descriptor of a table with this delete rule.
    pub fn of(table: &messages::TableSchema, rule: DeleteRule) -> Outcome<Self> {
        check_table(table)?;
        if table.column_families.is_empty() {
            return Err(Failure::do_not_retry("Table should have at least one column family."));
        }
        let mut files = BTreeMap::new();
        let mut families = Vec::with_capacity(table.column_families.len());
        for family in &table.column_families {
            check_family(family)?;
            let name = names::check_family(&family.name)?.to_owned();
            files.insert(name.clone(), FileOptions::of_family(family)?);
            families.push(NewFamily {
                name,
                gc_rule: rules::rule(family)?,
                value_type: ValueType::Bytes,
                deletes: deletes::deletes(family, rule)?,
                front_end_data: Vec::new(),
            });
        }
        families.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some([twice, ..]) = families.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(Failure::do_not_retry(format!("Family {:?} is there twice", twice.name)));
        }
        Ok(Properties {
            families,
            durability: durability(&table.attributes)?,
            tablet_bytes_max: tablet_bytes_max(&table.attributes)?,
            read_only: is_true(&table.attributes, attributes::READONLY),
            files,
        })
    }
}

fn check_table(table: &messages::TableSchema) -> Outcome<()> {
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

/// Whether a coprocessor, `jar|class|priority|settings`, has a service that every table has.
fn is_served_everywhere(coprocessor: &[u8]) -> bool {
    let class = coprocessor.split(|byte| *byte == b'|').nth(1).unwrap_or_default();
    CLASSES.iter().any(|served| served.as_bytes() == class.trim_ascii())
}

fn check_family(family: &ColumnFamilySchema) -> Outcome<()> {
    let attributes = &family.attributes;
    let encrypted = get(attributes, attributes::ENCRYPTION).unwrap_or_default();
    if encrypted.is_empty() {
        return Ok(());
    }
    let (name, family) = (attributes::ENCRYPTION, family.name.escape_ascii());
    let message = format!("{name} => {encrypted} of column family {family} is not supported by this server");
    Err(Failure::do_not_retry(message))
}

fn durability(attributes: &[BytesBytesPair]) -> Outcome<Option<Durability>> {
    Ok(match get(attributes, attributes::DURABILITY).unwrap_or("USE_DEFAULT") {
        "USE_DEFAULT" => None,
        "SKIP_WAL" => Some(Durability::None),
        // HBase's replicas have such a write in their memory: it survives the process, not a loss of power.
        "ASYNC_WAL" | "SYNC_WAL" => Some(Durability::Flush),
        "FSYNC_WAL" => Some(Durability::Sync),
        other => return Err(Failure::do_not_retry(format!("DURABILITY {other:?} does not exist"))),
    })
}

/// The size at which tablets are split: 0 for the server's, the largest for tables that are not to be split.
fn tablet_bytes_max(attributes: &[BytesBytesPair]) -> Outcome<u64> {
    let policy = get(attributes, attributes::SPLIT_POLICY).unwrap_or_default();
    let name = policy.strip_prefix(POLICIES);
    let known = policy.is_empty() || name.is_some_and(|name| name == NO_SPLITS || POLICIES_BY_SIZE.contains(&name));
    if !known {
        let message = format!("Unable to load configured region split policy '{policy}'");
        return Err(Failure::do_not_retry(message));
    }
    let never = name == Some(NO_SPLITS) || is_false(attributes, "SPLIT_ENABLED");
    if never {
        return Ok(*TABLET_BYTES.end());
    }
    let bytes = number::<i64>(attributes, attributes::MAX_FILESIZE)?.and_then(|bytes| u64::try_from(bytes).ok());
    Ok(bytes.map_or(0, |bytes| bytes.clamp(*TABLET_BYTES.start(), *TABLET_BYTES.end())))
}

/// Corrects attributes of a table that are not true, because it was changed through another interface.
pub(super) fn correct_table(attributes: &mut Vec<BytesBytesPair>, schema: &TableSchema) {
    if durability(attributes).ok() != Some(schema.durability) {
        match schema.durability {
            None => remove(attributes, attributes::DURABILITY),
            Some(Durability::None) => set(attributes, attributes::DURABILITY, "SKIP_WAL"),
            Some(Durability::Flush) => set(attributes, attributes::DURABILITY, "SYNC_WAL"),
            Some(Durability::Sync) => set(attributes, attributes::DURABILITY, "FSYNC_WAL"),
        }
    }
    if is_true(attributes, attributes::READONLY) != schema.read_only {
        let read_only = if schema.read_only { "true" } else { "false" };
        set(attributes, attributes::READONLY, read_only);
    }
    if tablet_bytes_max(attributes).ok() != Some(schema.tablet_bytes_max) {
        for name in [attributes::SPLIT_POLICY, "SPLIT_ENABLED", attributes::MAX_FILESIZE] {
            remove(attributes, name);
        }
        if schema.tablet_bytes_max > 0 {
            set(
                attributes,
                attributes::MAX_FILESIZE,
                schema.tablet_bytes_max.to_string(),
            );
        }
    }
}
