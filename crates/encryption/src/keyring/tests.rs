//! Keys are made, found, rotated and refused; the process ends at every change.

use super::*;
use crate::storage::tests::{key_file, now, write};
use crate::{EncryptedStorage, KeyContext, KeyServices, SystemRandom};
use async_trait::async_trait;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use stele_storage::memory::MemoryStorage;
use stele_storage::{AppendFile, FileInfo, ReadFile};
use stele_types::{ErrorKind, TableId};

fn random() -> Arc<dyn RandomBytes> {
    Arc::new(SystemRandom)
}

async fn open(below: Arc<dyn Storage>, keys: &str) -> Result<Arc<KeyRing>> {
    KeyRing::open(below, key_file(keys), random()).await
}

/// All files below encryption, with their bytes.
async fn files(below: &dyn Storage) -> Vec<(String, Bytes)> {
    let mut files = Vec::new();
    for file in below.list("").await.unwrap() {
        files.push((file.path.clone(), below.read_all(&file.path).await.unwrap()));
    }
    files
}

async fn paths(below: &dyn Storage) -> Vec<String> {
    files(below).await.into_iter().map(|(path, _)| path).collect()
}

fn encrypted(below: Arc<dyn Storage>, ring: Arc<KeyRing>) -> Arc<dyn Storage> {
    EncryptedStorage::of_root(below, ring)
}

#[tokio::test]
async fn a_root_and_each_table_have_a_key() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    assert!(
        KeyRing::look(below.clone(), key_file("a"), random())
            .await
            .unwrap()
            .is_none()
    );
    let storage = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    write(&storage, "log/0/1.log", None).await;
    write(&storage, "sst/1.sst", Some(7)).await;
    write(&storage, "sst/2.sst", Some(8)).await;
    write(&storage, "sst/3.sst", Some(7)).await;
    let expected = [
        "encryption/root-00000001.00000001",
        "encryption/table-0000000000000007-00000001.00000001",
        "encryption/table-0000000000000008-00000001.00000001",
    ];
    assert_eq!(paths(&*below).await[..3], expected);
    let keys: Vec<KeyName> = [1, 2, 3]
        .map(|n| format!("sst/{n}.sst"))
        .iter()
        .map(|path| {
            let content = files_now(&below, path);
            crate::FileHeader::decode(content.first_chunk().unwrap()).unwrap().key
        })
        .collect();
    let of = |table| KeyName::Table(TableId(table));
    assert_eq!(keys, [of(7), of(8), of(7)]);
    // Another process finds them, and reads everything.
    let again = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    for path in ["log/0/1.log", "sst/1.sst", "sst/2.sst", "sst/3.sst"] {
        assert_eq!(again.read_all(path).await.unwrap(), format!("content of {path}"));
    }
}

fn files_now(below: &Arc<dyn Storage>, path: &str) -> Bytes {
    now(below.read_all(path)).unwrap()
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_changes_nothing() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    write(&storage, "sst/1.sst", Some(7)).await;
    let before = files(&*below).await;
    for (keys, why) in [
        ("b", "\"a\", which is not among"),
        ("!a", "does not unwrap it"),
        ("b !a", "does not unwrap it"),
    ] {
        let error = open(below.clone(), keys).await.err().unwrap().to_string();
        assert!(error.contains(why), "{keys}: {error}");
        let looked = KeyRing::look(below.clone(), key_file(keys), random()).await;
        assert!(looked.is_err(), "{keys}");
    }
    assert_eq!(files(&*below).await, before);
}

