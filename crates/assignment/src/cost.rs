//! How much of a cluster's work a tablet is.
//!
//! A cost is a share of all bytes, requests and tablets of the cluster, in parts of [`WHOLE`]. Requests and bytes weigh the same.
//! The number of tablets weighs little: it spreads tablets that are empty and idle, such as those of a new table.

use crate::view::{TabletView, View};
use std::collections::BTreeMap;
use stele_types::ServerId;

/// The cost of all tablets together, apart from rounding.
pub(crate) const WHOLE: u64 = 9 * WEIGHT;
/// One ninth of all work. Large enough that the smallest of a million tablets has a cost.
const WEIGHT: u64 = 1_000_000_000_000;
const BYTES_WEIGHT: u64 = 4 * WEIGHT;
const REQUESTS_WEIGHT: u64 = 4 * WEIGHT;
const NUMBER_WEIGHT: u64 = WEIGHT;

/// The totals that costs are shares of.
pub(crate) struct Totals {
    bytes: u64,
    requests: u64,
    tablets: u64,
}

impl Totals {
    /// Of all tablets.
    pub(crate) fn of(view: &View) -> Self {
        let mut totals = Totals {
            bytes: 0,
            requests: 0,
            tablets: 0,
        };
        for tablet in view.tablets() {
            totals.bytes = totals.bytes.saturating_add(tablet.bytes);
            totals.requests = totals.requests.saturating_add(tablet.requests);
            totals.tablets += 1;
        }
        totals
    }

    /// The cost of one of these tablets; never 0.
    pub(crate) fn cost(&self, tablet: &TabletView) -> u64 {
        let bytes = share(tablet.bytes, self.bytes, BYTES_WEIGHT);
        let requests = share(tablet.requests, self.requests, REQUESTS_WEIGHT);
        (bytes + requests + share(1, self.tablets, NUMBER_WEIGHT)).max(1)
    }
}

fn share(part: u64, all: u64, weight: u64) -> u64 {
    let part = u128::from(part) * u128::from(weight);
    // At most `weight`, as a part is not more than all.
    u64::try_from(part.checked_div(u128::from(all)).unwrap_or(0)).map_or(weight, |share| share.min(weight))
}

/// The cost of each server that may get tablets, with tablets that move counted at their target.
pub(crate) struct Costs {
    by_server: BTreeMap<ServerId, u64>,
}

impl Costs {
    /// Of the servers that may have tablets, without any.
    pub(crate) fn none(eligible: impl Iterator<Item = ServerId>) -> Self {
        Costs {
            by_server: eligible.map(|id| (id, 0)).collect(),
        }
    }

    /// Whether a server may get tablets.
    pub(crate) fn has(&self, server: ServerId) -> bool {
        self.by_server.contains_key(&server)
    }

    /// A server got a tablet of this cost; nothing happens for a server that may have none.
    pub(crate) fn add(&mut self, server: ServerId, cost: u64) {
        if let Some(sum) = self.by_server.get_mut(&server) {
            *sum = sum.saturating_add(cost);
        }
    }

    /// A server gave away a tablet of this cost.
    pub(crate) fn remove(&mut self, server: ServerId, cost: u64) {
        if let Some(sum) = self.by_server.get_mut(&server) {
            *sum = sum.saturating_sub(cost);
        }
    }

    /// All servers that may have tablets, with their costs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ServerId, u64)> {
        self.by_server.iter().map(|(id, cost)| (*id, *cost))
    }

    /// The mean cost of a server; 0 without servers.
    pub(crate) fn mean(&self) -> u64 {
        let sum: u64 = self.by_server.values().sum();
        sum.checked_div(self.by_server.len() as u64).unwrap_or(0)
    }
}
