//! Catalog records as bytes: protocol-buffers messages behind one version byte. Tags are in `docs/formats/catalog.md`
//! and are never reused. The coordinator checksums its records.

pub mod access;
#[cfg(test)]
mod golden;
mod snapshot;
pub mod switches;
mod tablet;
mod view;

pub use snapshot::{decode_snapshot, encode_snapshot};
pub use tablet::{decode_tablet, encode_tablet};

use bytes::Bytes;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use stele_types::gc::GC_RULE_DEPTH_MAX;
use stele_types::{
    AggregateKind, AutomatedBackups, Compression, DeleteRule, Deletes, Durability, Family, FamilyId, GcRule, GroupId,
    GroupOptions, KeepDeleted, LocalityGroup, TableId, TableName, TableSchema, TabletId, TimeUnit, ValueType,
};

/// Version byte of every record that any program can serve.
const VERSION: u8 = 1;
/// Version byte of a table that a program must know all of to serve it: one that took the tags of version 1 alone would
/// look for families in the wrong group.
const VERSION_GROUPS: u8 = 2;
/// Version byte of a table whose tablets have their records under a number other than the table's: a program that did not
/// know would take them for nobody's, and delete them.
const VERSION_TABLET_SET: u8 = 3;
/// Version byte of a table that is read only, or has a family with effects of deletes of its own. A program that did not
/// know would take writes, or drop cells that are to be kept.
const VERSION_DELETES: u8 = 4;

/// A namespace.
#[derive(Clone, PartialEq, Message)]
pub struct NamespaceRecord {
    /// Data that the front end gets back.
    #[prost(bytes = "bytes", tag = "1")]
    pub front_end_data: Bytes,
    /// Made on purpose, not by making a table in it.
    #[prost(bool, tag = "2")]
    pub explicit: bool,
}

#[derive(Clone, PartialEq, Message)]
struct TableRecord {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    table: String,
    #[prost(uint64, tag = "4")]
    version: u64,
    /// 1 micros, 2 millis.
    #[prost(uint32, tag = "5")]
    time_unit: u32,
    #[prost(int64, tag = "6")]
    granularity: i64,
    /// 1 by sequence, 2 by timestamp.
    #[prost(uint32, tag = "7")]
    delete_rule: u32,
    /// 0 the server's, 1 none, 2 flush, 3 sync.
    #[prost(uint32, tag = "8")]
    durability: u32,
    #[prost(bool, tag = "9")]
    deletion_protection: bool,
    #[prost(message, repeated, tag = "10")]
    families: Vec<FamilyRecord>,
    #[prost(uint32, tag = "11")]
    next_family: u32,
    #[prost(message, repeated, tag = "12")]
    groups: Vec<GroupRecord>,
    #[prost(uint64, tag = "13")]
    tablet_bytes_max: u64,
    #[prost(bytes = "vec", tag = "14")]
    front_end_data: Vec<u8>,
    /// The other way round, so that tables made before it are cached.
    #[prost(bool, tag = "15")]
    no_row_cache: bool,
    /// The other way round, so that tables made before it are enabled.
    #[prost(bool, tag = "16")]
    disabled: bool,
    /// The number that the records of its tablets are under; 0 is the table's.
    #[prost(uint64, tag = "17")]
    tablet_set: u64,
    #[prost(bool, tag = "18")]
    read_only: bool,
    /// A program that does not know it makes no backups.
    #[prost(message, optional, tag = "19")]
    automated_backups: Option<AutomatedRecord>,
    /// A program that does not know them serves no view.
    #[prost(message, repeated, tag = "20")]
    views: Vec<view::ViewRecord>,
    /// The restore that has made the table and has not ended. A program that does not know it drops the mark at a change.
    #[prost(string, tag = "21")]
    restoring: String,
}

/// Backups that the server makes by itself.
#[derive(Clone, PartialEq, Message)]
struct AutomatedRecord {
    #[prost(int64, tag = "1")]
    retention_micros: i64,
    #[prost(int64, tag = "2")]
    frequency_micros: i64,
}

