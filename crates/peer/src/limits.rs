//! Limits and times of the protocol, with their reasons.

use std::time::Duration;

/// Bytes of one frame: a row of the largest size with the headers of its cells.
pub const FRAME_BYTES_MAX: usize = 320 << 20;

/// Frames up to this size are received before their memory is reserved: it is part of the memory of a connection.
pub(crate) const SMALL_FRAME_BYTES: usize = 16 << 10;

/// Calls of one connection that an owner serves at a time.
pub(crate) const CALLS_MAX: usize = 16_384;

/// Calls that wait for one connection of the caller, well below the owner's limit: cancelled ones may still run there.
pub(crate) const CALLS_IN_FLIGHT_MAX: usize = 8_192;

/// Memory of a call besides its request: its slot, its channel and its frames.
pub(crate) const CALL_BYTES: usize = 1 << 10;

/// Bytes of rows that an owner reads for one batch.
pub(crate) const BATCH_BYTES: usize = 1 << 20;

/// Bytes by which a batch may exceed its credit. Rows are measured in memory, where they are larger, but the measure is not
/// that of the encoding.
pub(crate) const CREDIT_EXCESS_BYTES: usize = 1 << 20;

/// Bytes that a connection gathers before it takes no more: frames at the owner, requests at the caller.
pub(crate) const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Deepest nesting of a filter tree: more than the 24 composites of a valid filter, and a leaf.
pub(crate) const FILTER_DEPTH_MAX: usize = 32;

/// Bytes of an encoded filter. A client's takes up to three times its 20,480 bytes here. Filters that servers put in front of it have
/// about 200 KB. For a table of 20,000 families HBase's reads have two lists of them, which leave little space for others.
pub(crate) const FILTER_BYTES_MAX: usize = 320 << 10;

/// Bytes of an error's message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Time to connect, and again to shake hands.
pub(crate) const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// Pauses after a failed connection double from the first to the second.
pub(crate) const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A caller that has heard nothing for this time asks for a sign of life, and waits as long again.
pub(crate) const PING_AFTER: Duration = Duration::from_secs(5);

/// An owner ends a connection on which nothing arrived for this time: six pings.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Time in which a caller must take some of the output.
pub(crate) const OUTPUT_WAIT: Duration = Duration::from_secs(60);

/// Time that a stream waits for credit.
pub(crate) const CREDIT_WAIT: Duration = Duration::from_secs(60);

/// Time that a batch waits for memory.
pub(crate) const MEMORY_WAIT: Duration = Duration::from_secs(10);

/// Time that a drained connection without calls waits for the caller to close it.
pub(crate) const DRAIN_WAIT: Duration = Duration::from_secs(5);
