//! Coordination is a small, durable, serialised map of keys, with sessions, elections and watches.
//!
//! Terms:
//! * a *revision* numbers the transactions that wrote something; it only grows;
//! * the *version* of a key is the revision that wrote it last;
//! * a *session* is a lease: it ends when revoked or not kept alive for its time to live, and the keys *bound* to it
//!   vanish with it;
//! * an *election* is a bound key that all candidates try to create ([`election::campaign`]).
//!
//! It stands where Bigtable has Chubby (Bigtable §4). Small durable state that several servers decide on lives here: the
//! catalog, epochs, the election of a master. Nothing large does: see [`limits`].
//!
//! Backends: [`embedded`], one process over [`stele_storage::Storage`]; the crate `stele-etcd`, many processes over etcd.
//! [`conformance`] is one suite over all backends.
#![forbid(unsafe_code)]

pub mod conformance;
mod coord;
pub mod election;
pub mod embedded;
pub mod epoch;
pub mod error;
pub mod format;
mod layer;
pub mod limits;
pub mod session;
mod session_id;
mod txn;
pub mod watch;

pub use coord::Coord;
pub use election::{Leadership, campaign};
pub use embedded::EmbeddedCoord;
pub use epoch::{next_epoch, next_epoch_above};
pub use error::{CoordError, Result};
pub use layer::Layer;
pub use limits::{KEY_BYTES_MAX, SESSIONS_MAX, STATE_BYTES_MAX, TXN_BYTES_MAX, TXN_OPS_MAX, WATCHES_MAX};
pub use session::{Session, SessionId};
pub use txn::{Condition, Expected, Txn, TxnOutcome, Versioned, Write};
pub use watch::{Watch, WatchEvent};
