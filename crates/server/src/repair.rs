//! `stele repair`: makes damaged data usable and saves its intact parts.
//!
//! * A damaged sstable is replaced by one with the cells of its intact blocks. A missing sstable, or one without an
//!   intact block, is given up. So is a reference without any cell left.
//! * A damaged log segment is replaced by one with its intact groups (`stele_commitlog::salvage`). A segment that a
//!   start would drop if it could read it is removed from the log.
//! * A file that a snapshot names stays, damaged or not: snapshots are not changed.
//! * An encrypted file with a damaged header counts as one without a readable byte.
//! * A damaged value file is not repaired: a server reads all its intact values.
//! * A damaged snapshot of the catalog is rebuilt from the generation before it, which loses nothing ([`loss`]).
//! * Where only an older state of the catalog or of a tablet's manifest is readable, it is used with the user's consent
//!   (`--accept-loss`), because nobody can tell which changes it lacks.
//!
//! Nothing is thrown away: replaced files move to `damaged/`, which no server reads. With `--dry-run` nothing changes,
//! and the report lists the losses. The loss of a tombstone can make hidden cells visible again. So the rows of a lost
//! part may show older values and not only fewer.
//!
//! A repair takes a prefix of an object store or a directory of HDFS over, as a starting server does. A dry run only
//! reads it.
//!
//! The order makes an interruption harmless: copies and new files first, then the manifests that refer to them, then
//! the deletion of the originals. After an interruption the repair starts from the beginning. It may find nothing
//! damaged then, and the next start sweeps unreferenced files. So each file that will lose its references is copied
//! before the manifests change. A file that a repair could not write completely, mostly for want of space, is deleted.

mod loss;
mod replaced;

use crate::check::report::{Progress, Report, Severity};
use crate::check::{self, Examined};
use crate::data_dir::KEPT;
use crate::node::next_server_epoch;
use anyhow::{Context, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use stele_commitlog::salvage::{self, DamagedSegment};
use stele_coord::EmbeddedCoord;
use stele_env::Env;
use stele_sstable::{BloomMemory, Cache, Sstable, SstableError, SstableMeta, SstableWriter, WriteOptions};
use stele_storage::past_unreadable::{self, FILLER, is_lost};
use stele_storage::{AppendFile, ReadFile, Storage, StorageError};
use stele_tablet::manifest::{self, ManifestLog};
use stele_tablet::{FileRef, StoredFile};
use stele_types::schema::Compression;
use stele_types::{Epoch, FileId, TabletId};

/// The flags of `stele repair`.
#[derive(clap::Args)]
pub struct RepairArgs {
    #[command(flatten)]
    data: check::DataPlace,
    /// Prints the repairs and losses to expect, and changes nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Repairs; damaged files move to `damaged/` in the data folder. A server on a prefix of an object store ends
    #[arg(long)]
    yes: bool,
    /// Uses an older state of the catalog or of a tablet where the newest cannot be read; acknowledged changes may be
    /// lost
    #[arg(long)]
    accept_loss: bool,
}

/// The extent of a repair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// Only describe the repair.
    pub dry_run: bool,
    /// Accept older states.
    pub accept_loss: bool,
}

/// Runs the command. Returns the exit code, 0 when the data is in order afterwards (or would be) and 1 otherwise, and
/// the text to print.
pub async fn run(args: &RepairArgs, env: Env) -> anyhow::Result<(ExitCode, String)> {
    if !args.dry_run && !args.yes {
        bail!("give --dry-run to list the losses, or --yes to repair");
    }
    let progress = Progress::to_terminal(env.clone());
    let mode = Mode {
        dry_run: args.dry_run,
        accept_loss: args.accept_loss,
    };
    let (text, in_order) = if args.dry_run {
        let storage = args.data.look(env.clone()).await?;
        check::steady(&storage, repair(storage.clone(), env, progress, mode)).await?
    } else {
        repair(args.data.take(env.clone()).await?, env, progress, mode).await?
    };
    Ok((if in_order { ExitCode::SUCCESS } else { ExitCode::FAILURE }, text))
}

