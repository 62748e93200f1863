//! Tablets that may need a flush or compaction, announced by request paths and maintenance.
//!
//! Both are plain state with a wake-up. They decide nothing about files: [`crate::maintenance`] does, when it is woken.

mod compactions;
mod flushes;

pub(crate) use compactions::Compactions;
pub(crate) use flushes::{FlushDemand, HeldFlushes};