#[tokio::test]
async fn keys_are_rotated_at_a_start() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    write(&storage, "sst/1.sst", Some(7)).await;
    let rotated = encrypted(below.clone(), open(below.clone(), "b a").await.unwrap());
    let left = paths(&*below).await;
    assert_eq!(
        left[..2],
        [
            "encryption/root-00000001.00000002",
            "encryption/table-0000000000000007-00000001.00000002"
        ]
    );
    assert_eq!(left.len(), 3);
    // Both the server that rotated and one that runs on go on to write.
    write(&rotated, "sst/2.sst", Some(7)).await;
    let runs_on = encrypted(below.clone(), open(below.clone(), "b a").await.unwrap());
    open(below.clone(), "c b a").await.unwrap();
    write(&runs_on, "sst/3.sst", Some(7)).await;
    open(below.clone(), "b c").await.unwrap();
    for storage in [storage, rotated] {
        assert_eq!(storage.read_all("sst/1.sst").await.unwrap(), "content of sst/1.sst");
    }
    // The former key is not needed any more, and does not suffice.
    open(below.clone(), "b").await.unwrap();
    open(below.clone(), "a").await.err().unwrap();
    // A server that still has the former key first takes it back.
    open(below.clone(), "a b").await.unwrap();
    open(below, "a").await.unwrap();
}

/// As from one installation of Vault to another: all names are the same.
#[tokio::test]
async fn a_key_is_replaced_by_another_one_of_the_same_id() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    write(&storage, "sst/1.sst", Some(7)).await;
    let both = KeyServices::of(vec![key_file("!a"), key_file("a")]).unwrap();
    KeyRing::open(below.clone(), both, random()).await.unwrap();
    open(below.clone(), "a").await.err().unwrap();
    let new = encrypted(below.clone(), open(below, "!a").await.unwrap());
    assert_eq!(new.read_all("sst/1.sst").await.unwrap(), "content of sst/1.sst");
}

/// Answers a moment later, as over a network.
struct Distant {
    service: Arc<dyn KeyService>,
    now: AtomicU64,
    most: AtomicU64,
}

#[async_trait]
impl KeyService for Distant {
    fn current(&self) -> &str {
        self.service.current()
    }

    async fn wrap(&self, key: &DataKey, context: &KeyContext) -> std::result::Result<Wrapped, KeyError> {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.now.fetch_sub(1, Ordering::Relaxed);
        self.service.wrap(key, context).await
    }

    async fn unwrap(&self, wrapped: &Wrapped, context: &KeyContext) -> std::result::Result<DataKey, KeyError> {
        self.service.unwrap(wrapped, context).await
    }
}

/// While the first key of a table is wrapped, another server makes one, and a third one rotates it.
struct Overtaken {
    service: Arc<dyn KeyService>,
    below: Arc<dyn Storage>,
    is_overtaken: AtomicBool,
}

#[async_trait]
impl KeyService for Overtaken {
    fn current(&self) -> &str {
        self.service.current()
    }

    async fn wrap(&self, key: &DataKey, context: &KeyContext) -> std::result::Result<Wrapped, KeyError> {
        if self.is_overtaken.swap(false, Ordering::Relaxed) {
            let other = encrypted(self.below.clone(), open(self.below.clone(), "a").await.unwrap());
            write(&other, "sst/1.sst", Some(7)).await;
            open(self.below.clone(), "b a").await.unwrap();
        }
        self.service.wrap(key, context).await
    }

    async fn unwrap(&self, wrapped: &Wrapped, context: &KeyContext) -> std::result::Result<DataKey, KeyError> {
        self.service.unwrap(wrapped, context).await
    }
}

/// Its first number is free again, and the next start would delete a file there.
#[tokio::test]
async fn a_key_that_others_have_made_and_rotated_meanwhile_is_not_made_again() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let service = Arc::new(Overtaken {
        service: key_file("a b"),
        below: below.clone(),
        is_overtaken: AtomicBool::new(false),
    });
    let ring = KeyRing::open(below.clone(), service.clone(), random()).await.unwrap();
    let slow = encrypted(below.clone(), ring);
    service.is_overtaken.store(true, Ordering::Relaxed);
    write(&slow, "sst/2.sst", Some(7)).await;
    let of_table = KeyName::Table(TableId(7));
    let listed = below.list(&of_table.prefix()).await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].path, of_table.path(2));
    let next = encrypted(below.clone(), open(below, "b a").await.unwrap());
    for path in ["sst/1.sst", "sst/2.sst"] {
        assert_eq!(next.read_all(path).await.unwrap(), format!("content of {path}"));
    }
}

