//! Changes of the switches.

use super::{Catalog, Result};
use crate::error::CatalogError;
use crate::record::switches::{SWITCHES, decode_switches, encode_switches};
use stele_coord::{Coord, Write};
use stele_types::Switches;

pub(super) async fn load(coord: &dyn Coord) -> Result<Switches> {
    let Some(found) = coord.get(SWITCHES).await? else {
        return Ok(Switches::default());
    };
    decode_switches(&found.value).map_err(|detail| CatalogError::Corruption {
        key: SWITCHES.to_owned(),
        detail,
    })
}

impl Catalog {
    /// Sets all switches.
    pub async fn set_switches(&self, switches: Switches) -> Result<()> {
        let write = Write::Put {
            key: SWITCHES.to_owned(),
            value: encode_switches(switches),
        };
        self.commit(Vec::new(), vec![write]).await?;
        self.change(|view| view.switches = switches);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use stele_coord::EmbeddedCoord;
    use stele_env::tokio_env::TokioRuntime;
    use stele_storage::memory::MemoryStorage;

    #[tokio::test]
    async fn switches_stay_as_they_were_set() {
        let env = TokioRuntime::current();
        let coord: Arc<dyn Coord> = EmbeddedCoord::open(MemoryStorage::new(), env).await.unwrap();
        let catalog = Catalog::load(coord.clone()).await.unwrap();
        assert_eq!(catalog.view().switches, Switches::default());
        let set = Switches {
            split: false,
            snapshot_cleanup: false,
            ..Switches::default()
        };
        catalog.set_switches(set).await.unwrap();
        assert_eq!(catalog.view().switches, set);
        assert_eq!(Catalog::load(coord.clone()).await.unwrap().view().switches, set);
        let newer = Write::Put {
            key: SWITCHES.to_owned(),
            value: bytes::Bytes::from_static(b"\x02"),
        };
        catalog.commit(Vec::new(), vec![newer]).await.unwrap();
        let refused = Catalog::load(coord).await.err().expect("another version");
        assert!(refused.to_string().contains("record version 2"), "{refused}");
    }
}
