//! Starts and stops servers to measure Stele against, and Stele itself in the same way.
//!
//! Terms: a *rival* is such a server; its *parts* are its processes; its *place* is a directory below `target/rivals`.
//! Its *request* is the settings and the configuration directory that the caller asked for at start.
//!
//! Invariants:
//! * Everything a rival writes is below its place, and everything it listens on is on the loopback interface.
//! * `start` leaves all parts running and a party file, or stops the parts it started and leaves none.
//! * A running rival is never joined by parts that were asked for differently.
//!
//! Nothing here is part of the product or of `cargo xtask test`. `docs/rivals.md` is the manual.

/// Prints a line. A reader that has seen enough and closed the pipe must not end a start or a stop halfway, as the panic
/// of `println!` would.
macro_rules! say {
    ($($argument:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($argument)*);
    }};
}

mod emulator;
mod hbase;
mod party;
mod place;
mod process;
mod running;
mod settings;
pub mod site;
mod stele;

pub use hbase::{EVALUATION, finished_rows};
pub use party::{Member, Party};
pub use place::Place;
pub use process::Identity;
pub use running::Running;

use crate::shell::Run;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// What to do with rivals.
#[derive(Subcommand)]
pub enum RivalTask {
    /// Starts a rival, or those of its parts that are missing, and prints the URL for `stele-bench`.
    Start {
        rival: Rival,
        #[command(flatten)]
        request: Request,
    },
    /// Stops a rival; its data stay.
    Stop { which: Which },
    /// Lists the running parts.
    Status,
    /// Runs HBase's own PerformanceEvaluation against the running HBase; its arguments come after `--`.
    Pe {
        #[arg(last = true, required = true)]
        arguments: Vec<String>,
    },
    /// Counts a table of the running HBase with its own client and prints a digest of all cells.
    HbaseDigest {
        table: String,
        /// Versions of each cell to read.
        #[arg(long, default_value_t = 1)]
        versions: u32,
    },
}

/// The properties that a rival is started with.
#[derive(Args)]
pub struct Request {
    /// A setting; may be repeated. A wrong key lists the known ones.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Configuration files to lay over ours.
    #[arg(long, value_name = "DIR")]
    pub conf: Option<PathBuf>,
    /// Begin with an empty data directory.
    #[arg(long)]
    pub fresh: bool,
}

/// The servers we know how to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rival {
    Hbase,
    Emulator,
    Stele,
}

/// One rival or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Which {
    Hbase,
    Emulator,
    Stele,
    All,
}

impl Which {
    fn rivals(self) -> &'static [Rival] {
        match self {
            Which::Hbase => &[Rival::Hbase],
            Which::Emulator => &[Rival::Emulator],
            Which::Stele => &[Rival::Stele],
            Which::All => &Rival::ALL,
        }
    }
}

/// The name of one part, and how long it may take to end when asked.
pub struct PartName {
    pub name: &'static str,
    pub patience: Duration,
}

impl Rival {
    const ALL: [Rival; 3] = [Rival::Hbase, Rival::Emulator, Rival::Stele];

    pub fn name(self) -> &'static str {
        match self {
            Rival::Hbase => "hbase",
            Rival::Emulator => "emulator",
            Rival::Stele => "stele",
        }
    }

    pub fn place(self) -> Place {
        Place::of(self.name())
    }

    /// Its parts in the order in which they are started; they are stopped in the opposite one.
    fn parts(self) -> Vec<PartName> {
        match self {
            Rival::Hbase => hbase::parts(),
            Rival::Emulator => vec![emulator::PART],
            Rival::Stele => vec![stele::PART],
        }
    }

    /// Starts the parts that are missing and waits until the whole serves.
    fn complete(self, place: &Place, request: &Request) -> Result<Party> {
        match self {
            Rival::Hbase => hbase::complete(place, request),
            Rival::Emulator => emulator::complete(place, request),
            Rival::Stele => stele::complete(place, request),
        }
    }
}

/// Carries out the task; true when all is in order.
pub fn run(task: RivalTask) -> Result<bool> {
    match task {
        RivalTask::Start { rival, request } => start(rival, &rival.place(), &request).map(drop)?,
        RivalTask::Stop { which } => {
            for rival in which.rivals() {
                stop(*rival, &rival.place())?;
            }
        }
        RivalTask::Status => {
            for rival in Rival::ALL {
                status(rival);
            }
        }
        RivalTask::Pe { arguments } => return hbase::evaluate(&Rival::Hbase.place(), &arguments),
        RivalTask::HbaseDigest { table, versions } => {
            return hbase::digest(&Rival::Hbase.place(), &table, versions);
        }
    }
    Ok(true)
}

/// A program of HBase, such as its benchmark, that reads its configuration from this place and logs on standard output.
pub fn hbase_tool(place: &Place, heap: &str, main: &str) -> Result<Run> {
    let own = Rival::Hbase.place();
    let runs = hbase::parts()
        .iter()
        .any(|part| process::running(&own, part.name).is_some());
    hbase::tool(place, heap, main, runs)
}

