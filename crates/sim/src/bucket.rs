//! A bucket that several processes reach over a network with faults.
//!
//! It uses the client library's store in memory, which refuses taken keys as S3 does. A request travels to the bucket,
//! takes effect there at one moment, and its response travels back. The effect belongs to the bucket: it also comes
//! when the client has given up or was killed meanwhile. A listing is one request per page, and each page shows the
//! moment of its request.

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use stele_env::{Env, Priority};

/// Longest travel time of a late request: longer than any client waits for its response.
const LATE_MAX: Duration = Duration::from_secs(40);

/// Objects on a page of a listing; a run chooses one.
const PAGES: [usize; 3] = [2, 7, 1_000];

/// The faults of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Shortest and longest travel time in either direction.
    pub way: (Duration, Duration),
    /// Lost requests per 1,000.
    pub lost: u64,
    /// Lost responses per 1,000.
    pub unanswered: u64,
    /// Late requests per 1,000.
    pub late: u64,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            way: (Duration::from_millis(1), Duration::from_millis(20)),
            lost: 0,
            unanswered: 0,
            late: 0,
        }
    }
}

impl Network {
    /// Whether every request gets a response, however late.
    pub fn is_harmless(&self) -> bool {
        self.lost + self.unanswered + self.late == 0
    }
}

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Requests that took effect.
    pub requests: u64,
    /// Requests that were lost, got no response, or came late.
    pub faults: u64,
}

/// The bucket and the network to it.
#[derive(Clone)]
pub struct Bucket {
    objects: Arc<Objects>,
    /// The environment of the bucket's own process, which is never killed.
    env: Env,
    page: usize,
    network: Arc<Mutex<Network>>,
    counts: Arc<Mutex<Counts>>,
}

/// The objects, with an index for listings: the store copies and formats all that it lists, for each page once more.
#[derive(Default)]
struct Objects {
    store: InMemory,
    index: Mutex<BTreeMap<Path, ObjectMeta>>,
}

impl Objects {
    async fn put(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let put = self.store.put_opts(location, payload, options).await?;
        self.note(location).await.map(|()| put)
    }

    async fn complete_multipart(&self, location: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
        let put = self.store.complete_multipart(location, id, parts).await?;
        self.note(location).await.map(|()| put)
    }

    async fn note(&self, location: &Path) -> Result<()> {
        let meta = self.store.head(location).await?;
        tracing::trace!(%location, bytes = meta.size, "put");
        self.index.lock().insert(location.clone(), meta);
        Ok(())
    }

    async fn delete(&self, location: &Path) -> Result<()> {
        let existed = self.index.lock().remove(location).is_some();
        tracing::trace!(%location, existed, "deleted");
        self.store.delete(location).await
    }

    /// The first objects below a prefix and after an object.
    fn list(&self, prefix: Option<&Path>, after: Option<&Path>, most: usize) -> Vec<ObjectMeta> {
        let from = match (prefix, after) {
            (Some(prefix), Some(after)) if after < prefix => Bound::Included(prefix),
            (_, Some(after)) => Bound::Excluded(after),
            (Some(prefix), None) => Bound::Included(prefix),
            (None, None) => Bound::Unbounded,
        };
        let index = self.index.lock();
        let text = prefix.map_or("", |prefix| prefix.as_ref());
        let below = index
            .range((from, Bound::Unbounded))
            .take_while(|(location, _)| location.as_ref().starts_with(text))
            .filter(|(location, _)| prefix.is_none_or(|prefix| is_below(location, prefix)));
        below.take(most).map(|(_, meta)| meta.clone()).collect()
    }
}

fn is_below(location: &Path, prefix: &Path) -> bool {
    let rest = location.prefix_match(prefix);
    rest.is_some_and(|mut parts| parts.next().is_some())
}

/// The fate of a request.
struct Fate {
    there: Duration,
    back: Duration,
    lost: bool,
    unanswered: bool,
}

impl Bucket {
    /// An empty bucket with a process of its own.
    pub fn new(env: Env) -> Bucket {
        Bucket {
            objects: Arc::default(),
            page: PAGES[env.random_below(PAGES.len() as u64) as usize],
            env,
            network: Arc::default(),
            counts: Arc::default(),
        }
    }

    /// Sets the faults from now on.
    pub fn set_network(&self, network: Network) {
        *self.network.lock() = network;
    }

    /// The current faults.
    pub fn network(&self) -> Network {
        *self.network.lock()
    }

