//! Tests of failures and crashes: acknowledged transactions survive, others survive whole or not at all.

use super::*;

/// A seed for random numbers; tasks on the tokio of the test; no time passes.
struct Seeded(AtomicU64);

impl Runtime for Seeded {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
    fn wall_micros(&self) -> i64 {
        0
    }
    /// SplitMix64.
    fn random_u64(&self) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::task::yield_now())
    }
    fn spawn(&self, _: Priority, _: &'static str, _: Pin<Box<dyn Future<Output = ()> + Send>>) {}
    fn run_blocking(&self, work: BlockingWork) {
        work();
    }
}

fn seeded(seed: u64) -> Env {
    Env::new(Arc::new(Seeded(AtomicU64::new(seed))))
}

type Model = BTreeMap<String, Bytes>;

/// One to three writes of few keys, so that transactions overlap. Some values are large enough to make generations.
fn random_txn(env: &Env, number: u64) -> Txn {
    let mut writes = BTreeMap::new();
    for _ in 0..=env.random_below(3) {
        let key = format!("k/{}", env.random_below(6));
        let padding = if env.random_below(10) == 0 { 200_000 } else { 0 };
        let value = Bytes::from(format!("{number}{}", "x".repeat(padding)));
        let write = match env.random_below(4) {
            0 => Write::Delete { key: key.clone() },
            _ => Write::Put {
                key: key.clone(),
                value,
            },
        };
        writes.insert(key, write);
    }
    Txn {
        conditions: vec![],
        writes: writes.into_values().collect(),
    }
}

fn apply(model: &mut Model, txn: &Txn) {
    for write in &txn.writes {
        match write {
            Write::Put { key, value } => model.insert(key.clone(), value.clone()),
            Write::Delete { key } => model.remove(key),
            Write::PutBound { .. } => None,
        };
    }
}

async fn contents(coord: &EmbeddedCoord) -> Model {
    let list = coord.list("").await.unwrap();
    list.into_iter().map(|(key, current)| (key, current.value)).collect()
}

/// Opens through injected errors, as a supervisor that restarts the process would.
async fn open_stubbornly(disk: &FaultyStorage, env: &Env, plan: &FaultPlan) -> Arc<EmbeddedCoord> {
    for attempt in 0..20 {
        disk.set_plan(if attempt < 19 {
            plan.clone()
        } else {
            FaultPlan::default()
        });
        match EmbeddedCoord::open(disk.reopen(), env.clone()).await {
            Ok(coord) => {
                disk.set_plan(plan.clone());
                return coord;
            }
            Err(error) => assert_ne!(error.kind(), ErrorKind::Corruption, "{error}"),
        }
    }
    unreachable!("the last attempt is without faults")
}

/// One history: transactions on a storage that fails, with crashes, kills and dropped transactions in between. Returns how
/// many transactions were acknowledged, failed, and failed but found after a restart.
async fn history(seed: u64, plan: FaultPlan) -> [u64; 3] {
    let env = seeded(seed);
    let disk = FaultyStorage::new(env.clone());
    let mut model = Model::new();
    let mut tally = [0; 3];
    for round in 0..6u64 {
        let coord = open_stubbornly(&disk, &env, &plan).await;
        let found = contents(&coord).await;
        assert_eq!(found, model, "seed {seed} round {round}");
        // Transactions since the last success that may count after a restart; at most one of them does.
        let mut ambiguous: Vec<Txn> = Vec::new();
        for number in 0..env.random_below(40) {
            let txn = random_txn(&env, round * 100 + number);
            let run = coord.txn(txn.clone());
            let outcome = match env.random_below(20) {
                0 => drop_half_way(run, env.random_below(12)).await,
                _ => Some(run.await),
            };
            if let Some(Ok(_)) = outcome {
                apply(&mut model, &txn);
                ambiguous.clear();
                tally[0] += 1;
            } else {
                let explained = outcome.is_none_or(|o| o.is_err_and(|e| e.is_ambiguous()));
                assert!(explained, "seed {seed}");
                ambiguous.push(txn);
                tally[1] += 1;
            }
            assert!(
                contents(&coord).await == model,
                "seed {seed}: memory holds what was acknowledged"
            );
        }
        match env.random_below(2) {
            0 => disk.kill(),
            _ => disk.crash(),
        }
        let after = contents(&*open_stubbornly(&disk, &env, &FaultPlan::default()).await).await;
        if after != model {
            let late = |txn: &&Txn| {
                let mut candidate = model.clone();
                apply(&mut candidate, txn);
                candidate == after
            };
            let txn = ambiguous
                .iter()
                .find(late)
                .expect("exactly one ambiguous transaction happened late");
            apply(&mut model, txn);
            tally[2] += 1;
        }
        // The opening just now made it durable, so it must stay through power loss.
        disk.crash();
    }
    tally
}

/// Polls a future a few times, then drops it.
async fn drop_half_way<T>(future: impl Future<Output = T>, polls: u64) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return std::task::Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

