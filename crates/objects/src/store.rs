//! Requests to the store, with time limits and bounded retries. The pauses between attempts grow.
//!
//! The pauses and limits are those of the environment, and the client library's own retries are off. That matters for
//! puts: a put that failed on the way may have happened, and the next attempt then finds the key taken. Every
//! conditional put carries a unique mark in the object's metadata, which reveals its outcome.

use crate::ObjectMetrics;
use crate::clock::{RefusedForTime, StoreClock};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, GetResult, ObjectStore, PutMode, PutOptions, PutPayload,
};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use stele_env::metrics::IntCounter;
use stele_env::{Env, PlantedBug};
use stele_storage::remote::cache::Source;
use stele_storage::{Result, StorageError};

/// The two halves of the client library in one object.
pub trait Client: ObjectStore + MultipartStore {}
impl<T: ObjectStore + MultipartStore> Client for T {}

/// Attempts at one request. With the pauses below they take about ten seconds if the store refuses immediately, and at
/// most two minutes if it does not respond.
const ATTEMPTS: u32 = 8;
/// The pause after the first failure; it doubles, up to the largest, and half of it is random.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Time of one attempt: a store answers in tens of milliseconds, and 15 s is an eternity to a writer.
const LIMIT: Duration = Duration::from_secs(15);
/// Additional time for bytes at the lowest accepted throughput, 1 MiB/s. A response in several parts, such as a listing
/// page by page, may take that long in total. It must make progress: each part has [`LIMIT`] ([`Store::part`]).
const LIMIT_PER_MIB: Duration = Duration::from_secs(1);
/// Metadata key that identifies a put. Letters only: Azure accepts no hyphen, and proxies drop headers with an
/// underscore.
const MARK: &str = "steleput";

/// The failure of an attempt.
#[derive(Debug)]
enum Fault {
    NotFound,
    AlreadyExists,
    /// A retry cannot succeed.
    Refused(String),
    /// It did not happen, because this machine's clock is wrong.
    WrongTime(String),
    /// It may have happened or not.
    Unknown(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        if RefusedForTime::is_cause_of(&error) {
            return Fault::WrongTime(describe(&error));
        }
        match error {
            Error::NotFound { .. } => Fault::NotFound,
            Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. } => {
                Fault::AlreadyExists
            }
            Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. } => Fault::Refused(describe(&error)),
            other => Fault::Unknown(describe(&other)),
        }
    }
}

/// Characters of each text of an error. A response to a signature that is wrong repeats the whole request.
const TEXT_MAX: usize = 400;

/// The text of an error with its causes: the library's own text often omits the one that matters.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = shortened(error.to_string());
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = shortened(error.to_string());
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TEXT_MAX) {
        text.truncate(end);
        text.push('…');
    }
    assert!(
        text.chars().count() <= TEXT_MAX + 1,
        "a part of the text of an error is short"
    );
    text
}

impl Fault {
    /// The same after an attempt that may have happened.
    fn or_unknown(self) -> Fault {
        match self {
            Fault::WrongTime(message) => Fault::Unknown(message),
            other => other,
        }
    }

    fn on(self, path: &str, operation: &'static str) -> StorageError {
        let path = path.to_owned();
        match self {
            Fault::NotFound => StorageError::NotFound { path },
            Fault::AlreadyExists => StorageError::AlreadyExists { path },
            Fault::WrongTime(message) => StorageError::WrongTime {
                path,
                operation,
                message,
            },
            Fault::Refused(message) | Fault::Unknown(message) => StorageError::Io {
                path,
                operation,
                message,
            },
        }
    }
}

/// An object in a listing.
pub(crate) struct Listed {
    pub(crate) key: String,
    pub(crate) len: u64,
    pub(crate) made_micros: i64,
}

/// A prefix of a bucket.
#[derive(Clone)]
pub(crate) struct Store {
    client: Arc<dyn Client>,
    /// Without a slash at either end; may be empty.
    root: String,
    env: Env,
    counters: ObjectMetrics,
    /// The store's.
    clock: Arc<StoreClock>,
}

#[async_trait]
impl Source for Store {
    async fn fetch(&self, path: &str, offset: u64, len: usize) -> Result<Bytes> {
        self.get_range(path, offset, len).await
    }

    fn count(&self, found: bool) {
        if found {
            self.counters.chunk_hits.inc()
        } else {
            self.counters.chunk_misses.inc()
        }
    }
}

