//! Google's own clients against the real server.

use crate::server::{Scratch, Server, Start, http_get};
use crate::shell::{Run, root};
use crate::tally::{GoEvents, Tally};
use crate::tools;
use anyhow::Result;

fn with_server(name: &str, suite: impl FnOnce(&str) -> Result<Tally>) -> Result<Tally> {
    let scratch = Scratch::new(name)?;
    let (data, log) = (scratch.join("data"), scratch.join("server.log"));
    let mut server = Server::start(&Start {
        data: &data,
        log: &log,
        arguments: &[],
    })?;
    let mut tally = suite(server.address())?;
    tally.add(Tally::one(is_well(&mut server)?));
    if tally.failed == 0 {
        scratch.passed();
    }
    Ok(tally)
}

/// Whether the suite left the server alive, healthy and with something to measure: no request may end the process.
fn is_well(server: &mut Server) -> Result<bool> {
    if let Some(status) = server.process().ended()? {
        eprintln!("the server ended during the suite: {status}");
        return Ok(false);
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        let answer = http_get(server.http(), path)?;
        if !answer.starts_with("HTTP/1.1 200") {
            eprintln!("{path}: {}", answer.lines().next().unwrap_or("no answer"));
            return Ok(false);
        }
    }
    Ok(true)
}

/// `tests/clients/go/suite`, and the tests of programs.
pub fn go_suite() -> Result<Tally> {
    with_server("go", |address| {
        go_tests(
            Run::new("go")
                // The flag of `tools::go_program`: Go compiles every library once for each set of flags.
                .args(["test", "-trimpath", "-json", "-count=1", "-timeout=10m"])
                // The second has the tests of a program that judges servers, and needs none.
                .args(["./suite", "./cmd/load"])
                .dir(root().join("tests/clients/go"))
                .env("STELE_ADDRESS", address),
        )
    })
}

/// Runs a `go test -json`, and prints the output of the tests that fail or are skipped.
pub fn go_tests(command: Run) -> Result<Tally> {
    let mut events = GoEvents::default();
    let success = command.lines(|line| {
        if let Some(other) = events.line(line) {
            println!("{other}");
        }
    })?;
    let (tally, report) = events.finish();
    print!("{report}");
    Ok(tally.with_exit(success))
}

/// `tests/clients/python`.
pub fn python_suite() -> Result<Tally> {
    let python = tools::python()?;
    with_server("python", |address| {
        let mut tally = Tally::default();
        let success = Run::new(&python)
            .args(["-B", "-m", "pytest", "-q", "--disable-warnings", "--tb=short"])
            .dir(root().join("tests/clients/python"))
            .env("STELE_ADDRESS", address)
            .lines(|line| {
                println!("{line}");
                tally.summary_line(line);
            })?;
        Ok(tally.with_exit(success))
    })
}
