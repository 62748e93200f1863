//! Snapshots: names, expiry, and records of unknown outcome.

use super::*;
use stele_types::AutomatedBackups;

fn new_snapshot(name: &str) -> NewSnapshot {
    NewSnapshot {
        name: SnapshotName::new("n", name),
        table: TableName::new("n", "t"),
        flush: true,
        only_of_name: false,
        expires_micros: None,
        front_end_data: Vec::new(),
    }
}

async fn with_table(carries_out: bool) -> (Arc<Unsure>, Arc<Noting>, Arc<Master>) {
    let (coord, _, tablets, master) = unsure(carries_out).await;
    master.create_table(new_table(&TableName::new("n", "t"))).await.unwrap();
    (coord, tablets, master)
}

fn kind<T>(result: ServiceResult<T>) -> ErrorKind {
    result.err().expect("refused").kind
}

#[tokio::test]
async fn a_snapshot_has_one_name_and_outlives_its_table() {
    let (_, tablets, master) = with_table(false).await;
    let made = master.create_snapshot(new_snapshot("s")).await.unwrap();
    assert_eq!((made.tablets, made.schema.name.table.as_str()), (1, "t"));
    assert_eq!(tablets.flushed.lock().len(), 1, "flushed before other changes wait");
    let again = master.create_snapshot(new_snapshot("s")).await;
    assert_eq!(kind(again), ErrorKind::AlreadyExists);
    for bad in ["", "a/b", "a b", &"x".repeat(300)] {
        let refused = master.create_snapshot(new_snapshot(bad)).await;
        assert_eq!(kind(refused), ErrorKind::InvalidArgument, "{bad:?}");
    }
    let absent = NewSnapshot {
        table: TableName::new("n", "u"),
        ..new_snapshot("u")
    };
    assert_eq!(kind(master.create_snapshot(absent).await), ErrorKind::NotFound);
    master.delete_table(&TableName::new("n", "t")).await.unwrap();
    let refused = master.delete_namespace("n", false).await;
    assert_eq!(kind(refused), ErrorKind::FailedPrecondition);
    let name = SnapshotName::new("n", "s");
    let cloned = master
        .clone_snapshot(&name, &TableName::new("n", "c"), None)
        .await
        .unwrap();
    assert_ne!(cloned.id, made.schema.id, "a clone is another table");
    let taken = master.clone_snapshot(&name, &TableName::new("n", "c"), None).await;
    assert_eq!(kind(taken), ErrorKind::AlreadyExists);
    master.delete_snapshot(&name).await.unwrap();
    assert!(tablets.snapshots.lock().is_empty(), "its files are given up");
    assert_eq!(kind(master.delete_snapshot(&name).await), ErrorKind::NotFound);
}

/// Given up too early, the files would be missing from a snapshot that the catalog names.
#[tokio::test]
async fn files_of_a_snapshot_of_unknown_outcome_stay_until_it_is_known() {
    for carries_out in [false, true] {
        let (coord, tablets, master) = with_table(carries_out).await;
        coord.fails.store(true, Ordering::Relaxed);
        master.create_snapshot(new_snapshot("s")).await.unwrap_err();
        assert_eq!(tablets.snapshots.lock().len(), 1, "nobody knows whether it exists");
        let other = master.create_snapshot(new_snapshot("other")).await;
        other.unwrap_err();
        assert_eq!(
            tablets.snapshots.lock().len(),
            1,
            "no other is begun before it is known"
        );
        coord.fails.store(false, Ordering::Relaxed);
        master.settle().await;
        let listed = master.list_snapshots(None).await.unwrap().len();
        assert_eq!(listed, usize::from(carries_out));
        assert_eq!(tablets.snapshots.lock().len(), listed);
    }
}

/// The sweep of a cluster waits for snapshots that are being taken. It would wait for ever for one of which it never saw the record.
#[tokio::test]
async fn a_snapshot_is_taken_once_the_catalog_names_it() {
    let (coord, tablets, master) = with_table(true).await;
    master.create_snapshot(new_snapshot("s")).await.unwrap();
    assert!(tablets.taking.lock().is_empty());
    coord.fails.store(true, Ordering::Relaxed);
    let name = SnapshotName::new("n", "s");
    assert!(
        master.delete_snapshot(&name).await.is_err(),
        "it is deleted, and nobody knows"
    );
    master.create_snapshot(new_snapshot("unknown")).await.unwrap_err();
    assert_eq!(tablets.taking.lock().len(), 1, "nobody knows whether it exists");
    coord.fails.store(false, Ordering::Relaxed);
    master.settle().await;
    assert!(tablets.taking.lock().is_empty());
}

