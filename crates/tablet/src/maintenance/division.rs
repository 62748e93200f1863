//! Divides a tablet: writes manifests for parts of its files, and drops row ranges.
//!
//! Nothing is rewritten: references are cut at rows, and compactions separate the files later.

use super::compact::number_run;
use super::gaps::placed;
use crate::error::Result;
use crate::manifest::{self, FileRef, Manifest};
use crate::tablet::{Stopped, Tablet};
use bytes::Bytes;
use prost::Message as _;
use std::collections::BTreeSet;
use stele_types::key;
use stele_types::{RowRange, SeqNo, TabletId};

impl Tablet {
    /// Manifests for two tablets that together are this one, divided before `row`. The caller has stopped writes and
    /// flushed, and makes the tablets.
    pub async fn divide(&self, row: &Bytes, left: TabletId, right: TabletId) -> Result<(Manifest, Manifest)> {
        let range = self.range();
        assert!(
            range.contains(row) && *row != range.start,
            "a tablet is divided at a row inside of it"
        );
        let at = Bytes::from(key::row_prefix(row));
        let below = RowRange {
            start: range.start.clone(),
            end: Some(row.clone()),
        };
        let above = RowRange {
            start: row.clone(),
            end: range.end.clone(),
        };
        let left = self.part(left, below, None, Some(&at)).await?;
        let right = self.part(right, above, Some(&at), None).await?;
        assert_eq!(left.end.as_ref(), Some(&right.start), "the halves meet at one row");
        assert!(
            left.start == range.start && right.end == range.end,
            "the halves together have the rows of the tablet"
        );
        Ok((left, right))
    }

    /// A manifest for a tablet over the part of this one's files between two keys.
    async fn part(
        &self,
        tablet: TabletId,
        range: RowRange,
        lower: Option<&Bytes>,
        upper: Option<&Bytes>,
    ) -> Result<Manifest> {
        let mut part = self.manifest().await;
        part.tablet = tablet.0;
        (part.start, part.end) = (range.start, range.end);
        part.flushed_through = self.next_sequence().0;
        for group in &self.state().groups {
            let mut files = Vec::new();
            for file in placed(&group.files, part.files(group.id)) {
                files.extend(file.narrowed(lower, upper).await?);
            }
            part.set_files(group.id, files);
        }
        debug_assert!(
            part.start < *part.end.as_ref().unwrap_or(&part.start) || part.end.is_none(),
            "a part has rows"
        );
        part.keep_share_of(&self.manifest().await);
        Ok(part)
    }

    /// Drops all rows of a range by cutting the references to files around it. The caller has stopped compactions first
    /// ([`Tablet::stop_compactions`] of this tablet), and writes then: one that runs takes seconds.
    ///
    /// A write that was refused before may be in the log nevertheless, behind all entries in files. No tombstone would
    /// hide the entries that a recovery makes of it. So everything that has a sequence number by now counts as flushed,
    /// as it does for the halves of a split.
    pub async fn drop_rows(&self, range: &RowRange, _stopped: &Stopped<'_>) -> Result<()> {
        self.flush().await?;
        let _flushing = self.flushing.lock().await;
        let lower = Bytes::from(key::row_prefix(&range.start));
        let upper = range.end.as_ref().map(|end| Bytes::from(key::row_prefix(end)));
        let (mut left, mut before, mut after) = (Vec::new(), 0, 0);
        let stored = self.manifest().await;
        for group in &self.state().groups {
            let mut files: Vec<FileRef> = Vec::new();
            let numbers: BTreeSet<u64> = stored.files(group.id).iter().map(|file| file.run).collect();
            for file in placed(&group.files, stored.files(group.id)) {
                before += file.stored().encoded_len();
                if !file.may_contain(&lower, upper.as_deref()) {
                    // As it is: with a bound it would look like an upper run of which a compaction into the bottom level
                    // has taken the front.
                    files.push(file.stored().clone());
                    continue;
                }
                let mut parts: Vec<FileRef> = Vec::with_capacity(2);
                parts.extend(file.narrowed(None, Some(&lower)).await?);
                if let Some(upper) = &upper {
                    parts.extend(file.narrowed(Some(upper), None).await?);
                }
                // A file that several tablets shared may be one of a run that has its number.
                if file.stored().run == 0 && !numbers.contains(&file.stored().file) {
                    // Of one age: as two runs they would be read and merged as if one were above the other.
                    number_run(&mut parts, 0);
                }
                files.extend(parts);
            }
            after += files.iter().map(FileRef::encoded_len).sum::<usize>();
            left.push((group.id, files));
        }
        debug_assert_eq!(left.len(), self.state().groups.len(), "rows are dropped in all groups");
        manifest::check_cut(self.id(), before, after)?;
        let through = SeqNo(self.next_sequence().0.saturating_sub(1));
        let change = |manifest: &mut Manifest| {
            manifest.flushed_through = manifest.flushed_through.max(through.0);
            left.into_iter()
                .for_each(|(group, files)| manifest.set_files(group, files));
        };
        self.commit((&[], None), change, |_| {}).await?;
        self.set_flushed(through);
        Ok(())
    }
}
