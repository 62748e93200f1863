//! The storage as its callers see it, and the bytes below it.

use super::*;
use crate::{KeyFile, KeyService, SystemRandom};
use std::sync::atomic::{AtomicUsize, Ordering};
use stele_env::tokio_env::TokioRuntime;
use stele_storage::faulty::FaultyStorage;
use stele_storage::local::LocalStorage;
use stele_storage::memory::MemoryStorage;
use stele_storage::{conformance, past_unreadable};
use stele_types::ErrorKind;

/// A key service with these ids, separated by spaces. An id after `!` has another key than without.
pub(crate) fn key_file(ids: &str) -> Arc<dyn KeyService> {
    let line = |id: &str| {
        let digit = if id.starts_with('!') {
            "ff"
        } else {
            &format!("{:02x}", id.as_bytes()[0])
        };
        format!("{} {}\n", id.trim_start_matches('!'), digit.repeat(32))
    };
    let text: String = ids.split(' ').map(line).collect();
    Arc::new(KeyFile::parse(&text, Arc::new(SystemRandom)).unwrap())
}

/// Writes `content of PATH`.
pub(crate) async fn write(storage: &Arc<dyn Storage>, path: &str, table: Option<u64>) {
    let created = match table {
        None => storage.create(path).await,
        Some(table) => storage.create_of_table(path, TableId(table)).await,
    };
    let mut file = created.unwrap();
    file.append(&[Bytes::from(format!("content of {path}"))]).await.unwrap();
    file.sync().await.unwrap();
}

async fn ring(below: &Arc<dyn Storage>) -> Arc<KeyRing> {
    KeyRing::open(below.clone(), key_file("a"), Arc::new(SystemRandom))
        .await
        .unwrap()
}

async fn over(below: Arc<dyn Storage>) -> Arc<dyn Storage> {
    let ring = ring(&below).await;
    EncryptedStorage::of_root(below, ring)
}

/// Bytes that differ at every offset of a few blocks.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// The outcome of work that waits for nothing, as over a storage in memory.
pub(crate) fn now<T>(work: impl Future<Output = T>) -> T {
    futures::FutureExt::now_or_never(work).expect("nothing is waited for")
}

fn made(make: impl Fn() -> Arc<dyn Storage>) -> impl Fn() -> Arc<dyn Storage> {
    move || now(over(make()))
}

#[tokio::test]
async fn the_promises_of_a_storage_hold_over_memory() {
    conformance::run_all(made(|| MemoryStorage::new())).await;
    // In a root that had a file before, lengths in listings come from the files.
    let mixed = || {
        let below: Arc<dyn Storage> = MemoryStorage::new();
        let put = below.put_if_absent("old", Bytes::from_static(b"old"));
        now(put).unwrap();
        let storage = now(over(below.clone()));
        now(below.delete("old")).unwrap();
        storage
    };
    conformance::run_all(mixed).await;
}

#[tokio::test]
async fn the_promises_of_a_storage_hold_over_faulty_and_local_storages() {
    let env = TokioRuntime::current();
    conformance::run_all(made(|| FaultyStorage::new(env.clone()))).await;
    let folder = tempfile::tempdir().unwrap();
    let count = std::sync::atomic::AtomicU64::new(0);
    let mut storages = Vec::new();
    // Opened here, because a local storage needs the runtime, which may not be blocked within it.
    for _ in 0..64 {
        let root = folder.path().join(storages.len().to_string());
        storages.push(over(LocalStorage::open(&root, env.clone()).unwrap()).await);
    }
    let next = || storages[count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) as usize].clone();
    conformance::run_all(next).await;
}

