//! Options of families: effects of deletes, kept deleted cells, lifetimes of single cells.

use super::{put, schema, tablet, write, write_row};
use crate::Tablet;
use crate::scan::{ScanSpec, TabletScanner};
use bytes::Bytes;
use std::sync::Arc;
use stele_filter::Filter;
use stele_types::{
    Cell, CellKind, DeleteRule, Deletes, FamilyId, GcRule, KeepDeleted, Mutation, RowSet, TableSchema, Timestamp,
    lifetime,
};

const SECOND: i64 = 1_000_000;

fn with_deletes(rule: DeleteRule, gc_rule: Option<GcRule>, deletes: Deletes) -> Arc<TableSchema> {
    let mut schema = TableSchema::clone(&schema(rule, gc_rule));
    schema.families.get_mut(&FamilyId(1)).unwrap().deletes = deletes;
    Arc::new(schema)
}

fn keeping(keep: KeepDeleted) -> Deletes {
    Deletes { rule: None, keep }
}

fn delete_to(to: i64) -> Mutation {
    Mutation::DeleteColumn {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        from: Timestamp::MIN,
        to: Timestamp(to),
    }
}

fn delete_version(timestamp: i64) -> Mutation {
    Mutation::DeleteVersion {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(timestamp),
    }
}

fn expiring(timestamp: i64, lifetime_ms: i64, value: &[u8]) -> Mutation {
    Mutation::ExpiringPut {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(timestamp),
        stored: lifetime::stored(lifetime_ms, value),
    }
}

async fn cells(tablet: &Arc<Tablet>, filter: Option<Filter>, raw: bool) -> Vec<Cell> {
    let filter = filter.map(|filter| Arc::new(filter).compile_shared(&tablet.schema()).unwrap());
    let spec = ScanSpec {
        rows: RowSet::all(),
        filter,
        reversed: false,
        raw,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let mut found = Vec::new();
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        for (_, cells) in batch.rows() {
            found.extend_from_slice(cells);
        }
    }
    found
}

fn text(cells: &[Cell]) -> String {
    let text = cells.iter().map(|cell| match cell.kind {
        CellKind::Put => format!("{}={}", cell.timestamp, cell.value.escape_ascii()),
        kind => format!("{}/{kind:?}", cell.timestamp),
    });
    text.collect::<Vec<_>>().join(" ")
}

async fn now(tablet: &Arc<Tablet>) -> String {
    text(&cells(tablet, None, false).await)
}

async fn raw(tablet: &Arc<Tablet>) -> String {
    text(&cells(tablet, None, true).await)
}

/// As HBase reads with an end of the time range.
async fn before(tablet: &Arc<Tablet>, end: i64) -> String {
    let filter = Filter::Chain(vec![
        Filter::FamiliesBefore(vec![(FamilyId(1), Timestamp(end))]),
        Filter::TimestampRange {
            start: 0,
            end: Some(end),
        },
    ]);
    text(&cells(tablet, Some(filter), false).await)
}

#[tokio::test]
async fn a_deleted_cell_is_kept_for_reads_of_the_past() {
    for rule in [DeleteRule::BySequence, DeleteRule::ByTimestamp] {
        let kept = with_deletes(rule, Some(GcRule::MaxVersions(3)), keeping(KeepDeleted::Yes));
        let tablet = tablet(kept).await;
        write(&tablet, vec![put(1, "one"), put(3, "three")]);
        write(&tablet, vec![delete_to(5)]);
        for step in 0..4 {
            match step {
                1 => drop(tablet.flush().await.unwrap()),
                2 | 3 => tablet.compact_all().await.unwrap(),
                _ => {}
            }
            assert_eq!(now(&tablet).await, "", "{rule:?}, step {step}");
            assert_eq!(before(&tablet, 5).await, "3=three 1=one", "{rule:?}, step {step}");
            assert_eq!(before(&tablet, 6).await, "", "{rule:?}, step {step}");
            assert_eq!(
                raw(&tablet).await,
                "5/DeleteColumn 3=three 1=one",
                "{rule:?}, step {step}"
            );
        }
    }
}

#[tokio::test]
async fn families_that_keep_nothing_do_not_see_past_deletes() {
    let tablet = tablet(schema(DeleteRule::ByTimestamp, None)).await;
    write(&tablet, vec![put(1, "one"), delete_to(5)]);
    assert_eq!(before(&tablet, 5).await, "");
    tablet.compact_all().await.unwrap();
    assert_eq!(raw(&tablet).await, "");
}

