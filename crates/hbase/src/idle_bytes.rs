//! The sum of the bytes that idle scanners have reserved.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that idle scanners have reserved.
#[derive(Default)]
pub(crate) struct IdleBytes(Arc<AtomicUsize>);

/// The bytes of one idle scanner; counted until it is dropped.
pub(crate) struct Counted {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl IdleBytes {
    /// Bytes of all idle scanners.
    pub fn all(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts the bytes of one scanner.
    pub fn count(&self, bytes: usize) -> Counted {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Counted {
            all: Arc::clone(&self.0),
            bytes,
        }
    }
}
