//! Which backup a restore begins with.

use super::*;

fn create_some(names: &[&str]) -> BackupTask {
    BackupTask::Create {
        tables: names.iter().map(|name| table(name)).collect(),
    }
}

/// A backup of all tables, and later ones of one table each.
#[tokio::test]
async fn a_restore_begins_with_a_backup_that_has_its_tables() {
    let world = World::begin().await;
    for name in ["t", "u"] {
        world.node.make_table(name).await;
        world.node.write(name, 0..10, 1).await;
    }
    world.node.done("all", create()).await;
    for (version, name) in [(2, "u"), (3, "t"), (4, "t")] {
        for written in ["t", "u"] {
            world.node.write(written, 5..15, version).await;
        }
        let backup = format!("{name}-{version}");
        world.node.done(&backup, create_some(&[name])).await;
    }
    // The log does not describe this, and only backups of the table from afterwards lead further.
    let after_drop = async |name: &str| {
        let range = RowRange::prefix(&Bytes::from_static(b"row-00001"));
        world.node.master.drop_row_range(&table(name), range).await.unwrap();
    };
    let mut moments = Moments::default();
    moments.remember(&world.node, &["t", "u"]).await;
    after_drop("t").await;
    world.node.done("t-5", create_some(&["t"])).await;
    world.node.write("t", 12..18, 5).await;
    let (at, rows) = (world.node.moment().await, world.node.rows("t", false).await);
    world.node.archive().await;
    // All tables, from the backup that has all.
    moments.check(&world).await;
    // One table each, from the newest backup that has it.
    let empty: Arc<dyn Storage> = MemoryStorage::new();
    let other = copy(&world.archive).await;
    let node = try_start_archiving(&empty, &world.backups, Some((&other, WAITING_MAX)))
        .await
        .unwrap();
    let before = &moments.0[0];
    for name in ["t", "u"] {
        let restored = restore_at(&node, restore_as(name, name), before.0).await.unwrap();
        assert_eq!(restored.tables, [table(name)]);
        assert!(node.rows(name, false).await == before.1[name], "{name}");
    }
    restore_at(&node, restore_as("t", "later"), at).await.unwrap();
    assert!(node.rows("later", false).await == rows);
    // No backup has it.
    let refused = restore_at(&node, restore_as("v", "v"), at).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotFound, "{}", refused.message);
    // Without a backup of all tables it is the newest.
    world.node.done("all", BackupTask::Delete).await;
    let some = world.restored(at).await.unwrap();
    assert_eq!(some.catalog.view().tables.len(), 1);
    assert!(some.rows("t", false).await == rows);
}
