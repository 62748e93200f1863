//! What is damaged is given up, what is not is saved, and what was damaged is kept.

use super::*;
use crate::check::tests::{check, flip, folder, rows, start};
use stele_env::tokio_env::TokioRuntime;
use stele_storage::memory::MemoryStorage;

async fn run(storage: &Arc<MemoryStorage>, dry_run: bool) -> (String, bool) {
    let done = repair(storage.clone(), TokioRuntime::current(), Progress::hidden(), dry_run).await;
    done.unwrap()
}

async fn content(storage: &MemoryStorage) -> Vec<(String, bytes::Bytes)> {
    let mut all = Vec::new();
    for file in storage.list("").await.unwrap() {
        let content = storage.read_all(&file.path).await.unwrap();
        all.push((file.path, content));
    }
    all
}

/// The log segment that has a row: each stream has its own.
async fn log_with(storage: &MemoryStorage, row: &[u8]) -> String {
    let mut segments = content(storage).await.into_iter();
    let has_row = |(path, bytes): &(String, bytes::Bytes)| {
        path.starts_with("log/") && bytes.windows(row.len()).any(|window| window == row)
    };
    segments.find(has_row).expect("the row was logged").0
}

#[tokio::test]
async fn a_folder_in_order_is_left_alone() {
    let folder = folder().await;
    let before = content(&folder).await;
    assert!(run(&folder, false).await.1);
    assert_eq!(content(&folder).await, before);
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_lost_and_changes_nothing() {
    let folder = folder().await;
    let path = folder.list("sst/").await.unwrap()[0].path.clone();
    flip(&folder, &path, 50_000).await;
    let before = content(&folder).await;
    let (text, in_order) = run(&folder, true).await;
    assert!(in_order && text.contains(&path) && text.contains("rows \"a"), "{text}");
    assert_eq!(content(&folder).await, before);
}

#[tokio::test]
async fn the_intact_blocks_of_an_sstable_are_saved() {
    for at in [50_000, 1 << 30] {
        let folder = folder().await;
        let path = folder.list("sst/").await.unwrap()[0].path.clone();
        let original = folder.read_all(&path).await.unwrap();
        let whole = at > original.len();
        flip(&folder, &path, if whole { original.len() - 1 } else { at }).await;
        let damaged = folder.read_all(&path).await.unwrap();
        let (text, in_order) = run(&folder, false).await;
        assert!(in_order, "{text}");
        assert_eq!(folder.read_all(&format!("damaged/{path}")).await.unwrap(), damaged);
        assert_eq!(check(folder.clone()).await.damages, 0);
        let node = start(folder.clone()).await;
        let left = rows(&node).await;
        // 20 rows in each file, and three in the log.
        let of = |letter: &str| left.iter().filter(|row| row.starts_with(letter.as_bytes())).count();
        assert_eq!(of("p"), 20, "{text}");
        let expected = if whole { 3..4 } else { 16..23 };
        assert!(expected.contains(&of("a")), "{} rows left\n{text}", of("a"));
        assert_eq!(node.server.damaged_tablets().len(), 0);
    }
}

#[tokio::test]
async fn a_missing_sstable_is_given_up() {
    let folder = folder().await;
    let path = folder.list("sst/").await.unwrap()[0].path.clone();
    folder.delete(&path).await.unwrap();
    let (text, in_order) = run(&folder, false).await;
    assert!(in_order && text.contains("it was missing"), "{text}");
    let left = rows(&start(folder.clone()).await).await;
    assert_eq!(left.len(), 23, "{text}");
}

#[tokio::test]
async fn a_log_is_saved_behind_its_damage() {
    let folder = folder().await;
    let path = log_with(&folder, b"a21").await;
    let len = folder.read_all(&path).await.unwrap().len();
    // In the second of the three records that are in no file: each is some 6 KB long.
    flip(&folder, &path, len - 9_000).await;
    assert!(check(folder.clone()).await.is_damaged());
    let (text, _) = run(&folder, true).await;
    assert!(
        text.contains("22 intact records") && text.contains("sequence numbers after"),
        "{text}"
    );
    let (text, in_order) = run(&folder, false).await;
    assert!(in_order && text.contains(&format!("damaged/{path}")), "{text}");
    let left = rows(&start(folder.clone()).await).await;
    let expected: Vec<&[u8]> = vec![b"a20", b"a22"];
    let found: Vec<&[u8]> = left
        .iter()
        .map(|row| &row[..])
        .filter(|row| (&b"a20"[..]..b"b").contains(row))
        .collect();
    assert_eq!((left.len(), found), (42, expected), "{text}");
}

#[tokio::test]
async fn a_manifest_is_beyond_repair_and_left_alone() {
    let folder = folder().await;
    let path = folder.list("tablets/").await.unwrap()[0].path.clone();
    flip(&folder, &path, 30).await;
    let damaged = folder.read_all(&path).await.unwrap();
    let (text, in_order) = run(&folder, false).await;
    assert!(!in_order && text.contains("cannot be repaired"), "{text}");
    assert_eq!(folder.read_all(&path).await.unwrap(), damaged);
    assert_eq!(folder.list("sst/").await.unwrap().len(), 2);
}
