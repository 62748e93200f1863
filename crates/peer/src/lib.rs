//! The protocol between servers: tablets of another server, one hop away.
//!
//! Any server of a cluster answers any client. [`Dispatcher`] finds the owner of a tablet and calls it: its own tablets directly, and
//! those of others through [`RemoteTablets`]. [`PeerServer`] is the other end, over the [`TabletService`](stele_client::TabletService)
//! of its server. `docs/formats/peer-protocol.md` has the bytes, ADR 28 the reasons.
//!
//! Layers, from the bottom up: bytes (`cursor`, `segments`), bodies (`messages`, `rows`, `writes`, `filter_tree`), frames
//! (`frame`, `handshake`), both ends of a connection (`server`, `remote`), and the choice between them (`dispatch`).
#![forbid(unsafe_code)]

mod cells;
mod control;
mod credit;
mod cursor;
mod dispatch;
mod error;
mod filter_tree;
mod frame;
pub mod fuzzing;
mod handshake;
mod input;
mod limits;
mod messages;
mod origin;
mod output;
mod probe;
mod remote;
mod rows;
mod segments;
mod server;
mod steps;
mod traced;
mod worked;
mod writes;

pub use control::ControlService;
pub use dispatch::{Dispatcher, Owner, Owners};
pub use error::ProtocolError;
pub use frame::{Frame, FrameKind, HEAD_BYTES, Head};
pub use handshake::{ANSWER_BYTES, Answer, HELLO_BYTES, Hello, Identity, Refusal, VERSIONS};
pub use limits::FRAME_BYTES_MAX;
pub use origin::Origin;
pub use probe::{Probe, probe};
pub use remote::{LossWatch, Losses, Peer, RemoteOptions, RemoteTablets};
pub use server::{ConnectionError, PeerServer};

#[cfg(test)]
mod tests;
