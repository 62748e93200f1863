//! Creates, drops and flushes tables, and describes the cluster.
//!
//! The master's response to a long call is the number of a procedure, which is polled until it has ended.

use super::cluster::Cluster;
use super::failure::{BackOff, Failure};
use super::requests::unlike_others;
use super::socket::Method;
use crate::target::{Compression, TableSpec};
use bytes::Bytes;
use futures::stream::{StreamExt, TryStreamExt};
use prost::Message;
use std::time::{Duration, Instant};
use stele_wire::exception::{TABLE_NOT_ENABLED, TABLE_NOT_FOUND};
use stele_wire::messages::{
    BytesBytesPair, ClusterOption, ColumnFamilySchema, CreateTableRequest, FlushRegionRequest, GetClusterStatusRequest,
    GetClusterStatusResponse, GetProcedureResultRequest, GetProcedureResultResponse, ProcedureResponse, ProcedureState,
    RegionSpecifier, TableRequest, TableSchema, decode,
};
use stele_wire::region::table_name;

/// Longest time of a procedure: thousands of regions to open, or a slow disk.
const PROCEDURE_TIMEOUT: Duration = Duration::from_secs(600);

/// Pauses between questions for a procedure.
const POLL: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(1);

/// Regions flushed side by side.
const FLUSHES: usize = 4;

/// Most regions of one table, so that a damaged `hbase:meta` cannot cause an endless loop.
const REGIONS_MAX: usize = 100_000;

/// Creates a table, and waits until it is served.
pub async fn create_table(cluster: &Cluster, spec: &TableSpec) -> Result<(), Failure> {
    let request = CreateTableRequest {
        table_schema: schema(spec),
        split_keys: spec.splits.iter().map(|key| Bytes::copy_from_slice(key)).collect(),
        nonce_group: Some(unlike_others()),
        nonce: Some(unlike_others()),
    };
    procedure(cluster, "CreateTable", &request).await
}

/// Drops a table; none is fine.
pub async fn drop_table(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let request = || TableRequest {
        table_name: table_name(&Bytes::copy_from_slice(name.as_bytes())),
        nonce_group: Some(unlike_others()),
        nonce: Some(unlike_others()),
    };
    match procedure(cluster, "DisableTable", &request()).await {
        Err(e) if e.is_class(TABLE_NOT_FOUND) => return Ok(()),
        // It had been disabled before.
        Err(e) if !e.is_class(TABLE_NOT_ENABLED) => return Err(e),
        _ => {}
    }
    match procedure(cluster, "DeleteTable", &request()).await {
        Err(e) if e.is_class(TABLE_NOT_FOUND) => Ok(()),
        other => other,
    }
}