#[tokio::test]
async fn a_snapshot_may_ask_to_be_the_only_one_of_its_name() {
    let (_, _, master) = with_table(false).await;
    let other = TableName::new("m", "t");
    master.create_table(new_table(&other)).await.unwrap();
    let of_other = |only_of_name| NewSnapshot {
        name: SnapshotName::new("m", "s"),
        table: TableName::new("m", "t"),
        only_of_name,
        ..new_snapshot("s")
    };
    master.create_snapshot(new_snapshot("s")).await.unwrap();
    let refused = master.create_snapshot(of_other(true)).await;
    assert_eq!(kind(refused), ErrorKind::AlreadyExists);
    master.create_snapshot(of_other(false)).await.unwrap();
}

#[tokio::test]
async fn a_refused_record_leaves_no_files() {
    let (coord, tablets, master) = with_table(false).await;
    coord.is_full.store(true, Ordering::Relaxed);
    master.create_snapshot(new_snapshot("s")).await.unwrap_err();
    assert!(tablets.snapshots.lock().is_empty());
}

#[tokio::test]
async fn expired_snapshots_are_deleted() {
    let (_, tablets, master) = with_table(false).await;
    let now = master.env.wall_micros();
    let past = NewSnapshot {
        expires_micros: Some(now - 1),
        ..new_snapshot("past")
    };
    assert_eq!(kind(master.create_snapshot(past).await), ErrorKind::InvalidArgument);
    let expiring = |name, after| NewSnapshot {
        expires_micros: Some(now + after),
        ..new_snapshot(name)
    };
    master.create_snapshot(expiring("soon", 30_000)).await.unwrap();
    master.create_snapshot(expiring("late", 3_600_000_000)).await.unwrap();
    master.create_snapshot(new_snapshot("never")).await.unwrap();
    master.env.sleep(Duration::from_millis(50)).await;
    assert_eq!(master.delete_expired().await.unwrap(), 1);
    assert_eq!(master.delete_expired().await.unwrap(), 0);
    let left = master.list_snapshots(Some("n")).await.unwrap();
    let names: Vec<&str> = left.iter().map(|snapshot| snapshot.name.name.as_str()).collect();
    assert_eq!(names, ["late", "never"]);
    assert_eq!(tablets.snapshots.lock().len(), 2);
    let update = SnapshotUpdate {
        expires_micros: Some(None),
        front_end_data: Some(b"mine".to_vec()),
    };
    let name = SnapshotName::new("n", "late");
    let updated = master.update_snapshot(&name, update).await.unwrap();
    assert_eq!(
        (updated.expires_micros, &updated.front_end_data[..]),
        (None, &b"mine"[..])
    );
}

#[tokio::test]
async fn a_restore_takes_the_families_of_the_snapshot() {
    let (_, _, master) = with_table(false).await;
    let (table, name) = (TableName::new("n", "t"), SnapshotName::new("n", "s"));
    master.create_snapshot(new_snapshot("s")).await.unwrap();
    let changed = vec![FamilyChange::Create(new_family())];
    let changed = master.modify_families(&table, changed).await.unwrap();
    let restored = master.restore_snapshot(&name, &table).await.unwrap();
    assert!(restored.families.is_empty());
    assert_eq!(restored.id, changed.id);
    assert!(restored.version > changed.version, "a newer schema, not an older one");
    assert_eq!(restored.next_family, changed.next_family, "no number is given twice");
    let protect = TableUpdate {
        deletion_protection: Some(true),
        ..TableUpdate::default()
    };
    master.update_table(&table, protect).await.unwrap();
    let refused = master.restore_snapshot(&name, &table).await;
    assert_eq!(kind(refused), ErrorKind::FailedPrecondition);
}

/// A namespace that takes snapshots on and on leaves places to others, and kept tables take none of them.
#[tokio::test]
async fn a_namespace_has_as_many_snapshots_as_places_are_left() {
    use crate::snapshots::rules::{SNAPSHOTS_MAX, check_place};
    let (_, _, master) = with_table(false).await;
    master.create_snapshot(new_snapshot("s")).await.unwrap();
    let mut view = stele_catalog::CatalogView::clone(&master.catalog.view());
    let (_, first) = view.snapshots.pop_first().unwrap();
    let add = |view: &mut stele_catalog::CatalogView, namespace: &str, kept: Option<stele_types::Kept>| {
        let mut entry = stele_catalog::SnapshotEntry::clone(&first);
        entry.name = (namespace.to_owned(), format!("s{}", view.snapshots.len()));
        entry.kept = kept;
        view.snapshots.insert(entry.name.clone(), Arc::new(entry));
    };
    for _ in 0..1_000 {
        add(&mut view, "n", Some(stele_types::Kept::DroppedRows));
    }
    let mut alone = view.clone();
    for _ in 0..5_000 {
        add(&mut alone, "n", None);
    }
    check_place(&alone, "n").expect("there is no other namespace");
    for namespace in ["m", "k"] {
        view.namespaces.insert(namespace.to_owned(), (Bytes::new(), false));
    }
    let mut most = Vec::new();
    for namespace in ["n", "m", "k"] {
        let mut taken = 0;
        while check_place(&view, namespace).is_ok() && taken < SNAPSHOTS_MAX {
            // In steps, as each check counts all.
            for _ in 0..125 {
                add(&mut view, namespace, None);
            }
            taken += 125;
        }
        most.push(taken);
    }
    assert_eq!(most, [4_500, 3_000, 1_500]);
    let refused = check_place(&view, "n").unwrap_err();
    assert_eq!(refused.kind, ErrorKind::ResourceExhausted);
    assert!(refused.message.contains("there are 9000 snapshots"), "{refused}");
}

