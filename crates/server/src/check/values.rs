//! Checks every record of every value file that a manifest names.

use super::report::{Place, Progress, Report, may_pass};
use super::rows;
use super::tablets::{Referrer, Tablets};
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_sstable::SstableError;
use stele_storage::Storage;
use stele_tablet::StoredFile;
use stele_tablet::values::file::{self, CheckedValues};
use stele_types::FileId;

/// Checks all value files and returns those that are damaged or missing. A transient error of the storage ends the
/// check.
pub async fn check(
    storage: &Arc<dyn Storage>,
    tablets: &Tablets,
    progress: &Progress,
    report: &mut Report,
) -> anyhow::Result<Vec<FileId>> {
    let mut there: BTreeMap<FileId, u64> = BTreeMap::new();
    for info in storage.list("sst/").await? {
        if let Some(StoredFile::Values(file)) = StoredFile::parse_path(&info.path) {
            there.insert(file, info.len);
        }
    }
    for file in there.keys().filter(|file| !tablets.names(StoredFile::Values(**file))) {
        let what = if tablets.is_complete() {
            "no manifest names it; the next start removes it"
        } else {
            "no readable manifest names it; a damaged one may"
        };
        report.note(&StoredFile::Values(*file).path(), what);
    }
    let mut damaged = Vec::new();
    for (file, referrers) in &tablets.values {
        let path = StoredFile::Values(*file).path();
        let before = report.damages;
        match there.get(file) {
            None => report.damage(
                &path,
                None,
                "a manifest names this file, which is missing",
                places(referrers),
            ),
            Some(len) => {
                agree(*file, *len, referrers, report);
                check_one(storage, *file, referrers, progress, report).await?;
            }
        }
        if report.damages > before {
            damaged.push(*file);
        }
    }
    let more = check_of_snapshots(storage, tablets, &there, progress, report).await?;
    report.value_files = tablets.values.len() as u64 + more;
    Ok(damaged)
}

/// Checks the value files that only snapshots name; how many.
async fn check_of_snapshots(
    storage: &Arc<dyn Storage>,
    tablets: &Tablets,
    there: &BTreeMap<FileId, u64>,
    progress: &Progress,
    report: &mut Report,
) -> anyhow::Result<u64> {
    let mut checked = 0;
    for (file, (bytes, snapshot)) in &tablets.snapshots.files {
        let StoredFile::Values(id) = file else { continue };
        if tablets.is_of_tablet(*file) {
            continue;
        }
        checked += 1;
        let path = file.path();
        match there.get(id) {
            None => {
                let what = format!("snapshot {snapshot} names this file, which is missing");
                report.damage(&path, None, what, Vec::new());
            }
            Some(len) => {
                if len != bytes {
                    let what = format!("snapshot {snapshot} expects {bytes} bytes, the file has {len}");
                    report.damage(&path, None, what, Vec::new());
                }
                check_one(storage, *id, &[], progress, report).await?;
            }
        }
    }
    Ok(checked)
}

/// Adds the damage of a file's records.
async fn check_one(
    storage: &Arc<dyn Storage>,
    file: FileId,
    referrers: &[Arc<Referrer>],
    progress: &Progress,
    report: &mut Report,
) -> Result<(), SstableError> {
    let path = StoredFile::Values(file).path();
    let checked = async {
        let open = storage.open(&path).await?;
        file::check(&*open, file, |bytes| progress.add(bytes), |_, _, _| {}).await
    };
    let findings = match checked.await {
        Ok(CheckedValues { findings, .. }) => findings,
        Err(error) if may_pass(&error) => return Err(error),
        Err(error) => vec![error],
    };
    for error in findings {
        report.sstable_damage(&path, &error, places(referrers));
    }
    Ok(())
}

/// Compares the manifests' statements about a file with the file.
fn agree(file: FileId, len: u64, referrers: &[Arc<Referrer>], report: &mut Report) {
    for referrer in referrers {
        let Referrer { tablet, reference, .. } = &**referrer;
        for link in reference
            .values
            .iter()
            .filter(|link| link.id() == file && link.len != len)
        {
            let what = format!("the manifest expects {} bytes, the file has {len}", link.len);
            report.damage(&StoredFile::Values(file).path(), None, what, vec![tablet.place()]);
        }
    }
}

/// The rows to which the values of a file belong, as far as references to sstables tell.
fn places(referrers: &[Arc<Referrer>]) -> Vec<Place> {
    let place = |referrer: &Arc<Referrer>| {
        let (lower, upper) = (referrer.reference.lower.as_deref(), referrer.reference.upper.as_deref());
        rows::place(&referrer.tablet, lower, upper, None)
    };
    let mut places: Vec<Place> = referrers.iter().filter_map(place).collect();
    places.dedup();
    places
}
