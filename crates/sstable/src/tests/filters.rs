//! Files with and without enough memory for their filters.

use super::files::*;
use crate::footer::{FOOTER_BYTES, Footer};
use crate::{BloomMemory, Cache, Cursor, CursorOptions, Sstable};
use futures::executor::block_on;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn open_within(file: Arc<Memory>, space: &Arc<BloomMemory>) -> Arc<Sstable> {
    block_on(Sstable::open_within(file, FILE, Arc::new(Cache::new(0)), space)).expect("just written")
}

/// How many of a hundred absent rows, between present ones, a file denies.
fn denied(table: &Sstable) -> usize {
    let absent = (0..100).map(|row| {
        key(
            format!("row{row:05}x").as_bytes(),
            b"",
            0,
            0,
            stele_types::CellKind::Put,
        )
    });
    let row = |key: Vec<u8>| {
        let len = stele_types::key::row_prefix_len(&key).expect("just encoded");
        key[..len].to_vec()
    };
    absent.filter(|key| !table.may_contain_row(&row(key.clone()))).count()
}

#[test]
fn files_without_room_are_read_without_their_filters() {
    let cells = grid(1_000, 1, 20);
    let (bytes, _) = write(&cells, options());
    let file = || Memory::new(bytes.clone(), true);
    let of_one = open_within(file(), &BloomMemory::unlimited()).filter_bytes();
    let space = BloomMemory::new(of_one * 3 / 2);
    let (first, second) = (open_within(file(), &space), open_within(file(), &space));
    assert!(first.holds_filter() && !second.holds_filter());
    assert_eq!(first.pinned_bytes(), second.pinned_bytes() + of_one);
    assert!(denied(&first) > 90);
    assert_eq!(denied(&second), 0);
    let mut cursor = Cursor::new(second.clone(), CursorOptions::default());
    assert_eq!(read_all(&mut cursor).expect("whole"), cells);

    block_on(second.hold_filter()).expect("memory does not fail");
    assert!(!second.holds_filter(), "the filter still does not fit");
    first.leave_filter_out();
    block_on(second.hold_filter()).expect("memory does not fail");
    assert!(second.holds_filter());
    assert_eq!((denied(&first), denied(&second) > 90), (0, true));
    drop((first, second, cursor));
    assert_eq!((space.taken(), space.left_out()), (0, 0));
}

#[test]
fn what_is_wrong_with_a_filter_is_found_late() {
    let (mut bytes, _) = write(&grid(1_000, 1, 20), options());
    let footer = Footer::decode(&bytes[bytes.len() - FOOTER_BYTES..]).expect("just written");
    let filter = footer.filter.expect("there is a filter");
    for is_flipped in [true, false] {
        bytes[filter.offset as usize + 3] ^= u8::from(is_flipped);
        let file = Memory::new(bytes.clone(), true);
        let space = BloomMemory::new(filter.len as usize);
        let first = open_within(Memory::new(write(&grid(1_000, 1, 20), options()).0, true), &space);
        let table = open_within(file.clone(), &space);
        assert!(first.holds_filter() && table.damage().first().is_none());
        drop(first);
        if !is_flipped {
            file.bad.store(filter.offset + 5, Ordering::Relaxed);
        }
        let reads = || file.reads.lock().expect("one thread").len();
        let before = reads();
        assert_eq!(block_on(table.hold_filter()).is_ok(), is_flipped);
        assert_eq!((reads(), table.takes_occasion()), (before + 1, is_flipped));
        assert_eq!((space.taken(), table.holds_filter(), denied(&table)), (0, false, 0));
        let damage = table.damage();
        assert!(damage.of_filter().is_some() == is_flipped && damage.of_cells().is_none());
        assert_eq!(damage.times_met(), u64::from(is_flipped));
        assert_eq!(space.left_out(), if is_flipped { 0 } else { filter.len as usize });
        // The device may be able to read the filter later.
        file.bad.store(u64::MAX, Ordering::Relaxed);
        block_on(table.hold_filter()).expect("the storage works");
        assert_eq!(
            (table.holds_filter(), reads()),
            (!is_flipped, before + 1 + usize::from(!is_flipped))
        );
        bytes[filter.offset as usize + 3] ^= u8::from(is_flipped);
    }
}

/// The state of a file that was opened in an outage.
#[test]
fn a_filter_that_cannot_be_read_at_first_is_read_later() {
    let (bytes, _) = write(&grid(1_000, 1, 20), options());
    let footer = Footer::decode(&bytes[bytes.len() - FOOTER_BYTES..]).expect("just written");
    let filter = footer.filter.expect("there is a filter");
    let file = Memory::new(bytes, true);
    file.bad.store(filter.offset + 5, Ordering::Relaxed);
    let space = BloomMemory::unlimited();
    let opened = Sstable::open_or_damaged(Ok(file.clone()), "test.sst", FILE, Arc::new(Cache::new(0)), &space);
    let table = block_on(opened).expect("the cells can be read");
    assert!(!table.holds_filter() && table.damage().of_filter().is_some());
    assert_eq!((denied(&table), space.left_out()), (0, filter.len as usize));
    file.bad.store(u64::MAX, Ordering::Relaxed);
    assert!(!table.takes_occasion(), "not at once");
    block_on(table.hold_filter()).expect("the storage works");
    assert!(denied(&table) > 90);
    assert_eq!(space.left_out(), 0);
}
