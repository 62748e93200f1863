//! Warnings of failed handshakes, as many as an operator can read.

use parking_lot::Mutex;
use std::io;
use std::time::Duration;
use stele_env::Env;

/// A failed handshake is a warning this often at most: a stranger can cause any number of them.
const INTERVAL: Duration = Duration::from_secs(10);

/// The warnings of one port, or of one kind of connections.
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

    /// Logs that a handshake failed. It is a warning, unless the other side is gone, or there was one a moment ago.
    pub(crate) fn tell(&self, event: &str, error: &io::Error) {
        match !is_gone(error) && self.is_due() {
            true => tracing::warn!(%error, "{event}"),
            false => tracing::debug!(%error, "{event}"),
        }
    }

    fn is_due(&self) -> bool {
        let now = self.env.now();
        let mut last = self.last.lock();
        let is_due = last.is_none_or(|last| now.saturating_sub(last) >= INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

/// Whether the other side ended, gave up, or looked only whether the port is open. It refused nothing: that takes an alert.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;

    #[tokio::test(start_paused = true)]
    async fn one_warning_is_due_in_ten_seconds() {
        let warnings = Warnings::new(TokioRuntime::current());
        assert!(warnings.is_due() && !warnings.is_due());
        assert!(is_gone(&io::ErrorKind::UnexpectedEof.into()));
        assert!(!is_gone(&io::ErrorKind::InvalidData.into()));
    }
}