#[derive(Clone, PartialEq, Message)]
struct FamilyRecord {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, optional, tag = "3")]
    gc_rule: Option<GcRecord>,
    /// 0 bytes, else the aggregate's number.
    #[prost(uint32, tag = "4")]
    aggregate: u32,
    #[prost(uint32, tag = "5")]
    group: u32,
    #[prost(bytes = "vec", tag = "6")]
    front_end_data: Vec<u8>,
    /// 0 the table's, else as there.
    #[prost(uint32, tag = "7")]
    delete_rule: u32,
    /// 0 no, 1 yes, 2 for a time.
    #[prost(uint32, tag = "8")]
    keep_deleted: u32,
    /// That time.
    #[prost(int64, tag = "9")]
    keep_deleted_micros: i64,
}

#[derive(Clone, PartialEq, Message)]
struct GroupRecord {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(uint32, tag = "3")]
    compression: u32,
    /// 0 is 1, as in version 1.
    #[prost(uint32, tag = "4")]
    zstd_level: u32,
    #[prost(uint32, tag = "5")]
    dictionary_bytes: u32,
    #[prost(uint32, optional, tag = "6")]
    block_bytes: Option<u32>,
    #[prost(uint32, optional, tag = "7")]
    filter_bits_per_row: Option<u32>,
    #[prost(bool, tag = "8")]
    in_memory: bool,
    #[prost(uint64, optional, tag = "9")]
    file_bytes: Option<u64>,
    /// Families that may have left cells behind.
    #[prost(uint32, repeated, tag = "10")]
    left: Vec<u32>,
}

/// Exactly one of the numbers is set, or `kind` says which list it is.
#[derive(Clone, PartialEq, Message)]
struct GcRecord {
    /// 1 versions, 2 age, 3 union, 4 intersection.
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(uint32, tag = "2")]
    versions: u32,
    #[prost(int64, tag = "3")]
    age_micros: i64,
    #[prost(message, repeated, tag = "4")]
    members: Vec<GcRecord>,
}

/// A snapshot of a table. Its files are in storage (`docs/formats/snapshot.md`).
#[derive(Clone, PartialEq, Message)]
pub struct SnapshotRecord {
    /// Which snapshot.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The namespace that the snapshot is in.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Its name there.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The table as it was: a whole table record.
    #[prost(bytes = "bytes", tag = "4")]
    pub table: Bytes,
    /// Wall-clock microseconds at which it was begun.
    #[prost(int64, tag = "5")]
    pub created_micros: i64,
    /// Wall-clock microseconds from which on it may be deleted; absent for never.
    #[prost(int64, optional, tag = "6")]
    pub expires_micros: Option<i64>,
    /// Data that the front end gets back.
    #[prost(bytes = "bytes", tag = "7")]
    pub front_end_data: Bytes,
    /// Files with its manifests.
    #[prost(uint32, tag = "8")]
    pub parts: u32,
    /// Its tablets.
    #[prost(uint64, tag = "9")]
    pub tablets: u64,
    /// Bytes of the rows that it refers to, roughly.
    #[prost(uint64, tag = "10")]
    pub bytes: u64,
    /// Wall-clock microseconds at which it was complete.
    #[prost(int64, tag = "11")]
    pub completed_micros: i64,
    /// Why the server has taken it by itself; 0 if a client has.
    #[prost(uint32, tag = "12")]
    pub kept: u32,
    /// The access rules of the table: a whole record of them, or nothing.
    #[prost(bytes = "bytes", tag = "13")]
    pub rules: Bytes,
}

/// Encodes any record.
pub fn encode(record: &impl Message) -> Bytes {
    encode_as(VERSION, record)
}

fn encode_as(version: u8, record: &impl Message) -> Bytes {
    let mut out = Vec::with_capacity(1 + record.encoded_len());
    out.push(version);
    out.extend_from_slice(&record.encode_to_vec());
    out.into()
}

/// Decodes any record; the error says why not.
pub fn decode<R: Message + Default>(bytes: &[u8]) -> Result<R, String> {
    decode_up_to(VERSION, bytes)
}

fn decode_up_to<R: Message + Default>(newest: u8, bytes: &[u8]) -> Result<R, String> {
    match bytes.split_first() {
        Some((version, rest)) if (VERSION..=newest).contains(version) => R::decode(rest).map_err(|e| e.to_string()),
        Some((version, _)) => Err(format!("record version {version}, this binary reads {newest}")),
        None => Err("empty record".to_owned()),
    }
}

/// The record of a table, which can be decoded again: no start would succeed otherwise.
pub fn checked_table(schema: &TableSchema, tablet_set: TableId) -> Result<Bytes, String> {
    let record = encode_table(schema, tablet_set);
    decode_table(&record)?;
    Ok(record)
}

