//! The limits and the results of one call of a scanner.

use crate::cells::ResultRow;
use bytes::Bytes;
use std::time::Duration;
use stele_memory::Reservation;

/// Limits of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallLimits {
    /// Results.
    pub results: usize,
    /// Complete rows until the scan ends.
    pub rows_left: Option<u64>,
    /// Encoded bytes after which the response ends.
    pub bytes: usize,
    /// Whether a row may be cut.
    pub partials: bool,
    /// Whether the response may be without rows, and the time after which it is.
    pub heartbeat: Option<Duration>,
}

/// The results of one call.
#[derive(Default)]
pub(crate) struct Batch {
    pub rows: Vec<ResultRow>,
    /// For each of the rows, whether more of it follows in the next result.
    pub partial: Vec<bool>,
    /// The scanner has more rows in its region.
    pub more_in_region: bool,
    /// The whole scan is over.
    pub is_over: bool,
    /// The call ended because of its time. The row that it has reached.
    pub reached: Option<Bytes>,
    pub is_heartbeat: bool,
    /// Rows that were read, perhaps for a later call.
    pub rows_seen: u64,
    /// Those of them that a filter left in.
    pub rows_passed: u64,
    pub memory: Option<Reservation>,
}
