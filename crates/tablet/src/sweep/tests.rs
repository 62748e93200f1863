use super::*;
use crate::files::{FileRegistry, Ownership};
use crate::manifest::Manifest;
use crate::metrics::TabletMetrics;
use crate::tablet::{Tablet, TabletContext};
use crate::tests::{put, schema, write_row};
use bytes::Bytes;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_memtable::MemoryAccount;
use stele_sstable::Cache;
use stele_storage::memory::MemoryStorage;
use stele_types::{DeleteRule, FileId};

const GRACE: Duration = Duration::from_secs(60);
const OLD: Duration = Duration::from_secs(61);

/// One of the servers that share a data root.
struct Server {
    id: ServerId,
    context: TabletContext,
}

impl Server {
    fn new(storage: &Arc<dyn Storage>, id: u32) -> Server {
        let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), id).with_ownership(Ownership::Shared);
        Server {
            id: ServerId(id),
            context: TabletContext {
                env: TokioRuntime::current(),
                storage: storage.clone(),
                files: Arc::new(files),
                memory: MemoryAccount::default(),
                metrics: TabletMetrics::new(&Metrics::new()),
                tokens: crate::TokenMemory::default(),
            },
        }
    }

    async fn create(&self, tablet: u64, epoch: u32) -> Arc<Tablet> {
        let manifest = Manifest {
            tablet,
            table: 1,
            epoch,
            ..Manifest::default()
        };
        self.create_over(manifest).await
    }

    async fn create_over(&self, manifest: Manifest) -> Arc<Tablet> {
        let schema = schema(DeleteRule::BySequence, None);
        Tablet::create(self.context.clone(), schema, manifest).await.unwrap()
    }

    async fn open(&self, tablet: u64, epoch: u32) -> Result<Arc<Tablet>> {
        let schema = schema(DeleteRule::BySequence, None);
        Tablet::open(self.context.clone(), schema, TabletId(tablet), Epoch(epoch)).await
    }
}

/// A leader of these words, with snapshots of one part.
struct Known(Knowledge, Vec<u64>);

#[async_trait]
impl Leader for Known {
    async fn knowledge(&self) -> Result<Knowledge> {
        Ok(self.0.clone())
    }

    async fn snapshots(&self) -> Result<BTreeMap<SnapshotId, u32>> {
        Ok(self.1.iter().map(|id| (SnapshotId(*id), 1)).collect())
    }

    async fn confirm(&self) -> Result<()> {
        Ok(())
    }
}

/// The knowledge of a master with these servers and tablets.
fn knowledge(servers: &[&Server], tablets: &[(u64, u32)]) -> Knowledge {
    Knowledge {
        servers: servers
            .iter()
            .map(|server| (server.id, server.context.files.in_use()))
            .collect(),
        next_server: ServerId(100),
        tablets: tablets
            .iter()
            .map(|(tablet, epoch)| (TabletId(*tablet), named(*epoch, RowRange::all())))
            .collect(),
        coming: BTreeSet::new(),
    }
}

fn named(epoch: u32, range: RowRange) -> NamedTablet {
    NamedTablet {
        epoch: Epoch(epoch),
        range,
    }
}

fn swept(files: usize) -> Round {
    Round::Swept {
        files,
        manifests: 0,
        parts: 0,
    }
}

async fn files(storage: &Arc<dyn Storage>) -> Vec<String> {
    let files = storage.list("sst/").await.unwrap();
    files.into_iter().map(|file| file.path).collect()
}

