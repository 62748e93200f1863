//! Tools that tasks need: built from `tests/clients/go`, or installed from their registries, into `target/tools`.
//!
//! Versions are pinned in `go.mod`, `requirements.txt` and here; a changed pin installs the tool again.

pub mod debian;

use crate::shell::{Run, root, target_dir};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The last release of the command line client that is part of the public module; later ones live elsewhere.
const CBT: &str = "cloud.google.com/go/bigtable/cmd/cbt@v1.13.0";

/// Fuzzes with libFuzzer.
const CARGO_FUZZ: &str = "0.13.2";

/// The version whose configuration `deny.toml` is.
const CARGO_DENY: &str = "0.20.2";

/// The library `bindgen` reads C++ headers with.
const LIBCLANG: &str = "libclang==18.1.1";

/// A real S3 server: the S3 protocol, conditional puts included, over a folder.
const VERSITYGW: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";

/// Azure Blob Storage, as its makers emulate it.
const AZURITE: &str = "azurite@3.35.0";

/// Drives a browser, and finds faults that keep people from using a page.
const CONSOLE_MODULES: [&str; 2] = ["puppeteer-core@24.43.1", "axe-core@4.14.1"];

/// Where tools go.
pub fn tools_dir() -> Result<PathBuf> {
    let dir = target_dir().join("tools");
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    Ok(dir)
}

/// Builds one of our Go programs (`collector`, `crashload`, `emulator`, `gcs`, `load`, `measure`, …).
pub fn go_program(name: &str) -> Result<PathBuf> {
    go_build(name, "tests/clients/go", &format!("./cmd/{name}"))
}

fn go_build(name: &str, module: &str, package: &str) -> Result<PathBuf> {
    let program = tools_dir()?.join(name);
    Run::new("go")
        .args(["build", "-trimpath", "-o"])
        .args([&program])
        .args([package])
        .dir(root().join(module))
        .check()?;
    Ok(program)
}

/// Google's `cbt`.
pub fn cbt() -> Result<PathBuf> {
    go_install("cbt", CBT)
}

/// The S3 server of the tests. Building it takes a minute or two, once.
pub fn versitygw() -> Result<PathBuf> {
    go_install("versitygw", VERSITYGW)
}

/// The blob service of Azurite, by npm.
pub fn azurite() -> Result<PathBuf> {
    Ok(npm_modules("azurite", &[AZURITE])?.join("node_modules/.bin/azurite-blob"))
}

/// The folder into which npm has installed packages.
fn npm_modules(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let dir = tools_dir()?.join(name);
    let wanted = packages.join(" ");
    if !stamped(name, &wanted)? || !dir.join("node_modules").exists() {
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        Run::new("npm")
            .args([
                "install",
                "--no-audit",
                "--no-fund",
                "--no-package-lock",
                "--loglevel=error",
                "--prefix",
            ])
            .args([&dir])
            .args(packages)
            .check()?;
        stamp(name, &wanted)?;
    }
    Ok(dir)
}

/// The folder with the modules that the checks of the console use, by npm.
pub fn console_modules() -> Result<PathBuf> {
    npm_modules("console", &CONSOLE_MODULES)
}

fn go_install(name: &str, package: &str) -> Result<PathBuf> {
    let dir = tools_dir()?;
    let program = dir.join(name);
    if !stamped(name, package)? || !program.exists() {
        Run::new("go")
            .args(["install", "-trimpath", package])
            .env("GOBIN", &dir)
            .check()?;
        stamp(name, package)?;
    }
    Ok(program)
}

/// The jars of a NameNode and a DataNode: the folder that holds them.
pub fn hadoop_jars() -> Result<PathBuf> {
    let project = root().join("tests/hdfs");
    let pom = project.join("pom.xml");
    let wanted = fs::read_to_string(&pom).with_context(|| format!("reading {}", pom.display()))?;
    let dir = tools_dir()?.join("hdfs");
    if !stamped("hdfs", &wanted)? || !dir.exists() {
        // Jars of other versions must not stay on the class path.
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("emptying {}", dir.display()))?;
        }
        Run::new("mvn")
            .args(["--batch-mode", "--quiet", "package"])
            .args([format!("-Dhdfs.build={}", dir.display())])
            .dir(project)
            .check()
            .context("Maven and a JVM of version 17 or later are needed for HDFS")?;
        stamp("hdfs", &wanted)?;
    }
    Ok(dir.join("lib"))
}

/// The load program of the Java client with all its jars: the folder that holds them.
pub fn java_load() -> Result<PathBuf> {
    java_program("java", "tests/clients/java")
}

/// The integration tests of the Java client with all their jars: the folder that holds them.
pub fn java_integration_tests() -> Result<PathBuf> {
    java_program("java-it", "tests/clients/java-it")
}

/// The cases for HBase's client with all its jars: the folder that holds them.
pub fn hbase_cases() -> Result<PathBuf> {
    java_program("java-hbase", "tests/clients/java-hbase")
}

/// HBase's published tests with all their jars: the folder that holds them.
pub fn hbase_conformance() -> Result<PathBuf> {
    java_program("hbase-conformance", "tests/clients/hbase-conformance")
}

