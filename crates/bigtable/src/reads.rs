//! ReadRows: from a request to a stream of messages.
//!
//! The transport pulls the stream. A batch of rows is read when the messages of the batch before it have been taken,
//! and dropping the stream ends the read. No task runs in addition. While its messages wait for the transport the read
//! is in a [`response_buffer`], which is cleared when others need its memory. The first batch is read before there is a
//! stream. If it has all rows, as for a single row, the response is complete by then.

pub(crate) mod response_buffer;

use crate::chunks::{self, MessageSizes};
use crate::features::Client;
use crate::filters;
use crate::messages::framed;
use crate::pb::v2;
use crate::pb::v2::read_rows_request::RequestStatsView;
use crate::pb::v2::request_stats::StatsView;
use crate::ranges;
use crate::response_memory::{Reservation, ResponseMemory, SMALL_BYTES, SharedReservation};
use crate::status::{invalid, status};
use crate::times::TableTime;
use crate::wire::{CellChunk, ReadRowsRequest, ReadRowsResponse};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_client::{BatchReservation, ReadRows, RowStream, ServiceResult};
use stele_env::Env;
use stele_types::row::ReadCounts;
use stele_types::{RowBatch, TableName, TableSchema};
use tonic::Status;

/// Properties of the response that the request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOptions {
    /// Report the progress of the read when nothing passes the filter.
    pub last_scanned: bool,
    /// End with statistics.
    pub stats: bool,
    /// How large messages get.
    pub sizes: MessageSizes,
    /// The response is most likely small: the request names at most one row.
    pub one_row: bool,
    /// A large row is sent as partial rows while it is read.
    pub partial_rows: bool,
    /// The filter may make several cells of one.
    pub multiplies: bool,
    /// The read must tell of nothing but the rows that it returns.
    pub narrowed: bool,
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
    let stats = request.request_stats_view() == RequestStatsView::RequestStatsFull;
    let rows = ranges::row_set(request.rows)?;
    let filter = filters::filter(request.filter, TableTime::of(schema))?.map(Arc::new);
    let options = ReadOptions {
        multiplies: filter.as_deref().is_some_and(filters::multiplies),
        narrowed: false,
        one_row: rows_limit == 1 || rows.is_one_row(),
        last_scanned: features.last_scanned_row_responses,
        stats,
        partial_rows: !client.whole_rows,
        sizes: if client.whole_rows {
            MessageSizes::WHOLE_ROWS
        } else {
            MessageSizes::DEFAULT
        },
    };
    let read = ReadRows {
        table,
        id: Some(schema.id),
        rows,
        filter,
        rows_limit,
        reversed: request.reversed,
        raw: false,
        waits: false,
    };
    Ok((read, options))
}

/// The source of the rows of a response.
pub(crate) enum Rows {
    /// As they become available.
    Stream(Box<dyn RowStream>),
    /// All rows; `None` when they have been taken.
    Batch(Option<RowBatch>),
}

impl Rows {
    /// Reads within `reservation`. A resident batch is bounded already.
    async fn next_within(&mut self, reservation: &mut dyn BatchReservation) -> ServiceResult<Option<RowBatch>> {
        match self {
            Rows::Stream(rows) => rows.next_within(reservation).await,
            Rows::Batch(batch) => Ok(batch.take()),
        }
    }

    fn is_taken(&self) -> bool {
        matches!(self, Rows::Batch(None))
    }
}

/// A read under way.
pub(crate) struct Responses {
    rows: Rows,
    schema: Arc<TableSchema>,
    options: ReadOptions,
    env: Env,
    started: Duration,
    memory: ResponseMemory,
    /// For the next batch.
    reservation: Option<Reservation>,
    /// Pieces of messages that wait for the transport.
    pub ready: VecDeque<Bytes>,
    /// Part of the first piece has been taken.
    is_first_begun: bool,
    /// Reservations of pieces that are ready or with the transport.
    shared: Vec<Weak<SharedReservation>>,
    /// Nothing follows the ready pieces.
    pub ended: bool,
    /// The status after the ready pieces.
    failure: Option<Status>,
    seen: ReadCounts,
    returned: ReadCounts,
    /// Chunks of a row have been sent, and its last one has not.
    within_row: bool,
}

