//! The driver against scripted servers: all failures that occur occasionally in a real cluster.

mod batches;
mod scans;
mod scripted;

use crate::target::{Columns, Connection, Put, TargetError};
use bytes::Bytes;
use parking_lot::Mutex;
use scripted::{Map, Reaction, answer, answer_with, start};
use std::collections::VecDeque;
use std::sync::Arc;
use stele_wire::exception;
use stele_wire::frame::Request;
use stele_wire::messages::*;

const TABLE: &str = "bench-t";

async fn connect(address: &str) -> Arc<dyn Connection> {
    let target = crate::target::open(&format!("hbase://{address}?timeout_ms=1000"))
        .await
        .unwrap();
    target.connect().await.unwrap()
}

fn one_cell(value: &str) -> Reaction {
    let result = Some(RowResult {
        associated_cell_count: Some(1),
        ..RowResult::default()
    });
    answer_with(&GetResponse { result }, &[("r", "q", value)])
}

async fn get(c: &Arc<dyn Connection>, key: &'static str) -> Result<String, TargetError> {
    let row = c
        .get(TABLE, Bytes::from_static(key.as_bytes()), &Columns::default())
        .await?;
    Ok(row
        .map(|row| row.cells[0].value.escape_ascii().to_string())
        .unwrap_or_default())
}

/// One server that has everything, and carries out reactions one after another.
async fn one_server(reactions: Vec<Reaction>) -> (Arc<Map>, Arc<dyn Connection>) {
    let map = Arc::new(Map::default());
    let mut reactions: VecDeque<Reaction> = reactions.into();
    let address = start(&map, move |_, _| {
        reactions.pop_front().expect("no more calls were expected")
    })
    .await;
    map.all_at(&address);
    (map, connect(&address).await)
}

#[tokio::test]
async fn a_region_that_has_moved_is_looked_up_again() {
    let map = Arc::new(Map::default());
    let new = start(&map, |_, _| one_cell("new")).await;
    let (moved, to) = (map.clone(), new.clone());
    let old = start(&map, move |_, _| {
        moved.all_at(&to);
        Reaction::Exception(exception::NOT_SERVING_REGION)
    })
    .await;
    map.all_at(&old);
    let c = connect(&old).await;
    assert_eq!(get(&c, "a").await.unwrap(), "new");
    assert_eq!(get(&c, "a").await.unwrap(), "new");
    assert_eq!((c.retries(), *map.lookups.lock()), (1, 2));
}

#[tokio::test]
async fn a_busy_region_is_waited_for_where_it_is() {
    let busy = || Reaction::Exception(exception::REGION_TOO_BUSY);
    let (map, c) = one_server(vec![busy(), busy(), one_cell("done")]).await;
    assert_eq!(get(&c, "a").await.unwrap(), "done");
    assert_eq!((c.retries(), *map.lookups.lock()), (2, 1));
}

#[tokio::test]
async fn what_the_server_refuses_is_not_repeated() {
    let (_, c) = one_server(vec![Reaction::Exception(exception::NO_SUCH_FAMILY)]).await;
    let refused = get(&c, "a").await;
    let text = format!("{}: the script says so", exception::NO_SUCH_FAMILY);
    assert!(
        matches!(&refused, Err(TargetError::Refused(why)) if *why == text),
        "{refused:?}"
    );
    let unknown = c.get("bench-other", "a".into(), &Columns::default()).await;
    assert!(matches!(unknown, Err(TargetError::Refused(_))), "{unknown:?}");
    assert_eq!(c.retries(), 0);
}

#[tokio::test]
async fn a_broken_connection_is_made_again() {
    let (_, c) = one_server(vec![one_cell("1"), Reaction::HangUp, one_cell("2")]).await;
    assert_eq!(get(&c, "a").await.unwrap(), "1");
    assert_eq!(get(&c, "a").await.unwrap(), "2");
    assert_eq!(c.retries(), 1);
}

#[tokio::test]
async fn a_call_without_an_answer_is_repeated() {
    let (_, c) = one_server(vec![Reaction::Silence, one_cell("late")]).await;
    assert_eq!(get(&c, "a").await.unwrap(), "late");
    assert_eq!(c.retries(), 1);
}

