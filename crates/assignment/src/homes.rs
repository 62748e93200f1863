//! Finds servers for tablets that have none.
//!
//! The costliest tablets choose first, each the server with the least cost so far. No server then has more than the mean and
//! one tablet.
//!
//! Tablets that need a log are divided evenly, whatever else their servers have: each server replays a part of the log, and
//! nobody is served meanwhile. A server that has just joined would replay all of it. The balance follows by moves.
//!
//! A log is written in *parts*, its streams. A server reads the whole of each part in which one of its tablets has records. To read a
//! part takes as long as to replay all tablets that need it. So tablets of the same part have few servers, unless the servers are many.
//! Every tablet counts the same there: streams are kept equally long by flushes, and the cost of a tablet, its files and requests, says
//! little about its records in the log. Bigtable §6, "speeding up tablet recovery", sorts the log for the same purpose.

use crate::cost::Costs;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use stele_types::{ServerId, TabletId};

/// A part of a log that is read as a whole: whose log, and the stream in it.
pub(crate) type LogPart = (ServerId, u32);

/// A tablet whose logs are replayed.
pub(crate) struct Replayed {
    pub(crate) cost: u64,
    pub(crate) tablet: TabletId,
    /// The parts in which it may have records.
    pub(crate) parts: Vec<LogPart>,
}

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

/// A server that replays.
struct Replaying {
    server: ServerId,
    /// Of all its tablets. Decides between equal sums.
    cost: u64,
    /// The number of its tablets that are replayed, and of all tablets that need the parts that it reads.
    sum: usize,
    reads: BTreeSet<LogPart>,
    /// Of those that are replayed, by the parts that they need.
    tablets: BTreeMap<Vec<LogPart>, Vec<(u64, TabletId)>>,
}

impl Replaying {
    /// The tablets whose records it would read besides, if it had one that needs these parts.
    fn more_for(&self, parts: &[LogPart], needed: &BTreeMap<LogPart, usize>) -> usize {
        let more = parts.iter().filter(|part| !self.reads.contains(part));
        more.filter_map(|part| needed.get(part)).sum()
    }

    fn take(&mut self, parts: &[LogPart], tablets: Vec<(u64, TabletId)>, needed: &BTreeMap<LogPart, usize>) {
        self.sum += self.more_for(parts, needed) + tablets.len();
        self.reads.extend(parts);
        for (cost, _) in &tablets {
            self.cost = self.cost.saturating_add(*cost);
        }
        self.tablets.entry(parts.to_vec()).or_default().extend(tablets);
    }
}

/// The same for tablets whose logs are replayed.
///
/// All tablets that need the same parts get one server at first. Then the busiest server shares with the least busy one as long as
/// that shortens the replay by a tenth. Reading a part twice costs the storage, too.
pub(crate) fn for_replay(tablets: Vec<Replayed>, costs: &mut Costs) -> Vec<(TabletId, ServerId)> {
    let mut needed: BTreeMap<LogPart, usize> = BTreeMap::new();
    let mut groups: BTreeMap<Vec<LogPart>, Vec<(u64, TabletId)>> = BTreeMap::new();
    for Replayed { cost, tablet, parts } in tablets {
        for part in &parts {
            *needed.entry(*part).or_default() += 1;
        }
        groups.entry(parts).or_default().push((cost, tablet));
    }
    let replaying = costs.iter().map(|(server, cost)| Replaying {
        server,
        cost,
        sum: 0,
        reads: BTreeSet::new(),
        tablets: BTreeMap::new(),
    });
    let mut replaying: Vec<Replaying> = replaying.collect();
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, tablets)| Reverse(tablets.len()));
    for (parts, tablets) in groups {
        let sum_with = |server: &Replaying| server.sum + server.more_for(&parts, &needed) + tablets.len();
        let chosen = replaying
            .iter_mut()
            .min_by_key(|server| (sum_with(server), server.cost, server.server));
        let Some(chosen) = chosen else {
            return Vec::new();
        };
        chosen.take(&parts, tablets, &needed);
    }
    while share(&mut replaying, &needed) {}
    let mut homes = Vec::new();
    for server in replaying {
        for (cost, tablet) in server.tablets.into_values().flatten() {
            costs.add(server.server, cost);
            homes.push((tablet, server.server));
        }
    }
    homes
}

