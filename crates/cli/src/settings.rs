//! `settings` and `alter-table`.

use crate::client::TableRef;
use crate::connection::Connection;
use crate::show::print;
use crate::sizes::parse_size;
use anyhow::{Result, bail};
use clap::Args;
use std::process::ExitCode;
use stele_adminapi::Settings;

/// Arguments of `settings`.
#[derive(Args, Clone, Debug)]
pub struct SettingsArgs {
    /// The table, as instance/table
    pub table: TableRef,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `alter-table`.
#[derive(Args, Clone, Debug)]
pub struct AlterTableArgs {
    /// The table, as instance/table
    pub table: TableRef,
    /// The failure that an acknowledged write survives: none, the end of the process (flush), the loss of power (sync)
    #[arg(long, value_name = "DURABILITY", value_parser = ["default", "none", "flush", "sync"])]
    durability: Option<String>,
    /// Cache results of reads of single rows
    #[arg(long, value_name = "BOOL")]
    row_cache: Option<bool>,
    /// Bytes of files at which a tablet is split, 1MiB to 64GiB; 0 for the server's
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    tablet_size: Option<u64>,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the settings of a table.
pub async fn settings(args: SettingsArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    print(&show(&client.table_settings(&args.table).await?))?;
    Ok(ExitCode::SUCCESS)
}

/// Changes settings of a table.
pub async fn alter_table(args: AlterTableArgs) -> Result<ExitCode> {
    let settings = Settings {
        durability: args.durability,
        row_cache: args.row_cache,
        tablet_bytes: args.tablet_size,
    };
    if settings == Settings::default() {
        bail!("give the settings that shall change");
    }
    let client = args.connection.connect().await?;
    print(&show(&client.update_table_settings(&args.table, settings).await?))?;
    Ok(ExitCode::SUCCESS)
}

/// Settings for people.
pub(crate) fn show(settings: &Settings) -> String {
    let durability = settings.durability.as_deref().unwrap_or("default");
    let row_cache = settings.row_cache.unwrap_or_default();
    let tablet_size = match settings.tablet_bytes.unwrap_or_default() {
        0 => "default".to_owned(),
        bytes => format!("{bytes} bytes"),
    };
    format!("durability   {durability}\nrow cache    {row_cache}\ntablet size  {tablet_size}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_read_as_text() {
        let set = Settings {
            durability: Some("sync".to_owned()),
            row_cache: Some(false),
            tablet_bytes: Some(1 << 30),
        };
        let text = "durability   sync\nrow cache    false\ntablet size  1073741824 bytes\n";
        assert_eq!(show(&set), text);
        assert!(show(&Settings::default()).ends_with("tablet size  default\n"));
    }
}
