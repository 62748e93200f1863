//! A folder whose files may be read.
//!
//! Where the kernel can, a file is opened *beneath* the folder (`openat2`): a symbolic link that leads out of it, also one that
//! is put there at this moment, is refused. Elsewhere both paths are resolved and compared.

use super::blocking;
use super::file::LocalRead;
use super::root::fail;
use crate::foreign::{ForeignRoot, below};
use crate::{ReadFile, Result, StorageError};
use async_trait::async_trait;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stele_env::Env;

/// A folder of the local disk.
pub struct ForeignFolder {
    folder: PathBuf,
    /// Its path as URLs have it, without slashes at its ends.
    shown: String,
    env: Env,
}

impl ForeignFolder {
    /// A folder by its absolute path. It need not exist yet.
    pub fn new(folder: &Path, env: Env) -> Result<ForeignFolder> {
        let shown = folder.to_str().filter(|_| folder.is_absolute()).unwrap_or_default();
        let shown = shown.trim_matches('/').to_owned();
        if !crate::foreign::is_plain(&shown) {
            return Err(StorageError::InvalidPath {
                path: folder.display().to_string(),
            });
        }
        Ok(ForeignFolder {
            folder: folder.to_owned(),
            shown,
            env,
        })
    }
}

#[async_trait]
impl ForeignRoot for ForeignFolder {
    fn path_of<'u>(&self, url: &'u str) -> Option<&'u str> {
        // Hadoop writes `file:/folder`, others `file:///folder`.
        let is_here = |scheme: &str, authority: &str| scheme == "file" && matches!(authority, "" | "localhost");
        below(url, &self.shown, is_here)
    }

    async fn open(&self, path: &str, url: &str) -> Result<Arc<dyn ReadFile>> {
        let (folder, name, shown) = (self.folder.clone(), path.to_owned(), url.to_owned());
        let open = move || {
            let file = open_beneath(&folder, &name).map_err(|error| failed(&shown, &error))?;
            let metadata = file.metadata().map_err(|error| failed(&shown, &error))?;
            match metadata.is_file() {
                true => Ok((file, metadata.len())),
                false => Err(StorageError::NotFound { path: shown }),
            }
        };
        let (file, len) = blocking(&self.env, url, "open", open).await?;
        Ok(Arc::new(LocalRead::new(file, len, url, self.env.clone())))
    }
}

fn failed(url: &str, error: &io::Error) -> StorageError {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        // A link that leads out of the folder: there is no such file in it.
        Some(rustix::io::Errno::XDEV | rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
            StorageError::NotFound { path: url.to_owned() }
        }
        _ => fail(url, "open", error),
    }
}

#[cfg(target_os = "linux")]
fn open_beneath(folder: &Path, name: &str) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
    let folder_file = File::open(folder)?;
    // A pipe would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match openat2(&folder_file, name, flags, Mode::empty(), ResolveFlags::BENEATH) {
        Ok(file) => Ok(File::from(file)),
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => open_resolved(folder, name),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(folder: &Path, name: &str) -> io::Result<File> {
    open_resolved(folder, name)
}

/// Opens a file whose path, all links followed, is below the folder's.
fn open_resolved(folder: &Path, name: &str) -> io::Result<File> {
    let resolved = fs::canonicalize(folder.join(name))?;
    let is_within = resolved.starts_with(fs::canonicalize(folder)?);
    match is_within && fs::metadata(&resolved)?.is_file() {
        true => File::open(resolved),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::ForeignFiles;
    use std::os::unix::fs::symlink;
    use stele_env::tokio_env::TokioRuntime;
    use stele_types::ErrorKind;

    #[tokio::test]
    async fn links_and_other_files_do_not_lead_out_of_a_folder() {
        let directory = tempfile::TempDir::new().unwrap();
        let (folder, secret) = (directory.path().join("in"), directory.path().join("secret"));
        fs::create_dir_all(folder.join("cf")).unwrap();
        fs::write(&secret, b"secret").unwrap();
        fs::write(folder.join("cf/file 1,2"), b"cells").unwrap();
        symlink(&secret, folder.join("cf/link")).unwrap();
        symlink(directory.path(), folder.join("up")).unwrap();
        symlink("cf", folder.join("inner")).unwrap();
        let root = ForeignFolder::new(&folder, TokioRuntime::current()).unwrap();
        let files = ForeignFiles::new(vec![Arc::new(root)]);
        let shown = folder.display();
        for (url, expected) in [
            (format!("file:{shown}/cf/file 1,2"), None),
            (format!("file://{shown}/cf/file 1,2"), None),
            (format!("file://localhost{shown}/inner/file 1,2"), None),
            (format!("file:{shown}/cf/link"), Some(ErrorKind::NotFound)),
            (format!("file:{shown}/up/secret"), Some(ErrorKind::NotFound)),
            (format!("file:{shown}/cf"), Some(ErrorKind::NotFound)),
            (format!("file:{shown}/cf/other"), Some(ErrorKind::NotFound)),
            (format!("file:{shown}/../secret"), Some(ErrorKind::PermissionDenied)),
            (format!("file:{}", secret.display()), Some(ErrorKind::PermissionDenied)),
            (format!("hdfs:{shown}/cf/file 1,2"), Some(ErrorKind::PermissionDenied)),
        ] {
            let opened = files.open(&url).await;
            assert_eq!(opened.as_ref().err().map(|error| error.kind()), expected, "{url}");
            if let Ok(file) = opened {
                assert_eq!(
                    (&file.read_at(0, 5).await.unwrap()[..], file.path()),
                    (&b"cells"[..], &*url)
                );
            }
        }
        for (name, is_there) in [("cf/file 1,2", true), ("cf/link", false), ("up/secret", false)] {
            assert_eq!(open_resolved(&folder, name).is_ok(), is_there, "{name}");
        }
        assert!(ForeignFolder::new(Path::new("relative"), TokioRuntime::current()).is_err());
        assert!(ForeignFolder::new(Path::new("/"), TokioRuntime::current()).is_err());
    }
}
