//! The first bytes of a connection: both servers and the version.
//!
//! Two versions run side by side during an upgrade: each side states the range that it speaks, and the owner takes the highest
//! one in both. The owner of a tablet must not answer for another server, and a server that was replaced must not be asked: so
//! number and epoch of both ends are compared here, once for each connection.

use crate::cursor::{Cursor, Decoded};
use crate::error::ProtocolError;
use bytes::Bytes;
use std::fmt;
use std::ops::RangeInclusive;

/// The versions that this build speaks.
pub const VERSIONS: RangeInclusive<u16> = 1..=3;

/// The version from which on requests may carry a trace.
pub(crate) const TRACES_SINCE: u16 = 2;

/// The version from which on reads tell their work.
pub(crate) const WORK_SINCE: u16 = 3;

/// First bytes of both sides.
const MAGIC: &[u8; 8] = b"STELPEER";

/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize = 68;

/// Bytes of an [`Answer`].
pub const ANSWER_BYTES: usize = 52;

/// A server of a cluster, in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The cluster.
    pub cluster: [u8; 16],
    /// Its number in the cluster.
    pub server: u64,
    /// Grows with every start. 0 stands for any, where a server is expected.
    pub epoch: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {} of epoch {}", self.server, self.epoch)
    }
}

/// The reason for which an owner does not talk to a caller. Numbers are in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u16)]
pub enum Refusal {
    /// No common version.
    #[error("the servers speak no common version of the protocol")]
    Version = 1,
    /// The caller is of another cluster.
    #[error("the server belongs to another cluster")]
    Cluster = 2,
    /// The caller wants another server.
    #[error("another server is at this address")]
    Server = 3,
    /// The caller wants an earlier or later life of the server.
    #[error("the server has restarted")]
    Epoch = 4,
    /// The owner takes no calls any more.
    #[error("the server is shutting down")]
    Draining = 5,
}

impl Refusal {
    fn from_number(number: u16) -> Option<Refusal> {
        use Refusal::{Cluster, Draining, Epoch, Server, Version};
        [Version, Cluster, Server, Epoch, Draining]
            .into_iter()
            .find(|refusal| *refusal as u16 == number)
    }
}

/// The beginning of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Versions that the caller speaks.
    pub versions: RangeInclusive<u16>,
    /// The caller.
    pub caller: Identity,
    /// The server that it wants, of the same cluster.
    pub owner: Identity,
}

impl Hello {
    /// The bytes.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        out[0..8].copy_from_slice(MAGIC);
        out[8..10].copy_from_slice(&self.versions.start().to_le_bytes());
        out[10..12].copy_from_slice(&self.versions.end().to_le_bytes());
        out[16..32].copy_from_slice(&self.caller.cluster);
        out[32..40].copy_from_slice(&self.caller.server.to_le_bytes());
        out[40..48].copy_from_slice(&self.caller.epoch.to_le_bytes());
        out[48..56].copy_from_slice(&self.owner.server.to_le_bytes());
        out[56..64].copy_from_slice(&self.owner.epoch.to_le_bytes());
        seal(&mut out);
        out
    }

    /// Any bytes are refused or decoded.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Decoded<Hello> {
        let mut fields = opened("hello", bytes)?;
        let versions = fields.u16()?..=fields.u16()?;
        if fields.u32()? != 0 {
            return Err(fields.malformed("a reserved field is not zero"));
        }
        let cluster = cluster(&mut fields)?;
        let (server, epoch) = (fields.u64()?, fields.u64()?);
        let (owner_server, owner_epoch) = (fields.u64()?, fields.u64()?);
        Ok(Hello {
            versions,
            caller: Identity { cluster, server, epoch },
            owner: Identity {
                cluster,
                server: owner_server,
                epoch: owner_epoch,
            },
        })
    }

    /// The version for this caller at `own`, which speaks `versions`.
    pub fn judge(&self, own: &Identity, versions: &RangeInclusive<u16>) -> Result<u16, Refusal> {
        let version = *versions.end().min(self.versions.end());
        if version < *versions.start().max(self.versions.start()) {
            return Err(Refusal::Version);
        }
        if self.owner.cluster != own.cluster {
            return Err(Refusal::Cluster);
        }
        if self.owner.server != own.server {
            return Err(Refusal::Server);
        }
        match self.owner.epoch {
            0 => Ok(version),
            epoch if epoch == own.epoch => Ok(version),
            _ => Err(Refusal::Epoch),
        }
    }
}

