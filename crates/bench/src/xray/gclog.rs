//! Pauses in a JVM's unified log (`-Xlog:gc*,safepoint:file=…`), for every collector.
//!
//! A line has decorations in brackets, one of them the uptime (`[12.345s]`), and a message. Pauses of all collectors
//! read `GC(7) Pause …  3.456ms`; generational ZGC puts a letter before them (`GC(7) Y: Pause …`). Safepoints outside
//! of a collection stop the application as well and are taken from lines `Safepoint "NAME", …, Total: N ns`. Those of
//! collectors are left out, because their pauses are already counted. (Those lack the time to reach the safepoint:
//! usually microseconds.)
//!
//! The uptime is that of the line, hence of the pause's end. It counts from the JVM's own start, a few hundredths of a
//! second after the process'. This is precise enough for a chart with one point per second.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Most bytes of a log that are read: hours of a very verbose one.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// Most pauses of one log.
const PAUSES_MAX: usize = 1_000_000;

/// Most bytes of a line that are parsed. Unified logging writes short ones.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Prefixes of safepoints that belong to a collector's pause.
const COLLECTORS: [&str; 8] = [
    "G1",
    "Gen",
    "Parallel",
    "Serial",
    "Shenandoah",
    "X",
    "Z",
    "CollectForMetadata",
];

/// A pause, by the JVM's own clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Pause {
    /// Seconds between the JVM's start and the pause's.
    pub uptime_seconds: f64,
    /// Its length.
    pub millis: f64,
    /// The cause named in the log, without heap sizes.
    pub cause: String,
}

/// All pauses of a log. A file that cannot be read has none.
pub fn pauses(log: &Path) -> Vec<Pause> {
    match std::fs::File::open(log) {
        Ok(file) => read(file),
        Err(_) => Vec::new(),
    }
}

fn read(log: impl Read) -> Vec<Pause> {
    let mut reader = BufReader::new(log.take(LOG_BYTES_MAX));
    let mut pauses = Vec::new();
    let mut bytes = Vec::new();
    while pauses.len() < PAUSES_MAX {
        bytes.clear();
        match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(_) => pauses.extend(pause(&String::from_utf8_lossy(&bytes))),
        }
    }
    pauses
}

/// The pause that a line reports.
pub fn pause(line: &str) -> Option<Pause> {
    let (decorations, message) = take_apart(line.trim_end());
    let end = decorations.iter().find_map(|text| uptime(text))?;
    let (cause, millis) = collector_pause(message).or_else(|| safepoint(message))?;
    (millis.is_finite() && millis >= 0.0).then(|| Pause {
        uptime_seconds: (end - millis / 1000.0).max(0.0),
        millis,
        cause,
    })
}

/// The decorations of a line, and the rest.
fn take_apart(line: &str) -> (Vec<&str>, &str) {
    let mut decorations = Vec::new();
    let mut rest = line.trim_start();
    while let Some((decoration, after)) = rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        decorations.push(decoration.trim());
        rest = after;
    }
    (decorations, rest.trim())
}

/// Seconds from `12.345s`, `12345ms` or `12345678ns`.
fn uptime(decoration: &str) -> Option<f64> {
    let units = [("ms", 1e-3), ("ns", 1e-9), ("s", 1.0)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(suffix, unit)| Some((decoration.strip_suffix(suffix)?, unit)))?;
    // A number only: `1s` is an uptime, `classes` is not.
    let is_number = number.starts_with(|c: char| c.is_ascii_digit());
    let seconds = number.replace(',', ".").parse::<f64>().ok()? * unit;
    (is_number && seconds.is_finite()).then_some(seconds)
}

/// `GC(3) Pause Young (Normal) (G1 Evacuation Pause) 24M->4M(256M) 3.208ms`.
fn collector_pause(message: &str) -> Option<(String, f64)> {
    let (number, after) = message.strip_prefix("GC(")?.split_once(')')?;
    number.parse::<u64>().ok()?;
    let after = after.trim_start();
    // The generation: one letter and a colon.
    let after = match after.split_once(": ") {
        Some((generation, rest)) if generation.len() == 1 => rest,
        _ => after,
    };
    let (what, millis) = after.strip_prefix("Pause ")?.strip_suffix("ms")?.rsplit_once(' ')?;
    let millis = millis.replace(',', ".").parse().ok()?;
    let words: Vec<&str> = what
        .split_ascii_whitespace()
        .filter(|word| !word.contains("->"))
        .collect();
    Some((format!("Pause {}", words.join(" ")), millis))
}

