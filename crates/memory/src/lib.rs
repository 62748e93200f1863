//! The one memory pool of a server.
//!
//! Terms: a *consumer* is a part of the server that takes memory, with a share of the budget ([`Part`]). A *reservation* is
//! memory that a consumer may take until the reservation is dropped. The *overdraft* lets one request at a time exceed its
//! consumer's limit, because a single value may be larger than any share. To *reclaim* is to take memory back from a
//! holder that makes no progress.
//!
//! Invariants:
//! * The bytes of all reservations of a consumer never exceed its limit, except for a reservation with the overdraft, and
//!   for requests that are being refused.
//! * At most one reservation in the whole pool has the overdraft.
//! * A caller that waits holds no reservation of the consumer that it waits for ([`Consumer::reserve`] takes none). A bulk
//!   load, which holds blocks of its files, does not wait here: it tries again for some seconds.
//! * Waiters of a consumer are served in order of arrival, except for those that [`shares`] lets leave the queue.
//!
//! Caches and memtables are not reserved piece by piece. The governor divides the rest of the budget among them, and
//! [`Pool::on_change`] tells it when reservations grow.
#![forbid(unsafe_code)]

pub mod bounds;
mod consumer;
mod overdraft;
mod pool;
mod queue;
pub mod shares;

pub use consumer::{Consumer, Exhausted, Reservation};
pub use overdraft::OverdraftPermit;
pub use pool::{Listener, Pool, Reclaim, Usage};
pub use shares::{OVERDRAFT_BYTES, Part, Share};
