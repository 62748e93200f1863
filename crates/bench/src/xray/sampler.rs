//! Samples once a second, on a thread of its own.
//!
//! It is a thread and not a task, because it must not wait for the generator's tasks: a late sample belongs to the
//! wrong second.
//!
//! Memory is bounded: when a series has [`TICKS_MAX`] moments, every other one is dropped and the pace halves. Counters
//! grow from the beginning, so activity between two samples is never lost, only seen at a lower resolution.

use super::{GcPause, HostSample, ProcessSample, ProcessTime, Watched, Xray, disk, gclog, proc};
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two samples, at first.
const PERIOD: Duration = Duration::from_secs(1);

/// Most moments in memory: a day of seconds.
const TICKS_MAX: usize = 86_400;

/// A thread that samples processes and the machine until it is stopped.
pub struct Sampler {
    stop: mpsc::Sender<()>,
    /// Absent if it could not be started. Then nothing is sampled, and the bench continues without.
    thread: Option<JoinHandle<Xray>>,
}

impl Sampler {
    /// Begins to sample. All times count from this moment.
    pub fn start(watched: Vec<Watched>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let mut state = Sampling::new(watched, TICKS_MAX);
        let thread = std::thread::Builder::new().name("xray".into()).spawn(move || {
            state.look(&mut System);
            // Ends on request, and when the sender of the request is gone.
            while stopped.recv_timeout(state.until_next()) == Err(mpsc::RecvTimeoutError::Timeout) {
                state.look(&mut System);
            }
            state.look(&mut System);
            state.finish()
        });
        Self {
            stop,
            thread: thread.ok(),
        }
    }

