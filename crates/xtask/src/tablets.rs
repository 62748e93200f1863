//! Measures start time and idle cost of a server with thousands of tablets.

use crate::server::{self, Scratch, Server, Start};
use crate::shell::Run;
use anyhow::Result;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Tablets of one table: also many tables must be quick.
pub const TABLETS_PER_TABLE: u32 = 100;
/// How long the server is left alone before and while it is measured.
const SETTLING: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(20);

/// Whether `count` tablets, each with a row, start within ten seconds, and cost less than 2 % of a core and 1 GB idle.
pub fn run(count: u32) -> Result<bool> {
    server::build()?;
    let scratch = Scratch::new("tablets")?;
    let (data, log) = (scratch.join("data"), scratch.join("server.log"));
    let start = Start {
        data: &data,
        log: &log,
        arguments: &["--memory", "1GiB"],
    };
    let mut server = Server::start(&start)?;
    let making = Instant::now();
    for table in 0..count.div_ceil(TABLETS_PER_TABLE) {
        make_table(&server, &scratch.join("rows.csv"), table)?;
    }
    println!("{count} tablets made in {:.1} s", making.elapsed().as_secs_f64());
    server.process().kill()?;
    let mut passed = true;
    for how in ["after a kill", "after a shutdown", "again"] {
        let starting = Instant::now();
        server = Server::start(&start)?;
        let took = starting.elapsed();
        std::thread::sleep(SETTLING);
        let before = server.process().cpu_seconds()?;
        std::thread::sleep(IDLE);
        let idle = (server.process().cpu_seconds()? - before) / IDLE.as_secs_f64();
        let rss = server.process().rss_bytes()?;
        let good = took < Duration::from_secs(10) && idle < 0.02 && rss < 1 << 30;
        println!(
            "{} {how}: ready in {:.2} s, idle {:.2} % of a core, {} MiB",
            if good { "ok  " } else { "FAIL" },
            took.as_secs_f64(),
            idle * 100.0,
            rss >> 20
        );
        passed &= good;
        server.process().terminate()?;
    }
    if passed {
        scratch.passed();
    }
    Ok(passed)
}

/// A table of a hundred tablets with a row in each.
pub fn make_table(server: &Server, file: &Path, table: u32) -> Result<()> {
    let name = format!("tablets/t{table:03}");
    let splits: Vec<String> = (1..TABLETS_PER_TABLE).map(|i| format!("--split={i:02}")).collect();
    let create = Run::new(server::stele()).args(["create-table", &name, "--family", "d"]);
    let create = create.args(&splits).args(["--address", server.address()]);
    create.output()?;
    let mut rows = "key,value\n".to_owned();
    for tablet in 0..TABLETS_PER_TABLE {
        let _ = writeln!(rows, "{tablet:02}row,{table}");
    }
    fs::write(file, rows)?;
    let import = Run::new(server::stele()).args(["import", &name]).args([file]);
    let import = import.args(["--key", "key", "--family", "d", "--address", server.address()]);
    import.output()?;
    Ok(())
}
