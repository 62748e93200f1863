//! Open scanners, between the calls that use them.
//!
//! A client that dies leaves its scanners open. So each has a lease, which every call renews, and a task closes those
//! whose lease has run out. The number of open scanners is bounded.
//!
//! Where callers are known, each has a share of the places. Opening a scanner of `hbase:meta` needs no right, so a single caller
//! could take all of them otherwise. Where callers are not known nothing tells them apart: another connection than the one that
//! opened a scanner may use it.

mod idle;

use crate::failure::{Failure, Outcome};
use crate::idle_bytes::IdleBytes;
use crate::meta_scan::MetaScanner;
use crate::region_scan::RegionScanner;
use parking_lot::Mutex;
use std::collections::{HashMap, hash_map};
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_wire::exception;

/// How long a scanner may be unused: HBase's default.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// Open scanners of regions at most, and of `hbase:meta`. Each holds the files that it reads, and at most a batch of rows
/// ([`idle`]).
const SCANNERS_MAX: usize = 4096;

/// Open scanners of one caller, of either kind, once half of the places are taken. A job with one user may have more while others leave
/// them free.
const SHARE_MAX: usize = SCANNERS_MAX / 8;
const SCARCE: usize = SCANNERS_MAX / 2;

/// How often expired scanners are looked for.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// The state of a scan of one region.
pub(crate) enum Scanner {
    Region(Box<RegionScanner>),
    Meta(Box<MetaScanner>),
}

/// All open scanners.
pub(crate) struct Scanners {
    env: Env,
    open: Arc<Mutex<Open>>,
    idle: Arc<IdleBytes>,
    /// Bytes that idle scanners may keep.
    idle_max: usize,
    /// The caller that uses them; `None` where callers are not known.
    owner: Option<Arc<str>>,
}

#[derive(Default)]
struct Open {
    next: u64,
    scanners: HashMap<u64, Entry>,
    /// How many of `scanners` each owner has, of each kind; without zeros.
    counts: HashMap<Owned, usize>,
    /// How many of them are of regions, and of `hbase:meta`.
    kinds: [usize; 2],
}

/// An owner, and whether its scanners are of `hbase:meta`.
type Owned = (Option<Arc<str>>, bool);

impl Open {
    fn add(&mut self, entry: Entry) -> u64 {
        self.next += 1;
        *self.counts.entry(entry.owned()).or_default() += 1;
        self.kinds[usize::from(entry.is_meta)] += 1;
        self.scanners.insert(self.next, entry);
        self.next
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.scanners.remove(&number)?;
        self.kinds[usize::from(entry.is_meta)] -= 1;
        if let hash_map::Entry::Occupied(mut count) = self.counts.entry(entry.owned()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(entry)
    }

    /// The limit that another scanner would exceed.
    fn exceeded(&self, owned: &Owned) -> Option<String> {
        let of_kind = self.kinds[usize::from(owned.1)];
        let is_shared = owned.0.is_some() && of_kind >= SCARCE;
        if is_shared && let Some(own) = self.counts.get(owned).filter(|own| **own >= SHARE_MAX) {
            return Some(format!("the caller has {own} open scanners of {of_kind}"));
        }
        let is_full = of_kind >= SCANNERS_MAX;
        is_full.then(|| format!("{SCANNERS_MAX} scanners are open"))
    }
}

struct Entry {
    /// Numbers of scanners can be guessed, and those of others must not be used.
    owner: Option<Arc<str>>,
    /// Absent while a call uses it: that call has an [`InUse`].
    scanner: Option<Scanner>,
    is_meta: bool,
    /// Number that the next call must have.
    next_call: u64,
    expires: Duration,
}

impl Entry {
    fn owned(&self) -> Owned {
        (self.owner.clone(), self.is_meta)
    }

    /// Refuses a call that is not the next one. Calls without a number are of clients that do not count.
    fn check_order(&self, number: u64, call: Option<u64>) -> Outcome<()> {
        let Some(call) = call.filter(|call| *call != self.next_call) else {
            return Ok(());
        };
        let message = format!(
            "Expected nextCallSeq: {} But the nextCallSeq got from client: {call}; scanner {number}",
            self.next_call
        );
        Err(Failure::new(exception::OUT_OF_ORDER_SCANNER, message))
    }
}

impl Scanners {
    /// No scanners. Numbers begin at a random one, so that a scanner from before a restart is unknown. Idle ones keep
    /// `idle_max` bytes at most.
    pub fn new(env: Env, idle_max: usize) -> Self {
        let next = env.random_u64() >> 2;
        Scanners {
            env,
            open: Arc::new(Mutex::new(Open {
                next,
                ..Open::default()
            })),
            idle: Arc::default(),
            idle_max,
            owner: None,
        }
    }

