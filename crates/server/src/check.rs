//! `stele check`: looks at everything a data folder holds and says what is wrong with it.
//!
//! Offline: takes the folder's lock, so no server runs meanwhile. Changes nothing: what it opens in order to look, such as
//! the coordinator, writes to memory ([`overlay`]).
//!
//! A *damage* is something that a server would fail on or give wrong answers for; a *note* is what is only odd, such as a
//! file nobody refers to. A check goes on behind whatever it finds, and reads every byte once. It holds a few megabytes
//! for each core, the manifests, and the catalog.

mod catalog;
mod log;
pub mod overlay;
pub mod report;
mod rows;
mod sstables;
pub mod tablets;
#[cfg(test)]
pub mod tests;
mod values;

use crate::{data_dir, sizes};
use anyhow::{Context, bail};
use overlay::Overlay;
use report::{Progress, Report};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use stele_env::Env;
use stele_storage::Storage;
use stele_storage::local::LocalStorage;
use stele_types::FileId;
use tablets::Tablets;

/// Which folder a command for stopped servers is about.
#[derive(clap::Args)]
pub struct DataFolder {
    /// Folder of the data; no server may be running on it [default: ./stele-data]
    #[arg(
        long,
        env = "STELE_DATA",
        value_name = "DIR",
        default_value = "./stele-data",
        hide_default_value = true
    )]
    pub data: PathBuf,
}

/// The flags of `stele check`.
#[derive(clap::Args)]
pub struct CheckArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Prints one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Runs the command: 0 when nothing is damaged, 1 when something is. The second value is what to print.
pub async fn run(args: &CheckArgs, env: Env) -> anyhow::Result<(ExitCode, String)> {
    let storage = open(&args.folder.data, env.clone()).await?;
    let progress = Progress::to_terminal(env.clone());
    let report = check(storage, env, progress).await?;
    let text = if args.json { report.to_json() } else { report.to_text() };
    let code = if report.is_damaged() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    };
    Ok((code, text))
}

/// Opens an existing folder as this process's own.
pub async fn open(root: &std::path::Path, env: Env) -> anyhow::Result<Arc<LocalStorage>> {
    if !data_dir::exists(root) {
        bail!(
            "{} is not a Stele data folder; give another with --data",
            root.display()
        );
    }
    data_dir::open_folder(root, env).await
}

/// Checks everything that `storage` holds.
pub async fn check(storage: Arc<dyn Storage>, env: Env, progress: Progress) -> anyhow::Result<Report> {
    examine(storage, env, progress).await.map(|examined| examined.report)
}

/// What a check found, as a repair needs it.
pub struct Examined {
    /// For people.
    pub report: Report,
    /// The tablets and what they refer to.
    pub tablets: Tablets,
    /// Sstables that are damaged or missing.
    pub sstables: Vec<FileId>,
    /// Value files that are damaged or missing.
    pub values: Vec<FileId>,
    /// Whether the catalog could be read.
    pub has_catalog: bool,
}

/// Checks everything, for a repair.
pub async fn examine(storage: Arc<dyn Storage>, env: Env, progress: Progress) -> anyhow::Result<Examined> {
    let mut report = Report::default();
    let files = storage.list("").await.context("listing the data folder")?;
    progress.expect(files.iter().map(|file| file.len).sum());
    let overlay: Arc<dyn Storage> = Overlay::over(storage.clone());
    let catalog = catalog::check(overlay, env.clone(), &mut report).await;
    let tablets = tablets::check(&storage, catalog.as_ref(), &mut report).await?;
    let sstables = sstables::check(&storage, &env, &tablets, &progress, &mut report).await?;
    let values = values::check(&storage, &tablets, &progress, &mut report).await?;
    log::check(&*storage, &tablets, &progress, &mut report).await;
    let kept = files
        .iter()
        .filter(|file| file.path.starts_with(crate::repair::KEPT))
        .count();
    if kept > 0 {
        report.note(
            crate::repair::KEPT,
            format!("{kept} files that repairs have set aside; nobody reads them"),
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
        has_catalog: catalog.is_some(),
    })
}

fn is_known(path: &str) -> bool {
    let coord = path.starts_with("coord/snapshot-") || path.starts_with("coord/log-");
    path == data_dir::FORMAT
        || path.starts_with(crate::repair::KEPT)
        || coord
        || stele_tablet::StoredFile::parse_path(path).is_some()
        || stele_tablet::manifest::parse_path(path).is_some()
        || stele_commitlog::format::parse_segment_path(path).is_some()
}
