//! Finds servers, by the registry that any server offers, and by `hbase:meta`.
//!
//! No ZooKeeper: `ClientMetaService` of one known server names the server of `hbase:meta` and the master. A row of
//! `hbase:meta`, read backwards from the wanted key, names the server of a region. Locations are cached until a server
//! contradicts them.

use super::failure::{BackOff, Failure};
use super::locations::{Locations, Region};
use super::rows::RowReader;
use super::servers::{Server, Servers};
use super::socket::{Method, Socket, SocketOptions};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use stele_wire::messages::{
    ADMIN_SERVICE, CLIENT_META_SERVICE, CLIENT_SERVICE, Column, Empty, GetActiveMasterResponse, GetClusterIdResponse,
    GetMetaRegionLocationsResponse, MASTER_SERVICE, ReadType, RegionSpecifier, Scan, ScanRequest, ScanResponse,
    ServerName, decode,
};
use stele_wire::meta::{self, INFO_FAMILY, MetaRow};
use stele_wire::region::{META_REGION, META_TABLE};

/// Priority of reads of `hbase:meta`: they have a queue of their own in the server.
const META_PRIORITY: u32 = 200;

/// Servers besides the first one that are tried when that does not respond.
const OTHER_REGISTRIES_MAX: usize = 8;

/// A connection's knowledge of the cluster.
#[derive(Debug)]
pub struct Cluster {
    bootstrap: String,
    servers: Servers,
    locations: Mutex<Locations>,
    /// Held while `hbase:meta` is read: all clients of a thread miss the same region at the same time.
    looking_up: tokio::sync::Mutex<()>,
    retries: AtomicU64,
}

impl Cluster {
    /// Known by one server's address. Opens no socket.
    pub fn new(bootstrap: String, options: SocketOptions) -> Self {
        Self {
            bootstrap,
            servers: Servers::new(options),
            locations: Mutex::default(),
            looking_up: tokio::sync::Mutex::default(),
            retries: AtomicU64::new(0),
        }
    }

