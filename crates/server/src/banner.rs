//! The text of a server that is ready: its addresses, and a first command.

use std::net::SocketAddr;
use std::path::Path;
use stele_settings::{AccessConfig, Config, sizes};

/// Addresses that the server listens on.
pub struct Addresses {
    /// Of the Bigtable API.
    pub bigtable: SocketAddr,
    /// Of the HBase API.
    pub hbase: Option<SocketAddr>,
    /// Of ZooKeeper's protocol.
    pub facade: Option<SocketAddr>,
    /// Of health, metrics and the console.
    pub http: SocketAddr,
}

/// The text for these settings, and for data as `data` describes them.
pub fn banner(config: &Config, addresses: &Addresses, data: &str) -> String {
    let hbase = addresses.hbase.map_or_else(|| "off".to_owned(), |at| at.to_string());
    let facade = addresses.facade.map(|at| format!(", ZooKeeper facade {at}"));
    let scheme = if config.security.tls.is_some() { "https" } else { "http" };
    let pages = format!("{scheme}://{}", reached(config, addresses.http));
    format!(
        "Stele {version} is ready.\n  data       {data}\n  memory     {memory}, durability {durability:?}\n  Bigtable   \
         {bigtable}\n  HBase      {hbase}{facade}\n  health     {pages}/readyz   metrics {pages}/metrics\n  console    \
         {pages}/\n{first_steps}",
        version = env!("CARGO_PKG_VERSION"),
        memory = sizes::show_bytes(config.memory),
        durability = config.durability,
        bigtable = addresses.bigtable,
        facade = facade.unwrap_or_default(),
        first_steps = first_steps(config, &reached(config, addresses.bigtable)),
    )
}

/// A command that the operator can run next, for the API at `bigtable`.
fn first_steps(config: &Config, bigtable: &str) -> String {
    let Some(tls) = &config.security.tls else {
        return format!(
            "Connect with any Bigtable client:\n  export BIGTABLE_EMULATOR_HOST={bigtable}\n  cbt -project stele -instance main \
             createtable greetings families=g\n"
        );
    };
    let peers = config.cluster.as_ref().and_then(|of| of.connections.peers.as_ref());
    // With a certificate of their own for each other, their authority may be another one.
    let authority = peers.filter(|peers| peers.certificate == tls.certificate);
    let authority = authority.map_or(Path::new("CA.pem"), |peers| &peers.authorities);
    let mut command = format!(
        "stele tables --address https://{bigtable} --tls-ca {}",
        authority.display()
    );
    if tls.client_ca.is_some() && tls.requires_client {
        command.push_str(" --tls-cert CLIENT.pem --tls-key CLIENT.key");
    }
    let takes_tokens = |access: &AccessConfig| access.tokens.is_some() || access.oidc.is_some();
    if config.security.access.as_ref().is_some_and(takes_tokens) {
        command.push_str(" --token-file TOKEN");
    }
    format!("List the tables:\n  {command}\n")
}

/// The host and port by which clients reach an address.
fn reached(config: &Config, address: SocketAddr) -> String {
    let port = address.port();
    match &config.cluster {
        Some(of) if !address.ip().is_loopback() => of.told(address),
        // The certificate has a name, which is not known here.
        _ if config.security.tls.is_some() && address.ip().is_unspecified() => format!("HOST:{port}"),
        _ if address.ip().is_unspecified() => format!("127.0.0.1:{port}"),
        _ => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use stele_settings::StartArgs;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        start: StartArgs,
    }

    fn banner_of(flags: &[&str]) -> String {
        let flags = Flags::parse_from([&["stele"], flags].concat());
        let config = stele_settings::load(&flags.start).unwrap();
        let addresses = Addresses {
            bigtable: config.bigtable,
            hbase: config.hbase,
            facade: None,
            http: config.http,
        };
        banner(&config, &addresses, "./stele-data (0 tablets)")
    }

    #[test]
    fn a_plain_server_proposes_a_variable_of_clients() {
        let text = banner_of(&[]);
        for line in [
            "data       ./stele-data (0 tablets)",
            "export BIGTABLE_EMULATOR_HOST=127.0.0.1:8086",
            "console    http://127.0.0.1:8088/",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn a_server_under_tls_proposes_a_command_that_its_ports_accept() {
        let tls = [
            "--bigtable=0.0.0.0:8086",
            "--http=0.0.0.0:8088",
            "--tls-cert=c",
            "--tls-key=k",
        ];
        let text = banner_of(&tls);
        assert!(!text.contains("BIGTABLE_EMULATOR_HOST"), "{text}");
        for line in [
            "stele tables --address https://HOST:8086 --tls-ca CA.pem\n",
            "console    https://HOST:8088/\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let text = banner_of(&[&tls[..], &["--tls-client-ca=a"]].concat());
        assert!(text.contains("--tls-cert CLIENT.pem --tls-key CLIENT.key\n"), "{text}");
        let cluster = [
            "--cluster=etcd://e/c",
            "--data=s3://b/p",
            "--advertise=node-1",
            "--peer=0.0.0.0:7070",
            "--peer-tls-ca=/etc/stele/ca.pem",
        ];
        let text = banner_of(&[&tls[..], &cluster].concat());
        let line = "stele tables --address https://node-1:8086 --tls-ca /etc/stele/ca.pem\n";
        assert!(text.contains(line), "{text}");
        let others = ["--peer-tls-cert=p", "--peer-tls-key=q"];
        let text = banner_of(&[&tls[..], &cluster, &others].concat());
        assert!(text.contains("--tls-ca CA.pem"), "{text}");
    }

    #[test]
    fn a_port_of_this_machine_alone_has_no_other_name() {
        let cluster = ["--cluster=etcd://e/c", "--data=s3://b/p", "--advertise=node-1"];
        let text = banner_of(&[&cluster[..], &["--peer=0.0.0.0:7070", "--insecure"]].concat());
        assert!(text.contains("BIGTABLE_EMULATOR_HOST=127.0.0.1:8086"), "{text}");
    }
}
