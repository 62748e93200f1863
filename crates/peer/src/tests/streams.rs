//! Reads: order, bounds with a slow reader, large rows, cancels.

use super::malformed::request;
use super::support::*;
use crate::frame::{Encoded, FrameKind};
use crate::messages::{CallKind, encode_mutate, encode_read};
use crate::server::{ConnectionError, PeerServer};
use async_trait::async_trait;
use bytes::Bytes;
use std::future::pending;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stele_client::{BatchReservation, ServiceResult, TabletService};
use stele_memory::{OVERDRAFT_BYTES, Part, Pool};
use stele_types::{ErrorKind, RowBatch, RowRange, RowSet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn a_stream_keeps_its_order_to_its_end() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), tablets());
    *tablets.batches.lock() = batches(50, 10_000);
    let read = async {
        let mut stream = remote.read(TABLET, scan()).await.unwrap();
        for expected in batches(50, 10_000) {
            assert_eq!(stream.next().await.unwrap(), Some(expected));
        }
        assert_eq!(stream.next().await, Ok(None));
        assert_eq!(stream.next().await, Ok(None));
        until(|| tablets.running() == 0).await;
    };
    tokio::join!(read, net.serve(&tablets, pending())).1.abort();
}

#[tokio::test]
async fn a_row_in_memory_needs_no_stream() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), tablets());
    let row = RowBatch::of_row(Bytes::from_static(b"r"), vec![cell(9)]);
    *tablets.in_memory.lock() = Some(row.clone());
    let read = async {
        let mut stream = remote.read(TABLET, point("r")).await.unwrap();
        assert_eq!(stream.next().await, Ok(Some(row)));
        assert_eq!(stream.next().await, Ok(None));
        assert_eq!(tablets.batches_read.load(Ordering::SeqCst), 0);
        // A scan is not answered from there, and a large row waits for the reader's memory.
        *tablets.batches.lock() = batches(1, 1);
        let mut stream = remote.read(TABLET, scan()).await.unwrap();
        assert_eq!(stream.next().await, Ok(batches(1, 1).pop_front()));
        *tablets.in_memory.lock() = batches(1, 2 << 20).pop_front();
        *tablets.batches.lock() = batches(1, 2 << 20);
        let mut stream = remote.read(TABLET, point("r")).await.unwrap();
        assert_eq!(stream.next().await, Ok(batches(1, 2 << 20).pop_front()));
        assert_eq!(tablets.batches_read.load(Ordering::SeqCst), 2);
    };
    tokio::join!(read, net.serve(&tablets, pending())).1.abort();
}

#[tokio::test]
async fn a_slow_reader_stays_bounded_and_holds_up_nobody() {
    let pool = Pool::default();
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote_within(&pool), tablets());
    *tablets.batches.lock() = batches(1_000, 300_000);
    let read = async {
        let mut stream = remote.read(TABLET, scan()).await.unwrap();
        for taken in 1..6 {
            stream.next().await.unwrap().unwrap();
            settle().await;
            // One is read ahead, once the second was taken.
            let most = if taken < 2 { taken } else { taken + 1 };
            assert_eq!(tablets.batches_read.load(Ordering::SeqCst), most);
        }
        assert_eq!(pool.of(Part::Readahead).used(), 1 << 20);
        assert!(remote.sample(TABLET, 1).await.is_ok());
        assert_eq!(tablets.running(), 1);
        drop(stream);
        until(|| tablets.running() == 0).await;
        assert_eq!(pool.of(Part::Readahead).used(), 0);
    };
    tokio::join!(read, net.serve(&tablets, pending())).1.abort();
}

/// Memory of a reader that grows.
struct Memory {
    bytes: usize,
    /// A request for as much gets the overdraft.
    limit: usize,
    renewed: Vec<usize>,
}

impl Memory {
    fn new(bytes: usize) -> Self {
        Memory {
            bytes,
            limit: usize::MAX,
            renewed: Vec::new(),
        }
    }
}

