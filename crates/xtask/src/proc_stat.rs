//! Reads the state, parent, CPU time and start time of a process from Linux.
//!
//! They come from `/proc/<pid>/stat` (proc(5)). The start time makes a process id trustworthy: ids are given out again,
//! but not with the same start time.

use anyhow::{Context, Result};
use std::fs;

/// Clock ticks of `/proc`; Linux fixes USER_HZ at 100 on every architecture we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// One reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// `R`, `S`, …; `Z` when it has ended and nobody has asked for its status yet.
    pub state: char,
    /// The process that started it, or that has it since that one ended.
    pub parent: u32,
    /// User and system time of all its threads.
    cpu_ticks: u64,
    /// The same of those children that have ended and were waited for.
    ended_children_ticks: u64,
    /// Ticks since boot at which it began.
    pub started_ticks: u64,
}

impl ProcStat {
    /// Reads that of a process; an error when there is none by this id. `self` is an id, too.
    pub fn read(pid: &str) -> Result<ProcStat> {
        let path = format!("/proc/{pid}/stat");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        ProcStat::parse(&text).with_context(|| format!("{path} reads {text:?}"))
    }

    /// The second field is the name in parentheses, which may hold spaces and parentheses; the rest is plain.
    fn parse(text: &str) -> Option<ProcStat> {
        let (_, after_name) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        // The state is field 3 of the manual page.
        let field = |number: usize| fields.get(number - 3).copied();
        let ticks = |number: usize| field(number)?.parse::<u64>().ok();
        Some(ProcStat {
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            cpu_ticks: ticks(14)? + ticks(15)?,
            ended_children_ticks: ticks(16)? + ticks(17)?,
            started_ticks: ticks(22)?,
        })
    }

    /// CPU seconds so far, user and system.
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_ticks as f64 / TICKS_PER_SECOND
    }

    /// CPU seconds of children that have ended.
    pub fn ended_children_cpu_seconds(&self) -> f64 {
        self.ended_children_ticks as f64 / TICKS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_the_last_parenthesis() {
        let text = "42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 150 50 7 3 20 0 9 0 987654 1 2";
        let stat = ProcStat::parse(text).expect("parses");
        assert_eq!((stat.state, stat.parent), ('S', 1));
        assert_eq!(stat.started_ticks, 987_654);
        assert!((stat.cpu_seconds() - 2.0).abs() < 1e-9);
        assert!((stat.ended_children_cpu_seconds() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        assert_eq!(ProcStat::parse("42 (a) S 1 2 3"), None);
        assert_eq!(ProcStat::parse("42 a S"), None);
        assert_eq!(ProcStat::parse(""), None);
    }

    #[test]
    fn this_process_has_one() {
        let own = ProcStat::read(&std::process::id().to_string()).expect("reads");
        let by_name = ProcStat::read("self").expect("reads");
        assert_eq!(own.started_ticks, by_name.started_ticks);
        assert!(ProcStat::read("0").is_err());
    }
}
