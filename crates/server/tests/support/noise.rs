//! Bytes that do not compress.

use bytes::Bytes;

/// So many of them, the same for one seed.
pub fn noise(seed: u64, len: usize) -> Bytes {
    let mut state = seed | 1;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len).collect::<Vec<u8>>().into()
}
