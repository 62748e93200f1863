//! The election of the leader, and the end of a leader whose process is gone.
//!
//! The place of a leader becomes free when its session ends. That takes as long as a session lives. A leader whose process is
//! gone leaves earlier: servers that find no process at its address remove its record. That costs a living leader only its
//! term, since each of its transactions is conditional on the record.

use crate::local::Local;
use crate::pace::Pace;
use crate::records::ELECTION;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stele_coord::election::{election_key, leader};
use stele_coord::{Condition, Coord, CoordError, Txn, Versioned, Write};
use stele_peer::Probe;
use stele_types::ServerId;

/// Pause between two probes of the leader, if no connection is lost.
const PROBE_INTERVAL: Duration = Duration::from_millis(300);

/// Probes of a leader that answers until its record is read again: another may lead by then, while the process of the former one goes
/// on. Three seconds, if no connection is lost: the coordinator is asked rarely, and the death of the other one is found long before its session ends.
const PROBES_PER_READING: u32 = 10;

/// The value of the record of a leader.
pub(crate) fn value(server: ServerId) -> Bytes {
    Bytes::from(server.0.to_string())
}

/// The leader of a record.
pub(crate) fn server_of(record: &Versioned) -> Option<ServerId> {
    let text = std::str::from_utf8(&record.value).ok()?;
    text.parse().ok().map(ServerId)
}

/// The leader, as the coordinator has it.
pub(crate) async fn current(coord: &dyn Coord) -> Option<ServerId> {
    let record = leader(coord, ELECTION).await.ok()??;
    server_of(&record)
}

/// Whether the record of leadership still has a version, which is the term: each election changes it.
pub(crate) async fn leads(coord: &dyn Coord, version: u64) -> Result<bool, CoordError> {
    let record = coord.get(&election_key(ELECTION)).await?;
    Ok(record.is_some_and(|record| record.version == version))
}

/// Removes the record of a term of this server, which does not lead. There is one after a term that did not begin, and after an
/// election whose outcome was unknown. Such an election may yet happen until another transaction that writes succeeds: one that
/// changes nothing comes first.
pub(crate) async fn withdraw(coord: &dyn Coord, own: ServerId) -> Result<(), CoordError> {
    let nothing = Write::Delete {
        key: format!("{}/settled", election_key(ELECTION)),
    };
    let settles = Txn {
        conditions: Vec::new(),
        writes: vec![nothing],
    };
    coord.txn(settles).await.map(drop)?;
    let found = leader(coord, ELECTION).await?;
    let Some(record) = found.filter(|record| server_of(record) == Some(own)) else {
        return Ok(());
    };
    remove(coord, &record).await
}

/// Removes a record of a leader, unless another took its place.
async fn remove(coord: &dyn Coord, record: &Versioned) -> Result<(), CoordError> {
    let key = election_key(ELECTION);
    let removed = coord.txn(Txn {
        conditions: vec![Condition::version(&key, record.version)],
        writes: vec![Write::Delete { key }],
    });
    removed.await.map(drop)
}

/// Probes the leader from time to time, and removes its record when its process is gone.
pub(crate) async fn watch_leader(local: Arc<Local>, coord: Arc<dyn Coord>) {
    let (mut losses, mut pace) = (local.peers.losses().watch(), Pace::of(PROBE_INTERVAL));
    let mut known: Option<Versioned> = None;
    let mut answers = 0;
    loop {
        pace.wait(&local.env, &mut losses).await;
        // The record is read again only when there is a reason: servers that follow do not ask the coordinator three times a second.
        if answers == 0 {
            known = leader(&*coord, ELECTION).await.ok().flatten();
        }
        let suspect = known.as_ref().and_then(server_of);
        let suspect = suspect.filter(|server| *server != local.peers.own());
        let (Some(record), Some(suspect)) = (&known, suspect) else {
            local.note_unreached(None);
            answers = 0;
            continue;
        };
        let probe = local.peers.probe(suspect).await;
        local.note_unreached((probe != Probe::Answered).then_some(suspect));
        answers = match probe {
            Probe::Answered => (answers + 1) % PROBES_PER_READING,
            Probe::Silent => 0,
            Probe::Gone => {
                depose(&local, &*coord, suspect, record).await;
                0
            }
        };
    }
}

