//! Calls that last longer than the token of their connection counts.

use super::*;
use prost::Message as _;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stele_wire::messages::{AggregateRequest, CoprocessorServiceCall, CoprocessorServiceRequest};

/// A scan without heartbeats, in which no row has a cell.
fn scan(model: &Model) -> ScanRequest {
    ScanRequest {
        region: Some(model.region("r")),
        scan: Some(Scan {
            column: vec![Column {
                family: "table".into(),
                qualifier: Vec::new(),
            }],
            ..Scan::default()
        }),
        number_of_rows: Some(10),
        ..ScanRequest::default()
    }
}

fn count(model: &Model) -> CoprocessorServiceRequest {
    CoprocessorServiceRequest {
        region: model.region("r"),
        call: CoprocessorServiceCall {
            row: "r".into(),
            service_name: "AggregateService".to_owned(),
            method_name: "GetRowNum".to_owned(),
            request: AggregateRequest::default().encode_to_vec().into(),
        },
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_call_ends_when_its_token_counts_no_longer() {
    let model = Model::new(&[""]);
    for row in 0..1_000 {
        model.put(&format!("r{row:03}"), "q", "v");
    }
    model.batch_rows.store(1, Ordering::Relaxed);
    let (setting, access, alice) = with_token(model).await;
    let model = &setting.model;
    for method in ["Scan", "ExecService"] {
        access.set_tokens(Tokens::parse(&alice.line).unwrap());
        let mut client = connect(&setting, format!("Bearer {}", alice.token)).await;
        let before = model.schemas.load(Ordering::Relaxed);
        match method {
            "Scan" => client.send(method, &scan(model), &()).await,
            _ => client.send(method, &count(model), &()).await,
        };
        while model.schemas.load(Ordering::Relaxed) == before {
            tokio::task::yield_now().await;
        }
        access.set_tokens(Tokens::default());
        tokio::time::advance(Duration::from_secs(6)).await;
        let ended = client.response().await;
        // The client repeats the call, which is refused.
        assert_eq!(failure(&ended), exception::NOT_SERVING_REGION, "{method}");
        let refused = setting.outcome(&mut client, "Get", &get(model)).await;
        assert_eq!(refused, exception::ACCESS_DENIED, "{method}");
    }
}
