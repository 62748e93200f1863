//! Tests over the client library's store in memory, with injected faults. The store refuses taken keys as S3 does. The
//! client around it is slow, loses responses and fails. Time is virtual, and randomness comes from a seed.

mod cache;
mod shared;

use crate::store::{Client, Store};
use crate::{ObjectMetrics, ObjectStorage, growing, owner, whole};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_env::{BlockingWork, Env, Priority, Runtime};
use stele_storage::remote::owner as ownership;
use stele_storage::{AppendFile, Storage, StorageError, conformance};

/// Tokio's paused clock and a seeded generator.
struct Seeded {
    state: AtomicU64,
    origin: tokio::time::Instant,
}

impl Runtime for Seeded {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
    fn wall_micros(&self) -> i64 {
        0
    }
    /// SplitMix64.
    fn random_u64(&self) -> u64 {
        let mut z = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    #[allow(clippy::disallowed_methods, reason = "the test's own seam")]
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
    #[allow(clippy::disallowed_methods, reason = "the test's own seam")]
    fn spawn(&self, _: Priority, _: &'static str, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
    fn run_blocking(&self, work: BlockingWork) {
        work();
    }
}

pub(crate) fn env(seed: u64) -> Env {
    Env::new(Arc::new(Seeded {
        state: AtomicU64::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)),
        origin: tokio::time::Instant::now(),
    }))
}

/// Duration of a listing from a slow place: less than its time limit.
const LISTING: Duration = Duration::from_secs(10);

/// A store that responds late, responds with an error, or executes a request and responds with an error.
#[derive(Debug)]
struct Flaky {
    inner: Arc<InMemory>,
    env: Env,
    /// Failing requests per 1,000.
    failing: u64,
    /// Longest time before a request takes effect, and again before its response.
    delay_ms: u64,
    /// The state that listings still show.
    gone: Option<ObjectMeta>,
    /// Where listings wait for [`LISTING`] before they are made.
    slow: Option<&'static str>,
    /// Additional duration of each piece of an upload.
    piece_ms: u64,
    /// Pieces of uploads under way, and their maximum so far.
    pieces: Arc<(AtomicU64, AtomicU64)>,
}

impl std::fmt::Display for Flaky {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Flaky")
    }
}

fn lost() -> Error {
    Error::Generic {
        store: "Flaky",
        source: "the connection was lost".into(),
    }
}

impl Flaky {
    async fn request<T>(&self, effect: impl Future<Output = Result<T>>) -> Result<T> {
        let fate = self.env.random_below(2_000);
        self.wait().await;
        if fate < self.failing {
            return Err(lost());
        }
        let answer = effect.await;
        self.wait().await;
        if fate < 2 * self.failing { Err(lost()) } else { answer }
    }

    async fn wait(&self) {
        // Mostly quick, sometimes very slow.
        let most = if self.env.random_below(20) == 0 {
            self.delay_ms * 50
        } else {
            self.delay_ms
        };
        self.env
            .sleep(Duration::from_millis(self.env.random_below(most + 1)))
            .await;
    }
}

#[async_trait]
impl ObjectStore for Flaky {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.request(self.inner.put_opts(location, payload, options)).await
    }
    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.request(self.inner.get_opts(location, options)).await
    }
    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, env, failing) = (self.inner.clone(), self.env.clone(), self.failing);
        let deletes = locations.then(move |location| {
            let (inner, fails) = (inner.clone(), env.random_below(1_000) < failing);
            async move {
                let outcome = object_store::ObjectStoreExt::delete(&*inner, &location?).await;
                if fails {
                    Err(lost())
                } else {
                    outcome.map(|()| Path::default())
                }
            }
        });
        deletes.boxed()
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let is_slow = self.slow.is_some() && prefix.map(AsRef::<str>::as_ref) == self.slow;
        // The state when the response is made, not when it is read.
        let (inner, prefix) = (self.inner.clone(), prefix.cloned());
        let (env, failing, delay) = (self.env.clone(), self.failing, self.delay_ms);
        let gone = self.gone.clone();
        let later = async move {
            env.sleep(Duration::from_millis(env.random_below(delay + 1))).await;
            if is_slow {
                env.sleep(LISTING).await;
            }
            if env.random_below(1_000) < failing {
                return futures::stream::iter(vec![Err(lost())]).boxed();
            }
            let mut found: Vec<Result<ObjectMeta>> = inner.list(prefix.as_ref()).collect().await;
            found.extend(gone.map(Ok));
            env.sleep(Duration::from_millis(env.random_below(delay + 1))).await;
            futures::stream::iter(found).boxed()
        };
        later.flatten_stream().boxed()
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartStore for Flaky {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        self.request(self.inner.create_multipart(path)).await
    }
    async fn put_part(&self, path: &Path, id: &MultipartId, index: usize, data: PutPayload) -> Result<PartId> {
        let (now, most) = &*self.pieces;
        most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.env.sleep(Duration::from_millis(self.piece_ms)).await;
        let put = self.request(self.inner.put_part(path, id, index, data)).await;
        now.fetch_sub(1, Ordering::Relaxed);
        put
    }
    async fn complete_multipart(&self, path: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
        self.request(self.inner.complete_multipart(path, id, parts)).await
    }
    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.inner.abort_multipart(path, id).await
    }
}