async fn write_and_flush(tablet: &Tablet, rows: &[&'static str]) {
    for row in rows {
        write_row(tablet, Bytes::from_static(row.as_bytes()), vec![put(1, "v")]);
    }
    tablet.flush().await.unwrap();
}

/// Both halves refer to the file of their parent, each on a server of its own.
#[tokio::test]
async fn a_file_stays_as_long_as_a_half_on_another_server_needs_it() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let (one, two) = (Server::new(&storage, 1), Server::new(&storage, 2));
    let parent = one.create(1, 1).await;
    write_and_flush(&parent, &["a", "m", "z"]).await;
    let stopped = parent.stop_compactions().await;
    let (left, right) = parent
        .divide(&Bytes::from_static(b"m"), TabletId(2), TabletId(3))
        .await
        .unwrap();
    let (left, right) = (one.create_over(left).await, one.create_over(right).await);
    drop(stopped);
    parent.close();
    parent.release_files().await;
    for file in storage.list("tablets/0000000000000001/").await.unwrap() {
        storage.delete(&file.path).await.unwrap();
    }
    let stopped = right.stop_compactions().await;
    right.hand_over(&stopped).await.unwrap();
    drop(stopped);
    // Readers of a tablet hold its files, also when it is closed.
    drop((parent, right));
    let moved = two.open(3, 5).await.unwrap();

    // One server rewrites its half, and gives up the parent's file.
    let parents = files(&storage).await;
    write_and_flush(&left, &["b"]).await;
    left.compact_all().await.unwrap();
    one.context.files.delete_obsolete().await.unwrap();
    assert!(
        files(&storage).await.contains(&parents[0]),
        "a server deletes no file that was committed"
    );
    let tablets = [(2, 1), (3, 5)];
    let mut sweep = Sweep::new(GRACE);
    for now in [Duration::ZERO, OLD] {
        let known = Known(knowledge(&[&one, &two], &tablets), Vec::new());
        sweep.round(&storage, now, &known).await.unwrap();
    }
    assert!(files(&storage).await.contains(&parents[0]), "the other half needs it");

    write_and_flush(&moved, &["n"]).await;
    moved.compact_all().await.unwrap();
    two.context.files.delete_obsolete().await.unwrap();
    let known = || Known(knowledge(&[&one, &two], &tablets), Vec::new());
    sweep.round(&storage, OLD, &known()).await.unwrap();
    assert!(files(&storage).await.contains(&parents[0]), "within the grace period");
    sweep.round(&storage, OLD + GRACE, &known()).await.unwrap();
    assert!(!files(&storage).await.contains(&parents[0]));
    let mut needed = BTreeSet::new();
    for tablet in [&left, &moved] {
        needed.extend(tablet.manifest().await.stored().map(StoredFile::path));
    }
    assert_eq!(needed, files(&storage).await.into_iter().collect());
}

/// Its file is written and no manifest names it yet: the job may take longer than any grace period.
#[tokio::test]
async fn the_files_of_a_running_job_stay() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let server = Server::new(&storage, 1);
    let job = server.context.files.begin_job();
    let made = StoredFile::Sstable(server.context.files.allocate());
    storage.put_if_absent(&made.path(), Bytes::new()).await.unwrap();
    // Of a server that began after the knowledge was gathered.
    let younger = StoredFile::Sstable(FileId::new(100, 1)).path();
    storage.put_if_absent(&younger, Bytes::new()).await.unwrap();
    let mut sweep = Sweep::new(Duration::ZERO);
    let known = || Known(knowledge(&[&server], &[]), Vec::new());
    assert_eq!(sweep.round(&storage, OLD, &known()).await.unwrap(), swept(0));
    drop(job);
    assert_eq!(sweep.round(&storage, OLD, &known()).await.unwrap(), swept(1));
    assert_eq!(files(&storage).await, [younger]);
}

/// It may be a new tablet over files of another, whose manifest was read before it lost them.
#[tokio::test]
async fn a_round_in_which_tablets_come_or_go_is_void() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let server = Server::new(&storage, 1);
    storage
        .put_if_absent(&StoredFile::Sstable(FileId::new(1, 0)).path(), Bytes::new())
        .await
        .unwrap();
    let tablet = server.create(1, 1).await;
    let mut sweep = Sweep::new(Duration::ZERO);
    // The present owner has an assignment under an epoch that it has not claimed.
    let known = Known(knowledge(&[&server], &[(1, 2)]), Vec::new());
    let round = sweep.round(&storage, OLD, &known).await.unwrap();
    assert_eq!(round, Round::Unclaimed(TabletId(1)));
    let gone = Known(knowledge(&[&server], &[(1, 1), (2, 1)]), Vec::new());
    let round = sweep.round(&storage, OLD, &gone).await.unwrap();
    assert_eq!(round, Round::Unclaimed(TabletId(2)));
    drop(tablet);
    let storage = Changing::over(storage);
    let known = Known(knowledge(&[&server], &[(1, 1)]), Vec::new());
    let round = sweep.round(&storage, OLD, &known).await.unwrap();
    assert_eq!(round, Round::TabletsChanged);
    assert_eq!(files(&storage).await.len(), 1);
}

