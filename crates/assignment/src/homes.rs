//! Finds servers for tablets that have none.
//!
//! The costliest tablets choose first, each the server with the least cost so far. No server then has more than the mean and
//! one tablet.

use crate::cost::Costs;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use stele_types::{ServerId, TabletId};

/// The server of each of these tablets, in the order of the result of sorting them by cost. Empty if there is no server.
pub(crate) fn find(mut tablets: Vec<(u64, TabletId)>, costs: &mut Costs) -> Vec<(TabletId, ServerId)> {
    tablets.sort_by_key(|&(cost, tablet)| (Reverse(cost), tablet));
    let mut cheapest: BinaryHeap<_> = costs.iter().map(|(server, cost)| Reverse((cost, server))).collect();
    let mut homes = Vec::with_capacity(tablets.len());
    for (cost, tablet) in tablets {
        let Some(Reverse((sum, server))) = cheapest.pop() else {
            return Vec::new();
        };
        costs.add(server, cost);
        cheapest.push(Reverse((sum.saturating_add(cost), server)));
        homes.push((tablet, server));
    }
    homes
}
