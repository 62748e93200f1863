//! Joins neighbouring tablets: writes one manifest over the files of all.
//!
//! Nothing is rewritten. A tablet's files have no rows of another, so the order between files of different tablets does not
//! matter. The oldest runs of all tablets become one run, so do the second oldest, and so on. A group has as many runs
//! afterwards as the tablet that had most.

use crate::error::Result;
use crate::manifest::{FileRef, Manifest};
use crate::tablet::Tablet;
use crate::tokens;
use std::collections::{BTreeMap, BTreeSet};
use stele_types::{GroupId, TabletId};

impl Tablet {
    /// A manifest for one tablet with the rows of all `parts`, which are neighbours in row order. The caller has stopped
    /// writes and compactions and flushed, and makes the tablet. Fails when a file is damaged: the errors of one whose keys
    /// are unknown would concern the rows of all.
    pub async fn join(parts: &[&Tablet], tablet: TabletId) -> Result<Manifest> {
        let mut manifests = Vec::with_capacity(parts.len());
        for part in parts {
            let state = part.state();
            assert!(
                state.frozen.is_empty() && state.groups.iter().all(|group| group.active.is_empty()),
                "tablets are joined by their files: nothing may be left in memtables"
            );
            let mut files = state.groups.iter().flat_map(|group| &group.files);
            if let Some(damaged) = files.find(|file| file.is_damaged() || !file.knows_keys()) {
                return Err(damaged
                    .sstable
                    .corruption("its tablet is not merged with others")
                    .into());
            }
            let mut manifest = part.manifest().await;
            manifest.flushed_through = part.next_sequence().0;
            manifests.push(manifest);
        }
        let mut whole = joined(&manifests, tablet);
        let memory = parts
            .first()
            .map(|part| part.context.tokens.clone())
            .unwrap_or_default();
        let stored = manifests.iter().filter_map(|part| part.request_tokens.as_ref());
        whole.request_tokens = tokens::joined(tablet, stored, &memory)?;
        Ok(whole)
    }

    /// Takes over the statistics of the tablets that have become this one. Without statistics every upper run counts as
    /// overwritten rows, so all would be rewritten after a merge, even if nothing could be gained.
    pub fn learn_from_parts(&self, parts: &[&Tablet]) {
        for group in &self.state().groups {
            for part in parts {
                if let Some(known) = part.state().group(group.id) {
                    group.compaction_stats.join(&known.compaction_stats);
                }
            }
        }
        self.note_debt();
    }
}

fn joined(parts: &[Manifest], tablet: TabletId) -> Manifest {
    let (first, last) = match parts {
        [first, .., last] => (first, last),
        _ => unreachable!("at least two tablets are joined"),
    };
    assert!(
        parts
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if a.end.as_ref() == Some(&b.start) && a.table == b.table)),
        "tablets that are joined are neighbours"
    );
    let mut whole = Manifest {
        tablet: tablet.0,
        end: last.end.clone(),
        // The parts may have been assigned one after the other, under different epochs.
        epoch: parts.iter().map(|part| part.epoch).max().unwrap_or_default(),
        flushed_through: parts.iter().map(|part| part.flushed_through).max().unwrap_or_default(),
        groups: Vec::new(),
        request_tokens: None,
        ..first.clone()
    };
    let groups: BTreeSet<u32> = parts
        .iter()
        .flat_map(|part| &part.groups)
        .map(|group| group.group)
        .collect();
    let shares = shares(parts);
    for group in groups.into_iter().map(GroupId) {
        let mut files = joined_runs(&parts.iter().map(|part| part.files(group)).collect::<Vec<_>>());
        for link in files.iter_mut().flat_map(|file| &mut file.values) {
            link.share = shares.get(&link.file).map_or(link.share, |share| *share).min(link.len);
        }
        whole.set_files(group, files);
    }
    debug_assert_eq!(
        whole.all_files().count(),
        parts.iter().flat_map(Manifest::all_files).count(),
        "each reference is one of the whole"
    );
    whole
}

/// The shares that the parts have of value files, together.
fn shares(parts: &[Manifest]) -> BTreeMap<u64, u64> {
    let mut shares: BTreeMap<u64, u64> = BTreeMap::new();
    for part in parts {
        let mut of_part: BTreeMap<u64, u64> = BTreeMap::new();
        for link in part.all_files().flat_map(|file| &file.values) {
            let share = of_part.entry(link.file).or_default();
            *share = link.share.max(*share);
        }
        for (file, share) in of_part {
            let sum = shares.entry(file).or_default();
            *sum = sum.saturating_add(share);
        }
    }
    shares
}

