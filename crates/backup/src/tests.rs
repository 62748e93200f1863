//! Backups of whole servers, in memory.

mod cluster;
mod crashes;
mod deletion;
mod digests;
mod life;
mod node;
mod point_in_time;
mod round_trip;
mod state;
mod stopping;
mod taking_over;
mod two_writers;
mod unlinked;
