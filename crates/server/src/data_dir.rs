//! Opens the place of the data and checks its owner and format.
//!
//! The place is a folder, a prefix of an object store or a directory of HDFS. Its file `FORMAT` holds one line,
//! `stele-data <version>`. It is read before anything else there is opened. So data of a newer version, or of another
//! program, stays exactly as it is. Data that were promoted to a cluster have [`marks`].
#![allow(
    clippy::disallowed_methods,
    reason = "runs before the storage is opened, because opening it already tidies up"
)]

pub mod marks;
mod owner;
mod shared;

pub use shared::{check_empty, share};

use crate::encryption::Keys;
use anyhow::{Context, bail};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_hdfs::{HdfsAddress, HdfsMetrics, HdfsStorage};
use stele_objects::{Address, ObjectMetrics, ObjectStorage};
use stele_settings::{Config, Place};
use stele_storage::local::LocalStorage;
use stele_storage::remote::cache::CacheOptions;
use stele_storage::{Storage, StorageError};
use tokio::sync::watch;

/// Newest version of the data's format that this binary knows.
const VERSION: u32 = 1;
/// The file that marks a folder as Stele's.
pub const FORMAT: &str = "FORMAT";
/// Behind the version in the format of a place that the servers of a cluster share, before the number of the cluster. A program
/// that does not know it refuses the place: it would delete the tablets as leftovers. So would a server of another cluster.
const SHARED: &str = " shared by ";
/// The folder to which repairs copy originals.
pub const KEPT: &str = "damaged/";

/// Data that this process owns.
pub struct Data {
    /// The storage for all layers above.
    pub storage: Arc<dyn Storage>,
    /// The same storage, where another process may take it over.
    shared: Shared,
}

/// Storage that several processes can reach.
enum Shared {
    /// A local folder.
    No,
    Objects(Arc<ObjectStorage>),
    Hdfs(Arc<HdfsStorage>),
    /// The log root of a server of a cluster, and whether the others have given the server up.
    Cluster(LogRoot, watch::Receiver<bool>),
}

/// The root of a server's log, which it owns.
#[derive(Clone)]
pub enum LogRoot {
    /// In an object store.
    Objects(Arc<ObjectStorage>),
    /// In HDFS.
    Hdfs(Arc<HdfsStorage>),
}

impl LogRoot {
    /// The storage.
    pub fn storage(&self) -> Arc<dyn Storage> {
        match self {
            LogRoot::Objects(objects) => objects.clone(),
            LogRoot::Hdfs(hdfs) => hdfs.clone(),
        }
    }

    async fn replaced(&self) -> String {
        match self {
            LogRoot::Objects(objects) => objects.replaced().await,
            LogRoot::Hdfs(hdfs) => hdfs.replaced().await,
        }
    }
}

impl Data {
    /// The data of a server of a cluster: it owns its log alone.
    pub fn of_cluster(log: LogRoot, given_up: watch::Receiver<bool>) -> Data {
        Data {
            storage: log.storage(),
            shared: Shared::Cluster(log, given_up),
        }
    }

    /// Finishes the files that this process was writing, after its last write. In HDFS a command that only reads needs
    /// this.
    pub async fn finish(&self) {
        match &self.shared {
            Shared::No | Shared::Objects(_) | Shared::Cluster(LogRoot::Objects(_), _) => {}
            Shared::Hdfs(hdfs) | Shared::Cluster(LogRoot::Hdfs(hdfs), _) => hdfs.finish().await,
        }
    }

    /// Completes with the name of the new owner when another process has taken the data over. It never completes where
    /// that is impossible.
    pub async fn replaced(&self) -> String {
        match &self.shared {
            Shared::No => std::future::pending().await,
            Shared::Objects(objects) => objects.replaced().await,
            Shared::Hdfs(hdfs) => hdfs.replaced().await,
            Shared::Cluster(log, given_up) => {
                let mut given_up = given_up.clone();
                tokio::select! {
                    by = log.replaced() => by,
                    _ = given_up.wait_for(|given_up| *given_up) => "the other servers of the cluster gave it up".to_owned(),
                }
            }
        }
    }
}

/// Opens the data and makes its place when needed. Data that were promoted to a cluster are refused.
pub async fn open(config: &Config, keys: &Keys, env: Env, metrics: &Metrics) -> anyhow::Result<Data> {
    let data = own(&config.data, config.cache.clone(), env, metrics, keys).await?;
    marks::check_stays(&*data.storage, &config.data.to_string()).await?;
    Ok(data)
}

/// Becomes the owner of a place, and makes it when needed. This ends a server on a prefix of an object store or a directory of
/// HDFS; a folder with a server is refused.
pub async fn own(
    place: &Place,
    cache: Option<CacheOptions>,
    env: Env,
    metrics: &Metrics,
    keys: &Keys,
) -> anyhow::Result<Data> {
    if marks::peek(place, &env, FORMAT).await?.is_some() {
        keys.check(place, &env).await?;
    }
    let mut data = own_bytes(place, cache, env, metrics).await?;
    data.storage = keys.over(data.storage, &place.to_string()).await?;
    Ok(data)
}

