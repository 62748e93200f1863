//! The life cycle of a file being written, the same for every backend.
//!
//! A failed or abandoned append leaves an unknown suffix, so no append may follow it, but earlier bytes can still be
//! synced. After a failed or abandoned sync the durable bytes are unknown ("fsyncgate": the kernel reports the error
//! once and then treats the lost pages as clean). A second sync must therefore not succeed.

use crate::{Result, StorageError};

/// The operations that are still allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Usable,
    SyncOnly,
    Dead,
}

/// Admits operations. An operation gives up the right to continue when it begins and regains it when it succeeds. A
/// future dropped half way thus counts as a failure.
#[derive(Debug)]
pub(crate) struct WriterLife {
    life: Life,
    before: Life,
}

impl WriterLife {
    pub(crate) fn new() -> Self {
        WriterLife {
            life: Life::Usable,
            before: Life::Usable,
        }
    }

    pub(crate) fn begin_append(&mut self, path: &str) -> Result<()> {
        if self.life != Life::Usable {
            return Err(refused(path, "append"));
        }
        self.before = self.life;
        self.life = Life::SyncOnly;
        Ok(())
    }

    pub(crate) fn begin_sync(&mut self, path: &str) -> Result<()> {
        if self.life == Life::Dead {
            return Err(refused(path, "sync"));
        }
        self.before = self.life;
        self.life = Life::Dead;
        Ok(())
    }

    /// Ends the operation that was begun last, successfully.
    pub(crate) fn succeeded(&mut self) {
        assert!(self.life != Life::Usable, "an operation that succeeds was begun");
        assert!(self.before != Life::Dead, "no operation begins after a failed sync");
        self.life = self.before;
    }
}

fn refused(path: &str, operation: &'static str) -> StorageError {
    StorageError::Io {
        path: path.to_owned(),
        operation,
        message: "refused, because an earlier write of this file failed or was abandoned".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_append_leaves_sync_a_failed_sync_leaves_nothing() {
        let mut life = WriterLife::new();
        life.begin_append("f").unwrap();
        life.succeeded();
        life.begin_append("f").unwrap();
        assert!(life.begin_append("f").is_err());
        life.begin_sync("f").unwrap();
        life.succeeded();
        assert!(life.begin_append("f").is_err(), "a good sync does not repair the tail");
        life.begin_sync("f").unwrap();
        assert!(life.begin_sync("f").is_err());
        assert!(life.begin_append("f").is_err());
    }
}
