//! The flag that tells loops and the write path of a server's shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a server is shutting down. Clones share one flag, which is never taken back.
#[derive(Clone, Default)]
pub(crate) struct Stopping(Arc<AtomicBool>);

impl Stopping {
    /// The server shuts down from now on.
    pub(crate) fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it does.
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
