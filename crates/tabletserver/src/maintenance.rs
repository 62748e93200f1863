//! When tablets are flushed and compacted, and files deleted.
//!
//! One loop starts flushes, a few compact, one deletes obsolete files, one watches disk space, log segments and gauges. Each
//! does the most urgent thing, and sleeps when there is none; none visits every tablet unless something presses. A plain
//! function over a snapshot decides what to flush ([`FlushView::pick`]); `stele_tablet::picker` decides what to compact.
//!
//! Each loop is a service with its own state. They tell each other of work through `work` alone.

mod compactions;
mod decision;
mod filters;
mod flushes;
mod gauges;
mod housekeeping;
mod pinned;
mod unread;

pub(crate) use compactions::Compactor;
pub use decision::{FlushCandidate, FlushPressure, FlushView, pick_flush};
pub(crate) use filters::FilterChooser;
pub(crate) use flushes::Flusher;
pub(crate) use gauges::Gauges;
pub(crate) use housekeeping::{Housekeeper, Rounds};
pub(crate) use unread::UnreadFiles;

use std::time::Duration;
use stele_env::metrics::IntCounter;
use stele_tablet::TabletError;

/// How often a loop checks when nothing wakes it.
const IDLE: Duration = Duration::from_millis(200);
/// Pause after a failure, so that a full disk is not hammered.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Counts and logs a flush or compaction that failed.
fn note_failure(failures: &IntCounter, what: &'static str, error: &TabletError) {
    // A tablet that was split or dropped meanwhile is nobody's problem.
    if !matches!(error, TabletError::Closed { .. }) {
        failures.inc();
        tracing::error!(%error, "{what} failed; it will be tried again");
    }
}
