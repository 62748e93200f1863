//! Options that name the server, shared by all subcommands.

use crate::client::Client;
use anyhow::Result;
use clap::Args;

/// Where the server is.
#[derive(Args, Clone, Debug)]
pub struct Connection {
    /// HOST:PORT of the server [default: $BIGTABLE_EMULATOR_HOST, else 127.0.0.1:8086]
    #[arg(long, value_name = "HOST:PORT", env = "STELE_ADDRESS")]
    pub address: Option<String>,
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
        Client::connect(&self.address(), &self.project).await
    }
}
