//! Rows whose tablets change between the parts of an archive.

use super::*;
use crate::archive::Archive;
use crate::archive::format::{Part, part_path};

/// The first row of a tablet of each half, and the row at which it is split.
const SPLITS: [(usize, usize, usize); 2] = [(10, 60, 50), (110, 160, 150)];

async fn split(node: &Node, name: &str, at: usize) {
    let row = format!("row-{at:05}");
    let tablet = node.catalog.table(&table(name)).unwrap().tablet_of(row.as_bytes()).id;
    node.master
        .split(&table(name), tablet, Some(Bytes::from(row)))
        .await
        .unwrap();
}

/// A row is written in a tablet and deleted in a half of it, within one part. The halves are in several streams.
#[tokio::test]
async fn writes_of_a_row_keep_their_order_through_a_split() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.done("b", create()).await;
    let mut moments = Moments::default();
    for (low, high, at) in SPLITS {
        world.node.write("t", low..low + 3, 1).await;
        world.node.write("t", high..high + 3, 1).await;
        split(&world.node, "t", at).await;
        for n in [low, high] {
            world.node.delete_row("t", n).await;
            world.node.write("t", n + 1..n + 2, 0).await;
        }
    }
    moments.remember(&world.node, &["t"]).await;
    world.node.archive().await;
    moments.check(&world).await;
}

/// Replaces a part of an archive.
async fn change_part(world: &World, number: u64, change: impl FnOnce(&mut Part)) {
    let archive = Archive::open(world.archive.clone(), false).await.unwrap();
    let mut part = archive.part(number).await.unwrap();
    change(&mut part);
    world.archive.delete(&part_path(number)).await.unwrap();
    assert_eq!(archive.put_part(&part).await.unwrap(), None);
}

/// Some log is missing, in each way that one of the checks alone sees. `archive::replay` has those of documents one by one.
#[tokio::test]
async fn a_hole_behind_the_first_part_is_reported() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.write("t", 0..10, 1).await;
    world.node.archive().await;
    world.node.make_table("u").await;
    world.node.archive().await;
    world.node.done("b", create()).await;
    world.node.write("t", 0..10, 2).await;
    world.node.archive().await;
    let archive = Archive::open(world.archive.clone(), false).await.unwrap();
    let holed = *archive.numbers().await.unwrap().last().unwrap();
    world.node.write("t", 0..10, 3).await;
    let at = world.node.moment().await;
    world.node.archive().await;
    world.restored(at).await.unwrap();
    let whole = archive.part(holed).await.unwrap();
    let quiet = archive.part(holed - 1).await.unwrap();
    assert!(quiet.pieces.is_empty(), "the part before has no log");
    for ends in [quiet.ends, whole.ends.clone()] {
        change_part(&world, holed, |part| {
            part.pieces.clear();
            part.ends = ends;
        })
        .await;
        let error = world.restored(at).await.err().expect("log is missing");
        assert_eq!(error.kind, ErrorKind::Corruption);
        assert!(error.message.contains("the archive lacks"), "{}", error.message);
        change_part(&world, holed, |part| *part = whole.clone()).await;
    }
    world.restored(at).await.unwrap();
}

/// A whole segment is missing. Only the next one tells, which states how long the one before it was.
#[tokio::test]
async fn a_missing_segment_is_reported() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.write("t", 0..10, 1).await;
    world.node.archive().await;
    world.node.done("b", create()).await;
    for version in 2..9 {
        world.node.write("t", 0..30, version).await;
    }
    let at = world.node.moment().await;
    world.node.archive().await;
    world.restored(at).await.unwrap();
    let archive = Archive::open(world.archive.clone(), false).await.unwrap();
    let last = *archive.numbers().await.unwrap().last().unwrap();
    let part = archive.part(last).await.unwrap();
    // A stream with three segments: the one in the middle has been begun and ended in the part.
    let mut of_streams: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for piece in &part.pieces {
        let segments = of_streams.entry(piece.stream).or_default();
        if segments.last() != Some(&piece.segment) {
            segments.push(piece.segment);
        }
    }
    let middle = of_streams
        .values()
        .find_map(|segments| segments.get(1).filter(|_| segments.len() > 2));
    let middle = *middle.expect("a stream with three segments");
    // The paths of pieces are their places, so those behind move.
    let mut contents = Vec::new();
    for (index, piece) in part.pieces.iter().enumerate() {
        if piece.segment != middle {
            contents.push((
                *piece,
                archive
                    .open_piece(&part, index, 1)
                    .await
                    .unwrap()
                    .next(usize::MAX)
                    .await
                    .unwrap(),
            ));
        }
        world.archive.delete(&part.piece_path(index)).await.unwrap();
    }
    for (index, (_, content)) in contents.iter().enumerate() {
        archive
            .put_piece(&part.piece_path(index), content.clone())
            .await
            .unwrap();
    }
    change_part(&world, last, |part| {
        part.pieces = contents.iter().map(|(piece, _)| *piece).collect()
    })
    .await;
    let error = world.restored(at).await.err().expect("log is missing");
    assert_eq!(error.kind, ErrorKind::Corruption);
    assert!(error.message.contains("the segment follows"), "{}", error.message);
}

/// A tablet is made and replaced between two parts, and the server killed: its writes are of no table that is known.
#[tokio::test]
async fn writes_of_an_unknown_tablet_are_refused() {
    let mut world = World::begin().await;
    world.node.make_table("t").await;
    world.node.make_table("other").await;
    world.node.done("b", create()).await;
    world.node.write("t", 0..5, 1).await;
    let mut moments = Moments::default();
    moments.remember(&world.node, &["t", "other"]).await;
    world.node.archive().await;
    // A kill with a split whose halves are there does not matter, nor does another table.
    split(&world.node, "other", 50).await;
    world.node.write("other", 40..60, 1).await;
    world.kill().await;
    moments.remember(&world.node, &["t", "other"]).await;
    world.node.archive().await;
    split(&world.node, "t", 50).await;
    world.node.write("t", 10..12, 2).await;
    split(&world.node, "t", 20).await;
    world.kill().await;
    let lost = world.node.moment().await;
    world.node.archive().await;
    moments.check(&world).await;
    let refused = world.refusal(lost).await;
    assert!(
        refused.contains("writes of tablet") && refused.contains("the latest moment"),
        "{refused}"
    );
    let latest = refused.split("followed is ").nth(1).unwrap();
    let latest: i64 = latest.split(';').next().unwrap().parse().unwrap();
    assert!((moments.0[1].0..lost).contains(&latest), "{refused}");
    let node = world.restored(latest).await.unwrap();
    assert!(node.rows("t", false).await == moments.0[1].1["t"]);
}
