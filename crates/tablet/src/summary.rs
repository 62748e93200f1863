//! Summaries of a group's runs: the picker's input, and the resulting compaction debt.

use crate::held::HeldFile;
use crate::manifest::FileRef;
use crate::picker::{self, RunSummary};
use crate::state::{GroupState, State};
use crate::statistics::CompactionStats;
use std::collections::BTreeSet;
use std::ops::Range;
use stele_env::Env;
use stele_sstable::Properties;
use stele_types::key::row_prefix;
use stele_types::{
    DeleteRule, Family, FamilyId, FileId, GcRule, GcView, GroupId, KeepDeleted, TableSchema, TimeUnit, Timestamp,
};

/// The runs behind the newest damaged file's, and where they are. A damaged file stays in its place, with all older
/// runs. A compaction over it would drop tombstones and versions that still decide over its entries, and would fail
/// again at each attempt to read it.
///
/// The tablet begins with the row `start`; `now_micros` is wall-clock time.
pub(crate) fn summaries(
    state: &State,
    group: &GroupState,
    start: &[u8],
    now_micros: i64,
) -> (Vec<RunSummary>, Vec<Range<usize>>) {
    let expiry = Expiry::of(state, group.id, now_micros);
    let start = row_prefix(start);
    let is_cut_up = state.is_cut_up();
    let (mut summaries, mut places) = (Vec::new(), Vec::new());
    let mut at = 0;
    for run in group.runs() {
        let place = at..at + run.len();
        at = place.end;
        if run.iter().any(HeldFile::is_damaged) {
            summaries.clear();
            places.clear();
            continue;
        }
        summaries.push(RunSummary {
            bounds: bounds_to_spare(run, is_cut_up),
            ..summarize(run, &expiry, &start, &group.compaction_stats)
        });
        places.push(place);
    }
    (summaries, places)
}

/// How far compactions of a tablet are behind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Debt {
    /// Bytes that compactions have to read until nothing is due any more.
    pub(crate) bytes: u64,
    /// Of a thousand bytes of files, how many compactions are expected to free.
    pub(crate) garbage_share: u64,
    /// Of the group where it is highest: [`picker::compaction_pressure`].
    pub(crate) compaction_pressure: u64,
}

impl Debt {
    /// The debt of a tablet that begins with the row `start`.
    pub(crate) fn of(state: &State, start: &[u8], env: &Env) -> Self {
        let (now, now_micros) = (env.now(), env.wall_micros());
        let mut debt = Debt::default();
        let (mut garbage, mut bytes) = (0, 0);
        for group in &state.groups {
            let (runs, places) = summaries(state, group, start, now_micros);
            let picker_stats = group.compaction_stats.picker_stats(now);
            debt.bytes += picker::debt(&runs, picker_stats);
            garbage += picker::expected_garbage(&runs, picker_stats);
            bytes += runs.iter().map(|run| run.bytes).sum::<u64>();
            let is_bottom = has_bottom(state, group, &places) && !state.is_entangled(group.id);
            debt.compaction_pressure =
                debt.compaction_pressure
                    .max(picker::compaction_pressure(&runs, picker_stats, is_bottom));
        }
        debug_assert!(garbage <= bytes, "garbage is a part of the files");
        debt.garbage_share = garbage.saturating_mul(1000) / bytes.max(1);
        debt
    }
}

/// Marks the runs of which files are claimed.
pub(crate) fn mark_busy(
    summaries: &mut [RunSummary],
    places: &[Range<usize>],
    group: &GroupState,
    claimed: &BTreeSet<FileId>,
) {
    assert_eq!(summaries.len(), places.len(), "each run has a place");
    for (summary, place) in summaries.iter_mut().zip(places) {
        let files = group.files.get(place.clone()).unwrap_or_default();
        summary.busy = files.iter().any(|file| claimed.contains(&file.reference.id()));
    }
}

/// Whether the first of these runs is the oldest of all. The misplaced cells of a family in another group are below all
/// runs here.
pub(crate) fn has_bottom(state: &State, group: &GroupState, runs: &[Range<usize>]) -> bool {
    runs.first().is_some_and(|first| first.start == 0) && !state.is_above_misplaced(group.id)
}