#[async_trait]
impl BatchReservation for Memory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    async fn renew(&mut self, bytes: usize) -> ServiceResult<()> {
        assert!(self.bytes < self.limit, "it has all that there is");
        self.bytes = match bytes < self.limit {
            true => bytes,
            false => OVERDRAFT_BYTES,
        };
        self.renewed.push(bytes);
        Ok(())
    }
}

#[tokio::test]
async fn a_large_row_waits_for_the_readers_memory() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), tablets());
    tablets.room.store(5 << 20, Ordering::SeqCst);
    *tablets.batches.lock() = batches(2, 4 << 20);
    let read = async {
        let mut memory = Memory::new(1 << 20);
        let mut stream = remote.read(TABLET, scan()).await.unwrap();
        let row = stream.next_within(&mut memory).await.unwrap();
        assert_eq!(row, batches(1, 4 << 20).pop_front());
        assert_eq!(memory.renewed, [5 << 20]);
        // Without a reservation the stream takes the memory that is needed.
        assert!(stream.next().await.unwrap().is_some());
        assert_eq!(stream.next().await, Ok(None));
    };
    tokio::join!(read, net.serve(&tablets, pending())).1.abort();
}

#[tokio::test]
async fn a_row_may_take_all_memory_for_rows() {
    let mib = |bytes: usize| bytes >> 20;
    for (row, fits) in [(90 << 20, true), (OVERDRAFT_BYTES + 1, false)] {
        let pool = Pool::default().limited(Part::PeerRows, 8 << 20);
        let mut net = net(1 << 16, 0);
        let (remote, tablets) = (net.remote(), tablets());
        // The size of the memory that it takes; it is not allocated.
        tablets.room.store(row, Ordering::SeqCst);
        *tablets.batches.lock() = batches(1, 100);
        let read = async {
            let mut memory = Memory::new(1 << 20);
            memory.limit = 32 << 20;
            let mut stream = remote.read(TABLET, scan()).await.unwrap();
            match stream.next_within(&mut memory).await {
                Ok(row) => assert_eq!((row, fits), (batches(1, 100).pop_front(), true)),
                Err(error) => assert_eq!((error.kind, fits), (ErrorKind::ResourceExhausted, false), "{error}"),
            }
            let renewed: Vec<usize> = memory.renewed.iter().copied().map(mib).collect();
            assert_eq!(renewed, [5, 20, 80]);
        };
        let server = net.serve_within(&pool, &tablets, pending());
        tokio::join!(read, server).1.abort();
    }
}

/// Each of two servers would otherwise wait for rows that the other one sends once its own request has its memory.
#[tokio::test(start_paused = true)]
async fn copies_of_requests_leave_the_memory_of_rows_alone() {
    let pool = Pool::default().limited(Part::Peers, 4 << 20);
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote_within(&pool), tablets());
    let rows = || {
        let mut request = scan();
        let row = |at: u32| Bytes::from(format!("{at:0100}"));
        request.rows = RowSet::new((0..30_000).map(|at| RowRange::single(&row(at))).collect());
        request
    };
    let read = async || {
        let mut stream = remote.read(TABLET, rows()).await.unwrap();
        stream.next().await
    };
    // The second request waits for the answer to the first.
    let reads = async { tokio::join!(read(), read()) };
    let ((first, second), server) = tokio::join!(reads, net.serve_within(&pool, &tablets, pending()));
    assert_eq!((first, second), (Ok(None), Ok(None)));
    server.abort();
}

