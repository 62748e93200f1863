//! The console of a real server in a real browser: `tests/console/check.mjs` opens every page.
//!
//! The server has some tables, one of them with many tablets, and a load while its pages are opened. Screenshots go to
//! `target/console`.

use crate::server::{self, Build, Scratch, Server, Start};
use crate::shell::{Run, cargo, root, target_dir};
use crate::tally::Tally;
use crate::{tablets, tools};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Tablets of a check among others: a few pages of them.
pub const TABLETS: u32 = 300;
/// Rows of the table that has a load.
const ROWS: u32 = 20_000;
/// Time with a load before the first page is opened: some points of the history.
const WARMING: Duration = Duration::from_secs(25);
/// Time without a load before CPU time is compared.
const SETTLING: Duration = Duration::from_secs(10);
/// Time for which the overview is open.
const OPEN: Duration = Duration::from_secs(30);
/// CPU seconds of a second that an open overview may cost.
const OPEN_CPU_MAX: f64 = 0.01;

/// Whether every page is as it should be, on a server with about `count` tablets.
pub fn run(count: u32) -> Result<bool> {
    // As the cargo tests build it; the pages are the same.
    server::choose(Build::Tests);
    cargo(["build", "--package", "stele"]).check()?;
    Ok(check(count)?.failed == 0)
}

/// The same with a server that is built already.
pub fn check(count: u32) -> Result<Tally> {
    let (chromium, modules) = (tools::debian::chromium()?, tools::console_modules()?);
    let scratch = Scratch::new("console")?;
    let (data, log) = (scratch.join("data"), scratch.join("server.log"));
    let mut server = Server::start(&Start {
        data: &data,
        log: &log,
        arguments: &["--memory", "512MiB", "--slow-call", "5ms", "--hbase", "off"],
    })?;
    prepare(&server, &scratch, count)?;
    let (ended, mut tally) = (AtomicBool::new(false), Tally::default());
    let outcome = thread::scope(|scope| {
        for number in 0..2 {
            let (server, ended, file) = (&server, &ended, scratch.join(&format!("load{number}.csv")));
            scope.spawn(move || load(server, number, &file, ended));
        }
        thread::sleep(WARMING);
        let outcome = look(&server, &chromium, &modules);
        ended.store(true, Ordering::Relaxed);
        outcome
    });
    tally.add(outcome?);
    tally.add(Tally::one(is_cheap(&mut server, &chromium, &modules)?));
    if tally.failed == 0 {
        scratch.passed();
    }
    Ok(tally)
}

/// The script, with its first arguments.
fn script(server: &Server, (chromium, libraries): &(PathBuf, String), modules: &Path) -> Run {
    Run::new("node")
        .args([root().join("tests/console/check.mjs").as_path(), chromium])
        .args([server.http()])
        .args([target_dir().join("console")])
        .env("CONSOLE_MODULES", modules)
        .env("LD_LIBRARY_PATH", libraries)
}

/// Whether the server spends little CPU time on an open overview.
fn is_cheap(server: &mut Server, chromium: &(PathBuf, String), modules: &Path) -> Result<bool> {
    // Flushes and compactions of the load.
    thread::sleep(SETTLING);
    let closed = cpu_while(server, |_| {
        thread::sleep(OPEN);
        Ok(())
    })?;
    let open = cpu_while(server, |server| {
        script(server, chromium, modules)
            .args([OPEN.as_secs().to_string()])
            .check()
    })?;
    println!("CPU time of the server: {closed:.4} s a second, with an open overview {open:.4} s");
    Ok(open - closed <= OPEN_CPU_MAX)
}

/// CPU seconds of the server for each second of some work.
fn cpu_while(server: &mut Server, work: impl FnOnce(&Server) -> Result<()>) -> Result<f64> {
    let (before, begun) = (server.process().cpu_seconds()?, Instant::now());
    work(server)?;
    Ok((server.process().cpu_seconds()? - before) / begun.elapsed().as_secs_f64())
}

/// Runs the script, and counts by its last line.
fn look(server: &Server, chromium: &(PathBuf, String), modules: &Path) -> Result<Tally> {
    let mut last = String::new();
    let run = script(server, chromium, modules);
    let success = run.lines(|line| {
        println!("{line}");
        last = line.to_owned();
    })?;
    println!("screenshots: {}", target_dir().join("console").display());
    let number = |ending: &str| {
        last.split(", ")
            .find_map(|part| part.strip_suffix(ending)?.parse().ok())
    };
    let tally = Tally {
        passed: number(" passed").unwrap_or(0),
        failed: number(" failed").unwrap_or(1),
        ..Tally::default()
    };
    Ok(tally.with_exit(success))
}

/// Tables, tablets and a snapshot.
fn prepare(server: &Server, scratch: &Scratch, count: u32) -> Result<()> {
    for table in 0..count / tablets::TABLETS_PER_TABLE {
        tablets::make_table(server, &scratch.join("rows.csv"), table)?;
    }
    let splits: Vec<String> = (1..8).map(|at| format!("--split=user{at}")).collect();
    client(
        server,
        &["create-table", "shop/orders", "--family", "f", "--family", "stats"],
        &splits,
    )?;
    let file = scratch.join("orders.csv");
    fs::write(&file, rows(0..ROWS, 0)).context("writing rows")?;
    import(server, "shop/orders", &file)?;
    client(server, &["create-table", "shop/customers", "--family", "f"], &[])?;
    import(server, "shop/customers", &file)?;
    client(server, &["snapshot", "create", "shop/orders", "before-the-load"], &[])
}

/// Rows of which the keys are spread over the tablets.
fn rows(numbers: std::ops::Range<u32>, round: u32) -> String {
    let mut rows = "key,value\n".to_owned();
    for n in numbers {
        let user = n.wrapping_mul(2_654_435_761) % 80_000;
        let _ = writeln!(
            rows,
            "user{:05}#{n:06},{}",
            user,
            "some text ".repeat(1 + (n + round) as usize % 20)
        );
    }
    rows
}

/// Writes a part of the rows that moves, and reads some ranges again and again.
fn load(server: &Server, number: u32, file: &Path, ended: &AtomicBool) {
    let mut round = 0;
    while !ended.load(Ordering::Relaxed) {
        let start = round * 700 % ROWS;
        let wrote = fs::write(file, rows(start..start + 1_500, round)).map_err(anyhow::Error::from);
        let wrote = wrote.and_then(|()| import(server, "shop/orders", file));
        let prefix = format!("--prefix=user{}", 1 + number * 3);
        let read = client(server, &["count", "shop/orders", &prefix], &[])
            .and_then(|()| client(server, &["count", "shop/customers", "--prefix=user40"], &[]));
        if let Err(error) = wrote.and(read) {
            eprintln!("the load: {error:#}");
        }
        round += 1;
    }
}

fn import(server: &Server, table: &str, file: &Path) -> Result<()> {
    let file = file.to_str().context("a path in UTF-8")?;
    client(server, &["import", table, file, "--key", "key", "--family", "f"], &[])
}

fn client(server: &Server, arguments: &[&str], more: &[String]) -> Result<()> {
    let run = Run::new(server::stele()).args(arguments).args(more);
    run.args(["--address", server.address()]).output().map(drop)
}

/// Whether the machine has the programs that the checks need, or that fetch the others.
pub fn available() -> bool {
    ["node", "npm", "apt-get", "dpkg-deb"].iter().all(|program| {
        let version = Run::new(program).args(["--version"]).into_command().output();
        version.is_ok_and(|output| output.status.success())
    })
}
