//! A coordinator in a process of its own, for the processes of servers.
//!
//! A call that has begun is carried out, also when the caller's process ends. Each server has a link of its own, which can be
//! cut: calls fail then, and events arrive when it is healed. Over some links the answer to a transaction is lost now and then: its
//! caller does not know that it was carried out.

use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stele_coord::session::SessionBackend;
use stele_coord::watch::Watchers;
use stele_coord::{Coord, CoordError, Result, Session, SessionId, Txn, TxnOutcome, Versioned, Watch};
use stele_env::{Env, Priority};

/// Longest delay of most calls, and of some.
const QUICK_MS_MAX: u64 = 20;
const SLOW_MS_MAX: u64 = 2_000;
/// One of this many transactions has no answer.
const ANSWERS_PER_LOSS: u64 = 50;
/// Longest time after which its caller gives up.
const LOST_MS_MAX: u64 = 10_000;
/// Time after which a call over a cut link fails.
const CUT_WAIT: Duration = Duration::from_secs(2);
/// Pause between two checks of a cut link.
const CUT_POLL: Duration = Duration::from_millis(50);

/// The way of one server to the coordinator.
#[derive(Clone, Default)]
pub(super) struct Link(Arc<LinkState>);

#[derive(Default)]
struct LinkState {
    is_cut: AtomicBool,
    /// No call is slow.
    is_quick: bool,
    /// Answers to transactions are lost now and then.
    loses_answers: bool,
    requests: AtomicU64,
}

impl Link {
    /// One to a coordinator that is never slow.
    pub(super) fn quick() -> Link {
        Link(Arc::new(LinkState {
            is_quick: true,
            ..LinkState::default()
        }))
    }

    /// One over which answers to transactions are lost now and then.
    pub(super) fn lossy() -> Link {
        Link(Arc::new(LinkState {
            loses_answers: true,
            ..LinkState::default()
        }))
    }

    /// Cuts it, or heals it.
    pub(super) fn set_cut(&self, is_cut: bool) {
        self.0.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// Whether it is cut.
    pub(super) fn is_cut(&self) -> bool {
        self.0.is_cut.load(Ordering::Relaxed)
    }

    /// Requests that went over it, renewals of the session not counted.
    pub(super) fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// Waits until it is healed.
    async fn healed(&self, env: &Env) {
        while self.is_cut() {
            env.sleep(CUT_POLL).await;
        }
    }
}

/// The other end.
pub(super) struct Coordinator {
    env: Env,
    coord: Arc<dyn Coord>,
    link: Link,
}

impl Coordinator {
    /// A coordinator in the process of this environment.
    pub(super) fn over(link: Link, env: Env, coord: Arc<dyn Coord>) -> Arc<dyn Coord> {
        Arc::new(Coordinator { env, coord, link })
    }

    async fn call<T, F>(&self, call: impl FnOnce(Arc<dyn Coord>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.link.0.requests.fetch_add(1, Ordering::Relaxed);
        if self.link.is_cut() {
            self.env.sleep(CUT_WAIT).await;
            if self.link.is_cut() {
                return Err(unreachable_now());
            }
        }
        let (call, env, is_quick) = (call(self.coord.clone()), self.env.clone(), self.link.0.is_quick);
        let call = async move {
            // Most answers are quick; some are slower than a write to storage.
            let longest = if !is_quick && env.random_below(8) == 0 {
                SLOW_MS_MAX
            } else {
                QUICK_MS_MAX
            };
            env.sleep(Duration::from_millis(env.random_below(longest))).await;
            call.await
        };
        let answer = self.env.spawn_join(Priority::Foreground, "coordination", call);
        answer.await.unwrap_or(Err(CoordError::Closed))
    }
}

#[async_trait]
impl Coord for Coordinator {
    async fn get(&self, key: &str) -> Result<Option<Versioned>> {
        let key = key.to_owned();
        self.call(|coord| async move { coord.get(&key).await }).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Versioned)>> {
        let prefix = prefix.to_owned();
        self.call(|coord| async move { coord.list(&prefix).await }).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnOutcome> {
        let answer = self.call(|coord| async move { coord.txn(txn).await }).await;
        let is_lost = self.link.0.loses_answers && self.env.random_below(ANSWERS_PER_LOSS) == 0;
        if !is_lost || answer.is_err() {
            return answer;
        }
        self.env
            .sleep(Duration::from_millis(self.env.random_below(LOST_MS_MAX)))
            .await;
        Err(CoordError::OutcomeUnknown {
            message: "the answer was lost".to_owned(),
        })
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        let prefix = prefix.to_owned();
        let mut events = self.call(|coord| async move { coord.watch(&prefix).await }).await?;
        let mut watchers = Watchers::default();
        let watch = watchers.watch("")?;
        let (link, env) = (self.link.clone(), self.env.clone());
        self.env.spawn("watch over a link", async move {
            while let Some(event) = events.next().await {
                link.healed(&env).await;
                watchers.send(&event);
            }
        });
        Ok(watch)
    }

    async fn session(&self, ttl: Duration) -> Result<Session> {
        let session = self.call(|coord| async move { coord.session(ttl).await }).await?;
        let sessions = Sessions {
            env: self.env.clone(),
            session: session.clone(),
            link: self.link.clone(),
        };
        Ok(Session::new(session.id(), ttl, Arc::new(sessions)))
    }
}

fn unreachable_now() -> CoordError {
    CoordError::Unavailable {
        message: "the link is cut".to_owned(),
    }
}

/// One session, renewed in the process of the coordinator.
struct Sessions {
    env: Env,
    session: Session,
    link: Link,
}

#[async_trait]
impl SessionBackend for Sessions {
    async fn keep_alive(&self, _: SessionId) -> Result<()> {
        if self.link.is_cut() {
            self.env.sleep(CUT_WAIT).await;
            return Err(unreachable_now());
        }
        let (session, env) = (self.session.clone(), self.env.clone());
        let renew = async move {
            env.sleep(Duration::from_millis(env.random_below(SLOW_MS_MAX))).await;
            session.keep_alive().await
        };
        let renewed = self.env.spawn_join(Priority::Foreground, "session", renew);
        renewed.await.unwrap_or(Err(CoordError::Closed))
    }

    fn ends_at(&self, _: SessionId) -> Option<Duration> {
        self.session.ends_at()
    }

    async fn revoke(&self, _: SessionId) -> Result<()> {
        self.session.revoke().await
    }
}
