//! A limit on bytes per second, shared by all ranges.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Lets a fixed number of bytes pass in a second.
#[derive(Debug)]
pub struct Pace {
    /// `None` for no limit.
    bytes_per_second: Option<u64>,
    /// When the bytes that have been taken are used up.
    free_at: Mutex<Option<Instant>>,
}

impl Pace {
    /// A limit, or none.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self {
            bytes_per_second,
            free_at: Mutex::new(None),
        }
    }

    /// Takes bytes, and waits until those taken before are used up.
    pub async fn take(&self, bytes: u64) {
        tokio::time::sleep_until(self.begin(bytes)).await;
    }

    /// Takes bytes. Returns when those taken before are used up.
    pub fn begin(&self, bytes: u64) -> Instant {
        let now = Instant::now();
        let rate = self.bytes_per_second;
        rate.map_or(now, |rate| self.reserve(bytes, rate.max(1), now))
    }

    /// Reserves time for bytes, and returns when it begins.
    fn reserve(&self, bytes: u64, rate: u64, now: Instant) -> Instant {
        let mut free_at = self.free_at.lock();
        let start = free_at.unwrap_or(now).max(now);
        *free_at = Some(start + Duration::from_secs_f64(bytes as f64 / rate as f64));
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_those_before() {
        let pace = Pace::new(Some(100));
        let now = Instant::now();
        let after = |ms| now + Duration::from_millis(ms);
        assert_eq!(pace.reserve(50, 100, now), now);
        assert_eq!(pace.reserve(200, 100, now), after(500));
        assert_eq!(pace.reserve(1, 100, after(1000)), after(2500));
        assert_eq!(
            pace.reserve(1, 100, after(9000)),
            after(9000),
            "unused time is not saved"
        );
    }
}
