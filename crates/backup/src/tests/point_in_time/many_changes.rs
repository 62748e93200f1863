//! Parts with more changes of tables than are held in memory.

use super::*;
use crate::archive::Archive;
use crate::archive::format::CHANGES_BYTES;
use stele_client::TableUpdate;

const TABLES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Bytes of the record of each table.
const RECORD_BYTES: usize = 300_000;

async fn change_data(node: &Node, name: &str, byte: u8) {
    let update = TableUpdate {
        front_end_data: Some(vec![byte; RECORD_BYTES]),
        ..TableUpdate::default()
    };
    node.master.update_table(&table(name), update).await.unwrap();
}

/// The changes are in several pieces, those of a start as well as those of a round. Each is needed and checked.
#[tokio::test]
async fn changes_beyond_the_bound_are_archived_in_pieces() {
    let mut world = World::begin().await;
    for name in TABLES {
        world.node.make_table(name).await;
        world.node.write(name, 0..3, 1).await;
    }
    world.node.archive().await;
    world.node.done("b", create()).await;
    let mut moments = Moments::default();
    for (n, name) in TABLES.into_iter().enumerate() {
        change_data(&world.node, name, n as u8).await;
        world.node.write(name, 0..5, 2).await;
    }
    let drop = FamilyChange::Drop { name: "g".to_owned() };
    world
        .node
        .master
        .modify_families(&table("f"), vec![drop])
        .await
        .unwrap();
    moments.remember(&world.node, &TABLES).await;
    world.node.archive().await;
    world.kill().await;
    world.node.write("a", 0..5, 3).await;
    moments.remember(&world.node, &TABLES).await;
    world.node.archive().await;
    moments.check(&world).await;
    let archive = Archive::open(world.archive.clone(), false).await.unwrap();
    let (mut of_rounds, mut of_starts) = (Vec::new(), Vec::new());
    for number in archive.numbers().await.unwrap() {
        let part = archive.part(number).await.unwrap();
        if part.change_pieces.is_empty() {
            continue;
        }
        assert!(part.change_pieces.len() > 1 && part.changes.is_empty());
        assert!(
            part.change_pieces
                .iter()
                .all(|piece| piece.len <= CHANGES_BYTES as u64 + 100)
        );
        let paths = (0..part.change_pieces.len()).map(|index| part.change_path(index));
        match part.restated_micros {
            0 => of_rounds.extend(paths),
            _ => of_starts.extend(paths),
        }
    }
    assert!(
        of_rounds.len() > 1 && of_starts.len() > 1,
        "{of_rounds:?} {of_starts:?}"
    );
    let at = moments.0[1].0;
    for path in of_rounds.iter().chain(&of_starts) {
        let content = world.archive.read_all(path).await.unwrap();
        world.archive.delete(path).await.unwrap();
        let error = world.restored(at).await.err().expect("changes are missing");
        assert!(error.message.contains(&path[..]), "{}", error.message);
        world.archive.put_if_absent(path, content).await.unwrap();
    }
}