    /// Takes a last sample, reads the GC logs, and returns all samples. Blocks during this work.
    pub fn stop(self) -> Xray {
        // A thread that has ended already has its result waiting.
        let _ = self.stop.send(());
        self.thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

/// Source of samples; another one in tests.
trait Source {
    fn process(&mut self, watched: &Watched, at: f64) -> Option<ProcessSample>;
    fn host(&mut self, at: f64) -> HostSample;
}

/// The samples so far.
struct Sampling {
    watched: Vec<Watched>,
    started: Instant,
    /// Seconds between boot and `started`, for logs that count from a process' start.
    started_uptime: f64,
    /// Seconds between boot and each process' start, in the order of `watched`. Read at first: processes may be killed.
    process_starts: Vec<Option<f64>>,
    ticks_max: usize,
    period: Duration,
    looks: u32,
    seen: Xray,
}

impl Sampling {
    fn new(watched: Vec<Watched>, ticks_max: usize) -> Self {
        let process_starts = watched.iter().map(|process| start_uptime(process.pid)).collect();
        Self {
            watched,
            started: Instant::now(),
            started_uptime: uptime_seconds().unwrap_or_default(),
            process_starts,
            ticks_max,
            period: PERIOD,
            looks: 0,
            seen: Xray::default(),
        }
    }

    /// Time until the next sample is due, so that a slow one does not delay those behind it.
    fn until_next(&self) -> Duration {
        let due = self.period.checked_mul(self.looks).unwrap_or(Duration::MAX);
        due.saturating_sub(self.started.elapsed())
    }

    fn look(&mut self, source: &mut impl Source) {
        let at = self.started.elapsed().as_secs_f64();
        self.looks += 1;
        self.seen.hosts.push(source.host(at));
        self.seen
            .processes
            .extend(self.watched.iter().filter_map(|process| source.process(process, at)));
        if self.seen.hosts.len() >= self.ticks_max {
            self.thin_out();
        }
    }

    /// Drops every other moment, and halves the rate of samples from now on.
    fn thin_out(&mut self) {
        let kept: Vec<f64> = self.seen.hosts.iter().step_by(2).map(|host| host.at).collect();
        // Moments are ascending, and samples of one moment have the same bits.
        let is_kept = |at: f64| kept.binary_search_by(|moment| moment.total_cmp(&at)).is_ok();
        self.seen.hosts.retain(|host| is_kept(host.at));
        self.seen.processes.retain(|process| is_kept(process.at));
        self.period *= 2;
        self.looks /= 2;
    }

    fn finish(mut self) -> Xray {
        for (process, start) in self.watched.iter().zip(&self.process_starts) {
            let (Some(log), Some(start)) = (&process.gc_log, start) else {
                continue;
            };
            let offset = start - self.started_uptime;
            self.seen
                .pauses
                .extend(gc_pauses(&process.name, gclog::pauses(Path::new(log)), offset));
        }
        self.seen.pauses.sort_by(|a, b| a.at.total_cmp(&b.at));
        self.seen
    }
}

/// Pauses by the suite's clock. Those from before it began are not part of it.
fn gc_pauses(process: &str, pauses: Vec<gclog::Pause>, offset: f64) -> impl Iterator<Item = GcPause> {
    let of_suite = move |pause: gclog::Pause| GcPause {
        process: process.to_owned(),
        at: offset + pause.uptime_seconds,
        millis: pause.millis,
        cause: pause.cause,
    };
    pauses.into_iter().map(of_suite).filter(|pause| pause.at >= 0.0)
}

/// The kernel of this machine.
struct System;

impl Source for System {
    fn process(&mut self, watched: &Watched, at: f64) -> Option<ProcessSample> {
        let stat = proc::process_stat(&text(watched.pid, "stat")?)?;
        // Both may be hidden while the other figures are not: another user's process, a kernel without I/O accounting.
        let io = text(watched.pid, "io")
            .and_then(|io| proc::process_io(&io))
            .unwrap_or_default();
        let resident = text(watched.pid, "status").and_then(|status| proc::resident_bytes(&status));
        Some(ProcessSample {
            at,
            process: watched.name.clone(),
            user_seconds: stat.user_ticks as f64 / ticks_per_second(),
            system_seconds: stat.system_ticks as f64 / ticks_per_second(),
            resident_bytes: resident.unwrap_or_default(),
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
            read_bytes: io.read_bytes,
            written_bytes: io.written_bytes,
        })
    }

    fn host(&mut self, at: f64) -> HostSample {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let network = proc::network_bytes(&read("/proc/net/dev"));
        let whole = disk::whole_disks();
        HostSample {
            at,
            cpu_seconds: proc::cpu_seconds(&read("/proc/stat"), ticks_per_second()),
            received_bytes: network
                .iter()
                .map(|(name, (received, _))| (name.clone(), *received))
                .collect(),
            sent_bytes: network.into_iter().map(|(name, (_, sent))| (name, sent)).collect(),
            disks: disk::disks(&read("/proc/diskstats"), |name| whole.iter().any(|disk| disk == name)),
        }
    }
}

/// CPU seconds of a process; see [`process_time`].
pub fn process_cpu(pid: u32) -> Option<f64> {
    process_time(pid).map(|time| time.seconds)
}

/// CPU time (user and kernel) of a process, that of its ended threads included. `None` once it is gone.
///
/// The kernel measures run time in nanoseconds and rounds it to ticks of usually 10 ms here. The finer counters in
/// `/proc/PID/task/*/schedstat` omit threads that have ended. A thread pool that shrinks during a run would give a
/// difference below zero.
pub fn process_time(pid: u32) -> Option<ProcessTime> {
    let stat = proc::process_stat(&text(pid, "stat")?)?;
    Some(ProcessTime {
        pid,
        started_ticks: stat.started_ticks,
        seconds: (stat.user_ticks + stat.system_ticks) as f64 / ticks_per_second(),
    })
}

fn text(pid: u32, file: &str) -> Option<String> {
    // Not `read_to_string`: a process may be named in any bytes.
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Seconds between boot and a process' start.
fn start_uptime(pid: u32) -> Option<f64> {
    let stat = proc::process_stat(&text(pid, "stat")?)?;
    Some(stat.started_ticks as f64 / ticks_per_second())
}

/// Seconds since boot.
fn uptime_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(u64);

    impl Source for Counting {
        fn process(&mut self, watched: &Watched, at: f64) -> Option<ProcessSample> {
            (watched.pid != 0).then(|| ProcessSample {
                at,
                process: watched.name.clone(),
                minor_faults: self.0,
                ..ProcessSample::default()
            })
        }

        fn host(&mut self, at: f64) -> HostSample {
            self.0 += 1;
            HostSample {
                at,
                ..HostSample::default()
            }
        }
    }

    fn watched(name: &str, pid: u32) -> Watched {
        Watched {
            name: name.to_owned(),
            pid,
            gc_log: None,
        }
    }

    #[test]
    fn a_long_series_is_thinned_out_evenly() {
        let mut sampling = Sampling::new(vec![watched("a", 1), watched("gone", 0), watched("b", 2)], 8);
        let mut source = Counting(0);
        for _ in 0..100 {
            sampling.look(&mut source);
        }
        let hosts = sampling.seen.hosts.len();
        assert!((4..8).contains(&hosts), "{hosts}");
        assert_eq!(sampling.seen.processes.len(), 2 * hosts);
        assert!(sampling.period > PERIOD);
        let first: Vec<u64> = sampling
            .seen
            .processes
            .iter()
            .map(|sample| sample.minor_faults)
            .collect();
        assert_eq!(first[..2], [1, 1], "the first moment is kept");
        assert!(first.is_sorted());
        assert_eq!(
            sampling
                .seen
                .processes
                .iter()
                .filter(|sample| sample.process == "b")
                .count(),
            hosts
        );
    }

    #[test]
    fn the_next_look_is_due_by_the_clock() {
        let mut sampling = Sampling::new(Vec::new(), 100);
        sampling.look(&mut Counting(0));
        assert!(sampling.until_next() <= PERIOD && sampling.until_next() > PERIOD / 2);
        sampling.looks = 5;
        assert!(sampling.until_next() > 4 * PERIOD);
    }

    #[test]
    fn pauses_are_moved_to_the_suites_clock() {
        let pause = |uptime_seconds| gclog::Pause {
            uptime_seconds,
            millis: 2.0,
            cause: "Pause Young".into(),
        };
        let found: Vec<GcPause> = gc_pauses("region", vec![pause(5.0), pause(12.0)], -10.0).collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].at, found[0].process.as_str()), (2.0, "region"));
    }

    #[test]
    fn this_process_is_seen() {
        let me = std::process::id();
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("gc.log");
        let mut watched = watched("me", me);
        watched.gc_log = Some(log.to_string_lossy().into_owned());
        let before = process_cpu(me).unwrap();
        let sampler = Sampler::start(vec![watched]);
        // Far in the future, hence after the suite's start; and long ago.
        let lines = "[9999999.0s][info][gc] GC(1) Pause Remark 1.0ms\n[0.000s][info][gc] GC(0) Pause Remark 1.0ms\n";
        std::fs::write(&log, lines).unwrap();
        // However little of a processor this thread gets, its time is counted in the end.
        while process_cpu(me).unwrap() <= before {
            std::hint::spin_loop();
        }
        let xray = sampler.stop();
        // One at the start and one at the end, besides any between.
        assert!(xray.processes.len() >= 2 && xray.hosts.len() == xray.processes.len());
        assert!(
            xray.processes
                .iter()
                .all(|sample| sample.process == "me" && sample.resident_bytes > 0)
        );
        assert!(xray.hosts.iter().all(|host| host.cpu_seconds.contains_key("user")));
        assert_eq!(xray.pauses.len(), 1);
        assert!(xray.pauses[0].at > 1_000.0);
    }

    #[test]
    fn a_process_that_is_gone_has_no_figures() {
        // Above the kernel's largest id.
        assert_eq!(process_cpu(u32::MAX), None);
        let xray = Sampler::start(vec![watched("gone", u32::MAX)]).stop();
        assert!(xray.processes.is_empty() && !xray.hosts.is_empty());
    }
}
