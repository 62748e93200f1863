//! Requests over a network with faults, to storage that is no part of any server.
//!
//! A request travels to the storage, takes effect there at one moment, and its response travels back. The effect belongs to the
//! storage: it also comes when the client has given up or was killed meanwhile.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stele_env::{Env, Priority};

/// Longest travel time of a late request: longer than any client waits for its response.
const LATE_MAX: Duration = Duration::from_secs(40);

/// The faults of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Shortest and longest travel time in either direction.
    pub way: (Duration, Duration),
    /// Lost requests per 1,000.
    pub lost: u64,
    /// Lost responses per 1,000.
    pub unanswered: u64,
    /// Late requests per 1,000.
    pub late: u64,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            way: (Duration::from_millis(1), Duration::from_millis(20)),
            lost: 0,
            unanswered: 0,
            late: 0,
        }
    }
}

impl Network {
    /// Whether every request gets a response, however late.
    pub fn is_harmless(&self) -> bool {
        self.lost + self.unanswered + self.late == 0
    }
}

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Requests that took effect.
    pub requests: u64,
    /// Requests that were lost, got no response, or came late.
    pub faults: u64,
}

/// The fate of a request.
struct Fate {
    there: Duration,
    back: Duration,
    lost: bool,
    unanswered: bool,
}

/// The network to a storage.
#[derive(Clone)]
pub struct Requests {
    /// The environment of the storage's own process, which is never killed.
    env: Env,
    /// The name of its tasks.
    name: &'static str,
    network: Arc<Mutex<Network>>,
    counts: Arc<Mutex<Counts>>,
}

impl Requests {
    /// A network without faults.
    pub fn new(env: Env, name: &'static str) -> Requests {
        Requests {
            env,
            name,
            network: Arc::default(),
            counts: Arc::default(),
        }
    }

    /// The environment of the storage.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Sets the faults from now on.
    pub fn set_network(&self, network: Network) {
        *self.network.lock() = network;
    }

    /// The current faults.
    pub fn network(&self) -> Network {
        *self.network.lock()
    }

    /// Counts of requests so far.
    pub fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    fn fate(&self) -> Fate {
        let network = self.network();
        let (shortest, longest) = network.way;
        let way = |longest: Duration| {
            let spread = longest.saturating_sub(shortest).as_micros() as u64;
            shortest + Duration::from_micros(self.env.random_below(spread + 1))
        };
        let happens = |of_1000: u64| of_1000 > 0 && self.env.random_below(1_000) < of_1000;
        let (lost, unanswered, late) = (
            happens(network.lost),
            happens(network.unanswered),
            happens(network.late),
        );
        self.counts.lock().faults += u64::from(lost || unanswered || late);
        Fate {
            there: way(if late { LATE_MAX } else { longest }),
            back: way(longest),
            lost,
            unanswered,
        }
    }

    /// Sends a request with this effect. `lost` is the error of a client whose connection ends.
    pub async fn send<T, E>(
        &self,
        effect: impl Future<Output = Result<T, E>> + Send + 'static,
        lost: impl Fn() -> E,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let fate = self.fate();
        if fate.lost {
            self.env.sleep(fate.there).await;
            return Err(lost());
        }
        let (env, counts) = (self.env.clone(), Arc::clone(&self.counts));
        let there = async move {
            env.sleep(fate.there).await;
            counts.lock().requests += 1;
            effect.await
        };
        let answer = self.env.spawn_join(Priority::Foreground, self.name, there).await;
        self.env.sleep(fate.back).await;
        if fate.unanswered {
            Err(lost())
        } else {
            answer.unwrap_or_else(|_| Err(lost()))
        }
    }
}
