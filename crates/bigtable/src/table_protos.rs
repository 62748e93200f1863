//! Translates tables between the admin API and the service interface.

use crate::automated::{self, automated, automated_proto};
use crate::backup_data::TableData;
use crate::families::{family_proto, gc_rule, new_family, value_type};
use crate::limits::Element;
use crate::names::{InstanceName, check_resource_id, check_table_id};
use crate::pb::admin;
use crate::pb::admin::modify_column_families_request::{Modification, modification::Mod};
use crate::pb::admin::restore_info::SourceInfo;
use crate::status::invalid;
use crate::times::TableTime;
use std::collections::HashMap;
use stele_client::{FamilyChange, NewFamily, NewTable, TableUpdate};
use stele_types::limits::{FAMILIES_MAX, INITIAL_SPLITS_MAX};
use stele_types::{
    AutomatedBackups, Compression, DeleteRule, Family, GcRule, TableName, TableSchema, TimeUnit, ValueType,
};
use tonic::Status;

/// `Table.TimestampGranularity`. The published Rust definition lacks the last one.
const GRANULARITY_UNSPECIFIED: i32 = 0;
const GRANULARITY_MILLIS: i32 = 1;
const GRANULARITY_MICROS: i32 = 2;

/// Fields of a table that exist in the API and are not implemented: setting one is refused, because accepting it would
/// promise streams or storage that never come.
const UNIMPLEMENTED_FIELDS: [&str; 4] = [
    "change_stream_config",
    "row_key_schema",
    "tiered_storage_config",
    "column_families",
];

/// A table to be created.
pub(crate) fn new_table(instance: &InstanceName, request: admin::CreateTableRequest) -> Result<NewTable, Status> {
    check_resource_id("instance", &instance.instance)?;
    instance.check_not_reserved()?;
    check_table_id(&request.table_id)?;
    let table = request.table.unwrap_or_default();
    refuse_unimplemented(&table)?;
    let automated_backups = automated(&table)?;
    let granularity = match table.granularity {
        GRANULARITY_UNSPECIFIED | GRANULARITY_MILLIS => 1_000,
        GRANULARITY_MICROS => 1,
        other => return Err(invalid(format!("unknown timestamp granularity {other}"))),
    };
    let splits = request.initial_splits.len();
    if splits > INITIAL_SPLITS_MAX {
        return Err(invalid(format!(
            "{splits} initial splits, the limit is {INITIAL_SPLITS_MAX}"
        )));
    }
    Ok(NewTable {
        name: TableName::new(instance.instance.clone(), request.table_id),
        time_unit: TimeUnit::Micros,
        granularity,
        delete_rule: DeleteRule::BySequence,
        durability: None,
        deletion_protection: table.deletion_protection,
        families: new_families(table.column_families)?,
        initial_splits: request.initial_splits.into_iter().map(|split| split.key).collect(),
        compression: Compression::Lz4,
        automated_backups,
        front_end_data: Vec::new(),
    })
}

/// Sorted by name, because the request's map has no order and ids follow the order of creation.
fn new_families(families: HashMap<String, admin::ColumnFamily>) -> Result<Vec<NewFamily>, Status> {
    if families.len() > FAMILIES_MAX {
        return Err(invalid(format!(
            "{} column families, the limit is {FAMILIES_MAX}",
            families.len()
        )));
    }
    let mut families: Vec<_> = families.into_iter().collect();
    families.sort_by(|a, b| a.0.cmp(&b.0));
    families
        .into_iter()
        .map(|(name, family)| new_family(name, family))
        .collect()
}

fn refuse_unimplemented(table: &admin::Table) -> Result<(), Status> {
    let set = [
        ("change_stream_config", table.change_stream_config.is_some()),
        ("row_key_schema", table.row_key_schema.is_some()),
        ("tiered_storage_config", table.tiered_storage_config.is_some()),
    ];
    match set.iter().find(|(_, set)| *set) {
        Some((field, _)) => Err(unimplemented_field(field)),
        None => Ok(()),
    }
}

fn unimplemented_field(field: &str) -> Status {
    Status::unimplemented(format!("Table.{field} is not implemented"))
}

/// Whether a change needs the present policy for automated backups: it changes fields of that.
pub(crate) fn changes_policy(paths: &[String]) -> bool {
    let field = |path: &String| path.split_once('.').is_some_and(|(field, _)| field == automated::FIELD);
    paths.iter().any(field)
}

