//! The effects of a long run seen from outside: write times and space.
//!
//! It measures how long single writes took, and how much space the data took meanwhile.

use crate::descheduled::Descheduled;
use crate::engine::{Engine, Wait};
use crate::host::Host;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// How often the space is looked at: files live for seconds.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// Name of the wait that is not one: see [`Host`].
const OF_HOST: &str = "the host";

/// How long writes took.
#[derive(Debug, Default)]
pub struct Stalls {
    /// The longest.
    pub longest: Duration,
    /// Writes that took more than 10, 50 and 250 ms: a noticeable delay, the limit of an acceptable request, a stall.
    pub over: [u64; 3],
    /// The longest without all time that the host may have taken of it, and how many of these took more than 250 ms.
    /// The host cannot have caused these.
    pub longest_own: Duration,
    over_own: u64,
    /// The waits of the longest write, as far as the engine reports them.
    waits: Vec<Wait>,
    /// Writes that took more than 50 ms, by the cause of their longest wait.
    causes: BTreeMap<&'static str, u64>,
    /// Of the thread that writes.
    cores: Option<Descheduled>,
    host: Option<Host>,
}

impl Stalls {
    const LIMITS: [Duration; 3] = [
        Duration::from_millis(10),
        Duration::from_millis(50),
        Duration::from_millis(250),
    ];

    /// Counts a write.
    #[inline]
    pub fn note(&mut self, took: Duration, engine: &dyn Engine) {
        self.note_with(took, |cores, host| {
            // The longest since the last write that took long: none of these can be of another write and longer than one of this.
            let mut waits = engine.take_waits();
            waits.push(("a core", cores.note_long()));
            waits.push((OF_HOST, host.took_of(took)));
            waits.sort_by_key(|(_, took)| Reverse(*took));
            waits
        });
    }

    #[inline]
    fn note_with(&mut self, took: Duration, waits: impl FnOnce(&mut Descheduled, &Host) -> Vec<Wait>) {
        let cores = self.cores.get_or_insert_with(Descheduled::start);
        let host = self.host.get_or_insert_with(Host::start);
        if took > Self::LIMITS[0] {
            let waits = waits(cores, host);
            self.note_long(took, waits);
        } else {
            cores.note_short();
            self.longest_own = self.longest_own.max(took);
        }
        self.longest = self.longest.max(took);
    }

    fn note_long(&mut self, took: Duration, waits: Vec<Wait>) {
        for (count, limit) in self.over.iter_mut().zip(Self::LIMITS) {
            *count += u64::from(took > limit);
        }
        let of_host = waits.iter().find(|(cause, _)| *cause == OF_HOST);
        let own = took.saturating_sub(of_host.map_or(Duration::ZERO, |(_, taken)| *taken));
        self.over_own += u64::from(own > Self::LIMITS[2]);
        self.longest_own = self.longest_own.max(own);
        if took > Self::LIMITS[1] {
            let cause = waits.first().filter(|(_, longest)| 2 * *longest > took);
            *self
                .causes
                .entry(cause.map_or("unknown", |(cause, _)| cause))
                .or_default() += 1;
        }
        if took > self.longest {
            self.waits = waits;
        }
    }

    /// The known reasons for long writes, in words.
    pub fn reasons(&self) -> Option<String> {
        let wait = |(cause, took): &Wait| format!("{cause} {:.1} ms", took.as_secs_f64() * 1e3);
        let waits: Vec<String> = self.waits.iter().map(wait).collect();
        let count = |(cause, count): (&&str, &u64)| format!("{cause} {count}");
        let causes: Vec<String> = self.causes.iter().map(count).collect();
        let of_longest = format!("the longest waited for: {}", waits.join(", "));
        match (waits.is_empty(), causes.is_empty()) {
            (true, true) => None,
            (_, true) => Some(of_longest),
            _ => Some(format!(
                "{of_longest}; those above 50 ms mostly for: {}",
                causes.join(", ")
            )),
        }
    }

