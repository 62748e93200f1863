//! The local disk: conformance, the lock, and durability of names.

use super::*;
use crate::conformance;
use rustix::fs::Mode;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use stele_env::tokio_env::TokioRuntime;
use stele_types::ErrorKind;
use tempfile::TempDir;

fn open(directory: &TempDir) -> Result<Arc<LocalStorage>> {
    LocalStorage::open(directory.path(), TokioRuntime::current())
}

#[tokio::test]
async fn conforms() {
    let directories = parking_lot::Mutex::new(Vec::new());
    conformance::run_all(|| {
        let directory = TempDir::new().unwrap();
        let storage = open(&directory).unwrap();
        directories.lock().push(directory);
        storage
    })
    .await;
}

#[tokio::test]
async fn one_owner_at_a_time() {
    let directory = TempDir::new().unwrap();
    let storage = open(&directory).unwrap();
    let error = open(&directory).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
    let message = error.to_string();
    assert!(message.contains(&directory.path().display().to_string()), "{message}");
    assert!(
        message.contains(&format!("process {}", std::process::id())),
        "{message}"
    );

    // A writer that outlives the storage keeps the lock; a reader does not.
    let mut writer = storage.create("f").await.unwrap();
    writer.sync().await.unwrap();
    let reader = storage.open("f").await.unwrap();
    drop(storage);
    assert!(matches!(open(&directory), Err(StorageError::Locked { .. })));
    drop(writer);
    open(&directory).unwrap();
    assert_eq!(reader.len(), 0);
}

#[tokio::test]
async fn a_new_root_is_for_its_user_alone() {
    // The usual umask, under which directories are open to others.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let directory = TempDir::new().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (above, existing) = (directory.path().join("a"), directory.path().join("b"));
    let new = above.join("data");
    LocalStorage::open(&new, TokioRuntime::current()).unwrap();
    assert_eq!(mode(&new), 0o700);
    // As a shared folder for several programs.
    std::fs::create_dir(&existing).unwrap();
    assert_eq!(mode(&above), mode(&existing), "directories above are as others");
    std::fs::set_permissions(&existing, Permissions::from_mode(0o750)).unwrap();
    LocalStorage::open(&existing, TokioRuntime::current()).unwrap();
    assert_eq!(mode(&existing), 0o750);
}

