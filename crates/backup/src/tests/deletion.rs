//! Deletions next to other backups, complete and unfinished.

use super::node::*;
use crate::delete::{delete, sweep};
use crate::destination::Destination;
use crate::format::{Entry, ListedFile, State};
use crate::paths;
use crate::work::Work;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_client::BackupTask;
use stele_env::tokio_env::TokioRuntime;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_tablet::StoredFile;
use stele_types::FileId;

async fn files(at: &Arc<dyn Storage>) -> BTreeSet<String> {
    at.list("files/")
        .await
        .unwrap()
        .into_iter()
        .map(|file| file.path)
        .collect()
}

#[tokio::test]
async fn files_go_with_the_last_backup_that_needs_them() {
    let (source, at): (Arc<dyn Storage>, Arc<dyn Storage>) = (MemoryStorage::new(), MemoryStorage::new());
    let node = start(&source, &at).await;
    node.make_table("t").await;
    node.write("t", 0..50, 1).await;
    node.done("b1", create()).await;
    let first = files(&at).await;
    node.write("t", 60..70, 1).await;
    node.done("b2", create()).await;
    let both = files(&at).await;
    node.done("b1", BackupTask::Delete).await;
    assert_eq!(files(&at).await, both, "the second has all files of the first");
    let verified = node.done("b2", BackupTask::Verify).await.outcome.unwrap().unwrap();
    assert!(verified.damage.is_empty());
    node.done("b3", create()).await;
    assert_eq!(files(&at).await, both);
    node.done("b2", BackupTask::Delete).await;
    node.done("b3", BackupTask::Delete).await;
    assert!(files(&at).await.is_empty() && !first.is_empty());
    let left = at.list("backups/").await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

/// A destination without a server: backups are entries and lists.
struct Made {
    at: Arc<dyn Storage>,
    destination: Destination,
    work: Arc<Work>,
}

impl Made {
    async fn new() -> Made {
        let at: Arc<dyn Storage> = MemoryStorage::new();
        Made {
            destination: Destination::open(at.clone(), true).await.unwrap(),
            work: Work::new(TokioRuntime::current(), None, 0),
            at,
        }
    }

    async fn begin(&self, id: u64) -> State {
        let begun = self.destination.change(|state| {
            state.backups.push(Entry {
                id,
                name: id.to_string(),
                since: state.number,
                ..Entry::default()
            });
            Ok(())
        });
        begun.await.unwrap().0
    }

    async fn copy(&self, id: u64, file: u64) -> ListedFile {
        let listed = ListedFile {
            file,
            len: 1,
            copied_by: id,
            ..ListedFile::default()
        };
        let path = paths::file(id, StoredFile::Sstable(FileId(file)));
        self.at.put_if_absent(&path, Bytes::from_static(b"x")).await.unwrap();
        listed
    }

    async fn list(&self, id: u64, number: u32, files: &[ListedFile]) {
        self.destination.put_list(id, number, files.to_vec()).await.unwrap();
    }

    async fn complete(&self, id: u64, lists: u32) {
        use crate::format::{Document, Record};
        let record = Record {
            id,
            lists,
            ..Record::default()
        };
        let path = paths::record(id);
        self.destination
            .put(&path, record.encode_file(&path).unwrap())
            .await
            .unwrap();
        let completed = self.destination.change(|state| {
            for entry in state.backups.iter_mut().filter(|entry| entry.id == id) {
                entry.completed_micros = 1;
            }
            Ok(())
        });
        completed.await.unwrap();
    }

    async fn delete(&self, id: u64) {
        delete(&self.destination, &id.to_string(), &self.work).await.unwrap();
    }
}

#[tokio::test]
async fn an_unfinished_backup_keeps_the_files_that_it_may_have_taken_over() {
    let made = Made::new().await;
    made.begin(1).await;
    let (shared, own) = (made.copy(1, 10).await, made.copy(1, 11).await);
    made.list(1, 0, &[shared, own]).await;
    made.complete(1, 1).await;
    // It has found the first complete, and lists nothing yet.
    made.begin(2).await;
    let copied = made.copy(2, 12).await;
    made.delete(1).await;
    assert_eq!(files(&made.at).await.len(), 3);
    made.list(2, 0, &[shared, copied]).await;
    made.complete(2, 1).await;
    sweep(&made.destination, &made.work).await.unwrap();
    let left = files(&made.at).await;
    let expected = [(1, 10), (2, 12)].map(|(by, file)| paths::file(by, StoredFile::Sstable(FileId(file))));
    assert_eq!(left, BTreeSet::from(expected), "the file that nobody took over is gone");
    assert!(made.destination.state().await.unwrap().deleted.is_empty());
}

#[tokio::test]
async fn a_backup_that_was_begun_after_a_deletion_keeps_nothing_of_it() {
    let made = Made::new().await;
    made.begin(1).await;
    let file = made.copy(1, 10).await;
    made.list(1, 0, &[file]).await;
    made.complete(1, 1).await;
    made.begin(2).await;
    made.delete(2).await;
    made.delete(1).await;
    made.begin(3).await;
    sweep(&made.destination, &made.work).await.unwrap();
    assert!(files(&made.at).await.is_empty());
    // The one that was deleted while it was made writes on; the next deletion finds it.
    made.copy(2, 20).await;
    made.list(2, 0, &[file]).await;
    made.delete(3).await;
    assert!(files(&made.at).await.is_empty());
    assert!(made.at.list("backups/").await.unwrap().is_empty());
}

/// A list that cannot be read might name any file.
#[tokio::test]
async fn nothing_is_deleted_while_a_list_cannot_be_read() {
    let made = Made::new().await;
    for id in [1, 2] {
        made.begin(id).await;
        let file = made.copy(id, 10).await;
        made.list(id, 0, &[file]).await;
        made.complete(id, 1).await;
    }
    made.at.delete(&paths::list(2, 0)).await.unwrap();
    let refused = delete(&made.destination, "1", &made.work).await.unwrap_err();
    assert!(refused.to_string().contains("missing"), "{refused}");
    assert_eq!(files(&made.at).await.len(), 2);
}
