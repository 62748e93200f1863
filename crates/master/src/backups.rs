//! Backups at destinations, which a layer above makes.

use crate::master::Master;
use std::sync::{Arc, Weak};
use stele_client::{BackupAdmin, ServiceError, ServiceResult};
use stele_types::ErrorKind;

impl Master {
    /// Has this make backups from now on, as long as it exists. Only the first call counts.
    pub fn set_backups(&self, backups: Weak<dyn BackupAdmin>) {
        let was_set = self.backups.set(backups).is_err();
        assert!(!was_set, "a master is told once who makes backups");
    }

    pub(crate) fn backups(&self) -> ServiceResult<Arc<dyn BackupAdmin>> {
        let backups = self.backups.get().and_then(Weak::upgrade);
        let none = || ServiceError::new(ErrorKind::Unimplemented, "this server makes no backups at destinations");
        backups.ok_or_else(none)
    }
}