/// Nobody is served before the last of them is wrapped.
#[tokio::test]
async fn a_rotation_does_not_wait_for_each_key() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    for table in 0..100 {
        write(&storage, &format!("sst/{table}.sst"), Some(table)).await;
    }
    let distant = Arc::new(Distant {
        service: key_file("b a"),
        now: AtomicU64::new(0),
        most: AtomicU64::new(0),
    });
    KeyRing::open(below.clone(), distant.clone(), random()).await.unwrap();
    assert_eq!(distant.most.load(Ordering::Relaxed), 32);
    assert_eq!(below.list(DIRECTORY).await.unwrap().len(), 101);
    open(below, "b").await.unwrap();
}

#[tokio::test]
async fn damage_is_told_and_an_older_file_of_a_key_helps() {
    let memory = MemoryStorage::new();
    let below: Arc<dyn Storage> = memory.clone();
    open(below.clone(), "a").await.unwrap();
    let path = KeyName::Root.path(1);
    let good = below.read_all(&path).await.unwrap();
    below.delete(&path).await.unwrap();
    let cut = good.slice(..good.len() - 1);
    below.put_if_absent(&path, cut.clone()).await.unwrap();
    let error = open(below.clone(), "a").await.err().unwrap().to_string();
    assert!(error.contains(&path) && error.contains("checksum"), "{error}");
    below.put_if_absent(&KeyName::Root.path(2), good).await.unwrap();
    open(below.clone(), "a").await.unwrap();
    // The lower file went, and a damaged higher one does no harm.
    assert_eq!(paths(&*below).await, [KeyName::Root.path(2)]);
    below.put_if_absent(&KeyName::Root.path(3), cut).await.unwrap();
    open(below.clone(), "a").await.unwrap();
    open(below.clone(), "b a").await.unwrap();
    assert_eq!(paths(&*below).await, [KeyName::Root.path(4)]);
}

#[tokio::test]
async fn keys_without_that_of_the_root_and_strange_files_are_refused() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    write(&storage, "sst/1.sst", Some(7)).await;
    below.put_if_absent("encryption/notes", Bytes::new()).await.unwrap();
    let error = open(below.clone(), "a").await.err().unwrap().to_string();
    assert!(error.contains("encryption/notes"), "{error}");
    below.delete("encryption/notes").await.unwrap();
    // The key of a table of another root.
    let other: Arc<dyn Storage> = MemoryStorage::new();
    let of_table = KeyName::Table(TableId(7));
    let in_other = encrypted(other.clone(), open(other.clone(), "a").await.unwrap());
    write(&in_other, "sst/1.sst", Some(7)).await;
    let ours = below.read_all(&of_table.path(1)).await.unwrap();
    below.delete(&of_table.path(1)).await.unwrap();
    let theirs = other.read_all(&of_table.path(1)).await.unwrap();
    below.put_if_absent(&of_table.path(1), theirs).await.unwrap();
    let without = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    let error = without.open("sst/1.sst").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    below.delete(&of_table.path(1)).await.unwrap();
    below.put_if_absent(&of_table.path(1), ours).await.unwrap();
    open(below.clone(), "a").await.unwrap();
    below.delete(&KeyName::Root.path(1)).await.unwrap();
    let error = open(below, "a").await.err().unwrap().to_string();
    assert!(error.contains("root-00000001") && error.contains("missing"), "{error}");
}