#[tokio::test]
async fn answers_may_come_in_another_order() {
    let first = match one_cell("first") {
        Reaction::Answer(message, cells) => Reaction::AfterNext(message, cells),
        other => other,
    };
    let (_, c) = one_server(vec![one_cell("warm"), first, one_cell("second")]).await;
    get(&c, "a").await.unwrap();
    let (a, b) = futures::join!(get(&c, "a"), get(&c, "b"));
    assert_eq!((a.unwrap(), b.unwrap()), ("first".into(), "second".into()));
}

#[tokio::test]
async fn an_answer_that_is_not_one_is_an_error_and_not_a_value() {
    let broken = Reaction::Answer(vec![0xff], Bytes::new());
    let two = Some(RowResult {
        associated_cell_count: Some(2),
        ..RowResult::default()
    });
    let too_few = answer_with(&GetResponse { result: two }, &[("r", "q", "v")]);
    let none = Some(RowResult {
        associated_cell_count: Some(0),
        ..RowResult::default()
    });
    let too_many = answer_with(&GetResponse { result: none }, &[("r", "q", "v")]);
    let (_, c) = one_server(vec![broken, too_few, too_many, one_cell("fine")]).await;
    for _ in 0..3 {
        let refused = get(&c, "a").await;
        assert!(matches!(refused, Err(TargetError::Protocol(_))), "{refused:?}");
    }
    assert_eq!(get(&c, "a").await.unwrap(), "fine");
}

#[tokio::test]
async fn conditions_and_counters() {
    let counted = Some(RowResult {
        associated_cell_count: Some(1),
        ..RowResult::default()
    });
    let value = "\0\0\0\0\0\0\0\u{7}";
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let map = Arc::new(Map::default());
    let address = start(&map, move |_, request: Request| {
        let request: MutateRequest = decode("MutateRequest", request.message).unwrap();
        log.lock().push(request.clone());
        match request.mutation.mutate_type() {
            MutationType::Increment if log.lock().len() == 1 => Reaction::Exception("java.io.IOException"),
            MutationType::Increment => answer_with(
                &MutateResponse {
                    result: counted.clone(),
                    processed: None,
                },
                &[("r", "q", value)],
            ),
            _ => answer(&MutateResponse {
                result: None,
                processed: Some(false),
            }),
        }
    })
    .await;
    map.all_at(&address);
    let c = connect(&address).await;
    assert_eq!(c.increment(TABLE, "r".into(), "f", "q".into(), 3).await.unwrap(), 7);
    let put = Put {
        key: "r".into(),
        cells: vec![("f".into(), "q".into(), "v".into())],
    };
    assert!(!c.check_and_put(TABLE, "f", "q".into(), None, put).await.unwrap());
    let seen = seen.lock();
    let nonce = |at: usize| (seen[at].nonce_group.unwrap(), seen[at].mutation.nonce.unwrap());
    assert_eq!(nonce(0), nonce(1), "a repeated increment must be known as such");
    let condition = seen[2].condition.clone().unwrap();
    let comparator = condition.comparator.clone().unwrap();
    assert_eq!(condition.compare_type(), CompareType::Equal);
    assert_eq!(comparator.name, BINARY_COMPARATOR);
    assert_eq!(
        &comparator.serialized_comparator.unwrap()[..],
        &[10, 2, 10, 0],
        "an empty value"
    );
}

#[tokio::test]
async fn only_tables_of_the_bench_are_dropped() {
    let target = crate::target::open("hbase://127.0.0.1:1").await.unwrap();
    assert!(matches!(
        target.drop_table("users").await,
        Err(TargetError::Unsupported(_))
    ));
    assert!(crate::target::open("hbase://127.0.0.1").await.is_err(), "no port");
    assert!(crate::target::open("hbase://127.0.0.1:1/x").await.is_err());
    assert!(crate::target::open("hbase://127.0.0.1:1?timout_ms=1").await.is_err());
}