#[tokio::test]
async fn every_range_is_read_alone() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = over(below).await;
    let content = content(100);
    let mut file = storage.create("sst/1.sst").await.unwrap();
    for part in content.chunks(7) {
        file.append(&[Bytes::copy_from_slice(part)]).await.unwrap();
    }
    file.sync().await.unwrap();
    let file = storage.open("sst/1.sst").await.unwrap();
    let known = storage.open_known("sst/1.sst", 100, 40..60).await.unwrap();
    for start in 0..=content.len() {
        for end in start..=content.len() {
            let (offset, len) = (start as u64, end - start);
            assert_eq!(file.read_at(offset, len).await.unwrap(), content[start..end]);
            assert_eq!(known.try_read_at(offset, len).unwrap().unwrap(), content[start..end]);
            let mut into = vec![0; len];
            file.try_read_into(offset, &mut into).unwrap().unwrap();
            assert_eq!(into, content[start..end]);
        }
    }
    assert_eq!(storage.read_all("sst/1.sst").await.unwrap(), content);
}

/// The golden bytes: no version of the program may read or write others.
#[tokio::test]
async fn an_encrypted_file_of_the_first_version_is_read() {
    struct Counting(std::sync::atomic::AtomicU8);
    impl crate::RandomBytes for Counting {
        fn fill(&self, bytes: &mut [u8]) -> std::result::Result<(), String> {
            bytes.fill(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
            Ok(())
        }
    }
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let random = Arc::new(Counting(1.into()));
    let service = KeyFile::parse(&format!("a {}", "61".repeat(32)), random.clone()).unwrap();
    let ring = KeyRing::open(below.clone(), Arc::new(service), random).await.unwrap();
    let storage: Arc<dyn Storage> = EncryptedStorage::of_root(below.clone(), ring);
    write(&storage, "sst/1.sst", Some(0x1234)).await;
    let written = async |path: &str| hex(&below.read_all(path).await.unwrap());
    let golden = include_str!("../../testdata/v1.txt");
    let mut found = String::new();
    for file in below.list("").await.unwrap() {
        found += &format!("{} {}\n", file.path, written(&file.path).await);
    }
    assert_eq!(found, golden);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn nothing_of_the_content_is_below() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = over(below.clone()).await;
    let marker = b"a marker that is long enough to be found";
    let mut log = storage.create("log/0/1.log").await.unwrap();
    log.try_append(&[b"before", marker]).unwrap().unwrap();
    log.append(&[Bytes::from_static(marker)]).await.unwrap();
    log.sync().await.unwrap();
    storage
        .put_if_absent("tablets/1/manifest-1", Bytes::from_static(marker))
        .await
        .unwrap();
    for path in ["log/0/1.log", "tablets/1/manifest-1"] {
        let bytes = below.read_all(path).await.unwrap();
        assert!(!bytes.windows(marker.len()).any(|part| part == marker), "{path}");
        let shown = storage.read_all(path).await.unwrap();
        assert!(shown.windows(marker.len()).any(|part| part == marker), "{path}");
    }
    // Files with the same content have nothing in common.
    storage
        .put_if_absent("tablets/1/manifest-2", Bytes::from_static(marker))
        .await
        .unwrap();
    let [one, two] = [1, 2].map(|n| format!("tablets/1/manifest-{n}"));
    assert_ne!(
        below.read_all(&one).await.unwrap()[64..],
        below.read_all(&two).await.unwrap()[64..]
    );
    // Those that a start reads first are as they were.
    storage
        .put_if_absent("FORMAT", Bytes::from_static(b"stele-data 1\n"))
        .await
        .unwrap();
    assert_eq!(below.read_all("FORMAT").await.unwrap(), "stele-data 1\n");
}

#[tokio::test]
async fn files_from_before_encryption_are_read() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let old = content(200);
    below
        .put_if_absent("sst/1.sst", Bytes::from(old.clone()))
        .await
        .unwrap();
    below
        .put_if_absent("sst/2.sst", Bytes::from_static(b"short"))
        .await
        .unwrap();
    let storage = over(below.clone()).await;
    write(&storage, "sst/3.sst", Some(1)).await;
    for _ in 0..2 {
        // The second one opens files of which it remembers nothing.
        for storage in [storage.clone(), over(below.clone()).await] {
            assert_eq!(storage.read_all("sst/1.sst").await.unwrap(), old);
            assert_eq!(
                storage.open("sst/2.sst").await.unwrap().read_at(1, 3).await.unwrap(),
                "hor"
            );
            assert_eq!(storage.read_all("sst/3.sst").await.unwrap(), "content of sst/3.sst");
            let lens: Vec<u64> = storage
                .list("sst/")
                .await
                .unwrap()
                .iter()
                .map(|file| file.len)
                .collect();
            assert_eq!(lens, [200, 5, 20]);
        }
    }
}

