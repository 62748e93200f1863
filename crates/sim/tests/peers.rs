//! A client calls tablets of another server through a network that delays, resets and partitions.
//!
//! Each write has a value of its own, and the tablets count how often they apply it. The client repeats a write only after
//! `Unavailable`, as the router does. So a write that was acknowledged must have been applied exactly once, one of unknown outcome
//! at most once, and one that was refused never. A read must show the last acknowledged write of its row, a later one,
//! or one of unknown outcome.

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{
    RowOutcome, RowStream, ServiceError, ServiceResult, TabletRead, TabletRowOperation, TabletSample, TabletService,
};
use stele_env::Env;
use stele_memory::Pool;
use stele_peer::{Dispatcher, Identity, Owner, Owners, Peer, PeerServer, RemoteOptions};
use stele_sim::network::NetworkFaults;
use stele_sim::runtime::{Process, Sim};
use stele_types::{
    Cell, Durability, ErrorKind, FamilyId, Mutation, RowBatch, RowMutation, RowRange, RowSet, RowWrites, TabletId,
    Timestamp,
};

const SEEDS: u64 = 200;
const TABLET: TabletId = TabletId(3);
const WRITERS: u64 = 3;
const WRITES: u64 = 30;
/// Attempts at one call.
const ATTEMPTS: u32 = 40;

/// Rows that outlive the server's processes, and counts of applications by value.
#[derive(Default)]
struct Rows {
    rows: Mutex<BTreeMap<Bytes, u64>>,
    applied: Mutex<BTreeMap<u64, u32>>,
}

struct Tablets {
    env: Env,
    rows: Arc<Rows>,
}

impl Tablets {
    async fn pause(&self) {
        if self.env.random_below(3) == 0 {
            let pause = self.env.random_below(200);
            self.env.sleep(Duration::from_millis(pause)).await;
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("values have eight bytes"))
}

#[async_trait]
impl TabletService for Tablets {
    async fn read(&self, _: TabletId, request: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        self.pause().await;
        let rows = self.rows.rows.lock().clone();
        let within = |row: &Bytes| request.rows.ranges().iter().any(|range| range.contains(row));
        Ok(Box::new(Scan {
            env: self.env.clone(),
            rows: rows.into_iter().filter(|(row, _)| within(row)).collect(),
        }))
    }

    async fn mutate(&self, tablet: TabletId, rows: RowWrites, _: Option<Durability>) -> ServiceResult<()> {
        if tablet != TABLET || self.env.random_below(20) == 0 {
            return Err(ServiceError::new(ErrorKind::Unavailable, "the tablet moves"));
        }
        self.pause().await;
        for row in rows.iter() {
            row.for_each(|mutation| {
                let Mutation::Put { value, .. } = mutation else {
                    unreachable!("writers put");
                };
                *self.rows.applied.lock().entry(number(value)).or_default() += 1;
                let key = Bytes::copy_from_slice(row.row);
                self.rows.rows.lock().insert(key, number(value));
            });
        }
        // The answer may come late, or never.
        self.pause().await;
        Ok(())
    }

    async fn row_operation(&self, _: TabletId, _: TabletRowOperation) -> ServiceResult<RowOutcome> {
        Err(ServiceError::new(ErrorKind::Unimplemented, "nobody calls this"))
    }

    async fn sample(&self, _: TabletId, _: u64) -> ServiceResult<TabletSample> {
        Ok(TabletSample::default())
    }
}

/// Hands out one row a batch.
struct Scan {
    env: Env,
    rows: Vec<(Bytes, u64)>,
}

#[async_trait]
impl RowStream for Scan {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        self.env.yield_to_neighbours().await;
        if self.rows.is_empty() {
            return Ok(None);
        }
        let (row, value) = self.rows.remove(0);
        let value = Bytes::copy_from_slice(&value.to_be_bytes());
        let cell = Cell::put(FamilyId(1), Bytes::new(), Timestamp(1), value);
        let mut batch = RowBatch::of_row(row.clone(), vec![cell]);
        batch.scanned_through = Some(row);
        Ok(Some(batch))
    }
}

/// The owner as the catalog would have it.
#[derive(Default)]
struct Catalog(Mutex<Option<Arc<Peer>>>);

