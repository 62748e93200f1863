//! The call that explains a read.
//!
//! The service is Stele's own. Other servers of the Bigtable API do not have it.

use super::super::read::ReadQuery;
use super::super::{Client, TableRef};
use super::own::refusal;
use anyhow::{Context, Result};
use bytes::Bytes;
use prost::Message;
use stele_adminapi::{ExplainReadRequest, ExplainReadResponse};
use tonic::Request;

impl Client {
    /// Has the server make a read, and returns the work that it took. It is not repeated, and has no time limit: a read may be
    /// long.
    pub async fn explain_read(&self, table: &TableRef, query: &ReadQuery) -> Result<ExplainReadResponse> {
        let read = query.request(&self.table_name(table), &Bytes::new(), 0);
        let request = ExplainReadRequest {
            read: read.encode_to_vec().into(),
        };
        let answer = self.own.clone().explain_read(Request::new(request)).await;
        let answer = answer.map_err(|status| refusal("explanations of reads", &status));
        Ok(answer
            .with_context(|| format!("cannot explain a read of {table}"))?
            .into_inner())
    }
}
