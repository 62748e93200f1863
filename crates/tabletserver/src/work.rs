//! Which tablets may need a flush or a compaction: what request paths and maintenance tell each other.
//!
//! Both are plain state with a wake-up. They decide nothing about files: [`crate::maintenance`] does, when it is woken.

mod flushes;
mod compactions;

pub(crate) use flushes::FlushDemand;
pub(crate) use compactions::Compactions;
