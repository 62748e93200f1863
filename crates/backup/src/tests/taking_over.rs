//! Files that a backup takes over from earlier ones.

use super::node::*;
use std::sync::Arc;
use stele_client::{BackupAdmin, BackupTask};
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::ErrorKind;

fn memory() -> Arc<dyn Storage> {
    MemoryStorage::new()
}

/// A file is lost, or cut short.
async fn lose(at: &Arc<dyn Storage>, path: &str, is_cut: bool) {
    let content = at.read_all(path).await.unwrap();
    at.delete(path).await.unwrap();
    if is_cut {
        at.put_if_absent(path, content.slice(..content.len() / 2))
            .await
            .unwrap();
    }
}

async fn assert_intact(node: &Node, at: &Arc<dyn Storage>, backup: &str, context: &str) {
    let verified = node.done(backup, BackupTask::Verify).await.outcome.unwrap().unwrap();
    assert!(verified.damage.is_empty(), "{context}: {verified:?}");
    let other = start(&memory(), at).await;
    other.done(backup, restore()).await;
    assert!(other.rows("t", false).await == node.rows("t", false).await, "{context}");
}

/// Earlier backups stay damaged. The next one is whole, and copies nothing but the lost file.
#[tokio::test]
async fn a_file_that_the_destination_lost_is_copied_again() {
    let at = memory();
    let node = start(&memory(), &at).await;
    node.make_table("t").await;
    node.write("t", 0..150, 1).await;
    node.done("first", create()).await;
    let files = at.list("files/").await.unwrap();
    assert!(files.len() > 1, "{files:?}");
    for (n, file) in files.iter().enumerate() {
        let (name, context) = (format!("next-{n}"), file.path.as_str());
        lose(&at, &file.path, n % 2 == 0).await;
        let progress = node.done(&name, create()).await.progress;
        assert_eq!(
            (progress.files_copied, progress.bytes_copied),
            (1, file.len),
            "{context}"
        );
        assert_intact(&node, &at, &name, context).await;
    }
}

/// An attempt that ended has copied all files but one, and the destination loses one of these.
#[tokio::test]
async fn a_file_of_an_earlier_attempt_that_was_lost_is_copied_again() {
    let (root, at) = (memory(), memory());
    let node = start(&root, &at).await;
    node.make_table("t").await;
    node.write("t", 0..150, 1).await;
    node.flush("t").await;
    let sources = root.list("sst/").await.unwrap();
    let last = &sources.iter().max_by_key(|file| &file.path).unwrap().path;
    let intact = root.read_all(last).await.unwrap();
    lose(&root, last, true).await;
    let failed = node.work("b", create()).await.outcome.unwrap().unwrap_err();
    assert_eq!(failed.kind, ErrorKind::Corruption, "{}", failed.message);
    root.delete(last).await.unwrap();
    root.put_if_absent(last, intact).await.unwrap();
    let copied = at.list("files/").await.unwrap();
    let complete = copied
        .iter()
        .find(|file| !file.path.contains(last.trim_start_matches("sst/")));
    lose(&at, &complete.expect("other files were copied").path, false).await;
    node.done("b", create()).await;
    assert_intact(&node, &at, "b", "after a second attempt").await;
    let place = order("b", create()).destination;
    assert_eq!(node.backups.list(place).await.unwrap().len(), 1);
}
