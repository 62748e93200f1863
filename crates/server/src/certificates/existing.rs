//! The certificates that a folder has.

use super::{CA, Holder};
use anyhow::{Context, anyhow};
use std::net::IpAddr;
use std::path::Path;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;

/// A certificate of a file.
pub(super) struct Existing {
    /// Its holder, as the certificate names it.
    pub(super) holder: Holder,
    /// When it ends, in seconds since 1970.
    pub(super) ends: i64,
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
        Ok(Existing {
            holder: Holder {
                file: file.to_owned(),
                name: name.to_owned(),
                hosts: hosts(&certificate),
            },
            ends: certificate.validity().not_after.timestamp(),
        })
    }
}

/// Those of all servers and clients that have a key in the folder, by name.
pub(super) fn all(dir: &Path) -> anyhow::Result<Vec<Holder>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let Some(file) = stem.filter(|file| *file != CA) else {
            continue;
        };
        if path.extension().is_some_and(|extension| extension == "pem") && path.with_extension("key").exists() {
            files.push(file.to_owned());
        }
    }
    files.sort();
    let read = files.iter().map(|file| Ok(Existing::read(dir, file)?.holder));
    read.collect()
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
