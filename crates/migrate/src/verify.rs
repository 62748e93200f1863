//! Compares whole tables, range by range, and reports the rows that differ.

use crate::compare::{Seen, compare};
use crate::copy::Transfer;
use crate::ends::Ends;
use crate::extra;
use crate::recheck::{Difference, settle};
use crate::workers;
use anyhow::{Context, Result};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use stele_cli::escape::escape;
use stele_cli::progress::{Progress, count};
use stele_hbaseclient::scan::{Rows, View};

/// Most rows that are named; all are counted.
const NAMED_MAX: u64 = 100;

/// A comparison of tables.
pub struct Verification {
    /// Both clusters, and how rows are copied once more.
    pub transfer: Transfer,
    /// Whether rows that differ are copied once more.
    pub repair: bool,
    /// Whether cells that only the target has are deleted after that.
    pub delete_extra: bool,
    /// Times that a row that differs is read again.
    pub attempts: u8,
    /// The findings.
    pub report: Mutex<Report>,
}

/// Findings so far.
#[derive(Debug, Default)]
pub struct Report {
    seen: Seen,
    /// Ranges compared.
    ranges: u64,
    /// Rows that were copied once more.
    repaired: u64,
    /// Cells of the target that were deleted.
    deleted: u64,
    /// Rows that differ.
    pub differing: u64,
    /// Of these, rows that changed in the source between the last attempts.
    changing: u64,
    /// Ranges that were given up.
    pub given_up: u64,
    /// Lines that have not been printed.
    lines: Vec<String>,
}

/// A range to be compared.
struct Part {
    table: Arc<str>,
    view: View,
    start: Bytes,
    end: Bytes,
}

impl Verification {
    /// Compares the tables, `parallel` ranges at a time. Returns whether all rows are equal.
    ///
    /// # Errors
    /// A failure of either side.
    pub async fn run(self: &Arc<Self>, tables: &[(String, View)], parallel: usize) -> Result<bool> {
        let parts = self.parts(tables).await?;
        let total = parts.len() as u64;
        let tasks = parts.into_iter().map(|part| {
            let this = Arc::clone(self);
            async move { this.part(&part).await }
        });
        let mut progress = Progress::new("compared", None, 0);
        let tick = || {
            let mut report = self.report.lock();
            report.lines.drain(..).for_each(|line| progress.say(&line));
            progress.note(format!("{} of {}", report.ranges, count(total, "range")));
            progress.update(report.seen.rows, report.seen.bytes);
            Ok(())
        };
        workers::run(tasks, parallel, tick).await?;
        let seconds = progress.finish().as_secs_f64();
        let mut report = self.report.lock();
        report.lines.drain(..).for_each(|line| eprintln!("{line}"));
        println!("{} in {seconds:.1} s: {}", report.work(), report.verdict());
        Ok(report.differing == 0 && report.given_up == 0)
    }

    async fn parts(&self, tables: &[(String, View)]) -> Result<Vec<Part>> {
        let Ends { source, target, .. } = &*self.transfer.ends;
        let mut parts = Vec::new();
        for (name, view) in tables {
            let table: Arc<str> = name.as_str().into();
            target
                .regions(name)
                .await
                .with_context(|| format!("the target's table {name}"))?;
            for region in source.regions(name).await? {
                parts.push(Part {
                    table: Arc::clone(&table),
                    view: *view,
                    start: region.start.clone(),
                    end: region.end.clone(),
                });
            }
        }
        Ok(parts)
    }

    async fn part(&self, part: &Part) -> Result<()> {
        let compared = self.compare(part).await;
        compared.with_context(|| format!("table {}, {}", part.table, part.rows()))
    }

    async fn compare(&self, part: &Part) -> Result<()> {
        let Transfer { ends, pace, .. } = &self.transfer;
        let rows = Rows::between(part.start.clone(), part.end.clone());
        let seen = |seen: Seen| {
            let mut report = self.report.lock();
            report.seen.rows += seen.rows;
            report.seen.cells += seen.cells;
            report.seen.bytes += seen.bytes;
        };
        let compared = compare(ends, &part.table, rows, pace, seen).await?;
        let mut differences = settle(ends, &part.table, compared.suspects, self.attempts).await?;
        if self.repair && !differences.is_empty() {
            differences = self.copy_again(part, differences).await?;
        }
        let mut report = self.report.lock();
        report.ranges += 1;
        report.given_up += u64::from(compared.gave_up);
        report.add(part, compared.gave_up, &differences);
        Ok(())
    }

