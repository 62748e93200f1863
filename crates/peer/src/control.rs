//! Calls about the cluster, whose content this crate does not know.
//!
//! A call has one request and one response.

use crate::origin::Origin;
use async_trait::async_trait;
use bytes::Bytes;
use stele_client::{ServiceError, ServiceResult};
use stele_types::ErrorKind;

/// Answers control calls.
#[async_trait]
pub trait ControlService: Send + Sync + 'static {
    /// Answers a call of another server. It ends when the caller's deadline passes, so work that must be carried out is a task
    /// of its own.
    async fn control(&self, origin: Origin, request: Bytes) -> ServiceResult<Bytes>;
}

/// A server that is not one of a cluster.
pub(crate) struct NoControl;

#[async_trait]
impl ControlService for NoControl {
    async fn control(&self, _: Origin, _: Bytes) -> ServiceResult<Bytes> {
        Err(ServiceError::new(
            ErrorKind::Unimplemented,
            "the server takes no control calls",
        ))
    }
}
