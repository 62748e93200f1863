//! `stele check`: reads all data of a server and reports damage.
//!
//! The data is a folder, a prefix of an object store or a directory of HDFS. The command works offline and takes the
//! folder's lock, so no server runs meanwhile. An object store has no lock, and becoming the owner of a prefix would
//! end its server. So a prefix is only read, and a check that finds it changed at the end reports nothing else. The
//! same holds for a directory of HDFS, which refuses a check while a log is being written. With `--take-over` the
//! command becomes the owner of either. It changes nothing: components that need a writable storage, such as the
//! coordinator, write to memory ([`overlay`]).
//!
//! A *damage* is a fault on which a server would fail or return wrong results. A *note* is a harmless oddity, such as
//! an orphan file. A check goes on after each finding and reads every byte once. An error that says nothing about the
//! bytes, such as a network error while it reads files of tablets, is neither: it ends the check. The check holds the
//! manifests, the catalog and a few megabytes per core in memory.

mod catalog;
pub mod log;
pub mod overlay;
pub mod report;
mod rows;
mod snapshots;
mod sstables;
pub mod tablets;
#[cfg(test)]
pub mod tests;
mod values;

use crate::data_dir;
use crate::encryption::KeyArgs;
use anyhow::{Context, bail};
use log::Logged;
use overlay::Overlay;
use report::{Progress, Report};
use std::collections::BTreeMap;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use stele_env::Env;
use stele_settings::{Place, parse_options, parse_place, sizes};
use stele_storage::Storage;
use stele_types::{FileId, TabletId};
use tablets::Tablets;

/// The data on which an offline command works.
#[derive(clap::Args)]
pub struct DataPlace {
    /// The data: a folder, s3://, gs:// or az://BUCKET/PREFIX, or hdfs://NAMENODE/DIR; no server may be running on it
    #[arg(
        long,
        env = "STELE_DATA",
        value_name = "DIR|URL",
        default_value = "./stele-data",
        hide_default_value = true
    )]
    data: String,
    /// Setting of the object store, such as endpoint=https://store:9000; may be repeated
    #[arg(long, env = "STELE_DATA_OPTION", value_name = "KEY=VALUE", value_delimiter = ',')]
    data_option: Vec<String>,
    /// Becomes the owner of a prefix of an object store or a directory of HDFS before reading it, which ends a server
    /// on it; needed for HDFS after a server was killed
    #[arg(long)]
    take_over: bool,
    #[command(flatten)]
    keys: KeyArgs,
}

impl DataPlace {
    /// Opens the data for reading.
    pub async fn look(&self, env: Env) -> anyhow::Result<Arc<dyn Storage>> {
        if self.take_over {
            self.take(env).await
        } else {
            let keys = self.keys.open(&env).await?;
            data_dir::look(&self.place()?, env, &keys).await
        }
    }

    /// Opens the data as their owner.
    pub async fn take(&self, env: Env) -> anyhow::Result<Arc<dyn Storage>> {
        let keys = self.keys.open(&env).await?;
        data_dir::take(&self.place()?, env, &keys).await
    }

    /// The parsed place.
    pub fn place(&self) -> anyhow::Result<Place> {
        parse_place(&self.data, &parse_options(&self.data_option.join(","))?)
    }
}

/// The flags of `stele check`.
#[derive(clap::Args)]
pub struct CheckArgs {
    #[command(flatten)]
    data: DataPlace,
    /// Prints one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Runs the command. Returns the exit code, 0 when nothing is damaged and 1 otherwise, and the text to print.
pub async fn run(args: &CheckArgs, env: Env) -> anyhow::Result<(ExitCode, String)> {
    let storage = args.data.look(env.clone()).await?;
    let progress = Progress::to_terminal(env.clone());
    let report = steady(&storage, check(storage.clone(), env, progress)).await?;
    let text = if args.json { report.to_json() } else { report.to_text() };
    let code = if report.is_damaged() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    };
    Ok((code, text))
}