/// Encodes a table: its schema, and the number that the records of its tablets are under.
pub fn encode_table(schema: &TableSchema, tablet_set: TableId) -> Bytes {
    let families = schema.families.iter().map(|(id, f)| FamilyRecord {
        id: id.0,
        name: f.name.clone(),
        gc_rule: f.gc_rule.as_ref().map(gc_record),
        aggregate: match f.value_type {
            ValueType::Bytes => 0,
            ValueType::Aggregate(kind) => kind as u32,
        },
        group: f.group.0,
        front_end_data: f.front_end_data.clone(),
        delete_rule: f.deletes.rule.map_or(0, rule_number),
        keep_deleted: match f.deletes.keep {
            KeepDeleted::No => 0,
            KeepDeleted::Yes => 1,
            KeepDeleted::For(_) => 2,
        },
        keep_deleted_micros: match f.deletes.keep {
            KeepDeleted::For(micros) => micros,
            KeepDeleted::No | KeepDeleted::Yes => 0,
        },
    });
    let is_plain = |group: &LocalityGroup| {
        let plain = LocalityGroup::new(group.id, "", group.options.compression);
        group.options == plain.options && group.left.is_empty()
    };
    let version = if schema.read_only || schema.families.values().any(|f| f.deletes != Deletes::default()) {
        VERSION_DELETES
    } else if tablet_set != schema.id {
        VERSION_TABLET_SET
    } else if schema.groups.iter().all(is_plain) {
        VERSION
    } else {
        VERSION_GROUPS
    };
    let record = TableRecord {
        id: schema.id.0,
        namespace: schema.name.namespace.clone(),
        table: schema.name.table.clone(),
        version: schema.version,
        time_unit: match schema.time_unit {
            TimeUnit::Micros => 1,
            TimeUnit::Millis => 2,
        },
        granularity: schema.granularity,
        delete_rule: rule_number(schema.delete_rule),
        durability: match schema.durability {
            None => 0,
            Some(Durability::None) => 1,
            Some(Durability::Flush) => 2,
            Some(Durability::Sync) => 3,
        },
        deletion_protection: schema.deletion_protection,
        families: families.collect(),
        next_family: schema.next_family.0,
        groups: schema.groups.iter().map(group_record).collect(),
        tablet_bytes_max: schema.tablet_bytes_max,
        no_row_cache: !schema.row_cache,
        disabled: !schema.enabled,
        read_only: schema.read_only,
        restoring: schema.restoring.clone().unwrap_or_default(),
        automated_backups: schema.automated_backups.map(|automated| AutomatedRecord {
            retention_micros: automated.retention_micros,
            frequency_micros: automated.frequency_micros,
        }),
        views: schema.views.iter().map(view::encode_view).collect(),
        tablet_set: if tablet_set == schema.id { 0 } else { tablet_set.0 },
        front_end_data: schema.front_end_data.clone(),
    };
    encode_as(version, &record)
}

fn group_record(group: &LocalityGroup) -> GroupRecord {
    let options = &group.options;
    GroupRecord {
        id: group.id.0,
        name: group.name.clone(),
        compression: options.compression as u32,
        zstd_level: match options.zstd_level {
            1 => 0,
            level => u32::from(level),
        },
        dictionary_bytes: options.dictionary_bytes,
        block_bytes: options.block_bytes,
        filter_bits_per_row: options.filter_bits_per_row,
        in_memory: options.in_memory,
        file_bytes: options.file_bytes,
        left: group.left.iter().map(|family| family.0).collect(),
    }
}

fn decode_group(record: GroupRecord) -> Result<LocalityGroup, String> {
    let compression = u8::try_from(record.compression).ok().and_then(Compression::from_byte);
    let level = u8::try_from(record.zstd_level.max(1));
    let options = GroupOptions {
        compression: compression.ok_or_else(|| format!("compression {}", record.compression))?,
        zstd_level: level.map_err(|_| format!("level {} of zstd", record.zstd_level))?,
        dictionary_bytes: record.dictionary_bytes,
        block_bytes: record.block_bytes,
        filter_bits_per_row: record.filter_bits_per_row,
        in_memory: record.in_memory,
        file_bytes: record.file_bytes,
    };
    options.check().map_err(|why| format!("group {}: {why}", record.name))?;
    Ok(LocalityGroup {
        id: GroupId(record.id),
        name: record.name,
        options,
        left: record.left.into_iter().map(FamilyId).collect(),
    })
}

