//! Reads of `hbase:meta` over a table of four tablets, or of many.

use crate::test_service::{Client, Model, count_turns, message};
use bytes::Bytes;
use prost::Message;
use std::sync::atomic::Ordering;
use stele_memory::Pool;
use stele_wire::cell::CellReader;
use stele_wire::frame::Response;
use stele_wire::messages::{
    self, Action, Column, Filter, Get, GetRequest, MultiRequest, MultiResponse, RegionAction, RegionSpecifier, Scan,
    ScanRequest, ScanResponse, TimeRange,
};
use stele_wire::{meta, region};

fn meta_region() -> RegionSpecifier {
    RegionSpecifier::named(region::META_REGION.into())
}

fn scan(scan: Scan, rows: u32) -> ScanRequest {
    ScanRequest {
        region: Some(meta_region()),
        scan: Some(scan),
        number_of_rows: Some(rows),
        client_handles_partials: Some(true),
        ..ScanRequest::default()
    }
}

/// The first rows of the regions in a response, and the names of other rows.
fn shown(response: &Response) -> String {
    let mut rows: Vec<Bytes> = CellReader::new(response.cells.clone())
        .map(|cell| cell.unwrap().row)
        .collect();
    rows.dedup();
    let show = |row: &Bytes| match row.split(|b| *b == b',').nth(1) {
        Some(start) => format!("[{}", start.escape_ascii()),
        None => row.escape_ascii().to_string(),
    };
    rows.iter().map(show).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn ranges_are_read_in_both_directions_and_any_number_of_rows() {
    let model = Model::new(&["", "b", "m", "x"]);
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    let lookup = meta::lookup_start(b"t", b"n");
    let (start, end) = (meta::table_start(b"t"), meta::table_end(b"t"));
    let all = Bytes::new();
    for (from, to, reversed, rows, expected) in [
        (&all, &all, false, 100, "t [ [b [m [x"),
        (&all, &all, false, 3, "t [ [b"),
        (&all, &all, true, 100, "[x [m [b [ t"),
        (&all, &all, true, 2, "[x [m"),
        (&lookup, &start, true, 1, "[m"),
        (&lookup, &start, true, 100, "[m [b ["),
        (&lookup, &start, true, 3, "[m [b ["),
        (&lookup, &end, false, 100, "[x"),
        (&lookup, &end, false, 1, "[x"),
        (&start, &end, false, 2, "[ [b"),
        (&end, &start, true, 100, "[x [m [b ["),
        (&end, &all, false, 100, ""),
        (&Bytes::from("s"), &Bytes::from("t"), false, 100, ""),
        (&Bytes::from("t"), &Bytes::from("t,"), false, 100, "t"),
        (&Bytes::from("u"), &Bytes::from("s"), true, 1, "[x"),
    ] {
        let range = Scan {
            start_row: Some(from.clone()),
            stop_row: Some(to.clone()),
            reversed: Some(reversed),
            ..Scan::default()
        };
        let response = client.call("Scan", &scan(range, rows)).await;
        let case = format!("{}..{} {reversed} {rows}", from.escape_ascii(), to.escape_ascii());
        assert_eq!(shown(&response), expected, "{case}");
    }
}

#[tokio::test]
async fn a_lookup_does_not_list_the_tablets() {
    let model = Model::new(&["", "b", "m", "x"]);
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    let lookup = Scan {
        start_row: Some(meta::lookup_start(b"t", b"n")),
        stop_row: Some(meta::table_start(b"t")),
        include_stop_row: Some(true),
        reversed: Some(true),
        ..Scan::default()
    };
    let mut request = scan(lookup, 1);
    request.close_scanner = Some(true);
    let found = client.call("Scan", &request).await;
    assert_eq!(shown(&found), "[m");
    let get = Get {
        row: model.region("n").value,
        ..Get::default()
    };
    let request = GetRequest {
        region: meta_region(),
        get: get.clone(),
    };
    let found = client.call("Get", &request).await;
    assert_eq!(shown(&found), "[m");
    let action = |get: Get| Action {
        get: Some(get),
        ..Action::default()
    };
    let batch = MultiRequest {
        region_action: vec![RegionAction {
            region: meta_region(),
            action: vec![
                action(get.clone()),
                action(Get {
                    row: "none".into(),
                    ..get
                }),
            ],
            ..RegionAction::default()
        }],
        ..MultiRequest::default()
    };
    let found = client.call("Multi", &batch).await;
    assert_eq!(shown(&found), "[m");
    let results: MultiResponse = message(&found);
    assert_eq!(results.region_action_result[0].result_or_exception.len(), 2);
    assert_eq!(model.listings.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn selections_of_other_tables_apply() {
    let model = Model::new(&["", "b", "m", "x"]);
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    let prefix = messages::PrefixFilter {
        prefix: Some("t,m".into()),
    };
    let filtered = Scan {
        filter: Some(Filter {
            name: "org.apache.hadoop.hbase.filter.PrefixFilter".into(),
            serialized_filter: Some(prefix.encode_to_vec().into()),
        }),
        ..Scan::default()
    };
    let found = client.call("Scan", &scan(filtered, 100)).await;
    assert_eq!(shown(&found), "[m");
    // The timestamps are the start code of the server, 9.
    let times = |from, to| Scan {
        time_range: Some(TimeRange {
            from: Some(from),
            to: Some(to),
        }),
        ..Scan::default()
    };
    let found = client.call("Scan", &scan(times(0, 9), 100)).await;
    assert_eq!(shown(&found), "");
    let found = client.call("Scan", &scan(times(9, 10), 100)).await;
    assert_eq!(shown(&found), "t [ [b [m [x");
    let column = Scan {
        column: vec![Column {
            family: "table".into(),
            qualifier: vec![],
        }],
        ..Scan::default()
    };
    let found = client.call("Scan", &scan(column, 1)).await;
    assert_eq!(shown(&found), "t");
    let batches = Scan {
        batch_size: Some(4),
        ..Scan::default()
    };
    let found: ScanResponse = message(&client.call("Scan", &scan(batches, 5)).await);
    assert_eq!(found.cells_per_result, [1, 4, 2, 4, 2]);
    assert_eq!(found.partial_flag_per_result, [false, true, false, true, false]);
}

#[tokio::test]
async fn large_tables_are_read_in_bounded_responses_with_pauses() {
    let starts: Vec<String> = (0..5_000).map(|n| format!("{n:06}")).collect();
    let starts: Vec<&str> = [""].into_iter().chain(starts.iter().map(String::as_str)).collect();
    let model = Model::new(&starts);
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    let bounded = Scan {
        max_result_size: Some(500_000),
        ..Scan::default()
    };
    let turns = count_turns();
    let mut response = client.call("Scan", &scan(bounded, 100_000)).await;
    assert!(turns.get() > 5, "{} turns", turns.get());
    let mut rows = 0;
    loop {
        assert!(response.cells.len() < 502_000);
        let found: ScanResponse = message(&response);
        rows += found
            .partial_flag_per_result
            .iter()
            .filter(|partial| !**partial)
            .count();
        if !found.more_results_in_region() {
            break;
        }
        let next = ScanRequest {
            scanner_id: found.scanner_id,
            number_of_rows: Some(100_000),
            ..ScanRequest::default()
        };
        response = client.call("Scan", &next).await;
    }
    assert_eq!(rows, 5_002);
    assert_eq!(front_end.shared.responses.used(), 0);
}