/// The change of a table that a request describes. A request without a mask is refused. `policy` is the present one for automated
/// backups.
pub(crate) fn table_update(
    table: &admin::Table,
    paths: &[String],
    policy: Option<AutomatedBackups>,
) -> Result<TableUpdate, Status> {
    if paths.is_empty() {
        return Err(invalid("UpdateTableRequest.UpdateMask required for table update"));
    }
    let mut update = TableUpdate::default();
    let mut of_policy = Vec::new();
    for path in paths {
        let field = path.split('.').next().unwrap_or(path);
        match field {
            "deletion_protection" => update.deletion_protection = Some(table.deletion_protection),
            automated::FIELD => of_policy.push(path.split_once('.').map_or("", |(_, field)| field)),
            _ if UNIMPLEMENTED_FIELDS.contains(&field) => return Err(unimplemented_field(field)),
            _ => {
                return Err(invalid(format!("incorrect path in UpdateMask; got: {path}")));
            }
        }
    }
    if !of_policy.is_empty() {
        update.automated_backups = Some(automated::changed(table, &of_policy, policy)?);
    }
    Ok(update)
}

/// One step of a change of families.
pub(crate) fn family_change(schema: &TableSchema, modification: Modification) -> Result<FamilyChange, Status> {
    let paths = modification.update_mask.unwrap_or_default().paths;
    let name = modification.id;
    match modification.r#mod {
        Some(Mod::Create(family)) => Ok(FamilyChange::Create(new_family(name, family)?)),
        Some(Mod::Update(family)) => family_update(schema, name, family, &paths),
        Some(Mod::Drop(true)) => Ok(FamilyChange::Drop { name }),
        Some(Mod::Drop(false)) => Err(invalid(format!("drop must be true if set, for column family {name:?}"))),
        None => Err(invalid(format!(
            "The modification of column family {name:?} must have one of create, update and drop"
        ))),
    }
}

/// Without a mask only the rule changes.
fn family_update(
    schema: &TableSchema,
    name: String,
    family: admin::ColumnFamily,
    paths: &[String],
) -> Result<FamilyChange, Status> {
    let named = |field: &str| paths.iter().any(|path| path.split('.').next() == Some(field));
    if let Some(path) = paths
        .iter()
        .find(|p| !matches!(p.split('.').next(), Some("gc_rule" | "value_type")))
    {
        return Err(invalid(format!("incorrect path in UpdateMask; got: {path}")));
    }
    let gc_rule = if paths.is_empty() || named("gc_rule") {
        Some(gc_rule(family.gc_rule)?)
    } else {
        None
    };
    let (value_type, front_end_data) = if named("value_type") {
        let current = schema.family_named(&name).map(|(_, family)| family.value_type);
        if matches!(current, Some(ValueType::Aggregate(_))) {
            return Err(invalid(
                "Immutable fields 'value_type.aggregate_type' cannot be updated",
            ));
        }
        let (new_type, data) = value_type(family.value_type)?;
        if new_type != ValueType::Bytes {
            return Err(invalid(
                "The type of an existing column family cannot become an aggregate: create another family",
            ));
        }
        (Some(new_type), Some(data))
    } else {
        (None, None)
    };
    Ok(FamilyChange::Update {
        deletes: None,
        name,
        gc_rule,
        value_type,
        front_end_data,
    })
}

/// Memory of a table in a response: its families, and the message made of them.
pub(crate) fn shown_bytes(schema: &TableSchema) -> usize {
    let family = |family: &Family| {
        let rules = family.gc_rule.as_ref().map_or(0, rules_in);
        Element::Family.cost()
            + 2 * family.name.len()
            + 4 * family.front_end_data.len()
            + rules * Element::GcRule.cost()
    };
    schema.families.values().map(family).sum()
}

/// Rules within a rule. Recursion is as deep as the rule, which was bounded when it was created.
fn rules_in(rule: &GcRule) -> usize {
    match rule {
        GcRule::Union(rules) | GcRule::Intersection(rules) => rules.len() + rules.iter().map(rules_in).sum::<usize>(),
        GcRule::MaxVersions(_) | GcRule::MaxAgeMicros(_) => 0,
    }
}

/// A table as the API shows it, with its schema.
pub(crate) fn table_proto(instance: &InstanceName, schema: &TableSchema) -> admin::Table {
    let granularity = match TableTime::of(schema).granularity_micros() {
        micros if micros % 1_000 == 0 => GRANULARITY_MILLIS,
        _ => GRANULARITY_MICROS,
    };
    admin::Table {
        name: instance.table(&schema.name.table),
        column_families: schema
            .families
            .values()
            .map(|f| (f.name.clone(), family_proto(f)))
            .collect(),
        granularity,
        deletion_protection: schema.deletion_protection,
        automated_backup_config: schema.automated_backups.map(automated_proto),
        restore_info: TableData::of(&schema.front_end_data)
            .restored
            .map(|from| admin::RestoreInfo {
                source_type: admin::RestoreSourceType::Backup as i32,
                source_info: Some(SourceInfo::BackupInfo(from.backup_info(&instance.project))),
            }),
        ..admin::Table::default()
    }
}
