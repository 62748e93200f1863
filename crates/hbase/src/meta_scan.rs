//! Scans of `hbase:meta`.

use crate::context::Context;
use crate::failure::Outcome;
use crate::meta_table::{self, KeyRange, SCHEMA};
use crate::scan_batch::{Batch, CallLimits};
use crate::selection::Selection;
use bytes::Bytes;
use stele_wire::messages::Scan;

/// Rows of a response at most.
const ROWS_MAX: usize = 10_000;

/// A scan of `hbase:meta`. Each call makes its rows again.
pub(crate) struct MetaScanner {
    /// Keys that have not been returned.
    left: KeyRange,
    reversed: bool,
    selection: Selection,
}

impl MetaScanner {
    /// Checks a scan.
    pub fn new(scan: &Scan) -> Outcome<Self> {
        let bound = |key: &Option<Bytes>, included: bool| {
            let key = key.clone().filter(|key| !key.is_empty());
            key.map(|key| (key, included))
        };
        let start = bound(&scan.start_row, scan.include_start_row.unwrap_or(true));
        let stop = bound(&scan.stop_row, scan.include_stop_row.unwrap_or(false));
        let left = match scan.reversed() {
            false => KeyRange { low: start, high: stop },
            true => KeyRange { low: stop, high: start },
        };
        Ok(MetaScanner {
            left,
            reversed: scan.reversed(),
            selection: meta_table::selection(&scan.column)?,
        })
    }

    /// The rows of a call.
    pub async fn next(&mut self, shared: &Context, limits: &CallLimits) -> Outcome<Batch> {
        let limit = limits
            .rows_left
            .map_or(usize::MAX, |rows| usize::try_from(rows).unwrap_or(usize::MAX));
        let wanted = limits.results.min(limit).min(ROWS_MAX);
        let mut batch = Batch {
            more_in_region: true,
            ..Batch::default()
        };
        while batch.rows.len() < wanted && batch.more_in_region {
            let (mut rows, more) = meta_table::rows(shared, &self.left, self.reversed, wanted).await?;
            if let Some(last) = rows.last() {
                let passed = Some((last.row.clone(), false));
                match self.reversed {
                    false => self.left.low = passed,
                    true => self.left.high = passed,
                }
            }
            batch.more_in_region = more;
            for row in &mut rows {
                self.selection.apply(&SCHEMA, &mut row.cells);
            }
            rows.retain(|row| !row.cells.is_empty());
            batch.rows_seen += rows.len() as u64;
            batch.rows.extend(rows);
        }
        if batch.rows.len() > wanted {
            // Rows of an earlier round count, so the last round may bring too many.
            batch.rows.truncate(wanted);
            batch.more_in_region = true;
            if let Some(last) = batch.rows.last() {
                let passed = Some((last.row.clone(), false));
                match self.reversed {
                    false => self.left.low = passed,
                    true => self.left.high = passed,
                }
            }
        }
        batch.is_over = limits.rows_left.is_some() && batch.rows.len() == limit;
        batch.partial = vec![false; batch.rows.len()];
        Ok(batch)
    }
}
