//! Checks and changes of schemas. Pure: a change takes a schema and gives the next one, or says why not.

mod groups;
mod views;

pub use groups::change_groups;

use std::collections::BTreeMap;
use stele_client::{FamilyChange, NewFamily, NewTable, ServiceError, ServiceResult, TableUpdate};
use stele_types::gc::GC_RULE_DEPTH_MAX;
use stele_types::{
    AutomatedBackups, Deletes, ErrorKind, Family, FamilyId, GcRule, GroupId, KeepDeleted, LocalityGroup, TableId,
    TableName, TableSchema, ValueType, limits,
};

/// The schema of a new table.
pub fn new_schema(id: TableId, table: NewTable) -> ServiceResult<TableSchema> {
    check_table_name(&table.name)?;
    if table.granularity < 1 {
        return Err(ServiceError::invalid("the granularity must be at least 1"));
    }
    let mut schema = TableSchema {
        time_unit: table.time_unit,
        granularity: table.granularity,
        delete_rule: table.delete_rule,
        durability: table.durability,
        deletion_protection: table.deletion_protection,
        groups: vec![LocalityGroup::new(GroupId(0), "default", table.compression)],
        automated_backups: table.automated_backups,
        front_end_data: table.front_end_data,
        ..TableSchema::new(id, table.name)
    };
    check_automated(schema.automated_backups)?;
    let mut names = Names::new();
    for family in table.families {
        add_family(&mut schema, &mut names, family)?;
    }
    Ok(schema)
}

/// The schema that a client's change begins with. A restored table that a client changes is the client's from then on.
fn begin_change(schema: &TableSchema) -> ServiceResult<TableSchema> {
    check_finished(schema)?;
    Ok(TableSchema {
        version: schema.version + 1,
        restoring: None,
        ..schema.clone()
    })
}

/// The schema after changes of families, or the error of the first that cannot be made.
pub fn change_families(schema: &TableSchema, changes: Vec<FamilyChange>) -> ServiceResult<TableSchema> {
    let mut next = begin_change(schema)?;
    let mut names: Names = next.families.iter().map(|(id, f)| (f.name.clone(), *id)).collect();
    for change in changes {
        match change {
            FamilyChange::Create(family) => add_family(&mut next, &mut names, family)?,
            FamilyChange::Update {
                name,
                gc_rule,
                value_type,
                deletes,
                front_end_data,
            } => {
                let id = names.get(&name).ok_or_else(|| no_family(&name))?;
                let family = next.families.get_mut(id).ok_or_else(|| no_family(&name))?;
                if let Some(rule) = gc_rule {
                    check_rule(rule.as_ref())?;
                    family.gc_rule = rule;
                }
                if let Some(value_type) = value_type {
                    check_type_change(family.value_type, value_type)?;
                    family.value_type = value_type;
                }
                if let Some(deletes) = deletes {
                    family.deletes = deletes;
                }
                check_deletes(&name, family.value_type, family.deletes)?;
                if let Some(data) = front_end_data {
                    family.front_end_data = data;
                }
            }
            FamilyChange::Drop { name } => {
                if next.deletion_protection {
                    let message = format!("table {} is protected: its families cannot be dropped", next.name);
                    return Err(ServiceError::new(ErrorKind::FailedPrecondition, message));
                }
                let id = names.remove(&name).ok_or_else(|| no_family(&name))?;
                next.families.remove(&id);
                for group in &mut next.groups {
                    group.left.remove(&id);
                }
            }
        }
    }
    Ok(next)
}

/// The schema after a change of the table's own settings, or why it cannot be made.
pub fn change_table(schema: &TableSchema, update: TableUpdate) -> ServiceResult<TableSchema> {
    let read = (schema.id, schema.version);
    if let Some((id, version)) = update.former.filter(|former| *former != read) {
        let message = format!(
            "table {} has changed: it is table {} with version {} of its schema, not {id} with {version}",
            schema.name, schema.id, schema.version
        );
        return Err(ServiceError::new(ErrorKind::Aborted, message));
    }
    let mut next = begin_change(schema)?;
    if let Some(protected) = update.deletion_protection {
        next.deletion_protection = protected;
    }
    if let Some(enabled) = update.enabled {
        next.enabled = enabled;
    }
    if let Some(read_only) = update.read_only {
        next.read_only = read_only;
    }
    if let Some(durability) = update.durability {
        next.durability = durability;
    }
    if let Some(row_cache) = update.row_cache {
        next.row_cache = row_cache;
    }
    if let Some(bytes) = update.tablet_bytes_max {
        let (least, most) = limits::TABLET_BYTES.into_inner();
        if bytes != 0 && !limits::TABLET_BYTES.contains(&bytes) {
            let message =
                format!("a tablet is split at {least} to {most} bytes, or at 0 for the server's size; not at {bytes}");
            return Err(ServiceError::invalid(message));
        }
        next.tablet_bytes_max = bytes;
    }
    if let Some(automated) = update.automated_backups {
        check_automated(automated)?;
        next.automated_backups = automated;
    }
    if let Some((name, change)) = update.view {
        views::change(&mut next, name, change)?;
    }
    if let Some(data) = update.front_end_data {
        next.front_end_data = data;
    }
    Ok(next)
}