/// About how many entries are referenced.
pub(crate) fn cells_of(file: &FileRef) -> u64 {
    scaled(file.cells, file)
}

/// The part of a number about the whole file that falls to the referenced part.
fn scaled(number: u64, file: &FileRef) -> u64 {
    let part = u128::from(number) * u128::from(file.referenced) / u128::from(file.len.max(1));
    u64::try_from(part).unwrap_or(number).min(number)
}

pub(crate) fn summarize(
    run: &[HeldFile],
    expiry: &Expiry,
    tablet_start: &[u8],
    compaction_stats: &CompactionStats,
) -> RunSummary {
    let mut all = RunSummary::default();
    let mut cut = BTreeSet::new();
    for file in run {
        let reference = &file.reference;
        let cells = cells_of(reference);
        let properties = file.sstable.properties();
        let expired = match (properties.timestamp_min, properties.timestamp_max) {
            (Some(min), Some(max)) => expiry.percent(min, max),
            _ => 0,
        };
        all.bytes += reference.referenced;
        all.cells += cells;
        let gone = expiry.gone_percent(properties);
        let tombstones = match expiry.keeps_deleted {
            true => 0,
            false => scaled(reference.deletes, reference),
        };
        let garbage = (tombstones + cells * (expired + gone) / 100).min(cells);
        all.garbage += garbage;
        if expiry.keeps_tombstones {
            all.lasting_tombstones += tombstones.min(garbage);
        }
        let overlapping = |percent: u64| reference.referenced * percent / 100;
        let known = compaction_stats.known_overlap(reference.id());
        all.overlapping += overlapping(known.unwrap_or(100));
        all.known_overlapping += overlapping(known.unwrap_or(0));
        let is_whole = reference.lower.is_none() && reference.upper.is_none();
        // Drops of rows leave several references to one file.
        if is_whole || cut.insert(reference.file) {
            all.file_bytes += reference.len;
        }
        all.compressible += file.compressible_bytes();
    }
    debug_assert!(
        all.known_overlapping <= all.overlapping && all.overlapping <= all.bytes,
        "the overlap is a part of the run"
    );
    debug_assert!(all.garbage <= all.cells, "garbage is a part of the run");
    let of_one_file = run.chunk_by(|a, b| a.reference.file == b.reference.file);
    all.partial_rows = of_one_file
        .map(|partial_rows| partial_rows.len() as u64)
        .max()
        .unwrap_or(0);
    // A compaction consumes a run from the front, and cuts the rest of it. Files cut further behind have lost rows that
    // were dropped.
    let begins = run.first().and_then(|file| file.reference.lower.as_deref());
    all.advanced = begins.is_some_and(|lower| lower > tablet_start);
    all
}

/// Bytes of bounds that rewriting the files would remove from the manifest, where that is wanted.
pub(crate) fn bounds_to_spare(files: &[HeldFile], is_wanted: bool) -> u64 {
    let bounds = |file: &HeldFile| {
        let bounds = [&file.reference.lower, &file.reference.upper];
        bounds.into_iter().flatten().map(|bound| bound.len()).sum::<usize>()
    };
    match is_wanted {
        true => files.iter().map(bounds).sum::<usize>() as u64,
        false => 0,
    }
}

/// The rules that expire cells of a group's files by age, and the families that are dropped without a rule.
pub(crate) struct Expiry {
    /// Of all families that are there; empty when one has none, or there are too many to look at.
    rules: Vec<GcRule>,
    /// The families that the table has no more: of neighbours the first and the last.
    gone: Vec<(FamilyId, FamilyId)>,
    /// Some family keeps its deleted cells: tombstones are not known to be garbage.
    keeps_deleted: bool,
    /// Some tombstones of the table hide by timestamp: only major compactions drop those.
    keeps_tombstones: bool,
    unit: TimeUnit,
    now_micros: i64,
}

/// Different rules looked at: a group of more is left to other reasons to be compacted.
const RULES_MAX: usize = 8;

impl Expiry {
    /// The rules for the files of a group, of which some may have cells of families of other groups.
    pub(crate) fn of(state: &State, group: GroupId, now_micros: i64) -> Self {
        let misplaced_families = state
            .misplaced()
            .iter()
            .filter(|misplaced_cells| misplaced_cells.left == group);
        let misplaced_families: Vec<FamilyId> = misplaced_families
            .map(|misplaced_cells| misplaced_cells.family)
            .collect();
        Expiry::new(&state.schema, group, &misplaced_families, now_micros)
    }

