//! Owners of a directory in the model of HDFS.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_env::Env;
use stele_hdfs::HdfsStorage;
use stele_hdfs::client::{Client, NewFile};
use stele_sim::hdfs::Hdfs;
use stele_sim::requests::Network;
use stele_sim::runtime::Sim;
use stele_storage::{AppendFile, Result, Storage, StorageError};

const SEEDS: u64 = 60;
const STEPS_MAX: u64 = 1_000_000;
const LOG: &str = "log/0000/1.log";

async fn own(hdfs: &Hdfs, env: &Env) -> Result<Arc<HdfsStorage>> {
    HdfsStorage::open_client(Arc::new(hdfs.clone()), "data", env.clone()).await
}

/// An owner with a log file of three synced bytes.
async fn with_a_log(hdfs: &Hdfs, env: &Env) -> (Arc<HdfsStorage>, Box<dyn AppendFile>) {
    let owner = own(hdfs, env).await.expect("it is empty");
    let mut log = owner.create(LOG).await.expect("create");
    log.append(&[Bytes::from_static(b"abc")]).await.expect("append");
    log.sync().await.expect("sync");
    (owner, log)
}

/// Runs seeds, of which each has a new HDFS.
fn simulate<F>(run: impl Fn(Hdfs, Env) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for seed in 0..SEEDS {
        let sim = Sim::new(seed, STEPS_MAX);
        let (hdfs, env) = (Hdfs::new(sim.process().env()), sim.process().env());
        sim.run(run(hdfs, env)).expect("it ends");
    }
}

/// The NameNode refuses to give the lease away then.
#[test]
fn a_file_that_its_writer_is_closing_is_taken_over() {
    simulate(|hdfs, env| async move {
        let (_former, log) = with_a_log(&hdfs, &env).await;
        let pause = Duration::from_millis(env.random_below(1_500));
        let closing = async {
            env.sleep(pause).await;
            drop(log);
        };
        let (owner, ()) = futures::future::join(own(&hdfs, &env), closing).await;
        let owner = owner.expect("a new owner");
        assert_eq!(owner.read_all(LOG).await.expect("read"), "abc");
    });
}

/// Its appender does nothing meanwhile, as that of an idle log.
#[test]
fn a_file_that_could_not_be_cut_is_read_later() {
    simulate(|hdfs, env| async move {
        let (owner, mut log) = with_a_log(&hdfs, &env).await;
        hdfs.requests().set_network(Network {
            lost: 1_000,
            ..Network::default()
        });
        owner.read_all(LOG).await.expect_err("nothing is reached");
        hdfs.requests().set_network(Network::default());
        assert_eq!(owner.read_all(LOG).await.expect("read"), "abc");
        log.append(&[Bytes::from_static(b"d")])
            .await
            .expect_err("the file is sealed");
    });
}

#[test]
fn an_end_that_was_not_synced_may_be_lost() {
    simulate(|hdfs, env| async move {
        let (_former, mut log) = with_a_log(&hdfs, &env).await;
        log.append(&[Bytes::from(vec![b'd'; 5_000])]).await.expect("append");
        hdfs.lose_power();
        let owner = own(&hdfs, &env).await.expect("a new owner");
        assert!(owner.read_all(LOG).await.expect("read").starts_with(b"abc"));
    });
}

/// Leaves a log file with three synced bytes and more, of which a power loss took any. Its lease was taken before, but the length of its last
/// sync not noted. Returns its length in bytes as the NameNode knows it.
async fn lose_an_end(hdfs: &Hdfs, env: &Env) -> u64 {
    let (_former, mut log) = with_a_log(hdfs, env).await;
    log.append(&[Bytes::from(vec![b'd'; 5_000])]).await.expect("append");
    let piece = format!("/data/{LOG}/@00000001.open");
    while !hdfs.recover_lease(&piece).await.expect("recover") {
        env.sleep(Duration::from_secs(1)).await;
    }
    hdfs.lose_power();
    hdfs.status(&piece).await.expect("status").len
}

/// The note that the error of a seal names.
fn named(error: &StorageError) -> Option<String> {
    let error = error.to_string();
    let note = error.split(' ').find(|word| word.contains(".synced-"));
    note.map(str::to_owned)
}

#[test]
fn an_end_of_unknown_worth_is_given_up_by_an_operator_only() {
    let given_up = Arc::new(AtomicU64::new(0));
    let counted = given_up.clone();
    simulate(move |hdfs, env| {
        let given_up = counted.clone();
        async move {
            let len = lose_an_end(&hdfs, &env).await;
            let owner = match own(&hdfs, &env).await {
                Ok(owner) => owner,
                Err(error) => {
                    let name = named(&error).expect("a name");
                    assert!(name.starts_with(&format!("/data/{LOG}/@00000001.synced-")), "{error}");
                    let file = NewFile {
                        replication: None,
                        permission: 0o600,
                        makes_directories: false,
                    };
                    let mut noted = hdfs.create(&name, file).await.expect("create");
                    noted.close().await.expect("close");
                    given_up.fetch_add(1, Ordering::Relaxed);
                    own(&hdfs, &env).await.expect("its end was given up")
                }
            };
            let read = owner.read_all(LOG).await.expect("read");
            let rest = read.strip_prefix(b"abc").expect("synced bytes");
            assert!(
                read.len() as u64 <= len && rest.iter().all(|byte| *byte == b'd'),
                "{}",
                read.len()
            );
        }
    });
    let given_up = given_up.load(Ordering::Relaxed);
    assert!((SEEDS / 4..SEEDS).contains(&given_up), "{given_up}");
}

/// An outage makes bytes unreadable that are there.
#[test]
fn no_error_proposes_to_give_up_bytes_that_an_outage_hides() {
    let named_in_all = Arc::new(AtomicU64::new(0));
    let counted = named_in_all.clone();
    simulate(move |hdfs, env| {
        let named_in_all = counted.clone();
        async move {
            lose_an_end(&hdfs, &env).await;
            let Some((_, readable)) = hdfs.unreadable().pop() else {
                return;
            };
            let (network, pause) = (hdfs.clone(), Duration::from_millis(8_000 + env.random_below(5_000)));
            let faults = async {
                env.sleep(pause).await;
                for lost in [800, 0] {
                    network.requests().set_network(Network {
                        lost,
                        ..Network::default()
                    });
                    env.sleep(Duration::from_millis(env.random_below(2_000))).await;
                }
            };
            let (owned, ()) = futures::future::join(own(&hdfs, &env), faults).await;
            if let Some(name) = owned.err().as_ref().and_then(named) {
                assert!(name.ends_with(&format!(".synced-{readable:x}")), "{readable}: {name}");
                named_in_all.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let named_in_all = named_in_all.load(Ordering::Relaxed);
    assert!((SEEDS / 4..SEEDS).contains(&named_in_all), "{named_in_all}");
}

/// HDFS breaks its promise. The owner must not take the shorter file for all that there was.
#[test]
fn a_synced_end_that_is_lost_is_an_error() {
    simulate(|hdfs, env| async move {
        let (_former, _log) = with_a_log(&hdfs, &env).await;
        assert!(hdfs.lose_synced(), "the log is being written");
        let lost = own(&hdfs, &env).await.err();
        let names_it =
            |error: &StorageError| matches!(error, StorageError::Lost { path, .. } if path.contains(".synced-3"));
        assert!(lost.as_ref().is_some_and(names_it), "{lost:?}");
    });
}
