//! Frequent code paths, run so that their instructions can be counted.
//!
//! There is one thread, no disk, and no timer that matters. Run under callgrind with two numbers of operations: the
//! difference is the cost of the operations themselves, without start and loading. The count repeats to within a
//! fraction of a percent, on a busy machine too, which no wall time does.

use crate::data::{self, Values};
use crate::stele::{self, SteleOptions, TABLET};
use anyhow::{anyhow, bail, ensure};
use std::str::FromStr;
use std::sync::Arc;
use stele_client::TabletService;
use stele_env::tokio_env::TokioRuntime;
use stele_storage::memory::MemoryStorage;
use stele_tabletserver::TabletServer;
use stele_types::{Compression, Durability};

/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// Rows that reads find: some hundred blocks.
const ROWS: u64 = 50_000;
/// Rows of a batch.
const BATCH: u64 = 1000;
/// Keys of a list.
const LIST: u64 = 100;
/// Enough that nothing is flushed or evicted meanwhile.
const MEMORY: u64 = 4 << 30;

/// The path that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotPath {
    /// A row written by itself.
    Put,
    /// A row written in a batch of a thousand.
    PutBatch,
    /// A row found in a cached block.
    Get,
    /// A row found in the row cache.
    GetKept,
    /// A row of a list of a hundred keys.
    MultiGet,
    /// A row that is not there.
    GetAbsent,
    /// A row of a scan over cached blocks, in batches as requests have it.
    ScanServed,
    /// The same backward.
    ScanServedReverse,
}

impl FromStr for HotPath {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        Ok(match name {
            "put" => HotPath::Put,
            "put-batch" => HotPath::PutBatch,
            "get" => HotPath::Get,
            "get-kept" => HotPath::GetKept,
            "multi-get" => HotPath::MultiGet,
            "get-absent" => HotPath::GetAbsent,
            "scan-served" => HotPath::ScanServed,
            "scan-served-reverse" => HotPath::ScanServedReverse,
            _ => bail!(
                "{name:?} is none of put, put-batch, get, get-kept, multi-get, get-absent, scan-served, scan-served-reverse"
            ),
        })
    }
}

/// Does `operations` operations (rows) of a path.
pub fn run(path: HotPath, operations: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let options = SteleOptions {
            memory: MEMORY,
            compression: Compression::Snappy,
            // It would answer most of the reads.
            row_cache: path == HotPath::GetKept,
            fixed: None,
        };
        let server = stele::start(TokioRuntime::current(), MemoryStorage::new(), options).await?;
        match path {
            HotPath::Put => write(&server, operations, 1).await,
            HotPath::PutBatch => write(&server, operations, BATCH).await,
            HotPath::Get
            | HotPath::GetKept
            | HotPath::MultiGet
            | HotPath::GetAbsent
            | HotPath::ScanServed
            | HotPath::ScanServedReverse => {
                write(&server, ROWS, BATCH).await?;
                for served in server.all_served() {
                    served.tablet.compact_all().await?;
                }
                // Once before, so that blocks are cached for every counted path.
                stele::scan(&server, false).await?;
                if path == HotPath::GetKept {
                    for number in 0..ROWS {
                        stele::value(&server, &data::key(number), <[u8]>::len).await?;
                    }
                }
                read(&server, path, operations).await
            }
        }
    })
}

async fn write(server: &Arc<TabletServer>, rows: u64, batch: u64) -> anyhow::Result<()> {
    let mut values = Values::new(VALUE_BYTES);
    let mut done = 0;
    while done < rows {
        let end = (done + batch).min(rows);
        let owned: Vec<Vec<u8>> = (done..end).map(|_| values.next().to_vec()).collect();
        let rows: Vec<_> = (done..end).map(data::key).zip(owned.iter().map(|v| &v[..])).collect();
        let written = server
            .mutate(TABLET, stele::writes(&rows)?, Some(Durability::Flush))
            .await;
        written.map_err(|e| anyhow!("{e}"))?;
        done = end;
    }
    Ok(())
}

async fn read(server: &Arc<TabletServer>, path: HotPath, operations: u64) -> anyhow::Result<()> {
    if matches!(path, HotPath::ScanServed | HotPath::ScanServedReverse) {
        let mut done = 0;
        while done < operations {
            done += stele::scan(server, path == HotPath::ScanServedReverse).await?.0;
        }
        return Ok(());
    }
    let mut random = data::generator(7);
    if path == HotPath::MultiGet {
        for _ in 0..operations / LIST {
            let mut keys: Vec<_> = (0..LIST).map(|_| data::key(data::below(&mut random, ROWS))).collect();
            keys.sort_unstable();
            keys.dedup();
            let (found, _) = stele::list(server, &keys).await?;
            ensure!(found == keys.len() as u64, "found {found} of {} rows", keys.len());
        }
        return Ok(());
    }
    for _ in 0..operations {
        let absent = path == HotPath::GetAbsent;
        let number = data::below(&mut random, ROWS) + if absent { ROWS } else { 0 };
        let found = stele::value(server, &data::key(number), <[u8]>::len).await?;
        ensure!(found.is_none() == absent, "row {number}: found {found:?}");
    }
    Ok(())
}
