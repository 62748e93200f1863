//! A lock for a file that one process at a time replaces.
//!
//! The lock is on a file next to it, because the file itself is replaced. The operating system releases it with the
//! process.

use crate::checkpoint::with_suffix;
use anyhow::{Context, Result, bail};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Held until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    path: PathBuf,
    _file: File,
}

impl FileLock {
    /// Locks the file of this path, which need not exist.
    ///
    /// # Errors
    /// Another process has it, or the directory cannot be written.
    pub fn of(path: &Path) -> Result<FileLock> {
        let lock = with_suffix(path, ".lock");
        loop {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(false).open(&lock);
            let file = file.with_context(|| format!("cannot make {}", lock.display()))?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &lock)? => {
                    return Ok(FileLock {
                        path: lock,
                        _file: file,
                    });
                }
                // Its holder has removed it meanwhile.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => bail!("{} is in use by another process", path.display()),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock {}", lock.display()));
                }
            }
        }
    }
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
