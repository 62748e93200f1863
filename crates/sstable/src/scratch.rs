//! A per-thread buffer for uncached blocks, reused once no reader holds a slice of it.
//!
//! Most blocks that do not enter the cache serve one read of one row, which ends before its thread reads the next
//! block. A new allocation for each block would be filled and freed with cold cache lines. For a block of some
//! kilobytes that takes longer than decompressing it.

use bytes::{Bytes, BytesMut};
use std::cell::Cell;

/// The largest block that uses the buffer. With rounding it bounds the memory of a thread. With the default sizes only
/// blocks of a large value exceed it.
const SCRATCH_BYTES_MAX: usize = 64 << 10;
/// A new buffer is rounded up to a multiple of this part of the block's length. Blocks of one file have many lengths,
/// most of which differ by less.
const ROUNDED_TO_ONE_IN: usize = 8;
/// A buffer is not used for a block that would leave more than this part of its length unused. A reader with a slice
/// retains the whole buffer.
const UNUSED_ONE_IN: usize = 4;
/// Unused bytes that are acceptable in any case.
const SMALL_BYTES: usize = 64;

thread_local! {
    static LAST: Cell<Bytes> = const { Cell::new(Bytes::new()) };
}

/// A block of `len` bytes, filled by `fill`. The initial content of the buffer is arbitrary.
pub(crate) fn bytes<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
    if len > SCRATCH_BYTES_MAX {
        let mut memory = vec![0; len];
        fill(&mut memory)?;
        return Ok(memory.into());
    }
    // The buffer never shrinks, so that it is cleared once and not for each block.
    let suits = |memory: &BytesMut| memory.len() >= len && memory.len() <= len + len / UNUSED_ONE_IN + SMALL_BYTES;
    let step = (len / ROUNDED_TO_ONE_IN).max(SMALL_BYTES);
    let last = LAST.take().try_into_mut().ok().filter(suits);
    let mut memory =
        last.unwrap_or_else(|| BytesMut::zeroed((len + len / (2 * ROUNDED_TO_ONE_IN) + 1).next_multiple_of(step)));
    assert!(
        memory.len() >= len,
        "a borrowed buffer is at least as long as the block"
    );
    let filled = memory.get_mut(..len).map_or(Ok(()), fill);
    let memory = memory.freeze();
    let content = memory.slice(..len);
    LAST.set(memory);
    filled.map(|()| content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(len: usize, byte: u8) -> Bytes {
        let filled: Result<_, ()> = bytes(len, |out| {
            out.fill(byte);
            Ok(())
        });
        filled.expect("filled")
    }

    #[test]
    fn memory_is_lent_again_when_nobody_has_it() {
        let first = block(5_000, 1);
        let at = first.as_ptr();
        drop(first);
        let second = block(5_100, 2);
        assert_eq!((second.as_ptr(), second.as_ref()), (at, &[2; 5_100][..]));
        // A slice is enough to retain the buffer.
        let held = second.slice(5_099..);
        drop(second);
        let third = block(5_000, 3);
        assert_ne!(third.as_ptr(), at);
        assert_eq!((held.as_ref(), third.as_ref()), (&[2][..], &[3; 5_000][..]));
    }

    #[test]
    fn every_length_leaves_more_for_the_next() {
        for len in [63, 64, 511, 800, 4_096, 5_000, 6_144] {
            drop(block(len, 1));
            assert!(LAST.take().len() >= len + len / 16, "{len}");
        }
    }

    #[test]
    fn little_does_not_hold_much() {
        drop(block(SCRATCH_BYTES_MAX, 1));
        let little = block(100, 2);
        let all = little.try_into_mut();
        assert!(all.is_err(), "the thread has it, too");
        drop(all);
        let last = LAST.take();
        assert_eq!(last.len(), 2 * SMALL_BYTES);
        // A larger block is the caller's alone.
        assert!(block(SCRATCH_BYTES_MAX + 1, 3).try_into_mut().is_ok());
    }

    #[test]
    fn what_cannot_be_filled_is_nobody_s() {
        assert_eq!(bytes(10, |_| Err("damaged")), Err("damaged"));
        assert_eq!(block(10, 1).as_ref(), [1; 10]);
    }
}
