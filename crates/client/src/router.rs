//! The router maps tables and rows to tablets.
//!
//! It finds the tablets of rows in the catalog, sends each tablet its part, and combines the results. A tablet may
//! split or move between the lookup and the call. Then the call fails as `Unavailable`, and the router repeats the
//! lookup for the remaining rows.

mod left;
mod reading;
mod sampling;

use crate::bulk_load::{BulkLoad, Loaded};
use crate::error::{ServiceError, ServiceResult};
use crate::request::{MutateRows, ReadRows, RowSample, ServerPlace, TabletInfo, TabletPlace};
use crate::row_operation::{RowOperation, RowOutcome, RowsOperation};
use crate::service::{BatchReservation, RowStream, TableService};
use crate::slow::{self, CallKind, SlowCalls};
use crate::tablets::{TabletRead, TabletRowOperation, TabletRowsOperation, TabletService};
use async_trait::async_trait;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use left::Left;
use reading::Reading;
use sampling::Sampling;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use stele_catalog::{Catalog, TableEntry, TabletEntry};
use stele_env::{Env, PlantedBug, trace};
use stele_filter::CompiledFilter;
use stele_types::{
    ErrorKind, RowBatch, RowRange, RowSet, RowWrites, ServerId, TableId, TableName, TableSchema, TabletId,
};

/// Attempts at one tablet before the client is told to retry itself. With the pauses below that is about five seconds,
/// more than a split takes.
const ATTEMPTS_MAX: u32 = 60;
/// Longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Pieces a tablet is sampled in.
const SAMPLES_PER_TABLET: u64 = 8;
/// Tablets that are sampled concurrently.
const SAMPLED_AT_ONCE: usize = 32;

/// Implements the data half of the service interface.
pub struct Router {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    catalog: Arc<Catalog>,
    tablets: Arc<dyn TabletService>,
    servers: Option<Arc<dyn Servers>>,
    slow: Arc<SlowCalls>,
}

/// Knows the servers of a cluster.
pub trait Servers: Send + Sync + 'static {
    /// The place of a server that is another one than this and serves HBase clients.
    fn place_of(&self, server: ServerId) -> Option<Arc<ServerPlace>>;

    /// All such servers.
    fn others(&self) -> Vec<Arc<ServerPlace>>;
}

impl Router {
    /// A router over one server's tablets.
    pub fn new(env: Env, catalog: Arc<Catalog>, tablets: Arc<dyn TabletService>) -> Self {
        Self::noting(env, catalog, tablets, Arc::new(SlowCalls::off()))
    }

    /// The same, which notes slow calls.
    pub fn noting(env: Env, catalog: Arc<Catalog>, tablets: Arc<dyn TabletService>, slow: Arc<SlowCalls>) -> Self {
        let shared = Shared {
            env,
            catalog,
            tablets,
            servers: None,
            slow,
        };
        Router {
            shared: Arc::new(shared),
        }
    }

    /// A router of a cluster.
    pub fn of_cluster(
        (env, catalog): (Env, Arc<Catalog>),
        tablets: Arc<dyn TabletService>,
        servers: Arc<dyn Servers>,
        slow: Arc<SlowCalls>,
    ) -> Self {
        let shared = Shared {
            env,
            catalog,
            tablets,
            servers: Some(servers),
            slow,
        };
        Router {
            shared: Arc::new(shared),
        }
    }
}

impl Shared {
    fn place(&self, tablet: &TabletEntry) -> TabletPlace {
        let owner = tablet.assignment.owner;
        let servers = self.servers.as_ref();
        TabletPlace {
            id: tablet.id,
            range: tablet.range.clone(),
            server: servers.and_then(|servers| servers.place_of(owner?.server)),
            generation: owner.map_or(0, |owner| owner.epoch.0),
        }
    }

    fn table(&self, name: &TableName) -> ServiceResult<Arc<TableEntry>> {
        trace::note(|facts| {
            facts.table.get_or_insert_with(|| name.to_string());
        });
        self.catalog
            .table(name)
            .map_err(|e| ServiceError::new(e.kind(), e.to_string()))
    }

