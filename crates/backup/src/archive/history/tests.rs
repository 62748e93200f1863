use super::*;
use crate::archive::format::Barrier;
use stele_catalog::record::encode_table;
use stele_types::TableName;

const TABLE: u64 = 7;

fn schema(version: u64) -> TableSchema {
    TableSchema {
        version,
        ..TableSchema::new(TableId(TABLE), TableName::new("space", "t"))
    }
}

fn change(at_micros: i64, version: u64, set: u64, tablets: &[u64]) -> TableChange {
    TableChange {
        at_micros,
        table: TABLE,
        record: encode_table(&schema(version), TableId(set)).to_vec(),
        tablets: tablets.to_vec(),
    }
}

fn gone(at_micros: i64) -> TableChange {
    TableChange {
        at_micros,
        table: TABLE,
        ..TableChange::default()
    }
}

/// The table followed to a moment; the backup was begun at 100.
fn followed(moment: i64, parts: &[Part]) -> History {
    let mut history = History::new((schema(1), TableId(TABLE)), (100, 100), [1, 2], moment);
    for part in parts {
        history.begin_part(part);
        // One by one, as if each were in a piece of its own.
        for change in &part.changes {
            history.apply(part, std::slice::from_ref(change)).unwrap();
        }
        history.end_part(part).unwrap();
    }
    history
}

/// The version of the table and the first moment at which it is not known, for a moment.
fn at(moment: i64, parts: &[Part]) -> (u64, Option<i64>) {
    let history = followed(moment, parts);
    (history.schema().version, history.end().map(|end| end.micros))
}

fn part(changes: Vec<TableChange>) -> Part {
    Part {
        number: 2,
        range_first: 1,
        from_micros: 200,
        changes,
        ..Part::default()
    }
}

#[test]
fn changes_count_from_their_moment_on() {
    let parts = [part(vec![
        change(50, 9, TABLE, &[]),
        change(150, 2, TABLE, &[3]),
        change(250, 3, TABLE, &[]),
    ])];
    assert_eq!(
        [120, 150, 249, 250].map(|moment| at(moment, &parts)),
        [(1, None), (2, None), (2, None), (3, None)]
    );
    let replaced = [part(vec![change(150, 2, 8, &[3])])];
    assert_eq!(
        [149, 150].map(|moment| at(moment, &replaced)),
        [(1, None), (2, Some(150))]
    );
    let deleted = [part(vec![gone(150)])];
    assert_eq!(
        [149, 150].map(|moment| at(moment, &deleted)),
        [(1, None), (1, Some(150))]
    );
}

#[test]
fn barriers_of_its_tablets_end_what_is_known() {
    let barrier = |at_micros, tablet| Barrier {
        at_micros,
        tablet,
        cause: 1,
    };
    let parts = [Part {
        barriers: vec![barrier(90, 1), barrier(150, 9), barrier(160, 3)],
        ..part(vec![change(140, 2, TABLE, &[3])])
    }];
    assert_eq!([159, 160].map(|moment| at(moment, &parts)), [(2, None), (2, Some(160))]);
}

/// Rows of it were dropped or replaced before. In the second part the barrier comes after the deletion.
#[test]
fn a_deleted_table_is_deleted_whatever_happened_before() {
    let barrier = Barrier {
        at_micros: 150,
        tablet: 1,
        cause: 1,
    };
    let barred = |changes| Part {
        barriers: vec![barrier],
        ..part(changes)
    };
    let dropped = [barred(Vec::new()), part(vec![gone(180)])];
    let in_one_part = [barred(vec![gone(180)])];
    let replaced = [part(vec![change(150, 2, 8, &[3]), gone(180)])];
    for parts in [&dropped[..], &in_one_part, &replaced] {
        let end = |moment| {
            followed(moment, parts)
                .end()
                .cloned()
                .map(|end| (end.micros, end.is_deleted))
        };
        assert_eq!(
            [149, 179, 180].map(end),
            [None, Some((150, false)), Some((150, true))],
            "{parts:?}"
        );
    }
}

/// A server began at 300, and the part before ended at 200.
#[test]
fn what_a_start_finds_has_no_moment_before() {
    let stated = |changes| {
        [Part {
            restated_micros: 300,
            ..part(changes)
        }]
    };
    let same = stated(vec![change(300, 1, TABLE, &[1, 2]), change(400, 2, TABLE, &[])]);
    assert_eq!(
        [250, 399, 400].map(|moment| at(moment, &same)),
        [(1, None), (1, None), (2, None)]
    );
    let other = stated(vec![change(300, 2, TABLE, &[1, 2])]);
    assert_eq!(
        [199, 200, 299, 300].map(|moment| at(moment, &other)),
        [(1, None), (1, Some(200)), (1, Some(200)), (2, None)]
    );
    let missing = stated(Vec::new());
    assert_eq!(
        [199, 250, 300].map(|moment| at(moment, &missing)),
        [(1, None), (1, Some(200)), (1, Some(300))]
    );
}

/// In a cluster a table may be truncated and split while the backup has not come to it yet.
#[test]
fn changes_before_the_snapshot_of_the_table_are_in_the_backup() {
    let mut history = History::new((schema(1), TableId(TABLE)), (100, 50), [1, 2], 300);
    let part = part(vec![change(60, 2, TABLE + 1, &[7, 8])]);
    history.begin_part(&part);
    history.apply(&part, &part.changes).unwrap();
    history.end_part(&part).unwrap();
    assert_eq!(history.end(), None);
    assert_eq!(history.schema(), &schema(1));
    assert!(!history.tablets().contains(&7), "they were of the rows that are gone");
}