/// Length of an object, and the tag that distinguishes it from others of the same key.
fn measures(found: &GetResult) -> (u64, String) {
    let tag = found.meta.e_tag.clone();
    (
        found.meta.size,
        tag.unwrap_or_else(|| found.meta.last_modified.to_string()),
    )
}

/// An upload in pieces.
pub(crate) struct Upload {
    id: String,
}

/// Bytes of the key of an object, as the stores limit them.
const KEY_BYTES_MAX: usize = 1_024;

impl Store {
    pub(crate) fn new(client: Arc<dyn Client>, root: &str, env: Env, metrics: ObjectMetrics) -> Store {
        Store {
            client,
            root: root.trim_matches('/').to_owned(),
            env,
            counters: metrics,
            clock: Arc::default(),
        }
    }

    /// The same with the clock that the client watches.
    pub(crate) fn with_clock(self, clock: Arc<StoreClock>) -> Store {
        Store { clock, ..self }
    }

    /// A bug planted on purpose.
    pub(crate) fn skips_seal(&self) -> bool {
        self.env.planted(PlantedBug::SkipSeal) && self.env.random_below(2) == 0
    }

    /// Whether that bug is planted.
    pub(crate) fn may_skip_seals(&self) -> bool {
        self.env.planted(PlantedBug::SkipSeal)
    }

    /// A planted bug: whether the check of the owner is left out.
    pub(crate) fn skips_verify(&self) -> bool {
        self.env.planted(PlantedBug::SkipVerify)
    }

    /// Whether the object with the mark `found` was created by the put with the mark `mark`. Two planted bugs falsify
    /// the result.
    fn is_own(&self, mark: &str, found: &str) -> bool {
        (found == mark || self.env.planted(PlantedBug::TakeForOwn)) && !self.env.planted(PlantedBug::ForgetOwn)
    }

    pub(crate) fn metrics(&self) -> &ObjectMetrics {
        &self.counters
    }

    fn location(&self, key: &str) -> Result<Path> {
        let full = if self.root.is_empty() {
            key.to_owned()
        } else {
            format!("{}/{key}", self.root)
        };
        debug_assert!(!key.starts_with('/'), "a key is below the root");
        // The library panics where the URL of a request becomes too long.
        let fits = full.len() <= KEY_BYTES_MAX;
        let parsed = fits.then(|| Path::parse(full).ok()).flatten();
        parsed.ok_or_else(|| StorageError::InvalidPath {
            path: key.chars().take(200).collect(),
        })
    }

    /// The root itself; `None` when it is the bucket.
    fn root_location(&self) -> Result<Option<Path>> {
        if self.root.is_empty() {
            Ok(None)
        } else {
            Path::parse(&self.root)
                .map(Some)
                .map_err(|_| StorageError::InvalidPath {
                    path: self.root.clone(),
                })
        }
    }

