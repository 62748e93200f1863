//! Attempts at a promotion, and servers that join meanwhile.

use super::*;
use crate::members;
use stele_coord::EmbeddedCoord;
use stele_env::tokio_env::TokioRuntime;
use stele_storage::memory::MemoryStorage;

async fn coord() -> Arc<dyn Coord> {
    let coord = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
    coord.await.unwrap()
}

fn of(root: u8) -> PromotedRoot {
    PromotedRoot {
        root: [root; 16],
        source: format!("folder-{root}"),
        target: "s3://b/p".to_owned(),
    }
}

fn records(texts: &[(&str, &str)]) -> Vec<(String, Bytes)> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), Bytes::copy_from_slice(value.as_bytes()));
    texts.iter().map(owned).collect()
}

async fn attempt(coord: &Arc<dyn Coord>, root: u8) -> Promotion {
    match Promotion::begin(coord.clone(), of(root)).await.unwrap() {
        Begun::Attempt(attempt) => attempt,
        Begun::Finished(_) => unreachable!("no attempt has finished"),
    }
}

async fn refusal(coord: Arc<dyn Coord>, root: u8) -> PromotionError {
    match Promotion::begin(coord, of(root)).await {
        Err(refused) => refused,
        Ok(_) => unreachable!("the name is taken"),
    }
}

async fn join(coord: &dyn Coord) -> Result<String> {
    let promotion = before_joining(coord).await?;
    let agreed = members::agree_on_logs(coord, "s3://b/p", promotion.as_ref()).await?;
    agreed.ok_or(PromotionError::Superseded)
}

#[tokio::test]
async fn servers_join_only_when_the_promotion_has_finished() {
    let coord = coord().await;
    let before = before_joining(&*coord).await.unwrap();
    let attempt = attempt(&coord, 1).await;
    let refused = join(&*coord).await.unwrap_err().to_string();
    assert!(
        refused.contains("folder-1") && refused.contains("promote` again"),
        "{refused}"
    );
    let late = members::agree_on_logs(&*coord, "s3://b/p", before.as_ref())
        .await
        .unwrap();
    assert_eq!(late, None, "a server that began earlier does not get ahead");
    attempt.write(&records(&[("catalog/a", "1")])).await.unwrap();
    attempt.finish().await.unwrap();
    assert_eq!(join(&*coord).await.unwrap(), "s3://b/p");
    let known = promotion_of(&*coord).await.unwrap().unwrap();
    assert_eq!((known.of, known.is_finished), (of(1), true));
    let again = Promotion::begin(coord.clone(), of(1)).await.unwrap();
    assert!(matches!(again, Begun::Finished(_)));
    let other = refusal(coord, 2).await;
    assert!(matches!(other, PromotionError::OtherRoot { .. }), "{other}");
}

#[tokio::test]
async fn a_name_with_any_record_is_refused() {
    for key in ["cluster/id", "catalog/table/n/t", "epoch/server", "election/leader"] {
        let coord = coord().await;
        let write = Write::Put {
            key: key.to_owned(),
            value: Bytes::from_static(b"7"),
        };
        let written = coord.txn(Txn {
            conditions: Vec::new(),
            writes: vec![write],
        });
        assert!(matches!(written.await.unwrap(), TxnOutcome::Committed { .. }));
        let refused = refusal(coord, 1).await.to_string();
        assert!(refused.contains(key) && refused.contains("taken"), "{refused}");
    }
}

#[tokio::test]
async fn a_server_that_joined_first_keeps_the_name() {
    let coord = coord().await;
    join(&*coord).await.unwrap();
    let refused = refusal(coord, 1).await;
    assert!(matches!(refused, PromotionError::Taken { .. }), "{refused}");
}

#[tokio::test]
async fn the_newest_attempt_alone_writes_and_leaves_nothing_of_the_others() {
    let coord = coord().await;
    let first = attempt(&coord, 1).await;
    first
        .write(&records(&[("catalog/a", "1"), ("epoch/server", "4")]))
        .await
        .unwrap();
    let second = attempt(&coord, 1).await;
    let late = first.write(&records(&[("catalog/late", "1")])).await.unwrap_err();
    assert!(matches!(late, PromotionError::Superseded), "{late}");
    let wanted = records(&[("catalog/b", "2"), ("epoch/server", "4")]);
    assert_eq!(second.write(&wanted).await.unwrap(), 2, "one record comes, one goes");
    assert_eq!(second.write(&wanted).await.unwrap(), 0);
    let late = first.finish().await.unwrap_err();
    assert!(matches!(late, PromotionError::Superseded), "{late}");
    second.finish().await.unwrap();
    assert!(coord.get("catalog/a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_catalog_of_many_transactions_arrives_whole() {
    let single = coord().await;
    let value = Bytes::from(vec![7; 9_000]);
    let keys: Vec<String> = (0..600).map(|n| format!("catalog/table/n/{n:04}")).collect();
    for key in &keys {
        let write = Write::Put {
            key: key.clone(),
            value: value.clone(),
        };
        let txn = Txn {
            conditions: Vec::new(),
            writes: vec![write],
        };
        assert!(matches!(single.txn(txn).await.unwrap(), TxnOutcome::Committed { .. }));
    }
    let carried = carried_records(&*single, 41).await.unwrap();
    assert_eq!(carried.len(), 601, "the counter of epochs comes, too");
    let cluster = coord().await;
    let attempt = attempt(&cluster, 1).await;
    assert_eq!(attempt.write(&carried).await.unwrap(), 601);
    attempt.finish().await.unwrap();
    let next = stele_coord::next_epoch(&*cluster, NUMBERS).await.unwrap();
    assert_eq!(
        next, 42,
        "numbers of servers are above every epoch of the single server"
    );
}

#[tokio::test]
async fn a_record_that_this_version_does_not_know_is_not_left_behind() {
    let single = coord().await;
    let write = Write::Put {
        key: "quota/n".to_owned(),
        value: Bytes::new(),
    };
    let txn = Txn {
        conditions: Vec::new(),
        writes: vec![write],
    };
    assert!(matches!(single.txn(txn).await.unwrap(), TxnOutcome::Committed { .. }));
    let refused = carried_records(&*single, 1).await.unwrap_err().to_string();
    assert!(refused.contains("quota/n"), "{refused}");
}
