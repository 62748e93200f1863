//! Files of which a tablet refers to a part.
//!
//! A compaction, a drop of rows or a split leaves such references.

use super::*;
use stele_client::ReadRows;
use stele_types::{CellKind, FamilyId, KeyBuf, RowRange, RowSet, SeqNo, Timestamp, key};

/// The value of a row without another copy in its file.
fn value(row: &str) -> Vec<u8> {
    row.repeat(40).into_bytes()
}

/// A file of run 7 with these rows, each in a block of its own.
async fn sstable(folder: &Arc<MemoryStorage>, id: FileId, rows: &[&str]) -> FileRef {
    let mut options = WriteOptions::new(id);
    (options.block_bytes, options.compression) = (64, Compression::None);
    let file = folder.create(&FileRef::path(id)).await.unwrap();
    let mut writer = SstableWriter::new(file, options);
    for row in rows {
        let mut cell = KeyBuf::new();
        cell.set(row.as_bytes(), FamilyId(1), b"q", Timestamp(1), SeqNo(1), CellKind::Put);
        writer.add(cell.as_slice(), &value(row)).unwrap();
    }
    let meta = writer.finish().await.unwrap();
    FileRef {
        file: id.0,
        len: meta.file_bytes,
        cells: meta.properties.cells,
        referenced: meta.file_bytes,
        run: 7,
        ..FileRef::default()
    }
}

async fn has(node: &crate::node::Node, row: &'static str) -> bool {
    let rows = RowSet::new(vec![RowRange::single(&Bytes::from_static(row.as_bytes()))]);
    let request = ReadRows::new(TableName::new("space", "table"), rows);
    let mut stream = node.service.read_rows(request).await.unwrap();
    let mut found = 0;
    while let Some(batch) = stream.next().await.unwrap() {
        found += batch.shared_rows().count();
    }
    found > 0
}

/// A bottom-level compaction has ended within a file, and the rest of that file is damaged. The intact part is below
/// the output of the compaction and would hide rows of it.
#[tokio::test]
async fn a_part_of_which_nothing_is_left_hides_no_rows_of_its_neighbours() {
    let folder = folder().await;
    let merged = sstable(&folder, FileId::new(1, 901), &["a12", "a13", "a14", "a14x"]).await;
    let mut left = sstable(&folder, FileId::new(1, 902), &["a12", "a13", "a14", "a15", "a16"]).await;
    left.lower = Some(Bytes::from(key::row_prefix(b"a15")));
    let behind = sstable(&folder, FileId::new(1, 903), &["a17", "a18"]).await;
    let path = FileRef::path(left.id());
    for row in ["a15", "a16"] {
        let bytes = folder.read_all(&path).await.unwrap();
        let value = value(row);
        let at = bytes.windows(value.len()).position(|window| window == value);
        flip(&folder, &path, at.unwrap()).await;
    }
    let tablet = paths(&folder, "tablets/", "").await.remove(0);
    let mut manifest = Manifest::decode_file(&tablet, &folder.read_all(&tablet).await.unwrap()).unwrap();
    manifest.groups[0].files = vec![merged, left, behind];
    folder.delete(&tablet).await.unwrap();
    folder.put_if_absent(&tablet, manifest.encode_file()).await.unwrap();

    let (text, in_order) = run(&folder, false).await;
    assert!(in_order, "{text}");
    let node = start(folder.clone()).await;
    for row in ["a12", "a14", "a14x", "a17", "a18"] {
        assert!(has(&node, row).await, "row {row} is there\n{text}");
    }
    assert!(!has(&node, "a15").await && !has(&node, "a16").await, "{text}");
}