#[tokio::test]
async fn an_encoding_that_is_larger_than_its_room_waits_too() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), tablets());
    // These rows are read without regard to the reservation.
    *tablets.batches.lock() = batches(3, 4 << 20);
    let read = async {
        let mut memory = Memory::new(1_000);
        let mut stream = remote.read(TABLET, scan()).await.unwrap();
        for _ in 0..3 {
            assert!(stream.next_within(&mut memory).await.unwrap().is_some());
            memory.bytes = 1_000;
        }
        assert_eq!(memory.renewed.len(), 3);
        assert!(memory.renewed.iter().all(|bytes| *bytes > 4 << 20));
    };
    tokio::join!(read, net.serve(&tablets, pending())).1.abort();
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_loses_its_stream() {
    let mut net = net(1 << 16, 0);
    let env = net.env.clone();
    let (remote, tablets) = (net.remote(), tablets());
    *tablets.batches.lock() = batches(1_000, 100);
    let read = async {
        let mut stream = remote.read(TABLET, scan()).await.unwrap();
        assert!(stream.next().await.unwrap().is_some());
        assert_eq!(tablets.running(), 1);
        env.sleep(Duration::from_secs(61)).await;
        assert_eq!(tablets.running(), 0, "the scan has ended");
        // The router goes on with a new one.
        assert_eq!(stream.next().await.unwrap_err().kind, ErrorKind::Unavailable);
    };
    tokio::join!(read, net.serve(&tablets, pending())).1.abort();
}

/// The write may hold a latch that writes of other connections wait for.
#[tokio::test]
async fn a_write_ends_also_if_its_caller_takes_no_answers() {
    let (net, tablets) = (net(1, 0), closed_tablets());
    *tablets.batches.lock() = batches(2, 1_300_000);
    let server = PeerServer::new(net.env.clone(), &Pool::default(), OWNER, tablets.clone());
    let (mut caller, end) = tokio::io::duplex(64 << 10);
    let talk = async {
        greet(&mut caller).await;
        let write = request(1, Ok(CallKind::Mutate), &encode_mutate(&writes("a"), None).into_bytes());
        let read = request(2, Ok(CallKind::Read), &encode_read(&scan()).unwrap().into_bytes());
        caller.write_all(&[write, read].concat()).await.unwrap();
        until(|| tablets.running() == 2 && tablets.batches_read.load(Ordering::SeqCst) == 1).await;
        // More than a megabyte waits to be taken now.
        settle().await;
        tablets.gate.add_permits(1);
        until(|| tablets.running() == 1).await;
        assert_eq!(*tablets.written.lock(), ["a"]);
        assert_eq!(
            tablets.batches_read.load(Ordering::SeqCst),
            1,
            "a stream waits for credit"
        );
    };
    tokio::select! {
        ended = server.serve(end, pending()) => unreachable!("{ended:?}"),
        () = talk => {}
    }
}

/// The pings of a caller may wait behind its own requests while rows arrive.
#[tokio::test(start_paused = true)]
async fn a_caller_that_takes_a_large_row_is_alive() {
    let (net, tablets) = (net(1, 0), tablets());
    let (piece, seconds) = (64 << 10, 40_u64);
    *tablets.batches.lock() = batches(1, piece * seconds as usize);
    let server = PeerServer::new(net.env.clone(), &Pool::default(), OWNER, tablets.clone());
    let (mut caller, end) = tokio::io::duplex(piece);
    let talk = async {
        greet(&mut caller).await;
        let read = request(1, Ok(CallKind::Read), &encode_read(&scan()).unwrap().into_bytes());
        let credit = Encoded::bare(FrameKind::Credit, 1, &(100_u64 << 20).to_le_bytes());
        caller.write_all(&[&read, credit.head()].concat()).await.unwrap();
        let mut taken = 0;
        while taken < piece * seconds as usize {
            net.env.sleep(Duration::from_secs(1)).await;
            let read = caller.read(&mut vec![0; piece]).await.unwrap();
            assert!(read > 0, "the connection ended after {taken} bytes");
            taken += read;
        }
        net.env.now()
    };
    let (ended, taken) = tokio::join!(server.serve(end, pending()), talk);
    assert!(matches!(ended, Err(ConnectionError::Silent)), "{ended:?}");
    let silent = (net.env.now() - taken).as_secs();
    assert!((5..9).contains(&silent), "{silent}");
}
