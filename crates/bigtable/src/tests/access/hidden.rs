//! Rows and columns that a caller must not learn of.

use super::*;
use crate::testing::RowMerger;
use crate::tests::views::VIEW;
use crate::wire;

/// The table, or its view of family `f`.
#[derive(Clone, Copy)]
enum Through {
    Table,
    View,
}

impl Through {
    fn read(self) -> v2::ReadRowsRequest {
        let (table_name, authorized_view_name) = self.names();
        v2::ReadRowsRequest {
            table_name,
            authorized_view_name,
            request_stats_view: 2,
            ..Default::default()
        }
    }

    fn names(self) -> (String, String) {
        match self {
            Through::Table => (TABLE.to_owned(), String::new()),
            Through::View => (String::new(), VIEW.to_owned()),
        }
    }
}

/// Rows `a` and `n` with a cell in `f`, and the first with one in `g`; rows `b` and `o` with cells in `g` alone.
async fn filled() -> Secured {
    let secured = secured().await;
    let mut root = BigtableClient::new(secured.service.for_connection(Some("root".into())));
    for (row, family) in [("a", "f"), ("a", "g"), ("b", "g"), ("n", "f"), ("o", "g")] {
        let request = v2::MutateRowRequest {
            table_name: TABLE.into(),
            row_key: row.into(),
            mutations: vec![set(family, "q", 1_000, "v")],
            ..Default::default()
        };
        root.mutate_row(request).await.unwrap();
    }
    secured
}

impl Secured {
    fn alice(&self) -> BigtableClient<BigtableService> {
        BigtableClient::new(self.service.for_connection(Some("alice".into())))
    }

    /// Keys that a read by alice tells as its progress, and its counts of rows and cells: seen, then returned.
    async fn told(&self, request: v2::ReadRowsRequest) -> (Vec<Bytes>, [i64; 4]) {
        let mut stream = self.alice().read_rows(featured(request)).await.unwrap().into_inner();
        let mut merger = RowMerger::new(false);
        while let Some(response) = stream.message().await.unwrap() {
            let response = wire::ReadRowsResponse::decode(response.encode_to_vec().as_slice()).unwrap();
            merger.feed(&response).unwrap();
        }
        let stats = merger.stats.unwrap().stats_view;
        let Some(v2::request_stats::StatsView::FullReadStatsView(view)) = stats else {
            unreachable!("full statistics were asked for")
        };
        let counts = view.read_iteration_stats.unwrap();
        let seen = [counts.rows_seen_count, counts.cells_seen_count];
        let returned = [counts.rows_returned_count, counts.cells_returned_count];
        (merger.scanned, [seen[0], seen[1], returned[0], returned[1]])
    }

    async fn samples(&self, through: Through) -> Vec<(Bytes, i64)> {
        let (table_name, authorized_view_name) = through.names();
        let request = v2::SampleRowKeysRequest {
            table_name,
            authorized_view_name,
            ..Default::default()
        };
        let mut stream = self.alice().sample_row_keys(request).await.unwrap().into_inner();
        let mut keys = Vec::new();
        while let Some(sample) = stream.message().await.unwrap() {
            keys.push((sample.row_key, sample.offset_bytes));
        }
        keys
    }

    /// The rows and cells of an explanation, and the cells seen.
    async fn explained(&self, through: Through) -> [u64; 3] {
        let request = own::ExplainReadRequest {
            read: through.read().encode_to_vec().into(),
        };
        let service = self.service.for_connection(Some("alice".into()));
        let mut client = tonic::client::Grpc::new(service);
        client.ready().await.unwrap();
        let path = PathAndQuery::from_static("/stele.admin.v1.Reads/ExplainRead");
        let codec = tonic_prost::ProstCodec::<own::ExplainReadRequest, own::ExplainReadResponse>::default();
        let answer = client.unary(Request::new(request), path, codec).await.unwrap();
        let tablets = answer.into_inner().tablets;
        let sum = |of: fn(&own::TabletWork) -> u64| tablets.iter().map(of).sum();
        [
            sum(|tablet| tablet.rows),
            sum(|tablet| tablet.cells_passed),
            sum(|tablet| tablet.cells_seen),
        ]
    }
}

fn nothing(through: Through) -> v2::ReadRowsRequest {
    v2::ReadRowsRequest {
        filter: Some(v2::RowFilter {
            filter: Some(v2::row_filter::Filter::BlockAllFilter(true)),
        }),
        ..through.read()
    }
}

#[tokio::test]
async fn counts_progress_and_samples_tell_of_no_hidden_rows() {
    let secured = filled().await;
    secured.give(rule(Rights::READ), table()).await;
    let all = secured.told(nothing(Through::Table)).await;
    let keys = ["a", "b", "n", "o"].map(Bytes::from).to_vec();
    assert_eq!(all, (keys, [4, 5, 0, 0]), "who sees all is told all");
    assert_eq!(
        secured.samples(Through::Table).await,
        [("m".into(), 0), (Bytes::new(), 100)]
    );
    assert_eq!(secured.explained(Through::Table).await, [4, 5, 5]);

    secured.rules.set_rules(&table(), Vec::new(), None).await.unwrap();
    let view = Resource::View {
        table: TableName::new("i", "t"),
        view: "v".to_owned(),
    };
    secured.give(rule(Rights::READ), view).await;
    check_hidden(&secured, Through::View).await;

    let families = AccessRule {
        families: vec!["f".to_owned()],
        ..rule(Rights::READ)
    };
    secured.give(families, table()).await;
    check_hidden(&secured, Through::Table).await;
}

async fn check_hidden(secured: &Secured, through: Through) {
    assert_eq!(secured.told(nothing(through)).await, (Vec::new(), [0; 4]));
    assert_eq!(secured.told(through.read()).await, (Vec::new(), [2; 4]));
    assert_eq!(secured.samples(through).await, [("m".into(), 0), (Bytes::new(), 0)]);
    assert_eq!(secured.explained(through).await, [2; 3]);
}