impl Owners for Catalog {
    fn owner_of(&self, _: TabletId) -> Option<Owner> {
        self.0.lock().clone().map(Owner::There)
    }

    fn is_member(&self, server: u64) -> bool {
        let owner = self.0.lock();
        owner.as_ref().is_some_and(|peer| peer.identity.server == server)
    }
}

fn identity(server: u64, epoch: u64) -> Identity {
    Identity {
        cluster: [1; 16],
        server,
        epoch,
    }
}

/// Starts a life of the owner.
fn start_owner(sim: &Sim, rows: &Arc<Rows>, catalog: &Arc<Catalog>, epoch: u64) -> Process {
    let process = sim.process();
    let env = process.env();
    let own = identity(2, epoch);
    let peer = Peer {
        identity: own,
        address: "owner:1".to_owned(),
    };
    let tablets = Tablets {
        env: env.clone(),
        rows: Arc::clone(rows),
    };
    let server = PeerServer::new(env.clone(), &Pool::default(), own, Arc::new(tablets));
    let catalog = Arc::clone(catalog);
    env.clone().spawn("owner", async move {
        let mut listener = env.listen("owner:1").await.expect("the network is simulated");
        *catalog.0.lock() = Some(Arc::new(peer));
        while let Ok(socket) = listener.accept().await {
            let server = server.clone();
            env.spawn("connection", async move {
                // The test loses connections on purpose.
                let _ = server.serve(socket, std::future::pending()).await;
            });
        }
    });
    process
}

fn row(writer: u64) -> Bytes {
    Bytes::from(format!("row{writer}"))
}

fn put(writer: u64, value: u64) -> RowWrites {
    RowWrites::from(vec![RowMutation {
        row: row(writer),
        mutations: vec![Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::new(),
            timestamp: Timestamp(1),
            value: Bytes::copy_from_slice(&value.to_be_bytes()),
        }],
    }])
}

/// Repeats a call while it certainly was not executed.
async fn retried<T, F: Future<Output = ServiceResult<T>>>(env: &Env, call: impl Fn() -> F) -> ServiceResult<T> {
    for _ in 0..ATTEMPTS {
        match call().await {
            Err(error) if error.kind == ErrorKind::Unavailable => env.sleep(Duration::from_millis(100)).await,
            done => return done,
        }
    }
    Err(ServiceError::new(ErrorKind::Unavailable, "too many attempts"))
}

/// The value of a row; `None` if there is none.
async fn read(tablets: &Dispatcher, writer: u64) -> ServiceResult<Option<u64>> {
    let request = TabletRead {
        rows: RowSet::new(vec![RowRange::single(&row(writer))]),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
        waits: false,
    };
    let mut stream = tablets.read(TABLET, request).await?;
    let mut found = None;
    while let Some(batch) = stream.next().await? {
        found = batch.rows().next().map(|(_, cells)| number(&cells[0].value));
    }
    Ok(found)
}

/// Values by the result of their write.
#[derive(Default)]
struct Results {
    acknowledged: Vec<u64>,
    refused: Vec<u64>,
    unknown: Vec<u64>,
    reads: u64,
}

async fn writer(env: Env, tablets: Arc<Dispatcher>, writer: u64, results: Arc<Mutex<Results>>) {
    let mut last = None;
    let mut unknown = Vec::new();
    for n in 0..WRITES {
        let value = writer << 32 | n;
        let written = retried(&env, || tablets.mutate(TABLET, put(writer, value), None)).await;
        match written.map_err(|error| error.kind) {
            Ok(()) => {
                last = Some(value);
                results.lock().acknowledged.push(value);
            }
            Err(ErrorKind::Aborted) => {
                unknown.push(Some(value));
                results.lock().unknown.push(value);
            }
            Err(_) => results.lock().refused.push(value),
        }
        if let Ok(found) = retried(&env, || read(&tablets, writer)).await {
            // A write of unknown outcome may happen later than one that came after it.
            let is_possible = found >= last || unknown.contains(&found);
            assert!(is_possible, "read {found:?} after {last:?} was acknowledged");
            results.lock().reads += 1;
        }
        env.sleep(Duration::from_millis(env.random_below(200))).await;
    }
}

