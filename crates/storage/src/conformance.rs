//! One test suite for all backends: the promises of [`crate::Storage`] short of power loss.
//!
//! Each check gets an empty storage. A broken promise is a failed assertion, so only tests may call this.

use crate::{FileInfo, PATH_BYTES_MAX, ReadFile, Storage, StorageError};
use bytes::Bytes;
use std::sync::Arc;
use stele_types::ErrorKind;

/// Runs every check on storages made by `make`.
pub async fn run_all(make: impl Fn() -> Arc<dyn Storage>) {
    run_remote(&make).await;
    deleting_keeps_open_readers(&make()).await;
    discarded_files_are_gone(&make()).await;
}

/// The same for backends whose open readers lose a deleted file.
pub async fn run_remote(make: impl Fn() -> Arc<dyn Storage>) {
    appends_read_back(&make()).await;
    append_spans_slices_and_sizes(&make()).await;
    appends_without_waiting_read_back(&make()).await;
    reads_are_exact(&make()).await;
    files_are_opened_with_what_is_read_first(&make()).await;
    paths_are_taken_once(&make()).await;
    puts_are_whole_and_first_wins(&make()).await;
    growing_files_may_be_put_whole(&make()).await;
    racing_puts_have_one_winner(&make()).await;
    absent_files(&make()).await;
    bad_paths(&make()).await;
    lists_by_byte_prefix(&make()).await;
    a_listing_opens_what_it_shows(&make()).await;
    unfinished_files_are_readable(&make()).await;
    several_are_deleted_together(&make()).await;
}

async fn write(storage: &Arc<dyn Storage>, path: &str, content: &'static [u8]) {
    let mut file = storage.create(path).await.expect("create");
    file.append(&[Bytes::from_static(content)]).await.expect("append");
    file.sync().await.expect("sync");
}

async fn appends_read_back(storage: &Arc<dyn Storage>) {
    let mut file = storage.create("log/a/b").await.expect("create");
    assert!(file.is_empty());
    file.append(&[Bytes::from_static(b"hello"), Bytes::from_static(b" ")])
        .await
        .expect("append");
    file.sync().await.expect("sync");
    file.append(&[Bytes::from_static(b"world")])
        .await
        .expect("append after sync");
    file.append(&[]).await.expect("append of nothing");
    file.sync().await.expect("sync");
    file.sync().await.expect("sync with nothing new");
    assert_eq!(file.len(), 11);
    drop(file);
    assert_eq!(storage.read_all("log/a/b").await.expect("read"), "hello world");
    assert_eq!(storage.open("log/a/b").await.expect("open").path(), "log/a/b");

    storage
        .create("empty")
        .await
        .expect("create")
        .sync()
        .await
        .expect("sync of an empty file");
    assert_eq!(storage.read_all("empty").await.expect("read"), "");
}

/// More slices than one system call takes (1,024), some of them empty, and more bytes than are written inline.
async fn append_spans_slices_and_sizes(storage: &Arc<dyn Storage>) {
    let slices: Vec<Bytes> = (0..3_000usize)
        .map(|i| Bytes::from(vec![(i % 251) as u8; i % 7]))
        .collect();
    let large: Vec<Bytes> = (0..5u8).map(|i| Bytes::from(vec![i; 100_000])).collect();
    let mut file = storage.create("many").await.expect("create");
    file.append(&slices).await.expect("append many");
    file.append(&large).await.expect("append large");
    file.sync().await.expect("sync");
    let expected: Vec<u8> = slices.iter().chain(&large).flatten().copied().collect();
    assert_eq!(file.len(), expected.len() as u64);
    assert!(
        storage.read_all("many").await.expect("read") == expected,
        "content differs"
    );
}

/// A backend that does not append without waiting must not have changed the file.
async fn appends_without_waiting_read_back(storage: &Arc<dyn Storage>) {
    let mut file = storage.create("now").await.expect("create");
    let mut expected = Vec::new();
    for len in [0, 1, 100, 70_000, 1_000_000, 3_000_000] {
        let bytes = vec![len as u8 | 1; len];
        match file.try_append(&[b"head", &[], &bytes]) {
            Some(done) => done.expect("append without waiting"),
            None => {
                let slices = [Bytes::from_static(b"head"), Bytes::from(bytes.clone())];
                file.append(&slices).await.expect("append");
            }
        }
        expected.extend_from_slice(b"head");
        expected.extend_from_slice(&bytes);
        assert_eq!(file.len(), expected.len() as u64);
    }
    file.sync().await.expect("sync");
    assert!(
        storage.read_all("now").await.expect("read") == expected,
        "content differs"
    );
}

