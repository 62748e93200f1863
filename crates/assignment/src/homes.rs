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
    let cheapest = costs.iter().map(|(server, cost)| Choice {
        cost,
        before: 0,
        server,
    });
    choose(tablets, cheapest.map(Reverse).collect(), costs)
}

/// The same for tablets whose logs are replayed.
pub(crate) fn for_replay(tablets: Vec<(u64, TabletId)>, costs: &mut Costs) -> Vec<(TabletId, ServerId)> {
    let cheapest = costs.iter().map(|(server, before)| Choice {
        cost: 0,
        before,
        server,
    });
    choose(tablets, cheapest.map(Reverse).collect(), costs)
}

/// A server that may be chosen; the least is.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Choice {
    cost: u64,
    /// Decides between equal costs.
    before: u64,
    server: ServerId,
}

fn choose(
    mut tablets: Vec<(u64, TabletId)>,
    mut cheapest: BinaryHeap<Reverse<Choice>>,
    costs: &mut Costs,
) -> Vec<(TabletId, ServerId)> {
    tablets.sort_by_key(|&(cost, tablet)| (Reverse(cost), tablet));
    let mut homes = Vec::with_capacity(tablets.len());
    for (added, tablet) in tablets {
        let Some(Reverse(Choice { cost, before, server })) = cheapest.pop() else {
            return Vec::new();
        };
        costs.add(server, added);
        cheapest.push(Reverse(Choice {
            cost: cost.saturating_add(added),
            before,
            server,
        }));
        homes.push((tablet, server));
    }
    homes
}
