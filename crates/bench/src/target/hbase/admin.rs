//! Creates, drops and flushes tables, and describes the cluster.

use crate::target::{Compression, TableSpec};
use bytes::Bytes;
use futures::stream::{StreamExt, TryStreamExt};
use stele_hbaseclient::master::{Effect, call, procedure};
use stele_hbaseclient::nonces::unlike_others;
use stele_hbaseclient::socket::Method;
use stele_hbaseclient::{Cluster, Failure};
use stele_wire::exception::{TABLE_NOT_ENABLED, TABLE_NOT_FOUND};
use stele_wire::messages::{
    BytesBytesPair, ClusterOption, ColumnFamilySchema, CreateTableRequest, FlushRegionRequest, GetClusterStatusRequest,
    GetClusterStatusResponse, RegionSpecifier, TableRequest, TableSchema,
};
use stele_wire::region::table_name;

/// Regions flushed side by side.
const FLUSHES: usize = 4;

/// Creates a table, and waits until it is served.
pub async fn create_table(cluster: &Cluster, spec: &TableSpec) -> Result<(), Failure> {
    let request = CreateTableRequest {
        table_schema: schema(spec),
        split_keys: spec.splits.iter().map(|key| Bytes::copy_from_slice(key)).collect(),
        nonce_group: Some(unlike_others()),
        nonce: Some(unlike_others()),
    };
    let effect = request.table_schema.table_name.clone().map(Effect::Enabled);
    procedure(cluster, "CreateTable", &request, effect).await
}

/// Drops a table; none is fine.
pub async fn drop_table(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let table = table_name(&Bytes::copy_from_slice(name.as_bytes()));
    let request = || TableRequest {
        table_name: table.clone(),
        nonce_group: Some(unlike_others()),
        nonce: Some(unlike_others()),
    };
    let disabled = Some(Effect::Disabled(table.clone()));
    match procedure(cluster, "DisableTable", &request(), disabled).await {
        Err(e) if e.is_class(TABLE_NOT_FOUND) => return Ok(()),
        // It had been disabled before.
        Err(e) if !e.is_class(TABLE_NOT_ENABLED) => return Err(e),
        _ => {}
    }
    let dropped = Some(Effect::Dropped(table.clone()));
    match procedure(cluster, "DeleteTable", &request(), dropped).await {
        Err(e) if e.is_class(TABLE_NOT_FOUND) => Ok(()),
        other => other,
    }
}

/// Has every region written to files, and waits for the end.
pub async fn flush_table(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let regions = cluster.regions(name).await?;
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
    cluster
        .retried(|| async {
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
    let id = cluster.retried(|| cluster.cluster_id()).await?;
    let options = [
        ClusterOption::HbaseVersion,
        ClusterOption::Master,
        ClusterOption::BalancerOn,
        ClusterOption::ServersName,
    ];
    let request = GetClusterStatusRequest {
        options: options.map(|option| option as i32).to_vec(),
    };
    let answer: GetClusterStatusResponse = call(cluster, "GetClusterStatus", &request).await?;
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