/// A gateway of HBase or its shell, with all its jars: the folder that holds them.
pub fn hbase_gateway(name: &str) -> Result<PathBuf> {
    java_program(
        &format!("hbase-{name}"),
        &format!("tests/clients/hbase-gateways/{name}"),
    )
}

/// The round trip of this version of HBase's client: the folder with its jars.
pub fn hbase_client(version: &str) -> Result<PathBuf> {
    let (name, project) = (format!("hbase-client-{version}"), "tests/clients/hbase-gateways/client");
    java_program_with(&name, project, &[format!("-Dhbase.version={version}")])
}

/// Compiles a Maven project and fetches its jars, unless that was done for its files as they are.
fn java_program(name: &str, project: &str) -> Result<PathBuf> {
    java_program_with(name, project, &[])
}

/// The same with settings of the project.
fn java_program_with(name: &str, project: &str, settings: &[String]) -> Result<PathBuf> {
    let project = root().join(project);
    let dir = tools_dir()?.join(name);
    let wanted = maven_inputs(&project)? + &settings.join("\n");
    if !stamped(name, &wanted)? || !dir.exists() {
        // Jars of other versions must not stay on the class path.
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("emptying {}", dir.display()))?;
        }
        Run::new("mvn")
            .args(["--batch-mode", "--quiet", "package"])
            .args([format!("-Djava.build={}", dir.display())])
            .args(settings)
            .dir(project)
            .check()
            .context("Maven and a JDK of version 17 or later are needed for Java clients")?;
        stamp(name, &wanted)?;
    }
    Ok(dir.join("lib"))
}

/// The text of every file that a build of a Maven project reads.
fn maven_inputs(project: &Path) -> Result<String> {
    let mut files = vec![project.join("pom.xml")];
    // A project that only fetches jars has no sources.
    let mut dirs: Vec<PathBuf> = [project.join("src")].into_iter().filter(|dir| dir.exists()).collect();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    let read = |path: PathBuf| fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()));
    files.into_iter().map(read).collect()
}

/// A Python with the packages of `tests/clients/python/requirements.txt`.
pub fn python() -> Result<PathBuf> {
    python_with("venv", "tests/clients/python/requirements.txt")
}

/// A Python with the clients of gateways.
pub fn gateway_python() -> Result<PathBuf> {
    python_with("hbase-gateways-venv", "tests/clients/hbase-gateways/requirements.txt")
}

/// A Python with the server of AWS KMS.
pub fn kms_python() -> Result<PathBuf> {
    python_with("kms-venv", "tests/kms/requirements.txt")
}

/// The transit engine of Vault as a program. Building it takes some minutes, once.
pub fn transit() -> Result<PathBuf> {
    go_build("transit", "tests/kms/vault", ".")
}

/// An etcd of a newer version than Debian has. Building it takes a minute, once.
pub fn newer_etcd() -> Result<PathBuf> {
    go_build("newer-etcd", "tests/etcd", ".")
}

fn python_with(name: &str, requirements: &str) -> Result<PathBuf> {
    let requirements = root().join(requirements);
    let wanted = fs::read_to_string(&requirements).with_context(|| format!("reading {}", requirements.display()))?;
    let venv = tools_dir()?.join(name);
    let python = venv.join("bin/python");
    if !stamped(name, &wanted)? || !python.exists() {
        Run::new("python3")
            .args(["-m", "venv", "--clear"])
            .args([&venv])
            .check()?;
        pip_install(&python)
            .args(["--requirement"])
            .args([&requirements])
            .check()?;
        stamp(name, &wanted)?;
    }
    Ok(python)
}

/// `pip install` by this Python, without its chatter.
fn pip_install(python: &Path) -> Run {
    Run::new(python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
}

/// The folder with the `libclang` that generates bindings to C++; a Python package carries it.
pub fn libclang() -> Result<PathBuf> {
    let dir = tools_dir()?.join("libclang");
    if !stamped("libclang", LIBCLANG)? {
        pip_install(&python()?)
            .args(["--upgrade", LIBCLANG, "--target"])
            .args([&dir])
            .check()?;
        stamp("libclang", LIBCLANG)?;
    }
    Ok(dir.join("clang/native"))
}

/// `cargo fuzz`.
pub fn cargo_fuzz() -> Result<PathBuf> {
    cargo_install("cargo-fuzz", CARGO_FUZZ)
}

/// `cargo deny`.
pub fn cargo_deny() -> Result<PathBuf> {
    cargo_install("cargo-deny", CARGO_DENY)
}

/// A program of this version, installed next to the others.
fn cargo_install(name: &str, version: &str) -> Result<PathBuf> {
    let dir = tools_dir()?;
    let program = dir.join("bin").join(name);
    if !stamped(name, version)? || !program.exists() {
        Run::new("cargo")
            .args(["install", "--locked", "--quiet", name, "--version", version, "--root"])
            .args([&dir])
            .check()?;
        stamp(name, version)?;
    }
    Ok(program)
}

fn stamp_path(name: &str) -> Result<PathBuf> {
    Ok(tools_dir()?.join(format!("{name}.stamp")))
}

fn stamped(name: &str, wanted: &str) -> Result<bool> {
    Ok(fs::read_to_string(stamp_path(name)?).is_ok_and(|have| have == wanted))
}

fn stamp(name: &str, value: &str) -> Result<()> {
    Ok(fs::write(stamp_path(name)?, value)?)
}