impl Responses {
    pub fn new(
        rows: Rows,
        schema: Arc<TableSchema>,
        options: ReadOptions,
        env: Env,
        (memory, reservation): (ResponseMemory, Reservation),
    ) -> Self {
        let started = env.now();
        Responses {
            rows,
            schema,
            options,
            env,
            started,
            memory,
            reservation: Some(reservation),
            ready: VecDeque::new(),
            is_first_begun: false,
            shared: Vec::new(),
            ended: false,
            failure: None,
            seen: ReadCounts::default(),
            returned: ReadCounts::default(),
            within_row: false,
        }
    }

    /// Reads the beginning of the response, or all of it if it is small. After a small beginning most likely no more
    /// rows follow, and the whole response can be sent without waiting for the transport. Rows that were read are sent
    /// even if the next read fails.
    pub async fn begin(&mut self) -> Result<(), Status> {
        self.advance().await?;
        if !self.ended && (self.is_complete() || self.ready_bytes() < SMALL_BYTES) {
            self.failure = self.advance().await.err();
        }
        // A client that reads nothing must not hold an unused reservation.
        self.reservation = None;
        match self.failure.take_if(|_| self.ready.is_empty()) {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }

    /// Reads until there is something to send, or the read has ended. The caller waits until the transport wants more,
    /// which means that it has sent most of the pieces before. Other tasks run before each batch. If all rows are in
    /// memory nothing else suspends the read. Neither the end of the call nor its deadline would be noticed while the
    /// filter rejects everything.
    pub async fn fill(&mut self) -> Result<(), Status> {
        while self.ready.is_empty() && !self.ended {
            if let Some(status) = self.failure.take() {
                return Err(status);
            }
            self.env.yield_now().await;
            self.advance().await?;
        }
        self.reservation = None;
        Ok(())
    }

    /// The next ready piece, in a form that the transport may hold for any length of time.
    fn take_piece(&mut self) -> Option<Bytes> {
        let first = self.ready.front_mut()?;
        // Only the last reservation has ready pieces.
        if let Some(shared) = self.shared.last().and_then(Weak::upgrade)
            && (self.is_first_begun || shared.is_sent_in_copies(first))
        {
            let part = shared.part(first);
            self.is_first_begun = !first.is_empty();
            if first.is_empty() {
                self.ready.pop_front();
            }
            return Some(part);
        }
        self.ready.pop_front()
    }

    /// Whether the response has ended and is small enough to need no reservation.
    pub fn is_small(&self) -> bool {
        self.ended && self.ready_bytes() <= SMALL_BYTES
    }

    fn ready_bytes(&self) -> usize {
        self.ready.iter().map(Bytes::len).sum()
    }

    /// Whether no more rows can follow. This check needs no reservation: a client that has its row should not wait for
    /// memory to learn that there are no more rows.
    fn is_complete(&self) -> bool {
        self.rows.is_taken() || (self.options.one_row && self.returned.rows > 0)
    }

    fn end(&mut self) -> Result<(), Status> {
        self.ended = true;
        if std::mem::take(&mut self.within_row) {
            // The row was started again, and does not exist any more.
            self.ready.push_back(framed(&reset())?);
        }
        if self.options.stats {
            self.ready.push_back(framed(&self.stats())?);
        }
        Ok(())
    }

    async fn advance(&mut self) -> Result<(), Status> {
        if self.is_complete() {
            return self.end();
        }
        let mut reservation = match self.reservation.take() {
            Some(reservation) => reservation,
            None => self.memory.for_batch().await?,
        };
        reservation.partial_rows = self.options.partial_rows;
        let Some(mut batch) = self.rows.next_within(&mut reservation).await.map_err(status)? else {
            return self.end();
        };
        if self.options.narrowed {
            batch.hide_others();
        }
        self.seen.rows += batch.seen.rows;
        self.seen.cells += batch.seen.cells;
        if self.options.multiplies {
            reservation.fit(chunks::copied_bytes(&batch)).await?;
        }
        let mut pieces = VecDeque::new();
        if self.within_row && !batch.continues {
            // The part of the row that was sent is void. If the row still exists it comes again.
            pieces.push_back(framed(&reset())?);
            self.within_row = false;
        }
        let (rows, cells) = chunks::encode(
            &self.schema,
            &batch,
            self.options.sizes,
            &mut self.within_row,
            &mut pieces,
        )?;
        let scanned_through = batch.scanned_through.clone();
        // The cells are dropped before the messages wait for memory.
        drop(batch);
        let given = reservation.hand_over(&mut pieces).await?;
        self.reservation = given.reservation;
        self.shared.retain(|shared| shared.strong_count() > 0);
        self.shared.extend(given.shared);
        self.ready.append(&mut pieces);
        self.returned.rows += rows;
        self.returned.cells += cells;
        // Progress is reported only when no row shows it. A client that retries drops all keys up to the reported one,
        // so it must never be ahead of a row that is still to come.
        if let Some(row) = scanned_through
            && rows == 0
            && !self.within_row
            && self.options.last_scanned
        {
            self.ready.push_back(framed(&ReadRowsResponse {
                last_scanned_row_key: row,
                ..ReadRowsResponse::default()
            })?);
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

/// Tells the client to discard its part of a row.
fn reset() -> ReadRowsResponse {
    let reset = CellChunk {
        reset_row: true,
        ..CellChunk::default()
    };
    ReadRowsResponse {
        chunks: vec![reset],
        ..ReadRowsResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::PREFIX_BYTES;
    use crate::testing;
    use prost::Message as _;
    use stele_client::ServiceError;
    use stele_env::metrics::IntCounter;
    use stele_env::tokio_env::TokioRuntime;
    use stele_memory::{Part, Pool};
    use stele_types::{Cell, ErrorKind, FamilyId, Timestamp};

    /// The results of a scan, one for each call.
    struct Script(VecDeque<ServiceResult<Option<RowBatch>>>);

    #[tonic::async_trait]
    impl RowStream for Script {
        async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
            self.0.pop_front().unwrap_or(Ok(None))
        }
    }

    /// A scan whose filter rejects everything.
    struct Endless;

    #[tonic::async_trait]
    impl RowStream for Endless {
        async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
            Ok(Some(RowBatch::default()))
        }
    }

    fn responses(script: Vec<ServiceResult<Option<RowBatch>>>) -> Responses {
        let options = ReadOptions {
            last_scanned: true,
            stats: false,
            sizes: MessageSizes::DEFAULT,
            one_row: false,
            partial_rows: true,
            multiplies: false,
            narrowed: false,
        };
        let schema = Arc::new(testing::schema());
        Responses::new(
            Rows::Stream(Box::new(Script(script.into()))),
            schema,
            options,
            TokioRuntime::current(),
            {
                let cancelled = IntCounter::new("given_up", "given up").unwrap();
                let memory = ResponseMemory::new(
                    &Pool::default().limited(Part::Responses, 2 << 20),
                    TokioRuntime::current(),
                    cancelled,
                );
                let reservation = memory.no_reservation();
                (memory, reservation)
            },
        )
    }

    fn rows(value_bytes: usize) -> ServiceResult<Option<RowBatch>> {
        let mut batch = RowBatch::default();
        let cell = Cell::put(FamilyId(1), Bytes::new(), Timestamp(0), vec![7; value_bytes].into());
        batch.push_row(Bytes::from_static(b"r"), [cell]);
        Ok(Some(batch))
    }

    fn failure<T>() -> ServiceResult<T> {
        Err(ServiceError::new(ErrorKind::Corruption, "planted"))
    }

    #[tokio::test]
    async fn copies_made_by_a_filter_are_reserved_before_they_are_messages() {
        let answer = |copies: i64| {
            let value = Bytes::from(vec![7; 30_000]);
            let cell = |n: i64| Cell::put(FamilyId(1), Bytes::new(), Timestamp(n * 1_000), value.clone());
            let mut batch = RowBatch::default();
            batch.push_row(Bytes::from_static(b"r"), (0..copies).rev().map(cell));
            let mut answer = responses(vec![Ok(Some(batch)), Ok(None)]);
            answer.options.multiplies = true;
            answer
        };
        // All response memory, and the overdraft.
        let mut many = answer(200);
        many.begin().await.unwrap();
        assert!(many.ready_bytes() > 6_000_000);
        let shared = many.shared.last().and_then(Weak::upgrade).unwrap();
        assert!(shared.has_overdraft());
        // More than the overdraft.
        let refused = answer(4_000).begin().await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
        // A shared value needs no copy.
        assert!(chunks::copied_bytes(&rows(6 << 20).unwrap().unwrap()) < 1_000);
    }

    #[tokio::test]
    async fn small_responses_are_complete_when_they_begin() {
        let mut one = responses(vec![rows(1), Ok(None)]);
        one.begin().await.unwrap();
        assert_eq!((one.ready.len(), one.ended), (1, true));
        let mut large = responses(vec![rows(SMALL_BYTES), rows(1), Ok(None)]);
        large.begin().await.unwrap();
        assert!(!large.ended);
        large.ready.clear();
        large.fill().await.unwrap();
        assert_eq!((large.ready.len(), large.ended), (1, false));
        large.ready.clear();
        large.fill().await.unwrap();
        assert_eq!((large.ready.len(), large.ended), (0, true));
    }

    #[tokio::test]
    async fn a_complete_row_needs_no_further_read() {
        let mut one = responses(vec![rows(SMALL_BYTES), failure()]);
        one.options.one_row = true;
        one.begin().await.unwrap();
        assert!(!one.ready.is_empty() && one.ended);
        let mut buffered = responses(vec![]);
        buffered.rows = Rows::Batch(rows(SMALL_BYTES).unwrap());
        buffered.begin().await.unwrap();
        assert!(!buffered.ready.is_empty() && buffered.ended);
        // A filter may reject all of the first row, and then the next row counts.
        let mut second = responses(vec![Ok(Some(RowBatch::default())), rows(SMALL_BYTES), failure()]);
        second.options.one_row = true;
        second.begin().await.unwrap();
        assert!(!second.ready.is_empty() && !second.ended);
        second.ready.clear();
        second.fill().await.unwrap();
        assert!(second.ready.is_empty() && second.ended);
    }

    /// A scan of rows in memory suspends nowhere else.
    #[tokio::test]
    async fn others_run_while_a_filter_lets_nothing_through() {
        let nothing = || Ok(Some(RowBatch::default()));
        let mut answer = responses(vec![nothing(), nothing(), nothing(), rows(1)]);
        {
            let mut fill = Box::pin(answer.fill());
            for batch in 0..4 {
                assert!(futures::poll!(&mut fill).is_pending(), "{batch}");
            }
            assert!(futures::poll!(&mut fill).is_ready());
        }
        assert!(!answer.ready.is_empty());
        // Otherwise the deadline of its call would not be noticed.
        let mut endless = responses(Vec::new());
        endless.rows = Rows::Stream(Box::new(Endless));
        let filled = TokioRuntime::current().timeout(Duration::ZERO, endless.fill()).await;
        assert!(filled.is_err());
    }

    #[tokio::test]
    async fn rows_before_a_failure_are_sent() {
        let mut late = responses(vec![rows(1), failure()]);
        late.begin().await.unwrap();
        assert_eq!((late.ready.len(), late.ended), (1, false));
        late.ready.clear();
        assert_eq!(late.fill().await.unwrap_err().message(), "planted");
        assert!(responses(vec![failure()]).begin().await.is_err());
        assert!(
            responses(vec![Ok(Some(RowBatch::default())), failure()])
                .begin()
                .await
                .is_err()
        );
    }

    /// A partial row `r`, with this many cells in the column of this name.
    fn part(qualifier: &'static str, cells: i64, continues: bool, unfinished: bool) -> ServiceResult<Option<RowBatch>> {
        let cell = |n| {
            Cell::put(
                FamilyId(1),
                qualifier.into(),
                Timestamp((cells - n) * 1_000),
                "v".into(),
            )
        };
        let mut batch = RowBatch::default();
        batch.push_row(Bytes::from_static(b"r"), (0..cells).map(cell));
        (batch.continues, batch.unfinished) = (continues, unfinished);
        Ok(Some(batch))
    }

    /// The rows that a client assembles from the response: the number of cells of each.
    async fn merged(script: Vec<ServiceResult<Option<RowBatch>>>) -> (Result<Vec<usize>, String>, ReadCounts) {
        let mut answer = responses(script);
        let mut merger = testing::RowMerger::new(false);
        let mut failed = None;
        answer.begin().await.unwrap();
        loop {
            let sent: Vec<u8> = std::mem::take(&mut answer.ready).into_iter().flatten().collect();
            let mut rest = &sent[..];
            while let Some((prefix, after)) = rest.split_first_chunk::<PREFIX_BYTES>() {
                let [_, length @ ..] = *prefix;
                let (message, after) = after.split_at(u32::from_be_bytes(length) as usize);
                merger.feed(&ReadRowsResponse::decode(message).unwrap()).unwrap();
                rest = after;
            }
            if answer.ended {
                break;
            }
            if let Err(status) = answer.fill().await {
                failed = Some(status);
                break;
            }
        }
        if let Some(status) = failed {
            return (Err(status.message().to_owned()), answer.returned);
        }
        let rows = merger.finish().unwrap();
        (Ok(rows.iter().map(|row| row.cells.len()).collect()), answer.returned)
    }

    #[tokio::test]
    async fn partial_rows_are_put_together() {
        let empty = || {
            let mut batch = RowBatch::default();
            batch.continues = true;
            Ok(Some(batch))
        };
        let three = vec![
            part("a", 3, false, true),
            empty(),
            part("aa", 2, true, true),
            part("b", 1, true, false),
        ];
        let (rows, returned) = merged(three).await;
        assert_eq!((rows.unwrap(), returned.rows, returned.cells), (vec![6], 1, 6));
        // A whole row after it, and one before its first part.
        let mut last = part("b", 1, true, false).unwrap().unwrap();
        last.push_row("s", [Cell::put(FamilyId(2), "q".into(), Timestamp(0), "v".into())]);
        let mut first = RowBatch::default();
        first.push_row("a", [Cell::put(FamilyId(2), "q".into(), Timestamp(0), "v".into())]);
        first.push_row("r", [Cell::put(FamilyId(1), "a".into(), Timestamp(0), "v".into())]);
        first.unfinished = true;
        let (rows, returned) = merged(vec![Ok(Some(first)), Ok(Some(last))]).await;
        assert_eq!((rows.unwrap(), returned.rows), (vec![1, 2, 1], 3));
    }

    #[tokio::test]
    async fn a_row_that_is_begun_again_is_taken_back() {
        let again = vec![
            part("a", 3, false, true),
            part("a", 2, false, true),
            part("a", 1, true, false),
        ];
        assert_eq!(merged(again).await.0.unwrap(), [3]);
        // The row does not exist any more.
        assert_eq!(
            merged(vec![part("a", 3, false, true), Ok(None)]).await.0.unwrap(),
            [0; 0]
        );
        let nothing = Ok(Some(RowBatch::default()));
        assert_eq!(
            merged(vec![part("a", 3, false, true), nothing]).await.0.unwrap(),
            [0; 0]
        );
        let failed = merged(vec![part("a", 3, false, true), failure()]).await;
        assert_eq!(failed.0.unwrap_err(), "planted");
    }

    #[tokio::test]
    async fn partial_rows_have_a_last_cell() {
        let unknown = |continues, unfinished| {
            let mut batch = RowBatch::default();
            batch.push_row("r", [Cell::put(FamilyId(9), "q".into(), Timestamp(0), "v".into())]);
            (batch.continues, batch.unfinished) = (continues, unfinished);
            Ok(Some(batch))
        };
        let error = merged(vec![part("a", 3, false, true), unknown(true, false)]).await.0;
        assert!(error.unwrap_err().contains("families"));
        // Cells of an unknown family do not start the row.
        let (rows, returned) = merged(vec![unknown(false, true), part("a", 2, true, false)]).await;
        assert_eq!((rows.unwrap(), returned.rows), (vec![2], 1));
        let (rows, returned) = merged(vec![unknown(false, true), unknown(true, false)]).await;
        assert_eq!((rows.unwrap(), returned.rows), (vec![], 0));
    }
}
