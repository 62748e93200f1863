//! Rows of many versions: the writes to them and the checks of reads.
//!
//! Few columns and few timestamps in two families: one keeps everything, one the newest [`KEPT`] versions of a column.
//! A request to such a row is a handful of puts and deletes of all kinds, by row, family, column, version and range of
//! timestamps; or two of these, and a filter that chooses one. One client at a time writes to a row, and none to a row
//! in doubt; [`crate::possible`] tells why, and checks reads. Most reads have a filter.

use super::{ROWS, Workload, format_value, outcome, show, table};
use crate::cluster::Node;
use crate::history::Outcome;
use crate::possible::view::View;
use crate::possible::{Change, Row};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_client::{Condition, ReadRows, RowOperation, Step, TableService};
use stele_filter::Filter;
use stele_types::{Cell, ErrorKind, FamilyId, Mutation, RowMutation, RowRange, RowSet, Timestamp};

/// Versions of a column that the rule of family `two` keeps.
pub(super) const KEPT: usize = 2;
/// Family `all`, without a rule.
const ALL: FamilyId = FamilyId(4);
/// Family `two`.
const TWO: FamilyId = FamilyId(5);
/// Columns of either family, ascending.
const QUALIFIERS: [&[u8]; 3] = [b"", b"q", b"q\0"];
/// Timestamps are 1 to this: enough that some versions are garbage.
const TIMES: u64 = 4;
/// Rows: few, so that each has a long history.
const VERSION_ROWS: u64 = ROWS / 2;
/// Mutations of a request.
const MUTATIONS_MAX: u64 = 4;

/// A read that has begun: its row and its name.
pub(super) type OpenRead = (Bytes, u64);

/// The result of a read, by row.
pub(super) type Found = BTreeMap<Bytes, Vec<Cell>>;

fn keeps(family: FamilyId) -> Option<usize> {
    (family == TWO).then_some(KEPT)
}

fn row_of(number: u64) -> Bytes {
    Bytes::from(format!("m{number}"))
}

impl Workload {
    /// Writes to a row, or reads if that cannot be written to now.
    pub(super) async fn change_versions(&self, node: &Node) {
        let row = row_of(self.below(VERSION_ROWS));
        let change = self.some_change();
        let began = self.tick();
        if !self.of_versions(&row, |known| known.begin_write(&change)) {
            return self.read_versions(node).await;
        }
        let (outcome, matched) = match &change.condition {
            Some(condition) => self.check_versions(node, &row, condition, &change).await,
            None => (self.write_row(node, write_of(&row, &change.on_match)).await, None),
        };
        let now = self.tick();
        let checked = self.of_versions(&row, |known| known.end_write(outcome, matched, now));
        // A branch without mutations is not written.
        let is_written = !change.branch(matched.unwrap_or(true)).is_empty();
        if outcome == Outcome::Acknowledged && is_written {
            self.histories.lock().settle(began);
        }
        let what = format!("change {} ({matched:?}): {}", row.escape_ascii(), show_change(&change));
        self.note_write(&what, outcome, false);
        if let Err(why) = checked {
            self.violate(format!("{what}: {why}"));
        }
    }

    /// A conditional write: its outcome, and whether its result said that the condition has matched.
    async fn check_versions(
        &self,
        node: &Node,
        row: &Bytes,
        condition: &View,
        change: &Change,
    ) -> (Outcome, Option<bool>) {
        let steps = |mutations: &[Mutation]| mutations.iter().cloned().map(Step::Mutate).collect();
        let request = RowOperation {
            id: None,
            table: table(),
            row: row.clone(),
            condition: Some(Condition::any_cell(filter_of(condition))),
            steps: steps(&change.on_match),
            otherwise: steps(&change.otherwise),
            durability: self.durability(),
            token: None,
        };
        let router = node.router.clone();
        let answer = self.ask(node, async move { router.row_operation(request).await }).await;
        if let Ok(Err(error)) = &answer
            && error.kind == ErrorKind::InvalidArgument
        {
            self.violate(format!("a conditional write was taken for a mistake: {error}"));
        }
        match answer {
            Ok(answer) => (outcome(&answer), answer.ok().map(|done| done.matched)),
            Err(_) => (Outcome::Unknown, None),
        }
    }

    /// Reads one of the rows, or all of them, filtered or not.
    pub(super) async fn read_versions(&self, node: &Node) {
        let row = row_of(self.below(VERSION_ROWS));
        let is_scan = self.below(3) == 0;
        let rows = if is_scan {
            RowRange::prefix(&Bytes::from_static(b"m"))
        } else {
            RowRange::single(&row)
        };
        let view = self.some_view();
        let request = ReadRows {
            filter: filter_of(&view),
            reversed: is_scan && self.below(2) == 0,
            ..ReadRows::new(table(), RowSet::new(vec![rows]))
        };
        let open = if is_scan {
            self.begin_reads()
        } else {
            vec![self.begin_read(row)]
        };
        let found = self.read(node, request).await;
        let mut found = found.map(|rows| rows.into_iter().collect::<Found>());
        self.end_reads(open, &view, found.as_mut());
        if let Some((row, _)) = found.and_then(|mut rest| rest.pop_first()) {
            self.violate(format!("a read of versions gave row {row:?}, which it did not ask for"));
        }
    }

    /// Begins a read of all rows.
    pub(super) fn begin_reads(&self) -> Vec<OpenRead> {
        (0..VERSION_ROWS)
            .map(|number| self.begin_read(row_of(number)))
            .collect()
    }