    /// The key below the root.
    fn key<'a>(&self, location: &'a Path) -> Option<&'a str> {
        let location: &'a str = location.as_ref();
        if self.root.is_empty() {
            Some(location)
        } else {
            location.strip_prefix(self.root.as_str())?.strip_prefix('/')
        }
    }

    async fn attempt<T>(
        &self,
        counter: &IntCounter,
        bytes: usize,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> std::result::Result<T, Fault> {
        counter.inc();
        let limit = LIMIT + LIMIT_PER_MIB * u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
        let answer = self.env.timeout(limit, request).await;
        self.counters.clock_offset.set(self.clock.ahead_secs());
        match answer {
            Ok(answer) => answer.map_err(Fault::from),
            Err(_) => Err(Fault::Unknown(format!("no answer within {limit:?}"))),
        }
    }

    /// Waits for a part of a response in several parts. A long listing has a quarter of an hour in total. A store that
    /// stopped responding must fail earlier, because the log creates no file without a listing.
    async fn part<T>(&self, part: impl Future<Output = object_store::Result<T>>) -> object_store::Result<T> {
        match self.env.timeout(LIMIT, part).await {
            Ok(part) => part,
            Err(_) => Err(Error::Generic {
                store: "silent",
                source: format!("nothing more within {LIMIT:?}").into(),
            }),
        }
    }

    /// Waits before attempt number `failed + 1`; false when there is none.
    async fn pause(&self, failed: u32) -> bool {
        debug_assert!(failed > 0, "a pause follows a failed attempt");
        if failed >= ATTEMPTS {
            return false;
        }
        self.counters.retries.inc();
        let pause = (PAUSE_MIN * (1 << failed.min(10))).min(PAUSE_MAX);
        let chance = Duration::from_micros(self.env.random_below(pause.as_micros() as u64 / 2 + 1));
        self.env.sleep(pause / 2 + chance).await;
        true
    }

    /// Retries an idempotent request.
    async fn repeat<T, R: Future<Output = object_store::Result<T>>>(
        &self,
        counter: &IntCounter,
        bytes: usize,
        request: impl Fn() -> R,
    ) -> std::result::Result<T, Fault> {
        let mut failed = 0;
        loop {
            match self.attempt(counter, bytes, request()).await {
                Err(fault @ (Fault::Unknown(_) | Fault::WrongTime(_))) => {
                    failed += 1;
                    if !self.pause(failed).await {
                        return Err(fault);
                    }
                }
                other => return other,
            }
        }
    }

    /// Creates an object that does not exist. After an error other than `AlreadyExists` it may exist or not.
    pub(crate) async fn put_new(&self, key: &str, content: &[Bytes]) -> Result<()> {
        let location = self.location(key)?;
        let mark = format!("{:016x}{:016x}", self.env.random_u64(), self.env.random_u64());
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::Metadata(MARK.into()), mark.clone().into());
        let payload: PutPayload = content.iter().filter(|b| !b.is_empty()).cloned().collect();
        let options = PutOptions {
            mode: PutMode::Create,
            attributes,
            ..PutOptions::default()
        };
        let bytes = payload.content_length();
        let mut failed = 0;
        let mut may_exist = false;
        loop {
            let request = self.client.put_opts(&location, payload.clone(), options.clone());
            let fault = match self.attempt(&self.counters.puts, bytes, request).await {
                Ok(_) => return Ok(()),
                // The object is from an earlier attempt of ours, or from another process. A store may also respond so
                // while two puts race, and then neither may win.
                Err(Fault::AlreadyExists) => match self.mark(&location).await {
                    Ok(Some(found)) if self.is_own(&mark, &found) => return Ok(()),
                    Ok(_) => return Err(StorageError::AlreadyExists { path: key.to_owned() }),
                    Err(Fault::NotFound) => Fault::Unknown("the key was taken and then it was not".to_owned()),
                    Err(fault) => fault.or_unknown(),
                },
                Err(fault) => fault,
            };
            failed += 1;
            may_exist |= matches!(fault, Fault::Unknown(_));
            if matches!(fault, Fault::Refused(_)) || !self.pause(failed).await {
                let fault = if may_exist { fault.or_unknown() } else { fault };
                return Err(fault.on(key, "put"));
            }
        }
    }

    /// The mark of the put that created an object; `None` when it has none.
    async fn mark(&self, location: &Path) -> std::result::Result<Option<String>, Fault> {
        let found = self.look(location, None, true).await?;
        let mark = found.attributes.get(&Attribute::Metadata(MARK.into()));
        Ok(mark.map(|mark| mark.as_ref().to_owned()))
    }

    async fn look(
        &self,
        location: &Path,
        range: Option<GetRange>,
        head: bool,
    ) -> std::result::Result<GetResult, Fault> {
        let counter = if head {
            &self.counters.heads
        } else {
            &self.counters.gets
        };
        let options = GetOptions {
            head,
            range,
            ..GetOptions::default()
        };
        self.repeat(counter, 0, || self.client.get_opts(location, options.clone()))
            .await
    }

    /// Length of an object, and its tag.
    pub(crate) async fn head(&self, key: &str) -> Result<(u64, String)> {
        let location = self.location(key)?;
        let found = self.look(&location, None, true).await.map_err(|f| f.on(key, "head"))?;
        Ok(measures(&found))
    }

    /// Reads a whole object.
    pub(crate) async fn get(&self, key: &str) -> Result<Bytes> {
        self.content(key, None).await
    }

    /// Reads a range of an object, which must lie within it.
    pub(crate) async fn get_range(&self, key: &str, offset: u64, len: usize) -> Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let end = offset.saturating_add(len as u64);
        let content = self.content(key, Some(GetRange::Bounded(offset..end))).await?;
        if content.len() != len {
            return Err(StorageError::OutOfBounds {
                path: key.to_owned(),
                offset,
                wanted: len as u64,
                len: offset + content.len() as u64,
            });
        }
        Ok(content)
    }

    /// Reads a range of an object that is expected to contain it, and returns also the result of [`Store::head`]: one
    /// request, tried once. `None` after a failure: a caller that then asks `head` learns its cause.
    pub(crate) async fn get_known(&self, key: &str, range: Range<u64>) -> Result<Option<(Bytes, u64, String)>> {
        let location = self.location(key)?;
        assert!(range.start < range.end, "a requested range has bytes");
        let bytes = (range.end - range.start) as usize;
        let request = async {
            let options = GetOptions {
                range: Some(GetRange::Bounded(range)),
                ..GetOptions::default()
            };
            let found = self.client.get_opts(&location, options).await?;
            let (len, tag) = measures(&found);
            Ok((found.bytes().await?, len, tag))
        };
        match self.attempt(&self.counters.gets, bytes, request).await {
            Ok(found) => Ok(Some(found).filter(|(content, _, _)| content.len() == bytes)),
            Err(fault @ Fault::NotFound) => Err(fault.on(key, "get")),
            Err(_) => Ok(None),
        }
    }

    async fn content(&self, key: &str, range: Option<GetRange>) -> Result<Bytes> {
        let location = self.location(key)?;
        let bytes = match &range {
            Some(GetRange::Bounded(range)) => (range.end - range.start) as usize,
            // The size is known after the first response only. Objects that are read whole are manifests and snapshots.
            _ => 256 << 20,
        };
        let request = || async {
            let options = GetOptions {
                range: range.clone(),
                ..GetOptions::default()
            };
            let found = self.part(self.client.get_opts(&location, options)).await?;
            let len = (found.range.end - found.range.start) as usize;
            let mut rest = found.into_stream();
            // The bytes of a response that comes in one piece are not copied. Those of others are copied once.
            let Some(first) = self.part(rest.try_next()).await? else {
                return Ok(Bytes::new());
            };
            let Some(second) = self.part(rest.try_next()).await? else {
                return Ok(first);
            };
            let mut all = BytesMut::with_capacity(len.min(bytes));
            all.extend_from_slice(&first);
            all.extend_from_slice(&second);
            while let Some(chunk) = self.part(rest.try_next()).await? {
                all.extend_from_slice(&chunk);
            }
            Ok(all.freeze())
        };
        let content = self.repeat(&self.counters.gets, bytes, request).await;
        content.map_err(|fault| fault.on(key, "get"))
    }

    /// Keys that begin with `prefix`, and the lengths of their objects.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let listed = self.list_dated(prefix).await?;
        Ok(listed.into_iter().map(|found| (found.key, found.len)).collect())
    }

    /// The same, with the time of creation by the clock of the object store.
    pub(crate) async fn list_dated(&self, prefix: &str) -> Result<Vec<Listed>> {
        let directory = prefix.rsplit_once('/').map_or("", |(directory, _)| directory);
        if !directory.is_empty() && directory.split('/').any(|c| c.is_empty() || c == "." || c == "..") {
            return Ok(Vec::new());
        }
        let location = if directory.is_empty() {
            self.root_location()?
        } else {
            Some(self.location(directory)?)
        };
        let request = || async {
            let mut found = Vec::new();
            let mut pages = self.client.list(location.as_ref());
            while let Some(meta) = self.part(pages.try_next()).await? {
                if let Some(key) = self.key(&meta.location).filter(|key| key.starts_with(prefix)) {
                    found.push(Listed {
                        key: key.to_owned(),
                        len: meta.size,
                        made_micros: meta.last_modified.timestamp_micros(),
                    });
                }
            }
            Ok(found)
        };
        // A page of 1,000 keys in a few tenths of a second: 15 minutes for a few million.
        let found = self.repeat(&self.counters.lists, 900 << 20, request).await;
        let mut found = found.map_err(|fault| fault.on(prefix, "list"))?;
        found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    /// The names of the directories directly below one: those of which there is an object at any depth.
    pub(crate) async fn directories(&self, directory: &str) -> Result<Vec<String>> {
        let location = self.location(directory)?;
        let request = || self.client.list_with_delimiter(Some(&location));
        let found = self.repeat(&self.counters.lists, 0, request).await;
        let found = found.map_err(|fault| fault.on(directory, "list"))?.common_prefixes;
        let names = found.iter().filter_map(|found| {
            let name = self.key(found)?.strip_prefix(directory)?;
            name.strip_prefix('/').map(str::to_owned)
        });
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Some key of the prefix.
    pub(crate) async fn any_key(&self) -> Result<Option<String>> {
        let root = self.root_location()?;
        let request = || async { self.client.list(root.as_ref()).try_next().await };
        let found = self.repeat(&self.counters.lists, 0, request).await;
        Ok(found
            .map_err(|fault| fault.on("", "list"))?
            .map(|meta| meta.location.to_string()))
    }

    /// Deletes an object, if it exists.
    pub(crate) async fn delete(&self, key: &str) -> Result<()> {
        let location = self.location(key)?;
        let request = || async {
            let one = futures::stream::iter([Ok(location.clone())]).boxed();
            self.client.delete_stream(one).try_collect::<Vec<Path>>().await
        };
        match self.repeat(&self.counters.deletes, 0, request).await {
            Ok(_) | Err(Fault::NotFound) => Ok(()),
            Err(fault) => Err(fault.on(key, "delete")),
        }
    }

    /// Deletes many objects in few requests, as far as they exist.
    pub(crate) async fn delete_many(&self, keys: &[String]) -> Result<()> {
        let Some(first) = keys.first() else { return Ok(()) };
        let locations: Vec<Path> = keys.iter().map(|key| self.location(key)).collect::<Result<_>>()?;
        let request = || async {
            let all = futures::stream::iter(locations.clone().into_iter().map(Ok)).boxed();
            let mut outcomes = self.client.delete_stream(all);
            while let Some(outcome) = outcomes.next().await {
                match outcome {
                    Ok(_) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        let deleted = self.repeat(&self.counters.deletes, keys.len() << 14, request).await;
        deleted.map_err(|fault| fault.on(first, "delete"))
    }

    /// Begins an upload in pieces.
    pub(crate) async fn begin_upload(&self, key: &str) -> Result<Upload> {
        let location = self.location(key)?;
        let request = || self.client.create_multipart(&location);
        let id = self.repeat(&self.counters.puts, 0, request).await;
        id.map(|id| Upload { id })
            .map_err(|fault| fault.on(key, "begin upload"))
    }

    /// Uploads one piece.
    pub(crate) async fn upload_piece(
        &self,
        key: &str,
        upload: &Upload,
        index: usize,
        content: &[Bytes],
    ) -> Result<PartId> {
        let location = self.location(key)?;
        let payload: PutPayload = content.iter().cloned().collect();
        assert!(payload.content_length() > 0, "an uploaded piece has bytes");
        let request = || self.client.put_part(&location, &upload.id, index, payload.clone());
        let piece = self
            .repeat(&self.counters.puts, payload.content_length(), request)
            .await;
        piece.map_err(|fault| fault.on(key, "upload"))
    }

    /// Creates the object from its pieces, `bytes` long.
    pub(crate) async fn complete_upload(
        &self,
        key: &str,
        upload: &Upload,
        pieces: Vec<PartId>,
        bytes: u64,
    ) -> Result<()> {
        assert!(!pieces.is_empty(), "an upload that is completed has a piece");
        let location = self.location(key)?;
        let mut failed = 0;
        loop {
            let request = self.client.complete_multipart(&location, &upload.id, pieces.clone());
            let fault = match self.attempt(&self.counters.puts, pieces.len() << 13, request).await {
                Ok(_) => return Ok(()),
                Err(fault) => fault,
            };
            failed += 1;
            // The response of an earlier attempt was lost: the upload is gone, and the object exists.
            if failed > 1 && matches!(self.head(key).await, Ok((len, _)) if len == bytes) {
                return Ok(());
            }
            if !matches!(fault, Fault::Unknown(_) | Fault::WrongTime(_)) || !self.pause(failed).await {
                return Err(fault.on(key, "complete upload"));
            }
        }
    }

    /// Abandons an upload. If the request fails, the pieces cost space until the store's own rules for old uploads
    /// remove them.
    pub(crate) async fn abort_upload(&self, key: &str, upload: &Upload) {
        if let Ok(location) = self.location(key)
            && let Err(fault) = self
                .attempt(
                    &self.counters.deletes,
                    0,
                    self.client.abort_multipart(&location, &upload.id),
                )
                .await
        {
            tracing::warn!(key, ?fault, "an unfinished upload was left over");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Caused {
        text: String,
        source: Option<Box<Caused>>,
    }

    #[test]
    fn a_long_text_leaves_room_for_its_causes() {
        let cause = Caused {
            text: "the cause".to_owned(),
            source: None,
        };
        let error = Caused {
            text: "ü".repeat(3_000),
            source: Some(Box::new(cause)),
        };
        let text = describe(&error);
        assert!(text.starts_with("üü") && text.ends_with("ü…: the cause"), "{text}");
        assert!(text.chars().count() < TEXT_MAX + 20, "{text}");
    }
}