    /// Requests sent again so far.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Waits before a call is repeated.
    ///
    /// # Errors
    /// The failure itself, if the call must not be repeated.
    pub async fn back_off(&self, back_off: &mut BackOff, failure: Failure) -> Result<(), Failure> {
        let Some(pause) = back_off.after(&failure, Instant::now()) else {
            return Err(failure);
        };
        self.retries.fetch_add(1, Ordering::Relaxed);
        if pause.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// The cluster's id.
    ///
    /// # Errors
    /// No server that responds.
    pub async fn cluster_id(&self) -> Result<String, Failure> {
        let answer: GetClusterIdResponse = self.registry("GetClusterId").await?;
        answer
            .cluster_id
            .ok_or_else(|| Failure::Protocol("GetClusterId: no id".into()))
    }

    /// The master's service.
    ///
    /// # Errors
    /// No server that responds, or no master.
    pub async fn master(&self) -> Result<Arc<Server>, Failure> {
        let answer: GetActiveMasterResponse = self.registry("GetActiveMaster").await?;
        let master = answer
            .server_name
            .ok_or_else(|| Failure::Unassigned("there is no active master".into()))?;
        Ok(self.servers.get(&address(&master)?, MASTER_SERVICE))
    }

    /// The service of a region's server that flushes.
    pub fn admin(&self, region: &Region) -> Arc<Server> {
        self.servers.get(region.server.address(), ADMIN_SERVICE)
    }

    /// Queries the registry of the first server, and if that does not respond, of other known servers.
    async fn registry<M: prost::Message + Default>(&self, method: &'static str) -> Result<M, Failure> {
        let first = self.registry_at(&self.bootstrap, method).await;
        let Err(failure) = first else { return first };
        for address in self.servers.addresses(CLIENT_SERVICE, OTHER_REGISTRIES_MAX) {
            if let Ok(answer) = self.registry_at(&address, method).await {
                return Ok(answer);
            }
        }
        Err(failure)
    }

    async fn registry_at<M: prost::Message + Default>(
        &self,
        address: &str,
        method: &'static str,
    ) -> Result<M, Failure> {
        let socket = self.servers.get(address, CLIENT_META_SERVICE).socket().await?;
        let answer = socket.call(Method::named(method), &Empty {}, &())?.await?;
        Ok(decode(method, answer.message)?)
    }

    /// The region of a row and the socket to its server, if both are cached.
    pub fn at_hand(&self, table: &str, row: &[u8]) -> Option<(Arc<Region>, Arc<Socket>)> {
        let region = self.known(table, row)?;
        let socket = region.server.live()?;
        Some((region, socket))
    }

    /// The region of a row, if it is known.
    pub fn known(&self, table: &str, row: &[u8]) -> Option<Arc<Region>> {
        self.locations.lock().find(table, row).cloned()
    }

    /// The region of a row, looked up if it is not known.
    ///
    /// # Errors
    /// A table that does not exist, a region without a server at the moment, or a server that does not respond.
    pub async fn locate(&self, table: &str, row: &[u8]) -> Result<Arc<Region>, Failure> {
        if let Some(region) = self.known(table, row) {
            return Ok(region);
        }
        let _looking_up = self.looking_up.lock().await;
        if let Some(region) = self.known(table, row) {
            return Ok(region);
        }
        let region = Arc::new(self.look_up(table, row).await?);
        self.locations.lock().insert(table, region.clone());
        Ok(region)
    }

    /// Drops the location of a region.
    pub fn forget(&self, table: &str, region: &Arc<Region>) {
        self.locations.lock().remove(table, region);
    }

    async fn look_up(&self, table: &str, row: &[u8]) -> Result<Region, Failure> {
        let meta = self.meta_region().await?;
        let looked_up = self.read_meta(&meta, table, row).await;
        if looked_up
            .as_ref()
            .is_err_and(|e| !matches!(e, Failure::NoTable(_) | Failure::Unassigned(_)))
        {
            self.forget(META_TABLE, &meta);
        }
        let found = looked_up?;
        let nowhere = |why: &str| Failure::Unassigned(format!("{}: {why}", found.name.escape_ascii()));
        if found.region.offline() || found.region.split() {
            return Err(nowhere("the region is off line or has been split"));
        }
        let server = found
            .server
            .as_ref()
            .ok_or_else(|| nowhere("the region has no server"))?;
        let region = Region {
            name: found.name.clone(),
            start: found.region.start_key.clone().unwrap_or_default(),
            end: found.region.end_key.clone().unwrap_or_default(),
            server: self.servers.get(&address(server)?, CLIENT_SERVICE),
        };
        if !region.contains(row) {
            return Err(nowhere("there is a hole behind the region"));
        }
        Ok(region)
    }

    /// The region of `hbase:meta` itself.
    async fn meta_region(&self) -> Result<Arc<Region>, Failure> {
        if let Some(region) = self.known(META_TABLE, &[]) {
            return Ok(region);
        }
        let answer: GetMetaRegionLocationsResponse = self.registry("GetMetaRegionLocations").await?;
        let mut locations = answer.meta_locations.into_iter();
        let location = locations.find(|l| l.region_info.replica_id.unwrap_or_default() == 0);
        let server = location.and_then(|l| l.server_name);
        let server = server.ok_or_else(|| Failure::Unassigned("hbase:meta has no server".into()))?;
        let region = Arc::new(Region {
            name: Bytes::from_static(META_REGION.as_bytes()),
            start: Bytes::new(),
            end: Bytes::new(),
            server: self.servers.get(&address(&server)?, CLIENT_SERVICE),
        });
        self.locations.lock().insert(META_TABLE, region.clone());
        Ok(region)
    }

    /// The last row of `hbase:meta` that is not behind `row` of the table.
    async fn read_meta(&self, meta: &Region, table: &str, row: &[u8]) -> Result<MetaRow, Failure> {
        let scan = Scan {
            column: vec![Column {
                family: Bytes::from_static(INFO_FAMILY),
                qualifier: Vec::new(),
            }],
            start_row: Some(meta::lookup_start(table.as_bytes(), row)),
            stop_row: Some(meta::table_start(table.as_bytes())),
            include_stop_row: Some(true),
            reversed: Some(true),
            caching: Some(1),
            read_type: Some(ReadType::Pread as i32),
            ..Scan::default()
        };
        let request = ScanRequest {
            region: Some(RegionSpecifier::named(meta.name.clone())),
            scan: Some(scan),
            number_of_rows: Some(1),
            // One row is enough: the server closes the scanner.
            close_scanner: Some(true),
            limit_of_rows: Some(1),
            ..ScanRequest::default()
        };
        let method = Method {
            name: "Scan",
            priority: META_PRIORITY,
        };
        let answer = meta.server.socket().await?.call(method, &request, &())?.await?;
        let response: ScanResponse = decode("ScanResponse", answer.message)?;
        let mut cells = RowReader::new(answer.cells);
        let count = response.cells_per_result.first().copied().unwrap_or_default();
        if count == 0 {
            return Err(Failure::NoTable(table.to_owned()));
        }
        Ok(MetaRow::decode(&cells.cells(count as usize)?)?)
    }
}

fn address(server: &ServerName) -> Result<String, Failure> {
    let port = server
        .port
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0);
    let port = port.ok_or_else(|| Failure::Protocol(format!("server {:?} has no port", server.host_name)))?;
    let host = &server.host_name;
    Ok(if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    })
}