/// The same, without encryption.
async fn own_bytes(place: &Place, cache: Option<CacheOptions>, env: Env, metrics: &Metrics) -> anyhow::Result<Data> {
    match place {
        Place::Folder(root) => Ok(Data {
            storage: open_folder(root, env).await?,
            shared: Shared::No,
        }),
        Place::Objects(address) => {
            let open = open_objects(address, cache, env, metrics).await;
            let objects = open.with_context(|| address.to_string())?;
            Ok(Data {
                storage: objects.clone(),
                shared: Shared::Objects(objects),
            })
        }
        Place::Hdfs(address) => {
            let open = open_hdfs(address, cache, env, metrics).await;
            let hdfs = open.with_context(|| address.to_string())?;
            Ok(Data {
                storage: hdfs.clone(),
                shared: Shared::Hdfs(hdfs),
            })
        }
    }
}

/// Refuses a folder in which this process would leave files that its owner cannot open ([`owner`]).
pub fn check_user(place: &Place) -> anyhow::Result<()> {
    match place {
        Place::Folder(root) => owner::check(root, rustix::process::geteuid().as_raw()),
        Place::Objects(_) | Place::Hdfs(_) => Ok(()),
    }
}

/// Opens a folder as owner and makes it when needed.
pub async fn open_folder(root: &Path, env: Env) -> anyhow::Result<Arc<LocalStorage>> {
    owner::check(root, rustix::process::geteuid().as_raw())?;
    check_format(root)?;
    let storage = LocalStorage::open(root, env)?;
    let put = put_format(&*storage).await;
    put.with_context(|| format!("data folder {}", root.display()))?;
    Ok(storage)
}

/// Opens existing data for a command that only reads. A folder is locked. A server on a prefix of an object store keeps
/// running. A directory of HDFS must have been closed properly.
pub async fn look(place: &Place, env: Env, keys: &Keys) -> anyhow::Result<Arc<dyn Storage>> {
    check_exists(place, &env).await?;
    let root: Arc<dyn Storage> = match place {
        Place::Folder(root) => {
            check_format(root)?;
            LocalStorage::look(root, env)?
        }
        Place::Objects(address) => ObjectStorage::look(address, env).await?,
        Place::Hdfs(address) => {
            let look = HdfsStorage::look(address, env).await;
            look.with_context(|| {
                format!(
                    "{address} cannot be looked at while a server is on it, nor after one was killed: stop it, or say \
                     --take-over, which ends it"
                )
            })?
        }
    };
    keys.look(root, &place.to_string()).await
}

/// Opens existing data as its owner. This ends a server on a prefix of an object store or a directory of HDFS.
pub async fn take(place: &Place, env: Env, keys: &Keys) -> anyhow::Result<Arc<dyn Storage>> {
    check_exists(place, &env).await?;
    keys.check(place, &env).await?;
    let root: Arc<dyn Storage> = match place {
        Place::Folder(root) => open_folder(root, env).await?,
        Place::Objects(address) => open_objects(address, None, env, &Metrics::new()).await?,
        Place::Hdfs(address) => open_hdfs(address, None, env, &Metrics::new()).await?,
    };
    keys.over(root, &place.to_string()).await
}

async fn check_exists(place: &Place, env: &Env) -> anyhow::Result<()> {
    let (format, shown) = match place {
        Place::Folder(root) if !exists(root) => bail!(
            "{} is not a Stele data folder; give another with --data",
            root.display()
        ),
        Place::Folder(_) => return Ok(()),
        Place::Objects(address) => (
            ObjectStorage::peek(address, env.clone(), FORMAT).await?,
            address.to_string(),
        ),
        Place::Hdfs(address) => (
            HdfsStorage::peek(address, env.clone(), FORMAT).await?,
            address.to_string(),
        ),
    };
    match format {
        Some(_) => check_remote(&shown, format, None),
        None => bail!("{shown} holds no data of Stele; give another with --data"),
    }
}

async fn open_objects(
    address: &Address,
    cache: Option<CacheOptions>,
    env: Env,
    metrics: &Metrics,
) -> anyhow::Result<Arc<ObjectStorage>> {
    let format = ObjectStorage::peek(address, env.clone(), FORMAT).await?;
    let any = match format {
        // An interrupted start leaves only its claim.
        None => ObjectStorage::any_key(address, env.clone())
            .await?
            .filter(|key| !key.contains("@owner/")),
        Some(_) => None,
    };
    let is_new = format.is_none();
    if any.is_some() {
        refuse_gone(&Place::Objects(address.clone()), &env).await?;
    }
    check_remote(&address.to_string(), format, any)?;
    let objects = ObjectStorage::open(address, env, cache, ObjectMetrics::new(metrics)).await?;
    if is_new {
        put_format(&*objects).await?;
    }
    Ok(objects)
}

