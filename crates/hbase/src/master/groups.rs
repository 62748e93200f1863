//! Locality groups for families.
//!
//! HBase has options of files by family, the tables here have them by group.
//!
//! Families with equal options share a group. A family that wants other options changes its group if it is alone there.
//! Otherwise it moves to a group that has them: one of other families, one that is empty, or a new one. Compactions take
//! its cells there.

use crate::descriptors::FileOptions;
use crate::failure::{Failure, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use stele_client::GroupChange;
use stele_types::{GroupOptions, TableSchema, limits};

/// Refuses families that may need more groups than a table has. `groups` is the number of groups of the table. For a call that
/// ends with the change of groups, before it has changed anything else.
pub(super) fn check_count<'a>(groups: usize, wanted: impl Iterator<Item = &'a FileOptions>) -> Outcome<()> {
    let mut kinds: Vec<&FileOptions> = Vec::new();
    for files in wanted {
        if !kinds.contains(&files) {
            kinds.push(files);
        }
        if groups + kinds.len() > limits::GROUPS_MAX {
            let message = format!(
                "The families of a table can have {} different settings of COMPRESSION, BLOOMFILTER, BLOCKSIZE and IN_MEMORY at most",
                limits::GROUPS_MAX
            );
            return Err(Failure::do_not_retry(message));
        }
    }
    Ok(())
}

/// A group as it will be.
struct Planned {
    name: String,
    options: GroupOptions,
    families: BTreeSet<String>,
    /// Families have left cells in it.
    is_left: bool,
}

/// The changes that give families these options. `is_new` says that nothing is stored yet, so that moves cost nothing.
pub(super) fn changes(schema: &TableSchema, wanted: &BTreeMap<String, FileOptions>, is_new: bool) -> Vec<GroupChange> {
    let mut groups: Vec<Planned> = schema
        .groups
        .iter()
        .map(|group| Planned {
            name: group.name.clone(),
            options: group.options.clone(),
            families: schema
                .families
                .values()
                .filter(|family| family.group == group.id)
                .map(|family| family.name.clone())
                .collect(),
            is_left: !group.left.is_empty(),
        })
        .collect();
    let mut changes = Vec::new();
    for (family, files) in wanted {
        change(&mut groups, family, *files, wanted, is_new, &mut changes);
    }
    changes
}

fn change(
    groups: &mut Vec<Planned>,
    family: &str,
    files: FileOptions,
    wanted: &BTreeMap<String, FileOptions>,
    is_new: bool,
    changes: &mut Vec<GroupChange>,
) {
    let Some(own) = groups.iter().position(|group| group.families.contains(family)) else {
        return;
    };
    if FileOptions::of_group(&groups[own].options) == files {
        return;
    }
    let same = groups
        .iter()
        .position(|group| FileOptions::of_group(&group.options) == files && !group.families.is_empty());
    let agree = groups[own]
        .families
        .iter()
        .all(|member| wanted.get(member) == Some(&files));
    let alone = groups[own].families.len() == 1;
    let to = match same {
        Some(same) if is_new || !alone => same,
        _ if agree => own,
        _ => match groups
            .iter()
            .position(|group| group.families.is_empty() && !group.is_left)
        {
            Some(empty) => empty,
            None => {
                let name = free_name(groups, family);
                let options = files.update(&GroupOptions::default()).unwrap_or_default();
                let mut planned = GroupOptions::default();
                options.apply(&mut planned);
                changes.push(GroupChange::Create {
                    name: name.clone(),
                    options,
                });
                groups.push(Planned {
                    name,
                    options: planned,
                    families: BTreeSet::new(),
                    is_left: false,
                });
                groups.len() - 1
            }
        },
    };
    if let Some(options) = files.update(&groups[to].options) {
        options.apply(&mut groups[to].options);
        changes.push(GroupChange::Alter {
            name: groups[to].name.clone(),
            options,
        });
    }
    if to != own {
        let group = groups[to].name.clone();
        changes.push(GroupChange::MoveFamily {
            family: family.to_owned(),
            group,
        });
        groups[own].families.remove(family);
        groups[to].families.insert(family.to_owned());
    }
}

/// A name that no group has. Names of families may be longer than those of groups, and have other characters.
fn free_name(groups: &[Planned], family: &str) -> String {
    let valid = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let stem: String = family.chars().filter(valid).take(40).collect();
    let stem = if stem.is_empty() { "family".to_owned() } else { stem };
    let taken = |name: &str| groups.iter().any(|group| group.name == name);
    let numbered = (2..).map(|number: u32| format!("{stem}-{number}"));
    let mut names = std::iter::once(stem.clone()).chain(numbered);
    names.find(|name| !taken(name)).unwrap_or(stem)
}

#[cfg(test)]
mod tests;