    /// The same scanners for a caller, which can use its own only.
    pub fn of_owner(&self, owner: &str) -> Self {
        Scanners {
            env: self.env.clone(),
            open: Arc::clone(&self.open),
            idle: Arc::clone(&self.idle),
            idle_max: self.idle_max,
            owner: Some(Arc::from(owner)),
        }
    }

    /// Whether the caller may use a scanner.
    fn owns(&self, entry: &Entry) -> bool {
        entry.owner == self.owner
    }

    /// The end of a lease that begins now.
    fn expiry(&self) -> Duration {
        self.env.now() + LEASE
    }

    /// Registers a scanner, which its first call uses. Clients look regions up with scanners of `hbase:meta`, so those have a
    /// bound of their own.
    pub fn open(&self, is_meta: bool) -> Outcome<InUse<'_>> {
        let expires = self.expiry();
        let entry = Entry {
            owner: self.owner.clone(),
            scanner: None,
            is_meta,
            next_call: 0,
            expires,
        };
        let mut open = self.open.lock();
        if let Some(limit) = open.exceeded(&entry.owned()) {
            return Err(Failure::overloaded(limit));
        }
        let number = open.add(entry);
        Ok(InUse { scanners: self, number })
    }

    /// Takes a scanner for a call. `call` is the number that the call has among those of the scanner.
    pub fn take(&self, number: u64, call: Option<u64>) -> Outcome<(InUse<'_>, Scanner)> {
        let expires = self.expiry();
        let mut open = self.open.lock();
        let entry = open.scanners.get_mut(&number).filter(|entry| self.owns(entry));
        let entry = entry.ok_or_else(|| unknown(number))?;
        entry.check_order(number, call)?;
        let mut scanner = entry.scanner.take().ok_or_else(|| {
            Failure::new(
                exception::OUT_OF_ORDER_SCANNER,
                format!("scanner {number} is in use by another call"),
            )
        })?;
        entry.expires = expires;
        entry.next_call += u64::from(call.is_some());
        scanner.set_idle(None);
        Ok((InUse { scanners: self, number }, scanner))
    }

    /// Extends the lease. It has a number among the calls of the scanner, as those that read rows.
    pub fn renew(&self, number: u64, call: Option<u64>) -> Outcome<()> {
        let expires = self.expiry();
        let mut open = self.open.lock();
        let entry = open.scanners.get_mut(&number).filter(|entry| self.owns(entry));
        let entry = entry.ok_or_else(|| unknown(number))?;
        entry.check_order(number, call)?;
        entry.expires = expires;
        entry.next_call += u64::from(call.is_some());
        Ok(())
    }

    /// Closes a scanner; an unknown one is closed already.
    pub fn close(&self, number: u64) {
        let mut open = self.open.lock();
        let is_own = open.scanners.get(&number).is_some_and(|entry| self.owns(entry));
        let closed = is_own.then(|| open.remove(number));
        drop(open);
        drop(closed);
    }

    /// Closes the scanners whose lease has run out. One that a call uses is not among them.
    pub fn close_expired(&self) {
        let now = self.env.now();
        let expired: Vec<Entry> = {
            let mut open = self.open.lock();
            let is_expired = |entry: &Entry| entry.scanner.is_some() && entry.expires <= now;
            let found = open.scanners.iter().filter(|(_, entry)| is_expired(entry));
            let numbers: Vec<u64> = found.map(|(number, _)| *number).collect();
            numbers.into_iter().filter_map(|number| open.remove(number)).collect()
        };
        drop(expired);
    }
}

/// The right of a call to a scanner. The scanner is closed when this is dropped, as when the connection ends during the call.
#[must_use]
pub(crate) struct InUse<'a> {
    scanners: &'a Scanners,
    number: u64,
}

impl InUse<'_> {
    /// The scanner's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Puts the scanner back after the call. Should it have been closed meanwhile, it ends here.
    pub fn put_back(self, mut scanner: Scanner) {
        let scanners = self.scanners;
        scanner.set_idle(Some(&scanners.idle));
        let expires = scanners.expiry();
        if let Some(entry) = scanners.open.lock().scanners.get_mut(&self.number) {
            entry.scanner = Some(scanner);
            entry.expires = expires;
        }
        std::mem::forget(self);
        scanners.bound_idle();
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.scanners.close(self.number);
    }
}