async fn reads_are_exact(storage: &Arc<dyn Storage>) {
    write(storage, "f", b"0123456789").await;
    let file = storage.open("f").await.expect("open");
    assert_eq!(file.len(), 10);
    assert!(!file.is_empty());
    for (offset, len, expected) in [(0, 10, "0123456789"), (3, 4, "3456"), (9, 1, "9"), (10, 0, "")] {
        assert_eq!(file.read_at(offset, len).await.expect("read"), expected);
        if let Some(cached) = file.try_read_at(offset, len) {
            assert_eq!(cached.expect("cached read"), expected);
        }
        let mut bytes = vec![b'?'; len];
        if let Some(cached) = file.try_read_into(offset, &mut bytes) {
            cached.expect("cached read");
            assert_eq!(bytes, expected.as_bytes());
        }
    }
    for (offset, len) in [(0, 11), (9, 2), (10, 1), (11, 0), (u64::MAX, 1), (1, usize::MAX)] {
        let error = file.read_at(offset, len).await.expect_err("read past the end");
        assert!(matches!(error, StorageError::OutOfBounds { len: 10, .. }), "{error}");
        if let Some(cached) = file.try_read_at(offset, len) {
            assert!(matches!(cached, Err(StorageError::OutOfBounds { .. })), "{cached:?}");
        }
        // Larger buffers cannot be allocated.
        let Some(mut bytes) = (len < 100).then(|| vec![b'?'; len]) else {
            continue;
        };
        if let Some(cached) = file.try_read_into(offset, &mut bytes) {
            assert!(matches!(cached, Err(StorageError::OutOfBounds { .. })), "{cached:?}");
        }
    }
}

async fn paths_are_taken_once(storage: &Arc<dyn Storage>) {
    write(storage, "d/f", b"first").await;
    let again = storage.create("d/f").await.err().expect("second create");
    assert_eq!(again, StorageError::AlreadyExists { path: "d/f".to_owned() });
    let put = storage.put_if_absent("d/f", Bytes::from_static(b"x")).await;
    assert_eq!(put.expect_err("put over a file").kind(), ErrorKind::AlreadyExists);
    assert_eq!(storage.read_all("d/f").await.expect("read"), "first");
    storage.delete("d/f").await.expect("delete");
    write(storage, "d/f", b"second").await;
    assert_eq!(storage.read_all("d/f").await.expect("read"), "second");
}

async fn puts_are_whole_and_first_wins(storage: &Arc<dyn Storage>) {
    storage
        .put_if_absent("p/1", Bytes::from_static(b"one"))
        .await
        .expect("put");
    let again = storage.put_if_absent("p/1", Bytes::from_static(b"two")).await;
    assert_eq!(again, Err(StorageError::AlreadyExists { path: "p/1".to_owned() }));
    assert_eq!(storage.read_all("p/1").await.expect("read"), "one");
    let create = storage.create("p/1").await.err().expect("create over a put");
    assert_eq!(create.kind(), ErrorKind::AlreadyExists);
    storage
        .put_if_absent("p/empty", Bytes::new())
        .await
        .expect("put of nothing");
    assert_eq!(storage.read_all("p/empty").await.expect("read"), "");
}

/// A repair rewrites a file of the log.
async fn growing_files_may_be_put_whole(storage: &Arc<dyn Storage>) {
    for (path, content) in [("log/0/1.log", "whole"), ("log/0/2.log", "")] {
        let put = storage
            .put_if_absent(path, Bytes::from_static(content.as_bytes()))
            .await;
        put.expect("put");
        assert_eq!(storage.read_all(path).await.expect("read"), content);
        assert_eq!(storage.open(path).await.expect("open").len(), content.len() as u64);
        let again = storage.put_if_absent(path, Bytes::from_static(b"other")).await;
        assert_eq!(again, Err(StorageError::AlreadyExists { path: path.to_owned() }));
        let create = storage.create(path).await.err().expect("create over a put");
        assert_eq!(create.kind(), ErrorKind::AlreadyExists);
    }
    let len = "whole".len() as u64;
    let expected = [("log/0/1.log", len), ("log/0/2.log", 0)].map(|(path, len)| FileInfo {
        path: path.to_owned(),
        len,
    });
    assert_eq!(storage.list("log/").await.expect("list"), expected);
    storage.delete("log/0/1.log").await.expect("delete");
    write(storage, "log/0/1.log", b"anew").await;
    assert_eq!(storage.read_all("log/0/1.log").await.expect("read"), "anew");
}

