//! Promotions that succeed, that are refused, and that are killed at any step.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests do as an operator does, and remove and write files"
)]

mod kills;
mod world;

use crate::check::tests::start;
use crate::data_dir::marks::{self, INCOMING, PROMOTED, Source};
use crate::data_dir::{self, FORMAT};
use crate::encryption::Keys;
use crate::promote::PromoteArgs;
use bytes::Bytes;
use clap::Parser;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{AccessAdmin, TableAdmin};
use stele_coord::Coord;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_settings::{Place, StartArgs};
use stele_storage::Storage;
use stele_storage::local::LocalStorage;
use stele_storage::memory::MemoryStorage;
use stele_types::{Resource, TableName};
use world::{Single, coordinator, join, kept, put, rows, rows_of, rules, single, snapshot, state, table, task};

/// Everything of the single server is in the cluster.
async fn check_cluster(single: &Single, data: Arc<dyn Storage>, coord: &Arc<dyn Coord>) {
    let node = join(data, coord).await.unwrap();
    assert_eq!(rows_of(&node, table()).await, single.rows);
    let rules_there = node.admin.rules();
    assert_eq!(rules_there[&Resource::Table(table())].rules[..], rules()[..]);
    assert!(
        rows(&*node.service, kept()).await.is_err(),
        "the deleted table is not back"
    );
    let clone = TableName::new("space", "clone");
    node.admin.clone_snapshot(&snapshot(), &clone, None).await.unwrap();
    assert_eq!(rows_of(&node, clone).await, single.of_snapshot);
    // In spite of the same timestamp the newest write counts: sequence numbers go on above those of the single server.
    put(&*node.service, table(), "a0", Bytes::from_static(b"of the cluster")).await;
    let rows = rows_of(&node, table()).await;
    assert_eq!(
        rows[&(Bytes::from_static(b"a0"), Bytes::from_static(b"q"))],
        b"of the cluster"[..]
    );
    for served in node.server.all_served() {
        served.tablet.flush().await.unwrap();
    }
    // Rounds of the sweep meanwhile.
    TokioRuntime::current().sleep(Duration::from_millis(300)).await;
    assert_eq!(rows_of(&node, table()).await.len(), single.rows.len());
    node.server.shut_down().await;
}

/// As the manual says.
async fn take_back(source: &dyn Storage) {
    source.delete(marks::PROMOTED).await.unwrap();
    source.delete(FORMAT).await.unwrap();
    source
        .put_if_absent(FORMAT, Bytes::from_static(b"stele-data 1\n"))
        .await
        .unwrap();
}

/// The records of a kept table and of a snapshot, by key.
async fn snapshots(coord: &dyn Coord) -> usize {
    coord.list("catalog/snapshot/").await.unwrap().len()
}

/// The arguments of a command line.
fn arguments(line: &str) -> Result<PromoteArgs, String> {
    let parsed = crate::Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
    match parsed.command {
        crate::Top::Cluster(crate::ClusterCommand::Promote(args)) => Ok(*args),
        _ => Err("another command".to_owned()),
    }
}

#[test]
fn examples_of_the_manual_parse() {
    let manual = include_str!("../../../../docs/cluster.md");
    let lines = manual.lines().filter_map(|line| line.strip_prefix("$ stele cluster "));
    let mut promotions = 0;
    for line in lines {
        let line = format!("stele cluster {line}");
        let parsed = crate::Cli::try_parse_from(line.split_whitespace());
        assert!(parsed.is_ok(), "{line}: {}", parsed.err().unwrap());
        promotions += usize::from(arguments(&line).is_ok_and(|args| args.places().is_ok()));
    }
    assert_eq!(promotions, 1);
}

