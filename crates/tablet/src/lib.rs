//! The LSM of one tablet.
pub mod batch;
pub mod memtable;
