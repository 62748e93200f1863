//! Copies of whole files, under their own number and under others.

use super::files::*;
use crate::{Cache, Cursor, CursorOptions, Sstable, SstableWriter, WriteOptions};
use bytes::Bytes;
use futures::executor::block_on;
use std::sync::Arc;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::schema::Compression;
use stele_types::{ErrorKind, FileId};

const OTHER: FileId = FileId(0x0000_0009_0000_0001);

fn copy(bytes: &[u8], id: FileId) -> crate::Result<Vec<u8>> {
    let source = open(Memory::new(bytes.to_vec(), false), 1 << 20)?;
    let storage = MemoryStorage::new();
    let mut file = block_on(storage.create("copy")).expect("an empty storage");
    block_on(source.copy_as(id, &mut *file))?;
    Ok(block_on(storage.read_all("copy"))
        .expect("memory does not fail")
        .to_vec())
}

fn cells_of(bytes: Vec<u8>, id: FileId) -> crate::Result<Cells> {
    let table = block_on(Sstable::open(
        Memory::new(bytes, false),
        id,
        Arc::new(Cache::new(1 << 20)),
    ))?;
    block_on(table.verify())?;
    read_all(&mut Cursor::new(table, CursorOptions::default()))
}

fn variants() -> Vec<WriteOptions> {
    let zstd = WriteOptions {
        compression: Compression::Zstd,
        dictionary_bytes: 2 << 10,
        block_bytes: 1 << 10,
        ..options()
    };
    let bare = WriteOptions {
        compression: Compression::None,
        filter_bits_per_row: 0,
        ..options()
    };
    vec![options(), zstd, bare]
}

#[test]
fn a_copy_has_all_bytes_and_another_number_has_its_own_checksums() {
    let cells = grid(3_000, 3, 60);
    for options in variants() {
        let (bytes, _) = write(&cells, options);
        assert!(
            copy(&bytes, FILE).unwrap() == bytes,
            "a copy under the same number is the same file"
        );
        let renumbered = copy(&bytes, OTHER).unwrap();
        assert_eq!(renumbered.len(), bytes.len());
        assert!(cells_of(renumbered.clone(), FILE).is_err(), "it is another file");
        assert!(cells_of(renumbered, OTHER).unwrap() == cells);
    }
}

#[test]
fn damage_anywhere_ends_a_copy() {
    let (bytes, _) = write(&grid(200, 2, 40), options());
    for at in (0..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let error = copy(&damaged, OTHER).expect_err("a byte that has changed is found");
        let is_version = error.kind() == ErrorKind::Unimplemented;
        assert!(
            is_version || error.kind() == ErrorKind::Corruption,
            "byte {at}: {error}"
        );
    }
}

#[test]
fn a_rewritten_file_has_changed_values_and_the_same_form() {
    let cells = grid(2_000, 2, 40);
    for options in variants() {
        let (bytes, meta) = write(&cells, options);
        let source = open(Memory::new(bytes, false), 1 << 20).unwrap();
        let storage = MemoryStorage::new();
        let file = block_on(storage.create("copy")).unwrap();
        let mut writer = SstableWriter::new(file, source.options_of_copy(OTHER));
        let changed = |_: &[u8], value: &[u8]| value.starts_with(&[0]).then(|| b"other".to_vec());
        block_on(source.rewrite(&mut writer, changed)).unwrap();
        let copied = block_on(writer.finish()).unwrap();
        let (said, was) = (&copied.properties, &meta.properties);
        assert_eq!(said.compression, was.compression);
        assert_eq!(
            (said.cells, said.filter_bits_per_row),
            (was.cells, was.filter_bits_per_row)
        );
        let mut expected = cells.clone();
        for value in expected.values_mut().filter(|value| value.starts_with(&[0])) {
            *value = b"other".to_vec();
        }
        let bytes: Bytes = block_on(storage.read_all("copy")).unwrap();
        assert!(cells_of(bytes.to_vec(), OTHER).unwrap() == expected);
    }
}
