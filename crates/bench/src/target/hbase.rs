//! Driver for HBase's native RPC, version 2.6, without ZooKeeper.
//!
//! `hbase://host:port` names any server of the cluster, master or not. Parameters of its own:
//! * `timeout_ms=N`: longest time of each call; 60,000 as in HBase's client when absent.
//! * those of TLS ([`super::dial`]).
//!
//! Like HBase's own client, and unlike most drivers: one socket to each server, shared by all clients of a thread.
//! Requests are written together and responses taken in any order, so that the server limits the figures.
//!
//! Modules, from the bottom up: [`failure`] decides about retries. [`slots`] and [`socket`] carry calls. [`servers`],
//! [`locations`] and [`cluster`] find servers. [`requests`] and [`rows`] translate. [`connection`], [`batch`], [`scan`]
//! and [`admin`] implement a target's operations.

use super::dial::Dial;
use super::{Connection, Result, TableSpec, Target, TargetError, TargetUrl};
use async_trait::async_trait;
use cluster::Cluster;
use socket::SocketOptions;
use std::sync::Arc;
use std::time::Duration;

mod admin;
mod batch;
mod cluster;
mod connection;
mod failure;
mod locations;
mod requests;
mod rows;
mod scan;
mod servers;
mod slots;
mod socket;
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
    options: SocketOptions,
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
    url.allow_parameters(&[&Dial::PARAMETERS[..], &["timeout_ms"]].concat())?;
    let timeout = Duration::from_millis(url.number("timeout_ms", 1..=u64::from(u32::MAX), CALL_TIMEOUT_MS)?);
    let bootstrap = format!("{}:{port}", url.host);
    Ok(Arc::new(HbaseTarget {
        name: url.name_or("hbase")?,
        bootstrap,
        options: SocketOptions {
            timeout,
            dial: Dial::of(url, &[])?,
        },
    }))
}

impl HbaseTarget {
    fn cluster(&self) -> Cluster {
        Cluster::new(self.bootstrap.clone(), self.options.clone())
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
