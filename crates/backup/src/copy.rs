//! Copies single files, in both directions.
//!
//! Into a destination they keep their numbers; out of it they get new ones.
//!
//! Every block of an sstable and every record of a value file is checked on the way, so damage of the source is not copied.
//!
//! Invariant: a file under its path in a data root is complete and durable before this returns, or deleted.

use crate::destination::{Destination, damaged};
use crate::error::{BackupError, Result};
use crate::format::{END_BYTES, ListedFile};
use crate::paths;
use crate::work::{Metered, Work};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_sstable::{BloomMemory, Cache, Sstable, SstableWriter};
use stele_storage::{AppendFile, ReadFile, Storage, StorageError};
use stele_tablet::StoredFile;
use stele_tablet::values::{ValueRef, copy};
use stele_types::{CellKind, FileId};

/// Index blocks that a copy reads again: two or three of 32 KiB.
const CACHE_BYTES: usize = 256 << 10;

/// Copies a file of a data root to a destination, byte for byte, below the number of an attempt.
pub async fn back_up(
    work: &Arc<Work>,
    root: &dyn Storage,
    destination: &Destination,
    attempt: u64,
    (file, len): (StoredFile, u64),
) -> Result<ListedFile> {
    let source = open(root, &file.path(), len).await.map_err(data_error)?;
    let ends = ends_of(&*source).await.map_err(BackupError::Data)?;
    let path = paths::file(attempt, file);
    let target = destination.storage().create(&path).await;
    let target = target.map_err(BackupError::Destination)?;
    let mut target = Metered::new(target, work.clone(), &path);
    let copied = copy_as(source, file, file.id(), &mut target).await;
    finish(work, copied, &mut target).await?;
    work.copied();
    Ok(ListedFile {
        file: file.id().0,
        kind: ListedFile::kind_of(file),
        len,
        crc: target.crc(),
        tail_crc: 0,
        ends,
        copied_by: attempt,
    })
}

/// A hash of the first and last bytes of a file. By it a file is recognized that another attempt copied: a data root that was
/// copied as a whole gives the same numbers to other files.
///
/// It is no CRC: blocks and records carry their own CRC-32, and the CRC-32 of data with its CRC-32 behind it is the same for all
/// data of that length.
pub async fn ends_of(file: &dyn ReadFile) -> stele_storage::Result<u64> {
    let first = file.len().min(END_BYTES);
    let last = (file.len() - first).min(END_BYTES);
    let mut hash = Sha256::new();
    hash.update(file.read_at(0, first as usize).await?);
    hash.update(file.read_at(file.len() - last, last as usize).await?);
    let hash = hash.finalize();
    Ok(hash.first_chunk().copied().map_or(0, u64::from_le_bytes))
}

/// Copies a value file of a backup into a data root, under a new number.
pub async fn restore_values(
    work: &Arc<Work>,
    destination: &Destination,
    root: &dyn Storage,
    listed: ListedFile,
    to: FileId,
) -> Result<u64> {
    let (path, source) = open_listed(destination, listed).await?;
    let new = StoredFile::Values(to).path();
    let target = root.create(&new).await.map_err(BackupError::Data)?;
    let mut target = Metered::new(target, work.clone(), &path);
    let copied = copy_as(source, StoredFile::Values(FileId(listed.file)), to, &mut target).await;
    finish(work, copied, &mut target).await?;
    work.copied();
    Ok(target.len())
}

/// The same of an sstable; `values` has the new numbers of value files.
pub async fn restore_sstable(
    work: &Arc<Work>,
    destination: &Destination,
    root: &dyn Storage,
    listed: ListedFile,
    to: FileId,
    values: &BTreeMap<FileId, FileId>,
) -> Result<u64> {
    let (path, source) = open_listed(destination, listed).await?;
    let new = StoredFile::Sstable(to).path();
    let target = root.create(&new).await.map_err(BackupError::Data)?;
    let mut target = Metered::new(target, work.clone(), &path);
    let from = FileId(listed.file);
    let sstable = open_sstable(source, from).await?;
    let refers = sstable.properties().count(CellKind::Reference) > 0;
    let len = if refers {
        let mut writer = SstableWriter::new(Box::new(target), sstable.options_of_copy(to));
        let rewritten = sstable
            .rewrite(&mut writer, |key, value| other_reference(key, value, values))
            .await;
        let finished = match rewritten {
            Ok(()) => writer.finish().await,
            Err(error) => Err(error),
        };
        work.check()?;
        finished?.file_bytes
    } else {
        let copied = sstable.copy_as(to, &mut target).await.map_err(BackupError::Sstable);
        finish(work, copied, &mut target).await?;
        target.len()
    };
    work.copied();
    Ok(len)
}