#[test]
fn one_place_is_promoted_where_it_is_unless_it_is_a_folder() {
    let places = |text: &str| {
        let args = arguments(&format!("stele cluster promote {text} --cluster etcd://e/c")).unwrap();
        let places = args.places().map_err(|error| format!("{error:#}"))?;
        Ok::<_, String>((places.0.to_string(), places.1.map(|target| target.to_string())))
    };
    let source = || "s3://b/p".to_owned();
    assert_eq!(places("s3://b/p"), Ok((source(), None)));
    assert_eq!(places("s3://b/p s3://b/p/"), Ok((source(), None)));
    assert_eq!(places("s3://b/p s3://b/q"), Ok((source(), Some("s3://b/q".to_owned()))));
    // The same name in another store is another place.
    let other = "s3://b/p s3://b/p --target-option endpoint=https://127.0.0.1:1";
    assert_eq!(places(other), Ok((source(), Some(source()))));
    for folder in ["folder", "s3://b/p folder"] {
        assert!(
            places(folder).unwrap_err().contains("cannot share a folder"),
            "{folder}"
        );
    }
    assert!(
        places("s3://b/p s3://b/q --target-option endpint=x")
            .unwrap_err()
            .contains("endpint")
    );
}

#[tokio::test]
async fn a_cluster_has_everything_of_the_single_server() {
    let single = single().await;
    let (target, coord) = (MemoryStorage::new(), coordinator().await);
    let task = task(single.storage.clone(), Some(target.clone()), &coord);
    let summary = task.run().await.unwrap();
    let copied = summary.copied.unwrap();
    assert!(
        copied.files > 5 && copied.bytes > 100_000 && copied.same == 0,
        "{copied:?}"
    );
    let text = summary.to_text();
    assert!(
        text.contains("1 tables, 2 tablets, 2 snapshots") && text.contains("stele start --cluster"),
        "{text}"
    );
    assert_eq!(
        snapshots(&*coord).await,
        2,
        "a snapshot, and the deleted table that is kept"
    );
    assert!(marks::read_if_there(&*target, INCOMING).await.unwrap().is_none());
    let cluster = coord.get("cluster/id").await.unwrap().unwrap().value;
    let cluster = <[u8; 16]>::try_from(&cluster[..]).unwrap();
    assert_eq!(target.read_all(FORMAT).await.unwrap(), marks::shared_format(&cluster));
    check_cluster(&single, target, &coord).await;
}

#[tokio::test]
async fn an_epoch_of_the_single_server_is_not_used_again() {
    let single = single().await;
    // A few lives of the server more.
    for _ in 0..3 {
        start(single.storage.clone()).await.server.shut_down().await;
    }
    let (target, coord) = (MemoryStorage::new(), coordinator().await);
    let task = task(single.storage.clone(), Some(target.clone()), &coord);
    task.run().await.unwrap();
    let before = coord.get("epoch/server").await.unwrap().unwrap().value;
    let before: u32 = std::str::from_utf8(&before).unwrap().parse().unwrap();
    assert!(before >= 5, "four lives, and the promotion");
    let node = join(target, &coord).await.unwrap();
    assert!(node.number.0 > before, "server {} after epoch {before}", node.number);
    assert_eq!(rows_of(&node, table()).await, single.rows);
    let epochs = node.server.all_served();
    assert!(epochs.iter().all(|served| served.tablet.epoch().0 > before));
}

#[tokio::test]
async fn a_shared_root_is_promoted_where_it_is() {
    let single = single().await;
    let coord = coordinator().await;
    let task = task(single.storage.clone(), None, &coord);
    let summary = task.run().await.unwrap();
    assert!(summary.copied.is_none() && summary.to_text().contains("no file copied"));
    let cluster = coord.get("cluster/id").await.unwrap().unwrap().value;
    let cluster = <[u8; 16]>::try_from(&cluster[..]).unwrap();
    assert_eq!(
        single.storage.read_all(FORMAT).await.unwrap(),
        marks::shared_format(&cluster)
    );
    assert!(
        single.storage.list("log/").await.unwrap().is_empty(),
        "nobody reads the log any more"
    );
    world::run_again(&task).await.unwrap();
    check_cluster(&single, single.storage.clone(), &coord).await;
}

