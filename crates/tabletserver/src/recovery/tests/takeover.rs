//! These tests measure a takeover over an object store in virtual time. Every request takes 20 ms, so the result is the
//! number of requests that follow each other, on any machine.

use super::*;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::future::Future;
use stele_coord::next_epoch_above;
use stele_env::{BlockingWork, Priority, Runtime};
use stele_objects::{Address, ObjectMetrics, ObjectStorage};

const LATENCY: Duration = Duration::from_millis(20);

/// Keys of one page of a listing, and of one request to delete.
const PAGE: usize = 1_000;

/// Tokio's paused clock, and numbers that are no chance.
struct Virtual {
    numbers: AtomicU64,
    origin: tokio::time::Instant,
}

impl Runtime for Virtual {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
    fn wall_micros(&self) -> i64 {
        0
    }
    fn random_u64(&self) -> u64 {
        self.numbers
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
    fn spawn(&self, _: Priority, _: &'static str, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
    fn run_blocking(&self, work: BlockingWork) {
        work();
    }
}

/// A store in memory that takes its time, and counts.
#[derive(Debug, Default)]
struct Far {
    store: Arc<InMemory>,
    requests: AtomicU64,
    under_way: AtomicU64,
    under_way_max: AtomicU64,
}

impl std::fmt::Display for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("far")
    }
}

impl Far {
    async fn request<T>(&self, effect: impl Future<Output = T>) -> T {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let under_way = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.under_way_max.fetch_max(under_way, Ordering::Relaxed);
        tokio::time::sleep(LATENCY).await;
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        effect.await
    }
}

/// The one that both owners reach.
#[derive(Clone, Debug)]
struct Client(Arc<Far>);

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("far")
    }
}

#[async_trait]
impl ObjectStore for Client {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.request(self.0.store.put_opts(location, payload, options)).await
    }
    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.store.put_multipart_opts(location, opts).await
    }
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.request(self.0.store.get_opts(location, options)).await
    }
    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let far = self.0.clone();
        let pages = locations.chunks(PAGE).then(move |page| {
            let far = far.clone();
            async move {
                let all = async {
                    let mut deleted = Vec::new();
                    for location in page {
                        let location = location.expect("a path");
                        let _ = far.store.delete(&location).await;
                        deleted.push(Ok(location));
                    }
                    futures::stream::iter(deleted)
                };
                far.request(all).await
            }
        });
        pages.flatten().boxed()
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (far, listed) = (self.0.clone(), self.0.store.list(prefix));
        let pages = listed.chunks(PAGE).then(move |page| {
            let far = far.clone();
            async move { far.request(async { futures::stream::iter(page) }).await }
        });
        pages.flatten().boxed()
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.store.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.store.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartStore for Client {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        self.0.store.create_multipart(path).await
    }
    async fn put_part(&self, path: &Path, id: &MultipartId, index: usize, data: PutPayload) -> Result<PartId> {
        self.0.store.put_part(path, id, index, data).await
    }
    async fn complete_multipart(&self, path: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
        self.0.store.complete_multipart(path, id, parts).await
    }
    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.0.store.abort_multipart(path, id).await
    }
}

/// The requests of a process from its first one until it serves.
async fn take_over(far: &Arc<Far>, env: &Env) -> (Catalog, Arc<TabletServer>) {
    let address = Address::of_client(Arc::new(Client(far.clone())), "p");
    let storage = ObjectStorage::open(&address, env.clone(), None, ObjectMetrics::default());
    let storage = storage.await.unwrap();
    let coord = EmbeddedCoord::open(storage.clone(), env.clone()).await.unwrap();
    let used = last_epoch(&*storage).await.unwrap();
    let epoch = next_epoch_above(&*coord, "server", used).await.unwrap() as u32;
    let catalog = Catalog::load(coord).await.unwrap();
    let (cache, metrics) = (Arc::new(Cache::new(1 << 20)), Metrics::new());
    let options = ServerOptions {
        durability: Durability::Sync,
        ..options()
    };
    let started = TabletServer::start(env.clone(), storage, &catalog, Epoch(epoch), cache, options, &metrics);
    let (server, _) = started.await.unwrap();
    (catalog, server)
}

