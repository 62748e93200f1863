//! The cache priority of a file's blocks.
//!
//! Invariant: `begin_warming` is true at most once after each `set_kept(true)` that changes the priority.

use std::sync::atomic::{AtomicBool, Ordering};

/// The cache priority of a file's blocks.
#[derive(Debug, Default)]
pub(crate) struct Residence {
    kept: AtomicBool,
    /// The file was read into the cache since it has had priority.
    warmed: AtomicBool,
}

impl Residence {
    /// Whether blocks of the file have priority in the cache.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Gives priority or takes it away. A file that gets it wants to be warmed once more.
    pub(crate) fn set_kept(&self, kept: bool) {
        let was_kept = self.kept.swap(kept, Ordering::Relaxed);
        if kept && !was_kept {
            self.warmed.store(false, Ordering::Relaxed);
        }
    }

    /// Whether the file has priority and was not read into the cache yet.
    pub(crate) fn wants_warming(&self) -> bool {
        self.is_kept() && !self.warmed.load(Ordering::Relaxed)
    }

    /// True for one caller, which reads the file into the cache.
    pub(crate) fn begin_warming(&self) -> bool {
        self.is_kept() && !self.warmed.swap(true, Ordering::Relaxed)
    }
}
