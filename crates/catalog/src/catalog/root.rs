//! The data root as a whole: its number, epochs of owners, and their moments.

use super::{Catalog, Result};
use crate::error::CatalogError;
use bytes::Bytes;
use stele_coord::epoch::{self, next_epoch_with};
use stele_coord::{Condition, Coord, Txn, TxnOutcome, Write};

/// The key of the number of the data root.
const ROOT: &str = "root/id";
/// The key of the number of the chain of archived logs.
const ARCHIVED_LOG: &str = "root/archived-log";
/// The key of the newest moment that an owner has noted.
const CLOCK: &str = "root/clock";
/// The counter of the epochs of owners.
pub const EPOCHS: &str = "server";
/// Epochs are below this.
const EPOCHS_END: u64 = 1 << 24;

/// A chain of logs that are archived without a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchivedChain {
    /// Its number.
    pub number: [u8; 16],
    /// The newest epoch that was drawn with regard to the chain.
    pub epoch: u32,
}

impl ArchivedChain {
    /// As the coordinator has it.
    pub fn encode(&self) -> Bytes {
        [&self.number[..], &self.epoch.to_le_bytes()].concat().into()
    }

    /// Bytes that are none are no chain: then the archive has a gap.
    pub fn decode(bytes: &[u8]) -> Option<ArchivedChain> {
        let (number, rest) = bytes.split_first_chunk()?;
        Some(ArchivedChain {
            number: *number,
            epoch: u32::from_le_bytes(rest.try_into().ok()?),
        })
    }

    fn put(&self) -> Write {
        Write::Put {
            key: ARCHIVED_LOG.to_owned(),
            value: self.encode(),
        }
    }
}

impl Catalog {
    /// The number of the data root, which no other has. The first call makes it of `random`.
    pub async fn root_id(&self, random: [u64; 2]) -> Result<[u8; 16]> {
        loop {
            if let Some(found) = self.coord.get(ROOT).await? {
                let id = <[u8; 16]>::try_from(&found.value[..]);
                return id.map_err(|_| CatalogError::Corruption {
                    key: ROOT.to_owned(),
                    detail: format!("{} bytes instead of 16", found.value.len()),
                });
            }
            let mut id = [0; 16];
            let (first, second) = id.split_at_mut(8);
            first.copy_from_slice(&random[0].to_le_bytes());
            second.copy_from_slice(&random[1].to_le_bytes());
            let txn = Txn {
                conditions: vec![Condition::absent(ROOT)],
                writes: vec![Write::Put {
                    key: ROOT.to_owned(),
                    value: Bytes::copy_from_slice(&id),
                }],
            };
            if let TxnOutcome::Committed { .. } = self.coord.txn(txn).await? {
                return Ok(id);
            }
        }
    }

    /// The chain of logs that are archived; `None` if the last owner did not archive its log. An owner that does not archive ends
    /// the chain before it may delete anything of its log.
    pub async fn archived_log(&self) -> Result<Option<ArchivedChain>> {
        let found = self.coord.get(ARCHIVED_LOG).await?;
        Ok(found.and_then(|found| ArchivedChain::decode(&found.value)))
    }

    /// Begins a chain of logs that are archived. All owners with an epoch so far know of it.
    pub async fn begin_archived_log(&self, number: [u8; 16]) -> Result<()> {
        let key = epoch::key(EPOCHS);
        loop {
            let counter = self.coord.get(&key).await?;
            let last = counter
                .as_ref()
                .map_or(Ok(0), |found| epoch::parse(&key, &found.value))?;
            let epoch = narrow(last)?;
            let txn = Txn {
                conditions: vec![Condition::unchanged(&key, counter.as_ref())],
                writes: vec![ArchivedChain { number, epoch }.put()],
            };
            if let TxnOutcome::Committed { .. } = self.coord.txn(txn).await? {
                return Ok(());
            }
        }
    }

    /// Ends the chain of logs that are archived.
    async fn end_archived_log(&self) -> Result<()> {
        let txn = Txn {
            conditions: Vec::new(),
            writes: vec![end_of_chain()],
        };
        match self.coord.txn(txn).await? {
            TxnOutcome::Committed { .. } => Ok(()),
            // It has no condition that could fail.
            TxnOutcome::Conflict { .. } => Err(CatalogError::Conflict {
                key: ARCHIVED_LOG.to_owned(),
            }),
        }
    }

    /// The next owner, with the epoch that it drew, goes on with the chain. Ends the chain if an owner was between that knew nothing
    /// of it: an earlier program, or a repair. Returns whether a chain goes on.
    pub async fn inherit_archived_log(&self, epoch: u32) -> Result<bool> {
        match self.archived_log().await? {
            None => Ok(false),
            Some(found) if found.epoch == epoch => Ok(true),
            Some(_) => {
                self.end_archived_log().await?;
                Ok(false)
            }
        }
    }

