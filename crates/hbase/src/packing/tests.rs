//! Blocks in both directions, and their memory.

use super::*;
use crate::test_service::{Client, Model, count_turns, failure, message};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use stele_env::tokio_env::TokioRuntime;
use stele_memory::{Part, Pool};
use stele_wire::cell::CellReader;
use stele_wire::messages::{
    Action, ColumnValue, MultiRequest, MultiResponse, MutateRequest, MutateResponse, MutationProto, MutationType,
    QualifierValue, RegionAction, Scan, ScanRequest, ScanResponse,
};

const ZLIB: &str = "org.apache.hadoop.io.compress.DefaultCodec";
const GZIP: &str = "org.apache.hadoop.io.compress.GzipCodec";

fn packed(compression: BlockCompression, plain: &[u8]) -> Bytes {
    let mut encoder = compression.encoder();
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap().into()
}

#[tokio::test]
async fn blocks_survive_the_round_trip_within_their_bound() {
    let env = TokioRuntime::current();
    let pool = Pool::default().limited(Part::Requests, 4 << 20);
    for bytes in [1, 10_000, PIECE_BYTES, 1_000_000] {
        let block: Vec<u8> = (0..bytes).map(|n| (n / 100) as u8).collect();
        for compression in [BlockCompression::Gzip, BlockCompression::Zlib] {
            let memory = pool.of(Part::Requests).empty();
            let packed = packed(compression, &block);
            let plain = unpack(compression, &packed, bytes, &memory, &env).await.unwrap();
            assert_eq!(plain, block);
            assert!(memory.counted() >= bytes && memory.counted() <= (2 * bytes).max(PIECE_BYTES) + 1);
            let refused = unpack(compression, &packed, bytes - 1, &memory, &env)
                .await
                .unwrap_err();
            assert_eq!(refused.class, exception::REQUEST_TOO_BIG);
            assert!(
                unpack(compression, &packed.slice(1..), bytes, &memory, &env)
                    .await
                    .is_err()
            );
        }
    }
}

#[tokio::test]
async fn a_block_that_unpacks_to_more_than_there_is_memory_is_refused_in_time() {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..50 {
        encoder.write_all(&vec![0; 1 << 20]).unwrap();
    }
    let bomb = Bytes::from(encoder.finish().unwrap());
    assert!(bomb.len() < 4 << 20);
    let model = Model::new(&[""]);
    let pool = Pool::default().limited(Part::Requests, 32 << 20);
    let front_end = model.front_end(&pool);
    let (mut client, _served) = Client::connect(&front_end, 8 << 20, Some(ZLIB)).await;
    let turns = count_turns();
    client.send("Multi", &MultiRequest::default(), &bomb).await;
    let refused = client.response().await;
    assert_eq!(failure(&refused), exception::CALL_QUEUE_TOO_BIG);
    assert!(turns.get() > 10, "{} turns", turns.get());
    assert_eq!(front_end.shared.requests.used(), 0);
}

#[tokio::test]
async fn large_responses_are_compressed_in_pieces() {
    let model = Model::new(&[""]);
    for row in 0..100 {
        model.put(&format!("r{row:03}"), "q", vec![7; 10_000]);
    }
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 8 << 20, Some(ZLIB)).await;
    let request = ScanRequest {
        region: Some(model.region("")),
        scan: Some(Scan::default()),
        number_of_rows: Some(1_000),
        ..ScanRequest::default()
    };
    let turns = count_turns();
    let response = client.call("Scan", &request).await;
    assert!(turns.get() > 5, "{} turns", turns.get());
    let found: ScanResponse = message(&response);
    assert_eq!(found.cells_per_result, vec![1; 100]);
    let memory = Pool::default().of(Part::Requests).empty();
    let env = TokioRuntime::current();
    assert!(response.cells.len() < 100_000);
    let cells = unpack(BlockCompression::Zlib, &response.cells, 2 << 20, &memory, &env).await;
    let cells: Vec<_> = CellReader::new(cells.unwrap()).map(Result::unwrap).collect();
    assert_eq!((cells.len(), cells[99].value.len()), (100, 10_000));
    assert_eq!(front_end.shared.requests.used(), 0);
}

/// Its client would repeat it after an error, and without a nonce it would count twice.
#[tokio::test]
async fn a_committed_change_is_answered_without_memory_for_its_cells() {
    let model = Model::new(&[""]);
    model.put("r", "q", vec![7; 2 << 20]);
    let pool = Pool::default().limited(Part::Requests, 1 << 20);
    let front_end = model.front_end(&pool);
    let (mut client, _served) = Client::connect(&front_end, 8 << 20, Some(GZIP)).await;
    let mutation = MutationProto {
        row: Some("r".into()),
        mutate_type: Some(MutationType::Increment as i32),
        column_value: vec![ColumnValue {
            family: "info".into(),
            qualifier_value: vec![QualifierValue {
                qualifier: Some("q".into()),
                value: Some(1i64.to_be_bytes().to_vec().into()),
                ..QualifierValue::default()
            }],
        }],
        ..MutationProto::default()
    };
    let mutate = MutateRequest {
        region: model.region("r"),
        mutation: mutation.clone(),
        ..MutateRequest::default()
    };
    let response = client.call("Mutate", &mutate).await;
    let changed: MutateResponse = message(&response);
    assert_eq!(changed.processed, Some(true));
    assert!(!response.cells.is_empty());
    let action = Action {
        index: Some(0),
        mutation: Some(mutation),
        ..Action::default()
    };
    let multi = MultiRequest {
        region_action: vec![RegionAction {
            region: model.region("r"),
            action: vec![action],
            ..RegionAction::default()
        }],
        ..MultiRequest::default()
    };
    let response = client.call("Multi", &multi).await;
    let changed: MultiResponse = message(&response);
    assert!(changed.region_action_result[0].result_or_exception[0].result.is_some());
    assert!(!response.cells.is_empty());
    assert_eq!(model.steps.lock().len(), 2);
    assert_eq!(front_end.shared.requests.used(), 0);
}
