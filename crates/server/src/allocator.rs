//! How soon memory that was freed goes back to the system.
//!
//! The allocator keeps what is freed for a while before it gives it back, in the hope that it is wanted again. It does so for
//! a second unless told otherwise, and what a loaded server frees within a second, large values above all, can be more than
//! a small budget. Measured with a budget of 64 MiB, values of 3 MB and 16 callers: 241 MiB resident with a second, 147 with
//! no delay at all, 184 with a tenth of one. So the delay follows from the budget. On 64 MiB it costs nothing that could be
//! told from noise in a load of rows of 1 KB; where the delay is a second nothing changes.
//!
//! The allocator reads its settings from the environment when a process begins, before anything of ours runs, and offers no
//! other way that is safe. So a server that needs another delay than the default starts itself once more, as the same process.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The allocator's setting, in milliseconds. Whoever sets it has decided.
const DELAY: &str = "MIMALLOC_PURGE_DELAY";

/// The allocator's own.
const DEFAULT_MILLIS: u64 = 1000;

/// The least, below which giving back costs more than it brings.
const MILLIS_MIN: u64 = 50;

/// What a server frees in a second, at most: large values at the rate of two cores. Within the delay no more than the whole
/// budget is to be freed.
const FREED_BYTES_PER_SECOND: u64 = 1280 << 20;

/// Starts this process anew with what suits a budget, unless it suits already. Where that fails it goes on: all that is lost
/// is some memory.
pub fn suit(memory: u64) {
    let Some(millis) = delay_millis(memory, std::env::var_os(DELAY)) else {
        return;
    };
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // Returns only when it fails.
    let _ = again.args(arguments).env(DELAY, millis.to_string()).exec();
}

/// The delay to set; `None` when there is nothing to do.
fn delay_millis(memory: u64, set: Option<OsString>) -> Option<u64> {
    let millis = memory.saturating_mul(1000) / FREED_BYTES_PER_SECOND;
    (set.is_none() && millis < DEFAULT_MILLIS).then_some(millis.max(MILLIS_MIN))
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
}