fn check_automated(automated: Option<AutomatedBackups>) -> ServiceResult<()> {
    match automated.and_then(|automated| automated.fault()) {
        Some(fault) => Err(ServiceError::invalid(fault)),
        None => Ok(()),
    }
}

/// Families by name, so that thousands of changes in one request do not look through thousands of families each.
type Names = BTreeMap<String, FamilyId>;

fn add_family(schema: &mut TableSchema, names: &mut Names, family: NewFamily) -> ServiceResult<()> {
    check_family_name(&family.name)?;
    check_rule(family.gc_rule.as_ref())?;
    check_deletes(&family.name, family.value_type, family.deletes)?;
    if names.contains_key(&family.name) {
        let message = format!("family {} exists already", family.name);
        return Err(ServiceError::new(ErrorKind::AlreadyExists, message));
    }
    if schema.families.len() >= limits::FAMILIES_MAX {
        return Err(ServiceError::invalid(format!(
            "a table has at most {} families",
            limits::FAMILIES_MAX
        )));
    }
    let id = schema.next_family;
    schema.next_family = FamilyId(id.0 + 1);
    names.insert(family.name.clone(), id);
    let family = Family {
        name: family.name,
        gc_rule: family.gc_rule,
        value_type: family.value_type,
        deletes: family.deletes,
        group: GroupId(0),
        front_end_data: family.front_end_data,
    };
    schema.families.insert(id, family);
    Ok(())
}

fn no_family(name: &str) -> ServiceError {
    ServiceError::not_found(format!("family {name} does not exist"))
}

/// Deleted operands would be folded again, so only plain values are kept.
fn check_deletes(name: &str, value_type: ValueType, deletes: Deletes) -> ServiceResult<()> {
    match deletes.keep {
        KeepDeleted::No => Ok(()),
        _ if value_type != ValueType::Bytes => Err(ServiceError::invalid(format!(
            "family {name} is of aggregates, whose deleted cells cannot be kept"
        ))),
        KeepDeleted::For(..=0) => Err(ServiceError::invalid(format!(
            "deleted cells of family {name} are kept for a time that is not positive"
        ))),
        KeepDeleted::Yes | KeepDeleted::For(_) => Ok(()),
    }
}

/// An aggregate cannot be read as any other type.
fn check_type_change(from: ValueType, to: ValueType) -> ServiceResult<()> {
    if from == to {
        return Ok(());
    }
    Err(ServiceError::invalid(
        "Immutable fields 'value_type.aggregate_type' cannot be updated",
    ))
}

fn check_rule(rule: Option<&GcRule>) -> ServiceResult<()> {
    let Some(rule) = rule else { return Ok(()) };
    if rule.depth() > GC_RULE_DEPTH_MAX {
        let message = format!("a garbage-collection rule nests at most {GC_RULE_DEPTH_MAX} deep");
        return Err(ServiceError::invalid(message));
    }
    let bad = |rule: &GcRule| match rule {
        GcRule::MaxVersions(0) => Some("a rule keeps at least one version"),
        GcRule::MaxAgeMicros(age) if *age < 1 => Some("the age of a rule is positive"),
        _ => None,
    };
    match find_rule(rule, &bad) {
        Some(message) => Err(ServiceError::invalid(message)),
        None => Ok(()),
    }
}

fn find_rule<T>(rule: &GcRule, look: &impl Fn(&GcRule) -> Option<T>) -> Option<T> {
    look(rule).or_else(|| match rule {
        GcRule::Union(rules) | GcRule::Intersection(rules) => rules.iter().find_map(|r| find_rule(r, look)),
        _ => None,
    })
}

