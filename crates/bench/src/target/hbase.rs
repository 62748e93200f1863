//! Driver for HBase's native RPC, version 2.6, without ZooKeeper.
//!
//! `hbase://host:port` names any server of the cluster, master or not. Parameters of its own:
//! * `timeout_ms=N`: longest time of each call; 60,000 as in HBase's client when absent.
//!
//! Those of [`super::dial`] make connections under TLS.
//!
//! Like HBase's own client, and unlike most drivers: one socket to each server, shared by all clients of a thread.
//! Requests are written together and responses taken in any order, so that the server limits the figures.
//!
//! `stele_hbaseclient` finds servers and carries calls. Modules here, from the bottom up: [`requests`] and [`rows`]
//! translate. [`connection`], [`scan`] and [`admin`] implement a target's operations.

use super::dial::{self, Dial};
use super::{Connection, Result, TableSpec, Target, TargetError, TargetUrl};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use stele_hbaseclient::{Cluster, Failure, Remedy, Settings, Token};

mod admin;
mod connection;
mod requests;
mod rows;
mod scan;
#[cfg(test)]
mod tests;

/// HBase's `hbase.rpc.timeout`.
const CALL_TIMEOUT_MS: u64 = 60_000;

/// Prefix of the tables that the bench creates and drops. No other table is ever touched.
const TABLE_PREFIX: &str = "bench-";

/// A cluster.
#[derive(Debug)]
struct HbaseTarget {
    name: String,
    /// `host:port` of the server that is contacted first.
    bootstrap: String,
    timeout: Duration,
    dial: Dial,
    token: Option<Token>,
}

/// A target at this address.
///
/// # Errors
/// An unknown parameter.
pub fn open(url: &TargetUrl) -> Result<Arc<dyn Target>> {
    let bad = |why: String| {
        Err(TargetError::Unsupported(format!(
            "target address {:?}: {why}",
            url.text
        )))
    };
    let Some(port) = url.port.filter(|_| !url.host.is_empty()) else {
        return bad("hbase://host:port expected".into());
    };
    if !url.path.is_empty() {
        return bad(format!("there is nothing at {:?}", url.path));
    }
    url.allow_parameters(&[&dial::PARAMETERS[..], &["timeout_ms"]].concat())?;
    let timeout = Duration::from_millis(url.number("timeout_ms", 1..=u64::from(u32::MAX), CALL_TIMEOUT_MS)?);
    let bootstrap = format!("{}:{port}", url.host);
    Ok(Arc::new(HbaseTarget {
        name: url.name_or("hbase")?,
        bootstrap,
        timeout,
        dial: dial::dial(url, b"")?,
        token: dial::token(url)?.map(Token::new),
    }))
}

impl HbaseTarget {
    fn cluster(&self) -> Cluster {
        let settings = Settings {
            timeout: self.timeout,
            user: "stele-bench",
            dial: self.dial.clone(),
            token: self.token.clone(),
            ..Settings::default()
        };
        Cluster::new(vec![self.bootstrap.clone()], settings)
    }
}

impl From<Failure> for TargetError {
    fn from(failure: Failure) -> Self {
        let text = failure.to_string();
        match &failure {
            Failure::Lost(_) => Self::Connection(text),
            Failure::Timeout(ms) => Self::Timeout(*ms),
            Failure::Unassigned(_) => Self::Busy(text),
            Failure::NoTable(_) => Self::Refused(text),
            Failure::Protocol(_) => Self::Protocol(text),
            Failure::Exception { .. } if failure.remedy() == Remedy::GiveUp => Self::Refused(text),
            Failure::Exception { .. } => Self::Busy(text),
        }
    }
}

fn ours(table: &str) -> Result<()> {
    if table.starts_with(TABLE_PREFIX) {
        return Ok(());
    }
    Err(TargetError::Unsupported(format!(
        "table {table:?}: only tables named {TABLE_PREFIX}… are made and dropped"
    )))
}

#[async_trait]
impl Target for HbaseTarget {
    fn name(&self) -> &str {
        &self.name
    }

    async fn create_table(&self, table: &TableSpec) -> Result<()> {
        ours(&table.name)?;
        Ok(admin::create_table(&self.cluster(), table).await?)
    }

    async fn drop_table(&self, name: &str) -> Result<()> {
        ours(name)?;
        Ok(admin::drop_table(&self.cluster(), name).await?)
    }

    async fn flush_table(&self, name: &str) -> Result<()> {
        Ok(admin::flush_table(&self.cluster(), name).await?)
    }

    async fn connect(&self) -> Result<Arc<dyn Connection>> {
        let cluster = Arc::new(self.cluster());
        // Fails immediately if there is no such server.
        cluster.cluster_id().await?;
        Ok(Arc::new(connection::Connection::new(cluster)))
    }

    async fn describe(&self) -> Result<Vec<(String, String)>> {
        Ok(admin::describe(&self.cluster()).await?)
    }
}
