//! Growing files: a sequence of parts, `<path>/@<number, 8 hex digits>`.
//!
//! * Part 0 has no content. The file exists as long as it does: it is created first and deleted first.
//! * Parts 1, 2, … hold the bytes appended between two syncs, each created with put-if-absent, one after the other.
//! * An empty part is a seal: a new owner ended the file, and nothing comes after it. The seal outlives the file. An
//!   owner that slept when the file was sealed may wake up after it was deleted, and must find its next number taken.
//! * A put that was lost on its way, and repeated, may arrive at any later time. While the part exists, the put finds
//!   the number taken. After the file was deleted it does not: such a part 0 is a file again. The next owner recognizes
//!   it by its missing parts ([`Parts::is_void`]).
//!
//! An append is buffered in memory until the `sync`, which is one put. A put that failed may have happened or may yet
//! happen; nothing follows it in this file, as the trait demands.
//!
//! Reading shows the parts as one file. They are listed when it is opened.

use crate::shared::Shared;
use crate::store::Store;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;
use stele_storage::{AppendFile, ReadFile, Result, StorageError};

/// Directories of growing files: the prefixes of [`stele_storage::grows`].
pub(crate) const DIRECTORIES: [&str; 2] = ["log/", "coord/log-"];

/// Parts that one read fetches concurrently: enough to hide the latency of small ones, few enough not to be throttled.
const PARTS_CONCURRENT: usize = 32;

/// Bytes of a large part that take as long as a small part. Of [`PARTS_CONCURRENT`] concurrent requests each takes some 30
/// ms, and together they could transfer 70 MB/s.
pub(crate) const PART_COST_BYTES: u64 = 64 << 10;

pub(crate) fn part_key(path: &str, number: u32) -> String {
    format!("{path}/@{number:08x}")
}

/// The file and number of a part's key.
pub(crate) fn parse_part(key: &str) -> Option<(&str, u32)> {
    let (path, digits) = key.rsplit_once("/@")?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    (part_key(path, number) == key).then_some((path, number))
}

/// The parts of one file in a listing.
pub(crate) struct Parts {
    /// Numbers and lengths, ascending.
    parts: Vec<(u32, u64)>,
}

impl Parts {
    pub(crate) fn new(mut parts: Vec<(u32, u64)>) -> Parts {
        parts.sort_unstable();
        Parts { parts }
    }

    async fn list(store: &Store, path: &str) -> Result<Parts> {
        let keys = store.list(&format!("{path}/")).await?;
        let own = keys.iter().filter_map(|(key, len)| match parse_part(key) {
            Some((of, number)) if of == path => Some((number, *len)),
            _ => None,
        });
        Ok(Parts::new(own.collect()))
    }

    /// Whether there is a file, and not only the remains of a deletion.
    pub(crate) fn is_file(&self) -> bool {
        self.parts.first().is_some_and(|(number, _)| *number == 0)
    }

    /// Whether there are only the beginning of a file and its end. Then nothing was ever synced to it, or it was
    /// deleted and its first part has come back.
    fn is_void(&self) -> bool {
        matches!(self.parts.as_slice(), [(0, _), (_, 0)])
    }

    /// The number of the seal, if there is one.
    fn seal(&self) -> Option<u32> {
        let last = self.parts.last().filter(|(number, len)| *number > 0 && *len == 0);
        last.map(|(number, _)| *number)
    }

    /// The number after the last part, or `None` when the file is sealed.
    pub(crate) fn next(&self) -> Option<u32> {
        match self.parts.last() {
            _ if self.seal().is_some() => None,
            last => last.map_or(Some(0), |(number, _)| number.checked_add(1)),
        }
    }

    /// The keys that a deletion removes: all but the seal.
    pub(crate) fn keys_but_seal(&self, path: &str) -> Vec<String> {
        let kept = self.seal();
        let numbers = self.parts.iter().map(|(number, _)| *number);
        let taken = numbers.filter(|number| kept != Some(*number));
        taken.map(|number| part_key(path, number)).collect()
    }

    /// The key of the seal, where no other part is left.
    pub(crate) fn lone_seal(&self, path: &str) -> Option<String> {
        let seal = self.seal().filter(|_| self.parts.len() == 1);
        seal.map(|number| part_key(path, number))
    }

    /// The first number that is missing before a later part.
    fn hole(&self) -> Option<u32> {
        let mut expected = 0..;
        self.parts
            .iter()
            .map(|(number, _)| *number)
            .zip(&mut expected)
            .find_map(|(found, expected)| (found != expected).then_some(expected))
    }
}

