//! Reads a segment from front to back, ahead of the records that are handed out.
//!
//! Several requests are under way while records go into memtables. Where a request reads one object of many, each range is
//! one object: a group is in one object, so its bytes need not be joined.

use super::reader::READ_BYTES;
use crate::error::LogError;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesOrdered;
use std::sync::Arc;
use stele_storage::{ReadFile, StorageError};

/// Requests under way: enough to hide the latency of small objects.
const REQUESTS_MAX: usize = 32;
/// Bytes from which on no further request is made.
const BYTES_MAX: usize = 2 * READ_BYTES;

/// The bytes of a file from an offset on.
pub(super) struct Ahead {
    file: Arc<dyn ReadFile>,
    /// Where the next request begins.
    requested: u64,
    end: u64,
    reads: FuturesOrdered<BoxFuture<'static, Result<Bytes, StorageError>>>,
    /// Of `reads`.
    bytes: usize,
    /// Read, and not handed out yet.
    left: Bytes,
}

impl Ahead {
    /// Requests nothing yet.
    pub(super) fn new(file: Arc<dyn ReadFile>, from: u64, end: u64) -> Self {
        Ahead {
            file,
            requested: from.min(end),
            end,
            reads: FuturesOrdered::new(),
            bytes: 0,
            left: Bytes::new(),
        }
    }

    /// The offset of the byte that is handed out next.
    pub(super) fn at(&self) -> u64 {
        self.requested - (self.bytes + self.left.len()) as u64
    }

    /// `rest` and the bytes behind it, `len` at least. The file has as many before the end.
    pub(super) async fn extend(&mut self, rest: Bytes, len: usize) -> Result<Bytes, LogError> {
        if rest.is_empty() {
            let next = self.next().await?;
            if next.len() >= len {
                return Ok(next);
            }
            return self.join(next, len).await;
        }
        self.join(rest, len).await
    }

    /// Exactly `len` bytes, copied together.
    async fn join(&mut self, rest: Bytes, len: usize) -> Result<Bytes, LogError> {
        let mut joined = BytesMut::with_capacity(len);
        joined.extend_from_slice(&rest);
        while joined.len() < len {
            let mut next = self.next().await?;
            assert!(!next.is_empty(), "the caller asks for bytes before the end");
            let wanted = (len - joined.len()).min(next.len());
            joined.extend_from_slice(&next.split_to(wanted));
            self.left = next;
        }
        Ok(joined.freeze())
    }

    /// The bytes of one request, or those left of them; none at the end.
    async fn next(&mut self) -> Result<Bytes, LogError> {
        if !self.left.is_empty() {
            return Ok(std::mem::take(&mut self.left));
        }
        self.request();
        let Some(read) = self.reads.next().await else {
            return Ok(Bytes::new());
        };
        let read = read?;
        assert!(read.len() <= self.bytes, "a read gives the bytes that were requested");
        self.bytes -= read.len();
        Ok(read)
    }

    fn request(&mut self) {
        while self.requested < self.end && self.reads.len() < REQUESTS_MAX && self.bytes < BYTES_MAX {
            let (file, from) = (self.file.clone(), self.requested);
            let len = range_len(&*file, from, self.end);
            self.reads
                .push_back(async move { file.read_at(from, len).await }.boxed());
            self.requested += len as u64;
            self.bytes += len;
        }
    }
}

/// Length of the range from an offset before `end` that one request reads.
pub(super) fn range_len(file: &dyn ReadFile, from: u64, end: u64) -> usize {
    debug_assert!(from < end, "there is a byte to read");
    let most = end.min(from + READ_BYTES as u64);
    let range_end = file.request_end(from).map_or(most, |end| end.clamp(from + 1, most));
    (range_end - from) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use parking_lot::Mutex;

    /// A file of objects of ten bytes, and the ranges that were read.
    struct OfObjects {
        content: Bytes,
        reads: Mutex<Vec<(u64, usize)>>,
    }

    #[async_trait]
    impl ReadFile for OfObjects {
        async fn read_at(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
            self.reads.lock().push((offset, len));
            Ok(self.content.slice(offset as usize..offset as usize + len))
        }
        fn try_read_at(&self, _offset: u64, _len: usize) -> Option<stele_storage::Result<Bytes>> {
            None
        }
        fn request_end(&self, offset: u64) -> Option<u64> {
            Some((offset / 10 + 1) * 10)
        }
        fn len(&self) -> u64 {
            self.content.len() as u64
        }
        fn path(&self) -> &str {
            "log/0000/0000000000000001.log"
        }
    }

    fn file(bytes: u8) -> Arc<OfObjects> {
        Arc::new(OfObjects {
            content: (0..bytes).collect::<Vec<u8>>().into(),
            reads: Mutex::default(),
        })
    }

    #[tokio::test]
    async fn each_object_is_read_by_one_request() {
        let file = file(45);
        let mut ahead = Ahead::new(file.clone(), 5, 45);
        let first = ahead.extend(Bytes::new(), 3).await.unwrap();
        assert_eq!(first, file.content.slice(5..10), "the rest of its object comes with it");
        // A part of the next object: the rest is not lost.
        let across = ahead.extend(first.slice(3..), 9).await.unwrap();
        assert_eq!(across, file.content.slice(8..17));
        assert_eq!(ahead.at(), 17);
        assert_eq!(ahead.extend(Bytes::new(), 1).await.unwrap(), file.content.slice(17..20));
        assert_eq!(
            ahead.extend(Bytes::new(), 25).await.unwrap(),
            file.content.slice(20..45)
        );
        assert_eq!(ahead.at(), 45);
        assert_eq!(*file.reads.lock(), [(5, 5), (10, 10), (20, 10), (30, 10), (40, 5)]);
    }

    #[tokio::test]
    async fn nothing_behind_the_end_is_read() {
        let file = file(45);
        let mut ahead = Ahead::new(file.clone(), 0, 12);
        assert_eq!(ahead.extend(Bytes::new(), 12).await.unwrap(), file.content.slice(0..12));
        assert_eq!(*file.reads.lock(), [(0, 10), (10, 2)]);
        assert_eq!(ahead.next().await.unwrap(), Bytes::new());
    }
}
