//! Snapshots at random moments, some of them with a kill of the server.

use super::{Arguments, COMMAND_WAIT};
use crate::choices::{self, Choices, micros};
use crate::registers::{Registers, TABLE};
use crate::server::{self, Scratch, Server, Start};
use anyhow::{Result, ensure};
use std::thread;
use std::time::Duration;

/// Writers of a row each, in a table of one tablet: all rows of a snapshot are of one moment.
const CLIENTS: [&str; 5] = ["-rows", "64", "-tablets", "1", "-history"];
/// Small, so that flushes and compactions happen meanwhile.
const ARGUMENTS: [&str; 2] = ["--memory", "67108864"];
/// The error of a planted moment.
const LATER_MICROS: i64 = 1_000_000;

/// Events around a snapshot.
#[derive(Clone, Copy, Debug)]
enum Kill {
    None,
    /// While it is taken, at a random point of that: it exists whole, or not at all.
    During,
    /// Right after the answer: it exists.
    After,
}

const KILLS: [Kill; 3] = [Kill::None, Kill::During, Kill::After];

/// A snapshot that was tried.
struct Tried {
    from: i64,
    to: i64,
    was_acknowledged: bool,
}

/// Whether every snapshot that exists is exact, and every acknowledged one exists.
pub fn run(scratch: &Scratch, arguments: &Arguments) -> Result<bool> {
    let (data, log) = (scratch.join("exact"), scratch.join("exact.log"));
    let start = Start {
        data: &data,
        log: &log,
        arguments: &ARGUMENTS,
    };
    let seed = choices::seed(arguments.seed)?;
    println!("{} snapshots, seed {seed}", arguments.snapshots);
    let mut choices = Choices(seed);
    let mut server = Server::start(&start)?;
    let mut registers = Registers::start(&[server.address()], &CLIENTS)?;
    let (mut passed, mut restored) = (true, 0);
    for number in 0..arguments.snapshots {
        thread::sleep(Duration::from_millis(50 + choices.below(400) as u64));
        let kill = KILLS.get(number as usize % KILLS.len()).copied().unwrap_or(Kill::None);
        let name = format!("s{number}");
        let tried = match kill {
            Kill::During => killed_during(&mut server, &name, &mut choices)?,
            Kill::None | Kill::After => taken(&server, &name)?,
        };
        if !matches!(kill, Kill::None) {
            server = started_again(server, &start, &mut registers)?;
        }
        let listed = command(&server, &["snapshot", "list", "registers"])?;
        let exists = listed.lines().any(|line| line.split("  ").next() == Some(&name));
        ensure!(
            exists || !tried.was_acknowledged,
            "snapshot {name} was acknowledged and is gone ({kill:?})"
        );
        if exists {
            restored += 1;
            let late = if arguments.planted_stale_snapshots {
                LATER_MICROS
            } else {
                0
            };
            let times = (tried.from + late, tried.to + late);
            passed &= registers.is_exact(server.address(), &name, times, true)?.1;
        }
    }
    let window = registers.end()?;
    println!("{restored} snapshots restored; {} requests", window.requests);
    Ok(passed && restored > 0 && window.is_linearizable())
}

fn command(server: &Server, arguments: &[&str]) -> Result<String> {
    server::command(server.address(), COMMAND_WAIT, arguments)
}

fn taken(server: &Server, name: &str) -> Result<Tried> {
    let from = micros()?;
    command(server, &["snapshot", "create", TABLE, name])?;
    Ok(Tried {
        from,
        to: micros()?,
        was_acknowledged: true,
    })
}

/// Takes a snapshot, and kills the server some milliseconds after the command began.
fn killed_during(server: &mut Server, name: &str, choices: &mut Choices) -> Result<Tried> {
    let (address, from) = (server.address().to_owned(), micros()?);
    let delay = Duration::from_micros(choices.below(40_000) as u64);
    thread::scope(|scope| {
        let taking =
            scope.spawn(|| server::command(&address, COMMAND_WAIT, &["snapshot", "create", TABLE, name]).is_ok());
        thread::sleep(delay);
        server.process().kill()?;
        let to = micros()?;
        Ok(Tried {
            from,
            to,
            was_acknowledged: taking.join().unwrap_or(false),
        })
    })
}

fn started_again(mut killed: Server, start: &Start<'_>, registers: &mut Registers) -> Result<Server> {
    killed.process().kill()?;
    let server = Server::start(start)?;
    registers.use_only(&[server.address()])?;
    registers.give_up(killed.address())?;
    Ok(server)
}
