//! Operations that read and write in one call: increments and conditional writes.

use super::{Client, one_row};
use crate::activity::Step;
use crate::load::contents::Presence;
use crate::load::ledger::{Ending, Snapshot, Write};
use crate::load::shape::{COUNTER, put_bytes};
use crate::load::values::{Version, key_hash};
use crate::outcome::Verdict;
use crate::target::{Put, Result, TargetError};
use bytes::Bytes;
use std::sync::Arc;

impl Client {
    pub(super) async fn increment(&mut self, number: u64) -> Result<Step> {
        let key = self.key(number);
        let prepared = Arc::clone(&self.prepared);
        let (family, _) = prepared.shape.first_column();
        let before = prepared.counters.as_ref().map(|counters| counters.begin(number));
        let bytes = (key.len() + size_of::<i64>()) as u64;
        let table = &prepared.workload.table;
        let answer = self
            .connection
            .increment(table, key.clone(), &family, COUNTER, 1)
            .await?;
        let mut verdict = Verdict::default();
        if let (Some(counters), Some(before)) = (&prepared.counters, before) {
            verdict.checked = 1;
            if let Err((least, most)) = counters.end(before, answer) {
                verdict.wrong = 1;
                let key = key.escape_ascii();
                verdict.example(|| format!("counter {key}: returned {answer}, must be {least} to {most}"));
            }
        }
        Ok(one_row(bytes, verdict))
    }

    pub(super) async fn check_and_put(&mut self, number: u64) -> Result<Step> {
        let prepared = Arc::clone(&self.prepared);
        let begun = match &prepared.ledger {
            Some(ledger) => ledger.begin_write(number).map_err(TargetError::Unsupported)?,
            None => None,
        };
        let (write, before) = begun.unzip();
        let (newest, is_sure) = before.as_ref().map_or((0, false), Snapshot::newest);
        let row = self.row_of(number, write);
        let current = self.current(number, newest);
        let expected = current.map(|version| self.first_value(&row.key, version));
        let (family, qualifier) = prepared.shape.first_column();
        let bytes = put_bytes(&row.key, &row.cells);
        let key = row.key.clone();
        let put = Put {
            key: row.key,
            cells: row.cells,
        };
        let table = &prepared.workload.table;
        let done = self
            .connection
            .check_and_put(table, &family, qualifier, expected, put)
            .await;
        let mut step = one_row(bytes, Verdict::default());
        step.verdict.checked = u64::from(prepared.workload.verify);
        if matches!(done, Ok(true)) {
            if !self.replaced(write, newest) {
                step.verdict.wrong += 1;
                let key = key.escape_ascii();
                step.verdict
                    .example(|| format!("row {key}: two conditional writes replaced the same version"));
            }
            return Ok(step);
        }
        let ending = if done.is_ok() { Ending::Refused } else { Ending::Unknown };
        let was_alone = self.end_write(write, ending);
        done?;
        step.rows = 0;
        if is_sure && was_alone && prepared.workload.verify {
            self.judge_refusal(number, &key, current, &mut step.verdict).await?;
        }
        Ok(step)
    }

    /// Records a conditional write that was carried out. Returns whether its condition can have held.
    fn replaced(&self, write: Option<Write>, expected: u32) -> bool {
        match (&self.prepared.ledger, write) {
            (Some(ledger), Some(write)) => ledger.end_conditional_write(write, expected),
            _ => {
                self.end_write(write, Ending::Acknowledged);
                true
            }
        }
    }

    /// The expected version of a row, `None` if it must not exist; or a guess, if it is not certain.
    fn current(&self, number: u64, newest: u32) -> Option<Version> {
        let was_loaded = || self.prepared.contents.presence(number) == Presence::Present;
        let is_there = newest > 0 || was_loaded() || !self.prepared.workload.verify;
        is_there.then(|| self.prepared.numbered(newest))
    }

    /// The value of the column that the condition compares.
    fn first_value(&mut self, key: &Bytes, version: Version) -> Bytes {
        self.prepared.shape.value(key_hash(key), 0, version, &mut self.arena)
    }

    /// Judges the refusal of a conditional write whose row is believed to be as expected. Unless another process wrote
    /// the row, the refusal was wrong. A read of the row decides.
    async fn judge_refusal(
        &mut self,
        number: u64,
        key: &Bytes,
        expected: Option<Version>,
        verdict: &mut Verdict,
    ) -> Result<()> {
        let (_, row, version, found) = self.read(number).await?;
        verdict.merge(&found);
        let is_as_expected = row.is_some() == expected.is_some() && version == expected;
        if is_as_expected && found.is_right() {
            verdict.wrong += 1;
            let key = key.escape_ascii();
            verdict.example(|| format!("row {key}: a conditional write whose condition held was refused"));
        }
        Ok(())
    }
}
