//! Fences against the keys they stand for.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

use super::*;
use crate::manifest::FileRef;
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_sstable::{Cache, Sstable, SstableWriter, WriteOptions};
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::{CellKind, FamilyId, FileId, KeyBuf, SeqNo, Timestamp, key};

type Place = (Vec<u8>, u8);

/// Rows with a common prefix that differ in bytes that are escaped, in their lengths, or late.
fn row() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(b'b'), Just(255)];
    let tail = prop::collection::vec(byte, 0..4);
    let head = prop_oneof![Just(""), Just("a"), Just("common"), Just("common and longer")];
    (head, tail).prop_map(|(head, tail)| [head.as_bytes(), &tail].concat())
}

fn cell((row, qualifier): &Place) -> Vec<u8> {
    let mut buffer = KeyBuf::new();
    buffer.set(row, FamilyId(1), &[*qualifier], Timestamp(1), SeqNo(1), CellKind::Put);
    buffer.as_slice().to_vec()
}

/// A run of files that end behind the given cells; every file may be cut down to the rows from its second one on, or to
/// those before its last one.
async fn run(cells: &BTreeSet<Place>, ends: &[usize], cuts: &[(bool, bool)]) -> Vec<HeldFile> {
    let storage = MemoryStorage::new();
    let mut cells: Vec<&Place> = cells.iter().collect();
    let mut files = Vec::new();
    for (n, &(from_second, to_last)) in (1u64..).zip(cuts) {
        let count = ends
            .get(n as usize - 1)
            .map_or(cells.len(), |&end| end.min(cells.len()));
        let rest = cells.split_off(count);
        let mine = std::mem::replace(&mut cells, rest);
        let (Some((first, _)), Some((last, _))) = (mine.first(), mine.last()) else {
            continue;
        };
        let id = FileId(n);
        let mut writer = SstableWriter::new(storage.create(&FileRef::path(id)).await.unwrap(), WriteOptions::new(id));
        for place in &mine {
            writer.add(&cell(place), b"value").unwrap();
        }
        let meta = writer.finish().await.unwrap();
        let open = storage.open(&FileRef::path(id)).await.unwrap();
        let second = mine.iter().map(|(row, _)| row).find(|row| *row != first);
        let lower = second
            .filter(|_| from_second)
            .map(|row| Bytes::from(key::row_prefix(row)));
        let upper = Bytes::from(key::row_prefix(last));
        let is_cut = to_last && lower.as_ref().is_none_or(|lower| *lower < upper) && first != last;
        files.push(HeldFile {
            reference: FileRef {
                file: id.0,
                len: meta.file_bytes,
                lower,
                upper: is_cut.then_some(upper),
                run: 1,
                ..FileRef::default()
            },
            sstable: Sstable::open(open, id, Arc::new(Cache::new(0))).await.unwrap(),
            values: Arc::default(),
        });
    }
    files
}

fn numbers(files: &[HeldFile]) -> Vec<u64> {
    files.iter().map(|file| file.reference.file).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 500 }))]
    #[test]
    fn fences_find_the_files_that_keys_find(
        cells in prop::collection::btree_set((row(), 0u8..4), 1..40),
        ends in prop::collection::vec(1usize..12, 0..6),
        cuts in prop::collection::vec((any::<bool>(), any::<bool>()), 7),
        others in prop::collection::vec(row(), 20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let files = runtime.block_on(run(&cells, &ends, &cuts));
        let fences = Fences::of(&files);
        for row in cells.iter().map(|(row, _)| row).chain(&others) {
            let prefix = key::row_prefix(row);
            let end = key::row_prefix_end(&prefix);
            let row_lookup = RowLookup::new(&prefix);
            let found = fences.holders(&files, &row_lookup);
            let may_hold = |file: &&HeldFile| !file.ends_before(&prefix) && file.first_key() < &end[..];
            let expected: Vec<HeldFile> = files.iter().filter(may_hold).cloned().collect();
            prop_assert_eq!(numbers(found), numbers(&expected), "{}", row.escape_ascii());
        }
    }
}