/// Repairs the data or describes the repair. Returns the text and whether everything is in order afterwards.
pub async fn repair(
    storage: Arc<dyn Storage>,
    env: Env,
    progress: Progress,
    mode: Mode,
) -> anyhow::Result<(String, bool)> {
    let mut text = String::new();
    // This comes first: where the log is beyond repair, the tablets' records are unknown and nothing may change.
    let segments = salvage::damaged_segments(&*storage).await.context("commit log")?;
    let storage = match loss::catalog(&storage, &env, &progress, mode, &mut text).await? {
        // In a dry run these texts describe the state after it.
        Some(repaired) => repaired,
        None => return Ok((text, false)),
    };
    let examined = check::examine(storage.clone(), env.clone(), progress.clone()).await?;
    if !examined.report.is_damaged() && text.is_empty() {
        return Ok(("nothing is damaged, so nothing is repaired\n".to_owned(), true));
    }
    if !examined.has_catalog {
        bail!("{}the catalog cannot be read", examined.report.to_text());
    }
    let (storage, examined) = replaced::replacements(storage, &env, &progress, mode, examined, &mut text).await?;
    text.push_str(&lost(&examined.report));
    let older = loss::older_manifests(&storage, &examined).await?;
    let beyond = beyond_repair(&examined, &segments);
    let ends_doubt = examined.tablets.unreadable.is_empty() && examined.is_catalog_torn;
    if mode.dry_run {
        text.push_str("a repair would:\n");
        if ends_doubt {
            loss::describe_aside(&storage, &examined, &mut text).await?;
        }
        describe(&examined, &segments, &mut text);
        let in_order = loss::describe(&older, mode, &mut text);
        text.push_str(&beyond);
        return Ok((text, in_order && beyond.is_empty()));
    }
    text.push_str("repaired:\n");
    if ends_doubt {
        // A new epoch starts a new log. Afterwards no start would doubt any more whether the catalog is complete.
        text.push_str("  the catalog ends with a torn record: files that it does not name are kept\n");
        loss::set_aside(&storage, &examined, &BTreeMap::new(), &mut text).await?;
    }
    let mut work = Work {
        epoch: new_epoch(&storage, &env).await?,
        storage: storage.clone(),
        env: env.clone(),
        made: 0,
        text,
    };
    work.replace_sstables(&examined).await?;
    work.replace_segments(&segments).await?;
    if mode.accept_loss {
        replaced::replacing(&work.storage, &examined).await?;
        work.take_older(&older, &examined).await?;
    } else {
        loss::describe(&older, mode, &mut work.text);
    }
    let mut text = work.text;
    text.push_str(&beyond);
    let after = check::check(storage, env, progress).await?;
    let _ = write!(text, "\nafterwards:\n{}", after.to_text());
    Ok((text, !after.is_damaged()))
}

/// The findings.
fn lost(report: &Report) -> String {
    let text = report.to_text();
    let findings = text
        .lines()
        .filter(|line| line.starts_with("damage: ") || line.starts_with(' '));
    let mut out = String::new();
    findings.for_each(|line| out.extend([line, "\n"]));
    out
}

/// The damage that a repair leaves.
fn beyond_repair(examined: &Examined, segments: &[DamagedSegment]) -> String {
    let mut out = String::new();
    let is_of_manifest = |path: &str| {
        let mut unreadable = examined.tablets.unreadable.iter();
        unreadable.any(|tablet| path.starts_with(&manifest::directory(*tablet)))
    };
    let is_told = |path: &str| match StoredFile::parse_path(path) {
        Some(StoredFile::Sstable(file)) => examined.sstables.contains_key(&file),
        Some(StoredFile::Values(file)) => examined.values.contains(&file),
        None => is_of_manifest(path) || segments.iter().any(|segment| segment.path == path),
    };
    let damages = examined.report.findings.iter();
    for finding in damages.filter(|finding| finding.severity == Severity::Damage && !is_told(&finding.file)) {
        let _ = writeln!(out, "cannot be repaired: {}: {}", finding.file, finding.what);
    }
    let left_out = examined.report.damages_left_out();
    if left_out > 0 {
        let _ = writeln!(
            out,
            "{left_out} more damages are not listed: whether they can be repaired is not known"
        );
    }
    for file in &examined.values {
        let _ = writeln!(
            out,
            "cannot be repaired: {}; reads of the values that are damaged fail, all others do not: restore the file from \
             a backup, or delete or overwrite those cells",
            StoredFile::Values(*file).path()
        );
    }
    out
}

