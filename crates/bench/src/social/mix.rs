//! The mixes of actions that BG publishes and the document used, and action names.
//!
//! Weights as in BG's own workload files. The symmetric mixes are named by their share of updates: 0.1 %, 1 % and 10 %.
//! They send as many invitations as they accept or reject, and end as many friendships as they begin, so that the size of
//! the network stays the same.

use crate::plan::SocialAction::{
    self, AcceptFriend, InviteFriend, ListFriends, RejectFriend, ThawFriendship, ViewComments, ViewFriendRequests,
    ViewProfile, ViewTopResources,
};

/// A published mix: `very-low`, `low`, `high`, `view-profile` or `list-friends`.
pub fn mix(name: &str) -> Option<Vec<(SocialAction, f64)>> {
    match name {
        "very-low" => Some(symmetric(0.40, 0.000_2, 0.099)),
        "low" => Some(symmetric(0.40, 0.002, 0.09)),
        "high" => Some(symmetric(0.35, 0.02, 0.10)),
        "view-profile" => Some(vec![(ViewProfile, 1.0)]),
        "list-friends" => Some(vec![(ListFriends, 1.0)]),
        _ => None,
    }
}

/// Names of all mixes, in the document's order.
pub const NAMES: [&str; 5] = ["view-profile", "list-friends", "very-low", "low", "high"];

fn symmetric(view: f64, update: f64, comments: f64) -> Vec<(SocialAction, f64)> {
    vec![
        (ViewProfile, view),
        (ListFriends, 0.05),
        (ViewFriendRequests, 0.05),
        (InviteFriend, 2.0 * update),
        (AcceptFriend, update),
        (RejectFriend, update),
        (ThawFriendship, update),
        (ViewTopResources, view),
        (ViewComments, comments),
    ]
}

/// An action's name in reports.
pub fn name(action: SocialAction) -> &'static str {
    match action {
        ViewProfile => "view-profile",
        ListFriends => "list-friends",
        ViewFriendRequests => "view-friend-requests",
        InviteFriend => "invite-friend",
        AcceptFriend => "accept-friend",
        RejectFriend => "reject-friend",
        ThawFriendship => "thaw-friendship",
        ViewTopResources => "view-top-resources",
        ViewComments => "view-comments",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_have_the_published_share_of_updates() {
        for (name, updates, sum) in [("very-low", 0.001, 1.0), ("low", 0.01, 1.0), ("high", 0.1, 1.0)] {
            let mix = mix(name).unwrap();
            let of = |update: bool| -> f64 {
                mix.iter()
                    .filter(|(a, _)| super::super::is_update(*a) == update)
                    .map(|(_, w)| w)
                    .sum()
            };
            assert!((of(true) - updates).abs() < 1e-9, "{name}: {}", of(true));
            assert!(
                (of(true) + of(false) - sum).abs() < 1e-9,
                "{name}: {}",
                of(true) + of(false)
            );
            assert_eq!(mix.len(), 9);
        }
        assert!(NAMES.iter().all(|name| mix(name).is_some()));
        assert_eq!(mix("medium"), None);
    }
}