/// The files of a table under a new key would be lost when the former key is restored.
#[tokio::test]
async fn no_key_is_made_in_the_place_of_a_lost_one() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    write(&storage, "sst/1.sst", Some(7)).await;
    let of_table = KeyName::Table(TableId(7));
    let kept = below.read_all(&of_table.path(1)).await.unwrap();
    below.delete(&of_table.path(1)).await.unwrap();
    let again = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    let error = again.open("sst/1.sst").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    let before = files(&*below).await;
    let error = again.create_of_table("sst/2.sst", TableId(7)).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains("table-0000000000000007"), "{error}");
    assert_eq!(files(&*below).await, before);
    write(&again, "sst/3.sst", Some(8)).await;
    // Under whichever number it is restored.
    below.put_if_absent(&of_table.path(2), kept).await.unwrap();
    write(&again, "sst/2.sst", Some(7)).await;
    let restored = encrypted(below.clone(), open(below, "a").await.unwrap());
    for path in ["sst/1.sst", "sst/2.sst", "sst/3.sst"] {
        assert_eq!(restored.read_all(path).await.unwrap(), format!("content of {path}"));
    }
}

/// Of a copy without the directory of the keys. Servers that have the former key in memory write on.
#[tokio::test]
async fn no_first_key_is_made_for_a_root_with_files_of_a_lost_one() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    // Encryption began when files were there.
    for path in ["log/0/0.log", "sst/0.sst", "FORMAT", "short"] {
        below.put_if_absent(path, Bytes::from_static(b"plain")).await.unwrap();
    }
    let storage = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    write(&storage, "sst/1.sst", Some(7)).await;
    for path in paths(&*below).await {
        if path.starts_with(crate::DIRECTORY) {
            below.delete(&path).await.unwrap();
        }
    }
    let before = files(&*below).await;
    let refused = open(below.clone(), "a").await.err().unwrap();
    assert!(matches!(refused, EncryptionError::Needed { .. }), "{refused}");
    assert_eq!(files(&*below).await, before);
    below.delete("sst/1.sst").await.unwrap();
    assert!(!open(below, "a").await.unwrap().is_fresh());
}

#[tokio::test]
async fn a_damaged_key_of_a_table_costs_only_that_table() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    write(&storage, "sst/1.sst", Some(7)).await;
    write(&storage, "sst/2.sst", Some(8)).await;
    let path = KeyName::Table(TableId(7)).path(1);
    let good = below.read_all(&path).await.unwrap();
    let mut flipped = good.to_vec();
    flipped[60] ^= 1;
    // Its checksum is right, and the key service refuses it.
    let mut refused = KeyRecord::decode(&good).unwrap();
    refused.wrapped.bytes[20] ^= 1;
    for damaged in [flipped, refused.encode()] {
        below.delete(&path).await.unwrap();
        below.put_if_absent(&path, damaged.clone().into()).await.unwrap();
        let looking = KeyRing::look(below.clone(), key_file("a"), random()).await;
        assert!(looking.unwrap().is_some());
        let again = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
        assert_eq!(again.read_all("sst/2.sst").await.unwrap(), "content of sst/2.sst");
        for error in [
            again.read_all("sst/1.sst").await.err(),
            again.create_of_table("sst/3.sst", TableId(7)).await.err(),
        ] {
            let error = error.unwrap();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        }
        assert_eq!(below.read_all(&path).await.unwrap(), damaged);
        // Nor when somebody has deleted the damaged file.
        below.delete(&path).await.unwrap();
        again.create_of_table("sst/3.sst", TableId(7)).await.err().unwrap();
        assert_eq!(below.list(DIRECTORY).await.unwrap().len(), 2);
        below.put_if_absent(&path, good.clone()).await.unwrap();
        assert_eq!(again.read_all("sst/1.sst").await.unwrap(), "content of sst/1.sst");
    }
    // Without that of the root nothing is made.
    below.delete(&path).await.unwrap();
    below.put_if_absent(&path, refused.encode().into()).await.unwrap();
    below.delete(&KeyName::Root.path(1)).await.unwrap();
    let error = open(below, "a").await.err().unwrap().to_string();
    assert!(error.contains("root-00000001") && error.contains("missing"), "{error}");
}

