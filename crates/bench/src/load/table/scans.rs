//! Scans: short ones from a key on, and whole ranges in parts.

use super::Client;
use crate::activity::Step;
use crate::load::judge::ScanJudge;
use crate::load::shape::row_bytes;
use crate::outcome::Verdict;
use crate::target::{Result, Row, Scan};
use bytes::Bytes;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Keys that one step of a scan covers, so that a timed run ends soon after its time is up.
const SCAN_KEYS: u64 = 10_000;

impl Client {
    pub(super) async fn short_scan(&mut self, number: u64, rows: u64, rows_per_fetch: Option<u32>) -> Result<Step> {
        let places = self.prepared.coder.place(number)..self.prepared.coder.places();
        self.scan(places, Some(rows), rows_per_fetch, 1).await
    }

    /// Scans the next part of the current range.
    pub(super) async fn scan_part(&mut self, index: u64, rows_per_fetch: Option<u32>) -> Result<Step> {
        let end = self.range.end.max(index + 1).min(index.saturating_add(SCAN_KEYS));
        let places = self.prepared.scan_place(index)..self.prepared.scan_place(end);
        self.scan(places, None, rows_per_fetch, (end - index) as u32).await
    }

    /// The key at a place. Empty, which stands for the end of the table, beyond the last one.
    fn bound(&mut self, place: u128) -> Bytes {
        let coder = &self.prepared.coder;
        if place >= coder.places() {
            return Bytes::new();
        }
        self.arena.cut(coder.key_bytes(), |out| coder.write_place(place, out))
    }

    async fn scan(
        &mut self,
        places: Range<u128>,
        limit: Option<u64>,
        rows_per_fetch: Option<u32>,
        operations: u32,
    ) -> Result<Step> {
        let prepared = Arc::clone(&self.prepared);
        if places.is_empty() {
            // Beyond the end of the table, where no key exists.
            return Ok(Step {
                operations,
                ..Step::default()
            });
        }
        let scan = Scan {
            start: self.bound(places.start),
            end: self.bound(places.end),
            limit,
            rows_per_fetch,
            columns: self.columns.clone(),
        };
        let verify = prepared.workload.verify;
        let mut judge = ScanJudge::new(&prepared, &scan, places);
        let (mut rows, mut bytes) = (0u32, 0);
        let mut each = |row: &Row| {
            rows = rows.saturating_add(1);
            bytes += row_bytes(row);
            if verify {
                judge.row(row);
            }
            ControlFlow::Continue(())
        };
        self.connection.scan(&prepared.workload.table, &scan, &mut each).await?;
        Ok(Step {
            kind: 0,
            operations,
            acknowledged: None,
            rows,
            bytes,
            verdict: if verify { judge.end() } else { Verdict::default() },
        })
    }
}
