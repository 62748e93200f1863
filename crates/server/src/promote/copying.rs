//! The files of a data root that its catalog needs, and copies of them.
//!
//! Every block of an sstable and every record of a value file is checked on the way. Then the copy is read back and compared with
//! its source, byte for byte. A file that is there already is compared in the same way, so another run copies only the files that
//! are missing or differ.
//!
//! Invariant: after [`copy_all`] the target has each needed file as the source has it, and no other manifest or snapshot.

use crate::check::report::Progress;
use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet};
use stele_backup::copy::copy_checked;
use stele_catalog::CatalogView;
use stele_storage::{ReadFile, Storage, StorageError};
use stele_tablet::manifest::{self, Manifest};
use stele_tablet::{StoredFile, snapshot};

/// Manifests and parts of snapshots read or copied concurrently: each is small.
const SMALL_CONCURRENTLY: usize = 32;
/// Bytes that a comparison reads of each file at a time: a request to an object store.
const PIECE_BYTES: u64 = 4 << 20;

/// The files that the catalog needs.
#[derive(Debug, Default)]
pub struct Needed {
    /// Sstables and value files with their bytes.
    pub stored: BTreeMap<StoredFile, u64>,
    /// Paths of manifests and of parts of snapshots.
    pub small: BTreeSet<String>,
    /// The highest epoch in any name or manifest.
    pub epochs: u32,
}

/// Copies that were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files, large and small.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were there.
    pub same: u64,
}

impl Needed {
    fn add(&mut self, manifest: &Manifest) {
        self.epochs = self.epochs.max(manifest.epoch);
        for (file, len) in snapshot::stored(manifest) {
            self.epochs = self.epochs.max(file.id().epoch());
            self.stored.insert(file, len);
        }
    }
}

/// Finds the files that tablets and snapshots need, and makes sure that each is there.
pub async fn find(source: &dyn Storage, view: &CatalogView) -> anyhow::Result<Needed> {
    let versions = manifest::list_all(source).await?;
    let mut needed = Needed::default();
    let newest = view.tables.values().flat_map(|table| table.tablets()).map(|tablet| {
        let number = versions.get(&tablet.id).and_then(|numbers| numbers.iter().max());
        let number = number.with_context(|| format!("tablet {} has no manifest", tablet.id))?;
        Ok(manifest::path(tablet.id, *number))
    });
    let newest = newest.collect::<anyhow::Result<Vec<String>>>()?;
    let reading = newest.into_iter().map(|path| async move {
        let manifest = Manifest::decode_file(&path, &source.read_all(&path).await?)?;
        anyhow::Ok((path, manifest))
    });
    let mut reading = futures::stream::iter(reading).buffer_unordered(SMALL_CONCURRENTLY);
    while let Some((path, manifest)) = reading.try_next().await? {
        needed.add(&manifest);
        needed.small.insert(path);
    }
    drop(reading);
    let parts = view.snapshots.values();
    let parts = parts.flat_map(|entry| (0..entry.parts).map(|part| (entry.id, part)));
    let reading = parts.map(|(id, part)| async move { anyhow::Ok((id, snapshot::read(source, id, part).await?)) });
    let reading: Vec<_> = reading.collect();
    let mut reading = futures::stream::iter(reading).buffer_unordered(SMALL_CONCURRENTLY);
    while let Some((id, part)) = reading.try_next().await? {
        part.tablets.iter().for_each(|manifest| needed.add(manifest));
        needed.small.insert(snapshot::path(id, part.part));
    }
    drop(reading);
    check_there(source, &needed).await?;
    Ok(needed)
}

/// A file that is missing would be noticed by a reader of the cluster, when the single server is no more.
async fn check_there(source: &dyn Storage, needed: &Needed) -> anyhow::Result<()> {
    let listed = source.list("sst/").await?;
    let listed: BTreeMap<StoredFile, u64> = listed
        .into_iter()
        .filter_map(|file| Some((StoredFile::parse_path(&file.path)?, file.len)))
        .collect();
    for (file, len) in &needed.stored {
        match listed.get(file) {
            Some(found) if found == len => {}
            Some(found) => bail!("{} has {found} bytes instead of {len}: see `stele check`", file.path()),
            None => bail!("{} is missing: see `stele check`", file.path()),
        }
    }
    Ok(())
}