#[tokio::test]
async fn servers_that_share_a_root_have_the_same_keys() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let rings = futures::future::join_all((0..5).map(|_| open(below.clone(), "a"))).await;
    let servers: Vec<Arc<dyn Storage>> = rings
        .into_iter()
        .map(|ring| encrypted(below.clone(), ring.unwrap()))
        .collect();
    let names: Vec<String> = (0..5).map(|n| format!("sst/{n}.sst")).collect();
    futures::future::join_all(
        servers
            .iter()
            .zip(&names)
            .map(|(server, path)| write(server, path, Some(3))),
    )
    .await;
    for (server, path) in servers
        .iter()
        .flat_map(|server| names.iter().map(move |path| (server, path)))
    {
        assert_eq!(server.read_all(path).await.unwrap(), format!("content of {path}"));
    }
    assert_eq!(below.list(DIRECTORY).await.unwrap().len(), 2);
    // All rotate at the same time, one of them backwards.
    let starts = ["b a", "b a", "a b", "b a"].map(|keys| open(below.clone(), keys));
    futures::future::join_all(starts)
        .await
        .into_iter()
        .for_each(|ring| drop(ring.unwrap()));
    let again = encrypted(below.clone(), open(below.clone(), "a b").await.unwrap());
    assert_eq!(again.read_all("sst/0.sst").await.unwrap(), "content of sst/0.sst");
}

/// Has the keys rotated behind a listing, once.
struct Rotating {
    below: Arc<dyn Storage>,
    keys: parking_lot::Mutex<Option<&'static str>>,
}

#[async_trait]
impl stele_storage::Layer for Rotating {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<FileInfo>> {
        let listed = self.below.list(prefix).await;
        let rotated = self.keys.lock().take();
        if let Some(keys) = rotated {
            open(self.below.clone(), keys).await.unwrap();
        }
        listed
    }
}

#[tokio::test]
async fn keys_are_found_while_another_server_rotates_them() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    write(&storage, "sst/1.sst", Some(7)).await;
    let rotating = Arc::new(Rotating {
        below: below.clone(),
        keys: parking_lot::Mutex::new(Some("b a")),
    });
    // At a start, which lists all keys.
    let ring = open(rotating.clone(), "b a").await.unwrap();
    let server = encrypted(rotating.clone(), ring);
    assert_eq!(server.read_all("sst/1.sst").await.unwrap(), "content of sst/1.sst");
    // Later, for the key of a new table.
    let other = encrypted(below.clone(), open(below.clone(), "b a").await.unwrap());
    write(&other, "sst/2.sst", Some(8)).await;
    *rotating.keys.lock() = Some("a b");
    assert_eq!(server.read_all("sst/2.sst").await.unwrap(), "content of sst/2.sst");
}

/// Gives prepared listings of a table's key first.
struct Listed {
    below: Arc<dyn Storage>,
    listings: parking_lot::Mutex<VecDeque<Vec<u32>>>,
}

const OF_TABLE: KeyName = KeyName::Table(TableId(7));

#[async_trait]
impl stele_storage::Layer for Listed {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<FileInfo>> {
        let is_of_table = prefix == OF_TABLE.prefix();
        let prepared = is_of_table.then(|| self.listings.lock().pop_front()).flatten();
        let Some(numbers) = prepared else {
            return self.below.list(prefix).await;
        };
        let file = |number| FileInfo {
            path: OF_TABLE.path(number),
            len: 100,
        };
        Ok(numbers.into_iter().map(file).collect())
    }
}

/// A root whose table has a key that was rotated twice, and the first file of a server that was too late to make the key.
async fn root_with_late_file() -> Arc<dyn Storage> {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let storage = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    write(&storage, "sst/1.sst", Some(7)).await;
    open(below.clone(), "b a").await.unwrap();
    open(below.clone(), "a b").await.unwrap();
    let late: Arc<dyn Storage> = MemoryStorage::new();
    let root = below.read_all(&KeyName::Root.path(3)).await.unwrap();
    late.put_if_absent(&KeyName::Root.path(3), root).await.unwrap();
    let other = encrypted(late.clone(), open(late.clone(), "a").await.unwrap());
    write(&other, "sst/1.sst", Some(7)).await;
    let file = late.read_all(&OF_TABLE.path(1)).await.unwrap();
    below.put_if_absent(&OF_TABLE.path(1), file).await.unwrap();
    below
}

