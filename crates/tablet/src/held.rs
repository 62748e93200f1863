//! References to files, with the open files: the parts that a state consists of.
//!
//! A [`HeldFile`] is one reference of a manifest. It has one reference count in the registry for as long as a manifest that
//! is committed, or may be, names it. Of a damaged file whose keys are unknown the neighbours in its run bound the keys.
//!
//! Invariant: within one run the files that [`hold`] returns do not overlap, and begin and end in ascending order.

use crate::error::{Result, TabletError};
use crate::files::{FileRegistry, Opening};
use crate::manifest::{FileRef, Manifest, StoredFile};
use crate::values::file::ValueFile;
use bytes::Bytes;
use futures::StreamExt;
use std::sync::{Arc, OnceLock};
use stele_filter::{CompiledFilter, TimestampBounds};
use stele_sstable::{Cursor, CursorOptions, Properties, Sstable};
use stele_types::key;
use stele_types::{Family, GcRule, GroupId, TableSchema};

/// A reference to an sstable, with the open file.
#[derive(Clone)]
pub struct HeldFile {
    /// The reference of the manifest; the bounds of a damaged file in a run are narrower where its neighbours' are known.
    pub reference: FileRef,
    /// The open file.
    pub sstable: Arc<Sstable>,
    /// The value files it refers to.
    pub values: Arc<[Arc<ValueFile>]>,
}

/// How a reader moves over the sources.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Whether blocks read are worth caching.
    pub fill_cache: bool,
    /// Bytes to fetch ahead in sequential reads.
    pub readahead_bytes: usize,
    /// See [`CursorOptions::single_row`].
    pub single_row: bool,
    /// The timestamps that the reader wants.
    pub times: Times,
}

/// The timestamps that a reader wants, as far as files can be left out because of them.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    bounds: TimestampBounds,
    /// Newer cells than the bounds decide about cells within, because some rule counts versions.
    newer_count: bool,
}

impl Times {
    /// All of them.
    pub const ALL: Times = Times {
        bounds: TimestampBounds::ALL,
        newer_count: true,
    };

    /// The timestamps that the filter wants, for a read that resolves versions.
    pub fn of(filter: Option<&CompiledFilter>, schema: &TableSchema) -> Times {
        let Some(bounds) = filter.map(|f| f.pushdown().timestamps) else {
            return Times::ALL;
        };
        let counts = |family: &Family| family.gc_rule.as_ref().is_some_and(GcRule::counts_versions);
        Times {
            bounds,
            newer_count: bounds.end.is_none() || schema.families.values().any(counts),
        }
    }

    /// Whether a file with these properties may change the result of the read. A file with tombstones always may. Cells
    /// below the bounds never do: neither they nor other cells at their timestamps are wanted, and rules depend only on
    /// age and on the number of newer versions.
    pub(crate) fn may_want(&self, properties: &Properties) -> bool {
        if self.bounds == TimestampBounds::ALL {
            // Most reads, which need not look at any file for that.
            return true;
        }
        let (Some(oldest), Some(newest)) = (properties.timestamp_min, properties.timestamp_max) else {
            return true;
        };
        let below = newest < self.bounds.start.0;
        let above = !self.newer_count && self.bounds.end.is_some_and(|end| oldest >= end.0);
        properties.deletes() > 0 || !(below || above)
    }
}

/// The least key above the largest that a file could have whose keys are unknown.
static BEHIND_UNKNOWN: OnceLock<Bytes> = OnceLock::new();

impl HeldFile {
    /// A cursor over the whole file.
    pub(crate) fn cursor(&self, options: ReadOptions) -> Cursor {
        let options = CursorOptions {
            fill_cache: options.fill_cache,
            readahead_bytes: options.readahead_bytes,
            single_row: options.single_row,
        };
        Cursor::new(self.sstable.clone(), options)
    }

    /// The lower bound of the referenced part, where the file has keys below it, or may have. Most files of a tablet that
    /// was split have bounds that cut nothing off; a cursor over such a file need not compare each key with them.
    pub(crate) fn lower(&self) -> Option<&Bytes> {
        // No key is empty, so those of a file that does not say which it has are kept.
        let cuts = |lower: &&Bytes| lower[..] > self.sstable.properties().smallest_key[..];
        self.reference.lower.as_ref().filter(cuts)
    }

    /// The same of the upper bound: the file has that key, or one behind it.
    pub(crate) fn upper(&self) -> Option<&Bytes> {
        let cuts = |upper: &&Bytes| !self.knows_keys() || upper[..] <= self.sstable.properties().largest_key[..];
        self.reference.upper.as_ref().filter(cuts)
    }

    /// About how many bytes are referenced.
    pub fn bytes(&self) -> u64 {
        self.reference.referenced
    }

