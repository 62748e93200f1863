//! Damage anywhere in a file is an error, never other cells and never a panic.

use super::files::*;
use crate::footer::{FOOTER_BYTES, Footer};
use crate::{BloomMemory, Cache, Cursor, CursorOptions, Result, Sstable, SstableError, Step, WriteOptions};
use futures::executor::block_on;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stele_types::ErrorKind;
use stele_types::schema::Compression;

/// Opens and reads everything: every block, through the index.
fn read_whole(bytes: Vec<u8>) -> Result<Cells> {
    let table = open(Memory::new(bytes, true), 0)?;
    block_on(table.verify())?;
    let mut cursor = Cursor::new(
        table,
        CursorOptions {
            fill_cache: false,
            readahead_bytes: 0,
            single_row: false,
        },
    );
    read_all(&mut cursor)
}

#[test]
fn every_flipped_bit_is_detected() {
    for compression in [Compression::None, Compression::Lz4] {
        let cells = grid(12, 2, 20);
        let (bytes, meta) = write(
            &cells,
            WriteOptions {
                compression,
                block_bytes: 300,
                ..options()
            },
        );
        assert!(meta.properties.data_blocks > 2);
        assert_eq!(read_whole(bytes.clone()), Ok(cells));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = read_whole(damaged).expect_err("every byte is covered by a checksum");
            let known = matches!(
                error,
                SstableError::Corruption { .. } | SstableError::UnknownVersion { .. }
            );
            assert!(known, "bit {bit}: {error}");
        }
    }
}

#[test]
fn every_truncation_is_detected() {
    let (bytes, _) = write(
        &grid(12, 2, 20),
        WriteOptions {
            block_bytes: 300,
            ..options()
        },
    );
    for len in 0..bytes.len() {
        let error = read_whole(bytes[..len].to_vec()).expect_err("the footer is gone");
        assert_eq!(error.kind(), ErrorKind::Corruption, "{len} bytes: {error}");
    }
}

#[test]
fn two_swapped_blocks_are_detected() {
    let cells = grid(64, 1, 8);
    let options = WriteOptions {
        compression: Compression::None,
        block_bytes: 300,
        ..options()
    };
    let (bytes, _) = write(&cells, options);
    let table = open(Memory::new(bytes.clone(), true), 0).expect("just written");
    let index = block_on(table.index_block(0)).expect("just written");
    let handles: Vec<_> = (0..index.len()).filter_map(|n| index.child(n)).collect();
    let (a, b) = handles
        .iter()
        .flat_map(|a| handles.iter().map(move |b| (*a, *b)))
        .find(|(a, b)| a.offset < b.offset && a.len == b.len)
        .expect("equal cells make blocks of equal length");
    let mut swapped = bytes.clone();
    let framed = |h: crate::frame::Handle| h.offset as usize..h.offset as usize + h.framed_len();
    swapped[framed(a)].copy_from_slice(&bytes[framed(b)]);
    swapped[framed(b)].copy_from_slice(&bytes[framed(a)]);
    let error = read_whole(swapped).expect_err("the checksums know their places");
    let named = matches!(&error, SstableError::Corruption { file, offset, .. }
        if file == "test.sst" && *offset == a.offset);
    assert!(named, "{error}");
}

#[test]
fn an_unknown_format_version_is_named_as_such() {
    for version in [1, 3] {
        let (mut bytes, _) = write(&grid(2, 1, 8), options());
        let footer_at = bytes.len() - FOOTER_BYTES;
        let footer = &mut bytes[footer_at..];
        footer[52] = version;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&footer[..48]);
        hasher.update(&footer[52..]);
        footer[48..52].copy_from_slice(&hasher.finalize().to_le_bytes());
        let error = read_whole(bytes).expect_err("an unknown version");
        assert_eq!(
            error.to_string(),
            format!("test.sst: format version {version}, this program reads only version 2")
        );
        assert_eq!(error.kind(), ErrorKind::Unimplemented);
    }
}

