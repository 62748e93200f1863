//! `stele repair`: gives up what cannot be read, saves the rest, and makes the folder one that a server starts on.
//!
//! * A damaged sstable is replaced by one with the cells of its intact blocks; a missing one, or one without an intact
//!   block, is given up. So is a reference of which no cell is left.
//! * A damaged log segment is replaced by one with its intact groups (`stele_commitlog::salvage`). One that a start would
//!   drop, could it be read, is taken out of the log.
//! * A damaged value file is not repaired: a server reads all of it that is intact.
//! * A damaged snapshot of the catalog is made again from the generation before it, which loses nothing ([`loss`]).
//! * Where only an older state can be had, of the catalog or of a tablet's manifest, it is taken if that is agreed to
//!   (`--accept-loss`), because nobody can tell what it lacks.
//!
//! Nothing is thrown away: what is replaced moves to `damaged/`, where no server looks. With `--dry-run` nothing is changed,
//! and the report says what would be lost. Losing a marker can bring back what it hid: the rows of a lost part may show
//! older values, not only fewer.
//!
//! A prefix of an object store or a directory of HDFS is taken over for a repair, as a server that starts does; a dry run only
//! looks at it.
//!
//! Order, so that an interruption does no harm: copies and new files first, then the manifests that refer to them, then
//! the originals are deleted. After an interruption a repair begins anew. It may find nothing damaged then, and the next
//! start sweeps what nothing names: so whatever is to be named no more has its copy before the manifests change. What a
//! repair could not write to its end, for want of space above all, it deletes again.

mod loss;

use crate::check::report::{Progress, Report, Severity};
use crate::check::{self, Examined};
use crate::data_dir;
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
use stele_storage::past_unreadable::{self, FILLER};
use stele_storage::{AppendFile, ReadFile, Storage, StorageError};
use stele_tablet::manifest::{self, ManifestLog};
use stele_tablet::{FileRef, StoredFile};
use stele_types::schema::Compression;
use stele_types::{Epoch, FileId, TabletId};

/// Where originals are kept.
pub const KEPT: &str = "damaged/";

/// The flags of `stele repair`.
#[derive(clap::Args)]
pub struct RepairArgs {
    #[command(flatten)]
    data: check::DataPlace,
    /// Says what would be done and what would be lost, and changes nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Does it; what is damaged is moved to `damaged/` beside the data. A server on a prefix of an object store ends
    #[arg(long)]
    yes: bool,
    /// Takes an older state of the catalog or of a tablet where the newest cannot be read; acknowledged changes may be lost
    #[arg(long)]
    accept_loss: bool,
}

/// How far a repair goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// Only says what would be done.
    pub dry_run: bool,
    /// Takes older states.
    pub accept_loss: bool,
}

/// Runs the command: 0 when the folder is in order afterwards (or would be), else 1. The second value is what to print.
pub async fn run(args: &RepairArgs, env: Env) -> anyhow::Result<(ExitCode, String)> {
    if !args.dry_run && !args.yes {
        bail!("say --dry-run to see what would be lost, or --yes to repair");
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
        repair(
            data_dir::take(&args.data.place()?, env.clone()).await?,
            env,
            progress,
            mode,
        )
        .await?
    };
    Ok((if in_order { ExitCode::SUCCESS } else { ExitCode::FAILURE }, text))
}

