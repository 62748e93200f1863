//! An etcd of three members.

use crate::hosts::Host;
use crate::launch;
use crate::server::{Process, Scratch};
use crate::tools;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// As many as tolerate the failure of one.
const MEMBERS: usize = 3;

/// Its members; killed when dropped.
pub struct Members {
    members: Vec<Member>,
    /// `--initial-cluster`.
    all: String,
}

struct Member {
    name: String,
    host: Host,
    client: String,
    peer: String,
    data: PathBuf,
    log: PathBuf,
    process: Option<Process>,
}

/// The folder of a member's data.
fn folder(at: usize) -> String {
    format!("etcd-{at}")
}

impl Members {
    /// Starts them with empty data.
    pub fn start(scratch: &Scratch, host: &mut dyn FnMut() -> Result<Host>) -> Result<Members> {
        let mut members = Vec::new();
        for at in 0..MEMBERS {
            let host = host()?;
            let [client, peer] = host.addresses()?;
            members.push(Member {
                name: format!("m{at}"),
                host,
                client,
                peer,
                data: scratch.join(&folder(at)),
                log: scratch.join(&format!("{}.log", folder(at))),
                process: None,
            });
        }
        let all: Vec<String> = members
            .iter()
            .map(|member| format!("{}=http://{}", member.name, member.peer))
            .collect();
        let mut members = Members {
            members,
            all: all.join(","),
        };
        for member in &mut members.members {
            member.start(&members.all)?;
        }
        for member in &mut members.members {
            member.wait()?;
        }
        Ok(members)
    }

    /// The address of a coordinator of this name.
    pub fn url(&self, name: &str) -> String {
        let clients: Vec<&str> = self.members.iter().map(|member| member.client.as_str()).collect();
        format!("etcd://{}/{name}", clients.join(","))
    }

    /// The names and ids of the processes that run. The names are those of their logs.
    pub fn pids(&self) -> impl Iterator<Item = (String, u32)> {
        let numbered = self.members.iter().enumerate();
        numbered.filter_map(|(at, member)| Some((folder(at), member.process.as_ref()?.pid())))
    }

    /// The hosts of the members.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.members.iter().map(|member| &member.host)
    }

    /// Kills one of them, counted around.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        let member = self.members.get_mut(number % MEMBERS).context("no member")?;
        member.process.take().context("it runs")?.kill()
    }

    /// Starts those again that were killed.
    pub fn restart(&mut self) -> Result<()> {
        for member in self.members.iter_mut().filter(|member| member.process.is_none()) {
            member.start(&self.all)?;
            member.wait()?;
        }
        Ok(())
    }

    /// Stops all of them for a while, or lets them go on.
    pub fn pause(&self, pause: bool) -> Result<()> {
        let processes = self.members.iter().filter_map(|member| member.process.as_ref());
        for process in processes {
            if pause { process.pause()? } else { process.resume()? }
        }
        Ok(())
    }
}

impl Member {
    fn start(&mut self, all: &str) -> Result<()> {
        let (client_url, peer_url) = (format!("http://{}", self.client), format!("http://{}", self.peer));
        let command = self
            .host
            .program(tools::debian::etcd()?)
            .args(["--name", &self.name, "--data-dir"])
            .args([&self.data])
            .args([
                "--listen-client-urls",
                &client_url,
                "--advertise-client-urls",
                &client_url,
            ])
            .args([
                "--listen-peer-urls",
                &peer_url,
                "--initial-advertise-peer-urls",
                &peer_url,
            ])
            .args(["--initial-cluster", all, "--initial-cluster-state", "new"]);
        self.process = Some(launch::spawned("a member of etcd", command, &self.log)?);
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let process = self.process.as_mut().context("it was started")?;
        launch::wait("a member of etcd", process, || {
            std::net::TcpStream::connect(&self.client).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::Run;

    #[test]
    fn all_processes_have_names_of_their_own() {
        let process = || Process::new(Run::new("sleep").args(["60"]).into_command().spawn().unwrap());
        let member = |process| Member {
            name: String::new(),
            host: Host::local(),
            client: String::new(),
            peer: String::new(),
            data: PathBuf::new(),
            log: PathBuf::new(),
            process,
        };
        let members = Members {
            members: vec![member(Some(process())), member(None), member(Some(process()))],
            all: String::new(),
        };
        // One that was killed keeps its number.
        let names: Vec<String> = members.pids().map(|(name, _)| name).collect();
        assert_eq!(names, ["etcd-0", "etcd-2"]);
    }
}
