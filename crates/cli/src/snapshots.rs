//! `snapshot create`, `list`, `restore` and `delete`.

use crate::client::TableRef;
use crate::connection::Connection;
use crate::show::print;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use std::process::ExitCode;
use stele_adminapi::Snapshot;

const MICROS_PER_SECOND: i64 = 1_000_000;

/// Arguments of `snapshot`.
#[derive(Args, Clone, Debug)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    command: SnapshotCommand,
}

/// What to do with snapshots.
#[derive(Subcommand, Clone, Debug)]
enum SnapshotCommand {
    /// Take a snapshot of a table; copies nothing, and stops no reads or writes
    Create(CreateArgs),
    /// List the snapshots of an instance
    List(ListArgs),
    /// Make a table of a snapshot, or put a table back to it
    Restore(RestoreArgs),
    /// Delete a snapshot; tables made of it stay
    Delete(DeleteArgs),
}

#[derive(Args, Clone, Debug)]
struct CreateArgs {
    /// The table, as instance/table
    table: TableRef,
    /// The name of the snapshot within the instance
    snapshot: String,
    /// Seconds after which the server deletes the snapshot [default: never]
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true)]
    ttl: u64,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Args, Clone, Debug)]
struct ListArgs {
    /// The instance
    instance: String,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Args, Clone, Debug)]
struct RestoreArgs {
    /// The snapshot, as instance/snapshot
    snapshot: TableRef,
    /// The table, as instance/table; a new one without --in-place
    table: TableRef,
    /// Replace the rows and families of a table that exists
    #[arg(long)]
    in_place: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Args, Clone, Debug)]
struct DeleteArgs {
    /// The snapshot, as instance/snapshot
    snapshot: TableRef,
    #[command(flatten)]
    connection: Connection,
}

/// Runs a command for snapshots.
pub async fn run(args: SnapshotArgs) -> Result<ExitCode> {
    match args.command {
        SnapshotCommand::Create(args) => {
            let client = args.connection.connect().await?;
            let made = client.create_snapshot(&args.table, &args.snapshot, args.ttl).await?;
            print(&show(&[made]))?;
        }
        SnapshotCommand::List(args) => {
            let client = args.connection.connect().await?;
            print(&show(&client.list_snapshots(&args.instance).await?))?;
        }
        SnapshotCommand::Restore(args) => {
            let client = args.connection.connect().await?;
            client
                .restore_snapshot(&args.snapshot, &args.table, args.in_place)
                .await?;
            print(&format!("restored {} from {}\n", args.table, args.snapshot))?;
        }
        SnapshotCommand::Delete(args) => {
            let client = args.connection.connect().await?;
            client.delete_snapshot(&args.snapshot).await?;
            print(&format!("deleted {}\n", args.snapshot))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(snapshots: &[Snapshot]) -> String {
    let mut out = String::new();
    for snapshot in snapshots {
        let expires = match snapshot.expires_micros {
            Some(at) => format!("expires after {} s", (at - snapshot.created_micros) / MICROS_PER_SECOND),
            None => "does not expire".to_owned(),
        };
        let _ = writeln!(
            out,
            "{}  of {}, at {} s since 1970, {} tablets, {} bytes, {expires}",
            snapshot.name,
            snapshot.table,
            snapshot.created_micros / MICROS_PER_SECOND,
            snapshot.tablets,
            snapshot.bytes
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_read_as_text() {
        let snapshot = Snapshot {
            name: "s".to_owned(),
            table: "t".to_owned(),
            created_micros: 1_600_000_000_000_000,
            expires_micros: Some(1_600_000_060_000_000),
            tablets: 3,
            bytes: 7,
        };
        let never = Snapshot {
            expires_micros: None,
            ..snapshot.clone()
        };
        assert_eq!(
            show(&[snapshot, never]),
            "s  of t, at 1600000000 s since 1970, 3 tablets, 7 bytes, expires after 60 s\n\
             s  of t, at 1600000000 s since 1970, 3 tablets, 7 bytes, does not expire\n"
        );
    }
}
