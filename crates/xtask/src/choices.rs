//! Choices of a run that its seed repeats, and moments of the clock.

use anyhow::Result;
use std::time::{SystemTime, UNIX_EPOCH};

/// Choices that a seed repeats.
pub struct Choices(pub u64);

impl Choices {
    /// A number below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        // A linear congruential step; quality does not matter, repeatability does.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// The seed of a run: the one that was given, or the seconds since 1970.
pub fn seed(given: Option<u64>) -> Result<u64> {
    match given {
        Some(seed) => Ok(seed),
        None => Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs()),
    }
}

/// Microseconds since 1970.
pub fn micros() -> Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_micros())?)
}
