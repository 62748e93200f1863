//! A prefix that several processes share, and a log below it.

use super::*;
use stele_storage::servers::log_root;
use stele_types::ServerId;

#[tokio::test(start_paused = true)]
async fn members_create_and_delete_files_of_each_other() {
    let (env, client) = (env(31), Arc::new(InMemory::new()));
    let share = || ObjectStorage::shared_client(client.clone(), "p", env.clone());
    let (one, two) = (share().await.expect("share"), share().await.expect("share"));
    one.put_if_absent("tablets/1/manifest-1", Bytes::from_static(b"a"))
        .await
        .expect("put");
    let taken = two.put_if_absent("tablets/1/manifest-1", Bytes::new()).await;
    assert!(matches!(taken, Err(StorageError::AlreadyExists { .. })), "{taken:?}");
    two.delete("tablets/1/manifest-1").await.expect("delete");
    assert_eq!(one.list("tablets/").await.expect("list"), vec![]);
    for member in [&one, &two] {
        member.confirm_owner().await.expect("nobody owns the prefix");
        assert_eq!(member.owner_epoch(), None);
        let refused = member.create("log/0000/1.log").await.err().expect("no owner, no log");
        assert!(matches!(refused, StorageError::Io { .. }), "{refused}");
    }
}

/// The fence of a dead server: its log is sealed, and the files that all share are not concerned.
#[tokio::test(start_paused = true)]
async fn the_log_of_one_member_is_sealed_by_another() {
    let (env, client) = (env(32), Arc::new(InMemory::new()));
    let data = ObjectStorage::shared_client(client.clone(), "p", env.clone())
        .await
        .expect("share");
    let root = format!("p/{}", log_root(ServerId(7)));
    let log = open(client.clone(), &root, &env).await;
    let mut segment = log.create("log/0000/1.log").await.expect("create");
    write(&mut segment, "a").await.expect("append");
    let sealed = open(client.clone(), &root, &env).await;
    let fenced = write(&mut segment, "b").await.expect_err("the log is sealed");
    assert!(matches!(fenced, StorageError::Fenced { .. }), "{fenced}");
    log.create("log/0000/2.log").await.err().expect("no new segment either");
    assert_eq!(sealed.read_all("log/0000/1.log").await.expect("read"), "a");
    data.put_if_absent("sst/1.sst", Bytes::from_static(b"s"))
        .await
        .expect("the data root has no owner that could change");
    assert_eq!(data.list("log/").await.expect("list"), vec![], "nor a log of its own");
    // Every segment is deleted, and the former owner still finds its next number taken.
    sealed.delete("log/0000/1.log").await.expect("delete");
    write(&mut segment, "c").await.expect_err("the seal outlives its file");
}