    /// The newest moment that an owner has noted, in wall-clock microseconds; 0 if there is none.
    pub async fn noted_moment(&self) -> Result<i64> {
        noted_moment(&*self.coord).await
    }

    /// Notes a moment before it is given to anything that outlives the process, so that no later owner gives an earlier one. The newer
    /// one of it and the noted one.
    pub async fn note_moment(&self, micros: i64) -> Result<i64> {
        note_moment(&*self.coord, micros).await
    }

    /// An epoch above all that were given, and above `floor`. No later owner gets it or one below.
    pub async fn raise_epochs(&self, floor: u64) -> Result<u32> {
        advance(&*self.coord, floor, Chain::FollowsAlways).await
    }
}

/// The epoch of the next owner of the data root, above `used`: that of the newest log. A chain of archived logs follows an owner that
/// archives, unless the log is of an owner that the counter does not know. For one that does not, it ends in the same transaction: a
/// record behind that might be lost. Programs that change logs do not draw their epochs here, which ends the chain.
pub async fn draw_epoch(coord: &dyn Coord, used: u64, archives: bool) -> Result<u32> {
    let chain = match archives {
        true => Chain::Follows,
        false => Chain::Ends,
    };
    advance(coord, used, chain).await
}

/// The chain of archived logs when the counter moves.
#[derive(Clone, Copy)]
enum Chain {
    /// It follows.
    FollowsAlways,
    /// It follows unless the floor is above the counter.
    Follows,
    Ends,
}

/// Moves the counter of epochs, and with it the chain of archived logs.
async fn advance(coord: &dyn Coord, floor: u64, then: Chain) -> Result<u32> {
    let with = |last, next| move_chain(coord, (last, next), then, floor <= last);
    narrow(next_epoch_with(coord, EPOCHS, floor, with).await?)
}

/// The part of a transaction that moves the chain of archived logs from the last epoch to the next one. A chain that is behind the counter
/// stays behind.
async fn move_chain(coord: &dyn Coord, (last, next): (u64, u64), then: Chain, is_known: bool) -> Result<Txn> {
    let epoch = narrow(next)?;
    let chain = coord.get(ARCHIVED_LOG).await?;
    let known = chain.as_ref().and_then(|found| ArchivedChain::decode(&found.value));
    let known = known.filter(|known| u64::from(known.epoch) == last);
    let write = match then {
        Chain::Ends if chain.is_some() => {
            tracing::warn!("the log was archived so far and is not any more: the archive has a gap from here on");
            Some(end_of_chain())
        }
        Chain::Ends => None,
        Chain::Follows if !is_known => None,
        Chain::Follows | Chain::FollowsAlways => known.map(|known| ArchivedChain { epoch, ..known }.put()),
    };
    Ok(Txn {
        conditions: vec![Condition::unchanged(ARCHIVED_LOG, chain.as_ref())],
        writes: write.into_iter().collect(),
    })
}

fn end_of_chain() -> Write {
    Write::Delete {
        key: ARCHIVED_LOG.to_owned(),
    }
}

/// An epoch as owners have it.
fn narrow(epoch: u64) -> Result<u32> {
    let narrowed = u32::try_from(epoch).ok().filter(|_| epoch < EPOCHS_END);
    narrowed.ok_or_else(|| CatalogError::Corruption {
        key: EPOCHS.to_owned(),
        detail: format!("epochs end below {EPOCHS_END}, and {epoch} is not"),
    })
}

/// The newest moment that any server of a coordinator has noted, in wall-clock microseconds; 0 if there is none.
pub async fn noted_moment(coord: &dyn Coord) -> Result<i64> {
    match coord.get(CLOCK).await? {
        Some(found) => decode_moment(&found.value),
        None => Ok(0),
    }
}

/// Notes a moment, unless a newer one is noted; the newer one of both.
pub async fn note_moment(coord: &dyn Coord, micros: i64) -> Result<i64> {
    later_moment(coord, |noted| (noted < micros).then_some(micros)).await
}

/// Notes a moment after every one that was noted before: `now` gives one that is not before its argument. So moments of different
/// servers have the order in which the coordinator saw them.
pub async fn next_moment(coord: &dyn Coord, now: impl Fn(i64) -> i64) -> Result<i64> {
    later_moment(coord, |noted| {
        let after = noted.saturating_add(1);
        Some(now(after).max(after))
    })
    .await
}

