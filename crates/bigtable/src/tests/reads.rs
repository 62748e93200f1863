use super::*;
use crate::testing::{MergedRow, RowMerger};
use crate::wire;
use v2::row_filter::Filter;

fn read() -> v2::ReadRowsRequest {
    v2::ReadRowsRequest {
        table_name: TABLE.into(),
        ..Default::default()
    }
}

fn filtered(filter: Filter) -> v2::ReadRowsRequest {
    v2::ReadRowsRequest {
        filter: Some(v2::RowFilter { filter: Some(filter) }),
        ..read()
    }
}

/// The contents of a stream other than rows.
struct Facts {
    scanned: Vec<Bytes>,
    stats: Option<v2::RequestStats>,
}

/// Runs a read through the client's state machine.
async fn merged(harness: &Harness, request: Request<v2::ReadRowsRequest>) -> Result<(Vec<MergedRow>, Facts), Status> {
    let reversed = request.get_ref().reversed;
    let mut stream = harness.data().read_rows(request).await?.into_inner();
    let mut merger = RowMerger::new(reversed);
    while let Some(response) = stream.message().await? {
        let response = wire::ReadRowsResponse::decode(response.encode_to_vec().as_slice()).unwrap();
        merger.feed(&response).unwrap();
    }
    let facts = Facts {
        scanned: merger.scanned.clone(),
        stats: merger.stats,
    };
    Ok((merger.finish().unwrap(), facts))
}

async fn keys(harness: &Harness, request: v2::ReadRowsRequest) -> Vec<Bytes> {
    let (rows, _) = merged(harness, featured(request)).await.unwrap();
    rows.into_iter().map(|row| row.key).collect()
}

#[tokio::test]
async fn rows_come_back_in_order_and_whole() {
    let harness = Harness::with_table().await;
    for row in ["b", "a", "c"] {
        harness.put(row, "g", "q", row).await;
        harness.put(row, "f", "", row).await;
    }
    let (rows, _) = merged(&harness, Request::new(read())).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| &row.key[..]).collect::<Vec<_>>(),
        [b"a", b"b", b"c"]
    );
    let cells: Vec<_> = rows[0]
        .cells
        .iter()
        .map(|c| (c.family.as_str(), &c.qualifier[..], c.timestamp))
        .collect();
    assert_eq!(cells, [("f", &b""[..], 1_000), ("g", b"q", 1_000)]);

    assert_eq!(
        keys(
            &harness,
            v2::ReadRowsRequest {
                rows_limit: 2,
                ..read()
            }
        )
        .await,
        ["a", "b"]
    );
    assert_eq!(
        keys(
            &harness,
            v2::ReadRowsRequest {
                reversed: true,
                ..read()
            }
        )
        .await,
        ["c", "b", "a"]
    );
    let twice = v2::RowSet {
        row_keys: vec!["c".into(), "a".into(), "c".into(), "".into()],
        row_ranges: vec![v2::RowRange {
            start_key: Some(v2::row_range::StartKey::StartKeyOpen("b".into())),
            end_key: Some(v2::row_range::EndKey::EndKeyOpen("".into())),
        }],
    };
    assert_eq!(
        keys(
            &harness,
            v2::ReadRowsRequest {
                rows: Some(twice),
                ..read()
            }
        )
        .await,
        ["a", "c"]
    );
}

#[tokio::test]
async fn large_cells_pass_the_default_limit_of_clients() {
    let harness = Harness::with_table().await;
    let value = Bytes::from(vec![9; 10 << 20]);
    harness.put("big", "f", "q", value.clone()).await;
    let (rows, _) = merged(&harness, Request::new(read())).await.unwrap();
    assert_eq!(rows[0].cells[0].value, value);
}

#[tokio::test]
async fn the_go_library_gets_whole_rows() {
    let harness = Harness::with_table().await;
    harness.put("big", "f", "q", vec![9; 5 << 20]).await;
    let mut request = Request::new(read());
    let library = "gl-go/1.26.0 gccl/1.58.0".parse().unwrap();
    request.metadata_mut().insert("x-goog-api-client", library);
    let mut client = harness.data().max_decoding_message_size(256 << 20);
    let mut stream = client.read_rows(request).await.unwrap().into_inner();
    let message = stream.message().await.unwrap().unwrap();
    assert_eq!((message.chunks.len(), message.chunks[0].value.len()), (1, 5 << 20));
}