/// Starts a rival unless it runs already as asked for, and leaves it running; its URL.
pub fn started(rival: Rival, request: &Request) -> Result<String> {
    start(rival, &rival.place(), request)?;
    url(rival, &rival.place())
}

fn url(rival: Rival, place: &Place) -> Result<String> {
    party::url_of(&place.party()).with_context(|| format!("{} left no party file", rival.name()))
}

/// Starts the parts that are missing; their names.
fn start(rival: Rival, place: &Place, request: &Request) -> Result<Vec<&'static str>> {
    let _lock = place.lock()?;
    let parts = rival.parts();
    let alive = parts
        .iter()
        .filter(|part| process::running(place, part.name).is_some())
        .map(|part| part.name)
        .collect::<Vec<_>>();
    let wanted = canonical(request)?;
    if !alive.is_empty() {
        expect_same_request(rival, place, request, &wanted)?;
    }
    if alive.len() == parts.len() && place.party().exists() {
        say!("{} runs already", rival.name());
        print_url(place)?;
        return Ok(Vec::new());
    }
    if !alive.is_empty() {
        say!(
            "{} of {} parts run already: {}",
            alive.len(),
            parts.len(),
            alive.join(", ")
        );
    }
    place.prepare(request.fresh)?;
    place.forget_party()?;
    fs::write(place.request(), &wanted).with_context(|| format!("writing {}", place.request().display()))?;
    let missing = || parts.iter().filter(|part| !alive.contains(&part.name));
    let party = match rival.complete(place, request) {
        Ok(party) => party,
        Err(error) => {
            // Last started, first stopped; parts that ran before are left alone.
            for part in missing().rev() {
                process::stop(place, part.name, part.patience)?;
            }
            return Err(error);
        }
    };
    party.write(&place.party())?;
    print_url(place)?;
    Ok(missing().map(|part| part.name).collect())
}

/// The key by which two requests are the same: the settings in their order, and the directory.
fn canonical(request: &Request) -> Result<String> {
    let mut text = String::new();
    for setting in settings::parse(&request.settings)? {
        text.push_str(&format!("--set {}={}\n", setting.key, setting.value));
    }
    if let Some(dir) = &request.conf {
        let dir = dir
            .canonicalize()
            .with_context(|| format!("--conf {}", dir.display()))?;
        text.push_str(&format!("--conf {}\n", dir.display()));
    }
    Ok(text)
}

fn expect_same_request(rival: Rival, place: &Place, request: &Request, wanted: &str) -> Result<()> {
    let name = rival.name();
    if request.fresh {
        bail!("--fresh: {name} runs. Stop it first: cargo xtask rival stop {name}");
    }
    let had = fs::read_to_string(place.request()).unwrap_or_default();
    if had != wanted {
        let had = if had.is_empty() {
            "nothing in particular\n"
        } else {
            had.as_str()
        };
        bail!("{name} runs, asked for with:\n{had}Stop it first: cargo xtask rival stop {name}");
    }
    Ok(())
}

fn print_url(place: &Place) -> Result<()> {
    let url = party::url_of(&place.party()).with_context(|| format!("reading {}", place.party().display()))?;
    say!("{url}");
    Ok(())
}

fn stop(rival: Rival, place: &Place) -> Result<()> {
    stop_parts(rival, place, |_| true)
}

/// Stops the parts that are chosen by name.
fn stop_parts(rival: Rival, place: &Place, chosen: impl Fn(&str) -> bool) -> Result<()> {
    if !place.exists() {
        say!("{}: never started here", rival.name());
        return Ok(());
    }
    let _lock = place.lock()?;
    place.forget_party()?;
    for part in rival.parts().iter().rev().filter(|part| chosen(part.name)) {
        let ending = match process::stop(place, part.name, part.patience)? {
            process::Ending::WasGone => "was not running",
            process::Ending::Asked => "stopped",
            process::Ending::Killed => "killed: it did not stop when asked",
        };
        say!("{} {}: {ending}", rival.name(), part.name);
    }
    Ok(())
}

fn status(rival: Rival) {
    let place = rival.place();
    let parts = rival.parts();
    let found: Vec<_> = parts.iter().map(|part| process::running(&place, part.name)).collect();
    let alive = found.iter().flatten().count();
    let url = party::url_of(&place.party());
    let state = match (alive, &url) {
        (0, _) => "stopped".to_owned(),
        (n, Some(url)) if n == parts.len() => format!("running  {url}"),
        (n, None) if n == parts.len() => "all parts run, but its start did not end; start it again".to_owned(),
        (n, _) => format!("broken: {n} of {} parts run; start it again, or stop it", parts.len()),
    };
    say!("{:<9} {state}", rival.name());
    if alive == 0 {
        return;
    }
    for (part, identity) in parts.iter().zip(&found) {
        match identity.as_ref().and_then(|i| Some((i, i.stat()?))) {
            Some((identity, stat)) => say!(
                "  {:<13} pid {:<8} {:>8.1} CPU s {:>7} MiB resident",
                part.name,
                identity.pid,
                stat.cpu_seconds(),
                identity.rss_mib().unwrap_or(0)
            ),
            None => say!("  {:<13} dead", part.name),
        }
    }
}
