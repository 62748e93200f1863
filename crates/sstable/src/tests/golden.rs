//! Version 1, byte for byte. A file once written must be readable for ever; a difference here is a format change.
#![allow(
    clippy::disallowed_methods,
    reason = "reads and, when asked, rewrites the golden file"
)]

use super::files::*;
use crate::{Cursor, CursorOptions, WriteOptions, inspect};
use futures::executor::block_on;
use stele_types::key::range_delete_value;
use stele_types::schema::Compression;
use stele_types::{CellKind, Timestamp};

/// Uncompressed: the one whose bytes the writer must reproduce.
const PLAIN: &[u8] = include_bytes!("../../testdata/v1-groups.sst");
const PLAIN_TEXT: &str = include_str!("../../testdata/v1-groups.txt");
/// The same cells, by a writer that did not say which families a file has.
const WITHOUT_FAMILIES: &[u8] = include_bytes!("../../testdata/v1.sst");
const WITHOUT_FAMILIES_TEXT: &str = include_str!("../../testdata/v1.txt");
/// The same cells by that writer. Codecs may learn to compress better, so these must only be readable.
const COMPRESSED: [(Compression, &[u8]); 3] = [
    (Compression::Lz4, include_bytes!("../../testdata/v1-lz4.sst")),
    (Compression::Snappy, include_bytes!("../../testdata/v1-snappy.sst")),
    (Compression::Zstd, include_bytes!("../../testdata/v1-zstd.sst")),
];

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

/// What `inspect` says of a file, without the memory it takes, which is the program's and not the file's.
fn text(bytes: &[u8]) -> String {
    let text = block_on(inspect(Memory::new(bytes.to_vec(), true), true)).expect("a whole file");
    let of_the_file = text.split_inclusive('\n').filter(|line| !line.starts_with("pinned "));
    of_the_file.collect()
}

#[test]
fn todays_writer_writes_version_1() {
    let bytes = write_golden(Compression::None);
    if std::env::var_os("STELE_WRITE_GOLDEN").is_some() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");
        std::fs::write(format!("{dir}/v1-groups.sst"), &bytes).expect("writable checkout");
        std::fs::write(format!("{dir}/v1-groups.txt"), text(&bytes)).expect("writable checkout");
        return;
    }
    assert!(
        bytes == PLAIN,
        "the writer's output changed: that needs a new format version"
    );
    assert_eq!(text(PLAIN), PLAIN_TEXT);
    assert_eq!(text(WITHOUT_FAMILIES), WITHOUT_FAMILIES_TEXT);
}

#[test]
fn version_1_is_read() {
    let plain = [(Compression::None, PLAIN), (Compression::None, WITHOUT_FAMILIES)];
    for (compression, bytes) in plain.into_iter().chain(COMPRESSED) {
        let table = open(Memory::new(bytes, false), 1 << 20).expect("the golden file");
        assert_eq!(block_on(table.verify()), Ok(()));
        assert_eq!(table.properties().compression, compression as u32);
        assert_eq!(table.properties().deletes(), 6);
        assert_eq!(bytes.len() < PLAIN.len() * 7 / 8, compression != Compression::None);
        assert_eq!(read_all(&mut Cursor::new(table, CursorOptions::default())), Ok(cells()));
    }
}
