//! `stele certificates`: an authority, and certificates of servers and clients for a first cluster.
//!
//! The files are PEM, `NAME.pem` with the certificate and `NAME.key` with its key, which only its owner may read. The
//! authority is `ca`. A second run makes the missing files with the same authority, and keeps everything that exists. Without
//! names it is for the certificates of the folder.
//!
//! Nothing renews certificates by itself, or revokes them. An organisation that has an authority of its own uses that.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the operator's files, which are no part of the database"
)]

mod existing;

use anyhow::{Context, ensure};
use existing::{Existing, Found};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stele_cli::timestamp;

/// Arguments of `certificates`.
#[derive(clap::Args)]
pub struct CertificatesArgs {
    /// Folder for the files; made when missing
    #[arg(long, value_name = "DIR", default_value = "certificates")]
    dir: PathBuf,
    /// Names and addresses of one server, separated by commas; the first one names its files. May be repeated. Each
    /// certificate is for localhost as well, and for servers.stele, by which servers know each other [default: those of the
    /// folder, or else localhost]
    #[arg(long = "server", value_name = "HOST,...")]
    servers: Vec<String>,
    /// Name of a client, by which access rules know it; may be repeated
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<String>,
    /// Days after which the certificates of servers and clients end
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=3_650))]
    days: u64,
    /// Replaces certificates of these servers and clients that exist; without names, all of the folder
    #[arg(long)]
    renew: bool,
}

/// The name of the authority's files.
const CA: &str = "ca";
/// Every server is reached by these on its own machine: by health checks, and by clients there.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// A name that every server has and no client, by which servers of a cluster know each other (`peer_tls_name`).
const SERVERS: &str = "servers.stele";
/// Ten years: the certificate of an authority is replaced on all machines together.
const CA_DAYS: u64 = 3_650;
const DAY: Duration = Duration::from_secs(86_400);
/// Clocks of other machines may be slow.
const BEGINS_BEFORE: Duration = Duration::from_secs(3_600);

/// The holder of a certificate.
struct Holder {
    /// Of its files.
    file: String,
    /// Common name.
    name: String,
    /// Hosts; none for a client.
    hosts: Vec<String>,
}

/// Makes the missing files. `now` is in seconds since 1970. Returns the text for the operator.
pub fn run(args: &CertificatesArgs, now: u64) -> anyhow::Result<String> {
    if args.renew {
        existing::require_authority(&args.dir)?;
    }
    let Found { holders, left } = holders(args)?;
    std::fs::create_dir_all(&args.dir).with_context(|| args.dir.display().to_string())?;
    let now = Duration::from_secs(now);
    let (ca, ca_ends) = authority(&args.dir, now)?;
    let ends = now + DAY * u32::try_from(args.days).unwrap_or(u32::MAX);
    let ends_at = i64::try_from(ends.as_secs()).unwrap_or(i64::MAX);
    let mut out = String::new();
    let mut line = |file: &str, about: &str| {
        let path = args.dir.join(format!("{file}.pem"));
        let _ = writeln!(out, "{:<40} {about}", path.display().to_string());
    };
    line(CA, &format!("the authority, until {}", day(ca_ends)));
    for holder in &holders {
        if let Some(existing) = kept(args, holder)? {
            let lacks = existing.lacks(&holder.hosts);
            let hint = match lacks.is_empty() {
                true => String::new(),
                false => format!("; it lacks {}: --renew", lacks.join(" ")),
            };
            let until = day(existing.ends);
            line(
                &holder.file,
                &format!("{} (exists), until {until}{hint}", existing.holder.about()),
            );
            continue;
        }
        ensure!(
            ends_at <= ca_ends,
            "--days: a certificate cannot outlive its authority, which ends on {}",
            day(ca_ends)
        );
        let (certificate, key) = sign(&ca, holder, now, ends)?;
        write(&args.dir, &holder.file, &certificate, &key)?;
        line(&holder.file, &format!("{}, until {}", holder.about(), day(ends_at)));
    }
    for (file, why) in left {
        line(&file, &format!("{why}: it stays as it is"));
    }
    let ca_key = args.dir.join(format!("{CA}.key"));
    let _ = write!(
        out,
        "They are meant for a start: nothing renews or revokes them. Before they end, run `stele certificates --renew` with \
         this folder.\n{} can sign for every server and client. Keep it secret; servers do not need it.\n",
        ca_key.display()
    );
    Ok(out)
}

impl Holder {
    fn about(&self) -> String {
        match self.hosts.is_empty() {
            true => format!("client {}", self.name),
            false => format!("server {}", self.hosts.join(" ")),
        }
    }
}

