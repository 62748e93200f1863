//! Authorized views.

use super::*;
use admin::authorized_view::{AuthorizedView as Of, FamilySubsets, ResponseView, SubsetView};
use v2::mutate_rows_request::Entry;

pub(super) const VIEW: &str = "projects/p/instances/i/tables/t/authorizedViews/v";

/// A view of all rows and of family `f`.
pub(super) fn whole_view() -> admin::AuthorizedView {
    of(&[""], "f", &[], &[""])
}

fn of(
    rows: &[&'static str],
    family: &str,
    qualifiers: &[&'static str],
    prefixes: &[&'static str],
) -> admin::AuthorizedView {
    let bytes = |names: &[&'static str]| names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect();
    let subset = FamilySubsets {
        qualifiers: bytes(qualifiers),
        qualifier_prefixes: bytes(prefixes),
    };
    admin::AuthorizedView {
        authorized_view: Some(Of::SubsetView(SubsetView {
            row_prefixes: bytes(rows),
            family_subsets: [(family.to_owned(), subset)].into(),
        })),
        ..Default::default()
    }
}

impl Harness {
    async fn view(&self, id: &str, view: admin::AuthorizedView) -> Result<(), Status> {
        let request = admin::CreateAuthorizedViewRequest {
            parent: TABLE.into(),
            authorized_view_id: id.into(),
            authorized_view: Some(view),
        };
        let operation = self.tables().create_authorized_view(request).await?.into_inner();
        assert!(operation.done, "{operation:?}");
        Ok(())
    }

    async fn shown(&self, view: ResponseView) -> Result<admin::AuthorizedView, Status> {
        let request = admin::GetAuthorizedViewRequest {
            name: VIEW.into(),
            view: view as i32,
        };
        Ok(self.tables().get_authorized_view(request).await?.into_inner())
    }

    async fn update(&self, view: admin::AuthorizedView, paths: &[&str]) -> Result<(), Status> {
        let request = admin::UpdateAuthorizedViewRequest {
            authorized_view: Some(view),
            update_mask: mask(paths),
            ..Default::default()
        };
        self.tables().update_authorized_view(request).await.map(drop)
    }

    async fn delete(&self, etag: &str) -> Result<(), Status> {
        let request = admin::DeleteAuthorizedViewRequest {
            name: VIEW.into(),
            etag: etag.into(),
        };
        self.tables().delete_authorized_view(request).await.map(drop)
    }

    async fn write_through(&self, row: &'static str, mutation: v2::Mutation) -> Result<(), Status> {
        let request = v2::MutateRowRequest {
            authorized_view_name: VIEW.into(),
            row_key: row.into(),
            mutations: vec![mutation],
            ..Default::default()
        };
        self.data().mutate_row(request).await.map(drop)
    }
}

#[tokio::test]
async fn views_are_made_shown_changed_and_deleted() {
    let harness = Harness::with_table().await;
    let protected = admin::AuthorizedView {
        deletion_protection: true,
        ..of(&["a"], "f", &["q"], &["p"])
    };
    harness.view("v", protected.clone()).await.unwrap();
    let again = harness.view("v", whole_view()).await.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);
    for (id, view, code) in [
        ("a/b", whole_view(), Code::InvalidArgument),
        ("w", Default::default(), Code::InvalidArgument),
    ] {
        assert_eq!(harness.view(id, view).await.unwrap_err().code(), code, "{id}");
    }
    let full = harness.shown(ResponseView::Unspecified).await.unwrap();
    assert_eq!((full.name.as_str(), full.deletion_protection), (VIEW, true));
    assert_eq!(full.authorized_view, protected.authorized_view);
    let basic = harness.shown(ResponseView::Basic).await.unwrap();
    assert!(basic.authorized_view.is_none() && basic.etag == full.etag && !basic.etag.is_empty());
    assert_eq!(harness.delete("").await.unwrap_err().code(), Code::FailedPrecondition);
    // Only the fields of the mask change.
    let unprotected = admin::AuthorizedView {
        name: VIEW.into(),
        ..Default::default()
    };
    harness.update(unprotected, &["deletion_protection"]).await.unwrap();
    let now = harness.shown(ResponseView::Full).await.unwrap();
    assert_eq!(now.authorized_view, protected.authorized_view);
    assert!(!now.deletion_protection && now.etag != full.etag);
    let rows = admin::AuthorizedView {
        name: VIEW.into(),
        etag: full.etag.clone(),
        ..of(&["b"], "g", &[], &[""])
    };
    let stale = harness.update(rows.clone(), &["subset_view.row_prefixes"]).await;
    assert_eq!(stale.unwrap_err().code(), Code::Aborted);
    let rows = admin::AuthorizedView {
        etag: now.etag.clone(),
        ..rows
    };
    harness.update(rows, &["subset_view.row_prefixes"]).await.unwrap();
    let now = harness.shown(ResponseView::Full).await.unwrap();
    assert_eq!(now.authorized_view, of(&["b"], "f", &["q"], &["p"]).authorized_view);
    assert_eq!(harness.delete(&full.etag).await.unwrap_err().code(), Code::Aborted);
    harness.delete(&now.etag).await.unwrap();
    assert_eq!(harness.delete("").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(
        harness.shown(ResponseView::Full).await.unwrap_err().code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn views_are_listed_by_pages() {
    let harness = Harness::with_table().await;
    for id in ["c", "a", "b"] {
        harness.view(id, whole_view()).await.unwrap();
    }
    let mut request = admin::ListAuthorizedViewsRequest {
        parent: TABLE.into(),
        page_size: 2,
        ..Default::default()
    };
    let mut names = Vec::new();
    loop {
        let page = harness.tables().list_authorized_views(request.clone()).await;
        let page = page.unwrap().into_inner();
        assert!(page.authorized_views.len() <= 2);
        names.extend(page.authorized_views.into_iter().map(|view| view.name));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "c"].map(|id| format!("{TABLE}/authorizedViews/{id}")));
}

#[tokio::test]
async fn writes_outside_of_a_view_are_refused_and_apply_nothing() {
    use Kind::{DeleteFromColumn, DeleteFromFamily, DeleteFromRow};
    let harness = Harness::with_table().await;
    harness.view("v", of(&["a"], "f", &["q"], &["p"])).await.unwrap();
    let delete = |kind: Kind| v2::Mutation { mutation: Some(kind) };
    let column = |qualifier: &'static str| {
        delete(DeleteFromColumn(v2::mutation::DeleteFromColumn {
            family_name: "f".into(),
            column_qualifier: qualifier.into(),
            ..Default::default()
        }))
    };
    let family = v2::mutation::DeleteFromFamily {
        family_name: "f".into(),
    };
    for (row, mutation, is_inside) in [
        ("a", set("f", "q", 1_000, "v"), true),
        ("ab", set("f", "p1", 1_000, "v"), true),
        ("a", column("p"), true),
        ("b", set("f", "q", 1_000, "v"), false),
        ("a", set("f", "q1", 1_000, "v"), false),
        ("a", set("g", "q", 1_000, "v"), false),
        ("a", column("other"), false),
        ("a", delete(DeleteFromFamily(family)), false),
        ("a", delete(DeleteFromRow(Default::default())), false),
    ] {
        let written = harness.write_through(row, mutation.clone()).await;
        let code = written.map_or_else(|status| status.code(), |()| Code::Ok);
        let expected = if is_inside { Code::Ok } else { Code::PermissionDenied };
        assert_eq!(code, expected, "{row} {mutation:?}");
    }
    let entry = |row: &'static str, qualifier: &'static str| Entry {
        row_key: row.into(),
        mutations: vec![set("f", qualifier, 2_000, "v"), set("f", "q", 2_000, "v")],
        ..Default::default()
    };
    let request = v2::MutateRowsRequest {
        authorized_view_name: VIEW.into(),
        entries: vec![entry("a", "p"), entry("c", "p"), entry("a9", "x")],
        ..Default::default()
    };
    let mut answers = harness.data().mutate_rows(request).await.unwrap().into_inner();
    let mut codes = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        codes.extend(answer.entries.iter().map(|entry| entry.status.as_ref().unwrap().code));
    }
    let denied = Code::PermissionDenied as i32;
    assert_eq!(codes, [0, denied, denied]);
    let check = v2::CheckAndMutateRowRequest {
        authorized_view_name: VIEW.into(),
        row_key: "a".into(),
        true_mutations: vec![set("f", "q", 1_000, "v")],
        false_mutations: vec![set("g", "q", 1_000, "v")],
        ..Default::default()
    };
    let checked = harness.data().check_and_mutate_row(check).await.unwrap_err();
    assert_eq!(checked.code(), Code::PermissionDenied);
    let rule = |family: &str| v2::ReadModifyWriteRule {
        family_name: family.into(),
        column_qualifier: "q".into(),
        rule: Some(v2::read_modify_write_rule::Rule::AppendValue("x".into())),
    };
    let modify = |row: &'static str, family: &str| v2::ReadModifyWriteRowRequest {
        authorized_view_name: VIEW.into(),
        row_key: row.into(),
        rules: vec![rule("f"), rule(family)],
        ..Default::default()
    };
    harness.data().read_modify_write_row(modify("a", "f")).await.unwrap();
    for (row, family) in [("a", "g"), ("b", "f")] {
        let modified = harness.data().read_modify_write_row(modify(row, family)).await;
        assert_eq!(modified.unwrap_err().code(), Code::PermissionDenied);
    }
}

/// A client's own limits do not depend on the view.
#[tokio::test]
async fn a_large_view_leaves_a_client_all_of_its_filter() {
    let harness = Harness::with_table().await;
    let long = |n: usize| Bytes::from(format!("{n:03}{}", "q".repeat(97)));
    let mut view = of(&[""], "f", &["q"], &[]);
    if let Some(Of::SubsetView(subset)) = &mut view.authorized_view {
        let family = subset.family_subsets.get_mut("f").unwrap();
        family.qualifiers.extend((0..205).map(long));
    }
    harness.view("v", view).await.unwrap();
    harness.put("r", "f", "q", "seen").await;
    harness.put("r", "f", "r", "hidden").await;
    let seen = async |filter: v2::RowFilter| {
        let request = v2::ReadRowsRequest {
            authorized_view_name: VIEW.into(),
            filter: Some(filter),
            ..Default::default()
        };
        let mut answers = harness.data().read_rows(request).await?.into_inner();
        let mut values = Vec::new();
        while let Some(answer) = answers.message().await? {
            values.extend(answer.chunks.into_iter().map(|chunk| chunk.value));
        }
        Ok::<_, Status>(values)
    };
    let only = || Ok(vec![b"seen".to_vec().into()]);
    let result = |result: Result<Vec<Bytes>, Status>| result.map_err(|status| status.code());
    let of_kind = |filter| v2::RowFilter { filter: Some(filter) };
    let pass = || of_kind(v2::row_filter::Filter::PassAllFilter(true));
    let nested = |levels: usize| {
        (0..levels).fold(pass(), |inner, _| {
            let filters = vec![pass(), inner];
            of_kind(v2::row_filter::Filter::Chain(v2::row_filter::Chain { filters }))
        })
    };
    let long = |bytes: usize| of_kind(v2::row_filter::Filter::ValueRegexFilter(vec![b'x'; bytes].into()));
    let with_all = |filter| {
        let filters = vec![pass(), filter];
        of_kind(v2::row_filter::Filter::Interleave(v2::row_filter::Interleave {
            filters,
        }))
    };
    assert_eq!(result(seen(nested(20)).await), only());
    assert_eq!(result(seen(with_all(long(20_460))).await), only());
    assert_eq!(result(seen(nested(21)).await), Err(Code::InvalidArgument));
    assert_eq!(result(seen(with_all(long(20_480))).await), Err(Code::InvalidArgument));
}
