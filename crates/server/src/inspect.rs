//! `stele inspect FILE`: prints any file that the server writes, and HFiles, which bulk loads read.
//!
//! It also works while the server runs. A file of an object store or HDFS has to be copied first.
#![allow(
    clippy::disallowed_methods,
    reason = "reads one file by any path, without taking the data folder's lock"
)]

use crate::encryption::Keys;
use anyhow::{Context, bail};
use bytes::Bytes;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use stele_encryption::{DIRECTORY, FILE_MAGIC, FileHeader, HEADER_BYTES, KEY_MAGIC, KeyName, KeyRecord};
use stele_storage::memory::MemoryStorage;
use stele_storage::remote::cache::chunk;
use stele_storage::{ReadFile, Storage};
use stele_tablet::{Batch, manifest, snapshot};
use stele_types::CellKey;

/// The first bytes of files that are text already.
const TEXTS: [&[u8]; 2] = [b"stele-owner ", b"stele-growing "];

/// A file as text.
pub async fn inspect(path: &Path, verbose: bool, keys: &Keys) -> anyhow::Result<String> {
    let shown = path.display().to_string();
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let mut content = Bytes::from(std::fs::read(path).with_context(|| shown.clone())?);
    if content.starts_with(&KEY_MAGIC) {
        let text = KeyRecord::inspect(&content);
        return text.map_err(|damage| anyhow::anyhow!("{shown}: {damage}"));
    }
    if content.starts_with(&FILE_MAGIC) {
        let Some(plain) = decrypted(path, &content, keys).await.with_context(|| shown.clone())? else {
            return encrypted(&content).with_context(|| shown);
        };
        content = plain;
    }
    if name.ends_with(".sst") {
        let file = in_memory(content).await?;
        return Ok(stele_sstable::inspect(file, verbose).await?);
    }
    if name.ends_with(".val") {
        let file = in_memory(content).await?;
        return Ok(stele_tablet::values::file::inspect(file, verbose).await?);
    }
    if is_hfile(&content) {
        let file = in_memory(content).await?;
        return Ok(stele_hfile::inspect(file).await?);
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
    if content.starts_with(&snapshot::MAGIC) {
        return Ok(snapshot::inspect(&shown, &content)?);
    }
    if let Some(text) = stele_backup::format::inspect(&shown, &content) {
        return Ok(text?);
    }
    if let Some(text) = stele_backup::archive::format::inspect(&shown, &content) {
        return Ok(text?);
    }
    if let Some(text) = chunk::inspect(name, &content) {
        return Ok(text);
    }
    if name == "FORMAT" || TEXTS.iter().any(|text| content.starts_with(text)) {
        return Ok(String::from_utf8_lossy(&content).into_owned());
    }
    match stele_coord::format::inspect(&content) {
        Ok(text) => Ok(text),
        Err(error) => match part_number(name) {
            // The first part begins with the header of its file.
            Some(number) if number != 1 || content.is_empty() => Ok(part(number, content.len())),
            _ => bail!("{shown}: not a file that Stele writes, or damaged: {error}"),
        },
    }
}

/// The content of an encrypted file, by the data keys of the root that it is in. `None` without keys.
async fn decrypted(path: &Path, content: &Bytes, keys: &Keys) -> anyhow::Result<Option<Bytes>> {
    if keys.are_none() {
        return Ok(None);
    }
    let path = path.canonicalize()?;
    let root = path.ancestors().find(|folder| folder.join(DIRECTORY).is_dir());
    let root = root.with_context(|| format!("no folder above it has the data keys, {DIRECTORY}"))?;
    let copy = MemoryStorage::new();
    for entry in std::fs::read_dir(root.join(DIRECTORY))? {
        let entry = entry?;
        let name = entry.file_name();
        let key = std::fs::read(entry.path())?;
        copy.put_if_absent(&format!("{DIRECTORY}{}", name.to_string_lossy()), key.into())
            .await?;
    }
    let at = path.strip_prefix(root)?.to_string_lossy().into_owned();
    copy.put_if_absent(&at, content.clone()).await?;
    let shown = keys.look(copy, &root.display().to_string()).await?;
    Ok(Some(shown.read_all(&at).await?))
}

/// Describes an encrypted file whose content cannot be shown.
fn encrypted(content: &Bytes) -> anyhow::Result<String> {
    let header = content.first_chunk().context("the encryption header is cut off")?;
    let header = FileHeader::decode(header).map_err(|damage| anyhow::anyhow!(damage))?;
    let key = match header.key {
        KeyName::Root => "the root's data key".to_owned(),
        KeyName::Table(table) => format!("the data key of table {table}"),
    };
    let bytes = content.len() - HEADER_BYTES;
    Ok(format!(
        "encrypted with {key}, {bytes} bytes; give --encryption-key-file to see its content\n"
    ))
}

/// Whether a file is one of HBase's files of cells, which bulk loads read.
fn is_hfile(content: &[u8]) -> bool {
    let at = content
        .last_chunk::<4>()
        .and_then(|version| stele_hfile::trailer_offset(content.len() as u64, *version));
    let trailer = at.and_then(|at| content.get(usize::try_from(at).ok()?..));
    trailer.is_some_and(|trailer| trailer.starts_with(stele_hfile::TRAILER_MAGIC))
}

/// The number of a part, by its name: of a growing file in an object store, or of one in HDFS. Of joined parts, that of
/// the first.
fn part_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix('@')?;
    let digits = digits.split_once('-').map_or(digits, |(first, _)| first);
    let digits = digits.strip_suffix(".open").unwrap_or(digits);
    (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Describes a part that does not begin its file. Only the parts before it tell where its records begin.
fn part(number: u32, len: usize) -> String {
    match (number, len) {
        (0, 0) => "part 0: the file is there as long as this is\n".to_owned(),
        (_, 0) => format!("part {number}: nothing, so nothing comes after it\n"),
        _ => format!("part {number}: {len} bytes, which go on where the part before ends\n"),
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
    if let Some(record) = batch.token() {
        let _ = writeln!(out, "    {record:?}");
    }
    out
}

async fn in_memory(content: Bytes) -> anyhow::Result<Arc<dyn ReadFile>> {
    let storage = MemoryStorage::new();
    storage.put_if_absent("file", content).await?;
    Ok(storage.open("file").await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;
    use stele_settings::KeySources;
    use stele_storage::local::LocalStorage;
    use stele_storage::remote::cache::chunk::{Chunk, ChunkId};

    #[tokio::test]
    async fn files_of_other_media_and_of_their_cache_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let told = async |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            inspect(&path, false, &Keys::default())
                .await
                .map_err(|error| error.to_string())
        };
        let kept = Chunk::of("sst/1.sst", "tag", 2, 3 << 20).encode(&[7; 100]);
        let name = ChunkId::of("sst/1.sst", "tag", 2).file_name();
        let text = told(&name, &kept).await.unwrap();
        assert!(
            text.contains("chunk 2 of") && text.contains("100 bytes, from byte 1048576"),
            "{text}"
        );
        let owner = "stele-owner 1\nepoch 7\n";
        assert_eq!(told("00000007", owner.as_bytes()).await.unwrap(), owner);
        let growing = "stele-growing 1\nowner 7\n";
        assert_eq!(told("@00000000", growing.as_bytes()).await.unwrap(), growing);
        assert!(
            told("@00000003", b"the middle of a record")
                .await
                .unwrap()
                .contains("22 bytes")
        );
        assert!(told("@0000000a", b"").await.unwrap().contains("part 10: nothing"));
        assert!(told("@00000000", b"").await.unwrap().contains("as long as this is"));
        // All other files are refused as before.
        for (name, content) in [
            ("@3", &b"x"[..]),
            ("@00000001", b"x"),
            ("notes.txt", b"x"),
            (&name[1..], &kept[..]),
        ] {
            assert!(
                told(name, content)
                    .await
                    .unwrap_err()
                    .contains("not a file that Stele writes"),
                "{name}"
            );
        }
    }

    #[tokio::test]
    async fn encrypted_files_are_shown_with_their_key() {
        let folder = tempfile::tempdir().unwrap();
        let key_file = folder.path().join("keys");
        std::fs::write(&key_file, format!("2026 {}\n", "5a".repeat(32))).unwrap();
        let sources = KeySources::parse(Some(key_file), "").unwrap();
        let keys = Keys::open(&sources, &TokioRuntime::current()).await.unwrap();
        let data = folder.path().join("data");
        let root = LocalStorage::open(&data, TokioRuntime::current()).unwrap();
        let root = keys.over(root, "data").await.unwrap();
        root.put_if_absent("coord/owner", Bytes::from_static(b"stele-owner 1\nepoch 7\n"))
            .await
            .unwrap();
        let told = async |path: &str, keys: &Keys| {
            let told = inspect(&data.join(path), false, keys).await;
            told.map_err(|error| format!("{error:#}"))
        };
        assert_eq!(told("coord/owner", &keys).await.unwrap(), "stele-owner 1\nepoch 7\n");
        let without = told("coord/owner", &Keys::default()).await.unwrap();
        assert!(without.contains("the root's data key, 22 bytes"), "{without}");
        let key = told("encryption/root-00000001.00000001", &Keys::default())
            .await
            .unwrap();
        assert!(key.contains("wrapped by     2026"), "{key}");
    }
}
