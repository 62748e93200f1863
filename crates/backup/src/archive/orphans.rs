//! Finds writes of tablets that no table is known to have had.
//!
//! A tablet may be made and replaced between two parts, and the server killed before it archived either change. Its writes are then in
//! the log, in the part with which the next server began, and that part does not name it.

use super::changes_of::ChangesOf;
use super::format::{Part, TableChange};
use super::memory::RestoreMemory;
use super::replay::Replay;
use super::store::{Archive, Range};
use crate::error::Result;
use crate::work::Work;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Watches the parts of a restore for such writes.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// Tablets of tables, also of those that are not restored.
    known: BTreeSet<u64>,
    /// Numbers of parts with which a server began.
    starts: Vec<u64>,
}

/// The first such write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Orphan {
    /// Its time, or a bound below it.
    pub(crate) micros: i64,
    /// Its tablet.
    pub(crate) tablet: u64,
}

impl Orphans {
    /// Notes tablets of a table.
    pub(crate) fn know(&mut self, tablets: impl IntoIterator<Item = u64>) {
        self.known.extend(tablets);
    }

    /// Notes the tablets in changes.
    pub(crate) fn know_of(&mut self, changes: &[TableChange]) {
        self.know(changes.iter().flat_map(|change| change.tablets.iter().copied()));
    }

    /// Goes on with the next part.
    pub(crate) fn apply(&mut self, part: &Part) {
        if part.restated_micros > 0 && !part.begins_range() {
            self.starts.push(part.number);
        }
    }

    /// The first write of an unknown tablet between two moments, both included. Parts of the range before `first` may know it.
    pub(crate) async fn find(
        mut self,
        (archive, memory): (&Archive, &RestoreMemory),
        (range, first): (&Range, u64),
        (from, to): (i64, i64),
        work: &Arc<Work>,
    ) -> Result<Option<Orphan>> {
        let mut found = Vec::new();
        for number in std::mem::take(&mut self.starts) {
            work.check()?;
            let part = Part {
                changes: Vec::new(),
                ..archive.part(number).await?
            };
            found.extend(self.find_in((archive, memory), part, (from, to)).await?);
        }
        self.resolve(found, (archive, memory), (range, first), work).await
    }

    /// Whether the table of a tablet is known from the parts that were read.
    pub(crate) fn knows(&self, tablet: u64) -> bool {
        self.known.contains(&tablet)
    }

    /// The first one of these writes whose tablet no earlier part of the range knows.
    pub(crate) async fn resolve(
        &self,
        mut found: Vec<Orphan>,
        (archive, memory): (&Archive, &RestoreMemory),
        (range, first): (&Range, u64),
        work: &Arc<Work>,
    ) -> Result<Option<Orphan>> {
        let mut earlier = first;
        // Seldom: the writes are of a table that the backup has not.
        while !found.is_empty() && earlier > range.first {
            work.check()?;
            earlier -= 1;
            let part = archive.part(earlier).await?;
            let mut left = ChangesOf::new(archive, memory, &part);
            while let Some(some) = left.next().await? {
                let tablets = some.changes.iter().flat_map(|change| change.tablets.iter().copied());
                let known: BTreeSet<u64> = tablets.collect();
                found.retain(|orphan: &Orphan| !known.contains(&orphan.tablet));
            }
        }
        Ok(found.into_iter().min())
    }

    /// The first one of each unknown tablet in a part.
    async fn find_in(
        &self,
        from_archive: (&Archive, &RestoreMemory),
        part: Part,
        (from, to): (i64, i64),
    ) -> Result<Vec<Orphan>> {
        let mut found = std::collections::BTreeMap::new();
        let is_within = |micros: i64| from <= micros && micros <= to;
        for barrier in part.barriers.iter().filter(|barrier| is_within(barrier.at_micros)) {
            if !self.known.contains(&barrier.tablet) {
                let first = found.entry(barrier.tablet).or_insert(barrier.at_micros);
                *first = barrier.at_micros.min(*first);
            }
        }
        let mut replay = Replay::new(from_archive, to, None);
        replay.begin_part(part)?;
        replay.end_parts();
        while let Some(records) = replay.next().await? {
            let micros = replay.micros();
            for record in records {
                if is_within(micros) && !self.known.contains(&record.tablet.0) {
                    let first = found.entry(record.tablet.0).or_insert(micros);
                    *first = micros.min(*first);
                }
            }
        }
        Ok(found
            .into_iter()
            .map(|(tablet, micros)| Orphan { micros, tablet })
            .collect())
    }
}
