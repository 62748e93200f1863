//! Decides which misplaced cells can be migrated now, and which compactions must wait for that.

use super::{GroupState, State};
use crate::held::HeldFile;
use crate::misplaced::Misplaced;
use std::collections::BTreeSet;
use stele_types::{FamilyId, GroupId, ValueType};

/// The families that have left a group, by the group they are in now.
pub(crate) type Leavers = Vec<(GroupId, BTreeSet<FamilyId>)>;

impl State {
    /// A group with misplaced cells that can be moved now, and their families.
    pub(crate) fn movable(&self) -> Option<(&GroupState, Leavers)> {
        self.groups.iter().find_map(|group| {
            let mut leavers = Leavers::new();
            for misplaced_cells in self
                .misplaced()
                .iter()
                .filter(|misplaced_cells| misplaced_cells.left == group.id)
            {
                match leavers.iter_mut().find(|(to, _)| *to == misplaced_cells.group) {
                    Some((_, families)) => drop(families.insert(misplaced_cells.family)),
                    None => leavers.push((misplaced_cells.group, [misplaced_cells.family].into())),
                }
            }
            let mut waiting = self.frozen.iter().flat_map(|frozen| &frozen.memtables);
            let is_ready = !waiting.any(|(id, _)| *id == group.id) && !group.files.iter().any(HeldFile::is_damaged);
            let is_known = !self.is_concurrent_mixed(group.id, &leavers);
            (is_ready && is_known && !leavers.is_empty()).then_some((group, leavers))
        })
    }

    /// Whether a group, or a family that has left it, has entries of which the catalog does not know why they are there.
    /// They may be older than the other entries of the group.
    fn is_concurrent_mixed(&self, group: GroupId, leavers: &Leavers) -> bool {
        let mut mixed = self
            .misplaced()
            .iter()
            .filter(|misplaced_cells| !misplaced_cells.is_oldest);
        mixed.any(|misplaced_cells| {
            let has_left = leavers
                .iter()
                .any(|(_, families)| families.contains(&misplaced_cells.family));
            misplaced_cells.left == group || misplaced_cells.group == group || has_left
        })
    }

    /// Whether entries are in a group of which the catalog does not know why.
    fn is_mixed(&self) -> bool {
        self.misplaced()
            .iter()
            .any(|misplaced_cells| !misplaced_cells.is_oldest)
    }

    /// Whether all files are to be rewritten together, and can be.
    pub(crate) fn is_to_sort_out(&self) -> bool {
        let mut files = self.groups.iter().flat_map(|group| &group.files);
        self.is_mixed() && self.frozen.is_empty() && !files.any(HeldFile::is_damaged)
    }

    /// Bytes of the files that a relocation rewrites, if there can be one now.
    pub(crate) fn movable_bytes(&self) -> Option<u64> {
        let bytes = |group: &GroupState| group.files.iter().map(HeldFile::bytes).sum::<u64>();
        match self.is_to_sort_out() {
            true => Some(self.groups.iter().map(bytes).sum()),
            false => self.movable().map(|(group, _)| bytes(group)),
        }
    }

    /// Whether the group's runs may be compacted only together with those of another. Entries there may be of an age
    /// between theirs, and operands of an aggregate are combined in the order of age.
    pub(crate) fn is_entangled(&self, group: GroupId) -> bool {
        let is_aggregate = |family: &FamilyId| {
            let family = self.schema.families.get(family);
            family.is_some_and(|family| matches!(family.value_type, ValueType::Aggregate(_)))
        };
        let of_group = |misplaced_cells: &&Misplaced| misplaced_cells.group == group || misplaced_cells.left == group;
        let mut mixed = self
            .misplaced()
            .iter()
            .filter(|misplaced_cells| !misplaced_cells.is_oldest)
            .filter(of_group);
        mixed.any(|misplaced_cells| is_aggregate(&misplaced_cells.family))
    }

    /// Whether all of a family is in its own group.
    pub fn is_settled(&self, family: FamilyId) -> bool {
        !self
            .misplaced()
            .iter()
            .any(|misplaced_cells| misplaced_cells.family == family)
    }
}
