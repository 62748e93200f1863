//! The NameNode: directories, files, leases.

use super::blocks::Blocks;
use std::collections::BTreeMap;
use std::ops::Bound;
use stele_hdfs::client::{Fault, Result, Status};

/// The number of a file, which a rename does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(u64);

/// The answer to a request for the recovery of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// The file is closed.
    Over,
    /// DataNodes are about to agree on its end.
    Runs,
    /// They have to do so from now on.
    Begins(FileId),
}

/// The answer to a writer that closes its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// The file is closed.
    Over,
    /// DataNodes have not reported its last block.
    Runs,
    /// They have to do so from now on.
    Begins,
}

enum Entry {
    Directory,
    File(FileId),
}

/// A file that has a name.
struct File {
    /// As the NameNode knows it.
    len: usize,
    /// The lease of its writer; absent once it was taken, or the file closed.
    lease: Option<u64>,
    is_closed: bool,
    /// The lease of the writer that closed it.
    closed_by: Option<u64>,
    is_closing: bool,
    is_recovering: bool,
    modified_millis: u64,
}

/// All names and files, with the blocks of files.
#[derive(Default)]
pub(super) struct Names {
    /// By absolute path.
    entries: BTreeMap<String, Entry>,
    files: BTreeMap<FileId, File>,
    /// Also those of files that were deleted a short time ago.
    blocks: BTreeMap<FileId, Blocks>,
    /// Files so far, and leases so far.
    numbers: u64,
}

/// The directory of a path; absent for one of the topmost level.
fn parent(path: &str) -> Option<&str> {
    let (directory, _) = path.rsplit_once('/')?;
    (!directory.is_empty()).then_some(directory)
}

impl Names {
    /// The blocks of a file, which may be deleted.
    pub(super) fn blocks(&mut self, file: FileId) -> Result<&mut Blocks> {
        let blocks = self.blocks.get_mut(&file);
        blocks.ok_or_else(|| Fault::Unknown("no DataNode has the block".to_owned()))
    }

    /// Makes a file, and gives its lease.
    pub(super) fn create(&mut self, path: &str, makes_directories: bool, now: u64) -> Result<(FileId, u64)> {
        if self.entries.contains_key(path) {
            return Err(Fault::AlreadyExists);
        }
        if let Some(directory) = parent(path) {
            match makes_directories {
                true => self.make_directory(directory)?,
                false => self.check_directory(directory)?,
            }
        }
        self.numbers += 1;
        let (id, lease) = (FileId(self.numbers), self.numbers);
        let file = File {
            len: 0,
            lease: Some(lease),
            is_closed: false,
            closed_by: None,
            is_closing: false,
            is_recovering: false,
            modified_millis: now,
        };
        tracing::trace!(path, ?id, "created");
        self.entries.insert(path.to_owned(), Entry::File(id));
        self.files.insert(id, file);
        self.blocks.insert(id, Blocks::new(lease));
        Ok((id, lease))
    }

    pub(super) fn make_directory(&mut self, path: &str) -> Result<()> {
        match self.entries.get(path) {
            Some(Entry::Directory) => return Ok(()),
            Some(Entry::File(_)) => return Err(Fault::NotFound),
            None => {}
        }
        if let Some(above) = parent(path) {
            self.make_directory(above)?;
        }
        self.entries.insert(path.to_owned(), Entry::Directory);
        Ok(())
    }

    fn check_directory(&self, path: &str) -> Result<()> {
        match self.entries.get(path) {
            Some(Entry::Directory) => Ok(()),
            Some(Entry::File(_)) | None => Err(Fault::NotFound),
        }
    }

    fn file_at(&self, path: &str) -> Result<FileId> {
        match self.entries.get(path) {
            Some(Entry::File(id)) => Ok(*id),
            Some(Entry::Directory) => Err(Fault::Refused("it is a directory".to_owned())),
            None => Err(Fault::NotFound),
        }
    }

