//! Records of all versions, byte for byte. A change of these bytes is a new version.

use super::*;
use stele_assignment::Assignment;
use stele_types::{ColumnSubset, RowRange, View};

/// [`schema`] as version 1 has it.
const TABLE_1: &[u8] =
    b"\x01\x08\x10\x12\x04shop\x1a\x06orders \x05(\x010\xe8\x078\x01@\x03H\x01R\x1d\x08\x01\x12\x01f\
    \x1a\x13\x08\x03\"\x04\x08\x01\x10\x03\"\x09\x08\x02\x18\x80\xc0\xdd\xee\xc1\x022\x01tR\x07\x08\
    \x04\x12\x01n \x02X\x06b\x0b\x12\x07default\x18\x01h\x80\x80\x80\x80\x04r\x02\x01\xffx\x01";

/// [`schema_of_groups`] as version 2 has it.
const TABLE_2: &[u8] =
    b"\x02\x08\x10\x12\x04shop\x1a\x06orders \x05(\x010\xe8\x078\x01@\x03H\x01R\x1d\x08\x01\x12\x01f\
    \x1a\x13\x08\x03\"\x04\x08\x01\x10\x03\"\x09\x08\x02\x18\x80\xc0\xdd\xee\xc1\x022\x01tR\x09\x08\
    \x04\x12\x01n \x02(\x03X\x06b\x0e\x12\x07default\x18\x01R\x01\x04b\x1d\x08\x03\x12\x04cold\x18\
    \x03 \x09(\x80\x80\x020\x80\x80\x048\x00@\x01H\x80\x80\x80\x04h\x80\x80\x80\x80\x04r\x02\x01\xff\
    x\x01";

/// The field behind [`TABLE_1`] of a disabled table.
const DISABLED: &[u8] = b"\x80\x01\x01";

/// The field behind [`TABLE_1`], in version 3, of a table whose tablets were replaced together.
const TABLET_SET: &[u8] = b"\x88\x01\x80\x02";

const TABLET: &[u8] = b"\x01\x0a\x02b\x00\x12\x01m";
const SNAPSHOT: &[u8] = b"\x01\x08\x12\x12\x01n\x1a\x01s\"\x02\x01t(\x050\x00:\x01\xff@\x02H\x03P\x04X\x06";
const NAMESPACE: &[u8] = b"\x01\x0a\x01i\x10\x01";
/// Tablets are not split.
const SWITCHES: &[u8] = b"\x01\x10\x01";
const SNAPSHOTS_HELD: &[u8] = b"\x01\x20\x01";

