//! Damage anywhere in a file is an error, never other cells and never a panic.

use super::files::*;
use crate::{Cursor, CursorOptions, Result, SstableError, WriteOptions};
use futures::executor::block_on;
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
            let known = matches!(error, SstableError::Corruption { .. } | SstableError::TooNew { .. });
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
fn a_newer_format_is_named_as_such() {
    let (mut bytes, _) = write(&grid(2, 1, 8), options());
    let version_at = bytes.len() - 12;
    bytes[version_at] = 3;
    let error = read_whole(bytes).expect_err("version 3");
    assert_eq!(
        error.to_string(),
        "test.sst: format version 3, this program reads up to 2"
    );
    assert_eq!(error.kind(), ErrorKind::Unimplemented);
}