/// A leader under which tablets change when it is asked for snapshots for the first time.
struct Busy {
    known: Knowledge,
    storage: Arc<dyn Storage>,
    asked: std::sync::atomic::AtomicU64,
    made: Manifest,
    removed: TabletId,
}

#[async_trait]
impl Leader for Busy {
    async fn knowledge(&self) -> Result<Knowledge> {
        Ok(self.known.clone())
    }

    async fn snapshots(&self) -> Result<BTreeMap<SnapshotId, u32>> {
        if self.asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
            let path = manifest::path(self.made.tablet(), 1);
            self.storage.put_if_absent(&path, self.made.encode_file()).await?;
            remove(&self.storage, self.removed).await;
        }
        Ok(BTreeMap::new())
    }

    async fn confirm(&self) -> Result<()> {
        Ok(())
    }
}

async fn remove(storage: &Arc<dyn Storage>, tablet: TabletId) {
    for file in storage.list(&manifest::directory(tablet)).await.unwrap() {
        storage.delete(&file.path).await.unwrap();
    }
}

/// In a busy cluster a round without a split may never come.
#[tokio::test]
async fn a_round_goes_on_when_tablets_come_and_go() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let server = Server::new(&storage, 1);
    let mut of = BTreeMap::new();
    for id in 1..=3 {
        let tablet = server.create(id, 1).await;
        write_and_flush(&tablet, &["a"]).await;
        of.insert(id, tablet.manifest().await);
    }
    // Only the tablet that comes refers to the file of this one.
    remove(&storage, TabletId(2)).await;
    let file = |id: u64| of[&id].stored().next().unwrap().path();
    let orphan = StoredFile::Sstable(FileId::new(1, 1_000)).path();
    storage.put_if_absent(&orphan, Bytes::new()).await.unwrap();
    let busy = Busy {
        known: knowledge(&[], &[(1, 1), (3, 1)]),
        storage: storage.clone(),
        asked: Default::default(),
        made: Manifest {
            tablet: 5,
            ..of[&2].clone()
        },
        removed: TabletId(3),
    };
    let mut sweep = Sweep::new(Duration::ZERO);
    assert_eq!(sweep.round(&storage, OLD, &busy).await.unwrap(), swept(1));
    assert_eq!(files(&storage).await, [file(1), file(2), file(3)]);
    assert_eq!(busy.asked.load(std::sync::atomic::Ordering::Relaxed), 2);
    let left = manifest::list_all(&*storage).await.unwrap();
    assert!(left.keys().eq(&[TabletId(1), TabletId(5)]), "{left:?}");
    // The file of the tablet that went is unneeded from the next round on.
    let known = Known(knowledge(&[], &[(1, 1), (5, 1)]), Vec::new());
    assert_eq!(sweep.round(&storage, OLD, &known).await.unwrap(), swept(1));
    assert_eq!(files(&storage).await, [file(1), file(2)]);
}

/// A tablet goes between the listing of all and the reading of its manifest.
struct Vanishing {
    inner: Arc<dyn Storage>,
    directory: String,
}

#[async_trait::async_trait]
impl stele_storage::Layer for Vanishing {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<stele_storage::FileInfo>> {
        if prefix == self.directory {
            for file in self.inner.list(prefix).await? {
                self.inner.delete(&file.path).await?;
            }
        }
        self.inner.list(prefix).await
    }
}

