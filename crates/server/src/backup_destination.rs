//! Opens destinations of backups.
//!
//! A destination is marked by its `FORMAT` (`docs/formats/backup.md`), which is looked at before anything is opened: opening a
//! folder tidies it up, and opening a directory of HDFS ends its owner. A folder and a directory of HDFS are used by one process at
//! a time; a prefix of an object store by any number.
#![allow(
    clippy::disallowed_methods,
    reason = "runs before the storage is opened, because opening it already tidies up"
)]

use crate::encryption::Keys;
use anyhow::Context;
use std::path::Path;
use std::sync::Arc;
use stele_backup::archive::format as archive;
use stele_backup::paths::{FORMAT, FORMAT_TEXT};
use stele_backup::{OpenDestination, OpenedPlace, PlaceToOpen};
use stele_client::{ServiceError, ServiceResult};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_hdfs::{HdfsAddress, HdfsMetrics, HdfsStorage};
use stele_objects::{ObjectMetrics, ObjectStorage};
use stele_settings::{Place, parse_place};
use stele_storage::local::LocalStorage;
use stele_storage::{Storage, StorageError};
use stele_types::ErrorKind;

/// The files that mark places, and the words for such a place.
#[derive(Clone, Copy)]
struct Kind {
    format: &'static str,
    plural: &'static str,
}

const BACKUPS: Kind = Kind {
    format: FORMAT_TEXT,
    plural: "backups",
};
const ARCHIVE: Kind = Kind {
    format: archive::FORMAT_TEXT,
    plural: "archived logs",
};

/// The kind of the place that is opened, and the keys of its files.
struct Opening {
    kind: Kind,
    env: Env,
    keys: Keys,
}

/// Opens destinations for a single server.
pub fn opener(env: Env, keys: Keys) -> OpenDestination {
    Arc::new(move |to_open| {
        let opening = Opening {
            kind: BACKUPS,
            env: env.clone(),
            keys: keys.clone(),
        };
        Box::pin(open(to_open, opening))
    })
}

/// Opens archives of logs.
pub fn opener_of_archives(env: Env, keys: Keys) -> OpenDestination {
    Arc::new(move |to_open| {
        let opening = Opening {
            kind: ARCHIVE,
            env: env.clone(),
            keys: keys.clone(),
        };
        Box::pin(open(to_open, opening))
    })
}

/// Opens destinations for the servers of a cluster. Any of them may come to lead, so a folder is not one place.
pub fn opener_of_cluster(env: Env, keys: Keys) -> OpenDestination {
    Arc::new(move |to_open| {
        let (env, keys) = (env.clone(), keys.clone());
        Box::pin(async move {
            let place = &to_open.place;
            if let Ok(Place::Folder(_)) = parse_place(&place.address, &place.options) {
                let message = "destination: the leader of a cluster does the work, whichever server that is. Give an object store \
                               or HDFS instead of a folder";
                return Err(ServiceError::invalid(message));
            }
            let opening = Opening {
                kind: BACKUPS,
                env,
                keys,
            };
            open(to_open, opening).await
        })
    })
}

/// Opens archives of the logs of a cluster. Each server writes one, and the leader reads them meanwhile, so they are in an object store.
pub fn opener_of_cluster_archives(env: Env, keys: Keys) -> OpenDestination {
    Arc::new(move |to_open| {
        let (env, keys) = (env.clone(), keys.clone());
        Box::pin(async move {
            let place = &to_open.place;
            if !matches!(
                parse_place(&place.address, &place.options),
                Ok(Place::Objects(_)) | Err(_)
            ) {
                let message = "archive: all servers of a cluster use it at one time. Give an object store";
                return Err(ServiceError::invalid(message));
            }
            let kind = ARCHIVE;
            open(to_open, Opening { kind, env, keys }).await
        })
    })
}

