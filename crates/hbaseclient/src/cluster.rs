//! Finds servers, by the registry that any server offers, and by `hbase:meta`.
//!
//! No ZooKeeper: `ClientMetaService` of one known server names the server of `hbase:meta` and the master. A row of
//! `hbase:meta`, read backwards from the wanted key, names the server of a region. Locations are cached until a server
//! contradicts them.

use crate::failure::{BackOff, Failure};
use crate::locations::{Locations, REGIONS_MAX, Region};
use crate::servers::{Server, Servers};
use crate::settings::Settings;
use crate::socket::{Method, Socket};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stele_wire::cell::{Cell, CellReader};
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
    /// `host:port` of the servers that are asked first, in this order. Not empty.
    bootstrap: Vec<String>,
    servers: Servers,
    locations: Mutex<Locations>,
    /// Held while `hbase:meta` is read: all clients of a thread miss the same region at the same time.
    looking_up: tokio::sync::Mutex<()>,
    retries: AtomicU64,
    retry_for: Duration,
}

impl Cluster {
    /// Known by the addresses of some servers. Opens no socket.
    pub fn new(bootstrap: Vec<String>, settings: Settings) -> Self {
        Self {
            bootstrap,
            retry_for: settings.retry_for,
            servers: Servers::new(settings),
            locations: Mutex::default(),
            looking_up: tokio::sync::Mutex::default(),
            retries: AtomicU64::new(0),
        }
    }

    /// Requests sent again so far.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// The pauses of a call.
    pub fn new_back_off(&self) -> BackOff {
        BackOff::new(self.retry_for)
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

    /// Queries the registry of the first server that responds: one of those given, or another known server.
    async fn registry<M: prost::Message + Default>(&self, method: &'static str) -> Result<M, Failure> {
        let mut first = None;
        let known = self.servers.addresses(CLIENT_SERVICE, OTHER_REGISTRIES_MAX);
        for address in self.bootstrap.iter().chain(&known) {
            match self.registry_at(address, method).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => drop(first.get_or_insert(failure)),
            }
        }
        Err(first.unwrap_or_else(|| Failure::Protocol("no address of a server".into())))
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

    /// All regions of a table in their order, looked up again.
    ///
    /// # Errors
    /// Those of [`Cluster::locate`], and a table of too many regions.
    pub async fn regions(&self, table: &str) -> Result<Vec<Arc<Region>>, Failure> {
        self.locations.lock().remove_table(table);
        let mut regions = Vec::new();
        let mut start = Bytes::new();
        loop {
            let region = self.retried(|| self.locate(table, &start)).await?;
            start = region.end.clone();
            regions.push(region);
            if start.is_empty() {
                return Ok(regions);
            }
            if regions.len() > REGIONS_MAX {
                let text = format!("table {table:?} has more than {REGIONS_MAX} regions");
                return Err(Failure::Protocol(text));
            }
        }
    }

    /// Repeats an attempt until it succeeds, or cannot, or too much time has passed.
    ///
    /// # Errors
    /// The failure of the last attempt.
    pub async fn retried<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut back_off = self.new_back_off();
        loop {
            match attempt().await {
                Err(failure) => self.back_off(&mut back_off, failure).await?,
                done => return done,
            }
        }
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
        let mut cells = CellReader::new(answer.cells);
        let count = response.cells_per_result.first().copied().unwrap_or_default();
        if count == 0 {
            return Err(Failure::NoTable(table.to_owned()));
        }
        let cell = |_| cells.read_with_tags().map(|(cell, _)| cell);
        let row: Vec<Cell> = (0..count).map(cell).collect::<Result<_, _>>()?;
        Ok(MetaRow::decode(&row)?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Remedy, Token, testing};

    #[tokio::test]
    async fn a_token_is_not_sent_to_servers_that_others_name() {
        let near = testing::start_for(Some("192.0.2.1:1"), |_, _, _| {}).await;
        let settings = Settings {
            retry_for: Duration::ZERO,
            token: Some(Token::new("secret".to_owned())),
            token_in_clear: false,
            ..Settings::default()
        };
        let cluster = Cluster::new(vec![near], settings);
        cluster.cluster_id().await.unwrap();
        let of_region = cluster.regions("t").await.err();
        let master = cluster.master().await.unwrap();
        for refused in [of_region, master.socket().await.err()] {
            let refused = refused.unwrap();
            assert_eq!(refused.remedy(), Remedy::GiveUp);
            assert!(refused.to_string().contains("would be sent as plain text"), "{refused}");
        }
    }
}