/// The value of a cell that refers to a value file, with the new number of that. A reference to a file that no manifest names
/// is of a row that is no tablet's any more; should a read ever meet it, the number 0 makes it damage.
fn other_reference(key: &[u8], value: &[u8], values: &BTreeMap<FileId, FileId>) -> Option<Vec<u8>> {
    if key.last().copied() != Some(CellKind::Reference as u8) {
        return None;
    }
    let reference = ValueRef::decode(value)?;
    let to = values.get(&reference.file).copied().unwrap_or(FileId(0));
    Some(reference.renumbered(to).encode().to_vec())
}

/// Reads a file of a backup and compares it with its checksum.
pub async fn check_listed(work: &Work, destination: &Destination, listed: ListedFile) -> Result<()> {
    const PIECE_BYTES: u64 = 1 << 20;
    let (path, source) = open_listed(destination, listed).await?;
    let mut crc = crc32fast::Hasher::new();
    let mut at = 0;
    while at < source.len() {
        let len = (source.len() - at).min(PIECE_BYTES);
        let piece = source
            .read_at(at, len as usize)
            .await
            .map_err(BackupError::Destination)?;
        crc.update(&piece);
        at += len;
        work.moved(len, false).await?;
    }
    let found = crc.finalize();
    if found != listed.crc {
        return Err(damaged(
            &path,
            format!("checksum {found:08x}, written with {:08x}", listed.crc),
        ));
    }
    work.was_read();
    Ok(())
}

/// The path of a file of a backup, and the file.
async fn open_listed(destination: &Destination, listed: ListedFile) -> Result<(String, Arc<dyn ReadFile>)> {
    let Some(stored) = listed.stored() else {
        return Err(damaged("a list of files", format!("file kind {}", listed.kind)));
    };
    let path = paths::file(listed.copied_by, stored);
    let opened = open(&**destination.storage(), &path, listed.len).await;
    opened.map(|file| (path, file)).map_err(|error| match error {
        BackupError::Damaged { path, detail } => damaged(&path, detail),
        other => other,
    })
}

/// Opens a file that must have this length.
async fn open(storage: &dyn Storage, path: &str, len: u64) -> Result<Arc<dyn ReadFile>> {
    let first = len.saturating_sub(END_BYTES)..len;
    match storage.open_known(path, len, first).await {
        Ok(file) if file.len() == len => Ok(file),
        Ok(file) => Err(damaged(path, format!("{} bytes instead of {len}", file.len()))),
        Err(StorageError::NotFound { .. }) => Err(damaged(path, "the file is missing".to_owned())),
        Err(error) => Err(BackupError::Destination(error)),
    }
}

fn data_error(error: BackupError) -> BackupError {
    match error {
        BackupError::Destination(error) => BackupError::Data(error),
        other => other,
    }
}

async fn open_sstable(file: Arc<dyn ReadFile>, id: FileId) -> Result<Arc<Sstable>> {
    let cache = Arc::new(Cache::new(CACHE_BYTES));
    Ok(Sstable::open_within(file, id, cache, &BloomMemory::new(0)).await?)
}

/// Copies a file byte for byte into an empty one, and checks every block or record on the way. The caller syncs the copy.
pub async fn copy_checked(source: Arc<dyn ReadFile>, file: StoredFile, target: &mut dyn AppendFile) -> Result<()> {
    copy_as(source, file, file.id(), target).await
}

async fn copy_as(source: Arc<dyn ReadFile>, file: StoredFile, to: FileId, target: &mut dyn AppendFile) -> Result<()> {
    match file {
        StoredFile::Sstable(from) => {
            let sstable = open_sstable(source, from).await?;
            sstable.copy_as(to, target).await?;
        }
        StoredFile::Values(from) => copy::copy_as(&source, from, to, target).await?,
    }
    Ok(())
}

/// Makes a copy durable.
async fn finish(work: &Work, copied: Result<()>, target: &mut Metered) -> Result<()> {
    // Its error is then that of the file.
    work.check()?;
    copied?;
    target.sync().await.map_err(BackupError::Destination)
}
