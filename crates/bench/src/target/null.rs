//! Echo servers, one for each protocol, in a process of their own: what the generator costs by itself.

pub mod bigtable;

use super::{Result, Target, TargetError, TargetUrl};
use std::sync::Arc;

/// Starts the server, and a target at its address.
///
/// # Errors
/// A protocol that it does not imitate, or a process that does not start.
pub async fn open(_url: &TargetUrl) -> Result<Arc<dyn Target>> {
    Err(TargetError::Unsupported("null".into()))
}
