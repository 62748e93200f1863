//! What a row may hold that several clients put to and delete at once.
//!
//! The registers of [`crate::history`] know what an answer must not be. Here an *order* is kept for each way in which all that was
//! asked for may have happened one by one, and an answer is right if one of them explains it together with all answers before.
//! What does not is struck off.
//!
//! * An operation happens at some moment between its beginning and its answer: until then there are orders with and without it.
//! * A write without an answer may happen until the next recovery; then it has or never will, waited for or not.
//! * The orders grow with all that is under way or in doubt: where that is much nothing more begins ([`UNDER_WAY_MAX`]).

use crate::history::Outcome;
use std::collections::{BTreeMap, BTreeSet};

/// Operations under way or in doubt. Of so many, half of them reads, there are some thousand orders.
const UNDER_WAY_MAX: usize = 5;

/// What a row holds: the number of the last put, or nothing.
pub type Held = Option<u64>;

/// All that may be said of one row.
#[derive(Debug)]
pub struct Contended {
    /// Never empty, but after an answer that none explains.
    orders: BTreeSet<Order>,
    under_way: BTreeMap<u64, Operation>,
    next: u64,
}

/// What has come of one order so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    held: Held,
    /// Those of the operations under way that have happened, with what the row then held.
    done: BTreeMap<u64, Held>,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    /// What a write leaves; `None` is a read.
    leaves: Option<Held>,
    /// It may still happen.
    open: bool,
    /// Its client has learned all that it will.
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
    /// A write begins, unless too much is under way; the result names it.
    pub fn begin_write(&mut self, leaves: Held) -> Option<u64> {
        self.begin(Some(leaves))
    }

    /// A read begins, unless too much is under way; the result names it.
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

    /// A write ends.
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

    /// A read ends, with what it found; or without an answer.
    pub fn end_read(&mut self, read: u64, found: Option<Held>) -> Result<(), String> {
        self.end(read, |order| {
            found.is_none_or(|held| order.done.get(&read) == Some(&held))
        })
    }

    /// The server has recovered: no write that has not happened by now ever will.
    pub fn recovered(&mut self) {
        let writes = self
            .under_way
            .values_mut()
            .filter(|operation| operation.leaves.is_some());
        writes.for_each(|write| write.open = false);
        self.forget_closed();
    }

    /// Strikes off all orders but those that agree with an answer.
    fn end(&mut self, ended: u64, agrees: impl Fn(&Order) -> bool) -> Result<(), String> {
        let explaining: BTreeSet<Order> = self.orders.iter().filter(|order| agrees(order)).cloned().collect();
        let checked = match explaining.is_empty() {
            true => Err(format!(
                "no order explains this: {:?} of {:?}",
                self.orders, self.under_way
            )),
            false => Ok(()),
        };
        if checked.is_ok() {
            self.orders = explaining;
        }
        self.forget(ended);
        checked
    }

    /// What can happen no more, and whose client asks no more, says nothing any more.
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

    /// Adds what may happen next to all orders.
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
        // The deletion was seen to come last.
        let (mut row, delete) = contended();
        assert!(reads(&mut row, None) && !reads(&mut row, Some(1)));
        assert!(row.end_write(delete, Outcome::Refused).is_err());
        // Two reads beside both agree on an order.
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
        // Its client waits past the recovery, and is told that it happened.
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
