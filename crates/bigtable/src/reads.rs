//! ReadRows: from a request to a stream of messages.
//!
//! The stream is pulled by the transport: a message is made when the one before it was taken, at most one batch of rows
//! is held, and dropping the stream ends the read. No task runs beside it.

use crate::chunks::{self, MessageSizes};
use crate::features::Client;
use crate::filters;
use crate::pb::v2;
use crate::pb::v2::read_rows_request::RequestStatsView;
use crate::pb::v2::request_stats::StatsView;
use crate::ranges;
use crate::status::{invalid, status};
use crate::times::TableTime;
use crate::wire::{ReadRowsRequest, ReadRowsResponse};
use futures::Stream;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{ReadRows, RowStream};
use stele_env::Env;
use stele_types::row::ReadCounts;
use stele_types::{TableName, TableSchema};
use tonic::Status;

/// What the client wants beside the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOptions {
    /// Tell how far the read has come when nothing passes the filter.
    pub last_scanned: bool,
    /// End with statistics.
    pub stats: bool,
    /// How large messages get.
    pub sizes: MessageSizes,
}

/// Checks a request.
pub(crate) fn read(
    table: TableName,
    schema: &TableSchema,
    request: ReadRowsRequest,
    client: Client,
) -> Result<(ReadRows, ReadOptions), Status> {
    let features = client.features;
    if request.reversed && !features.reverse_scans {
        return Err(Status::unimplemented(
            "The client does not declare support for reverse scans in its bigtable-features header",
        ));
    }
    let rows_limit =
        u64::try_from(request.rows_limit).map_err(|_| invalid("Error in field 'rows_limit' : must not be negative"))?;
    let options = ReadOptions {
        last_scanned: features.last_scanned_row_responses,
        stats: request.request_stats_view() == RequestStatsView::RequestStatsFull,
        sizes: if client.whole_rows {
            MessageSizes::WHOLE_ROWS
        } else {
            MessageSizes::DEFAULT
        },
    };
    let read = ReadRows {
        table,
        rows: ranges::row_set(request.rows)?,
        filter: filters::filter(request.filter, TableTime::of(schema))?.map(Arc::new),
        rows_limit,
        reversed: request.reversed,
        raw: false,
    };
    Ok((read, options))
}

/// The messages of a read.
pub(crate) struct Responses {
    rows: Box<dyn RowStream>,
    schema: Arc<TableSchema>,
    options: ReadOptions,
    env: Env,
    started: Duration,
    /// Made and not yet taken.
    ready: VecDeque<ReadRowsResponse>,
    ended: bool,
    seen: ReadCounts,
    returned: ReadCounts,
}

impl Responses {
    pub fn new(rows: Box<dyn RowStream>, schema: Arc<TableSchema>, options: ReadOptions, env: Env) -> Self {
        let started = env.now();
        Responses {
            rows,
            schema,
            options,
            env,
            started,
            ready: VecDeque::new(),
            ended: false,
            seen: ReadCounts::default(),
            returned: ReadCounts::default(),
        }
    }

    /// As a stream that ends after the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<ReadRowsResponse, Status>> + Send {
        futures::stream::try_unfold(self, |mut responses| async move {
            Ok(responses.next().await?.map(|response| (response, responses)))
        })
    }

    async fn next(&mut self) -> Result<Option<ReadRowsResponse>, Status> {
        while self.ready.is_empty() && !self.ended {
            self.advance().await?;
        }
        Ok(self.ready.pop_front())
    }

    async fn advance(&mut self) -> Result<(), Status> {
        let Some(batch) = self.rows.next().await.map_err(status)? else {
            self.ended = true;
            if self.options.stats {
                self.ready.push_back(self.stats());
            }
            return Ok(());
        };
        self.seen.rows += batch.seen.rows;
        self.seen.cells += batch.seen.cells;
        let (rows, cells) = chunks::encode(&self.schema, &batch, self.options.sizes, &mut self.ready)?;
        self.returned.rows += rows;
        self.returned.cells += cells;
        // Progress is told only when no row tells it: a client that retries drops all keys up to it, so it must never be
        // ahead of a row that is still to come.
        if let Some(row) = batch.scanned_through
            && rows == 0
            && self.options.last_scanned
        {
            self.ready.push_back(ReadRowsResponse {
                last_scanned_row_key: row,
                ..ReadRowsResponse::default()
            });
        }
        Ok(())
    }

    fn stats(&self) -> ReadRowsResponse {
        let elapsed = self.env.now().saturating_sub(self.started);
        let view = v2::FullReadStatsView {
            read_iteration_stats: Some(v2::ReadIterationStats {
                rows_seen_count: self.seen.rows as i64,
                rows_returned_count: self.returned.rows as i64,
                cells_seen_count: self.seen.cells as i64,
                cells_returned_count: self.returned.cells as i64,
            }),
            request_latency_stats: Some(v2::RequestLatencyStats {
                frontend_server_latency: prost_types::Duration::try_from(elapsed).ok(),
            }),
        };
        let stats = v2::RequestStats {
            stats_view: Some(StatsView::FullReadStatsView(view)),
        };
        ReadRowsResponse {
            request_stats: Some(stats),
            ..ReadRowsResponse::default()
        }
    }
}
