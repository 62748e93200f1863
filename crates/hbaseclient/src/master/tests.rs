//! Procedures of a scripted master.

use super::*;
use crate::settings::Settings;
use crate::testing::{self, Answer};
use bytes::Bytes;
use stele_wire::frame::Request;
use stele_wire::messages::{NamespaceDescriptor, TableState};

/// A cluster whose master knows no procedure, and one whose effect is seen when it is looked for once more.
async fn forgetful() -> Cluster {
    let mut looks = 0;
    let script = move |method: &str, _: &Request, answer: &mut Answer| {
        let none = Bytes::new();
        if matches!(method, "GetTableState" | "GetNamespaceDescriptor") {
            looks += 1;
        }
        match method {
            "CreateTable" => answer.give(&ProcedureResponse { proc_id: Some(7) }, &none),
            "getProcedureResult" => answer.give(
                &GetProcedureResultResponse {
                    state: ProcedureState::NotFound as i32,
                    ..GetProcedureResultResponse::default()
                },
                &none,
            ),
            "GetTableState" if looks == 1 => answer.throw(TABLE_NOT_FOUND),
            "GetTableState" => answer.give(
                &GetTableStateResponse {
                    table_state: TableState {
                        state: TableStateKind::Enabled as i32,
                    },
                },
                &none,
            ),
            "GetNamespaceDescriptor" if looks == 1 => answer.throw(NAMESPACE_NOT_FOUND),
            "GetNamespaceDescriptor" => answer.give(
                &NamespaceMessage {
                    namespace_descriptor: NamespaceDescriptor {
                        name: "n".into(),
                        configuration: Vec::new(),
                    },
                    nonce_group: None,
                    nonce: None,
                },
                &none,
            ),
            _ => unreachable!("{method}"),
        }
    };
    Cluster::new(vec![testing::start(script).await], Settings::default())
}

#[tokio::test]
async fn the_effect_of_a_procedure_counts_where_the_master_does_not_know_it() {
    let request = OneTable::default();
    let table = TableName::default();
    for effect in [Effect::Enabled(table.clone()), Effect::Namespace("n".to_owned())] {
        let cluster = forgetful().await;
        let done = procedure(&cluster, "CreateTable", &request, Some(effect.clone())).await;
        assert_eq!(done, Ok(()), "{effect:?}");
    }
    let cluster = forgetful().await;
    let dropped = Some(Effect::Dropped(table.clone()));
    assert_eq!(procedure(&cluster, "CreateTable", &request, dropped).await, Ok(()));
    assert!(!Effect::Disabled(table).is_seen(&cluster).await.unwrap());
    let unknown = procedure(&cluster, "CreateTable", &request, None).await;
    assert!(unknown.unwrap_err().to_string().contains("not known"));
}
