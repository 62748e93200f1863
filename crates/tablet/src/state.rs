//! What a tablet consists of at one moment.
//!
//! A [`State`] is immutable but for the active memtables, which only grow; a change makes a new one. A reader holds the
//! state it began with, so flushes and compactions never disturb it.

use crate::error::Result;
use crate::files::FileRegistry;
use crate::manifest::{FileRef, Manifest};
use crate::memtable::{MemoryAccount, Memtable};
use crate::merge::Source;
use bytes::Bytes;
use std::sync::Arc;
use stele_sstable::{Cursor, CursorOptions, Sstable};
use stele_types::{GroupId, SeqNo};

/// A reference to an sstable, with the open file.
#[derive(Clone)]
pub struct HeldFile {
    /// What the manifest says.
    pub reference: FileRef,
    /// The open file.
    pub sstable: Arc<Sstable>,
}

/// One locality group.
#[derive(Clone)]
pub struct GroupState {
    /// Which group.
    pub id: GroupId,
    /// Takes new writes.
    pub active: Arc<Memtable>,
    /// Oldest first.
    pub files: Vec<HeldFile>,
}

/// Memtables of all groups that were frozen together and wait to be flushed.
pub struct Frozen {
    /// By group; empty memtables left out.
    pub memtables: Vec<(GroupId, Arc<Memtable>)>,
    /// Everything up to this is in them or in files.
    pub newest: SeqNo,
}

/// The whole.
#[derive(Clone)]
pub struct State {
    /// Never empty.
    pub groups: Vec<GroupState>,
    /// Oldest first.
    pub frozen: Vec<Arc<Frozen>>,
    /// Grows with every change.
    pub generation: u64,
}

/// How a reader moves over the sources.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Whether blocks read are worth caching.
    pub fill_cache: bool,
    /// Bytes to fetch ahead in sequential reads.
    pub readahead_bytes: usize,
}

impl State {
    /// The state a manifest describes, with empty memtables. References are acquired.
    pub async fn load(
        manifest: &Manifest,
        groups: &[GroupId],
        files: &FileRegistry,
        account: &MemoryAccount,
    ) -> Result<State> {
        let mut loaded: Vec<GroupState> = Vec::new();
        for &id in groups {
            let held = match hold(manifest.files(id), files).await {
                Ok(held) => held,
                Err(error) => {
                    let references = loaded.iter().flat_map(|group| &group.files);
                    references.for_each(|file| files.release(file.reference.id()));
                    return Err(error);
                }
            };
            loaded.push(GroupState {
                id,
                active: Arc::new(Memtable::new(account.clone())),
                files: held,
            });
        }
        Ok(State {
            groups: loaded,
            frozen: Vec::new(),
            generation: 1,
        })
    }

    /// The group, if the tablet has it.
    pub fn group(&self, id: GroupId) -> Option<&GroupState> {
        self.groups.iter().find(|g| g.id == id)
    }

    /// All sources of the groups for which `wanted` holds that may have keys in `[lower, upper)` and, when `row` is
    /// given, that row.
    pub fn sources(
        &self,
        wanted: impl Fn(GroupId) -> bool,
        lower: &[u8],
        upper: Option<&[u8]>,
        row: Option<&[u8]>,
        options: ReadOptions,
    ) -> Vec<Source> {
        let mut sources = Vec::new();
        for group in self.groups.iter().filter(|g| wanted(g.id)) {
            // Also when it is empty: a write that comes later to several groups must not be seen in some only.
            sources.push(Source::memtable(group.active.clone()));
            let frozen = self
                .frozen
                .iter()
                .flat_map(|f| &f.memtables)
                .filter(|(id, _)| *id == group.id);
            sources.extend(frozen.map(|(_, table)| Source::memtable(table.clone())));
            for file in &group.files {
                if file.may_contain(lower, upper) && row.is_none_or(|row| file.sstable.may_contain_row(row)) {
                    sources.push(file.source(options));
                }
            }
        }
        sources
    }

    /// Bytes in memtables.
    pub fn memtable_bytes(&self) -> u64 {
        self.active_bytes() + self.frozen_bytes()
    }

    /// Bytes in memtables that take writes.
    pub fn active_bytes(&self) -> u64 {
        self.groups.iter().map(|g| g.active.bytes()).sum()
    }

    /// Bytes in frozen memtables.
    pub fn frozen_bytes(&self) -> u64 {
        self.frozen
            .iter()
            .flat_map(|f| &f.memtables)
            .map(|(_, m)| m.bytes())
            .sum()
    }

    /// About how many bytes of files are referenced.
    pub fn file_bytes(&self) -> u64 {
        self.groups.iter().flat_map(|g| &g.files).map(HeldFile::bytes).sum()
    }
}

impl HeldFile {
    /// A cursor over the referenced part.
    pub fn source(&self, options: ReadOptions) -> Source {
        let options = CursorOptions {
            fill_cache: options.fill_cache,
            readahead_bytes: options.readahead_bytes,
        };
        let cursor = Cursor::new(self.sstable.clone(), options);
        Source::sstable(cursor, self.reference.lower.clone(), self.reference.upper.clone())
    }

    /// About how many bytes are referenced.
    pub fn bytes(&self) -> u64 {
        self.reference.referenced
    }

    /// The reference cut down to keys in `[lower, upper)`; `None` when the file has no key there.
    pub async fn narrowed(&self, lower: Option<&Bytes>, upper: Option<&Bytes>) -> Result<Option<FileRef>> {
        let may = self.may_contain(lower.map_or(&[], |l| &l[..]), upper.map(|u| &u[..]));
        let cut = self.reference.narrowed(lower.cloned(), upper.cloned()).filter(|_| may);
        let Some(mut cut) = cut else { return Ok(None) };
        cut.referenced = self
            .sstable
            .approximate_bytes(cut.lower.as_deref(), cut.upper.as_deref())
            .await?;
        Ok(Some(cut))
    }

    fn may_contain(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let properties = self.sstable.properties();
        let first: &[u8] = self
            .reference
            .lower
            .as_deref()
            .map_or(&properties.smallest_key, |l| l.max(&properties.smallest_key));
        let below: Option<&Bytes> = self.reference.upper.as_ref();
        upper.is_none_or(|upper| first < upper)
            && below.is_none_or(|below| lower < &below[..])
            && lower <= &properties.largest_key[..]
    }
}

/// Opens references. On an error none is kept.
pub async fn hold(references: &[FileRef], files: &FileRegistry) -> Result<Vec<HeldFile>> {
    let mut held: Vec<HeldFile> = Vec::with_capacity(references.len());
    for reference in references {
        match files.acquire(reference.id()).await {
            Ok(sstable) => held.push(HeldFile {
                reference: reference.clone(),
                sstable,
            }),
            Err(error) => {
                held.iter().for_each(|file| files.release(file.reference.id()));
                return Err(error);
            }
        }
    }
    Ok(held)
}
