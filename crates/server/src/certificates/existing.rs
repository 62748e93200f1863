//! The certificates that a folder has.

use super::{CA, Holder};
use anyhow::{Context, anyhow, ensure};
use std::net::IpAddr;
use std::path::Path;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::parse_x509_pem;

/// A certificate of a file.
pub(super) struct Existing {
    /// Its holder, as the certificate names it.
    pub(super) holder: Holder,
    /// When it ends, in seconds since 1970.
    pub(super) ends: i64,
    issuer: String,
    subject: String,
    /// The key of the authority that signed it, where the certificate names one.
    issuer_key: Option<Vec<u8>>,
    own_key: Option<Vec<u8>>,
}

/// The files of a folder besides those of the authority.
#[derive(Default)]
pub(super) struct Found {
    /// The holders of certificates that can be made again, by name.
    pub(super) holders: Vec<Holder>,
    /// The names of others, each with the reason why it stays as it is.
    pub(super) left: Vec<(String, &'static str)>,
}

impl Existing {
    /// That of the file of this name in a folder.
    pub(super) fn read(dir: &Path, file: &str) -> anyhow::Result<Existing> {
        let path = dir.join(format!("{file}.pem"));
        let shown = || path.display().to_string();
        let bytes = std::fs::read(&path).with_context(shown)?;
        let not = || anyhow!("{}: not a certificate", path.display());
        let (_, pem) = parse_x509_pem(&bytes).map_err(|_| not())?;
        let certificate = pem.parse_x509().map_err(|_| not())?;
        let name = certificate.subject().iter_common_name().next();
        let name = name.and_then(|name| name.as_str().ok()).unwrap_or(file);
        let (mut issuer_key, mut own_key) = (None, None);
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    issuer_key = id.key_identifier.as_ref().map(|id| id.0.to_vec());
                }
                ParsedExtension::SubjectKeyIdentifier(id) => own_key = Some(id.0.to_vec()),
                _ => {}
            }
        }
        Ok(Existing {
            holder: Holder {
                file: file.to_owned(),
                name: name.to_owned(),
                hosts: hosts(&certificate),
            },
            ends: certificate.validity().not_after.timestamp(),
            issuer: certificate.issuer().to_string(),
            subject: certificate.subject().to_string(),
            issuer_key,
            own_key,
        })
    }

    /// Whether this authority has signed a certificate, as far as both tell.
    fn has_signed(&self, other: &Existing) -> bool {
        let is_same_key = match (&self.own_key, &other.issuer_key) {
            (Some(own), Some(issuer)) => own == issuer,
            _ => true,
        };
        self.subject == other.issuer && is_same_key
    }

    /// The names and addresses of `hosts` that this one has not.
    pub(super) fn lacks(&self, hosts: &[String]) -> Vec<String> {
        missing(hosts, &self.holder.hosts)
    }

    /// The names and addresses of this one that `hosts` are without.
    pub(super) fn would_lose(&self, hosts: &[String]) -> Vec<String> {
        missing(&self.holder.hosts, hosts)
    }
}

fn missing(of: &[String], in_these: &[String]) -> Vec<String> {
    // An address has several texts.
    let canonical = |host: &str| {
        host.parse::<IpAddr>()
            .map_or_else(|_| host.to_ascii_lowercase(), |address| address.to_string())
    };
    let have: Vec<String> = in_these.iter().map(|host| canonical(host)).collect();
    let lost = of.iter().filter(|host| !have.contains(&canonical(host)));
    lost.cloned().collect()
}

/// Whether the folder has any certificate besides that of the authority.
pub(super) fn has_any(dir: &Path) -> anyhow::Result<bool> {
    Ok(!files(dir)?.is_empty())
}

/// Reads those of the folder's authority.
pub(super) fn all(dir: &Path) -> anyhow::Result<Found> {
    let authority = Existing::read(dir, CA)?;
    let mut found = Found::default();
    for file in files(dir)? {
        let certificate = Existing::read(dir, &file)?;
        if !authority.has_signed(&certificate) {
            found.left.push((file, "of another authority"));
        } else if !dir.join(format!("{file}.key")).exists() {
            found.left.push((file, "without its key"));
        } else {
            found.holders.push(certificate.holder);
        }
    }
    Ok(found)
}

/// Fails unless the folder has an authority with its key.
pub(super) fn require_authority(dir: &Path) -> anyhow::Result<()> {
    let is_there = |extension: &str| dir.join(format!("{CA}.{extension}")).exists();
    ensure!(
        is_there("pem") && is_there("key"),
        "--renew: {} has no authority, which is {CA}.pem and {CA}.key",
        dir.display()
    );
    Ok(())
}

/// The names of the certificates, in order, without that of the authority.
fn files(dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut files = Vec::new();
    if !dir.exists() {
        return Ok(files);
    }
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let is_certificate = path.extension().is_some_and(|extension| extension == "pem");
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        files.extend(stem.filter(|file| is_certificate && *file != CA).map(str::to_owned));
    }
    files.sort();
    Ok(files)
}

/// The names and addresses of a server; none for a client.
fn hosts(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let host = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes)
                .ok()
                .map(|bytes| IpAddr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes)
                .ok()
                .map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    };
    names.value.general_names.iter().filter_map(host).collect()
}
