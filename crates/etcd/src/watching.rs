//! All watches of a coordinator object, over one stream of etcd.
//!
//! The stream runs from the first watch to the end of the object. It has all changes below the name. They are few, and one position in the history serves all watches. The stream
//! survives its connection: it continues at its position on another member. If etcd has compacted that revision, every
//! watch is told to list again.
//!
//! A member that is silent is asked for its progress, and left if it stays silent. It is left, too, if its progress stays behind the
//! revision that a linearizable read has returned before: a member whose disk stalls goes on to answer. A member without a leader
//! ends the stream.

use crate::calls::Connection;
use crate::failure::Failure;
use crate::keys::Keys;
use crate::listing::entry;
use crate::members::{Backoff, Members};
use crate::messages::{
    EVENT_DELETE, Event, Headed, RangeRequest, WatchCreateRequest, WatchKind, WatchProgressRequest, WatchRequest,
    WatchResponse,
};
use crate::position::Position;
use crate::transaction::number;
use futures::future::{Either, select};
use futures::stream;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_coord::watch::Watchers;
use stele_coord::{CoordError, KEY_BYTES_MAX, Result, Watch, WatchEvent};
use stele_env::Env;
use tokio::sync::{Notify, mpsc};
use tonic::Streaming;

/// A stream that is silent for this long is asked for its progress; after twice as long its member is left.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Answers in a row that are behind, after which a member is left. One may have crossed the change that it lacks.
const LATE_ANSWERS: u32 = 2;

/// All watches of one coordinator object.
pub(crate) struct Watching {
    env: Env,
    members: Arc<Members>,
    keys: Keys,
    told: Mutex<Told>,
    /// Ends the stream's task.
    stop: Arc<Notify>,
}

#[derive(Default)]
struct Told {
    watchers: Watchers,
    /// Whether the task of the stream runs.
    follows: bool,
}

/// Why a connection of the stream ended.
enum End {
    /// The coordinator object is gone.
    Stopped,
    /// etcd does not have the revision any more.
    Compacted,
    Failed(String),
}

impl Watching {
    pub(crate) fn new(env: Env, members: Arc<Members>, keys: Keys) -> Arc<Watching> {
        Arc::new(Watching {
            env,
            members,
            keys,
            told: Mutex::new(Told::default()),
            stop: Arc::new(Notify::new()),
        })
    }

    /// A watch of changes from now on.
    pub(crate) async fn watch(self: &Arc<Self>, prefix: &str) -> Result<Watch> {
        if prefix.len() > KEY_BYTES_MAX {
            return Err(CoordError::InvalidArgument {
                message: format!("a prefix of {} bytes, at most {KEY_BYTES_MAX}", prefix.len()),
            });
        }
        let now = current_revision(&self.members, &self.keys, self.members.deadline()).await?;
        let mut told = self.told.lock();
        let watch = told.watchers.watch_after(prefix, number(now)?)?;
        if !std::mem::replace(&mut told.follows, true) {
            let follow = follow(
                Arc::downgrade(self),
                self.env.clone(),
                Arc::clone(&self.stop),
                Position::after(now),
            );
            self.env.spawn("etcd watch", follow);
        }
        Ok(watch)
    }

    fn tell(&self, event: &WatchEvent) {
        self.told.lock().watchers.send(event);
    }

    /// Takes a response; whether the stream goes on.
    fn take(&self, response: &WatchResponse, position: &mut Position) -> std::result::Result<(), End> {
        if response.compact_revision > 0 {
            return Err(End::Compacted);
        }
        if response.canceled {
            return Err(End::Failed(format!("etcd ended the watch: {}", response.cancel_reason)));
        }
        let mut last = None;
        for event in &response.events {
            let Some(revision) = event.kv.as_ref().map(|kv| kv.mod_revision) else {
                return Err(End::Failed("an event without a key".to_owned()));
            };
            last = Some(revision);
            if position.is_new(revision) {
                self.tell_event(event);
            }
        }
        if let Some(revision) = last
            && !response.fragment
        {
            position.complete(revision);
        }
        Ok(())
    }

