//! Shared and exclusive locks without guards, and the row latches that make a read-modify-write atomic.
//!
//! Rows share a fixed number of stripes by hash. A plain write holds its rows' stripes shared, until it is applied, so that
//! plain writes never wait for each other; a read-modify-write holds its row's stripe alone, across its read and its
//! write. Stripes are taken in ascending order, so no two writers wait for each other in a circle.
//!
//! Each stripe also keeps the newest time that a read-modify-write gave. A plain write got its time before it had the latch, and that
//! time must not be older: the read-modify-write has not seen it.
//!
//! A plain write without contention costs two atomic operations for each stripe and no allocation. Waiting is first come, first
//! served: a stream of sharers does not starve an exclusive owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use tokio::sync::{Notify, Semaphore};
use xxhash_rust::xxh3::xxh3_64;

/// A lock that is taken and released by hand: shared by many, or owned by one.
///
/// Sharing is one atomic addition while nobody wants to own it. A future that wants to takes the *turn* first, then
/// closes the lock to newcomers and waits for the sharers. Those that come meanwhile wait for the turn as well, in
/// order.
pub(crate) struct SharedLock {
    /// How many share it, and [`CLOSED`].
    shared: AtomicU32,
    /// Apart, so that of a row's latch only the word above needs to be in the cache.
    slow: Box<Slow>,
}

struct Slow {
    /// Held by the owner of the lock or the one that waits to own it, and in passing by those that had to wait to
    /// share it.
    turn: Semaphore,
    /// Told when a closed lock is no longer shared.
    drained: Notify,
}

/// Set while somebody has the lock alone, or has the turn for that. The bits below count; two thousand million requests that
/// share one do not fit into memory.
const CLOSED: u32 = 1 << 31;

impl Default for SharedLock {
    fn default() -> Self {
        SharedLock {
            shared: AtomicU32::new(0),
            slow: Box::new(Slow {
                turn: Semaphore::const_new(1),
                drained: Notify::const_new(),
            }),
        }
    }
}

/// Opens a lock again, also when the future that closed it is dropped before the lock was drained.
struct Closing<'a>(&'a SharedLock);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.disown();
    }
}

impl SharedLock {
    /// Takes it shared if nobody has it alone or waits for that.
    pub(crate) fn try_share(&self) -> bool {
        let share = |shared| (shared < CLOSED).then_some(shared + 1);
        self.shared
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, share)
            .is_ok()
    }

    /// Takes it shared. Nothing is taken when the future is dropped.
    pub(crate) async fn share(&self) {
        if !self.try_share() {
            let _turn = self.slow.turn.acquire().await.expect("the semaphore is never closed");
            // Its last owner has opened it again, and nobody else can close it now.
            let before = self.shared.fetch_add(1, Ordering::Acquire);
            assert!(
                before < CLOSED - 1,
                "a lock is open while a sharer has the turn, and its count does not overflow"
            );
        }
    }

    /// Whether nobody has it alone or waits for that.
    pub(crate) fn is_open(&self) -> bool {
        self.shared.load(Ordering::Relaxed) < CLOSED
    }

    /// Waits until it is open, and takes nothing.
    pub(crate) async fn opened(&self) {
        if !self.is_open() {
            let _turn = self.slow.turn.acquire().await.expect("the semaphore is never closed");
        }
    }

    /// Releases a shared lock.
    pub(crate) fn unshare(&self) {
        let before = self.shared.fetch_sub(1, Ordering::Release);
        assert!(before & !CLOSED > 0, "a shared lock is given back as often as taken");
        if before == CLOSED | 1 {
            self.slow.drained.notify_one();
        }
    }

    /// Whether anybody shares it.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed) & !CLOSED > 0
    }

    /// Takes it alone. Nothing is taken when the future is dropped.
    pub(crate) async fn own(&self) {
        let turn = self.slow.turn.acquire().await;
        turn.expect("the semaphore is never closed").forget();
        self.shared.fetch_or(CLOSED, Ordering::Relaxed);
        let closing = Closing(self);
        while self.shared.load(Ordering::Acquire) != CLOSED {
            self.slow.drained.notified().await;
        }
        debug_assert_eq!(
            self.slow.turn.available_permits(),
            0,
            "the owner of a lock has the turn: nobody else can close it"
        );
        std::mem::forget(closing);
    }

    /// Releases an owned lock.
    pub(crate) fn disown(&self) {
        let before = self.shared.fetch_and(!CLOSED, Ordering::Release);
        assert!(
            before & CLOSED != 0,
            "only the owner of a lock, or of the turn for it, opens it"
        );
        self.slow.turn.add_permits(1);
    }
}

