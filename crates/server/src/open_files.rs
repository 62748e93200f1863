//! Raises the limit on open files to the most that the system allows.
//!
//! Every sstable and every connection is an open file. Systems set a soft limit of 1,024 for old programs that use
//! `select`, and a far higher hard limit that a process may set for itself. Past the limit no log segment can be
//! created.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A lower limit is worth a warning: this is enough for files of a hundred gigabytes and as many connections.
const MANY: u64 = 4_096;

/// Raises the limit as far as possible and returns it.
pub fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit < MANY {
        tracing::warn!(
            limit,
            "the limit on open files is low: raise the limit (`ulimit -Hn`, LimitNOFILE)"
        );
    }
    limit
}
