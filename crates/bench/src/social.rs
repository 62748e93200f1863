//! The BG social network: users, friendships, invitations, resources and comments over a wide-column store.
//!
//! Follows "Benchmarking HBase in Distributed Mode" (Chhabra and Sauray), which ran the BG benchmark of Barahmand and
//! Ghandeharizadeh (USC Database Laboratory). Actions, mixes, ring of friends, distribution of users and the detection
//! of stale reads are BG's. BG leaves the layout of rows to the adapter of each store. Ours is:
//!
//! | table | row | family: columns |
//! |---|---|---|
//! | `bench-bg-users` | salt and user | `profile`: eleven fields; `image`: one; `thumb`: one; `confirmed`, `pending`: one for each friend, inviter |
//! | `bench-bg-resources` | owner's row, newest resource first | `resource`: five fields; `comments`: one for each comment |
//!
//! * One row shows a user: View Profile is one read of profile, image and `confirmed`, whose columns the application
//!   counts (and of `pending` when users view themselves). BG's HBase client has six tables. One of its variants counts
//!   the columns of three rows, as here. The other has three counters in the member's row and adds to them with every
//!   change. Counters would make this read a little cheaper, and each of the four updates dearer by one or two
//!   increments. A client cannot safely repeat an increment.
//! * List Friends is a join by the application: the user's row, then each friend's profile and thumbnail, concurrently
//!   (BG's client reads them one after the other). View Friend Requests does the same with inviters.
//! * A change of one row is atomic, and nothing spans two rows. Invite and Reject are one write. Accept writes both
//!   users' `confirmed`, then deletes the invitation. Thaw deletes on both sides. Between those writes a reader may see
//!   one side only, or a friend who is still listed as inviter. Both are right, and every column is checked by itself.
//!   BG's client reads the invitation before it accepts it. Here the `Ledger` knows that the invitation exists.
//! * Each resource has one comment from the load. BG loads none and its published mixes add none, so its View Comments
//!   returned nothing that could be checked.
//! * Rows are salted by a hash of the user, so that pre-split tablets share load and users evenly.
//!
//! [`ledger`] decides which responses are right. Each worker owns a block of users and acts only for and on those, as
//! BG's clients do. Its own writes are therefore all writes that it needs to know.

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

/// The kind of a step whose update found no user to act on. Such a step sends nothing and counts as no operation. BG
/// picks another user for it, and does nothing when there is none.
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

/// Makes a client. [`State::prepare`] has prepared the run.
///
/// # Errors
/// An invalid specification, or a run that was not prepared.
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
