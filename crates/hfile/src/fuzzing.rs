//! Reads files of arbitrary bytes, for fuzzing.

use crate::block::BlockKind;
use crate::encoding::{BlockLayout, EncodedBlock};
use crate::error::Result;
use crate::memory::BlockMemory;
use crate::plain::{Layout, PlainCells};
use crate::reader::HFile;
use async_trait::async_trait;
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use stele_memory::{Part, Pool};
use stele_storage::{ReadFile, check_range};
use stele_wire::tags;

/// A file in memory.
struct Fixed(Bytes);

impl Fixed {
    fn range(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
        check_range(self.path(), offset, len, self.len())?;
        Ok(self.0.slice(offset as usize..offset as usize + len))
    }
}

#[async_trait]
impl ReadFile for Fixed {
    async fn read_at(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
        self.range(offset, len)
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<stele_storage::Result<Bytes>> {
        Some(self.range(offset, len))
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn path(&self) -> &str {
        "file"
    }
}

/// A file in memory of these bytes.
pub fn file(bytes: Bytes) -> Arc<dyn ReadFile> {
    Arc::new(Fixed(bytes))
}

/// Reads a file of these bytes to its end; how many cells it has.
pub fn read_all(bytes: &[u8]) -> Result<u64> {
    let reading = read(Bytes::copy_from_slice(bytes));
    let mut reading = std::pin::pin!(reading);
    match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(read) => read,
        Poll::Pending => unreachable!("nothing waits for a file in memory"),
    }
}

/// Says in the headers of all blocks that they have no checksums, so that decoders get their content as it is.
pub fn without_checksums(file: &mut [u8]) {
    const MAGIC: [&[u8]; 5] = [b"DATABLK", b"IDXROOT2", b"IDXLEAF2", b"IDXINTE2", b"FILEINF2"];
    /// Of the kind of checksums within a header.
    const KIND_AT: usize = 24;
    for at in 0..file.len() {
        let is_header = |rest: &[u8]| MAGIC.iter().any(|magic| rest.starts_with(magic));
        if file.get(at..).is_some_and(is_header)
            && let Some(kind) = file.get_mut(at + KIND_AT)
        {
            *kind = 0;
        }
    }
}

/// Decodes the content of a data block of which the first byte says how: whether it is encoded, and which fields cells have.
pub fn decode_block(bytes: &[u8]) {
    let Some((how, content)) = bytes.split_first() else {
        return;
    };
    let is_set = |bit: u8| how & bit != 0;
    let layout = BlockLayout {
        cells: Layout {
            tags: is_set(1),
            sequences: is_set(2),
        },
        compressed_tags: is_set(4),
    };
    let kind = if is_set(8) {
        BlockKind::EncodedData
    } else {
        BlockKind::Data
    };
    let content = Bytes::copy_from_slice(content);
    let Ok(block) = EncodedBlock::new(kind, &content) else {
        return;
    };
    // A real block is decoded within memory that was reserved for it.
    if block.decoded_bytes > 1 << 20 {
        return;
    }
    let decoded = block.decode(layout);
    let mut cells = decoded.map(|(cells, layout)| PlainCells::new(cells, layout)).ok();
    while let Some(Ok((_, bytes))) = cells.as_mut().and_then(PlainCells::next) {
        let _ = tags::read(bytes);
    }
}

async fn read(bytes: Bytes) -> Result<u64> {
    let memory = BlockMemory::now(&Pool::new(64 << 20).of(Part::Requests));
    let opened = HFile::open(file(bytes), &memory).await?;
    opened.last_row()?;
    opened.index(1_000).await?;
    let (mut scan, mut block, mut cells) = (opened.scan(0), None, 0);
    while let Some(mut next) = scan.next_block(block.take()).await? {
        while let Some((_, bytes)) = next.next_cell()? {
            let _ = tags::read(bytes);
            cells += 1;
        }
        block = Some(next);
    }
    Ok(cells)
}