/// Has the least busy server take tablets of the busiest one, if that shortens the replay enough. Each time the larger of the two
/// sums shrinks by a tenth, so this ends.
fn share(replaying: &mut [Replaying], needed: &BTreeMap<LogPart, usize>) -> bool {
    let by_sum = |server: &&Replaying| (server.sum, server.cost, server.server);
    let (Some(busiest), Some(idlest)) = (replaying.iter().max_by_key(by_sum), replaying.iter().min_by_key(by_sum))
    else {
        return false;
    };
    let gained = |(parts, tablets): (&Vec<LogPart>, &Vec<(u64, TabletId)>)| {
        let more = idlest.more_for(parts, needed);
        let gap = busiest.sum.saturating_sub(idlest.sum + more);
        let count = (gap / 2).min(tablets.len());
        let longest = (busiest.sum - count).max(idlest.sum + more + count);
        (count > 0 && 10 * longest <= 9 * busiest.sum).then(|| (longest, parts.clone(), count))
    };
    let Some((_, parts, count)) = busiest.tablets.iter().filter_map(gained).min() else {
        return false;
    };
    let (from, to) = (busiest.server, idlest.server);
    let mut taken = Vec::new();
    if let Some(busiest) = replaying.iter_mut().find(|server| server.server == from)
        && let Some(tablets) = busiest.tablets.get_mut(&parts)
    {
        taken = tablets.split_off(tablets.len() - count);
        busiest.sum -= count;
        for (cost, _) in &taken {
            busiest.cost = busiest.cost.saturating_sub(*cost);
        }
    }
    if let Some(idlest) = replaying.iter_mut().find(|server| server.server == to) {
        idlest.take(&parts, taken, needed);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts that each server reads, and its tablets, of tablets of one log with as many streams.
    fn divided(servers: u32, streams: u32, tablets: u64) -> Vec<(usize, usize)> {
        let mut costs = Costs::none((1..=servers).map(ServerId));
        let wanted = (0..tablets).map(|tablet| Replayed {
            cost: 10,
            tablet: TabletId(tablet),
            parts: vec![(ServerId(9), tablet as u32 % streams)],
        });
        let homes = for_replay(wanted.collect(), &mut costs);
        let of = |server: u32| homes.iter().filter(move |(_, home)| *home == ServerId(server));
        let parts = |server| of(server).map(|(tablet, _)| tablet.0 as u32 % streams);
        (1..=servers)
            .map(|server| (parts(server).collect::<BTreeSet<u32>>().len(), of(server).count()))
            .collect()
    }

    #[test]
    fn a_server_reads_few_parts_of_a_log() {
        assert_eq!(divided(2, 2, 8), [(1, 4), (1, 4)], "each part is read once");
        assert_eq!(divided(2, 4, 8), [(2, 4), (2, 4)]);
        assert_eq!(
            divided(4, 2, 8),
            [(1, 2); 4],
            "more servers than parts have a share of one each"
        );
        assert_eq!(
            divided(2, 1, 8),
            [(1, 4), (1, 4)],
            "a log that is in one part is read by both"
        );
        assert_eq!(divided(3, 4, 1), [(1, 1), (0, 0), (0, 0)]);
        assert_eq!(divided(0, 2, 4), []);
    }

    /// Tablets of one part come one after the other, and one of them has many files.
    #[test]
    fn a_part_has_one_reader_whatever_its_tablets_cost() {
        let mut costs = Costs::none([1, 2].map(ServerId).into_iter());
        let wanted = |tablet: u64| Replayed {
            cost: if tablet == 0 { 1_000 } else { 10 },
            tablet: TabletId(tablet),
            parts: vec![(ServerId(9), u32::from(tablet >= 10))],
        };
        let homes = for_replay((0..17).map(wanted).collect(), &mut costs);
        let of = |server| homes.iter().filter(move |(_, home)| *home == ServerId(server));
        let parts = |server| of(server).map(|(tablet, _)| tablet.0 >= 10).collect::<BTreeSet<bool>>();
        assert_eq!((parts(1).len(), parts(2).len()), (1, 1));
        assert_eq!(of(1).count() + of(2).count(), 17);
    }

    #[test]
    fn many_tablets_of_one_part_are_divided_nevertheless() {
        let mut costs = Costs::none([1, 2].map(ServerId).into_iter());
        let wanted = |tablet| Replayed {
            cost: 10,
            tablet: TabletId(tablet),
            parts: vec![(ServerId(9), u32::from(tablet == 1))],
        };
        let homes = for_replay((1..=9).map(wanted).collect(), &mut costs);
        let of = |server| homes.iter().filter(|(_, home)| *home == ServerId(server)).count();
        assert_eq!((of(1), of(2)), (5, 4));
    }
}
