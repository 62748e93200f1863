//! The files of a backup on their way to the destination.
//!
//! Files that are there are taken over, all others are copied. Each gets into a list of this attempt; a list names only files
//! that are complete and durable. A file that an earlier list names may be lost since: the destination is asked, and not the list alone.

use crate::copy;
use crate::destination::Destination;
use crate::error::{BackupError, Result};
use crate::format::{Entry, LISTED_FILES_MAX, ListedFile, State};
use crate::paths;
use crate::root::DataRoot;
use crate::work::Work;
use futures::{StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_tablet::StoredFile;
use stele_types::ErrorKind;

/// Copied bytes after which a list is written, unless a hundredth of all is more: as many are copied again after a crash.
const LIST_EVERY_BYTES: u64 = 256 << 20;
/// Files that are compared concurrently with those of earlier attempts; each is a small read.
const COMPARED_CONCURRENTLY: usize = 32;

/// Files with their bytes.
pub(crate) type Needed = BTreeMap<StoredFile, u64>;

/// The files of an attempt.
pub(crate) struct Copying<'a> {
    root: &'a DataRoot,
    destination: &'a Destination,
    /// The number of the attempt.
    attempt: u64,
    /// All attempts at this backup so far.
    attempts: &'a [u64],
    work: &'a Arc<Work>,
    /// All files.
    needed: Needed,
    /// Those that no list of this attempt names yet.
    missing: Needed,
    /// Attempts whose files were looked for.
    looked_up: BTreeSet<u64>,
    /// Needed files that these have at the destination, complete.
    there: BTreeSet<(u64, StoredFile)>,
    /// Needed files that lists name, and that are not there.
    lost: BTreeSet<(u64, StoredFile)>,
    /// Entries of the next list.
    unlisted: Vec<ListedFile>,
    unlisted_bytes: u64,
    /// Number of the next list.
    next_list: u32,
    /// Bytes of files that attempts at this backup copied.
    copied_bytes: u64,
}

