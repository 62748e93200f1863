//! Runs HBase's shell, its gateways, and clients of other versions.
//!
//! All but one are told a ZooKeeper quorum only, as their users would configure them. A gateway is a server of its own,
//! which a client of its protocol drives; both end with the check. Jars and packages come from their registries.

use super::tools::{show, timed};
use crate::rival::site::Site;
use crate::server::free_address;
use crate::shell::{Run, root, target_dir};
use crate::tally::Tally;
use crate::tools::{gateway_python, hbase_cases, hbase_client, hbase_gateway};
use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A JVM starts a gateway in a few seconds on an idle machine.
const START_MAX: Duration = Duration::from_secs(120);

/// The folders of the JDK that HBase and Hadoop reach into.
const OPENED: [&str; 4] = ["java.lang", "java.nio", "java.io", "sun.nio.ch"];

/// Other versions than that of the cases. The later one has another registry by default.
const CLIENTS: [&str; 2] = ["2.5.11", "3.0.0-beta-1"];

/// Warnings, on standard error.
const LOG4J: &str = "\
log4j.rootLogger=WARN,ERR
log4j.appender.ERR=org.apache.log4j.ConsoleAppender
log4j.appender.ERR.target=System.err
log4j.appender.ERR.layout=org.apache.log4j.PatternLayout
log4j.appender.ERR.layout.ConversionPattern=%p %c{2}: %m%n
";

/// The server under test, and the folder of configurations and logs.
struct Setup<'a> {
    address: &'a str,
    quorum: &'a str,
    dir: PathBuf,
}

/// Runs all whose names match; whether all were in order.
pub fn run(address: &str, quorum: &str, only: &Regex) -> Result<bool> {
    let site = Setup {
        address,
        quorum,
        dir: target_dir().join("hbase-gateways"),
    };
    site.configure()?;
    let mut tally = Tally::default();
    let mut check = |name: &str, step: &dyn Fn() -> Result<Option<String>>| -> Result<()> {
        if only.is_match(name) {
            tally.add(Tally::one(timed(name, step)?));
        }
        Ok(())
    };
    check("quorum", &|| site.quorum_only())?;
    for version in CLIENTS {
        check(&format!("client {version}"), &|| site.client(version))?;
    }
    check("shell", &|| site.shell())?;
    check("thrift", &|| {
        site.gateway("thrift", "org.apache.hadoop.hbase.thrift.ThriftServer", "happy.py")
    })?;
    check("rest", &|| {
        site.gateway("rest", "org.apache.hadoop.hbase.rest.RESTServer", "rest.py")
    })?;
    ensure!(tally.passed + tally.failed > 0, "no gateway is called {only}");
    println!(
        "{} passed, {} failed; logs in {}",
        tally.passed,
        tally.failed,
        site.dir.display()
    );
    Ok(tally.failed == 0)
}

impl Setup<'_> {
    /// Writes the configuration that the shell and the gateways read.
    fn configure(&self) -> Result<()> {
        fs::create_dir_all(&self.dir).with_context(|| format!("making {}", self.dir.display()))?;
        let mut site = Site::new();
        site.set("hbase.zookeeper.quorum", self.quorum)
            // A server that fails is to be seen in minutes, not in hours.
            .set("hbase.client.retries.number", 8)
            .set("hbase.rpc.timeout", 30_000)
            .set("hbase.client.operation.timeout", 60_000);
        for (file, text) in [("hbase-site.xml", site.xml()), ("log4j.properties", LOG4J.to_owned())] {
            let path = self.dir.join(file);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    fn log(&self, name: &str) -> Result<(PathBuf, File)> {
        let path = self.dir.join(format!("{name}.log"));
        let file = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
        Ok((path, file))
    }

    /// A JVM with these jars and the configuration.
    fn java(&self, jars: &Path) -> Run {
        let opened = OPENED
            .iter()
            .flat_map(|package| ["--add-opens".to_owned(), format!("java.base/{package}=ALL-UNNAMED")]);
        let class_path = format!("{}:{}/*", self.dir.display(), jars.display());
        Run::new("java")
            .args(["-Xmx512m", "-XX:+UseSerialGC"])
            .args(opened)
            .args(["-cp".to_owned(), class_path])
    }

    /// The client of the cases, told the quorum and nothing else.
    fn quorum_only(&self) -> Result<Option<String>> {
        let java = self.java(&hbase_cases()?);
        self.ends_well("quorum", java.args(["stele.clients.hbase.Quorum", self.quorum]))
    }

    fn client(&self, version: &str) -> Result<Option<String>> {
        let settings = match version.starts_with('3') {
            true => format!("hbase.client.bootstrap.servers={}", self.address),
            false => format!("hbase.zookeeper.quorum={}", self.quorum),
        };
        let java = self.java(&hbase_client(version)?);
        let name = format!("client-{version}");
        self.ends_well(
            &name,
            java.args(["stele.clients.roundtrip.RoundTrip".to_owned(), settings]),
        )
    }

    fn shell(&self) -> Result<Option<String>> {
        let java = self.java(&hbase_gateway("shell")?);
        self.ends_well(
            "shell",
            java.args(["org.jruby.JarBootstrapMain", "-n"])
                .args([sources().join("shell.rb")]),
        )
    }

    /// Starts a gateway on a free port, and runs the program that uses it.
    fn gateway(&self, name: &str, main: &str, program: &str) -> Result<Option<String>> {
        let (python, jars) = (gateway_python()?, hbase_gateway(name)?);
        let address = free_address()?;
        let port = address.rsplit(':').next().context("an address has a port")?;
        let (path, log) = self.log(name)?;
        let mut command = self
            .java(&jars)
            .args([main, "start", "-p", port, "--infoport", "-1"])
            .into_command();
        command.stdout(Stdio::null()).stderr(log);
        let mut gateway = Gateway(command.spawn().with_context(|| format!("starting {main}"))?);
        gateway
            .wait_for(&address)
            .with_context(|| format!("see {}", path.display()))?;
        self.ends_well(
            &format!("{name}-client"),
            Run::new(python).args([sources().join(program)]).args([port]),
        )
    }

    /// Its fault, if it had one; its output is shown then.
    fn ends_well(&self, name: &str, command: Run) -> Result<Option<String>> {
        let (path, log) = self.log(name)?;
        let mut output = Vec::new();
        if command.errors_to(log).lines(|line| output.push(line.to_owned()))? {
            return Ok(None);
        }
        show(&output);
        let errors = fs::read_to_string(&path).unwrap_or_default();
        show(&errors.lines().map(str::to_owned).collect::<Vec<_>>());
        Ok(Some(format!("it ended with a failure; see {}", path.display())))
    }
}

fn sources() -> PathBuf {
    root().join("tests/clients/hbase-gateways")
}

/// A gateway; it ends with this value.
struct Gateway(Child);

impl Gateway {
    fn wait_for(&mut self, address: &str) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.0.try_wait()? {
                bail!("the gateway ended with {status}");
            }
            ensure!(
                Instant::now() < deadline,
                "the gateway did not listen on {address} within {START_MAX:?}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
