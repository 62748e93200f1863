//! Changes of tables between a backup and a moment.

use super::*;

/// Drops family `g` of table `t`.
async fn drop_family(node: &Node) {
    let drop = FamilyChange::Drop { name: "g".to_owned() };
    let changed = node.master.modify_families(&table("t"), vec![drop]).await;
    changed.unwrap();
}

/// The rows that a test drops: all, or some.
fn dropped(all: bool) -> RowRange {
    match all {
        true => RowRange::all(),
        false => RowRange::prefix(&Bytes::from_static(b"row-0001")),
    }
}

/// Families that come, go and come again, a table that is deleted, and one that is made later.
#[tokio::test]
async fn schemas_are_those_of_the_moment() {
    let mut world = World::begin().await;
    for name in ["t", "u"] {
        world.node.make_table(name).await;
        world.node.write(name, 0..20, 1).await;
    }
    world.node.done("b", create()).await;
    let mut moments = Moments::default();
    moments.remember(&world.node, &["t", "u"]).await;
    let change = async |world: &World, change: FamilyChange| {
        world
            .node
            .master
            .modify_families(&table("t"), vec![change])
            .await
            .unwrap();
    };
    change(&world, FamilyChange::Drop { name: "g".to_owned() }).await;
    moments.remember(&world.node, &["t", "u"]).await;
    let again = NewFamily {
        name: "g".to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        front_end_data: Vec::new(),
    };
    change(&world, FamilyChange::Create(again)).await;
    let put = Mutation::Put {
        family: FamilyId(3),
        qualifier: Bytes::from_static(b"new"),
        timestamp: Timestamp(5),
        value: Bytes::from_static(b"value"),
    };
    world.node.try_mutate("t", "row-00003".to_owned(), put).await.unwrap();
    moments.remember(&world.node, &["t", "u"]).await;
    world.node.archive().await;
    world.kill().await;
    world.node.archive().await;
    world.node.master.delete_table(&table("u")).await.unwrap();
    let without = world.node.moment().await;
    world.node.make_table("later").await;
    world.node.write("later", 0..3, 1).await;
    world.node.archive().await;
    moments.check(&world).await;
    // The deleted table is not there, and a table that is not in the backup is not restored.
    let node = world.restored(without).await.unwrap();
    assert!(node.catalog.table(&table("u")).is_err());
    assert!(node.rows("t", false).await == moments.0[2].1["t"]);
    let refused = restore_at(&node, restore_as("u", "u"), without).await.unwrap_err();
    assert!(refused.message.contains("it was deleted"), "{}", refused.message);
}

/// A family that had left a group for another, and was dropped since, is in neither.
#[tokio::test]
async fn a_family_that_had_moved_may_be_dropped() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.write("t", 0..20, 1).await;
    let moves = vec![
        GroupChange::Create {
            name: "other".to_owned(),
            options: Default::default(),
        },
        GroupChange::MoveFamily {
            family: "g".to_owned(),
            group: "other".to_owned(),
        },
    ];
    world.node.master.modify_groups(&table("t"), moves).await.unwrap();
    world.node.done("b", create()).await;
    drop_family(&world.node).await;
    let mut moments = Moments::default();
    moments.remember(&world.node, &["t"]).await;
    world.node.archive().await;
    moments.check(&world).await;
}

/// Changes of files that the log does not describe: the error names the last moment before them.
#[tokio::test]
async fn dropped_rows_are_refused_with_the_latest_moment() {
    for all in [false, true] {
        let world = World::begin().await;
        world.node.make_table("t").await;
        world.node.write("t", 0..20, 1).await;
        world.node.done("b", create()).await;
        world.node.write("t", 5..25, 2).await;
        let mut moments = Moments::default();
        moments.remember(&world.node, &["t"]).await;
        world
            .node
            .master
            .drop_row_range(&table("t"), dropped(all))
            .await
            .unwrap();
        let after = world.node.moment().await;
        world.node.archive().await;
        moments.check(&world).await;
        let refused = world.refusal(after).await;
        assert!(
            refused.contains("dropped") && refused.contains("the latest moment"),
            "{refused}"
        );
        let latest = refused.split("followed is ").nth(1).unwrap();
        let latest: i64 = latest.split(';').next().unwrap().parse().unwrap();
        assert!((moments.0[0].0..after).contains(&latest), "{refused}");
        let node = world.restored(latest).await.unwrap();
        assert!(node.rows("t", false).await == moments.0[0].1["t"]);
        // A later backup has it.
        world.node.done("later", create()).await;
        let mut moments = Moments::default();
        world.node.write("t", 0..3, 3).await;
        moments.remember(&world.node, &["t"]).await;
        world.node.archive().await;
        moments.check(&world).await;
    }
}

