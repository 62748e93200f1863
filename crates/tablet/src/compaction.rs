//! Turns sources into one sstable: flushes and compactions alike.
//!
//! Bigtable §5.4. What may be left out depends on what the inputs are known to be complete for:
//!
//! * Within the inputs a newer entry decides over older ones: overwritten versions and versions hidden by a marker go.
//! * A marker itself goes only when no older entry can exist elsewhere (`bottom`): the inputs include the oldest file
//!   of the group. Under the by-timestamp rule it also hides what is written later, until a major compaction by
//!   definition; a flush therefore keeps it.
//! * Versions past the family's rule go. What a rule says of a version's position among its column's counts at the bottom
//!   only: elsewhere an older entry of the same version may lie below, which would come back in its stead when the newer
//!   versions are deleted. What it says of age counts everywhere, because nothing of that timestamp will ever be young
//!   again. A delete-version marker among them stays, unless at the bottom: what it hides might otherwise come back when
//!   newer versions are deleted.
//! * Families that the schema no longer has go.
//!
//! Readers are not harmed: each holds the files it began with.

use crate::error::Result;
use crate::manifest::FileRef;
use crate::merge::{Merge, Source, Step};
use crate::resolve::{Outcome, Resolver, Sink, Skip, Version};
use bytes::Bytes;
use std::sync::Arc;
use stele_env::Env;
use stele_sstable::{SstableWriter, WriteOptions};
use stele_storage::Storage;
use stele_types::key::{CellKind, KeyParts, row_prefix_len};
use stele_types::{DeleteRule, FamilyId, FileId, GcView, SeqNo, TableSchema};

/// One compaction to carry out.
pub struct Job {
    /// The schema to resolve by.
    pub schema: Arc<TableSchema>,
    /// Adjacent in age.
    pub sources: Vec<Source>,
    /// No older entry exists outside the sources.
    pub bottom: bool,
    /// Markers may go at the bottom whatever the rule: this is a major compaction, not a flush.
    pub major: bool,
    /// The file to write.
    pub output: FileId,
    /// Its settings.
    pub write: WriteOptions,
}

/// What a job did.
#[derive(Clone, Debug, Default)]
pub struct JobReport {
    /// The new file; `None` when nothing was left.
    pub file: Option<FileRef>,
    /// Entries read.
    pub entries_in: u64,
    /// Entries written.
    pub entries_out: u64,
}

/// Entries between two looks at whether others want to run.
const ENTRIES_PER_SLICE: u64 = 4096;

/// Entries gathered before they are written, in bytes.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Runs a job. On an error the output is garbage and unreferenced.
pub async fn run(job: Job, env: &Env, storage: &Arc<dyn Storage>) -> Result<JobReport> {
    let mut report = JobReport::default();
    let mut merge = Merge::new(job.sources);
    let mut resolver = Resolver::new(job.schema.clone(), SeqNo::MAX);
    let drops_markers = job.bottom && (job.major || job.schema.delete_rule == DeleteRule::BySequence);
    let mut sink = Keep {
        schema: job.schema,
        now_micros: env.wall_micros(),
        bottom: job.bottom,
        drops_markers,
        version_index: 0,
        family: FamilyId(0),
        kept: Vec::new(),
        kept_bytes: 0,
    };
    let mut writer: Option<SstableWriter> = None;
    let mut row: Vec<u8> = Vec::new();
    let mut step = merge.seek(&[])?;
    loop {
        if step == Step::Pending {
            step = merge.load().await?;
            continue;
        }
        let key = merge.key();
        if step == Step::End || !key.starts_with(&row) || row.is_empty() {
            resolver.end_row(&mut sink);
            drain(&mut sink, &mut writer, &job.write, storage, &mut report).await?;
            if step == Step::End {
                break;
            }
            row.clear();
            row.extend_from_slice(&key[..row_prefix_len(key).unwrap_or(key.len())]);
            resolver.begin_row();
        }
        if let Some(parts) = KeyParts::parse_after_row(key, row.len()) {
            resolver.push(key, &parts, || merge.value(), &mut sink);
        }
        report.entries_in += 1;
        if sink.kept_bytes >= KEPT_BYTES_MAX {
            drain(&mut sink, &mut writer, &job.write, storage, &mut report).await?;
        }
        if report.entries_in.is_multiple_of(ENTRIES_PER_SLICE) {
            env.yield_now().await;
        }
        step = merge.advance()?;
    }
    if let Some(writer) = writer {
        let meta = writer.finish().await?;
        report.file = Some(FileRef {
            file: job.output.0,
            len: meta.file_bytes,
            lower: None,
            upper: None,
            referenced: meta.file_bytes,
            cells: meta.properties.cells,
            deletes: meta.properties.deletes(),
            run: 0,
        });
    }
    Ok(report)
}

/// Writes what the sink has kept.
async fn drain(
    sink: &mut Keep,
    writer: &mut Option<SstableWriter>,
    options: &WriteOptions,
    storage: &Arc<dyn Storage>,
    report: &mut JobReport,
) -> Result<()> {
    if sink.kept.is_empty() {
        return Ok(());
    }
    let writer = match writer {
        Some(writer) => writer,
        None => {
            let file = storage.create(&FileRef::path(options.file_id)).await?;
            writer.insert(SstableWriter::new(file, options.clone()))
        }
    };
    sink.kept_bytes = 0;
    for (key, value) in sink.kept.drain(..) {
        writer.add(&key, &value)?;
        report.entries_out += 1;
        if writer.wants_flush() {
            writer.flush().await?;
        }
    }
    Ok(())
}

/// Keeps what is still needed.
struct Keep {
    schema: Arc<TableSchema>,
    now_micros: i64,
    bottom: bool,
    drops_markers: bool,
    version_index: u64,
    family: FamilyId,
    kept: Vec<(Vec<u8>, Bytes)>,
    kept_bytes: usize,
}

impl Keep {
    fn keep(&mut self, key: Vec<u8>, value: Bytes) {
        self.kept_bytes += key.len() + value.len();
        self.kept.push((key, value));
    }
}

impl Sink for Keep {
    fn wants_family(&mut self, family: FamilyId) -> bool {
        self.family = family;
        self.schema.families.contains_key(&family)
    }

    fn begin_column(&mut self, _: &[u8], _: &KeyParts) -> Skip {
        self.version_index = 0;
        Skip::Nothing
    }

    fn marker(&mut self, key: &[u8], _: &KeyParts, value: &Bytes) {
        if !self.drops_markers {
            self.keep(key.to_vec(), value.clone());
        }
    }

    fn version(&mut self, version: Version<'_>) -> Skip {
        let (kind, value) = match version.outcome {
            Outcome::Deleted if self.drops_markers => return Skip::Nothing,
            Outcome::Deleted => (CellKind::DeleteVersion, Bytes::new()),
            Outcome::Value(value) => (CellKind::Put, value),
            Outcome::Operands(value) => (CellKind::Merge, value),
        };
        if kind != CellKind::DeleteVersion {
            let view = GcView {
                version_index: if self.bottom { self.version_index } else { 0 },
                timestamp: version.parts.timestamp,
                unit: self.schema.time_unit,
                now_micros: self.now_micros,
            };
            self.version_index += 1;
            let rule = self.schema.families.get(&self.family).and_then(|f| f.gc_rule.as_ref());
            if rule.is_some_and(|rule| rule.is_garbage(&view)) {
                return Skip::Nothing;
            }
        }
        let mut key = version.key.to_vec();
        if let Some(last) = key.last_mut() {
            *last = kind as u8;
        }
        self.keep(key, value);
        Skip::Nothing
    }
}
