//! Checks sstables: every block of every file that a manifest names.
//!
//! A few files are checked concurrently.

use super::report::{Progress, Report, may_pass};
use super::rows;
use super::tablets::{Referrer, Tablets};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use stele_env::{Env, Priority};
use stele_sstable::check::{Checked, KeyGap};
use stele_sstable::{BloomMemory, Cache, Properties, Sstable, SstableError};
use stele_storage::Storage;
use stele_tablet::{FileRef, StoredFile};
use stele_types::FileId;

/// A cache for index blocks; data blocks bypass it.
const CACHE_BYTES: usize = 8 << 20;
/// Most files checked concurrently: enough for any disk, at about 10 MB each.
const WORKERS_MAX: usize = 8;

/// The outcome for one file.
struct Outcome {
    file: FileId,
    bytes: u64,
    /// The numbers of cells and tombstones in the properties, when these can be read.
    counted: Option<(u64, u64)>,
    /// The properties themselves.
    properties: Option<Properties>,
    result: Result<Checked, SstableError>,
}

/// Checks all sstables. Returns those that are damaged or missing, with the number of their intact cells. A file of a
/// newer version counts as damage, because a flipped bit can make one. It is not among the returned files, because its
/// intact cells are unknown to this version. A transient error of the storage ends the check.
pub async fn check(
    storage: &Arc<dyn Storage>,
    env: &Env,
    tablets: &Tablets,
    progress: &Progress,
    report: &mut Report,
) -> anyhow::Result<BTreeMap<FileId, u64>> {
    let mut damaged = BTreeMap::new();
    let mut there: BTreeMap<FileId, u64> = BTreeMap::new();
    for info in storage.list("sst/").await? {
        if let Some(file) = FileRef::parse_path(&info.path) {
            there.insert(file, info.len);
        }
    }
    for file in there.keys().filter(|file| !tablets.names(StoredFile::Sstable(**file))) {
        let what = if tablets.is_complete() {
            "no manifest refers to it; the next start removes it"
        } else {
            "no readable manifest refers to it; a damaged one may"
        };
        report.note(&FileRef::path(*file), what);
    }
    for (file, referrers) in tablets.files.iter().filter(|(file, _)| !there.contains_key(file)) {
        let what = "a manifest refers to this file, which is missing";
        report.damage(&FileRef::path(*file), None, what, places(referrers, None));
        damaged.insert(*file, 0);
    }
    let of_snapshots = of_snapshots(tablets, &there, report);
    let of_tablets = tablets.files.keys().filter(|file| there.contains_key(file)).copied();
    let queue: VecDeque<FileId> = of_tablets.chain(of_snapshots).collect();
    report.sstables = queue.len() as u64;
    for outcome in check_all(storage, env, queue, progress).await {
        let referrers = tablets.files.get(&outcome.file).map_or(&[][..], |all| all);
        let before = report.damages;
        judge(&outcome, referrers, report)?;
        // A repair changes manifests of tablets, and leaves snapshots as they are.
        let is_repairable = tablets.files.contains_key(&outcome.file)
            && !matches!(outcome.result, Err(SstableError::UnknownVersion { .. }));
        if report.damages > before && is_repairable {
            let intact = outcome.result.as_ref().map_or(0, |checked| checked.cells);
            damaged.insert(outcome.file, intact);
        }
    }
    Ok(damaged)
}

/// The sstables in storage that only snapshots name. Adds those that are missing as damage.
fn of_snapshots(tablets: &Tablets, there: &BTreeMap<FileId, u64>, report: &mut Report) -> Vec<FileId> {
    let mut found = Vec::new();
    for (file, (bytes, snapshot)) in &tablets.snapshots.files {
        let StoredFile::Sstable(id) = file else { continue };
        let path = file.path();
        match there.get(id) {
            None => {
                let what = format!("snapshot {snapshot} refers to this file, which is missing");
                report.damage(&path, None, what, Vec::new());
            }
            Some(len) if len != bytes => {
                let what = format!("snapshot {snapshot} expects {bytes} bytes, the file has {len}");
                report.damage(&path, None, what, Vec::new());
            }
            Some(_) if !tablets.is_of_tablet(*file) => found.push(*id),
            Some(_) => {}
        }
    }
    found
}

