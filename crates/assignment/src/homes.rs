//! Finds servers for tablets that have none.
//!
//! The costliest tablets choose first, each the server with the least cost so far. No server then has more than the mean and
//! one tablet.
//!
//! Tablets that need a log are divided evenly, whatever else their servers have: each server replays a part of the log, and
//! nobody is served meanwhile. A server that has just joined would replay all of it. The balance follows by moves.

use crate::cost::Costs;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use stele_types::{ServerId, TabletId};

/// The server of each of these tablets, in the order of the result of sorting them by cost. Empty if there is no server.
pub(crate) fn find(tablets: Vec<(u64, TabletId)>, costs: &mut Costs) -> Vec<(TabletId, ServerId)> {
    choose(tablets, costs, |cost| (cost, 0))
}

/// The same for tablets whose logs are replayed.
pub(crate) fn for_replay(tablets: Vec<(u64, TabletId)>, costs: &mut Costs) -> Vec<(TabletId, ServerId)> {
    choose(tablets, costs, |cost| (0, cost))
}

/// `rank` makes of a server's cost the sum that tablets are added to, and a number that decides between equal sums.
fn choose(
    mut tablets: Vec<(u64, TabletId)>,
    costs: &mut Costs,
    rank: impl Fn(u64) -> (u64, u64),
) -> Vec<(TabletId, ServerId)> {
    tablets.sort_by_key(|&(cost, tablet)| (Reverse(cost), tablet));
    let mut cheapest: BinaryHeap<_> = costs
        .iter()
        .map(|(server, cost)| Reverse((rank(cost), server)))
        .collect();
    let mut homes = Vec::with_capacity(tablets.len());
    for (cost, tablet) in tablets {
        let Some(Reverse(((sum, tie), server))) = cheapest.pop() else {
            return Vec::new();
        };
        costs.add(server, cost);
        cheapest.push(Reverse(((sum.saturating_add(cost), tie), server)));
        homes.push((tablet, server));
    }
    homes
}
