//! Files whose blocks are compressed with a dictionary.
#![allow(
    clippy::disallowed_methods,
    reason = "reads and, when asked, rewrites the golden file"
)]

use super::files::*;
use crate::{BloomMemory, Cache, Cursor, CursorOptions, Sstable, SstableError, WriteOptions, inspect};
use futures::executor::block_on;
use std::sync::Arc;
use stele_storage::ReadFile;
use stele_types::schema::Compression;
use stele_types::{CellKind, ErrorKind};
use xxhash_rust::xxh3::xxh3_64;

/// A file that must stay readable. Its bytes need not be reproduced, because zstd may learn to compress better.
const GOLDEN: &[u8] = include_bytes!("../../testdata/v2-dictionary.sst");

/// Values made of a few words each, so that blocks have words in common and little within themselves.
fn cells(count: u64) -> Cells {
    let word = |n: u64| format!("{:016x}", xxh3_64(&(n % 97).to_le_bytes()));
    let value = |n: u64| {
        (0..6)
            .flat_map(|m| word(xxh3_64(&(n * 6 + m).to_le_bytes())).into_bytes())
            .collect()
    };
    let row = |n: u64| format!("row{n:05}");
    (0..count)
        .map(|n| (key(row(n).as_bytes(), b"q", 1, n, CellKind::Put), value(n)))
        .collect()
}

fn with_dictionary() -> WriteOptions {
    WriteOptions {
        compression: Compression::Zstd,
        zstd_level: 3,
        dictionary_bytes: 2 << 10,
        block_bytes: 1 << 10,
        ..options()
    }
}

fn read(bytes: &[u8]) -> crate::Result<Cells> {
    let table = open(Memory::new(bytes.to_vec(), false), 1 << 20)?;
    block_on(table.verify())?;
    read_all(&mut Cursor::new(table, CursorOptions::default()))
}

#[test]
fn a_file_with_a_dictionary_is_smaller_and_says_the_same() {
    let cells = cells(2_000);
    let (bytes, meta) = write(&cells, with_dictionary());
    let plain = WriteOptions {
        dictionary_bytes: 0,
        ..with_dictionary()
    };
    let (without, _) = write(&cells, plain);
    assert!(
        bytes.len() * 4 < without.len() * 3,
        "{} bytes with, {} without",
        bytes.len(),
        without.len()
    );
    assert!((1 << 10..=2 << 10).contains(&meta.properties.dictionary_bytes));
    assert_eq!(read(&bytes), Ok(cells));
    let text = block_on(inspect(Memory::new(bytes, true), false)).expect("a whole file");
    let said = format!("dictionary of {} bytes", meta.properties.dictionary_bytes);
    assert!(
        text.contains(&said) && text.contains("compression Some(Zstd) of level 3"),
        "{text}"
    );
}

#[test]
fn a_file_that_gains_nothing_has_none() {
    let small = cells(100);
    let noise = |n: u64| {
        (0..12u64)
            .flat_map(|m| xxh3_64(&[n, m].map(u64::to_le_bytes).concat()).to_le_bytes())
            .collect()
    };
    let noise: Cells = cells(2_000).into_keys().zip((0..).map(noise)).collect();
    for (cells, options) in [
        (small, with_dictionary()),
        (noise, with_dictionary()),
        (
            cells(2_000),
            WriteOptions {
                compression: Compression::Lz4,
                ..with_dictionary()
            },
        ),
    ] {
        let (bytes, meta) = write(&cells, options);
        assert_eq!(meta.properties.dictionary_bytes, 0);
        assert_eq!(read(&bytes), Ok(cells));
    }
}

#[test]
fn damage_of_a_dictionary_is_detected_and_costs_its_file() {
    let (bytes, meta) = write(&cells(600), with_dictionary());
    let handle = meta.properties.dictionary().expect("it has one");
    let within = handle.offset as usize..handle.offset as usize + handle.framed_len();
    for at in within.step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        let error = read(&damaged).expect_err("the checksum covers it");
        assert_eq!(error.kind(), ErrorKind::Corruption, "byte {at}: {error}");
    }
    let mut damaged = bytes;
    damaged[handle.offset as usize] ^= 1;
    let file: Arc<dyn ReadFile> = Memory::new(damaged, true);
    let cache = Arc::new(Cache::new(1 << 20));
    let table = block_on(Sstable::open_or_damaged(
        Ok(file),
        "test.sst",
        FILE,
        cache,
        &BloomMemory::unlimited(),
    ))
    .expect("held as damaged");
    assert!(
        matches!(table.damage().of_everything(), Some(SstableError::Corruption { offset, .. }) if *offset == handle.offset)
    );
}

#[test]
fn a_file_with_a_dictionary_is_read_as_ever() {
    if std::env::var_os("STELE_WRITE_GOLDEN").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/v2-dictionary.sst");
        return std::fs::write(path, write(&cells(600), with_dictionary()).0).expect("writable checkout");
    }
    assert_eq!(read(GOLDEN), Ok(cells(600)));
}
