//! Reading rows, across as many streams as it takes.
//!
//! A stream that breaks is continued after the last row returned, or after the last key the server said it had scanned;
//! every row is returned once, in key order, whole.

use super::chunks::RowAssembler;
use super::retry::Retry;
use super::{Stub, describe, routed, v2};
use crate::records::RowCells;
use anyhow::{Result, anyhow};
use bytes::Bytes;
use std::collections::VecDeque;
use tonic::Status;
use v2::bigtable_client::BigtableClient;

/// The rows and cells to read.
#[derive(Clone, Debug, Default)]
pub struct ReadQuery {
    /// First key, inclusive; empty for the start of the table.
    pub start: Bytes,
    /// End key, exclusive; empty for the end of the table.
    pub end: Bytes,
    /// Applied by the server.
    pub filter: Option<v2::RowFilter>,
    /// Rows at most; 0 for all.
    pub limit: u64,
}

impl ReadQuery {
    /// A read of one row.
    pub fn of_row(row: Bytes, filter: Option<v2::RowFilter>) -> Self {
        ReadQuery {
            end: [&row[..], b"\0"].concat().into(),
            start: row,
            filter,
            limit: 1,
        }
    }

    /// The request of the part behind `last`, the last key that was read; empty for all of it. `returned` rows came before.
    pub(super) fn request(&self, table_name: &str, last: &Bytes, returned: u64) -> v2::ReadRowsRequest {
        use v2::row_range::{EndKey, StartKey};
        let start_key = match (last.is_empty(), self.start.is_empty()) {
            (false, _) => Some(StartKey::StartKeyOpen(last.clone())),
            (true, false) => Some(StartKey::StartKeyClosed(self.start.clone())),
            (true, true) => None,
        };
        let end_key = (!self.end.is_empty()).then(|| EndKey::EndKeyOpen(self.end.clone()));
        v2::ReadRowsRequest {
            table_name: table_name.to_owned(),
            rows: Some(v2::RowSet {
                row_keys: Vec::new(),
                row_ranges: vec![v2::RowRange { start_key, end_key }],
            }),
            filter: self.filter.clone(),
            rows_limit: match self.limit {
                0 => 0,
                limit => i64::try_from(limit - returned.min(limit)).unwrap_or(i64::MAX),
            },
            ..v2::ReadRowsRequest::default()
        }
    }
}

/// Rows of one read, in key order, across as many streams as it takes.
pub struct RowStream {
    client: BigtableClient<Stub>,
    table_name: String,
    query: ReadQuery,
    assembler: RowAssembler,
    /// Rows of the last message not yet returned.
    ready: VecDeque<RowCells>,
    returned: u64,
    stream: Option<tonic::Streaming<v2::ReadRowsResponse>>,
    retry: Retry,
    done: bool,
}

impl RowStream {
    pub(super) fn new(client: BigtableClient<Stub>, table_name: String, query: ReadQuery) -> Self {
        RowStream {
            client,
            table_name,
            query,
            assembler: RowAssembler::default(),
            ready: VecDeque::new(),
            returned: 0,
            stream: None,
            retry: Retry::default(),
            done: false,
        }
    }

    /// The next row; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<RowCells>> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                self.returned += 1;
                return Ok(Some(row));
            }
            if self.done || self.is_exhausted() {
                return Ok(None);
            }
            match self.receive().await {
                Ok(Some(message)) => self.take(message)?,
                Ok(None) => {
                    self.assembler.end().map_err(protocol_error)?;
                    self.done = true;
                }
                Err(status) => {
                    self.stream = None;
                    self.assembler.restart();
                    self.retry.after(status).await.map_err(|status| describe(&status))?;
                }
            }
        }
    }

    async fn receive(&mut self) -> Result<Option<v2::ReadRowsResponse>, Status> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let request = routed(&self.table_name, self.request());
                self.stream.insert(self.client.read_rows(request).await?.into_inner())
            }
        };
        stream.message().await
    }

    fn take(&mut self, message: v2::ReadRowsResponse) -> Result<()> {
        let before = self.assembler.last_key().clone();
        for chunk in message.chunks {
            if let Some(row) = self.assembler.push(chunk).map_err(protocol_error)? {
                self.ready.push_back(row);
            }
        }
        self.assembler
            .scanned(message.last_scanned_row_key)
            .map_err(protocol_error)?;
        // Also where the filter lets no row through.
        if *self.assembler.last_key() != before {
            self.retry.progressed();
        }
        Ok(())
    }

    /// Whether a continuation would ask for nothing: the limit is reached, or the range ends at the last key.
    fn is_exhausted(&self) -> bool {
        let limit = self.query.limit;
        let last = self.assembler.last_key();
        (limit > 0 && self.returned >= limit) || (self.stream.is_none() && is_empty_range(last, &self.query.end))
    }

    fn request(&self) -> v2::ReadRowsRequest {
        self.query
            .request(&self.table_name, self.assembler.last_key(), self.returned)
    }
}

/// Whether no key lies strictly between the last one read and the end of the range.
fn is_empty_range(last: &Bytes, end: &Bytes) -> bool {
    // The successor of a key is the key followed by a zero byte.
    !last.is_empty()
        && !end.is_empty()
        && (end <= last || end.strip_prefix(&last[..]).is_some_and(|rest| rest == b"\0"))
}

fn protocol_error(why: String) -> anyhow::Error {
    anyhow!("the server violates the protocol: {why}")
}

#[cfg(test)]
mod tests {
    use super::super::Features;
    use super::super::retry::ATTEMPTS_MAX;
    use super::*;
    use tonic::service::interceptor::InterceptedService;
    use tonic::transport::Endpoint;

    /// Where a filter lets hardly any row through, the keys scanned are all that tells.
    #[tokio::test(start_paused = true)]
    async fn a_read_gets_on_by_what_is_scanned() {
        // The test does not connect to it.
        let channel = Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
        let client = BigtableClient::new(InterceptedService::new(channel, Features::new(None).unwrap()));
        let mut stream = RowStream::new(client, "table".to_owned(), ReadQuery::default());
        let scanned = |key: u32| v2::ReadRowsResponse {
            last_scanned_row_key: Bytes::copy_from_slice(&key.to_be_bytes()),
            ..v2::ReadRowsResponse::default()
        };
        let down = || Status::unavailable("down");
        let last = 2 * ATTEMPTS_MAX;
        for key in 0..=last {
            stream.take(scanned(key)).unwrap();
            stream.retry.after(down()).await.unwrap();
        }
        // The first attempt behind the last key has failed already.
        for _ in 2..ATTEMPTS_MAX {
            stream.take(scanned(last)).unwrap();
            stream.retry.after(down()).await.unwrap();
        }
        stream.take(scanned(last)).unwrap();
        stream.retry.after(down()).await.unwrap_err();
    }

    #[test]
    fn ranges_without_keys() {
        let empty = |last: &'static str, end: &'static str| {
            is_empty_range(
                &Bytes::from_static(last.as_bytes()),
                &Bytes::from_static(end.as_bytes()),
            )
        };
        assert!(empty("b", "b") && empty("b", "a") && empty("b", "b\0"));
        assert!(!empty("b", "b\0\0") && !empty("b", "c") && !empty("b", "") && !empty("", "a"));
    }
}
