//! Checks the promises against a real NameNode and DataNode. `cargo xtask hdfs` starts them and passes their address.
//! Without an address the tests pass without a check.

use bytes::Bytes;
use futures::FutureExt;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_env::tokio_env::TokioRuntime;
use stele_hdfs::{HdfsAddress, HdfsMetrics, HdfsStorage};
use stele_storage::remote::cache::CacheOptions;
use stele_storage::{AppendFile, Storage, StorageError, conformance};

/// The NameNode, as `hdfs://host:port`.
fn name_node() -> Option<String> {
    std::env::var("STELE_TEST_HDFS").ok()
}

fn address(name_node: &str, directory: &str) -> HdfsAddress {
    HdfsAddress::parse(&format!("{name_node}/{directory}"), &[]).expect("an address")
}

async fn open(name_node: &str, directory: &str, env: &Env, cache: Option<CacheOptions>) -> Arc<HdfsStorage> {
    HdfsStorage::open(
        &address(name_node, directory),
        env.clone(),
        cache,
        HdfsMetrics::default(),
    )
    .await
    .expect("open")
}

/// A directory that no earlier run used.
fn fresh(env: &Env) -> String {
    format!("test/{}-{:016x}", std::process::id(), env.random_u64())
}

async fn write(file: &mut Box<dyn AppendFile>, text: &str) -> stele_storage::Result<()> {
    file.append(&[Bytes::copy_from_slice(text.as_bytes())]).await?;
    file.sync().await
}

#[tokio::test]
async fn conforms_on_hdfs() {
    let Some(name_node) = name_node() else { return };
    let env = TokioRuntime::current();
    let folder = tempfile::TempDir::new().expect("a folder");
    for with_cache in [false, true] {
        let directories: Vec<String> = (0..15).map(|_| fresh(&env)).collect();
        let opened = directories.iter().enumerate().map(|(i, directory)| {
            let cache = with_cache.then(|| CacheOptions {
                dir: folder.path().join(i.to_string()),
                bytes: 1 << 20,
            });
            open(&name_node, directory, &env, cache)
        });
        let media = Mutex::new(futures::future::join_all(opened).await);
        conformance::run_remote(|| media.lock().pop().expect("enough of them")).await;
    }
}

#[tokio::test]
async fn a_new_owner_ends_the_old_one() {
    let Some(name_node) = name_node() else { return };
    let env = TokioRuntime::current();
    let directory = fresh(&env);
    let old = open(&name_node, &directory, &env, None).await;
    let mut log = old.create("log/0000/1.log").await.expect("create");
    write(&mut log, "kept").await.expect("append");
    let new = open(&name_node, &directory, &env, None).await;
    assert!(new.owner_epoch() > old.owner_epoch());
    assert_eq!(new.read_all("log/0000/1.log").await.expect("read"), "kept");
    let fenced = write(&mut log, "lost").await.expect_err("append");
    assert!(matches!(fenced, StorageError::Fenced { .. }), "{fenced}");
    // From then on it can do nothing at all.
    for error in [
        log.sync().await.err(),
        old.create("log/0000/2.log").await.err(),
        old.put_if_absent("x", Bytes::new()).await.err(),
        old.delete("log/0000/1.log").await.err(),
        old.read_all("log/0000/1.log").await.err(),
        old.list("").await.err(),
    ] {
        assert!(matches!(error, Some(StorageError::Fenced { .. })), "{error:?}");
    }
    assert_eq!(new.read_all("log/0000/1.log").await.expect("read"), "kept");
    assert_eq!(new.list("").await.expect("list").len(), 1);
    old.replaced().await;
}

