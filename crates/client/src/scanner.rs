//! Scanners with leases, for protocols whose scans span requests.
//!
//! A scanner that is not used for its lease is closed, so that a client that died holds nothing for long. The number of
//! scanners is bounded.

use crate::error::{ServiceError, ServiceResult};
use crate::service::RowStream;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use stele_env::Env;
use stele_types::{ErrorKind, RowBatch};

/// Names an open scanner; never reused by one registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScannerId(pub u64);

/// Open scanners: each may hold a batch of about 1 MB.
pub const SCANNERS_MAX: usize = 4096;

/// The open scanners of a front end.
pub struct ScannerRegistry {
    env: Env,
    lease: Duration,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    scanners: BTreeMap<ScannerId, Entry>,
}

struct Entry {
    /// Absent while a request uses it.
    stream: Option<Box<dyn RowStream>>,
    expires: Duration,
}

impl ScannerRegistry {
    /// An empty registry. Identifiers begin at a random number, so that one from before a restart is not taken for
    /// another.
    pub fn new(env: Env, lease: Duration) -> Self {
        let open = Open {
            next: env.random_u64() >> 1,
            scanners: BTreeMap::new(),
        };
        ScannerRegistry {
            env,
            lease,
            open: Mutex::new(open),
        }
    }

    /// Takes a scanner in.
    pub fn open(&self, stream: Box<dyn RowStream>) -> ServiceResult<ScannerId> {
        let now = self.env.now();
        let mut open = self.open.lock();
        open.scanners.retain(|_, entry| entry.expires > now);
        if open.scanners.len() >= SCANNERS_MAX {
            return Err(ServiceError::new(
                ErrorKind::Busy,
                format!("{SCANNERS_MAX} scanners are open"),
            ));
        }
        let id = ScannerId(open.next);
        open.next += 1;
        open.scanners.insert(
            id,
            Entry {
                stream: Some(stream),
                expires: now + self.lease,
            },
        );
        Ok(id)
    }

    /// The scanner's next rows; `None` closes it. One request at a time may use a scanner.
    pub async fn next(&self, id: ScannerId) -> ServiceResult<Option<RowBatch>> {
        let mut stream = self
            .touch(id, |entry| entry.stream.take())?
            .ok_or_else(|| ServiceError::new(ErrorKind::FailedPrecondition, format!("scanner {} is in use", id.0)))?;
        let batch = stream.next().await;
        if matches!(batch, Ok(Some(_))) {
            // Should the lease have run out meanwhile, the scanner stays closed.
            let _ = self.touch(id, |entry| entry.stream = Some(stream));
        } else {
            self.close(id);
        }
        batch
    }

    /// Extends the lease.
    pub fn renew(&self, id: ScannerId) -> ServiceResult<()> {
        self.touch(id, |_| ())
    }

    /// Closes a scanner; an unknown one is closed already.
    pub fn close(&self, id: ScannerId) {
        self.open.lock().scanners.remove(&id);
    }

    fn touch<T>(&self, id: ScannerId, use_entry: impl FnOnce(&mut Entry) -> T) -> ServiceResult<T> {
        let now = self.env.now();
        let mut open = self.open.lock();
        match open.scanners.get_mut(&id) {
            Some(entry) if entry.expires > now => {
                entry.expires = now + self.lease;
                Ok(use_entry(entry))
            }
            _ => {
                open.scanners.remove(&id);
                Err(ServiceError::not_found(format!(
                    "scanner {} is unknown or its lease has run out",
                    id.0
                )))
            }
        }
    }
}
