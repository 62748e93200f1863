//! `/api/…`: the JSON behind the pages. `docs/console.md` lists the calls.
//!
//! Calls of GET read, calls of POST change one cell or one rule. Every list has a limit, and no answer is larger than about a
//! megabyte. Numbers are in base units, times in seconds since 1970. Row keys are spelled as the command line spells them
//! ([`crate::text`]).

mod backups;
mod browse;
mod cluster;
mod edit;
mod heat;
mod history;
mod me;
mod overview;
mod rules;
mod slow;
mod snapshots;
mod tables;
mod tablet;
mod tablets;

use crate::callers::{self, Called};
use crate::failure::Failure;
use crate::{Console, Shared};
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Query};
use axum::http::request::Parts as Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::Deref;
use stele_types::{TableName, Timestamp};

/// The routes.
pub fn router(console: Console) -> Router {
    Router::new()
        .route("/api/overview", get(overview::get))
        .route("/api/cluster", get(cluster::get))
        .route("/api/history", get(history::get))
        .route("/api/tables", get(tables::get))
        .route("/api/tablets", get(tablets::get))
        .route("/api/tablet", get(tablet::get))
        .route("/api/slow", get(slow::get))
        .route("/api/heat", get(heat::get))
        .route("/api/snapshots", get(snapshots::get))
        .route("/api/kept", get(snapshots::kept))
        .route("/api/backups", get(backups::get))
        .route("/api/me", get(me::get))
        .route("/api/rows", get(browse::get))
        .route("/api/cell", get(browse::cell).post(edit::put))
        .route("/api/cell/delete", post(edit::delete))
        .route("/api/rules", get(rules::get).post(rules::change))
        .route(
            "/api/{*other}",
            get(async || Failure::not_found("there is no such call; see docs/console.md")),
        )
        .layer(DefaultBodyLimit::max(edit::BODY_BYTES_MAX))
        .with_state(console)
}

/// An answer.
struct Json<T>(T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string(&self.0) {
            Ok(text) => (
                [
                    (header::CONTENT_TYPE, "application/json"),
                    (header::CACHE_CONTROL, "no-store"),
                ],
                text,
            )
                .into_response(),
            Err(error) => Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

type Answer<T> = Result<Json<T>, Failure>;

/// The parameters of a call. An unknown one is an error, as a misspelled one would be ignored otherwise.
struct Parameters<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, _: &S) -> Result<Self, Failure> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(parameters)) => Ok(Parameters(parameters)),
            Err(error) => Err(Failure::invalid(error.body_text())),
        }
    }
}

/// A server that has recovered, as the caller has it, and the state of the console.
struct Served {
    called: Called,
    console: Console,
}

impl Deref for Served {
    type Target = Called;

    fn deref(&self) -> &Called {
        &self.called
    }
}

impl Served {
    fn shared(&self) -> &Shared {
        &self.console.0
    }
}

impl FromRequestParts<Console> for Served {
    type Rejection = Failure;

    async fn from_request_parts(request: &mut Request, console: &Console) -> Result<Self, Failure> {
        let served = console.0.served.get().ok_or_else(recovering)?;
        Ok(Served {
            called: Called::of(request, served)?,
            console: console.clone(),
        })
    }
}

fn recovering() -> Failure {
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "the server is recovering")
}

/// The same for a caller that may see the whole cluster.
struct Observed(Served);

impl Deref for Observed {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.0
    }
}

impl FromRequestParts<Console> for Observed {
    type Rejection = Failure;

    async fn from_request_parts(request: &mut Request, console: &Console) -> Result<Self, Failure> {
        let served = Served::from_request_parts(request, console).await?;
        served.check_cluster()?;
        Ok(Observed(served))
    }
}

/// The console for a caller that may see the whole cluster. While the server recovers it is there for everybody, unless
/// callers must be known: the rules are not read yet.
struct Watched(Console);

impl FromRequestParts<Console> for Watched {
    type Rejection = Failure;

    async fn from_request_parts(request: &mut Request, console: &Console) -> Result<Self, Failure> {
        match console.0.served.get() {
            Some(served) => Called::of(request, served)?.check_cluster()?,
            None if console.0.about.is_guarded => return Err(recovering()),
            None => {}
        }
        Ok(Watched(console.clone()))
    }
}

/// The same as [`Served`] for reads of rows and for changes.
struct Browsed(Served);

impl Deref for Browsed {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.0
    }
}

impl FromRequestParts<Console> for Browsed {
    type Rejection = Failure;

    async fn from_request_parts(request: &mut Request, console: &Console) -> Result<Self, Failure> {
        callers::check_here(request, console)?;
        callers::check_change(request)?;
        Served::from_request_parts(request, console).await.map(Browsed)
    }
}

/// The JSON of a change.
struct Body<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, Failure> {
        let bytes = axum::body::Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|error| Failure::new(error.status(), error.body_text()))?;
        let parsed = serde_json::from_slice(&bytes);
        parsed.map(Body).map_err(|error| Failure::invalid(error.to_string()))
    }
}

/// The name of a table, as `namespace/table`.
fn table_name(text: &str) -> Result<TableName, Failure> {
    match text.split_once('/') {
        Some((namespace, table)) if !namespace.is_empty() && !table.is_empty() => Ok(TableName::new(namespace, table)),
        _ => Err(Failure::invalid(format!("a table is NAMESPACE/TABLE, not {text:?}"))),
    }
}

/// A time of a cell as it is named in the API: numbers of 64 bits are not exact in JavaScript.
fn show_time(time: Timestamp) -> String {
    time.0.to_string()
}

/// A name as [`table_name`] reads it.
fn show_table(name: &TableName) -> String {
    format!("{}/{}", name.namespace, name.table)
}

/// A number with four digits that count, so that answers are short.
fn short(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    let digits = 3 - number.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits);
    let rounded = (number * scale).round() / scale;
    if rounded.is_finite() { rounded } else { number }
}

#[cfg(test)]
mod tests;