/// Removes the record of a leader, if enough servers find its process gone.
async fn depose(local: &Local, coord: &dyn Coord, suspect: ServerId, record: &Versioned) {
    let witnesses = local.peers.witnesses(suspect).await.len() + 1;
    let view = local.members.view();
    let others = view.servers.keys().filter(|server| **server != suspect).count();
    if witnesses < others.clamp(1, 2) {
        return;
    }
    match remove(coord, record).await {
        Ok(()) => tracing::info!(leader = %suspect, witnesses, "the process of the leader is gone: another is elected"),
        Err(error) => tracing::warn!(%error, "the record of a dead leader is not removed yet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use async_trait::async_trait;
    use parking_lot::Mutex;
    use stele_coord::{EmbeddedCoord, TxnOutcome, campaign};
    use stele_env::tokio_env::TokioRuntime;
    use stele_storage::memory::MemoryStorage;

    /// The answer of the first election is lost. The election happens late: before the next transaction.
    struct Late {
        inner: Arc<EmbeddedCoord>,
        waiting: Mutex<Option<Txn>>,
        lost: Mutex<bool>,
    }

    #[async_trait]
    impl stele_coord::Layer for Late {
        fn below(&self) -> &dyn Coord {
            &*self.inner
        }

        async fn txn(&self, txn: Txn) -> Result<TxnOutcome, CoordError> {
            let late = self.waiting.lock().take();
            if let Some(late) = late {
                self.inner.txn(late).await.map(drop)?;
            }
            let is_election = txn.writes.iter().any(|write| matches!(write, Write::PutBound { .. }));
            if is_election && !std::mem::replace(&mut *self.lost.lock(), true) {
                *self.waiting.lock() = Some(txn);
                return Err(CoordError::OutcomeUnknown {
                    message: "no member answers".to_owned(),
                });
            }
            self.inner.txn(txn).await
        }
    }

    #[tokio::test]
    async fn an_election_that_happens_late_is_withdrawn() {
        let env = TokioRuntime::current();
        let opened = EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await;
        let coord = Late {
            inner: opened.expect("opened"),
            waiting: Mutex::default(),
            lost: Mutex::default(),
        };
        let session = coord.session(Duration::from_secs(60)).await.expect("begun");
        let own = ServerId(1);
        let campaigns = || campaign(&coord, ELECTION, &session, value(own));
        withdraw(&coord, own).await.expect("there is none");
        campaigns().await.expect_err("the answer is lost");
        withdraw(&coord, own).await.expect("its own");
        let again = env.timeout(Duration::from_secs(10), campaigns());
        again.await.expect("does not wait for itself").expect("elected");
    }

    #[tokio::test]
    async fn a_server_withdraws_its_own_record_only() {
        let env = TokioRuntime::current();
        let coord = EmbeddedCoord::open(MemoryStorage::new(), env.clone())
            .await
            .expect("opened");
        let session = coord.session(Duration::from_secs(60)).await.expect("begun");
        withdraw(&*coord, ServerId(1)).await.expect("there is none");
        // An election of which the answer was lost: the record is there, and nobody knows.
        let lost = campaign(&*coord, ELECTION, &session, value(ServerId(1))).await;
        drop(lost.expect("elected"));
        withdraw(&*coord, ServerId(2)).await.expect("not its own");
        assert_eq!(current(&*coord).await, Some(ServerId(1)));
        withdraw(&*coord, ServerId(1)).await.expect("its own");
        assert_eq!(current(&*coord).await, None);
        let again = env.timeout(
            Duration::from_secs(10),
            campaign(&*coord, ELECTION, &session, value(ServerId(1))),
        );
        again.await.expect("does not wait for itself").expect("elected");
    }

    /// A cluster of these members, of which the first watches the leader, and the record says that one leads.
    async fn watched(members: u32, leader: u32) -> World {
        let world = World::new().await;
        for server in 1..=members {
            world.note_member(server).await;
        }
        lead(&world, leader).await;
        let watch = watch_leader(world.follow(1).await, world.coord.clone());
        world.env.spawn("leader's watch", watch);
        world
    }

    async fn lead(world: &World, server: u32) {
        world.put(election_key(ELECTION), value(ServerId(server))).await;
    }

    /// The former leader has resigned: its process goes on, and answers.
    #[tokio::test(start_paused = true)]
    async fn a_leader_that_follows_a_living_one_is_deposed_when_its_process_is_gone() {
        let world = watched(3, 2).await;
        world.serve(2, &world.follow(2).await);
        world.env.sleep(Duration::from_secs(2)).await;
        assert_eq!(current(&*world.coord).await, Some(ServerId(2)), "it answers");
        lead(&world, 3).await;
        world.env.sleep(Duration::from_secs(8)).await;
        assert_eq!(current(&*world.coord).await, None, "long before its session ends");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_whose_connections_end_with_its_process_is_deposed_before_the_next_probe_is_due() {
        let world = World::new().await;
        for server in 1..=3 {
            world.note_member(server).await;
        }
        for server in [2, 3] {
            world.serve(server, &world.follow(server).await);
        }
        lead(&world, 2).await;
        let local = world.follow(1).await;
        let watch = watch_leader(local.clone(), world.coord.clone());
        world.env.spawn("leader's watch", watch);
        // Opens a connection to the leader.
        assert_eq!(local.peers.witnesses(ServerId(3)).await, []);
        world.env.sleep(PROBE_INTERVAL * 3 + Duration::from_millis(20)).await;
        assert_eq!(current(&*world.coord).await, Some(ServerId(2)), "it answers");
        world.kill(2);
        world.env.sleep(Duration::from_millis(100)).await;
        assert_eq!(current(&*world.coord).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_reports_a_leader_that_does_not_answer() {
        let world = World::new().await;
        for server in 1..=3 {
            world.note_member(server).await;
        }
        lead(&world, 2).await;
        let local = world.follow(1).await;
        world
            .env
            .spawn("leader's watch", watch_leader(local.clone(), world.coord.clone()));
        let unreached = || async {
            world.env.sleep(Duration::from_secs(2)).await;
            local.report().await.expect("reported").unreached
        };
        assert_eq!(unreached().await, Some(ServerId(2)));
        world.serve(2, &world.follow(2).await);
        assert_eq!(unreached().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_follows_this_server_is_deposed_when_its_process_is_gone() {
        let world = watched(2, 1).await;
        world.env.sleep(Duration::from_secs(2)).await;
        assert_eq!(current(&*world.coord).await, Some(ServerId(1)), "it is this server");
        lead(&world, 2).await;
        world.env.sleep(Duration::from_secs(4)).await;
        assert_eq!(current(&*world.coord).await, None, "long before its session ends");
    }
}