impl<'a> Copying<'a> {
    /// Of an attempt, next to all attempts at the backup.
    pub(crate) fn new(
        root: &'a DataRoot,
        destination: &'a Destination,
        (attempt, attempts): (u64, &'a [u64]),
        needed: Needed,
        work: &'a Arc<Work>,
    ) -> Self {
        Copying {
            root,
            destination,
            attempt,
            attempts,
            work,
            missing: needed.clone(),
            needed,
            looked_up: BTreeSet::new(),
            there: BTreeSet::new(),
            lost: BTreeSet::new(),
            unlisted: Vec::new(),
            unlisted_bytes: 0,
            next_list: 0,
            copied_bytes: 0,
        }
    }

    /// Takes over the files that earlier attempts at this backup have listed, the newest first. An earlier one may be of a copy of
    /// this root and still run: it does not change a file that it has listed.
    pub(crate) async fn resume(&mut self) -> Result<()> {
        let mut earlier = self.attempts.to_vec();
        earlier.retain(|attempt| *attempt != self.attempt);
        for attempt in earlier.into_iter().rev() {
            for number in self.destination.list_numbers(attempt).await? {
                if self.missing.is_empty() {
                    return self.list_all().await;
                }
                self.work.check()?;
                match self.destination.list(attempt, number).await {
                    Ok(listed) => self.take_same(listed).await?,
                    // Its files are copied again.
                    Err(error) if error.kind() == ErrorKind::Corruption => {
                        tracing::warn!(%error, "a list of an earlier attempt at a backup is not used");
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.list_all().await
    }

    /// Takes files over from complete backups of the same root, the newest first.
    pub(crate) async fn take_over(&mut self, state: &State, of_root: &[u8]) -> Result<()> {
        let earlier = state
            .backups
            .iter()
            .filter(|entry| entry.is_complete() && entry.root == of_root);
        let mut earlier: Vec<&Entry> = earlier.collect();
        earlier.sort_by_key(|entry| std::cmp::Reverse(entry.completed_micros));
        for entry in earlier {
            if self.missing.is_empty() {
                break;
            }
            match self.take_over_from(entry).await {
                Ok(()) => {}
                // Its files are copied again.
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    tracing::warn!(%error, "a damaged backup gives no files to the next one");
                }
                Err(error) => return Err(error),
            }
        }
        self.list_all().await
    }

    async fn take_over_from(&mut self, entry: &Entry) -> Result<()> {
        let record = self.destination.record(entry.attempt()).await?;
        for number in 0..record.lists {
            if self.missing.is_empty() {
                break;
            }
            self.work.check()?;
            let listed = self.destination.list(record.attempt(), number).await?;
            self.take_same(listed).await?;
        }
        Ok(())
    }

    /// Takes over the files of a list that are missing, are the same here, and are still at the destination.
    async fn take_same(&mut self, listed: Vec<ListedFile>) -> Result<()> {
        let mut candidates: Vec<ListedFile> = listed.into_iter().filter(|listed| self.is_missing(listed)).collect();
        self.look_up(&candidates).await?;
        candidates.retain(|listed| self.is_there(listed));
        let same: Vec<ListedFile> = {
            let candidates = candidates.into_iter();
            let comparing: Vec<_> = candidates.map(|listed| self.compared(listed)).collect();
            let mut comparing = futures::stream::iter(comparing).buffer_unordered(COMPARED_CONCURRENTLY);
            let mut same = Vec::new();
            while let Some(compared) = comparing.next().await {
                same.extend(compared?);
            }
            same
        };
        for listed in same {
            self.take(listed).await?;
        }
        Ok(())
    }

    fn is_missing(&self, listed: &ListedFile) -> bool {
        listed
            .stored()
            .is_some_and(|stored| self.missing.get(&stored) == Some(&listed.len))
    }

    /// Lists the files of the attempts that copied some listed ones, each attempt once. Only needed files are remembered.
    async fn look_up(&mut self, listed: &[ListedFile]) -> Result<()> {
        let new: BTreeSet<u64> = listed
            .iter()
            .map(|listed| listed.copied_by)
            .filter(|attempt| !self.looked_up.contains(attempt))
            .collect();
        let there: Vec<Vec<(u64, StoredFile)>> = {
            let looking: Vec<_> = new.iter().map(|attempt| self.found_of(*attempt)).collect();
            let looking = futures::stream::iter(looking).buffer_unordered(self.work.parallel());
            looking.try_collect().await?
        };
        self.there.extend(there.into_iter().flatten());
        self.looked_up.extend(new);
        Ok(())
    }

    /// The needed files that an attempt has at the destination, complete.
    async fn found_of(&self, attempt: u64) -> Result<Vec<(u64, StoredFile)>> {
        self.work.check()?;
        let listed = self.destination.storage().list(&paths::files_of(attempt)).await;
        let found = listed
            .map_err(BackupError::Destination)?
            .into_iter()
            .filter_map(|file| {
                let (by, stored) = paths::parse_file(&file.path)?;
                (self.needed.get(&stored) == Some(&file.len)).then_some((by, stored))
            });
        Ok(found.collect())
    }

    fn is_there(&mut self, listed: &ListedFile) -> bool {
        let Some(stored) = listed.stored() else { return false };
        let file = (listed.copied_by, stored);
        let is_there = self.there.contains(&file);
        if !is_there {
            self.lost.insert(file);
        }
        is_there
    }

    /// The file, if that of the server is the same.
    async fn compared(&self, listed: ListedFile) -> Result<Option<ListedFile>> {
        let Some(stored) = listed.stored() else {
            return Ok(None);
        };
        let source = self
            .root
            .storage()
            .open(&stored.path())
            .await
            .map_err(BackupError::Data)?;
        let is_same =
            source.len() == listed.len && copy::ends_of(&*source).await.map_err(BackupError::Data)? == listed.ends;
        Ok(is_same.then_some(listed))
    }

    async fn take(&mut self, listed: ListedFile) -> Result<()> {
        if let Some(stored) = listed.stored()
            && self.missing.remove(&stored).is_some()
        {
            self.work.skip(listed.len);
            if self.attempts.contains(&listed.copied_by) {
                self.copied_bytes += listed.len;
            }
            self.unlisted.push(listed);
            if self.unlisted.len() >= LISTED_FILES_MAX {
                self.list_all().await?;
            }
        }
        Ok(())
    }

    /// Copies all files that are missing.
    pub(crate) async fn copy(&mut self) -> Result<()> {
        if let Some((attempt, stored)) = self.lost.first() {
            let path = paths::file(*attempt, *stored);
            tracing::warn!(
                files = self.lost.len(),
                path,
                "earlier backups name files that the destination has lost: verify them"
            );
        }
        let every = LIST_EVERY_BYTES.max(self.missing.values().sum::<u64>() / 100);
        let (root, destination, attempt, work) = (self.root, self.destination, self.attempt, self.work);
        let missing = std::mem::take(&mut self.missing);
        let copying = missing.into_iter().map(|file| async move {
            work.check()?;
            copy::back_up(work, &**root.storage(), destination, attempt, file).await
        });
        let mut copying = futures::stream::iter(copying).buffer_unordered(work.parallel());
        let mut outcome = Ok(());
        while let Some(copied) = copying.next().await {
            match copied {
                Ok(listed) => {
                    self.copied_bytes += listed.len;
                    self.unlisted_bytes += listed.len;
                    self.unlisted.push(listed);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            if self.unlisted_bytes >= every || self.unlisted.len() >= LISTED_FILES_MAX {
                self.list_all().await?;
            }
        }
        // Also after an error: the next attempt need not copy them again.
        self.list_all().await?;
        outcome
    }

    /// Writes a list of the files that none names yet.
    async fn list_all(&mut self) -> Result<()> {
        if !self.unlisted.is_empty() {
            let files = std::mem::take(&mut self.unlisted);
            self.destination.put_list(self.attempt, self.next_list, files).await?;
            self.next_list += 1;
            self.unlisted_bytes = 0;
        }
        Ok(())
    }

    /// Files, their bytes, the bytes that this backup copied, and lists.
    pub(crate) async fn finish(self) -> Result<(u64, u64, u64, u32)> {
        assert!(
            self.missing.is_empty() && self.unlisted.is_empty(),
            "a list names each file of a complete backup"
        );
        let bytes = self.needed.values().sum();
        Ok((self.needed.len() as u64, bytes, self.copied_bytes, self.next_list))
    }
}
