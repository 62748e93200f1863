//! Memory of responses, from the read until they are taken.

use super::{next, open, page_filter, values, whole_row_filter};
use crate::test_service::{Block, Client, Model, failure};
use bytes::Bytes;
use prost::Message;
use std::time::Duration;
use stele_memory::{Part, Pool};
use stele_wire::cell::CellReader;
use stele_wire::exception;
use stele_wire::messages::{self, Filter};

/// A client may take its time, and open many scans of large rows meanwhile.
#[tokio::test(start_paused = true)]
async fn a_response_of_a_large_row_is_reserved_until_it_is_taken() {
    let row_bytes = 20_000_000;
    let scans = [
        (None, false, 100),
        (Some(whole_row_filter()), true, 100),
        (None, true, 1),
    ];
    for (filter, partials, cells) in scans {
        let model = Model::new(&[""]);
        for cell in 0..cells {
            model.put("r", &format!("q{cell:03}"), vec![7; row_bytes / cells]);
        }
        let pool = Pool::default().limited(Part::Responses, 64 << 20);
        let front_end = model.front_end(&pool);
        let responses = &front_end.shared.responses;
        let (mut client, _served) = Client::connect(&front_end, 64 << 10, None).await;
        let scan = messages::Scan {
            filter,
            ..messages::Scan::default()
        };
        let mut request = open(&model, scan);
        request.client_handles_partials = Some(partials);
        for _ in 0..3 {
            client.send("Scan", &request, &()).await;
        }
        front_end.shared.env.sleep(Duration::from_secs(1)).await;
        let used = responses.used();
        assert!(
            (2 * row_bytes..=64 << 20).contains(&used),
            "{used} for {cells} cells, cut: {partials}"
        );
        for _ in 0..3 {
            assert_eq!(values(&client.response().await), row_bytes);
        }
        front_end.shared.env.sleep(Duration::from_secs(1)).await;
        assert!(responses.used() < 10_000, "that of the filters is left");
    }
}

/// The scanner may be closed, and its memory taken, before its client has taken the response.
#[tokio::test(start_paused = true)]
async fn a_large_cell_is_reserved_apart_from_the_rest_of_its_row() {
    for limit in [64 << 20, 8 << 20] {
        let model = Model::new(&[""]);
        model.put("r", "large", vec![7; 20 << 20]);
        model.put("r", "small", "v");
        let pool = Pool::default().limited(Part::Responses, limit);
        let front_end = model.front_end(&pool);
        let responses = &front_end.shared.responses;
        let (mut client, _served) = Client::connect(&front_end, 64 << 10, None).await;
        client.send("Scan", &open(&model, messages::Scan::default()), &()).await;
        front_end.shared.env.sleep(Duration::from_secs(2)).await;
        front_end.shared.scanners.reclaim(64 << 20);
        front_end.shared.scanners.reclaim_overdraft();
        let used = responses.used();
        assert!(used >= limit.min(20 << 20), "{used} of {limit}");
        assert_eq!(pool.is_overdrawn(), limit < 20 << 20);
        let opened = client.response().await;
        assert_eq!(values(&opened), 20 << 20);
        let rest = client.call("Scan", &next(&opened)).await;
        assert_eq!(failure(&rest), exception::UNKNOWN_SCANNER);
        assert_eq!((responses.used(), pool.is_overdrawn()), (0, false));
    }
}

/// The engine bounds only how much memory the rows that it returns pin.
#[tokio::test]
async fn few_rows_that_a_filter_leaves_do_not_hold_the_blocks_of_others() {
    for (page_size, is_held) in [(40, true), (10, false)] {
        let model = Model::new(&[""]);
        let block = Block::new(1 << 20);
        for row in 0..100 {
            model.put(&format!("r{row:05}"), "q", block.value(1_000));
        }
        let front_end = model.front_end(&Pool::default());
        let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
        let message = messages::PageFilter { page_size };
        let scan = messages::Scan {
            filter: Some(Filter {
                serialized_filter: Some(message.encode_to_vec().into()),
                ..page_filter()
            }),
            ..messages::Scan::default()
        };
        let mut request = open(&model, scan);
        request.number_of_rows = Some(2);
        let opened = client.call("Scan", &request).await;
        assert_eq!(values(&opened), 2_000);
        assert_eq!(block.held_without(&model), is_held, "{page_size} of 100 rows");
        let mut request = next(&opened);
        request.number_of_rows = Some(100);
        let rest = client.call("Scan", &request).await;
        let rows: Vec<Bytes> = CellReader::new(rest.cells.clone())
            .map(|cell| cell.unwrap().row)
            .collect();
        let expected: Vec<String> = (2..page_size).map(|row| format!("r{row:05}")).collect();
        assert_eq!(rows, expected);
        assert_eq!(values(&rest), expected.len() * 1_000);
    }
}
