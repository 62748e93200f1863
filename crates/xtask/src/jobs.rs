//! Runs programs of the pipeline, as many at a time as there are processors.
//!
//! A *job* is a program that checks something. Its output goes to a file in `target/test-output` and is shown only if
//! the job failed, so that the output of jobs never mixes. One that hangs is killed after [`LONGEST`], and has failed. The
//! processes below it are killed too, but not those whose parent has ended.

use crate::descendants;
use crate::shell::target_dir;
use crate::tally::Tally;
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The slowest job takes some minutes on two processors.
const LONGEST: Duration = Duration::from_secs(1_200);

/// How the checks of a job are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// By the lines `test result: …` of a test program, which has one at least.
    Cargo,
    /// By the last line `N passed, N failed`, which there must be.
    Summary,
    /// As one check, by the exit status.
    Exit,
}

/// A program to run.
pub struct Job {
    pub name: String,
    pub command: Command,
    pub counts: Counts,
}

/// The result of one job.
#[derive(Debug)]
pub struct Done {
    pub name: String,
    pub tally: Tally,
    pub time: Duration,
}

struct Ended {
    /// `None` if it had to be killed.
    status: Option<ExitStatus>,
    output: String,
    time: Duration,
}

/// Runs the jobs, in their order as far as places are free.
pub fn run(jobs: Vec<Job>) -> Result<Vec<Done>> {
    run_within(LONGEST, jobs)
}

/// The same, of jobs that take no longer than this.
fn run_within(longest: Duration, jobs: Vec<Job>) -> Result<Vec<Done>> {
    let folder = target_dir().join("test-output");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let places = std::thread::available_parallelism().map_or(1, usize::from);
    let left = Mutex::new(VecDeque::from(jobs));
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..places {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(mut job) = next else { break };
                    let ended = run_one(&mut job, &folder, longest);
                    // The lock also keeps the reports of jobs apart.
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push(report(&job, ended));
                }
            });
        }
    });
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn run_one(job: &mut Job, folder: &Path, longest: Duration) -> Result<Ended> {
    let path = folder.join(format!("{}.txt", job.name.replace("::", "-").replace(' ', "-")));
    let output = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    let begun = Instant::now();
    let command = job
        .command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let mut child = command.spawn().with_context(|| format!("starting {}", job.name))?;
    let status = wait(&mut child, longest)?;
    let time = begun.elapsed();
    let output = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(Ended {
        status,
        output: String::from_utf8_lossy(&output).into_owned(),
        time,
    })
}

fn wait(child: &mut Child, longest: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + longest;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            descendants::kill_all(child)?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Prints a line for a job that passed, and the output of one that failed.
fn report(job: &Job, ended: Result<Ended>) -> Done {
    let name = &job.name;
    let done = |tally, time| Done {
        name: name.clone(),
        tally,
        time,
    };
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            return done(Tally::one(false), Duration::ZERO);
        }
    };
    let tally = count(job.counts, &ended);
    let (passed, failed, seconds) = (tally.passed, tally.failed, ended.time.as_secs_f64());
    if failed == 0 {
        let skipped = tally.skips();
        println!("{name:<24} {passed:>6} passed {seconds:>20.1} s{skipped}");
        return done(tally, ended.time);
    }
    println!("{name:<24} {passed:>6} passed {failed:>4} FAILED {seconds:>8.1} s");
    // Thousands of lines of `… ok` hide the one that matters.
    for line in ended.output.lines().filter(|line| !line.ends_with("... ok")) {
        println!("    {line}");
    }
    match ended.status {
        Some(status) if status.success() => println!("    {name} ended with success, without the result of its checks"),
        Some(status) => println!("    {name}: {status}"),
        None => println!("    {name} was killed after {:.0?}", ended.time),
    }
    done(tally, ended.time)
}

fn count(counts: Counts, ended: &Ended) -> Tally {
    let success = ended.status.is_some_and(|status| status.success());
    let mut tally = Tally::default();
    // A test that ends its program takes the others with it, and may do so with success.
    let told = match counts {
        Counts::Cargo => ended.output.lines().filter(|line| tally.cargo_line(line)).count() > 0,
        Counts::Summary => tally.summary_line(ended.output.lines().last().unwrap_or_default()),
        Counts::Exit => {
            tally = Tally::one(success);
            true
        }
    };
    tally.with_exit(success && told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc_stat::ProcStat;
    use crate::server::Scratch;

    fn job(name: &str, counts: Counts, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job {
            name: format!("jobs::{name}"),
            command,
            counts,
        }
    }

    #[test]
    fn each_kind_is_counted_and_failures_stop_no_other() {
        let jobs = vec![
            job("good", Counts::Cargo, "echo 'test result: ok. 5 passed; 0 failed'"),
            job(
                "bad",
                Counts::Cargo,
                "echo 'test result: FAILED. 1 passed; 2 failed'; exit 101",
            ),
            job("dead", Counts::Cargo, "kill -9 $$"),
            job("step", Counts::Summary, "echo '9 failed'; echo '3 passed, 0 failed'"),
            job("silent", Counts::Summary, "exit 1"),
            job("quit", Counts::Cargo, "echo 'running 3 tests'; echo 'test a ... ok'"),
            job("quit step", Counts::Summary, "echo 'server ready'"),
            job("none", Counts::Cargo, "echo 'test result: ok. 0 passed; 0 failed'"),
            job("one", Counts::Exit, "echo '60 passed'"),
        ];
        let mut done = run(jobs).unwrap();
        done.sort_by(|a, b| a.name.cmp(&b.name));
        let counts: Vec<(&str, u64, u64)> = done
            .iter()
            .map(|done| {
                (
                    done.name.trim_start_matches("jobs::"),
                    done.tally.passed,
                    done.tally.failed,
                )
            })
            .collect();
        assert_eq!(
            counts,
            [
                ("bad", 1, 2),
                ("dead", 0, 1),
                ("good", 5, 0),
                ("none", 0, 0),
                ("one", 1, 0),
                ("quit", 0, 1),
                ("quit step", 0, 1),
                ("silent", 0, 1),
                ("step", 3, 0)
            ]
        );
    }
    #[test]
    fn a_job_that_hangs_is_killed_with_the_processes_below_it() {
        let scratch = Scratch::new("jobs").unwrap();
        let file = scratch.join("pid");
        let of_child = format!("sleep 600 & echo $! > {0}.part; mv {0}.part {0}; wait", file.display());
        let hangs = job("hangs", Counts::Exit, &format!("({of_child}) & wait"));
        let done = run_within(Duration::from_secs(3), vec![hangs]).unwrap();
        assert_eq!(done[0].tally, Tally::one(false));
        let pid = fs::read_to_string(&file).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        // It may not have been waited for by then.
        while ProcStat::read(pid.trim()).is_ok_and(|stat| stat.state != 'Z') {
            assert!(Instant::now() < deadline, "process {pid} runs");
            std::thread::sleep(Duration::from_millis(20));
        }
        scratch.passed();
    }
}