/// Ends a file with these parts. Of a void file only the seal stays: a reader would take it for a file that lost the
/// data synced before its deletion.
pub(crate) async fn seal(store: &Store, path: &str, mut parts: Parts) -> Result<()> {
    while parts.is_file()
        && let Some(number) = parts.next()
    {
        assert!(number > 0, "a seal follows part 0");
        match store.put_new(&part_key(path, number), &[]).await {
            Ok(()) => parts.parts.push((number, 0)),
            // The old owner was faster, and its part counts. Or another new owner was, and its seal serves as well.
            Err(StorageError::AlreadyExists { .. }) => parts = Parts::list(store, path).await?,
            Err(error) => return Err(error),
        }
    }
    debug_assert!(
        !parts.is_file() || parts.next().is_none(),
        "nothing follows the last part of a sealed file"
    );
    if parts.is_void() {
        store.delete(&part_key(path, 0)).await
    } else {
        Ok(())
    }
}

pub(crate) async fn delete(store: &Store, path: &str) -> Result<()> {
    let parts = Parts::list(store, path).await?;
    store.delete(&part_key(path, 0)).await?;
    store.delete_many(&parts.keys_but_seal(path)).await
}

/// Creates part 0.
async fn begin(shared: &Shared, path: &str) -> Result<()> {
    let first = format!("stele-growing 1\nowner {}\n", shared.epoch);
    let made = shared.store.put_new(&part_key(path, 0), &[Bytes::from(first)]).await;
    made.map_err(|error| taken(path, error))
}

/// Names the path as taken, instead of one of its parts.
fn taken(path: &str, error: StorageError) -> StorageError {
    match error {
        StorageError::AlreadyExists { .. } => StorageError::AlreadyExists { path: path.to_owned() },
        other => other,
    }
}

/// Creates a whole file of one part, atomically: there is no file before part 0 exists. An interruption leaves the same
/// as a deletion.
pub(crate) async fn put(shared: &Shared, path: &str, content: Bytes) -> Result<()> {
    // Otherwise the content would become a part of an existing file.
    if Parts::list(&shared.store, path).await?.is_file() {
        return Err(StorageError::AlreadyExists { path: path.to_owned() });
    }
    if !content.is_empty() {
        let put = shared.store.put_new(&part_key(path, 1), &[content]).await;
        put.map_err(|error| taken(path, error))?;
    }
    begin(shared, path).await?;
    shared.verify(path).await
}

pub(crate) async fn create(shared: &Arc<Shared>, path: &str) -> Result<GrowingAppend> {
    begin(shared, path).await?;
    if let Err(error) = shared.verify(path).await {
        if !matches!(error, StorageError::Fenced { .. }) {
            // No caller knows of it, and there may be one for each group of writes while the store lists nothing.
            let (shared, first) = (Arc::clone(shared), part_key(path, 0));
            let env = shared.env.clone();
            env.spawn("log file given up", async move {
                let _ = shared.store.delete(&first).await;
            });
        }
        return Err(error);
    }
    Ok(GrowingAppend {
        shared: Arc::clone(shared),
        path: path.to_owned(),
        next: Some(1),
        pending: Vec::new(),
        pending_bytes: 0,
        len: 0,
    })
}

pub(crate) struct GrowingAppend {
    shared: Arc<Shared>,
    path: String,
    /// Number of the next part. `None` while a put is under way, so that after a failure, or when the future was
    /// dropped, no part follows.
    next: Option<u32>,
    /// Appended, but not put yet.
    pending: Vec<Bytes>,
    pending_bytes: usize,
    len: u64,
}

/// Bytes that an append leaves in memory at most. A group of the log has a few MiB, and its sync follows immediately.
const PENDING_BYTES_MAX: usize = 16 << 20;

impl GrowingAppend {
    fn refused(&self, operation: &'static str) -> StorageError {
        StorageError::Io {
            path: self.path.clone(),
            operation,
            message: "refused, because an earlier write of this file failed or was abandoned".to_owned(),
        }
    }

    /// Puts the pending bytes as the next part.
    async fn put(&mut self, operation: &'static str) -> Result<()> {
        let number = self.next.take().ok_or_else(|| self.refused(operation))?;
        assert!(number > 0, "part 0 has no content");
        assert!(self.pending_bytes > 0, "an empty part would seal the file");
        debug_assert_eq!(
            self.pending.iter().map(Bytes::len).sum::<usize>(),
            self.pending_bytes,
            "the buffered bytes are counted"
        );
        match self
            .shared
            .store
            .put_new(&part_key(&self.path, number), &self.pending)
            .await
        {
            Ok(()) => {}
            // Only a new owner creates parts of our files.
            Err(StorageError::AlreadyExists { .. }) => {
                return Err(self
                    .shared
                    .fence
                    .trip(&self.path, "a newer owner, which sealed the file".to_owned()));
            }
            Err(error) => return Err(error),
        }
        self.pending.clear();
        self.pending_bytes = 0;
        self.next = number.checked_add(1);
        Ok(())
    }
}