/// A table is deleted after something that the log does not describe. The others come back without it.
#[tokio::test]
async fn a_table_that_was_truncated_and_deleted_does_not_hold_up_the_others() {
    for all in [false, true] {
        let world = World::begin().await;
        for name in ["t", "u"] {
            world.node.make_table(name).await;
            world.node.write(name, 0..20, 1).await;
        }
        world.node.done("b", create()).await;
        world
            .node
            .master
            .drop_row_range(&table("u"), dropped(all))
            .await
            .unwrap();
        let between = world.node.moment().await;
        world.node.write("t", 5..25, 2).await;
        world.node.master.delete_table(&table("u")).await.unwrap();
        let mut moments = Moments::default();
        moments.remember(&world.node, &["t"]).await;
        world.node.archive().await;
        moments.check(&world).await;
        // Named, it is refused with the latest moment before the drop; and so are all while it was there.
        let node = world.restored(moments.0[0].0).await.unwrap();
        let refused = restore_at(&node, restore_as("u", "u"), moments.0[0].0)
            .await
            .unwrap_err();
        assert!(refused.message.contains("dropped"), "{}", refused.message);
        assert!(world.refusal(between).await.contains("table space/u"));
    }
}

/// A truncation before the backup is in it. The statement of a later server about the table is no other truncation.
#[tokio::test]
async fn a_table_that_was_truncated_before_the_backup_is_restored() {
    let mut world = World::begin().await;
    world.node.make_table("t").await;
    world.node.write("t", 0..5, 1).await;
    world.node.master.truncate(&table("t"), true).await.unwrap();
    world.node.write("t", 3..8, 2).await;
    world.node.done("b", create()).await;
    world.node.write("t", 5..10, 3).await;
    let mut moments = Moments::default();
    moments.remember(&world.node, &["t"]).await;
    world.node.archive().await;
    world.kill().await;
    world.node.write("t", 9..12, 4).await;
    moments.remember(&world.node, &["t"]).await;
    world.node.archive().await;
    moments.check(&world).await;
}

/// No tablet of it was written since, so none is known to end behind the rows that were dropped.
#[tokio::test]
async fn rows_that_were_truncated_before_the_backup_do_not_come_back() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.write("t", 95..105, 1).await;
    world.node.master.truncate(&table("t"), true).await.unwrap();
    world.node.done("b", create()).await;
    let mut moments = Moments::default();
    moments.remember(&world.node, &["t"]).await;
    world.node.write("t", 100..103, 2).await;
    moments.remember(&world.node, &["t"]).await;
    world.node.archive().await;
    moments.check(&world).await;
}

/// The server died after a change that it had not archived: nobody knows when it was.
#[tokio::test]
async fn a_change_of_unknown_moment_is_refused_in_between() {
    let mut world = World::begin().await;
    world.node.make_table("t").await;
    world.node.done("b", create()).await;
    world.node.write("t", 0..5, 1).await;
    let before = world.node.moment().await;
    world.node.archive().await;
    world.node.write("t", 0..5, 2).await;
    let unsure = world.node.moment().await;
    drop_family(&world.node).await;
    world.kill().await;
    let mut moments = Moments::default();
    moments.remember(&world.node, &["t"]).await;
    world.node.archive().await;
    moments.check(&world).await;
    world.restored(before).await.unwrap();
    let refused = world.refusal(unsure).await;
    assert!(refused.contains("before it had archived when"), "{refused}");
}