fn flaky(inner: &Arc<InMemory>, env: &Env, failing: u64, delay_ms: u64) -> Store {
    let client = Flaky {
        inner: inner.clone(),
        env: env.clone(),
        failing,
        delay_ms,
        gone: None,
        slow: None,
        piece_ms: 0,
        pieces: Arc::default(),
    };
    Store::new(Arc::new(client), "some/prefix", env.clone(), ObjectMetrics::default())
}

async fn open(client: Arc<dyn Client>, root: &str, env: &Env) -> Arc<ObjectStorage> {
    let store = Store::new(client, root, env.clone(), ObjectMetrics::default());
    ObjectStorage::over(store, env.clone(), None)
        .await
        .expect("memory does not fail")
}

async fn write(file: &mut Box<dyn AppendFile>, text: &str) -> stele_storage::Result<()> {
    file.append(&[Bytes::copy_from_slice(text.as_bytes())]).await?;
    file.sync().await
}

/// The suite creates its storages one by one without waiting, so they are opened before.
async fn conforms(stores: impl Fn() -> Store, env: &Env) {
    let mut media = Vec::new();
    for _ in 0..20 {
        media.push(ObjectStorage::over(stores(), env.clone(), None).await.expect("open"));
    }
    let media = Mutex::new(media);
    conformance::run_remote(|| media.lock().pop().expect("enough of them")).await;
}