#[tokio::test]
async fn opening_cleans_up() {
    let directory = TempDir::new().unwrap();
    let storage = open(&directory).unwrap();
    storage.put_if_absent("keep/f", Bytes::from_static(b"x")).await.unwrap();
    storage.put_if_absent("a/b/c", Bytes::from_static(b"x")).await.unwrap();
    storage.delete("a/b/c").await.unwrap();
    drop(storage);
    let root = directory.path();
    std::fs::write(root.join("tmp/7"), "left behind").unwrap();
    std::fs::create_dir(root.join("lost+found")).unwrap();

    let storage = open(&directory).unwrap();
    assert!(!root.join("tmp/7").exists());
    assert!(!root.join("a").exists());
    assert!(root.join("lost+found").exists());
    let listed: Vec<String> = storage.list("").await.unwrap().into_iter().map(|f| f.path).collect();
    assert_eq!(listed, ["keep/f"]);
    // A directory that was removed at open is created again when needed.
    storage.put_if_absent("a/b/c", Bytes::from_static(b"y")).await.unwrap();
    assert_eq!(storage.read_all("a/b/c").await.unwrap(), "y");
    assert_eq!(std::fs::read_dir(root.join("tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_root_is_made_with_its_parents() {
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("x/y/z");
    let storage = LocalStorage::open(&root, TokioRuntime::current()).unwrap();
    storage.put_if_absent("f", Bytes::new()).await.unwrap();
    assert!(root.join("f").exists());
}

#[tokio::test]
async fn the_reserve_is_not_free() {
    let directory = TempDir::new().unwrap();
    let options = LocalOptions {
        reserve_bytes: u64::MAX,
    };
    let storage = LocalStorage::open_with(directory.path(), TokioRuntime::current(), options).unwrap();
    assert_eq!(storage.free_bytes().await.unwrap(), Some(0));
    drop(storage);
    let options = LocalOptions { reserve_bytes: 0 };
    let storage = LocalStorage::open_with(directory.path(), TokioRuntime::current(), options).unwrap();
    assert!(storage.free_bytes().await.unwrap() > Some(0));
}

#[tokio::test]
async fn a_file_cut_under_a_reader_is_out_of_bounds() {
    let directory = TempDir::new().unwrap();
    let storage = open(&directory).unwrap();
    storage.put_if_absent("f", Bytes::from(vec![1; 1000])).await.unwrap();
    let file = storage.open("f").await.unwrap();
    OpenOptions::new()
        .write(true)
        .open(directory.path().join("f"))
        .unwrap()
        .set_len(10)
        .unwrap();
    let error = file.read_at(5, 100).await.unwrap_err();
    assert_eq!(
        error,
        StorageError::OutOfBounds {
            path: "f".to_owned(),
            offset: 5,
            wanted: 100,
            len: 10
        }
    );
}

#[tokio::test]
async fn a_file_in_place_of_a_directory_is_an_error_not_a_surprise() {
    let directory = TempDir::new().unwrap();
    let storage = open(&directory).unwrap();
    storage.put_if_absent("a", Bytes::new()).await.unwrap();
    assert!(matches!(
        storage.create("a/b").await.err(),
        Some(StorageError::Io { .. })
    ));
    assert!(storage.put_if_absent("a/b", Bytes::new()).await.is_err());
    assert_eq!(
        storage.open("a/b").await.err(),
        Some(StorageError::NotFound { path: "a/b".to_owned() })
    );
    storage.delete("a/b").await.unwrap();
}

#[tokio::test]
async fn looking_changes_nothing() {
    let directory = TempDir::new().unwrap();
    let look = || LocalStorage::look(directory.path(), TokioRuntime::current());
    drop(look().expect("no process ever had it"));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let storage = open(&directory).unwrap();
    storage.put_if_absent("a/b", Bytes::from_static(b"x")).await.unwrap();
    assert!(matches!(look().err(), Some(StorageError::Locked { .. })));
    drop(storage);
    let left = [("tmp/7", "an unfinished put"), ("lost+found", "not ours")];
    for (path, content) in left {
        std::fs::write(directory.path().join(path), content).unwrap();
    }
    std::fs::create_dir(directory.path().join("empty")).unwrap();
    let looking = look().unwrap();
    assert!(matches!(open(&directory).err(), Some(StorageError::Locked { .. })));
    assert_eq!(looking.read_all("a/b").await.unwrap(), "x");
    assert_eq!(looking.list("").await.unwrap().len(), 1);
    let refusals = [
        looking.put_if_absent("c", Bytes::new()).await,
        looking.create("c").await.map(drop),
        looking.delete("a/b").await,
        looking.discard("a/b").await,
        looking.delete_all(&["a/b".to_owned()]).await,
        looking.sync_file("a/b").await,
    ];
    assert!(refusals.iter().all(Result::is_err), "{refusals:?}");
    assert!(!looking.inherit().await.unwrap());
    for path in ["a/b", "tmp/7", "lost+found", "empty"] {
        assert!(directory.path().join(path).exists(), "{path}");
    }
}

#[test]
fn a_full_disk_is_no_space() {
    for errno in [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT] {
        let error = root::fail("f", "append", &errno.into());
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        // Unless the file exists: a caller that gets `NoSpace` takes it for absent.
        let error = root::not_durable("f", "sync", &errno.into());
        assert!(matches!(error, StorageError::Io { .. }), "{error}");
    }
}

/// Only synced data survives power loss, and no test of a running system can tell the difference.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn everything_that_must_survive_power_loss_is_synced_in_order() {
    let directory = TempDir::new().unwrap();
    let root = directory.path().canonicalize().unwrap().join("data");
    let storage = LocalStorage::open(&root, TokioRuntime::current()).unwrap();
    let made = || syncs::made::below(&root);
    assert_eq!(made(), [""], "the names of a new root");
    assert_eq!(syncs::made::below(root.parent().unwrap()), [""], "its own name");

    let mut file = storage.create("log/0/f").await.unwrap();
    assert_eq!(made(), ["", "log"], "directories, before there is a file in them");
    file.append(&[Bytes::from_static(b"a")]).await.unwrap();
    assert_eq!(made(), [""; 0]);
    file.sync().await.unwrap();
    assert_eq!(made(), ["log/0/f", "log/0"], "a new file: content, then name");
    file.sync().await.unwrap();
    assert_eq!(made(), [""; 0], "nothing is new");
    assert!(file.try_append(&[b"b"]).unwrap().is_ok());
    file.sync().await.unwrap();
    assert_eq!(made(), ["log/0/f"]);
    file.append(&[Bytes::from(vec![0; 1 << 20])]).await.unwrap();
    file.sync().await.unwrap();
    assert_eq!(made(), ["log/0/f"], "written by another thread");

    storage.put_if_absent("sst/p", Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(
        made(),
        ["tmp/0", "", "sst"],
        "a put: content before it has its name, then the name"
    );
    storage.put_if_absent("sst/p", Bytes::new()).await.unwrap_err();
    storage.delete("sst/p").await.unwrap();
    assert_eq!(made(), ["sst"], "a deletion");
    storage.delete("sst/p").await.unwrap();
    assert_eq!(made(), ["sst"], "perhaps the one before could not be made durable");
    for path in ["sst/a", "sst/b", "tablets/c"] {
        storage.put_if_absent(path, Bytes::new()).await.unwrap();
    }
    made();
    let all = ["sst/a", "tablets/c", "sst/b"].map(str::to_owned);
    storage.delete_all(&all).await.unwrap();
    assert_eq!(made(), ["sst", "tablets"], "several deletions");
    storage.put_if_absent("sst/d", Bytes::new()).await.unwrap();
    made();
    storage.discard("sst/d").await.unwrap();
    assert_eq!(made(), [""; 0], "what may come back");
    storage.sync_file("log/0/f").await.unwrap();
    assert_eq!(made(), ["log/0/f", "log/0"], "what another process may have written");
}
