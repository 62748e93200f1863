//! A trial of the package on three fresh machines, as its page tells.
//!
//! The machines are Debians that boot in containers, with systemd; etcd and an S3 server exist. The settings and the first commands are
//! those of the page, with the addresses of the machines. Each step prints a line and the time from the beginning.

use super::source;
use crate::cluster::members::Members;
use crate::hosts::{self, Network};
use crate::machines::{self, Machine};
use crate::server::Scratch;
use crate::shell::Run;
use crate::stores::{self, Store};
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

const PAGE: &str = "docs/installing.md";
const MACHINES: usize = 3;
/// The ports of a server that others reach, with bytes that its protocol begins with.
const PORTS: [(u16, &[u8]); 4] = [
    (8086, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
    (16020, b"HBas\0\x50\0\0\0\x08\n\x06\n\x04root"),
    (8088, b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n"),
    (7070, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
];
/// The type of a TLS record that ends a connection.
const ALERT: u8 = 21;
/// A server that systemd starts again is there within seconds.
const SERVED_WAIT: Duration = Duration::from_secs(60);
/// Less than the time after which a server reads its files without being told to.
const RELOADED_WAIT: Duration = Duration::from_secs(10);

/// Whether this process can boot machines: it is root's, may make namespaces, and runs on a Debian.
pub fn is_possible() -> bool {
    let namespaces = Run::new("unshare")
        .args(["--net", "--mount", "true"])
        .into_command()
        .output();
    rustix::process::geteuid().is_root()
        && tools::debian::on_path("dpkg-deb").is_some()
        && namespaces.is_ok_and(|output| output.status.success())
}

/// Fetches the tools of the trial. Inside, there is no network to fetch anything from.
pub fn fetch() -> Result<()> {
    ensure!(
        is_possible(),
        "only root can boot machines, on a Debian; without --machines the package is tried on this machine"
    );
    tools::debian::nspawn()?;
    tools::debian::tree()?;
    tools::debian::etcd()?;
    tools::versitygw()?;
    Ok(())
}

/// Tries the package; whether everything was in order. This process is in namespaces of its own.
pub fn run(package: &Path) -> Result<bool> {
    ensure!(hosts::entered(), "machines boot in namespaces of their own");
    machines::prepare()?;
    let scratch = Scratch::new("machines")?;
    let mut network = Network::new()?;
    let store = stores::start_s3(&scratch, &network.host()?)?;
    let etcd = Members::start(&scratch, &mut || network.host())?;
    let names = (1..=MACHINES).map(|number| (format!("node-{number}"), format!("10.77.9.{number}")));
    let names: Vec<(String, String)> = names.collect();
    let boot = |(name, address): &(String, String)| Machine::boot(name, address, &names, &scratch.join(name));
    let machines: Vec<Machine> = names.iter().map(boot).collect::<Result<_>>()?;
    let trial = Trial {
        machines: &machines,
        begun: Instant::now(),
    };
    trial.install(package)?;
    trial.secure(&etcd.url("prod"), &store)?;
    trial.first_table()?;
    trial.refuse_plain_text()?;
    trial.kill()?;
    trial.ask_clients()?;
    trial.renew()?;
    trial.remove()?;
    drop(machines);
    scratch.passed();
    Ok(true)
}

struct Trial<'a> {
    machines: &'a [Machine],
    begun: Instant,
}

impl Trial<'_> {
    fn done(&self, step: &str) {
        println!("{:5.1} s  {step}", self.begun.elapsed().as_secs_f64());
    }

    /// Installs the package on every machine. Its server serves this machine alone.
    fn install(&self, package: &Path) -> Result<()> {
        for machine in self.machines {
            fs::copy(package, machine.path("root/stele.deb"))?;
            machine.shell("dpkg --install stele.deb")?;
            machine.shell("systemctl is-active stele && stele create-table shop/orders --family f && stele tables")?;
            let open = TcpStream::connect((machine.address(), 8086)).is_ok();
            ensure!(!open, "{} serves others before it is told to", machine.name());
        }
        self.done("the package is installed on 3 machines; each server serves its own machine");
        Ok(())
    }

    /// Makes three servers under TLS of them.
    fn secure(&self, coordinator: &str, store: &Store) -> Result<()> {
        let names = self.machines.iter().map(|machine| {
            let (name, address) = (machine.name(), machine.address());
            format!(" --server {name},{address}")
        });
        let first = self.first()?;
        first.shell(&format!(
            "stele certificates{} --client admin",
            names.collect::<String>()
        ))?;
        let (variables, options) = credentials(store.options());
        for machine in self.machines {
            let name = machine.name();
            for file in ["ca.pem".to_owned(), format!("{name}.pem"), format!("{name}.key")] {
                let from = first.path("root/certificates").join(&file);
                fs::copy(&from, machine.path("root").join(&file)).with_context(|| from.display().to_string())?;
            }
            machine.shell(&installing(name))?;
            let settings = settings(&source(PAGE)?)?
                .replace("etcd://e1:2379,e2:2379,e3:2379/prod", coordinator)
                .replace("s3://bucket", store.url())
                .replace("# For a store other than Amazon's: ", "")
                .replace("endpoint=http://host:9000,allow_http=true", &options)
                .replace("node-1", name);
            fs::write(machine.path("etc/stele/stele.toml"), settings)?;
            fs::write(machine.path("etc/stele/stele.env"), &variables)?;
        }
        for machine in self.machines {
            machine.shell("systemctl restart stele")?;
        }
        self.done("3 servers are active under TLS");
        Ok(())
    }

    /// The commands of the page, on the machine with the certificates.
    fn first_table(&self) -> Result<()> {
        let first = self.first()?;
        let output = first.shell(&commands(&source(PAGE)?)?.join(" && "))?;
        ensure!(output.contains("new"), "no row was read: {output}");
        for machine in self.machines {
            let name = machine.name();
            ensure!(
                output.contains(&format!("Bigtable {name}:8086")),
                "{name} is missing: {output}"
            );
        }
        self.done("a row was written through node-1 and read through node-3");
        Ok(())
    }

    /// No port serves plain text.
    fn refuse_plain_text(&self) -> Result<()> {
        for machine in self.machines {
            for (port, bytes) in PORTS {
                let answer = answer((machine.address(), port), bytes)?;
                ensure!(
                    answer.first() == Some(&ALERT),
                    "{}:{port} does not refuse plain text by an alert: {answer:?}",
                    machine.name()
                );
            }
        }
        let first = self.first()?;
        let plain = first.shell("stele tables --address node-1:8086 2>/dev/null");
        ensure!(plain.is_err(), "a client without TLS is served");
        let untrusting = first.shell("stele tables --address https://node-1:8086 2>/dev/null");
        ensure!(untrusting.is_err(), "a client trusts an authority that nobody gave it");
        self.done("plain text is refused at 4 ports of each server");
        Ok(())
    }

    /// systemd starts a server again that was killed, and its rows are there.
    fn kill(&self) -> Result<()> {
        let first = self.first()?;
        for machine in self.machines {
            let before = machine.shell("systemctl show --property MainPID --value stele")?;
            machine.shell(&format!("kill -KILL {}", before.trim()))?;
            let deadline = Instant::now() + SERVED_WAIT;
            let status = format!(
                "[ \"$(systemctl show --property MainPID --value stele)\" != {} ] && systemctl --quiet is-active stele",
                before.trim()
            );
            while machine.shell(&status).is_err() {
                ensure!(Instant::now() < deadline, "{} is not started again", machine.name());
                std::thread::sleep(Duration::from_millis(200));
            }
            let read = format!(
                "stele get shop/orders 1 --address https://{}:8086 --tls-ca certificates/ca.pem",
                machine.name()
            );
            let row = first.shell(&read)?;
            ensure!(row.contains("new"), "the row is gone: {row}");
        }
        self.done("each server was killed, and started again by systemd; the row is there");
        Ok(())
    }

    /// With `tls_client_ca`, a client needs a certificate.
    fn ask_clients(&self) -> Result<()> {
        let first = self.first()?;
        for machine in self.machines {
            machine.shell("echo 'tls_client_ca = \"/etc/stele/ca.pem\"' >> /etc/stele/stele.toml")?;
            machine.shell("systemctl restart stele")?;
            let get = format!("stele get shop/orders 1 --address https://{}:8086", machine.name());
            let get = format!("cd certificates && {get} --tls-ca ca.pem");
            let stranger = first.shell(&format!("{get} 2>&1"));
            ensure!(
                stranger.is_err(),
                "{} serves a client without a certificate",
                machine.name()
            );
            let row = first.shell(&format!("{get} --tls-cert admin.pem --tls-key admin.key"))?;
            ensure!(row.contains("new"), "the row is gone: {row}");
        }
        self.done("each server was restarted, and serves clients with a certificate alone");
        Ok(())
    }

    /// New certificates are read without a restart.
    fn renew(&self) -> Result<()> {
        let first = self.first()?;
        let before = fs::read(first.path("root/certificates/node-1.pem"))?;
        first.shell("stele certificates --renew")?;
        ensure!(
            before != fs::read(first.path("root/certificates/node-1.pem"))?,
            "the certificate is the same"
        );
        first.shell(&format!("cd certificates && {}", installing("node-1")))?;
        first.shell("systemctl reload stele")?;
        let deadline = Instant::now() + RELOADED_WAIT;
        let read = "journalctl --unit stele --boot --no-pager | grep 'TLS goes on with the new files'";
        while first.shell(read).is_err() {
            ensure!(Instant::now() < deadline, "the new certificate is not read");
            std::thread::sleep(Duration::from_millis(100));
        }
        first.shell(
            "cd certificates && stele health --http https://node-1:8088 --tls-ca ca.pem --tls-cert admin.pem --tls-key admin.key",
        )?;
        self.done("a renewed certificate is in use after a reload");
        Ok(())
    }

    /// A stop is clean. The data of a package that is purged stay.
    fn remove(&self) -> Result<()> {
        for machine in self.machines {
            machine.shell("systemctl stop stele")?;
            let result = machine.shell("systemctl show --property Result --value stele")?;
            ensure!(result.trim() == "success", "{} stopped with {result}", machine.name());
            machine.shell("dpkg --purge stele 2>&1")?;
            ensure!(
                machine.path("var/lib/stele/data").exists(),
                "the data of {} are gone",
                machine.name()
            );
        }
        self.done("the servers stopped, and the package is purged; its data stay");
        Ok(())
    }

    fn first(&self) -> Result<&Machine> {
        self.machines.first().context("a machine")
    }
}

/// The commands that install the certificates of a server, from the folder with them.
fn installing(name: &str) -> String {
    format!("install --mode 444 ca.pem {name}.pem /etc/stele && install --owner stele --mode 400 {name}.key /etc/stele")
}

/// The first bytes that a port answers; none if it closes the connection, or is silent for a moment.
fn answer(address: (&str, u16), bytes: &[u8]) -> Result<Vec<u8>> {
    let mut socket = TcpStream::connect(address).with_context(|| format!("{address:?}"))?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    socket.write_all(bytes)?;
    let mut answer = vec![0; 512];
    let read = socket.read(&mut answer).unwrap_or(0);
    answer.truncate(read);
    Ok(answer)
}

/// The options of a store as variables, and the rest as options.
fn credentials(options: &str) -> (String, String) {
    let (mut variables, mut rest) = (String::new(), Vec::new());
    for option in options.split(',') {
        let variable = match option.split_once('=') {
            Some(("access_key_id", value)) => format!("AWS_ACCESS_KEY_ID={value}\n"),
            Some(("secret_access_key", value)) => format!("AWS_SECRET_ACCESS_KEY={value}\n"),
            Some(("region", value)) => format!("AWS_REGION={value}\n"),
            _ => {
                rest.push(option);
                continue;
            }
        };
        variables += &variable;
    }
    (variables, rest.join(","))
}

/// The part of the page about three servers by hand, up to the first table.
fn by_hand(page: &str) -> Result<&str> {
    let part = page.split_once("\nBy hand, on machines").context("no part by hand")?.1;
    Ok(part.split("\n### ").next().unwrap_or(part))
}

/// The settings of the first server.
fn settings(page: &str) -> Result<String> {
    let block = by_hand(page)?.split_once("```toml\n").context("no settings")?.1;
    Ok(block
        .split_once("```")
        .context("the settings have an end")?
        .0
        .to_owned())
}

/// The commands with the first table, which are the last ones.
fn commands(page: &str) -> Result<Vec<String>> {
    let block = by_hand(page)?.rsplit_once("```console\n").context("no commands")?.1;
    let block = block.split_once("```").context("the commands have an end")?.0;
    let lines = block.lines().map(|line| line.strip_prefix("$ ").map(str::to_owned));
    let lines: Option<Vec<String>> = lines.collect();
    match lines {
        Some(lines) if lines.iter().any(|line| line.contains("scan")) => Ok(lines),
        _ => bail!("{PAGE} does not end with the commands of a first table: {block}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_settings_and_commands() {
        let page = source(PAGE).unwrap();
        let settings = settings(&page).unwrap();
        for part in ["etcd://e1:2379,e2:2379,e3:2379/prod", "s3://bucket/prod", "\"node-1\""] {
            assert!(settings.contains(part), "{part}: {settings}");
        }
        let option = "# For a store other than Amazon's: data_option = \"endpoint=http://host:9000,allow_http=true\"";
        assert!(settings.contains(option), "{settings}");
        assert!(commands(&page).unwrap().len() >= 4);
    }

    #[test]
    fn credentials_are_variables() {
        let (variables, rest) =
            credentials("endpoint=http://h:1,allow_http=true,region=r,access_key_id=a,secret_access_key=s");
        assert_eq!(
            variables,
            "AWS_REGION=r\nAWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=s\n"
        );
        assert_eq!(rest, "endpoint=http://h:1,allow_http=true");
    }
}