#[tokio::test]
async fn acknowledged_transactions_survive_and_others_are_whole_or_absent() {
    let mut total = [0; 3];
    for seed in 0..120 {
        let p = [0.0, 0.02, 0.2][seed as usize % 3];
        let latency_max = Duration::from_millis(seed % 2);
        let plan = FaultPlan {
            append_error: p,
            sync_error: p,
            read_error: p / 4.0,
            put_error: p,
            latency_max,
            ..FaultPlan::default()
        };
        let tally = history(seed, plan).await;
        total.iter_mut().zip(tally).for_each(|(t, n)| *t += n);
    }
    // The test means something only if all of it happens.
    assert!(total[0] > 1000 && total[1] > 500 && total[2] > 10, "{total:?}");
}

#[tokio::test]
async fn a_failed_record_does_not_come_back_after_a_later_success() {
    let mut superseded = 0;
    for seed in 0..50 {
        let env = seeded(seed);
        let disk = FaultyStorage::new(env.clone());
        let coord = EmbeddedCoord::open(disk.reopen(), env.clone()).await.unwrap();
        commit(&*coord, put("k", "old")).await;
        disk.set_plan(FaultPlan {
            sync_error: 1.0,
            ..FaultPlan::default()
        });
        let error = coord.txn(put("k", "failed")).await.unwrap_err();
        assert!(error.is_ambiguous());
        disk.set_plan(FaultPlan::default());
        assert_eq!(coord.get("k").await.unwrap().unwrap().value, "old");
        commit(&*coord, put("other", "x")).await;
        superseded += usize::from(disk.reopen().list("coord/").await.unwrap().len() == 4);
        disk.crash();
        let coord = EmbeddedCoord::open(disk.reopen(), env).await.unwrap();
        assert_eq!(coord.get("k").await.unwrap().unwrap().value, "old", "seed {seed}");
        assert!(coord.get("other").await.unwrap().is_some());
    }
    assert_eq!(
        superseded, 50,
        "the abandoned generation stays for a repair, and none before it"
    );
}

#[tokio::test]
async fn a_full_medium_fails_transactions_until_there_is_room() {
    let env = seeded(1);
    let disk = FaultyStorage::new(env.clone());
    let coord = EmbeddedCoord::open(disk.reopen(), env.clone()).await.unwrap();
    commit(&*coord, put("k", "before")).await;
    disk.set_plan(FaultPlan {
        space_limit: Some(500),
        ..FaultPlan::default()
    });
    for _ in 0..3 {
        let error = coord.txn(put("k", &"x".repeat(1000))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
        assert_eq!(coord.get("k").await.unwrap().unwrap().value, "before");
    }
    disk.set_plan(FaultPlan::default());
    commit(&*coord, put("k", "after")).await;
    disk.crash();
    let coord = EmbeddedCoord::open(disk.reopen(), env).await.unwrap();
    assert_eq!(coord.get("k").await.unwrap().unwrap().value, "after");
}

/// A log that is due for compaction goes on when the snapshot does not fit, so that deletions can still be recorded.
#[tokio::test]
async fn no_room_for_a_snapshot_is_no_reason_to_stop() {
    let env = seeded(2);
    let disk = FaultyStorage::new(env.clone());
    let coord = EmbeddedCoord::open(disk.reopen(), env.clone()).await.unwrap();
    for _ in 0..3 {
        commit(&*coord, put("k", &"x".repeat(500_000))).await;
    }
    let used: u64 = disk.reopen().list("").await.unwrap().iter().map(|f| f.len).sum();
    assert!(used > COMPACT_LOG_BYTES);
    disk.set_plan(FaultPlan {
        space_limit: Some(used + 1000),
        ..FaultPlan::default()
    });
    let delete = Write::Delete { key: "k".to_owned() };
    commit(
        &*coord,
        Txn {
            conditions: vec![],
            writes: vec![delete],
        },
    )
    .await;
    disk.crash();
    disk.set_plan(FaultPlan::default());
    let coord = EmbeddedCoord::open(disk.reopen(), env).await.unwrap();
    assert_eq!(coord.get("k").await.unwrap(), None);
}

/// A snapshot whose put failed may be there, and recovery would prefer it to the log before it: so that log must not be
/// continued.
#[tokio::test]
async fn a_failed_snapshot_ends_the_log_before_it() {
    let mut refused = 0;
    for seed in 0..20 {
        let env = seeded(seed);
        let disk = FaultyStorage::new(env.clone());
        let coord = EmbeddedCoord::open(disk.reopen(), env.clone()).await.unwrap();
        for _ in 0..3 {
            commit(&*coord, put("large", &"x".repeat(500_000))).await;
        }
        disk.set_plan(FaultPlan {
            put_error: 1.0,
            ..FaultPlan::default()
        });
        let mut acknowledged = coord.txn(put("k", "1")).await.is_ok();
        refused += usize::from(!acknowledged);
        disk.set_plan(FaultPlan::default());
        if seed % 2 == 0 {
            commit(&*coord, put("k", "2")).await;
            acknowledged = true;
        }
        disk.crash();
        let coord = EmbeddedCoord::open(disk.reopen(), env).await.unwrap();
        assert_eq!(coord.get("k").await.unwrap().is_some(), acknowledged, "seed {seed}");
    }
    assert_eq!(refused, 20);
}
