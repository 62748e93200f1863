//! Work that servers do by themselves is switched on and off.

use crate::error::from_catalog;
use crate::master::Master;
use stele_client::{ServiceError, ServiceResult};
use stele_types::{ErrorKind, Switches, SwitchesChange};

/// The error of a request for work that is switched off.
pub(crate) fn switched_off(work: &str) -> ServiceError {
    let message = format!("tablets are not {work} now: an administrator has switched that off");
    ServiceError::new(ErrorKind::FailedPrecondition, message)
}

impl Master {
    /// Changes the switches; their positions before.
    pub(crate) async fn set_switches_locked(&self, change: SwitchesChange) -> ServiceResult<Switches> {
        let former = self.catalog.view().switches;
        let next = change.of(former);
        if next != former {
            self.catalog.set_switches(next).await.map_err(from_catalog)?;
            tracing::info!(?next, "work of servers is switched on or off");
        }
        Ok(former)
    }
}
