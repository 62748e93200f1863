//! Handlers of authorized views: made, listed, shown, changed, deleted.
//!
//! Views are in the schema of their table, so making and changing them needs the right to administer the table. A view may be seen with
//! any right on it. The etag of a view is the version of the schema in which it was changed last.

use crate::accounting::Call;
use crate::context::{Context, table_status};
use crate::masks;
use crate::names::{TableResource, ViewResource, check_view_id};
use crate::operation_log::Typed;
use crate::pb::admin;
use crate::pb::admin::authorized_view::{AuthorizedView as Kind, FamilySubsets, ResponseView, SubsetView};
use crate::pb::longrunning::Operation;
use crate::scope::Addressed;
use crate::status::{invalid, status};
use stele_client::{TableUpdate, ViewChange};
use stele_types::{ColumnSubset, ErrorKind, Resource, Rights, TableSchema, View};
use tonic::Status;

/// Memory of a view in a response besides its names.
const VIEW_BYTES: usize = 512;
/// Memory of each prefix, qualifier and family of it.
const PART_BYTES: usize = 96;

/// Fields that an update may name.
const PATHS: [&str; 4] = [
    "deletion_protection",
    "subset_view",
    "subset_view.row_prefixes",
    "subset_view.family_subsets",
];

/// Makes a view. The operation is done when it is returned.
pub(crate) async fn create_view(
    context: &Context,
    call: &Call,
    request: admin::CreateAuthorizedViewRequest,
) -> Result<Operation, Status> {
    let table = TableResource::parse(&request.parent)?;
    check_view_id(&request.authorized_view_id)?;
    let proto = request.authorized_view.clone().unwrap_or_default();
    let view = View {
        is_protected: proto.deletion_protection,
        ..view_of(subset(proto)?)
    };
    let name = ViewResource {
        table,
        view: request.authorized_view_id.clone(),
    };
    let request_time = Some(context.timestamp());
    let schema = change(context, &name, ViewChange::Create(view)).await?;
    let metadata = admin::CreateAuthorizedViewMetadata {
        original_request: Some(request),
        request_time,
        finish_time: Some(context.timestamp()),
    };
    let metadata = Typed {
        name: "CreateAuthorizedViewMetadata",
        message: &metadata,
    };
    changed(context, call, (&name, &schema), metadata)
}

/// The views of a table that the caller may see, by name.
pub(crate) async fn list_views(
    context: &Context,
    call: &Call,
    request: admin::ListAuthorizedViewsRequest,
) -> Result<admin::ListAuthorizedViewsResponse, Status> {
    let table = TableResource::parse(&request.parent)?;
    let shown = response_view(request.view, ResponseView::NameOnly)?;
    let page = match usize::try_from(request.page_size) {
        Ok(0) => usize::MAX,
        Ok(page) => page,
        Err(_) => return Err(invalid("page_size must not be negative")),
    };
    let schema = context.schema(&table)?;
    let is_seen = |view: &&str| {
        let resource = Resource::View {
            table: table.name.clone(),
            view: (*view).to_owned(),
        };
        let guard = context.guard.as_ref();
        guard.is_none_or(|guard| guard.rights(&resource).has(Rights::VIEW))
    };
    let names = schema.views.keys().map(String::as_str).filter(is_seen);
    let mut rest = names.skip_while(|name| *name <= request.page_token.as_str()).peekable();
    let mut response = admin::ListAuthorizedViewsResponse::default();
    for name in rest.by_ref().take(page) {
        let view = ViewResource {
            table: table.clone(),
            view: name.to_owned(),
        };
        let (proto, bytes) = proto_of(&view, &schema, shown)?;
        call.charge(bytes)?;
        response.authorized_views.push(proto);
        response.next_page_token = name.to_owned();
    }
    if rest.peek().is_none() {
        response.next_page_token.clear();
    }
    Ok(response)
}

/// Shows a view.
pub(crate) async fn get_view(
    context: &Context,
    call: &Call,
    request: admin::GetAuthorizedViewRequest,
) -> Result<admin::AuthorizedView, Status> {
    let name = ViewResource::parse(&request.name)?;
    // Google's clients ask for no view, and expect the whole.
    let shown = response_view(request.view, ResponseView::Full)?;
    let scope = Addressed::View(name.clone()).scope(context)?;
    let (proto, bytes) = proto_of(&name, &scope.schema, shown)?;
    call.charge(bytes)?;
    Ok(proto)
}

/// Changes a view. The operation is done when it is returned.
pub(crate) async fn update_view(
    context: &Context,
    call: &Call,
    request: admin::UpdateAuthorizedViewRequest,
) -> Result<Operation, Status> {
    let wanted = request.authorized_view.clone();
    let wanted = wanted.ok_or_else(|| invalid("UpdateAuthorizedViewRequest.authorized_view must be set"))?;
    let name = ViewResource::parse(&wanted.name)?;
    let former = former(&wanted.etag)?;
    let paths = paths(&request, &wanted)?;
    let schema = context.schema(&name.table)?;
    let found = schema.views.get(&name.view).ok_or_else(|| name.not_found())?;
    // Between this read and the change nobody else may change it, or that change would be undone.
    let former = former.or(Some(found.version));
    let view = updated(found.clone(), wanted, &paths)?;
    let request_time = Some(context.timestamp());
    let schema = change(context, &name, ViewChange::Replace { view, former }).await?;
    let metadata = admin::UpdateAuthorizedViewMetadata {
        original_request: Some(request),
        request_time,
        finish_time: Some(context.timestamp()),
    };
    let metadata = Typed {
        name: "UpdateAuthorizedViewMetadata",
        message: &metadata,
    };
    changed(context, call, (&name, &schema), metadata)
}

