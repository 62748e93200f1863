//! Steal time: how long the host kept a virtual machine's core from running.
//!
//! During that time the core had work, and another guest ran on it. Linux counts it as *steal*, for each core, where
//! the hypervisor reports it. A thread that is stopped so waits for nothing that it could name. Only this account tells
//! whether the host caused a long operation of a program.

use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

/// How often the account is read, which takes some 50 microseconds.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// Samples that are retained: of ten seconds.
const LOOKS: usize = 500;
/// Unit of the account, and the largest error of the difference of two readings.
const TICK: Duration = Duration::from_millis(10);

/// Reads the account until it is dropped.
#[derive(Debug)]
pub struct Host {
    samples: Arc<Mutex<VecDeque<Sample>>>,
    stop: Option<Sender<()>>,
    watching: Option<JoinHandle<()>>,
}

/// The host's share of all cores over longer times.
pub struct HostShare(Sample);

impl HostShare {
    /// Begins now.
    pub fn start() -> Self {
        HostShare(Sample::now())
    }

    /// Of all cores' time since the beginning or the last call, percent.
    pub fn percent(&mut self) -> f64 {
        self.percent_until(Sample::now())
    }

    fn percent_until(&mut self, now: Sample) -> f64 {
        let before = std::mem::replace(&mut self.0, now);
        let now = &self.0;
        let sum = |sample: &Sample| sample.taken.iter().sum::<Duration>();
        let cores = (now.at - before.at) * now.taken.len() as u32;
        100.0 * sum(now).saturating_sub(sum(&before)).as_secs_f64() / cores.as_secs_f64().max(1e-9)
    }
}

/// The account at one time.
#[derive(Clone, Debug)]
struct Sample {
    at: Instant,
    /// Since the start of the machine, of each core.
    taken: Vec<Duration>,
}

impl Host {
    /// Begins to look.
    pub fn start() -> Self {
        let samples = Arc::new(Mutex::new(VecDeque::from([Sample::now()])));
        let (stop, stopped) = channel();
        let kept = Arc::clone(&samples);
        let watching = spawn(move || {
            while stopped.recv_timeout(POLL_EVERY) == Err(RecvTimeoutError::Timeout) {
                let sample = Sample::now();
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == LOOKS {
                    kept.pop_front();
                }
                kept.push_back(sample);
            }
        });
        Host {
            samples,
            stop: Some(stop),
            watching: Some(watching),
        }
    }

    /// The time that the host certainly took during an operation of this length that has just ended. It is that of the
    /// core from which it took most, since the operation may have waited for a thread on another core. The operation
    /// need not have waited for that core: at most this time is due to the host, and perhaps none.
    pub fn took_of(&self, operation: Duration) -> Duration {
        let now = Sample::now();
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        now.taken_in(operation, &samples)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(watching) = self.watching.take() {
            let _ = watching.join();
        }
    }
}

impl Sample {
    fn now() -> Self {
        let account = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Sample {
            at: Instant::now(),
            taken: taken(&account),
        }
    }

    /// Time taken during the last `operation`, by the samples before this one. Time taken since the sample before the
    /// operation began may all lie before its beginning, as far as there was time for that.
    fn taken_in(&self, operation: Duration, samples: &VecDeque<Sample>) -> Duration {
        let start = self.at - operation;
        let before = samples.iter().rev().find(|sample| sample.at <= start);
        let Some(before) = before.or(samples.front()) else {
            return Duration::ZERO;
        };
        let uncertain = start.saturating_duration_since(before.at) + TICK;
        let cores = self.taken.iter().zip(&before.taken);
        let certain = cores.map(|(now, then)| now.saturating_sub(*then).saturating_sub(uncertain));
        certain.max().unwrap_or_default().min(operation)
    }
}

/// Of each core, from the text of `/proc/stat`; nothing of a system that has none.
fn taken(account: &str) -> Vec<Duration> {
    // cpuN user nice system idle iowait irq softirq steal
    let of_core = |line: &str| {
        let (core, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
        core.parse::<u32>().ok()?;
        let ticks = rest.split_ascii_whitespace().nth(7)?.parse::<u32>().ok()?;
        Some(TICK * ticks)
    };
    account.lines().filter_map(of_core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: &str = "cpu  9 9 9 9 9 9 9 30 0 0\ncpu0 1 2 3 4 5 6 7 10 0 0\ncpu1 1 2 3 4 5 6 7 20 0 0\nintr 5 6\n";

    #[test]
    fn cores_are_read_and_their_sum_is_not() {
        let millis = Duration::from_millis;
        assert_eq!(taken(ACCOUNT), [millis(100), millis(200)]);
        assert_eq!(taken(""), []);
    }

    #[test]
    fn only_what_was_taken_for_certain_counts() {
        let millis = Duration::from_millis;
        let begin = Instant::now();
        let sample = |at, taken: [u64; 2]| Sample {
            at: begin + millis(at),
            taken: taken.map(millis).to_vec(),
        };
        let samples = VecDeque::from([sample(0, [0, 0]), sample(20, [0, 10]), sample(400, [0, 310])]);
        // An operation from 50 to 420: 30 of the 310 may have been taken before it, and 10 are a matter of rounding.
        assert_eq!(sample(420, [10, 320]).taken_in(millis(370), &samples), millis(270));
        // Before the first look nothing is known, and no more is taken from an operation than it took.
        assert_eq!(sample(420, [10, 320]).taken_in(millis(1000), &samples), millis(310));
        assert_eq!(sample(420, [900, 320]).taken_in(millis(420), &samples), millis(420));
        assert_eq!(sample(420, [10, 310]).taken_in(millis(20), &samples), Duration::ZERO);
    }

    #[test]
    fn its_share_is_one_of_all_cores() {
        let start = Instant::now();
        let sample = |seconds: u64, taken: &[u64]| Sample {
            at: start + Duration::from_secs(seconds),
            taken: taken.iter().map(|taken| Duration::from_secs(*taken)).collect(),
        };
        let mut share = HostShare(sample(0, &[7, 0]));
        assert_eq!(share.percent_until(sample(10, &[12, 5])), 50.0);
        assert_eq!(share.percent_until(sample(20, &[12, 5])), 0.0);
        assert_eq!(share.percent_until(sample(30, &[12, 7])), 10.0);
        // An account that runs backwards took nothing, and where there is none, nothing is known.
        assert_eq!(share.percent_until(sample(40, &[0, 0])), 0.0);
        assert_eq!(HostShare(sample(0, &[])).percent_until(sample(10, &[])), 0.0);
    }

    #[test]
    fn what_the_host_took_is_asked_while_it_is_looked_at() {
        let host = Host::start();
        let long = Duration::from_millis(1);
        assert!(host.took_of(long) <= long);
    }
}