#[tokio::test]
async fn bad_reads_have_their_codes() {
    let harness = Harness::with_table().await;
    let inverted = v2::RowSet {
        row_keys: vec![],
        row_ranges: vec![v2::RowRange {
            start_key: Some(v2::row_range::StartKey::StartKeyClosed("b".into())),
            end_key: Some(v2::row_range::EndKey::EndKeyClosed("a".into())),
        }],
    };
    let cases = [
        (
            v2::ReadRowsRequest {
                table_name: format!("{INSTANCE}/tables/none"),
                ..read()
            },
            Code::NotFound,
        ),
        (
            v2::ReadRowsRequest {
                table_name: "t".into(),
                ..read()
            },
            Code::InvalidArgument,
        ),
        (
            v2::ReadRowsRequest {
                table_name: String::new(),
                ..read()
            },
            Code::InvalidArgument,
        ),
        (
            v2::ReadRowsRequest {
                rows_limit: -1,
                ..read()
            },
            Code::InvalidArgument,
        ),
        (
            v2::ReadRowsRequest {
                rows: Some(inverted),
                ..read()
            },
            Code::InvalidArgument,
        ),
        (
            v2::ReadRowsRequest {
                reversed: true,
                ..read()
            },
            Code::Unimplemented,
        ),
        (
            v2::ReadRowsRequest {
                authorized_view_name: "v".into(),
                table_name: String::new(),
                ..read()
            },
            Code::InvalidArgument,
        ),
        (
            v2::ReadRowsRequest {
                materialized_view_name: "v".into(),
                table_name: String::new(),
                ..read()
            },
            Code::Unimplemented,
        ),
        (filtered(Filter::PassAllFilter(false)), Code::InvalidArgument),
        (filtered(Filter::Chain(Default::default())), Code::InvalidArgument),
    ];
    for (request, expected) in cases {
        assert_eq!(
            code(merged(&harness, Request::new(request.clone())).await),
            expected,
            "{request:?}"
        );
    }
    let missing = v2::ReadRowsRequest {
        table_name: format!("{INSTANCE}/tables/x"),
        ..read()
    };
    let error = harness.data().read_rows(missing).await.unwrap_err();
    assert_eq!(error.message(), format!("table \"{INSTANCE}/tables/x\" not found"));
}

#[tokio::test]
async fn progress_and_statistics_only_when_asked_for() {
    let harness = Harness::with_table().await;
    for row in ["a", "b"] {
        harness.put(row, "f", "q", row).await;
    }
    let block = || v2::ReadRowsRequest {
        request_stats_view: 2,
        ..filtered(Filter::BlockAllFilter(true))
    };
    let (rows, facts) = merged(&harness, featured(block())).await.unwrap();
    assert!(rows.is_empty());
    assert_eq!(facts.scanned, ["a", "b"]);
    let Some(v2::request_stats::StatsView::FullReadStatsView(view)) = facts.stats.unwrap().stats_view else {
        unreachable!("full statistics were asked for")
    };
    let stats = view.read_iteration_stats.unwrap();
    assert_eq!((stats.rows_seen_count, stats.cells_seen_count), (2, 2));
    assert_eq!((stats.rows_returned_count, stats.cells_returned_count), (0, 0));

    let (_, facts) = merged(&harness, Request::new(block())).await.unwrap();
    assert!(facts.scanned.is_empty());
    let (rows, facts) = merged(&harness, featured(read())).await.unwrap();
    assert_eq!((rows.len(), facts.scanned.len(), facts.stats), (2, 0, None));
    let empty = v2::ReadRowsRequest {
        rows_limit: 0,
        request_stats_view: 2,
        ..read()
    };
    harness
        .tables()
        .drop_row_range(admin::DropRowRangeRequest {
            name: TABLE.into(),
            target: Some(admin::drop_row_range_request::Target::DeleteAllDataFromTable(true)),
        })
        .await
        .unwrap();
    assert!(merged(&harness, featured(empty)).await.unwrap().1.stats.is_some());
}

#[tokio::test]
async fn samples_end_with_the_end() {
    let harness = Harness::with_table().await;
    let request = v2::SampleRowKeysRequest {
        table_name: TABLE.into(),
        ..Default::default()
    };
    let mut stream = harness
        .data()
        .sample_row_keys(request.clone())
        .await
        .unwrap()
        .into_inner();
    let mut keys = Vec::new();
    while let Some(sample) = stream.message().await.unwrap() {
        keys.push((sample.row_key, sample.offset_bytes));
    }
    assert_eq!(keys, [("m".into(), 0), (Bytes::new(), 100)]);
    let missing = v2::SampleRowKeysRequest {
        table_name: format!("{INSTANCE}/tables/x"),
        ..request
    };
    assert_eq!(code(harness.data().sample_row_keys(missing).await), Code::NotFound);
}
