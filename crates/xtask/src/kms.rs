//! Encryption at rest with keys in key management services, by the real process.
//!
//! AWS KMS is moto's, which checks signatures and permissions; it is a Python program of PyPI. Vault is the transit engine of Vault's
//! own packages behind a small HTTP server. One data root goes from a key file to AWS KMS, to another key there, and to Vault. At
//! each stop the former key must be unnecessary, and all rows must be there.

use crate::launch;
use crate::server::{self, Process, Scratch, Server, Start, free_address};
use crate::shell::{Run, root};
use crate::tally::Tally;
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

/// Time of a command of a client.
const CLIENT_LIMIT: Duration = Duration::from_secs(20);
/// Seconds of an offline command, or of a start that fails: it asks a service some times.
const COMMAND_LIMIT: &str = "60";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
/// The only token that the transit engine accepts.
const TOKEN: &str = "secret";

/// Whether data could always be read with the right key, and never without it.
pub fn check() -> Result<Tally> {
    server::build()?;
    let scratch = Scratch::new("kms")?;
    let aws = Aws::start(&scratch)?;
    let vault = Vault::start(&scratch)?;
    let data = Data {
        folder: scratch.join("data"),
        log: scratch.join("server.log"),
        environment: vec![
            ("AWS_ACCESS_KEY_ID", aws.access.0.clone()),
            (SECRET, aws.access.1.clone()),
            ("AWS_ENDPOINT_URL_KMS", format!("http://{}", aws.address)),
            ("VAULT_TOKEN", TOKEN.to_owned()),
        ],
        rows: 0,
    };
    journey(data, &aws, &vault)?;
    scratch.passed();
    Ok(Tally::one(true))
}

/// A data root, and the environment of its servers.
struct Data {
    folder: PathBuf,
    log: PathBuf,
    environment: Vec<(&'static str, String)>,
    /// Rows that were acknowledged.
    rows: u32,
}

fn journey(mut data: Data, aws: &Aws, vault: &Vault) -> Result<()> {
    let file = data.folder.with_extension("keys");
    fs::write(&file, format!("file {}\n", "5a".repeat(32)))?;
    let file = file.display().to_string();
    let from_file = ["--encryption-key-file", &file];
    data.write(&from_file, true)?;

    let first = format!("aws-kms://{}/alias/stele", Aws::REGION);
    let alias = ["--encryption-kms", &first[..]];
    data.refused(&alias, "among the given ones")?;
    data.write(&[&alias[..], &from_file].concat(), false)?;
    data.wrapped_by(&alias, &format!("aws.{}", aws.keys[0]))?;
    println!("from a key file to AWS KMS: done");

    data.refused(&[], "is encrypted")?;
    data.refused(&from_file, "among the given ones")?;
    // The last value of a variable counts.
    data.environment.push((SECRET, "wrong".to_owned()));
    data.refused(&alias, "403")?;
    data.environment.pop();
    let second = format!("aws-kms://{}/{}", Aws::REGION, aws.keys[1]);
    data.refused(&["--encryption-kms", &second], "among the given ones")?;
    let both = format!("{second},{first}");
    data.write(&["--encryption-kms", &both], false)?;
    data.wrapped_by(&["--encryption-kms", &second], &format!("aws.{}", aws.keys[1]))?;
    println!("to another key of AWS KMS: done; without one, with a wrong one, or signed wrongly: refused");

    data.outlives(&["--encryption-kms", &second], aws)?;
    println!("a server goes on while AWS KMS does not answer");

    let transit = format!("vault+http://{}/transit/stele", vault.address);
    let moving = format!("{transit},{second}");
    data.write(&["--encryption-kms", &moving], false)?;
    let alone = ["--encryption-kms", &transit[..]];
    data.wrapped_by(&alone, "vault.transit.stele.v1")?;
    vault.ask("keys/stele/rotate")?;
    data.write(&alone, false)?;
    data.wrapped_by(&alone, "vault.transit.stele.v2")?;
    println!("to Vault, and to a new version of its key: done");
    Ok(())
}

impl Data {
    fn start(&self, keys: &[&str]) -> Result<Server> {
        let start = Start {
            data: &self.folder,
            log: &self.log,
            arguments: &[&["--memory", "128MiB", "--hbase", "off"], keys].concat(),
        };
        let environment: Vec<(&str, &str)> = self
            .environment
            .iter()
            .map(|(name, value)| (*name, &value[..]))
            .collect();
        Server::start_with(&start, &environment)
    }

    /// An offline command or a start that is to fail.
    fn command(&self, arguments: &[&str]) -> Result<Output> {
        let run = Run::new("timeout").args([COMMAND_LIMIT]).args([server::stele()]);
        let mut command = run.args(arguments).into_command();
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        Ok(command.output()?)
    }

    /// Starts a server, reads all rows, writes one to the log, kills it, and finds all of them after a further start, which flushes.
    fn write(&mut self, keys: &[&str], is_first: bool) -> Result<()> {
        let mut server = self.start(keys)?;
        if is_first {
            says(&server, &["create-table", "main/t", "--family", "f"])?;
        }
        self.all_rows(&server)?;
        self.put(&server)?;
        server.process().kill()?;
        let mut server = self.start(keys)?;
        self.all_rows(&server)?;
        server.process().terminate()
    }

