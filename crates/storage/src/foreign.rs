//! Files of other programs, for reading only.
//!
//! A client names a file by its URL. It is opened only below one of the *roots* that the server's settings name, each a folder,
//! a prefix of an object store or a directory of HDFS. So a client that may name files reads none that were not meant for it.

use crate::{ReadFile, Result, StorageError};
use async_trait::async_trait;
use std::sync::Arc;
use stele_types::ErrorKind;

/// A place whose files may be read.
#[async_trait]
pub trait ForeignRoot: Send + Sync + 'static {
    /// The path below this root that a URL names, without a check of its parts; `None` for a URL of another place.
    fn path_of<'u>(&self, url: &'u str) -> Option<&'u str>;

    /// Opens a file by a path that [`is_plain`] accepts. The path of the file is its URL as it was given.
    async fn open(&self, path: &str, url: &str) -> Result<Arc<dyn ReadFile>>;
}

/// A file that is not opened, or cannot be.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ForeignError {
    /// There is no root.
    #[error(
        "{url}: bulk loads are off; to serve them, start the server with the setting bulk_load_root (--bulk-load-root), the \
         folder that their files are in"
    )]
    Off {
        /// The file.
        url: String,
    },
    /// The file is below no root.
    #[error("{url}: not below a folder that the server's setting bulk_load_root (--bulk-load-root) names")]
    Outside {
        /// The file.
        url: String,
    },
    /// It cannot be opened.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl ForeignError {
    /// The class of the failure for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ForeignError::Off { .. } | ForeignError::Outside { .. } => ErrorKind::PermissionDenied,
            ForeignError::Storage(error) => error.kind(),
        }
    }
}

/// The places whose files may be read. Cloning shares them.
#[derive(Clone, Default)]
pub struct ForeignFiles {
    roots: Arc<[Arc<dyn ForeignRoot>]>,
}

impl ForeignFiles {
    /// Files below these roots.
    pub fn new(roots: Vec<Arc<dyn ForeignRoot>>) -> Self {
        ForeignFiles { roots: roots.into() }
    }

    /// Whether no file may be read.
    pub fn is_off(&self) -> bool {
        self.roots.is_empty()
    }

    /// Opens the file that a URL names.
    pub async fn open(&self, url: &str) -> std::result::Result<Arc<dyn ReadFile>, ForeignError> {
        let named = self.roots.iter().find_map(|root| {
            let path = root.path_of(url).filter(|path| is_plain(path))?;
            Some((root, path))
        });
        match named {
            Some((root, path)) => Ok(root.open(path, url).await?),
            None if self.is_off() => Err(ForeignError::Off { url: url.to_owned() }),
            None => Err(ForeignError::Outside { url: url.to_owned() }),
        }
    }
}

/// Whether a path leads below its root only: its parts are names, none of them `.` or `..`.
pub fn is_plain(path: &str) -> bool {
    let is_name = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\0', '\\']);
    path.split('/').all(is_name)
}

/// The path of a URL behind its scheme and authority, of which `is_same` decides by both, in lower case, and behind the
/// folder `root`, which has no slash at its ends. An authority may be missing. For implementations of [`ForeignRoot`].
pub fn below<'u>(url: &'u str, root: &str, is_same: impl Fn(&str, &str) -> bool) -> Option<&'u str> {
    let (scheme, rest) = url.split_once(':')?;
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_once('/')?,
        None => ("", rest.strip_prefix('/')?),
    };
    if !is_same(&scheme.to_ascii_lowercase(), &authority.to_ascii_lowercase()) {
        return None;
    }
    match root {
        "" => Some(path),
        root => path.strip_prefix(root)?.strip_prefix('/'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStorage;
    use crate::{Storage, StorageError};
    use bytes::Bytes;

    struct Root(Arc<MemoryStorage>);

    #[async_trait]
    impl ForeignRoot for Root {
        fn path_of<'u>(&self, url: &'u str) -> Option<&'u str> {
            below(url, "in/here", |scheme, authority| (scheme, authority) == ("m", "host"))
        }

        async fn open(&self, path: &str, _: &str) -> Result<Arc<dyn ReadFile>> {
            self.0.open(path).await
        }
    }

    #[tokio::test]
    async fn only_files_below_a_root_are_opened() {
        let storage = MemoryStorage::new();
        storage.put_if_absent("a/f", Bytes::from_static(b"x")).await.unwrap();
        let files = ForeignFiles::new(vec![Arc::new(Root(storage))]);
        for good in ["m://host/in/here/a/f", "M://HOST/in/here/a/f"] {
            assert_eq!(files.open(good).await.unwrap().len(), 1);
        }
        for other in [
            "m://host/in/a/f",
            "m://host/in/herea/f",
            "m://host/in/here",
            "m://host/in/here/",
            "m://host/in/here/../here/a/f",
            "m://host/in/here/./a/f",
            "m://host/in/here//a/f",
            "m://host/in/here/a/..",
            "m://host/in/here/a\0/f",
            "m://other/in/here/a/f",
            "n://host/in/here/a/f",
            "m:/in/here/a/f",
            "in/here/a/f",
            "",
        ] {
            let error = files.open(other).await.err().unwrap();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{other}");
            assert!(error.to_string().contains("--bulk-load-root"), "{error}");
        }
        let missing = files.open("m://host/in/here/b").await.err().unwrap();
        assert!(matches!(missing, ForeignError::Storage(StorageError::NotFound { .. })));
        let off = ForeignFiles::default()
            .open("m://host/in/here/a/f")
            .await
            .err()
            .unwrap();
        assert!(off.to_string().contains("bulk loads are off"), "{off}");
    }
}
