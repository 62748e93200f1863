//! A runtime whose network is pipes, and tablets that do as they are told.

use crate::handshake::{ANSWER_BYTES, Answer, HELLO_BYTES, Hello, Identity, VERSIONS};
use crate::remote::{Losses, Peer, RemoteOptions, RemoteTablets};
use crate::server::{ConnectionError, PeerServer};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use stele_client::{
    BatchReservation, RowOutcome, RowStream, ServiceError, ServiceResult, TabletFigures, TabletRead,
    TabletRowOperation, TabletSample, TabletService,
};
use stele_env::network::Connection;
use stele_env::{BlockingWork, Env, Priority, Runtime};
use stele_filter::Filter;
use stele_memory::Pool;
use stele_types::{
    Cell, Durability, ErrorKind, FamilyId, Mutation, RowBatch, RowMutation, RowRange, RowSet, RowWrites, TabletId,
    Timestamp,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

pub(super) const CALLER: Identity = Identity {
    cluster: [7; 16],
    server: 1,
    epoch: 1,
};
pub(super) const OWNER: Identity = Identity {
    cluster: [7; 16],
    server: 2,
    epoch: 5,
};

pub(super) const TABLET: TabletId = TabletId(9);

/// Connections are pipes whose other ends a test takes. The clock is tokio's, which tests may pause.
struct Pipes {
    origin: Instant,
    ends: mpsc::UnboundedSender<DuplexStream>,
    capacity: usize,
    /// Connections that are refused first.
    refused: AtomicUsize,
    /// The last random number; they ascend.
    random: AtomicU64,
}

#[expect(clippy::disallowed_methods, reason = "this is a runtime")]
impl Runtime for Pipes {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
    fn wall_micros(&self) -> i64 {
        0
    }
    fn random_u64(&self) -> u64 {
        self.random.fetch_add(1, Ordering::Relaxed) + 1
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
    fn connect(&self, _: &str) -> BoxFuture<'static, io::Result<Connection>> {
        let less = |left: usize| left.checked_sub(1);
        let (is, to) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.refused.fetch_update(is, to, less).is_ok() {
            return Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) });
        }
        let (here, there) = tokio::io::duplex(self.capacity);
        let sent = self.ends.send(there);
        Box::pin(async move {
            match sent {
                Ok(()) => Ok(Box::new(here) as Connection),
                Err(_) => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

/// A caller's network.
pub(super) struct Net {
    pub env: Env,
    /// The other ends of its connections.
    pub ends: mpsc::UnboundedReceiver<DuplexStream>,
}

/// A network whose pipes hold this many bytes, and that refuses some connections first.
pub(super) fn net(capacity: usize, refused: usize) -> Net {
    let (tell, ends) = mpsc::unbounded_channel();
    let pipes = Pipes {
        origin: Instant::now(),
        ends: tell,
        capacity,
        refused: AtomicUsize::new(refused),
        random: AtomicU64::new(0),
    };
    Net {
        env: Env::new(Arc::new(pipes)),
        ends,
    }
}

impl Net {
    pub fn remote(&self) -> RemoteTablets {
        self.remote_within(&Pool::default())
    }

    pub fn remote_within(&self, pool: &Pool) -> RemoteTablets {
        self.remote_noting(pool, &Losses::default())
    }

    pub fn remote_noting(&self, pool: &Pool, losses: &Losses) -> RemoteTablets {
        let peer = Peer {
            identity: OWNER,
            address: "owner".to_owned(),
        };
        let parts = (self.env.clone(), pool);
        RemoteTablets::noting(parts, CALLER, peer, RemoteOptions::default(), losses.clone())
    }

    /// Serves the next connection in a task of its own.
    pub async fn serve(
        &mut self,
        tablets: &Arc<Tablets>,
        drain: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::JoinHandle<Result<(), ConnectionError>> {
        self.serve_within(&Pool::default(), tablets, drain).await
    }

    /// The same with this memory.
    #[expect(clippy::disallowed_methods, reason = "a task of the test")]
    pub async fn serve_within(
        &mut self,
        pool: &Pool,
        tablets: &Arc<Tablets>,
        drain: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::JoinHandle<Result<(), ConnectionError>> {
        let end = self.ends.recv().await.unwrap();
        let server = PeerServer::new(self.env.clone(), pool, OWNER, tablets.clone());
        tokio::spawn(async move { server.serve(end, drain).await })
    }

    /// The next connection, after a handshake.
    pub async fn begun(&mut self) -> DuplexStream {
        let mut end = self.ends.recv().await.unwrap();
        begin(&mut end).await;
        end
    }
}

/// The owner's side of a handshake.
pub(super) async fn begin(end: &mut DuplexStream) {
    let mut hello = [0; HELLO_BYTES];
    end.read_exact(&mut hello).await.unwrap();
    assert_eq!(Hello::decode(&hello).unwrap().caller, CALLER);
    let answer = Answer {
        version: Ok(*VERSIONS.end()),
        versions: VERSIONS,
        owner: OWNER,
    };
    end.write_all(&answer.encode()).await.unwrap();
}

/// The caller's side.
pub(super) async fn greet(end: &mut DuplexStream) {
    let hello = Hello {
        versions: VERSIONS,
        caller: CALLER,
        owner: OWNER,
    };
    end.write_all(&hello.encode()).await.unwrap();
    let mut answer = [0; ANSWER_BYTES];
    end.read_exact(&mut answer).await.unwrap();
    assert_eq!(Answer::decode(&answer).unwrap().version, Ok(*VERSIONS.end()));
}

/// Tablets that do as they are told.
pub(super) struct Tablets {
    /// Mutations wait for a permit each.
    pub gate: Semaphore,
    /// Rows that were written, in the order of their execution.
    pub written: Mutex<Vec<Bytes>>,
    /// Calls and streams that are running.
    pub running: Arc<AtomicUsize>,
    /// The next stream.
    pub batches: Mutex<VecDeque<RowBatch>>,
    /// Batches that streams were asked for.
    pub batches_read: Arc<AtomicUsize>,
    /// A batch needs at least this reservation.
    pub room: AtomicUsize,
    /// Every call fails so.
    pub error: Mutex<Option<ErrorKind>>,
    /// The row of a point read that need not wait.
    pub in_memory: Mutex<Option<RowBatch>>,
    /// Of the tablet; the call is not known otherwise.
    pub figures: Mutex<Option<TabletFigures>>,
}

pub(super) fn tablets() -> Arc<Tablets> {
    Arc::new(Tablets {
        gate: Semaphore::new(1_000),
        written: Mutex::default(),
        running: Arc::default(),
        batches: Mutex::default(),
        batches_read: Arc::default(),
        room: AtomicUsize::new(0),
        error: Mutex::default(),
        in_memory: Mutex::default(),
        figures: Mutex::default(),
    })
}

/// Tablets whose mutations wait until the test lets them pass.
pub(super) fn closed_tablets() -> Arc<Tablets> {
    let tablets = tablets();
    assert_eq!(tablets.gate.forget_permits(1_000), 1_000);
    tablets
}

/// Counts something that runs until it is dropped.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn new(count: &Arc<AtomicUsize>) -> Running {
        count.fetch_add(1, Ordering::SeqCst);
        Running(Arc::clone(count))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Tablets {
    pub fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    fn check(&self, tablet: TabletId) -> ServiceResult<()> {
        if tablet != TABLET {
            return Err(ServiceError::new(ErrorKind::Unavailable, "not mine"));
        }
        match *self.error.lock() {
            Some(kind) => Err(ServiceError::new(kind, "as told")),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl TabletService for Tablets {
    async fn read(&self, tablet: TabletId, request: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        self.check(tablet)?;
        assert!(!request.rows.is_empty());
        Ok(Box::new(Stream {
            batches: std::mem::take(&mut *self.batches.lock()),
            read: Arc::clone(&self.batches_read),
            room: self.room.load(Ordering::SeqCst),
            _running: Running::new(&self.running),
        }))
    }

    fn try_read_row(&self, tablet: TabletId, _: &Bytes, _: Option<&Arc<Filter>>) -> ServiceResult<Option<RowBatch>> {
        self.check(tablet)?;
        Ok(self.in_memory.lock().clone())
    }

    async fn mutate(&self, tablet: TabletId, rows: RowWrites, _: Option<Durability>) -> ServiceResult<()> {
        self.check(tablet)?;
        let _running = Running::new(&self.running);
        self.gate.acquire().await.unwrap().forget();
        let rows = rows.iter().map(|row| Bytes::copy_from_slice(row.row));
        self.written.lock().extend(rows);
        Ok(())
    }

    async fn row_operation(&self, tablet: TabletId, request: TabletRowOperation) -> ServiceResult<RowOutcome> {
        self.check(tablet)?;
        Ok(RowOutcome {
            matched: request.condition.is_some(),
            written: vec![cell(3)],
        })
    }

    async fn figures(&self, tablet: TabletId) -> ServiceResult<TabletFigures> {
        self.check(tablet)?;
        let unknown = || ServiceError::new(ErrorKind::Unimplemented, "the server does not know calls of kind 8");
        self.figures.lock().ok_or_else(unknown)
    }

    async fn sample(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample> {
        self.check(tablet)?;
        let _running = Running::new(&self.running);
        if every == 0 {
            std::future::pending::<()>().await;
        }
        Ok(TabletSample {
            bytes: every,
            rows: vec![(Bytes::from_static(b"m"), 1)],
        })
    }
}

struct Stream {
    batches: VecDeque<RowBatch>,
    read: Arc<AtomicUsize>,
    room: usize,
    _running: Running,
}

#[async_trait]
impl RowStream for Stream {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        unreachable!("a server gives room, and so does the dispatcher's caller")
    }

    async fn next_within(&mut self, room: &mut dyn BatchReservation) -> ServiceResult<Option<RowBatch>> {
        while room.bytes() < self.room {
            // As a tablet does, which learns of some more of the row each time that it is read.
            let there = room.bytes();
            let known = self.room.min(there + (4 << 20));
            room.renew(known.max(4 * there)).await?;
            assert!(room.bytes() > there);
        }
        self.read.fetch_add(1, Ordering::SeqCst);
        let next = self.batches.pop_front();
        if next.is_some() {
            stele_env::work::note(|work| {
                work.blocks_read += 1;
                work.use_file(1);
            });
        }
        Ok(next)
    }
}

pub(super) fn cell(value_bytes: usize) -> Cell {
    let value = Bytes::from(vec![b'v'; value_bytes]);
    Cell::put(FamilyId(1), Bytes::from_static(b"q"), Timestamp(1), value)
}

/// Batches of one row each.
pub(super) fn batches(count: usize, value_bytes: usize) -> VecDeque<RowBatch> {
    let batch = |number: usize| RowBatch::of_row(Bytes::from(format!("row{number:06}")), vec![cell(value_bytes)]);
    (0..count).map(batch).collect()
}

pub(super) fn writes(row: &'static str) -> RowWrites {
    RowWrites::from(vec![RowMutation {
        row: Bytes::from_static(row.as_bytes()),
        mutations: vec![Mutation::DeleteRow { up_to: Timestamp::MAX }],
    }])
}

/// Writes of one cell with a value of this size.
pub(super) fn large_writes(row: &'static str, bytes: usize) -> RowWrites {
    RowWrites::from(vec![RowMutation {
        row: Bytes::from_static(row.as_bytes()),
        mutations: vec![Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(1),
            value: vec![7; bytes].into(),
        }],
    }])
}

pub(super) fn operation() -> TabletRowOperation {
    TabletRowOperation {
        row: Bytes::from_static(b"r"),
        condition: None,
        steps: Vec::new(),
        otherwise: Vec::new(),
        durability: None,
        token: None,
    }
}

pub(super) fn scan() -> TabletRead {
    TabletRead {
        rows: RowSet::all(),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
        waits: true,
    }
}

pub(super) fn point(row: &'static str) -> TabletRead {
    let range = RowRange::single(&Bytes::from_static(row.as_bytes()));
    TabletRead {
        rows: RowSet::new(vec![range]),
        ..scan()
    }
}

/// Lets other tasks run until the condition holds.
pub(super) async fn until(condition: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    assert!(condition(), "it never came true");
}

/// Lets other tasks run for a while.
pub(super) async fn settle() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}