#[tokio::test(start_paused = true)]
async fn conforms_in_memory() {
    let env = env(1);
    conforms(
        || Store::new(Arc::new(InMemory::new()), "", env.clone(), ObjectMetrics::default()),
        &env,
    )
    .await;
    conforms(
        || Store::new(Arc::new(InMemory::new()), "a/b", env.clone(), ObjectMetrics::default()),
        &env,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn conforms_over_a_bad_connection() {
    for seed in 0..20 {
        let env = env(seed);
        conforms(|| flaky(&Arc::new(InMemory::new()), &env, 50, 5), &env).await;
    }
}

#[tokio::test(start_paused = true)]
async fn large_files_are_uploaded_in_pieces() {
    let env = env(3);
    let storage = ObjectStorage::over(flaky(&Arc::new(InMemory::new()), &env, 50, 5), env.clone(), None);
    let storage = storage.await.expect("open");
    let mut file = storage.create("sst/1.sst").await.expect("create");
    let mut expected = Vec::new();
    for i in 0..9u8 {
        let piece = vec![i; 3 << 20];
        expected.extend_from_slice(&piece);
        file.append(&[Bytes::from(piece)]).await.expect("append");
        assert!(storage.open("sst/1.sst").await.is_err(), "visible before its end");
    }
    file.sync().await.expect("sync");
    file.sync().await.expect("sync again");
    file.append(&[Bytes::from_static(b"x")])
        .await
        .expect_err("append to a finished file");
    assert!(storage.read_all("sst/1.sst").await.expect("read") == expected);
    let read = storage.open("sst/1.sst").await.expect("open");
    assert_eq!(read.read_at(3 << 20, 2).await.expect("read"), [1, 1].as_slice());
    let across = read.read_at((3 << 20) - 1, 700_000).await.expect("read");
    assert!(across == expected[(3 << 20) - 1..(3 << 20) - 1 + 700_000]);
}

#[tokio::test(start_paused = true)]
async fn many_large_files_at_once_have_few_pieces_on_their_way() {
    let env = env(5);
    let pieces: Arc<(AtomicU64, AtomicU64)> = Arc::default();
    let client = Flaky {
        inner: Arc::default(),
        env: env.clone(),
        failing: 0,
        delay_ms: 0,
        gone: None,
        slow: None,
        piece_ms: 1_000,
        pieces: pieces.clone(),
    };
    let storage = open(Arc::new(client), "p", &env).await;
    let files = (0..3u8).map(|number| {
        let storage = storage.clone();
        async move {
            let path = format!("sst/{number}.sst");
            let mut file = storage.create(&path).await.expect("create");
            for _ in 0..5 {
                file.append(&[Bytes::from(vec![number; 8 << 20])])
                    .await
                    .expect("append");
            }
            file.sync().await.expect("sync");
            assert_eq!(storage.open(&path).await.expect("open").len(), 40 << 20);
        }
    });
    futures::future::join_all(files).await;
    let most = pieces.1.load(Ordering::Relaxed);
    assert_eq!(most, whole::PIECES_IN_ALL as u64, "all that may be, and no more");
}

#[tokio::test(start_paused = true)]
async fn a_new_owner_ends_the_old_one() {
    let (env, client) = (env(4), Arc::new(InMemory::new()));
    let old = open(client.clone(), "p", &env).await;
    let mut log = old.create("log/0000/1.log").await.expect("create");
    write(&mut log, "kept").await.expect("append");
    let new = open(client.clone(), "p", &env).await;
    assert!(new.owner_epoch() > old.owner_epoch());
    assert_eq!(new.read_all("log/0000/1.log").await.expect("read"), "kept");
    let fenced = write(&mut log, "lost").await.expect_err("append");
    assert!(matches!(fenced, StorageError::Fenced { .. }), "{fenced}");
    // From then on it can do nothing at all.
    for error in [
        log.sync().await.err(),
        old.create("log/0000/2.log").await.err(),
        old.put_if_absent("x", Bytes::new()).await.err(),
        old.delete("log/0000/1.log").await.err(),
        old.read_all("log/0000/1.log").await.err(),
        old.list("").await.err(),
    ] {
        assert!(matches!(error, Some(StorageError::Fenced { .. })), "{error:?}");
    }
    assert_eq!(new.read_all("log/0000/1.log").await.expect("read"), "kept");
    assert_eq!(new.list("").await.expect("list").len(), 1);
}

/// A sleeping owner: its files are read and deleted by others, and only then it continues.
#[tokio::test(start_paused = true)]
async fn an_old_owner_gets_past_no_seal_of_a_deleted_file() {
    let (env, client) = (env(14), Arc::new(InMemory::new()));
    for (root, parts, owners) in [("a", 0, 1), ("b", 3, 1), ("c", 0, 2), ("d", 3, 2)] {
        let old = open(client.clone(), root, &env).await;
        let mut log = old.create("log/0000/1.log").await.expect("create");
        for _ in 0..parts {
            write(&mut log, "read").await.expect("append");
        }
        let mut new = open(client.clone(), root, &env).await;
        new.delete("log/0000/1.log").await.expect("delete");
        // The next owner cleans up.
        for _ in 1..owners {
            new = open(client.clone(), root, &env).await;
        }
        let error = write(&mut log, "lost").await.expect_err("no process would read it");
        assert!(matches!(error, StorageError::Fenced { .. }), "{root}: {error}");
        assert_eq!(new.list("").await.expect("list"), vec![], "{root}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_request_reads_one_object_of_a_growing_file() {
    let (env, client) = (env(21), Arc::new(InMemory::new()));
    let storage = open(client, "p", &env).await;
    let mut log = storage.create("log/0000/1.log").await.expect("create");
    for part in ["four", "seventh", "two"] {
        write(&mut log, part).await.expect("append");
    }
    let file = storage.open("log/0000/1.log").await.expect("open");
    let ends: Vec<_> = [0, 3, 4, 10, 11, 13]
        .into_iter()
        .map(|at| file.request_end(at))
        .collect();
    assert_eq!(ends, [4, 4, 11, 11, 14, 14].map(Some));
    assert_eq!(file.request_end(14), None, "the end of the file");
}

#[tokio::test(start_paused = true)]
async fn who_slept_between_claim_and_seals_ends_nobody() {
    let (env, client) = (env(15), Arc::new(InMemory::new()));
    let store = Store::new(client.clone(), "p", env.clone(), ObjectMetrics::default());
    let slept = ownership::claim(&store, &env).await.expect("claim");
    let newer = open(client, "p", &env).await;
    let mut log = newer.create("log/0000/1.log").await.expect("create");
    write(&mut log, "a").await.expect("append");
    let error = owner::seal_all(&store, slept).await.expect_err("the owner is another");
    assert!(matches!(error, StorageError::Fenced { .. }), "{error}");
    write(&mut log, "b").await.expect("append");
    assert_eq!(newer.read_all("log/0000/1.log").await.expect("read"), "ab");
}

/// An owner that lists the files to seal checks the owner records after that, and thus sees a later owner and spares
/// its files.
#[tokio::test(start_paused = true)]
async fn who_slept_within_its_listings_ends_nobody() {
    let (env, inner) = (env(17), Arc::new(InMemory::new()));
    let client = Flaky {
        inner: inner.clone(),
        env: env.clone(),
        failing: 0,
        delay_ms: 0,
        gone: None,
        slow: Some("p/log"),
        piece_ms: 0,
        pieces: Arc::default(),
    };
    let store = Store::new(Arc::new(client), "p", env.clone(), ObjectMetrics::default());
    let slept = ownership::claim(&store, &env).await.expect("claim");
    let newer = async {
        env.sleep(LISTING / 2).await;
        let newer = open(inner.clone(), "p", &env).await;
        let mut log = newer.create("log/0000/1.log").await.expect("create");
        write(&mut log, "a").await.expect("append");
        (newer, log)
    };
    let (sealed, (newer, mut log)) = futures::join!(owner::seal_all(&store, slept), newer);
    let error = sealed.expect_err("the owner is another");
    assert!(matches!(error, StorageError::Fenced { .. }), "{error}");
    write(&mut log, "b").await.expect("append");
    assert_eq!(newer.read_all("log/0000/1.log").await.expect("read"), "ab");
}

/// A listing has time for millions of keys, and a process that creates a file of the log waits for one.
#[tokio::test(start_paused = true)]
async fn a_store_that_falls_silent_within_a_listing_keeps_nobody_for_long() {
    /// This many further listings never end.
    #[derive(Debug)]
    struct Silent(InMemory, AtomicU64);
    impl std::fmt::Display for Silent {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Silent")
        }
    }
    #[async_trait]
    impl ObjectStore for Silent {
        async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
            self.0.put_opts(location, payload, options).await
        }
        async fn put_multipart_opts(
            &self,
            location: &Path,
            opts: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(location, opts).await
        }
        async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
            self.0.get_opts(location, options).await
        }
        fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
            self.0.delete_stream(locations)
        }
        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            let found = self.0.list(prefix);
            // As on a connection that broke silently.
            let one_less = |left: u64| left.checked_sub(1);
            match self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) {
                Err(_) => found,
                Ok(_) => found.take(1).chain(futures::stream::pending()).boxed(),
            }
        }
        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }
        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.0.copy_opts(from, to, options).await
        }
    }
    #[async_trait]
    impl MultipartStore for Silent {
        async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
            self.0.create_multipart(path).await
        }
        async fn put_part(&self, path: &Path, id: &MultipartId, index: usize, data: PutPayload) -> Result<PartId> {
            self.0.put_part(path, id, index, data).await
        }
        async fn complete_multipart(&self, path: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
            self.0.complete_multipart(path, id, parts).await
        }
        async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
            self.0.abort_multipart(path, id).await
        }
    }
    let env = env(18);
    let client = Arc::new(Silent(InMemory::new(), AtomicU64::new(0)));
    let storage = open(client.clone(), "p", &env).await;
    client.1.store(1, Ordering::Relaxed);
    let begin = env.now();
    let mut log = storage.create("log/0000/1.log").await.expect("create");
    write(&mut log, "a").await.expect("append");
    let took = env.now() - begin;
    assert!(took < Duration::from_secs(20), "{took:?}");
    // All attempts fail: then the file is not there.
    client.1.store(8, Ordering::Relaxed);
    let error = storage.create("log/0000/2.log").await.err().expect("no listing");
    assert!(matches!(error, StorageError::Io { .. }), "{error}");
    env.sleep(Duration::from_secs(1)).await;
    let left = storage.list("log/").await.expect("list");
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn an_old_owner_makes_no_new_file_and_learns_of_it_when_idle() {
    let (env, client) = (env(5), Arc::new(InMemory::new()));
    let old = open(client.clone(), "p", &env).await;
    let idle = open(client.clone(), "q", &env).await;
    let _new = (
        open(client.clone(), "p", &env).await,
        open(client.clone(), "q", &env).await,
    );
    let fenced = old.create("log/0000/2.log").await.err().expect("create");
    assert!(matches!(fenced, StorageError::Fenced { .. }), "{fenced}");
    assert_eq!(idle.replaced().await, "owner 2");
    idle.create("sst/1.sst").await.err().expect("create");
}

