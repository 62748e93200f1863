//! The BG social network: users, friendships, invitations, resources and comments over a wide-column store.
//!
//! Follows "Benchmarking HBase in Distributed Mode" (Chhabra and Sauray), which ran the BG benchmark of Barahmand and
//! Ghandeharizadeh (USC Database Laboratory): its actions, mixes, ring of friends, distribution of users and its way of
//! finding stale reads. How the data lies in rows is ours, because BG leaves that to whoever adapts it to a store:
//!
//! | table | row | family: columns |
//! |---|---|---|
//! | `bench-bg-users` | salt and user | `profile`: eleven fields; `image`: one; `thumb`: one; `confirmed`, `pending`: one for each friend, inviter |
//! | `bench-bg-resources` | owner's row, newest resource first | `resource`: five fields; `comments`: one for each comment |
//!
//! * One row shows a user: View Profile is one read of profile, image and `confirmed`, whose columns the application
//!   counts (and of `pending` when users look at themselves). BG's HBase client has six tables. In one variant it counts
//!   the columns of three rows, as here; in the other it keeps three counters in the member's row and adds to them with every
//!   change. Counters would make this read a little cheaper and each of the four updates dearer by one or two increments,
//!   which a client cannot repeat safely.
//! * List Friends is a join by the application: the user's row, then each friend's profile and thumbnail, all at once (BG's
//!   client one after the other). View Friend Requests does the same with inviters.
//! * A change of one row is atomic, and nothing spans two rows. Invite and Reject are one write. Accept writes both users'
//!   `confirmed`, then deletes the invitation; Thaw deletes on both sides. Between those writes a reader may see one
//!   side only, or a friend who is still listed as inviter: both are right, and every column is checked by itself.
//!   BG's client reads the invitation before it accepts it; here the ledger knows that it is there.
//! * Each resource has one comment from the load. BG loads none and its published mixes add none, so that its View Comments
//!   returned nothing that could be checked.
//! * Rows are salted by a hash of the user, so that pre-split tablets share load and users alike.
//!
//! [`ledger`] says which answers are right. Workers each own a block of users and act only for and on those, as BG's
//! clients do; therefore a worker that knows its own writes knows all that matter.

pub mod chance;
pub mod dzipfian;
pub mod ledger;
pub mod mix;
pub mod network;
pub mod soar;

mod check;
mod loader;
mod player;
mod stage;

#[cfg(test)]
mod tests;

use crate::activity::{Actor, ActorContext};
use crate::plan::{SocialAction, SocialMode, SocialSpec};
use crate::target::TableSpec;

pub use mix::mix;
pub use stage::State;

/// Tablets of each table: enough for the document's four nodes, few enough for one.
const TABLETS: u32 = 16;

/// The kind under which a step is counted whose update found nobody to act on. Such a step sends nothing and counts as no
/// operation: BG picks another user for it, and does nothing when there is none.
pub const IDLE: &str = "nothing-to-act-on";

/// Names of the kinds of operation.
pub fn kinds(social: &SocialSpec) -> Vec<String> {
    match &social.mode {
        SocialMode::Load => vec!["load-user".to_owned()],
        SocialMode::Actions(mix) => {
            let names = mix.iter().map(|(action, _)| mix::name(*action));
            names.chain([IDLE]).map(str::to_owned).collect()
        }
    }
}

/// Makes a client. [`State::prepare`] has been told of the run before.
///
/// # Errors
/// A specification that makes no sense, or a run that was not prepared for.
pub fn actor(social: &SocialSpec, state: &State, context: ActorContext) -> anyhow::Result<Box<dyn Actor>> {
    let stage = state.stage(social)?;
    match &social.mode {
        SocialMode::Load => Ok(Box::new(loader::Loader::new(stage, context.connection))),
        SocialMode::Actions(mix) => Ok(Box::new(player::Player::new(stage, mix, context)?)),
    }
}

/// The tables that a social network needs, pre-split.
pub fn tables(_social: &SocialSpec) -> Vec<TableSpec> {
    let splits = network::splits(TABLETS);
    let table = |name: &str, families: &[&str]| TableSpec {
        name: name.to_owned(),
        families: families.iter().map(|&f| f.to_owned()).collect(),
        max_versions: 1,
        splits: splits.clone(),
        ..TableSpec::default()
    };
    vec![
        table(network::USERS_TABLE, &network::USER_FAMILIES),
        table(network::RESOURCES_TABLE, &network::RESOURCE_FAMILIES),
    ]
}

/// Whether an action changes anything.
pub fn is_update(action: SocialAction) -> bool {
    use SocialAction::{AcceptFriend, InviteFriend, RejectFriend, ThawFriendship};
    matches!(action, InviteFriend | AcceptFriend | RejectFriend | ThawFriendship)
}
