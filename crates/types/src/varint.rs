//! LEB128 variable-length integers, as in protocol buffers and LevelDB. Seven bits per byte, least significant first,
//! high bit set on all but the last. At most ten bytes for 64 bits.

/// Bytes of the longest varint.
pub const LEN_MAX: usize = 10;

/// Appends `value`.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `value`.
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    put_u64(out, u64::from(value));
}

/// Appends a length-prefixed byte string.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads one integer from the front of `input` and advances past it. `None` when truncated or longer than 64 bits.
#[inline]
pub fn take_u64(input: &mut &[u8]) -> Option<u64> {
    match input.split_first() {
        // The common case.
        Some((&byte, rest)) if byte < 0x80 => {
            *input = rest;
            Some(u64::from(byte))
        }
        _ => take_long(input),
    }
}

fn take_long(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in input.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte & 0x80 == 0 {
            *input = input.get(i + 1..)?;
            return Some(value);
        }
    }
    None
}

/// Reads one 32-bit integer; `None` when it does not fit.
#[inline]
pub fn take_u32(input: &mut &[u8]) -> Option<u32> {
    u32::try_from(take_u64(input)?).ok()
}

/// Reads a length-prefixed byte string; `None` when the length exceeds the rest of the input.
#[inline]
pub fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_u64(input)?).ok()?;
    let (head, tail) = input.split_at_checked(len)?;
    *input = tail;
    Some(head)
}

/// Maps small negative numbers to small unsigned ones.
pub fn zigzag(value: i64) -> u64 {
    (value << 1) as u64 ^ (value >> 63) as u64
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses_overlong() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_u64(&mut out, value);
            let mut input = out.as_slice();
            assert_eq!(take_u64(&mut input), Some(value));
            assert!(input.is_empty());
            assert_eq!(take_u64(&mut &out[..out.len() - 1]), None);
        }
        assert_eq!(take_u64(&mut [0xffu8; 11].as_slice()), None);
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }
}