#[tokio::test(start_paused = true)]
async fn of_a_deleted_file_nothing_is_left() {
    let (env, client) = (env(6), Arc::new(InMemory::new()));
    let storage = open(client.clone(), "p", &env).await;
    let mut log = storage.create("log/0000/1.log").await.expect("create");
    for _ in 0..3 {
        write(&mut log, "x").await.expect("append");
    }
    // A deletion was interrupted after the first part: the file is gone, and the rest goes at the next start.
    let store = Store::new(client.clone(), "p", env.clone(), ObjectMetrics::default());
    store.delete("log/0000/1.log/@00000000").await.expect("delete");
    assert_eq!(storage.list("log/").await.expect("list"), vec![]);
    storage.open("log/0000/1.log").await.err().expect("open");
    let _next = open(client, "p", &env).await;
    assert_eq!(store.list("log/").await.expect("list"), vec![]);
}

/// A file was put twice, because the first attempt seemed to be lost, and that attempt arrives after the file was
/// deleted. To a reader of the log it would be a segment that lost acknowledged data, or that has no end.
#[tokio::test(start_paused = true)]
async fn a_first_part_that_comes_back_after_the_deletion_makes_no_file() {
    let (env, client) = (env(19), Arc::new(InMemory::new()));
    for (root, owners) in [("a", 1), ("b", 2)] {
        let mut owner = open(client.clone(), root, &env).await;
        let mut log = owner.create("log/0000/1.log").await.expect("create");
        for _ in 0..3 {
            write(&mut log, "x").await.expect("append");
        }
        for _ in 1..owners {
            owner = open(client.clone(), root, &env).await;
        }
        owner.delete("log/0000/1.log").await.expect("delete");
        let mut next = owner.create("log/0000/2.log").await.expect("create");
        write(&mut next, "y").await.expect("append");
        let store = Store::new(client.clone(), root, env.clone(), ObjectMetrics::default());
        let content = [Bytes::from_static(b"late")];
        let late = store.put_new("log/0000/1.log/@00000000", &content);
        late.await.expect("the key is free");
        let later = open(client.clone(), root, &env).await;
        let left: Vec<String> = later
            .list("")
            .await
            .expect("list")
            .into_iter()
            .map(|file| file.path)
            .collect();
        assert_eq!(left, ["log/0000/2.log"], "{root}");
        later.open("log/0000/1.log").await.err().expect("open");
        assert_eq!(later.read_all("log/0000/2.log").await.expect("read"), "y", "{root}");
    }
}

