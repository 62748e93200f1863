//! The documents of an archive in its storage, and the moments that they cover.
//!
//! Terms: a *range* is a run of parts without a gap: each begins where the one before ends. Where parts are missing, because they were
//! deleted or lost, those behind them are a range of their own.

use super::format::{self, Part, TableChanges, parse_part, part_path};
use crate::error::{BackupError, Result};
use bytes::Bytes;
use std::sync::Arc;
use stele_storage::{Storage, StorageError};

/// Ranges that are told, the newest.
const RANGES_MAX: usize = 1_000;

/// An archive of the log of a server.
#[derive(Clone)]
pub struct Archive {
    storage: Arc<dyn Storage>,
}

/// The parts of a range, and the moments between which each can be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The data root that it is of.
    pub root: Vec<u8>,
    /// Number of its first part that is there.
    pub first: u64,
    /// Number of its last part.
    pub last: u64,
    /// Wall-clock microseconds from which on it has every acknowledged write.
    pub from_micros: i64,
    /// And up to which, exclusive.
    pub to_micros: i64,
}

impl Archive {
    /// Opens an archive, and makes it if it is empty and `make` is set.
    pub async fn open(storage: Arc<dyn Storage>, make: bool) -> Result<Archive> {
        check_format(&storage, format::FORMAT_TEXT, make).await?;
        Ok(Archive { storage })
    }

    /// The same of one that belongs to a cluster, with the text of its kind.
    pub(crate) async fn open_kind(storage: Arc<dyn Storage>, text: &'static str, make: bool) -> Result<Archive> {
        check_format(&storage, text, make).await?;
        Ok(Archive { storage })
    }

