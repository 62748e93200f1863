//! Authorized views.

use super::*;
use crate::tests::views::{VIEW, whole_view};

/// Makes a view of all rows and of family `f`.
pub(super) fn create(id: &str) -> admin::CreateAuthorizedViewRequest {
    admin::CreateAuthorizedViewRequest {
        parent: TABLE.into(),
        authorized_view_id: id.into(),
        authorized_view: Some(whole_view()),
    }
}

pub(super) fn calls() -> Calls {
    use Needs::{Administers, Reads};
    let view = admin::AuthorizedView {
        name: VIEW.into(),
        deletion_protection: true,
        ..whole_view()
    };
    vec![
        ("CreateAuthorizedView", Administers, create("new").encode_to_vec()),
        (
            "ListAuthorizedViews",
            Reads,
            admin::ListAuthorizedViewsRequest {
                parent: TABLE.into(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "GetAuthorizedView",
            Reads,
            admin::GetAuthorizedViewRequest {
                name: VIEW.into(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "UpdateAuthorizedView",
            Administers,
            admin::UpdateAuthorizedViewRequest {
                authorized_view: Some(view),
                update_mask: mask(&["deletion_protection"]),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "DeleteAuthorizedView",
            Administers,
            admin::DeleteAuthorizedViewRequest {
                name: VIEW.into(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
    ]
}

/// Rights on a view are none on its table, on other views, or on other rows.
#[tokio::test]
async fn who_may_use_a_view_may_not_use_its_table() {
    let secured = secured().await;
    let view = |view: &str| Resource::View {
        table: TableName::new("i", "t"),
        view: view.to_owned(),
    };
    let call = |view: &str, table: &str| {
        let read = v2::ReadRowsRequest {
            table_name: table.into(),
            authorized_view_name: view.into(),
            ..Default::default()
        };
        let write = v2::MutateRowRequest {
            table_name: table.into(),
            authorized_view_name: view.into(),
            row_key: "r".into(),
            mutations: vec![set("f", "q", 1_000, "v")],
            ..Default::default()
        };
        [
            ("/google.bigtable.v2.Bigtable/ReadRows", read.encode_to_vec()),
            ("/google.bigtable.v2.Bigtable/MutateRow", write.encode_to_vec()),
        ]
    };
    let codes = async |view: &str, table: &str| {
        let [read, write] = call(view, table);
        [
            secured.call(Some("alice"), read.0, &read.1, None).await,
            secured.call(Some("alice"), write.0, &write.1, None).await,
        ]
    };
    let denied = [Code::PermissionDenied; 2];
    assert_eq!(codes(VIEW, "").await, denied);
    secured.give(rule(Rights::READ), view("other")).await;
    assert_eq!(codes(VIEW, "").await, denied, "that right is on another view");
    secured.give(rule(Rights::READ), view("v")).await;
    assert_eq!(codes(VIEW, "").await, [Code::Ok, Code::PermissionDenied]);
    assert_eq!(codes("", TABLE).await, denied, "a right on a view is none on its table");
    secured.give(rule(Rights::READ.and(Rights::WRITE)), view("v")).await;
    assert_eq!(codes(VIEW, "").await, [Code::Ok; 2]);
    assert_eq!(codes("", TABLE).await, denied);
    secured.give(rule(Rights::READ), table()).await;
    let other = VIEW.replace("/v", "/none");
    assert_eq!(codes(&other, "").await, [Code::NotFound, Code::NotFound]);
}
