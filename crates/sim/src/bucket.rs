//! A bucket that several processes reach over a network with faults.
//!
//! It uses the client library's store in memory, which refuses taken keys as S3 does. A listing is one request per page, and each page
//! shows the moment of its request.

use crate::requests::Requests;
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
use stele_env::Env;

/// Objects on a page of a listing; a run chooses one.
const PAGES: [usize; 3] = [2, 7, 1_000];

/// The bucket and the network to it.
#[derive(Clone)]
pub struct Bucket {
    objects: Arc<Objects>,
    page: usize,
    requests: Requests,
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

impl Bucket {
    /// An empty bucket with a process of its own.
    pub fn new(env: Env) -> Bucket {
        Bucket {
            objects: Arc::default(),
            page: PAGES[env.random_below(PAGES.len() as u64) as usize],
            requests: Requests::new(env, "bucket"),
        }
    }

    /// The faults, and counts of requests.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Sends a request with this effect.
    async fn request<T: Send + 'static>(&self, effect: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        self.requests.send(effect, lost).await
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
