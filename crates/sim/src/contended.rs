//! The possible contents of a row that several clients put to and delete concurrently.
//!
//! The registers of [`crate::history`] know which results are wrong. This module keeps an *order* for each possible
//! sequence of all operations. A result is right if at least one order explains it together with all results before.
//! All other orders are dropped.
//!
//! * An operation takes effect at some moment between its beginning and its end. Until it ends there are orders with
//!   and without it.
//! * A write without a response may take effect until the next recovery. After that it has or never will, whether or
//!   not its client still waits.
//! * The number of orders grows with all operations under way or in doubt. Where these are many, no further one begins
//!   ([`UNDER_WAY_MAX`]).

use crate::history::Outcome;
use std::collections::{BTreeMap, BTreeSet};

/// Most operations under way or in doubt. With this number, half of them reads, there are some thousand orders.
const UNDER_WAY_MAX: usize = 5;

/// The content of a row: the number of the last put, or nothing.
pub type Held = Option<u64>;

/// All possible orders of one row.
#[derive(Debug)]
pub struct Contended {
    /// Never empty, except after a result that no order explains.
    orders: BTreeSet<Order>,
    under_way: BTreeMap<u64, Operation>,
    next: u64,
}

/// The outcome of one order so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    held: Held,
    /// The operations under way that have taken effect, with the row's content after each.
    done: BTreeMap<u64, Held>,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    /// The content after a write; `None` is a read.
    leaves: Option<Held>,
    /// Whether it may still take effect.
    open: bool,
    /// Whether its client has its final result.
    answered: bool,
}

impl Default for Contended {
    fn default() -> Contended {
        Contended {
            orders: BTreeSet::from([Order::default()]),
            under_way: BTreeMap::new(),
            next: 0,
        }
    }
}

impl Contended {
    /// Begins a write, unless too much is under way; the result names it.
    pub fn begin_write(&mut self, leaves: Held) -> Option<u64> {
        self.begin(Some(leaves))
    }

    /// Begins a read, unless too much is under way; the result names it.
    pub fn begin_read(&mut self) -> Option<u64> {
        self.begin(None)
    }

    fn begin(&mut self, leaves: Option<Held>) -> Option<u64> {
        if self.under_way.len() >= UNDER_WAY_MAX {
            return None;
        }
        self.next += 1;
        let operation = Operation {
            leaves,
            open: true,
            answered: false,
        };
        self.under_way.insert(self.next, operation);
        self.extend();
        Some(self.next)
    }

    /// Ends a write.
    pub fn end_write(&mut self, write: u64, outcome: Outcome) -> Result<(), String> {
        match outcome {
            Outcome::Acknowledged => self.end(write, |order| order.done.contains_key(&write)),
            Outcome::Refused => self.end(write, |order| !order.done.contains_key(&write)),
            Outcome::Failed | Outcome::Unknown => {
                if let Some(operation) = self.under_way.get_mut(&write) {
                    operation.answered = true;
                }
                self.forget_closed();
                Ok(())
            }
        }
    }

    /// Ends a read with its result, or without a response.
    pub fn end_read(&mut self, read: u64, found: Option<Held>) -> Result<(), String> {
        self.end(read, |order| {
            found.is_none_or(|held| order.done.get(&read) == Some(&held))
        })
    }

    /// Records a recovery: a write that has not taken effect by now never will.
    pub fn recovered(&mut self) {
        let writes = self
            .under_way
            .values_mut()
            .filter(|operation| operation.leaves.is_some());
        writes.for_each(|write| write.open = false);
        self.forget_closed();
    }

    /// Drops all orders that contradict a result.
    fn end(&mut self, ended: u64, agrees: impl Fn(&Order) -> bool) -> Result<(), String> {
        let explaining: BTreeSet<Order> = self.orders.iter().filter(|order| agrees(order)).cloned().collect();
        let checked = if explaining.is_empty() {
            Err(format!(
                "no order explains this: {:?} of {:?}",
                self.orders, self.under_way
            ))
        } else {
            Ok(())
        };
        if checked.is_ok() {
            self.orders = explaining;
        }
        self.forget(ended);
        checked
    }