/// Has every region written to files, and waits for the end.
pub async fn flush_table(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let mut regions = Vec::new();
    let mut start = Bytes::new();
    loop {
        let region = retried(cluster, || cluster.locate(name, &start)).await?;
        start = region.end.clone();
        regions.push(region);
        if start.is_empty() {
            break;
        }
        if regions.len() > REGIONS_MAX {
            return Err(Failure::Protocol(format!(
                "table {name:?} has more than {REGIONS_MAX} regions"
            )));
        }
    }
    let flushes = regions
        .into_iter()
        .map(|region| flush_region(cluster, name, region.start.clone()));
    futures::stream::iter(flushes)
        .buffer_unordered(FLUSHES)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

async fn flush_region(cluster: &Cluster, table: &str, start: Bytes) -> Result<(), Failure> {
    retried(cluster, || async {
        let region = cluster.locate(table, &start).await?;
        let server = cluster.admin(&region);
        let request = FlushRegionRequest {
            region: RegionSpecifier::named(region.name.clone()),
            if_older_than_ts: None,
            write_flush_wal_marker: None,
            family: None,
        };
        let flush = async {
            server
                .socket()
                .await?
                .call(Method::named("FlushRegion"), &request, &())?
                .await
        };
        flush.await.inspect_err(|_| cluster.forget(table, &region)).map(|_| ())
    })
    .await
}

/// Version, id and servers.
pub async fn describe(cluster: &Cluster) -> Result<Vec<(String, String)>, Failure> {
    let id = retried(cluster, || cluster.cluster_id()).await?;
    let options = [
        ClusterOption::HbaseVersion,
        ClusterOption::Master,
        ClusterOption::BalancerOn,
        ClusterOption::ServersName,
    ];
    let request = GetClusterStatusRequest {
        options: options.map(|option| option as i32).to_vec(),
    };
    let answer: GetClusterStatusResponse = master_call(cluster, "GetClusterStatus", &request).await?;
    let status = answer.cluster_status;
    let server = |s: &stele_wire::messages::ServerName| format!("{}:{}", s.host_name, s.port());
    let mut facts = vec![("cluster id".to_owned(), id)];
    facts.extend(status.hbase_version.map(|version| ("version".to_owned(), version.text)));
    facts.extend(status.master.map(|master| ("master".to_owned(), server(&master))));
    let servers: Vec<String> = status.servers_name.iter().map(server).collect();
    facts.push(("region servers".to_owned(), servers.join(" ")));
    facts.extend(
        status
            .balancer_on
            .map(|on| ("balancer".to_owned(), if on { "on" } else { "off" }.to_owned())),
    );
    Ok(facts)
}

fn schema(spec: &TableSpec) -> TableSchema {
    let name = table_name(&Bytes::copy_from_slice(spec.name.as_bytes()));
    let families = spec.families.iter().map(|family| ColumnFamilySchema {
        name: Bytes::copy_from_slice(family.as_bytes()),
        attributes: attributes(spec),
        configuration: Vec::new(),
    });
    TableSchema {
        table_name: Some(name),
        column_families: families.collect(),
        ..TableSchema::default()
    }
}

/// Attributes of each family. The server has defaults for the others.
fn attributes(spec: &TableSpec) -> Vec<BytesBytesPair> {
    let mut all = vec![
        ("VERSIONS", spec.max_versions.max(1).to_string()),
        ("BLOOMFILTER", "ROW".to_owned()),
        ("IN_MEMORY", spec.in_memory.to_string()),
    ];
    match spec.compression {
        Compression::ServerDefault => {}
        Compression::None => all.push(("COMPRESSION", "NONE".to_owned())),
        Compression::Snappy => all.push(("COMPRESSION", "SNAPPY".to_owned())),
    }
    all.extend(spec.block_bytes.map(|bytes| ("BLOCKSIZE", bytes.to_string())));
    let pair = |(name, value): (&'static str, String)| BytesBytesPair {
        first: Bytes::from_static(name.as_bytes()),
        second: value.into(),
    };
    all.into_iter().map(pair).collect()
}

/// Calls the master, and waits for the procedure in its response.
async fn procedure(cluster: &Cluster, method: &'static str, request: &impl Message) -> Result<(), Failure> {
    let answer: ProcedureResponse = master_call(cluster, method, request).await?;
    let Some(proc_id) = answer.proc_id else { return Ok(()) };
    let began = Instant::now();
    let mut pause = POLL;
    loop {
        let request = GetProcedureResultRequest { proc_id };
        let answer: GetProcedureResultResponse = master_call(cluster, "getProcedureResult", &request).await?;
        match answer.state() {
            ProcedureState::Finished => return finished(answer),
            ProcedureState::NotFound => return Err(Failure::Protocol(format!("{method}: its procedure is not known"))),
            ProcedureState::Running => {}
        }
        if began.elapsed() > PROCEDURE_TIMEOUT {
            return Err(Failure::Timeout(PROCEDURE_TIMEOUT.as_millis() as u64));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_MAX);
    }
}

fn finished(answer: GetProcedureResultResponse) -> Result<(), Failure> {
    let Some(e) = answer.exception.and_then(|e| e.generic_exception) else {
        return Ok(());
    };
    let class = e.class_name.unwrap_or_default();
    let text = e.message.unwrap_or_default();
    // A failed procedure stays failed.
    Err(Failure::Exception {
        class,
        text,
        do_not_retry: true,
    })
}

/// Calls the active master, with retries while a master is coming up.
async fn master_call<M: Message + Default>(
    cluster: &Cluster,
    method: &'static str,
    request: &impl Message,
) -> Result<M, Failure> {
    let answer = retried(cluster, || async {
        let master = cluster.master().await?;
        master.socket().await?.call(Method::named(method), request, &())?.await
    });
    Ok(decode(method, answer.await?.message)?)
}

async fn retried<T, F>(cluster: &Cluster, attempt: impl Fn() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut back_off = BackOff::default();
    loop {
        match attempt().await {
            Err(failure) => cluster.back_off(&mut back_off, failure).await?,
            done => return done,
        }
    }
}
