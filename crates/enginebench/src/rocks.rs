//! RocksDB as the rival: its defaults, except settings made equal to the engine's.
//!
//! Equal are the budget, compression, filter bits and background threads (one per core), with the log on and not synced
//! unless requested. Memtables may take two fifths of the budget (a quarter of that in each of four), and blocks all
//! memory that memtables do not take. Everything else is RocksDB's default: leveled compaction with dynamic level
//! sizes, and 4 KiB blocks. Indexes and filters are held by open files, in addition to the budget.

use crate::data::KEY_BYTES;
use crate::engine::{Engine, Row};
use anyhow::Context;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompressionType, DEFAULT_COLUMN_FAMILY_NAME, FlushOptions,
    Options, ReadOptions, WaitForCompactOptions, WriteBatch, WriteBufferManager, WriteOptions,
};
use std::path::Path;
use stele_tabletserver::ServerOptions;

/// RocksDB's default: bits per key of the filter that the engine under test has too.
const FILTER_BITS: f64 = 10.0;
/// Memtables that share the budget.
const MEMTABLES: u64 = 4;
/// Sixteenths of the budget that memtables and blocks share: the most that Stele's governor leaves its blocks.
const SHARED_PART: u64 = 15;

/// The rival over one folder.
pub struct RocksEngine {
    db: DB,
    // Made once, as programs do that are in a hurry: to make and destroy some for every call is work of the binding's alone.
    reads: ReadOptions,
    writes: WriteOptions,
    synced_writes: WriteOptions,
}

impl RocksEngine {
    /// A new database in an empty folder. If urgent, it does not compress flushed files. With fixed memory, blocks have
    /// no more than two fifths of it, however much memtables take.
    pub fn open(folder: &Path, memory: u64, urgently: bool, fixed_memory: bool) -> anyhow::Result<Self> {
        let memtables = ServerOptions::for_memory(memory).memtables.bytes_max();
        let cache = Cache::new_lru_cache(match fixed_memory {
            true => ServerOptions::block_cache_bytes(memory),
            false => usize::try_from(memory / 16 * SHARED_PART)?,
        });
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_bloom_filter(FILTER_BITS, false);
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::Snappy);
        if urgently {
            // By level; the last holds for all below it.
            options.set_compression_per_level(&[DBCompressionType::None, DBCompressionType::Snappy]);
        }
        options.set_block_based_table_factory(&table);
        if !fixed_memory {
            // The cache gives up the memory that memtables take. Writers wait by the rules for memtables, as without
            // it.
            let manager =
                WriteBufferManager::new_write_buffer_manager_with_cache(usize::try_from(memtables)?, false, cache);
            options.set_write_buffer_manager(&manager);
        }
        options.set_write_buffer_size(usize::try_from(memtables / MEMTABLES)?);
        options.set_max_write_buffer_number(i32::try_from(MEMTABLES)?);
        options.set_max_background_jobs(i32::try_from(cores)?);
        let all = ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, options.clone());
        let mut synced_writes = WriteOptions::default();
        synced_writes.set_sync(true);
        Ok(RocksEngine {
            db: DB::open_cf_descriptors(&options, folder, [all])?,
            reads: ReadOptions::default(),
            writes: WriteOptions::default(),
            synced_writes,
        })
    }
}

impl Engine for RocksEngine {
    fn put(&self, key: &[u8; KEY_BYTES], value: &[u8], sync: bool) -> anyhow::Result<()> {
        let options = if sync { &self.synced_writes } else { &self.writes };
        Ok(self.db.put_opt(key, value, options)?)
    }

    fn put_batch(&self, rows: &[Row<'_>]) -> anyhow::Result<()> {
        let mut batch = WriteBatch::default();
        rows.iter().for_each(|(key, value)| batch.put(key, value));
        Ok(self.db.write_opt(batch, &self.writes)?)
    }

    fn get(&self, key: &[u8; KEY_BYTES]) -> anyhow::Result<Option<usize>> {
        Ok(self.db.get_pinned_opt(key, &self.reads)?.map(|value| value.len()))
    }

    fn value(&self, key: &[u8; KEY_BYTES]) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(self.db.get_pinned_opt(key, &self.reads)?.map(|value| value.to_vec()))
    }

    fn get_list(&self, keys: &[[u8; KEY_BYTES]]) -> anyhow::Result<(u64, u64)> {
        let all = self.db.cf_handle(DEFAULT_COLUMN_FAMILY_NAME);
        let all = all.context("the database has no rows at all")?;
        let (mut rows, mut bytes) = (0, 0);
        for value in self.db.batched_multi_get_cf_opt(all, keys, true, &self.reads) {
            if let Some(value) = value? {
                rows += 1;
                bytes += value.len() as u64;
            }
        }
        Ok((rows, bytes))
    }

    fn scan(&self, reversed: bool) -> anyhow::Result<(u64, u64)> {
        let mut options = ReadOptions::default();
        options.set_verify_checksums(true);
        let mut rows = self.db.raw_iterator_opt(options);
        if reversed {
            rows.seek_to_last();
        } else {
            rows.seek_to_first();
        }
        let (mut count, mut bytes) = (0, 0);
        while let Some((_, value)) = rows.item() {
            count += 1;
            bytes += value.len() as u64;
            if reversed {
                rows.prev();
            } else {
                rows.next();
            }
        }
        rows.status()?;
        Ok((count, bytes))
    }

    fn settle(&self) -> anyhow::Result<()> {
        let mut flush = FlushOptions::default();
        flush.set_wait(true);
        self.db.flush_opt(&flush)?;
        Ok(self.db.wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn compact(&self) -> anyhow::Result<()> {
        self.settle()?;
        self.db.compact_range::<&[u8], &[u8]>(None, None);
        self.settle()
    }
}
