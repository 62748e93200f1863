//! Memory of the results of batches.

use super::batch;
use crate::test_service::{Block, Client, Model, message};
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stele_memory::{Part, Pool};
use stele_wire::cell::CellReader;
use stele_wire::messages::{
    Action, CLIENT_SERVICE, CellMessage, ColumnValue, ConnectionHeader, Get, KEY_VALUE_CODEC, MultiRequest,
    MultiResponse, MutationProto, MutationType, QualifierValue,
};

fn get(index: u32, row: &str) -> Action {
    Action {
        index: Some(index),
        get: Some(Get {
            row: row.to_owned().into(),
            ..Get::default()
        }),
        ..Action::default()
    }
}

fn put(index: u32) -> Action {
    Action {
        index: Some(index),
        mutation: Some(MutationProto {
            row: Some("w".into()),
            mutate_type: Some(MutationType::Put as i32),
            column_value: vec![ColumnValue {
                family: "info".into(),
                qualifier_value: vec![QualifierValue {
                    value: Some("v".into()),
                    ..QualifierValue::default()
                }],
            }],
            ..MutationProto::default()
        }),
        ..Action::default()
    }
}

/// Gets of rows, and a put, which is carried out when all of them are read.
fn gets_and_put(model: &Arc<Model>, rows: &[&str]) -> MultiRequest {
    let gets = (0..).zip(rows).map(|(index, row)| get(index, row));
    let last = u32::try_from(rows.len()).unwrap();
    batch(model, gets.chain([put(last)]).collect())
}

/// The last part of the class of each exception, in the order of the actions.
fn classes(response: &MultiResponse) -> Vec<String> {
    let mut results = response.region_action_result[0].result_or_exception.clone();
    results.sort_by_key(|result| result.index);
    let class = |name: String| name.rsplit('.').next().unwrap_or_default().to_owned();
    let classes = results
        .into_iter()
        .map(|result| result.exception.map(|e| class(e.name)));
    classes.map(Option::unwrap_or_default).collect()
}

/// A batch of small rows would keep the blocks of all of them otherwise.
#[tokio::test(start_paused = true)]
async fn results_are_reserved_and_hold_no_blocks() {
    for codec in [Some(KEY_VALUE_CODEC.to_owned()), None] {
        let model = Model::new(&[""]);
        let block = Block::new(1 << 20);
        for cell in 0..1_000 {
            model.put("r", &format!("q{cell:04}"), block.value(10));
        }
        model.writes.forget_permits(1_000);
        let front_end = model.front_end(&Pool::default());
        let header = ConnectionHeader {
            service_name: Some(CLIENT_SERVICE.to_owned()),
            cell_block_codec_class: codec.clone(),
            ..ConnectionHeader::default()
        };
        let (mut client, _served) = Client::open(&front_end, 4 << 20, &header).await;
        client.send("Multi", &gets_and_put(&model, &["r"]), &()).await;
        front_end.shared.env.sleep(Duration::from_secs(1)).await;
        let used = front_end.shared.requests.used();
        let least = 1_000 * if codec.is_some() { 40 } else { 72 };
        assert!((2 * least..4 * least).contains(&used), "{used} with codec {codec:?}");
        assert!(!block.held_without(&model), "the result is a copy");
        model.writes.add_permits(1);
        let response = client.response().await;
        let found: MultiResponse = message(&response);
        assert_eq!(classes(&found), ["", ""]);
        let result = found.region_action_result[0].result_or_exception[0]
            .result
            .as_ref()
            .unwrap();
        let values: Vec<usize> = match codec {
            Some(_) => CellReader::new(response.cells.clone())
                .map(|cell| cell.unwrap().value.len())
                .collect(),
            None => {
                let cells = result
                    .cell
                    .iter()
                    .map(|cell| CellMessage::decode(cell.clone()).unwrap());
                cells.map(|cell| cell.value.unwrap_or_default().len()).collect()
            }
        };
        assert_eq!(values, [10; 1_000]);
    }
}

/// A client repeats a batch whose results are too large immediately, and for ever.
#[tokio::test(start_paused = true)]
async fn a_batch_without_memory_for_any_result_is_repeated_later() {
    let cases: [(usize, &[&str], usize, usize); 3] = [
        (1_100_000, &["CallQueueTooBigException"; 3], 1, 1 << 20),
        // As the answer of a single Get needs no more than one copy.
        (
            600_000,
            &["", "MultiActionResultTooLarge", "MultiActionResultTooLarge"],
            1,
            1_300_000,
        ),
        (200_000, &["", "", "MultiActionResultTooLarge"], 3, 1 << 20),
    ];
    for (value_bytes, expected, reads, most) in cases {
        let model = Model::new(&[""]);
        model.put("r", "q", vec![7; value_bytes]);
        model.writes.forget_permits(1_000);
        let pool = Pool::default().limited(Part::Requests, 1 << 20);
        let front_end = model.front_end(&pool);
        let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
        client.send("Multi", &gets_and_put(&model, &["r"; 3]), &()).await;
        front_end.shared.env.sleep(Duration::from_secs(1)).await;
        let used = front_end.shared.requests.used();
        assert!(used <= most, "{used}");
        model.writes.add_permits(1);
        let found: MultiResponse = message(&client.response().await);
        assert_eq!(classes(&found)[..3], *expected);
        assert_eq!(classes(&found)[3], "", "the put");
        assert_eq!(model.reads.load(Ordering::Relaxed), reads);
    }
}

/// The next read would wait as long.
#[tokio::test(start_paused = true)]
async fn a_batch_waits_for_the_memory_of_a_read_once() {
    let model = Model::new(&[""]);
    model.put("r", "q", "v");
    model.is_in_memory.store(false, Ordering::Relaxed);
    let pool = Pool::default().limited(Part::Responses, 1 << 20);
    let front_end = model.front_end(&pool);
    let _taken = front_end.shared.responses.try_reserve(1 << 20).unwrap();
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    let started = front_end.shared.env.now();
    let found: MultiResponse = message(&client.call("Multi", &gets_and_put(&model, &["r"; 20])).await);
    let took = front_end.shared.env.now() - started;
    assert!(took < Duration::from_secs(15), "{took:?}");
    let classes = classes(&found);
    assert_eq!(
        (&classes[0][..], &classes[1][..], &classes[20][..]),
        ("RegionTooBusyException", "CallQueueTooBigException", "")
    );
}

/// Each read would queue for its memory otherwise, behind all that wait by then.
#[tokio::test(start_paused = true)]
async fn the_reads_of_a_batch_queue_for_memory_once() {
    let model = Model::new(&[""]);
    model.put("r", "q", "v");
    model.is_in_memory.store(false, Ordering::Relaxed);
    let limit = 3 << 19;
    let front_end = model.front_end(&Pool::default().limited(Part::Responses, limit));
    let (responses, env) = (&front_end.shared.responses, &front_end.shared.env);
    let taken = responses.try_reserve(limit).unwrap();
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    client.send("Multi", &gets_and_put(&model, &["r"; 20]), &()).await;
    while responses.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    // Behind the batch, and it keeps its memory until the batch has ended.
    let other = responses.reserve(env, limit / 2, Duration::from_secs(60));
    let frees = async {
        while responses.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        drop(taken);
    };
    let (response, other, ()) = tokio::join!(client.response(), other, frees);
    assert!(other.is_ok());
    let classes = classes(&message(&response));
    assert!(classes.iter().all(String::is_empty), "{classes:?}");
}
