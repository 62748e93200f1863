//! The program's commands.
//!
//! Each returns whether it found everything in order. An error means that it could not be carried out.

pub mod digest;
pub mod list;
pub mod null_server;
pub mod report;
pub mod run;
pub mod summary;
pub mod verify;
pub mod worker;
