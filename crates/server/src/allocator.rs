//! How soon memory that was freed goes back to the system.
//!
//! The allocator keeps what is freed for a while before it gives it back, in the hope that it is wanted again. It does so for
//! a second unless told otherwise, and what a loaded server frees within a second, large values above all, can be more than
//! a small budget. Measured with a budget of 64 MiB, values of 3 MB and 16 callers: 241 MiB resident with a second, 147 with
//! no delay at all, 184 with a tenth of one. So the delay follows from the budget. On 64 MiB it costs nothing that could be
//! told from noise in a load of rows of 1 KB; where the delay is a second nothing changes.
//!
//! A delay is only the earliest time, though: what is due is given back when some thread next gives up a page of small
//! things, and freeing something large on another thread than it was allocated on, as happens to requests, never
//! is the occasion. With a load of nothing but large values that may be seconds later: eight clients with ten values of
//! 10 MB a request took 454 MiB with a budget of 256, 337 with what follows. So what is large is not left to it, but comes from
//! the system and goes back there when it is freed. Faulting its pages in again costs about a fifth of what copying a
//! value through the server costs.
//!
//! The same holds for blocks of the cache, which are small things: when caches give way to something large, what they had may stay
//! for as long as nobody gives up a page. Who waits for it asks the allocator ([`give_back`]).
//!
//! The allocator reads its settings from the environment when a process begins, before anything of ours runs, and offers no
//! other way that is safe. So a server that needs others than the defaults starts itself once more, as the same process.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The allocator's setting, in milliseconds. Whoever sets it has decided.
const DELAY: &str = "MIMALLOC_PURGE_DELAY";

/// The largest thing that is kept when it is freed. Whoever sets it has decided.
const KEPT: &str = "MIMALLOC_ARENA_MAX_OBJECT_SIZE";

/// The allocator's own delay.
const DEFAULT_MILLIS: u64 = 1000;

/// The least, below which giving back costs more than it brings.
const MILLIS_MIN: u64 = 50;

/// What a server frees in a second, at most: large values at the rate of two cores. Within the delay no more than the whole
/// budget is to be freed.
const FREED_BYTES_PER_SECOND: u64 = 1280 << 20;

/// What is kept is at most this large: above the buffers of files, a megabyte each, which come and go all the time. (Memtables do
/// without the allocator.)
const KEPT_BYTES: u64 = 2 << 20;

/// Things of the system's own that a budget may consist of: far fewer than the mappings that a process may have by default.
const MAPPINGS: u64 = 4096;

#[allow(
    unsafe_code,
    reason = "the allocator's own function, which its crate does not offer by a safe name"
)]
mod sys {
    unsafe extern "C" {
        /// Collects what was freed, and with `force` gives it back whether or not it is due. Any thread may call it at any time.
        pub safe fn mi_collect(force: bool);
    }
}

/// Gives back what was freed, whether or not it is due. Takes some tens of milliseconds for a hundred megabytes.
pub fn give_back() {
    sys::mi_collect(true);
}

/// Starts this process anew with what suits a budget, unless it suits already. Where that fails it goes on: all that is lost
/// is some memory.
pub fn suit(memory: u64) {
    let settings = [
        (DELAY, delay_millis(memory, std::env::var_os(DELAY))),
        (KEPT, kept_bytes(memory, std::env::var_os(KEPT))),
    ];
    let settings: Vec<_> = settings
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?.to_string())))
        .collect();
    if settings.is_empty() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // Returns only when it fails.
    let _ = again.args(arguments).envs(settings).exec();
}

/// The delay to set; `None` when there is nothing to do.
fn delay_millis(memory: u64, set: Option<OsString>) -> Option<u64> {
    let millis = memory.saturating_mul(1000) / FREED_BYTES_PER_SECOND;
    (set.is_none() && millis < DEFAULT_MILLIS).then_some(millis.max(MILLIS_MIN))
}

/// The largest thing to keep; `None` when there is nothing to do.
fn kept_bytes(memory: u64, set: Option<OsString>) -> Option<u64> {
    set.is_none().then_some((memory / MAPPINGS).max(KEPT_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_follows_from_the_budget_unless_somebody_has_set_it() {
        let of = |mib: u64| delay_millis(mib << 20, None);
        assert_eq!(of(0), Some(MILLIS_MIN));
        assert_eq!(of(64), Some(50));
        assert_eq!(of(128), Some(100));
        assert_eq!(of(512), Some(400));
        assert_eq!(of(1280), None);
        assert_eq!(delay_millis(u64::MAX, None), None);
        assert_eq!(delay_millis(64 << 20, Some("7".into())), None);
    }

    #[test]
    fn what_is_large_is_never_kept_unless_somebody_has_said_so() {
        assert_eq!(kept_bytes(64 << 20, None), Some(KEPT_BYTES));
        assert_eq!(kept_bytes(8 << 30, None), Some(KEPT_BYTES));
        assert_eq!(kept_bytes(1 << 40, None), Some(256 << 20));
        assert_eq!(kept_bytes(64 << 20, Some("7".into())), None);
    }
}
