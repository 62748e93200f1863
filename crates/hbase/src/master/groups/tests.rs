//! Families with equal options share a group, and others get their own.

use super::*;
use stele_types::{
    Compression, DeleteRule, Family, FamilyId, GroupId, LocalityGroup, TableId, TableName, TimeUnit, ValueType,
};

fn files(compression: Compression) -> FileOptions {
    FileOptions {
        compression,
        block_bytes: None,
        has_filter: true,
        in_memory: false,
    }
}

/// A table whose families are all in the default group, without compression.
fn table(names: &[&str]) -> TableSchema {
    let family = |(id, name): (u32, &&str)| {
        let family = Family {
            name: (*name).to_owned(),
            gc_rule: None,
            value_type: ValueType::Bytes,
            deletes: Default::default(),
            group: GroupId(0),
            front_end_data: Vec::new(),
        };
        (FamilyId(id), family)
    };
    TableSchema {
        time_unit: TimeUnit::Millis,
        delete_rule: DeleteRule::ByTimestamp,
        families: (1..).zip(names).map(family).collect(),
        next_family: FamilyId(9),
        ..TableSchema::new(TableId(1), TableName::new("default", "t"))
    }
}

/// The changes, and the names of groups that they lead to, by family.
fn planned(schema: &TableSchema, wanted: &[(&str, FileOptions)], is_new: bool) -> Vec<String> {
    let wanted = wanted
        .iter()
        .map(|(name, files)| ((*name).to_owned(), *files))
        .collect();
    let show = |change: GroupChange| match change {
        GroupChange::Create { name, options } => format!("create {name} {:?}", options.compression),
        GroupChange::Alter { name, options } => format!("alter {name} {:?}", options.compression),
        GroupChange::MoveFamily { family, group } => format!("move {family} to {group}"),
    };
    changes(schema, &wanted, is_new).into_iter().map(show).collect()
}

#[test]
fn families_with_equal_options_share_a_group() {
    use Compression::{Lz4, None as Plain, Snappy, Zstd};
    let schema = table(&["a", "b", "c", "d"]);
    let wanted = [
        ("a", files(Plain)),
        ("b", files(Snappy)),
        ("c", files(Plain)),
        ("d", files(Snappy)),
    ];
    let expected = ["create b Some(Snappy)", "move b to b", "move d to b"];
    assert_eq!(planned(&schema, &wanted, true), expected);
    let all = ["a", "b", "c", "d"].map(|name| (name, files(Zstd)));
    assert_eq!(planned(&schema, &all, false), ["alter default Some(Zstd)"]);
    assert!(planned(&schema, &[("a", files(Plain))], false).is_empty());
    assert_eq!(planned(&schema, &[("gone", files(Lz4))], false), Vec::<String>::new());
}

#[test]
fn a_family_that_is_alone_changes_its_group() {
    use Compression::{Lz4, None as Plain, Snappy};
    let mut schema = table(&["a", "b"]);
    schema.groups.push(LocalityGroup::new(GroupId(1), "own", Snappy));
    schema.families.get_mut(&FamilyId(2)).unwrap().group = GroupId(1);
    assert_eq!(planned(&schema, &[("b", files(Lz4))], false), ["alter own Some(Lz4)"]);
    assert_eq!(
        planned(&schema, &[("b", files(Plain))], false),
        ["alter own Some(None)"]
    );
    // A group without families takes the next one.
    let mut schema = table(&["a", "b"]);
    schema
        .groups
        .push(LocalityGroup::new(GroupId(1), "empty", Compression::Zstd));
    let expected = ["alter empty Some(Snappy)", "move b to empty"];
    assert_eq!(planned(&schema, &[("b", files(Snappy))], false), expected);
    schema.groups[1].left.insert(FamilyId(1));
    let expected = ["create b Some(Snappy)", "move b to b"];
    assert_eq!(planned(&schema, &[("b", files(Snappy))], false), expected);
}

#[test]
fn names_of_groups_are_free_and_valid() {
    let mut schema = table(&["default", "\u{e4}"]);
    schema.groups[0].name = "default".to_owned();
    let wanted = [("default", files(Compression::Snappy))];
    assert_eq!(planned(&schema, &wanted, false)[0], "create default-2 Some(Snappy)");
    let wanted = [("\u{e4}", files(Compression::Snappy))];
    assert_eq!(planned(&schema, &wanted, false)[0], "create family Some(Snappy)");
}

#[test]
fn more_kinds_than_groups_are_refused_before_anything_is_changed() {
    let kinds: Vec<FileOptions> = (0..70)
        .map(|n| FileOptions {
            block_bytes: Some(4096 + n),
            ..files(Compression::None)
        })
        .collect();
    let twice = kinds.iter().chain(&kinds);
    assert!(check_count(1, twice.clone().take(63)).is_ok());
    assert!(check_count(1, kinds[..63].iter().chain(&kinds[..63])).is_ok());
    assert!(check_count(1, twice.take(64)).is_err());
}