/// The answer of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The version of this connection.
    pub version: Result<u16, Refusal>,
    /// Versions that the owner speaks.
    pub versions: RangeInclusive<u16>,
    /// The owner.
    pub owner: Identity,
}

impl Answer {
    /// The bytes.
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let (version, refusal) = match self.version {
            Ok(version) => (version, 0),
            Err(refusal) => (0, refusal as u16),
        };
        let mut out = [0; ANSWER_BYTES];
        out[0..8].copy_from_slice(MAGIC);
        out[8..10].copy_from_slice(&version.to_le_bytes());
        out[10..12].copy_from_slice(&refusal.to_le_bytes());
        out[12..14].copy_from_slice(&self.versions.start().to_le_bytes());
        out[14..16].copy_from_slice(&self.versions.end().to_le_bytes());
        out[16..32].copy_from_slice(&self.owner.cluster);
        out[32..40].copy_from_slice(&self.owner.server.to_le_bytes());
        out[40..48].copy_from_slice(&self.owner.epoch.to_le_bytes());
        seal(&mut out);
        out
    }

    /// Any bytes are refused or decoded.
    pub fn decode(bytes: &[u8; ANSWER_BYTES]) -> Decoded<Answer> {
        let mut fields = opened("answer", bytes)?;
        let (version, refusal) = (fields.u16()?, fields.u16()?);
        let versions = fields.u16()?..=fields.u16()?;
        let version = match (version, refusal) {
            (0, 0) => return Err(fields.malformed("neither a version nor a refusal")),
            (version, 0) => Ok(version),
            (0, refusal) => match Refusal::from_number(refusal) {
                Some(refusal) => Err(refusal),
                None => return Err(fields.malformed("an unknown refusal")),
            },
            _ => return Err(fields.malformed("both a version and a refusal")),
        };
        let cluster = cluster(&mut fields)?;
        let (server, epoch) = (fields.u64()?, fields.u64()?);
        Ok(Answer {
            version,
            versions,
            owner: Identity { cluster, server, epoch },
        })
    }

    /// The version, if the answer is that of the server that the caller wants.
    pub fn accept(&self, hello: &Hello) -> Result<u16, Refusal> {
        let version = self.version?;
        // An owner compares, too; but a caller does not send its writes to a server that says that it is another one.
        let same = Hello {
            versions: version..=version,
            ..hello.clone()
        };
        same.judge(&self.owner, &hello.versions)
    }
}

fn cluster(fields: &mut Cursor) -> Decoded<[u8; 16]> {
    let bytes = fields.slice(16)?;
    <[u8; 16]>::try_from(&bytes[..]).map_err(|_| fields.malformed("it is too short"))
}

/// Writes the checksum into the last four bytes.
fn seal<const N: usize>(out: &mut [u8; N]) {
    let crc = crc32fast::hash(&out[..N - 4]);
    out[N - 4..].copy_from_slice(&crc.to_le_bytes());
}

/// The fields behind the magic, once the checksum is right.
fn opened<const N: usize>(what: &'static str, bytes: &[u8; N]) -> Decoded<Cursor> {
    if !bytes.starts_with(MAGIC) {
        return Err(ProtocolError::Magic);
    }
    if bytes[N - 4..] != crc32fast::hash(&bytes[..N - 4]).to_le_bytes() {
        return Err(ProtocolError::Checksum(what));
    }
    let mut fields = Cursor::new(what, Bytes::copy_from_slice(&bytes[..N - 4]));
    fields.slice(MAGIC.len())?;
    Ok(fields)
}

#[cfg(test)]
mod tests;