/// Describes the repair.
fn describe(examined: &Examined, segments: &[DamagedSegment], out: &mut String) {
    for (file, intact) in &examined.sstables {
        let path = FileRef::path(*file);
        let _ = match intact {
            0 => writeln!(
                out,
                "  give up {path}, which is missing or unreadable; value files without another reference \
                 move to {KEPT}"
            ),
            _ => writeln!(
                out,
                "  replace {path} by a file with the {intact} cells of its intact blocks"
            ),
        };
    }
    segments.iter().for_each(|segment| describe_segment(segment, out));
}

fn describe_segment(segment: &DamagedSegment, out: &mut String) {
    if segment.dropped {
        let _ = writeln!(
            out,
            "  remove {}: its {} intact records were not synced, and a power loss took writes before \
             them, so a start would drop them",
            segment.path, segment.kept_records
        );
        return;
    }
    let _ = writeln!(
        out,
        "  replace {} by a segment with its {} intact records",
        segment.path, segment.kept_records
    );
    for part in &segment.lost {
        let _ = writeln!(out, "    lost: {} bytes at offset {}", part.len, part.offset);
        if part.tablets.is_empty() {
            out.push_str("      of tablets that are not known, because no record of the segment is intact\n");
        }
        for (tablet, (before, behind)) in &part.tablets {
            let from = before.map_or_else(|| "the segment's first".to_owned(), |seq| format!("after {seq}"));
            let to = behind.map_or_else(|| "to the segment's last".to_owned(), |seq| format!("before {seq}"));
            let _ = writeln!(out, "      of tablet {tablet}: sequence numbers {from}, {to}");
        }
    }
}

/// The epoch of the repair. It acts as an owner that fences former owners.
async fn new_epoch(storage: &Arc<dyn Storage>, env: &Env) -> anyhow::Result<Epoch> {
    let coord = EmbeddedCoord::open(storage.clone(), env.clone())
        .await
        .context("coordination")?;
    next_server_epoch(&*coord, &**storage).await
}

/// The file with the intact cells of a damaged one.
struct Saved(SstableMeta);

impl Saved {
    /// The replacement of a reference to the damaged file; `None` when no cell of the referenced part is left. Such a
    /// reference would begin or end among the keys of its neighbours in the run, and reads would miss rows of those.
    fn in_place_of(&self, reference: &FileRef) -> Option<FileRef> {
        let properties = &self.0.properties;
        let (first, last) = (&properties.smallest_key[..], &properties.largest_key[..]);
        let ends_before = reference.upper.as_deref().is_some_and(|upper| upper <= first);
        let begins_behind = reference.lower.as_deref().is_some_and(|lower| lower > last);
        let is_left = !ends_before && !begins_behind;
        is_left.then(|| FileRef {
            file: self.0.file_id.0,
            len: self.0.file_bytes,
            cells: properties.cells,
            deletes: properties.deletes(),
            referenced: reference.referenced.min(self.0.file_bytes),
            ..reference.clone()
        })
    }
}

struct Work {
    epoch: Epoch,
    storage: Arc<dyn Storage>,
    env: Env,
    /// The number of files made so far.
    made: u32,
    text: String,
}