    fn tell_event(&self, event: &Event) {
        let Some((key, current)) = event.kv.as_ref().and_then(|kv| entry(&self.keys, kv).ok()) else {
            tracing::warn!("a key of another program changed below the name of this coordinator");
            return;
        };
        let revision = current.version;
        self.tell(&match event.kind {
            EVENT_DELETE => WatchEvent::Deleted { key, revision },
            _ => WatchEvent::Put { key, current },
        });
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.stop.notify_one();
    }
}

/// The revision of etcd now.
pub(crate) async fn current_revision(members: &Members, keys: &Keys, deadline: Duration) -> Result<i64> {
    let request = RangeRequest {
        key: keys.guard(),
        count_only: true,
        ..RangeRequest::default()
    };
    let read = members.repeat(deadline, |member| {
        let request = request.clone();
        async move { member.range(request).await }
    });
    Ok(read.await.map_err(Failure::into_error)?.revision())
}

/// Follows the changes until the coordinator object is gone.
async fn follow(watching: Weak<Watching>, env: Env, stop: Arc<Notify>, mut position: Position) {
    let mut backoff = Backoff::new();
    loop {
        let begun = env.now();
        match follow_once(&watching, &env, &stop, &mut position).await {
            End::Stopped => return,
            End::Compacted => match resync(&watching).await {
                Ok(Some(now)) => position = now,
                Ok(None) => return,
                Err(error) => tracing::warn!(%error, "a watch cannot continue yet"),
            },
            End::Failed(reason) => tracing::debug!(reason, "the connection of the watches ended"),
        }
        // A connection that held for a while was no failed attempt.
        if env.now().saturating_sub(begun) > SILENCE_MAX {
            backoff = Backoff::new();
        }
        backoff.wait(&env, Duration::MAX).await;
    }
}

/// etcd compacted the position: all watches list again, and follow from now on.
async fn resync(watching: &Weak<Watching>) -> Result<Option<Position>> {
    let Some(watching) = watching.upgrade() else {
        return Ok(None);
    };
    let now = current_revision(&watching.members, &watching.keys, watching.members.deadline()).await?;
    watching.tell(&WatchEvent::Resync);
    Ok(Some(Position::after(now)))
}

/// Follows over one connection.
async fn follow_once(watching: &Weak<Watching>, env: &Env, stop: &Notify, position: &mut Position) -> End {
    let Some(strong) = watching.upgrade() else {
        return End::Stopped;
    };
    let (member, connection) = match strong.members.pick() {
        Ok(picked) => picked,
        Err(failure) => return End::Failed(failure.into_error().to_string()),
    };
    let limit = strong.members.attempt_limit();
    let (ask, requests) = mpsc::channel(1);
    let opened = open(strong.keys.clone(), position.reconnect(), connection, requests);
    drop(strong);
    let end = match until(stop, env.timeout(limit, opened)).await {
        None => return End::Stopped,
        Some(Ok(Ok(responses))) => read_all(watching, env, stop, position, responses, &ask).await,
        Some(Ok(Err(failure))) => End::Failed(failure.into_error().to_string()),
        Some(Err(_)) => End::Failed("no answer".to_owned()),
    };
    if let (End::Failed(reason), Some(strong)) = (&end, watching.upgrade()) {
        strong.members.leave(member, reason);
    }
    end
}

/// Begins a stream of the changes from a revision on. It lasts as long as the sender of `requests`.
async fn open(
    keys: Keys,
    start_revision: i64,
    connection: Connection,
    requests: mpsc::Receiver<WatchRequest>,
) -> std::result::Result<Streaming<WatchResponse>, Failure> {
    let (key, range_end) = keys.range("");
    let create = WatchRequest {
        request: Some(WatchKind::Create(WatchCreateRequest {
            key,
            range_end,
            start_revision,
            fragment: true,
        })),
    };
    let first = stream::iter([create]);
    let later = stream::unfold(requests, |mut requests| async move {
        let request = requests.recv().await?;
        Some((request, requests))
    });
    connection.watch(stream::StreamExt::chain(first, later)).await
}

