//! Builds the Debian package, and proves that it works.
//!
//! The package has the release build of the server, its unit, its settings, manual pages, completions, the licences of
//! everything in the program, and a bill of materials. The same sources give the same package: times are those of the
//! last commit. The package is taken apart into a scratch folder, and a server runs there with the packaged settings.

mod debian;
mod licences;
mod trial;

use crate::hosts;
use crate::server::{self, Scratch, free_address, http_get};
use crate::shell::{Run, root, target_dir};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The options of `cargo xtask package`.
#[derive(clap::Args)]
pub struct Arguments {
    /// This program instead of a release build, to try the packaging.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Then makes a cluster under TLS with it, on three machines that boot in containers; needs root.
    #[arg(long)]
    machines: bool,
}

/// Whether this machine can try the package on others.
pub fn has_machines() -> bool {
    trial::is_possible()
}

/// Builds the package, and tries it on machines.
pub fn try_on_machines() -> Result<bool> {
    run(&Arguments {
        program: None,
        machines: true,
    })
}

/// A server without data is ready in a moment.
const READY_WAIT: Duration = Duration::from_secs(60);

/// Builds and checks the package; whether it works.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let out = target_dir().join("package");
    if hosts::entered() {
        return trial::run(&debian::package(&out)?);
    }
    if arguments.machines {
        trial::fetch()?;
    }
    let program = match &arguments.program {
        Some(program) => program.canonicalize().with_context(|| program.display().to_string())?,
        None => {
            server::build()?;
            server::stele()
        }
    };
    let scratch = Scratch::new("package")?;
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let materials = licences::of_program()?;
    let sbom = out.join("stele.cdx.json");
    fs::write(&sbom, &materials.sbom)?;
    let package = debian::build(&program, &materials, &scratch.join("tree"), &out)?;
    check(&package, &scratch.join("installed"))?;
    println!("{}", package.display());
    println!("{}", sbom.display());
    println!("{} crates, {} licence texts", materials.crates, materials.texts);
    scratch.passed();
    match arguments.machines {
        true => hosts::enter_as_root(&["package", "--machines"]),
        false => Ok(true),
    }
}

/// Takes the package apart, and starts its server with its settings.
fn check(package: &Path, installed: &Path) -> Result<()> {
    Run::new("dpkg-deb")
        .args(["--extract".as_ref(), package.as_os_str(), installed.as_os_str()])
        .check()?;
    let program = installed.join("usr/bin/stele");
    let (bigtable, http) = (free_address()?, free_address()?);
    let data = installed.join("var/lib/stele/data");
    let log = fs::File::create(installed.join("log"))?;
    let child = Run::new(&program)
        .args(["start", "--config"])
        .args([installed.join("etc/stele/stele.toml")])
        // The folder of the settings is the machine's own.
        .args(["--data".as_ref(), data.as_os_str()])
        .args(["--bigtable", &bigtable, "--http", &http, "--hbase", "off"])
        .into_command()
        .stdin(std::process::Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("starting the packaged server")?;
    let pid = Pid::from_child(&child);
    let mut process = server::Process::new(child);
    let deadline = Instant::now() + READY_WAIT;
    while !http_get(&http, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
        if let Some(status) = process.ended()? {
            bail!(
                "the packaged server ended: {status}; see {}",
                installed.join("log").display()
            );
        }
        ensure!(Instant::now() < deadline, "the packaged server is not ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    Run::new(&program).args(["health", "--http", &http]).check()?;
    let tables = ["create-table", "shop/orders", "--family", "f", "--address", &bigtable];
    Run::new(&program).args(tables).check()?;
    kill_process(pid, Signal::TERM)?;
    while process.ended()?.is_none() {
        ensure!(Instant::now() < deadline, "the packaged server does not stop");
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(data.join("FORMAT").exists(), "the packaged server has no data");
    Ok(())
}

/// A file of the workspace as text.
fn source(path: &str) -> Result<String> {
    let path = root().join(path);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}
