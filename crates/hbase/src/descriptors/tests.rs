//! Tests of descriptors: stored descriptors come back, and attributes that act become properties.

use super::attributes::{self, get, set};
use super::*;
use stele_types::limits::TABLET_BYTES;
use stele_types::{
    Compression, Deletes, Durability, FamilyId, GcRule, GroupId, KeepDeleted, LocalityGroup, TableId, TableName,
    TimeUnit, ValueType,
};
use stele_wire::messages::BytesBytesPair;

fn pairs(pairs: &[(&'static str, &str)]) -> Vec<BytesBytesPair> {
    let mut attributes = Vec::new();
    for (name, value) in pairs {
        set(&mut attributes, name, (*value).to_owned());
    }
    attributes
}

fn family(name: &'static str, attributes: &[(&'static str, &str)]) -> ColumnFamilySchema {
    ColumnFamilySchema {
        name: name.into(),
        attributes: pairs(attributes),
        configuration: Vec::new(),
    }
}

fn table(attributes: &[(&'static str, &str)], families: Vec<ColumnFamilySchema>) -> messages::TableSchema {
    messages::TableSchema {
        table_name: Some(crate::names::to_message(&TableName::new("default", "t"))),
        attributes: pairs(attributes),
        column_families: families,
        configuration: Vec::new(),
    }
}

/// The schema of the table that a descriptor makes.
fn made(mut wanted: messages::TableSchema) -> TableSchema {
    complete(&mut wanted, DeleteRule::ByTimestamp);
    let properties = Properties::of(&wanted, DeleteRule::ByTimestamp).unwrap();
    let first = properties.files.values().next().unwrap();
    let mut group = LocalityGroup::new(GroupId(0), "default", first.compression);
    if let Some(update) = first.update(&group.options) {
        update.apply(&mut group.options);
    }
    let family = |(id, new): (usize, stele_client::NewFamily)| {
        let family = stele_types::Family {
            name: new.name,
            gc_rule: new.gc_rule,
            value_type: ValueType::Bytes,
            deletes: new.deletes,
            group: GroupId(0),
            front_end_data: Vec::new(),
        };
        (FamilyId(u32::try_from(id).unwrap()), family)
    };
    TableSchema {
        time_unit: TimeUnit::Millis,
        delete_rule: DeleteRule::ByTimestamp,
        durability: properties.durability,
        read_only: properties.read_only,
        families: properties.families.into_iter().enumerate().map(family).collect(),
        next_family: FamilyId(9),
        groups: vec![group],
        tablet_bytes_max: properties.tablet_bytes_max,
        front_end_data: stored(&wanted),
        ..TableSchema::new(TableId(1), TableName::new("default", "t"))
    }
}

fn rule_of(attributes: &[(&'static str, &str)]) -> Option<GcRule> {
    rules::rule(&family("f", attributes)).unwrap()
}

fn refusal(wanted: messages::TableSchema) -> String {
    let mut wanted = wanted;
    complete(&mut wanted, DeleteRule::ByTimestamp);
    Properties::of(&wanted, DeleteRule::ByTimestamp)
        .unwrap_err()
        .message
        .into_owned()
}

#[test]
fn a_descriptor_comes_back_as_it_was_stored() {
    let mut g = family("g", &[("VERSIONS", "3"), ("own", "attribute")]);
    g.configuration.push(messages::NameStringPair {
        name: "own.setting".into(),
        value: "v".into(),
    });
    let mut wanted = table(
        &[("of-an-application", "kept"), ("DURABILITY", "ASYNC_WAL")],
        vec![g, family("f", &[])],
    );
    wanted.attributes.push(BytesBytesPair {
        first: b"\0binary"[..].into(),
        second: b"\xff\xfe"[..].into(),
    });
    let schema = made(wanted.clone());
    complete(&mut wanted, DeleteRule::ByTimestamp);
    assert_eq!(shown(&schema), wanted);
    assert_eq!(wanted.column_families[0].name, "f");
    assert_eq!(
        get(&wanted.attributes, "hbase.store.file-tracker.impl"),
        Some("DEFAULT")
    );
    assert_eq!(get(&wanted.column_families[0].attributes, "TTL"), Some("2147483647"));
}

#[test]
fn versions_and_ages_become_rules() {
    use GcRule::{Intersection, MaxAgeMicros, MaxVersions, Union};
    let hour = MaxAgeMicros(3_600_000_000);
    assert_eq!(rule_of(&[]), Some(MaxVersions(1)));
    assert_eq!(rule_of(&[("VERSIONS", "2147483647")]), None);
    assert_eq!(rule_of(&[("VERSIONS", "7"), ("TTL", "FOREVER")]), Some(MaxVersions(7)));
    let aged = [("VERSIONS", "2147483647"), ("TTL", "3600")];
    assert_eq!(rule_of(&aged), Some(hour.clone()));
    let both = [("VERSIONS", "5"), ("TTL", "3600"), ("MIN_VERSIONS", "2")];
    let spared = Intersection(vec![hour, MaxVersions(2)]);
    assert_eq!(rule_of(&both), Some(Union(vec![MaxVersions(5), spared])));
}

/// Another front end drops a family and makes one with its name, which HBase's descriptor does not know.
#[test]
fn a_family_made_again_has_its_own_deletes() {
    let kept = [("KEEP_DELETED_CELLS", "TRUE"), ("NEW_VERSION_BEHAVIOR", "true")];
    let mut schema = made(table(&[], vec![family("f", &kept), family("g", &kept)]));
    let f = schema.families.values_mut().next().unwrap();
    f.deletes = Deletes::default();
    let shown = shown(&schema);
    let of = |family: usize, name: &str| get(&shown.column_families[family].attributes, name);
    assert_eq!(
        (of(0, "KEEP_DELETED_CELLS"), of(0, "NEW_VERSION_BEHAVIOR")),
        (Some("FALSE"), Some("false"))
    );
    assert_eq!(
        (of(1, "KEEP_DELETED_CELLS"), of(1, "NEW_VERSION_BEHAVIOR")),
        (Some("TRUE"), Some("true"))
    );
}

#[test]
fn attributes_that_are_no_longer_true_are_replaced() {
    let wanted = table(
        &[],
        vec![family("f", &[("VERSIONS", "3"), ("own", "1")]), family("gone", &[])],
    );
    let mut schema = made(wanted);
    schema.families.retain(|_, family| family.name == "f");
    let f = schema.families.values_mut().next().unwrap();
    f.gc_rule = Some(GcRule::Union(vec![
        GcRule::MaxVersions(4),
        GcRule::MaxAgeMicros(1_500_000),
    ]));
    let mut added = f.clone();
    added.name = "added".into();
    added.gc_rule = None;
    schema.families.insert(FamilyId(8), added);
    (schema.durability, schema.tablet_bytes_max) = (Some(Durability::Sync), 5 << 30);
    let shown = shown(&schema);
    let names: Vec<_> = shown.column_families.iter().map(|family| &family.name[..]).collect();
    assert_eq!(names, [&b"added"[..], b"f"]);
    let of = |family: usize, name: &str| get(&shown.column_families[family].attributes, name);
    assert_eq!(
        (of(1, "VERSIONS"), of(1, "TTL"), of(1, "own")),
        (Some("4"), Some("2"), Some("1"))
    );
    assert_eq!(
        (of(0, "VERSIONS"), of(0, "TTL")),
        (Some("2147483647"), Some("2147483647"))
    );
    assert_eq!(get(&shown.attributes, "DURABILITY"), Some("FSYNC_WAL"));
    assert_eq!(get(&shown.attributes, "MAX_FILESIZE"), Some("5368709120"));
}

#[test]
fn a_table_of_another_front_end_has_a_descriptor() {
    let mut schema = made(table(&[], vec![family("f", &[])]));
    schema.front_end_data.clear();
    schema.delete_rule = DeleteRule::BySequence;
    schema.groups = vec![LocalityGroup::new(GroupId(0), "default", Compression::Zstd)];
    let table = shown(&schema);
    let of = |name: &str| get(&table.column_families[0].attributes, name);
    assert_eq!(
        (of("COMPRESSION"), of("NEW_VERSION_BEHAVIOR")),
        (Some("ZSTD"), Some("true"))
    );
    assert_eq!(
        (of("VERSIONS"), of("BLOOMFILTER"), of("BLOCKSIZE")),
        (Some("1"), Some("ROW"), Some("65536"))
    );
    let back = Properties::of(&table, schema.delete_rule).expect("a client may send it back");
    assert_eq!(back.families[0].deletes, Deletes::default());
}

#[test]
fn options_of_files_are_those_of_a_group() {
    let wanted = family(
        "a",
        &[("COMPRESSION", "GZ"), ("BLOCKSIZE", "8192"), ("BLOOMFILTER", "NONE")],
    );
    let files = FileOptions::of_family(&wanted).unwrap();
    let mut group = stele_types::GroupOptions::default();
    files.update(&group).unwrap().apply(&mut group);
    assert_eq!((FileOptions::of_group(&group), files.update(&group)), (files, None));
    let large = family("c", &[("BLOCKSIZE", "16777216")]);
    assert_eq!(FileOptions::of_family(&large).unwrap().block_bytes, Some(1 << 20));
}

#[test]
fn settings_of_tables_act() {
    let of = |attributes: &[(&'static str, &str)]| {
        let table = table(attributes, vec![family("f", &[])]);
        Properties::of(&table, DeleteRule::ByTimestamp).unwrap()
    };
    let skips = of(&[("DURABILITY", "SKIP_WAL"), ("MAX_FILESIZE", "3000000")]);
    assert_eq!(
        (skips.durability, skips.tablet_bytes_max),
        (Some(Durability::None), 3_000_000)
    );
    assert_eq!(of(&[]).tablet_bytes_max, 0);
    let never = "org.apache.hadoop.hbase.regionserver.DisabledRegionSplitPolicy";
    assert_eq!(of(&[("SPLIT_POLICY", never)]).tablet_bytes_max, *TABLET_BYTES.end());
    assert_eq!(
        of(&[("MAX_FILESIZE", "9223372036854775807")]).tablet_bytes_max,
        *TABLET_BYTES.end()
    );
}

#[test]
fn descriptors_that_nothing_can_keep_are_refused() {
    let of_table = |name: &'static str, value: &str| refusal(table(&[(name, value)], vec![family("f", &[])]));
    let of_family = |name: &'static str, value: &str| refusal(table(&[], vec![family("f", &[(name, value)])]));
    for (message, part) in [
        (refusal(table(&[], vec![])), "at least one column family"),
        (refusal(table(&[], vec![family("f", &[]), family("f", &[])])), "twice"),
        (refusal(table(&[], vec![family("a:b", &[])])), "Illegal family name"),
        (of_table("MAX_FILESIZE", "1000"), "MAX_FILESIZE"),
        (of_table("MAX_FILESIZE", "1e9"), "is not a number"),
        (of_table("MEMSTORE_FLUSHSIZE", "1000"), "MEMSTORE_FLUSHSIZE"),
        (of_table("REGION_REPLICATION", "2"), "REGION_REPLICATION"),
        (of_table("coprocessor$1", "|none.Such|1|"), "coprocessor$1"),
        (of_table("SPLIT_POLICY", "none.Such"), "split policy"),
        (of_table("DURABILITY", "MAYBE"), "DURABILITY"),
        (of_family("TTL", "0"), "TTL"),
        (of_family("TTL", "-1"), "TTL"),
        (of_family("VERSIONS", "0"), "versions"),
        (of_family("MIN_VERSIONS", "2"), "Min versions"),
        (of_family("BLOCKSIZE", "10"), "Block size"),
        (of_family("COMPRESSION", "LZO"), "COMPRESSION"),
        (of_family("BLOOMFILTER", "X"), "BLOOMFILTER"),
        (of_family("KEEP_DELETED_CELLS", "MAYBE"), "KEEP_DELETED_CELLS"),
        (of_family("ENCRYPTION", "AES"), "ENCRYPTION"),
        (of_family("DFS_REPLICATION", "-1"), "Replication"),
        (of_family("REPLICATION_SCOPE", "-1"), "Replication scope"),
        (of_family("IN_MEMORY_COMPACTION", "INVALID"), "IN_MEMORY_COMPACTION"),
        (
            of_table("hbase.regionserver.region.split.policy", "none.Such"),
            "split policy",
        ),
        (of_table("hbase.hstore.datatiering.type", "TIME_RANGE"), "Tiering"),
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn tiers_by_age_need_files_by_age() {
    let setting = |name: &str, value: &str| messages::NameStringPair {
        name: name.into(),
        value: value.into(),
    };
    let tiers = setting("hbase.hstore.datatiering.type", "TIME_RANGE");
    let engine = "org.apache.hadoop.hbase.regionserver.DateTieredStoreEngine";
    let with = |attributes: &[(&'static str, &str)], settings: Vec<messages::NameStringPair>| {
        let mut f = family("f", &[]);
        f.configuration = settings;
        let mut wanted = table(attributes, vec![f]);
        complete(&mut wanted, DeleteRule::ByTimestamp);
        Properties::of(&wanted, DeleteRule::ByTimestamp).is_ok()
    };
    let of_table = [("hbase.hstore.engine.class", engine)];
    let of_family = || setting("hbase.hstore.engine.class", engine);
    assert!(!with(&[], vec![tiers.clone()]));
    assert!(with(&of_table, vec![tiers.clone()]));
    assert!(with(&[], vec![tiers.clone(), of_family()]));
    assert!(!with(
        &of_table,
        vec![tiers, setting("hbase.hstore.engine.class", "other")]
    ));
    assert!(with(&[], vec![of_family()]));
}

#[test]
fn each_family_says_what_deletes_do_in_it() {
    let wanted = table(
        &[("READONLY", "true")],
        vec![
            family("a", &[(attributes::NEW_VERSION_BEHAVIOR, "true")]),
            family("b", &[("KEEP_DELETED_CELLS", "true")]),
            family(
                "c",
                &[("KEEP_DELETED_CELLS", "TTL"), ("TTL", "60"), ("MIN_VERSIONS", "1")],
            ),
            family("d", &[("KEEP_DELETED_CELLS", "TTL")]),
            family("e", &[]),
        ],
    );
    let mut schema = made(wanted.clone());
    let deletes: Vec<_> = schema.families.values().map(|family| family.deletes).collect();
    let of = |rule, keep| Deletes { rule, keep };
    let expected = [
        of(Some(DeleteRule::BySequence), KeepDeleted::No),
        of(None, KeepDeleted::Yes),
        of(None, KeepDeleted::For(60_000_000)),
        of(None, KeepDeleted::Yes),
        of(None, KeepDeleted::No),
    ];
    assert_eq!(deletes, expected);
    assert!(schema.read_only);
    let mut complete_one = wanted;
    complete(&mut complete_one, DeleteRule::ByTimestamp);
    assert_eq!(shown(&schema), complete_one);
    schema.read_only = false;
    assert_eq!(get(&shown(&schema).attributes, "READONLY"), Some("false"));
    // Without a descriptor, one is made that says the same.
    schema.front_end_data.clear();
    let made = Properties::of(&shown(&schema), schema.delete_rule).unwrap();
    let deletes: Vec<_> = made.families.iter().map(|family| family.deletes).collect();
    assert_eq!(
        (deletes[0], deletes[1], deletes[4]),
        (expected[0], expected[1], expected[4])
    );
}

#[test]
fn a_family_in_a_group_of_its_own_shows_the_options_of_that() {
    let wanted = table(
        &[],
        vec![
            family("f", &[("COMPRESSION", "SNAPPY")]),
            family("g", &[("COMPRESSION", "SNAPPY")]),
        ],
    );
    let mut schema = made(wanted);
    schema
        .groups
        .push(LocalityGroup::new(GroupId(1), "cold", Compression::Zstd));
    schema.families.get_mut(&FamilyId(1)).unwrap().group = GroupId(1);
    let shown = shown(&schema);
    let compression = |family: usize| get(&shown.column_families[family].attributes, "COMPRESSION");
    assert_eq!((compression(0), compression(1)), (Some("SNAPPY"), Some("ZSTD")));
}

#[test]
fn tables_may_limit_their_cells_and_refuse_splits() {
    let limit = |value: &str| {
        let attributes = [("hbase.server.keyvalue.maxsize", value)];
        cell_bytes_max(&made(table(&attributes, vec![family("f", &[])])))
    };
    assert_eq!(limit("10240"), Some(10_240));
    assert_eq!(limit("0"), None);
    assert_eq!(cell_bytes_max(&made(table(&[], vec![family("f", &[])]))), None);
    let policy = |name: &str| is_never_split(&pairs(&[("SPLIT_POLICY", name)]));
    assert!(policy("org.apache.hadoop.hbase.regionserver.DisabledRegionSplitPolicy"));
    assert!(!policy("org.apache.hadoop.hbase.regionserver.SteppingSplitPolicy"));
    assert!(is_never_split(&pairs(&[("SPLIT_ENABLED", "false")])));
    assert!(!is_never_split(&[]));
}

/// The Bigtable API allows their names. A client that meets one cannot read the descriptors of any table.
#[test]
fn families_with_names_that_hbase_refuses_are_not_shown() {
    let mut schema = made(table(&[], vec![family("a", &[]), family("b", &[])]));
    for (family, name) in schema.families.values_mut().zip([".hidden", "recovered.edits"]) {
        family.name = name.to_owned();
    }
    let kept = schema.families.values().next().unwrap().clone();
    schema.families.insert(
        FamilyId(5),
        Family {
            name: "plain".to_owned(),
            ..kept
        },
    );
    let families = shown(&schema).column_families;
    assert_eq!(
        families.iter().map(|family| &family.name[..]).collect::<Vec<_>>(),
        [b"plain"]
    );
}