/// A server reads the first file of a late one only if it is the only one.
#[tokio::test]
async fn a_late_first_file_of_a_key_is_not_used() {
    let below = root_with_late_file().await;
    for listings in [
        // The second file goes after the listings.
        vec![vec![1, 2], vec![1, 2]],
        // A listing has met neither the second file nor the third.
        vec![vec![1]],
    ] {
        let listed = Arc::new(Listed {
            below: below.clone(),
            listings: parking_lot::Mutex::new(listings.clone().into()),
        });
        let found = list_and_read(&*listed, &*key_file("a b"), OF_TABLE)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(found.number, 3, "{listings:?}");
    }
    let again = encrypted(below.clone(), open(below, "a b").await.unwrap());
    assert_eq!(again.read_all("sst/1.sst").await.unwrap(), "content of sst/1.sst");
}

/// A server with the former key-encryption key alone does not take the late file for the key.
#[tokio::test]
async fn a_key_that_cannot_be_unwrapped_is_not_replaced_by_a_late_file() {
    let below = root_with_late_file().await;
    let current = key_file("b a");
    let found = list_and_read(&*below, &*current, OF_TABLE).await.unwrap().unwrap();
    let record = KeyRecord {
        wrapped: wrap(&*current, &found.key, OF_TABLE, (found.record.root, false))
            .await
            .unwrap(),
        ..found.record
    };
    below
        .put_if_absent(&OF_TABLE.path(4), record.encode().into())
        .await
        .unwrap();
    let error = open(below.clone(), "a").await.err().unwrap().to_string();
    assert!(error.contains("is not among the given ones"), "{error}");
    let again = encrypted(below.clone(), open(below, "a b").await.unwrap());
    assert_eq!(again.read_all("sst/1.sst").await.unwrap(), "content of sst/1.sst");
}

/// The listing after its own put has met only its own file, since the key was rotated meanwhile.
#[tokio::test]
async fn a_server_that_is_late_finds_the_key_though_a_listing_misses_it() {
    let below: Arc<dyn Storage> = MemoryStorage::new();
    let other = encrypted(below.clone(), open(below.clone(), "a").await.unwrap());
    let listed = Arc::new(Listed {
        below: below.clone(),
        listings: parking_lot::Mutex::default(),
    });
    let late = encrypted(listed.clone(), open(listed.clone(), "a b").await.unwrap());
    write(&other, "sst/1.sst", Some(7)).await;
    open(below.clone(), "b a").await.unwrap();
    *listed.listings.lock() = [vec![], vec![], vec![1]].into();
    write(&late, "sst/2.sst", Some(7)).await;
    let again = encrypted(below.clone(), open(below, "b a").await.unwrap());
    for path in ["sst/1.sst", "sst/2.sst"] {
        assert_eq!(again.read_all(path).await.unwrap(), format!("content of {path}"));
    }
}

/// Ends at a change: from then on everything fails. The change itself is made, or not.
struct Ending {
    below: Arc<dyn Storage>,
    left: AtomicU64,
    is_made: bool,
}

impl Ending {
    fn over() -> StorageError {
        StorageError::Io {
            path: String::new(),
            operation: "change",
            message: "the process has ended".to_owned(),
        }
    }

    /// Counts a change: whether it is made, and whether it is answered.
    fn change(&self) -> (bool, bool) {
        let before = self.left.load(Ordering::Relaxed);
        self.left.store(before.saturating_sub(1), Ordering::Relaxed);
        (before > 1 || before == 1 && self.is_made, before > 1)
    }

