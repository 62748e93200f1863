//! A device that cannot read the data for a start recovers later. No other start is needed.

use super::*;

/// A tablet with cells in a file and cells in the log, when its server is gone.
async fn left_behind() -> (Arc<MemoryStorage>, Arc<Watched>) {
    let memory = MemoryStorage::new();
    let device = Watched::over(memory.clone());
    let server = first(&device, None).await;
    put(&server, "a", None).await;
    server.served(TABLETS[0]).unwrap().tablet.flush().await.unwrap();
    put(&server, "b", None).await;
    put(&server, "z", None).await;
    (memory, device)
}

fn fails(server: &TabletServer, row: &str) -> bool {
    // A row that cannot be read without waiting is not read here.
    !matches!(server.get_row(TABLETS[0], row.as_bytes(), None), Ok(Some(_)))
}

#[tokio::test]
async fn a_tablet_is_served_when_its_manifest_can_be_read() {
    let (memory, device) = left_behind().await;
    let catalog = catalog(None).await;
    let newest = device.paths(&manifest::directory(TABLETS[0])).await.pop().unwrap();
    memory.make_unreadable(&newest, 0..1);
    let server = start(&device, &catalog, 2).await.unwrap();
    put(&server, "y", None).await;
    for _ in 0..2 {
        server.upkeep.unread.read_again().await;
        assert_eq!(server.damaged_tablets().len(), 1);
        assert!(fails(&server, "a") && has(&server, "z"));
    }
    // The table changes meanwhile.
    let newer = TableSchema {
        version: 2,
        ..schema(None)
    };
    server.lifecycle.publish_schema(&Arc::new(newer));

    memory.make_readable(&newest);
    server.upkeep.unread.read_again().await;
    assert!(server.damaged_tablets().is_empty());
    put(&server, "c", None).await;
    assert!(["a", "b", "c", "y", "z"].iter().all(|row| has(&server, row)));
    assert_eq!(server.served(TABLETS[0]).unwrap().tablet.schema().version, 2);
    server.parts.log.delete_unneeded().await.unwrap();
    drop(server);
    let server = start(&device, &catalog, 3).await.unwrap();
    assert!(["a", "b", "c", "y", "z"].iter().all(|row| has(&server, row)));
}

#[tokio::test]
async fn a_tablet_that_is_dropped_meanwhile_is_not_served() {
    let (memory, device) = left_behind().await;
    let catalog = catalog(None).await;
    let directory = manifest::directory(TABLETS[0]);
    let newest = device.paths(&directory).await.pop().unwrap();
    memory.make_unreadable(&newest, 0..1);
    let server = start(&device, &catalog, 2).await.unwrap();
    memory.make_readable(&newest);
    let schema = Arc::new(schema(None));
    let opened = Tablet::open_again(server.parts.context.clone(), schema, TABLETS[0], Epoch(2)).await;
    server.lifecycle.drop_all(vec![TABLETS[0]]).await;
    server.upkeep.unread.serve_after_all(opened.unwrap()).await;
    assert!(server.damaged_tablets().is_empty());
    assert!(server.served(TABLETS[0]).is_err());
    assert_eq!(device.paths(&directory).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_file_is_taken_up_when_it_can_be_opened() {
    let (memory, device) = left_behind().await;
    let catalog = catalog(None).await;
    let path = device.paths("sst/").await.remove(0);
    let len = memory.read_all(&path).await.unwrap().len() as u64;
    memory.make_unreadable(&path, len - 1..len);
    let server = start(&device, &catalog, 2).await.unwrap();
    server.upkeep.unread.read_again().await;
    assert!(fails(&server, "a"));
    memory.make_readable(&path);
    server.upkeep.unread.read_again().await;
    assert!(has(&server, "a") && has(&server, "b"));
}

/// From when they are made until they are served a split may take its time.
#[tokio::test]
async fn halves_take_up_what_was_opened_before_they_were_served() {
    let memory = MemoryStorage::new();
    let device = Watched::over(memory.clone());
    let apart = ServerOptions {
        value_separate_bytes: 8,
        ..options()
    };
    let server = first_with(&device, None, apart).await;
    for row in ["a", "b", "c", "d"] {
        write(&server, TABLETS[0], row, "a value in a file of its own").await;
    }
    server.served(TABLETS[0]).unwrap().tablet.flush().await.unwrap();
    drop(server);
    let paths = device.paths("sst/").await;
    let values = paths.iter().find(|path| path.ends_with(".val")).unwrap();
    memory.make_unreadable(values, 0..1);
    let server = start(&device, &catalog(None).await, 2).await.unwrap();
    let halves = [TabletId(11), TabletId(12)];
    server
        .splitter
        .prepare(TABLETS[0], halves.into(), None)
        .await
        .unwrap()
        .unwrap();

    memory.make_readable(values);
    server.upkeep.unread.read_again().await;
    assert!(!server.served(TABLETS[0]).unwrap().tablet.holds_unopened());
    server.replacements.finish(TABLETS[0], true).await;
    server.upkeep.unread.read_again().await;
    for half in halves {
        assert!(!server.served(half).unwrap().tablet.holds_unopened(), "{half}");
    }
}