    /// About how many of these compressing all blocks would save.
    pub fn compressible_bytes(&self) -> u64 {
        let reference = &self.reference;
        let part = u128::from(self.sstable.properties().compressible_bytes) * u128::from(reference.referenced);
        let bytes = u64::try_from(part / u128::from(reference.len.max(1))).unwrap_or(u64::MAX);
        bytes.min(reference.referenced)
    }

    /// The same with the values in value files.
    pub fn size(&self) -> u64 {
        self.reference.referenced + self.reference.value_bytes()
    }

    /// Whether merging it would meet damage that is known of.
    pub fn is_damaged(&self) -> bool {
        self.sstable.damage().of_cells().is_some()
    }

    /// Whether the sstable says where its keys begin and end, if perhaps nothing else. If not, its neighbours tell at best.
    pub(crate) fn knows_keys(&self) -> bool {
        // No key is empty; an empty one stands for an unknown key.
        !self.sstable.properties().smallest_key.is_empty()
    }

    /// Of the sstable and its value files those that the device could not read when they were opened.
    pub(crate) fn unopened(&self) -> impl Iterator<Item = StoredFile> {
        let sstable = self.sstable.is_unopened();
        let sstable = sstable.then(|| StoredFile::Sstable(self.reference.id()));
        let values = self.values.iter().filter(|file| file.is_unopened());
        sstable
            .into_iter()
            .chain(values.map(|file| StoredFile::Values(file.id())))
    }

    /// The reference cut down to keys in `[lower, upper)`; `None` when the file has no key there.
    pub async fn narrowed(&self, lower: Option<&Bytes>, upper: Option<&Bytes>) -> Result<Option<FileRef>> {
        let may = self.may_contain(lower.map_or(&[], |l| &l[..]), upper.map(|u| &u[..]));
        let cut = self.reference.narrowed(lower.cloned(), upper.cloned()).filter(|_| may);
        let Some(mut cut) = cut else { return Ok(None) };
        let begins_within = lower.is_none_or(|lower| lower[..] <= *self.first_key());
        let ends_within = upper.is_none_or(|upper| self.ends_before(upper));
        if begins_within && ends_within && self.knows_keys() {
            // All of it: most files of a large upper run, of which a job takes a small part. Of one that has lost its
            // index it could not be said how large a part is.
            return Ok(Some(cut));
        }
        cut.referenced = self
            .sstable
            .approximate_bytes(cut.lower.as_deref(), cut.upper.as_deref())
            .await?;
        for link in &mut cut.values {
            // Which entries refer to which file is not known any nearer.
            link.bytes = share(link.bytes, cut.referenced, self.reference.referenced);
        }
        Ok(Some(cut))
    }

    /// Whether the referenced part may have keys in `[lower, upper)`.
    pub fn may_contain(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        upper.is_none_or(|upper| self.first_key() < upper) && !self.ends_before(lower)
    }

    /// No key of the referenced part is below this.
    pub fn first_key(&self) -> &[u8] {
        let smallest = &self.sstable.properties().smallest_key[..];
        self.reference.lower.as_deref().map_or(smallest, |l| l.max(smallest))
    }

    /// The least key above all rows of the referenced part: the next file of the run has nothing of them.
    fn key_after(&self) -> Bytes {
        let largest = &self.sstable.properties().largest_key[..];
        let behind_unknown = || Bytes::from([largest, &[0]].concat());
        let after = match self.knows_keys() {
            true => Bytes::from(key::next_row_prefix(row_of(largest))),
            // That of all such files is the same, and longer than any key.
            false => BEHIND_UNKNOWN.get_or_init(behind_unknown).clone(),
        };
        let upper = self.reference.upper.clone();
        upper.map_or(after.clone(), |upper| upper.min(after))
    }

    /// Whether this may stand behind `last` in a list: in the same run only without overlap.
    pub(crate) fn may_follow(&self, last: &HeldFile) -> bool {
        !last.reference.continues_in(&self.reference) || last.ends_before(self.first_key())
    }

    /// Whether all keys of the referenced part are below `key`.
    pub fn ends_before(&self, key: &[u8]) -> bool {
        let cut = self.reference.upper.as_deref().is_some_and(|upper| upper <= key);
        cut || self.sstable.properties().largest_key[..] < *key
    }
}

/// The row that a key is of, encoded. A bound is one by itself.
fn row_of(key: &[u8]) -> &[u8] {
    let row = key::row_prefix_len(key).and_then(|len| key.get(..len));
    row.unwrap_or(key)
}

/// The part of `number` that falls to `part` of `whole`.
pub(crate) fn share(number: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(number) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(number).min(number)
}

/// Gives all references back.
pub(crate) fn release(held: &[HeldFile], files: &FileRegistry) {
    let stored = held.iter().flat_map(|file| file.reference.stored());
    stored.for_each(|file| files.release(file));
}

/// Files of one group that are opened concurrently; the registry bounds those of all tablets together.
const HELD_CONCURRENTLY: usize = 32;