async fn racing_puts_have_one_winner(storage: &Arc<dyn Storage>) {
    let puts = (0..8u8).map(|i| storage.put_if_absent("race/x", Bytes::from(vec![i; 100])));
    let outcomes = futures::future::join_all(puts).await;
    let winners: Vec<usize> = (0..8).filter(|i| outcomes[*i].is_ok()).collect();
    assert_eq!(winners.len(), 1, "{outcomes:?}");
    for outcome in outcomes.iter().filter_map(|o| o.as_ref().err()) {
        assert_eq!(outcome.kind(), ErrorKind::AlreadyExists);
    }
    let content = storage.read_all("race/x").await.expect("read");
    assert_eq!(content, vec![winners[0] as u8; 100]);
}

async fn absent_files(storage: &Arc<dyn Storage>) {
    write(storage, "dir/file", b"x").await;
    for path in ["none", "none/none", "dir/none", "dir"] {
        let error = storage.open(path).await.err().expect("open of an absent file");
        assert_eq!(error, StorageError::NotFound { path: path.to_owned() });
        let error = storage.read_all(path).await.expect_err("read of an absent file");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    storage.delete("none").await.expect("delete of an absent file");
    storage.delete("none/none").await.expect("delete of an absent file");
}

async fn bad_paths(storage: &Arc<dyn Storage>) {
    let long = "x".repeat(PATH_BYTES_MAX + 1);
    for path in [
        "", "/", "/abs", "a//b", "a/", "../up", "a/./b", "nul\0", "sp ace", "LOCK", "tmp/x", &long,
    ] {
        let invalid = StorageError::InvalidPath { path: path.to_owned() };
        assert_eq!(storage.create(path).await.err(), Some(invalid.clone()));
        assert_eq!(storage.open(path).await.err(), Some(invalid.clone()));
        assert_eq!(
            storage.put_if_absent(path, Bytes::new()).await.err(),
            Some(invalid.clone())
        );
        assert_eq!(storage.delete(path).await.err(), Some(invalid.clone()));
        assert_eq!(storage.discard(path).await.err(), Some(invalid));
    }
    assert_eq!(storage.list("").await.expect("list"), vec![]);
}

/// Where a storage opens files of a listing, they are those that the listing has.
async fn a_listing_opens_what_it_shows(storage: &Arc<dyn Storage>) {
    write(storage, "log/0000/1.log", b"first").await;
    write(storage, "log/0000/2.log", b"second").await;
    write(storage, "log/0001/3.log", b"third").await;
    write(storage, "log/0001/4.log", b"").await;
    storage.delete("log/0000/2.log").await.expect("delete");
    if let Some(names) = storage.directories("log/").await.expect("list") {
        assert_eq!(names, ["0000", "0001"]);
    }
    for wanted in ["log/", "log/0001/", "log/0000/2"] {
        let opened = storage.open_listed("log/", &|path| path.starts_with(wanted)).await;
        let Some(opened) = opened.expect("open") else {
            continue;
        };
        let listed = storage.list(wanted).await.expect("list");
        let found: Vec<FileInfo> = opened
            .iter()
            .map(|file| FileInfo {
                path: file.path().to_owned(),
                len: file.len(),
            })
            .collect();
        assert_eq!(found, listed, "{wanted}");
        for file in opened {
            let content = file.read_at(0, file.len() as usize).await.expect("read");
            assert_eq!(content, storage.read_all(file.path()).await.expect("read"));
        }
    }
}

async fn lists_by_byte_prefix(storage: &Arc<dyn Storage>) {
    // `t/1-x` sorts before `t/1/a` by bytes, though a walk of directories meets them in the other order.
    for path in ["t/1/b", "t/10", "t/1/a", "t/1-x", "u", "t/2/c/d"] {
        write(storage, path, b"abc").await;
    }
    let info = |path: &&str| FileInfo {
        path: (*path).to_owned(),
        len: 3,
    };
    for (prefix, expected) in [
        ("", &["t/1-x", "t/1/a", "t/1/b", "t/10", "t/2/c/d", "u"][..]),
        ("t/1", &["t/1-x", "t/1/a", "t/1/b", "t/10"][..]),
        ("t/1/", &["t/1/a", "t/1/b"][..]),
        ("t/2/c", &["t/2/c/d"][..]),
        ("t/1/a", &["t/1/a"][..]),
        ("t/1/a/", &[][..]),
        ("v", &[][..]),
        ("../", &[][..]),
        ("/", &[][..]),
    ] {
        let expected: Vec<FileInfo> = expected.iter().map(info).collect();
        assert_eq!(storage.list(prefix).await.expect("list"), expected, "prefix {prefix:?}");
    }
}

async fn several_are_deleted_together(storage: &Arc<dyn Storage>) {
    let several = ["several/1", "several/2", "several3"].map(str::to_owned);
    for _ in 0..2 {
        for path in several.iter().skip(1) {
            write(storage, path, b"x").await;
        }
        storage
            .delete_all(&several)
            .await
            .expect("delete of several, one of them absent");
    }
    for path in &several {
        write(storage, path, b"x").await;
    }
    storage.discard_all(&several).await.expect("discard of several");
    assert!(
        storage.list("several").await.expect("list").is_empty(),
        "deleted together"
    );
    storage.delete_all(&[]).await.expect("delete of none");
}

/// Opens files with right and with wrong expectations.
async fn files_are_opened_with_what_is_read_first(storage: &Arc<dyn Storage>) {
    write(storage, "f", b"0123456789").await;
    for (len, first) in [
        (10, 6..10),
        (10, 0..99),
        (10, 4..4),
        (7, 3..7),
        (20, 12..20),
        (20, 0..20),
    ] {
        let file = storage.open_known("f", len, first).await.expect("open");
        assert_eq!((file.len(), file.path()), (10, "f"));
        for (offset, len, expected) in [(6, 4, "6789"), (6, 4, "6789"), (0, 10, "0123456789"), (2, 3, "234")] {
            assert_eq!(file.read_at(offset, len).await.expect("read"), expected);
        }
        file.read_at(9, 2).await.expect_err("read past the end");
    }
    let missing = storage.open_known("g", 10, 0..10).await.err().expect("open");
    assert!(matches!(missing, StorageError::NotFound { .. }), "{missing}");
}

async fn discarded_files_are_gone(storage: &Arc<dyn Storage>) {
    write(storage, "discarded/1", b"x").await;
    for path in ["discarded/1", "discarded/1", "none/none"] {
        storage.discard(path).await.expect("discard");
    }
    assert!(storage.list("discarded").await.expect("list").is_empty(), "discarded");
    storage
        .put_if_absent("discarded/1", Bytes::from_static(b"y"))
        .await
        .expect("the name is free");
    assert_eq!(storage.read_all("discarded/1").await.expect("read"), "y");
    storage.delete("discarded/1").await.expect("delete");
}

async fn deleting_keeps_open_readers(storage: &Arc<dyn Storage>) {
    write(storage, "gone", b"still here").await;
    let file: Arc<dyn ReadFile> = storage.open("gone").await.expect("open");
    storage.delete("gone").await.expect("delete");
    storage.delete("gone").await.expect("delete twice");
    assert_eq!(file.read_at(6, 4).await.expect("read"), "here");
    assert!(storage.open("gone").await.is_err());
    assert_eq!(storage.list("").await.expect("list"), vec![]);
}

async fn unfinished_files_are_readable(storage: &Arc<dyn Storage>) {
    let mut file = storage.create("log/a").await.expect("create");
    file.append(&[Bytes::from_static(b"synced")]).await.expect("append");
    file.sync().await.expect("sync");
    let reader = storage.open("log/a").await.expect("open");
    file.append(&[Bytes::from_static(b", later")]).await.expect("append");
    file.sync().await.expect("sync");
    assert!(reader.len() >= 6);
    assert_eq!(reader.read_at(0, 6).await.expect("read"), "synced");
    assert_eq!(storage.read_all("log/a").await.expect("read"), "synced, later");
}