    /// The table, if its rows may be read and written.
    fn enabled_table(&self, name: &TableName) -> ServiceResult<Arc<TableEntry>> {
        let table = self.table(name)?;
        match table.schema.enabled {
            true => Ok(table),
            false => Err(disabled(name)),
        }
    }

    /// Fails when the table that a read began with has been disabled since.
    fn check_enabled(&self, name: &TableName, id: TableId) -> ServiceResult<()> {
        let is_disabled = |table: Arc<TableEntry>| table.schema.id == id && !table.schema.enabled;
        match self.table(name).is_ok_and(is_disabled) {
            true => Err(disabled(name)),
            false => Ok(()),
        }
    }

    /// The table as it is now, provided that it still is the one a request began with, and enabled. Family ids mean
    /// something else in a table that took its name.
    fn same_table(&self, name: &TableName, id: TableId) -> ServiceResult<Arc<TableEntry>> {
        let table = self.enabled_table(name)?;
        if table.schema.id == id {
            Ok(table)
        } else {
            Err(ServiceError::not_found(format!(
                "table {name} was dropped and made anew during the request"
            )))
        }
    }

    /// The table that a request is for: it may have looked families up in one that has lost its name since.
    fn addressed(&self, name: &TableName, id: Option<TableId>) -> ServiceResult<Arc<TableEntry>> {
        match id {
            Some(id) => self.same_table(name, id),
            None => self.enabled_table(name),
        }
    }

    /// The same for a request that writes.
    fn writable(&self, name: &TableName, id: Option<TableId>) -> ServiceResult<Arc<TableEntry>> {
        let table = self.addressed(name, id)?;
        match table.schema.read_only {
            true => Err(ServiceError::new(
                ErrorKind::FailedPrecondition,
                format!("table {name} is read only"),
            )),
            false => Ok(table),
        }
    }

    /// Calls the tablet of a row until it is found, pausing between attempts. Other errors are the caller's.
    async fn with_tablet<T, F: Future<Output = ServiceResult<T>>>(
        &self,
        (table, id): (&TableName, Option<TableId>),
        row: &[u8],
        call: impl Fn(TabletId) -> F,
    ) -> ServiceResult<T> {
        let id = self.addressed(table, id)?.schema.id;
        let mut attempt = 0;
        loop {
            let tablet = self.same_table(table, id)?.tablet_of(row).id;
            trace::note(|facts| facts.visit(tablet.0));
            match call(tablet).await {
                Err(error) if error.kind == ErrorKind::Unavailable && attempt < ATTEMPTS_MAX => {
                    attempt += 1;
                    self.pause(attempt).await;
                }
                done => return done,
            }
        }
    }

    async fn pause(&self, attempt: u32) {
        let _pausing = trace::stage("wait: tablet moves");
        let pause = Duration::from_millis(1 << attempt.min(7)).min(PAUSE_MAX);
        self.env.sleep(pause).await;
    }

    /// Samples the tablets that have rows of a range, one after the other. Those that are not sampled yet may be split meanwhile, so
    /// each is looked up when it is its turn.
    async fn sample_tablets(&self, table: &TableName, range: RowRange) -> ServiceResult<Vec<RowSample>> {
        let split_bytes = 64 << 20;
        let id = self.enabled_table(table)?.schema.id;
        let mut sampling = Sampling::new(range);
        while let Some(row) = sampling.next_row() {
            let row = &row;
            let call = |tablet| async move {
                let entry = self.same_table(table, id)?;
                let found = entry.tablet_of(row);
                if found.id != tablet {
                    // It was split since the lookup.
                    return Err(ServiceError::new(ErrorKind::Unavailable, "the rows have moved"));
                }
                let sample = self.tablets.sample(tablet, split_bytes / SAMPLES_PER_TABLET).await?;
                Ok((found.range.clone(), sample))
            };
            let (tablet, sample) = self.with_tablet((table, Some(id)), row, call).await?;
            sampling.tablet(&tablet, sample);
        }
        Ok(sampling.finish())
    }