/// The same when the attempt arrives after the next owner has sealed all files.
#[tokio::test(start_paused = true)]
async fn a_file_that_comes_back_after_a_takeover_is_none() {
    let (env, client) = (env(20), Arc::new(InMemory::new()));
    let owner = open(client.clone(), "p", &env).await;
    for name in ["log/0000/1.log", "log/0000/2.log"] {
        let mut log = owner.create(name).await.expect("create");
        write(&mut log, "x").await.expect("append");
    }
    let store = Store::new(client.clone(), "p", env.clone(), ObjectMetrics::default());
    let first = store.get("log/0000/1.log/@00000000").await.expect("part 0");
    owner.delete("log/0000/1.log").await.expect("delete");
    let later = open(client.clone(), "p", &env).await;
    let sealed = ObjectStorage::sealed_client(client.clone(), "p", env.clone()).await;
    let sealed = sealed.expect("look");
    for (number, content) in [(0, &first[..]), (1, b"x")] {
        let key = growing::part_key("log/0000/1.log", number);
        let content = [Bytes::copy_from_slice(content)];
        store.put_new(&key, &content).await.expect("the key is free");
        let listed = sealed.list("log/").await.expect("list");
        assert_eq!(listed.len(), 1, "part {number}: {listed:?}");
        let error = sealed.open("log/0000/1.log").await.err().expect("open");
        assert!(matches!(error, StorageError::NotFound { .. }), "{error}");
        let opened = sealed.open_listed("log/", &|_| true).await.expect("listing");
        let opened: Vec<String> = opened.expect("all").iter().map(|file| file.path().to_owned()).collect();
        assert_eq!(opened, ["log/0000/2.log"]);
        if number == 0 {
            assert_eq!(
                later.list("log/").await.expect("list"),
                listed,
                "the owner knows it, too"
            );
        }
    }
    // A file of the owner has no seal, and is one: a repair makes such files.
    later
        .put_if_absent("log/0000/3.log", Bytes::from_static(b"y"))
        .await
        .expect("put");
    assert_eq!(sealed.read_all("log/0000/3.log").await.expect("read"), "y");
    let mut begun = later.create("log/0000/4.log").await.expect("create");
    let listed = later.list("log/").await.expect("list");
    assert!(listed.iter().any(|file| file.path == "log/0000/4.log"), "{listed:?}");
    write(&mut begun, "z").await.expect("append");
}

