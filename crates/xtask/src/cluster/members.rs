//! An etcd of three members.

use crate::launch;
use crate::server::{Process, Scratch, free_address};
use crate::shell::Run;
use crate::tools;
use anyhow::Result;

/// As many as tolerate the failure of one.
const MEMBERS: usize = 3;

/// Its members; killed when dropped.
pub struct Members {
    clients: Vec<String>,
    _processes: Vec<Process>,
}

impl Members {
    /// Starts them with empty data.
    pub fn start(scratch: &Scratch) -> Result<Members> {
        let program = tools::etcd()?;
        let addresses = || (0..MEMBERS).map(|_| free_address()).collect::<Result<Vec<String>>>();
        let (clients, peers) = (addresses()?, addresses()?);
        let all: Vec<String> = peers
            .iter()
            .enumerate()
            .map(|(at, peer)| format!("m{at}=http://{peer}"))
            .collect();
        let mut processes = Vec::new();
        for (at, (client, peer)) in clients.iter().zip(&peers).enumerate() {
            let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
            let command = Run::new(&program)
                .args(["--name", &format!("m{at}"), "--data-dir"])
                .args([scratch.join(&format!("etcd-{at}"))])
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
                .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"]);
            let log = scratch.join(&format!("etcd-{at}.log"));
            processes.push(launch::spawned("a member of etcd", command, &log)?);
        }
        for (process, client) in processes.iter_mut().zip(&clients) {
            launch::wait("a member of etcd", process, || {
                std::net::TcpStream::connect(client).is_ok()
            })?;
        }
        Ok(Members {
            clients,
            _processes: processes,
        })
    }

    /// The address of a coordinator of this name.
    pub fn url(&self, name: &str) -> String {
        format!("etcd://{}/{name}", self.clients.join(","))
    }
}
