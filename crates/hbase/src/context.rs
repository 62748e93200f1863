//! The services below the front end.

use crate::failure::{Failure, Outcome};
use crate::names;
use std::sync::Arc;
use stele_client::{ServerPlace, TableAdmin, TableService};
use stele_env::Env;
use stele_memory::Consumer;
use stele_storage::foreign::ForeignFiles;
use stele_types::{ErrorKind, TableName, TableSchema};
use stele_wire::exception;
use stele_wire::messages::ServerName;

/// The address and the identity that the server tells its clients.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Host under which clients reach this server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Start of the server in ms since 1970. Clients take a server with another one for another server.
    pub start_code: u64,
    /// Name of the cluster, which never changes.
    pub cluster_id: String,
}

/// The services and the memory that all calls use.
pub(crate) struct Context {
    pub service: Arc<dyn TableService>,
    pub admin: Arc<dyn TableAdmin>,
    pub env: Env,
    pub identity: Identity,
    /// Files that bulk loads may read.
    pub files: ForeignFiles,
    /// Memory of requests and of small responses.
    pub requests: Consumer,
    /// Memory of scans and batches of reads.
    pub responses: Consumer,
}

impl Context {
    /// The schema of a table that serves data.
    pub fn schema(&self, table: &TableName) -> Outcome<Arc<TableSchema>> {
        let schema = self.service.schema(table).map_err(|error| match error.kind {
            ErrorKind::NotFound => names::table_not_found(table),
            _ => Failure::from(error),
        })?;
        if schema.enabled {
            Ok(schema)
        } else {
            Err(table_not_enabled(table))
        }
    }

    /// Milliseconds since 1970.
    pub fn wall_millis(&self) -> u64 {
        u64::try_from(self.env.wall_micros() / 1_000).unwrap_or(0)
    }

    /// This server as clients know it.
    pub fn server_name(&self) -> ServerName {
        ServerName {
            host_name: self.identity.host.clone(),
            port: Some(u32::from(self.identity.port)),
            start_code: Some(self.identity.start_code),
        }
    }
}

/// Another server as clients know it.
pub(crate) fn name_of(server: &ServerPlace) -> ServerName {
    ServerName {
        host_name: server.host.clone(),
        port: Some(u32::from(server.port)),
        start_code: Some(server.start_code),
    }
}

/// The table is disabled.
pub(crate) fn table_not_enabled(table: &TableName) -> Failure {
    Failure::new(exception::TABLE_NOT_ENABLED, names::to_text(table))
}
