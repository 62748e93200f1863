//! Changes of locality groups, and of the families in them.

use super::{begin_change, check_name, no_family};
use std::collections::BTreeSet;
use stele_client::{GroupChange, GroupUpdate, ServiceError, ServiceResult};
use stele_types::{ErrorKind, FamilyId, GroupId, GroupOptions, LocalityGroup, TableSchema, limits};

/// The schema after changes of groups, or the error of the first that cannot be made. `unsettled` are the families of
/// which some tablet has misplaced cells. No other family is on record as having left a group any more.
pub fn change_groups(
    schema: &TableSchema,
    changes: Vec<GroupChange>,
    unsettled: &BTreeSet<FamilyId>,
) -> ServiceResult<TableSchema> {
    let mut next = begin_change(schema)?;
    for group in &mut next.groups {
        group.left.retain(|family| unsettled.contains(family));
    }
    for change in changes {
        match change {
            GroupChange::Create { name, options } => create(&mut next, name, &options)?,
            GroupChange::Alter { name, options } => {
                let at = position(&next, &name)?;
                let group = &mut next.groups[at];
                group.options = changed(&name, group.options.clone(), &options)?;
            }
            GroupChange::MoveFamily { family, group } => move_family(&mut next, &family, &group, unsettled)?,
        }
    }
    Ok(next)
}

fn create(schema: &mut TableSchema, name: String, options: &GroupUpdate) -> ServiceResult<()> {
    check_name("locality group", &name, limits::GROUP_NAME_BYTES_MAX)?;
    if schema.group_named(&name).is_some() {
        let message = format!("locality group {name} exists already");
        return Err(ServiceError::new(ErrorKind::AlreadyExists, message));
    }
    if schema.groups.len() >= limits::GROUPS_MAX {
        let message = format!("a table has at most {} locality groups", limits::GROUPS_MAX);
        return Err(ServiceError::invalid(message));
    }
    let last = schema.groups.iter().map(|group| group.id.0).max();
    let options = changed(&name, GroupOptions::default(), options)?;
    schema.groups.push(LocalityGroup {
        options,
        ..LocalityGroup::new(
            GroupId(last.map_or(0, |id| id + 1)),
            name,
            GroupOptions::default().compression,
        )
    });
    Ok(())
}

fn changed(name: &str, mut options: GroupOptions, update: &GroupUpdate) -> ServiceResult<GroupOptions> {
    update.apply(&mut options);
    let checked = options.check();
    checked.map_err(|why| ServiceError::invalid(format!("locality group {name}: {why}")))?;
    Ok(options)
}

fn move_family(schema: &mut TableSchema, name: &str, group: &str, unsettled: &BTreeSet<FamilyId>) -> ServiceResult<()> {
    let to = position(schema, group)?;
    let to = schema.groups[to].id;
    let id = schema
        .family_named(name)
        .map(|(id, _)| id)
        .ok_or_else(|| no_family(name))?;
    let from = schema.group_of(id);
    if from == to {
        return Ok(());
    }
    if unsettled.contains(&id) || schema.groups.iter().any(|group| group.left.contains(&id)) {
        let message = format!(
            "family {name} is still being moved to group {}: try again when compactions have taken it there",
            schema
                .groups
                .iter()
                .find(|group| group.id == from)
                .map_or("", |group| &group.name)
        );
        return Err(ServiceError::new(ErrorKind::FailedPrecondition, message));
    }
    if let Some(former) = schema.groups.iter_mut().find(|group| group.id == from) {
        former.left.insert(id);
    }
    if let Some(family) = schema.families.get_mut(&id) {
        family.group = to;
    }
    Ok(())
}

