//! The chunks in the cache folder.

use super::CacheOptions;
use super::chunk::{Chunk, ChunkId};
use crate::local::make_private_directory;
use crate::{Result, StorageError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Places of removed chunks that the order may have, besides as many as there are chunks.
const FORGOTTEN_MAX: usize = 64;

/// Factor by which more bytes are evicted than written on a full disk: other chunks are being written, and it must not
/// be full again immediately.
const GONE_FOR_ONE: u64 = 2;

pub(super) struct Disk {
    dir: PathBuf,
    bytes_max: u64,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    /// Length, and whether it was read since it was last at the front.
    files: BTreeMap<ChunkId, (u64, bool)>,
    /// In the order of eviction.
    order: VecDeque<ChunkId>,
    bytes: u64,
}

impl Index {
    fn insert(&mut self, id: ChunkId, len: u64) {
        self.bytes += len;
        match self.files.insert(id, (len, false)) {
            Some((old, _)) => self.bytes -= old,
            None => {
                self.order.push_back(id);
                self.forget();
            }
        }
    }

    /// Removes places of chunks that are gone, or have a later place, when there are many. Another process may delete
    /// files all the time, and without evictions no place reaches the front.
    fn forget(&mut self) {
        if self.order.len() <= 2 * self.files.len() + FORGOTTEN_MAX {
            return;
        }
        let mut kept: VecDeque<ChunkId> = VecDeque::with_capacity(self.files.len());
        let mut seen = BTreeSet::new();
        for id in self.order.drain(..).rev() {
            if self.files.contains_key(&id) && seen.insert(id) {
                kept.push_front(id);
            }
        }
        self.order = kept;
        debug_assert_eq!(
            self.files.values().map(|(len, _)| len).sum::<u64>(),
            self.bytes,
            "the bytes of the folder are those of its chunks"
        );
    }

    /// Removes chunks until at most `bytes_max` bytes remain. Returns the removed ones.
    fn evict(&mut self, bytes_max: u64) -> Vec<ChunkId> {
        let mut gone = Vec::new();
        while self.bytes > bytes_max {
            let Some(id) = self.order.pop_front() else { break };
            match self.files.get_mut(&id) {
                Some((_, used)) if *used => {
                    *used = false;
                    self.order.push_back(id);
                }
                Some(_) => {
                    self.remove(id);
                    gone.push(id);
                }
                None => {}
            }
        }
        debug_assert!(
            self.bytes <= bytes_max || self.order.is_empty(),
            "the folder is within its limit after an eviction"
        );
        gone
    }

    fn remove(&mut self, id: ChunkId) {
        if let Some((len, _)) = self.files.remove(&id) {
            assert!(len <= self.bytes, "a chunk's bytes are part of the sum");
            self.bytes -= len;
        }
    }

    fn touch(&mut self, id: ChunkId) -> bool {
        match self.files.get_mut(&id) {
            Some((_, used)) => {
                *used = true;
                true
            }
            None => false,
        }
    }
}

impl Disk {
    pub(super) fn open(options: CacheOptions) -> Result<Disk> {
        let failed = |operation: &'static str, error: std::io::Error| StorageError::Io {
            path: options.dir.display().to_string(),
            operation,
            message: error.to_string(),
        };
        let above = options.dir.parent().filter(|above| !above.as_os_str().is_empty());
        let made = above.map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| make_private_directory(&options.dir))
            .map_err(|e| failed("making the cache folder", e))?;
        let mut index = Index::default();
        for entry in std::fs::read_dir(&options.dir).map_err(|e| failed("listing the cache folder", e))? {
            let entry = entry.map_err(|e| failed("listing the cache folder", e))?;
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(ChunkId::parse) else {
                continue;
            };
            let len = entry
                .metadata()
                .map_err(|e| failed("listing the cache folder", e))?
                .len();
            index.insert(id, len);
        }
        let disk = Disk {
            bytes_max: options.bytes,
            dir: options.dir,
            index: Mutex::new(index),
        };
        disk.make_space();
        Ok(disk)
    }

    /// Whether a chunk is in the folder; marks it as read.
    pub(super) fn touch(&self, id: ChunkId) -> bool {
        self.index.lock().touch(id)
    }

    fn path(&self, id: ChunkId) -> PathBuf {
        self.dir.join(id.file_name())
    }

    pub(super) fn read(&self, wanted: &Chunk) -> Option<Bytes> {
        let path = self.path(wanted.id);
        let file = std::fs::read(&path).ok().map(Bytes::from);
        let content = file.and_then(|file| wanted.decode(&file));
        if content.is_none() {
            self.index.lock().remove(wanted.id);
            discard(&path);
        }
        content
    }

    pub(super) fn write(&self, wanted: &Chunk, content: &Bytes) {
        let file = wanted.encode(content);
        let path = self.path(wanted.id);
        // The write is neither atomic nor synced: the checksum detects an incomplete file.
        let mut written = std::fs::write(&path, &file);
        if written.as_ref().is_err_and(is_full) {
            // The disk has less space than the cache's limit. If the old chunks stayed, no new one could ever be
            // cached, and the old ones lose their use as their files are compacted.
            discard(&path);
            self.give_back(GONE_FOR_ONE * file.len() as u64);
            written = std::fs::write(&path, &file);
        }
        match written {
            Ok(()) => {
                self.index.lock().insert(wanted.id, file.len() as u64);
                self.make_space();
            }
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "a chunk could not be cached");
                self.index.lock().remove(wanted.id);
                discard(&path);
            }
        }
    }

    fn make_space(&self) {
        let gone = self.index.lock().evict(self.bytes_max);
        gone.iter().for_each(|id| discard(&self.path(*id)));
    }

    /// Evicts this many bytes of chunks.
    fn give_back(&self, bytes: u64) {
        let mut index = self.index.lock();
        let left = index.bytes.saturating_sub(bytes);
        let gone = index.evict(left);
        drop(index);
        gone.iter().for_each(|id| discard(&self.path(*id)));
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Removes a chunk's file, if it exists. A file that remains is found by the next process.
fn discard(path: &Path) {
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// `/dev/full` takes no byte, like a disk that other processes have filled.
    #[cfg(target_os = "linux")]
    #[test]
    fn on_a_full_disk_the_oldest_goes_for_what_comes() {
        let folder = tempfile::TempDir::new().unwrap();
        let options = CacheOptions {
            dir: folder.path().to_owned(),
            bytes: 64 << 20,
        };
        let disk = Disk::open(options).unwrap();
        let content = Bytes::from(vec![7; 1_000]);
        let chunks = ["a", "b", "c", "d"].map(|path| Chunk::of(path, "tag", 0, 1_000));
        let [first, second, third, last] = &chunks;
        for chunk in [first, second, third] {
            disk.write(chunk, &content);
        }
        std::os::unix::fs::symlink("/dev/full", disk.path(last.id)).unwrap();
        disk.write(last, &content);
        let is_kept = chunks.each_ref().map(|chunk| disk.touch(chunk.id));
        assert_eq!(is_kept, [false, false, true, true]);
        let read = chunks.each_ref().map(|chunk| disk.read(chunk));
        assert_eq!(read, [None, None, Some(content.clone()), Some(content)]);
    }

    #[test]
    fn a_new_folder_is_for_its_user_alone() {
        // The usual umask, under which directories are open to others.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let folder = tempfile::TempDir::new().unwrap();
        let dir = folder.path().join("above/cache");
        let options = CacheOptions {
            dir: dir.clone(),
            bytes: 64 << 20,
        };
        Disk::open(options).unwrap();
        assert_eq!(std::fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn files_that_vanish_again_and_again_are_forgotten() {
        let chunks: Vec<ChunkId> = (0..10).map(|number| ChunkId::of("path", "tag", number)).collect();
        let mut index = Index::default();
        for _ in 0..1000 {
            for id in &chunks {
                index.insert(*id, 1);
                index.remove(*id);
                index.insert(*id, 1);
            }
        }
        assert_eq!((index.files.len(), index.bytes), (10, 10));
        assert!(index.order.len() <= 2 * 10 + FORGOTTEN_MAX, "{}", index.order.len());
        let mut gone = index.evict(0);
        gone.sort_unstable();
        assert_eq!(gone, chunks);
    }
}
