//! Memory and pauses of scans, over a table in memory.

use crate::test_service::{Client, Model, failure, message};
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stele_memory::{Part, Pool};
use stele_wire::cell::CellReader;
use stele_wire::exception;
use stele_wire::frame::Response;
use stele_wire::messages::{self, Filter, ScanRequest, ScanResponse};

mod on_demand;
mod responses;

/// A filter that passes all rows.
fn page_filter() -> Filter {
    let message = messages::PageFilter { page_size: 1_000_000 };
    Filter {
        name: "org.apache.hadoop.hbase.filter.PageFilter".into(),
        serialized_filter: Some(message.encode_to_vec().into()),
    }
}

fn open(model: &Model, scan: messages::Scan) -> ScanRequest {
    ScanRequest {
        region: Some(model.region("")),
        scan: Some(scan),
        number_of_rows: Some(10),
        client_handles_partials: Some(true),
        ..ScanRequest::default()
    }
}

fn next(opened: &Response) -> ScanRequest {
    let opened: ScanResponse = message(opened);
    ScanRequest {
        scanner_id: opened.scanner_id,
        number_of_rows: Some(10),
        client_handles_partials: Some(true),
        ..ScanRequest::default()
    }
}

fn values(response: &Response) -> usize {
    let cells = CellReader::new(response.cells.clone());
    cells.map(|cell| cell.unwrap().value.len()).sum()
}

fn rows_of_ten_kilobytes(count: usize) -> Arc<Model> {
    let model = Model::new(&[""]);
    for row in 0..count {
        model.put(&format!("r{row:05}"), "q", vec![7; 10_000]);
    }
    model.batch_rows.store(90, Ordering::Relaxed);
    model
}