#[async_trait]
impl AppendFile for GrowingAppend {
    async fn append(&mut self, slices: &[Bytes]) -> Result<()> {
        self.shared.fence.check(&self.path)?;
        if self.next.is_none() {
            return Err(self.refused("append"));
        }
        let bytes: usize = slices.iter().map(Bytes::len).sum();
        self.pending
            .extend(slices.iter().filter(|slice| !slice.is_empty()).cloned());
        self.pending_bytes += bytes;
        if self.pending_bytes > PENDING_BYTES_MAX {
            self.put("append").await?;
        }
        self.len += bytes as u64;
        assert!(
            self.pending_bytes as u64 <= self.len,
            "buffered bytes are part of the file"
        );
        assert!(
            self.pending_bytes <= PENDING_BYTES_MAX,
            "an append buffers a bounded number of bytes"
        );
        Ok(())
    }

    async fn sync(&mut self) -> Result<()> {
        self.shared.fence.check(&self.path)?;
        if self.next.is_none() {
            return Err(self.refused("sync"));
        }
        if self.pending_bytes > 0 {
            self.put("sync").await?;
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn reading_cost(&self) -> u64 {
        let parts = self.next.map_or(0, |next| u64::from(next) - 1);
        let cost = self.len.max(parts * self.shared.part_cost());
        debug_assert!(cost >= self.len, "a reading transfers all bytes");
        cost
    }
}

/// Opens a file in its present state.
pub(crate) async fn open(shared: &Arc<Shared>, path: &str) -> Result<GrowingRead> {
    let parts = Parts::list(&shared.store, path).await?;
    if !parts.is_file() {
        return Err(StorageError::NotFound { path: path.to_owned() });
    }
    let hole = parts.hole();
    if hole.is_some() || parts.parts.len() == 1 {
        // A deletion under way has the same effect: a gap, or, where the listing is not of one instant, the first part
        // alone. The first part is deleted first.
        let first = shared.store.head(&part_key(path, 0)).await;
        first.map_err(|error| error.of_whole(path))?;
    }
    if let Some(number) = hole {
        return Err(StorageError::Lost {
            path: part_key(path, number),
            detail: "the part is missing, though later ones are there",
        });
    }
    let mut ends = Vec::with_capacity(parts.parts.len());
    let mut len = 0;
    for (_, bytes) in parts.parts.iter().skip(1) {
        len += bytes;
        ends.push(len);
    }
    Ok(GrowingRead {
        shared: Arc::clone(shared),
        path: path.to_owned(),
        ends,
    })
}

pub(crate) struct GrowingRead {
    shared: Arc<Shared>,
    path: String,
    /// The end of part `i + 1` in the file.
    ends: Vec<u64>,
}

#[async_trait]
impl ReadFile for GrowingRead {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.shared.fence.check(&self.path)?;
        stele_storage::check_range(&self.path, offset, len, self.len())?;
        let end = offset + len as u64;
        let first = self.ends.partition_point(|part_end| *part_end <= offset);
        let pieces = self.ends.iter().enumerate().skip(first).map_while(|(index, part_end)| {
            let part_start = index
                .checked_sub(1)
                .and_then(|i| self.ends.get(i))
                .copied()
                .unwrap_or(0);
            let (from, to) = (offset.max(part_start), end.min(*part_end));
            (from < to).then(|| (index as u32 + 1, from - part_start, (to - from) as usize))
        });
        let fetches = pieces.map(|(number, from, len)| async move {
            let key = part_key(&self.path, number);
            match self.shared.store.get_range(&key, from, len).await {
                Err(StorageError::NotFound { .. }) => {
                    // Either the file was deleted in the meantime, or a part of it was lost.
                    let first = part_key(&self.path, 0);
                    self.shared
                        .store
                        .head(&first)
                        .await
                        .map_err(|error| error.of_whole(&self.path))?;
                    Err(StorageError::Lost {
                        path: key,
                        detail: "the part is missing, though the file is there",
                    })
                }
                other => other,
            }
        });
        let mut pieces: Vec<Bytes> = futures::stream::iter(fetches.collect::<Vec<_>>())
            .buffered(PARTS_CONCURRENT)
            .try_collect()
            .await?;
        if pieces.len() == 1 {
            return Ok(pieces.pop().unwrap_or_default());
        }
        let mut content = BytesMut::with_capacity(len);
        pieces.iter().for_each(|piece| content.extend_from_slice(piece));
        debug_assert_eq!(content.len(), len, "the ranges of all parts add up to the read");
        Ok(content.freeze())
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        let checked = stele_storage::check_range(&self.path, offset, len, self.len());
        checked.err().map(Err)
    }

    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn reading_cost(&self) -> u64 {
        debug_assert!(
            self.ends.is_sorted(),
            "the end of each part is not before that of the one before"
        );
        self.len().max(self.ends.len() as u64 * self.shared.part_cost())
    }

    fn path(&self) -> &str {
        &self.path
    }
}
