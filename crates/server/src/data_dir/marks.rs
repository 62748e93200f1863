//! Marks of a promotion in the two data roots.
//!
//! Data leave one root and arrive in the other.
//!
//! * `PROMOTED` in the root of a single server says where its data go. From then on no single server starts there.
//! * `FORMAT` of that root is then replaced. So a program that does not know the mark refuses the root, too.
//! * `INCOMING` in a root says that data arrive there. No server of a cluster starts on it before its `FORMAT` is there.
//!
//! A file is never overwritten, so `FORMAT` is missing for a moment. `PROMOTED` is there before, and decides.

use super::{FORMAT, SHARED, VERSION, check_version};
use anyhow::{Context, bail};
use bytes::Bytes;
use stele_env::Env;
use stele_hdfs::HdfsStorage;
use stele_objects::ObjectStorage;
use stele_settings::Place;
use stele_storage::{Storage, StorageError};

/// The file that says where the data of a single server have gone.
pub const PROMOTED: &str = "PROMOTED";
/// The file that says that data arrive.
pub const INCOMING: &str = "INCOMING";
/// Behind the version in the format of a root whose data have gone.
pub(super) const GONE: &str = " promoted to ";
/// The first line of a `PROMOTED`.
const HEAD: &str = "stele-promoted 1";

/// The content of a `PROMOTED`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promoted {
    /// The number of the data root.
    pub root: [u8; 16],
    /// The cluster.
    pub cluster: String,
    /// Its data root.
    pub data: String,
}

impl Promoted {
    /// As the file has it.
    pub fn to_text(&self) -> String {
        let Promoted { root, cluster, data } = self;
        format!("{HEAD}\nroot {}\ncluster {cluster}\ndata {data}\n", hex(root))
    }

    /// Reads the file. Text that is not exactly as it is written is damage: a cut line would name another place.
    pub fn parse(bytes: &[u8]) -> Option<Promoted> {
        let mut lines = std::str::from_utf8(bytes).ok()?.lines();
        if lines.next() != Some(HEAD) {
            return None;
        }
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        let (digits, cluster, data) = (value("root")?, value("cluster")?, value("data")?);
        let root = u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 32)?;
        let mark = Promoted {
            root: root.to_be_bytes(),
            cluster: cluster.to_owned(),
            data: data.to_owned(),
        };
        (mark.to_text().as_bytes() == bytes).then_some(mark)
    }

    /// The destination, for a sentence.
    pub fn destination(&self) -> String {
        format!("{} with the data in {}", self.cluster, self.data)
    }

    /// The `FORMAT` that the root gets.
    pub fn format_of_source(&self) -> String {
        format!("stele-data {VERSION}{GONE}{}\n", self.destination())
    }
}

/// The number of a data root or of a cluster, in digits.
pub(super) fn hex(number: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*number))
}

/// The `FORMAT` of a root that the servers of a cluster share.
pub fn shared_format(cluster: &[u8; 16]) -> String {
    format!("stele-data {VERSION}{SHARED}{}\n", hex(cluster))
}

/// The `INCOMING` of data that come from a root.
pub fn incoming(root: &[u8; 16]) -> String {
    format!("stele-incoming 1 {}\n", hex(root))
}

/// The content of a small file; `None` if it does not exist.
pub async fn read_if_there(storage: &dyn Storage, path: &str) -> stele_storage::Result<Option<Bytes>> {
    match storage.read_all(path).await {
        Err(StorageError::NotFound { .. }) => Ok(None),
        content => content.map(Some),
    }
}

/// Refuses to serve data that have gone to a cluster. The caller owns them: a promotion that put the mark before is seen, and a
/// later one finds that it has lost the data.
pub async fn check_stays(storage: &dyn Storage, place: &str) -> anyhow::Result<()> {
    match read_if_there(storage, PROMOTED).await? {
        None => Ok(()),
        Some(text) => Err(gone(place, &text)),
    }
}