/// Decodes a table: its schema, and the number that the records of its tablets are under. The error says why not.
pub fn decode_table(bytes: &[u8]) -> Result<(TableSchema, TableId), String> {
    let record: TableRecord = decode_up_to(VERSION_DELETES, bytes)?;
    let tablet_set = match record.tablet_set {
        0 => TableId(record.id),
        other => TableId(other),
    };
    schema_of(record).map(|schema| (schema, tablet_set))
}

fn schema_of(record: TableRecord) -> Result<TableSchema, String> {
    let mut families = BTreeMap::new();
    for family in record.families {
        let (id, family) = decode_family(family)?;
        if families.insert(id, family).is_some() {
            return Err(format!("family {} occurs twice", id.0));
        }
    }
    let groups: Vec<LocalityGroup> = record.groups.into_iter().map(decode_group).collect::<Result<_, _>>()?;
    if groups.is_empty() || record.granularity < 1 {
        return Err("no locality group, or granularity below 1".to_owned());
    }
    check_references(&families, &groups, record.next_family)?;
    Ok(TableSchema {
        id: TableId(record.id),
        name: TableName::new(record.namespace, record.table),
        version: record.version,
        time_unit: match record.time_unit {
            1 => TimeUnit::Micros,
            2 => TimeUnit::Millis,
            other => return Err(format!("time unit {other}")),
        },
        granularity: record.granularity,
        delete_rule: decode_rule(record.delete_rule)?,
        durability: match record.durability {
            0 => None,
            1 => Some(Durability::None),
            2 => Some(Durability::Flush),
            3 => Some(Durability::Sync),
            other => return Err(format!("durability {other}")),
        },
        deletion_protection: record.deletion_protection,
        enabled: !record.disabled,
        read_only: record.read_only,
        restoring: Some(record.restoring).filter(|mark| !mark.is_empty()),
        families,
        next_family: FamilyId(record.next_family),
        groups,
        tablet_bytes_max: record.tablet_bytes_max,
        row_cache: !record.no_row_cache,
        automated_backups: record.automated_backups.map(|automated| AutomatedBackups {
            retention_micros: automated.retention_micros,
            frequency_micros: automated.frequency_micros,
        }),
        views: record.views.into_iter().map(view::decode_view).collect(),
        front_end_data: record.front_end_data,
    })
}

/// Checks the targets of ids. Writes to a family whose group is missing would go nowhere. An id that is given again
/// would bring back cells of its former family from files.
fn check_references(
    families: &BTreeMap<FamilyId, Family>,
    groups: &[LocalityGroup],
    next_family: u32,
) -> Result<(), String> {
    let ids: BTreeSet<GroupId> = groups.iter().map(|g| g.id).collect();
    if ids.len() < groups.len() {
        return Err("a locality group occurs twice".to_owned());
    }
    for (id, family) in families {
        if !ids.contains(&family.group) {
            let (family, group) = (id.0, family.group.0);
            return Err(format!("family {family} is in group {group}, which is missing"));
        }
    }
    let mut left = BTreeSet::new();
    for (group, id) in groups
        .iter()
        .flat_map(|group| group.left.iter().map(move |id| (group.id, *id)))
    {
        if families.get(&id).is_none_or(|family| family.group == group) || !left.insert(id) {
            return Err(format!(
                "group {group} was left by family {id}, which is missing, is in it, or has left another"
            ));
        }
    }
    match families.keys().next_back() {
        Some(last) if last.0 >= next_family => Err(format!(
            "the next family is {next_family}, yet there is family {}",
            last.0
        )),
        _ => Ok(()),
    }
}

fn decode_family(record: FamilyRecord) -> Result<(FamilyId, Family), String> {
    let value_type = match record.aggregate {
        0 => ValueType::Bytes,
        1 => ValueType::Aggregate(AggregateKind::Sum),
        2 => ValueType::Aggregate(AggregateKind::Min),
        3 => ValueType::Aggregate(AggregateKind::Max),
        other => return Err(format!("aggregate {other}")),
    };
    if record.id == 0 {
        return Err("family 0 is reserved".to_owned());
    }
    let deletes = Deletes {
        rule: match record.delete_rule {
            0 => None,
            rule => Some(decode_rule(rule)?),
        },
        keep: match (record.keep_deleted, record.keep_deleted_micros) {
            (0, _) => KeepDeleted::No,
            (1, _) => KeepDeleted::Yes,
            (2, micros) if micros > 0 => KeepDeleted::For(micros),
            (kept, micros) => return Err(format!("deleted cells kept as in {kept}, {micros} µs")),
        },
    };
    let family = Family {
        name: record.name,
        gc_rule: record.gc_rule.map(|r| decode_gc(r, GC_RULE_DEPTH_MAX)).transpose()?,
        value_type,
        deletes,
        group: GroupId(record.group),
        front_end_data: record.front_end_data,
    };
    Ok((FamilyId(record.id), family))
}