/// The progress that a silent member must show.
#[derive(Default)]
struct Progress {
    /// It has not answered yet.
    was_asked: bool,
    /// A revision that etcd has.
    least: i64,
    /// Answers in a row that were behind.
    late: u32,
}

impl Progress {
    /// The member has sent something.
    fn heard(&mut self, response: &WatchResponse) -> std::result::Result<(), End> {
        self.was_asked = false;
        match response.events.is_empty() && response.revision() < self.least {
            true => self.late += 1,
            false => self.late = 0,
        }
        match self.late < LATE_ANSWERS {
            true => Ok(()),
            false => Err(End::Failed(
                "the member does not come to the newest revision".to_owned(),
            )),
        }
    }
}

async fn read_all(
    watching: &Weak<Watching>,
    env: &Env,
    stop: &Notify,
    position: &mut Position,
    mut responses: Streaming<WatchResponse>,
    ask: &mpsc::Sender<WatchRequest>,
) -> End {
    let mut progress = Progress::default();
    loop {
        let response = match until(stop, env.timeout(SILENCE_MAX, responses.message())).await {
            None => return End::Stopped,
            Some(Err(_)) if progress.was_asked => return End::Failed("no answer".to_owned()),
            Some(Err(_)) => {
                let Some(strong) = watching.upgrade() else {
                    return End::Stopped;
                };
                let (members, keys) = (strong.members.clone(), strong.keys.clone());
                drop(strong);
                match until(stop, current_revision(&members, &keys, members.deadline())).await {
                    None => return End::Stopped,
                    Some(Ok(revision)) => progress.least = revision,
                    // Nobody shows that this member is behind.
                    Some(Err(error)) => tracing::debug!(%error, "the newest revision is not known"),
                }
                progress.was_asked = true;
                let request = WatchRequest {
                    request: Some(WatchKind::Progress(WatchProgressRequest {})),
                };
                // A full queue means that the connection takes nothing: the next round leaves it.
                let _ = ask.try_send(request);
                continue;
            }
            Some(Ok(Ok(Some(response)))) => response,
            Some(Ok(Ok(None))) => return End::Failed("the stream ended".to_owned()),
            Some(Ok(Err(status))) => return End::Failed(Failure::from(status).into_error().to_string()),
        };
        if let Err(end) = progress.heard(&response) {
            return end;
        }
        let Some(strong) = watching.upgrade() else {
            return End::Stopped;
        };
        if let Err(end) = strong.take(&response, position) {
            return end;
        }
    }
}

/// The output of a future, or `None` once the coordinator object is gone.
async fn until<T>(stop: &Notify, future: impl Future<Output = T>) -> Option<T> {
    match select(pin!(future), pin!(stop.notified())).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::ResponseHeader;

    fn at(revision: i64) -> WatchResponse {
        WatchResponse {
            header: Some(ResponseHeader {
                revision,
                ..ResponseHeader::default()
            }),
            ..WatchResponse::default()
        }
    }

    #[test]
    fn a_member_that_answers_and_stays_behind_is_left() {
        let mut progress = Progress {
            least: 10,
            ..Progress::default()
        };
        assert!(progress.heard(&at(9)).is_ok(), "it may have crossed the change");
        assert!(progress.heard(&at(10)).is_ok());
        assert!(progress.heard(&at(9)).is_ok());
        assert!(progress.heard(&at(9)).is_err());
        // Events arrive in order, and those before the newest first.
        let events = WatchResponse {
            events: vec![Event::default()],
            ..at(9)
        };
        progress.late = 1;
        assert!(progress.heard(&events).is_ok());
        assert_eq!(progress.late, 0);
    }
}
