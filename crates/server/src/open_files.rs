//! How many files this process may have open: as many as the system lets it.
//!
//! Every sstable and every connection is one. Systems hand out a limit of 1,024, for the sake of programs that cannot count
//! further, beside a far higher one that a process may take for the asking. Past the limit no log segment can be made.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Fewer than these are worth a warning: files of a hundred gigabytes, and as many connections.
const MANY: u64 = 4_096;

/// Raises the limit as far as it goes, and says how far that is.
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
            "few files may be open at once: raise the limit (`ulimit -Hn`, LimitNOFILE)"
        );
    }
    limit
}
