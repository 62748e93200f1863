//! The network between simulated processes: pipes in memory, with faults by the seed.
//!
//! Terms: a *pipe* is one direction of a connection. A pipe is *cut* while bytes do not pass from its writer's process to its
//! reader's: they wait, as retransmitted segments do. A *reset* drops the bytes that are under way in both directions, though their
//! writer was told that they were taken.
//!
//! Faults are delays of each written part, short writes, resets at any write, connections that are refused, and partitions of one or
//! both directions between two processes. A process that is killed drops its ends: its peers see an end of the stream behind the
//! bytes under way, or a reset.

mod pipe;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use pipe::{End, Pipe};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;
use stele_env::Env;
use stele_env::network::{Connection, Listener};

/// Pause between a connecting process's checks for a partition.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Faults of all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkFaults {
    /// Longest delay of a part.
    pub delay_max: Duration,
    /// Every how many-th write resets its connection, about; 0 for none.
    pub reset_one_in: u64,
    /// Every how many-th connection is refused, about; 0 for none.
    pub refuse_one_in: u64,
}

/// The network of a machine. Cloning shares it.
#[derive(Clone, Default)]
pub struct Network(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    faults: NetworkFaults,
    /// Pairs of processes whose bytes do not pass, from the first to the second.
    cuts: BTreeSet<(u64, u64)>,
    listeners: BTreeMap<String, Listening>,
    /// Both pipes of each connection.
    connections: Vec<[Weak<Pipe>; 2]>,
    next_listener: u64,
}

struct Listening {
    number: u64,
    process: u64,
    arrived: VecDeque<End>,
    waiter: Option<Waker>,
}

impl Network {
    /// Replaces the faults.
    pub fn set_faults(&self, faults: NetworkFaults) {
        self.0.lock().faults = faults;
    }

    /// Stops bytes from one process to another, given by their numbers.
    pub fn cut(&self, from: u64, to: u64) {
        self.0.lock().cuts.insert((from, to));
    }

    /// Ends all partitions.
    pub fn heal(&self) {
        self.0.lock().cuts.clear();
        self.pipes().iter().for_each(|pipe| pipe.wake());
    }

    /// Resets all connections.
    pub fn reset(&self) {
        self.pipes().iter().for_each(|pipe| pipe.reset());
    }

    /// Ends everything that a run left.
    pub(crate) fn clear(&self) {
        let listeners = std::mem::take(&mut self.0.lock().listeners);
        drop(listeners);
    }

    fn pipes(&self) -> Vec<Arc<Pipe>> {
        let mut state = self.0.lock();
        state.connections.retain(|pair| pair[0].strong_count() > 0);
        state.connections.iter().flatten().filter_map(Weak::upgrade).collect()
    }

    fn faults(&self) -> NetworkFaults {
        self.0.lock().faults
    }

    fn is_cut(&self, from: u64, to: u64) -> bool {
        self.0.lock().cuts.contains(&(from, to))
    }

    /// Connects a process to an address.
    pub(crate) async fn connect(&self, env: Env, from: u64, address: String) -> io::Result<Connection> {
        env.sleep(delay(&env, self.faults())).await;
        loop {
            let Some(to) = self.0.lock().listeners.get(&address).map(|found| found.process) else {
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            if !self.is_cut(from, to) && !self.is_cut(to, from) {
                break;
            }
            env.sleep(POLL_EVERY).await;
        }
        if one_in(&env, self.faults().refuse_one_in) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (end, waiter) = {
            let mut state = self.0.lock();
            let Some(listening) = state.listeners.get_mut(&address) else {
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            let there = Pipe::new(from, listening.process);
            let here = Pipe::new(listening.process, from);
            let accepted = End::new(self.clone(), None, Arc::clone(&there), Arc::clone(&here));
            listening.arrived.push_back(accepted);
            let waiter = listening.waiter.take();
            let pair = [Arc::downgrade(&there), Arc::downgrade(&here)];
            state.connections.push(pair);
            (End::new(self.clone(), Some(env), here, there), waiter)
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        Ok(Box::new(end))
    }

    /// Lets a process listen at an address. An earlier listener, whose process was replaced, gets no connection any more.
    pub(crate) fn listen(&self, env: Env, process: u64, address: String) -> Box<dyn Listener> {
        let mut state = self.0.lock();
        state.next_listener += 1;
        let listening = Listening {
            number: state.next_listener,
            process,
            arrived: VecDeque::new(),
            waiter: None,
        };
        let number = listening.number;
        let before = state.listeners.insert(address.clone(), listening);
        drop(state);
        drop(before);
        Box::new(SimListener {
            network: self.clone(),
            env,
            address,
            number,
        })
    }
}

/// A random delay of a part.
fn delay(env: &Env, faults: NetworkFaults) -> Duration {
    let micros = u64::try_from(faults.delay_max.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(env.random_below(micros.saturating_add(1)))
}

fn one_in(env: &Env, count: u64) -> bool {
    count > 0 && env.random_below(count) == 0
}

struct SimListener {
    network: Network,
    env: Env,
    address: String,
    number: u64,
}

impl Listener for SimListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(poll_fn(|cx| {
            let mut state = self.network.0.lock();
            let own = state.listeners.get_mut(&self.address);
            let Some(own) = own.filter(|listening| listening.number == self.number) else {
                return Poll::Pending;
            };
            match own.arrived.pop_front() {
                Some(mut end) => {
                    end.env = Some(self.env.clone());
                    Poll::Ready(Ok(Box::new(end) as Connection))
                }
                None => {
                    own.waiter = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let mut state = self.network.0.lock();
        let is_own = |listening: &Listening| listening.number == self.number;
        let gone = match state.listeners.get(&self.address).is_some_and(is_own) {
            true => state.listeners.remove(&self.address),
            false => None,
        };
        drop(state);
        drop(gone);
    }
}
