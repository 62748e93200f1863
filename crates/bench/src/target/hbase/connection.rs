//! Calls on single rows, with the lookups and retries of HBase's client.
//!
//! Nearly every call finds the region known and its socket alive. That path allocates only the request's own parts. All
//! other work is behind a boxed future, so that the usual one stays small.

use super::rows::RowReader;
use super::{requests, scan};
use crate::target::{self, Columns, Put, Result, Row, Scan, TargetError};
use async_trait::async_trait;
use bytes::Bytes;
use prost::Message;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_hbaseclient::locations::Region;
use stele_hbaseclient::nonces::unlike_others;
use stele_hbaseclient::socket::{Method, Socket};
use stele_hbaseclient::{Cluster, Failure, batch};
use stele_wire::frame::Response;
use stele_wire::messages::{
    Condition, GetRequest, GetResponse, MutateRequest, MutateResponse, MutationProto, RegionSpecifier, RowResult,
    decode,
};

const GET: Method = Method::named("Get");
const MUTATE: Method = Method::named("Mutate");

/// The sockets of one thread.
pub struct Connection {
    cluster: Arc<Cluster>,
    /// Names this connection to servers, for its nonces.
    nonce_group: u64,
    nonce: AtomicU64,
}

impl Connection {
    /// Over these servers.
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self {
            cluster,
            nonce_group: unlike_others(),
            nonce: AtomicU64::new(1),
        }
    }

    /// Calls `method` on the region of a row, until it succeeds or retries end.
    async fn call<M: Message>(
        &self,
        table: &str,
        key: &[u8],
        method: Method,
        request: impl Fn(RegionSpecifier) -> M + Send + Sync,
    ) -> Result<Response> {
        let (failure, region) = match self.cluster.at_hand(table, key) {
            Some((region, socket)) => match once(&region, &socket, method, &request).await {
                Ok(response) => return Ok(response),
                Err(failure) => (Some(failure), Some(region)),
            },
            None => (None, None),
        };
        Ok(Box::pin(self.retry(table, key, method, &request, failure, region)).await?)
    }

    /// Continues after a first failure, or without a cached region or socket.
    async fn retry<M: Message>(
        &self,
        table: &str,
        key: &[u8],
        method: Method,
        request: &(impl Fn(RegionSpecifier) -> M + Send + Sync),
        mut failure: Option<Failure>,
        mut region: Option<Arc<Region>>,
    ) -> std::result::Result<Response, Failure> {
        let mut back_off = self.cluster.new_back_off();
        loop {
            if let Some(failed) = failure.take() {
                if let Some(region) = region.take().filter(|_| failed.forgets()) {
                    self.cluster.forget(table, &region);
                }
                self.cluster.back_off(&mut back_off, failed).await?;
            }
            let attempt = async {
                let at = region.insert(self.cluster.locate(table, key).await?).clone();
                once(&at, &*at.server.socket().await?, method, request).await
            };
            match attempt.await {
                Ok(response) => return Ok(response),
                Err(failed) => failure = Some(failed),
            }
        }
    }

    async fn mutate(
        &self,
        table: &str,
        key: &[u8],
        mutation: impl Fn() -> MutationProto + Send + Sync,
        condition: Option<Condition>,
    ) -> Result<(MutateResponse, Bytes)> {
        let request = |region| {
            let mutation = mutation();
            let nonce_group = mutation.nonce.map(|_| self.nonce_group);
            MutateRequest {
                region,
                mutation,
                condition: condition.clone(),
                nonce_group,
            }
        };
        let response = self.call(table, key, MUTATE, request).await?;
        let answer = decode("MutateResponse", response.message).map_err(Failure::from)?;
        Ok((answer, response.cells))
    }
}

async fn once<M: Message>(
    region: &Region,
    socket: &Socket,
    method: Method,
    request: &(impl Fn(RegionSpecifier) -> M + Send + Sync),
) -> std::result::Result<Response, Failure> {
    let call = socket.call(method, &request(RegionSpecifier::named(region.name.clone())), &())?;
    call.await
}

/// The row of a result.
fn row(result: Option<RowResult>, cells: Bytes) -> Result<Option<Row>> {
    let count = result.and_then(|r| r.associated_cell_count).unwrap_or_default();
    let count = usize::try_from(count).map_err(|_| Failure::Protocol(format!("a result of {count} cells")))?;
    let mut reader = RowReader::new(cells);
    let row = reader.row(count)?;
    reader.finish()?;
    Ok(row)
}

#[async_trait]
impl target::Connection for Connection {
    async fn put(&self, table: &str, put: Put) -> Result<()> {
        self.mutate(table, &put.key, || requests::put(&put), None)
            .await
            .map(|_| ())
    }

    async fn put_many(&self, table: &str, puts: Vec<Put>) -> Result<()> {
        Ok(batch::write(&self.cluster, table, &puts).await?)
    }

    async fn get(&self, table: &str, key: Bytes, columns: &Columns) -> Result<Option<Row>> {
        let request = |region| GetRequest {
            region,
            get: requests::get(key.clone(), columns),
        };
        let response = self.call(table, &key, GET, request).await?;
        let answer: GetResponse = decode("GetResponse", response.message).map_err(Failure::from)?;
        row(answer.result, response.cells)
    }

    async fn scan(
        &self,
        table: &str,
        scan: &Scan,
        sink: &mut (dyn for<'r> FnMut(&'r Row) -> ControlFlow<()> + Send),
    ) -> Result<()> {
        Ok(scan::run(&self.cluster, table, scan, sink).await?)
    }

    async fn increment(&self, table: &str, key: Bytes, family: &str, qualifier: Bytes, by: i64) -> Result<i64> {
        let nonce = self.nonce.fetch_add(1, Ordering::Relaxed);
        let mutation = || requests::increment(key.clone(), family, qualifier.clone(), by, nonce);
        let (answer, cells) = self.mutate(table, &key, mutation, None).await?;
        let row = row(answer.result, cells)?;
        let cell = row.as_ref().and_then(|row| row.cells.first());
        let cell = cell.ok_or_else(|| TargetError::Protocol("an increment without a new value".into()))?;
        requests::counter(&cell.value)
    }

    async fn check_and_put(
        &self,
        table: &str,
        family: &str,
        qualifier: Bytes,
        expected: Option<Bytes>,
        put: Put,
    ) -> Result<bool> {
        let condition = requests::condition(put.key.clone(), family, qualifier, expected);
        let (answer, _) = self
            .mutate(table, &put.key, || requests::put(&put), Some(condition))
            .await?;
        answer
            .processed
            .ok_or_else(|| TargetError::Protocol("a condition without a verdict".into()))
    }

    async fn delete(&self, table: &str, key: Bytes, family: Option<&str>, qualifiers: &[Bytes]) -> Result<()> {
        let mutation = || requests::delete(key.clone(), family, qualifiers);
        self.mutate(table, &key, mutation, None).await.map(|_| ())
    }

    fn retries(&self) -> u64 {
        self.cluster.retries()
    }
}
