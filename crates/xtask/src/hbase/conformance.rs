//! Runs HBase's own test classes against a running server.
//!
//! `tests/clients/hbase-conformance` fetches HBase's published test jars and stands in for their mini-cluster: a test
//! class takes the running server for the cluster that it has started. `classes.txt` lists the classes. A test has one of
//! these results:
//!
//! * *passed*.
//! * It *needs the mini-cluster*: it depends on the servers' process, their files, or their configuration. The program sees
//!   most of these; `internals.txt` lists the others, which fail instead.
//! * *Known difference*: it fails, and `differences.txt` has the reason.
//! * *failed*, at two attempts.
//!
//! Each class has a JVM of its own, as in HBase's own build, and drops all tables of its server first.

use super::reasons::Reasons;
use crate::shell::{Run, root, target_dir};
use crate::tools::hbase_conformance;
use anyhow::{Context, Result, ensure};
use regex::Regex;
use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Servers that are started, each for one class at a time.
pub const SERVERS: usize = 3;

/// HBase gives a class 13 minutes; the longest takes half of this on a busy machine.
const CLASS_SECONDS_MAX: u32 = 300;

const MAIN: &str = "stele.clients.conformance.Main";
const PACKAGE: &str = "org.apache.hadoop.hbase";

/// The folders of the JDK that the tests, Hadoop and the stand-in reach into.
const OPENED: [&str; 8] = [
    "java.lang",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "sun.nio.ch",
];

/// How one test ended, as the program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Passed,
    Failed,
    NeedsMiniCluster,
}

/// A line of the program.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    ended: Ended,
    /// `Class.method[parameters]`
    test: String,
    message: String,
}

/// The lists of failures with a reason.
struct Known {
    internals: Reasons,
    differences: Reasons,
}

/// The results of any number of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    known: u64,
    failed: u64,
    needs: u64,
}

/// The surroundings of a class, without its server.
struct Setup {
    jars: PathBuf,
    /// Of logs, and of the files that tests write.
    dir: PathBuf,
}

/// Runs all listed classes whose names match, on servers with the given addresses and ZooKeepers; whether each failure has a
/// reason.
pub fn run(servers: &[(&str, &str)], only: &Regex) -> Result<bool> {
    ensure!(!servers.is_empty(), "--conformance needs --quorum of each server");
    let classes = classes(&fs::read_to_string(project().join("classes.txt"))?);
    let chosen: Vec<&String> = classes.iter().filter(|class| only.is_match(class)).collect();
    ensure!(!chosen.is_empty(), "no listed class is called {only}");
    let setup = Setup {
        jars: hbase_conformance()?,
        dir: target_dir().join("hbase-conformance"),
    };
    fs::create_dir_all(&setup.dir).with_context(|| format!("making {}", setup.dir.display()))?;
    let known = Mutex::new(Known::read()?);
    let (left, all) = (Mutex::new(chosen.into_iter()), Mutex::new(Counts::default()));
    let work = |server: (&str, &str)| -> Result<()> {
        while let Some(class) = next(&left) {
            let started = Instant::now();
            let mut outcomes = setup.run(class, server)?;
            if lock(&known).any_unknown(&outcomes) {
                second_attempt(&mut outcomes, &setup.run(class, server)?);
            }
            let counts = lock(&known).judge(&outcomes);
            println!("{class}: {counts} ({} s)", started.elapsed().as_secs());
            lock(&all).add(counts);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = servers.iter().map(|server| scope.spawn(|| work(*server))).collect();
        let ended = workers
            .into_iter()
            .map(|worker| worker.join().expect("it does not panic"));
        ended.collect::<Result<()>>()
    })?;
    let mut all = *lock(&all);
    if only.as_str().is_empty() {
        all.failed += lock(&known).report_unused();
    }
    println!("logs: {}", setup.dir.display());
    println!("{all}");
    Ok(all.failed == 0)
}

/// Takes over the results of tests that fail, and pass at the second attempt. Some depend on the timing of threads.
fn second_attempt(outcomes: &mut [Outcome], again: &[Outcome]) {
    let passes = |test: &str| {
        again
            .iter()
            .any(|other| other.test == test && other.ended == Ended::Passed)
    };
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.ended == Ended::Failed) {
        if passes(&outcome.test) {
            println!("passed at the second attempt: {} {}", outcome.test, outcome.message);
            outcome.ended = Ended::Passed;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}

fn next<'c>(left: &Mutex<impl Iterator<Item = &'c String>>) -> Option<&'c String> {
    lock(left).next()
}

