//! The calls of one generator thread, over its sockets in turn, with retries.

use super::assembly::Assembler;
use super::http2::{Channel, Failure, Method, headers};
use super::requests::{self, Place};
use super::retry::{Safety, Trouble, pause};
use super::{Settings, bulk, error};
use crate::target::{Columns, Connection, Put, Result, Row, Scan, TargetError};
use async_trait::async_trait;
use bytes::Bytes;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    CheckAndMutateRowResponse, MutateRowResponse, ReadModifyWriteRowResponse, ReadRowsRequest, ReadRowsResponse,
};
use parking_lot::RwLock;
use prost::Message;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use tonic::codegen::http::HeaderMap;

/// Most tables whose names and headers are cached. A suite has a few.
const PLACES_MAX: usize = 1024;

type Sink<'s> = &'s mut (dyn for<'r> FnMut(&'r Row) -> ControlFlow<()> + Send);

/// The sockets of one generator thread.
pub(super) struct BigtableConnection {
    settings: Arc<Settings>,
    /// At least one.
    channels: Vec<Channel>,
    /// Calls so far. The remainder selects the next channel.
    next: AtomicUsize,
    retries: AtomicU64,
    /// By table name, made on first use.
    places: RwLock<HashMap<String, Arc<TablePlace>>>,
}

/// State common to all calls on a table.
pub(super) struct TablePlace {
    pub(super) place: Place,
    pub(super) headers: HeaderMap,
}

/// The attempts of one operation.
pub(super) struct Attempts<'c> {
    connection: &'c BigtableConnection,
    safety: Safety,
    count: u32,
    started: Instant,
}

impl Attempts<'_> {
    /// Waits until the operation may be tried again.
    ///
    /// # Errors
    /// The failure, if the operation must not be tried again.
    pub(super) async fn after(&mut self, failure: Failure) -> Result<()> {
        if self.may_pass(Trouble::of(&failure)).await {
            Ok(())
        } else {
            Err(error(failure))
        }
    }

    /// As [`Self::after`], for a part of an operation.
    pub(super) async fn may_pass(&mut self, trouble: Trouble) -> bool {
        self.count += 1;
        let before = self.connection.retries.load(Ordering::Relaxed);
        let random = (before as u32).wrapping_mul(0x9e37_79b1).wrapping_add(self.count << 16);
        let next = pause(self.count, self.started.elapsed(), random);
        let Some(pause) = next.filter(|_| trouble.may_pass(self.safety)) else {
            return false;
        };
        self.connection.retries.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(pause).await;
        true
    }
}

impl BigtableConnection {
    /// Sockets are opened by the first calls, or by [`Self::dial`].
    pub(super) fn new(settings: Arc<Settings>, channels: usize) -> Self {
        let channels = (0..channels.max(1)).map(|number| Channel::new(Arc::clone(&settings.origins), number));
        Self {
            channels: channels.collect(),
            settings,
            next: AtomicUsize::new(0),
            retries: AtomicU64::new(0),
            places: RwLock::default(),
        }
    }

    /// Opens all sockets.
    pub(super) async fn dial(&self) -> std::result::Result<(), Failure> {
        for channel in &self.channels {
            channel.dial().await?;
        }
        Ok(())
    }

    /// Number of calls that can be in progress on sockets of their own.
    pub(super) fn width(&self) -> usize {
        self.channels.len()
    }

    pub(super) fn channel(&self) -> &Channel {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        &self.channels[next % self.channels.len()]
    }

    pub(super) fn attempts(&self, safety: Safety) -> Attempts<'_> {
        Attempts {
            connection: self,
            safety,
            count: 0,
            started: Instant::now(),
        }
    }

    /// A call whose response is one message, sent again when that may help.
    pub(super) async fn unary<A: Message + Default>(
        &self,
        method: Method,
        headers: &HeaderMap,
        request: &impl Message,
        safety: Safety,
    ) -> std::result::Result<A, Failure> {
        let mut attempts = self.attempts(safety);
        loop {
            let failure = match self.channel().unary(method, headers, request).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if !attempts.may_pass(Trouble::of(&failure)).await {
                return Err(failure);
            }
        }
    }

    pub(super) fn place(&self, table: &str) -> Result<Arc<TablePlace>> {
        if let Some(place) = self.places.read().get(table) {
            return Ok(place.clone());
        }
        let Settings {
            instance, app_profile, ..
        } = &*self.settings;
        let full = format!("{instance}/tables/{table}");
        let routing = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("table_name", &full)
            .append_pair("app_profile_id", app_profile)
            .finish();
        let headers = headers(&self.settings.features, self.settings.authorization.as_ref(), &routing)
            .map_err(|e| TargetError::Refused(format!("table {table:?} in a header: {e}")))?;
        let place = Place {
            table: full,
            app_profile: app_profile.clone(),
        };
        let place = Arc::new(TablePlace { place, headers });
        let mut places = self.places.write();
        if places.len() >= PLACES_MAX {
            places.clear();
        }
        places.insert(table.to_owned(), place.clone());
        Ok(place)
    }

    /// Passes the rows of one ReadRows call to `sink`, until it breaks.
    async fn read(
        &self,
        request: &ReadRowsRequest,
        headers: &HeaderMap,
        assembler: &mut Assembler,
        sink: &mut (dyn FnMut(&mut Assembler) -> ControlFlow<()> + Send),
    ) -> std::result::Result<(), Failure> {
        let mut answer = self.channel().stream(Method::ReadRows, headers, request).await?;
        while let Some(message) = answer.next_message::<ReadRowsResponse>().await? {
            for chunk in message.chunks {
                if assembler.push(chunk).map_err(Failure::Protocol)? && sink(assembler).is_break() {
                    return Ok(());
                }
            }
            if !message.last_scanned_row_key.is_empty() {
                assembler
                    .scanned(message.last_scanned_row_key)
                    .map_err(Failure::Protocol)?;
            }
        }
        assembler.end().map_err(Failure::Protocol)
    }
}