/// `Safepoint "ICBufferFull", Time since last: 5 ns, Reaching safepoint: 6 ns, At safepoint: 7 ns, Total: 13 ns`.
fn safepoint(message: &str) -> Option<(String, f64)> {
    let (name, rest) = message.strip_prefix("Safepoint \"")?.split_once('"')?;
    if COLLECTORS.iter().any(|collector| name.starts_with(collector)) {
        return None;
    }
    let (_, total) = rest.split_once("Total: ")?;
    let nanos: f64 = total.split_once(" ns")?.0.parse().ok()?;
    Some((format!("Safepoint {name}"), nanos / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<(f64, f64, &str)>) {
        let found = pause(line).map(|p| ((p.uptime_seconds * 1e6).round() / 1e6, p.millis, p.cause));
        assert_eq!(
            found,
            expected.map(|(at, millis, cause)| (at, millis, cause.to_owned())),
            "{line}"
        );
    }

    #[test]
    fn pauses_of_every_collector_are_found() {
        check(
            "[12.345s][info][gc          ] GC(3) Pause Young (Normal) (G1 Evacuation Pause) 24M->4M(256M) 12.300ms",
            Some((12.3327, 12.3, "Pause Young (Normal) (G1 Evacuation Pause)")),
        );
        check(
            "[2026-11-21T03:53:01.123+0000][0.500s][1234][info][gc] GC(0) Pause Remark 100M->98M(200M) 1.5ms",
            Some((0.4985, 1.5, "Pause Remark")),
        );
        check(
            "[3,210s][info][gc] GC(1) Pause Young (Allocation Failure) 33M->5M(125M) 10,000ms",
            Some((3.2, 10.0, "Pause Young (Allocation Failure)")),
        );
        check(
            "[7001ms][info][gc,phases] GC(2) Pause Mark Start 1.000ms",
            Some((7.0, 1.0, "Pause Mark Start")),
        );
        check(
            "[9.000s][info][gc,phases] GC(5) y: Pause Mark End 2.0ms",
            Some((8.998, 2.0, "Pause Mark End")),
        );
        check(
            "[40.000s][info][gc] GC(9) Pause Full (System.gc()) 900M->80M(1024M) 500.0ms",
            Some((39.5, 500.0, "Pause Full (System.gc())")),
        );
    }

    #[test]
    fn safepoints_count_unless_a_collector_asked_for_them() {
        let line = |name: &str| {
            format!(
                "[2.000s][info][safepoint   ] Safepoint \"{name}\", Time since last: 99 ns, Reaching safepoint: 5 ns, Cleanup: 1 \
                 ns, At safepoint: 9 ns, Total: 2000000 ns"
            )
        };
        check(&line("ICBufferFull"), Some((1.998, 2.0, "Safepoint ICBufferFull")));
        // Since JDK 24.
        let newer = line("ThreadDump") + ", Threads: 1 runnable, 10 total";
        check(&newer, Some((1.998, 2.0, "Safepoint ThreadDump")));
        check(&line("G1CollectForAllocation"), None);
        check(&line("ZMarkStart"), None);
    }

    #[test]
    fn other_lines_are_no_pauses() {
        for line in [
            "",
            "[",
            "[12.345s]",
            "[12.345s][info][gc,start    ] GC(3) Pause Young (Normal) (G1 Evacuation Pause)",
            "[12.345s][info][gc,phases] GC(3)   Pre Evacuate Collection Set: 0.1ms",
            "[12.345s][info][gc] GC(4) Concurrent Mark Cycle 15.1ms",
            "[12.345s][info][gc,cpu] GC(3) User=0.01s Sys=0.00s Real=0.00s",
            "[info][gc] GC(3) Pause Remark 1.5ms",
            "[1.0s][info][gc] GC(x) Pause Remark 1.5ms",
            "[1.0s][info][gc] GC(1) Pause Remark NaNms",
            "[1.0s][info][gc] GC(1) Pause Remark -1ms",
            "[infs][info][gc] GC(1) Pause Remark 1ms",
            "[1.0s][info][safepoint] Safepoint \"A\", Total: x ns",
        ] {
            check(line, None);
        }
    }

    #[test]
    fn a_log_is_read_line_by_line_whatever_is_in_it() {
        let mut log = b"[1.0s][info][gc] GC(1) Pause Remark 1.0ms\n\xff\xfe\n".to_vec();
        log.extend(vec![b'x'; 200_000]);
        log.extend(b"\n[2.0s][info][gc] GC(2) Pause Cleanup 1.0ms");
        let found: Vec<String> = read(log.as_slice()).into_iter().map(|pause| pause.cause).collect();
        assert_eq!(found, ["Pause Remark", "Pause Cleanup"]);
        assert!(pauses(Path::new("/nonexistent/gc.log")).is_empty());
    }
}