/// Opens references, those of `made` only when they are intact. On an error none is kept.
pub async fn hold(references: &[FileRef], files: &FileRegistry, made: &[StoredFile]) -> Result<Vec<HeldFile>> {
    // To the end also after a failure: the references that other files have got must be released.
    let holding: Vec<_> = references.iter().map(|it| hold_one(it, files, made)).collect();
    let outcomes: Vec<Result<HeldFile>> = futures::stream::iter(holding)
        .buffered(HELD_CONCURRENTLY)
        .collect()
        .await;
    let mut held: Vec<HeldFile> = Vec::with_capacity(references.len());
    let mut failure = None;
    for outcome in outcomes {
        match outcome {
            Ok(file) => held.push(file),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    bound_damaged(&mut held);
    let failure = failure.or_else(|| overlap(&held));
    match failure {
        None => {
            assert_eq!(held.len(), references.len(), "each reference is held");
            Ok(held)
        }
        Some(error) => {
            release(&held, files);
            Err(error)
        }
    }
}

async fn hold_one(reference: &FileRef, files: &FileRegistry, made: &[StoredFile]) -> Result<HeldFile> {
    let opening = |file: StoredFile| match made.contains(&file) {
        true => Opening::Intact,
        false => Opening::EvenDamaged,
    };
    let mut values = Vec::with_capacity(reference.values.len());
    let mut failure = None;
    for link in &reference.values {
        match files.acquire_values(link, opening(StoredFile::Values(link.id()))).await {
            Ok(file) => values.push(file),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    let sstable = match failure {
        None => {
            files
                .acquire(reference, opening(StoredFile::Sstable(reference.id())))
                .await
        }
        Some(error) => Err(error),
    };
    match sstable {
        Ok(sstable) => {
            assert_eq!(
                values.len(),
                reference.values.len(),
                "each value file is held with its sstable"
            );
            Ok(HeldFile {
                reference: reference.clone(),
                sstable,
                values: values.into(),
            })
        }
        Err(error) => {
            values
                .iter()
                .for_each(|file| files.release(StoredFile::Values(file.id())));
            Err(error)
        }
    }
}

/// Bounds files whose keys are unknown because they cannot be opened. In a run the keys of the neighbours are known: such a
/// file is cut down to the gap between their rows, and its errors concern no rows beyond that. Of several in succession
/// each gets the rest of the gap that those before it leave, down to nothing; code that writes references goes by
/// `maintenance::gaps` because of that. Files still begin and end in ascending order: rows are found by that.
fn bound_damaged(held: &mut [HeldFile]) {
    // From the last on, so that the end of one is that of all behind it at most.
    for at in (1..held.len()).rev() {
        let (before, behind) = held.split_at_mut(at);
        let file = before.last_mut().expect("`at` is at least 1");
        let next = behind.first().expect("`at` is within the list");
        if file.knows_keys() || !file.reference.continues_in(&next.reference) {
            continue;
        }
        let end = match next.knows_keys() {
            true => Some(Bytes::copy_from_slice(row_of(next.first_key()))),
            false => next.reference.upper.clone(),
        };
        let upper = file.reference.upper.take();
        file.reference.upper = match (upper, end) {
            (Some(upper), Some(end)) => Some(upper.min(end)),
            (upper, end) => upper.or(end),
        };
    }
    for at in 1..held.len() {
        let (before, behind) = held.split_at_mut(at);
        let last = before.last().expect("`at` is at least 1");
        let file = behind.first_mut().expect("`at` is within the list");
        if !file.knows_keys() && last.reference.continues_in(&file.reference) {
            file.reference.lower = file.reference.lower.take().max(Some(last.key_after()));
        }
    }
}

/// The error for the first file that overlaps the one before it in the same run.
fn overlap(held: &[HeldFile]) -> Option<TabletError> {
    let overlaps = |pair: &&[HeldFile]| matches!(pair, [last, file] if !file.may_follow(last));
    let [last, file] = held.windows(2).find(overlaps)? else {
        return None;
    };
    Some(TabletError::Corruption {
        path: Arc::from(FileRef::path(file.reference.id())),
        detail: format!("overlaps {} in the same sorted run", last.reference.file),
    })
}

/// Opens all files of a manifest, by group. On an error no reference is kept.
pub(crate) async fn hold_manifest(
    manifest: &Manifest,
    files: &FileRegistry,
    made: &[StoredFile],
) -> Result<Vec<(GroupId, Vec<HeldFile>)>> {
    let mut held: Vec<(GroupId, Vec<HeldFile>)> = Vec::new();
    for group in &manifest.groups {
        match hold(&group.files, files, made).await {
            Ok(files) => held.push((GroupId(group.group), files)),
            Err(error) => {
                held.iter().for_each(|(_, held)| release(held, files));
                return Err(error);
            }
        }
    }
    Ok(held)
}
