//! Places of backups and archives in use by this server.
//!
//! A folder cannot be opened twice, so a place is shared while anybody has it. One that was opened to be read may be in
//! plain text although the server has keys. A writer gets it over the same root, with its encryption begun.

use crate::error::Result;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use stele_client::{BackupDestination, ServiceResult};
use stele_storage::Storage;

/// A place that is to be opened.
pub struct PlaceToOpen {
    /// Which one.
    pub place: BackupDestination,
    /// It may be made, and is written.
    pub make: bool,
    /// Its root, where that is open already.
    pub root: Option<Arc<dyn Storage>>,
}

/// A place that is open.
pub struct OpenedPlace {
    /// Its files as they are stored.
    pub root: Arc<dyn Storage>,
    /// The same, encrypted if the server has keys.
    pub storage: Arc<dyn Storage>,
}

/// A place without keys.
impl From<Arc<dyn Storage>> for OpenedPlace {
    fn from(storage: Arc<dyn Storage>) -> OpenedPlace {
        OpenedPlace {
            root: storage.clone(),
            storage,
        }
    }
}

/// Opens a place.
pub type OpenDestination = Arc<dyn Fn(PlaceToOpen) -> BoxFuture<'static, ServiceResult<OpenedPlace>> + Send + Sync>;

/// Opens places, each once at a time.
pub struct Places {
    open: OpenDestination,
    opened: Mutex<Vec<(BackupDestination, Arc<tokio::sync::Mutex<Handles>>)>>,
}

/// The handles of a place that somebody may have.
#[derive(Default)]
struct Handles {
    root: Option<Weak<dyn Storage>>,
    to_read: Option<Weak<dyn Storage>>,
    to_write: Option<Weak<dyn Storage>>,
}

impl Handles {
    fn is_in_use(&self) -> bool {
        let all = [&self.root, &self.to_read, &self.to_write];
        all.into_iter().flatten().any(|handle| handle.strong_count() > 0)
    }
}

impl Places {
    /// Of an opener.
    pub fn new(open: OpenDestination) -> Arc<Places> {
        Arc::new(Places {
            open,
            opened: Mutex::default(),
        })
    }

    /// The storage of a place. It may be made, and written, if the flag is set. One place that does not answer delays no other.
    pub async fn open(&self, place: BackupDestination, make: bool) -> Result<Arc<dyn Storage>> {
        let handles = self.handles(&place);
        let mut handles = handles.lock().await;
        let of = |handle: &Option<Weak<dyn Storage>>| handle.as_ref().and_then(Weak::upgrade);
        let found = of(&handles.to_write).or_else(|| of(&handles.to_read).filter(|_| !make));
        if let Some(storage) = found {
            return Ok(storage);
        }
        let root = of(&handles.root);
        let OpenedPlace { root, storage } = (self.open)(PlaceToOpen { place, make, root }).await?;
        handles.root = Some(Arc::downgrade(&root));
        let handle = Some(Arc::downgrade(&storage));
        match make {
            true => handles.to_write = handle,
            false => handles.to_read = handle,
        }
        Ok(storage)
    }

    fn handles(&self, place: &BackupDestination) -> Arc<tokio::sync::Mutex<Handles>> {
        let mut opened = self.opened.lock();
        // One that somebody waits for, or has locked, stays.
        opened.retain(|(_, handles)| {
            Arc::strong_count(handles) > 1 || handles.try_lock().is_ok_and(|handles| handles.is_in_use())
        });
        if let Some((_, handles)) = opened.iter().find(|(at, _)| at == place) {
            return handles.clone();
        }
        let handles = Arc::default();
        opened.push((place.clone(), Arc::clone(&handles)));
        handles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use stele_storage::memory::MemoryStorage;

    fn place(address: &str) -> BackupDestination {
        BackupDestination {
            address: address.to_owned(),
            options: Vec::new(),
        }
    }

    /// An opener that adds a layer for writers, as encryption does. The place `slow` never opens.
    fn places() -> Arc<Places> {
        Places::new(Arc::new(|to_open: PlaceToOpen| {
            Box::pin(async move {
                if to_open.place.address == "slow" {
                    std::future::pending::<()>().await;
                }
                let root = to_open.root.unwrap_or_else(|| MemoryStorage::new());
                let storage = if to_open.make {
                    MemoryStorage::new()
                } else {
                    root.clone()
                };
                Ok(OpenedPlace { root, storage })
            })
        }))
    }

    #[tokio::test]
    async fn a_writer_does_not_get_the_handle_of_a_reader() {
        let places = places();
        let read = places.open(place("a"), false).await.unwrap();
        let again = places.open(place("a"), false).await.unwrap();
        assert!(Arc::ptr_eq(&read, &again));
        let written = places.open(place("a"), true).await.unwrap();
        assert!(!Arc::ptr_eq(&read, &written));
        let later = places.open(place("a"), false).await.unwrap();
        assert!(Arc::ptr_eq(&later, &written), "a reader reads what a writer writes");
        assert!(!Arc::ptr_eq(&places.open(place("b"), true).await.unwrap(), &written));
        drop((read, again, written, later));
        let _ = places.open(place("c"), false).await.unwrap();
        assert_eq!(places.opened.lock().len(), 1, "places that nobody has are forgotten");
    }

    #[tokio::test]
    async fn a_place_that_does_not_answer_delays_no_other() {
        let places = places();
        let mut slow = Box::pin(places.open(place("slow"), false));
        assert!(slow.as_mut().now_or_never().is_none());
        assert!(places.open(place("a"), false).now_or_never().is_some());
    }
}