/// Its successors were made before, so another listing has them.
#[tokio::test]
async fn a_tablet_that_went_unread_costs_another_listing() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let server = Server::new(&storage, 1);
    let of_made = server.create(1, 1).await.manifest().await;
    server.create(2, 1).await;
    let orphan = StoredFile::Sstable(FileId::new(1, 1_000)).path();
    storage.put_if_absent(&orphan, Bytes::new()).await.unwrap();
    let vanishing: Arc<dyn Storage> = Arc::new(Vanishing {
        inner: storage.clone(),
        directory: manifest::directory(TabletId(2)),
    });
    let busy = Busy {
        known: knowledge(&[], &[(1, 1), (2, 1)]),
        storage: storage.clone(),
        // It changes nothing.
        asked: 1.into(),
        made: of_made,
        removed: TabletId(2),
    };
    let mut sweep = Sweep::new(Duration::ZERO);
    assert_eq!(sweep.round(&vanishing, OLD, &busy).await.unwrap(), swept(1));
    assert_eq!(busy.asked.load(std::sync::atomic::Ordering::Relaxed), 3);
    assert_eq!(files(&storage).await.len(), 0);
}

/// Nothing can name it any more, unless a change under way does.
#[tokio::test]
async fn a_tablet_that_the_catalog_does_not_name_goes_after_the_grace_period() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let server = Server::new(&storage, 1);
    write_and_flush(&*server.create(1, 1).await, &["a"]).await;
    write_and_flush(&*server.create(2, 1).await, &["a"]).await;
    let mut sweep = Sweep::new(GRACE);
    let dead = || {
        let mut known = knowledge(&[], &[(1, 1)]);
        known.coming.insert(TabletId(2));
        known
    };
    for now in [Duration::ZERO, OLD] {
        let round = sweep.round(&storage, now, &Known(dead(), Vec::new())).await.unwrap();
        assert_eq!(round, swept(0), "it may be named yet");
    }
    let known = || Known(knowledge(&[], &[(1, 1)]), Vec::new());
    assert_eq!(sweep.round(&storage, OLD, &known()).await.unwrap(), swept(0));
    let round = sweep.round(&storage, 2 * OLD, &known()).await.unwrap();
    let manifest = Round::Swept {
        files: 0,
        manifests: 1,
        parts: 0,
    };
    assert_eq!(round, manifest);
    assert_eq!(sweep.round(&storage, 2 * OLD, &known()).await.unwrap(), swept(0));
    assert_eq!(sweep.round(&storage, 3 * OLD, &known()).await.unwrap(), swept(1));
    assert_eq!(files(&storage).await.len(), 1);
}

/// Nobody knows which files it names.
#[tokio::test]
async fn with_an_unreadable_manifest_nothing_is_swept() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let orphan = StoredFile::Sstable(FileId::new(1, 1)).path();
    for (path, content) in [(manifest::path(TabletId(1), 1), "damaged"), (orphan, "")] {
        storage.put_if_absent(&path, Bytes::from(content)).await.unwrap();
    }
    let mut sweep = Sweep::new(Duration::ZERO);
    let known = Known(knowledge(&[], &[]), Vec::new());
    let failed = sweep.round(&storage, OLD, &known).await.unwrap_err();
    assert!(matches!(failed, TabletError::Corruption { .. }), "{failed}");
    assert_eq!(files(&storage).await.len(), 1);
}

/// Another tablet appears with each listing of all tablets.
struct Changing {
    inner: Arc<dyn Storage>,
    listings: std::sync::atomic::AtomicU64,
}

impl Changing {
    fn over(inner: Arc<dyn Storage>) -> Arc<dyn Storage> {
        Arc::new(Changing {
            inner,
            listings: Default::default(),
        })
    }
}

#[async_trait::async_trait]
impl stele_storage::Layer for Changing {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<stele_storage::FileInfo>> {
        if prefix == "tablets/" {
            let number = 10 + self.listings.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let first = Manifest {
                tablet: number,
                ..Manifest::default()
            };
            let path = manifest::path(TabletId(number), 1);
            self.inner.put_if_absent(&path, first.encode_file()).await?;
        }
        self.inner.list(prefix).await
    }
}

