//! Marks say when groups were written, and which changes are not in the log.
//!
//! A mark is a record of tablet 0, which no tablet is, with the sequence number 0, which no mutation has. Streams whose log is
//! archived write them: a *time* as the first record of every group, and a *barrier* before files of a tablet change in a way
//! that no record describes. Recovery skips marks.
//! Byte table: `docs/formats/commit-log.md`.
//!
//! Invariant: the time of a group is not before the submission of any record in it, and not after its acknowledgement. Times of
//! a server do not descend, also where its wall clock is set back.

use crate::format::{Payload, RECORD_HEADER_BYTES, Record};
use bytes::{BufMut, Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use stele_env::Env;
use stele_types::{SeqNo, TabletId};

/// The tablet of marks.
const MARK_TABLET: TabletId = TabletId(0);
/// Bytes of the payload of a time, and of a barrier.
const TIME_BYTES: usize = 9;
const BARRIER_BYTES: usize = 18;
/// First bytes of payloads.
const KIND_TIME: u8 = 1;
const KIND_BARRIER: u8 = 2;

/// A change of the files of a tablet that the log does not describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierCause {
    /// Rows were dropped.
    DroppedRows,
    /// Files were loaded.
    BulkLoad,
}

impl BarrierCause {
    fn number(self) -> u8 {
        match self {
            BarrierCause::DroppedRows => 1,
            BarrierCause::BulkLoad => 2,
        }
    }

    fn of_number(number: u8) -> Option<BarrierCause> {
        match number {
            1 => Some(BarrierCause::DroppedRows),
            2 => Some(BarrierCause::BulkLoad),
            _ => None,
        }
    }
}

/// The content of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The time of the records behind it in its group.
    Time {
        /// Wall-clock microseconds.
        micros: i64,
    },
    /// From this time on, the records of a tablet are not all that happened to it.
    Barrier {
        /// Wall-clock microseconds.
        micros: i64,
        /// Which tablet.
        tablet: TabletId,
        /// The change.
        cause: BarrierCause,
    },
}

impl Mark {
    /// The payload of its record.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(BARRIER_BYTES);
        match self {
            Mark::Time { micros } => {
                out.put_u8(KIND_TIME);
                out.put_i64_le(*micros);
            }
            Mark::Barrier { micros, tablet, cause } => {
                out.put_u8(KIND_BARRIER);
                out.put_i64_le(*micros);
                out.put_u64_le(tablet.0);
                out.put_u8(cause.number());
            }
        }
        out.freeze()
    }

    /// Decodes a payload; `None` for one that is no mark that this program knows.
    pub fn decode(payload: &[u8]) -> Option<Mark> {
        let micros = i64::from_le_bytes(*payload.get(1..)?.first_chunk()?);
        match (payload.first()?, payload.len()) {
            (&KIND_TIME, TIME_BYTES) => Some(Mark::Time { micros }),
            (&KIND_BARRIER, BARRIER_BYTES) => Some(Mark::Barrier {
                micros,
                tablet: TabletId(u64::from_le_bytes(*payload.get(9..)?.first_chunk()?)),
                cause: BarrierCause::of_number(*payload.get(17)?)?,
            }),
            _ => None,
        }
    }

    /// Whether a record is a mark, perhaps of a later version.
    pub fn is_one(record: &Record) -> bool {
        (record.tablet, record.first, record.last) == (MARK_TABLET, SeqNo::ZERO, SeqNo::ZERO)
    }

    /// The mark in a record; `None` for a record of a tablet, and for a mark of a later version.
    pub fn of(record: &Record) -> Option<Mark> {
        match Mark::is_one(record) {
            true => Mark::decode(record.payload.bytes()),
            false => None,
        }
    }

    /// Its time.
    pub fn micros(&self) -> i64 {
        match self {
            Mark::Time { micros } | Mark::Barrier { micros, .. } => *micros,
        }
    }
}

/// The clock of the logs of a server that archives them. Its times do not descend.
#[derive(Debug)]
pub struct LogClock {
    env: Env,
    last: AtomicI64,
}

impl LogClock {
    /// Of a server; `floor` is the last time that an earlier process of it has noted.
    pub fn new(env: Env, floor: i64) -> Arc<LogClock> {
        Arc::new(LogClock {
            env,
            last: AtomicI64::new(floor),
        })
    }

    /// Wall-clock microseconds now, or the last time where the clock was set back behind it.
    pub fn now(&self) -> i64 {
        let now = self.env.wall_micros();
        self.last.fetch_max(now, Ordering::AcqRel).max(now)
    }

    /// Takes a time for one that has been.
    pub fn raise(&self, floor: i64) {
        self.last.fetch_max(floor, Ordering::AcqRel);
    }
}

/// Framed marks that begin a group.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) bytes: Bytes,
    pub(crate) count: u32,
}

impl Marks {
    /// Frames marks.
    pub(crate) fn of(marks: &[Mark]) -> Marks {
        let mut bytes = BytesMut::with_capacity(marks.len() * (RECORD_HEADER_BYTES + BARRIER_BYTES));
        for mark in marks {
            let record = Record {
                tablet: MARK_TABLET,
                first: SeqNo::ZERO,
                last: SeqNo::ZERO,
                payload: Payload::new(mark.encode()),
            };
            bytes.put_slice(&record.encode_header());
            bytes.put_slice(record.payload.bytes());
        }
        assert!(
            marks.len() <= 2 && bytes.len() <= marks.len() * (RECORD_HEADER_BYTES + BARRIER_BYTES),
            "a group begins with its time, and one other mark at most"
        );
        Marks {
            bytes: bytes.freeze(),
            count: marks.len() as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_their_bytes_and_others_are_refused() {
        let barrier = |cause| Mark::Barrier {
            micros: -5,
            tablet: TabletId(0x0102_0304_0506_0708),
            cause,
        };
        let time = Mark::Time {
            micros: 1_600_000_000_000_001,
        };
        for mark in [
            time,
            barrier(BarrierCause::DroppedRows),
            barrier(BarrierCause::BulkLoad),
        ] {
            assert_eq!(Mark::decode(&mark.encode()), Some(mark));
            for len in 0..mark.encode().len() {
                assert_eq!(Mark::decode(&mark.encode()[..len]), None);
            }
        }
        assert_eq!(&time.encode()[..], [1, 0x1, 0x0, 0xa4, 0x7, 0x31, 0xaf, 0x5, 0x0]);
        let bytes = barrier(BarrierCause::BulkLoad).encode();
        assert_eq!(
            &bytes[..],
            [
                2, 0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 8, 7, 6, 5, 4, 3, 2, 1, 2
            ]
        );
        let mut unknown = bytes.to_vec();
        unknown[17] = 3;
        assert_eq!(Mark::decode(&unknown), None);
    }

    #[tokio::test]
    async fn a_clock_that_is_set_back_stands_still() {
        let clock = LogClock::new(stele_env::tokio_env::TokioRuntime::current(), i64::MAX - 1);
        assert_eq!(clock.now(), i64::MAX - 1);
    }
}
