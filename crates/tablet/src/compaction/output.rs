//! The files a job writes, one after the other.
//!
//! Large values go to value files, and a reference to the sstable. Writing a value file needs awaits, which adding an entry
//! cannot do. Such an entry *waits*, with all entries behind it, until the caller flushes; the caller is asked to do so
//! immediately, so few entries ever wait.

use crate::error::Result;
use crate::files::FileRegistry;
use crate::manifest::{FileRef, StoredFile, ValueLink};
use crate::values::file::ValueFile;
use crate::values::load::{decoded, unknown};
use crate::values::writer::ValueWriter;
use crate::values::{REFERENCE_BYTES, ValueRef};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use stele_env::Env;
use stele_sstable::{SstableWriter, WriteOptions};
use stele_types::{CellKind, FileId, SeqNo, TableId, key};

/// The value files that entries of a job's sources may refer to.
#[derive(Clone, Default)]
pub struct Carried {
    /// All of them, with links whose bytes are not filled in.
    pub files: BTreeMap<FileId, (ValueLink, Arc<ValueFile>)>,
    /// Those whose values are moved.
    pub collected: BTreeSet<FileId>,
}

/// The output of a job.
#[derive(Debug, Default)]
pub struct Written {
    /// Complete sstables, with links to their value files.
    pub files: Vec<FileRef>,
    /// New value files.
    pub values: Vec<FileId>,
    /// Bytes of those.
    pub value_bytes: u64,
    /// Entries of the sstables.
    pub entries: u64,
}

/// An entry that could not be added without waiting.
struct Waiting {
    key: Vec<u8>,
    row_len: usize,
    value: Bytes,
    /// The value, or the value that the reference names, goes to a new value file.
    is_apart: bool,
}

/// A sorted run being written, in files of bounded size.
pub struct Output<'a> {
    env: &'a Env,
    files: &'a FileRegistry,
    table: TableId,
    options: WriteOptions,
    file_bytes: u64,
    separate_bytes: usize,
    /// The sequences of entries are not kept: each is the only one of its version, and none older is anywhere.
    forgets_sequences: bool,
    /// The key of an entry whose sequence is not kept.
    forgetful: Vec<u8>,
    carried: Carried,
    /// The file being written. There is one whenever cells are added.
    writer: Option<SstableWriter>,
    /// Bytes of records that its entries refer to, by value file.
    links: BTreeMap<FileId, u64>,
    /// In order.
    waiting: VecDeque<Waiting>,
    /// The value file being written.
    values: Option<ValueWriter>,
    /// Complete value files with their bytes.
    new_values: BTreeMap<FileId, u64>,
    /// All complete files. While `writer` is there, its file follows.
    written: Written,
}

impl<'a> Output<'a> {
    /// An output without files. One that forgets sequences stores all of them as 0.
    pub fn new(
        env: &'a Env,
        (files, table): (&'a FileRegistry, TableId),
        options: WriteOptions,
        file_bytes: u64,
        forgets_sequences: bool,
        carried: Carried,
    ) -> Self {
        Output {
            env,
            separate_bytes: files.separate_bytes(),
            files,
            table,
            options,
            file_bytes: file_bytes.max(1),
            forgets_sequences,
            forgetful: Vec::new(),
            carried,
            writer: None,
            links: BTreeMap::new(),
            waiting: VecDeque::new(),
            values: None,
            new_values: BTreeMap::new(),
            written: Written::default(),
        }
    }

    /// Of the job.
    pub fn env(&self) -> &'a Env {
        self.env
    }

    /// Ends a file that is full and begins the next: called before the first cell of every row.
    pub async fn ready_for_row(&mut self) -> Result<()> {
        if !self.waiting.is_empty() {
            self.write_waiting().await?;
        }
        assert!(
            self.waiting.is_empty(),
            "a row begins when all entries before it are added"
        );
        match &self.writer {
            Some(writer) if writer.estimated_bytes() < self.file_bytes => return Ok(()),
            Some(_) => self.end_file().await?,
            None => {}
        }
        let mut options = self.options.clone();
        options.file_id = self.files.allocate();
        let file = StoredFile::Sstable(options.file_id);
        let created = self.files.storage().create_of_table(&file.path(), self.table).await;
        let created = created.inspect_err(|_| self.files.discard(file))?;
        self.writer = Some(SstableWriter::new(created, options));
        Ok(())
    }