#[async_trait]
impl Connection for BigtableConnection {
    async fn put(&self, table: &str, put: Put) -> Result<()> {
        let table = self.place(table)?;
        let request = requests::mutate_row(&table.place, put);
        let done = self.unary::<MutateRowResponse>(Method::MutateRow, &table.headers, &request, Safety::Put);
        done.await.map(drop).map_err(error)
    }

    async fn put_many(&self, table: &str, puts: Vec<Put>) -> Result<()> {
        let table = self.place(table)?;
        bulk::put_many(self, &table, puts).await
    }

    async fn get(&self, table: &str, key: Bytes, columns: &Columns) -> Result<Option<Row>> {
        let table = self.place(table)?;
        let request = requests::read_row(&table.place, key, columns);
        let mut attempts = self.attempts(Safety::Read);
        loop {
            let mut found = None;
            let mut sink = |assembler: &mut Assembler| {
                found = Some(assembler.take_row());
                ControlFlow::Continue(())
            };
            let mut assembler = Assembler::default();
            match self.read(&request, &table.headers, &mut assembler, &mut sink).await {
                Ok(()) => return Ok(found),
                Err(failure) => attempts.after(failure).await?,
            }
        }
    }

    async fn scan(&self, table: &str, scan: &Scan, sink: Sink<'_>) -> Result<()> {
        let table = self.place(table)?;
        let mut left = scan.limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let mut assembler = Assembler::default();
        let mut attempts = self.attempts(Safety::Read);
        // Zero would stand for no limit.
        while left != Some(0) {
            let before = assembler.last_key().clone();
            let request = requests::read_range(&table.place, scan, &before, left.unwrap_or(0));
            let mut counting = |assembler: &mut Assembler| {
                left = left.map(|left| (left - 1).max(0));
                sink(assembler.row())
            };
            match self.read(&request, &table.headers, &mut assembler, &mut counting).await {
                Ok(()) => return Ok(()),
                Err(failure) => {
                    if *assembler.last_key() != before {
                        attempts = self.attempts(Safety::Read);
                    }
                    if left != Some(0) {
                        attempts.after(failure).await?;
                    }
                    assembler.resume();
                }
            }
        }
        Ok(())
    }

    async fn increment(&self, table: &str, key: Bytes, family: &str, qualifier: Bytes, by: i64) -> Result<i64> {
        let table = self.place(table)?;
        let request = requests::increment(&table.place, key, family, qualifier, by);
        let method = Method::ReadModifyWriteRow;
        let answer = self.unary::<ReadModifyWriteRowResponse>(method, &table.headers, &request, Safety::Once);
        let answer = answer.await.map_err(error)?;
        let families = answer.row.iter().flat_map(|row| &row.families);
        let mut cells = families
            .flat_map(|family| &family.columns)
            .flat_map(|column| &column.cells);
        let counter = cells.next().and_then(|cell| cell.value.as_ref().try_into().ok());
        match (counter, cells.next()) {
            (Some(counter), None) => Ok(i64::from_be_bytes(counter)),
            _ => Err(TargetError::Protocol(
                "ReadModifyWriteRow: expected one cell of 8 bytes".into(),
            )),
        }
    }

    async fn check_and_put(
        &self,
        table: &str,
        family: &str,
        qualifier: Bytes,
        expected: Option<Bytes>,
        put: Put,
    ) -> Result<bool> {
        let table = self.place(table)?;
        let request = requests::check_and_put(&table.place, family, &qualifier, expected.as_ref(), put);
        let method = Method::CheckAndMutateRow;
        let answer = self.unary::<CheckAndMutateRowResponse>(method, &table.headers, &request, Safety::Once);
        let matched = answer.await.map_err(error)?.predicate_matched;
        // Without an expected value the predicate tests for any value, and the write is on the other side.
        Ok(matched == expected.is_some())
    }

    async fn delete(&self, table: &str, key: Bytes, family: Option<&str>, qualifiers: &[Bytes]) -> Result<()> {
        let table = self.place(table)?;
        let request = requests::delete(&table.place, key, family, qualifiers);
        let done = self.unary::<MutateRowResponse>(Method::MutateRow, &table.headers, &request, Safety::Put);
        done.await.map(drop).map_err(error)
    }

    fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
