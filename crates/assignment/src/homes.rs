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
}

/// The same for tablets whose logs are replayed.
pub(crate) fn for_replay(mut tablets: Vec<Replayed>, costs: &mut Costs) -> Vec<(TabletId, ServerId)> {
    tablets.sort_by_key(|replayed| (Reverse(replayed.cost), replayed.tablet));
    let mut needed: BTreeMap<LogPart, usize> = BTreeMap::new();
    for part in tablets.iter().flat_map(|tablet| &tablet.parts) {
        *needed.entry(*part).or_default() += 1;
    }
    let replaying = costs.iter().map(|(server, cost)| Replaying {
        server,
        cost,
        sum: 0,
        reads: BTreeSet::new(),
    });
    let mut replaying: Vec<Replaying> = replaying.collect();
    let mut homes = Vec::with_capacity(tablets.len());
    for Replayed { cost, tablet, parts } in tablets {
        let sum_with = |server: &Replaying| {
            let more = parts.iter().filter(|part| !server.reads.contains(part));
            let reading: usize = more.filter_map(|part| needed.get(part)).sum();
            server.sum + reading + 1
        };
        let chosen = replaying
            .iter_mut()
            .min_by_key(|server| (sum_with(server), server.cost, server.server));
        let Some(chosen) = chosen else {
            return Vec::new();
        };
        chosen.sum = sum_with(chosen);
        chosen.cost = chosen.cost.saturating_add(cost);
        chosen.reads.extend(parts);
        costs.add(chosen.server, cost);
        homes.push((tablet, chosen.server));
    }
    homes
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

    /// One tablet with many files would else have both servers read both parts.
    #[test]
    fn a_costly_tablet_does_not_divide_the_other_tablets_of_its_part() {
        let mut costs = Costs::none([1, 2].map(ServerId).into_iter());
        let wanted = |tablet: u64| Replayed {
            cost: if tablet == 0 { 1_000 } else { 10 },
            tablet: TabletId(tablet),
            parts: vec![(ServerId(9), tablet as u32 % 2)],
        };
        let homes = for_replay((0..19).map(wanted).collect(), &mut costs);
        let parts_of = |server| -> BTreeSet<u64> {
            let of = homes.iter().filter(|(_, home)| *home == ServerId(server));
            of.map(|(tablet, _)| tablet.0 % 2).collect()
        };
        assert_eq!((parts_of(1).len(), parts_of(2).len()), (1, 1));
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
        assert_eq!((of(1), of(2)), (4, 5));
    }
}
