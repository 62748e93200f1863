//! Rows that a caller must not learn of.

use super::*;

/// A batch without rows still tells how much was passed, and which row was the last.
#[tokio::test]
async fn narrowed_reads_tell_of_no_other_rows() {
    let setting = Setting::new().await;
    setting.fake.serve_streams();
    let rule = AccessRule {
        families: vec!["f".to_owned()],
        ..AccessRule::whole(Member::User("alice".into()), Rights::READ)
    };
    setting.add(Resource::Table(table()), rule).await;
    setting.give("bob", Resource::Table(table()), Rights::READ).await;
    for (name, is_told) in [("alice", false), ("bob", true)] {
        let mut stream = setting.guard(name).read_rows(all_rows()).await.unwrap();
        let batch = stream.next().await.unwrap().unwrap();
        assert_eq!(batch.seen.cells > 0, is_told, "{name}");
        assert_eq!(batch.scanned_through.is_some(), is_told, "{name}");
    }
}

/// The places of tablets are for every caller that sees the cluster, and row keys are not.
#[tokio::test]
async fn first_rows_of_tablets_are_for_those_who_may_read_them() {
    let setting = Setting::new().await;
    setting.fake.serve_streams();
    let shown = async |name: &str| {
        let status = setting.guard(name).cluster_status().await.unwrap();
        status.tablets[0].start.clone()
    };
    setting.give("alice", Resource::Cluster, Rights::VIEW).await;
    assert_eq!(shown("alice").await, b"hidden");
    let part = AccessRule {
        row_prefix: Bytes::from_static(b"a"),
        ..AccessRule::whole(Member::User("alice".into()), Rights::READ)
    };
    setting.add(Resource::Table(table()), part).await;
    setting.give("alice", Resource::Table(table()), Rights::WRITE).await;
    assert_eq!(shown("alice").await, b"hidden");
    setting.give("alice", Resource::Table(table()), Rights::READ).await;
    assert_eq!((&*shown("alice").await, &*shown("root").await), (&b"r"[..], &b"r"[..]));
}

/// Sizes and numbers of operations tell of rows, so a right on a part of a table does not show them.
#[tokio::test]
async fn figures_of_tablets_are_for_those_who_may_see_the_whole_table() {
    let setting = Setting::new().await;
    setting.fake.serve_streams();
    let part = AccessRule {
        row_prefix: Bytes::from_static(b"a"),
        ..AccessRule::whole(Member::User("alice".into()), Rights::READ.and(Rights::WRITE))
    };
    let view = Resource::View {
        table: table(),
        view: "v".to_owned(),
    };
    setting.add(Resource::Table(table()), part).await;
    setting.give("bob", Resource::Table(table()), Rights::VIEW).await;
    setting
        .give("carol", Resource::Namespace("n".into()), Rights::WRITE)
        .await;
    setting.give("dave", view, Rights::READ).await;
    for (guard, is_told) in [
        (setting.guard("alice"), false),
        (setting.guard("bob"), true),
        (setting.guard("carol"), true),
        (setting.guard("dave").through("v"), false),
        (setting.guard("bob").through("v"), true),
        (setting.guard("root"), true),
    ] {
        let name = guard.caller().name();
        let tablets = guard.tablets(&table()).await.unwrap();
        assert_eq!(tablets.len(), 1, "{name}");
        assert_eq!(tablets[0].figures.is_some(), is_told, "{name}");
    }
}
