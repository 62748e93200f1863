//! Warnings of failed handshakes, as many as an operator can read.

use parking_lot::Mutex;
use std::io;
use std::time::Duration;
use stele_env::Env;

/// A failed handshake is a warning this often at most: a stranger can cause any number of them.
const INTERVAL: Duration = Duration::from_secs(10);

/// The warnings of the ports for clients, of the one for other servers, or of connections to these.
pub(crate) struct Warnings {
    env: Env,
    last: Mutex<Option<Duration>>,
}

impl Warnings {
    pub(crate) fn new(env: Env) -> Self {
        Warnings {
            env,
            last: Mutex::new(None),
        }
    }

    /// Logs that a caller's handshake failed. It is a warning, unless the caller is gone.
    pub(crate) fn tell_of_caller(&self, event: &str, error: &io::Error) {
        match is_gone(error) {
            true => tracing::debug!(%error, "{event}"),
            false => self.tell(event, error),
        }
    }

    /// Logs that a handshake failed. It is a warning, unless there was one a moment ago.
    pub(crate) fn tell(&self, event: &str, error: &io::Error) {
        match self.is_due(self.env.now()) {
            true => tracing::warn!(%error, "{event}"),
            false => tracing::debug!(%error, "{event}"),
        }
    }

    fn is_due(&self, now: Duration) -> bool {
        let mut last = self.last.lock();
        let is_due = last.is_none_or(|last| now.saturating_sub(last) >= INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

/// Whether a caller ended, gave up, or looked only whether the port is open. It refused nothing: that takes an alert.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;

    #[tokio::test]
    async fn one_warning_is_due_in_ten_seconds() {
        let warnings = Warnings::new(TokioRuntime::current());
        for begin in [Duration::ZERO, INTERVAL] {
            assert!(warnings.is_due(begin));
            assert!(!warnings.is_due(begin) && !warnings.is_due(begin + INTERVAL / 2));
        }
        assert!(is_gone(&io::ErrorKind::UnexpectedEof.into()));
        assert!(!is_gone(&io::ErrorKind::InvalidData.into()));
    }
}