/// Runs `work` and fails if the data changed meanwhile. A folder is locked; a prefix of an object store is not, and a
/// server's writes there would look like damage.
pub async fn steady<T>(storage: &Arc<dyn Storage>, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let before = storage.list("").await.context("listing the data")?;
    let found = work.await;
    if storage.list("").await.context("listing the data")? != before {
        bail!("the data changed during the check: a server is running on it; stop it first");
    }
    found
}

/// Checks everything that `storage` holds.
pub async fn check(storage: Arc<dyn Storage>, env: Env, progress: Progress) -> anyhow::Result<Report> {
    examine(storage, env, progress).await.map(|examined| examined.report)
}

/// The findings of a check, as a repair needs them.
pub struct Examined {
    /// The report for people.
    pub report: Report,
    /// The tablets and the files to which they refer.
    pub tablets: Tablets,
    /// Sstables that are damaged or missing, with the number of their intact cells.
    pub sstables: BTreeMap<FileId, u64>,
    /// Value files that are damaged or missing.
    pub values: Vec<FileId>,
    /// The log records of each tablet.
    pub logged: BTreeMap<TabletId, Logged>,
    /// Whether the catalog could be read.
    pub has_catalog: bool,
    /// Whether the catalog may lack its last transaction.
    pub is_catalog_torn: bool,
}

/// Checks everything and returns the input of a repair.
pub async fn examine(storage: Arc<dyn Storage>, env: Env, progress: Progress) -> anyhow::Result<Examined> {
    let mut report = Report::default();
    let files = storage.list("").await.context("listing the data folder")?;
    progress.expect(files.iter().map(|file| file.len).sum());
    let overlay: Arc<dyn Storage> = Overlay::over(storage.clone());
    let catalog = catalog::check(overlay, env.clone(), &mut report).await?;
    let mut tablets = tablets::check(&storage, catalog.as_ref().map(|found| &found.tablets), &mut report).await?;
    let snapshots = catalog.as_ref().map(|found| found.snapshots.as_slice());
    tablets.snapshots = snapshots::check(&storage, snapshots, &mut report).await?;
    let sstables = sstables::check(&storage, &env, &tablets, &progress, &mut report).await?;
    let values = values::check(&storage, &tablets, &progress, &mut report).await?;
    let logged = log::check(&*storage, &tablets, &progress, &mut report).await?;
    for tablet in &tablets.unreadable {
        if let Some(Logged { records, .. }) = logged.get(tablet) {
            let what = format!("{records} records are kept for tablet {tablet}, whose manifest cannot be read");
            report.note("log", what);
        }
    }
    let kept = files
        .iter()
        .filter(|file| file.path.starts_with(data_dir::KEPT))
        .count();
    if kept > 0 {
        report.note(
            data_dir::KEPT,
            format!("{kept} files that repairs have set aside; no server reads them"),
        );
    }
    for file in &files {
        if !is_known(&file.path) {
            report.note(&file.path, "not a file that Stele writes; it is left alone");
        }
    }
    report.files = files.len() as u64;
    report.bytes = files.iter().map(|file| file.len).sum();
    report.shown_bytes = sizes::show_bytes(report.bytes);
    Ok(Examined {
        report,
        tablets,
        sstables,
        values,
        logged,
        has_catalog: catalog.is_some(),
        is_catalog_torn: catalog.is_some_and(|found| found.is_torn),
    })
}

fn is_known(path: &str) -> bool {
    let coord = path.starts_with("coord/snapshot-") || path.starts_with("coord/log-");
    [data_dir::FORMAT, data_dir::marks::PROMOTED, data_dir::marks::INCOMING].contains(&path)
        || path.starts_with(data_dir::KEPT)
        || coord
        || stele_tablet::StoredFile::parse_path(path).is_some()
        || stele_tablet::manifest::parse_path(path).is_some()
        || stele_tablet::snapshot::parse_path(path).is_some()
        || stele_commitlog::format::parse_segment_path(path).is_some()
}
