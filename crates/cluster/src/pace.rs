//! Pauses between two checks of other servers.
//!
//! A check comes at a steady interval, and soon after a connection to a server was lost: its process may be gone, and rows wait. Not in the
//! same moment, since a process that ends closes its connections and its port one after the other. A port that is not closed yet answers
//! nothing, so the next checks come soon, too. The pauses double until they are as long as usual. Until then further losses change nothing: a
//! server that drops every connection causes up to four times as many checks.

use std::pin::pin;
use std::time::Duration;
use stele_env::Env;
use stele_peer::LossWatch;

/// Pause before the first check after a loss: longer than a process takes to close its port.
const SOON: Duration = Duration::from_millis(20);

/// The pauses of a caller.
#[derive(Debug)]
pub(crate) struct Pace {
    usual: Duration,
    /// The one that was begun last.
    present: Duration,
}

impl Pace {
    /// With this pause, if no connection is lost.
    pub(crate) fn of(usual: Duration) -> Pace {
        Pace { usual, present: usual }
    }

    /// Completes when the next check is due.
    pub(crate) async fn wait(&mut self, env: &Env, losses: &mut LossWatch) {
        let mut due = pin!(env.sleep(self.begin()));
        loop {
            tokio::select! {
                biased;
                () = &mut due => return,
                () = losses.lost() => {
                    if let Some(shorter) = self.hasten() {
                        due.set(env.sleep(shorter));
                    }
                }
            }
        }
    }

    /// Begins a pause.
    fn begin(&mut self) -> Duration {
        self.present = (2 * self.present).min(self.usual);
        self.present
    }

    /// A connection was lost: the pause that begins instead of the present one, if that is as long as usual.
    fn hasten(&mut self) -> Option<Duration> {
        if self.present < self.usual {
            return None;
        }
        self.present = SOON.min(self.usual);
        Some(self.present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_millis(200);

    #[test]
    fn pauses_double_after_a_loss() {
        let mut pace = Pace::of(USUAL);
        assert_eq!(pace.begin(), USUAL);
        let soon = pace.hasten().expect("the pause was as long as usual");
        let next: Vec<u128> = (0..5).map(|_| pace.begin().as_millis()).collect();
        assert_eq!((soon.as_millis(), next), (20, vec![40, 80, 160, 200, 200]));
    }

    #[test]
    fn connections_that_are_lost_all_the_time_cause_few_checks() {
        let mut pace = Pace::of(USUAL);
        let (mut waited, mut checks) = (Duration::ZERO, 0);
        while waited < Duration::from_secs(60) {
            let pause = pace.begin();
            waited += pace.hasten().unwrap_or(pause);
            checks += 1;
        }
        assert!((301..900).contains(&checks), "{checks} instead of 300");
    }
}
