//! Writes a bundle's folder: in parts while the bench runs, and whole at its end.
//!
//! Invariant: a folder without `INCOMPLETE` and with `SHA256SUMS` holds a whole bundle. Every file is renamed into its
//! place, so a reader finds the old or the new one, never a part.

use super::layout::{self, INCOMPLETE, Index, SUMS};
use super::{Bundle, BundleError, differences, tables};
use crate::outcome::RunOutcome;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Writes the results so far into `dir`, which is new, empty, or was written by an earlier call.
pub fn write_partial(bundle: &Bundle, dir: &Path) -> Result<(), BundleError> {
    prepare(dir)?;
    for (path, content) in contents(bundle)? {
        replace(dir, &path, &content)?;
    }
    Ok(())
}

/// Writes the whole bundle and the page that reports it into `dir`, which is new, empty, or was written by
/// [`write_partial`].
pub fn write(bundle: &Bundle, report: &str, dir: &Path) -> Result<(), BundleError> {
    prepare(dir)?;
    let mut files = contents(bundle)?;
    files.insert(layout::REPORT.to_owned(), report.as_bytes().to_vec());
    for (path, content) in &files {
        replace(dir, path, content)?;
    }
    for path in super::verify::paths(dir)? {
        // A file of an earlier call with other runs or names, which this bundle does not have.
        if !files.contains_key(&path) && path != INCOMPLETE {
            fs::remove_file(dir.join(&path)).map_err(BundleError::io(&dir.join(&path)))?;
        }
    }
    replace(dir, SUMS, sums(&files).as_bytes())?;
    let marker = dir.join(INCOMPLETE);
    fs::remove_file(&marker).map_err(BundleError::io(&marker))
}

/// Creates the folder and marks it, or refuses one that holds anything else.
fn prepare(dir: &Path) -> Result<(), BundleError> {
    fs::create_dir_all(dir).map_err(BundleError::io(dir))?;
    let marker = dir.join(INCOMPLETE);
    if marker.exists() {
        return Ok(());
    }
    if fs::read_dir(dir).map_err(BundleError::io(dir))?.next().is_some() {
        return Err(BundleError::NotEmpty(dir.to_owned()));
    }
    let text = "The bench that writes this folder is at work, or was interrupted.\n";
    fs::write(&marker, text).map_err(BundleError::io(&marker))
}

/// All files but the report and the sums, by path.
fn contents(bundle: &Bundle) -> Result<BTreeMap<String, Vec<u8>>, BundleError> {
    let index = Index::of(bundle);
    let mut files = BTreeMap::new();
    let mut add = |path: &str, content: Result<Vec<u8>, String>| match content {
        Ok(content) => {
            files.insert(path.to_owned(), content);
            Ok(())
        }
        Err(what) => Err(BundleError::Unwritable {
            path: path.into(),
            what,
        }),
    };
    add(layout::INDEX, json(&index))?;
    add(layout::SUITE, json(&bundle.suite))?;
    for (party, path) in bundle.parties.iter().zip(&index.parties) {
        add(path, json(party))?;
    }
    for (run, paths) in bundle.runs.iter().zip(&index.runs) {
        add(
            &paths.file,
            json(&RunOutcome {
                series: Vec::new(),
                ..run.clone()
            }),
        )?;
        if let Some(path) = &paths.series {
            add(path, tables::encode_series(&run.series))?;
        }
    }
    add(layout::PROCESSES, tables::encode_processes(&bundle.xray.processes))?;
    add(layout::HOSTS, tables::encode_hosts(&bundle.xray.hosts))?;
    add(layout::PAUSES, tables::encode_pauses(&bundle.xray.pauses))?;
    let table = differences::between(&bundle.parties);
    add(layout::DIFFERENCES_JSON, json(&table))?;
    add(layout::DIFFERENCES_TEXT, Ok(table.text().into_bytes()))?;
    Ok(files)
}

/// Indented JSON. A value that could not be read again, such as a number that is not finite, is found here and not
/// years later.
fn json<T: Serialize + DeserializeOwned>(value: &T) -> Result<Vec<u8>, String> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| error.to_string())?;
    serde_json::from_slice::<T>(&text).map_err(|error| format!("could not be read again: {error}"))?;
    text.push(b'\n');
    Ok(text)
}

/// Puts a file into its place, unless it is unchanged.
fn replace(dir: &Path, path: &str, content: &[u8]) -> Result<(), BundleError> {
    let target = dir.join(path);
    if fs::metadata(&target).is_ok_and(|found| found.len() == content.len() as u64)
        && fs::read(&target).is_ok_and(|found| found == content)
    {
        return Ok(());
    }
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(BundleError::io(folder))?;
    }
    let beside = dir.join("INCOMPLETE.file");
    fs::write(&beside, content).map_err(BundleError::io(&beside))?;
    fs::rename(&beside, &target).map_err(BundleError::io(&target))
}

/// `SHA256SUMS`, as `sha256sum` writes and checks it.
fn sums(files: &BTreeMap<String, Vec<u8>>) -> String {
    files.iter().fold(String::new(), |mut text, (path, content)| {
        _ = writeln!(text, "{}  {path}", sum(content));
        text
    })
}

/// SHA-256 in lower-case hexadecimal digits.
pub(super) fn sum(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold(String::new(), |mut text, byte| {
        _ = write!(text, "{byte:02x}");
        text
    })
}
