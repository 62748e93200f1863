//! `stele-bench list`: the suites and their experiments.

use anyhow::Result;
use stele_bench::suites::{self, SuiteOptions};

/// Arguments of `list`.
#[derive(clap::Args)]
pub struct Arguments {
    /// One suite; all of them when absent.
    suite: Option<String>,
}

/// Prints suites and experiments.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let options = SuiteOptions {
        scale: 1.0,
        quick: true,
        ..SuiteOptions::default()
    };
    for name in suites::names() {
        if arguments.suite.as_deref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let Some(suite) = suites::build(name, &options) else {
            continue;
        };
        println!("{name}: {}", suite.document);
        for experiment in suite.experiments {
            let remark = experiment
                .unavailable
                .map_or(String::new(), |why| format!(" (not run: {why})"));
            println!("  {:<8} {}{remark}", experiment.id, experiment.title);
        }
    }
    Ok(true)
}