/// Enough that two of a hundred concurrent rows rarely meet; plain writes check 16 KB of it.
const STRIPES: usize = 1024;
/// How often a plain write of several rows waits for one of them without the others.
const ATTEMPTS_MAX: u32 = 8;
/// Words of a set of stripes.
const WORDS: usize = STRIPES / 64;

/// The stripes of a server.
pub struct RowLatches {
    stripes: [SharedLock; STRIPES],
    /// The newest time that the owner of a stripe gave its writes, in microseconds of the wall clock; read and written by those
    /// that hold the stripe.
    given: [AtomicI64; STRIPES],
}

impl Default for RowLatches {
    fn default() -> Self {
        RowLatches {
            stripes: std::array::from_fn(|_| SharedLock::default()),
            given: std::array::from_fn(|_| AtomicI64::new(i64::MIN)),
        }
    }
}

/// The stripes that a writer has latched; released when dropped.
pub struct Latched {
    latches: Arc<RowLatches>,
    what: What,
}

enum What {
    /// The stripe of a plain write of one row.
    Shared(usize),
    /// The stripes of a plain write, as a set.
    Many(Box<[u64; WORDS]>),
    /// The stripe of a read-modify-write.
    Owned(usize),
    /// The stripes of a read-modify-write of several rows, as a set.
    ManyOwned(Box<[u64; WORDS]>),
}

impl What {
    /// Notes another stripe of a set.
    fn add(&mut self, stripe: usize) {
        let (What::Many(held) | What::ManyOwned(held)) = self else {
            unreachable!("only a set of stripes grows");
        };
        let (word, bit) = (&mut held[stripe / 64], 1 << (stripe % 64));
        assert!(
            *word & bit == 0,
            "a stripe is latched once by a write, or the write waits for itself"
        );
        assert!(
            *word < bit,
            "stripes are latched in ascending order, so that no writers wait in a circle"
        );
        *word |= bit;
    }
}

impl RowLatches {
    /// Latches one row for a plain write, if that needs no waiting.
    pub fn try_share(self: &Arc<Self>, row: &[u8]) -> Option<Latched> {
        let stripe = stripe_of(row);
        self.stripes[stripe]
            .try_share()
            .then(|| self.latched(What::Shared(stripe)))
    }

    /// Latches rows for a plain write. A read-modify-write may have one of them for as long as a read of a large row takes. The others
    /// stay free meanwhile: another read-modify-write of one of these would wait, and all plain writes behind it.
    pub async fn share<'a>(self: &Arc<Self>, rows: impl Iterator<Item = &'a [u8]>) -> Latched {
        let wanted = stripes_of(rows);
        for _ in 0..ATTEMPTS_MAX {
            match self.try_share_all(&wanted) {
                Ok(latched) => return latched,
                Err(stripe) => self.stripes[stripe].opened().await,
            }
        }
        // Among many read-modify-writes all are never free together.
        let mut latched = self.latched(What::Many(Box::default()));
        for stripe in members(&wanted) {
            if !self.stripes[stripe].try_share() {
                self.stripes[stripe].share().await;
            }
            // Noted one by one: the future may be dropped while it waits for the next.
            latched.what.add(stripe);
        }
        latched
    }

    /// Latches a set of stripes for a plain write, or none of them if one is not free: that one.
    fn try_share_all(self: &Arc<Self>, wanted: &[u64; WORDS]) -> Result<Latched, usize> {
        let mut latched = self.latched(What::Many(Box::default()));
        for stripe in members(wanted) {
            if !self.stripes[stripe].try_share() {
                return Err(stripe);
            }
            latched.what.add(stripe);
        }
        Ok(latched)
    }

    /// Latches one row alone.
    pub async fn own(self: &Arc<Self>, row: &[u8]) -> Latched {
        let stripe = stripe_of(row);
        self.stripes[stripe].own().await;
        debug_assert!(!self.stripes[stripe].is_shared(), "nobody shares a latch that is owned");
        self.latched(What::Owned(stripe))
    }

    /// Latches rows alone.
    pub async fn own_all<'a>(self: &Arc<Self>, mut rows: impl ExactSizeIterator<Item = &'a [u8]>) -> Latched {
        if rows.len() == 1
            && let Some(row) = rows.next()
        {
            return self.own(row).await;
        }
        let mut latched = self.latched(What::ManyOwned(Box::default()));
        for stripe in members(&stripes_of(rows)) {
            self.stripes[stripe].own().await;
            debug_assert!(!self.stripes[stripe].is_shared(), "nobody shares a latch that is owned");
            latched.what.add(stripe);
        }
        latched
    }

    fn latched(self: &Arc<Self>, what: What) -> Latched {
        Latched {
            latches: self.clone(),
            what,
        }
    }
}