fn tablets(count: u64) -> Vec<(TabletId, RowRange)> {
    let border = |n: u64| Bytes::from(format!("{n:06}"));
    let range = |n: u64| RowRange {
        start: if n == 0 { Bytes::new() } else { border(n) },
        end: (n + 1 < count).then(|| border(n + 1)),
    };
    (0..count).map(|n| (TabletId(n + 1), range(n))).collect()
}

fn write_of(row: String) -> RowWrites {
    let mutation = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value: Bytes::from_static(b"v"),
    };
    let row = Bytes::from(row);
    RowWrites::from(vec![stele_types::RowMutation {
        row,
        mutations: vec![mutation],
    }])
}

/// So few that they are not merged.
const FILES_EACH: usize = 3;
/// Each synced, and so an object.
const LOGGED: u64 = 600;

/// A process that ends abruptly leaves behind tablets of several files each and a log of many small parts. Returns how
/// long the next one takes, and how many requests.
async fn takeover_of(count: u64) -> (Duration, u64) {
    let env = Env::new(Arc::new(Virtual {
        numbers: AtomicU64::new(1),
        origin: tokio::time::Instant::now(),
    }));
    let far = Arc::new(Far::default());
    let (catalog, first) = take_over(&far, &env).await;
    let all = tablets(count);
    first
        .lifecycle
        .create_empty(Arc::new(schema(None)), all.clone())
        .await
        .unwrap();
    catalog.create_table(schema(None), all.clone()).await.unwrap();
    for file in 0..FILES_EACH {
        let writing = all.iter().map(|(id, range)| {
            let row = format!("{}-{file}", String::from_utf8_lossy(&range.start));
            let first = &first;
            async move {
                first.write(*id, &write_of(row), None).await.unwrap();
                first.served(*id).unwrap().tablet.flush().await.unwrap();
            }
        });
        futures::future::join_all(writing).await;
    }
    for n in 0..LOGGED {
        let (id, range) = &all[(n % count) as usize];
        let row = format!("{}-logged-{n}", String::from_utf8_lossy(&range.start));
        first.write(*id, &write_of(row), None).await.unwrap();
    }
    let before = far.requests.load(Ordering::Relaxed);
    far.under_way_max.store(0, Ordering::Relaxed);
    let start = env.now();
    let (_, second) = take_over(&far, &env).await;
    let took = env.now() - start;
    let requests = far.requests.load(Ordering::Relaxed) - before;
    assert!(
        far.under_way_max.load(Ordering::Relaxed) <= 300,
        "requests are made many at a time, and not all at once: {far:?}"
    );
    for (n, (id, range)) in all.iter().enumerate() {
        let start = String::from_utf8_lossy(&range.start).into_owned();
        let tablet = second.served(*id).unwrap().tablet.clone();
        assert_eq!(
            tablet
                .state()
                .groups
                .iter()
                .map(|group| group.files.len())
                .sum::<usize>(),
            FILES_EACH
        );
        let row = format!("{start}-logged-{n}");
        let read = second.get_row(*id, row.as_bytes(), None).unwrap();
        assert!(read.is_none_or(|row| !row.into_batch().is_empty()), "{row}");
    }
    // The former one ends when it meets the next.
    assert!(first.write(all[0].0, &write_of("0".to_owned()), None).await.is_err());
    (took, requests)
}

/// For as long as a takeover takes nobody is served.
#[tokio::test(start_paused = true)]
async fn a_takeover_waits_for_few_requests_one_after_the_other() {
    let (of_few, _) = takeover_of(20).await;
    let (of_many, requests) = takeover_of(400).await;
    println!("{of_few:?} for 20 tablets, {of_many:?} and {requests} requests for 400");
    assert!(of_few < LATENCY * 50, "{of_few:?}");
    // Ten waves of files, three of tablets, each of a few requests.
    assert!(of_many < of_few + LATENCY * 30, "{of_few:?}, {of_many:?}");
    assert!(requests < 400 * (FILES_EACH as u64 + 2) + 1_000, "{requests}");
}
