//! Encrypted files with a damaged header are set aside like others that cannot be read.

use super::*;
use stele_encryption::{EncryptedStorage, KeyFile, KeyRing, SystemRandom};

/// A byte of the header that its checksum covers.
const IN_HEADER: usize = 50;

/// The same folder under encryption: the bytes as they are stored, and the storage over them. With `was_plain`, it had a
/// file before encryption was on.
async fn encrypted(plain: &MemoryStorage, was_plain: bool) -> (Arc<MemoryStorage>, Arc<dyn Storage>) {
    let below = MemoryStorage::new();
    if was_plain {
        below.put_if_absent("damaged/old", Bytes::from("plain")).await.unwrap();
    }
    let storage = over(&below).await;
    for (path, bytes) in content(plain).await {
        storage.put_if_absent(&path, bytes).await.unwrap();
    }
    (below, storage)
}

/// A storage as after a start: nothing is remembered of any file.
async fn over(below: &Arc<MemoryStorage>) -> Arc<dyn Storage> {
    let service = KeyFile::parse(&format!("k {}", "11".repeat(32)), Arc::new(SystemRandom)).unwrap();
    let ring = KeyRing::open(below.clone(), Arc::new(service), Arc::new(SystemRandom)).await;
    EncryptedStorage::of_root(below.clone(), ring.unwrap())
}

async fn run_over(storage: &Arc<dyn Storage>, mode: Mode) -> (String, bool) {
    repair(storage.clone(), TokioRuntime::current(), Progress::hidden(), mode)
        .await
        .unwrap()
}

/// Damages the header of a file, repairs, and checks that the file was kept as it was. Returns the text and the storage.
async fn repaired(plain: &MemoryStorage, path: &str) -> (String, Arc<dyn Storage>) {
    let (below, storage) = encrypted(plain, false).await;
    flip(&below, path, IN_HEADER).await;
    let was = below.read_all(path).await.unwrap();
    let before = content(&below).await;
    let dry = run_over(&storage, DRY_ACCEPTING).await;
    assert!(dry.1 && dry.0.contains(path), "{}", dry.0);
    assert_eq!(content(&below).await, before);
    let (text, in_order) = run_over(&storage, ACCEPTING).await;
    assert!(in_order, "{text}");
    let kept = format!("kept as damaged/{path} (encrypted, as it was stored)");
    assert!(text.contains(&kept), "{text}");
    assert_eq!(below.read_all(&format!("damaged/{path}")).await.unwrap(), was);
    (text, storage)
}

#[tokio::test]
async fn a_log_segment() {
    let plain = folder().await;
    let path = log_with(&plain, b"a21").await;
    let (text, storage) = repaired(&plain, &path).await;
    assert!(text.contains("of tablets that are not known"), "{text}");
    let left = rows(&start(storage).await).await;
    assert!((40..43).contains(&left.len()), "{} rows left\n{text}", left.len());
}

#[tokio::test]
async fn a_snapshot_of_the_catalog() {
    let first = folder().await;
    drop(start(first.clone()).await);
    let plain = copy(&*first).await;
    let path = newest(&plain, "coord/snapshot-").await;
    let (text, storage) = repaired(&plain, &path).await;
    assert!(text.contains("nothing of it is lost"), "{text}");
    assert_eq!(rows(&start(storage).await).await.len(), 43);
}

#[tokio::test]
async fn a_log_of_the_catalog() {
    let first = folder().await;
    drop(start(first.clone()).await);
    let plain = copy(&*first).await;
    let path = newest(&plain, "coord/log-").await;
    let (text, storage) = repaired(&plain, &path).await;
    assert!(text.contains("lost: every change"), "{text}");
    assert_eq!(rows(&start(storage).await).await.len(), 43);
}

#[tokio::test]
async fn a_manifest() {
    let plain = folder().await;
    let path = plain.list("tablets/").await.unwrap()[0].path.clone();
    let (text, storage) = repaired(&plain, &path).await;
    assert!(text.contains("no version of its manifest can be read"), "{text}");
    assert_eq!(rows(&start(storage).await).await.len(), 43, "its log is there");
}

#[tokio::test]
async fn an_sstable() {
    let plain = folder().await;
    let path = plain.list("sst/").await.unwrap()[0].path.clone();
    let (text, storage) = repaired(&plain, &path).await;
    assert!(rows(&start(storage).await).await.len() >= 20, "{text}");
}

/// A header that the device cannot read is as bad as a damaged one, also where files may be from before encryption.
#[tokio::test]
async fn a_header_that_the_device_cannot_read() {
    for was_plain in [false, true] {
        let plain = folder().await;
        let path = log_with(&plain, b"a21").await;
        let (below, storage) = encrypted(&plain, was_plain).await;
        below.make_unreadable(&path, 0..1);
        drop(storage);
        let storage = over(&below).await;
        let (text, in_order) = run_over(&storage, Mode::default()).await;
        assert!(in_order && text.contains("bytes that cannot be read"), "{text}");
        let left = rows(&start(storage).await).await;
        assert!((40..43).contains(&left.len()), "{} rows left\n{text}", left.len());
    }
}
