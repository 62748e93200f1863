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