async fn open(to_open: PlaceToOpen, opening: Opening) -> ServiceResult<OpenedPlace> {
    let destination = &to_open.place;
    let place = parse_place(&destination.address, &destination.options);
    let place = place.map_err(|error| ServiceError::invalid(format!("destination: {error:#}")))?;
    if matches!(&place, Place::Folder(root) if !root.is_absolute()) {
        return Err(ServiceError::invalid(
            "destination: a folder of the server has an absolute path",
        ));
    }
    let opened = async {
        let root = open_root(&place, &to_open, &opening).await?;
        // Reading begins no encryption, so that a place of plain text can be read with a key.
        let shown = place.to_string();
        let storage = match to_open.make {
            true => opening.keys.over(root.clone(), &shown).await?,
            false => opening.keys.look(root.clone(), &shown).await?,
        };
        Ok(OpenedPlace { root, storage })
    };
    opened.await.map_err(|error: anyhow::Error| {
        let storage = error.downcast_ref::<StorageError>().map(StorageError::kind);
        ServiceError::new(
            storage.unwrap_or(ErrorKind::InvalidArgument),
            format!("{place}: {error:#}"),
        )
    })
}

/// The files of a place as they are stored. A root that a reader has open is of the kind; an object store has no such proof.
async fn open_root(place: &Place, to_open: &PlaceToOpen, opening: &Opening) -> anyhow::Result<Arc<dyn Storage>> {
    let (kind, env, make) = (opening.kind, opening.env.clone(), to_open.make);
    match (place, &to_open.root) {
        // Of the server's metrics only the requests of its own data are part.
        (Place::Objects(address), open) => {
            let objects = match open {
                Some(root) => root.clone(),
                None => ObjectStorage::share(address, env, None, ObjectMetrics::default()).await?,
            };
            if make {
                check_objects(&*objects, kind).await?;
            }
            Ok(objects)
        }
        (_, Some(root)) => Ok(root.clone()),
        (Place::Folder(root), None) => open_folder(root, make, (kind, env)),
        (Place::Hdfs(address), None) => match HdfsStorage::peek(address, env.clone(), FORMAT).await? {
            Some(text) if text == kind.format.as_bytes() => open_hdfs(address, env).await,
            None if make => match HdfsStorage::any_key(address, env.clone()).await? {
                None => open_hdfs(address, env).await,
                Some(key) => Err(foreign(kind, &key)),
            },
            None => Err(no_backups(kind)),
            Some(_) => Err(foreign(kind, FORMAT)),
        },
    }
}

async fn open_hdfs(address: &HdfsAddress, env: Env) -> anyhow::Result<Arc<dyn Storage>> {
    let metrics = HdfsMetrics::new(&Metrics::new());
    Ok(HdfsStorage::open(address, env, None, metrics).await?)
}

fn open_folder(root: &Path, make: bool, (kind, env): (Kind, Env)) -> anyhow::Result<Arc<dyn Storage>> {
    match std::fs::read(root.join(FORMAT)) {
        Ok(text) if text == kind.format.as_bytes() => {}
        Ok(_) => return Err(foreign(kind, FORMAT)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => check_new(root, make, kind)?,
        Err(error) => return Err(error).with_context(|| format!("{FORMAT} cannot be read")),
    }
    Ok(LocalStorage::open(root, env)?)
}

/// A folder without a format must be new: it may hold only the files of an interrupted first use.
fn check_new(root: &Path, make: bool, kind: Kind) -> anyhow::Result<()> {
    if !make {
        return Err(no_backups(kind));
    }
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context("the folder cannot be read"),
    };
    for entry in entries {
        let name = entry?.file_name();
        let is_tmp = name == "tmp" && has_only_unfinished(&root.join("tmp"))?;
        if name != "LOCK" && name != "lost+found" && !is_tmp {
            return Err(foreign(kind, &name.to_string_lossy()));
        }
    }
    Ok(())
}

/// Whether a folder has no files but those that a write left unfinished, whose names are numbers. They are deleted when the place is
/// opened.
fn has_only_unfinished(tmp: &Path) -> std::io::Result<bool> {
    let names: std::io::Result<Vec<_>> = std::fs::read_dir(tmp)?.map(|entry| Ok(entry?.file_name())).collect();
    let is_number = |name: &std::ffi::OsString| name.to_str().is_some_and(|name| name.parse::<u64>().is_ok());
    Ok(names?.iter().all(is_number))
}

