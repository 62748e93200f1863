//! A target that lies on purpose, to prove that the bench notices.
//!
//! `lie=KIND:N` in a target's address selects the lie:
//!
//! * `drop:N`: every N-th row of put and put_many is acknowledged and never sent.
//! * `stale:N`: about every N-th get has the values from before the last acknowledged put of its row. Only rows put at
//!   least twice through this process can have such a response, and only the first [`KEYS_MAX`] are remembered. The lie
//!   waits for one.
//! * `wrong:N`: in every N-th row that is read, one bit of a value is flipped.
//! * `skip:N`: scans leave out every N-th row.
//! * `fail:N`: every N-th call is not made and returns an error.
//! * `slow:N`: every N-th call takes [`SLOW_MS`] longer. No lie about data: it tests whether latencies are reported in
//!   full when operations are due at given times.
//!
//! Rows and calls are counted over all connections of the target, so a lie affects the client that happens to be next.
//! Conditional puts, counters and deletes are made honestly, except for `fail` and `slow`.
//!
//! A lying target is marked in its name and its description: its figures must not be taken for the server's.

mod memory;

use super::{Cell, Columns, Connection, Put, Result, Row, Scan, TableSpec, Target, TargetError};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use memory::Remembered;
use parking_lot::Mutex;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use memory::KEYS_MAX;

/// Additional time of a slow call.
pub const SLOW_MS: u64 = 200;

/// The kinds of lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Drop,
    Stale,
    Wrong,
    Skip,
    Fail,
    Slow,
}

impl Kind {
    const ALL: [(&str, Self); 6] = [
        ("drop", Self::Drop),
        ("stale", Self::Stale),
        ("wrong", Self::Wrong),
        ("skip", Self::Skip),
        ("fail", Self::Fail),
        ("slow", Self::Slow),
    ];
}

/// A lie and the distance to the next one.
struct Lie {
    text: String,
    kind: Kind,
    every: u64,
    /// Rows or calls so far. For stale responses, gets since the last one.
    count: AtomicU64,
    /// Values that puts have replaced, for stale responses.
    remembered: Mutex<Remembered>,
}

impl Lie {
    fn parse(text: &str) -> Result<Self> {
        let bad = |why: &str| TargetError::Unsupported(format!("lie={text}: {why}"));
        let (name, every) = text.split_once(':').ok_or_else(|| bad("expected KIND:N"))?;
        let known = Kind::ALL.iter().find(|(known, _)| *known == name);
        let (_, kind) = known.ok_or_else(|| bad("no such lie"))?;
        let every = every.parse().ok().filter(|every| *every > 0);
        Ok(Self {
            text: text.to_owned(),
            kind: *kind,
            every: every.ok_or_else(|| bad("N is a number above zero"))?,
            count: AtomicU64::new(0),
            remembered: Mutex::default(),
        })
    }

    /// Whether this is the N-th item that `kind` counts. Never, if that is not the lie.
    fn falls(&self, kind: Kind) -> bool {
        self.kind == kind && (self.count.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.every)
    }

    /// Called before every call.
    async fn call(&self) -> Result<()> {
        if self.falls(Kind::Fail) {
            return Err(TargetError::Refused("a failure on purpose".into()));
        }
        if self.falls(Kind::Slow) {
            tokio::time::sleep(Duration::from_millis(SLOW_MS)).await;
        }
        Ok(())
    }

    /// The values that a row had before, if it is time to return them.
    fn stale(&self, table: &str, key: &Bytes) -> Option<memory::Values> {
        if self.kind != Kind::Stale || self.count.fetch_add(1, Ordering::Relaxed) + 1 < self.every {
            return None;
        }
        let before = self.remembered.lock().before(table, key)?;
        self.count.store(0, Ordering::Relaxed);
        Some(before)
    }
}

/// A target behind a lie.
struct LyingTarget {
    name: String,
    inner: Arc<dyn Target>,
    lie: Arc<Lie>,
}

/// Wraps a target so that it lies as `lie` says.
///
/// # Errors
/// A lie that is not known.
pub fn wrap(target: Arc<dyn Target>, lie: &str) -> Result<Arc<dyn Target>> {
    Ok(Arc::new(LyingTarget {
        name: format!("{}-lying", target.name()),
        inner: target,
        lie: Arc::new(Lie::parse(lie)?),
    }))
}