    /// Writes the rows of a request that are left, until every one has its result.
    async fn mutate_left(
        &self,
        request: &MutateRows,
        id: TableId,
        mut parts: Vec<Part>,
        results: &mut [ServiceResult<()>],
    ) {
        let mut attempt = 0;
        loop {
            let mut retry = Vec::new();
            let calls = parts.iter().map(|part| {
                trace::note(|facts| facts.visit(part.tablet.0));
                self.tablets
                    .mutate(part.tablet, part.writes.clone(), request.durability)
            });
            let outcomes = futures::future::join_all(calls).await;
            for (part, outcome) in parts.iter().zip(outcomes) {
                match outcome {
                    Err(error) if error.kind == ErrorKind::Unavailable && attempt < ATTEMPTS_MAX => {
                        retry.extend_from_slice(&part.items);
                    }
                    outcome => part.items.iter().for_each(|&i| results[i] = outcome.clone()),
                }
            }
            if retry.is_empty() {
                return;
            }
            retry.sort_unstable();
            attempt += 1;
            self.pause(attempt).await;
            parts = match self.same_table(&request.table, id) {
                Ok(table) => parts_of(&table, &request.rows, &retry),
                Err(error) => {
                    retry.iter().for_each(|&i| results[i] = Err(error.clone()));
                    return;
                }
            };
        }
    }
}

fn disabled(table: &TableName) -> ServiceError {
    ServiceError::new(ErrorKind::FailedPrecondition, format!("table {table} is disabled"))
}

fn several_tablets(table: &TableName) -> ServiceError {
    let message = format!("rows of table {table} that are to be written together are in several tablets");
    ServiceError::new(ErrorKind::FailedPrecondition, message)
}

/// The rows of a request that one tablet holds.
struct Part {
    tablet: TabletId,
    /// Which they are in the request, ascending.
    items: Vec<usize>,
    writes: RowWrites,
}

/// The tablet that holds all rows, if it is one: most requests are for one row or a small table.
fn only_tablet(table: &TableEntry, rows: &RowWrites) -> Option<TabletId> {
    let tablet = table.tablet_of(rows.get(0)?.row);
    rows.iter()
        .all(|row| tablet.range.contains(row.row))
        .then_some(tablet.id)
}

/// The given rows of a request by tablet, each in request order.
fn parts_of(table: &TableEntry, rows: &RowWrites, items: &[usize]) -> Vec<Part> {
    let mut tablets: BTreeMap<TabletId, Vec<usize>> = BTreeMap::new();
    for &i in items {
        if let Some(row) = rows.get(i) {
            tablets.entry(table.tablet_of(row.row).id).or_default().push(i);
        }
    }
    let part = |(tablet, items): (TabletId, Vec<usize>)| Part {
        tablet,
        writes: rows.choose(items.iter().copied()),
        items,
    };
    tablets.into_iter().map(part).collect()
}

#[async_trait]
impl TableService for Router {
    fn version(&self) -> Option<u64> {
        Some(self.shared.catalog.version())
    }

    fn schema(&self, table: &TableName) -> ServiceResult<Arc<TableSchema>> {
        Ok(self.shared.table(table)?.schema.clone())
    }

    async fn read_rows(&self, mut request: ReadRows) -> ServiceResult<Box<dyn RowStream>> {
        let schema = self.shared.addressed(&request.table, request.id)?.schema.clone();
        let filter = request.filter.as_ref().map(|filter| filter.compile_shared(&schema));
        let filter = filter
            .transpose()
            .map_err(|e| ServiceError::new(e.kind(), e.to_string()))?;
        let limit = if request.rows_limit == 0 {
            u64::MAX
        } else {
            request.rows_limit
        };
        let rows = std::mem::replace(&mut request.rows, RowSet::new(Vec::new()));
        let reading = Reading::new(&rows);
        let left = Left::new(rows, request.reversed);
        Ok(Box::new(RoutedRows {
            shared: self.shared.clone(),
            reading,
            table: schema.id,
            request,
            _filter: filter,
            left,
            limit,
            current: None,
            attempt: 0,
        }))
    }

    fn try_read_row(&self, request: &ReadRows) -> ServiceResult<Option<RowBatch>> {
        let Some(row) = request.one_row() else {
            return Ok(None);
        };
        let table = self.shared.addressed(&request.table, request.id)?;
        let tablet = table.tablet_of(row).id;
        let mut reading = reading_of(tablet, "read row");
        match self.shared.tablets.try_read_row(tablet, row, request.filter.as_ref()) {
            // It splits or moves: a caller that can wait repeats the lookup.
            Err(error) if error.kind == ErrorKind::Unavailable => Ok(None),
            done => {
                note_rows(&mut reading, done.as_ref().ok().and_then(Option::as_ref));
                done
            }
        }
    }