/// Partitions, resets and kills, until the writers have ended.
async fn trouble(sim: Sim, caller: Process, rows: Arc<Rows>, catalog: Arc<Catalog>) {
    let env = caller.env();
    let mut owner = start_owner(&sim, &rows, &catalog, 1);
    for epoch in 2.. {
        env.sleep(Duration::from_millis(500 + env.random_below(3_000))).await;
        match env.random_below(6) {
            0 => sim.network().cut(caller.id(), owner.id()),
            1 => sim.network().cut(owner.id(), caller.id()),
            2 => {
                sim.network().cut(caller.id(), owner.id());
                sim.network().cut(owner.id(), caller.id());
            }
            3 => sim.network().reset(),
            4 => {
                owner.kill();
                *catalog.0.lock() = None;
                env.sleep(Duration::from_millis(env.random_below(1_000))).await;
                owner = start_owner(&sim, &rows, &catalog, epoch);
            }
            _ => owner.stand_still(Duration::from_millis(env.random_below(30_000))),
        }
        env.sleep(Duration::from_millis(env.random_below(15_000))).await;
        sim.network().heal();
    }
}

fn run(seed: u64) -> (Results, BTreeMap<u64, u32>, u64) {
    let sim = Sim::new(seed, 5_000_000);
    let caller = sim.process();
    let (rows, catalog) = (Arc::new(Rows::default()), Arc::new(Catalog::default()));
    sim.network().set_faults(NetworkFaults {
        delay_max: Duration::from_millis([0, 1, 30][seed as usize % 3]),
        reset_one_in: [0, 40, 200][seed as usize / 3 % 3],
        refuse_one_in: 8,
    });
    let results: Arc<Mutex<Results>> = Arc::default();
    let (all, machine, counts) = (Arc::clone(&results), sim.clone(), Arc::clone(&rows));
    let outcome = sim.run(async move {
        let env = caller.env();
        let own = identity(1, 1);
        let local = Arc::new(Tablets {
            env: env.clone(),
            rows: Arc::clone(&rows),
        });
        let parts = (env.clone(), Pool::default());
        let tablets = Dispatcher::new(parts, own, local, catalog.clone(), RemoteOptions::default());
        let tablets = Arc::new(tablets);
        env.spawn("trouble", trouble(machine, caller.clone(), rows, catalog));
        let writers = (1..=WRITERS).map(|n| writer(env.clone(), tablets.clone(), n, all.clone()));
        futures::future::join_all(writers).await;
        // Requests that are still under way are executed or lost.
        env.sleep(Duration::from_secs(120)).await;
    });
    outcome.unwrap_or_else(|stalled| unreachable!("seed {seed}: {stalled}"));
    let results = std::mem::take(&mut *results.lock());
    let applied = counts.applied.lock().clone();
    (results, applied, sim.trace_hash())
}

#[test]
fn no_acknowledged_write_is_lost_and_none_is_applied_twice() {
    let mut sum = Results::default();
    for seed in 0..SEEDS {
        let (results, applied, _) = run(seed);
        let count = |value: &u64| applied.get(value).copied().unwrap_or(0);
        for value in &results.acknowledged {
            assert_eq!(count(value), 1, "seed {seed}: {value:#x} was acknowledged");
        }
        for value in &results.unknown {
            assert!(count(value) <= 1, "seed {seed}: {value:#x} was applied twice");
        }
        for value in &results.refused {
            assert_eq!(count(value), 0, "seed {seed}: {value:#x} was refused");
        }
        sum.acknowledged.extend(results.acknowledged);
        sum.unknown.extend(results.unknown);
        sum.refused.extend(results.refused);
        sum.reads += results.reads;
    }
    // The faults do happen, and most writes pass.
    assert!(
        sum.acknowledged.len() > sum.unknown.len() && sum.unknown.len() > 20,
        "{}",
        sum.unknown.len()
    );
    assert!(sum.reads > 1_000, "{}", sum.reads);
}

#[test]
fn a_seed_replays_the_network() {
    for seed in 0..4 {
        assert_eq!(run(seed).2, run(seed).2, "seed {seed}");
    }
}
