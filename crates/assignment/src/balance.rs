//! Moves between servers of unequal cost.
//!
//! The costliest server gives to the cheapest one the tablet that brings both closest to each other, while it is more than
//! [`TOLERANCE`] above the mean. Each move lowers the higher of both costs, so moves end. A tablet that moved or was split a short
//! time ago stays: its rates are not known yet, and tablets would travel back and forth.

use crate::cost::{Costs, WHOLE};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use stele_types::{ServerId, TabletId};

/// A server may cost this part more than the mean. Less is within the noise of rates.
const TOLERANCE: u64 = 10;
/// How long a tablet must have had the same owner and range.
pub(crate) const SETTLED: Duration = Duration::from_secs(60);
/// Moves of one server at a time, as a source and as a target. Each writes a tablet's memtables twice.
pub(crate) const MOVES_PER_SERVER_MAX: usize = 2;

/// A tablet that may move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Movable {
    pub(crate) tablet: TabletId,
    pub(crate) cost: u64,
}

/// A tablet and its next server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) tablet: TabletId,
    pub(crate) from: ServerId,
    pub(crate) to: ServerId,
}

/// Chooses moves. `movable` has the tablets that may leave each server, and `running` the moves of each server that run now.
pub(crate) fn choose(
    mut movable: BTreeMap<ServerId, Vec<Movable>>,
    costs: &mut Costs,
    running: &mut BTreeMap<ServerId, usize>,
) -> Vec<Move> {
    for tablets in movable.values_mut() {
        tablets.sort_by_key(|movable| (movable.cost, movable.tablet));
    }
    let mean = costs.mean();
    // With few tiny tablets the mean itself is near 0; a difference below this is nothing.
    let ceiling = mean.saturating_add(mean / TOLERANCE).max(WHOLE / 1_000_000);
    let mut moves = Vec::new();
    let mut exhausted = BTreeSet::new();
    loop {
        let is_free = |id: &ServerId, running: &BTreeMap<ServerId, usize>| {
            running.get(id).copied().unwrap_or(0) < MOVES_PER_SERVER_MAX
        };
        let source = costs
            .iter()
            .filter(|(id, cost)| *cost > ceiling && !exhausted.contains(id) && is_free(id, running))
            .max_by_key(|(id, cost)| (*cost, *id));
        let Some((from, high)) = source else {
            return moves;
        };
        let target = costs
            .iter()
            .filter(|(id, _)| *id != from && is_free(id, running))
            .min_by_key(|(id, cost)| (*cost, *id));
        let Some((to, low)) = target else {
            return moves;
        };
        let tablets = movable.entry(from).or_default();
        let Some(index) = best(tablets, high.saturating_sub(low)) else {
            exhausted.insert(from);
            continue;
        };
        let Movable { tablet, cost } = tablets.remove(index);
        costs.remove(from, cost);
        costs.add(to, cost);
        *running.entry(from).or_default() += 1;
        *running.entry(to).or_default() += 1;
        moves.push(Move { tablet, from, to });
    }
}

/// Of tablets ascending by cost, the one nearest to half of the gap between two servers. A tablet as costly as the gap would
/// only swap their places.
fn best(tablets: &[Movable], gap: u64) -> Option<usize> {
    let half = gap / 2;
    let above = tablets.partition_point(|movable| movable.cost <= half);
    let candidates = [above.checked_sub(1), Some(above)];
    let distance = |index: &usize| tablets.get(*index).map(|movable| movable.cost.abs_diff(half));
    candidates
        .into_iter()
        .flatten()
        .filter(|index| tablets.get(*index).is_some_and(|movable| movable.cost < gap))
        .min_by_key(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn movable(costs: &[u64]) -> Vec<Movable> {
        let numbered = costs.iter().zip(0..);
        numbered
            .map(|(cost, id)| Movable {
                tablet: TabletId(id),
                cost: *cost,
            })
            .collect()
    }

    #[test]
    fn the_tablet_nearest_to_half_of_the_gap_moves() {
        assert_eq!(best(&movable(&[1, 4, 9]), 10), Some(1));
        assert_eq!(best(&movable(&[1, 7, 9]), 10), Some(1));
        assert_eq!(best(&movable(&[10, 11]), 10), None);
        assert_eq!(best(&[], 10), None);
    }

    #[test]
    fn a_server_takes_part_in_few_moves_at_a_time() {
        let part = WHOLE / 100;
        let tablets = movable(&[part; 60]);
        let mut costs = Costs::none([ServerId(1), ServerId(2), ServerId(3)].into_iter());
        costs.add(ServerId(1), 60 * part);
        let moves = choose(
            BTreeMap::from([(ServerId(1), tablets)]),
            &mut costs,
            &mut BTreeMap::new(),
        );
        assert_eq!(moves.len(), MOVES_PER_SERVER_MAX);
        assert!(moves.iter().all(|chosen| chosen.from == ServerId(1)));
        assert_ne!(moves[0].to, moves[1].to);
    }
}
