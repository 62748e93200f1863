//! `/api/me`: the caller, and the pages that are there for it.

use super::overview::Nothing;
use super::{Json, Parameters, Served};
use crate::callers;
use axum::http::request::Parts as Request;
use serde::Serialize;
use stele_types::{Resource, Rights};

#[derive(Serialize)]
pub(super) struct Me {
    /// Absent where callers are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The kind of credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
    /// It may see the whole cluster.
    observes: bool,
    /// The server is one of a cluster.
    cluster: bool,
    /// Rows can be read, and cells and rules changed, as far as its rights go.
    browses: bool,
}

pub(super) async fn get(request: Request, served: Served, Parameters(Nothing {}): Parameters<Nothing>) -> Json<Me> {
    let guard = served.guard.as_ref();
    Json(Me {
        name: guard.map(|guard| guard.caller().name().to_owned()),
        by: guard.map(|guard| guard.caller().source().label()),
        observes: guard.is_none_or(|guard| guard.rights(&Resource::Cluster).has(Rights::VIEW)),
        cluster: served.shared().about.is_cluster,
        browses: callers::check_here(&request, &served.console).is_ok(),
    })
}
