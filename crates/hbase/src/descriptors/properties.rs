//! The properties of a table that a descriptor asks for.
//!
//! An attribute acts, or is kept for its reader, or is refused (`checks`).

use super::attributes::{self, get, is_false, is_true, number, remove, set};
use super::checks::{check_family, check_table};
use super::files::FileOptions;
use super::{deletes, names, rules};
use crate::failure::{Failure, Outcome};
use std::collections::BTreeMap;
use stele_client::NewFamily;
use stele_types::limits::TABLET_BYTES;
use stele_types::{DeleteRule, Durability, TableSchema, ValueType};
use stele_wire::messages::{self, BytesBytesPair};

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
    let of_settings = || get(attributes, "hbase.regionserver.region.split.policy");
    let policy = get(attributes, attributes::SPLIT_POLICY).or_else(of_settings);
    let policy = policy.unwrap_or_default();
    let name = policy.strip_prefix(POLICIES);
    let known = policy.is_empty() || name.is_some_and(|name| name == NO_SPLITS || POLICIES_BY_SIZE.contains(&name));
    if !known {
        let message = format!("Unable to load configured region split policy '{policy}'");
        return Err(Failure::do_not_retry(message));
    }
    if is_never_split(attributes) {
        return Ok(*TABLET_BYTES.end());
    }
    let bytes = number::<i64>(attributes, attributes::MAX_FILESIZE)?.and_then(|bytes| u64::try_from(bytes).ok());
    Ok(bytes.map_or(0, |bytes| bytes.clamp(*TABLET_BYTES.start(), *TABLET_BYTES.end())))
}

/// Whether a table's regions are not split, on request neither.
pub(crate) fn is_never_split(attributes: &[BytesBytesPair]) -> bool {
    let policy = get(attributes, attributes::SPLIT_POLICY).and_then(|policy| policy.strip_prefix(POLICIES));
    policy == Some(NO_SPLITS) || is_false(attributes, "SPLIT_ENABLED")
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
