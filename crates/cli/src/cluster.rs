//! `cluster status` and its neighbours: tablets, moves, splits, switches, checks.

use crate::client::{Client, TableRef};
use crate::connection::Connection;
use crate::query::parse_bytes;
use crate::show::print;
use anyhow::{Result, bail};
use bytes::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use stele_adminapi::{ClusterCheck, ClusterStatus, Server, SetSwitchesRequest, Switches, Tablet};

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
    /// Split a tablet; a single server has this command and the next two, too
    Split(SplitArgs),
    /// Make one tablet of neighbours
    Merge(MergeArgs),
    /// Show the work that servers do by themselves, or switch some of it on or off
    Switch(SwitchArgs),
    /// Tell whether catalog, tablets and files agree, as the leader compares them all the time
    Check(CheckArgs),
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
    /// The number of the server, or its host and port for Bigtable; the host alone if no other server has it
    server: String,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `cluster drain`.
#[derive(Args, Clone, Debug)]
pub struct DrainArgs {
    /// The number of the server, or its host and port for Bigtable; the host alone if no other server has it
    server: String,
    /// Let the server have tablets again
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `cluster split`.
#[derive(Args, Clone, Debug)]
pub struct SplitArgs {
    /// The table, as instance/table
    table: TableRef,
    /// The number of the tablet; by default the one with the row
    #[arg(long, value_name = "NUMBER", required_unless_present = "at")]
    tablet: Option<u64>,
    /// The first row of the upper half; by default the middle of the tablet
    #[arg(long, value_name = "ROW", value_parser = parse_bytes)]
    at: Option<Bytes>,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `cluster merge`.
#[derive(Args, Clone, Debug)]
pub struct MergeArgs {
    /// The table, as instance/table
    table: TableRef,
    /// The numbers of 2 to 16 neighbours
    #[arg(required = true, num_args = 2..=16)]
    tablets: Vec<u64>,
    #[command(flatten)]
    connection: Connection,
}

/// Work that servers do by themselves.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Tablets move to servers with less load
    Balance,
    /// Tablets are split by size and load; while it is off, no request for a split is served
    Split,
    /// Small tablets are merged; while it is off, no request for a merge is served
    Merge,
    /// Expired snapshots are deleted; automated backups and kept tables are in any case
    SnapshotCleanup,
}

/// The position of a switch.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    On,
    Off,
}