/// Blocks that are read together with the bad one, ahead or in the same request, are readable nevertheless.
#[test]
fn a_bad_sector_costs_its_block_alone() {
    let cells = grid(200, 2, 100);
    let written = options();
    let (bytes, meta) = write(
        &cells,
        WriteOptions {
            block_bytes: 1_000,
            ..written
        },
    );
    let blocks = meta.properties.data_blocks;
    assert!(blocks > 30);
    let per_block = cells.len() / blocks as usize;
    let data_bytes = meta.properties.data_bytes;
    for at in (0..data_bytes).step_by(997) {
        let file = Memory::new(bytes.clone(), false);
        file.bad.store(at, Ordering::Relaxed);
        let table = open(file.clone(), 0).expect("no block of cells is read to open it");
        let tries = || {
            let reads = std::mem::take(&mut *file.reads.lock().expect("one thread"));
            let meets = |(offset, len): &(u64, usize)| (*offset..*offset + *len as u64).contains(&at);
            reads.iter().filter(|&read| meets(read)).count()
        };
        tries();
        let mut cursor = Cursor::new(table.clone(), CursorOptions::default());
        let mut before = 0usize;
        let mut step = cursor.seek_first();
        let error = loop {
            match complete(&mut cursor, step) {
                Ok(Step::Ready) => before += 1,
                Ok(other) => unreachable!("{other:?} after {before} cells"),
                Err(error) => break error,
            }
            step = cursor.advance();
        };
        assert_eq!(error.kind(), ErrorKind::Corruption);
        let expected = (at as f64 / data_bytes as f64 * cells.len() as f64) as usize;
        assert!(
            before.abs_diff(expected) <= 2 * per_block,
            "{before} cells before the byte at {at}"
        );
        assert_eq!(table.damage().of_cells(), Some(error), "a compaction leaves it alone");
        let tried = tries();
        assert!(tried <= 3, "the device was asked {tried} times for the byte at {at}");
        block_on(table.try_unreadable());
        assert!(table.damage().of_cells().is_some(), "it cannot be read yet");
        tries();

        let checked = block_on(table.check(|_| {})).expect("goes on behind it");
        let [finding] = &checked.findings[..] else {
            unreachable!("byte {at}: {:?}", checked.findings);
        };
        assert!(finding.error.to_string().contains("a bad sector"), "{}", finding.error);
        assert_eq!(checked.blocks + 1, blocks);
        let tried = tries();
        assert!(tried <= 3, "a check asked {tried} times for the byte at {at}");
        file.bad.store(u64::MAX, Ordering::Relaxed);
        block_on(table.try_unreadable());
        assert_eq!(table.damage().of_cells(), None, "the outage is over");
    }
}

/// A filter of other rows, in its place with a right checksum: its writer is at fault, and the cells are sound.
#[test]
fn a_filter_that_denies_rows_costs_no_cell() {
    let plain = || WriteOptions {
        compression: Compression::None,
        block_bytes: 1_000,
        ..options()
    };
    let cells = grid(200, 2, 100);
    let (mut bytes, _) = write(&cells, plain());
    let named = |cells: &Cells| -> Cells {
        let rename = |(key, value): (&Vec<u8>, &Vec<u8>)| ([b"s", &key[1..]].concat(), value.clone());
        cells.iter().map(rename).collect()
    };
    let (others, _) = write(&named(&cells), plain());
    assert_eq!(bytes.len(), others.len());
    let footer = Footer::decode(&bytes[bytes.len() - FOOTER_BYTES..]).expect("just written");
    let filter = footer.filter.expect("there is a filter");
    let range = filter.offset as usize..filter.offset as usize + filter.framed_len();
    bytes[range.clone()].copy_from_slice(&others[range]);

    let table = open(Memory::new(bytes, true), 0).expect("all checksums are right");
    let (mut writer, storage) = new_writer(options());
    let checked = block_on(table.salvage(&mut writer)).expect("memory does not fail");
    assert!(!checked.findings.is_empty());
    for finding in &checked.findings {
        assert!(
            finding.error.to_string().contains("the filter denies"),
            "{}",
            finding.error
        );
        assert_eq!((finding.bytes, &finding.keys), (0, &None));
    }
    block_on(writer.finish()).expect("memory does not fail");
    assert_eq!(read_whole(content(&storage).to_vec()), Ok(cells));
}

/// In an outage there are thousands of these files, each of which claims every possible key.
#[test]
fn what_cannot_be_opened_takes_little_memory() {
    let (bytes, _) = write(&grid(12, 2, 20), options());
    let opened = |path: &str| {
        let file = Memory::new(bytes[1..].to_vec(), true);
        let space = BloomMemory::unlimited();
        let held = Sstable::open_or_damaged(Ok(file), path, FILE, Arc::new(Cache::new(0)), &space);
        block_on(held).expect("held as damaged")
    };
    let (first, second) = (opened("1.sst"), opened("2.sst"));
    let key = |table: &Arc<Sstable>| table.properties().largest_key.as_ptr();
    assert_eq!(key(&first), key(&second));
    assert!(first.pinned_bytes() < 4096, "{}", first.pinned_bytes());
}

/// As where the beginning of an encrypted file is damaged: the rows of the file are lost, and not its tablet.
#[test]
fn a_file_that_is_lost_when_it_is_opened_is_a_damaged_one() {
    let lost = stele_storage::StorageError::Lost {
        path: "test.sst".to_owned(),
        detail: "the encryption header is damaged",
    };
    let space = BloomMemory::unlimited();
    let opened = block_on(Sstable::open_or_damaged(
        Err(lost),
        "test.sst",
        FILE,
        Arc::new(Cache::new(0)),
        &space,
    ));
    assert!(opened.is_ok());
}