/// Writes the part of a snapshot of a tablet, as it is now.
async fn take(storage: &Arc<dyn Storage>, id: u64, tablet: &Tablet) {
    let mut writer = snapshot::SnapshotWriter::new(storage.clone(), SnapshotId(id));
    writer.add(tablet.manifest().await).await.unwrap();
    assert_eq!(writer.finish().await.unwrap(), 1);
}

/// No manifest names it any more.
#[tokio::test]
async fn a_file_stays_as_long_as_a_snapshot_names_it() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let server = Server::new(&storage, 1);
    let tablet = server.create(1, 1).await;
    write_and_flush(&tablet, &["a"]).await;
    take(&storage, 7, &tablet).await;
    take(&storage, 8, &tablet).await;
    // Of a leader that ended before the catalog named it.
    take(&storage, 9, &tablet).await;
    let named = files(&storage).await;
    write_and_flush(&tablet, &["b"]).await;
    tablet.compact_all().await.unwrap();
    let mut sweep = Sweep::new(Duration::ZERO);
    let known = |snapshots: &[u64]| Known(knowledge(&[&server], &[(1, 1)]), snapshots.to_vec());
    let part = |files| Round::Swept {
        files,
        manifests: 0,
        parts: 1,
    };
    // The file between the two compactions goes, and the parts of the unfinished snapshot.
    assert_eq!(sweep.round(&storage, OLD, &known(&[7, 8])).await.unwrap(), part(1));
    assert!(files(&storage).await.contains(&named[0]));
    assert_eq!(sweep.round(&storage, OLD, &known(&[8])).await.unwrap(), part(0));
    assert!(
        files(&storage).await.contains(&named[0]),
        "the other snapshot names it, too"
    );
    // A new leader reads all snapshots.
    let mut next = Sweep::new(Duration::ZERO);
    assert_eq!(next.round(&storage, OLD, &known(&[8])).await.unwrap(), swept(0));
    // Another one has swept the part of a snapshot that this one has counted.
    assert_eq!(next.round(&storage, OLD, &known(&[])).await.unwrap(), part(1));
    take(&storage, 10, &tablet).await;
    assert_eq!(sweep.round(&storage, OLD, &known(&[10])).await.unwrap(), swept(0));
    assert!(!files(&storage).await.contains(&named[0]));
}

/// Nobody knows which files it names.
#[tokio::test]
async fn with_an_unreadable_part_nothing_is_swept() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let orphan = StoredFile::Sstable(FileId::new(1, 1)).path();
    for (path, content) in [(snapshot::path(SnapshotId(7), 0), "damaged"), (orphan, "")] {
        storage.put_if_absent(&path, Bytes::from(content)).await.unwrap();
    }
    let mut sweep = Sweep::new(Duration::ZERO);
    for missing in [7, 8] {
        let known = Known(knowledge(&[], &[]), vec![missing]);
        let failed = sweep.round(&storage, OLD, &known).await.unwrap_err();
        assert!(matches!(failed, TabletError::Corruption { .. }), "{failed}");
        assert_eq!(files(&storage).await.len(), 1);
    }
}

