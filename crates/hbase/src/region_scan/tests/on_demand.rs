//! Families that a filter does not need, by the default of each kind of read.

use super::{open, values};
use crate::test_service::{Client, Model, message};
use bytes::Bytes;
use prost::Message;
use stele_memory::Pool;
use stele_wire::messages::{
    self, AggregateRequest, AggregateResponse, CompareType, Condition, CoprocessorServiceCall,
    CoprocessorServiceRequest, CoprocessorServiceResponse, DeleteType, Filter, GetRequest, GetResponse, MutateRequest,
    MutateResponse, MutationProto, MutationType,
};

fn filter(class: &str, message: &impl Message) -> Filter {
    Filter {
        name: format!("org.apache.hadoop.hbase.filter.{class}").into(),
        serialized_filter: Some(message.encode_to_vec().into()),
    }
}

/// Needs family `table`, and leaves out no row that has no cell there.
fn skip_by_a_column() -> Filter {
    let comparator = messages::Comparator {
        name: messages::BINARY_COMPARATOR.into(),
        serialized_comparator: Some(Bytes::from_static(&[0x0A, 0])),
    };
    let single = messages::SingleColumnValueFilter {
        column_family: Some("table".into()),
        column_qualifier: Some("q".into()),
        compare_op: CompareType::Equal as i32,
        comparator,
        filter_if_missing: Some(true),
        latest_version_only: None,
    };
    let single = filter("SingleColumnValueFilter", &single);
    filter("SkipFilter", &messages::WrappingFilter { filter: single })
}

#[tokio::test]
async fn reads_of_clients_load_them_on_demand() {
    let model = Model::new(&[""]);
    model.put("r", "q", "v");
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    for (on_demand, expected) in [(None, 0), (Some(true), 0), (Some(false), 1)] {
        let scan = messages::Scan {
            filter: Some(skip_by_a_column()),
            load_column_families_on_demand: on_demand,
            ..messages::Scan::default()
        };
        let found = values(&client.call("Scan", &open(&model, scan)).await);
        assert_eq!(found, expected, "a scan, {on_demand:?}");
        let get = GetRequest {
            region: model.region("r"),
            get: messages::Get {
                row: "r".into(),
                filter: Some(skip_by_a_column()),
                load_column_families_on_demand: on_demand,
                existence_only: Some(true),
                ..messages::Get::default()
            },
        };
        let found: GetResponse = message(&client.call("Get", &get).await);
        let exists = found.result.and_then(|result| result.exists);
        assert_eq!(exists, Some(expected > 0), "a get, {on_demand:?}");
    }
}

/// HBase gives these reads no default, and then it loads all families.
#[tokio::test]
async fn conditions_and_aggregates_load_all() {
    let model = Model::new(&[""]);
    model.put("r", "q", "v");
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    let mutation = MutationProto {
        row: Some("r".into()),
        mutate_type: Some(MutationType::Delete as i32),
        column_value: vec![messages::ColumnValue {
            family: "info".into(),
            qualifier_value: vec![messages::QualifierValue {
                delete_type: Some(DeleteType::Family as i32),
                ..messages::QualifierValue::default()
            }],
        }],
        ..MutationProto::default()
    };
    let mutate = MutateRequest {
        region: model.region("r"),
        mutation,
        condition: Some(Condition {
            row: "r".into(),
            filter: Some(skip_by_a_column()),
            ..Condition::default()
        }),
        nonce_group: None,
    };
    let found: MutateResponse = message(&client.call("Mutate", &mutate).await);
    assert_eq!(found.processed, Some(true));
    let request = AggregateRequest {
        interpreter_class_name: "org.apache.hadoop.hbase.client.coprocessor.LongColumnInterpreter".to_owned(),
        scan: messages::Scan {
            filter: Some(skip_by_a_column()),
            ..messages::Scan::default()
        },
        ..AggregateRequest::default()
    };
    let count = CoprocessorServiceRequest {
        region: model.region("r"),
        call: CoprocessorServiceCall {
            row: "r".into(),
            service_name: "AggregateService".to_owned(),
            method_name: "GetRowNum".to_owned(),
            request: request.encode_to_vec().into(),
        },
    };
    let found: CoprocessorServiceResponse = message(&client.call("ExecService", &count).await);
    let value = found.value.value.unwrap_or_default();
    let answer = AggregateResponse::decode(value).expect("an answer of the service");
    assert_eq!(answer.first_part, [1i64.to_be_bytes().to_vec()]);
}