/// Repairs what `storage` holds, or says what that would do; and whether everything is in order then.
pub async fn repair(
    storage: Arc<dyn Storage>,
    env: Env,
    progress: Progress,
    mode: Mode,
) -> anyhow::Result<(String, bool)> {
    let mut text = String::new();
    // First: nothing is changed where the log is beyond repair, and so it is not known what the tablets have.
    let segments = salvage::damaged_segments(&*storage).await.context("commit log")?;
    let storage = match loss::catalog(&storage, &env, &progress, mode, &mut text).await? {
        // Of a dry run: as the rest would be after it.
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
    let (storage, examined) = loss::splits(storage, &env, &progress, mode, examined, &mut text).await?;
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
        // To take an epoch is to begin a log anew, and then no start is in doubt any more about what the catalog does not
        // name.
        text.push_str("  the catalog ends with a torn record: what it does not name is kept\n");
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

/// What a repair leaves as it is.
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

/// What a repair would do.
fn describe(examined: &Examined, segments: &[DamagedSegment], out: &mut String) {
    for (file, intact) in &examined.sstables {
        let path = FileRef::path(*file);
        let _ = match intact {
            0 => writeln!(
                out,
                "  give up {path}, which is missing or of which nothing can be read; value files that nothing else refers to \
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
            "  replace {} by nothing: its {} intact records were not synced, and a power loss took what was written before \
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
        for (tablet, (before, behind)) in &part.tablets {
            let from = before.map_or_else(|| "the segment's first".to_owned(), |seq| format!("after {seq}"));
            let to = behind.map_or_else(|| "to the segment's last".to_owned(), |seq| format!("before {seq}"));
            let _ = writeln!(out, "      of tablet {tablet}: sequence numbers {from}, {to}");
        }
    }
}

/// A repair acts as an owner of its own, whom no former one can follow.
async fn new_epoch(storage: &Arc<dyn Storage>, env: &Env) -> anyhow::Result<Epoch> {
    let coord = EmbeddedCoord::open(storage.clone(), env.clone())
        .await
        .context("coordination")?;
    next_server_epoch(&coord, &**storage).await
}

/// The file that was made of what is intact of a damaged one.
struct Saved(SstableMeta);

impl Saved {
    /// What takes the place of a reference to the damaged file; `None` when nothing of the part that it refers to is left. Such a
    /// reference would begin or end among the keys of its neighbours in the run, and rows of those would not be found.
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
    /// Files made so far.
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
            // Such a tablet may have its part in any of them, as after a split.
            return Ok(());
        }
        let sstables = examined.sstables.keys().map(|file| FileRef::path(*file));
        for path in values.into_iter().chain(sstables) {
            self.storage.delete(&path).await?;
        }
        Ok(())
    }

    /// Copies value files to where originals are kept that only sstables name of which nothing is left: the next start
    /// would sweep them; their paths. While manifests still name those sstables: afterwards a repair that begins anew
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
            if !referrers.iter().all(|referrer| is_gone(&referrer.reference)) {
                continue;
            }
            let path = StoredFile::Values(*file).path();
            match self.keep(&path).await {
                Ok(kept) => {
                    let _ = writeln!(self.text, "  {path}: what referred to it is gone; kept as {kept}");
                    copied.push(path);
                }
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(copied)
    }

    /// Copies the intact blocks of a file to a new one, and the file itself to where it is kept.
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
            // Or a full disk would be fuller each time that the repair is tried.
            let _ = self.storage.delete(&FileRef::path(output)).await;
        }
        saved
    }

    /// The same into a file of this name. `missing`: there is no original to keep.
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
        let kept = match missing {
            true => "it was missing".to_owned(),
            false => format!("kept as {}", self.keep(&path).await?),
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
            // This repair has made a version of it before.
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

    /// In the order given, which matters should this be interrupted.
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

    /// Copies a file to where originals are kept; its path there.
    async fn keep(&self, path: &str) -> anyhow::Result<String> {
        keep(&*self.storage, path).await
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(StorageError::NotFound { .. }))
}

/// Copies a file to where originals are kept, past what the device cannot read of it; its path there, and what of it is not as
/// it was.
async fn keep(storage: &dyn Storage, path: &str) -> anyhow::Result<String> {
    let original = past_unreadable::open(storage, path).await?;
    for attempt in 0..KEPT_OF_ONE_NAME_MAX {
        let target = match attempt {
            0 => format!("{KEPT}{path}"),
            _ => format!("{KEPT}{path}.{attempt}"),
        };
        let mut copy = match storage.create(&target).await {
            Ok(copy) => copy,
            // Of an earlier repair, perhaps an unfinished copy.
            Err(StorageError::AlreadyExists { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = copy_all(&*original, &mut *copy).await {
            drop(copy);
            // As above; and nobody is to take it for the whole.
            let _ = storage.delete(&target).await;
            return Err(error.into());
        }
        return Ok(match original.unreadable_bytes() {
            0 => target,
            bytes => format!("{target} (but for {bytes} bytes that cannot be read, which are {FILLER:#x} there)"),
        });
    }
    bail!("{path} has been kept {KEPT_OF_ONE_NAME_MAX} times already: clear {KEPT}")
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

/// Bytes copied at once.
const COPIED_BYTES: usize = 4 << 20;
/// Copies of one file: one for each interrupted repair.
const KEPT_OF_ONE_NAME_MAX: u32 = 100;

#[cfg(test)]
mod tests;
