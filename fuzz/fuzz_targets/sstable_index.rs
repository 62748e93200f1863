//! Index blocks of sstables: any bytes are refused or answer every query.
//!
//! Where separators ascend, a search finds the result of a linear search, and the children written again are the same.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_sstable::frame::Handle;
use stele_sstable::index::{IndexBlock, IndexBuilder};

/// Separators that are searched, from the first to the last.
const SOUGHT: usize = 40;

fuzz_target!(|bytes: &[u8]| {
    let Ok(index) = IndexBlock::parse(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let count = index.len();
    assert!(index.separator(count).is_none() && index.child(count).is_none());
    let separators: Option<Vec<&[u8]>> = (0..count).map(|n| index.separator(n)).collect();
    let children: Option<Vec<Handle>> = (0..count).map(|n| index.child(n)).collect();
    let (Some(separators), Some(children)) = (separators, children) else {
        search(&index, None, bytes);
        return;
    };
    if !index.lists_handles() {
        let adjoin = |pair: &[Handle]| pair[0].end() == Some(pair[1].offset);
        assert!(children.windows(2).all(adjoin));
    }
    let sound = separators.is_sorted_by(|a, b| a < b);
    let has_common = index.lists_handles() || have_common(bytes, &separators);
    search(&index, Some(&separators).filter(|_| sound && has_common), bytes);
    for n in (0..count).step_by(count.div_ceil(SOUGHT)) {
        let separator = separators[n];
        let longer = [separator, &[0]].concat();
        let shorter = separator.split_last().map_or(separator, |(_, shorter)| shorter);
        for target in [separator, &longer, shorter] {
            search(&index, Some(&separators).filter(|_| sound && has_common), target);
        }
    }
    // A writer comes to one child after the other.
    if sound && children.is_sorted_by_key(|child| child.offset) {
        written_again(&separators, &children);
    }
});

/// Searches a target. `separators` are those of a block that is as a writer leaves it.
fn search(index: &IndexBlock, separators: Option<&Vec<&[u8]>>, target: &[u8]) {
    for inclusive in [true, false] {
        let found = index.find(target, inclusive);
        assert!(found.as_ref().is_ok_and(|n| *n < index.len()) || found.is_err());
        let Some(separators) = separators else {
            continue;
        };
        let is_before = |separator: &&&[u8]| **separator < target || inclusive && **separator == target;
        let before = separators.iter().take_while(is_before).count();
        assert_eq!(
            found,
            Ok(before.saturating_sub(1)),
            "{target:?}, inclusive: {inclusive}"
        );
    }
}

/// Whether all separators but the first share the prefix at the end of the block.
fn have_common(bytes: &[u8], separators: &[&[u8]]) -> bool {
    let Some((_, [a, b, c, d, ..])) = bytes.split_last_chunk::<8>() else {
        return false;
    };
    let Some((second, rest)) = separators.get(1..).and_then(<[_]>::split_first) else {
        return true;
    };
    let common = second.get(..u32::from_le_bytes([*a, *b, *c, *d]) as usize);
    common.is_some_and(|common| rest.iter().all(|separator| separator.starts_with(common)))
}

fn written_again(separators: &[&[u8]], children: &[Handle]) {
    let mut builder = IndexBuilder::default();
    for (separator, child) in separators.iter().zip(children) {
        builder.add(separator, *child);
    }
    let again = IndexBlock::parse(Bytes::from(builder.finish())).expect("what was built is a block");
    assert_eq!(again.len(), separators.len());
    for (n, (separator, child)) in separators.iter().zip(children).enumerate() {
        assert_eq!((again.separator(n), again.child(n)), (Some(*separator), Some(*child)));
        assert_eq!(again.find(separator, true), Ok(n));
    }
}
