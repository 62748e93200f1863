//! The LSM of one tablet: memtables, sstables, reads, flushes and compactions (Bigtable §5.3–5.4).
//!
//! Knows no network, no cluster and no commit log: callers apply batches in order, and the tablet reports up to which sequence
//! number its files hold everything. Start reading at [`Tablet`].
//!
//! Modules, from the bottom up; none imports one that comes later in this list:
//! * `error`, `schema_mark`, `progress` (counters of bytes moved), `metrics`, `readahead` (memory of scans).
//! * [`tokens`]: recent request tokens. [`batch`]: the encoding of mutations. [`manifest`]: the durable description of a tablet. [`values`]: value files.
//! * `files`: open files and their reference counts. `held`: references with their open files.
//! * `resolve`: versions, deletes, aggregates. `run`, `merge`: one ordered view over memtables and files.
//! * [`picker`], `statistics`: the decision what to compact. `compaction`: runs one job.
//! * `holders`: the holders of files besides tablets. `snapshot`: the manifests of a table at one moment, in storage.
//! * `misplaced`, `state`: the immutable state that readers hold. `summary`: the picker's input.
//! * `claims`, `detached`: bookkeeping of compactions and of waiting scans. `tablet`: sequence, apply, commit.
//! * `scan`: reads. `maintenance`: flush, compaction, migration, division. `description`: the content, for people.
#![forbid(unsafe_code)]

pub mod batch;
mod claims;
mod compaction;
mod description;
mod detached;
mod error;
mod file_header;
mod files;
mod held;
mod holders;
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
pub mod snapshot;
mod state;
mod statistics;
mod summary;
pub mod sweep;
mod tablet;
pub mod tokens;
pub mod values;

pub use batch::{Batch, BatchBuilder, WriteSize};
pub use description::{Description, FileDescription, GroupDescription, RunDescription};
pub use detached::Pinned;
pub use error::{Result, TabletError};
pub use file_header::FileKind;
pub use files::{FileRegistry, ImportJob, Ownership};
pub use holders::Holder;
pub use maintenance::{CellSource, Compacted, Loading, MajorBounds, MajorEnd, NewCells, NewRuns, SpaceLimit};
pub use manifest::{FileRef, Manifest, ManifestLog, StoredFile};
pub use metrics::TabletMetrics;
pub use progress::{Moved, MovedBytes};
pub use scan::{PointRead, Sampled, ScanSpec, TabletScanner};
pub use schema_mark::SchemaMark;
pub use stele_memtable::MemoryAccount;
pub use tablet::{Tablet, TabletContext, WriteLoad};
pub use tokens::{Answer, Seen, TokenMemory, TokenRecord};

#[cfg(test)]
mod tests;
