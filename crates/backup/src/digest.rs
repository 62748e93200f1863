//! The digest of the rows of a table, as a client reads them.
//!
//! It is SHA-256 over all cells in scan order. Each cell contributes row, family, qualifier and value, each preceded by its length
//! as four big-endian bytes. `stele-bench digest` computes the same of a table that a server serves.
//!
//! The tablets of a snapshot are opened over its files, in the data root or at the destination, without a server of them. Nothing
//! is written to either. Their clock stands still at the moment at which the snapshot was complete. So a rule for the age of cells
//! hides the same cells whenever the digest is computed.

use crate::destination::{Destination, damaged};
use crate::error::{BackupError, Result};
use crate::format::{ListedFile, TableOf};
use crate::paths;
use crate::work::Work;
use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use stele_env::metrics::Metrics;
use stele_sstable::Cache;
use stele_storage::memory::MemoryStorage;
use stele_storage::{AppendFile, FileInfo, ReadFile, Storage, StorageError};
use stele_tablet::{
    FileRegistry, Manifest, MemoryAccount, ScanSpec, StoredFile, Tablet, TabletContext, TabletMetrics, TabletScanner,
    TokenMemory,
};
use stele_types::{RowBatch, RowSet, TableSchema};

/// Blocks that a scan reads again: those of indexes.
const CACHE_BYTES: usize = 8 << 20;

/// Rows, cells and digest of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableDigest {
    pub(crate) rows: u64,
    pub(crate) cells: u64,
    pub(crate) sha256: Vec<u8>,
}

impl TableDigest {
    /// The digest that was noted when the backup was made, if any was.
    pub(crate) fn noted(table: &TableOf) -> Option<TableDigest> {
        (!table.sha256.is_empty()).then(|| TableDigest {
            rows: table.rows,
            cells: table.cells,
            sha256: table.sha256.clone(),
        })
    }
}

impl std::fmt::Display for TableDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rows {} cells {} sha256 ", self.rows, self.cells)?;
        self.sha256.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A digest in the making: tablets are added in row order.
pub(crate) struct Digesting {
    work: Arc<Work>,
    files: Arc<Files>,
    schema: Arc<TableSchema>,
    /// At which the clock of the tablets stands.
    wall_micros: i64,
    rows: u64,
    cells: u64,
    sha256: Sha256,
}

impl Digesting {
    /// Of a table whose snapshot was complete at that time, over the files of a data root.
    pub(crate) fn of_root(
        work: &Arc<Work>,
        root: &Arc<dyn Storage>,
        schema: Arc<TableSchema>,
        wall_micros: i64,
    ) -> Digesting {
        Digesting::over(work, Files::of_root(root), schema, wall_micros)
    }

    /// The same over the files of a backup.
    pub(crate) fn of_backup(
        work: &Arc<Work>,
        destination: &Destination,
        listed: &Arc<BTreeMap<StoredFile, ListedFile>>,
        schema: Arc<TableSchema>,
        wall_micros: i64,
    ) -> Digesting {
        Digesting::over(work, Files::of_backup(destination, listed), schema, wall_micros)
    }

    fn over(work: &Arc<Work>, files: Files, schema: Arc<TableSchema>, wall_micros: i64) -> Digesting {
        Digesting {
            work: work.clone(),
            files: Arc::new(files),
            schema,
            wall_micros,
            rows: 0,
            cells: 0,
            sha256: Sha256::new(),
        }
    }

    /// Adds the rows of the next tablet.
    pub(crate) async fn add(&mut self, manifest: Manifest) -> Result<()> {
        let storage: Arc<dyn Storage> = self.files.clone();
        let cache = Arc::new(Cache::new(CACHE_BYTES));
        let context = TabletContext {
            env: self.work.env().clone().with_wall_clock_at(self.wall_micros),
            storage: storage.clone(),
            files: Arc::new(FileRegistry::new(storage, cache, manifest.epoch)),
            memory: MemoryAccount::default(),
            metrics: TabletMetrics::new(&Metrics::new()),
            tokens: TokenMemory::default(),
        };
        let manifest = Manifest {
            request_tokens: None,
            ..manifest
        };
        let tablet = Tablet::create(context, self.schema.clone(), manifest).await?;
        let read = self.read(&tablet).await;
        tablet.close();
        self.files.forget().await;
        read
    }