    async fn mutate_rows(&self, request: MutateRows) -> ServiceResult<Vec<ServiceResult<()>>> {
        let table = self.shared.writable(&request.table, request.id)?;
        trace::note(|facts| facts.rows += request.rows.len() as u64);
        let watch = self.shared.slow.begin(&self.shared.env);
        let mut results = vec![Ok(()); request.rows.len()];
        let all = 0..request.rows.len();
        let parts = match only_tablet(&table, &request.rows) {
            Some(tablet) => vec![Part {
                tablet,
                items: all.collect(),
                writes: request.rows.clone(),
            }],
            None => parts_of(&table, &request.rows, &all.collect::<Vec<_>>()),
        };
        self.shared
            .mutate_left(&request, table.schema.id, parts, &mut results)
            .await;
        let (call, first) = ((CallKind::Write, &request.table), first_error(&results));
        let times = (watch, &self.shared.env);
        self.shared
            .slow
            .ended(times, call, first, || slow::of_writes(&request.rows));
        Ok(results)
    }

    async fn mutate_rows_together(&self, request: MutateRows) -> ServiceResult<()> {
        let Some(first) = request.rows.get(0).map(|row| row.row) else {
            return Ok(());
        };
        trace::note(|facts| facts.rows += request.rows.len() as u64);
        let (shared, request) = (&self.shared, &request);
        let watch = shared.slow.begin(&shared.env);
        let call = |tablet| async move {
            let table = shared.writable(&request.table, request.id)?;
            match only_tablet(&table, &request.rows) {
                Some(only) if only == tablet => {
                    let rows = request.rows.clone();
                    shared.tablets.mutate(tablet, rows, request.durability).await
                }
                // It was split since the lookup.
                Some(_) => Err(ServiceError::new(ErrorKind::Unavailable, "the rows have moved")),
                None => Err(several_tablets(&request.table)),
            }
        };
        let outcome = shared.with_tablet((&request.table, request.id), first, call).await;
        let (times, call) = ((watch, &shared.env), (CallKind::Write, &request.table));
        shared
            .slow
            .ended(times, call, &outcome, || slow::of_writes(&request.rows));
        outcome
    }

    async fn row_operation(&self, request: RowOperation) -> ServiceResult<RowOutcome> {
        let RowOperation {
            table,
            id,
            row,
            condition,
            steps,
            otherwise,
            durability,
            token,
        } = request;
        let request = TabletRowOperation {
            row: row.clone(),
            condition,
            steps,
            otherwise,
            durability,
            token,
        };
        let id = Some(self.shared.writable(&table, id)?.schema.id);
        trace::note(|facts| facts.rows += 1);
        let watch = self.shared.slow.begin(&self.shared.env);
        let call = |tablet| self.shared.tablets.row_operation(tablet, request.clone());
        let outcome = self.shared.with_tablet((&table, id), &row, call).await;
        let (times, call) = ((watch, &self.shared.env), (CallKind::RowOperation, &table));
        self.shared.slow.ended(times, call, &outcome, || slow::of_row(&row));
        outcome
    }

    async fn rows_operation(&self, request: RowsOperation) -> ServiceResult<bool> {
        let RowsOperation {
            table,
            id,
            conditions,
            rows,
            durability,
        } = request;
        let id = self.shared.writable(&table, id)?.schema.id;
        let request = TabletRowsOperation {
            conditions,
            rows,
            durability,
        };
        let (shared, table, request) = (&self.shared, &table, &request);
        let of_conditions = || request.conditions.iter().map(|(row, _)| row);
        let rows = || of_conditions().chain(request.rows.iter().map(|(row, _)| row));
        let Some(first) = rows().next() else {
            return Ok(true);
        };
        trace::note(|facts| facts.rows += request.rows.len() as u64);
        let rows = &rows;
        let call = |tablet| async move {
            let entry = shared.same_table(table, id)?;
            let found = entry.tablet_of(first);
            if found.id != tablet {
                // It was split since the lookup.
                return Err(ServiceError::new(ErrorKind::Unavailable, "the rows have moved"));
            }
            if !rows().all(|row| found.range.contains(row)) {
                return Err(several_tablets(table));
            }
            shared.tablets.rows_operation(tablet, request.clone()).await
        };
        shared.with_tablet((table, Some(id)), first, call).await
    }

