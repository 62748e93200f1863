//! Which tablets may need a flush or a compaction: what request paths and maintenance tell each other.
//!
//! Both are plain state with a wake-up. They decide nothing about files: [`crate::maintenance`] does, when it is woken.

mod compactions;
mod flushes;

pub(crate) use compactions::Compactions;
pub(crate) use flushes::FlushDemand;