/// Notes the moment that follows the noted one, if there is one; the newest.
async fn later_moment(coord: &dyn Coord, next: impl Fn(i64) -> Option<i64>) -> Result<i64> {
    loop {
        let found = coord.get(CLOCK).await?;
        let noted = found.as_ref().map_or(Ok(0), |found| decode_moment(&found.value))?;
        let Some(micros) = next(noted) else { return Ok(noted) };
        let txn = Txn {
            conditions: vec![Condition::unchanged(CLOCK, found.as_ref())],
            writes: vec![Write::Put {
                key: CLOCK.to_owned(),
                value: Bytes::copy_from_slice(&micros.to_le_bytes()),
            }],
        };
        if let TxnOutcome::Committed { .. } = coord.txn(txn).await? {
            return Ok(micros);
        }
    }
}

/// Decodes a noted moment, in wall-clock microseconds.
pub fn decode_moment(bytes: &[u8]) -> Result<i64> {
    let micros = <[u8; 8]>::try_from(bytes).map(i64::from_le_bytes);
    micros.map_err(|_| CatalogError::Corruption {
        key: CLOCK.to_owned(),
        detail: format!("{} bytes instead of 8", bytes.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::{ArchivedChain, EPOCHS};
    use crate::Catalog;
    use stele_coord::EmbeddedCoord;
    use stele_env::tokio_env::TokioRuntime;
    use stele_storage::memory::MemoryStorage;

    #[tokio::test]
    async fn a_root_keeps_its_number_and_epochs_ascend() {
        let coord = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
        let catalog = Catalog::load(coord.await.unwrap()).await.unwrap();
        let id = catalog.root_id([1, 2]).await.unwrap();
        assert_eq!(catalog.root_id([3, 4]).await.unwrap(), id);
        assert_eq!(catalog.raise_epochs(0).await.unwrap(), 1);
        assert_eq!(catalog.raise_epochs(40).await.unwrap(), 41);
        assert_eq!(catalog.raise_epochs(7).await.unwrap(), 42);
        assert!(catalog.raise_epochs((1 << 24) - 1).await.is_err());
        assert_eq!(catalog.archived_log().await.unwrap(), None);
        let draw = |used| super::draw_epoch(&*catalog.coord, used, true);
        let chain = async || catalog.archived_log().await.unwrap();
        catalog.begin_archived_log([7; 16]).await.unwrap();
        let begun = ArchivedChain {
            number: [7; 16],
            epoch: 42,
        };
        assert_eq!(chain().await, Some(begun));
        // A start that ended early, and restores, whose backups may have any epoch.
        assert_eq!(draw(42).await.unwrap(), 43);
        assert_eq!(catalog.raise_epochs(0).await.unwrap(), 44);
        assert_eq!(catalog.raise_epochs(60).await.unwrap(), 61);
        assert_eq!(draw(43).await.unwrap(), 62);
        assert!(catalog.inherit_archived_log(62).await.unwrap());
        assert_eq!(chain().await, Some(ArchivedChain { epoch: 62, ..begun }));
        // A log of an owner that the counter does not know.
        assert_eq!(draw(70).await.unwrap(), 71);
        assert_eq!(draw(71).await.unwrap(), 72);
        assert!(!catalog.inherit_archived_log(72).await.unwrap());
        assert_eq!(chain().await, None);
        // A repair did not know the chain.
        catalog.begin_archived_log([8; 16]).await.unwrap();
        let repair = stele_coord::next_epoch_above(&*catalog.coord, EPOCHS, 0).await;
        assert_eq!(repair.unwrap(), 73);
        assert_eq!(draw(73).await.unwrap(), 74);
        assert!(!catalog.inherit_archived_log(74).await.unwrap());
        assert_eq!(chain().await, None);
        // One that does not archive ends it before it does anything.
        catalog.begin_archived_log([9; 16]).await.unwrap();
        assert_eq!(super::draw_epoch(&*catalog.coord, 74, false).await.unwrap(), 75);
        assert_eq!(chain().await, None);
        assert_eq!(ArchivedChain::decode(&[7; 16]), None);
        assert_eq!(catalog.noted_moment().await.unwrap(), 0);
        assert_eq!(catalog.note_moment(0x0102).await.unwrap(), 0x0102);
        assert_eq!(catalog.note_moment(5).await.unwrap(), 0x0102);
        assert_eq!(catalog.noted_moment().await.unwrap(), 0x0102);
        let bytes = catalog.coord.get("root/clock").await.unwrap().unwrap().value;
        assert_eq!(&bytes[..], [2, 1, 0, 0, 0, 0, 0, 0]);
        // Another server, whose clock is behind, has a later moment nevertheless.
        let next = super::next_moment(&*catalog.coord, |after| after.max(7)).await.unwrap();
        assert_eq!((next, catalog.noted_moment().await.unwrap()), (0x0103, 0x0103));
        let next = super::next_moment(&*catalog.coord, |after| after.max(0x0200))
            .await
            .unwrap();
        assert_eq!(next, 0x0200);
    }
}
