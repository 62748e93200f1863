//! The BG social network: users, friendships, invitations, resources and comments over a wide-column store.

use crate::activity::{Actor, ActorContext};
use crate::plan::SocialSpec;

/// Names of the kinds of operation.
pub fn kinds(_social: &SocialSpec) -> Vec<String> {
    Vec::new()
}

/// Makes a client.
///
/// # Errors
/// A specification that makes no sense.
pub fn actor(_social: &SocialSpec, _context: ActorContext) -> anyhow::Result<Box<dyn Actor>> {
    anyhow::bail!("no such activity")
}
