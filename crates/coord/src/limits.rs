//! Limits of the coordinator. They are those of etcd, so that contents that fit one backend fit the other.

/// Longest key. A table name, a family of prefixes and a 64-bit id take a quarter of it.
pub const KEY_BYTES_MAX: usize = 1024;

/// Most conditions, and most writes, in one transaction: etcd's default of `--max-txn-ops`, 128, less the condition and
/// the write that the backend for etcd adds.
pub const TXN_OPS_MAX: usize = 127;

/// Most bytes of keys and values in one transaction: below etcd's 1.5 MiB a request, which includes framing.
pub const TXN_BYTES_MAX: usize = 1 << 20;

/// Most bytes of keys and values altogether: a million tablets at 256 bytes. A backend may hold all of it in memory.
pub const STATE_BYTES_MAX: usize = 256 << 20;

/// Most sessions at one time: one per server and election, thousands of servers.
pub const SESSIONS_MAX: usize = 10_000;

/// Most watches at one time on one backend object.
pub const WATCHES_MAX: usize = 10_000;
