//! Bytes that do not compress.

use bytes::Bytes;

/// Bytes of a given number, the same for one seed and others for another. They are made in words: a chain of iterators
/// over bytes takes seconds for the largest values in a debug build.
pub fn noise(seed: u64, len: usize) -> Bytes {
    // Never zero, and far from that of the next seed.
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = Vec::with_capacity(len.next_multiple_of(8));
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}
