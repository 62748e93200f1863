//! Reads segments one after the other, ahead of the records that are handed out.
//!
//! Several requests are under way while records go into memtables, also those for the segments that follow: the end of one is no reason
//! to wait. Where a request reads one object of many, each range is one object: a group is in one object, so its bytes need not be
//! joined.

use super::reader::READ_BYTES;
use crate::error::LogError;
use crate::format::SEGMENT_HEADER_BYTES;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, poll_fn};
use futures::stream::FuturesUnordered;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use stele_storage::{ReadFile, StorageError};

/// Requests under way: enough to hide the latency of small objects.
const REQUESTS_MAX: usize = 32;
/// Bytes that are requested or read and not handed out, from which on no further request is made. With requests that take 30 ms that is half
/// a gigabyte in a second.
const BYTES_MAX: usize = 4 * READ_BYTES;
/// The largest object that one request reads: one of a full group, whose last record is large.
const OBJECT_BYTES_MAX: u64 = 2 * READ_BYTES as u64;

/// The bytes of segments behind their headers.
pub(super) struct Ahead {
    /// Segments that are not requested to their ends.
    parts: VecDeque<Part>,
    /// Requests under way, with their numbers.
    reads: FuturesUnordered<BoxFuture<'static, (u64, Read)>>,
    /// All requests in their order, and the results of those that have ended.
    ended: VecDeque<Option<Read>>,
    /// The number of the first of them.
    first: u64,
    /// Of all requests that were made and not handed out.
    bytes: usize,
    /// The segment whose bytes are handed out, counted from 0.
    present: usize,
    /// Where in it the byte is that is handed out next.
    at: u64,
    /// Read, and not handed out yet.
    left: Bytes,
}

/// A segment of which not everything is requested.
struct Part {
    segment: usize,
    file: Arc<dyn ReadFile>,
    /// Where the next request begins.
    requested: u64,
    end: u64,
}

/// A request that has ended.
struct Read {
    segment: usize,
    /// Bytes that were requested.
    len: usize,
    read: Result<Bytes, StorageError>,
}

impl Ahead {
    /// Of segments with the offsets at which their contents end. Requests nothing yet.
    pub(super) fn new(segments: impl Iterator<Item = (Arc<dyn ReadFile>, u64)>) -> Self {
        let parts = segments.enumerate().map(|(segment, (file, end))| Part {
            segment,
            file,
            requested: SEGMENT_HEADER_BYTES as u64,
            end,
        });
        Ahead {
            parts: parts.filter(|part| part.requested < part.end).collect(),
            reads: FuturesUnordered::new(),
            ended: VecDeque::new(),
            first: 0,
            bytes: 0,
            present: 0,
            at: SEGMENT_HEADER_BYTES as u64,
            left: Bytes::new(),
        }
    }

