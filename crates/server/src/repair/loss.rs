//! Repairs that use an older state of the catalog or of a manifest.
//!
//! *The catalog.* A damaged snapshot is rebuilt from the generation that it ended. This loses nothing and needs no
//! consent. A damaged log counts up to its damage, which needs consent.
//!
//! *Manifests.* An owner deletes a version when the next one is durable, so an older version exists only after a crash
//! between the two. It is never provably complete. The unreadable version may have recorded flushes whose log is gone,
//! or dropped rows, which no log records. Its use therefore needs consent. So does a start without files where there is
//! no older version. In both cases the log is replayed over it as far as it reaches.
//!
//! *Splits and merges* that the catalog lost: see [`super::replaced`].
//!
//! Files that only the newest state may have named are set aside, because the next start would sweep them.

use super::replaced::replacing;
use super::{KEPT, Mode, Work, keep};
use crate::check::overlay::Overlay;
use crate::check::report::Progress;
use crate::check::tablets::TabletInfo;
use crate::check::{self, Examined};
use anyhow::{Context, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use stele_commitlog::LogError;
use stele_coord::embedded::salvage::salvage;
use stele_env::Env;
use stele_storage::past_unreadable::is_lost;
use stele_storage::{Storage, StorageError};
use stele_tablet::manifest;
use stele_tablet::{Manifest, StoredFile, TabletError, snapshot};
use stele_types::TabletId;

/// Rebuilds a damaged catalog and returns the storage to go on with. In a dry run the result is in memory only. `None`
/// means that it needs consent, which the text then says.
pub async fn catalog(
    storage: &Arc<dyn Storage>,
    env: &Env,
    progress: &Progress,
    mode: Mode,
    text: &mut String,
) -> anyhow::Result<Option<Arc<dyn Storage>>> {
    let mut salvaged = match salvage(storage).await {
        Ok(None) => return Ok(Some(storage.clone())),
        Ok(Some(salvaged)) => salvaged,
        Err(damage) => bail!("the catalog cannot be made again: {damage}; restore coord/ from a backup"),
    };
    let files = salvaged.damaged.join(", ");
    let found = if files.is_empty() { "a file is missing" } else { &files };
    let _ = writeln!(text, "damage: the catalog cannot be read: {found}");
    match &salvaged.lost {
        None => text.push_str("the catalog is made again from the generation before; nothing of it is lost\n"),
        Some(lost) => {
            let _ = writeln!(text, "the catalog can be had as of revision {}", salvaged.revision);
            let _ = writeln!(text, "    lost: {lost}");
        }
    }
    if salvaged.lost.is_some() {
        // Written in the same put as the rest, because a repair that starts again finds nothing damaged.
        for (counter, used) in used_numbers(storage).await? {
            salvaged.raise_epoch(counter, used)?;
        }
    }
    if mode.dry_run || (salvaged.lost.is_some() && !mode.accept_loss) {
        let as_if: Arc<dyn Storage> = Overlay::over(storage.clone());
        salvaged.put(&as_if).await.context("catalog")?;
        if salvaged.lost.is_none() || mode.accept_loss {
            if salvaged.lost.is_some() {
                let examined = check::examine(as_if.clone(), env.clone(), progress.clone()).await?;
                describe_aside(&as_if, &examined, text).await?;
            }
            return Ok(Some(as_if));
        }
        let then = check::check(as_if, env.clone(), progress.clone()).await?;
        let _ = write!(text, "with that catalog:\n{}", then.to_text());
        text.push_str("say --accept-loss to take it, or restore coord/ from a backup\n");
        return Ok(None);
    }
    for path in &salvaged.damaged {
        let kept = keep(&**storage, path).await?;
        let _ = writeln!(text, "  {path}: kept as {kept}");
    }
    if salvaged.lost.is_some() {
        let as_if: Arc<dyn Storage> = Overlay::over(storage.clone());
        salvaged.put(&as_if).await.context("catalog")?;
        let examined = check::examine(as_if, env.clone(), progress.clone()).await?;
        set_aside(storage, &examined, &BTreeMap::new(), text).await?;
    }
    salvaged.put(storage).await.context("catalog")?;
    Ok(Some(storage.clone()))
}

/// The least values of the catalog's counters, as far as the files tell. An epoch that is given out twice would produce
/// names of files and sequence numbers that exist already, and hide new writes behind old ones. An identifier given out
/// twice would produce tablets for which the log has records of others.
async fn used_numbers(storage: &Arc<dyn Storage>) -> anyhow::Result<Vec<(&'static str, u64)>> {
    let mut used = Vec::new();
    for file in storage.list("").await? {
        if let Some(stored) = StoredFile::parse_path(&file.path) {
            used.push(("server", u64::from(stored.id().epoch())));
        } else if let Some((_, number)) = stele_commitlog::format::parse_segment_path(&file.path) {
            used.push(("server", number >> 32));
        } else if let Some((tablet, _)) = manifest::parse_path(&file.path) {
            used.push((stele_catalog::IDS, stele_catalog::block_of(tablet.0)));
            match read_manifest(storage, &file.path).await? {
                Ok(found) => {
                    used.push(("server", u64::from(found.epoch)));
                    used.push((stele_catalog::IDS, stele_catalog::block_of(found.table)));
                }
                Err(error) => tracing::debug!(%error, "the counters in this manifest are unknown"),
            }
        }
    }
    // Reads as far as possible. There may be a million records.
    let mut logged = BTreeSet::new();
    let replayed = stele_commitlog::replay(&**storage, |record| {
        logged.insert((stele_catalog::IDS, stele_catalog::block_of(record.tablet.0)));
        logged.insert(("server", u64::from(record.last.epoch().0)));
        Ok::<(), LogError>(())
    });
    if let Err(error) = replayed.await {
        tracing::debug!(%error, "the counters in the rest of the log are unknown");
    }
    used.extend(logged);
    Ok(used)
}

/// A tablet whose newest manifest cannot be read, and its possible replacement.
pub struct Older {
    info: TabletInfo,
    /// The versions that cannot be read.
    damaged: Vec<u64>,
    /// The newest readable version, with its number.
    version: Option<(u64, Manifest)>,
    /// Files that it names and that no longer exist.
    missing: usize,
    /// The tablet's log records, described in words.
    logged: String,
}

/// The possible replacements of unreadable manifests.
pub async fn older_manifests(storage: &Arc<dyn Storage>, examined: &Examined) -> anyhow::Result<Vec<Older>> {
    let mut all = Vec::new();
    for tablet in &examined.tablets.unreadable {
        let Some(info) = examined.tablets.known.get(tablet) else {
            continue;
        };
        let mut older = Older {
            info: info.clone(),
            damaged: Vec::new(),
            version: None,
            missing: 0,
            logged: examined.logged.get(tablet).map_or_else(
                || "nothing of it".to_owned(),
                |logged| format!("{} records of it, {} to {}", logged.records, logged.first, logged.last),
            ),
        };
        let files = storage.list(&manifest::directory(*tablet)).await?;
        let mut numbers: Vec<u64> = files
            .iter()
            .filter_map(|f| manifest::parse_path(&f.path))
            .map(|(_, n)| n)
            .collect();
        numbers.sort_unstable();
        for number in numbers.into_iter().rev() {
            let path = manifest::path(*tablet, number);
            match read_manifest(storage, &path).await? {
                Ok(found) if found.tablet() == *tablet => {
                    older.version = Some((number, found));
                    break;
                }
                // It is of a newer version of Stele, which can read it.
                Err(error @ TabletError::TooNew { .. }) => return Err(error.into()),
                Ok(_) | Err(_) => older.damaged.push(number),
            }
        }
        if let Some((_, found)) = &older.version {
            let there: BTreeSet<StoredFile> = storage
                .list("sst/")
                .await?
                .iter()
                .filter_map(|file| StoredFile::parse_path(&file.path))
                .collect();
            let named: BTreeSet<StoredFile> = found.stored().collect();
            older.missing = named.difference(&there).count();
        }
        all.push(older);
    }
    Ok(all)
}

/// A version of a manifest, or the reason why it cannot be read. Bytes that the device cannot read count as damage, and so
/// does the header of an encrypted file.
async fn read_manifest(
    storage: &Arc<dyn Storage>,
    path: &str,
) -> anyhow::Result<std::result::Result<Manifest, TabletError>> {
    match storage.read_all(path).await {
        Err(error) if is_lost(&error, path) => Ok(Err(error.into())),
        content => Ok(Manifest::decode_file(path, &content?)),
    }
}

/// Describes the effect of older states. Returns whether everything is in order afterwards.
pub fn describe(older: &[Older], mode: Mode, text: &mut String) -> bool {
    for one in older {
        one.describe(text);
    }
    if older.is_empty() || mode.accept_loss {
        return true;
    }
    text.push_str("not done without --accept-loss: restore the manifests from a backup, or drop the tables\n");
    false
}

impl Older {
    fn describe(&self, text: &mut String) {
        let tablet = self.info.id;
        let table = self.info.table.as_deref().unwrap_or("an unknown table");
        let _ = match &self.version {
            Some((number, found)) => writeln!(
                text,
                "  tablet {tablet} of {table}: take version {number} of its manifest, with {} files ({} of them missing) and \
                 everything up to {}; the log has {}",
                found.stored().collect::<BTreeSet<_>>().len(),
                self.missing,
                found.flushed_through(),
                self.logged
            ),
            None => writeln!(
                text,
                "  tablet {tablet} of {table}: no version of its manifest can be read; begin with no files; the log has {}",
                self.logged
            ),
        };
        text.push_str(
            "    lost: data that later versions had in files and the log no longer has; rows dropped since then may come back\n",
        );
    }
}

impl Work {
    /// Makes the older states the newest.
    pub(super) async fn take_older(&mut self, older: &[Older], examined: &Examined) -> anyhow::Result<()> {
        if older.is_empty() {
            return Ok(());
        }
        // Before the older versions count. A repair that is interrupted after that finds nothing damaged when it starts
        // again, and the next start sweeps unreferenced files.
        let copies = self.keep_unnamed(older, examined).await?;
        for one in older {
            self.take(one)
                .await
                .with_context(|| format!("tablet {}", one.info.id))?;
        }
        let examined = check::examine(self.storage.clone(), self.env.clone(), Progress::hidden()).await?;
        // Files of the older versions that are gone or damaged themselves.
        self.replace_sstables(&examined).await?;
        // Uses the current manifests, because they name the files just made.
        let examined = check::examine(self.storage.clone(), self.env.clone(), Progress::hidden()).await?;
        set_aside(&self.storage, &examined, &copies, &mut self.text).await
    }

    /// Copies the files that nothing will refer to once the older versions count. Returns the copies by original.
    async fn keep_unnamed(&self, older: &[Older], examined: &Examined) -> anyhow::Result<BTreeMap<String, String>> {
        let versions = older.iter().filter_map(|one| one.version.as_ref());
        let named: BTreeSet<StoredFile> = versions.flat_map(|(_, found)| found.stored()).collect();
        // The files that this repair made are named by now.
        let is_own = |file: StoredFile| file.id().epoch() == self.epoch.0;
        let unused = |file: StoredFile| !is_own(file) && !named.contains(&file) && !examined.tablets.names(file);
        let mut copies = BTreeMap::new();
        for file in self.storage.list("").await? {
            let of_nobody = match manifest::parse_path(&file.path) {
                Some((tablet, _)) => !examined.tablets.known.contains_key(&tablet),
                None => is_unnamed_part(&file.path, examined) || StoredFile::parse_path(&file.path).is_some_and(unused),
            };
            if of_nobody {
                let kept = self.keep(&file.path).await?;
                copies.insert(file.path, kept);
            }
        }
        Ok(copies)
    }

    async fn take(&mut self, older: &Older) -> anyhow::Result<()> {
        let tablet = older.info.id;
        let mut content = match &older.version {
            Some((_, found)) => found.clone(),
            None => Manifest {
                tablet: tablet.0,
                table: older.info.table_id.context("its table is unknown")?.0,
                start: older.info.range.start.clone(),
                end: older.info.range.end.clone(),
                ..Manifest::default()
            },
        };
        content.epoch = self.epoch.0;
        content.written_micros = self.env.wall_micros();
        let newest = older.damaged.first().copied().unwrap_or_default();
        // The order is: copies, the new version, which counts by its number, then the deletion of the damaged ones.
        for number in &older.damaged {
            let path = manifest::path(tablet, *number);
            let kept = self.keep(&path).await?;
            let _ = writeln!(self.text, "  {path}: kept as {kept}");
        }
        let path = manifest::path(tablet, newest + 1);
        match self.storage.put_if_absent(&path, content.encode_file()).await {
            Ok(()) => {}
            Err(StorageError::AlreadyExists { .. }) => bail!("{path} already exists: start the repair again"),
            Err(error) => return Err(error.into()),
        }
        for number in &older.damaged {
            self.storage.delete(&manifest::path(tablet, *number)).await?;
        }
        older.describe(&mut self.text);
        let _ = writeln!(self.text, "    done, as {path}");
        Ok(())
    }
}

/// Moves unreferenced files to `damaged/`: sstables, value files, and manifests of tablets and lists of snapshots that the catalog does not
/// name. An unreadable manifest may refer to any file. As long as there is one, all files stay; no start sweeps files
/// then either. `copies` lists files that were copied already.
pub(super) async fn set_aside(
    storage: &Arc<dyn Storage>,
    examined: &Examined,
    copies: &BTreeMap<String, String>,
    text: &mut String,
) -> anyhow::Result<()> {
    for path in of_nobody(storage, examined).await? {
        let kept = match copies.get(&path) {
            Some(kept) => kept.clone(),
            None => keep(&**storage, &path).await?,
        };
        storage.delete(&path).await?;
        let _ = writeln!(text, "  {path}: nothing refers to it any more; kept as {kept}");
    }
    Ok(())
}

/// Describes the effect of [`set_aside`] where the catalog may be incomplete.
pub(super) async fn describe_aside(
    storage: &Arc<dyn Storage>,
    examined: &Examined,
    text: &mut String,
) -> anyhow::Result<()> {
    for path in of_nobody(storage, examined).await? {
        let _ = writeln!(
            text,
            "  move {path} to {KEPT}: the catalog as it is then does not need it"
        );
    }
    Ok(())
}

/// Whether a file is part of the list of a snapshot that the catalog does not name. The next start deletes it. Without it nobody knows which of
/// the files that are set aside make up the snapshot.
fn is_unnamed_part(path: &str, examined: &Examined) -> bool {
    snapshot::parse_path(path).is_some_and(|part| examined.tablets.snapshots.unnamed.contains(&part))
}

/// The files that nothing refers to, as far as that is known.
async fn of_nobody(storage: &Arc<dyn Storage>, examined: &Examined) -> anyhow::Result<Vec<String>> {
    let parts = replacing(storage, examined).await?;
    let unknown = |tablet: TabletId| !examined.tablets.known.contains_key(&tablet) && !parts.contains(&tablet);
    let is_told = examined.tablets.is_complete();
    let unused = |file: StoredFile| is_told && !examined.tablets.names(file);
    let is_of_nobody = |path: &str| match manifest::parse_path(path) {
        Some((tablet, _)) => unknown(tablet),
        None => is_unnamed_part(path, examined) || StoredFile::parse_path(path).is_some_and(unused),
    };
    let files = storage.list("").await?.into_iter().map(|file| file.path);
    Ok(files.filter(|path| is_of_nobody(path)).collect())
}
