//! The LSM of one tablet: memtables, sstables, reads over both, flushes and compactions (Bigtable §5.3–5.4).
//!
//! Knows no network, no cluster and no commit log: a tablet is told what to apply, in order, and says up to which sequence
//! number its files hold everything. Start reading at [`tablet::Tablet`].
#![forbid(unsafe_code)]

pub mod batch;
pub mod compaction;
pub mod error;
pub mod files;
mod held;
pub mod maintenance;
pub mod manifest;
pub mod merging;
pub mod metrics;
mod misplaced;
pub mod picker;
mod progress;
mod readahead;
pub mod resolve;
pub mod run;
pub mod scan;
mod schema_mark;
pub mod state;
mod statistics;
pub mod tablet;
pub mod values;

pub use batch::{Batch, BatchBuilder, WriteSize};
pub use error::{Result, TabletError};
pub use files::FileRegistry;
pub use maintenance::{Compacted, SpaceLimit};
pub use manifest::{FileRef, Manifest, StoredFile};
pub use metrics::TabletMetrics;
pub use progress::{Moved, MovedBytes};
pub use scan::{Pinned, PointRead, Sampled, ScanSpec, TabletScanner};
pub use schema_mark::SchemaMark;
pub use stele_memtable::MemoryAccount;
pub use tablet::{Tablet, TabletContext, WriteLoad};

#[cfg(test)]
mod tests;