fn position(schema: &TableSchema, name: &str) -> ServiceResult<usize> {
    let found = schema.groups.iter().position(|group| group.name == name);
    found.ok_or_else(|| ServiceError::not_found(format!("locality group {name} does not exist")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_client::{NewFamily, NewTable};
    use stele_types::{Compression, DeleteRule, TableId, TableName, TimeUnit, ValueType};

    fn table(delete_rule: DeleteRule) -> TableSchema {
        let family = |name: &str| NewFamily {
            name: name.to_owned(),
            gc_rule: None,
            value_type: ValueType::Bytes,
            deletes: Default::default(),
            front_end_data: Vec::new(),
        };
        let new = NewTable {
            name: TableName::new("n", "t"),
            time_unit: TimeUnit::Micros,
            granularity: 1,
            delete_rule,
            durability: None,
            deletion_protection: false,
            families: vec![family("f"), family("g")],
            initial_splits: Vec::new(),
            compression: Compression::Lz4,
            automated_backups: None,
            front_end_data: Vec::new(),
        };
        crate::schema::new_schema(TableId(1), new).unwrap()
    }

    fn create(name: &str, options: GroupUpdate) -> GroupChange {
        let name = name.to_owned();
        GroupChange::Create { name, options }
    }

    fn alter(name: &str, options: GroupUpdate) -> GroupChange {
        let name = name.to_owned();
        GroupChange::Alter { name, options }
    }

    fn to(family: &str, group: &str) -> GroupChange {
        let (family, group) = (family.to_owned(), group.to_owned());
        GroupChange::MoveFamily { family, group }
    }

    fn change(schema: &TableSchema, changes: Vec<GroupChange>, unsettled: &[u32]) -> ServiceResult<TableSchema> {
        change_groups(schema, changes, &unsettled.iter().map(|id| FamilyId(*id)).collect())
    }

    fn refused(outcome: ServiceResult<TableSchema>) -> (ErrorKind, String) {
        let error = outcome.expect_err("it cannot be made");
        (error.kind, error.message)
    }

    #[test]
    fn a_family_moves_once_at_a_time() {
        let table = table(DeleteRule::BySequence);
        let cold = GroupUpdate {
            compression: Some(Compression::Zstd),
            zstd_level: Some(9),
            ..GroupUpdate::default()
        };
        let moved = change(&table, vec![create("cold", cold), to("f", "cold")], &[]).unwrap();
        let [default, cold] = &moved.groups[..] else {
            unreachable!("two groups")
        };
        assert_eq!((cold.options.zstd_level, cold.left.len()), (9, 0));
        assert_eq!(
            (moved.group_of(FamilyId(1)), &default.left),
            (cold.id, &[FamilyId(1)].into())
        );
        assert_eq!(moved.version, table.version + 1);
        let (kind, message) = refused(change(&moved, vec![to("f", "default")], &[1]));
        assert_eq!(kind, ErrorKind::FailedPrecondition);
        assert!(message.contains("still being moved to group cold"), "{message}");
        assert!(
            change(&moved, vec![to("f", "cold"), to("g", "cold")], &[1]).is_ok(),
            "one that is there, and another"
        );
        // A catalog that was restored may not know of the move; the tablets do.
        let mut forgetful = moved.clone();
        forgetful.groups.iter_mut().for_each(|group| group.left.clear());
        let (kind, _) = refused(change(&forgetful, vec![to("f", "default")], &[1]));
        assert_eq!(kind, ErrorKind::FailedPrecondition);
        let back = change(&moved, vec![to("f", "default")], &[]).unwrap();
        assert_eq!(back.group_of(FamilyId(1)), GroupId(0));
        assert_eq!(
            (back.groups[0].left.len(), &back.groups[1].left),
            (0, &[FamilyId(1)].into())
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_reason() {
        let table = table(DeleteRule::BySequence);
        let level = |level| GroupUpdate {
            zstd_level: Some(level),
            ..GroupUpdate::default()
        };
        let lz4 = GroupUpdate {
            compression: Some(Compression::Lz4),
            ..GroupUpdate::default()
        };
        let zstd = GroupUpdate {
            compression: Some(Compression::Zstd),
            ..level(7)
        };
        for (changes, kind, why) in [
            (
                vec![create("default", lz4.clone())],
                ErrorKind::AlreadyExists,
                "exists already",
            ),
            (
                vec![create("", lz4.clone())],
                ErrorKind::InvalidArgument,
                "is not a locality group name",
            ),
            (
                vec![create("x", level(3))],
                ErrorKind::InvalidArgument,
                "group x: a level is an option of zstd",
            ),
            (
                vec![alter("x", lz4.clone())],
                ErrorKind::NotFound,
                "group x does not exist",
            ),
            (vec![to("f", "x")], ErrorKind::NotFound, "group x does not exist"),
            (vec![to("x", "default")], ErrorKind::NotFound, "family x does not exist"),
        ] {
            let (found, message) = refused(change(&table, changes, &[]));
            assert!(found == kind && message.contains(why), "{found:?}: {message}");
        }
        let altered = change(&table, vec![alter("default", zstd), alter("default", lz4)], &[]).unwrap();
        assert_eq!(
            altered.groups[0].options,
            GroupOptions::default(),
            "a level goes with its codec"
        );
        let many = (0..limits::GROUPS_MAX).map(|n| create(&format!("g{n}"), GroupUpdate::default()));
        let (_, message) = refused(change(&table, many.collect(), &[]));
        assert!(message.contains("at most 64"), "{message}");
    }

    #[test]
    fn a_table_that_deletes_by_timestamp_has_groups_as_well() {
        let table = table(DeleteRule::ByTimestamp);
        let moved = change(&table, vec![create("x", GroupUpdate::default()), to("f", "x")], &[]).unwrap();
        assert_eq!(moved.group_of(FamilyId(1)), GroupId(1));
        assert!(
            moved.deletes_rows_by_family(),
            "no tombstone of a row is in both groups"
        );
    }
}
