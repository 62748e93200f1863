//! A data root and the system calls on it. Every call here blocks.

use super::syncs;
use super::unsynced::Unsynced;
use crate::{FileInfo, RESERVED_LOCK, RESERVED_TMP, Result, StorageError, check_path, grows};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, RenameFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The mode of a new root: neither the group of the server's user nor others may enter it, under any umask.
const OWNER_ONLY: u32 = 0o700;

/// An open data root. While it lives, the lock is held.
#[derive(Debug)]
pub(super) struct Root {
    directory: PathBuf,
    /// The open file is the lock.
    _lock: Option<File>,
    /// Directories whose entries, up to the root, this process has synced. Grows by one per directory; directories are
    /// removed at open only.
    durable: Mutex<BTreeSet<PathBuf>>,
    /// Held while a directory is listed and synced for all its entries.
    syncing_entries: Mutex<()>,
    /// Files whose bytes a sync does not cover before they are written again.
    pub(super) unsynced: Unsynced,
    /// Makes the entries of a directory durable; tests inject failures.
    sync_directory: fn(&Path) -> io::Result<()>,
    /// Makes the whole file system durable; tests inject failures.
    pub(super) sync_all: fn(&Path) -> io::Result<()>,
    /// Names unfinished puts. Unique because the lock is exclusive and `tmp` was emptied at open.
    put_counter: AtomicU64,
}

/// The storage error for a failed sync of an existing file: `NoSpace` would mean that it does not exist.
pub(super) fn not_durable(path: &str, operation: &'static str, error: &io::Error) -> StorageError {
    StorageError::Io {
        path: path.to_owned(),
        operation,
        message: error.to_string(),
    }
}

/// The storage error for a failed system call.
pub(super) fn fail(path: &str, operation: &'static str, error: &io::Error) -> StorageError {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound => StorageError::NotFound { path },
        io::ErrorKind::AlreadyExists => StorageError::AlreadyExists { path },
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StorageError::NoSpace { path },
        _ => StorageError::Io {
            path,
            operation,
            message: error.to_string(),
        },
    }
}

/// The storage error for bytes that the device cannot read.
pub(super) fn unreadable(path: &str, offset: u64, error: &io::Error) -> StorageError {
    StorageError::Unreadable {
        path: path.to_owned(),
        offset,
        message: error.to_string(),
    }
}

impl Root {
    pub(super) fn open(directory: &Path) -> Result<Root> {
        let shown = directory.display().to_string();
        let failed = |operation| {
            let shown = shown.clone();
            move |e: io::Error| fail(&shown, operation, &e)
        };
        make_durable_root(directory).map_err(failed("create data directory"))?;
        let lock = lock(directory, &shown)?;
        let tmp = directory.join(RESERVED_TMP);
        empty_tmp(&tmp).map_err(failed("clean up tmp"))?;
        remove_empty_directories(directory, list_directories).map_err(failed("clean up directories"))?;
        syncs::names(directory).map_err(failed("sync data directory"))?;
        let unsynced = Unsynced::read(directory).map_err(failed("read the list of failed syncs"))?;
        unsynced.write_all_again().map_err(failed("repeat failed syncs"))?;
        Ok(Root {
            unsynced,
            durable: Mutex::new(BTreeSet::from([directory.to_owned()])),
            syncing_entries: Mutex::new(()),
            directory: directory.to_owned(),
            _lock: Some(lock),
            sync_directory: syncs::names,
            sync_all: syncs::all,
            put_counter: AtomicU64::new(0),
        })
    }

    /// Locks an existing root and changes nothing in it, so that this also works on a read-only file system.
    pub(super) fn look(directory: &Path) -> Result<Root> {
        let lock = lock_to_check(directory, &directory.display().to_string())?;
        Ok(Root {
            unsynced: Unsynced::none(directory),
            durable: Mutex::default(),
            syncing_entries: Mutex::new(()),
            directory: directory.to_owned(),
            _lock: lock,
            sync_directory: syncs::names,
            sync_all: syncs::all,
            put_counter: AtomicU64::new(0),
        })
    }

