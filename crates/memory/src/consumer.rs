//! One consumer's view of the pool: reserve, wait, grow, give back.

use crate::overdraft::{OverdraftPermit, RECLAIM_EVERY};
use crate::pool::Pool;
use crate::shares::{OVERDRAFT_BYTES, Part, SHARES};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stele_env::Env;

/// How often a waiter that has left the queue tries again.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// There is not enough memory, now or within the time that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// A part of the server that reserves memory. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Consumer {
    pool: Pool,
    part: Part,
}

/// Memory that may be taken until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    consumer: Consumer,
    bytes: AtomicUsize,
    /// Shared by the parts of a reservation that were split with it.
    overdraft: Option<Arc<OverdraftPermit>>,
}

impl Pool {
    /// The consumer of a part.
    pub fn of(&self, part: Part) -> Consumer {
        Consumer {
            pool: self.clone(),
            part,
        }
    }
}

impl Consumer {
    /// The pool that it belongs to.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Bytes that may be reserved.
    pub fn limit(&self) -> usize {
        self.pool.queue(self.part).limit()
    }

    /// Bytes that are reserved.
    pub fn used(&self) -> usize {
        self.pool.queue(self.part).used()
    }

    /// Callers that wait.
    pub fn waiting(&self) -> usize {
        self.pool.queue(self.part).waiting()
    }

    /// Bytes that one reservation may take: all of the limit, or as many as the overdraft allows if that is more.
    pub fn bytes_max(&self) -> usize {
        self.limit().max(OVERDRAFT_BYTES)
    }

    /// A reservation of nothing, which may grow.
    pub fn empty(&self) -> Reservation {
        self.reservation(0, None)
    }

    /// Reserves without waiting: these bytes, or the whole limit if that is less. `None` where others have too much of it,
    /// or wait.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reservation> {
        let bytes = bytes.min(self.limit());
        let before = self.pool.queue(self.part).try_add(bytes)?;
        self.pool.moved(self.part, before, before + bytes);
        Some(self.reservation(bytes, None))
    }

    /// The overdraft and nothing of the limit, without waiting. `None` where another request has it. For a request above the
    /// limit that is refused rather than waits. Such a request is not counted with others: it must not be the reason for
    /// which they are refused.
    pub fn try_overdraft(&self) -> Option<Reservation> {
        let permit = self.pool.try_overdraft()?;
        Some(self.reservation(0, Some(permit)))
    }

    /// Waits for these bytes, or for the whole limit if that is less, at most for `wait_max`. Meanwhile holders that make no
    /// progress are asked to give memory back.
    pub async fn reserve(&self, env: &Env, bytes: usize, wait_max: Duration) -> Result<Reservation, Exhausted> {
        let bytes = bytes.min(self.limit());
        if let Some(reservation) = self.try_reserve(bytes) {
            return Ok(reservation);
        }
        env.timeout(wait_max, self.wait(env, bytes))
            .await
            .map_err(|_| Exhausted)
    }

    /// As [`Consumer::reserve`]; a request for the whole limit or more takes the overdraft first, where that is more.
    pub async fn reserve_large(&self, env: &Env, bytes: usize, wait_max: Duration) -> Result<Reservation, Exhausted> {
        if !self.needs_overdraft(bytes) {
            return self.reserve(env, bytes, wait_max).await;
        }
        let both = async {
            let permit = self.pool.overdraft_permit(env).await;
            let mut reservation = match self.try_reserve(bytes) {
                Some(reservation) => reservation,
                None => self.wait(env, self.limit()).await,
            };
            if !permit.settles().is_zero() {
                env.sleep(permit.settles()).await;
            }
            reservation.overdraft = Some(Arc::new(permit));
            reservation
        };
        env.timeout(wait_max, both).await.map_err(|_| Exhausted)
    }

    /// Whether a reservation of `bytes` takes the overdraft.
    pub fn needs_overdraft(&self, bytes: usize) -> bool {
        bytes >= self.limit() && self.bytes_max() > self.limit()
    }

    /// Waits for bytes within the limit, in order of arrival as long as the share says.
    async fn wait(&self, env: &Env, bytes: usize) -> Reservation {
        let queue = self.pool.queue(self.part);
        let leaves = SHARES[self.part as usize].turn.filter(|_| bytes > queue.limit() / 2);
        let step = leaves.map_or(RECLAIM_EVERY, |turn| turn.min(RECLAIM_EVERY));
        let mut waited = Duration::ZERO;
        {
            let mut place = queue.wait(bytes);
            loop {
                if env.timeout(step, place.granted()).await.is_ok() {
                    return self.granted(bytes);
                }
                self.pool.reclaim(bytes);
                waited += step;
                if leaves.is_some_and(|turn| waited >= turn) {
                    break;
                }
            }
        }
        loop {
            if let Some(reservation) = self.try_reserve(bytes) {
                return reservation;
            }
            self.pool.reclaim(bytes);
            env.sleep(POLL_EVERY).await;
        }
    }

    /// Bytes that the queue has counted already.
    fn granted(&self, bytes: usize) -> Reservation {
        let now = self.used();
        self.pool.moved(self.part, now.saturating_sub(bytes), now);
        self.reservation(bytes, None)
    }

    fn reservation(&self, bytes: usize, overdraft: Option<OverdraftPermit>) -> Reservation {
        Reservation {
            consumer: self.clone(),
            bytes: AtomicUsize::new(bytes),
            overdraft: overdraft.map(Arc::new),
        }
    }
}