/// The runs of a group of all parts, oldest first.
fn joined_runs(parts: &[&[FileRef]]) -> Vec<FileRef> {
    let runs: Vec<Vec<&[FileRef]>> = parts
        .iter()
        .map(|files| files.chunk_by(FileRef::continues_in).collect())
        .collect();
    let most = runs.iter().map(Vec::len).max().unwrap_or(0);
    let (mut joined, mut numbers) = (Vec::new(), BTreeSet::new());
    for age in 0..most {
        let of_age = runs.iter().filter_map(|runs| runs.get(age));
        let mut run: Vec<FileRef> = of_age.flat_map(|run| run.iter().cloned()).collect();
        number(&mut run, &mut numbers);
        joined.append(&mut run);
    }
    joined
}

/// Gives a run a number that no other run of the list has, of those of its files. A file that several tablets shared may be
/// in several runs; should they have taken the numbers of all its files, each of its files is a run of its own.
fn number(run: &mut [FileRef], taken: &mut BTreeSet<u64>) {
    let of_run = run.iter().map(|file| file.file);
    let number = match run.len() {
        0 | 1 => 0,
        _ => of_run.clone().find(|number| !taken.contains(number)).unwrap_or(0),
    };
    taken.insert(number);
    run.iter_mut().for_each(|file| file.run = number);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::ValueLink;
    use bytes::Bytes;

    fn file(file: u64, run: u64) -> FileRef {
        FileRef {
            file,
            run,
            len: 10,
            ..FileRef::default()
        }
    }

    /// File numbers by run.
    fn runs(files: &[FileRef]) -> Vec<Vec<u64>> {
        let runs = files.chunk_by(FileRef::continues_in);
        runs.map(|run| run.iter().map(|file| file.file).collect()).collect()
    }

    #[test]
    fn runs_of_one_age_become_one() {
        let left = [file(1, 1), file(2, 1), file(5, 0)];
        let right = [file(3, 0)];
        let last = [file(4, 0), file(6, 0), file(7, 0)];
        let joined = joined_runs(&[&left, &right, &last]);
        assert_eq!(runs(&joined), [vec![1, 2, 3, 4], vec![5, 6], vec![7]]);
        assert_eq!(joined_runs(&[&[], &[]]), []);
    }

    /// File 1 was shared, and became the second oldest of one half.
    #[test]
    fn neighbouring_runs_have_different_numbers() {
        let left = [file(1, 1), file(2, 1)];
        let right = [file(3, 0), file(1, 1), file(4, 1), file(5, 0)];
        let joined = joined_runs(&[&left, &right]);
        assert_eq!(runs(&joined), [vec![1, 2, 3], vec![1, 4], vec![5]]);
        let again = [file(1, 0), file(1, 0), file(1, 0)];
        let joined = joined_runs(&[&again, &again]);
        let numbers: Vec<u64> = joined.iter().map(|file| file.run).collect();
        assert_eq!(numbers, [1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn the_whole_has_all_rows_and_shares() {
        let part = |start: &'static str, end: Option<&'static str>, through, share| Manifest {
            tablet: 1,
            table: 9,
            epoch: 2 + u32::from(end.is_none()),
            start: Bytes::from_static(start.as_bytes()),
            end: end.map(|end| Bytes::from_static(end.as_bytes())),
            flushed_through: through,
            groups: vec![crate::manifest::GroupFiles {
                group: 0,
                files: vec![FileRef {
                    values: vec![ValueLink {
                        file: 80,
                        len: 100,
                        share,
                        bytes: 5,
                    }],
                    ..file(1, 0)
                }],
            }],
            written_micros: 0,
            request_tokens: None,
        };
        let whole = joined(&[part("b", Some("d"), 7, 30), part("d", None, 5, 40)], TabletId(3));
        assert_eq!((whole.tablet, whole.table, whole.flushed_through), (3, 9, 7));
        assert_eq!(whole.epoch, 3, "numbers of the whole are above those of all parts");
        assert_eq!((&whole.start[..], &whole.end), (&b"b"[..], &None));
        let shares: Vec<u64> = whole.all_files().map(|file| file.values[0].share).collect();
        assert_eq!(shares, [70, 70]);
    }
}