/// A listing that is made while parts are being deleted may show the first, which was deleted first, and none of the
/// others.
#[tokio::test(start_paused = true)]
async fn a_first_part_that_is_deleted_since_is_no_empty_file() {
    let (env, inner) = (env(16), Arc::new(InMemory::new()));
    let old = open(inner.clone(), "p", &env).await;
    let mut log = old.create("log/0000/1.log").await.expect("create");
    old.open("log/0000/1.log").await.expect("a file without content");
    write(&mut log, "x").await.expect("append");
    let first = Path::from("p/log/0000/1.log/@00000000");
    let gone = object_store::ObjectStoreExt::head(&*inner, &first).await.expect("head");
    old.delete("log/0000/1.log").await.expect("delete");
    let client = Flaky {
        inner,
        env: env.clone(),
        failing: 0,
        delay_ms: 0,
        gone: Some(gone),
        slow: None,
        piece_ms: 0,
        pieces: Arc::default(),
    };
    let store = Store::new(Arc::new(client), "p", env.clone(), ObjectMetrics::default());
    let look = ObjectStorage::check_over(store, env).await.expect("look");
    let error = look.open("log/0000/1.log").await.err().expect("open");
    assert!(matches!(error, StorageError::NotFound { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_part_is_no_end() {
    let (env, client) = (env(7), Arc::new(InMemory::new()));
    let storage = open(client.clone(), "p", &env).await;
    let mut log = storage.create("log/0000/1.log").await.expect("create");
    for _ in 0..3 {
        write(&mut log, "x").await.expect("append");
    }
    let store = Store::new(client, "p", env.clone(), ObjectMetrics::default());
    store.delete("log/0000/1.log/@00000002").await.expect("delete");
    let error = storage.open("log/0000/1.log").await.err().expect("open");
    assert!(error.to_string().contains("@00000002"), "{error}");
    assert_eq!(error.kind(), stele_types::ErrorKind::Corruption);
}

#[tokio::test(start_paused = true)]
async fn a_sync_is_one_put() {
    let env = env(8);
    let storage = open(Arc::new(InMemory::new()), "p", &env).await;
    let mut log = storage.create("log/0000/1.log").await.expect("create");
    let before = storage.metrics().puts.get();
    for _ in 0..10 {
        log.append(&[Bytes::from_static(b"ab"), Bytes::new(), Bytes::from_static(b"c")])
            .await
            .expect("append");
    }
    assert_eq!(storage.metrics().puts.get(), before);
    log.sync().await.expect("sync");
    log.sync().await.expect("sync of nothing");
    assert_eq!(storage.metrics().puts.get(), before + 1);
    assert_eq!(log.len(), 30);
    let cost = log.reading_cost();
    assert!(cost > 30, "a request takes longer than 30 bytes");
    storage.set_part_cost(4 * cost);
    assert_eq!(log.reading_cost(), 4 * cost);
    assert_eq!(
        storage.read_all("log/0000/1.log").await.expect("read"),
        "abc".repeat(10)
    );
}

#[tokio::test(start_paused = true)]
async fn small_parts_are_joined_and_read_in_few_requests() {
    let (env, client) = (env(9), Arc::new(InMemory::new()));
    let storage = open(client.clone(), "p", &env).await;
    let mut log = storage.create("log/0000/1.log").await.expect("create");
    let mut content = String::new();
    let mut early = None;
    for number in 0..200 {
        let text = if number == 100 {
            "L".repeat(40 << 10)
        } else {
            format!("<{number}>")
        };
        write(&mut log, &text).await.expect("append");
        content.push_str(&text);
        if number == 30 {
            early = Some((storage.open("log/0000/1.log").await.expect("open"), content.clone()));
        }
        env.sleep(Duration::from_secs(1)).await;
    }
    let store = Store::new(client, "p", env.clone(), ObjectMetrics::default());
    let keys = store.list("log/").await.expect("list");
    let names = keys.iter().filter_map(|(key, _)| key.strip_prefix("log/0000/1.log/@"));
    let joined: Vec<&str> = names.filter(|name| name.contains('-')).collect();
    // Parts 1 to 64, the parts before the large one, and 64 after it.
    assert_eq!(joined, ["00000001-00000040", "00000041-00000064", "00000066-000000a5"]);
    let objects = 200 - 63 - 35 - 63;
    assert_eq!(keys.len(), 1 + objects, "all but part 0 hold content");
    assert_eq!(log.len(), content.len() as u64);
    assert_eq!(log.reading_cost(), objects as u64 * growing::PART_COST_BYTES);
    let (early, then) = early.expect("opened");
    let all = early.read_at(0, then.len()).await.expect("parts that are joined since");
    assert_eq!(all, then);

    let next = ObjectStorage::over(store.clone(), env.clone(), None)
        .await
        .expect("open");
    let gets = next.metrics().gets.get();
    assert_eq!(next.read_all("log/0000/1.log").await.expect("read"), content);
    assert_eq!(next.metrics().gets.get() - gets, objects as u64);
    let listed = next.list("log/").await.expect("list");
    let lens: Vec<u64> = listed.iter().map(|file| file.len).collect();
    assert_eq!(lens, [content.len() as u64]);
    // Ranges that begin and end within joined parts.
    let file = next.open("log/0000/1.log").await.expect("open");
    for (from, to) in [(0, 1), (7, 300), (190, 41_500), (content.len() - 5, content.len())] {
        let range = file.read_at(from as u64, to - from).await.expect("range");
        assert_eq!(range, content[from..to]);
    }
    let (lists, gets) = (next.metrics().lists.get(), next.metrics().gets.get());
    let opened = next.open_listed("log/", &|_| true).await.expect("open").expect("files");
    assert_eq!(opened[0].read_at(0, content.len()).await.expect("read"), content);
    assert_eq!(
        (next.metrics().lists.get() - lists, next.metrics().gets.get() - gets),
        (0, objects as u64),
        "the takeover has listed them"
    );
    let lost = "log/0000/1.log/@00000041-00000064";
    store.delete(lost).await.expect("delete");
    let opened = next.open_listed("log/", &|_| true).await.expect("list");
    assert!(opened.is_none(), "a hole is looked at again");
    let error = next.open("log/0000/1.log").await.err().expect("a hole");
    assert_eq!(error.kind(), stele_types::ErrorKind::Corruption);
    let error = file.read_at(0, content.len()).await.expect_err("a hole");
    assert_eq!(error.kind(), stele_types::ErrorKind::Corruption);
    next.delete("log/0000/1.log").await.expect("delete");
    let left = store.list("log/").await.expect("list");
    assert_eq!(left.len(), 1, "only the seal is left: {left:?}");
}

/// A listing of several pages may show the last parts neither alone nor joined. A seal that was put by such a listing does
/// not stop the old owner.
#[tokio::test(start_paused = true)]
async fn a_seal_behind_a_torn_listing_is_put_again() {
    let (env, inner) = (env(10), Arc::new(InMemory::new()));
    let old = open(inner.clone(), "p", &env).await;
    let mut log = old.create("log/0000/1.log").await.expect("create");
    for _ in 0..64 {
        write(&mut log, "x").await.expect("append");
    }
    env.sleep(Duration::from_secs(60)).await;
    let store = Store::new(inner, "p", env.clone(), ObjectMetrics::default());
    let keys = store.list("log/").await.expect("list");
    assert_eq!(keys.len(), 2, "64 parts are joined: {keys:?}");
    // The first was taken just before the last part was put: the number of that part is free by now.
    let whole = (0..64).map(|number| (number, 1)).collect();
    for torn in [whole, vec![(0, 9), (1, 1)], vec![(0, 9), (1, 1), (2, 0)]] {
        let parts = torn
            .into_iter()
            .map(|(number, len)| (growing::Object::Part(number), len));
        let parts = growing::Parts::new(parts);
        growing::seal(&store, "log/0000/1.log", parts).await.expect("seal");
        let keys = store.list("log/").await.expect("list");
        let last = keys.last().map(|(key, len)| (key.as_str(), *len));
        assert_eq!(last, Some(("log/0000/1.log/@00000041", 0)));
    }
    let error = write(&mut log, "y").await.expect_err("the file is sealed");
    assert!(matches!(error, StorageError::Fenced { .. }), "{error}");
}

/// The same where files are sealed together: only the seal that does not count is put again.
#[tokio::test(start_paused = true)]
async fn of_files_that_are_sealed_together_those_behind_a_torn_listing_are_sealed_again() {
    let (env, inner) = (env(22), Arc::new(InMemory::new()));
    let old = open(inner.clone(), "p", &env).await;
    let mut logs = Vec::new();
    for (name, parts) in [("log/0000/1.log", 64), ("log/0001/2.log", 3)] {
        let mut log = old.create(name).await.expect("create");
        for _ in 0..parts {
            write(&mut log, "x").await.expect("append");
        }
        logs.push(log);
    }
    env.sleep(Duration::from_secs(60)).await;
    let store = Store::new(inner, "p", env.clone(), ObjectMetrics::default());
    let mut files = owner::files_of(&store.list_dated("log/").await.expect("list"));
    let torn = [(0, 9), (1, 1)].map(|(number, len)| (growing::Object::Part(number), len));
    files.insert("log/0000/1.log".to_owned(), growing::Parts::new(torn));
    let lists = store.metrics().lists.get();
    let sealed = owner::seal_files(&store, files).await.expect("sealed");
    let seals: Vec<(Option<u32>, u64)> = sealed.values().map(|parts| (parts.seal(), parts.len())).collect();
    assert_eq!(seals, [(Some(65), 64), (Some(4), 3)], "as they are for good");
    let lists = store.metrics().lists.get() - lists;
    assert_eq!(
        lists,
        2 + 1,
        "of both directories for all, and of the file that was torn"
    );
    for mut log in logs {
        let error = write(&mut log, "y").await.expect_err("the file is sealed");
        assert!(matches!(error, StorageError::Fenced { .. }), "{error}");
    }
}

/// Rows wait for it after a failure.
#[tokio::test(start_paused = true)]
async fn the_listing_that_confirms_the_seals_opens_the_files() {
    let (env, client) = (env(23), Arc::new(InMemory::new()));
    let old = open(client.clone(), "p", &env).await;
    let names: Vec<String> = (1..=20)
        .map(|number| format!("log/{:04x}/{number}.log", number % 2))
        .collect();
    let mut logs = Vec::new();
    for name in &names {
        let mut log = old.create(name).await.expect("create");
        write(&mut log, name).await.expect("append");
        logs.push(log);
    }
    let new = open(client.clone(), "p", &env).await;
    let lists = || new.metrics().lists.get();
    assert_eq!(lists(), 7, "three of owners, and two of each directory");
    let wants = |path: &str| path.starts_with("log/0001/");
    let opened = new.open_listed("log/", &wants).await.expect("list").expect("files");
    assert_eq!((opened.len(), lists()), (10, 7));
    for file in opened {
        let content = file.read_at(0, file.path().len()).await.expect("read");
        assert_eq!(content, file.path());
    }
    let again = new.open_listed("log/", &|_| true).await.expect("list").expect("files");
    assert_eq!((again.len(), lists()), (20, 8), "later openings list again");
    // A file of this owner is not among those that were sealed.
    let newer = open(client.clone(), "p", &env).await;
    let mut log = newer.create("log/0000/21.log").await.expect("create");
    write(&mut log, "z").await.expect("append");
    let opened = newer
        .open_listed("log/", &|_| true)
        .await
        .expect("list")
        .expect("files");
    assert_eq!(opened.len(), 21);
    // Nor is one that this owner has deleted.
    let newest = open(client, "p", &env).await;
    newest.delete("log/0000/2.log").await.expect("delete");
    let opened = newest
        .open_listed("log/", &|_| true)
        .await
        .expect("list")
        .expect("files");
    assert_eq!(opened.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn directories_are_told_without_a_listing_of_their_files() {
    let (env, client) = (env(24), Arc::new(InMemory::new()));
    let storage = open(client.clone(), "p", &env).await;
    assert_eq!(storage.directories("log/").await.expect("list"), Some(Vec::new()));
    for name in ["log/0001/1.log", "log/0000/2.log", "log/0000/3.log", "other/1"] {
        let mut file = storage.create(name).await.expect("create");
        write(&mut file, "x").await.expect("append");
    }
    let lists = storage.metrics().lists.get();
    let names = storage.directories("log/").await.expect("list").expect("names");
    assert_eq!(
        (names, storage.metrics().lists.get() - lists),
        (vec!["0000".to_owned(), "0001".to_owned()], 1)
    );
    storage.directories("log/../").await.expect_err("no path");
}

/// One owner: appends to log files that it creates, one after the other, until it is replaced. Every later owner sees
/// the data that it reports as written.
async fn write_until_fenced(
    store: Store,
    env: Env,
    name: u64,
    done: Arc<Mutex<Vec<(u64, String)>>>,
    seen: Arc<Mutex<Vec<(u64, String)>>>,
) {
    env.sleep(Duration::from_millis(env.random_below(20_000))).await;
    let storage = loop {
        match ObjectStorage::over(store.clone(), env.clone(), None).await {
            Ok(storage) => break storage,
            Err(_) => env.sleep(Duration::from_millis(500)).await,
        }
    };
    let epoch = storage.owner_epoch().expect("owners are numbered");
    let view = loop {
        match read_everything(&storage).await {
            Ok(view) => break view,
            Err(StorageError::Fenced { .. }) => return,
            Err(_) => env.sleep(Duration::from_millis(500)).await,
        }
    };
    seen.lock().push((epoch, view));
    let records = if name == 1 { 100 } else { 5 };
    for segment in 0..6 {
        let path = format!("log/0000/{name}-{segment}.log");
        let Ok(mut file) = storage.create(&path).await else {
            continue;
        };
        for record in 0..records {
            env.sleep(Duration::from_millis(env.random_below(1_500 / records)))
                .await;
            let text = format!("<{epoch}.{segment}.{record}>");
            if write(&mut file, &text).await.is_err() {
                break;
            }
            done.lock().push((epoch, text));
        }
    }
}

async fn read_everything(storage: &Arc<ObjectStorage>) -> stele_storage::Result<String> {
    let mut all = String::new();
    for file in storage.list("log/").await? {
        all.push_str(&String::from_utf8_lossy(&storage.read_all(&file.path).await?));
    }
    Ok(all)
}

/// Three owners one after the other, each possibly asleep for longer than the others live.
#[tokio::test(start_paused = true)]
async fn what_an_owner_acknowledged_every_later_owner_has_read() {
    let mut takeovers = 0;
    for seed in 0..300 {
        let env = env(seed);
        let inner = Arc::new(InMemory::new());
        let (done, seen) = (Arc::default(), Arc::default());
        let owners = (0..3).map(|name| {
            let store = flaky(&inner, &env, seed % 3 * 30, 40);
            write_until_fenced(store, env.clone(), name, Arc::clone(&done), Arc::clone(&seen))
        });
        futures::future::join_all(owners).await;
        let done = done.lock();
        for (reader, view) in seen.lock().iter() {
            takeovers += u64::from(!view.is_empty());
            for (writer, record) in done.iter().filter(|(writer, _)| writer < reader) {
                assert!(
                    view.contains(record),
                    "seed {seed}: owner {reader} missed {record} of {writer}"
                );
            }
        }
    }
    assert!(takeovers > 200, "only {takeovers} owners found anything");
}
