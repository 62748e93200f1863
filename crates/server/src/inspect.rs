//! `stele inspect FILE`: prints any file the server writes, also while the server runs.
#![allow(
    clippy::disallowed_methods,
    reason = "reads one file by any path, without taking the data folder's lock"
)]

use anyhow::{Context, bail};
use bytes::Bytes;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use stele_storage::memory::MemoryStorage;
use stele_storage::{ReadFile, Storage};
use stele_tablet::{Batch, manifest};
use stele_types::CellKey;

/// A file as text.
pub async fn inspect(path: &Path, verbose: bool) -> anyhow::Result<String> {
    let shown = path.display().to_string();
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let content = Bytes::from(std::fs::read(path).with_context(|| shown.clone())?);
    if name.ends_with(".sst") {
        let file = in_memory(content).await?;
        return Ok(stele_sstable::inspect(file, verbose).await?);
    }
    if name.ends_with(".val") {
        let file = in_memory(content).await?;
        return Ok(stele_tablet::values::file::inspect(file, verbose).await?);
    }
    if content.starts_with(&stele_commitlog::format::SEGMENT_MAGIC) {
        let file = in_memory(content).await?;
        let describe = |record: &stele_commitlog::Record| {
            if verbose { mutations(record) } else { String::new() }
        };
        return Ok(stele_commitlog::inspect(file, describe).await?);
    }
    if name.starts_with("manifest-") {
        return Ok(manifest::inspect(&shown, &content)?);
    }
    if name == "FORMAT" {
        return Ok(String::from_utf8_lossy(&content).into_owned());
    }
    match stele_coord::format::inspect(&content) {
        Ok(text) => Ok(text),
        Err(error) => bail!("{shown}: not a file that Stele writes, or damaged: {error}"),
    }
}

/// The mutations of a log record, one per line.
fn mutations(record: &stele_commitlog::Record) -> String {
    let Some(batch) = Batch::decode(record.payload.bytes().clone()) else {
        return "    not a mutation batch\n".to_owned();
    };
    let mut out = String::new();
    batch.entries(record.first, |key, value| {
        if let Some(key) = CellKey::decode(key) {
            let _ = writeln!(
                out,
                "    {} {:?} row {} family {} qualifier {} timestamp {} value {} bytes",
                key.seq,
                key.kind,
                key.row.escape_ascii(),
                key.family,
                key.qualifier.escape_ascii(),
                key.timestamp,
                value.len()
            );
        }
    });
    out
}

async fn in_memory(content: Bytes) -> anyhow::Result<Arc<dyn ReadFile>> {
    let storage = MemoryStorage::new();
    storage.put_if_absent("file", content).await?;
    Ok(storage.open("file").await?)
}
