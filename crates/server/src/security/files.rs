//! The files of TLS, compared with the ones in use.
#![allow(
    clippy::disallowed_methods,
    reason = "the operator's files, which are no part of the database"
)]

use anyhow::{Context, bail};
use std::io::Read;
use std::path::Path;
use stele_etcd::{EtcdSecurity, EtcdUser};
use stele_serving::{PeerMaterial, TlsMaterial};
use stele_settings::{EtcdFiles, PeerTlsFiles, TlsFiles};

/// Bytes of the largest file: some hundreds of certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The variable with the password of etcd's user. It is no flag: others on the machine can read those.
const ETCD_PASSWORD: &str = "STELE_ETCD_PASSWORD";

/// A set of files that are used together.
pub trait Files: Send + 'static {
    /// Their content.
    type Content: Clone + PartialEq + Send + 'static;

    /// Reads the files.
    fn read(&self) -> anyhow::Result<Self::Content>;
}

impl Files for TlsFiles {
    type Content = TlsMaterial;

    fn read(&self) -> anyhow::Result<TlsMaterial> {
        Ok(TlsMaterial {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            client_ca: self.client_ca.as_deref().map(read).transpose()?,
            requires_client: self.requires_client,
        })
    }
}

impl Files for PeerTlsFiles {
    type Content = PeerMaterial;

    fn read(&self) -> anyhow::Result<PeerMaterial> {
        Ok(PeerMaterial {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            authorities: read(&self.authorities)?,
            name: self.name.clone(),
            client_ca: self.client_ca.as_deref().map(read).transpose()?,
        })
    }
}

impl Files for EtcdFiles {
    type Content = EtcdSecurity;

    fn read(&self) -> anyhow::Result<EtcdSecurity> {
        let own = match &self.own {
            None => None,
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
        };
        let user = match &self.user {
            None => None,
            Some((name, file)) => Some(EtcdUser {
                name: name.clone(),
                password: password(file.as_deref())?,
            }),
        };
        Ok(EtcdSecurity {
            authorities: self.authorities.as_deref().map(read).transpose()?,
            own,
            user,
        })
    }
}

fn password(file: Option<&Path>) -> anyhow::Result<String> {
    let Some(path) = file else {
        return std::env::var(ETCD_PASSWORD).with_context(|| {
            format!("etcd_user: its password is neither in etcd_password_file nor in {ETCD_PASSWORD}")
        });
    };
    let text = String::from_utf8(read(path)?).with_context(|| path.display().to_string())?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Files and their content when they were last read.
pub struct Watched<F: Files> {
    files: F,
    last: Option<F::Content>,
}

impl Watched<EtcdFiles> {
    /// Whether there is no file, and thus nothing to follow.
    pub fn is_plain(&self) -> bool {
        let EtcdFiles { authorities, own, user } = &self.files;
        authorities.is_none() && own.is_none() && user.is_none()
    }
}

impl<F: Files> Watched<F> {
    /// Not read yet.
    pub fn new(files: F) -> Self {
        Watched { files, last: None }
    }

    /// Reads the files.
    pub fn read(&mut self) -> anyhow::Result<F::Content> {
        let content = self.files.read()?;
        self.last = Some(content.clone());
        Ok(content)
    }

    /// Reads the files, and returns their content if it is another than before. The content is compared and not the time
    /// of a change: files may be links that are switched.
    pub fn changed(&mut self) -> anyhow::Result<Option<F::Content>> {
        let before = self.last.take();
        let now = self.read()?;
        Ok((before.as_ref() != Some(&now)).then_some(now))
    }

    /// Takes the content as another one the next time. While one of several files is replaced, they do not fit together.
    pub fn forget(&mut self) {
        self.last = None;
    }
}

/// Reads a file of the operator.
pub fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let shown = || path.display().to_string();
    let file = std::fs::File::open(path).with_context(shown)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(shown)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        bail!("{}: more than {FILE_BYTES_MAX} bytes", shown());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_content_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["c", "k"] {
            std::fs::write(path(name), name).unwrap();
        }
        let mut watched = Watched::new(TlsFiles {
            certificate: path("c"),
            key: path("k"),
            client_ca: None,
            requires_client: false,
        });
        assert_eq!(watched.read().unwrap().certificate, b"c");
        std::fs::write(path("c"), "c").unwrap();
        assert!(watched.changed().unwrap().is_none());
        std::fs::write(path("k"), "other").unwrap();
        assert_eq!(watched.changed().unwrap().unwrap().key, b"other");
        assert!(watched.changed().unwrap().is_none());
        std::fs::remove_file(path("k")).unwrap();
        assert!(watched.changed().unwrap_err().to_string().ends_with("/k"));
        watched.forget();
        std::fs::write(path("k"), "other").unwrap();
        assert!(watched.changed().unwrap().is_some());
    }

    #[test]
    fn a_password_ends_before_its_line_break() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "se cret \n").unwrap();
        let files = EtcdFiles {
            user: Some(("stele".to_owned(), Some(file))),
            ..EtcdFiles::default()
        };
        assert_eq!(files.read().unwrap().user.unwrap().password, "se cret ");
        let missing = EtcdFiles {
            user: Some(("stele".to_owned(), Some(folder.path().join("nowhere")))),
            ..EtcdFiles::default()
        };
        assert!(missing.read().unwrap_err().to_string().contains("nowhere"));
    }
}