    /// Counts of requests so far.
    pub fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    fn fate(&self) -> Fate {
        let network = self.network();
        let (shortest, longest) = network.way;
        let way = |longest: Duration| {
            let spread = longest.saturating_sub(shortest).as_micros() as u64;
            shortest + Duration::from_micros(self.env.random_below(spread + 1))
        };
        let happens = |of_1000: u64| of_1000 > 0 && self.env.random_below(1_000) < of_1000;
        let (lost, unanswered, late) = (
            happens(network.lost),
            happens(network.unanswered),
            happens(network.late),
        );
        self.counts.lock().faults += u64::from(lost || unanswered || late);
        Fate {
            there: way(if late { LATE_MAX } else { longest }),
            back: way(longest),
            lost,
            unanswered,
        }
    }

    /// Sends a request with this effect.
    async fn request<T: Send + 'static>(&self, effect: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        let fate = self.fate();
        if fate.lost {
            self.env.sleep(fate.there).await;
            return Err(lost());
        }
        let (env, counts) = (self.env.clone(), Arc::clone(&self.counts));
        let there = async move {
            env.sleep(fate.there).await;
            counts.lock().requests += 1;
            effect.await
        };
        let answer = self.env.spawn_join(Priority::Foreground, "bucket", there).await;
        self.env.sleep(fate.back).await;
        if fate.unanswered {
            Err(lost())
        } else {
            answer.unwrap_or_else(|_| Err(lost()))
        }
    }

    /// The page of a listing after an object.
    fn page(&self, prefix: Option<Path>, after: Option<Path>) -> BoxFuture<'static, Result<Vec<ObjectMeta>>> {
        let (bucket, page) = (self.clone(), self.page);
        let objects = Arc::clone(&self.objects);
        let effect = async move {
            let listed = objects.list(prefix.as_ref(), after.as_ref(), page);
            Ok(listed)
        };
        async move { bucket.request(effect).await }.boxed()
    }
}

fn lost() -> Error {
    Error::Generic {
        store: "bucket",
        source: "the connection was lost".into(),
    }
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bucket")
    }
}

impl std::fmt::Display for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a simulated bucket")
    }
}

#[async_trait]
impl ObjectStore for Bucket {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (objects, location) = (Arc::clone(&self.objects), location.clone());
        self.request(async move { objects.put(&location, payload, options).await })
            .await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotImplemented {
            operation: "put_multipart_opts".to_owned(),
            implementer: self.to_string(),
        })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (objects, location) = (Arc::clone(&self.objects), location.clone());
        self.request(async move { objects.store.get_opts(&location, options).await })
            .await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let bucket = self.clone();
        let deleted = locations.then(move |location| {
            let bucket = bucket.clone();
            async move {
                let (objects, location) = (Arc::clone(&bucket.objects), location?);
                let effect = async move { objects.delete(&location).await.map(|()| location) };
                bucket.request(effect).await
            }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (bucket, prefix) = (self.clone(), prefix.cloned());
        let pages = futures::stream::try_unfold(Some(None), move |after: Option<Option<Path>>| {
            let (bucket, prefix) = (bucket.clone(), prefix.clone());
            async move {
                let Some(after) = after else { return Ok(None) };
                let page = bucket.page(prefix, after).await?;
                let is_last = page.len() < bucket.page;
                let next = page
                    .last()
                    .filter(|_| !is_last)
                    .map(|object| Some(object.location.clone()));
                Ok::<_, Error>(Some((futures::stream::iter(page.into_iter().map(Ok)), next)))
            }
        });
        pages.try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (objects, prefix) = (Arc::clone(&self.objects), prefix.cloned());
        self.request(async move { objects.store.list_with_delimiter(prefix.as_ref()).await })
            .await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented {
            operation: "copy_opts".to_owned(),
            implementer: self.to_string(),
        })
    }
}

#[async_trait]
impl MultipartStore for Bucket {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        let (objects, path) = (Arc::clone(&self.objects), path.clone());
        self.request(async move { objects.store.create_multipart(&path).await })
            .await
    }

    async fn put_part(&self, path: &Path, id: &MultipartId, index: usize, data: PutPayload) -> Result<PartId> {
        let (objects, path, id) = (Arc::clone(&self.objects), path.clone(), id.clone());
        self.request(async move { objects.store.put_part(&path, &id, index, data).await })
            .await
    }

    async fn complete_multipart(&self, path: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
        let (objects, path, id) = (Arc::clone(&self.objects), path.clone(), id.clone());
        self.request(async move { objects.complete_multipart(&path, &id, parts).await })
            .await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        let (objects, path, id) = (Arc::clone(&self.objects), path.clone(), id.clone());
        self.request(async move { objects.store.abort_multipart(&path, &id).await })
            .await
    }
}