#[tokio::test]
async fn members_create_and_delete_files_of_each_other() {
    let Some(name_node) = name_node() else { return };
    let env = TokioRuntime::current();
    let address = address(&name_node, &fresh(&env));
    let share = || HdfsStorage::share(&address, env.clone(), None, HdfsMetrics::default());
    let (one, two) = (share().await.expect("share"), share().await.expect("share"));
    let manifest = "tablets/1/manifest-1";
    one.put_if_absent(manifest, Bytes::from_static(b"a"))
        .await
        .expect("put");
    let taken = two.put_if_absent(manifest, Bytes::new()).await;
    assert!(matches!(taken, Err(StorageError::AlreadyExists { .. })), "{taken:?}");
    let mut table = one.create("sst/1.sst").await.expect("create");
    write(&mut table, "cells").await.expect("write");
    assert_eq!(two.read_all("sst/1.sst").await.expect("read"), "cells");
    two.delete("sst/1.sst").await.expect("delete");
    two.delete(manifest).await.expect("delete");
    assert_eq!(one.list("").await.expect("list"), vec![]);
    for member in [&one, &two] {
        member.confirm_owner().await.expect("nobody owns the directory");
        assert_eq!(member.owner_epoch(), None);
        let refused = member.create("log/0000/1.log").await.err().expect("no owner, no log");
        assert!(matches!(refused, StorageError::Io { .. }), "{refused}");
    }
    // The log of a member is in a directory of its own, which it owns.
    let root = address.below("servers/00000007");
    let own = || HdfsStorage::open(&root, env.clone(), None, HdfsMetrics::default());
    let log = own().await.expect("open");
    let mut segment = log.create("log/0000/1.log").await.expect("create");
    write(&mut segment, "a").await.expect("append");
    let next = own().await.expect("open");
    let fenced = write(&mut segment, "b").await.expect_err("the log is sealed");
    assert!(matches!(fenced, StorageError::Fenced { .. }), "{fenced}");
    assert_eq!(next.read_all("log/0000/1.log").await.expect("read"), "a");
    one.put_if_absent(manifest, Bytes::new()).await.expect("members go on");
}

/// Each entry takes space in the NameNode for ever.
#[tokio::test]
async fn directories_go_with_their_tablets_and_snapshots() {
    let Some(name_node) = name_node() else { return };
    let env = TokioRuntime::current();
    let address = address(&name_node, &fresh(&env));
    let share = || HdfsStorage::share(&address, env.clone(), None, HdfsMetrics::default());
    let (one, two) = (share().await.expect("share"), share().await.expect("share"));
    let put =
        |member: Arc<HdfsStorage>, path: String| async move { member.put_if_absent(&path, Bytes::from("x")).await };
    for number in 0..5 {
        let paths = [1, 2].map(|n| format!("tablets/{number}/manifest-{n}"));
        let part = format!("snapshots/{number}/part-1");
        for path in paths.iter().chain([&part]) {
            put(one.clone(), path.clone()).await.expect("put");
        }
        two.delete_all(&paths[..1]).await.expect("delete");
        assert_eq!(one.list(&format!("tablets/{number}/")).await.expect("list").len(), 1);
        two.discard_all(&paths).await.expect("delete");
        two.delete_all(&[part]).await.expect("delete");
    }
    for directory in ["tablets", "snapshots"] {
        let left = HdfsStorage::any_key(&address.below(directory), env.clone()).await;
        assert_eq!(left.expect("a list"), None);
    }
    // A put does not fail because its directory goes before its rename, up to eight times.
    for number in 0..30 {
        let leaving = async {
            let gone = [format!("tablets/{number}/manifest-1")];
            for _ in 0..8 {
                one.delete_all(&gone).await.expect("delete");
                env.sleep(Duration::from_millis(2)).await;
            }
        };
        let put = put(two.clone(), format!("tablets/{number}/manifest-2"));
        let (put, ()) = tokio::join!(put, leaving);
        put.expect("put");
    }
    assert_eq!(one.list("tablets/").await.expect("list").len(), 30);
}

#[tokio::test]
async fn an_old_owner_makes_no_new_file_and_learns_of_it_when_idle() {
    let Some(name_node) = name_node() else { return };
    let env = TokioRuntime::current();
    let (directory, quiet) = (fresh(&env), fresh(&env));
    let old = open(&name_node, &directory, &env, None).await;
    let idle = open(&name_node, &quiet, &env, None).await;
    let mut log = old.create("log/0000/1.log").await.expect("create");
    write(&mut log, "kept").await.expect("append");
    // Read by its writer, so that the next append begins a piece.
    assert_eq!(old.read_all("log/0000/1.log").await.expect("read"), "kept");
    let new = open(&name_node, &directory, &env, None).await;
    let _next = open(&name_node, &quiet, &env, None).await;
    let fenced = write(&mut log, "lost").await.expect_err("append");
    assert!(matches!(fenced, StorageError::Fenced { .. }), "{fenced}");
    assert_eq!(idle.replaced().await, "owner 2");
    idle.create("log/0000/1.log").await.err().expect("create");
    drop(log);
    let third = open(&name_node, &directory, &env, None).await;
    for owner in [new, third] {
        assert_eq!(owner.read_all("log/0000/1.log").await.expect("read"), "kept");
    }
}

