//! Shared and exclusive locks without guards, and the row latches made of them: what makes a read-modify-write atomic.
//!
//! Rows share a fixed number of stripes by hash. A plain write holds its rows' stripes shared, until it is applied, so that
//! plain writes never wait for each other; a read-modify-write holds its row's stripe alone, across its read and its
//! write. Stripes are taken in ascending order, so no two writers wait for each other in a circle.
//!
//! A plain write that meets nobody costs one compare-and-swap for each stripe and no allocation. Waiting is first come, first
//! served: an exclusive owner is not starved by a stream of shared ones.

use std::sync::Arc;
use tokio::sync::Semaphore;
use xxhash_rust::xxh3::xxh3_64;

/// A lock that is taken and released by hand: shared by many, or alone by one. (One permit, or all of them.)
pub(crate) struct SharedLock(Semaphore);

/// Shared owners at once; further ones wait. Far more than requests that fit into memory.
const SHARED_MAX: u32 = 1 << 20;

impl Default for SharedLock {
    fn default() -> Self {
        SharedLock(Semaphore::const_new(SHARED_MAX as usize))
    }
}

impl SharedLock {
    /// Takes it shared if nobody has it alone or waits for that.
    pub(crate) fn try_share(&self) -> bool {
        self.0.try_acquire().map(|permit| permit.forget()).is_ok()
    }

    /// Takes it shared. Nothing is taken when the future is dropped.
    pub(crate) async fn share(&self) {
        self.take(1).await;
    }

    /// Gives back what was taken shared.
    pub(crate) fn unshare(&self) {
        self.0.add_permits(1);
    }

    /// Takes it alone. Nothing is taken when the future is dropped.
    pub(crate) async fn own(&self) {
        self.take(SHARED_MAX).await;
    }

    /// Gives back what was taken alone.
    pub(crate) fn disown(&self) {
        self.0.add_permits(SHARED_MAX as usize);
    }

    async fn take(&self, permits: u32) {
        let permit = self.0.acquire_many(permits).await;
        permit.expect("the semaphore is never closed").forget();
    }
}

/// Enough that two of a hundred concurrent rows rarely meet; 64 KB in all.
const STRIPES: usize = 1024;
/// Words of a set of stripes.
const WORDS: usize = STRIPES / 64;

/// The stripes of a server.
pub struct RowLatches {
    stripes: [SharedLock; STRIPES],
}

impl Default for RowLatches {
    fn default() -> Self {
        RowLatches {
            stripes: std::array::from_fn(|_| SharedLock::default()),
        }
    }
}

/// What a writer has latched; given back when dropped.
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
}

impl RowLatches {
    /// Latches one row for a plain write, if that needs no waiting.
    pub fn try_share(self: &Arc<Self>, row: &[u8]) -> Option<Latched> {
        let stripe = stripe_of(row);
        self.stripes[stripe]
            .try_share()
            .then(|| self.latched(What::Shared(stripe)))
    }

    /// Latches rows for a plain write.
    pub async fn share<'a>(self: &Arc<Self>, rows: impl Iterator<Item = &'a [u8]>) -> Latched {
        let mut wanted = [0u64; WORDS];
        for stripe in rows.map(stripe_of) {
            wanted[stripe / 64] |= 1 << (stripe % 64);
        }
        let mut latched = self.latched(What::Many(Box::default()));
        for stripe in members(&wanted) {
            if !self.stripes[stripe].try_share() {
                self.stripes[stripe].share().await;
            }
            // Noted one by one: the future may be dropped while it waits for the next.
            if let What::Many(held) = &mut latched.what {
                held[stripe / 64] |= 1 << (stripe % 64);
            }
        }
        latched
    }

    /// Latches one row alone.
    pub async fn own(self: &Arc<Self>, row: &[u8]) -> Latched {
        let stripe = stripe_of(row);
        self.stripes[stripe].own().await;
        self.latched(What::Owned(stripe))
    }

    fn latched(self: &Arc<Self>, what: What) -> Latched {
        Latched {
            latches: self.clone(),
            what,
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

fn stripe_of(row: &[u8]) -> usize {
    (xxh3_64(row) % STRIPES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn free(latches: &RowLatches) -> bool {
        let whole = |lock: &SharedLock| lock.0.available_permits() == SHARED_MAX as usize;
        latches.stripes.iter().all(whole)
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
    fn the_members_of_a_set_come_in_order() {
        let mut set = [0u64; WORDS];
        let expected = [0, 1, 63, 64, 500, 1023];
        expected
            .iter()
            .for_each(|stripe| set[stripe / 64] |= 1 << (stripe % 64));
        assert_eq!(members(&set).collect::<Vec<_>>(), expected);
    }
}
