use super::*;
use crate::test_service::Model;
use stele_types::Timestamp;

/// A read of these columns of family `info`.
fn selected(qualifiers: &[Bytes]) -> (Selection, Arc<TableSchema>) {
    let schema = Model::new(&[""]).schema.clone();
    let columns = [Column {
        family: "info".into(),
        qualifier: qualifiers.to_vec(),
    }];
    let wanted = Wanted {
        columns: &columns,
        ..Wanted::whole_row()
    };
    let Ok(selection) = Selection::new(&schema, &wanted) else {
        unreachable!("the family is of the table");
    };
    (selection, schema)
}

#[test]
fn long_columns_are_found_whether_they_are_pushed_down_or_not() {
    let of = |count: usize, bytes: usize| -> Vec<Bytes> {
        let rest = "q".repeat(bytes - 2);
        (0..count).map(|n| format!("{n:02}{rest}").into()).collect()
    };
    for (columns, is_pushed_down) in [
        (of(64, 200), true),
        (of(1, 20 << 10), true),
        (of(1, limits::QUALIFIER_BYTES_MAX), true),
        (of(3, limits::QUALIFIER_BYTES_MAX), false),
        (of(64, 2_000), false),
        (of(1, 1 << 20), false),
        (of(65, 2), false),
    ] {
        let (selection, schema) = selected(&columns);
        assert_eq!(selection.is_pushed_down(), is_pushed_down);
        let cell = |qualifier: &Bytes| Cell::put(FamilyId(1), qualifier.clone(), Timestamp(5), Bytes::new());
        let mut cells: Vec<Cell> = columns.iter().map(cell).collect();
        cells.push(cell(&Bytes::from_static(b"other")));
        let filter = selection.pushdown(&schema).expect("the families at least");
        let compiled = filter.compile(&schema).unwrap();
        let mut found = compiled.apply(b"r", cells, &mut || 0.5).unwrap();
        selection.apply(&schema, &mut found);
        let found: Vec<Bytes> = found.into_iter().map(|cell| cell.qualifier).collect();
        assert_eq!(found, columns);
    }
}

/// A table with families `family000001` and so on, numbered from 1, all of which keep deleted cells if `keep` says so.
fn with_families(count: u32, keep: KeepDeleted) -> Arc<TableSchema> {
    let mut schema = TableSchema::clone(&Model::new(&[""]).schema);
    let mut family = schema.families[&FamilyId(1)].clone();
    family.deletes.keep = keep;
    let family = |n: u32| stele_types::Family {
        name: format!("family{n:06}"),
        ..family.clone()
    };
    schema.families = (1..=count).map(|n| (FamilyId(n), family(n))).collect();
    Arc::new(schema)
}

fn families_of(schema: &TableSchema, ids: impl Iterator<Item = u32>) -> Vec<Column> {
    let name = |id: u32| Bytes::copy_from_slice(schema.families[&FamilyId(id)].name.as_bytes());
    let column = |id: u32| Column {
        family: name(id),
        qualifier: Vec::new(),
    };
    ids.map(column).collect()
}

#[test]
fn very_many_families_are_one_list() {
    let schema = with_families(20_000, KeepDeleted::No);
    for (first, raw) in [(2, false), (10_001, false), (2, true), (19_999, true)] {
        let columns = families_of(&schema, first..=20_000);
        let wanted = Wanted {
            columns: &columns,
            raw,
            ..Wanted::whole_row()
        };
        let selection = Selection::new(&schema, &wanted).ok().unwrap();
        let filter = selection.pushdown(&schema).expect("all but one");
        let compiled = filter.compile(&schema).unwrap();
        let families = compiled.pushdown().each_family().expect("not all");
        assert!(families.eq((first..=20_000).map(FamilyId)));
        let of = |family: u32| Cell::put(FamilyId(family), Bytes::new(), Timestamp(1), Bytes::new());
        let row = (1..=20_000).map(of).collect();
        // Each member of an interleave would visit each cell, which is more than is allowed.
        let mut found = compiled.apply(b"r", row, &mut || 0.5).unwrap();
        selection.apply(&schema, &mut found);
        assert!(found.iter().map(|cell| cell.family.0).eq(first..=20_000));
    }
}