#[tokio::test]
async fn places_and_names_that_are_taken_are_refused() {
    let single = single().await;
    let target = MemoryStorage::new();
    target.put_if_absent("mine", Bytes::from_static(b"x")).await.unwrap();
    let coord = coordinator().await;
    let of_target = |target: &Arc<MemoryStorage>, coord: &Arc<dyn Coord>| {
        task(single.storage.clone(), Some(target.clone() as Arc<dyn Storage>), coord)
    };
    let refused = of_target(&target, &coord).run().await.unwrap_err().to_string();
    assert!(
        refused.contains("s3://cluster/data is not empty") && refused.contains("mine"),
        "{refused}"
    );
    target.delete("mine").await.unwrap();
    target
        .put_if_absent(INCOMING, Bytes::from_static(b"stele-incoming 1 7\n"))
        .await
        .unwrap();
    let refused = of_target(&target, &coord).run().await.unwrap_err().to_string();
    assert!(refused.contains("a part of other data"), "{refused}");
    let taken = coordinator().await;
    let data: Arc<dyn Storage> = MemoryStorage::new();
    let node = join(data, &taken).await.unwrap();
    let refused = of_target(&MemoryStorage::new(), &taken)
        .run()
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("the name is taken"), "{refused}");
    node.server.shut_down().await;
    assert_eq!(state(&*single.storage).await, Source::Whole);
    let node = start(single.storage.clone()).await;
    assert_eq!(
        rows(&*node.service, table()).await.unwrap(),
        single.rows,
        "the single server serves on"
    );
}

#[tokio::test]
async fn data_that_were_taken_back_are_not_promoted_to_the_same_cluster() {
    let single = single().await;
    let (target, coord) = (MemoryStorage::new(), coordinator().await);
    task(single.storage.clone(), Some(target), &coord).run().await.unwrap();
    take_back(&*single.storage).await;
    let again = task(single.storage.clone(), Some(MemoryStorage::new()), &coord);
    let refused = again.run().await.unwrap_err().to_string();
    assert!(refused.contains("has the data of this root already"), "{refused}");
}

#[tokio::test]
async fn damage_is_not_promoted() {
    let single = single().await;
    let files = single.storage.list("sst/").await.unwrap();
    let file = files.iter().max_by_key(|file| file.len).unwrap();
    let mut content = single.storage.read_all(&file.path).await.unwrap().to_vec();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    single.storage.delete(&file.path).await.unwrap();
    single.storage.put_if_absent(&file.path, content.into()).await.unwrap();
    let (target, coord) = (MemoryStorage::new(), coordinator().await);
    let task = task(single.storage.clone(), Some(target), &coord);
    let refused = format!("{:#}", task.run().await.unwrap_err());
    assert!(refused.contains(&file.path), "{refused}");
    assert_eq!(state(&*single.storage).await, Source::Whole);
    single.storage.delete(&file.path).await.unwrap();
    let refused = format!("{:#}", task.run().await.unwrap_err());
    assert!(refused.contains(&file.path) && refused.contains("missing"), "{refused}");
}

#[tokio::test]
async fn a_folder_that_was_promoted_does_not_start_until_the_data_are_taken_back() {
    let single = single().await;
    let folder = tempfile::tempdir().unwrap();
    let env = TokioRuntime::current();
    let local: Arc<dyn Storage> = LocalStorage::open(folder.path(), env.clone()).unwrap();
    for file in single.storage.list("").await.unwrap() {
        let content = single.storage.read_all(&file.path).await.unwrap();
        local.put_if_absent(&file.path, content).await.unwrap();
    }
    let (target, coord) = (MemoryStorage::new(), coordinator().await);
    let task = task(local, Some(target), &coord);
    task.run().await.unwrap();
    drop(task);
    let mut config = stele_settings::load(&StartArgs::default()).unwrap();
    config.data = Place::Folder(folder.path().to_owned());
    let open = async || {
        let opened = data_dir::open(&config, &Keys::default(), TokioRuntime::current(), &Metrics::new()).await;
        opened.map(drop).map_err(|error| format!("{error:#}"))
    };
    let refused = open().await.unwrap_err();
    assert!(
        refused.contains("was promoted to etcd://e:2379/prod with the data in s3://cluster/data"),
        "{refused}"
    );
    let format = folder.path().join(FORMAT);
    std::fs::remove_file(&format).unwrap();
    let refused = open().await.unwrap_err();
    assert!(
        refused.contains("etcd://e:2379/prod") && refused.contains("take the data back"),
        "{refused}"
    );
    std::fs::write(&format, "stele-data 1\n").unwrap();
    let refused = open().await.unwrap_err();
    assert!(refused.contains("take the data back"), "the mark counts: {refused}");
    std::fs::remove_file(folder.path().join(PROMOTED)).unwrap();
    assert_eq!(open().await, Ok(()));
}
