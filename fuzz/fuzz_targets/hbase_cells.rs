//! Cell blocks of HBase's protocol: any bytes are refused or decoded.
//!
//! Decoded cells encode to the same bytes. Rows of `hbase:meta` are refused or decoded.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use stele_wire::cell::{Cell, CellReader, CellRef, ROW_BYTES_MAX};
use stele_wire::meta::{self, MetaRow};
use stele_wire::region;

fuzz_target!(|bytes: &[u8]| {
    let block = Bytes::copy_from_slice(bytes);
    let mut reader = CellReader::new(block.clone());
    let mut cells = Vec::new();
    let mut again = BytesMut::new();
    while let Some(Ok(cell)) = reader.next() {
        write(&cell, &mut again);
        cells.push(cell);
    }
    let mut tagged = CellReader::new(block.clone());
    for cell in &cells {
        // A block without tags reads the same with them.
        assert!(
            tagged
                .read_with_tags()
                .is_ok_and(|(again, tags)| again == *cell && tags.is_empty())
        );
    }
    // Cells that are counted are those that are taken out of the block.
    for _ in 0..tagged.cells_left() {
        let _ = tagged.read_with_tags();
    }
    assert!(tagged.read_with_tags().is_err());
    assert_eq!(tagged.remaining(), 0);
    let written_all = cells
        .iter()
        .all(|c| c.row.len() <= ROW_BYTES_MAX && c.family.len() <= 127);
    if written_all {
        assert!(bytes.starts_with(&again));
    }
    if let Ok(row) = MetaRow::decode(&cells) {
        let value = meta::encode_region_info(&row.region);
        assert_eq!(meta::decode_region_info(&value).as_ref(), Ok(&row.region));
        let name = region::name(&row.region);
        assert!(region::encoded(&name).is_some());
    }
    let _ = meta::decode_region_info(&block);
    let _ = region::encoded(bytes);
    let (a, b) = bytes.split_at(bytes.len() / 2);
    assert_eq!(meta::compare(a, b), meta::compare(b, a).reverse());
    assert!(meta::compare(a, a).is_eq());
    let _ = region::table_text(&region::table_name(&block));
});

fn write(cell: &Cell, out: &mut BytesMut) {
    let cell = CellRef {
        row: &cell.row,
        family: &cell.family,
        qualifier: &cell.qualifier,
        timestamp: cell.timestamp,
        kind: cell.kind,
        value: &cell.value,
    };
    // Longer rows and families can be read than Java can write.
    let _ = cell.encode(out);
}
