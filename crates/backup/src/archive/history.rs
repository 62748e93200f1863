//! Follows a table from its backup to a moment, by the parts of an archive.
//!
//! Terms: a table is *known* up to a moment at which something happened to it that neither its backup nor the log describes.
//!
//! Pure: no I/O, no clock.

use super::format::{Part, TableChange};
use std::collections::BTreeSet;
use stele_types::{TableId, TableSchema};

/// A table of a backup on its way to a moment.
#[derive(Clone, Debug)]
pub struct History {
    /// Its number.
    table: u64,
    /// When its snapshot was begun: changes before that are in the backup.
    begun_micros: i64,
    /// From when on barriers count. They have the clock of the tablet's server.
    barred_from: i64,
    /// The moment.
    at: i64,
    /// The number that the records of its tablets are under.
    set: TableId,
    /// Its schema at the moment.
    schema: TableSchema,
    /// All tablets of that set that it has had.
    tablets: BTreeSet<u64>,
    /// The end of the time in which it is known.
    end: Option<End>,
    /// A server began with the part, and it has not been seen yet how the table was then.
    is_unstated: bool,
}

/// The end of the time in which a table is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The first moment that cannot be restored.
    pub micros: i64,
    /// Why.
    pub why: String,
    /// Whether the table was deleted, then or later.
    pub is_deleted: bool,
}

impl History {
    /// Of a table as its backup has it: its schema, the number of its set of tablets, and these; from when on its changes count, and
    /// its barriers.
    pub fn new(
        (schema, set): (TableSchema, TableId),
        (begun_micros, barred_from): (i64, i64),
        tablets: impl IntoIterator<Item = u64>,
        at: i64,
    ) -> History {
        History {
            table: schema.id.0,
            begun_micros,
            barred_from,
            at,
            set,
            schema,
            tablets: tablets.into_iter().collect(),
            end: None,
            is_unstated: false,
        }
    }

    /// Its schema at the moment.
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// Its tablets up to the moment.
    pub fn tablets(&self) -> &BTreeSet<u64> {
        &self.tablets
    }

    /// Why it is not known at the moment, if so.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Goes on with the next part: first this, then its changes in their order, then its end.
    pub fn begin_part(&mut self, part: &Part) {
        self.is_unstated = part.restated_micros > 0;
    }

    /// Goes on with some changes of the part; the error says why a record of it cannot be read.
    pub fn apply(&mut self, part: &Part, changes: &[TableChange]) -> Result<(), String> {
        let table = self.table;
        for change in changes.iter().filter(|change| change.table == table) {
            if std::mem::take(&mut self.is_unstated) {
                if change.at_micros == part.restated_micros {
                    self.restated(part, Some(change))?;
                    continue;
                }
                self.restated(part, None)?;
            }
            self.follow(change)?;
            self.change(change, change.at_micros)?;
        }
        Ok(())
    }

    /// The part has no more changes.
    pub fn end_part(&mut self, part: &Part) -> Result<(), String> {
        if std::mem::take(&mut self.is_unstated) {
            self.restated(part, None)?;
        }
        self.bar(part);
        Ok(())
    }

    /// Notes the barriers of a part with log. The parts with the changes of tables up to the moment come before.
    pub fn bar(&mut self, part: &Part) {
        for barrier in &part.barriers {
            let concerns = self.tablets.contains(&barrier.tablet) && barrier.at_micros >= self.barred_from;
            if concerns && barrier.at_micros <= self.at {
                let why = match barrier.cause {
                    1 => "rows of it were dropped",
                    2 => "files were loaded into it",
                    _ => "its files changed in a way that this version does not know",
                };
                self.ends(End {
                    micros: barrier.at_micros,
                    why: why.to_owned(),
                    is_deleted: false,
                });
            }
        }
    }

    /// A server began with the table in this state: a change since the part before has no moment of its own.
    fn restated(&mut self, part: &Part, stated: Option<&TableChange>) -> Result<(), String> {
        let gone = TableChange {
            table: self.table,
            ..TableChange::default()
        };
        let stated = stated.unwrap_or(&gone);
        self.follow(stated)?;
        // The first part of a range follows no other.
        if part.begins_range() || self.is_same(stated)? {
            return Ok(());
        }
        let since = part.from_micros.max(self.begun_micros + 1);
        if (since..part.restated_micros).contains(&self.at) {
            self.ends(End {
                micros: since,
                why: "it was changed, and the server ended before it had archived when".to_owned(),
                is_deleted: false,
            });
            return Ok(());
        }
        self.change(stated, part.restated_micros)
    }

    /// Adds the tablets of a change. Those of another set have rows that were dropped, and the log still has their writes.
    fn follow(&mut self, change: &TableChange) -> Result<(), String> {
        if !change.record.is_empty() && stele_catalog::record::decode_table(&change.record)?.1 == self.set {
            self.tablets.extend(&change.tablets);
        }
        Ok(())
    }

    fn change(&mut self, change: &TableChange, at_micros: i64) -> Result<(), String> {
        if at_micros < self.begun_micros || at_micros > self.at {
            return Ok(());
        }
        if change.record.is_empty() {
            self.ends(End {
                micros: at_micros,
                why: "it was deleted".to_owned(),
                is_deleted: true,
            });
            return Ok(());
        }
        let (schema, set) = stele_catalog::record::decode_table(&change.record)?;
        if set != self.set {
            self.ends(End {
                micros: at_micros,
                why: "all its rows were dropped or replaced".to_owned(),
                is_deleted: false,
            });
        }
        self.schema = schema;
        Ok(())
    }

    fn is_same(&self, change: &TableChange) -> Result<bool, String> {
        if change.record.is_empty() {
            return Ok(self.end.as_ref().is_some_and(|end| end.is_deleted));
        }
        let (schema, set) = stele_catalog::record::decode_table(&change.record)?;
        Ok(schema == self.schema && set == self.set)
    }

    /// The earliest end counts. A table that is deleted by the moment stays so, also if it had ended before.
    fn ends(&mut self, end: End) {
        let is_deleted = end.is_deleted || self.end.as_ref().is_some_and(|known| known.is_deleted);
        let ends = match self.end.take() {
            Some(known) if known.micros <= end.micros => known,
            _ => end,
        };
        self.end = Some(End { is_deleted, ..ends });
    }
}

#[cfg(test)]
mod tests;