    async fn bulk_load(&self, load: BulkLoad) -> ServiceResult<Loaded> {
        let table = self.shared.writable(&load.table, load.id)?;
        let (tablet, range) = load.tablet;
        let found = table.tablet_of(&range.start);
        if found.id != tablet || found.range != range {
            let message = format!("tablet {tablet} is no longer one of table {}", load.table);
            return Err(ServiceError::new(ErrorKind::Unavailable, message));
        }
        // Not repeated: the sources are used up.
        self.shared.tablets.bulk_load(tablet, load.sources).await
    }

    async fn sample_row_keys(&self, table: &TableName, range: RowRange) -> ServiceResult<Vec<RowSample>> {
        let watch = self.shared.slow.begin(&self.shared.env);
        let sampled = self.shared.sample_tablets(table, range.clone()).await;
        let (times, call) = ((watch, &self.shared.env), (CallKind::Sample, table));
        let of_samples = || slow::of_samples(&range, sampled.as_ref().map_or(0, Vec::len));
        self.shared.slow.ended(times, call, &sampled, of_samples);
        sampled
    }

    fn place_of(&self, table: &TableName, row: &[u8]) -> ServiceResult<TabletPlace> {
        Ok(self.shared.place(self.shared.table(table)?.tablet_of(row)))
    }

    fn places(&self, table: &TableName) -> ServiceResult<Vec<TabletPlace>> {
        let table = self.shared.table(table)?;
        Ok(table.tablets().iter().map(|tablet| self.shared.place(tablet)).collect())
    }

    fn other_servers(&self) -> Vec<Arc<ServerPlace>> {
        let servers = self.shared.servers.as_ref();
        servers.map(|servers| servers.others()).unwrap_or_default()
    }

    async fn tablets(&self, table: &TableName) -> ServiceResult<Vec<TabletInfo>> {
        let entry = self.shared.table(table)?;
        let info = async |tablet: &TabletEntry| {
            let figures = match self.shared.tablets.figures(tablet.id).await {
                Ok(figures) => Some(figures),
                // Its server does not answer in time. The others are told nevertheless.
                Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Busy) => None,
                Err(error) => return Err(error),
            };
            Ok(TabletInfo {
                id: tablet.id,
                range: tablet.range.clone(),
                figures,
            })
        };
        // Most may be on other servers.
        let asked = stream::iter(entry.tablets()).map(info);
        asked.buffered(SAMPLED_AT_ONCE).try_collect().await
    }
}

/// A planted bug: a scan leaves out the rest of a tablet that moves.
fn skip_rest(env: &Env, left: &mut Left, tablet: &RowRange) {
    let is_scan = left.next().is_some_and(|next| next.as_single().is_none());
    if is_scan && env.planted(PlantedBug::SkipRest) {
        left.pass_tablet(tablet);
    }
}

/// Begins the stage of a traced request in which a tablet is read.
fn reading_of(tablet: TabletId, name: &'static str) -> trace::Stage {
    trace::note(|facts| facts.visit(tablet.0));
    let mut reading = trace::stage(name);
    reading.note(|facts| facts.tablet = Some(tablet.0));
    reading
}

/// Adds the rows of a batch to a traced request.
fn note_rows(reading: &mut trace::Stage, batch: Option<&RowBatch>) {
    reading.note(|facts| facts.rows = batch.map(|batch| batch.complete_rows() as u64));
    trace::note(|facts| facts.rows += batch.map_or(0, |batch| batch.complete_rows() as u64));
}

/// The first error of some results.
fn first_error(results: &[ServiceResult<()>]) -> &ServiceResult<()> {
    results.iter().find(|result| result.is_err()).unwrap_or(&Ok(()))
}

