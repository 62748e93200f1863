//! What a long run looks like from outside: how long single writes took, and how much space the data took meanwhile.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// How often the space is looked at: files live for seconds.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long writes took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    /// The longest.
    pub longest: Duration,
    /// Writes that took more than 10, 50 and 250 ms: what somebody notices, what a request may take, what is a stall.
    pub over: [u64; 3],
}

impl Stalls {
    const LIMITS: [Duration; 3] = [
        Duration::from_millis(10),
        Duration::from_millis(50),
        Duration::from_millis(250),
    ];

    /// Counts a write.
    #[inline]
    pub fn note(&mut self, took: Duration) {
        self.longest = self.longest.max(took);
        if took > Self::LIMITS[0] {
            for (count, limit) in self.over.iter_mut().zip(Self::LIMITS) {
                *count += u64::from(took > limit);
            }
        }
    }

    /// As further figures of a run.
    pub fn figures(&self) -> [(&'static str, f64); 3] {
        let [ten, fifty, most] = self.over.map(|count| count as f64);
        [("> 10 ms", ten), ("> 50 ms", fifty), ("> 250 ms", most)]
    }
}

/// Looks at a folder until it is asked what it saw.
pub struct SpaceWatch {
    stop: Sender<()>,
    watching: JoinHandle<u64>,
}

impl SpaceWatch {
    /// Begins to look.
    pub fn start(folder: &Path) -> Self {
        let folder: PathBuf = folder.to_owned();
        let (stop, stopped) = channel();
        let watching = spawn(move || {
            let mut peak = 0;
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
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

/// All sstables in a folder, and files of values, with their bytes; both engines call sstables `.sst`. Logs come and go, as do
/// files: what is gone by the time it is looked at does not count.
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
            stalls.note(Duration::from_millis(millis));
        }
        assert_eq!((stalls.over, stalls.longest), ([4, 3, 1], Duration::from_millis(251)));
    }

    #[test]
    fn the_peak_is_remembered() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("sst/a.sst");
        std::fs::create_dir(folder.path().join("sst")).unwrap();
        let watch = SpaceWatch::start(folder.path());
        std::fs::write(&path, [0; 300]).unwrap();
        std::fs::write(folder.path().join("log"), [0; 1000]).unwrap();
        std::thread::sleep(3 * LOOK_EVERY);
        std::fs::remove_file(&path).unwrap();
        assert_eq!((watch.peak(), table_bytes(folder.path())), (300, 0));
    }
}
