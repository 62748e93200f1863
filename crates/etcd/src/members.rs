//! The members of etcd, and the choice of the one to ask.
//!
//! All requests go to one member until one of them fails; then they go to the next. A connection on which a request got
//! no answer is not used again: it may be dead without anybody having closed it.
//!
//! A response of another etcd than the first one's is refused: its keys are others.

use crate::calls::Connection;
use crate::failure::Failure;
use crate::messages::Headed;
use crate::security::Secured;
use parking_lot::Mutex;
use std::future::Future;
use std::time::Duration;
use stele_coord::{CoordError, Result};
use stele_env::Env;

/// Waits between attempts: short after the first failure, since another member is asked.
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// An attempt gets this part of the time of a request, so that other members can be asked after it.
const ATTEMPTS_IN_TIME: u32 = 4;

/// The members of one etcd.
pub(crate) struct Members {
    env: Env,
    /// `host:port` each.
    members: Vec<String>,
    /// The time of a request with all its attempts.
    limit: Duration,
    state: Mutex<State>,
}

struct State {
    /// The member to ask.
    current: usize,
    /// Whether it has answered since it is the one to ask. An outage is logged once, not with each attempt.
    has_answered: bool,
    /// One place for each member.
    connections: Vec<Option<Connection>>,
    /// Of connections that are made from now on.
    secured: Secured,
    /// Of the first response.
    cluster: Option<u64>,
}

/// The waits between attempts of one request.
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { next: BACKOFF_MIN }
    }

    /// Waits, with jitter, and not beyond the deadline.
    pub(crate) async fn wait(&mut self, env: &Env, deadline: Duration) {
        let micros = self.next.as_micros() as u64;
        let jittered = Duration::from_micros(micros / 2 + env.random_below(micros / 2 + 1));
        self.next = (self.next * 2).min(BACKOFF_MAX);
        let left = deadline.saturating_sub(env.now());
        env.sleep(jittered.min(left)).await;
    }
}

impl Members {
    pub(crate) fn new(env: Env, members: Vec<String>, secured: Secured, limit: Duration) -> Members {
        assert!(!members.is_empty(), "an address has a member");
        let state = State {
            // Not all processes ask the same one.
            current: env.random_below(members.len() as u64) as usize,
            has_answered: false,
            connections: vec![None; members.len()],
            secured,
            cluster: None,
        };
        Members {
            env,
            members,
            limit,
            state: Mutex::new(state),
        }
    }

    /// Protects connections in another way. Those that exist are not used for further requests.
    pub(crate) fn set_secured(&self, secured: Secured) {
        let mut state = self.state.lock();
        state.secured = secured;
        state.connections.fill(None);
    }

    /// The deadline of a request that begins now.
    pub(crate) fn deadline(&self) -> Duration {
        self.env.now().saturating_add(self.limit)
    }

    /// The time of one attempt.
    pub(crate) fn attempt_limit(&self) -> Duration {
        self.limit / ATTEMPTS_IN_TIME
    }

    /// The member to ask now, and a connection to it.
    pub(crate) fn pick(&self) -> std::result::Result<(usize, Connection), Failure> {
        let mut state = self.state.lock();
        let current = state.current;
        assert!(current < self.members.len(), "the current member is one of them");
        let connection = match &state.connections[current] {
            Some(connection) => connection.clone(),
            None => Connection::new(&self.members[current], &state.secured)?,
        };
        state.connections[current] = Some(connection.clone());
        Ok((current, connection))
    }

    /// After a failure: the next member is asked, and this one over a new connection when its turn comes.
    pub(crate) fn leave(&self, member: usize, reason: &str) {
        let mut state = self.state.lock();
        state.connections[member] = None;
        if state.current == member {
            state.current = (member + 1) % self.members.len();
            assert!(state.current < self.members.len(), "the current member is one of them");
            let (failed, next) = (self.name(member), self.name(state.current));
            if std::mem::replace(&mut state.has_answered, false) {
                match self.members.len() {
                    1 => tracing::warn!(failed, reason, "etcd does not respond, it is asked again"),
                    _ => tracing::warn!(failed, next, reason, "a member of etcd failed, others are asked"),
                }
            }
        }
    }

    /// The name of a member, for messages.
    fn name(&self, member: usize) -> &str {
        &self.members[member]
    }