impl Setup {
    fn run(&self, class: &str, (address, quorum): (&str, &str)) -> Result<Vec<Outcome>> {
        let path = self.dir.join(format!("{class}.log"));
        let log = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
        let opened = OPENED
            .iter()
            .flat_map(|package| ["--add-opens".to_owned(), format!("java.base/{package}=ALL-UNNAMED")]);
        let mut outcomes = Vec::new();
        let mut bad = Vec::new();
        let succeeded = Run::new("java")
            .errors_to(log)
            .dir(&self.dir)
            // A class runs for seconds: the second compiler costs more than it gives.
            .args(["-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(opened)
            .args(["-cp", &format!("{}/*", self.jars.display()), MAIN])
            .args([address, quorum, &CLASS_SECONDS_MAX.to_string()])
            .args([format!("{PACKAGE}.{class}")])
            .lines(|line| match Outcome::parse(line) {
                Some(outcome) => outcomes.push(outcome),
                None => bad.push(line.to_owned()),
            })?;
        if !succeeded || !bad.is_empty() || outcomes.is_empty() {
            let said = bad.join(" ");
            outcomes.push(Outcome {
                ended: Ended::Failed,
                test: format!("{class}.(program)"),
                message: format!("the program failed; see {} {said}", path.display()),
            });
        }
        Ok(outcomes)
    }
}

impl Outcome {
    fn parse(line: &str) -> Option<Outcome> {
        let mut parts = line.splitn(3, '\t');
        let ended = match parts.next()? {
            "passed" => Ended::Passed,
            "failed" => Ended::Failed,
            "needs" => Ended::NeedsMiniCluster,
            _ => return None,
        };
        Some(Outcome {
            ended,
            test: parts.next()?.to_owned(),
            message: parts.next()?.to_owned(),
        })
    }
}

impl Known {
    fn read() -> Result<Known> {
        Ok(Known {
            internals: Reasons::read(&project().join("internals.txt"))?,
            differences: Reasons::read(&project().join("differences.txt"))?,
        })
    }

    /// Whether a failure has no reason.
    fn any_unknown(&mut self, outcomes: &[Outcome]) -> bool {
        let failed = outcomes.iter().filter(|outcome| outcome.ended == Ended::Failed);
        let unknown = |test: &str| !self.internals.explain(test) && !self.differences.explain(test);
        let mut failed = failed.map(|outcome| outcome.test.as_str());
        failed.any(unknown)
    }

    /// Counts the results of a class, and shows the failures without a reason.
    fn judge(&mut self, outcomes: &[Outcome]) -> Counts {
        let mut counts = Counts::default();
        for outcome in outcomes {
            match outcome.ended {
                Ended::Passed => counts.passed += 1,
                Ended::NeedsMiniCluster => counts.needs += 1,
                Ended::Failed if self.internals.explain(&outcome.test) => counts.needs += 1,
                Ended::Failed if self.differences.explain(&outcome.test) => counts.known += 1,
                Ended::Failed => {
                    counts.failed += 1;
                    println!("failed: {} {}", outcome.test, outcome.message);
                }
            }
        }
        counts
    }

    /// Shows the entries that explain nothing any more, and counts them.
    fn report_unused(&self) -> u64 {
        let unused = self.internals.unused().chain(self.differences.unused());
        unused
            .map(|entry| println!("explains no failure any more: {entry}"))
            .count() as u64
    }
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.known += other.known;
        self.failed += other.failed;
        self.needs += other.needs;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "{} passed, {} failed, {} known differences, {} need the mini-cluster",
            self.passed, self.failed, self.known, self.needs
        )
    }
}

/// The classes of the list, below [`PACKAGE`].
fn classes(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let named = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    named.map(str::to_owned).collect()
}

fn project() -> PathBuf {
    root().join("tests/clients/hbase-conformance")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(line: &str) -> Outcome {
        Outcome::parse(line).expect("a result")
    }

    #[test]
    fn results_are_told_apart() {
        let mut known = Known {
            internals: Reasons::parse("A\\.inner  It reads a file of the server.").expect("parses"),
            differences: Reasons::parse("A\\.(other|gone)  It is so.\nB\\..*  It is so.").expect("parses"),
        };
        let run = [
            "passed\tA.x[0]\t",
            "failed\tA.inner\tx",
            "failed\tA.other\tx",
            "failed\tA.y\tx",
            "needs\tA.z\tx",
        ];
        let counts = known.judge(&run.map(outcome));
        let expected = Counts {
            passed: 1,
            known: 1,
            failed: 1,
            needs: 2,
        };
        assert_eq!(counts, expected);
        assert_eq!(known.report_unused(), 1);
    }

    #[test]
    fn a_test_has_two_attempts() {
        let mut first = ["failed\tA.x\tx", "failed\tA.y\tx", "needs\tA.z\tx"].map(outcome);
        let again = ["passed\tA.x\t", "failed\tA.y\tx", "passed\tA.z\t"].map(outcome);
        second_attempt(&mut first, &again);
        let ended = first.map(|outcome| outcome.ended);
        assert_eq!(ended, [Ended::Passed, Ended::Failed, Ended::NeedsMiniCluster]);
    }

    #[test]
    fn other_lines_are_no_results() {
        for line in ["", "passed", "passed\tA.x", "odd\tA.x\t"] {
            assert_eq!(Outcome::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn the_list_has_comments_and_gaps() {
        assert_eq!(classes("# a\n\nclient.A\n client.B \n"), ["client.A", "client.B"]);
    }
}
