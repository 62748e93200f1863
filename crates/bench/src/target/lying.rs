//! A target that lies on purpose, to prove that the bench notices.

use super::{Result, Target, TargetError};
use std::sync::Arc;

/// Wraps a target so that it lies as `lie` says.
///
/// # Errors
/// A lie that is not known.
pub fn wrap(_target: Arc<dyn Target>, lie: &str) -> Result<Arc<dyn Target>> {
    Err(TargetError::Unsupported(format!("no such lie: {lie}")))
}
