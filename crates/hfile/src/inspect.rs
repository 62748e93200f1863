//! Prints a file, for people.

use crate::error::Result;
use crate::memory::BlockMemory;
use crate::reader::HFile;
use bytes::Bytes;
use std::fmt::Write;
use std::sync::Arc;
use stele_memory::{Part, Pool};
use stele_storage::ReadFile;
use stele_wire::cell::Cell;

/// Entries of the index that are shown.
const INDEX_SHOWN: usize = 1_000;
/// Cells that are shown.
const CELLS_SHOWN: u64 = 10_000;
/// Bytes of a value that are shown.
const VALUE_SHOWN: usize = 64;

/// The trailer, the file info, the index and the cells of a file as text. All blocks are verified.
pub async fn inspect(file: Arc<dyn ReadFile>) -> Result<String> {
    let memory = BlockMemory::now(&Pool::default().of(Part::Requests));
    let file = HFile::open(file, &memory).await?;
    let mut out = String::new();
    head(&file, &mut out);
    let index = file.index(INDEX_SHOWN).await?;
    let _ = writeln!(out, "index: {} levels", file.trailer().index_levels);
    for entry in &index {
        let key = entry.key.escape_ascii();
        let _ = writeln!(out, "    {:10} {:8} bytes  {key}", entry.offset, entry.bytes);
    }
    let (mut scan, mut block, mut cells) = (file.scan(0), None, 0u64);
    let _ = writeln!(out, "cells:");
    while let Some(mut next) = scan.next_block(block.take()).await? {
        while let Some((cell, tags)) = next.next_cell()? {
            cells += 1;
            if cells <= CELLS_SHOWN {
                show(&cell, &tags, &mut out);
            }
        }
        block = Some(next);
    }
    if cells > CELLS_SHOWN {
        let _ = writeln!(out, "    and {} more", cells - CELLS_SHOWN);
    }
    Ok(out)
}

fn head(file: &HFile, out: &mut String) {
    let trailer = file.trailer();
    let _ = writeln!(
        out,
        "HFile {}.{}: {} cells, {} bytes before compression, compression {}, order {}",
        trailer.major,
        trailer.minor,
        trailer.entries,
        trailer.uncompressed_bytes,
        trailer.codec.name(),
        trailer.comparator
    );
    let _ = writeln!(out, "file info:");
    for (name, value) in file.info().entries() {
        let _ = writeln!(out, "    {} = {}", name.escape_ascii(), value.escape_ascii());
    }
}

fn show(cell: &Cell, tags: &Bytes, out: &mut String) {
    let shown = cell.value.get(..VALUE_SHOWN).unwrap_or(&cell.value);
    let more = if shown.len() < cell.value.len() { "…" } else { "" };
    let _ = write!(
        out,
        "    {} {}:{} @{} {:?} [{}] {}{more}",
        cell.row.escape_ascii(),
        cell.family.escape_ascii(),
        cell.qualifier.escape_ascii(),
        cell.timestamp,
        cell.kind,
        cell.value.len(),
        shown.escape_ascii()
    );
    let tags = match tags.is_empty() {
        true => String::new(),
        false => format!(" tags {}", tags.escape_ascii()),
    };
    let _ = writeln!(out, "{tags}");
}
