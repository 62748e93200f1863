//! Selects the value files that a compaction collects or gathers (`values::collect`).

use super::READ;
use super::compact::Plan;
use super::context::CompactionContext;
use crate::claims::Held;
use crate::compaction::Carried;
use crate::held::HeldFile;
use crate::merging::run_source;
use crate::state::{GroupState, State};
use crate::values::HEADER_BYTES;
use crate::values::collect::{self, Shared, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use stele_types::FileId;

impl CompactionContext<'_> {
    /// The next step of collecting value files, if that is worth it, and in which group: a file of the bottom level, or
    /// another run, by itself. A group where a compaction is due is skipped. There may be no free space for that
    /// compaction, and it may be in the middle of the runs. Claimed files are skipped as well.
    pub(super) fn collection_due<'a>(&self, state: &'a State, held: &Held) -> Option<(&'a GroupState, Plan)> {
        let places = state.groups.iter().flat_map(|group| {
            let places = unit_places(group).into_iter();
            places.map(move |place| (group, place))
        });
        let places: Vec<(&GroupState, Range<usize>)> = places.collect();
        // The units of a group follow one another.
        let mut checked = None;
        let may_be = |unit: usize| {
            let Some((group, place)) = places.get(unit) else {
                return false;
            };
            let files = group.files.get(claimed(group, place)).unwrap_or_default();
            let taken = held.files(group.id);
            if files.iter().any(|file| taken.contains(&file.reference.id())) {
                return false;
            }
            let known = checked.filter(|(id, _)| *id == group.id);
            let (_, is_due) = *checked.insert(known.unwrap_or_else(|| (group.id, self.is_due(state, group))));
            !is_due
        };
        let (first, collected) = collect::pick(&value_units(state), &value_shares(state), may_be)?;
        let (group, inputs) = places.get(first).cloned()?;
        debug_assert!(!collected.is_empty(), "a collection has files to empty");
        let bottom = is_of_bottom(group, &inputs);
        let files = group.files.get(inputs.clone()).unwrap_or_default();
        let bottom_end = claimed(group, &inputs).end;
        let plan = Plan {
            sources: run_source(files, &[], None, None, READ).into_iter().collect(),
            inputs,
            cut: bottom_end..bottom_end,
            upper: None,
            rows: self.range.clone(),
            bottom,
            major: false,
            collected,
        };
        Some((group, plan))
    }

    /// Whether a merge is due in a group, or runs.
    fn is_due(&self, state: &State, group: &GroupState) -> bool {
        self.due(state, group, &BTreeSet::new()).is_some()
    }
}

/// Whether a unit is of the oldest run.
fn is_of_bottom(group: &GroupState, unit: &Range<usize>) -> bool {
    group.runs().next().is_some_and(|oldest| unit.end <= oldest.len())
}

/// The runs that no other job may use while a unit is rewritten: the whole bottom level, or the unit itself.
pub(super) fn claimed(group: &GroupState, unit: &Range<usize>) -> Range<usize> {
    match is_of_bottom(group, unit) {
        true => 0..group.runs().next().map_or(0, <[HeldFile]>::len),
        false => unit.clone(),
    }
}

/// Where the units of a group are in its list of files, oldest first: each file of the bottom, and each other run.
fn unit_places(group: &GroupState) -> Vec<Range<usize>> {
    let mut places = Vec::new();
    let mut at = 0;
    for (number, run) in group.runs().enumerate() {
        match number {
            0 => places.extend((0..run.len()).map(|file| file..file + 1)),
            _ => places.push(at..at + run.len()),
        }
        at += run.len();
    }
    debug_assert_eq!(at, group.files.len(), "the units cover all files");
    places
}

/// The units of all groups, group by group: a family that has moved to another leaves its values where they are, so groups
/// share value files.
pub(super) fn value_units(state: &State) -> Vec<Unit> {
    let unit = |group: &GroupState, place: Range<usize>| {
        let mut unit = Unit::default();
        for file in group.files.get(place).unwrap_or_default() {
            unit.bytes += file.bytes();
            for link in &file.reference.values {
                *unit.live.entry(link.id()).or_default() += link.bytes;
            }
        }
        unit
    };
    let units = |group| unit_places(group).into_iter().map(move |place| unit(group, place));
    state.groups.iter().flat_map(units).collect()
}

/// The value files of the tablet. One that cannot be read is not sound, nor is any of a group with a damaged sstable:
/// files that compactions skip may refer to it, and it could not be emptied. Nor is a value file sound whose group waits
/// for misplaced cells to be migrated, so that nothing is at the bottom level. The same holds for a group that is not to
/// be compacted by itself: soon that will be over.
pub(super) fn value_shares(state: &State) -> BTreeMap<FileId, Shared> {
    let mut shares: BTreeMap<FileId, Shared> = BTreeMap::new();
    for group in &state.groups {
        let may_compact = !state.is_above_misplaced(group.id) && !state.is_entangled(group.id);
        let is_sound = may_compact && !group.files.iter().any(HeldFile::is_damaged);
        let links = group
            .files
            .iter()
            .flat_map(|held| held.reference.values.iter().zip(held.values.iter()));
        for (link, file) in links {
            // A file's header is not garbage: a file of one tiny value would be collected, and so would the file that it
            // moves to.
            let records = link.share.saturating_sub(HEADER_BYTES as u64);
            let shared = shares.entry(link.id()).or_insert(Shared {
                bytes: records,
                sound: true,
            });
            shared.bytes = shared.bytes.max(records);
            shared.sound &= is_sound && file.damage().is_none();
        }
    }
    shares
}

/// Of the value files that a job's files refer to, those that it gathers, with the bytes of their records that are referred
/// to. Not one that is damaged, as far as is known: the job would meet it.
pub(super) fn gathered(files: &[&HeldFile], full_bytes: u64) -> BTreeMap<FileId, u64> {
    let (mut sizes, mut referred) = (BTreeMap::new(), BTreeMap::new());
    let links = files
        .iter()
        .flat_map(|held| held.reference.values.iter().zip(held.values.iter()));
    for (link, _) in links.filter(|(_, file)| file.damage().is_none()) {
        sizes.insert(link.id(), link.len);
        *referred.entry(link.id()).or_insert(0) += link.bytes;
    }
    let gathered = collect::gathered(&sizes, full_bytes);
    referred.retain(|file, _| gathered.contains(file));
    referred
}

/// The value files that a job over files of the group may meet.
pub(super) fn carried(group: &GroupState, collected: BTreeSet<FileId>) -> Carried {
    let links = group
        .files
        .iter()
        .flat_map(|held| held.reference.values.iter().zip(held.values.iter()));
    Carried {
        files: links
            .map(|(link, file)| (link.id(), (link.clone(), file.clone())))
            .collect(),
        collected,
    }
}