    /// Whether an entry goes to [`Output::add_apart`]: a value, when `is_value`, because of its size; a reference,
    /// because the value it refers to is moved.
    #[inline]
    pub fn keeps_apart(&self, is_value: bool, value: &[u8]) -> bool {
        match is_value {
            true => value.len() >= self.separate_bytes,
            false => self.is_collected(value),
        }
    }

    fn is_collected(&self, reference: &[u8]) -> bool {
        let collected = &self.carried.collected;
        !collected.is_empty() && ValueRef::decode(reference).is_some_and(|at| collected.contains(&at.file))
    }

    /// Adds a cell of a row whose encoded prefix has this length.
    #[inline]
    pub fn add(&mut self, key: &[u8], row_len: usize, value: &[u8]) -> Result<()> {
        if !self.waiting.is_empty() {
            self.wait(key, row_len, Bytes::copy_from_slice(value), false);
            return Ok(());
        }
        self.add_now(key, row_len, value)
    }

    /// Adds a cell whose value goes to a value file. The caller flushes before it adds much more.
    pub fn add_apart(&mut self, key: &[u8], row_len: usize, value: Bytes) {
        let kind = key.last().and_then(|kind| CellKind::from_byte(*kind));
        debug_assert!(
            kind.is_some_and(CellKind::is_put),
            "only values of puts are in value files"
        );
        self.wait(key, row_len, value, true);
    }

    fn wait(&mut self, key: &[u8], row_len: usize, value: Bytes, is_apart: bool) {
        self.waiting.push_back(Waiting {
            key: key.to_vec(),
            row_len,
            value,
            is_apart,
        });
    }

    #[inline]
    fn add_now(&mut self, key: &[u8], row_len: usize, value: &[u8]) -> Result<()> {
        if key.last() == Some(&(CellKind::Reference as u8)) {
            self.note_reference(value)?;
        }
        let writer = self.writer.as_mut().expect("`ready_for_row` has begun a file");
        if self.forgets_sequences {
            self.forgetful.clear();
            self.forgetful.extend_from_slice(key);
            key::set_seq(&mut self.forgetful, SeqNo::ZERO);
            writer.add_in_row(&self.forgetful, row_len, value)?;
        } else {
            writer.add_in_row(key, row_len, value)?;
        }
        self.written.entries += 1;
        Ok(())
    }

    /// Counts the bytes of a record that the file being written refers to.
    fn note_reference(&mut self, value: &[u8]) -> Result<()> {
        let reference = decoded(value)?;
        let file = reference.file;
        let is_new =
            self.values.as_ref().is_some_and(|values| values.id() == file) || self.new_values.contains_key(&file);
        if !is_new && !self.carried.files.contains_key(&file) {
            return Err(unknown(reference));
        }
        *self.links.entry(file).or_default() += reference.record_len() as u64;
        Ok(())
    }

    /// Whether the caller should `flush`: enough is finished, or something waits.
    #[inline]
    pub fn wants_flush(&self) -> bool {
        !self.waiting.is_empty() || self.writer.as_ref().is_some_and(SstableWriter::wants_flush)
    }

    /// Adds the waiting entries, and hands finished blocks to the file.
    pub async fn flush(&mut self) -> Result<()> {
        self.write_waiting().await?;
        match &mut self.writer {
            Some(writer) if writer.wants_flush() => Ok(writer.flush().await?),
            _ => Ok(()),
        }
    }

    async fn write_waiting(&mut self) -> Result<()> {
        while let Some(entry) = self.waiting.pop_front() {
            let Waiting {
                mut key,
                row_len,
                value,
                is_apart,
            } = entry;
            if !is_apart {
                self.add_now(&key, row_len, &value)?;
                continue;
            }
            // Until it is written.
            let mut _reservation = None;
            let value = match key.last() == Some(&(CellKind::Reference as u8)) {
                true => {
                    let (file, reference) = self.file_of(&value)?;
                    let bytes = reference.value_len as usize;
                    _reservation = self.files.value_memory().take_to_move(bytes, self.env).await;
                    file.read(reference).await?
                }
                false => value,
            };
            let reference: [u8; REFERENCE_BYTES] = self.store(&value).await?.encode();
            *key.last_mut().expect("a cell key ends in its kind") = CellKind::Reference as u8;
            self.add_now(&key, row_len, &reference)?;
        }
        Ok(())
    }