fn rule_number(rule: DeleteRule) -> u32 {
    match rule {
        DeleteRule::BySequence => 1,
        DeleteRule::ByTimestamp => 2,
    }
}

fn decode_rule(number: u32) -> Result<DeleteRule, String> {
    match number {
        1 => Ok(DeleteRule::BySequence),
        2 => Ok(DeleteRule::ByTimestamp),
        other => Err(format!("delete rule {other}")),
    }
}

fn gc_record(rule: &GcRule) -> GcRecord {
    let list = |kind, rules: &[GcRule]| GcRecord {
        kind,
        members: rules.iter().map(gc_record).collect(),
        ..GcRecord::default()
    };
    match rule {
        GcRule::MaxVersions(versions) => GcRecord {
            kind: 1,
            versions: *versions,
            ..GcRecord::default()
        },
        GcRule::MaxAgeMicros(age) => GcRecord {
            kind: 2,
            age_micros: *age,
            ..GcRecord::default()
        },
        GcRule::Union(rules) => list(3, rules),
        GcRule::Intersection(rules) => list(4, rules),
    }
}

fn decode_gc(record: GcRecord, depth: usize) -> Result<GcRule, String> {
    if depth == 0 {
        return Err(format!(
            "a garbage-collection rule nested deeper than {GC_RULE_DEPTH_MAX}"
        ));
    }
    let members = |members: Vec<GcRecord>| {
        members
            .into_iter()
            .map(|m| decode_gc(m, depth - 1))
            .collect::<Result<Vec<_>, _>>()
    };
    Ok(match record.kind {
        1 => GcRule::MaxVersions(record.versions),
        2 => GcRule::MaxAgeMicros(record.age_micros),
        3 => GcRule::Union(members(record.members)?),
        4 => GcRule::Intersection(members(record.members)?),
        other => return Err(format!("garbage-collection rule {other}")),
    })
}

/// Prefix of namespace records.
pub const NAMESPACES: &str = "catalog/namespace/";
/// Prefix of snapshot records.
pub const SNAPSHOTS: &str = "catalog/snapshot/";
/// Prefix of table records.
pub const TABLES: &str = "catalog/table/";
/// Prefix of tablet records.
pub const TABLETS: &str = "catalog/tablet/";

/// Key of a namespace record.
pub fn namespace_key(namespace: &str) -> String {
    format!("{NAMESPACES}{namespace}")
}

/// Key of a snapshot record.
pub fn snapshot_key(namespace: &str, name: &str) -> String {
    format!("{SNAPSHOTS}{namespace}/{name}")
}

/// Key of a table record.
pub fn table_key(name: &TableName) -> String {
    format!("{TABLES}{}/{}", name.namespace, name.table)
}

/// Key of the record of a tablet of the set that the table names.
pub fn tablet_key(table: TableId, tablet: TabletId) -> String {
    format!("{TABLETS}{:016x}/{:016x}", table.0, tablet.0)
}

/// The table and tablet of a record's key. Only a result of [`tablet_key`] is valid: no capital digits, no signs.
pub fn parse_tablet_key(key: &str) -> Option<(TableId, TabletId)> {
    let (table, tablet) = key.strip_prefix(TABLETS)?.split_once('/')?;
    let table = TableId(u64::from_str_radix(table, 16).ok()?);
    let tablet = TabletId(u64::from_str_radix(tablet, 16).ok()?);
    (tablet_key(table, tablet) == key).then_some((table, tablet))
}

/// A table whose tablets have their records under its own number.
#[cfg(test)]
fn encode_schema(schema: &TableSchema) -> Bytes {
    encode_table(schema, schema.id)
}

