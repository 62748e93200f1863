//! Checks the same promises over the network. `cargo xtask s3`, `gcs` and `azure` start a store and pass its address.
//! Without an address the tests pass without a check.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use stele_env::Env;
use stele_env::tokio_env::TokioRuntime;
use stele_objects::{Address, CacheOptions, ObjectMetrics, ObjectStorage};
use stele_storage::{Storage, StorageError, conformance};

/// The bucket, such as `s3://bucket`.
fn bucket() -> Option<String> {
    std::env::var("STELE_TEST_STORE").ok()
}

async fn open(bucket: &str, prefix: &str, env: &Env, cache: Option<CacheOptions>) -> Arc<ObjectStorage> {
    let options = std::env::var("STELE_TEST_STORE_OPTIONS").unwrap_or_default();
    let options: Vec<(String, String)> = options
        .split(',')
        .filter_map(|option| option.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let address = Address::parse(&format!("{bucket}/{prefix}"), &options).expect("an address");
    ObjectStorage::open(&address, env.clone(), cache, ObjectMetrics::default())
        .await
        .expect("open")
}

/// A prefix that no earlier run used.
fn fresh(env: &Env) -> String {
    format!("test/{}-{:016x}", std::process::id(), env.random_u64())
}

#[tokio::test]
async fn conforms_over_the_network() {
    let Some(bucket) = bucket() else { return };
    let env = TokioRuntime::current();
    let folder = tempfile::TempDir::new().expect("a folder");
    for with_cache in [false, true] {
        let mut media = Vec::new();
        for i in 0..16 {
            let cache = with_cache.then(|| CacheOptions {
                dir: folder.path().join(i.to_string()),
                bytes: 1 << 20,
            });
            media.push(open(&bucket, &fresh(&env), &env, cache).await);
        }
        let media = Mutex::new(media);
        conformance::run_remote(|| media.lock().pop().expect("enough of them")).await;
    }
}

#[tokio::test]
async fn a_new_owner_ends_the_old_one() {
    let Some(bucket) = bucket() else { return };
    let env = TokioRuntime::current();
    let prefix = fresh(&env);
    let old = open(&bucket, &prefix, &env, None).await;
    let mut log = old.create("log/0000/1.log").await.expect("create");
    log.append(&[Bytes::from_static(b"kept")]).await.expect("append");
    log.sync().await.expect("sync");
    let new = open(&bucket, &prefix, &env, None).await;
    log.append(&[Bytes::from_static(b"lost")]).await.expect("append");
    let fenced = log.sync().await.expect_err("sync");
    assert!(matches!(fenced, StorageError::Fenced { .. }), "{fenced}");
    assert_eq!(new.read_all("log/0000/1.log").await.expect("read"), "kept");
    old.replaced().await;
}

#[tokio::test]
async fn large_files_and_many_parts() {
    let Some(bucket) = bucket() else { return };
    let env = TokioRuntime::current();
    let folder = tempfile::TempDir::new().expect("a folder");
    let cache = CacheOptions {
        dir: folder.path().to_owned(),
        bytes: 4 << 20,
    };
    let storage = open(&bucket, &fresh(&env), &env, Some(cache)).await;
    let mut file = storage.create("sst/1.sst").await.expect("create");
    let content: Vec<u8> = (0..20_000_000u32).map(|i| (i / 1_000) as u8).collect();
    for piece in content.chunks(3_000_000) {
        file.append(&[Bytes::copy_from_slice(piece)]).await.expect("append");
    }
    file.sync().await.expect("sync");
    let file = storage.open("sst/1.sst").await.expect("open");
    for round in 0..2 {
        for at in (0..content.len() - 70_000).step_by(1_234_567) {
            let read = file.read_at(at as u64, 70_000).await.expect("read");
            assert!(read == content[at..at + 70_000], "round {round}, byte {at}");
        }
    }
    let mut log = storage.create("log/0000/1.log").await.expect("create");
    let mut expected = Vec::new();
    // More than one page of a listing.
    for i in 0..1_100u32 {
        log.append(&[Bytes::copy_from_slice(&i.to_le_bytes())])
            .await
            .expect("append");
        log.sync().await.expect("sync");
        expected.extend_from_slice(&i.to_le_bytes());
    }
    assert_eq!(storage.read_all("log/0000/1.log").await.expect("read"), expected);
    storage.delete("log/0000/1.log").await.expect("delete");
    assert_eq!(storage.list("log/").await.expect("list"), vec![]);
}
