//! `cluster status`, `tablets`, `move` and `drain`.

use crate::connection::Connection;
use crate::show::print;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use stele_adminapi::{ClusterStatus, Server, Tablet};

/// Pause between two checks of a server that drains.
const PAUSE: Duration = Duration::from_millis(300);

/// Commands for a cluster that runs. The binary has more of `cluster`, which work on files.
#[derive(Subcommand, Clone, Debug)]
pub enum ClusterCommand {
    /// List the servers, and tell how many tablets are not served or move
    Status(StatusArgs),
    /// List the tablets with their servers
    Tablets(StatusArgs),
    /// Move a tablet to another server
    Move(MoveArgs),
    /// Move all tablets away from a server, so that it can be stopped; returns when it has none
    Drain(DrainArgs),
}

/// Arguments of `cluster status` and `cluster tablets`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `cluster move`.
#[derive(Args, Clone, Debug)]
pub struct MoveArgs {
    /// The number of the tablet
    tablet: u64,
    /// The number of the server
    server: u32,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `cluster drain`.
#[derive(Args, Clone, Debug)]
pub struct DrainArgs {
    /// The number of the server
    server: u32,
    /// Let the server have tablets again
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Runs a command for a cluster.
pub async fn run(command: ClusterCommand) -> Result<ExitCode> {
    match command {
        ClusterCommand::Status(args) => {
            let client = args.connection.connect().await?;
            print(&servers(&client.cluster_status(false).await?))?;
        }
        ClusterCommand::Tablets(args) => {
            let client = args.connection.connect().await?;
            let status = client.cluster_status(true).await?;
            print(&status.tablets.iter().map(tablet).collect::<String>())?;
        }
        ClusterCommand::Move(args) => {
            let client = args.connection.connect().await?;
            client.move_tablet(args.tablet, args.server).await?;
            print(&format!("tablet {} moves to server {}\n", args.tablet, args.server))?;
        }
        ClusterCommand::Drain(args) => drain(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn drain(args: DrainArgs) -> Result<()> {
    let client = args.connection.connect().await?;
    client.drain_server(args.server, args.undo).await?;
    if args.undo {
        print(&format!("server {} may have tablets again\n", args.server))?;
        return Ok(());
    }
    loop {
        let status = client.cluster_status(false).await?;
        let left = status.servers.iter().find(|server| server.server == args.server);
        let left = left.map_or(0, |server| server.tablets);
        print(&format!("server {} has {left} tablets\n", args.server))?;
        if left == 0 {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn servers(status: &ClusterStatus) -> String {
    let mut out = String::new();
    for server in &status.servers {
        let Server {
            server: number,
            tablets,
            ..
        } = server;
        let state = match server {
            Server {
                lives: false,
                sealed: true,
                ..
            } => "given up, its log is needed",
            Server { lives: false, .. } => "silent",
            Server { drains: true, .. } => "drains",
            _ if *number == status.leader => "leads",
            _ => "serves",
        };
        let _ = writeln!(
            out,
            "server {number}  {state}  {tablets} tablets  log {} MiB  memtables {} MiB  Bigtable {}  HBase {}  http {}",
            server.log_bytes >> 20,
            server.memtable_bytes >> 20,
            server.bigtable,
            server.hbase,
            server.http
        );
    }
    let _ = writeln!(out, "{} tablets are not served or move", status.unsettled);
    out
}

fn tablet(tablet: &Tablet) -> String {
    let waits = match tablet.waits_for.as_str() {
        "" => String::new(),
        event => format!("  waits for {event}"),
    };
    format!(
        "{}  tablet {}  from \"{}\"  server {}  {} bytes{waits}\n",
        tablet.table,
        tablet.tablet,
        tablet.start.escape_ascii(),
        tablet.owner,
        tablet.bytes
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_shown_with_its_state() {
        let server = |number, lives, sealed| Server {
            server: number,
            lives,
            sealed,
            tablets: 2,
            log_bytes: 3 << 20,
            ..Server::default()
        };
        let status = ClusterStatus {
            leader: 4,
            servers: vec![
                server(4, true, false),
                server(5, true, false),
                server(2, false, true),
                server(3, false, false),
            ],
            tablets: Vec::new(),
            unsettled: 1,
        };
        let shown = servers(&status);
        for line in [
            "server 4  leads  2 tablets  log 3 MiB",
            "server 5  serves",
            "server 2  given up, its log is needed",
            "server 3  silent",
            "1 tablets are not served or move",
        ] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
    }
}