    async fn read(&mut self, tablet: &Arc<Tablet>) -> Result<()> {
        let all = ScanSpec {
            rows: RowSet::all(),
            filter: None,
            reversed: false,
            raw: false,
            rows_limit: None,
        };
        let mut scan = TabletScanner::new(tablet.clone(), all);
        while let Some(batch) = scan.next_batch().await? {
            let bytes = self.note(&batch)?;
            self.work.moved(bytes, false).await?;
        }
        Ok(())
    }

    /// Bytes of the batch.
    fn note(&mut self, batch: &RowBatch) -> Result<u64> {
        let mut bytes = 0;
        for (row, cells) in batch.shared_rows() {
            self.rows += 1;
            for cell in cells {
                let family = self.schema.families.get(&cell.family);
                let family = family.map(|family| family.name.as_bytes()).unwrap_or_default();
                self.cells += 1;
                for part in [&row[..], family, &cell.qualifier[..], &cell.value[..]] {
                    let len = u32::try_from(part.len())
                        .map_err(|_| BackupError::TooMuch("a part of a cell has 4 GiB or more".to_owned()))?;
                    self.sha256.update(len.to_be_bytes());
                    self.sha256.update(part);
                    bytes += u64::from(len);
                }
            }
        }
        Ok(bytes)
    }

    /// After the last tablet.
    pub(crate) fn finish(self) -> TableDigest {
        TableDigest {
            rows: self.rows,
            cells: self.cells,
            sha256: self.sha256.finalize().to_vec(),
        }
    }
}

/// Files as tablets name them, read only. Manifests that tablets make of themselves are kept in memory.
struct Files {
    below: Arc<dyn Storage>,
    /// Where files are at a destination; in a data root they are under their own paths.
    listed: Option<Arc<BTreeMap<StoredFile, ListedFile>>>,
    manifests: Arc<MemoryStorage>,
}

impl Files {
    fn of_root(root: &Arc<dyn Storage>) -> Files {
        Files {
            below: root.clone(),
            listed: None,
            manifests: MemoryStorage::new(),
        }
    }

    fn of_backup(destination: &Destination, listed: &Arc<BTreeMap<StoredFile, ListedFile>>) -> Files {
        Files {
            below: destination.storage().clone(),
            listed: Some(listed.clone()),
            manifests: MemoryStorage::new(),
        }
    }

    /// The path below of a file; `None` for a manifest in memory.
    fn below(&self, path: &str) -> stele_storage::Result<Option<String>> {
        let (Some(file), Some(listed)) = (StoredFile::parse_path(path), &self.listed) else {
            return Ok(StoredFile::parse_path(path).map(|file| file.path()));
        };
        match listed.get(&file) {
            Some(listed) => Ok(Some(paths::file(listed.copied_by, file))),
            None => Err(StorageError::NotFound { path: path.to_owned() }),
        }
    }

    /// Forgets the manifest of a tablet that is closed.
    async fn forget(&self) {
        if let Ok(left) = self.manifests.list("").await {
            for file in left {
                let _ = self.manifests.delete(&file.path).await;
            }
        }
    }
}

#[async_trait]
impl Storage for Files {
    async fn create(&self, path: &str) -> stele_storage::Result<Box<dyn AppendFile>> {
        Err(StorageError::Io {
            path: path.to_owned(),
            operation: "create",
            message: "the files of a backup are read only".to_owned(),
        })
    }

    async fn open(&self, path: &str) -> stele_storage::Result<Arc<dyn ReadFile>> {
        match self.below(path)? {
            Some(path) => self.below.open(&path).await,
            None => self.manifests.open(path).await,
        }
    }

    async fn open_known(&self, path: &str, len: u64, first: Range<u64>) -> stele_storage::Result<Arc<dyn ReadFile>> {
        match self.below(path)? {
            Some(path) => self.below.open_known(&path, len, first).await,
            None => self.manifests.open_known(path, len, first).await,
        }
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> stele_storage::Result<()> {
        self.manifests.put_if_absent(path, content).await
    }

    async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<FileInfo>> {
        self.manifests.list(prefix).await
    }

    async fn delete(&self, path: &str) -> stele_storage::Result<()> {
        self.manifests.delete(path).await
    }

    async fn sync_file(&self, path: &str) -> stele_storage::Result<()> {
        self.manifests.sync_file(path).await
    }

    async fn free_bytes(&self) -> stele_storage::Result<Option<u64>> {
        Ok(None)
    }
}

/// Damage: the rows of a table are not those that were backed up.
pub(crate) fn differs(path: &str, table: &TableSchema, noted: &TableDigest, found: &TableDigest) -> BackupError {
    let detail = format!(
        "table {} has other rows than were backed up: {found}, noted {noted}",
        table.name
    );
    damaged(path, detail)
}
