//! Whole sstables: any file is refused or can be searched from both ends. A second try puts right checksums on the
//! damaged content, to see whether anything relies on the checksum alone.
#![no_main]

use bytes::Bytes;
use futures::executor::block_on;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use stele_fuzz::{Slow, crc, storage};
use stele_sstable::footer::{FOOTER_BYTES, Footer};
use stele_sstable::frame::{self, Handle};
use stele_sstable::index::IndexBlock;
use stele_sstable::{Cache, Cursor, CursorOptions, Result, Sstable, Step, inspect};
use stele_storage::{ReadFile, Storage};
use stele_types::FileId;

const PATH: &str = "sst/f.sst";

/// Cells visited in one direction; an index can name the same block many times.
const CELLS_MAX: usize = 5_000;

/// Children of an index block that get a right checksum.
const SEALED_MAX: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let _ = read(Bytes::copy_from_slice(bytes), false);
    let mut sealed = bytes.to_vec();
    if seal_all(&mut sealed).is_some() {
        let slow = bytes.first().is_some_and(|byte| byte % 2 == 1);
        let _ = read(Bytes::from(sealed), slow);
    }
});

fn read(bytes: Bytes, slow: bool) -> Result<()> {
    let Some(Ok(footer)) = bytes.last_chunk::<FOOTER_BYTES>().map(|tail| Footer::decode(tail)) else {
        return Ok(());
    };
    let storage = storage([(PATH, bytes)]);
    let mut file: Arc<dyn ReadFile> = block_on(storage.open(PATH))?;
    if slow {
        file = Arc::new(Slow(file));
    }
    let table = block_on(Sstable::open(file.clone(), footer.file, Arc::new(Cache::new(1 << 20))))?;
    let _ = (
        table.pinned_bytes(),
        table.properties().deletes(),
        table.may_contain_row(b"row\0\x01"),
    );
    let _ = block_on(inspect(file.clone(), false));
    let whole = block_on(table.verify()).is_ok();
    let options = CursorOptions {
        fill_cache: !slow,
        readahead_bytes: 4 << 10,
        single_row: false,
    };
    let mut cursor = Cursor::new(table, options);
    let forward = walk(&mut cursor, true);
    let backward = walk(&mut cursor, false);
    if whole {
        let (forward, backward) = (forward.as_ref().expect("verified"), backward.as_ref());
        if let Ok(backward) = backward
            && forward.len() < CELLS_MAX
        {
            assert!(forward.iter().eq(backward.iter().rev()));
        }
    }
    for (key, _) in forward.unwrap_or_default().iter().step_by(7).take(20) {
        let step = cursor.seek(key);
        if finish(&mut cursor, step)? == Step::Ready {
            let step = cursor.retreat();
            finish(&mut cursor, step)?;
        }
        let step = cursor.seek_before(key);
        if finish(&mut cursor, step)? == Step::Ready {
            let step = cursor.advance();
            finish(&mut cursor, step)?;
        }
    }
    Ok(())
}

type Cells = Vec<(Vec<u8>, Bytes)>;

fn walk(cursor: &mut Cursor, forward: bool) -> Result<Cells> {
    let mut cells = Cells::new();
    let mut step = if forward {
        cursor.seek_first()
    } else {
        cursor.seek_last()
    };
    while finish(cursor, step)? == Step::Ready && cells.len() < CELLS_MAX {
        cells.push((cursor.key().to_vec(), cursor.value_bytes()));
        step = if forward { cursor.advance() } else { cursor.retreat() };
    }
    Ok(cells)
}

fn finish(cursor: &mut Cursor, step: Result<Step>) -> Result<Step> {
    match step? {
        Step::Pending => block_on(cursor.load()),
        step => Ok(step),
    }
}

/// Puts right checksums on the footer and on every block it leads to.
fn seal_all(bytes: &mut [u8]) -> Option<()> {
    let footer = bytes.last_chunk_mut::<FOOTER_BYTES>()?;
    let checksum = crc(&[&footer[..48], &footer[52..]]);
    footer[48..52].copy_from_slice(&checksum.to_le_bytes());
    let footer = Footer::decode(footer).ok()?;
    for index in children(bytes, footer.file, footer.top_index) {
        for block in children(bytes, footer.file, index) {
            seal(bytes, footer.file, block);
        }
    }
    for section in [Some(footer.properties), footer.filter].into_iter().flatten() {
        seal(bytes, footer.file, section);
    }
    Some(())
}

/// Seals an index block; the blocks it names.
fn children(bytes: &mut [u8], file: FileId, handle: Handle) -> Vec<Handle> {
    let index = seal(bytes, file, handle)
        .and_then(|framed| frame::open(file, handle.offset, &framed).ok())
        .and_then(|content| IndexBlock::parse(content).ok());
    index.map_or_else(Vec::new, |index| {
        (0..index.len().min(SEALED_MAX))
            .filter_map(|n| index.child(n))
            .collect()
    })
}

fn seal(bytes: &mut [u8], file: FileId, handle: Handle) -> Option<Bytes> {
    let start = usize::try_from(handle.offset).ok()?;
    let end = usize::try_from(handle.end()?).ok()?;
    let framed = bytes.get_mut(start..end)?;
    let (covered, checksum) = framed.split_last_chunk_mut::<4>()?;
    let right = crc(&[&file.0.to_le_bytes(), &handle.offset.to_le_bytes(), covered]);
    checksum.copy_from_slice(&right.to_le_bytes());
    Some(Bytes::copy_from_slice(framed))
}
