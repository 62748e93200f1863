//! The data root as a whole: its number, and the epochs of its owners.

use super::{Catalog, Result};
use crate::error::CatalogError;
use bytes::Bytes;
use stele_coord::{Condition, Txn, TxnOutcome, Write, next_epoch_above};

/// The key of the number of the data root.
const ROOT: &str = "root/id";
/// The key of the number of the chain of archived logs.
const ARCHIVED_LOG: &str = "root/archived-log";
/// The counter of the epochs of owners.
pub const EPOCHS: &str = "server";
/// Epochs are below this.
const EPOCHS_END: u64 = 1 << 24;

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

    /// The number of the chain of logs that are archived; `None` if the last owner did not archive its log. An owner that does
    /// not archive ends the chain before it may delete anything of its log.
    pub async fn archived_log(&self) -> Result<Option<[u8; 16]>> {
        let found = self.coord.get(ARCHIVED_LOG).await?;
        Ok(found.and_then(|found| <[u8; 16]>::try_from(&found.value[..]).ok()))
    }

    /// Begins a chain of logs that are archived, or ends it.
    pub async fn set_archived_log(&self, chain: Option<[u8; 16]>) -> Result<()> {
        let key = ARCHIVED_LOG.to_owned();
        let write = match chain {
            Some(chain) => Write::Put {
                key,
                value: Bytes::copy_from_slice(&chain),
            },
            None => Write::Delete { key },
        };
        let txn = Txn {
            conditions: Vec::new(),
            writes: vec![write],
        };
        match self.coord.txn(txn).await? {
            TxnOutcome::Committed { .. } => Ok(()),
            // It has no condition that could fail.
            TxnOutcome::Conflict { .. } => Err(CatalogError::Conflict {
                key: ARCHIVED_LOG.to_owned(),
            }),
        }
    }

    /// An epoch above all that were given, and above `floor`. No later owner gets it or one below.
    pub async fn raise_epochs(&self, floor: u64) -> Result<u32> {
        let used_up = || CatalogError::Corruption {
            key: EPOCHS.to_owned(),
            detail: format!("epochs end below {EPOCHS_END}, and {floor} is taken"),
        };
        if floor >= EPOCHS_END - 1 {
            return Err(used_up());
        }
        let epoch = next_epoch_above(&*self.coord, EPOCHS, floor).await?;
        u32::try_from(epoch)
            .ok()
            .filter(|epoch| u64::from(*epoch) < EPOCHS_END)
            .ok_or_else(used_up)
    }
}

#[cfg(test)]
mod tests {
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
        catalog.set_archived_log(Some([7; 16])).await.unwrap();
        assert_eq!(catalog.archived_log().await.unwrap(), Some([7; 16]));
        catalog.set_archived_log(None).await.unwrap();
        assert_eq!(catalog.archived_log().await.unwrap(), None);
    }
}
