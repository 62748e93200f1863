//! The directory of a rival, `target/rivals/<name>`, and the files in it.

use crate::shell::target_dir;
use anyhow::{Context, Result, bail};
use std::fs::{self, File, TryLockError};
use std::path::PathBuf;

/// The directory of one rival.
pub struct Place {
    dir: PathBuf,
}

impl Place {
    /// That of the rival of this name.
    pub fn of(name: &str) -> Place {
        Place {
            dir: target_dir().join("rivals").join(name),
        }
    }

    /// Whether anything was ever started here.
    pub fn exists(&self) -> bool {
        self.dir.exists()
    }

    /// Keeps other runs of this program from starting or stopping the same rival until the file is dropped. The parts do
    /// not inherit it.
    pub fn lock(&self) -> Result<File> {
        fs::create_dir_all(&self.dir).with_context(|| format!("making {}", self.dir.display()))?;
        let path = self.dir.join("lock");
        let file = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                bail!(
                    "another `cargo xtask rival` is starting or stopping it ({})",
                    path.display()
                )
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("locking {}", path.display())),
        }
    }

    /// Makes the directories; with `fresh`, empties that of the data.
    pub fn prepare(&self, fresh: bool) -> Result<()> {
        if fresh && self.data().exists() {
            fs::remove_dir_all(self.data()).with_context(|| format!("emptying {}", self.data().display()))?;
        }
        for dir in [self.data(), self.conf(), self.dir.join("run"), self.dir.join("logs")] {
            fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        }
        Ok(())
    }

    /// Removes the party file, if there is one.
    pub fn forget_party(&self) -> Result<()> {
        match fs::remove_file(self.party()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", self.party().display()))
            }
            _ => Ok(()),
        }
    }

    /// Data that outlive a stop.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Configuration files, written again at each start.
    pub fn conf(&self) -> PathBuf {
        self.dir.join("conf")
    }

    /// The output of a part.
    pub fn log(&self, part: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{part}.log"))
    }

    /// The log of the garbage collector of a part.
    pub fn gc_log(&self, part: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{part}-gc.log"))
    }

    /// Which process a part is.
    pub fn pid_file(&self, part: &str) -> PathBuf {
        self.dir.join("run").join(format!("{part}.pid"))
    }

    /// The request with which it was started last.
    pub fn request(&self) -> PathBuf {
        self.dir.join("run/request")
    }

    /// The party file; there while it runs.
    pub fn party(&self) -> PathBuf {
        self.dir.join("party.json")
    }
}