/// A read over the tablets of a table, one after the other.
struct RoutedRows {
    shared: Arc<Shared>,
    /// Facts for the log of slow calls.
    reading: Reading,
    table: TableId,
    /// Its rows are in `left`.
    request: ReadRows,
    /// Held for the tablets here: a large filter is compiled once while it is in use.
    _filter: Option<Arc<CompiledFilter>>,
    /// Rows not read yet.
    left: Left,
    /// Rows that may still be returned.
    limit: u64,
    /// The tablet being read: its number, its rows, and its stream.
    current: Option<(TabletId, RowRange, Box<dyn RowStream>)>,
    attempt: u32,
}

#[async_trait]
impl RowStream for RoutedRows {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        self.timed_batch(None).await
    }

    async fn next_within(&mut self, room: &mut dyn BatchReservation) -> ServiceResult<Option<RowBatch>> {
        self.timed_batch(Some(room)).await
    }

    fn blocks_read(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |(_, _, stream)| stream.blocks_read());
        self.reading.blocks_of_tablets + current
    }
}

impl Drop for RoutedRows {
    fn drop(&mut self) {
        if !self.shared.slow.is_slow(self.reading.took) {
            return;
        }
        let blocks = self.blocks_read();
        let call = self
            .reading
            .call(&self.request.table, blocks, self.shared.env.wall_micros());
        self.shared.slow.note(call);
    }
}

impl RoutedRows {
    /// The next batch, with its time and its counts noted.
    async fn timed_batch(&mut self, room: Option<&mut dyn BatchReservation>) -> ServiceResult<Option<RowBatch>> {
        let watch = self.shared.slow.begin(&self.shared.env);
        let outcome = self.next_batch(room).await;
        self.reading.add(watch.elapsed(&self.shared.env), &outcome);
        outcome
    }

    async fn next_batch(&mut self, mut room: Option<&mut dyn BatchReservation>) -> ServiceResult<Option<RowBatch>> {
        loop {
            if self.limit == 0 {
                return Ok(None);
            }
            self.shared.check_enabled(&self.request.table, self.table)?;
            if self.current.is_none() && !self.open().await? {
                return Ok(None);
            }
            let Some((tablet, range, stream)) = &mut self.current else {
                continue;
            };
            let mut reading = reading_of(*tablet, "read rows");
            let next = match &mut room {
                Some(room) => stream.next_within(&mut **room).await,
                None => stream.next().await,
            };
            match next {
                Ok(Some(mut batch)) => {
                    self.attempt = 0;
                    batch.truncate(usize::try_from(self.limit).unwrap_or(usize::MAX));
                    self.limit -= batch.complete_rows() as u64;
                    note_rows(&mut reading, Some(&batch));
                    if let Some(last) = &batch.scanned_through {
                        self.left.pass(last);
                    }
                    return Ok(Some(batch));
                }
                Ok(None) => {
                    self.reading.blocks_of_tablets += stream.blocks_read();
                    self.left.pass_tablet(range);
                    self.current = None;
                }
                Err(error) if error.kind == ErrorKind::Unavailable && self.attempt < ATTEMPTS_MAX => {
                    self.attempt += 1;
                    skip_rest(&self.shared.env, &mut self.left, range);
                    self.current = None;
                    drop(reading);
                    self.shared.pause(self.attempt).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts on the next tablet; whether there is one.
    async fn open(&mut self) -> ServiceResult<bool> {
        let Some(next) = self.left.next() else {
            return Ok(false);
        };
        let table = self.shared.same_table(&self.request.table, self.table)?;
        let tablet = if self.request.reversed {
            table.tablet_before(next.end.as_deref())
        } else {
            table.tablet_of(&next.start)
        };
        let read = TabletRead {
            rows: self.left.within(&tablet.range),
            filter: self.request.filter.clone(),
            reversed: self.request.reversed,
            raw: self.request.raw,
            rows_limit: (self.limit != u64::MAX).then_some(self.limit),
            waits: self.request.waits,
        };
        match self.shared.tablets.read(tablet.id, read).await {
            Ok(stream) => self.current = Some((tablet.id, tablet.range.clone(), stream)),
            Err(error) if error.kind == ErrorKind::Unavailable && self.attempt < ATTEMPTS_MAX => {
                self.attempt += 1;
                skip_rest(&self.shared.env, &mut self.left, &tablet.range);
                self.shared.pause(self.attempt).await;
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
