//! Wall clocks that are set back.
//!
//! In these tests the clock of the log was an hour ahead before.

use super::*;
use crate::archive::Archive;
use stele_coord::{Coord, EmbeddedCoord, Txn, Write};

const HOUR_MICROS: i64 = 3_600_000_000;

/// The wall clock was ahead, and a second goes by; the time now.
fn pass_a_second(node: &Node) -> i64 {
    let ahead = node.env.wall_micros() + HOUR_MICROS;
    node.clock.raise(node.clock.now().max(ahead) + 1_000_000);
    node.clock.now()
}

/// A table with a backup, and with one write an hour ahead; the moment of that, its rows, and a moment a second later.
async fn an_hour_ahead() -> (World, i64, Rows) {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.write("t", 0..10, 1).await;
    world.node.done("b", create()).await;
    let at = pass_a_second(&world.node);
    world.node.write("t", 0..10, 2).await;
    let rows = world.node.rows("t", false).await;
    pass_a_second(&world.node);
    world.node.flush("t").await;
    world.node.archive().await;
    (world, at, rows)
}

async fn assert_restored(world: &World, at: i64, rows: &Rows) {
    let node = world.restored(at).await.map_err(|error| error.message).unwrap();
    assert!(node.rows("t", false).await == *rows, "the rows of {at}");
}

/// A backup with the wall clock would seem to be from before the moment, and has a write from after it.
#[tokio::test]
async fn backups_and_the_log_have_one_clock() {
    let (world, at, rows) = an_hour_ahead().await;
    world.node.write("t", 0..10, 3).await;
    world.node.done("later", create()).await;
    let later = pass_a_second(&world.node);
    world.node.write("t", 0..10, 4).await;
    let of_later = world.node.rows("t", false).await;
    pass_a_second(&world.node);
    world.node.archive().await;
    assert_restored(&world, at, &rows).await;
    assert_restored(&world, later, &of_later).await;
}

/// The next process knows nothing of the time but by the catalog: the log is flushed and archived.
#[tokio::test]
async fn the_clock_goes_on_after_a_kill() {
    let (mut world, at, rows) = an_hour_ahead().await;
    world.kill().await;
    assert!(world.node.clock.now() > at, "the clock goes on");
    world.node.write("t", 0..10, 3).await;
    world.node.done("later", create()).await;
    pass_a_second(&world.node);
    world.node.archive().await;
    assert_restored(&world, at, &rows).await;
}

/// A server that archives nothing makes a backup between two that do.
#[tokio::test]
async fn backups_without_an_archive_have_the_same_clock() {
    let (world, at, rows) = an_hour_ahead().await;
    world.node.stop().await;
    let without = start(&world.root, &world.backups).await;
    without.write("t", 0..10, 3).await;
    without.done("between", create()).await;
    without.write("t", 0..10, 4).await;
    without.stop().await;
    let (life, node) = run(&world.root, &world.backups, &world.archive).await;
    let world = World { life, node, ..world };
    world.node.archive().await;
    world.node.write("t", 0..10, 5).await;
    let behind = pass_a_second(&world.node);
    pass_a_second(&world.node);
    world.node.archive().await;
    assert_restored(&world, at, &rows).await;
    // The range begins behind the backup, which lacks a write from before the range.
    world.refusal(behind).await;
}

/// Nothing on the server tells the time of the archive. Writes until it was opened have earlier times, so a range begins.
#[tokio::test]
async fn a_clock_behind_the_archive_begins_a_range() {
    let (world, at, rows) = an_hour_ahead().await;
    world.node.stop().await;
    for file in world.root.list("log/").await.unwrap() {
        world.root.delete(&file.path).await.unwrap();
    }
    let coord = EmbeddedCoord::open(world.root.clone(), stele_env::tokio_env::TokioRuntime::current());
    let forgotten = Txn {
        conditions: Vec::new(),
        writes: vec![Write::Delete {
            key: "root/clock".to_owned(),
        }],
    };
    let _ = coord.await.unwrap().txn(forgotten).await.unwrap();
    let (life, node) = run(&world.root, &world.backups, &world.archive).await;
    let world = World { life, node, ..world };
    assert!(world.node.clock.now() < at, "the clock is behind");
    world.node.write("t", 0..10, 3).await;
    world.node.archive().await;
    let archive = Archive::open(world.archive.clone(), false).await.unwrap();
    let last = *archive.numbers().await.unwrap().last().unwrap();
    let mut gaps = Vec::new();
    for number in 2..=last {
        gaps.push(archive.part(number).await.unwrap().gap);
    }
    assert!(gaps.iter().any(|gap| gap.contains("behind the archive")), "{gaps:?}");
    assert_restored(&world, at, &rows).await;
}
