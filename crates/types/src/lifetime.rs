//! The lifetime of a single cell (HBase's TTL of a mutation).
//!
//! The entry of an expiring put is its lifetime in milliseconds (8 bytes, big-endian, signed), then the value. The time
//! runs from the cell's timestamp, as the age of a family's rule does. Byte table: `docs/formats/cell-key.md`.

use crate::ids::{TimeUnit, Timestamp};
use bytes::{BufMut as _, Bytes, BytesMut};

/// Bytes of a lifetime in front of the value.
pub const LIFETIME_BYTES: usize = 8;

const MICROS_PER_MILLI: i64 = 1_000;

/// The stored form of a value that expires this many milliseconds after its timestamp.
pub fn stored(lifetime_ms: i64, value: &[u8]) -> Bytes {
    let mut stored = BytesMut::with_capacity(LIFETIME_BYTES + value.len());
    stored.put_i64(lifetime_ms);
    stored.extend_from_slice(value);
    stored.freeze()
}

/// The lifetime in milliseconds, and the value. `None` when the bytes are too few.
pub fn split(stored: &Bytes) -> Option<(i64, Bytes)> {
    let lifetime_ms = i64::from_be_bytes(*stored.first_chunk::<LIFETIME_BYTES>()?);
    Some((lifetime_ms, stored.slice(LIFETIME_BYTES..)))
}

/// Whether a cell of this timestamp has outlived its lifetime. One that has no valid lifetime has not.
pub fn is_over(stored: &[u8], timestamp: Timestamp, unit: TimeUnit, now_micros: i64) -> bool {
    let Some(lifetime_ms) = stored.first_chunk::<LIFETIME_BYTES>() else {
        return false;
    };
    let lifetime = i64::from_be_bytes(*lifetime_ms).saturating_mul(MICROS_PER_MILLI);
    unit.to_micros_saturating(timestamp).saturating_add(lifetime) < now_micros
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_lives_from_its_timestamp_on() {
        let kept = stored(2, b"value");
        assert_eq!(split(&kept), Some((2, Bytes::from_static(b"value"))));
        assert_eq!(split(&Bytes::from_static(b"short")), None);
        let over = |timestamp, unit, now| is_over(&kept, Timestamp(timestamp), unit, now);
        assert!(!over(1, TimeUnit::Millis, 3_000) && over(1, TimeUnit::Millis, 3_001));
        assert!(!over(1, TimeUnit::Micros, 2_001) && over(1, TimeUnit::Micros, 2_002));
        assert!(!is_over(
            &stored(i64::MAX, b""),
            Timestamp(i64::MAX),
            TimeUnit::Millis,
            i64::MAX
        ));
        assert!(is_over(&stored(-1, b""), Timestamp(5), TimeUnit::Millis, 5_000));
        assert!(!is_over(b"short", Timestamp(0), TimeUnit::Micros, i64::MAX));
    }
}
