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

/// How often a caller asks for a sign of life, also while calls are under way.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(1);

/// A caller that has heard nothing for this time sends nothing but pings until it hears something.
pub(crate) const QUIET_AFTER: Duration = Duration::from_secs(3);

/// A caller gives up a connection on which it has heard nothing for this time. Its calls may be made again on another one then.
pub(crate) const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// An owner ends a connection on which nothing arrived for this time: some pings. Requests that arrive later are not begun.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(6);

/// A caller that has sent nothing for this time stood still. It sends requests when the owner has answered a ping: the owner may have heard
/// nothing for too long, and would not carry them out.
pub(crate) const STANDSTILL_MAX: Duration = Duration::from_secs(5);

/// How long bytes are under way that nothing holds back.
const UNDER_WAY_MAX: Duration = Duration::from_secs(1);

// No request begins after its caller has given the connection up: the caller may have made the call again, and other changes after
// it. A caller that gives up only a call, say at its deadline, is not meant. Let the caller hear something at 0, and then nothing. It takes
// up no request after QUIET_AFTER, and gives up at GIVE_UP_AFTER. A request that the network holds back comes behind a gap, since bytes
// arrive in their order. The last byte before the gap was sent before the request, and was under way for UNDER_WAY_MAX. The request begins
// if the gap is shorter than SILENCE_MAX.
//
// This holds also if only one direction is cut, or one later than the other. A caller also makes its calls again when the owner has closed the
// connection, which carries nothing then. Not excluded is a network that holds back one part after another,
// each for a shorter time than SILENCE_MAX.
const _: () = assert!(
    QUIET_AFTER.as_millis() + UNDER_WAY_MAX.as_millis() + SILENCE_MAX.as_millis() <= GIVE_UP_AFTER.as_millis(),
    "a request that the owner begins arrives before its caller gives the connection up"
);
// Pings come on ticks of a second, so as much as this may separate them.
const _: () = assert!(
    PING_EVERY.as_millis() + 1_000 <= QUIET_AFTER.as_millis() && 2 * QUIET_AFTER.as_millis() <= SILENCE_MAX.as_millis(),
    "a connection without traffic has no gap that is nearly as long as one that ends it"
);
const _: () = assert!(
    STANDSTILL_MAX.as_millis() + UNDER_WAY_MAX.as_millis() <= SILENCE_MAX.as_millis(),
    "a caller knows that it stood still before its owner does"
);

/// Time in which a caller must take some of the output.
pub(crate) const OUTPUT_WAIT: Duration = Duration::from_secs(60);

/// Time that a stream waits for credit.
pub(crate) const CREDIT_WAIT: Duration = Duration::from_secs(60);

/// Time that a batch waits for memory.
pub(crate) const MEMORY_WAIT: Duration = Duration::from_secs(10);

/// Time that a drained connection without calls waits for the caller to close it.
pub(crate) const DRAIN_WAIT: Duration = Duration::from_secs(5);