impl Latched {
    /// Notes the time that a read-modify-write gives to its writes.
    pub(crate) fn note_given(&self, wall_micros: i64) {
        let note = |stripe: usize| {
            self.latches.given[stripe].fetch_max(wall_micros, Ordering::Relaxed);
            debug_assert!(
                !self.latches.stripes[stripe].is_shared(),
                "a time is noted while nobody else has the stripe"
            );
        };
        match &self.what {
            What::Owned(stripe) => note(*stripe),
            What::ManyOwned(held) => members(held).for_each(note),
            What::Shared(_) | What::Many(_) => unreachable!("a plain write has its time before it has its latches"),
        }
    }

    /// The newest time that read-modify-writes of these stripes gave; the least number if there were none.
    pub(crate) fn newest_given(&self) -> i64 {
        let given = |stripe: usize| self.latches.given[stripe].load(Ordering::Relaxed);
        match &self.what {
            What::Shared(stripe) | What::Owned(stripe) => given(*stripe),
            What::Many(held) | What::ManyOwned(held) => members(held).map(given).max().unwrap_or(i64::MIN),
        }
    }
}

impl Drop for Latched {
    fn drop(&mut self) {
        let stripes = &self.latches.stripes;
        match &self.what {
            What::Shared(stripe) => stripes[*stripe].unshare(),
            What::Many(held) => members(held).for_each(|stripe| stripes[stripe].unshare()),
            What::Owned(stripe) => stripes[*stripe].disown(),
            What::ManyOwned(held) => members(held).for_each(|stripe| stripes[stripe].disown()),
        }
    }
}

/// The members of a set, ascending.
fn members(set: &[u64; WORDS]) -> impl Iterator<Item = usize> {
    set.iter().enumerate().flat_map(|(word, bits)| {
        let mut bits = *bits;
        std::iter::from_fn(move || {
            let bit = bits.trailing_zeros() as usize;
            bits &= bits.wrapping_sub(1);
            (bit < 64).then_some(word * 64 + bit)
        })
    })
}

/// The set of the stripes of rows.
fn stripes_of<'a>(rows: impl Iterator<Item = &'a [u8]>) -> [u64; WORDS] {
    let mut set = [0u64; WORDS];
    for stripe in rows.map(stripe_of) {
        set[stripe / 64] |= 1 << (stripe % 64);
    }
    set
}