/// A prefix without a format must be new: it may hold only the keys of an interrupted first use. Keys of another place must not be
/// touched: its owner may not have those that they would be wrapped with.
async fn check_objects(root: &dyn Storage, kind: Kind) -> anyhow::Result<()> {
    match root.read_all(FORMAT).await {
        Ok(text) if text == kind.format.as_bytes() => return Ok(()),
        Ok(_) => return Err(foreign(kind, FORMAT)),
        Err(StorageError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let files = root.list("").await?;
    match files
        .iter()
        .find(|file| !file.path.starts_with(stele_encryption::DIRECTORY))
    {
        Some(other) => Err(foreign(kind, &other.path)),
        None => Ok(()),
    }
}

fn foreign(kind: Kind, name: &str) -> anyhow::Error {
    let plural = kind.plural;
    anyhow::anyhow!("not empty and not a place of {plural} of Stele (it has {name:?}); give another")
}

fn no_backups(kind: Kind) -> anyhow::Error {
    anyhow::anyhow!("holds no {} of Stele", kind.plural)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_client::BackupDestination;
    use stele_env::tokio_env::TokioRuntime;

    fn at(address: &str, make: bool) -> PlaceToOpen {
        let place = BackupDestination {
            address: address.to_owned(),
            options: Vec::new(),
        };
        PlaceToOpen {
            place,
            make,
            root: None,
        }
    }

    #[tokio::test]
    async fn prefixes_of_others_are_refused_before_their_keys_are_touched() {
        use stele_storage::memory::MemoryStorage;
        let put = async |root: &MemoryStorage, path: &str, text: &'static str| {
            root.put_if_absent(path, bytes::Bytes::from_static(text.as_bytes()))
                .await
                .unwrap();
        };
        let root = MemoryStorage::new();
        check_objects(&*root, BACKUPS).await.expect("new");
        put(&root, "encryption/root-00000001.00000001", "a key").await;
        check_objects(&*root, BACKUPS)
            .await
            .expect("of an interrupted first use");
        put(&root, "sst/1", "a file").await;
        assert!(check_objects(&*root, BACKUPS).await.is_err());
        put(&root, FORMAT, "stele-data 1\n").await;
        assert!(check_objects(&*root, BACKUPS).await.is_err());
        let root = MemoryStorage::new();
        put(&root, FORMAT, FORMAT_TEXT).await;
        put(&root, "lists/1", "a list").await;
        check_objects(&*root, BACKUPS).await.expect("holds backups");
        assert!(check_objects(&*root, ARCHIVE).await.is_err());
    }

    #[tokio::test]
    async fn only_places_of_backups_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let env = TokioRuntime::current();
        let refused = async |address: &str, make| {
            let opening = Opening {
                kind: BACKUPS,
                env: env.clone(),
                keys: Keys::default(),
            };
            open(at(address, make), opening).await.err().map(|e| e.message)
        };
        assert!(refused("backups", true).await.unwrap().contains("absolute"));
        assert!(
            refused("ftp://host/x", true)
                .await
                .unwrap()
                .contains("neither a folder")
        );
        assert!(refused(&path("absent"), false).await.unwrap().contains("no backups"));
        std::fs::create_dir_all(folder.path().join("home/tmp")).unwrap();
        std::fs::write(folder.path().join("home/tmp/mine"), "mine").unwrap();
        assert!(refused(&path("home"), true).await.unwrap().contains("not empty"));
        assert!(
            folder.path().join("home/tmp/mine").exists(),
            "a foreign folder is not touched"
        );
        std::fs::create_dir_all(folder.path().join("cut-off/tmp")).unwrap();
        std::fs::write(folder.path().join("cut-off/tmp/0"), "an unfinished put").unwrap();
        assert_eq!(
            refused(&path("cut-off"), true).await,
            None,
            "a first use that was cut off"
        );
        std::fs::create_dir(folder.path().join("data")).unwrap();
        std::fs::write(folder.path().join("data/FORMAT"), "stele-data 1\n").unwrap();
        assert!(refused(&path("data"), true).await.unwrap().contains("not empty"));
        let of_cluster = opener_of_cluster(env.clone(), Keys::default())(at(&path("new"), true)).await;
        assert!(of_cluster.err().unwrap().message.contains("object store"));
        let opening = Opening {
            kind: BACKUPS,
            env: env.clone(),
            keys: Keys::default(),
        };
        let OpenedPlace { storage, .. } = open(at(&path("new"), true), opening).await.unwrap();
        stele_backup::destination::Destination::open(storage, true)
            .await
            .unwrap();
        assert_eq!(refused(&path("new"), false).await, None);
    }
}