/// A storage that loses files, or parts of them, is the only cause.
#[tokio::test]
async fn a_round_finds_files_that_are_lost() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let server = Server::new(&storage, 1);
    let (one, two) = (server.create(1, 1).await, server.create(2, 1).await);
    for tablet in [&one, &two] {
        write_and_flush(tablet, &["a"]).await;
    }
    take(&storage, 7, &one).await;
    let held = files(&storage).await.remove(0);
    write_and_flush(&one, &["b"]).await;
    one.compact_all().await.unwrap();
    let mut sweep = Sweep::new(GRACE);
    let known = Known(knowledge(&[&server], &[(1, 1), (2, 1)]), vec![7]);
    assert_eq!(sweep.round(&storage, OLD, &known).await.unwrap(), swept(0));
    let whole = sweep.checked().unwrap().clone();
    assert_eq!((whole.tablets, whole.files, whole.unneeded), (2, 3, 1));
    assert!(whole.findings.is_empty() && whole.bytes > 0, "{whole:?}");

    let of = |tablet: &Arc<Tablet>| {
        let tablet = tablet.clone();
        async move { tablet.manifest().await.stored().next().unwrap() }
    };
    let (short, lost) = (of(&one).await, of(&two).await);
    storage.delete(&held).await.unwrap();
    storage.delete(&lost.path()).await.unwrap();
    storage.delete(&short.path()).await.unwrap();
    storage
        .put_if_absent(&short.path(), Bytes::from_static(b"four"))
        .await
        .unwrap();
    let mut other_rows = known.0.clone();
    let rows = RowRange {
        start: Bytes::new(),
        end: Some(Bytes::from_static(b"m")),
    };
    other_rows.tablets.insert(TabletId(2), named(1, rows));
    sweep.round(&storage, OLD, &Known(other_rows, vec![7])).await.unwrap();
    let found: Vec<String> = sweep
        .checked()
        .unwrap()
        .findings
        .iter()
        .map(Finding::to_string)
        .collect();
    let wrong_length = format!("tablet 1: {} has 4 bytes, not", short.path());
    assert_eq!(found.len(), 4, "{found:?}");
    for part in [
        "tablet 2: its manifest has other rows".to_owned(),
        wrong_length,
        format!("tablet 2: {} is missing", lost.path()),
        format!("a snapshot: {held} is missing"),
    ] {
        assert!(found.iter().any(|finding| finding.contains(&part)), "{part}: {found:?}");
    }
    // A tablet that nobody has claimed makes a round void.
    let unclaimed = Known(knowledge(&[&server], &[(1, 5), (2, 1)]), vec![7]);
    let void = sweep.round(&storage, OLD, &unclaimed).await.unwrap();
    assert_eq!((void, sweep.checked()), (Round::Unclaimed(TabletId(1)), None));
}

/// A server that stood still puts the manifest of a tablet that was replaced meanwhile, after its files were swept.
#[tokio::test]
async fn a_lost_file_is_a_finding_only_if_a_tablet_of_the_catalog_names_it() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let server = Server::new(&storage, 1);
    let parent = server.create(1, 1).await;
    write_and_flush(&parent, &["a", "z"]).await;
    take(&storage, 7, &parent).await;
    let stopped = parent.stop_compactions().await;
    let (left, right) = parent
        .divide(&Bytes::from_static(b"m"), TabletId(2), TabletId(3))
        .await
        .unwrap();
    let ranges = [left.range(), right.range()];
    let _halves = (server.create_over(left).await, server.create_over(right).await);
    drop(stopped);
    let lost = files(&storage).await.remove(0);
    storage.delete(&lost).await.unwrap();
    // A round without the snapshot deletes its parts.
    for (catalog, snapshots) in [
        (vec![], vec![7]),
        (vec![2], vec![7]),
        (vec![3], vec![7]),
        (vec![2, 3], vec![7]),
        (vec![2], vec![]),
        (vec![], vec![]),
    ] {
        let mut known = knowledge(&[&server], &[]);
        for tablet in &catalog {
            let range = ranges[*tablet as usize - 2].clone();
            known.tablets.insert(TabletId(*tablet), named(1, range));
        }
        let mut sweep = Sweep::new(GRACE);
        sweep
            .round(&storage, OLD, &Known(known, snapshots.clone()))
            .await
            .unwrap();
        let found: Vec<String> = sweep
            .checked()
            .unwrap()
            .findings
            .iter()
            .map(Finding::to_string)
            .collect();
        let of_tablets = catalog.iter().map(|tablet| format!("tablet {}", TabletId(*tablet)));
        let owners: Vec<String> = match catalog.is_empty() {
            true => snapshots.iter().map(|_| "a snapshot".to_owned()).collect(),
            false => of_tablets.collect(),
        };
        assert_eq!(
            found.len(),
            owners.len().min(1),
            "{catalog:?}, {snapshots:?}: {found:?}"
        );
        for finding in found {
            let (owner, _) = finding.split_once(": ").unwrap();
            assert!(owners.iter().any(|known| known == owner), "{catalog:?}: {finding}");
            assert!(finding.ends_with(&format!(": {lost} is missing")), "{finding}");
        }
    }
}
