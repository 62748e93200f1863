//! The resident set of a process, watched while something is done to it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between samples. The system's own high-water mark is read too, so that no peak between two samples is
/// missed.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// Samples until it is asked for its result.
pub struct Watch {
    pid: u32,
    ended: Arc<AtomicBool>,
    looks: JoinHandle<Seen>,
}

/// The result of a watch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Largest resident set.
    pub peak_bytes: u64,
    /// When that was, since the watch began.
    pub at: Duration,
    /// Number of samples.
    pub looks: u64,
}

impl Watch {
    /// Begins to watch a process.
    pub fn new(pid: u32) -> Watch {
        fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let (begun, until) = (Instant::now(), Arc::clone(&ended));
        let looks = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !until.load(Ordering::Relaxed) {
                let bytes = of_status(pid, "VmRSS:").unwrap_or(0);
                if bytes > seen.peak_bytes {
                    (seen.peak_bytes, seen.at) = (bytes, begun.elapsed());
                }
                seen.looks += 1;
                std::thread::sleep(POLL_EVERY);
            }
            seen
        });
        Watch { pid, ended, looks }
    }

    /// Ends it.
    pub fn seen(self) -> Seen {
        self.ended.store(true, Ordering::Relaxed);
        let mut seen = self.looks.join().unwrap();
        seen.peak_bytes = seen.peak_bytes.max(of_status(self.pid, "VmHWM:").unwrap());
        seen
    }
}

/// A line of the system's status of a process.
fn of_status(pid: u32, label: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(label))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}
