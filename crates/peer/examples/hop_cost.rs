//! Measures the cost of a hop: point reads over loopback against direct calls.
//!
//! `cargo run --release -p stele-peer --example hop_cost -- [reads] [in flight]`. Both ends run in this process on one thread, so the
//! figure for the hop covers the caller, the owner and the system calls of both.

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{
    RowOutcome, RowStream, ServiceError, ServiceResult, TabletRead, TabletRowOperation, TabletSample, TabletService,
};
use stele_env::Env;
use stele_env::tokio_env::TokioRuntime;
use stele_filter::Filter;
use stele_memory::Pool;
use stele_peer::{Identity, Peer, PeerServer, RemoteOptions, RemoteTablets};
use stele_types::{Cell, Durability, ErrorKind, FamilyId, RowBatch, RowRange, RowSet, RowWrites, TabletId, Timestamp};

/// One row of a kilobyte, in memory.
struct OneRow(RowBatch);

fn nobody_calls<T>() -> ServiceResult<T> {
    Err(ServiceError::new(ErrorKind::Unimplemented, "only reads are measured"))
}

#[async_trait]
impl TabletService for OneRow {
    async fn read(&self, _: TabletId, _: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        Ok(Box::new(Once(Some(self.0.clone()))))
    }

    fn try_read_row(&self, _: TabletId, _: &Bytes, _: Option<&Arc<Filter>>) -> ServiceResult<Option<RowBatch>> {
        Ok(Some(self.0.clone()))
    }

    async fn mutate(&self, _: TabletId, _: RowWrites, _: Option<Durability>) -> ServiceResult<()> {
        Ok(())
    }

    async fn row_operation(&self, _: TabletId, _: TabletRowOperation) -> ServiceResult<RowOutcome> {
        nobody_calls()
    }

    async fn sample(&self, _: TabletId, _: u64) -> ServiceResult<TabletSample> {
        nobody_calls()
    }
}

struct Once(Option<RowBatch>);

#[async_trait]
impl RowStream for Once {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        Ok(self.0.take())
    }
}

/// Processor time of this process: user and system, in ticks of a hundredth of a second.
#[expect(clippy::disallowed_methods, reason = "a file of the system, in an example")]
fn processor_time() -> Duration {
    let stat = std::fs::read("/proc/self/stat").unwrap_or_default();
    let text = String::from_utf8_lossy(&stat).into_owned();
    let fields: Vec<u64> = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let ticks = fields.get(11).copied().unwrap_or(0) + fields.get(12).copied().unwrap_or(0);
    Duration::from_millis(ticks * 10)
}

async fn read(tablets: &dyn TabletService) -> ServiceResult<()> {
    let row = Bytes::from_static(b"user000000000042");
    let request = TabletRead {
        rows: RowSet::new(vec![RowRange::single(&row)]),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
        waits: false,
    };
    let mut stream = tablets.read(TabletId(1), request).await?;
    match stream.next().await? {
        Some(_) => Ok(()),
        None => Err(ServiceError::not_found("the row")),
    }
}

async fn measure(env: &Env, what: &str, tablets: &dyn TabletService, reads: usize, in_flight: usize) {
    let (started, used) = (env.now(), processor_time());
    let mut running: FuturesUnordered<_> = (0..in_flight.min(reads)).map(|_| read(tablets)).collect();
    let mut begun = running.len();
    while let Some(done) = running.next().await {
        if let Err(error) = done {
            println!("{what}: {error}");
            return;
        }
        if begun < reads {
            begun += 1;
            running.push(read(tablets));
        }
    }
    let (elapsed, used) = (env.now().saturating_sub(started), processor_time().saturating_sub(used));
    let rate = reads as f64 / used.as_secs_f64().max(0.01);
    println!(
        "{what}: {reads} reads, {in_flight} in flight, {elapsed:.2?}, {used:.2?} of processor time: {rate:.0} reads/CPU s"
    );
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).filter_map(|number| number.parse().ok());
    let reads = arguments.next().unwrap_or(500_000);
    let in_flight = arguments.next().unwrap_or(64);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let env = TokioRuntime::current();
        let pool = Pool::default();
        let value = Bytes::from(vec![b'v'; 1_000]);
        let cell = Cell::put(FamilyId(1), Bytes::from_static(b"field0"), Timestamp(1), value);
        let row = RowBatch::of_row(Bytes::from_static(b"user000000000042"), vec![cell]);
        let local: Arc<dyn TabletService> = Arc::new(OneRow(row));
        let identity = |server| Identity {
            cluster: [0; 16],
            server,
            epoch: 1,
        };
        let mut listener = env.listen("127.0.0.1:0").await?;
        let peer = Peer {
            identity: identity(2),
            address: listener.address(),
        };
        let server = PeerServer::new(env.clone(), &pool, identity(2), Arc::clone(&local));
        env.spawn_here("owner", async move {
            while let Ok(socket) = listener.accept().await {
                if let Err(error) = server.serve(socket, std::future::pending()).await {
                    println!("the connection ended: {error}");
                }
            }
        });
        let remote = RemoteTablets::new(env.clone(), &pool, identity(1), peer, RemoteOptions::default());
        for _ in 0..3 {
            measure(&env, "direct", &*local, reads, in_flight).await;
            measure(&env, "hop", &remote, reads, in_flight).await;
        }
        Ok(())
    })
}
