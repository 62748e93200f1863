//! The LSM of one tablet: memtables, sstables, reads over both, flushes and compactions (Bigtable §5.3–5.4).
//!
//! Knows no network, no cluster and no commit log: a tablet is told what to apply, in order, and says up to which sequence
//! number its files hold everything. Start reading at [`tablet::Tablet`].
#![forbid(unsafe_code)]

pub mod batch;
mod claims;
mod compaction;
mod detached;
mod error;
mod files;
mod held;
mod maintenance;
pub mod manifest;
mod merging;
mod metrics;
mod misplaced;
pub mod picker;
mod progress;
mod readahead;
mod resolve;
mod run;
mod scan;
mod schema_mark;
mod state;
mod statistics;
mod summary;
mod tablet;
pub mod values;

pub use batch::{Batch, BatchBuilder, WriteSize};
pub use detached::Pinned;
pub use error::{Result, TabletError};
pub use files::FileRegistry;
pub use maintenance::{Compacted, SpaceLimit};
pub use manifest::{FileRef, Manifest, StoredFile};
pub use metrics::TabletMetrics;
pub use progress::{Moved, MovedBytes};
pub use scan::{PointRead, Sampled, ScanSpec, TabletScanner};
pub use schema_mark::SchemaMark;
pub use stele_memtable::MemoryAccount;
pub use tablet::{Tablet, TabletContext, WriteLoad};

#[cfg(test)]
mod tests;