async fn open_hdfs(
    address: &HdfsAddress,
    cache: Option<CacheOptions>,
    env: Env,
    metrics: &Metrics,
) -> anyhow::Result<Arc<HdfsStorage>> {
    let format = HdfsStorage::peek(address, env.clone(), FORMAT).await?;
    let any = match format {
        None => HdfsStorage::any_key(address, env.clone()).await?,
        Some(_) => None,
    };
    if any.is_some() {
        refuse_gone(&Place::Hdfs(address.clone()), &env).await?;
    }
    check_remote(&address.to_string(), format, any)?;
    let hdfs = HdfsStorage::open(address, env, cache, HdfsMetrics::new(metrics)).await?;
    put_format(&*hdfs).await?;
    Ok(hdfs)
}

/// Refuses a place without a format that a promotion has marked.
async fn refuse_gone(place: &Place, env: &Env) -> anyhow::Result<()> {
    match marks::peek(place, env, marks::PROMOTED).await? {
        Some(mark) => Err(marks::gone(&place.to_string(), &mark)),
        None => Ok(()),
    }
}

/// Opens a place next to other processes, without a check of its content. A folder has one process at a time.
pub async fn open_beside(place: &Place, env: Env, keys: &Keys) -> anyhow::Result<Arc<dyn Storage>> {
    let metrics = Metrics::new();
    check_user(place)?;
    let root: Arc<dyn Storage> = match place {
        Place::Folder(root) => LocalStorage::open(root, env)?,
        Place::Objects(address) => ObjectStorage::share(address, env, None, ObjectMetrics::new(&metrics)).await?,
        Place::Hdfs(address) => HdfsStorage::share(address, env, None, HdfsMetrics::new(&metrics)).await?,
    };
    keys.over(root, &place.to_string()).await
}

async fn put_format(storage: &dyn Storage) -> stele_storage::Result<()> {
    put_format_text(storage, format!("stele-data {VERSION}\n")).await
}

async fn put_format_text(storage: &dyn Storage, text: String) -> stele_storage::Result<()> {
    let format = Bytes::from(text);
    match storage.put_if_absent(FORMAT, format).await {
        Err(StorageError::AlreadyExists { .. }) => Ok(()),
        put => put,
    }
}

/// Refuses a foreign place before this process becomes its owner. A place is foreign by its format, or if it has other
/// files but no format.
fn check_remote(place: &str, format: Option<Bytes>, any: Option<String>) -> anyhow::Result<()> {
    match (format, any) {
        (Some(text), _) => check_version(&String::from_utf8_lossy(&text), &format!("{place}/{FORMAT}"), place),
        (None, Some(key)) => {
            bail!("not empty and not made by Stele (it has {key:?} and no {FORMAT}); give another with --data")
        }
        (None, None) => Ok(()),
    }
}

fn check_version(text: &str, path: &str, place: &str) -> anyhow::Result<()> {
    if text.contains(SHARED) {
        bail!("{place} is shared by the servers of a cluster: start with --cluster");
    }
    refuse_promoted(text, place)?;
    let version = text
        .trim()
        .strip_prefix("stele-data ")
        .and_then(|v| v.parse::<u32>().ok());
    match version {
        None => bail!("{path}: not a Stele format file"),
        Some(version) if version > VERSION => bail!(
            "{place} has data format {version}, this version of Stele reads up to {VERSION}; it has not been touched"
        ),
        Some(_) => Ok(()),
    }
}

/// Refuses a format of data that have gone to a cluster.
fn refuse_promoted(text: &str, place: &str) -> anyhow::Result<()> {
    match text.trim().split_once(marks::GONE) {
        Some((_, destination)) => bail!("{place} was promoted to {destination}: start its servers with --cluster"),
        None => Ok(()),
    }
}

/// Whether there is a data folder.
fn exists(root: &Path) -> bool {
    root.join(FORMAT).exists()
}

fn check_format(root: &Path) -> anyhow::Result<()> {
    let shown = root.display();
    let path = root.join(FORMAT);
    match std::fs::read_to_string(&path) {
        Ok(text) => check_version(&text, &path.display().to_string(), &format!("data folder {shown}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => check_new(root),
        Err(error) => Err(error).with_context(|| format!("{}", path.display())),
    }
}

/// A folder without a format must be new: it may hold only the files of an interrupted first start.
fn check_new(root: &Path) -> anyhow::Result<()> {
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("data folder {}", root.display())),
    };
    if let Ok(mark) = std::fs::read(root.join(marks::PROMOTED)) {
        return Err(marks::gone(&root.display().to_string(), &mark));
    }
    for entry in entries {
        let name = entry?.file_name();
        if name != "LOCK" && name != "tmp" && name != "lost+found" {
            bail!(
                "{} is not empty and not a Stele data folder (it has {:?} and no {FORMAT}); give another with --data",
                root.display(),
                name
            );
        }
    }
    Ok(())
}
