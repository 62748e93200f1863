//! Checks manifests and collects the files to which they refer.
//!
//! Each tablet must have a readable manifest that agrees with the catalog.

use super::catalog::Named;
use super::report::{Place, Report, unreadable};
use super::snapshots::Snapshots;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_storage::{Storage, StorageError};
use stele_tablet::manifest::{self, ManifestLog};
use stele_tablet::{FileRef, Manifest, StoredFile, TabletError};
use stele_types::{ErrorKind, FileId, GroupId, RowRange, TableId, TableSchema, TabletId};

/// The known properties of a tablet.
#[derive(Clone)]
pub struct TabletInfo {
    /// Its identifier.
    pub id: TabletId,
    /// Its table, when the catalog can be read.
    pub table: Option<String>,
    /// The identifier of its table.
    pub table_id: Option<TableId>,
    /// Its rows.
    pub range: RowRange,
    /// The locality groups of its families, when the catalog can be read.
    pub schema: Option<Arc<TableSchema>>,
}

/// A tablet's reference to a file.
#[derive(Clone)]
pub struct Referrer {
    /// The tablet.
    pub tablet: TabletInfo,
    /// The locality group that lists the file.
    pub group: GroupId,
    /// The reference.
    pub reference: FileRef,
}

/// All tablets.
#[derive(Default)]
pub struct Tablets {
    /// The tablets by identifier.
    pub known: BTreeMap<TabletId, TabletInfo>,
    /// The references to each file.
    pub files: BTreeMap<FileId, Vec<Referrer>>,
    /// The sstables of tablets that refer to each value file. An sstable may refer to a thousand value files and is
    /// stored once for all of them: the references are in its entry.
    pub values: BTreeMap<FileId, Vec<Arc<Referrer>>>,
    /// Tablets whose manifest cannot be read. They may refer to more files.
    pub unreadable: Vec<TabletId>,
    /// The files that snapshots name.
    pub snapshots: Snapshots,
}

impl Tablets {
    /// Whether nothing can name more files than are known.
    pub fn is_complete(&self) -> bool {
        self.unreadable.is_empty() && !self.snapshots.is_incomplete
    }

    /// Whether a readable manifest of a tablet or a snapshot names a file.
    pub fn names(&self, file: StoredFile) -> bool {
        self.snapshots.names(file) || self.is_of_tablet(file)
    }

    /// Whether a readable manifest of a tablet names a file.
    pub fn is_of_tablet(&self, file: StoredFile) -> bool {
        match file {
            StoredFile::Sstable(file) => self.files.contains_key(&file),
            StoredFile::Values(file) => self.values.contains_key(&file),
        }
    }
}

impl TabletInfo {
    /// The tablet as a place without rows.
    pub fn place(&self) -> Place {
        Place {
            tablet: self.id,
            table: self.table.clone(),
            rows: None,
        }
    }

    fn with_all_rows(&self) -> Place {
        let end = self.range.end.as_ref().map(|end| end.escape_ascii().to_string());
        Place {
            rows: Some((self.range.start.escape_ascii().to_string(), end)),
            ..self.place()
        }
    }
}

/// Checks the manifests of the catalog's tablets. Without a catalog it checks every tablet that has a manifest.
pub async fn check(
    storage: &Arc<dyn Storage>,
    catalog: Option<&BTreeMap<TabletId, Named>>,
    report: &mut Report,
) -> anyhow::Result<Tablets> {
    let mut versions: BTreeMap<TabletId, u64> = BTreeMap::new();
    for file in storage.list("tablets/").await? {
        if let Some((tablet, _)) = manifest::parse_path(&file.path) {
            *versions.entry(tablet).or_default() += 1;
        }
    }
    let mut tablets = Tablets::default();
    let ids: BTreeSet<TabletId> = match catalog {
        Some(catalog) => catalog.keys().copied().collect(),
        None => versions.keys().copied().collect(),
    };
    for id in ids {
        check_tablet(storage, id, catalog.and_then(|c| c.get(&id)), &mut tablets, report).await?;
        if let Some(older) = versions.remove(&id).and_then(|n| n.checked_sub(2)) {
            let what = format!("{} older versions; the next start removes them", older + 1);
            report.note(&manifest::directory(id), what);
        }
    }
    for tablet in versions.into_keys() {
        report.note(
            &manifest::directory(tablet),
            "of a tablet that is no more; the next start removes it",
        );
    }
    Ok(tablets)
}

async fn check_tablet(
    storage: &Arc<dyn Storage>,
    id: TabletId,
    named: Option<&Named>,
    tablets: &mut Tablets,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut info = TabletInfo {
        id,
        table: named.map(|named| named.schema.name.to_string()),
        table_id: named.map(|named| named.schema.id),
        range: named.map_or_else(RowRange::all, |named| named.range.clone()),
        schema: named.map(|named| named.schema.clone()),
    };
    let found = match ManifestLog::open(storage.clone(), id).await {
        Ok((_, found)) => found,
        Err(error) => {
            tablets.unreadable.push(id);
            note_unreadable(&info, error, report)?;
            tablets.known.insert(id, info);
            return Ok(());
        }
    };
    let path = manifest::directory(id);
    match named {
        None => info.range = found.range(),
        Some(named) => agree(&path, &info, named, &found, report),
    }
    for group in &found.groups {
        for reference in &group.files {
            let referrer = Referrer {
                tablet: info.clone(),
                group: GroupId(group.group),
                reference: reference.clone(),
            };
            let shared = Arc::new(referrer.clone());
            for link in &reference.values {
                tablets.values.entry(link.id()).or_default().push(shared.clone());
            }
            tablets.files.entry(reference.id()).or_default().push(referrer);
        }
    }
    tablets.known.insert(id, info);
    Ok(())
}

/// Adds the damage of a manifest. A transient error of the storage ends the check.
fn note_unreadable(info: &TabletInfo, error: TabletError, report: &mut Report) -> anyhow::Result<()> {
    let places = vec![info.with_all_rows()];
    match error {
        TabletError::Storage(StorageError::NotFound { .. }) => {
            let what = "the catalog names the tablet, but it has no manifest";
            report.damage(&manifest::directory(info.id), None, what, places);
        }
        TabletError::Corruption { path, detail } => report.damage(&path, Some(0), detail, places),
        TabletError::Storage(StorageError::Unreadable { path, offset, message }) => {
            report.damage(&path, Some(offset), unreadable(&message), places);
        }
        TabletError::TooNew { ref path, .. } => report.damage(path, Some(8), error.to_string(), places),
        error if error.kind() == ErrorKind::Corruption => {
            report.damage(&manifest::directory(info.id), None, error.to_string(), places);
        }
        error => return Err(error.into()),
    }
    Ok(())
}

/// Compares a manifest with the catalog.
fn agree(path: &str, info: &TabletInfo, named: &Named, found: &Manifest, report: &mut Report) {
    let mut differs = |what: String| report.damage(path, None, what, vec![info.place()]);
    if found.range() != named.range {
        differs(format!(
            "covers rows {:?}, the catalog says {:?}",
            found.range(),
            named.range
        ));
    }
    if found.table() != named.schema.id {
        differs(format!(
            "of table {}, the catalog says {}",
            found.table(),
            named.schema.id
        ));
    }
    let groups: BTreeSet<GroupId> = named.schema.groups.iter().map(|group| group.id).collect();
    for group in &found.groups {
        if !groups.contains(&GroupId(group.group)) && !group.files.is_empty() {
            differs(format!(
                "has files of locality group {}, which the table lacks",
                group.group
            ));
        }
    }
}
