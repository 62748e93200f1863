//! Driver for the Cloud Bigtable API over gRPC.

use super::{Result, Target, TargetError, TargetUrl};
use std::sync::Arc;

/// A target at this address.
///
/// # Errors
/// A parameter that it does not have.
pub fn open(_url: &TargetUrl) -> Result<Arc<dyn Target>> {
    Err(TargetError::Unsupported("bigtable".into()))
}
