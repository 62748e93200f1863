//! Requests that are repeated with their token, also after a restart or replacement.

use super::*;
use stele_client::{
    RmwOperation, RmwRule, RowOutcome, ServiceResult, Step, TabletControl, TabletRowOperation, TabletService,
};
use stele_memory::{Part, Pool};
use stele_types::{ErrorKind, RequestToken};

const HALVES: (TabletId, TabletId) = (TabletId(11), TabletId(12));
const MERGED: TabletId = TabletId(21);

fn nonce(nonce: u64) -> Option<RequestToken> {
    Some(RequestToken::Nonce { group: 7, nonce })
}

fn operation(row: &'static str, operation: RmwOperation, token: Option<RequestToken>) -> TabletRowOperation {
    let rule = RmwRule::new(FamilyId(1), Bytes::from_static(b"n"), operation);
    TabletRowOperation {
        row: Bytes::from_static(row.as_bytes()),
        condition: None,
        steps: vec![Step::Modify(rule)],
        otherwise: Vec::new(),
        durability: None,
        token,
    }
}

async fn increment(
    server: &TabletServer,
    tablet: TabletId,
    row: &'static str,
    token: Option<RequestToken>,
) -> ServiceResult<i64> {
    let outcome = server.row_operation(tablet, operation(row, RmwOperation::Increment(1), token));
    outcome.await.map(|outcome| number(&outcome))
}

fn number(outcome: &RowOutcome) -> i64 {
    let value = outcome.written.first().map(|cell| &cell.value[..]);
    i64::from_be_bytes(value.unwrap().try_into().unwrap())
}

/// Increments a row twice, and repeats the first of them, which gets its first answer again.
async fn increment_twice(server: &TabletServer, tablet: TabletId, row: &'static str) {
    assert_eq!(increment(server, tablet, row, nonce(1)).await.unwrap(), 1);
    assert_eq!(increment(server, tablet, row, nonce(2)).await.unwrap(), 2);
    check_repeated(server, tablet, row).await;
}

async fn check_repeated(server: &TabletServer, tablet: TabletId, row: &'static str) {
    assert_eq!(increment(server, tablet, row, nonce(1)).await.unwrap(), 1);
    assert_eq!(increment(server, tablet, row, nonce(2)).await.unwrap(), 2);
}

async fn flush(server: &TabletServer, tablet: TabletId) {
    assert!(server.served(tablet).unwrap().tablet.flush().await.unwrap());
}

#[tokio::test]
async fn a_repeated_increment_is_counted_once_after_a_replay_and_after_a_flush() {
    let device = Watched::over(MemoryStorage::new());
    let catalog = catalog(None).await;
    let server = first(&device, None).await;
    increment_twice(&server, TABLETS[0], "a").await;
    drop(server);
    let server = start(&device, &catalog, 2).await.unwrap();
    check_repeated(&server, TABLETS[0], "a").await;
    flush(&server, TABLETS[0]).await;
    drop(server);
    let server = start(&device, &catalog, 3).await.unwrap();
    check_repeated(&server, TABLETS[0], "a").await;
    // Another flush keeps the tokens of earlier ones.
    assert_eq!(increment(&server, TABLETS[0], "a", nonce(3)).await.unwrap(), 3);
    flush(&server, TABLETS[0]).await;
    drop(server);
    let server = start(&device, &catalog, 4).await.unwrap();
    check_repeated(&server, TABLETS[0], "a").await;
    assert_eq!(increment(&server, TABLETS[0], "a", nonce(3)).await.unwrap(), 3);
    assert_eq!(increment(&server, TABLETS[0], "a", None).await.unwrap(), 4);
}

#[tokio::test]
async fn both_halves_of_a_split_and_a_merged_tablet_know_the_tokens() {
    let device = Watched::over(MemoryStorage::new());
    let server = first(&device, None).await;
    increment_twice(&server, TABLETS[0], "a").await;
    increment_twice(&server, TABLETS[0], "c").await;
    increment_twice(&server, TABLETS[1], "z").await;
    let at = Some(Bytes::from_static(b"b"));
    assert_eq!(server.prepare_split(TABLETS[0], HALVES, at.clone()).await.unwrap(), at);
    server.finish_replacement(TABLETS[0], true).await;
    check_repeated(&server, HALVES.0, "a").await;
    check_repeated(&server, HALVES.1, "c").await;
    let all = vec![HALVES.0, HALVES.1, TABLETS[1]];
    server.prepare_merge(all, MERGED).await.unwrap();
    server.finish_replacement(HALVES.0, true).await;
    for row in ["a", "c", "z"] {
        check_repeated(&server, MERGED, row).await;
    }
    assert_eq!(increment(&server, MERGED, "z", nonce(3)).await.unwrap(), 3);
}

#[tokio::test]
async fn concurrent_repetitions_take_effect_once() {
    let server = first(&Watched::over(MemoryStorage::new()), Some(Durability::Sync)).await;
    let repeated = (0..20).map(|_| increment(&server, TABLETS[0], "a", nonce(1)));
    let answers = futures::future::join_all(repeated).await;
    assert!(answers.iter().all(|answer| *answer == Ok(1)), "{answers:?}");
    assert_eq!(increment(&server, TABLETS[0], "a", None).await.unwrap(), 2);
}

/// An answer that is not remembered is the present content of the columns.
#[tokio::test]
async fn a_repeated_append_of_a_large_value_reads_it() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let append = |bytes: usize, token| {
        let append = RmwOperation::Append(vec![7; bytes].into());
        server.row_operation(TABLETS[0], operation("a", append, token))
    };
    for _ in 0..2 {
        let outcome = append(5_000, nonce(1)).await.unwrap();
        assert_eq!(outcome.written[0].value.len(), 5_000);
    }
    assert_eq!(append(1, None).await.unwrap().written[0].value.len(), 5_001);
    let outcome = append(5_000, nonce(1)).await.unwrap();
    assert_eq!((outcome.matched, outcome.written[0].value.len()), (true, 5_001));
}

#[tokio::test]
async fn a_dated_request_is_refused_rather_than_counted_twice() {
    let options = ServerOptions {
        pool: Pool::default().limited(Part::RequestTokens, 0),
        ..options()
    };
    let server = first_with(&Watched::over(MemoryStorage::new()), None, options).await;
    let now = server.env().wall_micros();
    let dated = |start_micros| {
        let token = Bytes::from_static(b"a token of a client");
        Some(RequestToken::Dated { token, start_micros })
    };
    assert_eq!(increment(&server, TABLETS[0], "a", dated(now)).await.unwrap(), 1);
    for start in [now, now - 3_600_000_000, now + 3_600_000_000] {
        let refused = increment(&server, TABLETS[0], "a", dated(start)).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::FailedPrecondition);
    }
    assert_eq!(increment(&server, TABLETS[0], "a", dated(now + 1)).await.unwrap(), 2);
}