    /// Of a group whose files have cells of `misplaced_families`, too, which are families of other groups.
    fn new(schema: &TableSchema, group: GroupId, misplaced_families: &[FamilyId], now_micros: i64) -> Self {
        // Compactions of an unfinished table drop nothing that a rule or a tombstone would, so they are not for that.
        let is_unfinished = schema.is_unfinished();
        let mut rules: Vec<GcRule> = Vec::new();
        let is_there = |(id, family): &(&FamilyId, &Family)| family.group == group || misplaced_families.contains(id);
        for (_, family) in schema.families.iter().filter(is_there) {
            match &family.gc_rule {
                Some(rule) if rules.contains(rule) => {}
                Some(rule) if rules.len() < RULES_MAX && !is_unfinished => rules.push(rule.clone()),
                _ => {
                    rules.clear();
                    break;
                }
            }
        }
        let keeps = |(_, family): (&FamilyId, &Family)| family.deletes.keep != KeepDeleted::No;
        Expiry {
            keeps_deleted: is_unfinished || schema.families.iter().filter(is_there).any(keeps),
            keeps_tombstones: !schema.deletes_only(DeleteRule::BySequence),
            rules,
            gone: gone(schema),
            unit: schema.time_unit,
            now_micros,
        }
    }

    /// How many in a hundred of a file's cells are of families that were dropped, if it has as many of each family: nobody
    /// counts them.
    fn gone_percent(&self, properties: &Properties) -> u64 {
        let (all, gone) = properties.families_among(&self.gone);
        (gone * 100).checked_div(all).unwrap_or(0)
    }

    /// How many in a hundred of cells spread evenly between two timestamps are certainly expired. By the mildest rule: it
    /// is not known which family they are of.
    fn percent(&self, min: i64, max: i64) -> u64 {
        let expired = |rule: &GcRule, timestamp: i128| {
            rule.is_garbage(&GcView {
                version_index: 0,
                timestamp: Timestamp(i64::try_from(timestamp).unwrap_or(i64::MAX)),
                unit: self.unit,
                now_micros: self.now_micros,
            })
        };
        let (min, width) = (i128::from(min), i128::from(max) - i128::from(min));
        let percent = |rule: &GcRule| {
            if expired(rule, i128::from(max)) {
                return 100;
            }
            let (mut low, mut high) = (0, 100);
            while high - low > 1 {
                let middle = (low + high) / 2;
                if expired(rule, min + width * middle / 100) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            low as u64
        };
        self.rules.iter().map(percent).min().unwrap_or(0)
    }
}

/// The families that a table had and has no more. Numbers that it has not given yet are not among them: after a catalog was
/// restored to an older state, there may be cells of such.
fn gone(schema: &TableSchema) -> Vec<(FamilyId, FamilyId)> {
    let mut gone = Vec::new();
    let next = schema.next_family.0;
    if schema.families.len() as u64 + 1 == u64::from(next) {
        return gone;
    }
    let mut from = 1;
    for id in schema.families.keys().map(|id| id.0).chain([next]) {
        if from < id {
            gone.push((FamilyId(from), FamilyId(id - 1)));
        }
        from = from.max(id.saturating_add(1));
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::schema;

    #[test]
    fn what_a_family_has_left_behind_does_not_expire_by_the_rules_of_others() {
        let mut schema = TableSchema::clone(&schema(DeleteRule::BySequence, None));
        let kept = schema.families[&FamilyId(1)].clone();
        let expires = Family {
            name: "g".to_owned(),
            gc_rule: Some(GcRule::MaxAgeMicros(1)),
            ..kept.clone()
        };
        schema.families.insert(FamilyId(2), expires);
        let elsewhere = Family {
            group: GroupId(1),
            ..kept
        };
        schema.families.insert(FamilyId(1), elsewhere);
        let percent = |misplaced_families: &[FamilyId]| {
            Expiry::new(&schema, GroupId(0), misplaced_families, i64::MAX).percent(0, 1)
        };
        assert_eq!((percent(&[]), percent(&[FamilyId(1)])), (100, 0));
    }
}
