//! Descriptions of tablets, for people who watch a server.
//!
//! Nothing here changes anything or waits for storage. A line about a tablet ([`TabletLine`]) costs some hundred
//! nanoseconds, so that ten thousand are listed in some milliseconds; a tablet's content ([`Description`]) costs more.

use crate::server::TabletServer;
use crate::tablets::Served;
use std::time::Duration;
use stele_tablet::Description;
use stele_types::{Epoch, RowRange, TableName, TabletId};

/// Something that a tablet waits for, or that goes on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Memtables wait for a flush, or are being flushed.
    Flush,
    /// The last flush failed, and is tried again.
    FlushFailing,
    /// A compaction runs.
    Compacting,
    /// A compaction of everything was requested.
    MajorCompaction,
    /// It has compaction debt and waits for a worker.
    Compaction,
    /// The last compaction failed, and the tablet is left alone for a time.
    CompactionFailing,
    /// Writes are slowed, because compactions are behind.
    Slowed,
}

impl Wait {
    /// As users read it.
    pub fn name(self) -> &'static str {
        match self {
            Wait::Flush => "flush",
            Wait::FlushFailing => "flush failing",
            Wait::Compacting => "compacting",
            Wait::MajorCompaction => "major compaction",
            Wait::Compaction => "waits for compaction",
            Wait::CompactionFailing => "compaction failing",
            Wait::Slowed => "writes slowed",
        }
    }
}

/// One tablet in a list.
#[derive(Clone, Debug)]
pub struct TabletLine {
    /// Which tablet.
    pub id: TabletId,
    /// Its table.
    pub table: TableName,
    /// Its rows.
    pub range: RowRange,
    /// Ownership generation.
    pub epoch: Epoch,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes of its memtables.
    pub memtable_bytes: u64,
    /// Sorted runs of all locality groups.
    pub runs: usize,
    /// Sstables.
    pub files: usize,
    /// Bytes that compactions have to read until nothing is due any more.
    pub debt_bytes: u64,
    /// Rows read in a second.
    pub reads_per_second: f32,
    /// Rows written in a second.
    pub writes_per_second: f32,
    /// Its waits.
    pub waits: Vec<Wait>,
}

/// One tablet as a whole.
#[derive(Clone, Debug)]
pub struct TabletPage {
    /// As in a list.
    pub line: TabletLine,
    /// Memtables and files.
    pub content: Description,
    /// Names of the locality groups, in the order of `content.groups`.
    pub groups: Vec<String>,
    /// Of a thousand bytes of files, how many compactions are expected to free.
    pub garbage_share: u64,
    /// How far compactions are behind; writes are slowed above 0.
    pub compaction_pressure: u64,
    /// Rows read and written since it was opened, as far as they were counted.
    pub operations: (u64, u64),
    /// Mutations since it was opened.
    pub mutations: u64,
    /// The error of the last flush, if it failed.
    pub flush_error: Option<String>,
}

impl TabletServer {
    /// Lines about tablets served here, as far as `wants` them, by identifier.
    pub fn lines(&self, wants: impl Fn(TabletId, &TableName) -> bool) -> Vec<TabletLine> {
        let now = self.env().now();
        let all = self.all_served();
        let wanted = all.iter().filter(|served| {
            let tablet = &served.tablet;
            tablet.with_schema(|schema| wants(tablet.id(), &schema.name))
        });
        wanted.map(|served| self.line(served, now)).collect()
    }

    /// A line about one tablet, if it is served here.
    pub fn line_of(&self, tablet: TabletId) -> Option<TabletLine> {
        let served = self.served(tablet).ok()?;
        Some(self.line(&served, self.env().now()))
    }

    /// Tablets that wait for something. Cheap for all others.
    pub fn waiting(&self) -> Vec<(TabletId, Vec<Wait>)> {
        let now = self.env().now();
        let all = self.all_served();
        let waits = all
            .iter()
            .map(|served| (served.tablet.id(), self.waits_of(served, now)));
        waits.filter(|(_, waits)| !waits.is_empty()).collect()
    }

    /// Everything about one tablet, if it is served here. Of each run at most `files_max` files are described.
    pub fn page(&self, tablet: TabletId, files_max: usize) -> Option<TabletPage> {
        let served = self.served(tablet).ok()?;
        let tablet = &served.tablet;
        let content = tablet.describe(files_max);
        let schema = tablet.schema();
        let name = |id| schema.groups.iter().find(|group| group.id == id);
        let groups = content.groups.iter().map(|group| name(group.id));
        debug_assert!(!content.groups.is_empty(), "a tablet has a locality group");
        Some(TabletPage {
            groups: groups
                .map(|group| group.map_or_else(String::new, |group| group.name.clone()))
                .collect(),
            line: self.line(&served, self.env().now()),
            garbage_share: tablet.garbage_share(),
            compaction_pressure: tablet.write_load().compaction_pressure,
            operations: served.traffic.counts(),
            mutations: tablet.next_sequence().counter().saturating_sub(1),
            flush_error: self.parts.admission.unflushable.error_of(tablet.id()),
            content,
        })
    }

    fn line(&self, served: &Served, now: Duration) -> TabletLine {
        let tablet = &served.tablet;
        let state = tablet.state();
        let (runs, files) = tablet.runs_and_files();
        let (reads_per_second, writes_per_second) = served.traffic.per_second();
        TabletLine {
            id: tablet.id(),
            table: tablet.with_schema(|schema| schema.name.clone()),
            range: tablet.range().clone(),
            epoch: tablet.epoch(),
            bytes: state.file_bytes(),
            memtable_bytes: state.memtable_bytes(),
            runs,
            files,
            debt_bytes: tablet.compaction_debt(),
            reads_per_second,
            writes_per_second,
            waits: self.waits_of(served, now),
        }
    }

    fn waits_of(&self, served: &Served, now: Duration) -> Vec<Wait> {
        let (id, tablet) = (served.tablet.id(), &served.tablet);
        let stage = self.parts.compactions.stage(id, now);
        let has_debt = tablet.compaction_debt() > 0;
        let facts = [
            (Wait::Flush, tablet.has_frozen()),
            (
                Wait::FlushFailing,
                self.parts.admission.unflushable.error_of(id).is_some(),
            ),
            (Wait::Compacting, stage.jobs > 0),
            (Wait::MajorCompaction, stage.has_major),
            (Wait::Compaction, stage.is_waiting && has_debt && stage.jobs == 0),
            (Wait::CompactionFailing, stage.is_backing_off),
            (Wait::Slowed, tablet.write_load().compaction_pressure > 0),
        ];
        facts
            .into_iter()
            .filter(|(_, holds)| *holds)
            .map(|(wait, _)| wait)
            .collect()
    }
}

#[cfg(test)]
mod tests;