    /// Syncs the directory that holds `path`.
    pub(super) fn sync_parent(&self, path: &str) -> io::Result<()> {
        let path = self.directory.join(path);
        (self.sync_directory)(path.parent().unwrap_or(&self.directory))
    }

    /// Creates the directories above `path` and makes them durable. An existing directory that this process did not
    /// sync is synced too: a racing call, or an earlier process that crashed, may have created it just now.
    fn make_parents(&self, path: &str) -> io::Result<()> {
        let mut above = self.directory.clone();
        let Some((parents, _)) = path.rsplit_once('/') else {
            return Ok(());
        };
        for component in parents.split('/') {
            let directory = above.join(component);
            if !self.durable.lock().contains(&directory) {
                if make_directory(&directory)? {
                    syncs::names(&above)?;
                    self.durable.lock().insert(directory.clone());
                } else {
                    self.sync_entries(&above, &directory)?;
                }
            }
            above = directory;
        }
        Ok(())
    }

    /// Makes an existing directory durable, and all its siblings with the same sync: a start puts a file into each of
    /// thousands of tablets' directories.
    fn sync_entries(&self, above: &Path, wanted: &Path) -> io::Result<()> {
        let _alone = self.syncing_entries.lock();
        if self.durable.lock().contains(wanted) {
            return Ok(());
        }
        // Listed before the sync, which then covers all of them.
        let mut found = vec![wanted.to_owned()];
        for entry in fs::read_dir(above)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                found.push(entry.path());
            }
        }
        syncs::names(above)?;
        self.durable.lock().extend(found);
        Ok(())
    }

    pub(super) fn create(&self, path: &str) -> Result<File> {
        let create = || {
            self.make_parents(path)?;
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(self.directory.join(path))
        };
        create().map_err(|e| fail(path, "create", &e))
    }

    pub(super) fn open_file(&self, path: &str) -> Result<(File, u64)> {
        let open = || {
            let file = File::open(self.directory.join(path))?;
            let metadata = file.metadata()?;
            Ok((file, metadata))
        };
        let (file, metadata) = open().map_err(|e: io::Error| match e.kind() {
            // A file in place of a directory: then there is no file below it either.
            io::ErrorKind::NotADirectory => StorageError::NotFound { path: path.to_owned() },
            _ if Errno::from_io_error(&e) == Some(Errno::IO) => unreadable(path, 0, &e),
            _ => fail(path, "open", &e),
        })?;
        if !metadata.is_file() {
            return Err(StorageError::NotFound { path: path.to_owned() });
        }
        Ok((file, metadata.len()))
    }

    pub(super) fn put_if_absent(&self, path: &str, content: &[u8]) -> Result<()> {
        let target = self.directory.join(path);
        if fs::symlink_metadata(&target).is_ok() {
            return Err(StorageError::AlreadyExists { path: path.to_owned() });
        }
        let number = self.put_counter.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.directory.join(RESERVED_TMP).join(number.to_string());
        let put = || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&unfinished)?;
            file.write_all(content)?;
            syncs::content(&file)?;
            self.make_parents(path)?;
            move_into_place(&unfinished, &target)
        };
        if let Err(error) = put() {
            // A file that cannot be removed now is removed at the next open.
            let _ = fs::remove_file(&unfinished);
            return Err(fail(path, "put", &error));
        }
        self.sync_parent(path)
            .map_err(|e| not_durable(path, "put: sync directory", &e))
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        let mut found = Vec::new();
        // Paths of directories to visit; only those that can contain a match.
        let start = prefix.rsplit_once('/').map_or("", |(directory, _)| directory);
        if !start.is_empty() && check_path(start).is_err() {
            return Ok(found);
        }
        let mut pending = vec![start.to_owned()];
        while let Some(directory) = pending.pop() {
            self.list_directory(&directory, prefix, &mut pending, &mut found)
                .map_err(|e| fail(&directory, "list", &e))?;
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        debug_assert!(
            found.iter().all(|file| file.path.starts_with(prefix)),
            "a listing names only files with its prefix"
        );
        Ok(found)
    }

    fn list_directory(
        &self,
        directory: &str,
        prefix: &str,
        pending: &mut Vec<String>,
        found: &mut Vec<FileInfo>,
    ) -> io::Result<()> {
        let entries = match fs::read_dir(self.directory.join(directory)) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let path = match directory {
                "" => name.to_owned(),
                _ => format!("{directory}/{name}"),
            };
            // Entries of others (the lock, `lost+found`, an editor's backup) have no valid path.
            if check_path(&path).is_err() {
                continue;
            }
            let kind = entry.file_type()?;
            if kind.is_dir() && (path.starts_with(prefix) || prefix.starts_with(&path)) {
                pending.push(path);
            } else if kind.is_file() && path.starts_with(prefix) {
                match entry.metadata() {
                    Ok(metadata) => found.push(FileInfo {
                        path,
                        len: metadata.len(),
                    }),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    pub(super) fn delete(&self, path: &str) -> Result<()> {
        let delete = || match fs::remove_file(self.directory.join(path)) {
            Ok(()) => self.sync_parent(path),
            // Perhaps this process unlinked it earlier, and could not make that durable.
            Err(e) if is_absent(&e) => self
                .sync_parent(path)
                .or_else(|e| if is_absent(&e) { Ok(()) } else { Err(e) }),
            Err(e) => Err(e),
        };
        self.unsynced.forget(path);
        delete().map_err(|e| fail(path, "delete", &e))
    }

    /// Deletes several files with one sync per directory. The sync dominates the cost, because the file system first
    /// writes back everything that its journal orders before it.
    pub(super) fn delete_all(&self, paths: &[String]) -> Result<()> {
        // One path per directory.
        let mut changed = BTreeMap::new();
        for path in paths {
            self.unsynced.forget(path);
            match fs::remove_file(self.directory.join(path)) {
                Err(e) if !is_absent(&e) => return Err(fail(path, "delete", &e)),
                // Perhaps this process unlinked it earlier, and could not make that durable.
                _ => changed.insert(Path::new(path).parent(), path),
            };
        }
        for path in changed.into_values() {
            match self.sync_parent(path) {
                Err(e) if !is_absent(&e) => return Err(fail(path, "delete", &e)),
                _ => {}
            }
        }
        Ok(())
    }

    /// A deletion that is not made durable.
    pub(super) fn discard(&self, path: &str) -> Result<()> {
        self.unsynced.forget(path);
        match fs::remove_file(self.directory.join(path)) {
            Err(e) if !is_absent(&e) => Err(fail(path, "delete", &e)),
            _ => Ok(()),
        }
    }

    pub(super) fn sync_file(&self, path: &str) -> Result<()> {
        let (file, _) = self.open_file(path)?;
        self.unsynced
            .sync_existing(path, &file)
            .and_then(|()| self.sync_parent(path))
            .map_err(|e| not_durable(path, "sync", &e))
    }

    /// Makes the bytes of a file that is being written durable.
    pub(super) fn sync_written(&self, path: &str, file: &File) -> io::Result<()> {
        self.unsynced.sync_written(path, file)
    }

    /// A failure may concern any file. Those that are not logs were durable before anything referred to them.
    pub(super) fn sync_all(&self) -> Result<()> {
        let Err(error) = (self.sync_all)(&self.directory) else {
            return Ok(());
        };
        for file in self.list("")?.iter().filter(|file| grows(&file.path)) {
            self.unsynced.note(&file.path);
        }
        Err(not_durable("", "sync all", &error))
    }

    pub(super) fn free_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(&self.directory)
            .map_err(|e| fail(&self.directory.display().to_string(), "statvfs", &e.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// Takes the lock and writes our process id into it for the error message of the next process.
fn lock(directory: &Path, shown: &str) -> Result<File> {
    let path = directory.join(RESERVED_LOCK);
    let failed = |e: io::Error| fail(&path.display().to_string(), "lock", &e);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(&path).map_err(failed)?;
    lock_file(&mut file, &path, shown)?;
    write_pid(&mut file).map_err(failed)?;
    Ok(file)
}

/// The same for a read-only process. `None` where the lock file does not exist.
fn lock_to_check(directory: &Path, shown: &str) -> Result<Option<File>> {
    let path = directory.join(RESERVED_LOCK);
    let failed = |e: io::Error| fail(&path.display().to_string(), "lock", &e);
    let opened = OpenOptions::new().read(true).write(true).open(&path);
    let opened = match opened {
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
            ) =>
        {
            File::open(&path)
        }
        opened => opened,
    };
    let mut file = match opened {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    lock_file(&mut file, &path, shown)?;
    // Only for the error message of the next process.
    let _ = write_pid(&mut file);
    Ok(Some(file))
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn lock_file(file: &mut File, path: &Path, shown: &str) -> Result<()> {
    let failed = |e: io::Error| fail(&path.display().to_string(), "lock", &e);
    match rustix::fs::flock(&*file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let mut content = String::new();
            let _ = file.read_to_string(&mut content);
            let holder = match content.trim().parse::<u32>() {
                Ok(pid) => format!("process {pid}"),
                Err(_) => "another process".to_owned(),
            };
            Err(StorageError::Locked {
                path: shown.to_owned(),
                holder,
            })
        }
        Err(e) => Err(failed(e.into())),
    }
}

/// Renames without replacing. `AlreadyExists` when the target is taken.
fn move_into_place(from: &Path, to: &Path) -> io::Result<()> {
    let cwd = rustix::fs::CWD;
    match rustix::fs::renameat_with(cwd, from, cwd, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_into_place(from, to),
        other => Ok(other?),
    }
}

/// The same for file systems that cannot rename without replacing.
fn link_into_place(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    // The file has its name; the other name is removed at the next open at the latest.
    let _ = fs::remove_file(from);
    Ok(())
}

/// Creates a directory. False when it exists already.
fn make_directory(directory: &Path) -> io::Result<bool> {
    make(directory, &DirBuilder::new())
}

/// Creates the directory of a root, in which other users of the machine find nothing. One that exists keeps its mode.
pub(crate) fn make_private_directory(directory: &Path) -> io::Result<bool> {
    make(directory, DirBuilder::new().mode(OWNER_ONLY))
}

fn make(directory: &Path, builder: &DirBuilder) -> io::Result<bool> {
    match builder.create(directory) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            if directory.is_dir() {
                Ok(false)
            } else {
                Err(io::ErrorKind::NotADirectory.into())
            }
        }
        other => other.map(|()| true),
    }
}

/// Creates the directory of a root, and those above it, so that each survives power loss.
fn make_durable_root(root: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = root
        .ancestors()
        .take_while(|d| !d.as_os_str().is_empty() && !d.is_dir())
        .collect();
    for directory in missing.into_iter().rev() {
        match directory == root {
            true => make_private_directory(directory)?,
            false => make_directory(directory)?,
        };
        syncs::names(match directory.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        })?;
    }
    Ok(())
}

/// Whether there is no such file, or not even the directory for it.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Creates `tmp`, or removes the unfinished puts of an earlier process.
fn empty_tmp(tmp: &Path) -> io::Result<()> {
    make_directory(tmp)?;
    for entry in fs::read_dir(tmp)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The paths of the directories in a directory.
fn list_directories(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Removes empty directories (of dropped tables, of moved tablets). Directories are implied, so these only slow down
/// listings. A directory that cannot be listed, as one of another user, is left alone. Tests inject the listing.
fn remove_empty_directories(root: &Path, list: fn(&Path) -> io::Result<Vec<PathBuf>>) -> io::Result<()> {
    let is_ours = |path: &PathBuf| {
        let inner = path.strip_prefix(root).ok().and_then(Path::to_str);
        inner.is_some_and(|path| check_path(path).is_ok())
    };
    let mut pending = list(root)?;
    let mut parents_first = Vec::new();
    while let Some(directory) = pending.pop() {
        if !is_ours(&directory) {
            continue;
        }
        match list(&directory) {
            Ok(inner) => {
                pending.extend(inner);
                parents_first.push(directory);
            }
            Err(error) => tracing::debug!(directory = %directory.display(), %error, "a directory is left alone"),
        }
    }
    for directory in parents_first.iter().rev() {
        // Most are not empty. One may belong to another user, who has repaired files: nothing depends on this.
        if let Err(error) = fs::remove_dir(directory)
            && error.kind() != io::ErrorKind::DirectoryNotEmpty
        {
            tracing::debug!(directory = %directory.display(), %error, "an empty directory is not removed");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directory syncs that succeeded.
    static SYNCED: AtomicU64 = AtomicU64::new(0);

    /// A file that was unlinked or put, but not durably, is made durable by the next attempt.
    #[test]
    fn what_a_failed_directory_sync_left_open_is_settled_by_the_next_attempt() {
        let fails = |_: &Path| Err(io::Error::other("planted"));
        let counts = |_: &Path| {
            SYNCED.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let synced = || SYNCED.swap(0, Ordering::Relaxed);
        let directory = tempfile::TempDir::new().unwrap();
        let mut root = Root::open(directory.path()).unwrap();
        root.put_if_absent("log/a", b"a").unwrap();
        root.sync_directory = fails;
        for _ in 0..2 {
            root.delete("log/a").unwrap_err();
            assert!(matches!(root.open_file("log/a"), Err(StorageError::NotFound { .. })));
        }
        root.sync_directory = counts;
        root.delete("log/a").unwrap();
        assert_eq!(synced(), 1, "the second deletion makes the first one durable");
        root.sync_directory = fails;
        let error = root.put_if_absent("log/b", b"b").unwrap_err();
        assert!(
            matches!(error, StorageError::Io { .. }),
            "the outcome is unknown: {error}"
        );
        root.sync_file("log/b").unwrap_err();
        root.sync_directory = counts;
        root.sync_file("log/b").unwrap();
        assert_eq!(synced(), 1);
    }

    /// A disk that is full twice while one manifest is committed: the moved file is not durable, nor does the next
    /// attempt make it so. A caller that gets `NoSpace` takes the file for absent, and deletes the files that it names.
    #[test]
    fn what_is_there_is_not_taken_for_absent_though_the_disk_is_full() {
        let directory = tempfile::TempDir::new().unwrap();
        let mut root = Root::open(directory.path()).unwrap();
        root.put_if_absent("tablets/1/manifest-1", b"old").unwrap();
        root.sync_directory = |_| Err(Errno::NOSPC.into());
        let is_unknown = |error: &StorageError| matches!(error, StorageError::Io { .. });
        let put = root.put_if_absent("tablets/1/manifest-2", b"new").unwrap_err();
        let again = root.put_if_absent("tablets/1/manifest-2", b"new").unwrap_err();
        let synced = root.sync_file("tablets/1/manifest-2").unwrap_err();
        assert!(is_unknown(&put) && is_unknown(&synced), "{put}; {synced}");
        assert!(matches!(again, StorageError::AlreadyExists { .. }), "{again}");
        root.open_file("tablets/1/manifest-2").unwrap();
        root.sync_directory = syncs::names;
        root.sync_file("tablets/1/manifest-2").unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_listed_is_left_alone() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["a/empty", "theirs", "z/empty"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        remove_empty_directories(directory.path(), |directory| match directory.ends_with("theirs") {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => list_directories(directory),
        })
        .unwrap();
        assert!(path("theirs").exists() && !path("a").exists() && !path("z").exists());
    }

    #[test]
    fn both_ways_into_place_do_not_replace() {
        for into_place in [move_into_place, link_into_place] {
            let directory = tempfile::TempDir::new().unwrap();
            let path = |name: &str| directory.path().join(name);
            for name in ["one", "two"] {
                fs::write(path(name), name).unwrap();
            }
            into_place(&path("one"), &path("target")).unwrap();
            assert!(!path("one").exists());
            let error = into_place(&path("two"), &path("target")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(path("target")).unwrap(), b"one");
        }
    }
}
