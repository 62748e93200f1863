//! Data blocks of sstables: any bytes are refused or can be walked from both ends, to the same cells.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_sstable::block::{Block, BlockCursor};

fuzz_target!(|bytes: &[u8]| {
    let Ok(block) = Block::parse(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let mut cursor = BlockCursor::default();
    cursor.set_block(block);
    let forward = walk(&mut cursor, true);
    let backward = walk(&mut cursor, false);
    let middle = forward.0.get(forward.0.len() / 2).cloned();
    if let (true, true) = (forward.1, backward.1) {
        assert!(forward.0.iter().eq(backward.0.iter().rev()));
        if let Some((key, value)) = middle.as_ref()
            && forward.0.is_sorted_by(|a, b| a.0 < b.0)
        {
            assert_eq!(cursor.seek(key), Ok(true));
            assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
            assert_eq!(cursor.value_bytes(), value);
        }
    }
    let target = middle.map_or_else(|| bytes.to_vec(), |(key, _)| key);
    for key in [&target[..], bytes, b""] {
        let _ = cursor.seek(key);
        let _ = cursor
            .seek_before(key)
            .and_then(|found| if found { cursor.retreat() } else { Ok(false) });
        let _ = cursor.value_bytes();
        let _ = cursor
            .seek(key)
            .and_then(|found| if found { cursor.advance() } else { Ok(false) });
        let _ = cursor.value_bytes();
    }
});

/// The cells in one direction, and whether they ended without an error.
fn walk(cursor: &mut BlockCursor, forward: bool) -> (Vec<(Vec<u8>, Vec<u8>)>, bool) {
    let mut cells = Vec::new();
    let mut step = if forward {
        cursor.seek_first()
    } else {
        cursor.seek_last()
    };
    while step == Ok(true) {
        assert!(cursor.is_valid());
        assert_eq!(cursor.value_bytes(), cursor.value());
        cells.push((cursor.key().to_vec(), cursor.value().to_vec()));
        step = if forward {
            cursor.advance()
        } else {
            cursor.retreat()
        };
    }
    (cells, step.is_ok())
}