/// The outcomes by file.
async fn check_all(
    storage: &Arc<dyn Storage>,
    env: &Env,
    queue: VecDeque<FileId>,
    progress: &Progress,
) -> Vec<Outcome> {
    let workers = std::thread::available_parallelism()
        .map_or(1, |n| n.get())
        .min(WORKERS_MAX);
    let queue = Arc::new(Mutex::new(queue));
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let cache = Arc::new(Cache::new(CACHE_BYTES));
    let working: Vec<_> = (0..workers)
        .map(|_| {
            let (storage, cache, progress) = (storage.clone(), cache.clone(), progress.clone());
            let (queue, outcomes) = (queue.clone(), outcomes.clone());
            env.spawn_join(Priority::Foreground, "check", async move {
                let queue = || queue.lock().unwrap_or_else(PoisonError::into_inner);
                let next = || queue().pop_front();
                while let Some(file) = next() {
                    let outcome = check_one(&storage, file, &cache, &progress).await;
                    if outcome.result.as_ref().is_err_and(may_pass) {
                        // The other files would be read in vain.
                        queue().clear();
                    }
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
                }
            })
        })
        .collect();
    // A worker that ended has left its files to the others.
    futures::future::join_all(working).await;
    let mut outcomes = std::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner));
    outcomes.sort_by_key(|outcome| outcome.file);
    outcomes
}

async fn check_one(storage: &Arc<dyn Storage>, file: FileId, cache: &Arc<Cache>, progress: &Progress) -> Outcome {
    let path = FileRef::path(file);
    let mut outcome = Outcome {
        file,
        bytes: 0,
        counted: None,
        properties: None,
        result: Ok(Checked::default()),
    };
    let opened = storage.open(&path).await;
    if let Ok(file) = &opened {
        outcome.bytes = file.len();
    }
    let table = match Sstable::open_or_damaged(opened, &path, file, cache.clone(), &BloomMemory::unlimited()).await {
        Ok(table) => table,
        Err(error) => {
            outcome.result = Err(error);
            return outcome;
        }
    };
    if table.damage().of_everything().is_none() {
        let properties = table.properties();
        outcome.counted = Some((properties.cells, properties.deletes()));
        outcome.properties = Some(properties.clone());
    }
    outcome.result = table.check(|bytes| progress.add(bytes)).await;
    outcome
}

/// Adds the damage of a file. Fails on a transient error of the storage.
fn judge(outcome: &Outcome, referrers: &[Referrer], report: &mut Report) -> Result<(), SstableError> {
    let path = FileRef::path(outcome.file);
    let checked = match &outcome.result {
        Ok(checked) => checked,
        Err(error) if may_pass(error) => return Err(error.clone()),
        Err(error) => {
            report.sstable_damage(&path, error, places(referrers, None));
            return Ok(());
        }
    };
    report.cells += checked.cells;
    for finding in &checked.findings {
        let places = match &finding.keys {
            Some(gap) => places(referrers, Some(gap)),
            None => Vec::new(),
        };
        report.sstable_damage(&path, &finding.error, places);
    }
    if checked.more > 0 {
        let what = format!("{} more damaged blocks", checked.more);
        report.damage(&path, None, what, places(referrers, None));
    }
    for referrer in referrers {
        note_orphans(&path, outcome.properties.as_ref(), referrer, report);
        let Referrer { tablet, reference, .. } = referrer;
        let counted = outcome
            .counted
            .is_none_or(|counted| counted == (reference.cells, reference.deletes));
        if reference.len != outcome.bytes || !counted {
            let what = format!(
                "the manifest expects {} bytes, {} cells, {} tombstones; the file has {} bytes and {:?}",
                reference.len, reference.cells, reference.deletes, outcome.bytes, outcome.counted
            );
            report.damage(&path, None, what, vec![tablet.place()]);
        }
    }
    Ok(())
}

/// Notes families outside the locality group of their file, unless the catalog knows that they have left it. A server
/// finds these cells, and compactions move them to their group.
fn note_orphans(path: &str, properties: Option<&Properties>, referrer: &Referrer, report: &mut Report) {
    let (Some(properties), Some(schema)) = (properties, &referrer.tablet.schema) else {
        return;
    };
    // Sstables without a list of families date from before there were several groups.
    let Some(group) = schema
        .groups
        .iter()
        .find(|g| g.id == referrer.group && !properties.families.is_empty())
    else {
        return;
    };
    let orphan = schema.families.iter().filter(|(id, family)| {
        family.group != group.id && !group.left.contains(id) && properties.may_have_family(**id)
    });
    let names: Vec<&str> = orphan.map(|(_, family)| &family.name[..]).collect();
    if !names.is_empty() {
        let what = format!(
            "is of locality group {} of {}, and has cells of families of others: {}; compactions take them there",
            group.name,
            schema.name,
            names.join(", ")
        );
        report.note(path, what);
    }
}

/// The rows that a gap in a file may have held.
fn places(referrers: &[Referrer], gap: Option<&KeyGap>) -> Vec<super::report::Place> {
    let place = |referrer: &Referrer| {
        let (lower, upper) = (referrer.reference.lower.as_deref(), referrer.reference.upper.as_deref());
        rows::place(&referrer.tablet, lower, upper, gap)
    };
    referrers.iter().filter_map(place).collect()
}