/// Their names would be larger than a filter may be.
#[test]
fn only_families_that_are_read_have_an_end_of_time() {
    let schema = with_families(20_000, KeepDeleted::Yes);
    let times = TimeRange {
        from: None,
        to: Some(100),
    };
    let one = families_of(&schema, 7..=7);
    for (columns, expected) in [(&one[..], 7..=7), (&[], 1..=20_000)] {
        let wanted = Wanted {
            columns,
            times: Some(&times),
            ..Wanted::whole_row()
        };
        let selection = Selection::new(&schema, &wanted).ok().unwrap();
        let filter = selection.pushdown(&schema).unwrap();
        let compiled = filter.compile(&schema).unwrap();
        let before = compiled.pushdown().families_before.iter().map(|(family, _)| family.0);
        assert!(before.eq(expected));
    }
}

#[test]
fn a_deleted_row_is_one_delete_of_each_selected_family() {
    let schema = Model::new(&[""]).schema.clone();
    let tombstone = |at: i64| Cell {
        family: FamilyId(0),
        kind: CellKind::DeleteRow,
        ..Cell::put(FamilyId(0), Bytes::new(), Timestamp(at), Bytes::new())
    };
    let columns = [Column {
        family: "info".into(),
        qualifier: Vec::new(),
    }];
    for (columns, families) in [(&columns[..], 1), (&[], schema.families.len())] {
        let wanted = Wanted {
            columns,
            raw: true,
            ..Wanted::whole_row()
        };
        let selection = Selection::new(&schema, &wanted).ok().unwrap();
        // Repeated deletes at one time are one.
        let put = Cell::put(FamilyId(1), Bytes::from_static(b"q"), Timestamp(4), Bytes::new());
        let tombstones = std::iter::repeat_n(tombstone(9), 1_000).chain([tombstone(5)]);
        let mut cells: Vec<Cell> = tombstones.chain([put]).collect();
        if let Some(filter) = selection.pushdown(&schema) {
            let filter = filter.compile(&schema).unwrap();
            cells = filter.apply(b"r", cells, &mut || 0.5).unwrap();
        }
        selection.apply(&schema, &mut cells);
        let of_family = cells.iter().filter(|cell| cell.family == FamilyId(1));
        let found: Vec<_> = of_family.map(|cell| (cell.kind, cell.timestamp.0)).collect();
        let delete = CellKind::DeleteFamily;
        assert_eq!(found, [(delete, 9), (delete, 5), (CellKind::Put, 4)]);
        assert_eq!(cells.len(), 2 * families + 1);
    }
}

/// It counts instead of the range of the read, and families that do not exist have no cells.
#[test]
fn a_familys_range_of_all_times_counts() {
    let schema = Model::new(&[""]).schema.clone();
    let range = |from: u64, to: u64| TimeRange {
        from: Some(from),
        to: Some(to),
    };
    let of = |family: &'static str| FamilyTimeRange {
        column_family: family.into(),
        time_range: range(0, i64::MAX as u64),
    };
    let general = range(100, 200);
    let wanted = Wanted {
        times: Some(&general),
        family_times: &[of("info"), of("absent")],
        ..Wanted::whole_row()
    };
    let selection = Selection::new(&schema, &wanted).ok().unwrap();
    let in_family = |family: u32| Cell::put(FamilyId(family), Bytes::new(), Timestamp(5), Bytes::new());
    let mut cells = vec![in_family(1), in_family(2)];
    selection.apply(&schema, &mut cells);
    let families: Vec<u32> = cells.iter().map(|cell| cell.family.0).collect();
    assert_eq!(families, [1]);
}

