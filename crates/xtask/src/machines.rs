//! Machines: Debians with a systemd of their own, that boot in containers on a [`Network`].
//!
//! Each has its own view of one fresh tree, so that nobody has used it before. `systemd-nspawn` boots it. Only root can do that. They
//! end with their processes, and their mounts are seen by this program alone.
//!
//! [`Network`]: crate::hosts::Network

use crate::hosts::{BRIDGE, PREFIX_BITS};
use crate::launch;
use crate::server::Process;
use crate::shell::Run;
use crate::tools::debian;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A boot takes seconds.
const BOOT_WAIT: Duration = Duration::from_secs(90);
/// Programs that root finds.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A machine that has booted; switched off when dropped.
pub struct Machine {
    name: String,
    address: String,
    root: PathBuf,
    /// The id of its process 1, as this machine counts.
    init: u32,
    container: Process,
}

/// Prepares this program's view of the machine for boots. It is in a namespace that root has entered.
pub fn prepare() -> Result<()> {
    // It refuses to work in a folder of a disk.
    let of_containers = "/run/systemd/nspawn";
    fs::create_dir_all(of_containers)?;
    Run::new("mount").args(["-t", "tmpfs", "tmpfs", of_containers]).check()
}

impl Machine {
    /// Boots one. `others` are names of hosts with their addresses.
    pub fn boot(name: &str, address: &str, others: &[(String, String)], folder: &Path) -> Result<Machine> {
        let root = mounted(folder)?;
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::write(&path, text).with_context(|| path.display().to_string())
        };
        let hosts = others.iter().map(|(name, address)| format!("{address} {name}\n"));
        put(
            "etc/hosts",
            &format!("127.0.0.1 localhost\n{}", hosts.collect::<String>()),
        )?;
        put("etc/hostname", name)?;
        // Before the settings that Debian has for the link of a container.
        let link = format!("[Match]\nName=host0\n\n[Network]\nAddress={address}/{PREFIX_BITS}\n");
        put("etc/systemd/network/10-host0.network", &link)?;
        put("etc/machine-id", "")?;
        let system = root.join("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&system)?;
        let networkd = "systemd-networkd.service";
        if !system.join(networkd).is_symlink() {
            std::os::unix::fs::symlink(format!("/lib/systemd/system/{networkd}"), system.join(networkd))?;
        }
        let command = debian::nspawn()?
            .args(["--register=no", "--keep-unit", "--quiet", "--resolv-conf=off", "--boot"])
            .args([&format!("--machine={name}"), &format!("--network-bridge={BRIDGE}")])
            .args(["--directory".as_ref(), root.as_os_str()]);
        let container = launch::spawned(name, command, &folder.join("boot.log"))?;
        let mut machine = Machine {
            name: name.to_owned(),
            address: address.to_owned(),
            root,
            init: 0,
            container,
        };
        machine.wait()?;
        Ok(machine)
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + BOOT_WAIT;
        let mut state = String::new();
        loop {
            ensure!(
                self.container.ended()?.is_none() && Instant::now() < deadline,
                "{} does not boot, its state is {state:?}; see its boot.log",
                self.name
            );
            std::thread::sleep(Duration::from_millis(200));
            let pid = self.container.pid();
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            let Some(init) = children.split_whitespace().next() else {
                continue;
            };
            self.init = init.parse()?;
            // Earlier it is in some of its namespaces only.
            let is_inside = fs::read_to_string(format!("/proc/{init}/comm")).is_ok_and(|name| name.trim() == "systemd");
            if is_inside {
                state = self.state()?;
            }
            if state == "running" {
                return Ok(());
            }
        }
    }

    /// The word of its systemd for its state.
    fn state(&self) -> Result<String> {
        let output = self
            .program("systemctl")
            .args(["is-system-running"])
            .into_command()
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// A program that runs there as root, with an environment of its own.
    pub fn program(&self, program: &str) -> Run {
        Run::new("nsenter")
            .args(["--target", &self.init.to_string(), "--all", "--"])
            .args(["env", "-i", &format!("PATH={PATH}"), "HOME=/root", "TERM=dumb", program])
    }

    /// The output of a line of the shell there, which must succeed.
    pub fn shell(&self, line: &str) -> Result<String> {
        let output = self.program("sh").args(["-c", &format!("cd /root && {line}")]).output();
        output.with_context(|| format!("on {}", self.name))
    }

    /// A file of it, as this program sees it.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the network.
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// The tree of a machine below the folder: the common one, with changes of its own.
fn mounted(folder: &Path) -> Result<PathBuf> {
    let [changes, work, root] = ["changes", "work", "root"].map(|name| folder.join(name));
    for folder in [&changes, &work, &root] {
        fs::create_dir_all(folder)?;
    }
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        debian::tree()?.display(),
        changes.display(),
        work.display()
    );
    Run::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &layers])
        .args([&root])
        .check()?;
    Ok(root)
}

impl Drop for Machine {
    fn drop(&mut self) {
        // All its processes end with its first one. There is nobody to tell of failures.
        if let Some(init) = i32::try_from(self.init).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(init, rustix::process::Signal::KILL);
        }
        let _ = self.container.kill();
        let _ = Run::new("umount").args(["--lazy"]).args([&self.root]).succeeds();
    }
}
