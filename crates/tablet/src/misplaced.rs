//! Finds misplaced cells: entries of a family in files of another group.
//!
//! A family that moves to another locality group leaves its old entries behind, until a migration rewrites them
//! (`maintenance::migrate`). The files decide where such entries are; the catalog's list of families that left a group only
//! tells how old they are.

use crate::held::HeldFile;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_types::{FamilyId, GroupId, TableSchema};

/// Families from the first to the last of each pair, ascending.
pub(crate) type FamilyRanges = Vec<(FamilyId, FamilyId)>;

/// A family may have entries in files of a group that is not its own. As long as it has such misplaced cells, reads of
/// the family search both groups, and nothing of its own group is at the bottom level.
///
/// The content of the files decides, not the catalog's record of moves: a restored catalog may have forgotten some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// Which family.
    pub family: FamilyId,
    /// Where it was.
    pub left: GroupId,
    /// Where it is.
    pub group: GroupId,
    /// The catalog knows of the move, and the family has misplaced cells in no other group. Then these are older than
    /// all other entries of the family.
    pub is_oldest: bool,
}

/// Finds the misplaced cells of a state. `files` gives the files of a group; `in_memtables` says whether frozen
/// memtables of a group may have entries of a family. `moved` names families of which they may, because their schema has the
/// families in the group.
pub(crate) fn find<'a>(
    schema: &TableSchema,
    other_families: &[(GroupId, FamilyRanges)],
    files: impl Fn(GroupId) -> &'a [HeldFile],
    in_memtables: impl Fn(GroupId, FamilyId) -> bool,
    moved: impl Fn(GroupId) -> Vec<FamilyId>,
) -> Vec<Misplaced> {
    let mut misplaced = Vec::new();
    for (id, other_families) in other_families {
        let Some(group) = schema.groups.iter().find(|group| group.id == *id) else {
            continue;
        };
        let files = files(*id);
        let mut found: BTreeSet<FamilyId> = files
            .iter()
            .flat_map(|file| misplaced_families(file, schema, *id, other_families))
            .collect();
        // The catalog may have forgotten these as well: a tablet can learn of several changes together.
        found.extend(moved(*id));
        for &family in &group.left {
            // Of a file that cannot be opened nobody knows more than the catalog does.
            let in_file = |file: &HeldFile| file.sstable.properties().may_have_family(family);
            if files.iter().any(in_file) || in_memtables(*id, family) {
                found.insert(family);
            }
        }
        misplaced.extend(found.into_iter().map(|family| Misplaced {
            family,
            left: *id,
            group: schema.group_of(family),
            is_oldest: group.left.contains(&family),
        }));
    }
    // If a family has misplaced cells in several groups, the catalog knows of one at most, and their order of age is
    // unknown.
    let families: Vec<FamilyId> = misplaced.iter().map(|misplaced_cells| misplaced_cells.family).collect();
    for misplaced_cells in &mut misplaced {
        let places = families
            .iter()
            .filter(|family| **family == misplaced_cells.family)
            .count();
        misplaced_cells.is_oldest &= places == 1;
    }
    misplaced
}

/// Ranges of misplaced families of a group beyond which neighbours become one, with families of the group in between.
/// Every tablet of the table has these ranges, and there may be thousands of families that are of one group and the
/// other by turns.
const OTHER_FAMILY_RANGES_MAX: usize = 64;

/// Of each group, the families of the others, and where these are scattered some of its own.
pub(crate) fn other_families(schema: &TableSchema) -> Arc<[(GroupId, FamilyRanges)]> {
    if schema.groups.len() < 2 {
        return Arc::default();
    }
    let of_others = |group: GroupId| {
        let mut ranges = FamilyRanges::new();
        let mut goes_on = false;
        for (id, family) in &schema.families {
            let is_other = family.group != group;
            match ranges.last_mut().filter(|_| goes_on && is_other) {
                Some((_, last)) => *last = *id,
                None if is_other => ranges.push((*id, *id)),
                None => {}
            }
            goes_on = is_other;
        }
        debug_assert!(ranges.is_sorted(), "ranges of families ascend");
        let together = ranges.len().div_ceil(OTHER_FAMILY_RANGES_MAX).max(1);
        let ends = |some: &[(FamilyId, FamilyId)]| Some((some.first()?.0, some.last()?.1));
        ranges.chunks(together).filter_map(ends).collect::<FamilyRanges>()
    };
    schema
        .groups
        .iter()
        .map(|group| (group.id, of_others(group.id)))
        .collect()
}

/// The families of other groups that a file says it has entries of. A file that cannot be opened says nothing. Nor does
/// a file that does not list its families: it is of the time before there were several groups. The catalog has the
/// families that left its group since.
fn misplaced_families(
    file: &HeldFile,
    schema: &TableSchema,
    group: GroupId,
    other_families: &FamilyRanges,
) -> Vec<FamilyId> {
    if file.sstable.damage().of_everything().is_some() {
        return Vec::new();
    }
    let properties = file.sstable.properties();
    let common = other_families
        .iter()
        .filter_map(|(first, last)| properties.families_within(*first, *last));
    let known = common.flat_map(|(first, last)| schema.families.range(first..=last));
    let misplaced_families = known.filter(|(id, family)| family.group != group && properties.may_have_family(**id));
    misplaced_families.map(|(id, _)| *id).collect()
}