/// HBase goes on to the next column at the first version too many.
#[test]
fn a_raw_scan_leaves_out_tombstones_behind_its_versions() {
    let schema = Model::new(&[""]).schema.clone();
    let (put, delete, family) = (CellKind::Put, CellKind::DeleteVersion, CellKind::DeleteFamily);
    let all = [
        ("a", put, 5),
        ("a", put, 3),
        ("a", delete, 2),
        ("b", delete, 9),
        ("b", put, 5),
        ("b", delete, 4),
        ("b", put, 3),
        ("b", delete, 2),
        ("c", delete, 2),
        ("c", put, 1),
        // Deletes of a family are of the column without a name.
        ("", family, 9),
        ("", put, 5),
        ("", put, 3),
        ("", family, 2),
    ];
    let kept = |versions| {
        let wanted = Wanted {
            versions: Some(versions),
            raw: true,
            ..Wanted::whole_row()
        };
        let selection = Selection::new(&schema, &wanted).expect("of all columns");
        let cell = |(qualifier, kind, time): (&'static str, CellKind, i64)| Cell {
            kind,
            ..Cell::put(FamilyId(1), qualifier.into(), Timestamp(time), Bytes::new())
        };
        let mut cells: Vec<Cell> = all.into_iter().map(cell).collect();
        selection.apply(&schema, &mut cells);
        let name = |cell: &Cell| format!("{}{}", cell.qualifier.escape_ascii(), cell.timestamp.0);
        cells.iter().map(name).collect::<Vec<String>>().join(" ")
    };
    assert_eq!(kept(1), "9 5 a5 b9 b5 b4 c2 c1");
    assert_eq!(kept(2), "9 5 3 2 a5 a3 a2 b9 b5 b4 b3 b2 c2 c1");
}

/// Other families offer a filter all versions that their table keeps.
#[test]
fn a_filter_sees_the_versions_of_the_read_where_deletes_act_by_sequence() {
    let mut schema = TableSchema::clone(&with_families(2, KeepDeleted::No));
    for (family, rule) in [(1, DeleteRule::ByTimestamp), (2, DeleteRule::BySequence)] {
        if let Some(family) = schema.families.get_mut(&FamilyId(family)) {
            family.deletes.rule = Some(rule);
        }
    }
    let offered = |versions| {
        let wanted = Wanted {
            versions: Some(versions),
            ..Wanted::whole_row()
        };
        let mut selection = Selection::new(&schema, &wanted).expect("of all columns");
        selection.is_filtered = true;
        let of = |family, time| Cell::put(FamilyId(family), "q".into(), Timestamp(time), Bytes::new());
        let mut cells = vec![of(1, 5), of(1, 4), of(1, 3), of(2, 5), of(2, 4), of(2, 3)];
        selection.apply(&schema, &mut cells);
        let of_family = |family| cells.iter().filter(|cell| cell.family == FamilyId(family)).count();
        [of_family(1), of_family(2)]
    };
    assert_eq!(offered(1), [3, 1]);
    assert_eq!(offered(2), [3, 2]);
    assert_eq!(offered(i32::MAX as u32), [3, 3]);
}

/// HBase checks the families of a scan before it opens them.
#[test]
fn a_raw_scan_of_a_column_of_an_absent_family_lacks_the_family() {
    let schema = Model::new(&[""]).schema.clone();
    for (family, class) in [("absent", exception::NO_SUCH_FAMILY), ("info", exception::DO_NOT_RETRY)] {
        let columns = [Column {
            family: family.into(),
            qualifier: vec!["q".into()],
        }];
        let wanted = Wanted {
            columns: &columns,
            raw: true,
            ..Wanted::whole_row()
        };
        let refused = Selection::new(&schema, &wanted).err();
        assert_eq!(refused.map(|failure| failure.class), Some(class), "{family}");
    }
}
