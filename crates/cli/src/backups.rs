//! `backup create`, `list`, `restore`, `verify`, `delete` and `prune`.
//!
//! The server does the work; a command orders it and shows how far it is. When the server was started in between, the command
//! orders the same again, and the server continues where it was.

use crate::client::{Client, TableRef};
use crate::connection::Connection;
use crate::interrupt::interrupted;
use crate::progress::{Progress, count};
use crate::show::print;
use crate::sizes::{parse_size, show_bytes};
use crate::timestamp::parse_moment;
use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use stele_adminapi::{
    BackupDestination, BackupWork, BeginBackupWorkRequest, DestinationBackup, DestinationOption, RestorableTime,
};
use tokio::sync::watch;
use tonic::Code;

const MICROS_PER_SECOND: i64 = 1_000_000;
/// Between two questions how far the server is.
const ASKED_EVERY: Duration = Duration::from_millis(300);
/// Orders of the same work, when the server is started again and again.
const ORDERS_MAX: usize = 20;

const CREATE: u32 = 1;
const RESTORE: u32 = 2;
const VERIFY: u32 = 3;
const DELETE: u32 = 4;
const PRUNE: u32 = 5;

/// Arguments of `backup`.
#[derive(Args, Clone, Debug)]
pub struct BackupArgs {
    #[command(subcommand)]
    command: BackupCommand,
}

/// What to do with backups.
#[derive(Subcommand, Clone, Debug)]
enum BackupCommand {
    /// Copy tables to a destination; only files that no earlier backup there has
    Create(CreateArgs),
    /// List the backups at a destination
    List(ListArgs),
    /// Make tables of a backup
    Restore(RestoreArgs),
    /// Read all files of a backup and compare them with their checksums. Exits with 1 when something is damaged
    Verify(VerifyArgs),
    /// Delete a backup, and files that no other backup needs
    Delete(DeleteArgs),
    /// Delete the parts of an archive of the log that no backup at a destination needs
    Prune(PruneArgs),
}

/// Where backups are.
#[derive(Args, Clone, Debug)]
struct DestinationArgs {
    /// A folder of the server, s3://, gs:// or az://BUCKET/PREFIX, or hdfs://HOST:PORT/DIRECTORY
    destination: String,
    /// Setting of the object store or of HDFS, as of --data-option of the server; may be repeated. The server's own variables
    /// are a safer place for secrets
    #[arg(long = "option", value_name = "KEY=VALUE")]
    options: Vec<String>,
}

/// The archive of the log.
#[derive(Args, Clone, Debug, Default)]
struct ArchiveArgs {
    /// Archive of the log: a folder of the server or a URL, as of --archive-log of the server that wrote it [default: that of the
    /// server itself]
    #[arg(long, value_name = "DIR|URL")]
    archive: Option<String>,
    /// Setting of the object store or of HDFS of the archive; may be repeated
    #[arg(long = "archive-option", value_name = "KEY=VALUE", requires = "archive")]
    archive_options: Vec<String>,
}

impl ArchiveArgs {
    fn place(&self) -> Result<Option<BackupDestination>> {
        let place = self.archive.as_ref().map(|archive| DestinationArgs {
            destination: archive.clone(),
            options: self.archive_options.clone(),
        });
        place.as_ref().map(destination).transpose()
    }
}

/// How a work is done.
#[derive(Args, Clone, Debug)]
struct PaceArgs {
    /// Bytes that are read or written each second at most, such as 20MiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "0", hide_default_value = true)]
    rate: u64,
    /// Files that are copied concurrently [default: 4]
    #[arg(long, value_name = "FILES", default_value_t = 0, hide_default_value = true)]
    parallel: u32,
}

#[derive(Args, Clone, Debug)]
struct CreateArgs {
    #[command(flatten)]
    destination: DestinationArgs,
    /// The name of the backup. The same name continues a backup that was interrupted
    #[arg(long, value_name = "NAME")]
    backup: String,
    /// A table, as instance/table; may be repeated [default: all tables]
    #[arg(long = "table", value_name = "TABLE")]
    tables: Vec<TableRef>,
    /// Note a digest of the rows of each table, for `verify --digest`. All rows are read once more
    #[arg(long)]
    digest: bool,
    #[command(flatten)]
    pace: PaceArgs,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Args, Clone, Debug)]
