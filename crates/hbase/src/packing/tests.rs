//! Blocks in both directions, and their memory.

use super::*;
use crate::test_service::{Client, Model, count_turns, failure, message};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use stele_env::tokio_env::TokioRuntime;
use stele_memory::{Part, Pool};
use stele_wire::cell::CellReader;
use stele_wire::messages::{MultiRequest, Scan, ScanRequest, ScanResponse};

const ZLIB: &str = "org.apache.hadoop.io.compress.DefaultCodec";

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