/// Bytes that were appended and not synced may be visible after a takeover; then they stay for all later owners.
#[tokio::test]
async fn what_one_owner_read_the_next_one_reads() {
    let Some(name_node) = name_node() else { return };
    let env = TokioRuntime::current();
    let directory = fresh(&env);
    let first = open(&name_node, &directory, &env, None).await;
    let mut log = first.create("log/0000/1.log").await.expect("create");
    write(&mut log, "synced").await.expect("append");
    let large = vec![7u8; 3_000_000];
    log.append(&[Bytes::from(large)]).await.expect("append");
    let second = open(&name_node, &directory, &env, None).await;
    let seen = second.read_all("log/0000/1.log").await.expect("read");
    assert!(seen.starts_with(b"synced") && seen.len() <= 3_000_006, "{}", seen.len());
    let third = open(&name_node, &directory, &env, None).await;
    assert!(third.read_all("log/0000/1.log").await.expect("read") == seen);
    assert_eq!(third.list("log/").await.expect("list")[0].len, seen.len() as u64);
}

#[tokio::test]
async fn appends_of_any_size_survive_many_syncs_and_readers() {
    let Some(name_node) = name_node() else { return };
    let env = TokioRuntime::current();
    let storage = open(&name_node, &fresh(&env), &env, None).await;
    let mut log = storage.create("log/0000/1.log").await.expect("create");
    let mut expected = Vec::new();
    for i in 0..300u64 {
        // Around the sizes of checksum chunks (512) and packets (64 KiB).
        let len = [0, 1, 511, 512, 513, 7, 65_023, 65_536, 200_001][(i % 9) as usize] + env.random_below(3) as usize;
        let bytes = vec![env.random_u64() as u8; len];
        expected.extend_from_slice(&bytes);
        log.append(&[Bytes::from(bytes)]).await.expect("append");
        if env.random_below(3) > 0 {
            log.sync().await.expect("sync");
        }
        if i % 100 == 50 {
            log.sync().await.expect("sync");
            assert!(storage.read_all("log/0000/1.log").await.expect("read") == expected);
        }
    }
    log.sync().await.expect("sync");
    assert_eq!(log.len(), expected.len() as u64);
    assert_eq!(storage.list("log/").await.expect("list")[0].len, expected.len() as u64);
    let read = storage.open("log/0000/1.log").await.expect("open");
    assert!(read.read_at(0, expected.len()).await.expect("read") == expected);
    for at in (0..expected.len() - 70_000).step_by(1_234_567) {
        assert!(read.read_at(at as u64, 70_000).await.expect("read") == expected[at..at + 70_000]);
    }
    storage.delete("log/0000/1.log").await.expect("delete");
    assert_eq!(storage.list("log/").await.expect("list"), vec![]);
    let error = log.append(&[Bytes::from_static(b"x")]).await.err();
    assert!(
        error.is_some() || log.sync().await.is_err(),
        "a deleted file took bytes"
    );
}

