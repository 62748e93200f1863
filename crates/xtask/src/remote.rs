//! Tests of every storage backend that several servers reach over a network.

use crate::server::{self, Scratch, Server, Start};
use crate::shell::{Run, json_line};
use crate::tools;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Small, so that a million rows mean flushes, and reads that go back to the backend.
const MEMORY_BYTES: &str = "134217728";

/// A running storage backend; it ends when dropped.
pub trait Remote {
    /// The value of `--data` for a part of it.
    fn data(&self, prefix: &str) -> PathBuf;

    /// What else a server is told.
    fn arguments(&self) -> Vec<String>;
}

/// Whether `rows` acknowledged rows are all there after SIGKILL and a start with an empty cache folder.
pub fn survive(remote: &dyn Remote, scratch: &Scratch, rows: u64) -> Result<bool> {
    server::build()?;
    let load = tools::go_program("load")?;
    let (data, log) = (remote.data("survive"), scratch.join("server.log"));
    let start = |cache: &Path| {
        let cache = cache.to_string_lossy().into_owned();
        let mut arguments = vec!["--memory", MEMORY_BYTES, "--cache-dir", &cache];
        let own = remote.arguments();
        arguments.extend(own.iter().map(String::as_str));
        Server::start(&Start {
            data: &data,
            log: &log,
            arguments: &arguments,
        })
    };
    let mut server = start(&scratch.join("cache-1"))?;
    let rows_text = rows.to_string();
    let fill = Run::new(&load).args([
        "fill",
        "-address",
        server.address(),
        "-bytes",
        "100",
        "-rows",
        &rows_text,
    ]);
    println!("fill: {}", json_line(fill)?);
    let syncs = server.metric("stele_commitlog_sync_seconds_count")?;
    let seconds = server.metric("stele_commitlog_sync_seconds_sum")?;
    println!("log: {syncs} syncs, {:.2} ms each", 1e3 * seconds / syncs.max(1.0));
    server.process().kill()?;
    let restart = Instant::now();
    let server = start(&scratch.join("cache-2"))?;
    println!("ready again in {} ms", restart.elapsed().as_millis());
    let counted = json_line(Run::new(&load).args(["count", "-address", server.address()]))?;
    println!("count: {counted}");
    Ok(counted.get("rows").and_then(|v| v.as_u64()) == Some(rows))
}