    /// Where a value is that is moved.
    fn file_of(&self, reference: &[u8]) -> Result<(Arc<ValueFile>, ValueRef)> {
        let reference = decoded(reference)?;
        let known = self.carried.files.get(&reference.file);
        let (_, file) = known.ok_or_else(|| unknown(reference))?;
        Ok((file.clone(), reference))
    }

    /// Writes a value to a value file; where it is.
    async fn store(&mut self, value: &Bytes) -> Result<ValueRef> {
        if self
            .values
            .as_ref()
            .is_some_and(|values| values.bytes() >= self.file_bytes)
        {
            self.end_values().await?;
        }
        if self.values.is_none() {
            let id = self.files.allocate();
            let file = StoredFile::Values(id);
            let created = self.files.storage().create_of_table(&file.path(), self.table).await;
            let created = created.inspect_err(|_| self.files.discard(file))?;
            self.values = Some(ValueWriter::new(
                created,
                id,
                self.options.compression,
                self.options.zstd_level,
            ));
        }
        let values = self.values.as_mut().expect("a value file was begun above");
        let reference = values.add(value);
        if values.wants_flush() {
            values.flush().await?;
        }
        Ok(reference)
    }

    /// Ends the last files.
    pub async fn finish(&mut self) -> Result<()> {
        self.write_waiting().await?;
        self.end_values().await?;
        if self.writer.is_some() {
            self.end_file().await?;
        }
        assert!(
            self.waiting.is_empty() && self.writer.is_none() && self.values.is_none(),
            "a finished output has written everything"
        );
        debug_assert!(
            self.written.files.is_sorted_by_key(|file| file.file),
            "files are numbered in their order"
        );
        debug_assert!(
            self.written.values.is_sorted(),
            "value files are numbered in their order"
        );
        debug_assert_eq!(
            self.written.files.iter().map(|file| file.cells).sum::<u64>(),
            self.written.entries,
            "each entry is in one file"
        );
        let links = self.written.files.iter_mut().flat_map(|file| &mut file.values);
        for link in links {
            if let Some(len) = self.new_values.get(&link.id()) {
                (link.len, link.share) = (*len, *len);
            }
        }
        Ok(())
    }

    /// The complete files. Files that were not completed are discarded.
    pub fn take(&mut self) -> Written {
        if let Some(writer) = self.writer.take() {
            self.files.discard(StoredFile::Sstable(writer.file_id()));
        }
        if let Some(values) = self.values.take() {
            self.files.discard(StoredFile::Values(values.id()));
        }
        std::mem::take(&mut self.written)
    }

    async fn end_values(&mut self) -> Result<()> {
        let Some(values) = self.values.take() else {
            return Ok(());
        };
        let id = values.id();
        let finished = values.finish().await;
        let len = finished.inspect_err(|_| self.files.discard(StoredFile::Values(id)))?;
        let former = self.new_values.insert(id, len);
        assert!(former.is_none(), "a value file ends once");
        self.written.values.push(id);
        self.written.value_bytes += len;
        Ok(())
    }

    async fn end_file(&mut self) -> Result<()> {
        let links = std::mem::take(&mut self.links);
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        assert!(self.waiting.is_empty(), "a file ends when all of its entries are added");
        let id = writer.file_id();
        debug_assert!(
            writer.cells() > 0 || links.is_empty(),
            "a file without entries refers to nothing"
        );
        if writer.cells() == 0 {
            self.files.discard(StoredFile::Sstable(id));
            return Ok(());
        }
        let finished = writer.finish().await;
        let meta = finished.inspect_err(|_| self.files.discard(StoredFile::Sstable(id)))?;
        let link = |(file, bytes): (FileId, u64)| {
            let known = self.carried.files.get(&file).map(|(link, _)| link.clone());
            // Of a new file the rest is filled in when it is complete.
            let link = known.unwrap_or(ValueLink {
                file: file.0,
                ..ValueLink::default()
            });
            // A split has estimated the share. The referenced bytes are the tablet's in any case.
            let share = link.share.max(bytes);
            ValueLink { bytes, share, ..link }
        };
        self.written.files.push(FileRef {
            file: id.0,
            len: meta.file_bytes,
            lower: None,
            upper: None,
            referenced: meta.file_bytes,
            cells: meta.properties.cells,
            deletes: meta.properties.deletes(),
            run: 0,
            values: links.into_iter().map(link).collect(),
        });
        Ok(())
    }
}