fn unknown(number: u64) -> Failure {
    let message = format!("Unknown scanner '{number}': its lease has run out, or the server was restarted");
    Failure::new(exception::UNKNOWN_SCANNER, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_service::Model;
    use stele_env::tokio_env::TokioRuntime;
    use stele_memory::Pool;
    use stele_wire::messages::Scan;

    fn scanner() -> Scanner {
        let front_end = Model::new(&[""]).front_end(&Pool::default());
        let scanner = MetaScanner::new(&front_end.shared.context, &Scan::default());
        Scanner::Meta(Box::new(scanner.expect("a scan of all rows")))
    }

    fn open_count(scanners: &Scanners) -> usize {
        scanners.open.lock().scanners.len()
    }

    #[tokio::test]
    async fn a_call_that_ends_early_closes_its_scanner() {
        let handle = tokio::runtime::Handle::current();
        let scanners = Scanners::new(TokioRuntime::env(handle.clone(), handle), 0);
        for _ in 0..=SCANNERS_MAX {
            drop(scanners.open(false).expect("none is left over"));
        }
        let in_use = scanners.open(false).expect("none is open");
        let number = in_use.number();
        in_use.put_back(scanner());
        assert_eq!(open_count(&scanners), 1);
        drop(scanners.take(number, Some(0)).expect("it is there"));
        assert_eq!(open_count(&scanners), 0);
        assert!(scanners.take(number, Some(1)).is_err());
    }

    #[tokio::test]
    async fn scanners_are_of_their_callers() {
        let handle = tokio::runtime::Handle::current();
        let all = Scanners::new(TokioRuntime::env(handle.clone(), handle), 0);
        let (alice, bob) = (all.of_owner("alice"), all.of_owner("bob"));
        let in_use = alice.open(false).expect("none is open");
        let number = in_use.number();
        in_use.put_back(scanner());
        for other in [&bob, &all] {
            assert!(other.take(number, Some(0)).is_err() && other.renew(number, Some(0)).is_err());
            other.close(number);
        }
        alice.renew(number, Some(0)).expect("her own");
        assert!(alice.renew(number, Some(0)).is_err(), "a renewal has a number, too");
        assert!(alice.take(number, Some(0)).is_err());
        drop(
            all.of_owner("alice")
                .take(number, Some(1))
                .expect("on another connection"),
        );
        assert_eq!(open_count(&all), 0);
    }

    #[tokio::test]
    async fn a_caller_leaves_places_to_others() {
        let all = Scanners::new(TokioRuntime::current(), 0);
        let mallory = all.of_owner("mallory");
        let open = |scanners: &Scanners, is_meta| {
            let in_use = scanners.open(is_meta)?;
            let number = in_use.number();
            in_use.put_back(scanner());
            Outcome::Ok(number)
        };
        let numbers: Vec<u64> = (0..SCARCE)
            .map(|_| open(&mallory, true).expect("half are free"))
            .collect();
        for _ in 0..SCANNERS_MAX {
            // Another connection of the same caller has no share of its own.
            assert_eq!(
                open(&all.of_owner("mallory"), true).expect_err("beyond").class,
                exception::CALL_QUEUE_TOO_BIG
            );
        }
        open(&mallory, false).expect("of the other kind");
        open(&all.of_owner("alice"), true).expect("the share of another caller");
        numbers[..2].iter().for_each(|number| mallory.close(*number));
        open(&mallory, true).expect("half are free again");
        assert!(open(&mallory, true).is_err());
        for entry in all.open.lock().scanners.values_mut() {
            entry.expires = Duration::ZERO;
        }
        all.close_expired();
        assert!(open_count(&all) == 0 && all.open.lock().counts.is_empty() && all.open.lock().kinds == [0; 2]);
        open(&mallory, true).expect("all were closed");
    }

    #[tokio::test]
    async fn clients_find_regions_while_all_scanners_are_open() {
        let handle = tokio::runtime::Handle::current();
        let scanners = Scanners::new(TokioRuntime::env(handle.clone(), handle), 0);
        for _ in 0..SCANNERS_MAX {
            scanners.open(false).expect("there are fewer").put_back(scanner());
        }
        assert!(scanners.open(false).is_err());
        assert!(scanners.open(true).is_ok());
    }
}
