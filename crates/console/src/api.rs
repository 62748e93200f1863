//! `/api/…`: the JSON behind the pages. `docs/console.md` lists the calls.
//!
//! Every call only reads. Every list has a limit, and no answer is larger than about a megabyte. Numbers are in base units,
//! times in seconds since 1970. Row keys are spelled as the command line spells them ([`crate::text`]).

mod heat;
mod history;
mod overview;
mod slow;
mod snapshots;
mod tables;
mod tablet;
mod tablets;

use crate::{Console, Parts, Shared};
use axum::Router;
use axum::extract::{FromRequestParts, Query};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stele_client::ServiceError;
use stele_types::{ErrorKind, TableName};

/// The routes.
pub fn router(console: Console) -> Router {
    Router::new()
        .route("/api/overview", get(overview::get))
        .route("/api/history", get(history::get))
        .route("/api/tables", get(tables::get))
        .route("/api/tablets", get(tablets::get))
        .route("/api/tablet", get(tablet::get))
        .route("/api/slow", get(slow::get))
        .route("/api/heat", get(heat::get))
        .route("/api/snapshots", get(snapshots::get))
        .route(
            "/api/{*other}",
            get(async || Failure::not_found("there is no such call; see docs/console.md")),
        )
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

/// An error, as `{"error": "…"}`.
#[derive(Debug)]
struct Failure {
    status: StatusCode,
    message: String,
}

impl Failure {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Failure {
            status,
            message: message.into(),
        }
    }

    fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = serde_json::json!({ "error": self.message });
        (
            self.status,
            [
                (header::CONTENT_TYPE, "application/json"),
                (header::CACHE_CONTROL, "no-store"),
            ],
            body.to_string(),
        )
            .into_response()
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        let status = match error.kind {
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::InvalidArgument => StatusCode::BAD_REQUEST,
            ErrorKind::Busy | ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.message)
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

/// A server that has recovered, and the state of the console.
struct Served {
    parts: Parts,
    console: Console,
}

impl Served {
    fn shared(&self) -> &Shared {
        &self.console.0
    }
}

impl FromRequestParts<Console> for Served {
    type Rejection = Failure;

    async fn from_request_parts(_: &mut axum::http::request::Parts, console: &Console) -> Result<Self, Failure> {
        match console.0.served.get() {
            Some(served) => Ok(Served {
                parts: served.clone(),
                console: console.clone(),
            }),
            None => Err(Failure::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is recovering",
            )),
        }
    }
}

/// The name of a table, as `namespace/table`.
fn table_name(text: &str) -> Result<TableName, Failure> {
    match text.split_once('/') {
        Some((namespace, table)) if !namespace.is_empty() && !table.is_empty() => Ok(TableName::new(namespace, table)),
        _ => Err(Failure::invalid(format!("a table is NAMESPACE/TABLE, not {text:?}"))),
    }
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