/// Checks the name of a namespace.
pub fn check_namespace(name: &str) -> ServiceResult<()> {
    check_name("namespace", name, limits::TABLE_NAME_BYTES_MAX)
}

/// Refuses to delete the rows of a protected table.
pub fn check_unprotected(schema: &TableSchema) -> ServiceResult<()> {
    if schema.deletion_protection {
        let message = format!("table {} is protected against deletion", schema.name);
        return Err(ServiceError::new(ErrorKind::FailedPrecondition, message));
    }
    Ok(())
}

/// Refuses to change or copy a table that a restore has not completed: it lacks rows, and the restore may make it again.
pub fn check_finished(schema: &TableSchema) -> ServiceResult<()> {
    match schema.is_unfinished() {
        true => {
            let message = format!(
                "table {} is being restored: wait for the restore, give its order again, or delete the table",
                schema.name
            );
            Err(ServiceError::new(ErrorKind::FailedPrecondition, message))
        }
        false => Ok(()),
    }
}

/// Refuses to delete a table that is protected, or one of whose views is.
pub fn check_deletable(schema: &TableSchema) -> ServiceResult<()> {
    check_unprotected(schema)?;
    match schema.views.iter().find(|(_, view)| view.is_protected) {
        Some((name, _)) => Err(ServiceError::new(
            ErrorKind::FailedPrecondition,
            format!("view {name} of table {} is protected against deletion", schema.name),
        )),
        None => Ok(()),
    }
}

/// Refuses a name that no table can have.
pub fn check_table_name(name: &TableName) -> ServiceResult<()> {
    check_name("table", &name.table, limits::TABLE_NAME_BYTES_MAX)?;
    check_namespace(&name.namespace)
}

/// Refuses a name that no snapshot can have: as for tables, so that front ends and catalog keys can have it.
pub fn check_snapshot_name(namespace: &str, name: &str) -> ServiceResult<()> {
    check_name("snapshot", name, limits::TABLE_NAME_BYTES_MAX)?;
    check_namespace(namespace)
}

/// Families are known by their numbers below the schema, so any text does that front ends can print and split at `:`. Each
/// front end has a narrower rule for those made through it.
fn check_family_name(name: &str) -> ServiceResult<()> {
    let bytes_max = limits::FAMILY_NAME_BYTES_MAX;
    let valid = |c: char| !c.is_control() && !matches!(c, ':' | '/' | '\\');
    if name.is_empty() || name.len() > bytes_max || !name.chars().all(valid) {
        return Err(ServiceError::invalid(format!(
            "{name:?} is not a family name: 1 to {bytes_max} bytes without control characters and without : / \\"
        )));
    }
    Ok(())
}

/// Names are parts of catalog keys, file names and metric labels.
fn check_name(what: &str, name: &str, bytes_max: usize) -> ServiceResult<()> {
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if name.is_empty() || name.len() > bytes_max || !name.bytes().all(valid) {
        return Err(ServiceError::invalid(format!(
            "{name:?} is not a {what} name: 1 to {bytes_max} of the characters A-Z a-z 0-9 _ - ."
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_changed_by_one_that_has_read_it() {
        let schema = TableSchema::new(TableId(1), TableName::new("n", "t"));
        let update = |former| TableUpdate {
            former,
            enabled: Some(false),
            ..TableUpdate::default()
        };
        let read = (schema.id, schema.version);
        let next = change_table(&schema, update(Some(read))).unwrap();
        // Another table of the name may have a schema of the same version.
        let made_again = TableSchema::new(TableId(2), schema.name.clone());
        assert_eq!(made_again.version, schema.version);
        for other in [&next, &made_again] {
            let refused = change_table(other, update(Some(read))).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Aborted);
        }
        assert_eq!(change_table(&next, update(None)).unwrap().version, next.version + 1);
    }

    #[test]
    fn families_have_names_that_can_be_printed() {
        let longest = "f".repeat(127);
        for name in ["f", "a b", "größe", "info$1", ".f", &longest] {
            assert!(check_family_name(name).is_ok(), "{name:?}");
        }
        let too_long = "f".repeat(128);
        for name in ["", "a:b", "a/b", "a\\b", "a\nb", "a\u{85}b", &too_long] {
            assert!(check_family_name(name).is_err(), "{name:?}");
        }
    }
}