    fn put(&mut self, server: &Server) -> Result<()> {
        let row = format!("row-{}", self.rows);
        says(server, &["put", "main/t", &row, "f:q=value"])?;
        self.rows += 1;
        Ok(())
    }

    fn all_rows(&self, server: &Server) -> Result<()> {
        let text = says(server, &["scan", "main/t", "--limit", "0"])?;
        for row in 0..self.rows {
            ensure!(text.contains(&format!("row-{row}")), "row {row} is gone:\n{text}");
        }
        Ok(())
    }

    /// A start fails with this text, and changes no key.
    fn refused(&self, keys: &[&str], why: &str) -> Result<()> {
        let before = self.keys()?;
        let (bigtable, http, folder) = (free_address()?, free_address()?, self.folder.display().to_string());
        let places = [
            "start",
            "--hbase",
            "off",
            "--bigtable",
            &bigtable,
            "--http",
            &http,
            "--data",
            &folder,
        ];
        let output = self.command(&[&places, keys].concat())?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && text.contains(why), "not {why:?}:\n{text}");
        ensure!(self.keys()? == before, "a refused start has changed the keys");
        Ok(())
    }

    /// All data keys are wrapped by this key alone, and with it every file can be read.
    fn wrapped_by(&self, keys: &[&str], id: &str) -> Result<()> {
        for (file, _) in self.keys()? {
            let text = self.command(&["inspect", &file])?;
            let text = String::from_utf8_lossy(&text.stdout).into_owned();
            let by = text.lines().find_map(|line| line.strip_prefix("wrapped by"));
            ensure!(
                by.is_some_and(|by| by.trim().starts_with(id)),
                "{file} is not by {id}:\n{text}"
            );
        }
        let folder = self.folder.display().to_string();
        let checked = self.command(&[&["check", "--data", &folder], keys].concat())?;
        let text = String::from_utf8_lossy(&checked.stderr);
        ensure!(checked.status.success(), "the check fails:\n{text}");
        Ok(())
    }

    /// The files of the data keys, with their contents.
    fn keys(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.folder.join("encryption"))? {
            let path = entry?.path();
            files.push((path.display().to_string(), fs::read(&path)?));
        }
        files.sort();
        Ok(files)
    }

    /// Rows of known tables are written and read while the service does not answer. A new table is written, and its files wait.
    fn outlives(&mut self, keys: &[&str], aws: &Aws) -> Result<()> {
        let mut server = self.start(keys)?;
        aws.process.pause()?;
        self.put(&server)?;
        says(&server, &["create-table", "main/new", "--family", "f"])?;
        says(&server, &["put", "main/new", "row", "f:q=value"])?;
        self.all_rows(&server)?;
        aws.process.resume()?;
        // The stop flushes, and needs a key for the files of the new table.
        server.process().terminate()?;
        let mut server = self.start(keys)?;
        self.all_rows(&server)?;
        let text = says(&server, &["scan", "main/new"])?;
        ensure!(text.contains("value"), "the row of the new table is gone:\n{text}");
        server.process().terminate()
    }
}

fn says(server: &Server, arguments: &[&str]) -> Result<String> {
    server::command(server.address(), CLIENT_LIMIT, arguments)
}

/// AWS KMS by moto.
struct Aws {
    process: Process,
    address: String,
    access: (String, String),
    keys: [String; 2],
}

impl Aws {
    const REGION: &str = "eu-west-1";

    fn start(scratch: &Scratch) -> Result<Aws> {
        let python = tools::kms_python()?;
        let address = free_address()?;
        let port = address.rsplit(':').next().context("an address with a port")?;
        let told = scratch.join("aws.log");
        let command = Run::new(python).args([root().join("tests/kms/aws.py")]).args([port]);
        let mut process = launch::spawned("moto", command, &told)?;
        let line = || {
            let text = fs::read_to_string(&told).unwrap_or_default();
            let words =
                |line: &str| <[String; 5]>::try_from(line.split(' ').map(str::to_owned).collect::<Vec<_>>()).ok();
            text.lines().filter_map(words).find(|words| words[0] == "ready")
        };
        launch::wait("moto", &mut process, || line().is_some())?;
        let [_, id, secret, first, second] = line().context("moto is ready")?;
        Ok(Aws {
            process,
            address,
            access: (id, secret),
            keys: [first, second],
        })
    }
}

/// The transit engine of Vault.
struct Vault {
    _process: Process,
    address: String,
}

impl Vault {
    fn start(scratch: &Scratch) -> Result<Vault> {
        let address = free_address()?;
        let command = Run::new(tools::transit()?).args([&address]);
        let process = launch::listening("transit", command, &address, &scratch.join("vault.log"))?;
        let vault = Vault {
            _process: process,
            address,
        };
        vault.ask("keys/stele")?;
        Ok(vault)
    }

    /// A request without a body.
    fn ask(&self, path: &str) -> Result<()> {
        let mut stream = TcpStream::connect(&self.address)?;
        let host = &self.address;
        write!(
            stream,
            "POST /v1/transit/{path} HTTP/1.1\r\nHost: {host}\r\nX-Vault-Token: {TOKEN}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.starts_with("HTTP/1.1 20"), "{path}: {answer}");
        Ok(())
    }
}