/// Counts the files that are opened, with and without a known range.
struct Opening(Arc<MemoryStorage>, [AtomicUsize; 2]);

#[async_trait]
impl Storage for Opening {
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        self.0.create(path).await
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        self.1[0].fetch_add(1, Ordering::Relaxed);
        self.0.open(path).await
    }

    async fn open_known(&self, path: &str, len: u64, first: Range<u64>) -> Result<Arc<dyn ReadFile>> {
        assert_eq!(first, 0..HEADER);
        self.1[1].fetch_add(1, Ordering::Relaxed);
        self.0.open_known(path, len, first).await
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        self.0.put_if_absent(path, content).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        self.0.list(prefix).await
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.0.delete(path).await
    }

    async fn sync_file(&self, path: &str) -> Result<()> {
        self.0.sync_file(path).await
    }

    async fn free_bytes(&self) -> Result<Option<u64>> {
        self.0.free_bytes().await
    }
}

/// Tests remember 100 files.
#[tokio::test]
async fn a_listing_reads_the_beginnings_of_files_that_are_not_remembered() {
    let memory = MemoryStorage::new();
    for number in 0..150 {
        let path = format!("sst/{number:03}.sst");
        memory.put_if_absent(&path, content(100).into()).await.unwrap();
    }
    let below = Arc::new(Opening(memory.clone(), Default::default()));
    let storage = over(below.clone()).await;
    below.1[0].store(0, Ordering::Relaxed);
    for expected in [150, 50, 50] {
        let listed = storage.list("sst/").await.unwrap();
        assert!(listed.len() == 150 && listed.iter().all(|file| file.len == 100));
        let opened = [0, 1].map(|known| below.1[known].swap(0, Ordering::Relaxed));
        assert_eq!(opened, [0, expected]);
    }
    // Another server deletes some of those that are remembered, and makes an encrypted one.
    for file in &memory.list("sst/").await.unwrap()[..80] {
        memory.delete(&file.path).await.unwrap();
    }
    write(&over(memory).await, "sst/999.sst", None).await;
    for expected in [51, 0] {
        assert_eq!(storage.list("sst/").await.unwrap().len(), 71);
        assert_eq!(below.1[1].swap(0, Ordering::Relaxed), expected);
    }
    // Its own new files are remembered, and a listing of a part forgets nothing.
    write(&storage, "sst/998.sst", None).await;
    assert_eq!(storage.list("sst/99").await.unwrap().len(), 2);
    assert_eq!(storage.list("sst/").await.unwrap().len(), 72);
    assert_eq!(below.1[1].load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_damaged_header_is_told() {
    let below = MemoryStorage::new();
    let storage = over(below.clone()).await;
    write(&storage, "sst/1.sst", Some(1)).await;
    let good = below.read_all("sst/1.sst").await.unwrap();
    for at in 0..HEADER_BYTES {
        for (path, is_cut) in [(format!("sst/cut-{at}"), true), (format!("sst/bit-{at}"), false)] {
            let mut bytes = good.to_vec();
            match is_cut {
                true => bytes.truncate(at),
                false => bytes[at] ^= 1,
            }
            below.put_if_absent(&path, bytes.into()).await.unwrap();
            let (opened, read) = (storage.open(&path).await, storage.read_all(&path).await);
            // Without its magic the file is not known to be encrypted: its own format finds the damage.
            if is_cut && at == 0 || !is_cut && at < 8 {
                assert_ne!(read.unwrap(), "content of sst/1.sst");
                continue;
            }
            assert_eq!(opened.err().unwrap().kind(), ErrorKind::Corruption, "{path}");
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Corruption, "{path}");
        }
    }
}

/// Power fails before the first sync of a log.
#[tokio::test]
async fn a_log_whose_header_was_not_synced_is_empty_or_invalid() {
    let below = MemoryStorage::new();
    let storage = over(below.clone()).await;
    write(&storage, "log/0/1.log", None).await;
    let good = below.read_all("log/0/1.log").await.unwrap();
    for len in 0..=good.len() {
        let path = format!("log/0/{}.log", 2 + len);
        below.put_if_absent(&path, good.slice(..len)).await.unwrap();
        let expected = &b"content of log/0/1.log"[..len.saturating_sub(HEADER_BYTES)];
        assert_eq!(storage.read_all(&path).await.unwrap(), expected);
        let file = storage.open(&path).await.unwrap();
        assert_eq!(file.len(), expected.len() as u64);
        file.read_at(file.len(), 1).await.unwrap_err();
        assert!(file.read_at(file.len(), 0).await.unwrap().is_empty());
        assert!(file.try_read_at(file.len(), 0).unwrap().unwrap().is_empty());
        file.try_read_into(file.len(), &mut []).unwrap().unwrap();
    }
    let mut torn = good.to_vec();
    torn[20..].fill(0);
    below
        .put_if_absent("log/0/torn.log", torn.clone().into())
        .await
        .unwrap();
    assert_eq!(storage.read_all("log/0/torn.log").await.unwrap(), torn);
    assert_eq!(storage.open("log/0/torn.log").await.unwrap().len(), torn.len() as u64);
}

#[tokio::test]
async fn a_file_of_another_root_is_told() {
    let (below, other) = (MemoryStorage::new(), MemoryStorage::new());
    let (storage, theirs) = (over(below.clone()).await, over(other.clone()).await);
    write(&theirs, "sst/1.sst", None).await;
    below
        .put_if_absent("sst/1.sst", other.read_all("sst/1.sst").await.unwrap())
        .await
        .unwrap();
    for error in [
        storage.open("sst/1.sst").await.err(),
        storage.read_all("sst/1.sst").await.err(),
    ] {
        let error = error.unwrap();
        assert!(error.to_string().contains("another data root"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
    write(&theirs, "sst/2.sst", Some(9)).await;
    below
        .put_if_absent("sst/2.sst", other.read_all("sst/2.sst").await.unwrap())
        .await
        .unwrap();
    let error = storage.open("sst/2.sst").await.err().unwrap();
    assert!(error.to_string().contains("table-0000000000000009"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

#[tokio::test]
async fn appends_of_all_sizes_read_back() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = over(below).await;
    let content = content(6 << 20);
    let mut file = storage.create("log/0/1.log").await.unwrap();
    let (mut at, mut turn) = (0, 0usize);
    for len in [1, 15, 16, 17, 0, 1 << 20, (1 << 20) + 1, 3 << 20, 100] {
        let part = &content[at..at + len];
        turn += 1;
        let (one, two) = part.split_at(len / 3);
        let tried = match turn % 2 {
            0 => file.try_append(&[one, two]),
            _ => None,
        };
        match tried {
            Some(done) => done.unwrap(),
            None => file.append(&[one, &[], two].map(Bytes::copy_from_slice)).await.unwrap(),
        }
        at += len;
        assert_eq!(file.len(), at as u64);
    }
    file.sync().await.unwrap();
    assert!(
        storage.read_all("log/0/1.log").await.unwrap() == content[..at],
        "other bytes"
    );
    let again = storage.open("log/0/1.log").await.unwrap();
    assert_eq!(
        again.read_at(1_000_001, 77).await.unwrap(),
        content[1_000_001..1_000_078]
    );
}

#[tokio::test]
async fn bytes_that_the_device_cannot_read_are_where_they_were() {
    let below = MemoryStorage::new();
    let storage = over(below.clone()).await;
    storage
        .put_if_absent("sst/1.sst", Bytes::from(content(40_000)))
        .await
        .unwrap();
    below.make_unreadable("sst/1.sst", 10_000..10_001);
    let file = storage.open("sst/1.sst").await.unwrap();
    let error = file.read_at(0, 40_000).await.unwrap_err();
    assert!(
        matches!(error, StorageError::Unreadable { offset: ..=9_936, .. }),
        "{error}"
    );
    let past = past_unreadable::open(&*storage, "sst/1.sst").await.unwrap();
    let read = past.read_all().await.unwrap();
    assert_eq!(read.len(), 40_000);
    assert_eq!(read[20_000..], content(40_000)[20_000..]);
    assert_eq!(read[9_936], past_unreadable::FILLER);
}

/// Sectors of the device begin where they do without the header.
#[tokio::test]
async fn an_unreadable_sector_takes_no_byte_of_its_neighbours() {
    let below = MemoryStorage::new();
    let storage = over(below.clone()).await;
    storage
        .put_if_absent("sst/1.sst", content(20_000).into())
        .await
        .unwrap();
    for (sector, lost) in [(8_192..12_288, 8_128..12_224), (16_384..20_064, 16_320..20_000)] {
        below.make_unreadable("sst/1.sst", sector);
        let past = past_unreadable::open(&*storage, "sst/1.sst").await.unwrap();
        let (from, to) = (lost.start as usize, lost.end as usize);
        let read = past.read_at(from as u64 - 100, to - from + 100).await.unwrap();
        assert_eq!(read[..100], content(20_000)[from - 100..from]);
        assert!(read[100..].iter().all(|byte| *byte == past_unreadable::FILLER));
        assert_eq!(past.unreadable(), [lost]);
    }
    let past = past_unreadable::open(&*storage, "sst/1.sst").await.unwrap();
    let read = past.read_all().await.unwrap();
    let wrong = read.iter().zip(content(20_000)).filter(|(read, byte)| *read != byte);
    assert!(wrong.count() <= 4_096 + 3_680, "readable bytes were given up");
    assert_eq!(past.unreadable_bytes(), 4_096 + 3_680);
}

/// A header that cannot be read takes only its own file. The bytes below can still be copied.
#[tokio::test]
async fn a_file_without_a_readable_header_is_lost_alone() {
    let below = MemoryStorage::new();
    // So lengths in listings depend on the beginnings of files.
    below.put_if_absent("sst/0.sst", "plain".into()).await.unwrap();
    let storage = over(below.clone()).await;
    for path in ["sst/1.sst", "sst/2.sst"] {
        storage.put_if_absent(path, content(5_000).into()).await.unwrap();
    }
    below.make_unreadable("sst/1.sst", 0..1);
    let again = over(below.clone()).await;
    let lens: Vec<u64> = again.list("sst/").await.unwrap().iter().map(|file| file.len).collect();
    assert_eq!(lens, [5, 5_000, 5_000]);
    assert!(past_unreadable::open(&*again, "sst/1.sst").await.is_err());
    let past = past_unreadable::open_or_lost(&*again, "sst/1.sst").await.unwrap();
    assert!(past.read_all().await.unwrap() == vec![past_unreadable::FILLER; 5_000]);
    assert_eq!(past.unreadable_bytes(), 5_000);
    let stored = again.stored().unwrap().open("sst/1.sst").await.unwrap();
    assert_eq!(stored.len(), 5_000 + HEADER);
    let key = KeyName::Table(TableId(7));
    let missing = EncryptionError::Missing { path: key.prefix() }.into_storage();
    assert!(
        !past_unreadable::is_lost(&missing, "sst/1.sst"),
        "a key can be restored"
    );
}

#[tokio::test]
async fn keys_are_not_files_of_the_storage() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = over(below.clone()).await;
    let path = KeyName::Root.path(1);
    assert_eq!(below.list("").await.unwrap().len(), 1);
    assert!(storage.list("").await.unwrap().is_empty());
    assert!(storage.open(&path).await.is_err());
    assert!(storage.delete(&path).await.is_err());
    assert!(storage.delete_all(std::slice::from_ref(&path)).await.is_err());
    assert!(storage.put_if_absent("encryption/x", Bytes::new()).await.is_err());
    below.open(&path).await.unwrap();
}