    /// Reads as much as is read ahead. The future may be dropped: the bytes read by then stay.
    pub(super) async fn fill(&mut self) {
        poll_fn(|cx| {
            self.request();
            self.go_on(cx);
            match self.reads.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Hands out the bytes of this segment from now on, and those of earlier ones no more.
    pub(super) fn begin(&mut self, segment: usize) {
        assert!(segment >= self.present, "segments are read in their order");
        self.parts.retain(|part| part.segment >= segment);
        self.bytes -= std::mem::take(&mut self.left).len();
        (self.present, self.at) = (segment, SEGMENT_HEADER_BYTES as u64);
    }

    /// The offset of the byte that is handed out next.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// `rest` and the bytes behind it, `len` at least. The segment has as many before its end.
    pub(super) async fn extend(&mut self, rest: Bytes, len: usize) -> Result<Bytes, LogError> {
        if rest.is_empty() {
            let next = self.next().await?;
            if next.len() >= len {
                return Ok(self.hand_out(next));
            }
            return self.join(rest, next, len).await;
        }
        self.join(rest, Bytes::new(), len).await
    }

    /// Exactly `len` bytes, copied together.
    async fn join(&mut self, rest: Bytes, mut next: Bytes, len: usize) -> Result<Bytes, LogError> {
        let mut joined = BytesMut::with_capacity(len);
        joined.extend_from_slice(&rest);
        loop {
            let wanted = (len - joined.len()).min(next.len());
            let taken = next.split_to(wanted);
            joined.extend_from_slice(&self.hand_out(taken));
            if joined.len() == len {
                self.left = next;
                return Ok(joined.freeze());
            }
            next = self.next().await?;
            assert!(!next.is_empty(), "the caller asks for bytes before the end");
        }
    }

    fn hand_out(&mut self, bytes: Bytes) -> Bytes {
        assert!(
            bytes.len() <= self.bytes,
            "bytes are requested before they are handed out"
        );
        self.bytes -= bytes.len();
        self.at += bytes.len() as u64;
        bytes
    }

    /// The bytes of one request for the present segment, or those left of them; none at its end.
    async fn next(&mut self) -> Result<Bytes, LogError> {
        if !self.left.is_empty() {
            return Ok(std::mem::take(&mut self.left));
        }
        loop {
            self.request();
            let Some(next) = poll_fn(|cx| self.poll_first(cx)).await else {
                return Ok(Bytes::new());
            };
            match next.read {
                Ok(read) if next.segment == self.present => {
                    assert_eq!(read.len(), next.len, "a read gives the bytes that were requested");
                    return Ok(read);
                }
                Err(error) if next.segment == self.present => {
                    self.bytes -= next.len;
                    return Err(error.into());
                }
                // Its segment does not count, or was deleted.
                _ => self.bytes -= next.len,
            }
        }
    }

    /// The result of the first request, once it has ended; `None` if that is for a later segment, or there is none.
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Option<Read>> {
        self.go_on(cx);
        let first = match self.ended.front_mut() {
            Some(first) => first,
            None => return Poll::Ready(None),
        };
        match first.take_if(|read| read.segment <= self.present) {
            Some(read) => {
                self.ended.pop_front();
                self.first += 1;
                Poll::Ready(Some(read))
            }
            None if first.is_some() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    /// Moves all requests on as far as they go without waiting, those behind the first, too: a request that is not polled does not even begin.
    fn go_on(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some((number, read))) = self.reads.poll_next_unpin(cx) {
            let place = usize::try_from(number - self.first).unwrap_or(usize::MAX);
            let ended = self.ended.get_mut(place).and_then(|slot| slot.replace(read));
            debug_assert!(ended.is_none(), "a request ends once");
        }
    }

    fn request(&mut self) {
        while self.ended.len() < REQUESTS_MAX && self.bytes < BYTES_MAX {
            let Some(part) = self.parts.front_mut() else { return };
            let (segment, file, from) = (part.segment, part.file.clone(), part.requested);
            let len = range_len(&*file, from, part.end);
            let number = self.first + self.ended.len() as u64;
            self.ended.push_back(None);
            let reading = async move { (number, read(segment, file, from, len).await) };
            self.reads.push(reading.boxed());
            part.requested += len as u64;
            self.bytes += len;
            if part.requested == part.end {
                self.parts.pop_front();
            }
        }
    }
}

/// Reads a range. The first one of a segment begins with the header if that is in the same object: to some stores a request for a whole
/// object costs less than one for nearly all of it.
async fn read(segment: usize, file: Arc<dyn ReadFile>, from: u64, len: usize) -> Read {
    let is_first = from == SEGMENT_HEADER_BYTES as u64 && file.request_end(0) == file.request_end(from);
    let header = if is_first { SEGMENT_HEADER_BYTES } else { 0 };
    let read = file.read_at(from - header as u64, header + len).await;
    Read {
        segment,
        len,
        read: read.map(|mut read| read.split_off(header)),
    }
}

/// Length of the range from an offset before `end` that one request reads.
fn range_len(file: &dyn ReadFile, from: u64, end: u64) -> usize {
    debug_assert!(from < end, "there is a byte to read");
    let range_end = match file.request_end(from) {
        Some(request_end) => request_end.clamp(from + 1, end.min(from + OBJECT_BYTES_MAX)),
        None => end.min(from + READ_BYTES as u64),
    };
    (range_end - from) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use parking_lot::Mutex;

    const HEADER: u64 = SEGMENT_HEADER_BYTES as u64;

    /// A segment of objects of a hundred bytes, and the ranges that were read.
    struct OfObjects {
        content: Bytes,
        reads: Mutex<Vec<(u64, usize)>>,
    }

    #[async_trait]
    impl ReadFile for OfObjects {
        async fn read_at(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
            self.reads.lock().push((offset, len));
            if self.content.is_empty() {
                return Err(StorageError::NotFound {
                    path: self.path().to_owned(),
                });
            }
            Ok(self.content.slice(offset as usize..offset as usize + len))
        }
        fn try_read_at(&self, _offset: u64, _len: usize) -> Option<stele_storage::Result<Bytes>> {
            None
        }
        fn request_end(&self, offset: u64) -> Option<u64> {
            Some((offset / 100 + 1) * 100)
        }
        fn len(&self) -> u64 {
            self.content.len() as u64
        }
        fn path(&self) -> &str {
            "log/0000/0000000000000001.log"
        }
    }

    fn file(bytes: usize) -> Arc<OfObjects> {
        let content: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        Arc::new(OfObjects {
            content: content.into(),
            reads: Mutex::default(),
        })
    }

    fn over(files: &[(&Arc<OfObjects>, u64)]) -> Ahead {
        let files = files.iter().map(|(file, end)| {
            let file: Arc<dyn ReadFile> = (*file).clone();
            (file, *end)
        });
        Ahead::new(files)
    }

    #[tokio::test]
    async fn each_object_is_read_by_one_request() {
        let file = file(450);
        let mut ahead = over(&[(&file, 450)]);
        let first = ahead.extend(Bytes::new(), 3).await.unwrap();
        assert_eq!(
            first,
            file.content.slice(56..100),
            "the rest of its object comes with it"
        );
        // A part of the next object: the rest is not lost.
        let across = ahead.extend(first.slice(30..), 90).await.unwrap();
        assert_eq!(across, file.content.slice(86..176));
        assert_eq!(ahead.at(), 176);
        assert_eq!(
            ahead.extend(Bytes::new(), 1).await.unwrap(),
            file.content.slice(176..200)
        );
        assert_eq!(
            ahead.extend(Bytes::new(), 250).await.unwrap(),
            file.content.slice(200..450)
        );
        assert_eq!((ahead.at(), ahead.bytes), (450, 0));
        assert_eq!(
            *file.reads.lock(),
            [(0, 100), (100, 100), (200, 100), (300, 100), (400, 50)]
        );
    }

    #[tokio::test]
    async fn nothing_behind_the_end_is_read() {
        let file = file(450);
        let mut ahead = over(&[(&file, 120)]);
        assert_eq!(
            ahead.extend(Bytes::new(), 64).await.unwrap(),
            file.content.slice(56..120)
        );
        assert_eq!(*file.reads.lock(), [(0, 100), (100, 20)]);
        assert_eq!(ahead.next().await.unwrap(), Bytes::new());
    }

    /// Their requests are under way while the first segment is read.
    #[tokio::test]
    async fn later_segments_are_read_ahead() {
        let (first, empty, second) = (file(100), file(100), file(200));
        let mut ahead = over(&[(&first, 100), (&empty, HEADER), (&second, 200)]);
        assert_eq!(ahead.extend(Bytes::new(), 44).await.unwrap(), first.content.slice(56..));
        assert_eq!(*second.reads.lock(), [(0, 100), (100, 100)]);
        assert_eq!(ahead.next().await.unwrap(), Bytes::new(), "the first has ended");
        ahead.begin(2);
        assert_eq!(ahead.at(), HEADER);
        assert_eq!(
            ahead.extend(Bytes::new(), 44).await.unwrap(),
            second.content.slice(56..100)
        );
        assert_eq!(
            ahead.extend(Bytes::new(), 100).await.unwrap(),
            second.content.slice(100..)
        );
        assert_eq!((ahead.bytes, empty.reads.lock().len()), (0, 0));
    }

    /// It does not count, say, because one before it lost its end. Or it was deleted, and cannot be read.
    #[tokio::test]
    async fn segments_may_be_left_out() {
        let (first, deleted, third) = (file(300), file(0), file(200));
        for left_out in [1, 2] {
            let mut ahead = over(&[(&first, 300), (&deleted, 300), (&third, 200)]);
            assert_eq!(
                ahead.extend(Bytes::new(), 50).await.unwrap(),
                first.content.slice(56..106)
            );
            if left_out == 1 {
                ahead.begin(1);
                assert!(ahead.extend(Bytes::new(), 1).await.is_err());
            }
            ahead.begin(2);
            assert_eq!(
                ahead.extend(Bytes::new(), 144).await.unwrap(),
                third.content.slice(56..)
            );
            assert_eq!(ahead.bytes, 0, "nothing counts that is not handed out");
        }
    }

    #[tokio::test]
    async fn bytes_may_be_read_before_they_are_wanted() {
        let (first, second) = (file(200), file(300));
        let mut ahead = over(&[(&first, 200), (&second, 300)]);
        ahead.fill().await;
        assert_eq!((first.reads.lock().len(), second.reads.lock().len()), (2, 3));
        assert_eq!(
            ahead.extend(Bytes::new(), 144).await.unwrap(),
            first.content.slice(56..)
        );
        ahead.begin(1);
        assert_eq!(
            ahead.extend(Bytes::new(), 244).await.unwrap(),
            second.content.slice(56..)
        );
        assert_eq!((ahead.bytes, second.reads.lock().len()), (0, 3));
    }

    #[tokio::test]
    async fn a_bounded_number_of_bytes_is_read_ahead() {
        let files: Vec<Arc<OfObjects>> = (0..40).map(|_| file(200)).collect();
        let parts: Vec<_> = files.iter().map(|file| (file, 200)).collect();
        let mut ahead = over(&parts);
        ahead.request();
        assert_eq!(ahead.reads.len(), REQUESTS_MAX);
        let mut ahead = over(&parts);
        ahead.bytes = BYTES_MAX;
        ahead.request();
        assert_eq!(ahead.reads.len(), 0);
    }
}
