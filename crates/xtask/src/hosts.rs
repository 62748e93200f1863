//! Hosts of tests: this machine, or network namespaces with links that can be cut.
//!
//! A [`Network`] needs no rights: [`enter`] runs this program again in namespaces of its own. They end with their processes,
//! so nothing is left behind after a crash.

use crate::server::{Process, free_address};
use crate::shell::Run;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Set in the program that runs inside.
const ENTERED: &str = "STELE_XTASK_IN_NAMESPACE";
/// The host of this program, and of clients, on the network.
const GATEWAY: &str = "10.77.0.1";
/// The bridge that joins the hosts.
pub const BRIDGE: &str = "br0";
/// The length of the prefix that all addresses share.
pub const PREFIX_BITS: u32 = 16;
/// A hardware address that nobody has: packets for it vanish, as in a cable that is cut.
const NOBODY: &str = "02:00:00:00:00:ff";
/// A namespace is there in milliseconds.
const HOLDER_WAIT: Duration = Duration::from_secs(5);
/// The first port of servers on a host of its own.
const FIRST_PORT: u16 = 7001;

/// Whether this process is in a namespace that it may change.
pub fn entered() -> bool {
    std::env::var_os(ENTERED).is_some()
}

/// Runs this program again with the same arguments, in a network namespace of its own; whether it succeeded.
pub fn enter() -> Result<bool> {
    run_again(&["--user", "--map-root-user", "--net"], std::env::args_os().skip(1))
}

/// Runs this program with these arguments in namespaces of networks and mounts of their own; whether it succeeded. For root.
pub fn enter_as_root(arguments: &[&str]) -> Result<bool> {
    let namespaces = ["--net", "--mount", "--propagation", "private"];
    run_again(&namespaces, arguments.iter().map(OsString::from))
}

fn run_again(namespaces: &[&str], arguments: impl Iterator<Item = OsString>) -> Result<bool> {
    let program = std::env::current_exe().context("finding this program")?;
    Run::new("unshare")
        .args(namespaces)
        .args(["--"])
        .args([program])
        .args(arguments)
        .env(ENTERED, "1")
        .succeeds()
        .context("networks need `unshare` and `nsenter` (util-linux) and `ip` (iproute2)")
}

/// A network of hosts that are namespaces. This program and its clients are on it, too.
pub struct Network {
    hosts: u32,
}

impl Network {
    /// Makes it, in a process that is [`entered`].
    pub fn new() -> Result<Network> {
        ensure!(entered(), "a network is made in a namespace of its own");
        ip("link set lo up")?;
        ip(&format!("link add {BRIDGE} type bridge"))?;
        ip(&format!("link set {BRIDGE} up"))?;
        ip(&format!("addr add {GATEWAY}/{PREFIX_BITS} dev {BRIDGE}"))?;
        Ok(Network { hosts: 0 })
    }

    /// One more host.
    pub fn host(&mut self) -> Result<Host> {
        self.hosts += 1;
        let number = self.hosts;
        ensure!(number < 65_000, "too many hosts");
        let address = format!("10.77.{}.{}", (number + 1) / 250, (number + 1) % 250 + 1);
        let own = network_of("self")?;
        let holder = Run::new("unshare")
            .args(["--net", "sleep", "infinity"])
            .into_command()
            .stdin(Stdio::null())
            .spawn()
            .context("making a namespace")?;
        let pid = holder.id();
        let holder = Process::new(holder);
        let deadline = Instant::now() + HOLDER_WAIT;
        while network_of(&pid.to_string())? == own {
            ensure!(
                Instant::now() < deadline,
                "a namespace is not there after {HOLDER_WAIT:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let namespace = Namespace {
            _holder: holder,
            pid,
            address,
        };
        ip(&format!("link add v{number} type veth peer name eth0 netns {pid}"))?;
        ip(&format!("link set v{number} master {BRIDGE} up"))?;
        namespace.ip("link set lo up")?;
        namespace.ip(&format!("addr add {}/{PREFIX_BITS} dev eth0", namespace.address))?;
        namespace.ip("link set eth0 up")?;
        Ok(Host {
            namespace: Some(namespace),
        })
    }
}

/// A machine, as far as its network goes.
pub struct Host {
    namespace: Option<Namespace>,
}

struct Namespace {
    _holder: Process,
    pid: u32,
    address: String,
}

impl Host {
    /// This machine's loopback.
    pub fn local() -> Host {
        Host { namespace: None }
    }

    /// A program that runs there.
    pub fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Run {
        match &self.namespace {
            None => Run::new(program),
            Some(namespace) => namespace.program(program),
        }
    }

    /// Addresses that nobody listens on.
    pub fn addresses<const N: usize>(&self) -> Result<[String; N]> {
        let mut addresses = [const { String::new() }; N];
        for (address, port) in addresses.iter_mut().zip(FIRST_PORT..) {
            *address = match &self.namespace {
                None => free_address()?,
                Some(namespace) => format!("{}:{port}", namespace.address),
            };
        }
        Ok(addresses)
    }

    /// Whether its addresses are seen by other hosts.
    pub fn is_remote(&self) -> bool {
        self.namespace.is_some()
    }

    /// Lets all packets from this host to another one vanish. Those of the other direction arrive.
    pub fn cut(&self, other: &Host) -> Result<()> {
        let (from, to) = self.link(other)?;
        from.ip(&format!(
            "neigh replace {} lladdr {NOBODY} dev eth0 nud permanent",
            to.address
        ))
    }

    /// Lets them arrive again.
    pub fn mend(&self, other: &Host) -> Result<()> {
        let (from, to) = self.link(other)?;
        from.ip(&format!("neigh del {} dev eth0", to.address))
    }

    fn link<'a>(&'a self, other: &'a Host) -> Result<(&'a Namespace, &'a Namespace)> {
        self.namespace
            .as_ref()
            .zip(other.namespace.as_ref())
            .context("links of this machine's loopback cannot be cut")
    }
}

impl Namespace {
    fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Run {
        Run::new("nsenter")
            .args(["--target", &self.pid.to_string(), "--net", "--"])
            .args([program])
    }

    fn ip(&self, arguments: &str) -> Result<()> {
        self.program("ip").args(arguments.split(' ')).check()
    }
}

fn ip(arguments: &str) -> Result<()> {
    Run::new("ip").args(arguments.split(' ')).check()
}

/// The identity of the network namespace of a process.
fn network_of(process: &str) -> Result<String> {
    let link = std::fs::read_link(format!("/proc/{process}/ns/net")).context("reading a namespace")?;
    Ok(link.to_string_lossy().into_owned())
}