#[cfg(test)]
fn decode_schema(bytes: &[u8]) -> Result<TableSchema, String> {
    let (schema, tablet_set) = decode_table(bytes)?;
    assert_eq!(tablet_set, schema.id, "its tablets were never replaced together");
    Ok(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_refer_to_what_is_there() {
        let family = |id, group| FamilyRecord {
            id,
            name: format!("f{id}"),
            group,
            ..FamilyRecord::default()
        };
        let group = |id| GroupRecord {
            id,
            name: format!("g{id}"),
            ..GroupRecord::default()
        };
        let left = |id, left: &[u32]| GroupRecord {
            left: left.to_vec(),
            ..group(id)
        };
        let decoded = |families: Vec<FamilyRecord>, groups: Vec<GroupRecord>| {
            let record = TableRecord {
                time_unit: 1,
                granularity: 1,
                delete_rule: 1,
                next_family: 3,
                families,
                groups,
                ..TableRecord::default()
            };
            decode_schema(&encode(&record)).map(|schema| schema.families.len())
        };
        let groups = || vec![group(0), group(7)];
        assert_eq!(decoded(vec![family(1, 0), family(2, 7)], groups()), Ok(2));
        assert_eq!(decoded(vec![], groups()), Ok(0));
        assert_eq!(decoded(vec![family(1, 0)], vec![group(0), left(7, &[1])]), Ok(1));
        for (families, groups, why) in [
            (vec![family(1, 1)], groups(), "group 1, which is missing"),
            (vec![family(3, 0)], groups(), "next family is 3"),
            (vec![family(1, 0); 2], groups(), "family 1 occurs twice"),
            (vec![], vec![group(0); 2], "group occurs twice"),
            (vec![], vec![left(0, &[1])], "left by family 1"),
            (vec![family(1, 0)], vec![left(0, &[1])], "left by family 1"),
            (
                vec![family(1, 0)],
                vec![group(0), left(7, &[1]), left(8, &[1])],
                "left by family 1",
            ),
        ] {
            let refused = decoded(families, groups).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_table_of_plain_groups_is_one_that_older_programs_read() {
        let mut schema = decode_schema(&encode(&TableRecord {
            time_unit: 1,
            granularity: 1,
            delete_rule: 1,
            next_family: 3,
            families: vec![FamilyRecord {
                id: 1,
                group: 7,
                ..FamilyRecord::default()
            }],
            groups: [0, 7]
                .map(|id| GroupRecord {
                    id,
                    ..GroupRecord::default()
                })
                .to_vec(),
            ..TableRecord::default()
        }))
        .expect("a schema");
        assert_eq!(encode_schema(&schema).first(), Some(&VERSION));
        assert_eq!(decode_schema(&encode_schema(&schema)), Ok(schema.clone()));
        let options = &mut schema.groups[1].options;
        options.compression = Compression::Zstd;
        assert_eq!(encode_schema(&schema).first(), Some(&VERSION));
        schema.groups[1].options = GroupOptions {
            compression: Compression::Zstd,
            zstd_level: 9,
            dictionary_bytes: 32 << 10,
            block_bytes: Some(32 << 10),
            filter_bits_per_row: Some(0),
            in_memory: true,
            file_bytes: Some(8 << 20),
        };
        schema.groups[0].left.insert(FamilyId(1));
        assert_eq!(encode_schema(&schema).first(), Some(&VERSION_GROUPS));
        assert_eq!(decode_schema(&encode_schema(&schema)), Ok(schema));
    }

    #[test]
    fn options_that_cannot_be_had_are_refused() {
        let bad = [
            GroupRecord {
                zstd_level: 400,
                ..GroupRecord::default()
            },
            GroupRecord {
                dictionary_bytes: 4096,
                ..GroupRecord::default()
            },
            GroupRecord {
                block_bytes: Some(1),
                ..GroupRecord::default()
            },
            GroupRecord {
                compression: 9,
                ..GroupRecord::default()
            },
        ];
        for record in bad {
            assert!(decode_group(record.clone()).is_err(), "{record:?}");
        }
    }

    #[test]
    fn tablet_keys_have_one_spelling() {
        let key = tablet_key(TableId(0xab), TabletId(u64::MAX));
        assert_eq!(parse_tablet_key(&key), Some((TableId(0xab), TabletId(u64::MAX))));
        for other in [
            key.replace("ab", "AB"),
            key.replace("00ab", "+0ab"),
            key.replace("00ab", "0ab"),
            key.replace("00ab", "000ab"),
            format!("{key}/"),
        ] {
            assert_eq!(parse_tablet_key(&other), None, "{other}");
        }
    }
}
