//! The golden files of the format version, byte for byte. A difference here is a format change.
#![allow(
    clippy::disallowed_methods,
    reason = "reads and, when asked, rewrites the golden file"
)]

use super::files::*;
use crate::{Cursor, CursorOptions, Step, WriteOptions, inspect};
use futures::executor::block_on;
use stele_types::key::range_delete_value;
use stele_types::schema::Compression;
use stele_types::{CellKind, Timestamp};

/// Files of [`cells`] as the writer of a version made them. Codecs may learn to compress better, so compressed files must
/// only be readable.
struct Golden {
    plain: &'static [u8],
    text: &'static str,
    compressed: [(Compression, &'static [u8]); 3],
}

macro_rules! golden {
    ($version:literal) => {
        Golden {
            plain: include_bytes!(concat!("../../testdata/", $version, ".sst")),
            text: include_str!(concat!("../../testdata/", $version, ".txt")),
            compressed: [
                (
                    Compression::Lz4,
                    include_bytes!(concat!("../../testdata/", $version, "-lz4.sst")),
                ),
                (
                    Compression::Snappy,
                    include_bytes!(concat!("../../testdata/", $version, "-snappy.sst")),
                ),
                (
                    Compression::Zstd,
                    include_bytes!(concat!("../../testdata/", $version, "-zstd.sst")),
                ),
            ],
        }
    };
}

/// The writer must reproduce the bytes of the plain file.
const V2: Golden = golden!("v2");

/// All kinds, an empty row, escapes, negative timestamps, the largest sequence.
fn cells() -> Cells {
    let kinds: [(&[u8], &[u8], CellKind); 9] = [
        (b"", b"empty row", CellKind::Put),
        (b"a", b"", CellKind::DeleteRow),
        (b"a", b"", CellKind::DeleteFamily),
        (b"a", b"", CellKind::DeleteFamilyVersion),
        (b"a", b"q", CellKind::DeleteColumn),
        (b"a", b"q", CellKind::DeleteRange),
        (b"a", b"q", CellKind::DeleteVersion),
        (b"a", b"q", CellKind::Merge),
        (b"a\0b", b"\0\xff", CellKind::Put),
    ];
    let mut cells = Cells::new();
    for (i, (row, qualifier, kind)) in kinds.into_iter().enumerate() {
        let value = match kind {
            CellKind::DeleteRange => range_delete_value(Timestamp(-5)).to_vec(),
            CellKind::Put | CellKind::Merge => b"12345678".to_vec(),
            _ => Vec::new(),
        };
        cells.insert(key(row, qualifier, 1_000 + i as i64, 1 << 40 | i as u64, kind), value);
    }
    for i in 0..40u64 {
        let row = format!("row{i:03}");
        cells.insert(
            key(row.as_bytes(), b"q", -(i as i64), 2 << 40 | i, CellKind::Put),
            b"abc".repeat(9),
        );
    }
    cells.insert(key(b"z", b"large", i64::MAX, u64::MAX, CellKind::Put), vec![b'x'; 100]);
    cells
}

fn write_golden(compression: Compression) -> Vec<u8> {
    let created_micros = 1_700_000_000_000_000;
    write(
        &cells(),
        WriteOptions {
            compression,
            block_bytes: 512,
            created_micros,
            ..options()
        },
    )
    .0
}

/// The text of `inspect` for a file, without the memory it takes, which depends on the program and not on the file.
fn text(bytes: &[u8]) -> String {
    let text = block_on(inspect(Memory::new(bytes.to_vec(), true), true)).expect("a whole file");
    let of_the_file = text.split_inclusive('\n').filter(|line| !line.starts_with("pinned "));
    of_the_file.collect()
}

#[test]
fn todays_writer_writes_version_2() {
    let bytes = write_golden(Compression::None);
    if std::env::var_os("STELE_WRITE_GOLDEN").is_some() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");
        std::fs::write(format!("{dir}/v2.sst"), &bytes).expect("writable checkout");
        std::fs::write(format!("{dir}/v2.txt"), text(&bytes)).expect("writable checkout");
        for (compression, _) in V2.compressed {
            let name = format!("{compression:?}").to_lowercase();
            std::fs::write(format!("{dir}/v2-{name}.sst"), write_golden(compression)).expect("writable checkout");
        }
        return;
    }
    assert!(
        bytes == V2.plain,
        "the writer's output changed: that needs a new format version"
    );
}

#[test]
fn golden_files_are_read() {
    assert_eq!(text(V2.plain), V2.text);
    for (compression, bytes) in [(Compression::None, V2.plain)].into_iter().chain(V2.compressed) {
        let table = open(Memory::new(bytes, false), 1 << 20).expect("the golden file");
        assert_eq!(block_on(table.verify()), Ok(()));
        assert_eq!(table.properties().compression, compression as u32);
        assert_eq!(table.properties().deletes(), 6);
        assert_eq!(bytes.len() < V2.plain.len() * 7 / 8, compression != Compression::None);
        let mut cursor = Cursor::new(table, CursorOptions::default());
        assert_eq!(read_all(&mut cursor), Ok(cells()));
        read_backward_and_seek(&mut cursor);
    }
}

/// Walks backward, and seeks every key, the position just after it, and every row.
fn read_backward_and_seek(cursor: &mut Cursor) {
    let cells = cells();
    let mut step = cursor.seek_last();
    for (key, value) in cells.iter().rev() {
        assert_eq!(complete(cursor, step), Ok(Step::Ready));
        assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
        step = cursor.retreat();
    }
    assert_eq!(complete(cursor, step), Ok(Step::End));
    let behind = cells.keys().map(|key| [&key[..], &[0]].concat());
    for target in rows_of(&cells).into_iter().chain(cells.keys().cloned()).chain(behind) {
        let (found, before) = (
            cells.range(target.clone()..).next(),
            cells.range(..target.clone()).next_back(),
        );
        let step = cursor.seek(&target);
        assert_eq!(complete(cursor, step) == Ok(Step::Ready), found.is_some());
        assert!(found.is_none_or(|(key, _)| cursor.key() == &key[..]));
        let step = cursor.seek_before(&target);
        assert_eq!(complete(cursor, step) == Ok(Step::Ready), before.is_some());
        assert!(before.is_none_or(|(key, _)| cursor.key() == &key[..]));
    }
}
