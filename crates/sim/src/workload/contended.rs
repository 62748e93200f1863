//! Rows that several clients put to, delete and read concurrently without pauses.
//!
//! Such a row holds one version at most. So each deletion, of any kind, removes its whole content, and
//! [`crate::contended`] can compute the results that some order of all operations allows.

use super::{VALUES, Workload, number, show, table};
use crate::cluster::Node;
use crate::contended::Contended;
use crate::history::Outcome;
use bytes::Bytes;
use stele_client::ReadRows;
use stele_types::{Cell, Mutation, RowMutation, RowRange, RowSet, Timestamp};

/// Few, so that clients meet.
pub(super) const CONTENDED_ROWS: u64 = 2;
/// Operations in a row without a pause.
const IN_A_ROW: u64 = 4;

/// A read that has begun: its row and its name.
pub(super) type OpenRead = (Bytes, u64);

pub(super) fn contended_row(number: u64) -> Bytes {
    Bytes::from(format!("p{number}"))
}

impl Workload {
    /// Some puts, deletions and reads of a row.
    pub(super) async fn contend(&self, node: &Node) {
        let row = contended_row(self.below(CONTENDED_ROWS));
        for _ in 0..IN_A_ROW {
            // The successor may have begun to serve meanwhile.
            if node.is_outlived() {
                return;
            }
            match self.below(5) {
                0 | 1 => self.read_contended(node, &row).await,
                2 => self.write_contended(node, &row, None).await,
                _ => self.write_contended(node, &row, Some(self.next_value())).await,
            }
        }
    }

    /// Puts a number, or deletes the content.
    async fn write_contended(&self, node: &Node, row: &Bytes, value: Option<u64>) {
        let Some(write) = self.of_contended(row, |known| known.begin_write(value)) else {
            return;
        };
        let mutation = match value {
            Some(value) => Mutation::Put {
                family: VALUES,
                qualifier: Bytes::new(),
                timestamp: Timestamp(1),
                value: Bytes::copy_from_slice(&value.to_be_bytes()),
            },
            None => self.some_deletion(),
        };
        let what = format!("{}: {mutation:?}", row.escape_ascii());
        let change = RowMutation {
            row: row.clone(),
            mutations: vec![mutation],
        };
        let outcome = self.write_row(node, change).await;
        let checked = self.of_contended(row, |known| known.end_write(write, outcome));
        if outcome == Outcome::Acknowledged {
            self.note_write(&what, outcome, false);
        }
        if let Err(why) = checked {
            self.violate(format!("{what}: {outcome:?}; {why}"));
        }
    }

    fn some_deletion(&self) -> Mutation {
        let (family, qualifier, up_to) = (VALUES, Bytes::new(), Timestamp::MAX);
        match self.below(4) {
            0 => Mutation::DeleteRow { up_to },
            1 => Mutation::DeleteFamily { family, up_to },
            2 => Mutation::DeleteVersion {
                family,
                qualifier,
                timestamp: Timestamp(1),
            },
            _ => Mutation::DeleteColumn {
                family,
                qualifier,
                from: Timestamp::MIN,
                to: up_to,
            },
        }
    }

    async fn read_contended(&self, node: &Node, row: &Bytes) {
        let Some(read) = self.of_contended(row, Contended::begin_read) else {
            return;
        };
        let request = ReadRows::new(table(), RowSet::new(vec![RowRange::single(row)]));
        let found = self.read(node, request).await;
        let cells = found.map(|rows| rows.into_iter().next().map(|(_, cells)| cells).unwrap_or_default());
        self.end_contended_read((row.clone(), read), cells.as_deref());
    }

    /// Begins reads of all these rows, except those with too much under way.
    pub(super) fn begin_contended_reads(&self) -> Vec<OpenRead> {
        let begin = |row: Bytes| {
            let read = self.of_contended(&row, Contended::begin_read);
            read.map(|read| (row, read))
        };
        (0..CONTENDED_ROWS).map(contended_row).filter_map(begin).collect()
    }

    /// Ends such a read with the row's content, or without a response.
    pub(super) fn end_contended_read(&self, (row, read): OpenRead, cells: Option<&[Cell]>) {
        let found = match cells {
            None => None,
            Some([]) => Some(None),
            Some([cell]) => Some(number(&cell.value).map(|value| value as u64)),
            Some(cells) => {
                let shown: Vec<String> = cells.iter().map(show).collect();
                self.violate(format!(
                    "{} holds several cells: {}",
                    row.escape_ascii(),
                    shown.join(" ")
                ));
                None
            }
        };
        let checked = self.of_contended(&row, |known| known.end_read(read, found));
        let what = format!("read {}: {found:?}", row.escape_ascii());
        self.cluster.sim().note(&what);
        if let Err(why) = checked {
            self.violate(format!("{what}; {why}"));
        }
    }

    fn of_contended<T>(&self, row: &Bytes, ask: impl FnOnce(&mut Contended) -> T) -> T {
        ask(self.contended.lock().entry(row.clone()).or_default())
    }
}
