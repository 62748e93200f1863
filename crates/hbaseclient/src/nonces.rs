//! Numbers that make calls safe to repeat.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// A number that is practically unique to this connection and call: the time, this process, and the number of earlier
/// calls.
pub fn unlike_others() -> u64 {
    static EARLIER: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let parts = [
        since.as_nanos() as u64,
        u64::from(std::process::id()),
        EARLIER.fetch_add(1, Ordering::Relaxed),
    ];
    let bytes: Vec<u8> = parts.iter().flat_map(|n| n.to_le_bytes()).collect();
    // Zero means "none" to servers.
    xxhash_rust::xxh3::xxh3_64(&bytes).max(1)
}