impl Work {
    async fn replace_sstables(&mut self, examined: &Examined) -> anyhow::Result<()> {
        let mut replacements: BTreeMap<FileId, Option<Saved>> = BTreeMap::new();
        for file in examined.sstables.keys() {
            let saved = self.save(*file).await.with_context(|| FileRef::path(*file))?;
            replacements.insert(*file, saved);
        }
        let values = self.keep_values(examined, &replacements).await?;
        let referrers = examined
            .sstables
            .keys()
            .filter_map(|file| examined.tablets.files.get(file));
        let tablets: BTreeSet<TabletId> = referrers.flatten().map(|referrer| referrer.tablet.id).collect();
        for tablet in tablets {
            self.refer_again(tablet, &replacements)
                .await
                .with_context(|| format!("tablet {tablet}"))?;
        }
        if !examined.tablets.unreadable.is_empty() {
            // Such a tablet may refer to a part of any of them, as after a split.
            return Ok(());
        }
        let snapshots = &examined.tablets.snapshots;
        if snapshots.is_incomplete {
            return Ok(());
        }
        let sstables = examined.sstables.keys().map(|file| FileRef::path(*file));
        for path in values.into_iter().chain(sstables) {
            // A snapshot keeps the intact part of its files.
            if !StoredFile::parse_path(&path).is_some_and(|file| snapshots.names(file)) {
                self.storage.delete(&path).await?;
            }
        }
        Ok(())
    }