    /// Asks one member once.
    pub(crate) async fn attempt<A: Headed, F>(
        &self,
        deadline: Duration,
        call: impl FnOnce(Connection) -> F,
    ) -> std::result::Result<A, Failure>
    where
        F: Future<Output = std::result::Result<A, Failure>>,
    {
        let left = deadline.saturating_sub(self.env.now()).min(self.attempt_limit());
        let (member, connection) = self.pick()?;
        let outcome = match self.env.timeout(left, call(connection)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::Lost(format!("no answer in {} ms", left.as_millis()))),
        };
        match outcome {
            Ok(answer) => self.check_cluster(member, &answer).map(|()| answer),
            Err(Failure::Lost(message)) => {
                self.leave(member, &message);
                Err(Failure::Lost(format!("{}: {message}", self.name(member))))
            }
            Err(other) => Err(other),
        }
    }

    /// Asks members in turn until one answers. Only for calls that may be made more than once.
    pub(crate) async fn repeat<A: Headed, F>(
        &self,
        deadline: Duration,
        call: impl Fn(Connection) -> F,
    ) -> std::result::Result<A, Failure>
    where
        F: Future<Output = std::result::Result<A, Failure>>,
    {
        let mut backoff = Backoff::new();
        loop {
            match self.attempt(deadline, &call).await {
                Err(failure @ (Failure::Lost(_) | Failure::Busy(_))) => {
                    backoff.wait(&self.env, deadline).await;
                    if self.env.now() >= deadline {
                        return Err(failure);
                    }
                }
                other => return other,
            }
        }
    }

    fn check_cluster(&self, member: usize, answer: &impl Headed) -> std::result::Result<(), Failure> {
        let Some(found) = answer.header().map(|header| header.cluster_id) else {
            return Err(Failure::Lost("an answer without a header".to_owned()));
        };
        let mut state = self.state.lock();
        let expected = *state.cluster.get_or_insert(found);
        if expected == found {
            state.has_answered |= state.current == member;
            return Ok(());
        }
        let member = self.name(member);
        let message = format!("{member} is of etcd cluster {found:x}, others are of {expected:x}");
        Err(Failure::Refused(CoordError::InvalidArgument { message }))
    }

    /// Waits for a turn, at most until the deadline. Nothing was sent yet.
    pub(crate) async fn turn<T>(&self, deadline: Duration, turn: impl Future<Output = T>) -> Result<T> {
        let left = deadline.saturating_sub(self.env.now());
        self.env.timeout(left, turn).await.map_err(|_| CoordError::Unavailable {
            message: "earlier transactions of this process got no answer yet".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{RangeResponse, ResponseHeader};
    use crate::security::EtcdSecurity;
    use std::sync::atomic::{AtomicU32, Ordering};
    use stele_env::tokio_env::TokioRuntime;
    use stele_types::ErrorKind;

    const LIMIT: Duration = Duration::from_secs(60);

    fn members(count: usize, limit: Duration) -> Members {
        let names = (0..count).map(|i| format!("127.0.0.1:{}", i + 1)).collect();
        let secured = Secured::new(false, EtcdSecurity::default());
        Members::new(TokioRuntime::current(), names, secured, limit)
    }

    fn answer(cluster_id: u64) -> std::result::Result<RangeResponse, Failure> {
        let header = ResponseHeader {
            cluster_id,
            ..ResponseHeader::default()
        };
        Ok(RangeResponse {
            header: Some(header),
            ..RangeResponse::default()
        })
    }

    fn lost() -> std::result::Result<RangeResponse, Failure> {
        Err(Failure::Lost("gone".to_owned()))
    }

    #[tokio::test]
    async fn a_member_is_asked_until_it_fails() {
        let members = members(3, LIMIT);
        let first = members.pick().unwrap().0;
        for _ in 0..3 {
            members
                .attempt(members.deadline(), |_| async { answer(1) })
                .await
                .unwrap();
            assert_eq!(members.pick().unwrap().0, first);
        }
        let refused = || async { Err::<RangeResponse, _>(Failure::Compacted) };
        let outcome = members.attempt(members.deadline(), |_| refused()).await;
        assert_eq!(outcome, Err(Failure::Compacted));
        assert_eq!(members.pick().unwrap().0, first, "a refusal is an answer");
        for i in 1..=3 {
            let outcome = members.attempt(members.deadline(), |_| async { lost() }).await;
            assert!(matches!(outcome, Err(Failure::Lost(message)) if message.starts_with("127.0.0.1:")));
            assert_eq!(members.pick().unwrap().0, (first + i) % 3);
        }
        // A failure of a member that was left before is none of the current one.
        members.leave((first + 1) % 3, "late");
        assert_eq!(members.pick().unwrap().0, first);
    }

    #[tokio::test]
    async fn reads_are_repeated_within_their_time() {
        let calls = AtomicU32::new(0);
        let members = members(3, LIMIT);
        let call = |_| async {
            match calls.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => lost(),
                2 => Err(Failure::Busy("later".to_owned())),
                _ => answer(1),
            }
        };
        members.repeat(members.deadline(), call).await.unwrap();
        assert_eq!(calls.into_inner(), 4);

        let members = self::members(1, Duration::from_millis(40));
        let begun = members.env.now();
        let silent = |_| std::future::pending::<std::result::Result<RangeResponse, Failure>>();
        let outcome = members.repeat(members.deadline(), silent).await;
        assert!(matches!(&outcome, Err(Failure::Lost(message)) if message.contains("no answer")));
        assert!(members.env.now().saturating_sub(begun) >= members.limit);
    }

    #[tokio::test]
    async fn another_etcd_is_refused() {
        let members = members(2, LIMIT);
        members
            .attempt(members.deadline(), |_| async { answer(7) })
            .await
            .unwrap();
        let other = members.attempt(members.deadline(), |_| async { answer(8) }).await;
        let error = other.expect_err("another cluster").into_error();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        members
            .attempt(members.deadline(), |_| async { answer(7) })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_turn_is_not_waited_for_longer() {
        let members = members(1, Duration::from_millis(20));
        let turn = members.turn(members.deadline(), std::future::pending::<()>()).await;
        let error = turn.expect_err("no turn");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(!error.is_ambiguous());
        assert_eq!(members.turn(members.deadline(), async { 7 }).await, Ok(7));
    }
}