#[tokio::test]
async fn versions_that_are_hidden_do_not_take_the_places_of_visible_ones() {
    let rule = Some(GcRule::MaxVersions(2));
    let tablet = tablet(with_deletes(DeleteRule::ByTimestamp, rule, keeping(KeepDeleted::Yes))).await;
    write(&tablet, (1..=8).map(|at| put(at, "v")).collect());
    write(
        &tablet,
        vec![
            delete_version(8),
            delete_version(7),
            delete_version(5),
            delete_version(4),
        ],
    );
    assert_eq!(now(&tablet).await, "6=v 3=v");
    tablet.compact_all().await.unwrap();
    assert_eq!(now(&tablet).await, "6=v 3=v");
    assert_eq!(
        raw(&tablet).await,
        "8/DeleteVersion 8=v 7/DeleteVersion 7=v 6=v 3=v",
        "two visible versions, and the hidden ones among the first two of all"
    );
    assert_eq!(
        before(&tablet, 8).await,
        "6=v 3=v",
        "a delete of a version has the version's time"
    );
}

#[tokio::test]
async fn deleted_cells_go_when_their_tombstone_is_old() {
    let now_micros = tablet(schema(DeleteRule::ByTimestamp, None)).await.env().wall_micros();
    let minute = KeepDeleted::For(60 * SECOND);
    let spared = GcRule::Intersection(vec![GcRule::MaxAgeMicros(60 * SECOND), GcRule::MaxVersions(2)]);
    let tablet = tablet(with_deletes(DeleteRule::ByTimestamp, Some(spared), keeping(minute))).await;
    let (young, old) = (now_micros - 10 * SECOND, now_micros - 600 * SECOND);
    write(&tablet, vec![put(old, "old"), delete_version(old)]);
    write(&tablet, vec![put(young, "young"), delete_version(young)]);
    tablet.flush().await.unwrap();
    tablet.compact_all().await.unwrap();
    assert_eq!(raw(&tablet).await, format!("{young}/DeleteVersion {young}=young"));
}

#[tokio::test]
async fn a_tombstone_goes_with_the_age_that_its_rule_allows() {
    let rule = Some(GcRule::MaxAgeMicros(60 * SECOND));
    let tablet = tablet(with_deletes(DeleteRule::ByTimestamp, rule, keeping(KeepDeleted::Yes))).await;
    write(&tablet, vec![put(1, "v"), delete_to(5)]);
    tablet.compact_all().await.unwrap();
    assert_eq!(raw(&tablet).await, "");
}

#[tokio::test]
async fn a_tombstone_of_a_row_stays_where_deleted_cells_are_kept() {
    for rule in [DeleteRule::BySequence, DeleteRule::ByTimestamp] {
        let tablet = tablet(with_deletes(rule, None, keeping(KeepDeleted::Yes))).await;
        write(&tablet, vec![put(1, "v"), Mutation::DeleteRow { up_to: Timestamp(2) }]);
        for _ in 0..2 {
            tablet.compact_all().await.unwrap();
            assert_eq!(now(&tablet).await, "", "{rule:?}");
            assert_eq!(raw(&tablet).await, "2/DeleteRow 1=v", "{rule:?}");
        }
    }
}

fn endless() -> [Mutation; 3] {
    let (family, up_to) = (FamilyId(1), Timestamp::MAX);
    [
        Mutation::DeleteRow { up_to },
        Mutation::DeleteFamily { family, up_to },
        delete_to(up_to.0),
    ]
}

#[tokio::test]
async fn a_tombstone_without_an_end_spares_later_writes_when_the_rule_is_altered() {
    for delete in endless() {
        let tablet = tablet(with_deletes(DeleteRule::BySequence, None, Deletes::default())).await;
        write(&tablet, vec![put(1, "before"), put(2, "before")]);
        write(&tablet, vec![delete.clone()]);
        let own = Deletes {
            rule: Some(DeleteRule::ByTimestamp),
            keep: KeepDeleted::No,
        };
        tablet.set_schema(with_deletes(DeleteRule::BySequence, None, own));
        write(&tablet, vec![put(2, "after"), put(3, "deleted")]);
        write(&tablet, vec![delete_version(3)]);
        for step in 0..4 {
            match step {
                1 => drop(tablet.flush().await.unwrap()),
                2 | 3 => tablet.compact_all().await.unwrap(),
                _ => {}
            }
            assert_eq!(now(&tablet).await, "2=after", "{delete:?}, step {step}");
        }
        assert_eq!(raw(&tablet).await, "2=after", "{delete:?}");
    }
}