    /// As further figures of a run.
    pub fn figures(&self) -> [(&'static str, f64); 5] {
        let [ten, fifty, most] = self.over.map(|count| count as f64);
        [
            ("> 10 ms", ten),
            ("> 50 ms", fifty),
            ("> 250 ms", most),
            ("> 250 ms but for the host, at least", self.over_own as f64),
            (
                "longest ms but for the host, at least",
                self.longest_own.as_secs_f64() * 1e3,
            ),
        ]
    }
}

/// Samples a folder until its result is requested.
pub struct SpaceWatch {
    stop: Sender<()>,
    watching: JoinHandle<u64>,
}

impl SpaceWatch {
    /// Begins to sample.
    pub fn start(folder: &Path) -> Self {
        let folder: PathBuf = folder.to_owned();
        let (stop, stopped) = channel();
        let watching = spawn(move || {
            let mut peak = 0;
            while stopped.recv_timeout(POLL_EVERY) == Err(RecvTimeoutError::Timeout) {
                peak = peak.max(table_bytes(&folder));
            }
            peak.max(table_bytes(&folder))
        });
        SpaceWatch { stop, watching }
    }

    /// Most bytes of sstables that there ever were.
    pub fn peak(self) -> u64 {
        let _ = self.stop.send(());
        self.watching.join().unwrap_or_default()
    }
}

/// Bytes of all sstables in a folder.
pub fn table_bytes(folder: &Path) -> u64 {
    tables(folder).into_iter().map(|(_, bytes)| bytes).sum()
}

/// All sstables in a folder, and files of values, with their bytes; both engines call sstables `.sst`. Logs come and
/// go, as do files: a file that is gone when its size is read does not count.
pub fn tables(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let is_table = |path: &Path| {
                path.extension()
                    .is_some_and(|e| e == "sst" || e == "val" || e == "blob")
            };
            match entry.metadata() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if is_table(&path) => found.push((path, kind.len())),
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_counted_by_length() {
        let mut stalls = Stalls::default();
        for millis in [1, 10, 11, 60, 251, 250] {
            let waits = match millis > 60 {
                true => vec![
                    ("log", Duration::from_millis(millis - 1)),
                    ("gate", Duration::from_millis(1)),
                ],
                false => vec![("log", Duration::from_millis(millis / 2))],
            };
            stalls.note_with(Duration::from_millis(millis), |_, _| waits);
        }
        assert_eq!((stalls.over, stalls.longest), ([4, 3, 1], Duration::from_millis(251)));
        let reasons =
            "the longest waited for: log 250.0 ms, gate 1.0 ms; those above 50 ms mostly for: log 2, unknown 1";
        assert_eq!(stalls.reasons().unwrap(), reasons);
    }

    #[test]
    fn what_the_host_took_is_not_the_engines() {
        let millis = Duration::from_millis;
        let mut stalls = Stalls::default();
        for (took, taken) in [(300, 280), (290, 30), (251, 0), (5, 0)] {
            stalls.note_with(millis(took), |_, _| vec![(OF_HOST, millis(taken)), ("log", millis(3))]);
        }
        assert_eq!((stalls.over, stalls.over_own), ([3, 3, 3], 2));
        assert_eq!((stalls.longest, stalls.longest_own), (millis(300), millis(260)));
    }

    #[test]
    fn the_peak_is_remembered() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("sst/a.sst");
        std::fs::create_dir(folder.path().join("sst")).unwrap();
        let watch = SpaceWatch::start(folder.path());
        std::fs::write(&path, [0; 300]).unwrap();
        std::fs::write(folder.path().join("log"), [0; 1000]).unwrap();
        std::thread::sleep(3 * POLL_EVERY);
        std::fs::remove_file(&path).unwrap();
        assert_eq!((watch.peak(), table_bytes(folder.path())), (300, 0));
    }
}
