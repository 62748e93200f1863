//! Open scanners, between the calls that use them.
//!
//! A client that dies leaves its scanners open. So each has a lease, which every call renews, and a task closes those
//! whose lease has run out. The number of open scanners is bounded.

mod idle;

use crate::failure::{Failure, Outcome};
use crate::idle_bytes::IdleBytes;
use crate::meta_scan::MetaScanner;
use crate::region_scan::RegionScanner;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use stele_env::Env;
use stele_wire::exception;

/// How long a scanner may be unused: HBase's default.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// Open scanners at most. Each holds the files that it reads, and at most a batch of rows ([`idle`]).
const SCANNERS_MAX: usize = 4096;

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
    open: Mutex<Open>,
    idle: IdleBytes,
    /// Bytes that idle scanners may keep.
    idle_max: usize,
}

struct Open {
    next: u64,
    scanners: HashMap<u64, Entry>,
}

struct Entry {
    /// Absent while a call uses it.
    scanner: Option<Scanner>,
    /// Number that the next call must have.
    next_call: u64,
    expires: Duration,
}

impl Scanners {
    /// No scanners. Numbers begin at a random one, so that a scanner from before a restart is unknown. Idle ones keep
    /// `idle_max` bytes at most.
    pub fn new(env: Env, idle_max: usize) -> Self {
        let next = env.random_u64() >> 2;
        Scanners {
            env,
            open: Mutex::new(Open {
                next,
                scanners: HashMap::new(),
            }),
            idle: IdleBytes::default(),
            idle_max,
        }
    }

    /// The end of a lease that begins now.
    fn expiry(&self) -> Duration {
        self.env.now() + LEASE
    }

    /// Registers a scanner, which its first call uses. Returns its number.
    pub fn open(&self) -> Outcome<u64> {
        let expires = self.expiry();
        let mut open = self.open.lock();
        if open.scanners.len() >= SCANNERS_MAX {
            return Err(Failure::overloaded(format!("{SCANNERS_MAX} scanners are open")));
        }
        open.next += 1;
        let number = open.next;
        let entry = Entry {
            scanner: None,
            next_call: 0,
            expires,
        };
        open.scanners.insert(number, entry);
        Ok(number)
    }

    /// Takes a scanner for a call. `call` is the number that the call has among those of the scanner.
    pub fn take(&self, number: u64, call: Option<u64>) -> Outcome<Scanner> {
        let expires = self.expiry();
        let mut open = self.open.lock();
        let entry = open.scanners.get_mut(&number).ok_or_else(|| unknown(number))?;
        if let Some(call) = call.filter(|call| *call != entry.next_call) {
            let message = format!(
                "Expected nextCallSeq: {} But the nextCallSeq got from client: {call}; scanner {number}",
                entry.next_call
            );
            return Err(Failure::new(exception::OUT_OF_ORDER_SCANNER, message));
        }
        let mut scanner = entry.scanner.take().ok_or_else(|| {
            Failure::new(
                exception::OUT_OF_ORDER_SCANNER,
                format!("scanner {number} is in use by another call"),
            )
        })?;
        entry.expires = expires;
        entry.next_call += u64::from(call.is_some());
        scanner.set_idle(None);
        Ok(scanner)
    }

    /// Puts a scanner back after a call. Should it have been closed meanwhile, it ends here.
    pub fn put_back(&self, number: u64, mut scanner: Scanner) {
        scanner.set_idle(Some(&self.idle));
        let expires = self.expiry();
        if let Some(entry) = self.open.lock().scanners.get_mut(&number) {
            entry.scanner = Some(scanner);
            entry.expires = expires;
        }
        self.bound_idle();
    }

    /// Extends the lease.
    pub fn renew(&self, number: u64) -> Outcome<()> {
        let expires = self.expiry();
        let mut open = self.open.lock();
        open.scanners.get_mut(&number).ok_or_else(|| unknown(number))?.expires = expires;
        Ok(())
    }

    /// Closes a scanner; an unknown one is closed already.
    pub fn close(&self, number: u64) {
        let closed = self.open.lock().scanners.remove(&number);
        drop(closed);
    }

    /// Closes the scanners whose lease has run out. One that a call uses is not among them.
    pub fn close_expired(&self) {
        let now = self.env.now();
        let expired: Vec<Entry> = {
            let mut open = self.open.lock();
            let is_expired = |_: &u64, entry: &mut Entry| entry.scanner.is_some() && entry.expires <= now;
            open.scanners.extract_if(is_expired).map(|(_, entry)| entry).collect()
        };
        drop(expired);
    }
}

fn unknown(number: u64) -> Failure {
    let message = format!("Unknown scanner '{number}': its lease has run out, or the server was restarted");
    Failure::new(exception::UNKNOWN_SCANNER, message)
}