    /// Copies value files whose only referrers are sstables without any intact cell, and returns their paths. The next
    /// start would sweep them. It runs while manifests still name those sstables: a repair that starts again later
    /// finds nothing damaged.
    async fn keep_values(
        &mut self,
        examined: &Examined,
        replacements: &BTreeMap<FileId, Option<Saved>>,
    ) -> anyhow::Result<Vec<String>> {
        let in_its_place = |named: &FileRef, saved: &Option<Saved>| saved.as_ref()?.in_place_of(named);
        let is_gone = |named: &FileRef| {
            let replaced = replacements.get(&named.id());
            replaced.is_some_and(|saved| in_its_place(named, saved).is_none())
        };
        let mut copied = Vec::new();
        for (file, referrers) in &examined.tablets.values {
            let is_held = examined.tablets.snapshots.names(StoredFile::Values(*file));
            if is_held || !referrers.iter().all(|referrer| is_gone(&referrer.reference)) {
                continue;
            }
            let path = StoredFile::Values(*file).path();
            match self.keep(&path).await {
                Ok(kept) => {
                    let _ = writeln!(self.text, "  {path}: its last reference is gone; kept as {kept}");
                    copied.push(path);
                }
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(copied)
    }

    /// Copies the intact blocks of a file to a new one, and the file itself to `damaged/`.
    async fn save(&mut self, file: FileId) -> anyhow::Result<Option<Saved>> {
        let path = FileRef::path(file);
        let opened = self.storage.open(&path).await;
        let missing = matches!(opened, Err(StorageError::NotFound { .. }));
        let table =
            Sstable::open_or_damaged(opened, &path, file, Arc::new(Cache::new(0)), &BloomMemory::unlimited()).await?;
        self.made += 1;
        let output = FileId::new(self.epoch.0, self.made);
        let saved = self.save_as(output, &table, missing).await;
        if saved.is_err() {
            // Otherwise each attempt would leave a full disk fuller.
            let _ = self.storage.delete(&FileRef::path(output)).await;
        }
        saved
    }

    /// The same into a given file. `missing`: there is no original to keep.
    async fn save_as(&mut self, output: FileId, table: &Arc<Sstable>, missing: bool) -> anyhow::Result<Option<Saved>> {
        let path = FileRef::path(table.file_id());
        let mut options = WriteOptions::new(output);
        options.created_micros = self.env.wall_micros();
        let compression = u8::try_from(table.properties().compression).ok();
        options.compression = compression
            .and_then(Compression::from_byte)
            .unwrap_or(options.compression);
        let mut writer = SstableWriter::new(self.storage.create(&FileRef::path(output)).await?, options);
        let checked = table.salvage(&mut writer).await?;
        let saved = match writer.finish().await {
            Ok(meta) => Some(Saved(meta)),
            Err(SstableError::Empty) => {
                self.storage.delete(&FileRef::path(output)).await?;
                None
            }
            Err(error) => return Err(error.into()),
        };
        let kept = if missing {
            "it was missing".to_owned()
        } else {
            format!("kept as {}", self.keep(&path).await?)
        };
        let by = saved
            .as_ref()
            .map_or("nothing".to_owned(), |Saved(meta)| FileRef::path(meta.file_id));
        let _ = writeln!(
            self.text,
            "  {path}: replaced by {by} with the {} cells that are intact; {kept}",
            checked.cells
        );
        Ok(saved)
    }

    /// Commits a manifest that refers to the new files in place of the old ones.
    async fn refer_again(
        &self,
        tablet: TabletId,
        replacements: &BTreeMap<FileId, Option<Saved>>,
    ) -> anyhow::Result<()> {
        let now = self.env.wall_micros();
        let (mut log, mut manifest) = match ManifestLog::open(self.storage.clone(), tablet).await? {
            // This repair has already committed a version of it.
            (log, manifest) if manifest.epoch == self.epoch.0 => (log, manifest),
            _ => ManifestLog::claim(self.storage.clone(), tablet, self.epoch, now).await?,
        };
        for group in &mut manifest.groups {
            let replaced = std::mem::take(&mut group.files).into_iter().filter_map(|reference| {
                match replacements.get(&reference.id()) {
                    None => Some(reference),
                    Some(saved) => saved.as_ref()?.in_place_of(&reference),
                }
            });
            group.files = replaced.collect();
        }
        log.commit(&manifest).await?;
        Ok(())
    }

    /// Keeps the given order, which matters after an interruption.
    async fn replace_segments(&mut self, segments: &[DamagedSegment]) -> anyhow::Result<()> {
        for segment in segments {
            let kept = self.keep(&segment.path).await?;
            let made = salvage::rewrite(&*self.storage, segment).await?;
            self.storage.delete(&segment.path).await?;
            describe_segment(segment, &mut self.text);
            let made = made.unwrap_or_else(|| "nothing".to_owned());
            let _ = writeln!(self.text, "    done, by {made}; kept as {kept}");
        }
        Ok(())
    }

    /// Copies a file to `damaged/` and returns its path there.
    async fn keep(&self, path: &str) -> anyhow::Result<String> {
        keep(&*self.storage, path).await
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(StorageError::NotFound { .. }))
}

/// Copies a file to `damaged/` and skips bytes that the device cannot read. Returns the path, and a remark if bytes
/// were replaced. A file with a damaged encryption header is copied as it is stored, so that it can be put back.
async fn keep(storage: &dyn Storage, path: &str) -> anyhow::Result<String> {
    let opened = past_unreadable::open(storage, path).await;
    let (storage, original, remark) = match (opened, storage.stored()) {
        (Err(error), Some(stored)) if is_lost(&error, path) => {
            let original = past_unreadable::open(stored, path).await?;
            (stored, original, " (encrypted, as it was stored)")
        }
        (opened, _) => (storage, opened?, ""),
    };
    for attempt in 0..KEPT_OF_ONE_NAME_MAX {
        let target = match attempt {
            0 => format!("{KEPT}{path}"),
            _ => format!("{KEPT}{path}.{attempt}"),
        };
        let mut copy = match storage.create(&target).await {
            Ok(copy) => copy,
            // The file is of an earlier repair and perhaps incomplete.
            Err(StorageError::AlreadyExists { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = copy_all(&*original, &mut *copy).await {
            drop(copy);
            // As above; also, a partial copy must not pass for the whole file.
            let _ = storage.delete(&target).await;
            return Err(error.into());
        }
        return Ok(match original.unreadable_bytes() {
            0 => format!("{target}{remark}"),
            bytes => {
                format!("{target}{remark} (but for {bytes} bytes that cannot be read, which are {FILLER:#x} there)")
            }
        });
    }
    bail!("{KEPT} has {KEPT_OF_ONE_NAME_MAX} copies of {path} already: clear it")
}

async fn copy_all(original: &dyn ReadFile, copy: &mut dyn AppendFile) -> Result<(), StorageError> {
    let mut at = 0;
    while at < original.len() {
        let want = COPIED_BYTES.min(usize::try_from(original.len() - at).unwrap_or(usize::MAX));
        copy.append(&[original.read_at(at, want).await?]).await?;
        at += want as u64;
    }
    copy.sync().await
}

/// Bytes per read and write of a copy.
const COPIED_BYTES: usize = 4 << 20;
/// Most copies of one file: one per interrupted repair.
const KEPT_OF_ONE_NAME_MAX: u32 = 100;

#[cfg(test)]
mod tests;
