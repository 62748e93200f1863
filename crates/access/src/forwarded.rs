//! The caller of a call, as other servers of a cluster learn of it.
//!
//! The server that a client calls finds out who calls, and checks its rights. A call that it forwards names the caller, for the audit
//! log of the server that carries it out. No right is derived from that name.

use crate::audit::{Audit, Event, Outcome};
use crate::caller::{Caller, Source};
use std::future::Future;
use std::sync::Arc;

/// Bytes of the longest name that travels; a longer one is cut.
pub const NAME_BYTES_MAX: usize = 512;

tokio::task_local! {
    /// The caller on whose behalf the task works.
    static CALLER: Arc<Caller>;
}

/// Works on behalf of a caller: calls of other servers name it meanwhile.
pub async fn on_behalf_of<F: Future>(caller: Arc<Caller>, work: F) -> F::Output {
    CALLER.scope(caller, work).await
}

/// A caller that another server has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCaller {
    /// Its name.
    pub name: String,
    /// How it has shown that to the other server.
    pub source: Source,
}

impl NamedCaller {
    /// The caller on whose behalf the task works, if there is one.
    pub fn current() -> Option<NamedCaller> {
        let named = |caller: &Arc<Caller>| NamedCaller {
            name: caller.name()[..caller.name().floor_char_boundary(NAME_BYTES_MAX)].to_owned(),
            source: caller.source(),
        };
        CALLER.try_with(named).ok()
    }
}

/// Writes the calls that other servers forward to the audit log.
pub struct Forwarded {
    audit: Audit,
    audits_rows: bool,
}

impl Forwarded {
    /// Calls on rows are written only if `audits_rows`.
    pub fn new(audit: Audit, audits_rows: bool) -> Self {
        Forwarded { audit, audits_rows }
    }

    /// Whether calls on rows are written.
    pub fn audits_rows(&self) -> bool {
        self.audits_rows
    }

    /// Writes a call with its outcome. `from` is the other server, `error` the message of a call that failed.
    pub fn note(&self, from: &str, caller: &NamedCaller, operation: &'static str, on: String, error: Option<&str>) {
        self.audit.add(Event {
            who: caller.name.clone(),
            by: caller.source.label(),
            from: from.to_owned(),
            operation,
            on,
            outcome: if error.is_some() {
                Outcome::Failed
            } else {
                Outcome::Done
            },
            why: error.unwrap_or_default().to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_caller_is_known_while_work_is_done_for_it() {
        let caller = |name: String| Arc::new(Caller::new(name, Source::Token, Arc::default(), false));
        assert_eq!(NamedCaller::current(), None);
        let named = on_behalf_of(caller("alice".to_owned()), async { NamedCaller::current() }).await;
        let alice = NamedCaller {
            name: "alice".to_owned(),
            source: Source::Token,
        };
        assert_eq!(named, Some(alice));
        let long = on_behalf_of(caller("é".repeat(NAME_BYTES_MAX)), async { NamedCaller::current() }).await;
        assert_eq!(long.unwrap().name, "é".repeat(NAME_BYTES_MAX / 2));
        assert_eq!(NamedCaller::current(), None);
    }
}
