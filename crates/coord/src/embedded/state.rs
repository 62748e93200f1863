//! The keys in memory. No I/O: all changes made here are durable already.

use crate::error::{CoordError, Result};
use crate::format::{SnapshotEntry, encode_snapshot};
use crate::limits::SESSIONS_MAX;
use crate::session_id::SessionId;
use crate::txn::{Condition, Expected, Versioned, Write};
use crate::watch::{WatchEvent, Watchers};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) struct State {
    revision: u64,
    entries: BTreeMap<String, Entry>,
    /// Keys and values of `entries`.
    bytes: usize,
    sessions: BTreeMap<SessionId, Lease>,
    next_session: u64,
    pub(super) watchers: Watchers,
}

struct Entry {
    current: Versioned,
    session: Option<SessionId>,
}

struct Lease {
    ttl: Duration,
    /// On the environment's clock. Passed means ended, even before the keys are removed.
    deadline: Duration,
    /// The bound keys: exactly those entries that name this session.
    keys: BTreeSet<String>,
}

impl State {
    pub(super) fn new(revision: u64, entries: Vec<SnapshotEntry>, next_session: u64) -> State {
        let bytes = entries.iter().map(|e| e.key.len() + e.value.len()).sum();
        let entry = |e: SnapshotEntry| {
            let current = Versioned {
                value: e.value,
                version: e.version,
            };
            (e.key, Entry { current, session: None })
        };
        State {
            revision,
            entries: entries.into_iter().map(entry).collect(),
            bytes,
            sessions: BTreeMap::new(),
            next_session,
            watchers: Watchers::default(),
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn next_revision(&self) -> u64 {
        self.revision + 1
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, key: &str) -> Option<Versioned> {
        self.entries.get(key).map(|entry| entry.current.clone())
    }

    pub(super) fn list(&self, prefix: &str) -> Vec<(String, Versioned)> {
        let from = self.entries.range(prefix.to_owned()..);
        let matching = from.take_while(|(key, _)| key.starts_with(prefix));
        matching
            .map(|(key, entry)| (key.clone(), entry.current.clone()))
            .collect()
    }

    /// A snapshot for recovery: all keys except bound ones.
    pub(super) fn snapshot(&self, generation: u64) -> Bytes {
        let unbound = self.entries.iter().filter(|(_, entry)| entry.session.is_none());
        let parts = unbound.map(|(key, entry)| (key.as_str(), entry.current.version, entry.current.value.as_ref()));
        encode_snapshot(generation, self.revision, parts)
    }

    pub(super) fn first_conflict(&self, conditions: &[Condition]) -> Option<String> {
        let holds = |condition: &Condition| {
            let version = self.entries.get(&condition.key).map(|entry| entry.current.version);
            match condition.expected {
                Expected::Absent => version.is_none(),
                Expected::Present => version.is_some(),
                Expected::Version(expected) => version == Some(expected),
            }
        };
        conditions.iter().find(|c| !holds(c)).map(|c| c.key.clone())
    }

    /// Every session that keys are to be bound to must be alive.
    pub(super) fn check_sessions(&self, writes: &[Write], now: Duration) -> Result<()> {
        for write in writes {
            let Write::PutBound { session, .. } = write else {
                continue;
            };
            match self.sessions.get(session) {
                Some(lease) if now < lease.deadline => {}
                _ => return Err(CoordError::SessionEnded { session: *session }),
            }
        }
        Ok(())
    }

    /// Bytes of keys and values once `writes` were applied.
    pub(super) fn bytes_after(&self, writes: &[Write]) -> usize {
        writes.iter().fold(self.bytes, |bytes, write| {
            let key = write.key();
            let before = self.entries.get(key).map_or(0, |e| key.len() + e.current.value.len());
            let after = match write {
                Write::Put { value, .. } | Write::PutBound { value, .. } => key.len() + value.len(),
                Write::Delete { .. } => 0,
            };
            bytes - before + after
        })
    }

    /// Applies a durable transaction and tells the watchers.
    pub(super) fn apply(&mut self, revision: u64, writes: Vec<Write>) {
        assert_eq!(
            revision,
            self.next_revision(),
            "transactions are applied in order, once"
        );
        self.revision = revision;
        for write in writes {
            match write {
                Write::Put { key, value } => self.put(key, value, None),
                Write::PutBound { key, value, session } => self.put(key, value, Some(session)),
                Write::Delete { key } => self.remove(&key),
            }
        }
        debug_assert_eq!(
            self.bytes,
            self.entries
                .iter()
                .map(|(k, e)| k.len() + e.current.value.len())
                .sum::<usize>()
        );
    }

    fn put(&mut self, key: String, value: Bytes, session: Option<SessionId>) {
        self.take_out(&key);
        if let Some(id) = session {
            let lease = self.sessions.get_mut(&id);
            assert!(
                lease.is_some(),
                "a session does not end during a transaction that binds keys to it"
            );
            let bound = lease.is_some_and(|lease| lease.keys.insert(key.clone()));
            assert!(bound, "a key is bound to its session once");
        }
        self.bytes += key.len() + value.len();
        let current = Versioned {
            value,
            version: self.revision,
        };
        self.entries.insert(
            key.clone(),
            Entry {
                current: current.clone(),
                session,
            },
        );
        self.watchers.send(&WatchEvent::Put { key, current });
    }

    fn remove(&mut self, key: &str) {
        if self.take_out(key) {
            let event = WatchEvent::Deleted {
                key: key.to_owned(),
                revision: self.revision,
            };
            self.watchers.send(&event);
        }
    }

    /// Removes an entry, if there is one, without telling anybody.
    fn take_out(&mut self, key: &str) -> bool {
        let Some(entry) = self.entries.remove(key) else {
            return false;
        };
        let bytes = key.len() + entry.current.value.len();
        assert!(self.bytes >= bytes, "the bytes of every entry are counted");
        self.bytes -= bytes;
        // A session that is ending is out of the map already.
        if let Some(lease) = entry.session.and_then(|id| self.sessions.get_mut(&id)) {
            let was_bound = lease.keys.remove(key);
            assert!(was_bound, "a session lists every key that is bound to it");
        }
        true
    }

    pub(super) fn begin_session(&mut self, ttl: Duration, now: Duration) -> Result<SessionId> {
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(CoordError::Full {
                message: format!("{SESSIONS_MAX} sessions"),
            });
        }
        self.next_session += 1;
        let id = SessionId(self.next_session);
        let lease = Lease {
            ttl,
            deadline: now.saturating_add(ttl),
            keys: BTreeSet::new(),
        };
        let known = self.sessions.insert(id, lease);
        assert!(known.is_none(), "a session id is given once");
        assert!(self.sessions.len() <= SESSIONS_MAX, "sessions are bounded");
        Ok(id)
    }

    /// When the next session ends unless kept alive.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.sessions.values().map(|lease| lease.deadline).min()
    }

