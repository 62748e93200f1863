//! The rights of a process on a data root that several processes reach.

use crate::{Result, StorageError, grows};

/// The rights of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All of them, until another process becomes the owner.
    Owner,
    /// Files that do not grow, like other processes that have the same right. Growing files need an owner.
    Member,
    /// None: nothing is written, and no other process is kept from writing.
    Reader,
}

impl Access {
    /// Refuses a change to which the process has no right. `root` is the storage's word for a data root.
    pub fn check_change(self, root: &str, path: &str, operation: &'static str) -> Result<()> {
        let message = match self {
            Access::Owner => return Ok(()),
            Access::Member if !grows(path) => return Ok(()),
            Access::Member => format!("refused, because a growing file needs an owner, and the {root} is shared"),
            Access::Reader => format!("the {root} was opened read-only"),
        };
        Err(StorageError::Io {
            path: path.to_owned(),
            operation,
            message,
        })
    }
}
