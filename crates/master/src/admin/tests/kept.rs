//! Tables that are kept after they were deleted, and before drops.

use super::*;
use crate::kept::kept_in;
use stele_client::{NewSnapshot, SnapshotName, TableAdmin};
use stele_types::{AccessRule, Kept, Member, Resource, Rights};

const GRACE: Duration = Duration::from_secs(3600);

fn name() -> TableName {
    TableName::new("n", "t")
}

async fn with_table() -> (Arc<Unsure>, Arc<Noting>, Arc<Master>) {
    let (coord, _, tablets, master) = unsure(false).await;
    let with_family = NewTable {
        families: vec![new_family()],
        ..new_table(&name())
    };
    master.create_table(with_family).await.unwrap();
    master.keep_deleted_for(GRACE);
    (coord, tablets, master)
}

async fn kept(master: &Master) -> Vec<(String, Kept)> {
    let found = master.kept_tables(Some("n")).await.unwrap();
    found
        .iter()
        .map(|info| (info.schema.name.table.clone(), info.kept.unwrap()))
        .collect()
}

#[tokio::test]
async fn a_deleted_table_comes_back_with_its_families_and_rules() {
    let (_, tablets, master) = with_table().await;
    let rule = AccessRule::whole(Member::User("u".into()), Rights::READ);
    let resource = Resource::Table(name());
    master
        .catalog
        .set_rules(&resource, vec![rule.clone()], None)
        .await
        .unwrap();
    let before = master.entry(&name()).unwrap().schema.clone();
    master.delete_table(&name()).await.unwrap();
    assert!(master.entry(&name()).is_err() && master.catalog.view().access.is_empty());
    assert_eq!(kept(&master).await, [("t".to_owned(), Kept::DeletedTable)]);
    assert!(
        master.list_snapshots(None).await.unwrap().is_empty(),
        "it is none that a client has taken"
    );
    let made = master.undelete_table(&name()).await.unwrap();
    assert_eq!(made.families, before.families);
    assert_ne!(made.id, before.id);
    assert_eq!(master.catalog.view().access[&resource].rules[..], [rule]);
    assert!(kept(&master).await.is_empty() && tablets.snapshots.lock().is_empty());
    let again = master.undelete_table(&name()).await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::AlreadyExists);
    let never = master.undelete_table(&TableName::new("n", "u")).await.unwrap_err();
    assert_eq!(never.kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn the_last_of_a_name_comes_back_and_outlives_its_namespace() {
    let (_, _, master) = with_table().await;
    master.delete_table(&name()).await.unwrap();
    master.create_table(new_table(&name())).await.unwrap();
    master.delete_namespace("n", false).await.unwrap();
    assert_eq!(kept(&master).await.len(), 2);
    let made = master.undelete_table(&name()).await.unwrap();
    assert!(made.families.is_empty(), "the second one had none");
    assert!(master.catalog.view().namespaces.contains_key("n"));
    assert_eq!(kept(&master).await.len(), 1, "the first one is still kept");
}

/// Another instance that gets the name has nothing of the former one, whichever way its first table is made.
#[tokio::test]
async fn what_is_kept_is_given_up_only_when_its_namespace_is_made_again() {
    let (_, _, master) = with_table().await;
    let other = TableName::new("m", "t");
    master.create_table(new_table(&other)).await.unwrap();
    let taken = NewSnapshot {
        name: SnapshotName::new("m", "s"),
        table: other,
        flush: true,
        only_of_name: false,
        expires_micros: None,
        front_end_data: Vec::new(),
    };
    master.create_snapshot(taken).await.unwrap();
    master.delete_namespace("n", false).await.unwrap();
    let refused = NewTable {
        initial_splits: vec![Bytes::from(vec![b'r'; 40_000])],
        ..new_table(&name())
    };
    master.create_table(refused).await.unwrap_err();
    let twice = NewTable {
        families: vec![new_family(), new_family()],
        ..new_table(&name())
    };
    master.create_table(twice).await.unwrap_err();
    assert_eq!(kept(&master).await.len(), 1, "refused calls give nothing up");
    let restored = TableName::new("n", "u");
    let made = master
        .clone_snapshot(&SnapshotName::new("m", "s"), &restored, None)
        .await;
    made.unwrap();
    assert!(kept(&master).await.is_empty());
}

#[tokio::test]
async fn drops_keep_the_table_as_it_was() {
    let (_, tablets, master) = with_table().await;
    master
        .drop_row_range(&name(), RowRange::prefix(&Bytes::from_static(b"a")))
        .await
        .unwrap();
    let drop = vec![FamilyChange::Drop { name: "f".to_owned() }];
    master.modify_families(&name(), drop).await.unwrap();
    master.truncate(&name(), true).await.unwrap();
    let events: Vec<Kept> = kept(&master).await.into_iter().map(|(_, event)| event).collect();
    assert_eq!(events, [Kept::DroppedRows, Kept::DroppedFamilies, Kept::Truncated]);
    let found = master.kept_tables(Some("n")).await.unwrap();
    let families: Vec<usize> = found.iter().map(|info| info.schema.families.len()).collect();
    assert_eq!(families, [1, 1, 0], "as before each of them");
    let cloned = master
        .clone_snapshot(&found[1].name, &TableName::new("n", "old"), None)
        .await;
    assert_eq!(cloned.unwrap().families.len(), 1);
    for _ in 0..20 {
        master.drop_row_range(&name(), RowRange::all()).await.unwrap();
    }
    assert_eq!(kept(&master).await.len(), 8, "the oldest ones are given up");
    assert_eq!(tablets.snapshots.lock().len(), 8);
}

#[tokio::test]
async fn nothing_is_kept_without_a_grace_or_for_want_of_space() {
    let (_, tablets, master) = with_table().await;
    master.keep_deleted_for(Duration::ZERO);
    master.drop_row_range(&name(), RowRange::all()).await.unwrap();
    assert!(kept(&master).await.is_empty());
    master.keep_deleted_for(GRACE);
    master.drop_row_range(&name(), RowRange::all()).await.unwrap();
    tablets.is_full.store(true, Ordering::Relaxed);
    master.delete_table(&name()).await.unwrap();
    assert_eq!(kept(&master).await, [("t".to_owned(), Kept::DroppedRows)]);
    assert_eq!(master.give_up_kept().await.unwrap(), 1);
    assert_eq!(master.give_up_kept().await.unwrap(), 0);
    assert!(kept(&master).await.is_empty() && tablets.snapshots.lock().is_empty());
}

/// A table whose files cannot be listed can be deleted all the same.
#[tokio::test]
async fn a_table_that_cannot_be_kept_is_deleted() {
    let (_, tablets, master) = with_table().await;
    tablets.takes_no_snapshots.store(true, Ordering::Relaxed);
    master.delete_table(&name()).await.unwrap();
    assert!(kept(&master).await.is_empty() && master.entry(&name()).is_err());
}

/// Tables that were kept before stay, and the deletion frees space.
#[tokio::test]
async fn a_full_catalog_keeps_nothing_more_and_no_table_from_being_deleted() {
    let (coord, tablets, master) = with_table().await;
    master.drop_row_range(&name(), RowRange::all()).await.unwrap();
    coord.is_full.store(true, Ordering::Relaxed);
    master.drop_row_range(&name(), RowRange::all()).await.unwrap();
    master.delete_table(&name()).await.unwrap();
    assert!(master.entry(&name()).is_err());
    assert_eq!(kept(&master).await, [("t".to_owned(), Kept::DroppedRows)]);
    assert_eq!(
        tablets.snapshots.lock().len(),
        1,
        "the files of the others are given up"
    );
}

/// Table and rules are one change: after one of unknown outcome both are there.
#[tokio::test]
async fn an_undeletion_of_unknown_outcome_brings_the_rules_with_the_table() {
    let (coord, _, _, master) = unsure(true).await;
    master.create_table(new_table(&name())).await.unwrap();
    master.keep_deleted_for(GRACE);
    let rule = AccessRule::whole(Member::User("u".into()), Rights::READ);
    let resource = Resource::Table(name());
    let rules = vec![rule.clone()];
    master.catalog.set_rules(&resource, rules, None).await.unwrap();
    master.delete_table(&name()).await.unwrap();
    coord.fails.store(true, Ordering::Relaxed);
    master.undelete_table(&name()).await.unwrap_err();
    assert!(master.entry(&name()).is_err());
    coord.fails.store(false, Ordering::Relaxed);
    master.settle().await;
    assert!(master.entry(&name()).is_ok());
    assert_eq!(master.catalog.view().access[&resource].rules[..], [rule]);
}

/// The snapshot is there and the deletion is not: the table is not shown as deleted.
#[tokio::test]
async fn a_deletion_that_did_not_happen_is_not_shown() {
    let (_, _, master) = with_table().await;
    let entry = master.entry(&name()).unwrap();
    master.keep(&entry, Kept::DeletedTable).await.unwrap();
    assert!(kept(&master).await.is_empty());
    assert_eq!(
        master.undelete_table(&name()).await.unwrap_err().kind,
        ErrorKind::AlreadyExists
    );
}

#[tokio::test]
async fn kept_tables_expire() {
    let (_, tablets, master) = with_table().await;
    master.keep_deleted_for(Duration::from_millis(30));
    master.delete_table(&name()).await.unwrap();
    assert_eq!(kept(&master).await.len(), 1);
    master.env.sleep(Duration::from_millis(50)).await;
    assert_eq!(master.delete_expired().await.unwrap(), 1);
    assert!(kept(&master).await.is_empty() && tablets.snapshots.lock().is_empty());
}

/// A repeated call would keep the table once more, without the rows that the first attempt has dropped.
#[tokio::test]
async fn a_drop_that_is_stopped_half_way_keeps_the_table_once() {
    let (_, _, tablets, master) = unsure(false).await;
    let of_two = NewTable {
        initial_splits: vec![Bytes::from_static(b"m")],
        ..new_table(&name())
    };
    master.create_table(of_two).await.unwrap();
    master.keep_deleted_for(GRACE);
    let second = tablets.made.lock()[1];
    tablets.drops_missed.lock().insert(second);
    // As a client does, and a server that searches the leader.
    let dropped = loop {
        match master.drop_row_range(&name(), RowRange::all()).await {
            Err(error) if error.is_retryable() => {}
            dropped => break dropped,
        }
    };
    assert_eq!(dropped.unwrap_err().kind, ErrorKind::Aborted);
    assert_eq!(kept(&master).await, [("t".to_owned(), Kept::DroppedRows)]);
    assert_eq!(tablets.snapshots.lock().len(), 1);
    master.drop_row_range(&name(), RowRange::all()).await.unwrap();
}

/// Nothing was dropped yet, but the table is kept, and the oldest one is still there.
#[tokio::test]
async fn changes_that_end_after_the_table_was_kept_are_not_repeated() {
    let (coord, _, master) = with_table().await;
    for _ in 0..8 {
        master.drop_row_range(&name(), RowRange::all()).await.unwrap();
    }
    *coord.unreachable.lock() = Some(("catalog/snapshot/", true));
    let drop_family = vec![FamilyChange::Drop { name: "f".to_owned() }];
    let dropped = master.modify_families(&name(), drop_family).await.map(drop);
    let truncated = master.truncate(&name(), true).await;
    let deleted = master.delete_table(&name()).await;
    for outcome in [dropped, truncated, deleted] {
        assert_eq!(outcome.unwrap_err().kind, ErrorKind::Aborted);
    }
    *coord.unreachable.lock() = None;
    master.delete_table(&name()).await.unwrap();
}

#[tokio::test]
async fn a_table_is_undeleted_also_if_it_stays_kept() {
    let (coord, _, master) = with_table().await;
    master.delete_table(&name()).await.unwrap();
    *coord.unreachable.lock() = Some(("catalog/snapshot/", true));
    let made = master.undelete_table(&name()).await.unwrap();
    assert_eq!(made.families.len(), 1);
    assert_eq!(kept(&master).await.len(), 1, "until it expires");
}

/// The tables of others stay, however many a namespace has of its own.
#[tokio::test]
async fn a_namespace_pushes_out_its_own_kept_tables() {
    use crate::kept::KEPT_MAX;
    let (_, _, master) = with_table().await;
    let other = TableName::new("m", "t");
    master.create_table(new_table(&other)).await.unwrap();
    master.delete_table(&other).await.unwrap();
    master.delete_table(&name()).await.unwrap();
    let view = master.catalog.view();
    let of_n = view.snapshots.values().find(|entry| entry.name.0 == "n").unwrap();
    for number in 0..KEPT_MAX - 1 {
        let mut entry = stele_catalog::SnapshotEntry::clone(of_n);
        entry.id = stele_types::SnapshotId(1 << 40 | number as u64);
        entry.name.1 = format!("more-{number:04}");
        entry.schema = Arc::new(TableSchema {
            name: TableName::new("n", format!("u{number}")),
            ..TableSchema::clone(&entry.schema)
        });
        master.catalog.create_snapshot(entry).await.unwrap();
    }
    master.create_table(new_table(&TableName::new("k", "t"))).await.unwrap();
    master.delete_table(&TableName::new("k", "t")).await.unwrap();
    let of = |namespace: &str| {
        let all = kept_in(&master.catalog.view(), Some(namespace));
        (all.len(), all.iter().any(|info| info.schema.name.table == "t"))
    };
    assert_eq!((of("m"), of("k")), ((1, true), (1, true)));
    assert_eq!(of("n"), (KEPT_MAX - 1, false), "its oldest is given up");
}
