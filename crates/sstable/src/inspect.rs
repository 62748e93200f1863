//! Prints an sstable as text for people.

use crate::block::Block;
use crate::cursor::{Cursor, CursorOptions, Step};
use crate::error::Result;
use crate::footer;
use crate::index::IndexBlock;
use crate::reader::{Cache, Sstable, Tail};
use std::fmt::Write;
use std::sync::Arc;
use stele_storage::ReadFile;
use stele_types::schema::Compression;
use stele_types::{CellKey, CellKind};

/// Bytes of a value that are printed.
const VALUE_SHOWN_BYTES: usize = 32;

/// Cells that are printed: about a hundred megabytes of text, which is held in memory.
const CELLS_SHOWN_MAX: usize = 1_000_000;

/// Data blocks of one index block that are printed: more than a writer puts into one.
const BLOCKS_SHOWN_MAX: usize = 10_000;

/// Large enough for index blocks; cells bypass the cache.
const CACHE_BYTES: usize = 8 << 20;

/// Describes a file: footer, properties, index. With `verbose` it adds the data blocks and up to a million cells, one
/// per line.
pub async fn inspect(file: Arc<dyn ReadFile>, verbose: bool) -> Result<String> {
    let file_id = Tail::read(&*file).await?.footer.file;
    let cache = Arc::new(Cache::new(CACHE_BYTES));
    let table = Sstable::open(file, file_id, cache).await?;
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = describe(&table, &mut out);
    for top_at in 0..table.top().len() {
        let index = table.index_block(top_at).await?;
        let first = table.child(top_at, &index, 0)?;
        let separator = table.top().separator(top_at).unwrap_or(&[]);
        let _ = writeln!(
            out,
            "index block {top_at}: {} data blocks from offset {}, {}, separator \"{}\"",
            index.len(),
            first.offset,
            if index.lists_handles() {
                "by handles"
            } else {
                "adjoining"
            },
            separator.escape_ascii()
        );
        if verbose {
            describe_blocks(&table, top_at, &index, &mut out).await?;
        }
    }
    if verbose {
        let mut cursor = table.scan();
        let mut step = cursor.seek_first()?;
        let mut shown = 0;
        while step != Step::End && shown < CELLS_SHOWN_MAX {
            if step == Step::Ready {
                shown += 1;
                let _ = describe_cell(cursor.key(), cursor.value(), &mut out);
                step = cursor.advance()?;
            } else {
                step = cursor.load().await?;
            }
        }
        if step != Step::End {
            let cells = table.properties().cells;
            let _ = writeln!(out, "… {CELLS_SHOWN_MAX} of {cells} cells shown");
        }
    }
    Ok(out)
}

/// Describes the keys' common parts in every data block of an index block.
async fn describe_blocks(table: &Sstable, top_at: usize, index: &IndexBlock, out: &mut String) -> Result<()> {
    for at in 0..index.len().min(BLOCKS_SHOWN_MAX) {
        let handle = table.child(top_at, index, at)?;
        let block: Block = table.block(handle, false).await?;
        let _ = writeln!(
            out,
            "data block at {}: {} bytes, {} intervals, common \"{}\", column tail \"{}\"",
            handle.offset,
            block.bytes(),
            block.intervals(),
            block.common().escape_ascii(),
            block.column_tail().escape_ascii()
        );
    }
    Ok(())
}

impl Sstable {
    fn scan(self: &Arc<Self>) -> Cursor {
        let options = CursorOptions {
            fill_cache: false,
            readahead_bytes: 1 << 20,
            single_row: false,
        };
        Cursor::new(Arc::clone(self), options)
    }
}

fn describe(table: &Sstable, out: &mut String) -> std::fmt::Result {
    let p = table.properties();
    let compression = u8::try_from(p.compression).ok().and_then(Compression::from_byte);
    writeln!(
        out,
        "file {} ({} bytes), format version {}",
        table.file_id(),
        table.file_bytes(),
        footer::VERSION
    )?;
    writeln!(
        out,
        "created by \"{}\" at {} µs",
        p.created_by.escape_debug(),
        p.created_micros
    )?;
    write!(out, "compression {compression:?}")?;
    if p.zstd_level > 0 {
        write!(out, " of level {}", p.zstd_level)?;
    }
    writeln!(out, ", {} data blocks, {} bytes", p.data_blocks, p.data_bytes)?;
    if p.compressible_bytes > 0 {
        let bytes = p.compressible_bytes;
        writeln!(out, "most are not compressed: about {bytes} bytes smaller if they were")?;
    }
    let (block_bytes, filter) = (p.block_bytes, p.filter_bits_per_row);
    writeln!(out, "blocks of {block_bytes} bytes, filter of {filter} bits per row")?;
    if p.dictionary_bytes > 0 {
        writeln!(out, "dictionary of {} bytes", p.dictionary_bytes)?;
    }
    describe_families(&p.families, out)?;
    writeln!(out, "{} cells in {} rows", p.cells, p.rows)?;
    writeln!(out, "{} key bytes, {} value bytes", p.raw_key_bytes, p.raw_value_bytes)?;
    for kind in (1..=u8::MAX).map_while(CellKind::from_byte) {
        if p.count(kind) > 0 {
            writeln!(out, "  {kind:?}: {}", p.count(kind))?;
        }
    }
    if let (Some(min), Some(max)) = (p.timestamp_min, p.timestamp_max) {
        writeln!(out, "timestamps {min}..={max}")?;
    }
    let (min, max) = (stele_types::SeqNo(p.seq_min), stele_types::SeqNo(p.seq_max));
    writeln!(out, "sequences {min}..={max}")?;
    write!(out, "first ")?;
    describe_key(&p.smallest_key, out)?;
    write!(out, "\nlast ")?;
    describe_key(&p.largest_key, out)?;
    writeln!(out, "\npinned {} bytes", table.pinned_bytes())
}

/// Families that are printed; a list of thousands is of no help.
const FAMILIES_SHOWN: usize = 32;

fn describe_families(ranges: &[u32], out: &mut String) -> std::fmt::Result {
    let (ranges, _) = ranges.as_chunks::<2>();
    if ranges.is_empty() {
        return Ok(());
    }
    write!(out, "families")?;
    for range in ranges.iter().take(FAMILIES_SHOWN) {
        match range {
            [0, 0] => write!(out, " rows")?,
            [0, last] => write!(out, " rows 1-{last}")?,
            [first, last] if first == last => write!(out, " {first}")?,
            [first, last] => write!(out, " {first}-{last}")?,
        }
    }
    writeln!(out, "{}", if ranges.len() > FAMILIES_SHOWN { " …" } else { "" })
}

fn describe_cell(key: &[u8], value: &[u8], out: &mut String) -> std::fmt::Result {
    describe_key(key, out)?;
    let shown = value.get(..VALUE_SHOWN_BYTES).unwrap_or(value);
    let more = if shown.len() < value.len() { "…" } else { "" };
    writeln!(out, " = {} bytes \"{}\"{more}", value.len(), shown.escape_ascii())
}

fn describe_key(key: &[u8], out: &mut String) -> std::fmt::Result {
    let Some(cell) = CellKey::decode(key) else {
        return write!(out, "malformed key \"{}\"", key.escape_ascii());
    };
    write!(
        out,
        "\"{}\" {}:\"{}\" @{} #{} {:?}",
        cell.row.escape_ascii(),
        cell.family,
        cell.qualifier.escape_ascii(),
        cell.timestamp,
        cell.seq,
        cell.kind
    )
}