struct ListArgs {
    #[command(flatten)]
    destination: DestinationArgs,
    #[command(flatten)]
    archive: ArchiveArgs,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Args, Clone, Debug)]
struct RestoreArgs {
    #[command(flatten)]
    destination: DestinationArgs,
    /// The name of the backup [default with --at: the newest one with the table, or of all tables, before the moment]
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "at",
        default_value = "",
        hide_default_value = true
    )]
    backup: String,
    /// The moment whose rows the tables get, such as 2026-11-27T12:00:00Z, or in microseconds since 1970 [default: that of the
    /// backup]
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    at: Option<i64>,
    #[command(flatten)]
    archive: ArchiveArgs,
    /// Only this table, as instance/table [default: all tables of the backup]
    #[arg(long, value_name = "TABLE")]
    table: Option<TableRef>,
    /// The name that the table gets, as instance/table [default: its own]
    #[arg(long = "as", value_name = "TABLE", requires = "table")]
    target: Option<TableRef>,
    #[command(flatten)]
    pace: PaceArgs,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Args, Clone, Debug)]
struct VerifyArgs {
    #[command(flatten)]
    destination: DestinationArgs,
    /// The name of the backup
    #[arg(long, value_name = "NAME")]
    backup: String,
    /// Also read the rows of each table, and compare their digest with the one noted by `create --digest`
    #[arg(long)]
    digest: bool,
    #[command(flatten)]
    pace: PaceArgs,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Args, Clone, Debug)]
struct DeleteArgs {
    #[command(flatten)]
    destination: DestinationArgs,
    /// The name of the backup; also of one that was not completed
    #[arg(long, value_name = "NAME")]
    backup: String,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Args, Clone, Debug)]
struct PruneArgs {
    /// Where all backups are that may be restored to a later moment
    #[command(flatten)]
    destination: DestinationArgs,
    #[command(flatten)]
    archive: ArchiveArgs,
    #[command(flatten)]
    connection: Connection,
}

/// Runs a command for backups.
pub async fn run(args: BackupArgs) -> Result<ExitCode> {
    match args.command {
        BackupCommand::Create(args) => create(args).await,
        BackupCommand::List(args) => list(args).await,
        BackupCommand::Restore(args) => restore(args).await,
        BackupCommand::Verify(args) => verify(args).await,
        BackupCommand::Delete(args) => delete(args).await,
        BackupCommand::Prune(args) => prune(args).await,
    }
}

