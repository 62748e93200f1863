//! The decision: from a view of the cluster to orders.
//!
//! | a tablet | gets |
//! |---|---|
//! | without an owner | a home |
//! | of a dead owner | a home once the owner's log is sealed; the log is then one of those to replay |
//! | that moves, and its owner has closed it or refuses to open it | its target, or a home if that is dead, drains or is silent |
//! | that moves otherwise | `Close`, or `Stay` if the target is dead or drains; nothing while it is silent, or the next attempt is not due |
//! | of a draining owner | a move to a home, also if the owner cannot open it |
//! | of an owner that does not answer | nothing |
//! | that its owner is unable to open | a move to a server that is not, if there is one |
//! | that its owner does not report under the epoch of the assignment | `Open`, unless the next attempt is not due |
//! | with former logs whose records are in files | `Forget` |
//! | that a server reports, and another one owns | `Abandon`, for that server |

use crate::balance::{self, MOVES_PER_SERVER_MAX, Movable, SETTLED};
use crate::cost::{Costs, Totals};
use crate::homes::{self, LogPart, Replayed};
use crate::order::Order;
use crate::view::{Assignment, FailedClosing, Owner, Report, ServedState, ServerView, Session, TabletView, View};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use stele_types::{ServerId, TabletId, stream_of};

/// The orders for a view. `dead` are the servers that count as dead ([`crate::Suspicions::condemned`]).
pub fn decide(view: &View, dead: &BTreeSet<ServerId>) -> Vec<Order> {
    let mut decision = Decision::new(view, dead);
    for tablet in view.tablets() {
        decision.tablet(tablet);
    }
    decision.find_homes();
    decision.logs();
    decision.drain();
    if !view.no_balance {
        decision.balance();
    }
    decision.abandon();
    decision.orders
}