    async fn copy_again(&self, part: &Part, differences: Vec<Difference>) -> Result<Vec<Difference>> {
        self.report.lock().repaired += differences.len() as u64;
        for difference in &differences {
            let rows = Rows::one(difference.row.clone());
            self.transfer.run(&part.table, part.view, rows, |_, _, _| ()).await?;
        }
        let row = |difference: Difference| (difference.row, difference.source);
        let rows = |differences: Vec<Difference>| differences.into_iter().map(row).collect();
        let ends = &self.transfer.ends;
        let differences = settle(ends, &part.table, rows(differences), self.attempts).await?;
        if !self.delete_extra {
            return Ok(differences);
        }
        let mut deleted = 0;
        for difference in differences.iter().filter(|difference| !difference.changing) {
            deleted += extra::delete(ends, &part.table, &difference.row).await?;
        }
        self.report.lock().deleted += deleted;
        settle(ends, &part.table, rows(differences), self.attempts).await
    }
}

impl Part {
    /// The range in words.
    fn rows(&self) -> String {
        let end = |key: &Bytes, otherwise: &str| match key.is_empty() {
            true => otherwise.to_owned(),
            false => format!("{:?}", escape(key)),
        };
        format!(
            "rows from {} to {}",
            end(&self.start, "the first"),
            end(&self.end, "the last")
        )
    }
}

impl Report {
    /// Adds the differences of a range.
    fn add(&mut self, part: &Part, gave_up: bool, differences: &[Difference]) {
        let named = NAMED_MAX.saturating_sub(self.differing);
        self.differing += differences.len() as u64;
        self.changing += differences.iter().filter(|difference| difference.changing).count() as u64;
        if gave_up {
            let line = format!(
                "table {}, {}: too many rows differ, and not all were compared",
                part.table,
                part.rows()
            );
            self.lines.push(line);
        }
        if differences.is_empty() {
            return;
        }
        let number = differing(differences.len() as u64);
        self.lines
            .push(format!("table {}, {}: {number}", part.table, part.rows()));
        let named = usize::try_from(named).unwrap_or(usize::MAX);
        let shown = differences.iter().take(named).map(|difference| {
            let (source, target) = (
                count(difference.source.cells, "cell"),
                count(difference.target.cells, "cell"),
            );
            let changing = if difference.changing {
                ", and it is changing"
            } else {
                ""
            };
            let row = escape(&difference.row);
            format!("  row {row}: {source} in the source, {target} in the target{changing}")
        });
        self.lines.extend(shown);
        if differences.len() > named {
            self.lines.push("  further rows are not named".to_owned());
        }
    }

    fn work(&self) -> String {
        let (rows, cells) = (count(self.seen.rows, "row"), count(self.seen.cells, "cell"));
        let mut text = format!("compared {rows}, {cells}");
        if self.repaired > 0 {
            text.push_str(&format!(", copied {} again", count(self.repaired, "row")));
        }
        if self.deleted > 0 {
            text.push_str(&format!(", deleted {}", count(self.deleted, "cell")));
        }
        text
    }

    fn verdict(&self) -> String {
        if self.differing == 0 && self.given_up == 0 {
            return "no differences".to_owned();
        }
        let mut text = differing(self.differing);
        if self.changing > 0 {
            text.push_str(&format!(", {} of which are changing", self.changing));
        }
        if self.given_up > 0 {
            text.push_str(&format!(", {} compared in part", count(self.given_up, "range")));
        }
        text
    }
}

fn differing(rows: u64) -> String {
    format!("{} differ{}", count(rows, "row"), if rows == 1 { "s" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::RowDigest;

    fn part(start: &'static str, end: &'static str) -> Part {
        Part {
            table: "t".into(),
            view: View::Raw,
            start: start.into(),
            end: end.into(),
        }
    }

    fn difference(row: &'static str, changing: bool) -> Difference {
        Difference {
            row: row.into(),
            source: RowDigest {
                cells: 2,
                ..RowDigest::default()
            },
            target: RowDigest::default(),
            changing,
        }
    }

    #[test]
    fn ranges_and_rows_are_named() {
        let mut report = Report::default();
        report.add(&part("", "m"), false, &[]);
        assert!(report.lines.is_empty() && report.verdict() == "no differences");
        report.add(
            &part("", "m"),
            false,
            &[difference("a", false), difference("b\n", true)],
        );
        assert_eq!(
            report.lines,
            [
                "table t, rows from the first to \"m\": 2 rows differ",
                "  row a: 2 cells in the source, 0 cells in the target",
                "  row b\\n: 2 cells in the source, 0 cells in the target, and it is changing",
            ]
        );
        assert_eq!(report.verdict(), "2 rows differ, 1 of which are changing");
    }

    #[test]
    fn names_are_bounded_and_counts_are_not() {
        let mut report = Report::default();
        let many = vec![difference("a", false); 150];
        report.add(&part("", ""), true, &many);
        report.add(&part("", ""), false, &many);
        let named = report.lines.iter().filter(|line| line.starts_with("  row")).count();
        assert_eq!((named as u64, report.differing), (NAMED_MAX, 300));
    }
}