    fn alive(&self) -> stele_storage::Result<()> {
        match self.left.load(Ordering::Relaxed) {
            0 => Err(Ending::over()),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Storage for Ending {
    async fn create(&self, path: &str) -> stele_storage::Result<Box<dyn AppendFile>> {
        let (is_made, is_answered) = self.change();
        let made = if is_made {
            self.below.create(path).await
        } else {
            Err(Ending::over())
        };
        if is_answered { made } else { Err(Ending::over()) }
    }

    async fn open(&self, path: &str) -> stele_storage::Result<Arc<dyn ReadFile>> {
        self.alive()?;
        self.below.open(path).await
    }

    async fn open_known(&self, path: &str, len: u64, first: Range<u64>) -> stele_storage::Result<Arc<dyn ReadFile>> {
        self.alive()?;
        self.below.open_known(path, len, first).await
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> stele_storage::Result<()> {
        let (is_made, is_answered) = self.change();
        let made = if is_made {
            self.below.put_if_absent(path, content).await
        } else {
            Ok(())
        };
        if is_answered { made } else { Err(Ending::over()) }
    }

    async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<FileInfo>> {
        self.alive()?;
        self.below.list(prefix).await
    }

    async fn delete(&self, path: &str) -> stele_storage::Result<()> {
        let (is_made, is_answered) = self.change();
        let made = if is_made { self.below.delete(path).await } else { Ok(()) };
        if is_answered { made } else { Err(Ending::over()) }
    }

    async fn sync_file(&self, path: &str) -> stele_storage::Result<()> {
        self.alive()?;
        self.below.sync_file(path).await
    }

    async fn free_bytes(&self) -> stele_storage::Result<Option<u64>> {
        self.below.free_bytes().await
    }
}

/// A first start, the first files of two tables, two rotations. Stops at the first error.
async fn life(below: Arc<dyn Storage>) -> std::result::Result<(), String> {
    for (number, keys) in ["a", "b a", "c b a"].into_iter().enumerate() {
        let ring = open(below.clone(), keys).await.map_err(|error| error.to_string())?;
        let storage = encrypted(below.clone(), ring);
        for table in 0..2 {
            let path = format!("sst/{number}-{table}.sst");
            let created = storage.create_of_table(&path, TableId(table)).await;
            let mut file = created.map_err(|error| error.to_string())?;
            let content = Bytes::from(format!("content of {path}"));
            file.append(&[content]).await.map_err(|error| error.to_string())?;
            file.sync().await.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Wherever the process ends, the next one reads every file that was finished.
#[tokio::test]
async fn an_end_at_any_change_loses_no_key() {
    let mut ends = 0;
    for is_made in [false, true] {
        for left in 1.. {
            let below: Arc<dyn Storage> = MemoryStorage::new();
            let ending = Arc::new(Ending {
                below: below.clone(),
                left: AtomicU64::new(left),
                is_made,
            });
            let lived = life(ending).await;
            let is_over = lived.is_ok();
            assert!(ends < 200, "it never succeeds: {lived:?}");
            ends += 1;
            for keys in ["c b a", "c"] {
                let ring = open(below.clone(), keys).await.unwrap();
                let storage = encrypted(below.clone(), ring);
                for file in storage
                    .list("sst/")
                    .await
                    .unwrap()
                    .into_iter()
                    .filter(|file| file.len > 0)
                {
                    let content = storage.read_all(&file.path).await.unwrap();
                    assert_eq!(content, format!("content of {}", file.path), "end at {left}");
                    assert_eq!(content.len() as u64, file.len);
                }
                let keys = below.list(DIRECTORY).await.unwrap().len();
                assert!(keys <= 3, "one file of each key is left, not {keys}");
            }
            if is_over {
                break;
            }
        }
    }
    // Six files, three keys, and two rotations of three keys, each a put and a deletion.
    assert_eq!(ends, 2 * (6 + 3 + 2 * 3 * 2 + 1));
}