/// Deletes a view, and the access rules of it.
pub(crate) async fn delete_view(
    context: &Context,
    _: &Call,
    request: admin::DeleteAuthorizedViewRequest,
) -> Result<(), Status> {
    let name = ViewResource::parse(&request.name)?;
    let former = former(&request.etag)?;
    change(context, &name, ViewChange::Delete { former }).await.map(drop)
}

async fn change(
    context: &Context,
    name: &ViewResource,
    change: ViewChange,
) -> Result<std::sync::Arc<TableSchema>, Status> {
    let update = TableUpdate {
        view: Some((name.view.clone(), change)),
        ..TableUpdate::default()
    };
    let changed = context.admin.update_table(&name.table.name, update).await;
    changed.map_err(|error| match (error.kind, context.schema(&name.table)) {
        // The table is there, so it is the view that is missing.
        (ErrorKind::NotFound, Ok(_)) => name.not_found(),
        (ErrorKind::NotFound, Err(_)) => table_status(&name.table, error),
        _ => status(error),
    })
}

/// The answer to a change.
fn changed<M: prost::Message>(
    context: &Context,
    call: &Call,
    (name, schema): (&ViewResource, &TableSchema),
    metadata: Typed<'_, M>,
) -> Result<Operation, Status> {
    let (proto, bytes) = proto_of(name, schema, ResponseView::Full)?;
    call.charge_response(bytes);
    let response = Typed {
        name: "AuthorizedView",
        message: &proto,
    };
    Ok(context.done(call, &name.to_string(), response, metadata))
}

/// The version in an etag; `None` without one.
fn former(etag: &str) -> Result<Option<u64>, Status> {
    match etag {
        "" => Ok(None),
        // An etag that this server has not given out matches nothing.
        etag => Ok(Some(etag.parse().unwrap_or(u64::MAX))),
    }
}

fn response_view(view: i32, default: ResponseView) -> Result<ResponseView, Status> {
    match ResponseView::try_from(view) {
        Ok(ResponseView::Unspecified) => Ok(default),
        Ok(view) => Ok(view),
        Err(_) => Err(invalid(format!("unknown response view {view}"))),
    }
}

fn subset(proto: admin::AuthorizedView) -> Result<SubsetView, Status> {
    match proto.authorized_view {
        Some(Kind::SubsetView(subset)) => Ok(subset),
        None => Err(invalid("authorized_view.subset_view must be set")),
    }
}

fn view_of(subset: SubsetView) -> View {
    let columns = |(family, columns): (String, FamilySubsets)| {
        let columns = ColumnSubset {
            qualifiers: columns.qualifiers,
            prefixes: columns.qualifier_prefixes,
        };
        (family, columns)
    };
    View {
        row_prefixes: subset.row_prefixes,
        families: subset.family_subsets.into_iter().map(columns).collect(),
        ..View::default()
    }
}

/// The fields that an update changes: those of its mask, or without one those that are set.
fn paths(request: &admin::UpdateAuthorizedViewRequest, wanted: &admin::AuthorizedView) -> Result<Vec<String>, Status> {
    let given = masks::paths(request.update_mask.clone())?;
    if given.iter().any(|path| path == "*") {
        return Ok(vec!["deletion_protection".to_owned(), "subset_view".to_owned()]);
    }
    if let Some(unknown) = given.iter().find(|path| !PATHS.contains(&path.as_str())) {
        return Err(invalid(format!("update_mask: {unknown:?} cannot be updated")));
    }
    if !given.is_empty() {
        return Ok(given);
    }
    let protection = wanted.deletion_protection.then(|| "deletion_protection".to_owned());
    let subset = wanted.authorized_view.is_some().then(|| "subset_view".to_owned());
    Ok(protection.into_iter().chain(subset).collect())
}

fn updated(mut view: View, wanted: admin::AuthorizedView, paths: &[String]) -> Result<View, Status> {
    let has = |path: &str| paths.iter().any(|own| own == path);
    if has("deletion_protection") {
        view.is_protected = wanted.deletion_protection;
    }
    if paths.iter().any(|path| path.starts_with("subset_view")) {
        let new = view_of(subset(wanted)?);
        if has("subset_view") || has("subset_view.row_prefixes") {
            view.row_prefixes = new.row_prefixes;
        }
        if has("subset_view") || has("subset_view.family_subsets") {
            view.families = new.families;
        }
    }
    Ok(view)
}

/// A view with the fields that a response shows, and its bytes in memory.
fn proto_of(
    name: &ViewResource,
    schema: &TableSchema,
    shown: ResponseView,
) -> Result<(admin::AuthorizedView, usize), Status> {
    let view = schema.views.get(&name.view).ok_or_else(|| name.not_found())?;
    let mut proto = admin::AuthorizedView {
        name: name.to_string(),
        ..admin::AuthorizedView::default()
    };
    if matches!(shown, ResponseView::Basic | ResponseView::Full) {
        proto.deletion_protection = view.is_protected;
        proto.etag = view.version.to_string();
    }
    let mut bytes = VIEW_BYTES + proto.name.len();
    if shown == ResponseView::Full {
        bytes += view.bytes() + view.parts() * PART_BYTES;
        let columns = |(family, columns): (&String, &ColumnSubset)| {
            let columns = FamilySubsets {
                qualifiers: columns.qualifiers.clone(),
                qualifier_prefixes: columns.prefixes.clone(),
            };
            (family.clone(), columns)
        };
        proto.authorized_view = Some(Kind::SubsetView(SubsetView {
            row_prefixes: view.row_prefixes.clone(),
            family_subsets: view.families.iter().map(columns).collect(),
        }));
    }
    Ok((proto, bytes))
}
