//! Steps of the everyday lane that start real processes, each a job of its own.
//!
//! A step runs in a process of this program (`cargo xtask step NAME`), so its output can be kept apart. Its last line is
//! `N passed, N failed`, and the number of skipped checks if there are any. It starts the server that was built with the tests.

use crate::jobs::{Counts, Job};
use crate::server::{self, Build};
use crate::shell::{Run, target_dir};
use crate::stores::{self, Service};
use crate::tally::Tally;
use crate::{clients, crash};
use anyhow::Result;
use clap::ValueEnum;

/// Seeds of one simulation job; each job of [`SIM_JOBS`] has seeds of its own.
const SIM_SEEDS: u32 = 30;
/// Simulations are single-threaded, so two of them use two processors.
const SIM_JOBS: u32 = 2;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// The storage suite and the fencing tests on a real S3 server.
    S3,
    /// Google's Go client.
    Go,
    /// Google's Python clients.
    Python,
    /// The server is killed under load.
    Crash,
}

impl Step {
    fn title(self) -> &'static str {
        match self {
            Step::S3 => "S3",
            Step::Go => "Go client",
            Step::Python => "Python client",
            Step::Crash => "kill -9",
        }
    }

    /// The jobs of all steps and of the simulation.
    pub fn jobs() -> Vec<Job> {
        let simulations = (0..SIM_JOBS).map(|job| {
            let start = (job * SIM_SEEDS).to_string();
            let simulator = Run::new(target_dir().join("debug/stele-sim"));
            let seeds = SIM_SEEDS.to_string();
            Job {
                name: format!("simulation {}", job + 1),
                command: simulator
                    .args(["run", "--start", &start, "--seeds", &seeds])
                    .into_command(),
                counts: Counts::Exit,
            }
        });
        let steps = Step::value_variants().iter().map(|step| step.job());
        simulations.chain(steps).collect()
    }

    fn job(self) -> Job {
        let name = self.to_possible_value().map(|value| value.get_name().to_owned());
        // The program that runs now: cargo may be building another one.
        let program = std::env::current_exe().unwrap_or_else(|_| "xtask".into());
        Job {
            name: self.title().to_owned(),
            command: Run::new(program).args(["step"]).args(name).into_command(),
            counts: Counts::Summary,
        }
    }

    /// Runs it in this process.
    pub fn run(self) -> Result<bool> {
        server::choose(Build::Tests);
        let tally = match self {
            Step::S3 => stores::conformance(Service::S3),
            Step::Go => clients::go_suite(),
            Step::Python => clients::python_suite(),
            Step::Crash => crash::run(crash::SMOKE_ROUNDS).map(Tally::one),
        };
        let tally = tally.unwrap_or_else(|error| {
            println!("{}: {error:#}", self.title());
            Tally::one(false)
        });
        println!("{tally}");
        Ok(tally.failed == 0 && tally.passed > 0)
    }
}
