//! Reads a bundle's folder.
//!
//! The folder may come from anywhere: sizes are bounded, paths and versions checked.

use super::layout::{self, Index};
use super::{Bundle, BundleError, FORMAT, tables};
use crate::outcome::RunOutcome;
use crate::xray::Xray;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::io::Read;
use std::path::Path;

/// Largest file that is read. A run of 1,000 workers with full histograms has about 30 MB; a day of x-ray about 60.
pub(super) const FILE_BYTES_MAX: u64 = 256 << 20;

/// The bundle in the folder `dir`, whole or partial. The sums are not checked; [`super::verify()`] does.
pub fn read(dir: &Path) -> Result<Bundle, BundleError> {
    let path = dir.join(layout::INDEX);
    let bytes = file(dir, layout::INDEX)?;
    let Version { format } = parse(&path, &bytes)?;
    if format != FORMAT {
        return Err(BundleError::Format { path, found: format });
    }
    let index: Index = parse(&path, &bytes)?;
    let parties = index
        .parties
        .iter()
        .map(|path| json(dir, path))
        .collect::<Result<_, _>>()?;
    let runs = index
        .runs
        .iter()
        .map(|paths| run(dir, paths))
        .collect::<Result<_, _>>()?;
    Ok(Bundle {
        format,
        tool: index.tool,
        command: index.command,
        started_at: index.started_at,
        ended_at: index.ended_at,
        repeats: index.repeats,
        machine: index.machine,
        suite: json(dir, layout::SUITE)?,
        parties,
        runs,
        witnesses: index.witnesses,
        xray: Xray {
            processes: table(dir, layout::PROCESSES, tables::decode_processes)?,
            hosts: table(dir, layout::HOSTS, tables::decode_hosts)?,
            pauses: table(dir, layout::PAUSES, tables::decode_pauses)?,
        },
    })
}

/// Times that each experiment of the bundle in `dir` was to be run on each target, if it records that.
pub fn repeats(dir: &Path) -> Result<Option<u32>, BundleError> {
    let index: Index = parse(&dir.join(layout::INDEX), &file(dir, layout::INDEX)?)?;
    Ok(index.repeats)
}

/// The part of `bundle.json` that every version has.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

fn run(dir: &Path, paths: &layout::RunFiles) -> Result<RunOutcome, BundleError> {
    let mut run: RunOutcome = json(dir, &paths.file)?;
    if let Some(path) = &paths.series {
        run.series = table(dir, path, tables::decode_series)?;
    }
    Ok(run)
}

fn json<T: DeserializeOwned>(dir: &Path, path: &str) -> Result<T, BundleError> {
    parse(&dir.join(path), &file(dir, path)?)
}

fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, BundleError> {
    serde_json::from_slice(bytes).map_err(|error| BundleError::damaged(path, error))
}

fn table<T>(dir: &Path, path: &str, decode: fn(&[u8]) -> Result<T, String>) -> Result<T, BundleError> {
    decode(&file(dir, path)?).map_err(|what| BundleError::damaged(&dir.join(path), what))
}

/// The bytes of a file of the bundle.
pub(super) fn file(dir: &Path, path: &str) -> Result<Vec<u8>, BundleError> {
    if !layout::is_path(path) {
        let what = format!("names the file {path:?}, which no bundle may have");
        return Err(BundleError::damaged(&dir.join(layout::INDEX), what));
    }
    let path = dir.join(path);
    let found = fs::symlink_metadata(&path).map_err(BundleError::io(&path))?;
    if !found.is_file() {
        return Err(BundleError::damaged(&path, "not a plain file"));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(BundleError::damaged(
            &path,
            format!("{} bytes, expected at most {FILE_BYTES_MAX}", found.len()),
        ));
    }
    let mut bytes = Vec::new();
    let opened = fs::File::open(&path).map_err(BundleError::io(&path))?;
    opened
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(BundleError::io(&path))?;
    Ok(bytes)
}
