//! Measures Stele and servers to compare it with, through the clients that users run.
//!
//! The others are Google's emulator, and an echo that answers without storing.
//!
//! Terms: a *party* is a server under measurement, a *phase* one kind of load, a *cell* one party's phase through one
//! client in one repeat.
//!
//! The unit is operations per CPU second of the server: on a small machine the client takes much of the CPU, and
//! throughput alone would measure the client.
//!
//! Invariants:
//! * The parties take turns in each phase of each repeat, so other load of the machine hits all of them.
//! * CPU time is read between the warm-up and the first counted operation, and right after the last one.
//! * All servers are quiet before CPU time is read, so no phase pays for the one before.

mod load;
mod neighbours;
mod party;
mod secured;
mod summary;

use crate::server::{self, Scratch};
use crate::shell::target_dir;
use crate::tools;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use load::{Client, Load};
use party::{Kind, NamedBuild, Party};
use serde_json::{Value, json};
use std::fs;
use summary::Summary;

/// Options of `cargo xtask measure`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only these phases.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Phase::ALL)]
    phases: Vec<Phase>,
    /// Clients that make the load.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Client::Go])]
    clients: Vec<Client>,
    /// Servers that take part.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Kind::DEFAULT)]
    servers: Vec<Kind>,
    /// How often each server is measured; they take turns.
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Rows of 1000 bytes in the table.
    #[arg(long, default_value_t = 200_000)]
    rows: u32,
    /// A program to measure as Stele instead of building one; as NAME=PATH, several builds take part in one run.
    #[arg(long)]
    stele: Vec<NamedBuild>,
    /// Concurrent callers of the load; 64 of Go and Java, 8 of Python when absent.
    #[arg(long)]
    callers: Option<u32>,
    /// Connections of the client's pool; the client's own choice when absent. Of Go only.
    #[arg(long)]
    connections: Option<u32>,
    /// Operations due each second, as an open loop; a closed loop when absent. Of Go only.
    #[arg(long)]
    rate: Option<f64>,
    /// Other requests meanwhile, through the same client. Of Go only; `mixed` needs `--connections`.
    #[arg(long, value_enum)]
    beside: Option<Beside>,
    /// Those requests come from another process, of a lower priority.
    #[arg(long, requires = "beside")]
    apart: bool,
}

/// Requests that run besides those of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Beside {
    /// Scans of another table of a million rows.
    Scan,
    /// A slow reader, reads of a cell of 100 MiB, and scans of a million rows by a regular expression.
    Mixed,
}

impl Beside {
    fn name(self) -> &'static str {
        match self {
            Beside::Scan => "scan",
            Beside::Mixed => "mixed",
        }
    }

    /// Tables that these requests read, with rows and bytes of a value.
    fn tables(self) -> &'static [(&'static str, u32, u32)] {
        match self {
            Beside::Scan => &[("many", 1_000_000, 100)],
            Beside::Mixed => &[("many", 1_000_000, 100), ("cell", 1, 100 << 20)],
        }
    }
}

/// One kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    /// ReadRow of random rows.
    Read,
    /// ReadRow of rows by the Zipf distribution with exponent 0.99.
    Zipf,
    /// ReadRow of values of 512 kB.
    Large,
    /// ReadRows of 1,000 rows from a random row.
    Scan,
    /// MutateRow of random rows.
    Write,
    /// Seven ReadRow for three MutateRow.
    Mix,
    /// ReadModifyWriteRow of random counters.
    Increment,
    /// MutateRows of 100 random rows.
    Batch,
}

impl Phase {
    /// In the order in which they run: those that change nothing come first.
    const ALL: [Phase; 8] = [
        Phase::Read,
        Phase::Zipf,
        Phase::Large,
        Phase::Scan,
        Phase::Write,
        Phase::Mix,
        Phase::Increment,
        Phase::Batch,
    ];

    fn name(self) -> &'static str {
        match self {
            Phase::Read => "read",
            Phase::Zipf => "zipf",
            Phase::Large => "large",
            Phase::Scan => "scan",
            Phase::Write => "write",
            Phase::Mix => "mix",
            Phase::Increment => "increment",
            Phase::Batch => "batch",
        }
    }
}

/// Runs everything, prints a table and writes `target/measure/clients.json`.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let is_secured = arguments.servers.iter().any(|kind| kind.is_secured());
    ensure!(
        !is_secured || (arguments.clients == [Client::Go] && arguments.connections.is_some()),
        "credentials are measured with the Go client and --connections, so that all servers are called in the same way"
    );
    ensure!(
        arguments.beside.is_none() || arguments.clients == [Client::Go],
        "other requests are made by the Go client"
    );
    ensure!(
        arguments.beside != Some(Beside::Mixed) || arguments.connections.is_some(),
        "give --connections: by itself the client takes no cell of 100 MiB from a server without TLS"
    );
    let builds = if arguments.stele.is_empty() && arguments.servers.iter().any(|kind| kind.is_built()) {
        server::build()?;
        vec![NamedBuild::own()]
    } else {
        arguments.stele.clone()
    };
    party::expect_distinct(&builds)?;
    party::build_others(&arguments.servers)?;
    let mut loads = Vec::new();
    for client in &arguments.clients {
        loads.push(Load::new(*client, arguments)?);
    }
    let filler = tools::go_program("measure")?;
    let scratch = Scratch::new("measure")?;
    let mut cells = Vec::new();
    let mut parties = Vec::new();
    for kind in &arguments.servers {
        parties.extend(Party::start(*kind, &builds, &scratch)?);
    }
    for party in &parties {
        println!("filling {}", party.name());
        party.fill(&filler, arguments)?;
    }
    for repeat in 1..=arguments.repeats {
        for load in &loads {
            for phase in &arguments.phases {
                for party in &parties {
                    cells.push(measure_one(party, &parties, load, *phase, repeat)?);
                }
            }
        }
    }
    drop(parties);
    let summary = Summary::of(&cells);
    summary.print();
    write_report(&cells, &summary)?;
    scratch.passed();
    Ok(cells.iter().all(|cell| cell.get("errors") == Some(&json!(0))))
}

fn measure_one(party: &Party, parties: &[Party], load: &Load, phase: Phase, repeat: u32) -> Result<Value> {
    let mut cell = load
        .run(phase, party, parties)
        .with_context(|| format!("{} on {} through {}", phase.name(), party.name(), load.client.name()))?;
    let fields = cell.as_object_mut().context("the result is no object")?;
    fields.insert("server".into(), json!(party.name()));
    fields.insert("client".into(), json!(load.client.name()));
    fields.insert("phase".into(), json!(phase.name()));
    fields.insert("repeat".into(), json!(repeat));
    println!("{cell}");
    Ok(cell)
}

fn write_report(cells: &[Value], summary: &Summary) -> Result<()> {
    let dir = target_dir().join("measure");
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let path = dir.join("clients.json");
    let report = json!({ "summary": summary.to_json(), "measurements": cells });
    fs::write(&path, serde_json::to_string_pretty(&report)?).with_context(|| format!("writing {}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}