/// Something of everything, but for options of locality groups.
fn schema() -> TableSchema {
    let rule = GcRule::Union(vec![GcRule::MaxVersions(3), GcRule::MaxAgeMicros(86_400_000_000)]);
    let text = Family {
        name: "f".to_owned(),
        gc_rule: Some(rule),
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: b"t".to_vec(),
    };
    let number = Family {
        name: "n".to_owned(),
        gc_rule: None,
        value_type: ValueType::Aggregate(AggregateKind::Min),
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    TableSchema {
        id: TableId(0x10),
        name: TableName::new("shop", "orders"),
        version: 5,
        time_unit: TimeUnit::Micros,
        granularity: 1_000,
        delete_rule: DeleteRule::BySequence,
        durability: Some(Durability::Sync),
        deletion_protection: true,
        enabled: true,
        read_only: false,
        restoring: None,
        families: BTreeMap::from([(FamilyId(1), text), (FamilyId(4), number)]),
        next_family: FamilyId(6),
        groups: vec![LocalityGroup::new(GroupId(0), "default", Compression::Lz4)],
        tablet_bytes_max: 1 << 30,
        row_cache: false,
        automated_backups: None,
        views: stele_types::Views::new(),
        front_end_data: b"\x01\xff".to_vec(),
    }
}

/// The same with a second group, to which a family was moved.
fn schema_of_groups() -> TableSchema {
    let mut schema = schema();
    let mut cold = LocalityGroup::new(GroupId(3), "cold", Compression::Zstd);
    cold.options = GroupOptions {
        compression: Compression::Zstd,
        zstd_level: 9,
        dictionary_bytes: 32 << 10,
        block_bytes: Some(64 << 10),
        filter_bits_per_row: Some(0),
        in_memory: true,
        file_bytes: Some(8 << 20),
    };
    schema.groups.push(cold);
    schema.groups[0].left.insert(FamilyId(4));
    if let Some(moved) = schema.families.get_mut(&FamilyId(4)) {
        moved.group = GroupId(3);
    }
    schema
}

#[test]
fn tables_are_as_they_were() {
    let disabled = TableSchema {
        enabled: false,
        ..schema()
    };
    for (bytes, schema) in [
        (TABLE_1, schema()),
        (&[TABLE_1, DISABLED].concat()[..], disabled),
        (TABLE_2, schema_of_groups()),
    ] {
        assert_eq!(decode_schema(bytes).as_ref(), Ok(&schema));
        assert_eq!(
            encode_schema(&schema).escape_ascii().to_string(),
            bytes.escape_ascii().to_string()
        );
    }
}

/// Fields of families are in the middle of a record, so only the version and the way back are fixed here.
#[test]
fn effects_of_deletes_and_read_only_need_version_4() {
    let mut kept = schema();
    let family = kept.families.get_mut(&FamilyId(1)).expect("the family of text");
    family.deletes = Deletes {
        rule: Some(DeleteRule::ByTimestamp),
        keep: KeepDeleted::For(60_000_000),
    };
    let read_only = TableSchema {
        read_only: true,
        ..schema()
    };
    for schema in [&kept, &read_only] {
        let bytes = encode_table(schema, TableId(0x100));
        assert_eq!(bytes.first(), Some(&4));
        assert_eq!(decode_table(&bytes), Ok((schema.clone(), TableId(0x100))));
    }
    let read_only = [&[4], &TABLE_1[1..], b"\x90\x01\x01"].concat();
    let expected = TableSchema {
        read_only: true,
        ..schema()
    };
    assert_eq!(decode_schema(&read_only), Ok(expected));
}

#[test]
fn automated_backups_are_the_last_field() {
    let schema = TableSchema {
        automated_backups: Some(AutomatedBackups {
            retention_micros: 300,
            frequency_micros: 2,
        }),
        ..schema()
    };
    let bytes = [TABLE_1, &b"\x9a\x01\x05\x08\xac\x02\x10\x02"[..]].concat();
    assert_eq!(encode_schema(&schema), bytes);
    assert_eq!(decode_schema(&bytes), Ok(schema));
}

#[test]
fn views_are_fields_behind_it() {
    let columns = ColumnSubset {
        qualifiers: vec![Bytes::from_static(b"q")],
        prefixes: vec![Bytes::from_static(b"p")],
    };
    let view = View {
        row_prefixes: vec![Bytes::from_static(b"a")],
        families: BTreeMap::from([("f".to_owned(), columns)]),
        is_protected: true,
        version: 4,
    };
    let schema = TableSchema {
        views: BTreeMap::from([("v".to_owned(), view)]),
        ..schema()
    };
    let field = b"\xa2\x01\x15\x0a\x01v\x12\x01a\x1a\x09\x0a\x01f\x12\x01q\x1a\x01p\x20\x01\x28\x04";
    let bytes = [TABLE_1, &field[..]].concat();
    assert_eq!(
        encode_schema(&schema).escape_ascii().to_string(),
        bytes.escape_ascii().to_string()
    );
    assert_eq!(decode_schema(&bytes), Ok(schema));
}

#[test]
fn the_mark_of_a_restore_is_the_last_field() {
    let schema = TableSchema {
        enabled: false,
        restoring: Some("restore-0a".to_owned()),
        ..schema()
    };
    let bytes = [TABLE_1, DISABLED, b"\xaa\x01\x0arestore-0a"].concat();
    assert_eq!(
        encode_schema(&schema).escape_ascii().to_string(),
        bytes.escape_ascii().to_string()
    );
    assert_eq!(decode_schema(&bytes), Ok(schema));
}

#[test]
fn a_table_names_the_set_of_its_tablets() {
    let bytes = [&[3], &TABLE_1[1..], TABLET_SET].concat();
    assert_eq!(decode_table(&bytes), Ok((schema(), TableId(0x100))));
    assert_eq!(
        encode_table(&schema(), TableId(0x100)).escape_ascii().to_string(),
        bytes.escape_ascii().to_string()
    );
}

#[test]
fn snapshots_are_as_they_were() {
    let record = SnapshotRecord {
        id: 0x12,
        namespace: "n".to_owned(),
        name: "s".to_owned(),
        table: Bytes::from_static(b"\x01t"),
        created_micros: 5,
        expires_micros: Some(0),
        front_end_data: Bytes::from_static(b"\xff"),
        parts: 2,
        tablets: 3,
        bytes: 4,
        completed_micros: 6,
        kept: 0,
        rules: Bytes::new(),
    };
    assert_eq!(decode(SNAPSHOT), Ok(record.clone()));
    assert_eq!(encode(&record), SNAPSHOT);
    let kept = SnapshotRecord {
        kept: 1,
        rules: Bytes::from_static(b"\x01r"),
        ..record
    };
    let bytes = [SNAPSHOT, b"\x60\x01\x6a\x02\x01r"].concat();
    assert_eq!(decode(&bytes), Ok(kept.clone()));
    assert_eq!(encode(&kept), bytes);
}

#[test]
fn tablets_and_namespaces_are_as_they_were() {
    let range = RowRange {
        start: Bytes::from_static(b"b\0"),
        end: Some(Bytes::from_static(b"m")),
    };
    let unassigned = Assignment::default();
    assert_eq!(encode_tablet(&range, &unassigned), TABLET);
    assert_eq!(decode_tablet(TABLET), Ok((range, unassigned)));
    let namespace = NamespaceRecord {
        front_end_data: Bytes::from_static(b"i"),
        explicit: true,
    };
    assert_eq!(decode(NAMESPACE), Ok(namespace.clone()));
    assert_eq!(encode(&namespace), NAMESPACE);
}

#[test]
fn switches_are_as_they_were() {
    let switches = stele_types::Switches {
        split: false,
        ..stele_types::Switches::default()
    };
    assert_eq!(switches::encode_switches(switches), SWITCHES);
    assert_eq!(switches::decode_switches(SWITCHES), Ok(switches));
    assert_eq!(switches::decode_switches(b"\x01"), Ok(stele_types::Switches::default()));
    let held = stele_types::Switches {
        snapshot_cleanup: false,
        ..stele_types::Switches::default()
    };
    assert_eq!(switches::encode_switches(held), SNAPSHOTS_HELD);
    assert_eq!(switches::decode_switches(SNAPSHOTS_HELD), Ok(held));
}
