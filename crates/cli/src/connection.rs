//! Options that name the server, shared by all subcommands.

use crate::client::{Client, SecurityOptions};
use anyhow::Result;
use clap::Args;

/// Where the server is.
#[derive(Args, Clone, Debug)]
pub struct Connection {
    /// HOST:PORT of the server, with https:// in front if it is under TLS [default: $BIGTABLE_EMULATOR_HOST, else
    /// 127.0.0.1:8086]
    #[arg(long, value_name = "HOST:PORT", env = "STELE_ADDRESS")]
    pub address: Option<String>,
    /// TLS and the identity of the caller.
    #[command(flatten)]
    pub security: SecurityOptions,
    /// Project, the first part of table names in the API
    #[arg(long, default_value = "stele")]
    pub project: String,
}

impl Connection {
    /// The address after all defaults.
    pub fn address(&self) -> String {
        let given = self.address.clone();
        given
            .or_else(|| {
                std::env::var("BIGTABLE_EMULATOR_HOST")
                    .ok()
                    .filter(|host| !host.is_empty())
            })
            .unwrap_or_else(|| "127.0.0.1:8086".to_owned())
    }

    /// Connects.
    pub async fn connect(&self) -> Result<Client> {
        Client::connect_with(&self.address(), &self.project, &self.security).await
    }
}