#[tokio::test]
async fn large_files_and_their_cache() {
    let Some(name_node) = name_node() else { return };
    let env = TokioRuntime::current();
    let folder = tempfile::TempDir::new().expect("a folder");
    let cache = CacheOptions {
        dir: folder.path().to_owned(),
        bytes: 4 << 20,
    };
    let storage = open(&name_node, &fresh(&env), &env, Some(cache)).await;
    let mut file = storage.create("sst/1.sst").await.expect("create");
    let content: Vec<u8> = (0..20_000_000u32).map(|i| (i / 1_000) as u8).collect();
    for piece in content.chunks(3_000_000) {
        file.append(&[Bytes::copy_from_slice(piece)]).await.expect("append");
        // The bytes visible before its end are a prefix of it, here always none.
        let unfinished = storage.open("sst/1.sst").await.map_or(0, |file| file.len());
        assert_eq!(unfinished, 0);
    }
    file.sync().await.expect("sync");
    file.sync().await.expect("sync again");
    let error = file.append(&[Bytes::from_static(b"x")]).await.err();
    assert!(error.is_some(), "append to a finished file");
    let file = storage.open("sst/1.sst").await.expect("open");
    for round in 0..2 {
        for at in (0..content.len() - 70_000).step_by(1_234_567) {
            let read = file.read_at(at as u64, 70_000).await.expect("read");
            assert!(read == content[at..at + 70_000], "round {round}, byte {at}");
        }
    }
    storage.delete("sst/1.sst").await.expect("delete");
    let error = storage.open("sst/1.sst").await.err().expect("open");
    assert!(matches!(error, StorageError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn a_look_changes_nothing() {
    let Some(name_node) = name_node() else { return };
    let env = TokioRuntime::current();
    let directory = fresh(&env);
    let place = address(&name_node, &directory);
    let peek = || HdfsStorage::peek(&place, env.clone(), "FORMAT");
    let any = || HdfsStorage::any_key(&place, env.clone());
    assert_eq!((peek().await.expect("peek"), any().await.expect("any")), (None, None));
    let storage = open(&name_node, &directory, &env, None).await;
    assert_eq!(any().await.expect("any"), None, "a claim and nothing else");
    storage
        .put_if_absent("FORMAT", Bytes::from_static(b"x"))
        .await
        .expect("put");
    assert_eq!(peek().await.expect("peek").expect("there"), "x");
    assert_eq!(any().await.expect("any").expect("there"), "FORMAT");
    storage.confirm_owner().await.expect("still the owner");

    // Only its owner can read a file that is being written.
    let log = "log/0000/1.log";
    let mut file = storage.create(log).await.expect("create");
    write(&mut file, "kept").await.expect("append");
    let unfinished = HdfsStorage::look(&place, env.clone())
        .await
        .err()
        .expect("a log is open");
    assert!(unfinished.to_string().contains("not finished"), "{unfinished}");
    drop(file);
    storage.read_all(log).await.expect("which finishes it");
    let look = HdfsStorage::look(&place, env.clone()).await.expect("nothing is open");
    assert_eq!(look.read_all(log).await.expect("read"), "kept");
    assert_eq!(
        look.list("").await.expect("list"),
        storage.list("").await.expect("list")
    );
    for error in [
        look.create("log/0000/2.log").await.err(),
        look.put_if_absent("x", Bytes::new()).await.err(),
        look.delete("FORMAT").await.err(),
    ] {
        assert!(error.expect("refused").to_string().contains("read-only"));
    }
    storage.confirm_owner().await.expect("still the owner");
}

/// A server stops with its coordination log open. The runtime ends right after that, and with it the tasks that finish
/// dropped files.
#[tokio::test]
async fn what_is_finished_at_a_stop_can_be_looked_at() {
    let Some(name_node) = name_node() else { return };
    let env = TokioRuntime::current();
    let directory = fresh(&env);
    let storage = open(&name_node, &directory, &env, None).await;
    let mut open_log = storage.create("coord/log-1").await.expect("create");
    write(&mut open_log, "open").await.expect("append");
    let mut dropped_log = storage.create("log/0000/1.log").await.expect("create");
    write(&mut dropped_log, "dropped").await.expect("append");
    let place = address(&name_node, &directory);
    HdfsStorage::look(&place, env.clone())
        .await
        .err()
        .expect("logs are open");
    drop(dropped_log);
    storage.finish().await;
    let look = HdfsStorage::look(&place, env.clone()).await.expect("nothing is open");
    assert_eq!(look.read_all("coord/log-1").await.expect("read"), "open");
    assert_eq!(look.read_all("log/0000/1.log").await.expect("read"), "dropped");
    // A writer that continues nevertheless begins another piece.
    write(&mut open_log, ", and more").await.expect("append");
    assert_eq!(storage.read_all("coord/log-1").await.expect("read"), "open, and more");
}

/// A sync that is abandoned is a failed one to the writer: it writes and finishes nothing any more.
#[tokio::test]
async fn a_file_whose_writer_failed_is_read_by_its_own_process() {
    let Some(name_node) = name_node() else { return };
    let env = TokioRuntime::current();
    let directory = fresh(&env);
    let storage = open(&name_node, &directory, &env, None).await;
    let mut log = storage.create("log/0000/1.log").await.expect("create");
    write(&mut log, "acknowledged").await.expect("append");
    log.append(&[Bytes::from_static(b", refused")]).await.expect("append");
    assert!(log.sync().now_or_never().is_none(), "a sync waits for the cluster");
    log.sync().await.expect_err("an earlier operation was abandoned");
    // Its reader seals it, which its writer cannot finish.
    let found = storage.read_all("log/0000/1.log").await.expect("read");
    assert!(found.starts_with(b"acknowledged"), "{found:?}");
    log.append(&[Bytes::from_static(b", more")])
        .await
        .expect_err("it is sealed");
    drop(log);
    assert_eq!(storage.read_all("log/0000/1.log").await.expect("read"), found);
    // The next owner has nothing to seal.
    let next = open(&name_node, &directory, &env, None).await;
    assert_eq!(next.read_all("log/0000/1.log").await.expect("read"), found);
}

/// A DataNode dies while a log is written: acknowledged data, before and after, is there. Writers do as the engine
/// does, and begin a new file when one fails.
#[tokio::test]
#[allow(
    clippy::disallowed_methods,
    reason = "kills a DataNode that the task has started for this"
)]
async fn a_data_node_may_die() {
    let victim = std::env::var("STELE_TEST_HDFS_VICTIM").unwrap_or_default();
    let Some(name_node) = name_node().filter(|_| !victim.is_empty()) else {
        return;
    };
    let env = TokioRuntime::current();
    let directory = fresh(&env);
    let storage = open(&name_node, &directory, &env, None).await;
    let mut acknowledged: Vec<(u32, Vec<u8>)> = Vec::new();
    let (mut number, mut files_lost, mut puts_lost) = (0, 0, 0);
    let mut log = storage.create("log/0000/0.log").await.expect("create");
    for i in 0..400u32 {
        if i == 60 {
            let killed = std::process::Command::new("kill").args(["-9", &victim]).status();
            assert!(killed.expect("kill").success());
        }
        let bytes = vec![i as u8; 1 + (i as usize * 977) % 40_000];
        let written = match log.append(&[Bytes::from(bytes.clone())]).await {
            Ok(()) => log.sync().await,
            failed => failed,
        };
        match written {
            Ok(()) => acknowledged.push((number, bytes)),
            Err(error) => {
                eprintln!("append {i}: {error}");
                files_lost += 1;
                number += 1;
                log = storage.create(&format!("log/0000/{number}.log")).await.expect("create");
            }
        }
        if i % 20 == 0 {
            let put = storage
                .put_if_absent(&format!("p/{i}"), Bytes::from(vec![1; 5_000]))
                .await;
            puts_lost += u32::from(put.is_err());
        }
    }
    println!("{files_lost} log files and {puts_lost} puts failed");
    assert!(
        acknowledged.len() > 300 && puts_lost < 5,
        "{} acknowledged",
        acknowledged.len()
    );
    let next = open(&name_node, &directory, &env, None).await;
    for file in 0..=number {
        let expected: Vec<u8> = acknowledged
            .iter()
            .filter(|(of, _)| *of == file)
            .flat_map(|(_, bytes)| bytes.iter().copied())
            .collect();
        let found = next.read_all(&format!("log/0000/{file}.log")).await.expect("read");
        assert!(
            found.starts_with(&expected),
            "file {file}: {} of {} bytes",
            found.len(),
            expected.len()
        );
    }
}

/// One of three processes, see `cargo xtask hdfs --ends`: it writes two logs; is refused, because the end of one was lost; reads both.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "hands a name to the task that has started it")]
async fn lost_ends_are_given_up() {
    let step = std::env::var("STELE_TEST_HDFS_ENDS").unwrap_or_default();
    let Some(name_node) = name_node().filter(|_| !step.is_empty()) else {
        return;
    };
    let env = TokioRuntime::current();
    let root = address(&name_node, "test/ends");
    let own = || HdfsStorage::open(&root, env.clone(), None, HdfsMetrics::default());
    let note = std::env::var("STELE_TEST_HDFS_NOTE").expect("a file for the name");
    match &*step {
        "write" => {
            let owner = own().await.expect("open");
            for number in [1, 2] {
                let mut log = owner.create(&format!("log/0000/{number}.log")).await.expect("create");
                write(&mut log, &"a".repeat(1_000)).await.expect("append");
                log.append(&[Bytes::from(vec![b'b'; 3_000_000])]).await.expect("append");
                // The writer dies with the process, and finishes nothing.
                std::mem::forget(log);
            }
            env.sleep(Duration::from_secs(2)).await;
        }
        "refuse" => {
            let deadline = env.now() + Duration::from_secs(120);
            let named = loop {
                let error = own().await.err().expect("an end is lost").to_string();
                println!("{error}");
                match error.split(' ').find(|word| word.contains(".synced-")) {
                    Some(named) => break named.to_owned(),
                    // The DataNode has not reported its blocks.
                    None => assert!(env.now() < deadline, "{error}"),
                }
                env.sleep(Duration::from_secs(2)).await;
            };
            std::fs::write(note, named).expect("write");
        }
        _ => {
            let owner = own().await.expect("the end was given up");
            let one = owner.read_all("log/0000/1.log").await.expect("read");
            let two = owner.read_all("log/0000/2.log").await.expect("read");
            println!("{} and {} bytes", one.len(), two.len());
            assert!((1_999_000..=2_000_001).contains(&one.len()), "{}", one.len());
            assert!(one.starts_with("a".repeat(1_000).as_bytes()) && one.ends_with(b"b"));
            assert_eq!(two, "a".repeat(1_000));
        }
    }
}
