//! Files whose sync has failed: their bytes are written again before a later sync counts.
//!
//! After a failed write-back Linux reports the error once, and marks the pages clean although the device lacks them. A
//! later `fdatasync` then returns success and writes nothing (Rebello et al., *Can Applications Recover from fsync
//! Failures?*, ATC 2020, section 3). While the power stays on, the next process reads the bytes from the page cache and
//! would take them for durable. Therefore each failed sync leaves the file's path in `UNSYNCED`, and the next open
//! writes the file's bytes again, in place, which makes its pages dirty. `UNSYNCED` itself is not synced: where power
//! loss takes it, the page cache is gone, too, and the next process reads the device's own bytes.

use super::syncs;
use crate::{PATH_BYTES_MAX, RESERVED_UNSYNCED, check_path};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Bytes that one call writes again, and bytes that are left out where the device cannot read.
const CHUNK_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4 << 10;

/// The files of a root whose last sync failed.
#[derive(Debug)]
pub(super) struct Unsynced {
    directory: PathBuf,
    paths: Mutex<BTreeSet<String>>,
    /// Makes the bytes of a file durable; tests inject failures.
    pub(super) sync: fn(&File) -> io::Result<()>,
}

impl Unsynced {
    /// Reads the paths that former processes left. Lines that name no file are ignored: power loss may have torn them.
    pub(super) fn read(directory: &Path) -> io::Result<Unsynced> {
        let left = match fs::read(directory.join(RESERVED_UNSYNCED)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let lines = left
            .split(|byte| *byte == b'\n')
            .filter_map(|line| str::from_utf8(line).ok());
        let named = lines.filter(|line| check_path(line).is_ok() && directory.join(line).is_file());
        Ok(Unsynced {
            paths: Mutex::new(named.map(str::to_owned).collect()),
            ..Unsynced::none(directory)
        })
    }

    /// For a root in which nothing is written.
    pub(super) fn none(directory: &Path) -> Unsynced {
        Unsynced {
            directory: directory.to_owned(),
            paths: Mutex::default(),
            sync: syncs::content,
        }
    }

    /// Writes the bytes of all these files again and makes them durable. For the open, before anybody reads them. A file for which
    /// that fails stays in the list: a later sync of it tries again, and not every file is needed.
    pub(super) fn write_all_again(&self) -> io::Result<()> {
        let paths = self.paths.lock().clone();
        for path in &paths {
            tracing::warn!(path, "a sync of this file failed: its bytes are written again");
            let open = || File::open(self.directory.join(path));
            if let Err(error) = open().and_then(|file| self.sync_existing(path, &file)) {
                tracing::error!(path, %error, "the bytes of this file are still not durable");
            }
        }
        if !self.paths.lock().is_empty() {
            return Ok(());
        }
        match fs::remove_file(self.directory.join(RESERVED_UNSYNCED)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Makes the bytes of a file that is being written durable. The caller must not sync it through this handle again
    /// after an error.
    pub(super) fn sync_written(&self, path: &str, file: &File) -> io::Result<()> {
        (self.sync)(file).inspect_err(|_| self.note(path))
    }

    /// Makes the bytes of an existing, open file durable, after a failed sync, too.
    pub(super) fn sync_existing(&self, path: &str, file: &File) -> io::Result<()> {
        if self.paths.lock().contains(path) {
            write_again(&self.directory.join(path), path)?;
        }
        self.sync_written(path, file)?;
        self.forget(path);
        Ok(())
    }

    /// Records a failed sync, for this process and the next ones.
    pub(super) fn note(&self, path: &str) {
        debug_assert!(path.len() <= PATH_BYTES_MAX, "only files of a root are noted");
        if !self.paths.lock().insert(path.to_owned()) {
            return;
        }
        let append = || {
            let mut options = OpenOptions::new();
            let mut file = options
                .append(true)
                .create(true)
                .open(self.directory.join(RESERVED_UNSYNCED))?;
            // A torn line of an earlier process must not swallow this one.
            file.write_all(format!("\n{path}\n").as_bytes())
        };
        if let Err(error) = append() {
            tracing::error!(path, %error, "the failed sync of this file could not be recorded for the next start");
        }
    }

    /// The file is deleted, or durable.
    pub(super) fn forget(&self, path: &str) {
        self.paths.lock().remove(path);
    }
}

/// Writes all bytes of a file over themselves. Pages that the device cannot read are left: nothing of them can be
/// saved, and a reader meets the same error.
fn write_again(absolute: &Path, path: &str) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(absolute)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut at, mut wanted) = (0, CHUNK_BYTES);
    loop {
        match file.read_at(buffer.get_mut(..wanted).unwrap_or_default(), at) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                file.write_all_at(buffer.get(..read).unwrap_or_default(), at)?;
                at += read as u64;
                wanted = CHUNK_BYTES;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if Errno::from_io_error(&e) != Some(Errno::IO) => return Err(e),
            Err(_) if wanted > PAGE_BYTES => wanted = PAGE_BYTES,
            Err(error) => {
                tracing::error!(path, at, %error, "the device cannot read these bytes");
                at += PAGE_BYTES as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Unsynced;
    use crate::local::root::Root;
    use std::fs::{self, File};
    use std::io;
    use std::path::Path;
    use std::time::SystemTime;

    const LOG: &str = "log/0000/1.log";

    fn failing(_: &File) -> io::Result<()> {
        Err(io::Error::other("planted"))
    }

    /// A root with a log whose sync has failed, and that file.
    fn root_with_a_failed_sync(directory: &Path) -> (Root, File) {
        let mut root = Root::open(directory).unwrap();
        let file = root.create(LOG).unwrap();
        fs::write(directory.join(LOG), vec![7; 3 << 20]).unwrap();
        root.unsynced.sync = failing;
        root.sync_written(LOG, &file).unwrap_err();
        (root, file)
    }

    /// Whether the file is written again meanwhile; its content stays.
    fn is_written_again(directory: &Path, meanwhile: impl FnOnce()) -> bool {
        let file = File::options().write(true).open(directory.join(LOG)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        meanwhile();
        assert_eq!(fs::read(directory.join(LOG)).unwrap(), vec![7; 3 << 20]);
        file.metadata().unwrap().modified().unwrap() != SystemTime::UNIX_EPOCH
    }

    #[test]
    fn the_next_process_writes_again_what_a_failed_sync_covered() {
        let directory = tempfile::TempDir::new().unwrap();
        let directory = directory.path();
        let open = || drop(Root::open(directory).unwrap());
        drop(root_with_a_failed_sync(directory));
        assert!(is_written_again(directory, open));
        assert!(!is_written_again(directory, open), "one sync has succeeded since");
        assert!(!directory.join("UNSYNCED").exists());
    }

    #[test]
    fn a_later_sync_of_the_same_process_writes_again_until_one_succeeds() {
        let directory = tempfile::TempDir::new().unwrap();
        let directory = directory.path();
        let (mut root, _file) = root_with_a_failed_sync(directory);
        assert!(is_written_again(directory, || drop(root.sync_file(LOG).unwrap_err())));
        root.unsynced.sync = super::syncs::content;
        assert!(is_written_again(directory, || root.sync_file(LOG).unwrap()));
        assert!(!is_written_again(directory, || root.sync_file(LOG).unwrap()));
    }

    #[test]
    fn a_file_that_still_cannot_be_synced_stays_in_the_list() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        drop(root_with_a_failed_sync(directory));
        let mut left = Unsynced::read(directory).unwrap();
        left.sync = failing;
        left.write_all_again().unwrap();
        assert!(left.paths.lock().contains(LOG) && directory.join("UNSYNCED").exists());
        assert!(is_written_again(directory, || drop(Root::open(directory).unwrap())));
        assert!(!directory.join("UNSYNCED").exists());
    }

    #[test]
    fn a_failed_sync_of_all_files_concerns_the_logs() {
        let directory = tempfile::TempDir::new().unwrap();
        let directory = directory.path();
        let (mut root, _file) = root_with_a_failed_sync(directory);
        root.unsynced.forget(LOG);
        root.put_if_absent("sst/1", b"a table").unwrap();
        root.sync_all = |_| Err(io::Error::other("planted"));
        root.sync_all().unwrap_err();
        drop(root);
        let left = fs::read_to_string(directory.join("UNSYNCED")).unwrap();
        assert!(left.contains(LOG) && !left.contains("sst/1"), "{left}");
        assert!(is_written_again(directory, || drop(Root::open(directory).unwrap())));
    }

    #[test]
    fn lines_that_name_no_file_and_files_that_are_gone_are_ignored() {
        let directory = tempfile::TempDir::new().unwrap();
        let directory = directory.path();
        let (root, _file) = root_with_a_failed_sync(directory);
        root.delete(LOG).unwrap();
        drop(root);
        let mut left = fs::read(directory.join("UNSYNCED")).unwrap();
        left.extend(b"../outside\ntmp\n\xff\nlog\nlog/00");
        fs::write(directory.join("UNSYNCED"), left).unwrap();
        drop(Root::open(directory).unwrap());
        assert!(!directory.join("UNSYNCED").exists());
    }
}