/// Copies everything that is missing or differs.
pub async fn copy_all(
    (source, target): (&dyn Storage, &dyn Storage),
    needed: &Needed,
    parallel: usize,
    progress: &Progress,
) -> anyhow::Result<Copied> {
    progress.expect(needed.stored.values().sum());
    let large = needed.stored.iter().map(|(file, len)| async move {
        let copied = copy_stored(source, target, *file, *len).await;
        progress.add(*len);
        copied.with_context(|| file.path()).map(|is_copied| (is_copied, *len))
    });
    let large: Vec<_> = large.collect();
    let mut copied = Copied::default();
    let mut copying = futures::stream::iter(large).buffer_unordered(parallel);
    while let Some((is_copied, len)) = copying.try_next().await? {
        copied.note(is_copied, len);
    }
    drop(copying);
    let small = needed.small.iter().map(|path| async move {
        let copied = copy_small(source, target, path).await;
        copied.with_context(|| path.clone())
    });
    let small: Vec<_> = small.collect();
    let mut copying = futures::stream::iter(small).buffer_unordered(SMALL_CONCURRENTLY);
    while let Some((is_copied, len)) = copying.try_next().await? {
        copied.note(is_copied, len);
    }
    drop(copying);
    remove_others(target, &needed.small).await?;
    assert_eq!(
        copied.files + copied.same,
        (needed.stored.len() + needed.small.len()) as u64,
        "each needed file is copied or was there"
    );
    Ok(copied)
}

impl Copied {
    fn note(&mut self, is_copied: bool, len: u64) {
        match is_copied {
            true => {
                self.files += 1;
                self.bytes += len;
            }
            false => self.same += 1,
        }
    }
}

/// Copies an sstable or a value file, unless it is there; whether it did.
async fn copy_stored(source: &dyn Storage, target: &dyn Storage, file: StoredFile, len: u64) -> anyhow::Result<bool> {
    let path = file.path();
    let from = source.open(&path).await?;
    if from.len() != len {
        bail!("{} bytes instead of {len}", from.len());
    }
    match target.open(&path).await {
        Ok(there) if is_same(&*from, &*there).await? => return Ok(false),
        // A file of an interrupted run, or of an earlier state of the source.
        Ok(_) => target.delete(&path).await?,
        Err(StorageError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let mut to = target.create(&path).await?;
    copy_checked(from.clone(), file, &mut *to).await?;
    to.sync().await?;
    drop(to);
    let copy = target.open(&path).await?;
    match is_same(&*from, &*copy).await? {
        true => Ok(true),
        false => bail!("the copy differs from its source"),
    }
}

/// The same of a manifest or a part of a snapshot, with its bytes.
async fn copy_small(source: &dyn Storage, target: &dyn Storage, path: &str) -> anyhow::Result<(bool, u64)> {
    let content = source.read_all(path).await?;
    let len = content.len() as u64;
    match target.read_all(path).await {
        Ok(there) if there == content => return Ok((false, len)),
        Ok(_) => target.delete(path).await?,
        Err(StorageError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    target.put_if_absent(path, content.clone()).await?;
    match target.read_all(path).await? == content {
        true => Ok((true, len)),
        false => bail!("the copy differs from its source"),
    }
}

/// Whether two files have the same bytes.
async fn is_same(one: &dyn ReadFile, other: &dyn ReadFile) -> stele_storage::Result<bool> {
    if one.len() != other.len() {
        return Ok(false);
    }
    let mut at = 0;
    while at < one.len() {
        let len = (one.len() - at).min(PIECE_BYTES);
        let (first, second) = futures::try_join!(one.read_at(at, len as usize), other.read_at(at, len as usize))?;
        if first != second {
            return Ok(false);
        }
        at += len;
    }
    Ok(true)
}

/// Removes manifests and parts of snapshots of an earlier state of the source: the newest manifest of a tablet counts.
async fn remove_others(target: &dyn Storage, needed: &BTreeSet<String>) -> anyhow::Result<()> {
    for directory in ["tablets/", snapshot::DIRECTORY] {
        let listed = target.list(directory).await?.into_iter().map(|file| file.path);
        let others: Vec<String> = listed.filter(|path| !needed.contains(path)).collect();
        target.delete_all(&others).await?;
    }
    Ok(())
}