#[async_trait]
impl Target for LyingTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn stores(&self) -> bool {
        self.inner.stores()
    }

    async fn create_table(&self, table: &TableSpec) -> Result<()> {
        self.inner.create_table(table).await
    }

    async fn drop_table(&self, name: &str) -> Result<()> {
        self.inner.drop_table(name).await
    }

    async fn flush_table(&self, name: &str) -> Result<()> {
        self.inner.flush_table(name).await
    }

    async fn connect(&self) -> Result<Arc<dyn Connection>> {
        let (inner, lie) = (self.inner.connect().await?, self.lie.clone());
        Ok(Arc::new(LyingConnection { inner, lie }))
    }

    async fn describe(&self) -> Result<Vec<(String, String)>> {
        let mut description = self.inner.describe().await?;
        description.push(("lies on purpose".into(), self.lie.text.clone()));
        Ok(description)
    }
}

/// A connection behind the lie of its target.
struct LyingConnection {
    inner: Arc<dyn Connection>,
    lie: Arc<Lie>,
}

impl LyingConnection {
    /// The values of a put that are remembered once it is acknowledged.
    fn note(&self, put: &Put) -> Option<(Bytes, memory::Values)> {
        (self.lie.kind == Kind::Stale).then(|| (put.key.clone(), memory::Values::of(put)))
    }

    fn remember(&self, table: &str, notes: impl IntoIterator<Item = (Bytes, memory::Values)>) {
        let mut remembered = self.lie.remembered.lock();
        for (key, values) in notes {
            remembered.written(table, key, values);
        }
    }
}

#[async_trait]
impl Connection for LyingConnection {
    async fn put(&self, table: &str, put: Put) -> Result<()> {
        self.lie.call().await?;
        if self.lie.falls(Kind::Drop) {
            return Ok(());
        }
        let note = self.note(&put);
        self.inner.put(table, put).await?;
        self.remember(table, note);
        Ok(())
    }

    async fn put_many(&self, table: &str, mut puts: Vec<Put>) -> Result<()> {
        self.lie.call().await?;
        puts.retain(|_| !self.lie.falls(Kind::Drop));
        if puts.is_empty() {
            return Ok(());
        }
        let notes: Vec<_> = puts.iter().filter_map(|put| self.note(put)).collect();
        self.inner.put_many(table, puts).await?;
        self.remember(table, notes);
        Ok(())
    }

    async fn get(&self, table: &str, key: Bytes, columns: &Columns) -> Result<Option<Row>> {
        self.lie.call().await?;
        // Fetched before the call, so that the returned values are older than a put acknowledged before the read began.
        let stale = self.lie.stale(table, &key);
        let mut row = self.inner.get(table, key, columns).await?;
        if let Some(row) = &mut row {
            if let Some(stale) = stale {
                stale.put_into(row);
            }
            if self.lie.falls(Kind::Wrong) {
                flip(row);
            }
        }
        Ok(row)
    }

    async fn scan(
        &self,
        table: &str,
        scan: &Scan,
        sink: &mut (dyn for<'r> FnMut(&'r Row) -> ControlFlow<()> + Send),
    ) -> Result<()> {
        self.lie.call().await?;
        let lie = &self.lie;
        let lying = &mut |row: &Row| {
            if lie.falls(Kind::Skip) {
                return ControlFlow::Continue(());
            }
            if lie.falls(Kind::Wrong) {
                let mut row = row.clone();
                flip(&mut row);
                return sink(&row);
            }
            sink(row)
        };
        self.inner.scan(table, scan, lying).await
    }

    async fn increment(&self, table: &str, key: Bytes, family: &str, qualifier: Bytes, by: i64) -> Result<i64> {
        self.lie.call().await?;
        self.inner.increment(table, key, family, qualifier, by).await
    }

    async fn check_and_put(
        &self,
        table: &str,
        family: &str,
        qualifier: Bytes,
        expected: Option<Bytes>,
        put: Put,
    ) -> Result<bool> {
        self.lie.call().await?;
        let note = self.note(&put);
        let written = self
            .inner
            .check_and_put(table, family, qualifier, expected, put)
            .await?;
        if written {
            self.remember(table, note);
        }
        Ok(written)
    }

    async fn delete(&self, table: &str, key: Bytes, family: Option<&str>, qualifiers: &[Bytes]) -> Result<()> {
        self.lie.call().await?;
        self.inner.delete(table, key, family, qualifiers).await
    }

    fn retries(&self) -> u64 {
        self.inner.retries()
    }
}

/// Flips a bit in the middle of the first value that is not empty.
fn flip(row: &mut Row) {
    let mut values = row.cells.iter_mut().map(|Cell { value, .. }| value);
    if let Some(value) = values.find(|value| !value.is_empty()) {
        let mut flipped = BytesMut::from(&value[..]);
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0x10;
        *value = flipped.freeze();
    }
}

#[cfg(test)]
mod tests;