fn stripe_of(row: &[u8]) -> usize {
    (xxh3_64(row) % STRIPES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn is_free(lock: &SharedLock) -> bool {
        lock.shared.load(Ordering::Relaxed) == 0 && lock.slow.turn.available_permits() == 1
    }

    fn free(latches: &RowLatches) -> bool {
        latches.stripes.iter().all(is_free)
    }

    #[test]
    fn who_waits_for_an_open_lock_takes_nothing() {
        let lock = SharedLock::default();
        assert!(lock.opened().now_or_never().is_some());
        lock.own().now_or_never().unwrap();
        let mut opened = Box::pin(lock.opened());
        assert!((&mut opened).now_or_never().is_none() && !lock.is_open());
        lock.disown();
        assert!(opened.now_or_never().is_some() && is_free(&lock));
    }

    #[test]
    fn plain_writes_share_and_read_modify_writes_exclude() {
        let latches = Arc::new(RowLatches::default());
        let rows = || (0..5_000u32).map(|n| n.to_be_bytes()).collect::<Vec<_>>();
        let rows = rows();
        let many = latches.share(rows.iter().map(|row| &row[..])).now_or_never().unwrap();
        let one = latches.try_share(&rows[7]).unwrap();
        let mut own = Box::pin(latches.own(&rows[7]));
        assert!((&mut own).now_or_never().is_none());
        assert!(latches.try_share(&rows[7]).is_none(), "nobody overtakes who waits");
        let mut behind = Box::pin(latches.share(rows.iter().map(|row| &row[..])));
        assert!((&mut behind).now_or_never().is_none());
        drop(many);
        assert!((&mut own).now_or_never().is_none());
        drop(one);
        let own = own.now_or_never().unwrap();
        drop(behind);
        assert!(latches.try_share(&rows[7]).is_none());
        drop(own);
        assert!(free(&latches), "a latch that nobody holds is still taken");
    }

    #[test]
    fn a_plain_write_that_waits_for_a_row_leaves_the_others_free() {
        let latches = Arc::new(RowLatches::default());
        let rows: Vec<_> = (0..200u32).map(|n| n.to_be_bytes()).collect();
        let last = rows.iter().max_by_key(|row| stripe_of(&row[..])).unwrap();
        let first = rows.iter().min_by_key(|row| stripe_of(&row[..])).unwrap();
        let slow = latches.own(last).now_or_never().unwrap();
        let mut many = Box::pin(latches.share(rows.iter().map(|row| &row[..])));
        for _ in 0..3 {
            assert!((&mut many).now_or_never().is_none());
            let other = latches.own(first).now_or_never();
            drop(other.expect("a write that waits for another row has latched it"));
        }
        drop(slow);
        drop(many.now_or_never().expect("all are free"));
        assert!(free(&latches));
    }

    #[test]
    fn several_rows_are_owned_with_their_stripes() {
        let latches = Arc::new(RowLatches::default());
        let rows: Vec<_> = (0..5_000u32).map(|n| n.to_be_bytes()).collect();
        let keys = |count: usize| rows[..count].iter().map(|row| &row[..]);
        let many = latches.own_all(keys(5_000)).now_or_never().expect("all are free");
        assert!(latches.try_share(&rows[7]).is_none());
        let mut one = Box::pin(latches.own_all(keys(1)));
        assert!((&mut one).now_or_never().is_none());
        drop(many);
        let one = one.now_or_never().expect("it is free");
        let mut behind = Box::pin(latches.own_all(keys(100)));
        assert!((&mut behind).now_or_never().is_none());
        drop(behind);
        drop(one);
        assert!(free(&latches), "a future that waited has kept a latch");
    }

    #[test]
    fn the_newest_time_of_a_stripe_is_known_to_those_that_share_it() {
        let latches = Arc::new(RowLatches::default());
        let rows: Vec<_> = (0..200u32).map(|n| n.to_be_bytes()).collect();
        let keys = |range: std::ops::Range<usize>| rows[range].iter().map(|row| &row[..]);
        let share = |range| latches.share(keys(range)).now_or_never().unwrap();
        assert_eq!(share(0..200).newest_given(), i64::MIN);
        for time in [500, 400] {
            let owned = latches.own(&rows[7]).now_or_never().unwrap();
            owned.note_given(time);
        }
        assert_eq!(latches.try_share(&rows[7]).unwrap().newest_given(), 500);
        assert_eq!(share(0..200).newest_given(), 500);
        let owned = latches.own_all(keys(0..9)).now_or_never().unwrap();
        owned.note_given(600);
        drop(owned);
        assert_eq!(share(8..9).newest_given(), 600);
    }

    #[test]
    fn who_stops_waiting_leaves_nothing_behind() {
        let lock = SharedLock::default();
        assert!(lock.try_share());
        let mut owner = Box::pin(lock.own());
        assert!((&mut owner).now_or_never().is_none());
        let mut sharer = Box::pin(lock.share());
        assert!((&mut sharer).now_or_never().is_none());
        let mut second = Box::pin(lock.own());
        assert!((&mut second).now_or_never().is_none());
        drop(owner);
        sharer.now_or_never().expect("the one before has gone away");
        assert!(lock.try_share(), "the second has not got its turn");
        assert!((&mut second).now_or_never().is_none());
        assert!(!lock.try_share());
        drop(second);
        (0..3).for_each(|_| lock.unshare());
        assert!(is_free(&lock));
    }

    struct Unpark(std::thread::Thread);

    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    #[allow(clippy::disallowed_methods, reason = "it takes real threads to race")]
    fn wait_for(future: impl Future<Output = ()>) {
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut context = std::task::Context::from_waker(&waker);
        let mut future = std::pin::pin!(future);
        while future.as_mut().poll(&mut context).is_pending() {
            std::thread::park();
        }
    }

    /// Owners exclude everybody, on several threads.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "it takes real threads to race")]
    fn nobody_shares_what_another_owns() {
        const OWNED: u32 = 1 << 16;
        let (lock, inside) = (SharedLock::default(), AtomicU32::new(0));
        let (lock, inside) = (&lock, &inside);
        let work = move |worker: u32| async move {
            for turn in 0..5_000 {
                if (turn + worker).is_multiple_of(5) {
                    lock.own().await;
                    assert_eq!(inside.fetch_add(OWNED, Ordering::SeqCst), 0);
                    inside.fetch_sub(OWNED, Ordering::SeqCst);
                    lock.disown();
                } else {
                    lock.share().await;
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < OWNED);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    lock.unshare();
                }
                // Dropped while it waits, or taken and given back.
                if turn % 7 == 0 && lock.own().now_or_never().is_some() {
                    lock.disown();
                }
            }
        };
        std::thread::scope(|scope| {
            for worker in 0..4 {
                scope.spawn(move || wait_for(work(worker)));
            }
        });
        assert!(is_free(lock));
    }

    #[test]
    fn the_members_of_a_set_come_in_order() {
        let mut set = [0u64; WORDS];
        let expected = [0, 1, 63, 64, 500, 1023];
        expected
            .iter()
            .for_each(|stripe| set[stripe / 64] |= 1 << (stripe % 64));
        assert_eq!(members(&set).collect::<Vec<_>>(), expected);
    }
}