/// The error of a root with a `PROMOTED`.
pub(super) fn gone(place: &str, text: &[u8]) -> anyhow::Error {
    let destination = Promoted::parse(text).map_or_else(|| "a cluster".to_owned(), |mark| mark.destination());
    anyhow::anyhow!(
        "{place} was promoted to {destination}: start its servers with --cluster. If that promotion was given up, \
         docs/cluster.md says how to take the data back"
    )
}

/// The data of a single server, before a promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A single server could start, or could but for the mark.
    Whole,
    /// All records are in the cluster, so that only the last steps are left, if any.
    Left(Promoted),
}

/// The state of the root of a single server. Nothing is opened or changed.
pub async fn source_at(place: &Place, env: &Env) -> anyhow::Result<Source> {
    let format = peek(place, env, FORMAT).await?;
    let mark = peek(place, env, PROMOTED).await?;
    source_of(&place.to_string(), format, mark)
}

/// The state by the contents of `FORMAT` and `PROMOTED`.
pub fn source_of(place: &str, format: Option<Bytes>, mark: Option<Bytes>) -> anyhow::Result<Source> {
    let text = format
        .as_ref()
        .map(|format| String::from_utf8_lossy(format).into_owned());
    let is_whole = text
        .as_ref()
        .is_some_and(|text| !text.contains(GONE) && !text.contains(SHARED));
    match (text, mark) {
        (None, None) => bail!("{place} is not the data of a server of Stele"),
        (Some(text), _) if is_whole => {
            check_version(&text, &format!("{place}/{FORMAT}"), place).map(|()| Source::Whole)
        }
        (_, Some(mark)) => {
            let mark = Promoted::parse(&mark).with_context(|| format!("{place}/{PROMOTED} cannot be read"))?;
            Ok(Source::Left(mark))
        }
        (Some(text), None) if text.contains(GONE) => {
            bail!(
                "{place} was promoted before, and its file {PROMOTED} is gone: {}",
                text.trim()
            )
        }
        (Some(_), None) => bail!("{place} is the data root of a cluster already"),
    }
}

/// A small file of a place that is not opened.
pub(super) async fn peek(place: &Place, env: &Env, path: &str) -> anyhow::Result<Option<Bytes>> {
    match place {
        #[allow(clippy::disallowed_methods, reason = "before the storage is opened, which tidies up")]
        Place::Folder(root) => match std::fs::read(root.join(path)) {
            Ok(content) => Ok(Some(content.into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| root.join(path).display().to_string()),
        },
        Place::Objects(address) => Ok(ObjectStorage::peek(address, env.clone(), path).await?),
        Place::Hdfs(address) => Ok(HdfsStorage::peek(address, env.clone(), path).await?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let mark = Promoted {
            root: [0xa1; 16],
            cluster: "etcd://a:2379,b:2379/prod".to_owned(),
            data: "s3://bucket/prod data".to_owned(),
        };
        let text = mark.to_text();
        assert_eq!(
            text,
            "stele-promoted 1\nroot a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1\ncluster etcd://a:2379,b:2379/prod\ndata s3://bucket/prod \
             data\n"
        );
        assert_eq!(Promoted::parse(text.as_bytes()), Some(mark));
        for wrong in [
            text.replace(" 1\n", " 2\n"),
            text.replace("root a1", "root "),
            text[..40].to_owned(),
        ] {
            assert_eq!(Promoted::parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    /// No fuzz target reaches this crate, which has no library.
    #[test]
    fn damage_to_a_mark_is_refused_or_gives_another_mark() {
        let mark = Promoted {
            root: [0x1b; 16],
            cluster: "etcd://a:2379/prod".to_owned(),
            data: "s3://bucket/prod".to_owned(),
        };
        let text = mark.to_text().into_bytes();
        for at in 0..text.len() {
            assert_eq!(Promoted::parse(&text[..at]), None, "cut at {at}");
            for bit in 0..8 {
                let mut damaged = text.clone();
                damaged[at] ^= 1 << bit;
                if let Some(read) = Promoted::parse(&damaged) {
                    assert_eq!(read.to_text().into_bytes(), damaged, "byte {at}, bit {bit}");
                }
            }
        }
    }
}