    /// A file to be read, and its bytes in finished blocks: those of a file that is being written are in one unfinished block.
    pub(super) fn open(&self, path: &str) -> Result<(FileId, usize)> {
        let id = self.file_at(path)?;
        let file = &self.files[&id];
        Ok((id, if file.is_closed { file.len } else { 0 }))
    }

    pub(super) fn status(&self, path: &str) -> Result<Status> {
        self.entries
            .get(path)
            .map(|entry| self.status_of(entry))
            .ok_or(Fault::NotFound)
    }

    fn status_of(&self, entry: &Entry) -> Status {
        match entry {
            Entry::Directory => Status {
                len: 0,
                modified_millis: 0,
                replication: None,
                is_directory: true,
            },
            Entry::File(id) => Status {
                len: self.files[id].len as u64,
                modified_millis: self.files[id].modified_millis,
                replication: Some(3),
                is_directory: false,
            },
        }
    }

    /// The entries below a path, of all levels.
    fn below<'a>(&'a self, path: &str, after: Option<&str>) -> impl Iterator<Item = (&'a str, &'a Entry)> + use<'a> {
        let prefix = format!("{path}/");
        let from = format!("{prefix}{}", after.unwrap_or_default());
        let entries = self.entries.range((Bound::Excluded(from), Bound::Unbounded));
        entries.map_while(move |(path, entry)| Some((path.strip_prefix(&prefix)?, entry)))
    }

    /// The first entries of a directory after a name.
    pub(super) fn list(&self, path: &str, after: Option<&str>, most: usize) -> Result<Vec<(String, Status)>> {
        match self.entries.get(path) {
            Some(Entry::Directory) => {}
            Some(Entry::File(_)) => return Ok(Vec::new()),
            None => return Err(Fault::NotFound),
        }
        let direct = self.below(path, after).filter(|(name, _)| !name.contains('/'));
        let listed = direct.map(|(name, entry)| (name.to_owned(), self.status_of(entry)));
        Ok(listed.take(most).collect())
    }

    /// The files that are deleted by this.
    pub(super) fn delete(&mut self, path: &str, with_content: bool) -> Result<Vec<FileId>> {
        if !self.entries.contains_key(path) {
            return Ok(Vec::new());
        }
        let below: Vec<String> = self
            .below(path, None)
            .map(|(name, _)| format!("{path}/{name}"))
            .collect();
        if !with_content && !below.is_empty() {
            return Err(Fault::Unknown("PathIsNotEmptyDirectoryException".to_owned()));
        }
        let mut deleted = Vec::new();
        for path in below.iter().map(String::as_str).chain([path]) {
            if let Some(Entry::File(id)) = self.entries.remove(path) {
                tracing::trace!(path, ?id, "deleted");
                self.files.remove(&id);
                deleted.push(id);
            }
        }
        Ok(deleted)
    }

    pub(super) fn delete_blocks(&mut self, files: &[FileId]) {
        for file in files {
            assert!(
                !self.files.contains_key(file),
                "a file that has a name keeps its blocks"
            );
            self.blocks.remove(file);
        }
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let id = self.file_at(from)?;
        if self.entries.contains_key(to) {
            return Err(Fault::AlreadyExists);
        }
        if let Some(directory) = parent(to) {
            self.check_directory(directory)?;
        }
        tracing::trace!(from, to, ?id, "renamed");
        self.entries.remove(from);
        self.entries.insert(to.to_owned(), Entry::File(id));
        Ok(())
    }

    fn leased(&mut self, file: FileId, lease: u64) -> Result<&mut File> {
        let found = self.files.get_mut(&file).filter(|file| file.lease == Some(lease));
        found.ok_or_else(|| Fault::Refused("LeaseExpiredException".to_owned()))
    }

    /// The end of a sync.
    pub(super) fn note_length(&mut self, file: FileId, lease: u64, len: usize) -> Result<()> {
        self.leased(file, lease)?.len = len;
        tracing::trace!(?file, len, "synced");
        Ok(())
    }

    pub(super) fn close(&mut self, file: FileId, lease: u64, len: usize) -> Result<Closing> {
        if self.files.get(&file).is_some_and(|file| file.closed_by == Some(lease)) {
            return Ok(Closing::Over);
        }
        let closed = self.leased(file, lease)?;
        closed.len = len;
        let closing = match std::mem::replace(&mut closed.is_closing, true) {
            true => Closing::Runs,
            false => Closing::Begins,
        };
        self.blocks(file)?.close();
        Ok(closing)
    }

    /// The DataNodes have reported the last block of a file.
    pub(super) fn end_close(&mut self, id: FileId, now: u64) {
        let Some(file) = self.files.get_mut(&id) else { return };
        assert!(
            file.is_closing && !file.is_recovering,
            "its lease cannot be taken meanwhile"
        );
        tracing::trace!(?id, len = file.len, "closed");
        (file.closed_by, file.lease) = (file.lease, None);
        (file.is_closed, file.modified_millis) = (true, now);
    }

    pub(super) fn recover_lease(&mut self, path: &str) -> Result<Recovery> {
        let id = self.file_at(path)?;
        let has_bytes = self.blocks(id)?.len() > 0;
        let file = self.files.get_mut(&id).ok_or(Fault::NotFound)?;
        if file.is_closed {
            return Ok(Recovery::Over);
        }
        if file.is_closing {
            return Err(Fault::AlreadyExists);
        }
        file.lease = None;
        if !has_bytes {
            // There is no block on whose end anybody must agree.
            file.is_closed = true;
            self.blocks(id)?.close();
            return Ok(Recovery::Over);
        }
        match std::mem::replace(&mut file.is_recovering, true) {
            true => Ok(Recovery::Runs),
            false => Ok(Recovery::Begins(id)),
        }
    }

    /// The DataNodes agree on the end of a file.
    pub(super) fn end_recovery(&mut self, id: FileId, now: u64, choose: impl Fn(usize) -> usize) {
        let (Some(file), Some(blocks)) = (self.files.get_mut(&id), self.blocks.get_mut(&id)) else {
            return;
        };
        assert!(file.is_recovering && !file.is_closed, "a recovery ends once");
        blocks.cut(choose);
        tracing::trace!(?id, len = blocks.len(), "recovered");
        (file.len, file.is_closed, file.modified_millis) = (blocks.len(), true, now);
    }

    fn named(&self) -> impl Iterator<Item = (&String, FileId)> {
        self.entries.iter().filter_map(|(path, entry)| match entry {
            Entry::File(id) => Some((path, *id)),
            Entry::Directory => None,
        })
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.named().map(|(path, _)| path.clone()).collect()
    }

    /// The closed files of which a power loss took the ends, with the number of bytes that are left.
    pub(super) fn unreadable(&self) -> Vec<(String, usize)> {
        let shorter = self.named().filter_map(|(path, id)| {
            let (file, left) = (self.files.get(&id)?, self.blocks.get(&id)?.len());
            (file.is_closed && left < file.len).then(|| (path.clone(), left))
        });
        shorter.collect()
    }

    /// Loses synced bytes of files that are being written.
    pub(super) fn lose_synced(&mut self) -> bool {
        let written = self.files.iter().filter(|(_, file)| !file.is_closed && file.len > 0);
        let written: Vec<FileId> = written.map(|(id, _)| *id).collect();
        for id in &written {
            if let Some(blocks) = self.blocks.get_mut(id) {
                blocks.lose_synced();
            }
        }
        !written.is_empty()
    }

    /// Of each file, a choice of its unsynced bytes is lost. Names are durable with each call.
    pub(super) fn lose_power(&mut self, choose: impl Fn(usize) -> usize) {
        for blocks in self.blocks.values_mut() {
            blocks.cut(&choose);
        }
    }
}