/// The delete of the version is below that without an end, and hides a put above it.
#[tokio::test]
async fn a_version_stays_deleted_by_timestamp_above_a_tombstone_without_an_end() {
    let tablet = tablet(schema(DeleteRule::ByTimestamp, None)).await;
    write(&tablet, vec![put(1, "first"), delete_version(1)]);
    write(&tablet, vec![put(1, "second")]);
    write(&tablet, vec![delete_to(i64::MAX)]);
    tablet.flush().await.unwrap();
    assert_eq!(now(&tablet).await, "");
    write(&tablet, vec![put(1, "third"), put(2, "there")]);
    assert_eq!(now(&tablet).await, "2=there");
    tablet.flush().await.unwrap();
    assert_eq!(now(&tablet).await, "2=there");
    tablet.compact_all().await.unwrap();
    assert_eq!(raw(&tablet).await, "2=there");
}

#[tokio::test]
async fn cells_that_were_deleted_before_a_family_kept_such_cells_stay_deleted() {
    for delete in endless() {
        let tablet = tablet(with_deletes(DeleteRule::BySequence, None, Deletes::default())).await;
        write(&tablet, vec![put(1, "before"), delete.clone()]);
        tablet.set_schema(with_deletes(DeleteRule::BySequence, None, keeping(KeepDeleted::Yes)));
        write(&tablet, vec![put(2, "after"), delete_to(4)]);
        for step in 0..4 {
            match step {
                1 => drop(tablet.flush().await.unwrap()),
                2 | 3 => tablet.compact_all().await.unwrap(),
                _ => {}
            }
            // A tombstone of a row acts on every read.
            assert_eq!(before(&tablet, 4).await, "2=after", "{delete:?}, step {step}");
            assert_eq!(now(&tablet).await, "", "{delete:?}, step {step}");
        }
        assert_eq!(raw(&tablet).await, "4/DeleteColumn 2=after", "{delete:?}");
    }
}

#[tokio::test]
async fn a_family_has_a_delete_rule_of_its_own() {
    for (table, own) in [
        (DeleteRule::ByTimestamp, DeleteRule::BySequence),
        (DeleteRule::BySequence, DeleteRule::ByTimestamp),
    ] {
        let deletes = Deletes {
            rule: Some(own),
            keep: KeepDeleted::No,
        };
        let mut both = TableSchema::clone(&with_deletes(table, None, deletes));
        let second = stele_types::Family {
            name: "g".to_owned(),
            deletes: Deletes::default(),
            ..both.families[&FamilyId(1)].clone()
        };
        both.families.insert(FamilyId(2), second);
        both.next_family = FamilyId(3);
        let tablet = tablet(Arc::new(both)).await;
        let in_second = |value: &'static str| Mutation::Put {
            family: FamilyId(2),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(1),
            value: Bytes::from_static(value.as_bytes()),
        };
        let delete = |family| Mutation::DeleteFamily {
            family: FamilyId(family),
            up_to: Timestamp(5),
        };
        write(&tablet, vec![put(1, "f before"), in_second("g before")]);
        write(&tablet, vec![delete(1), delete(2)]);
        write(&tablet, vec![put(1, "f after"), in_second("g after")]);
        let expected = match own {
            DeleteRule::BySequence => "1=f after",
            DeleteRule::ByTimestamp => "1=g after",
        };
        assert_eq!(now(&tablet).await, expected, "{table:?}");
        tablet.flush().await.unwrap();
        assert_eq!(now(&tablet).await, expected, "{table:?}, flushed");
        tablet.compact_all().await.unwrap();
        assert_eq!(
            (now(&tablet).await, raw(&tablet).await),
            (expected.to_owned(), expected.to_owned())
        );
    }
}