    /// Its storage.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The numbers of its parts, ascending.
    pub async fn numbers(&self) -> Result<Vec<u64>> {
        let listed = self.storage.list(format::PARTS).await.map_err(BackupError::Archive)?;
        let mut numbers: Vec<u64> = listed.iter().filter_map(|file| parse_part(&file.path)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The last part, which survives power loss from now on. Its writer may have ended, or failed, before it made the name durable, and
    /// the caller lets log go that the part has.
    pub(crate) async fn settled_last(&self) -> Result<Option<Part>> {
        let Some(number) = self.numbers().await?.last().copied() else {
            return Ok(None);
        };
        let part = self.part(number).await?;
        self.settle_part(number).await?;
        Ok(Some(part))
    }

    async fn settle_part(&self, number: u64) -> Result<()> {
        let synced = self.storage.sync_file(&part_path(number)).await;
        synced.map_err(BackupError::Archive)
    }

    /// A part. One that is missing is damage.
    pub async fn part(&self, number: u64) -> Result<Part> {
        let path = part_path(number);
        let content = match self.storage.read_all(&path).await {
            Err(StorageError::NotFound { .. }) => return Err(damaged(&path, "the part is missing")),
            content => content.map_err(BackupError::Archive)?,
        };
        let part = Part::decode_file(&path, &content)?;
        match part.number == number {
            true => Ok(part),
            false => Err(damaged(&path, "it is another part")),
        }
    }

    /// Writes a part, durably. If another writer has written one of this number, that one is returned.
    pub async fn put_part(&self, part: &Part) -> Result<Option<Part>> {
        let path = part_path(part.number);
        match self.storage.put_if_absent(&path, part.encode_file()?).await {
            Ok(()) => Ok(None),
            // It may be this one: the outcome of an earlier try may have been unknown.
            Err(StorageError::AlreadyExists { .. }) => {
                let found = self.part(part.number).await?;
                if found != *part {
                    return Ok(Some(found));
                }
                // That try may have failed to make the name durable.
                self.settle_part(part.number).await?;
                Ok(None)
            }
            Err(error) => Err(BackupError::Archive(error)),
        }
    }

    /// Writes a piece, which an earlier try may have written.
    pub async fn put_piece(&self, path: &str, content: Bytes) -> Result<()> {
        match self.storage.put_if_absent(path, content.clone()).await {
            Ok(()) => return Ok(()),
            Err(StorageError::AlreadyExists { .. }) => {}
            Err(error) => return Err(BackupError::Archive(error)),
        }
        let found = self.storage.read_all(path).await.map_err(BackupError::Archive)?;
        match found == content {
            true => self.storage.sync_file(path).await.map_err(BackupError::Archive),
            false => Err(damaged(path, "another writer has written it")),
        }
    }

    /// One of the pieces of changes of a part, checked.
    pub async fn changes_piece(&self, part: &Part, index: usize) -> Result<TableChanges> {
        let path = part.change_path(index);
        let Some(piece) = part.change_pieces.get(index) else {
            return Err(damaged(&path, "the part has no such piece"));
        };
        let content = match self.storage.read_all(&path).await {
            Err(StorageError::NotFound { .. }) => return Err(damaged(&path, "the piece is missing")),
            content => content.map_err(BackupError::Archive)?,
        };
        match (content.len() as u64, crc32fast::hash(&content)) == (piece.len, piece.crc) {
            true => TableChanges::decode_file(&path, &content),
            false => Err(damaged(&path, "its bytes are not those that were archived")),
        }
    }

    /// The ranges of an archive, oldest first. Reads two parts of each.
    pub async fn ranges(&self) -> Result<Vec<Range>> {
        let numbers = self.numbers().await?;
        let mut ranges = Vec::new();
        let mut left = numbers.as_slice();
        while let Some(&last) = left.last()
            && ranges.len() < RANGES_MAX
        {
            let newest = self.part(last).await?;
            // Numbers are unique, so the run is as long as they are consecutive.
            let run = left.iter().rev().zip(0..).take_while(|(number, behind)| {
                **number >= newest.range_first && last.checked_sub(*behind) == Some(**number)
            });
            let begin = left.len() - run.count();
            let first = left.get(begin).copied().unwrap_or(last);
            let from_micros = match first == newest.range_first {
                true => newest.range_from,
                // Older parts of the range are pruned or missing.
                false => self.part(first).await?.from_micros,
            };
            ranges.push(Range {
                root: newest.root,
                first,
                last,
                from_micros,
                to_micros: newest.to_micros,
            });
            left = &left[..begin];
        }
        ranges.reverse();
        Ok(ranges)
    }

    /// The last part of a range that ends before a moment, or the first one. The moment is after its begin. Where the clock stands still at the
    /// moment, parts that end at it may have writes that were begun after it.
    pub async fn part_before(&self, range: &Range, micros: i64) -> Result<u64> {
        let numbers = self.numbers().await?;
        let in_range = |number: &u64| (range.first..=range.last).contains(number);
        let numbers: Vec<u64> = numbers.into_iter().filter(in_range).collect();
        let (mut low, mut behind) = (0, numbers.len());
        // The part sought is one of these.
        while low + 1 < behind {
            let middle = low + (behind - low) / 2;
            let Some(number) = numbers.get(middle) else { break };
            match self.part(*number).await?.to_micros < micros {
                true => low = middle,
                false => behind = middle,
            }
        }
        Ok(numbers.get(low).copied().unwrap_or(range.first))
    }

    /// The last part of a range up to one of it that states all tables, or the first part. That and the changes behind it tell the table of
    /// each tablet.
    pub async fn statement_before(&self, range: &Range, number: u64) -> Result<u64> {
        let epoch = self.part(number).await?.epoch;
        // A writer states all tables in its first part, so the parts of its epoch behind that one need not be read.
        let (mut low, mut high) = (range.first, number);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.part(middle).await?.epoch < epoch {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        while low > range.first && self.part(low).await?.restated_micros == 0 {
            low -= 1;
        }
        Ok(low)
    }
}

/// Fails unless a place is marked with a text; marks it if it is empty and `make` is set.
pub(crate) async fn check_format(storage: &Arc<dyn Storage>, expected: &'static str, make: bool) -> Result<()> {
    if is_marked(storage, expected).await? {
        return Ok(());
    }
    if !make {
        return Err(no_archive(""));
    }
    let files = storage.list("").await.map_err(BackupError::Archive)?;
    let text = Bytes::from_static(expected.as_bytes());
    let made = match files.iter().find(|file| file.path != format::FORMAT) {
        None => storage.put_if_absent(format::FORMAT, text).await,
        // Another server of the cluster may have made the archive since the mark was looked for.
        Some(_) if is_marked(storage, expected).await? => return Ok(()),
        Some(other) => return Err(no_archive(&format!(" and is not empty (it has {:?})", other.path))),
    };
    match made {
        Ok(()) => Ok(()),
        Err(StorageError::AlreadyExists { .. }) => is_marked(storage, expected).await.map(drop),
        Err(error) => Err(BackupError::Archive(error)),
    }
}

/// Whether a place has the mark of an archive; another mark is an error.
async fn is_marked(storage: &Arc<dyn Storage>, expected: &'static str) -> Result<bool> {
    let text = match storage.read_all(format::FORMAT).await {
        Ok(text) if text == expected.as_bytes() => return Ok(true),
        Ok(text) => text,
        Err(StorageError::NotFound { .. }) => return Ok(false),
        Err(error) => return Err(BackupError::Archive(error)),
    };
    let text = String::from_utf8_lossy(&text);
    let (found, expected) = (text.trim(), expected.trim());
    Err(no_archive(&format!(
        " that is read here: it has {found:?}, not {expected:?}"
    )))
}

fn no_archive(why: &str) -> BackupError {
    BackupError::Invalid(format!("the place holds no archive of logs of Stele{why}"))
}

/// The error for a file of an archive whose content is wrong.
pub(crate) fn damaged(path: &str, detail: &str) -> BackupError {
    BackupError::ArchiveDamaged {
        path: path.to_owned(),
        detail: detail.to_owned(),
    }
}