/// Arguments of `cluster switch`.
#[derive(Args, Clone, Debug)]
pub struct SwitchArgs {
    /// Which work; by default all positions are shown
    #[arg(requires = "position")]
    work: Option<Work>,
    position: Option<Position>,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `cluster check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// Wait for a check that begins from now on
    #[arg(long)]
    fresh: bool,
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
            let server = number_of(&client, &args.server).await?;
            client.move_tablet(args.tablet, server).await?;
            print(&format!("tablet {} moves to server {server}\n", args.tablet))?;
        }
        ClusterCommand::Drain(args) => drain(args).await?,
        ClusterCommand::Split(args) => {
            let client = args.connection.connect().await?;
            let row = args.at.unwrap_or_default();
            let halves = client.split_tablet(&args.table, args.tablet.unwrap_or(0), &row).await?;
            print(&format!("tablets {} and {}\n", halves.left, halves.right))?;
        }
        ClusterCommand::Merge(args) => {
            let client = args.connection.connect().await?;
            let merged = client.merge_tablets(&args.table, &args.tablets).await?;
            print(&format!("tablet {merged}\n"))?;
        }
        ClusterCommand::Switch(args) => switch(args).await?,
        ClusterCommand::Check(args) => return check(args).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn switch(args: SwitchArgs) -> Result<()> {
    let client = args.connection.connect().await?;
    if let (Some(work), Some(position)) = (args.work, args.position) {
        let of = |other: Work| (work == other).then_some(position == Position::On);
        let change = SetSwitchesRequest {
            balance: of(Work::Balance),
            split: of(Work::Split),
            merge: of(Work::Merge),
            snapshot_cleanup: of(Work::SnapshotCleanup),
        };
        client.set_switches(change).await?;
    }
    let Switches {
        balance,
        split,
        merge,
        snapshot_cleanup,
    } = client.switches().await?;
    let shown = |is_on: bool| if is_on { "on" } else { "off" };
    let cleanup = snapshot_cleanup.map(|is_on| format!("snapshot-cleanup {}\n", shown(is_on)));
    print(&format!(
        "balance {}\nsplit {}\nmerge {}\n{}",
        shown(balance),
        shown(split),
        shown(merge),
        cleanup.unwrap_or_default()
    ))?;
    Ok(())
}

/// Fails if there is a finding, or no check yet.
async fn check(args: CheckArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let start = Instant::now();
    loop {
        let check = client.cluster_status(false).await?.check.unwrap_or_default();
        let age = check.began_millis_ago.map(Duration::from_millis);
        if !args.fresh || age.is_some_and(|age| age < start.elapsed()) {
            print(&comparison(&check))?;
            let is_good = age.is_some() && check.findings.is_empty();
            return Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn comparison(check: &ClusterCheck) -> String {
    let mut out = String::new();
    let _ = match check.began_millis_ago {
        None => writeln!(out, "the leader has not completed a check yet"),
        Some(millis) => writeln!(
            out,
            "checked {} s ago: {} tablets, {} files, {} MiB; {} files to be deleted",
            millis / 1000,
            check.tablets,
            check.files,
            check.bytes >> 20,
            check.unneeded
        ),
    };
    if !check.waits_for.is_empty() {
        let _ = writeln!(out, "the next one waits for {}", check.waits_for);
    }
    for finding in &check.findings {
        let _ = writeln!(out, "{finding}");
    }
    if check.more > 0 {
        let _ = writeln!(out, "and {} more", check.more);
    }
    if check.began_millis_ago.is_some() && check.findings.is_empty() {
        let _ = writeln!(out, "everything agrees");
    }
    out
}

async fn drain(args: DrainArgs) -> Result<()> {
    let client = args.connection.connect().await?;
    let number = number_of(&client, &args.server).await?;
    client.drain_server(number, args.undo).await?;
    if args.undo {
        print(&format!("server {number} may have tablets again\n"))?;
        return Ok(());
    }
    loop {
        let status = client.cluster_status(false).await?;
        let left = status.servers.iter().find(|server| server.server == number);
        let left = left.map_or(0, |server| server.tablets);
        print(&format!("server {number} has {left} tablets\n"))?;
        if left == 0 {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The number of the server that a user names, by it or by its host.
async fn number_of(client: &Client, name: &str) -> Result<u32> {
    match name.parse() {
        Ok(number) => Ok(number),
        Err(_) => number_at(&client.cluster_status(false).await?, name),
    }
}

/// The number of the living server at a host.
fn number_at(status: &ClusterStatus, name: &str) -> Result<u32> {
    let living = status.servers.iter().filter(|server| server.lives);
    let is_named = |server: &&Server| {
        let host = server.bigtable.rsplit_once(':').map(|(host, _)| host);
        server.bigtable == name || host == Some(name)
    };
    let found: Vec<&Server> = living.filter(is_named).collect();
    match found[..] {
        [server] => Ok(server.server),
        [] => bail!("no server is at {name}: `stele cluster status` lists them"),
        _ => bail!("{} servers are at {name}: give the port for Bigtable, too", found.len()),
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
            } => "ended, its log is still needed",
            Server { lives: false, .. } => "silent",
            Server { drains: true, .. } => "drains",
            _ if *number == status.leader => "leads",
            _ => "serves",
        };
        let _ = write!(out, "server {number}  {state}  {tablets} tablets");
        if server.lives {
            let _ = write!(
                out,
                "  log {} MiB  memtables {} MiB  Bigtable {}  HBase {}  http {}",
                server.log_bytes >> 20,
                server.memtable_bytes >> 20,
                server.bigtable,
                server.hbase,
                server.http
            );
        }
        out.push('\n');
    }
    let _ = match status.unsettled {
        0 => writeln!(out, "All tablets are served, and none moves."),
        1 => writeln!(out, "1 tablet is not served, or moves."),
        count => writeln!(out, "{count} tablets are not served, or move."),
    };
    out
}

fn tablet(tablet: &Tablet) -> String {
    let waits = match tablet.waits_for.as_str() {
        "" => String::new(),
        event => format!("  waits for {event}, {} s", tablet.waited_millis / 1000),
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
        let mut status = ClusterStatus {
            leader: 4,
            servers: vec![
                server(4, true, false),
                server(5, true, false),
                server(2, false, true),
                server(3, false, false),
            ],
            tablets: Vec::new(),
            unsettled: 1,
            check: None,
        };
        let shown = servers(&status);
        for line in [
            "server 4  leads  2 tablets  log 3 MiB",
            "server 5  serves",
            "server 2  ended, its log is still needed  2 tablets\n",
            "server 3  silent",
            "1 tablet is not served, or moves.",
        ] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        for (unsettled, line) in [(0, "All tablets are served"), (3, "3 tablets are not served, or move.")] {
            status.unsettled = unsettled;
            assert!(servers(&status).contains(line), "{unsettled}");
        }
    }

    #[test]
    fn a_server_is_named_by_its_host() {
        let server = |number, lives, bigtable: &str| Server {
            server: number,
            lives,
            bigtable: bigtable.to_owned(),
            ..Server::default()
        };
        let status = ClusterStatus {
            servers: vec![
                server(1, false, "node-1:8086"),
                server(4, true, "node-1:8086"),
                server(5, true, "node-2:8086"),
                server(6, true, "node-2:8087"),
            ],
            ..ClusterStatus::default()
        };
        for (name, number) in [("node-1", 4), ("node-2:8087", 6)] {
            assert_eq!(number_at(&status, name).unwrap(), number);
        }
        for (name, why) in [("node-2", "2 servers"), ("node", "no server"), ("", "no server")] {
            let error = number_at(&status, name).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_check_is_shown_with_its_findings() {
        assert_eq!(
            comparison(&ClusterCheck::default()),
            "the leader has not completed a check yet\n"
        );
        let mut check = ClusterCheck {
            began_millis_ago: Some(5_300),
            tablets: 3,
            files: 7,
            bytes: 9 << 20,
            unneeded: 2,
            ..ClusterCheck::default()
        };
        let good = comparison(&check);
        assert_eq!(
            good,
            "checked 5 s ago: 3 tablets, 7 files, 9 MiB; 2 files to be deleted\neverything agrees\n"
        );
        check.findings.push("tablet 4: sst/x is missing".to_owned());
        check.waits_for = "a server that does not answer".to_owned();
        let bad = comparison(&check);
        assert!(
            bad.ends_with("waits for a server that does not answer\ntablet 4: sst/x is missing\n"),
            "{bad}"
        );
    }
}