#[tokio::test(start_paused = true)]
async fn idle_scanners_keep_a_bounded_part_of_the_responses() {
    let model = rows_of_ten_kilobytes(200);
    let pool = Pool::default().limited(Part::Responses, 32 << 20);
    let front_end = model.front_end(&pool);
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    let filtered = messages::Scan {
        filter: Some(page_filter()),
        ..messages::Scan::default()
    };
    let mut opened = Vec::new();
    for _ in 0..100 {
        opened.push(client.call("Scan", &open(&model, filtered.clone())).await);
        assert!(front_end.shared.responses.used() <= 16 << 20);
    }
    // The last one goes on, and the first one was closed.
    let last = client.call("Scan", &next(&opened[99])).await;
    assert_eq!(values(&last), 100_000);
    let first = client.call("Scan", &next(&opened[0])).await;
    assert_eq!(failure(&first), exception::UNKNOWN_SCANNER);
    // Others get the memory if they need all of it.
    let all = 32 << 20;
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    front_end.shared.scanners.reclaim(all);
    assert!(
        front_end.shared.responses.used() < 4 << 20,
        "{}",
        front_end.shared.responses.used()
    );
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_large_row_stays_reserved() {
    let model = Model::new(&[""]);
    for cell in 0..300 {
        model.put("r", &format!("q{cell:05}"), vec![7; 100_000]);
    }
    let pool = Pool::default().limited(Part::Responses, 64 << 20);
    let front_end = model.front_end(&pool);
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    let opened = client.call("Scan", &open(&model, messages::Scan::default())).await;
    let mut seen = values(&opened);
    assert!((2 << 20..5 << 20).contains(&seen), "{seen}");
    while seen < 30_000_000 {
        assert!(
            front_end.shared.responses.used() >= 30_000_000 - seen,
            "{} reserved after {seen}",
            front_end.shared.responses.used()
        );
        let more = client.call("Scan", &next(&opened)).await;
        seen += values(&more);
    }
    client.call("Scan", &next(&opened)).await;
    assert_eq!(seen, 30_000_000);
}

/// A filter that judges rows as wholes, and passes all of them.
fn whole_row_filter() -> Filter {
    let message = messages::RandomRowFilter { chance: 1.0 };
    Filter {
        name: "org.apache.hadoop.hbase.filter.RandomRowFilter".into(),
        serialized_filter: Some(message.encode_to_vec().into()),
    }
}

#[tokio::test]
async fn a_filter_over_many_cells_lets_other_calls_run() {
    let model = Model::new(&[""]);
    for row in 0..20_000 {
        model.put(&format!("r{row:05}"), "q", "v");
    }
    model.batch_rows.store(20_000, Ordering::Relaxed);
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    let filters = vec![page_filter(); 10];
    let list = messages::FilterList {
        operator: messages::ListOperator::MustPassAll as i32,
        filters,
    };
    let scan = messages::Scan {
        filter: Some(Filter {
            name: "org.apache.hadoop.hbase.filter.FilterList".into(),
            serialized_filter: Some(list.encode_to_vec().into()),
        }),
        ..messages::Scan::default()
    };
    let turns = crate::test_service::count_turns();
    client.call("Scan", &open(&model, scan)).await;
    let turns = turns.get();
    assert!(
        turns >= 20,
        "20,000 cells and 11 filters are 22 pauses at least; {turns} turns"
    );
}

#[tokio::test]
async fn results_of_single_cells_of_a_wide_row_cost_linear_time() {
    let model = Model::new(&[""]);
    for cell in 0..5_000 {
        model.put("r", &format!("q{cell:05}"), Bytes::new());
    }
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    let scan = messages::Scan {
        batch_size: Some(1),
        ..messages::Scan::default()
    };
    let mut request = open(&model, scan);
    request.number_of_rows = Some(10_000);
    let response = client.call("Scan", &request).await;
    let found: ScanResponse = message(&response);
    assert_eq!(found.cells_per_result.len(), 5_000);
}

#[tokio::test]
async fn rows_that_a_filter_judges_as_wholes_are_not_cut() {
    let model = Model::new(&[""]);
    for cell in 0..10 {
        model.put("r", &format!("q{cell}"), "v");
    }
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    for (filter, cells) in [(None, 1), (Some(whole_row_filter()), 10)] {
        let scan = messages::Scan {
            max_result_size: Some(1),
            filter,
            ..messages::Scan::default()
        };
        let found: ScanResponse = message(&client.call("Scan", &open(&model, scan)).await);
        assert_eq!(found.cells_per_result, [cells]);
        assert_eq!(found.partial_flag_per_result, [cells < 10]);
    }
}

#[tokio::test]
async fn scanned_rows_count_once() {
    let model = Model::new(&[""]);
    for row in 0..200 {
        model.put(&format!("r{row:03}"), "q", "v");
    }
    model.batch_rows.store(90, Ordering::Relaxed);
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    let mut request = open(&model, messages::Scan::default());
    let (mut counts, mut rows) = ([0, 0], 0);
    loop {
        request.track_scan_metrics = Some(true);
        let response = client.call("Scan", &request).await;
        let found: ScanResponse = message(&response);
        rows += found.cells_per_result.len();
        let metrics = found.scan_metrics.clone().expect("they were asked for").metrics;
        for (count, metric) in counts.iter_mut().zip(metrics) {
            *count += metric.value.expect("it has a value");
        }
        if found.more_results_in_region != Some(true) {
            break;
        }
        request = next(&response);
    }
    assert_eq!((rows, counts), (200, [200, 0]), "scanned and filtered");
}

/// A client's number is signed. None and fewer are not all versions.
#[tokio::test]
async fn reads_of_no_versions_are_refused() {
    let model = Model::new(&[""]);
    model.put("r", "q", "v");
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    let cases = [
        (None, true),
        (Some(1), true),
        (Some(i32::MAX), true),
        (Some(0), false),
        (Some(-1), false),
    ];
    for (versions, is_served) in cases {
        let max_versions = versions.map(|versions: i32| versions.cast_unsigned());
        let get = messages::GetRequest {
            region: model.region("r"),
            get: messages::Get {
                row: "r".into(),
                max_versions,
                ..messages::Get::default()
            },
        };
        let scan = messages::Scan {
            max_versions,
            ..messages::Scan::default()
        };
        let answers = [
            client.call("Get", &get).await,
            client.call("Scan", &open(&model, scan)).await,
        ];
        for answer in answers {
            match is_served {
                true => assert!(answer.header.exception.is_none(), "{versions:?}: {}", failure(&answer)),
                false => {
                    let refused = answer.header.exception.and_then(|exception| exception.stack_trace);
                    let words = "DoNotRetryIOException: versions must be positive\n";
                    assert!(refused.is_some_and(|text| text.ends_with(words)), "{versions:?}");
                }
            }
        }
    }
}

/// A filter of this class.
fn filter(class: &str, message: &impl Message) -> Filter {
    Filter {
        name: format!("org.apache.hadoop.hbase.filter.{class}").into(),
        serialized_filter: Some(message.encode_to_vec().into()),
    }
}

fn prefix(prefix: &'static str) -> Filter {
    let prefix = Some(Bytes::from_static(prefix.as_bytes()));
    filter("PrefixFilter", &messages::PrefixFilter { prefix })
}

fn stop(stop: &'static str) -> Filter {
    let stop_row_key = Some(Bytes::from_static(stop.as_bytes()));
    filter("InclusiveStopFilter", &messages::InclusiveStopFilter { stop_row_key })
}

fn ranges(ranges: &[(&'static str, &'static str)]) -> Filter {
    let range = |(start, stop): &(&'static str, &'static str)| messages::RowRange {
        start_row: Some(Bytes::from_static(start.as_bytes())),
        start_row_inclusive: Some(true),
        stop_row: Some(Bytes::from_static(stop.as_bytes())),
        stop_row_inclusive: Some(false),
    };
    let row_range_list = ranges.iter().map(range).collect();
    filter("MultiRowRangeFilter", &messages::MultiRowRangeFilter { row_range_list })
}

fn list(operator: messages::ListOperator, filters: Vec<Filter>) -> Filter {
    let operator = operator as i32;
    filter("FilterList", &messages::FilterList { operator, filters })
}

/// A filter without rows in later regions ends the scan where a response has no rows. Regions begin at the empty row, `b` and `c`, and
/// have the rows `a1`, `b1` and `c1`.
#[tokio::test]
async fn a_filter_of_rows_ends_the_scan_behind_its_last_region() {
    use messages::ListOperator::{MustPassAll, MustPassOne};
    let model = Model::new(&["", "b", "c"]);
    ["a1", "b1", "c1"].iter().for_each(|row| model.put(row, "q", "v"));
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    let both = |operator| list(operator, vec![prefix("a"), prefix("c")]);
    let or_any = list(MustPassOne, vec![prefix("a"), page_filter()]);
    // Of the three regions, in order: the number of rows, and whether there may be more results.
    for (filter, forward, reversed) in [
        (
            prefix("a"),
            [(1, true), (0, false), (0, true)],
            [(1, true), (0, true), (0, true)],
        ),
        (
            prefix("b"),
            [(0, true), (1, true), (0, true)],
            [(0, true), (1, true), (0, true)],
        ),
        (
            prefix("b2"),
            [(0, true), (0, false), (0, true)],
            [(0, true), (0, false), (0, true)],
        ),
        (
            prefix("c"),
            [(0, true), (0, true), (1, true)],
            [(0, true), (0, false), (1, true)],
        ),
        (
            stop("a2"),
            [(1, true), (0, false), (0, true)],
            [(0, true), (1, true), (1, true)],
        ),
        (
            stop("b2"),
            [(1, true), (1, true), (0, true)],
            [(0, true), (0, false), (1, true)],
        ),
        (
            ranges(&[("a2", "a3"), ("b2", "b3")]),
            [(0, true), (0, false), (0, true)],
            [(0, true), (0, true), (0, true)],
        ),
        (
            both(MustPassOne),
            [(1, true), (0, true), (1, true)],
            [(1, true), (0, true), (1, true)],
        ),
        (
            both(MustPassAll),
            [(0, false), (0, false), (0, true)],
            [(0, true), (0, false), (0, false)],
        ),
        (
            or_any,
            [(1, true), (1, true), (1, true)],
            [(1, true), (1, true), (1, true)],
        ),
    ] {
        for (is_reversed, expected) in [(false, forward), (true, reversed)] {
            let mut found = Vec::new();
            for region in ["a", "b", "c"] {
                let mut request = open(
                    &model,
                    messages::Scan {
                        filter: Some(filter.clone()),
                        reversed: Some(is_reversed),
                        ..messages::Scan::default()
                    },
                );
                request.region = Some(model.region(region));
                let response: ScanResponse = message(&client.call("Scan", &request).await);
                assert_eq!(response.more_results_in_region, Some(false));
                found.push((response.cells_per_result.len(), response.more_results()));
            }
            assert_eq!(found, expected, "{:?}, reversed: {is_reversed}", filter.name);
        }
    }
}

/// HBase has not come to the row behind a response that is full, so the filter ends the scan with the next one, and not only the region.
#[tokio::test]
async fn a_filter_that_a_later_row_ends_does_not_end_a_full_response() {
    let model = Model::new(&[""]);
    for row in ["a", "b", "c"] {
        model.put(row, "q", "v");
    }
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    let filter = |class: &str, message: Bytes| Filter {
        name: format!("org.apache.hadoop.hbase.filter.{class}").into(),
        serialized_filter: Some(message),
    };
    let prefix = messages::PrefixFilter {
        prefix: Some("a".into()),
    };
    let by_prefix = filter("PrefixFilter", prefix.encode_to_vec().into());
    let wrapping = messages::WrappingFilter { filter: by_prefix };
    let until_b = filter("WhileMatchFilter", wrapping.encode_to_vec().into());
    let one_row = filter(
        "PageFilter",
        messages::PageFilter { page_size: 1 }.encode_to_vec().into(),
    );
    for (filter, more_in_region) in [(until_b, true), (one_row, false)] {
        let scan = messages::Scan {
            filter: Some(filter),
            ..messages::Scan::default()
        };
        let request = ScanRequest {
            number_of_rows: Some(1),
            ..open(&model, scan)
        };
        let opened = client.call("Scan", &request).await;
        let first: ScanResponse = message(&opened);
        assert_eq!((values(&opened), first.more_results), (1, Some(true)));
        assert_eq!(first.more_results_in_region, Some(more_in_region));
        if more_in_region {
            let last = client.call("Scan", &next(&opened)).await;
            let end: ScanResponse = message(&last);
            assert_eq!((values(&last), end.more_results), (0, Some(false)), "the scan is over");
        }
    }
}