/// The certificate of a holder that stays. A renewal must not lose names.
fn kept(args: &CertificatesArgs, holder: &Holder) -> anyhow::Result<Option<Existing>> {
    let path = args.dir.join(format!("{}.pem", holder.file));
    if !path.exists() {
        return Ok(None);
    }
    let existing = Existing::read(&args.dir, &holder.file)?;
    let lost = existing.would_lose(&holder.hosts);
    ensure!(
        !args.renew || lost.is_empty(),
        "--renew: {} is also for {}: name these, or remove the file first",
        path.display(),
        lost.join(" ")
    );
    Ok((!args.renew).then_some(existing))
}

/// The servers and clients of the arguments, or those that the folder has certificates of.
fn holders(args: &CertificatesArgs) -> anyhow::Result<Found> {
    let has_any = args.servers.is_empty() && existing::has_any(&args.dir)?;
    if has_any && args.clients.is_empty() {
        return existing::all(&args.dir);
    }
    let default = ["localhost".to_owned()];
    let servers = match args.servers.is_empty() && !has_any {
        true => &default[..],
        false => &args.servers[..],
    };
    let mut holders = Vec::new();
    for server in servers {
        let mut hosts: Vec<String> = Vec::new();
        for host in server.split(',').map(str::trim).chain(LOOPBACK).chain([SERVERS]) {
            ensure!(!host.is_empty(), "--server: {server:?} has an empty name");
            if !hosts.iter().any(|other| other == host) {
                hosts.push(host.to_owned());
            }
        }
        let name = hosts.first().cloned().unwrap_or_default();
        holders.push(Holder {
            // A shell would expand the star of a name such as *.stele.svc.
            file: name.replace('*', "_").replace(':', "-"),
            name,
            hosts,
        });
    }
    holders.extend(args.clients.iter().map(|name| Holder {
        file: name.clone(),
        name: name.clone(),
        hosts: Vec::new(),
    }));
    let mut files = BTreeSet::from([CA]);
    for Holder { file, .. } in &holders {
        let is_file = !file.is_empty() && !file.starts_with('.') && !file.contains(['/', '\0']) && file.len() <= 200;
        ensure!(is_file, "{file:?} cannot name a file");
        ensure!(files.insert(file), "{file:?} names two certificates: give others");
    }
    Ok(Found {
        holders,
        ..Found::default()
    })
}

/// The authority of the folder, and the end of its certificate; made when missing.
fn authority(dir: &Path, now: Duration) -> anyhow::Result<(Issuer<'static, KeyPair>, i64)> {
    let (path, key_path) = (dir.join(format!("{CA}.pem")), dir.join(format!("{CA}.key")));
    if path.exists() || key_path.exists() {
        let read = |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
        let key = KeyPair::from_pem(&read(&key_path)?).with_context(|| format!("{}: not a key", key_path.display()))?;
        let issuer = Issuer::from_ca_cert_pem(&read(&path)?, key);
        let issuer = issuer.with_context(|| format!("{}: not the certificate of an authority", path.display()))?;
        return Ok((issuer, Existing::read(dir, CA)?.ends));
    }
    let ends = now + DAY * u32::try_from(CA_DAYS).unwrap_or(u32::MAX);
    let mut params = params(&[], now, ends)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let made = i64::try_from(now.as_secs()).unwrap_or(0);
    let name = format!("Stele authority of {}", day(made));
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate()?;
    write(dir, CA, &params.self_signed(&key)?.pem(), &key.serialize_pem())?;
    Ok((
        Issuer::new(params, key),
        i64::try_from(ends.as_secs()).unwrap_or(i64::MAX),
    ))
}

/// A certificate and its key.
fn sign(
    ca: &Issuer<'static, KeyPair>,
    holder: &Holder,
    now: Duration,
    ends: Duration,
) -> anyhow::Result<(String, String)> {
    let mut params = params(&holder.hosts, now, ends)?;
    params.distinguished_name.push(DnType::CommonName, holder.name.as_str());
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    if !holder.hosts.is_empty() {
        // Servers of a cluster call each other, so theirs are of both kinds.
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, ca)?.pem(), key.serialize_pem()))
}

fn params(hosts: &[String], now: Duration, ends: Duration) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(hosts.to_vec()).with_context(|| format!("hosts {}", hosts.join(", ")))?;
    params.distinguished_name = DistinguishedName::new();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BEGINS_BEFORE);
    params.not_after = epoch + ends;
    Ok(params)
}

/// Writes both files. The key comes first: a certificate without its key would be taken as finished.
fn write(dir: &Path, name: &str, certificate: &str, key: &str) -> anyhow::Result<()> {
    for (extension, text, mode) in [("key", key, 0o600), ("pem", certificate, 0o644)] {
        let path = dir.join(format!("{name}.{extension}"));
        let new = dir.join(format!("{name}.{extension}.new"));
        let written = (|| {
            // A leftover of an interrupted run might be readable by others.
            match std::fs::remove_file(&new) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            // A server that reads the files meanwhile finds a whole one.
            std::fs::rename(&new, &path)
        })();
        written.with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The day of a time, in UTC.
fn day(seconds: i64) -> String {
    let text = timestamp::format(seconds.saturating_mul(1_000_000));
    text.split('T').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
