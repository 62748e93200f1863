//! A lock for a file that one process at a time replaces.
//!
//! The lock is on a file next to it, because the file itself is replaced. The operating system releases it with the
//! process.

use crate::checkpoint::with_suffix;
use anyhow::{Context, Result, anyhow};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// How often the file of the lock is opened again because its holder has removed it meanwhile. On file systems whose numbers of files
/// change it would seem so each time.
const ATTEMPTS_MAX: usize = 100;

/// Held until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    path: PathBuf,
    _file: File,
}

/// Why there is no lock.
enum Refusal {
    /// Another process has it.
    InUse(anyhow::Error),
    /// It cannot be made.
    Impossible(anyhow::Error),
}

impl FileLock {
    /// Locks the file of this path, which need not exist.
    ///
    /// # Errors
    /// Another process has it, or the directory cannot be written, or its file system has no locks.
    pub fn of(path: &Path) -> Result<FileLock> {
        take(path, File::try_lock).map_err(|refusal| match refusal {
            Refusal::InUse(error) | Refusal::Impossible(error) => error,
        })
    }

    /// Locks the file of this path where that is possible, and else says that it is not locked.
    ///
    /// # Errors
    /// Another process has it.
    pub fn if_possible(path: &Path) -> Result<Option<FileLock>> {
        or_warn(path, take(path, File::try_lock))
    }
}

/// Many network file systems have no locks, and one run at a time needs none.
fn or_warn(path: &Path, taken: Result<FileLock, Refusal>) -> Result<Option<FileLock>> {
    match taken {
        Ok(lock) => Ok(Some(lock)),
        Err(Refusal::InUse(error)) => Err(error),
        Err(Refusal::Impossible(error)) => {
            eprintln!(
                "{error:#}; going on without a lock, so let no other command write {}",
                path.display()
            );
            Ok(None)
        }
    }
}

fn take(path: &Path, try_lock: impl Fn(&File) -> Result<(), TryLockError>) -> Result<FileLock, Refusal> {
    let lock = with_suffix(path, ".lock");
    for _ in 0..ATTEMPTS_MAX {
        let was_there = lock.exists();
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(&lock);
        let file = file.with_context(|| format!("cannot make {}", lock.display()));
        let file = file.map_err(Refusal::Impossible)?;
        match try_lock(&file) {
            Ok(()) if is_at(&file, &lock).map_err(Refusal::Impossible)? => {
                return Ok(FileLock {
                    path: lock,
                    _file: file,
                });
            }
            // Its holder has removed it meanwhile.
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Refusal::InUse(anyhow!(
                    "{} is in use by another process",
                    path.display()
                )));
            }
            Err(TryLockError::Error(error)) => {
                if !was_there {
                    let _ = fs::remove_file(&lock);
                }
                let error = anyhow!(error).context(format!("cannot lock {}", lock.display()));
                return Err(Refusal::Impossible(error));
            }
        }
    }
    let error = anyhow!("{} is another file each time it is opened", lock.display());
    Err(Refusal::Impossible(error))
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // One that stays is locked again by the next process.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether the path still names this file.
fn is_at(file: &File, path: &Path) -> Result<bool> {
    let held = file.metadata()?;
    Ok(fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_file_system_without_locks_is_no_obstacle_and_another_process_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let none = |_: &File| Err(TryLockError::Error(io::ErrorKind::Unsupported.into()));
        assert!(or_warn(&path, take(&path, none)).unwrap().is_none());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
        let nowhere = dir.path().join("absent/out");
        assert!(FileLock::of(&nowhere).is_err());
        assert!(FileLock::if_possible(&nowhere).unwrap().is_none());
        let held = FileLock::if_possible(&path).unwrap();
        assert!(held.is_some());
        for refused in [FileLock::of(&path).err(), FileLock::if_possible(&path).err()] {
            assert!(refused.unwrap().to_string().contains("in use by another process"));
        }
    }
}