    fn begin_read(&self, row: Bytes) -> OpenRead {
        let settled = self.histories.lock().settled();
        let read = self.of_versions(&row, |known| known.begin_read(settled));
        (row, read)
    }

    /// Ends these reads with their parts of `found`, or without a response.
    pub(super) fn end_reads(&self, open: Vec<OpenRead>, view: &View, mut found: Option<&mut Found>) {
        for (row, read) in open {
            let cells = found.as_mut().map(|found| found.remove(&row).unwrap_or_default());
            let checked = self.of_versions(&row, |known| known.end_read(read, view, cells.as_deref()));
            let Some(cells) = cells else { continue };
            let shown: Vec<String> = cells.iter().map(show).collect();
            let what = format!("{} in view {view:?} reads {}", row.escape_ascii(), shown.join(" "));
            self.cluster.sim().note(&what);
            if let Err(why) = checked {
                self.violate(format!("{what}; {why}"));
            }
        }
    }

    fn of_versions<T>(&self, row: &Bytes, ask: impl FnOnce(&mut Row) -> T) -> T {
        let mut rows = self.versions.lock();
        ask(rows.entry(row.clone()).or_insert_with(|| Row::new(keeps)))
    }

    fn some_change(&self) -> Change {
        if self.below(3) > 0 {
            return self.some_mutations().into();
        }
        // One branch in three is absent, but never both.
        let absent = self.below(3);
        let unless = |branch| {
            if absent == branch {
                Vec::new()
            } else {
                self.some_mutations()
            }
        };
        Change {
            condition: Some(self.some_view()),
            on_match: unless(0),
            otherwise: unless(1),
        }
    }

    fn some_mutations(&self) -> Vec<Mutation> {
        (0..1 + self.below(MUTATIONS_MAX))
            .map(|_| self.some_mutation())
            .collect()
    }

    fn some_mutation(&self) -> Mutation {
        let family = [ALL, TWO][self.below(2) as usize];
        let column = QUALIFIERS[self.below(QUALIFIERS.len() as u64) as usize];
        let qualifier = Bytes::from_static(column);
        let (timestamp, other) = (self.some_time(), self.some_time());
        let up_to = [timestamp, Timestamp::MAX][self.below(2) as usize];
        match self.below(20) {
            0 => Mutation::DeleteRow { up_to },
            1 => Mutation::DeleteFamily { family, up_to },
            2 => Mutation::DeleteFamilyVersion { family, timestamp },
            3 => Mutation::DeleteVersion {
                family,
                qualifier,
                timestamp,
            },
            4 => Mutation::DeleteColumn {
                family,
                qualifier,
                from: Timestamp::MIN,
                to: up_to,
            },
            5..8 => Mutation::DeleteColumn {
                family,
                qualifier,
                from: timestamp.min(other),
                to: timestamp.max(other),
            },
            _ => Mutation::Put {
                family,
                qualifier,
                timestamp,
                value: format_value(self.next_value(), column),
            },
        }
    }

    fn some_view(&self) -> View {
        let plain = || Box::new(self.some_plain_view());
        match self.below(8) {
            0 | 1 => View::All,
            2 | 3 => View::Chain(plain(), plain()),
            4 => View::Both(plain(), plain()),
            _ => self.some_plain_view(),
        }
    }

    fn some_plain_view(&self) -> View {
        let count = 1 + self.below(3) as i32;
        match self.below(7) {
            0 => View::NewestOfColumn(count),
            1 => View::FirstOfRow(count),
            2 => View::AfterFirst(count),
            3 => {
                let from = self.below(QUALIFIERS.len() as u64) as usize;
                let to = from + self.below(QUALIFIERS.len() as u64) as usize;
                View::Columns {
                    family: [(ALL, "all"), (TWO, "two")][self.below(2) as usize],
                    from: Bytes::from_static(QUALIFIERS[from]),
                    to: QUALIFIERS.get(to).copied().map(Bytes::from_static),
                }
            }
            4 => {
                let (from, to) = (self.some_time().0, self.some_time().0);
                View::Times {
                    from: from.min(to),
                    to: (self.below(3) > 0).then_some(from.max(to)),
                }
            }
            5 => {
                let written = *self.next_value.lock();
                let (from, to) = (self.below(written), self.below(written));
                View::Numbers {
                    from: from.min(to),
                    to: from.max(to),
                }
            }
            _ => View::Stripped,
        }
    }

    fn some_time(&self) -> Timestamp {
        Timestamp(1 + self.below(TIMES) as i64)
    }
}

fn filter_of(view: &View) -> Option<Arc<Filter>> {
    (*view != View::All).then(|| Arc::new(view.filter()))
}

fn write_of(row: &Bytes, mutations: &[Mutation]) -> RowMutation {
    RowMutation {
        row: row.clone(),
        mutations: mutations.to_vec(),
    }
}

fn show_change(change: &Change) -> String {
    let show = |matched| {
        let mutations: Vec<String> = change.branch(matched).iter().map(show_mutation).collect();
        mutations.join(", ")
    };
    match &change.condition {
        Some(condition) => format!("if {condition:?} then {} else {}", show(true), show(false)),
        None => show(true),
    }
}

fn show_mutation(mutation: &Mutation) -> String {
    match mutation {
        Mutation::Put {
            family,
            qualifier,
            timestamp,
            value,
        } => show(&Cell::put(*family, qualifier.clone(), *timestamp, value.clone())),
        delete => format!("{delete:?}"),
    }
}
