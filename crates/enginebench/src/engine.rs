//! The operations that a workload requires of an engine.

use crate::data::KEY_BYTES;
use std::time::Duration;

/// The reason for which an operation waited, and for how long.
pub type Wait = (&'static str, Duration);

/// A row's key and value in a batch.
pub type Row<'a> = ([u8; KEY_BYTES], &'a [u8]);

/// One engine over one folder. Failures of the storage end the benchmark.
pub trait Engine: Sync {
    /// Writes one row; returns when the log has it, synced if `sync`.
    fn put(&self, key: &[u8; KEY_BYTES], value: &[u8], sync: bool) -> anyhow::Result<()>;

    /// Writes rows as one batch, log not synced.
    fn put_batch(&self, rows: &[Row<'_>]) -> anyhow::Result<()>;

    /// Bytes of the row's value, all of which were in memory; `None` when there is no row.
    fn get(&self, key: &[u8; KEY_BYTES]) -> anyhow::Result<Option<usize>>;

    /// The row's value itself, read in the same way.
    fn value(&self, key: &[u8; KEY_BYTES]) -> anyhow::Result<Option<Vec<u8>>>;

    /// How many of these rows there are, and bytes of their values, all of which were in memory. The keys ascend.
    fn get_list(&self, keys: &[[u8; KEY_BYTES]]) -> anyhow::Result<(u64, u64)>;

    /// Rows, and bytes of their values, of a scan over everything: in batches of cells, as requests are served.
    fn scan(&self, reversed: bool) -> anyhow::Result<(u64, u64)>;

    /// Flushes the memtables and waits until no compaction is due.
    fn settle(&self) -> anyhow::Result<()>;

    /// After `settle`: waits until that is done, too, which the engine leaves for a time without writes.
    fn rest(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Rewrites all files into one run.
    fn compact(&self) -> anyhow::Result<()>;

    /// The longest wait of writes for each cause since the last call, the longest first; nothing where the engine does not say.
    fn take_waits(&self) -> Vec<Wait> {
        Vec::new()
    }

    /// Runs `work`, which calls the engine, on this thread.
    fn on_this_thread(&self, work: &mut dyn FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
        work()
    }
}