/// A decision under way.
struct Decision<'a> {
    view: &'a View,
    dead: &'a BTreeSet<ServerId>,
    totals: Totals,
    /// Of the servers that may get tablets now.
    costs: Costs,
    /// Tablets that need a server now.
    homeless: Vec<(u64, &'a TabletView)>,
    /// Tablets of servers that drain, or are unable to open them.
    leaving: Vec<(u64, Owner, &'a TabletView)>,
    /// Tablets that may move for balance, by owner.
    movable: BTreeMap<ServerId, Vec<Movable>>,
    /// Moves by server, as a source or as a target, without those that fail.
    moves: BTreeMap<ServerId, usize>,
    /// Repeated attempts to begin those that fail, likewise.
    retries: BTreeMap<ServerId, usize>,
    owners: BTreeMap<TabletId, Owner>,
    /// Servers whose log some tablet needs, or may need.
    needed_logs: BTreeSet<ServerId>,
    orders: Vec<Order>,
}

impl<'a> Decision<'a> {
    fn new(view: &'a View, dead: &'a BTreeSet<ServerId>) -> Self {
        let mut decision = Decision {
            view,
            dead,
            totals: Totals::of(view),
            costs: Costs::none([].into_iter()),
            homeless: Vec::new(),
            leaving: Vec::new(),
            movable: BTreeMap::new(),
            moves: BTreeMap::new(),
            retries: BTreeMap::new(),
            owners: BTreeMap::new(),
            needed_logs: BTreeSet::new(),
            orders: Vec::new(),
        };
        decision.costs = decision.costs_of(|id| decision.is_eligible(id));
        decision
    }

    /// No cost of each server that answers and may get tablets.
    fn costs_of(&self, may: impl Fn(ServerId) -> bool) -> Costs {
        let answering = self.view.servers.iter().filter(|(_, server)| server.answers);
        Costs::none(answering.map(|(id, _)| *id).filter(|id| may(*id)))
    }

    /// Whether a server may have tablets. It gets none while it does not answer.
    fn is_eligible(&self, server: ServerId) -> bool {
        let drains = self.view.servers.get(&server).is_some_and(|known| known.draining);
        self.is_present(server) && !drains
    }

    /// Whether a server has its session and is not dead.
    fn is_present(&self, server: ServerId) -> bool {
        let known = self.view.servers.get(&server);
        known.is_some_and(|known| known.session == Session::Alive) && !self.dead.contains(&server)
    }

    fn tablet(&mut self, tablet: &'a TabletView) {
        let assignment = &tablet.assignment;
        self.needed_logs.extend(&assignment.logs);
        let cost = self.totals.cost(tablet);
        let Some(owner) = assignment.owner else {
            return self.homeless.push((cost, tablet));
        };
        self.owners.insert(tablet.id, owner);
        self.needed_logs.insert(owner.server);
        if self.dead.contains(&owner.server) || !self.view.servers.contains_key(&owner.server) {
            // Before its log is sealed, the dead owner may still acknowledge writes.
            let is_sealed = self
                .view
                .servers
                .get(&owner.server)
                .is_none_or(|server| server.is_sealed());
            if is_sealed {
                self.homeless.push((cost, tablet));
            }
            return;
        }
        // If its session has ended together with too many others, it serves nothing, and may come back. If it does not answer, its tablets
        // may be open there, and it could not be told.
        let is_reached = |server: &ServerView| server.session == Session::Alive && server.answers;
        if !self.view.servers.get(&owner.server).is_some_and(is_reached) {
            return self.costs.add(owner.server, cost);
        }
        match assignment.moving_to {
            Some(to) => self.moving(tablet, owner, to, cost),
            None => self.resting(tablet, owner, cost),
        }
    }

    /// A tablet of a living owner that moves.
    fn moving(&mut self, tablet: &'a TabletView, owner: Owner, to: ServerId, cost: u64) {
        let report = self
            .view
            .report(owner.server, tablet.id)
            .filter(|report| report.epoch == owner.epoch);
        let is_ready = self.costs.has(to);
        match report.map(|report| report.state) {
            Some(ServedState::Closed | ServedState::Unopened) if is_ready => {
                self.costs.add(to, cost);
                self.assign(tablet, to);
            }
            Some(ServedState::Closed | ServedState::Unopened) => self.homeless.push((cost, tablet)),
            _ if is_ready && tablet.attempts.closing != FailedClosing::None => {
                // One that failed several times may never end: it is no cost of its target, and no move that others wait for.
                self.costs.add(owner.server, cost);
                if tablet.attempts.closing == FailedClosing::Due {
                    self.close_again(tablet, owner, to);
                }
            }
            // Also if the owner reports nothing: it need not open the tablet for a move, and perhaps it cannot.
            _ if is_ready => {
                self.costs.add(to, cost);
                count([owner.server, to], &mut self.moves);
                self.orders.push(Order::Close {
                    tablet: tablet.id,
                    owner,
                });
            }
            // It waits for an answer of its target, unless it must leave.
            _ if self.is_eligible(to) && self.is_eligible(owner.server) => self.costs.add(owner.server, cost),
            _ => {
                self.costs.add(owner.server, cost);
                self.orders.push(Order::Stay {
                    tablet: tablet.id,
                    seen: tablet.assignment.clone(),
                });
            }
        }
    }

    /// A few at a time: all of a server may have failed, and be due together.
    fn close_again(&mut self, tablet: &TabletView, owner: Owner, to: ServerId) {
        let both = [owner.server, to];
        let tried = |server: &ServerId| self.retries.get(server).copied().unwrap_or(0);
        if both.iter().all(|server| tried(server) < MOVES_PER_SERVER_MAX) {
            count(both, &mut self.retries);
            self.orders.push(Order::Close {
                tablet: tablet.id,
                owner,
            });
        }
    }

    /// A tablet of a living owner that does not move.
    fn resting(&mut self, tablet: &'a TabletView, owner: Owner, cost: u64) {
        self.costs.add(owner.server, cost);
        let report = self
            .view
            .report(owner.server, tablet.id)
            .filter(|report| report.epoch == owner.epoch);
        match report.map(|report| report.state) {
            // It was closed for a move that is called off.
            Some(ServedState::Closed | ServedState::Unopened) => self.homeless.push((cost, tablet)),
            None => {
                if !tablet.attempts.waits {
                    self.open(tablet, owner);
                }
                if !self.is_eligible(owner.server) || tablet.attempts.unable.contains(&owner.server) {
                    self.leaving.push((cost, owner, tablet));
                }
            }
            Some(ServedState::Opening | ServedState::Replayed) => {}
            Some(ServedState::Serving) => {
                if !tablet.assignment.logs.is_empty() {
                    self.orders.push(Order::Forget {
                        tablet: tablet.id,
                        seen: tablet.assignment.clone(),
                    });
                }
                if !self.is_eligible(owner.server) {
                    self.leaving.push((cost, owner, tablet));
                } else if is_settled(tablet) {
                    let movable = Movable {
                        tablet: tablet.id,
                        cost,
                    };
                    self.movable.entry(owner.server).or_default().push(movable);
                }
            }
        }
    }

    fn open(&mut self, tablet: &TabletView, owner: Owner) {
        self.orders.push(Order::Open {
            tablet: tablet.id,
            owner,
            logs: tablet.assignment.logs.clone(),
        });
    }

    fn assign(&mut self, tablet: &TabletView, to: ServerId) {
        let logs = self.logs_of_next(tablet);
        self.needed_logs.extend(&logs);
        self.orders.push(Order::Assign {
            tablet: tablet.id,
            seen: tablet.assignment.clone(),
            to,
            logs,
        });
    }

    /// The logs that the next owner of a tablet replays.
    fn logs_of_next(&self, tablet: &TabletView) -> Vec<ServerId> {
        let mut logs = tablet.assignment.logs.clone();
        if let Some(owner) = tablet.assignment.owner {
            let report = self.view.report(owner.server, tablet.id);
            let report = report.filter(|report| report.epoch == owner.epoch);
            match (report.map(|report| report.state), self.view.servers.get(&owner.server)) {
                // Its files have everything, and its owner's log may still be open.
                (Some(ServedState::Closed), _) => logs.clear(),
                // Its owner's log has nothing of it, and may still be open.
                (Some(ServedState::Unopened), _) => {}
                (_, Some(server)) => {
                    assert!(
                        server.is_sealed(),
                        "a tablet that its owner has not closed waits until the owner's log is sealed"
                    );
                    logs.push(owner.server);
                }
                // A late order gave it to a server that was dead and never opened it.
                (_, None) => {}
            }
        }
        logs.sort_unstable();
        logs.dedup();
        logs
    }

    /// The parts of logs that the next owner of a tablet reads. A log of which the streams are not known is one part.
    fn parts_of(&self, tablet: &TabletView) -> Vec<LogPart> {
        let logs = self.logs_of_next(tablet).into_iter();
        logs.map(|log| {
            let streams = self.view.servers.get(&log).map_or(0, |server| server.log_streams);
            (log, stream_of(log, tablet.id, streams))
        })
        .collect()
    }

    /// Servers that a tablet shall not go to, if there is another: they were unable to open it, or have left it unopened.
    fn avoided(&self, tablet: &TabletView) -> BTreeSet<ServerId> {
        let mut avoided = tablet.attempts.unable.clone();
        if let Some(owner) = tablet.assignment.owner {
            let report = self.view.report(owner.server, tablet.id);
            let is_unopened = |report: &Report| report.epoch == owner.epoch && report.state == ServedState::Unopened;
            avoided.extend(report.filter(is_unopened).map(|_| owner.server));
        }
        avoided
    }

    /// The server with the least cost of those that may get a tablet.
    fn cheapest(&self, may: impl Fn(ServerId) -> bool) -> Option<ServerId> {
        let targets = self.costs.iter().filter(|(id, _)| may(*id));
        targets.min_by_key(|(id, cost)| (*cost, *id)).map(|(id, _)| id)
    }

    /// Where all other servers are gone, draining ones get the tablets that nobody serves, and move them away later.
    fn find_homes(&mut self) {
        let all_drain = self.costs.iter().next().is_none();
        if all_drain {
            self.costs = self.costs_of(|id| self.is_present(id));
        }
        self.divide_homeless();
        if all_drain {
            self.costs = Costs::none(std::iter::empty());
        }
    }

    fn divide_homeless(&mut self) {
        let (choosy, homeless): (Vec<_>, Vec<_>) = std::mem::take(&mut self.homeless)
            .into_iter()
            .partition(|(_, tablet)| !self.avoided(tablet).is_empty());
        // They are few, so each is looked at by itself.
        for (cost, tablet) in choosy {
            let avoided = self.avoided(tablet);
            let other = self.cheapest(|id| !avoided.contains(&id));
            if let Some(to) = other.or_else(|| self.cheapest(|_| true)) {
                self.costs.add(to, cost);
                self.assign(tablet, to);
            }
        }
        let (replayed, others): (Vec<_>, Vec<_>) = homeless
            .into_iter()
            .partition(|(_, tablet)| !self.logs_of_next(tablet).is_empty());
        let by_id: BTreeMap<TabletId, &TabletView> = replayed
            .iter()
            .chain(&others)
            .map(|(_, tablet)| (tablet.id, *tablet))
            .collect();
        let replayed = replayed.iter().map(|(cost, tablet)| Replayed {
            cost: *cost,
            tablet: tablet.id,
            parts: self.parts_of(tablet),
        });
        let replayed: Vec<Replayed> = replayed.collect();
        let others = others.iter().map(|(cost, tablet)| (*cost, tablet.id)).collect();
        let mut homes = homes::for_replay(replayed, &mut self.costs);
        homes.extend(homes::find(others, &mut self.costs));
        for (tablet, to) in homes {
            if let Some(tablet) = by_id.get(&tablet) {
                self.assign(tablet, to);
            }
        }
    }

    /// Moves tablets off servers that drain or are unable to open them, a few at a time.
    fn drain(&mut self) {
        let mut leaving = std::mem::take(&mut self.leaving);
        // The costliest first, while the targets still differ.
        leaving.sort_by_key(|&(cost, _, tablet)| (Reverse(cost), tablet.id));
        for (cost, owner, tablet) in leaving {
            let is_free = |id: ServerId| self.moves.get(&id).copied().unwrap_or(0) < MOVES_PER_SERVER_MAX;
            if !is_free(owner.server) {
                continue;
            }
            let Some(any) = self.cheapest(is_free) else { return };
            let able = self.cheapest(|id| is_free(id) && !tablet.attempts.unable.contains(&id));
            // The tablet must leave a server that drains.
            let must_leave = !self.is_eligible(owner.server);
            let Some(to) = able.or_else(|| must_leave.then_some(any)) else {
                continue;
            };
            self.costs.add(to, cost);
            count([owner.server, to], &mut self.moves);
            self.orders.push(Order::Move {
                tablet: tablet.id,
                seen: tablet.assignment.clone(),
                to,
            });
        }
    }

    fn balance(&mut self) {
        // The tablets of a server that has just died are in no cost yet.
        let changes_costs = |order: &Order| matches!(order, Order::Assign { .. } | Order::Seal(_));
        if self.orders.iter().any(changes_costs) {
            return;
        }
        let movable = std::mem::take(&mut self.movable);
        for chosen in balance::choose(movable, &mut self.costs, &mut self.moves) {
            if let Some(owner) = self.owners.get(&chosen.tablet) {
                // Only tablets that do not move and need no log are movable.
                let seen = Assignment {
                    owner: Some(*owner),
                    ..Assignment::default()
                };
                self.orders.push(Order::Move {
                    tablet: chosen.tablet,
                    seen,
                    to: chosen.to,
                });
            }
        }
    }

    /// Tablets that servers report and do not own.
    fn abandon(&mut self) {
        for (id, server) in &self.view.servers {
            if self.dead.contains(id) {
                continue;
            }
            for (tablet, report) in &server.report {
                let is_its_own = self
                    .owners
                    .get(tablet)
                    .is_some_and(|owner| owner.server == *id && owner.epoch == report.epoch);
                let is_served = !matches!(report.state, ServedState::Closed | ServedState::Unopened);
                if !is_its_own && is_served {
                    self.orders.push(Order::Abandon {
                        tablet: *tablet,
                        server: *id,
                    });
                }
            }
        }
    }

    /// Logs of dead servers: to be sealed, or to be deleted when no tablet needs them.
    fn logs(&mut self) {
        for (id, server) in self.view.servers.iter().filter(|(id, _)| self.dead.contains(id)) {
            if !server.is_sealed() {
                self.orders.push(Order::Seal(*id));
            } else if !self.needed_logs.contains(id) {
                self.orders.push(Order::DeleteLog(*id));
            }
        }
    }
}

/// Counts a move for its source and its target.
fn count(of: [ServerId; 2], moves: &mut BTreeMap<ServerId, usize>) {
    for server in of {
        *moves.entry(server).or_default() += 1;
    }
}

/// Whether a tablet may move for balance. One that some servers are unable to open stays where it is open.
fn is_settled(tablet: &TabletView) -> bool {
    tablet.unchanged_for >= SETTLED && tablet.assignment.logs.is_empty() && tablet.attempts.unable.is_empty()
}

#[cfg(test)]
mod tests;
