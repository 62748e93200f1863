//! The files of TLS, compared with the ones in use.
#![allow(
    clippy::disallowed_methods,
    reason = "the operator's files, which are no part of the database"
)]

use crate::config::TlsFiles;
use anyhow::{Context, bail};
use std::io::Read;
use std::path::Path;
use stele_serving::TlsMaterial;

/// Bytes of the largest file: some hundreds of certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Files and their content when they were last read.
pub struct Watched {
    files: TlsFiles,
    last: Option<TlsMaterial>,
}

impl Watched {
    /// Not read yet.
    pub fn new(files: TlsFiles) -> Self {
        Watched { files, last: None }
    }

    /// Reads the files.
    pub fn read(&mut self) -> anyhow::Result<TlsMaterial> {
        let material = TlsMaterial {
            certificate: read(&self.files.certificate)?,
            key: read(&self.files.key)?,
            client_ca: self.files.client_ca.as_deref().map(read).transpose()?,
            requires_client: self.files.requires_client,
        };
        self.last = Some(material.clone());
        Ok(material)
    }

    /// Reads the files, and returns their content if it is another than before. The content is compared and not the time
    /// of a change: files may be links that are switched.
    pub fn changed(&mut self) -> anyhow::Result<Option<TlsMaterial>> {
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
}