    /// An operation is forgotten when it can take effect no more and its client has its result.
    fn forget_closed(&mut self) {
        let closed = |(name, operation): (&u64, &Operation)| (operation.answered && !operation.open).then_some(*name);
        let closed: Vec<u64> = self.under_way.iter().filter_map(closed).collect();
        closed.into_iter().for_each(|name| self.forget(name));
    }

    fn forget(&mut self, name: u64) {
        self.under_way.remove(&name);
        let without = |mut order: Order| {
            order.done.remove(&name);
            order
        };
        self.orders = std::mem::take(&mut self.orders).into_iter().map(without).collect();
    }

    /// Extends all orders by each operation that may take effect next.
    fn extend(&mut self) {
        let mut rest: Vec<Order> = self.orders.iter().cloned().collect();
        while let Some(order) = rest.pop() {
            for (name, operation) in self.under_way.iter().filter(|(_, operation)| operation.open) {
                if order.done.contains_key(name) {
                    continue;
                }
                let mut next = order.clone();
                next.held = operation.leaves.unwrap_or(next.held);
                next.done.insert(*name, next.held);
                if self.orders.insert(next.clone()) {
                    rest.push(next);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(row: &mut Contended, leaves: Held, outcome: Outcome) {
        let write = row.begin_write(leaves).unwrap();
        row.end_write(write, outcome).unwrap();
    }

    fn reads(row: &mut Contended, held: Held) -> bool {
        let read = row.begin_read().unwrap();
        row.end_read(read, Some(held)).is_ok()
    }

    #[test]
    fn one_after_the_other() {
        let mut row = Contended::default();
        assert!(reads(&mut row, None) && !reads(&mut row, Some(1)));
        write(&mut row, Some(1), Outcome::Acknowledged);
        write(&mut row, Some(2), Outcome::Refused);
        assert!(reads(&mut row, Some(1)) && !reads(&mut row, None) && !reads(&mut row, Some(2)));
        write(&mut row, None, Outcome::Acknowledged);
        assert!(reads(&mut row, None) && !reads(&mut row, Some(1)));
    }

    #[test]
    fn at_once() {
        let contended = || {
            let mut row = Contended::default();
            let (put, delete) = (row.begin_write(Some(1)).unwrap(), row.begin_write(None).unwrap());
            row.end_write(put, Outcome::Acknowledged).unwrap();
            (row, delete)
        };
        let (mut row, delete) = contended();
        assert!(reads(&mut row, Some(1)));
        assert!(row.end_write(delete, Outcome::Acknowledged).is_ok());
        assert!(reads(&mut row, None) || reads(&mut row, Some(1)));
        // A read has seen the deletion last.
        let (mut row, delete) = contended();
        assert!(reads(&mut row, None) && !reads(&mut row, Some(1)));
        assert!(row.end_write(delete, Outcome::Refused).is_err());
        // Two concurrent reads agree on an order.
        let (mut row, delete) = contended();
        assert!(reads(&mut row, Some(1)) && reads(&mut row, None) && !reads(&mut row, Some(1)));
        assert!(row.end_write(delete, Outcome::Acknowledged).is_ok());
    }

    #[test]
    fn without_an_answer() {
        let mut row = Contended::default();
        write(&mut row, Some(1), Outcome::Unknown);
        assert!(reads(&mut row, None) && reads(&mut row, Some(1)) && !reads(&mut row, None));
        write(&mut row, None, Outcome::Acknowledged);
        write(&mut row, Some(2), Outcome::Unknown);
        row.recovered();
        assert!(reads(&mut row, None) && !reads(&mut row, Some(2)), "too late");
        // Its client waits past the recovery and then learns that it took effect.
        let late = row.begin_write(Some(3)).unwrap();
        row.recovered();
        assert!(reads(&mut row, None));
        assert!(row.end_write(late, Outcome::Acknowledged).is_err());
    }

    #[test]
    fn too_much_in_doubt() {
        let mut row = Contended::default();
        (0..UNDER_WAY_MAX as u64).for_each(|value| write(&mut row, Some(value), Outcome::Unknown));
        assert!(row.begin_read().is_none());
        row.recovered();
        assert!(reads(&mut row, Some(3)) && !reads(&mut row, Some(2)));
    }
}
