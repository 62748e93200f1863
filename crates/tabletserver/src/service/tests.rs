//! Requests of a caller whose view of the catalog is old.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

use super::*;
use crate::recovery::tests::{TABLETS, Watched, first};
use stele_client::{RmwOperation, ServiceError};
use stele_storage::memory::MemoryStorage;
use stele_types::{ErrorKind, Mutation, RowMutation, RowSet, Timestamp};

fn put(row: &Bytes) -> RowMutation {
    let mutation = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value: Bytes::from_static(b"v"),
    };
    RowMutation {
        row: row.clone(),
        mutations: vec![mutation],
    }
}

async fn check_and_mutate(server: &TabletServer, tablet: TabletId, row: &Bytes) -> ServiceResult<bool> {
    let request = TabletCheckAndMutate {
        row: row.clone(),
        predicate: None,
        on_match: None,
        otherwise: Some(put(row)),
        durability: None,
    };
    TabletService::check_and_mutate(server, tablet, request).await
}

async fn append(server: &TabletServer, tablet: TabletId, row: &Bytes) -> ServiceResult<Vec<Cell>> {
    let rule = RmwRule {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        operation: RmwOperation::Append(Bytes::from_static(b"v")),
    };
    server.read_modify_write(tablet, row.clone(), vec![rule], None).await
}

/// All rows that a tablet has of those asked for.
async fn scan(server: &TabletServer, tablet: TabletId, rows: RowSet) -> usize {
    let request = TabletRead {
        rows,
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
        waits: true,
    };
    let mut stream = TabletService::read(server, tablet, request).await.unwrap();
    let mut found = 0;
    while let Some(batch) = stream.next().await.unwrap() {
        found += batch.rows().count();
    }
    found
}

fn kind(outcome: Result<impl Sized, ServiceError>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind)
}

#[tokio::test]
async fn rows_of_another_tablet_are_refused_and_nothing_happens() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let (left, right) = (Bytes::from_static(b"left"), Bytes::from_static(b"right"));
    for (tablet, own, other) in [(TABLETS[0], &left, &right), (TABLETS[1], &right, &left)] {
        let refused = Some(ErrorKind::Unavailable);
        for rows in [vec![put(other)], vec![put(own), put(other)], vec![put(other), put(own)]] {
            assert_eq!(kind(server.mutate(tablet, rows.into(), None).await), refused);
        }
        assert_eq!(kind(check_and_mutate(&server, tablet, other).await), refused);
        assert_eq!(kind(append(&server, tablet, other).await), refused);
        assert_eq!(kind(server.read_row_at_once(tablet, other, None)), refused);
        assert_eq!(server.served(tablet).unwrap().tablet.state().memtable_bytes(), 0);
    }
    for (tablet, own, other) in [(TABLETS[0], &left, &right), (TABLETS[1], &right, &left)] {
        server.mutate(tablet, vec![put(own)].into(), None).await.unwrap();
        assert!(check_and_mutate(&server, tablet, own).await.unwrap());
        assert_eq!(append(&server, tablet, own).await.unwrap()[0].value, "vv");
        for rows in [
            RowSet::all(),
            RowSet::new(vec![RowRange::single(own), RowRange::single(other)]),
        ] {
            assert_eq!(
                scan(&server, tablet, rows).await,
                1,
                "a read passes over what is not the tablet's"
            );
        }
        assert_eq!(
            scan(&server, tablet, RowSet::new(vec![RowRange::single(other)])).await,
            0
        );
    }
}