impl Reservation {
    /// Bytes that are counted for it.
    pub fn counted(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that it allows: with the overdraft more than are counted.
    pub fn bytes(&self) -> usize {
        match &self.overdraft {
            Some(_) => self.consumer.bytes_max(),
            None => self.counted(),
        }
    }

    /// Whether it has the overdraft.
    pub fn is_overdrawn(&self) -> bool {
        self.overdraft.is_some()
    }

    /// How long to wait before memory of the overdraft is used ([`OverdraftPermit::settles`]).
    pub fn settles(&self) -> Duration {
        self.overdraft
            .as_ref()
            .map_or(Duration::ZERO, |permit| permit.settles())
    }

    /// Returns the overdraft, if it has it.
    pub fn return_overdraft(&mut self) {
        self.overdraft = None;
    }

    /// Adds bytes if there are enough.
    pub fn try_grow(&self, bytes: usize) -> Result<(), Exhausted> {
        let (pool, part) = (&self.consumer.pool, self.consumer.part);
        let before = pool.queue(part).try_add(bytes).ok_or(Exhausted)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        pool.moved(part, before, before + bytes);
        Ok(())
    }

    /// Adds bytes in any case; an error when that exceeds the limit. For memory that is taken already: its owner is refused,
    /// and as long as it is there it counts.
    pub fn grow(&self, bytes: usize) -> Result<(), Exhausted> {
        let (pool, part) = (&self.consumer.pool, self.consumer.part);
        let before = pool.queue(part).add(bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        pool.moved(part, before, before + bytes);
        if before + bytes <= self.consumer.limit() {
            Ok(())
        } else {
            Err(Exhausted)
        }
    }

    /// Gives back all but `bytes`; returns how many came back.
    pub fn shrink_to(&self, bytes: usize) -> usize {
        let shrink = |now: usize| (now > bytes).then_some(bytes);
        let before = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shrink);
        let back = before.map_or(0, |before| before - bytes);
        self.release(back);
        back
    }

    /// Splits off a part of `bytes`, or all if it has fewer; the overdraft stays.
    pub fn split(&self, bytes: usize) -> Reservation {
        let less = |now: usize| Some(now.saturating_sub(bytes));
        let before = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let before = before.expect("the update always applies");
        self.consumer.reservation(before.min(bytes), None)
    }

    /// The same, but a part that gets fewer bytes shares the overdraft, which comes back when both have returned it.
    pub fn split_sharing(&self, bytes: usize) -> Reservation {
        let mut part = self.split(bytes);
        if part.counted() < bytes {
            part.overdraft = self.overdraft.clone();
        }
        part
    }

    /// Takes over another reservation of the same consumer.
    pub fn absorb(&mut self, mut other: Reservation) {
        debug_assert_eq!(self.consumer.part, other.consumer.part, "both are of one consumer");
        *self.bytes.get_mut() += std::mem::take(other.bytes.get_mut());
        self.overdraft = self.overdraft.take().or(other.overdraft.take());
    }

    fn release(&self, bytes: usize) {
        if bytes > 0 {
            let (pool, part) = (&self.consumer.pool, self.consumer.part);
            let before = pool.queue(part).release(bytes);
            pool.moved(part, before, before - bytes);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let bytes = std::mem::take(self.bytes.get_mut());
        self.release(bytes);
    }
}

#[cfg(test)]
mod tests;