    /// Sessions whose time is up.
    pub(super) fn expired(&self, now: Duration) -> Vec<SessionId> {
        let expired = self.sessions.iter().filter(|(_, lease)| lease.deadline <= now);
        expired.map(|(id, _)| *id).collect()
    }

    pub(super) fn keep_alive(&mut self, session: SessionId, now: Duration) -> Result<()> {
        match self.sessions.get_mut(&session) {
            Some(lease) if now < lease.deadline => {
                let deadline = now.saturating_add(lease.ttl);
                debug_assert!(deadline >= lease.deadline, "keeping a session alive never shortens it");
                lease.deadline = deadline;
                Ok(())
            }
            _ => Err(CoordError::SessionEnded { session }),
        }
    }

    /// When a session that lives ends unless kept alive.
    pub(super) fn ends_at(&self, session: SessionId, now: Duration) -> Option<Duration> {
        let deadline = self.sessions.get(&session)?.deadline;
        (now < deadline).then_some(deadline)
    }

    /// Removes a session and its keys. No revision: recovery removes bound keys by itself.
    pub(super) fn end_session(&mut self, session: SessionId) {
        let Some(lease) = self.sessions.remove(&session) else {
            return;
        };
        for key in &lease.keys {
            let bound_to = self.entries.get(key).and_then(|entry| entry.session);
            assert_eq!(
                bound_to,
                Some(session),
                "a session lists only keys that are bound to it"
            );
            self.remove(key);
        }
    }
}