async fn create(args: CreateArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let tables = args.tables.iter().map(|table| client.table_name(table));
    let order = BeginBackupWorkRequest {
        tables: tables.collect(),
        digests: args.digest,
        ..order(CREATE, &args.destination, &args.backup, Some(&args.pace))?
    };
    let done = carry_out(&client, order, "copied").await?;
    let copied = done.bytes_copied;
    let mut out = format!(
        "created {}: {} of {}",
        args.backup,
        count(done.files, "file"),
        show_bytes(done.bytes)
    );
    let _ = writeln!(
        out,
        ", {} copied with {}",
        count(done.files_copied, "file"),
        show_bytes(copied)
    );
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

async fn list(args: ListArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let (backups, restorable) = client
        .list_backups(destination(&args.destination)?, args.archive.place()?)
        .await?;
    print(&show(&backups))?;
    print(&show_times(&restorable))?;
    Ok(ExitCode::SUCCESS)
}

async fn restore(args: RestoreArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let order = BeginBackupWorkRequest {
        tables: args.table.iter().map(|table| client.table_name(table)).collect(),
        target: args
            .target
            .as_ref()
            .map(|table| client.table_name(table))
            .unwrap_or_default(),
        at_micros: args.at.unwrap_or_default(),
        archive: args.archive.place()?,
        ..order(RESTORE, &args.destination, &args.backup, Some(&args.pace))?
    };
    let done = carry_out(&client, order, "restored").await?;
    let (files, bytes) = (count(done.files_copied, "file"), show_bytes(done.bytes_copied));
    let of = match args.at {
        Some(at) => format!("as of {at}"),
        None => format!("from {}", args.backup),
    };
    print(&format!(
        "restored {} {of}: {files} of {bytes}\n",
        done.tables.join(", ")
    ))?;
    Ok(ExitCode::SUCCESS)
}

async fn verify(args: VerifyArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let order = BeginBackupWorkRequest {
        digests: args.digest,
        ..order(VERIFY, &args.destination, &args.backup, Some(&args.pace))?
    };
    let done = carry_out(&client, order, "verified").await?;
    if done.damage.is_empty() {
        let (files, bytes) = (count(done.files, "file"), show_bytes(done.bytes));
        print(&format!("verified {}: {files} of {bytes}, no damage\n", args.backup))?;
        return Ok(ExitCode::SUCCESS);
    }
    for damage in &done.damage {
        print(&format!("damage: {damage}\n"))?;
    }
    if done.more_damage > 0 {
        print(&format!("damage: and {} more\n", done.more_damage))?;
    }
    Ok(ExitCode::FAILURE)
}

async fn delete(args: DeleteArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    carry_out(
        &client,
        order(DELETE, &args.destination, &args.backup, None)?,
        "deleted",
    )
    .await?;
    print(&format!("deleted {}\n", args.backup))?;
    Ok(ExitCode::SUCCESS)
}

async fn prune(args: PruneArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let order = BeginBackupWorkRequest {
        archive: args.archive.place()?,
        ..order(PRUNE, &args.destination, "", None)?
    };
    let done = carry_out(&client, order, "pruned").await?;
    print(&format!("deleted {} of the archive\n", count(done.files, "part")))?;
    Ok(ExitCode::SUCCESS)
}

fn show_times(times: &[RestorableTime]) -> String {
    let shown = |micros: i64| {
        let time = prost_types::Timestamp {
            seconds: micros.div_euclid(MICROS_PER_SECOND),
            nanos: (micros.rem_euclid(MICROS_PER_SECOND) * 1_000) as i32,
        };
        time.to_string()
    };
    let lines = times.iter().map(|time| {
        format!(
            "any moment from {} to {}\n",
            shown(time.from_micros),
            shown(time.to_micros)
        )
    });
    lines.collect()
}

fn destination(args: &DestinationArgs) -> Result<BackupDestination> {
    let mut options = Vec::with_capacity(args.options.len());
    for option in &args.options {
        let (key, value) = option
            .split_once('=')
            .ok_or_else(|| anyhow!("--option {option}: not KEY=VALUE"))?;
        options.push(DestinationOption {
            key: key.to_owned(),
            value: value.to_owned(),
        });
    }
    Ok(BackupDestination {
        address: args.destination.clone(),
        options,
    })
}

fn order(task: u32, at: &DestinationArgs, backup: &str, pace: Option<&PaceArgs>) -> Result<BeginBackupWorkRequest> {
    Ok(BeginBackupWorkRequest {
        destination: Some(destination(at)?),
        backup: backup.to_owned(),
        task,
        bytes_per_second: pace.map_or(0, |pace| pace.rate),
        parallel: pace.map_or(0, |pace| pace.parallel),
        ..BeginBackupWorkRequest::default()
    })
}

/// Has the server do a work to its end, and shows how far it is. An interrupt calls it off, and a second one ends the command.
/// While the server has taken no order the first one does, since there is nothing to call off.
async fn carry_out(client: &Client, order: BeginBackupWorkRequest, verb: &'static str) -> Result<BackupWork> {
    carry_out_until(client, order, verb, interrupted).await
}

/// The same with the function that waits for an interrupt.
async fn carry_out_until<F: Future<Output = ()>>(
    client: &Client,
    order: BeginBackupWorkRequest,
    verb: &'static str,
    interrupt: impl Fn() -> F,
) -> Result<BackupWork> {
    let (call_off, is_called_off) = watch::channel(false);
    let interrupted_twice = async {
        interrupt().await;
        call_off.send_replace(true);
        interrupt().await;
    };
    tokio::select! {
        biased;
        // Also while the server does not respond.
        () = interrupted_twice => bail!("interrupted again; the server may go on with the work"),
        done = order_until_done(client, order, verb, is_called_off) => done,
    }
}

async fn order_until_done(
    client: &Client,
    order: BeginBackupWorkRequest,
    verb: &'static str,
    mut is_called_off: watch::Receiver<bool>,
) -> Result<BackupWork> {
    let mut progress = Progress::of_files(verb);
    let mut was_begun = false;
    for attempt in 0..ORDERS_MAX {
        let begun = tokio::select! {
            biased;
            () = called_off(&mut is_called_off) => bail!("interrupted; if the server has taken the order meanwhile, it goes on with the work"),
            begun = client.begin_backup_work(order.clone()) => begun?,
        };
        let followed = follow(client, begun.number, &mut progress, &mut is_called_off).await?;
        was_begun |= followed.was_begun;
        let Some(done) = followed.done else {
            if *is_called_off.borrow() {
                bail!("called off; the server was started again meanwhile, or another leads the cluster");
            }
            progress.say("the server was started again, or another leads the cluster; the work is ordered once more");
            continue;
        };
        // The former work may have done it. One that had begun has not found another backup of the name.
        let is_done_before = attempt > 0
            && match order.task {
                CREATE => was_begun && done.code == Code::AlreadyExists as u32,
                DELETE => done.code == Code::NotFound as u32,
                _ => false,
            };
        progress.finish();
        if done.code == 0 || is_done_before {
            return Ok(done);
        }
        if attempt > 0 && done.code == Code::AlreadyExists as u32 {
            bail!("{}; the order that the former server took may have made it", done.error);
        }
        bail!("{}", done.error);
    }
    bail!("the server was started {ORDERS_MAX} times before the work was done")
}

/// The last that is known of a work.
struct Followed {
    /// Its end; `None` when the server does not know it any more.
    done: Option<BackupWork>,
    /// It has counted its files, which no work does before it has found a place at the destination.
    was_begun: bool,
}

/// Completes when the work is called off.
async fn called_off(is_called_off: &mut watch::Receiver<bool>) {
    drop(is_called_off.wait_for(|is_called_off| *is_called_off).await);
}

/// Waits for the end of a work.
async fn follow(
    client: &Client,
    number: u64,
    progress: &mut Progress,
    is_called_off: &mut watch::Receiver<bool>,
) -> Result<Followed> {
    let (mut is_cancelled, mut was_begun) = (false, false);
    let mut pause = Duration::ZERO;
    loop {
        let asked = async {
            tokio::time::sleep(pause).await;
            client.backup_work(number).await
        };
        let answer = tokio::select! {
            biased;
            () = called_off(is_called_off), if !is_cancelled => {
                progress.say("called off; the same command continues. Interrupt again to end without waiting for the server");
                client.cancel_backup_work(number).await?;
                is_cancelled = true;
                continue;
            }
            answer = asked => answer?,
        };
        pause = ASKED_EVERY;
        let Some(work) = answer else {
            let done = None;
            return Ok(Followed { done, was_begun });
        };
        was_begun |= work.files > 0;
        progress.expect(work.bytes);
        progress.note(work.step.clone());
        progress.update(work.files_done, work.bytes_done);
        if work.is_done {
            let done = Some(work);
            return Ok(Followed { done, was_begun });
        }
    }
}

fn show(backups: &[DestinationBackup]) -> String {
    let mut out = String::new();
    for backup in backups {
        let begun = backup.begun_micros / MICROS_PER_SECOND;
        let _ = match backup.completed_micros {
            Some(_) => writeln!(
                out,
                "{}  at {begun} s since 1970, {} of {}, {} of them not in earlier ones; {}",
                backup.name,
                count(backup.files, "file"),
                show_bytes(backup.bytes),
                show_bytes(backup.copied_bytes),
                backup.tables.join(", ")
            ),
            None => writeln!(out, "{}  begun at {begun} s since 1970, not complete", backup.name),
        };
    }
    out
}

#[cfg(test)]
mod tests;
