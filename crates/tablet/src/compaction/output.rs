//! The files a job writes, one after the other.

use crate::error::Result;
use crate::files::FileRegistry;
use crate::manifest::FileRef;
use stele_sstable::{SstableError, SstableWriter, WriteOptions};

/// A sorted run being written, in files of bounded size.
pub struct Output<'a> {
    files: &'a FileRegistry,
    options: WriteOptions,
    file_bytes: u64,
    /// The file being written. There is one whenever cells are added.
    writer: Option<SstableWriter>,
    /// Complete files. While `writer` is there, its file follows.
    made: Vec<FileRef>,
    entries: u64,
}

impl<'a> Output<'a> {
    /// An output without files.
    pub fn new(files: &'a FileRegistry, options: WriteOptions, file_bytes: u64) -> Self {
        Output {
            files,
            options,
            file_bytes: file_bytes.max(1),
            writer: None,
            made: Vec::new(),
            entries: 0,
        }
    }

    /// Ends a file that is full and begins the next: called before the first cell of every row.
    pub async fn ready_for_row(&mut self) -> Result<()> {
        match &self.writer {
            Some(writer) if writer.estimated_bytes() < self.file_bytes => return Ok(()),
            Some(_) => self.end_file().await?,
            None => {}
        }
        let mut options = self.options.clone();
        options.file_id = self.files.allocate();
        let file = self.files.storage().create(&FileRef::path(options.file_id)).await;
        let file = file.inspect_err(|_| self.files.discard(options.file_id))?;
        self.writer = Some(SstableWriter::new(file, options));
        Ok(())
    }

    /// Adds a cell of a row whose encoded prefix has this length.
    #[inline]
    pub fn add(&mut self, key: &[u8], row_len: usize, value: &[u8]) -> Result<()> {
        let writer = self.writer.as_mut().ok_or(SstableError::Empty)?;
        writer.add_in_row(key, row_len, value)?;
        self.entries += 1;
        Ok(())
    }

    /// Whether enough is finished that the caller should `flush`.
    #[inline]
    pub fn wants_flush(&self) -> bool {
        self.writer.as_ref().is_some_and(SstableWriter::wants_flush)
    }

    /// Hands finished blocks to the file.
    pub async fn flush(&mut self) -> Result<()> {
        match &mut self.writer {
            Some(writer) => Ok(writer.flush().await?),
            None => Ok(()),
        }
    }

    /// Ends the last file.
    pub async fn finish(&mut self) -> Result<()> {
        if self.writer.is_some() {
            self.end_file().await?;
        }
        Ok(())
    }

    /// The complete files and the number of their entries. A file that was not completed is discarded.
    pub fn take(&mut self) -> (Vec<FileRef>, u64) {
        if let Some(writer) = self.writer.take() {
            self.files.discard(writer.file_id());
        }
        (std::mem::take(&mut self.made), self.entries)
    }

    async fn end_file(&mut self) -> Result<()> {
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        let id = writer.file_id();
        if writer.cells() == 0 {
            self.files.discard(id);
            return Ok(());
        }
        let meta = writer.finish().await.inspect_err(|_| self.files.discard(id))?;
        self.made.push(FileRef {
            file: id.0,
            len: meta.file_bytes,
            lower: None,
            upper: None,
            referenced: meta.file_bytes,
            cells: meta.properties.cells,
            deletes: meta.properties.deletes(),
            run: 0,
        });
        Ok(())
    }
}