#[tokio::test]
async fn no_clone_or_copy_begins_a_namespace_of_the_name_of_the_whole_cluster() {
    let (_, _, master) = with_table(true).await;
    master.create_snapshot(new_snapshot("s")).await.unwrap();
    let (name, table) = (SnapshotName::new("n", "s"), TableName::new("cluster", "t"));
    let copy = SnapshotCopy {
        source: name.clone(),
        name: SnapshotName::new("cluster", "s"),
        expires_micros: None,
        front_end_data: Vec::new(),
    };
    let refused = [
        master.clone_snapshot(&name, &table, None).await.err(),
        master.copy_snapshot(copy.clone()).await.err(),
    ];
    for error in refused {
        let error = error.unwrap();
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
        assert!(error.message.contains("the whole cluster"), "{}", error.message);
    }
    // An earlier version has made it.
    let record = master.catalog.create_namespace("cluster", Bytes::new());
    record.await.unwrap();
    master.clone_snapshot(&name, &table, None).await.unwrap();
    master.copy_snapshot(copy).await.unwrap();
}

/// An automated backup of a client's table, and a table that is kept, expire in any case.
#[tokio::test]
async fn expired_snapshots_of_clients_are_held_while_the_cleanup_is_off() {
    let (coord, tablets, master) = with_table(false).await;
    let table = TableName::new("n", "t");
    let cleanup = |on| SwitchesChange {
        snapshot_cleanup: Some(on),
        ..SwitchesChange::default()
    };
    assert!(master.set_switches(cleanup(false)).await.unwrap().snapshot_cleanup);
    assert!(!master.set_switches(cleanup(false)).await.unwrap().snapshot_cleanup);
    let soon = Some(master.env.wall_micros() + 300_000);
    // More than are deleted in one go, which must not keep others waiting.
    for n in 0..20 {
        let expiring = NewSnapshot {
            expires_micros: soon,
            ..new_snapshot(&format!("a{n:02}"))
        };
        master.create_snapshot(expiring).await.unwrap();
    }
    let policy = TableUpdate {
        automated_backups: Some(Some(AutomatedBackups {
            retention_micros: 72 * 3_600_000_000,
            frequency_micros: 24 * 3_600_000_000,
        })),
        ..TableUpdate::default()
    };
    master.update_table(&table, policy).await.unwrap();
    assert_eq!(master.back_up_due().await, 1);
    let all = master.list_snapshots(None).await.unwrap();
    let automated = all.iter().find(|taken| taken.name.name.starts_with("auto."));
    let expiring = SnapshotUpdate {
        expires_micros: Some(soon),
        ..SnapshotUpdate::default()
    };
    let automated = automated.unwrap().name.clone();
    master.update_snapshot(&automated, expiring).await.unwrap();
    master.keep_deleted_for(Duration::from_millis(30));
    master.delete_table(&table).await.unwrap();
    master.env.sleep(Duration::from_millis(320)).await;
    assert_eq!(master.list_snapshots(None).await.unwrap().len(), 21);
    assert_eq!(master.delete_expired().await.unwrap(), 2, "of the server itself");
    assert_eq!(master.delete_expired().await.unwrap(), 0);
    assert!(master.kept_tables(None).await.unwrap().is_empty());
    // The next leader obeys the switch, too.
    let catalog = Arc::new(Catalog::load(coord.clone()).await.unwrap());
    let next = Master::new(master.env.clone(), catalog, tablets.clone());
    assert_eq!(next.delete_expired().await.unwrap(), 0);
    assert_eq!(next.list_snapshots(None).await.unwrap().len(), 20);
    assert!(!next.set_switches(cleanup(true)).await.unwrap().snapshot_cleanup);
    assert_eq!(next.delete_expired().await.unwrap(), 16);
    assert_eq!(next.delete_expired().await.unwrap(), 4);
    assert!(next.list_snapshots(None).await.unwrap().is_empty());
}