#[tokio::test]
async fn a_cell_expires_by_itself() {
    for rule in [DeleteRule::BySequence, DeleteRule::ByTimestamp] {
        let tablet = tablet(schema(rule, Some(GcRule::MaxVersions(1)))).await;
        let now_micros = tablet.env().wall_micros();
        let (early, late) = (now_micros - 20 * SECOND, now_micros - 10 * SECOND);
        write(&tablet, vec![expiring(early, 3_600_000, b"alive")]);
        let alive = format!("{early}=alive");
        assert_eq!(now(&tablet).await, alive);
        write(&tablet, vec![expiring(late, 5_000, b"gone")]);
        for step in 0..3 {
            match step {
                1 => drop(tablet.flush().await.unwrap()),
                2 => tablet.compact_all().await.unwrap(),
                _ => {}
            }
            assert_eq!(now(&tablet).await, alive, "{rule:?}, step {step}");
            let got = tablet.get_row(b"r", None).unwrap().unwrap();
            assert_eq!(text(got.rows().next().unwrap().1), alive, "{rule:?}, step {step}");
            assert!(got.unstable, "time alone changes the result");
        }
        assert_eq!(raw(&tablet).await, alive, "{rule:?}: the other is compacted away");
    }
}

/// A restore writes the log of a later time into the table, which may delete the newest version.
#[tokio::test]
async fn an_unfinished_table_keeps_all_versions_and_tombstones() {
    for rule in [DeleteRule::BySequence, DeleteRule::ByTimestamp] {
        let whole = schema(rule, Some(GcRule::MaxVersions(1)));
        let mut unfinished = TableSchema::clone(&whole);
        (unfinished.enabled, unfinished.restoring) = (false, Some("restore".to_owned()));
        let tablet = tablet(Arc::new(unfinished)).await;
        for version in 1..4 {
            write(&tablet, vec![put(version, "v")]);
            tablet.flush().await.unwrap();
        }
        write(&tablet, vec![delete_to(1)]);
        tablet.compact_all().await.unwrap();
        let again = tablet.compact_next().await.unwrap();
        assert!(again.is_none(), "what it keeps is no reason to compact: {again:?}");
        write(&tablet, vec![delete_version(3)]);
        let complete = TableSchema {
            version: whole.version + 1,
            ..TableSchema::clone(&whole)
        };
        tablet.set_schema(Arc::new(complete));
        assert_eq!(now(&tablet).await, "2=v", "{rule:?}");
        tablet.compact_all().await.unwrap();
        assert_eq!(raw(&tablet).await, "2=v", "{rule:?}: garbage goes afterwards");
    }
}

/// The value below was overwritten, and does not come back.
#[tokio::test]
async fn a_cell_that_has_expired_still_replaces_its_version() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    write(&tablet, vec![put(1, "older")]);
    tablet.flush().await.unwrap();
    write(&tablet, vec![expiring(1, 1, b"newer")]);
    tablet.flush().await.unwrap();
    assert_eq!(now(&tablet).await, "");
    tablet.compact_all().await.unwrap();
    assert_eq!(raw(&tablet).await, "");
}

#[tokio::test]
async fn a_deleted_cell_expires_where_it_is_kept() {
    let tablet = tablet(with_deletes(DeleteRule::ByTimestamp, None, keeping(KeepDeleted::Yes))).await;
    let hour = 3_600_000;
    let now_micros = tablet.env().wall_micros();
    write(
        &tablet,
        vec![expiring(1, 1, b"gone"), expiring(now_micros, hour, b"there")],
    );
    write(&tablet, vec![delete_version(now_micros)]);
    tablet.compact_all().await.unwrap();
    assert_eq!(
        raw(&tablet).await,
        format!("{now_micros}/DeleteVersion {now_micros}=there")
    );
    assert_eq!(now(&tablet).await, "");
}

/// The rows of one column after the first are read in a shorter way.
#[tokio::test]
async fn all_rows_of_a_column_are_cut_in_time_alike() {
    let deletes = Deletes {
        rule: Some(DeleteRule::BySequence),
        keep: KeepDeleted::Yes,
    };
    let tablet = tablet(with_deletes(
        DeleteRule::ByTimestamp,
        Some(GcRule::MaxVersions(1)),
        deletes,
    ))
    .await;
    write_row(&tablet, "0".into(), vec![delete_to(1)]);
    tablet.flush().await.unwrap();
    for (at, value) in [(100, "old"), (200, "new")] {
        for row in ["1", "2", "3"] {
            write_row(&tablet, row.into(), vec![put(at, value)]);
        }
    }
    let filter = Filter::FamiliesBefore(vec![(FamilyId(1), Timestamp(150))]);
    let in_memory = text(&cells(&tablet, Some(filter.clone()), false).await);
    tablet.flush().await.unwrap();
    let in_files = text(&cells(&tablet, Some(filter), false).await);
    assert_eq!([in_memory, in_files], ["100=old 100=old 100=old"; 2]);
}
