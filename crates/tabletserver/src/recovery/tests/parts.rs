//! A log that a server with more memory has written.

use super::*;
use crate::options::MemoryBudget;

const ROWS: usize = 400;

fn row(prefix: &str, number: usize) -> String {
    format!("{prefix}{number:04}")
}

#[tokio::test]
async fn more_than_memtables_may_take_is_replayed_some_tablets_at_a_time() {
    let device = Watched::over(MemoryStorage::new());
    let catalog = catalog(None).await;
    let server = first(&device, None).await;
    for (prefix, tablet) in ["a", "z"].into_iter().zip(TABLETS) {
        for number in 0..ROWS {
            let mutation = Mutation::Put {
                family: FamilyId(1),
                qualifier: Bytes::from_static(b"q"),
                timestamp: Timestamp(1),
                value: Bytes::from(vec![7; 8_000]),
            };
            let row = stele_types::RowMutation {
                row: Bytes::from(row(prefix, number)),
                mutations: vec![mutation],
            };
            server.write(tablet, &RowWrites::from(vec![row]), None).await.unwrap();
        }
    }
    let budget = 4 << 20;
    assert!(server.parts.context.memory.bytes() > budget);
    drop(server);
    let small = || ServerOptions {
        memory: Some(MemoryBudget::new(budget)),
        ..options()
    };
    let server = start_with(&device, &catalog, 2, small()).await.unwrap();
    let bytes = server.parts.context.memory.bytes();
    assert!(bytes < budget, "{bytes} bytes");
    let all = || {
        ["a", "z"]
            .into_iter()
            .flat_map(|prefix| (0..ROWS).map(move |number| row(prefix, number)))
    };
    assert!(all().all(|row| has(&server, &row)));
    // Nothing is left of it to be replayed.
    drop(server);
    let server = start_with(&device, &catalog, 3, small()).await.unwrap();
    assert_eq!(server.parts.context.memory.bytes(), 0);
    assert!(all().all(|row| has(&server, &row)));
}
