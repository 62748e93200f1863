//! Checks whether a correct server could have given every result.
//!
//! Clients report the beginning and the end of each operation, in numbers from one counter, and its result. A
//! *register* is a place that operations overwrite as a whole. Each write to it has a unique value, so a read tells
//! which write it saw. The history of each register must be linearizable:
//!
//! * A read sees a write that began before the read ended and that was not refused.
//! * It does not see a write that was overwritten before the read began. Overwritten means: the write had certainly
//!   taken effect before another write began, which had certainly taken effect before the read began.
//! * It does not see a write that could no longer take effect when an earlier read began that saw another write.
//!
//! A write has certainly taken effect when it was acknowledged, or when a read has seen it. A write of unknown outcome
//! may take effect late, but not after the next recovery: the log then holds all writes that will ever exist. The same
//! holds for a write whose client still waits, because its server was killed or replaced. So the first read after a
//! recovery that does not see such a write ends the doubt. A write that failed with an error can take effect only at
//! that recovery, and only if the server acknowledged nothing more before it ended: the commit log promises this for
//! refused records.

use std::collections::BTreeMap;

/// A moment: operations that began later have greater numbers.
pub type Moment = u64;

/// The outcome of a write, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has taken effect.
    Acknowledged,
    /// It has not taken effect and never will.
    Refused,
    /// It failed. It may come back at the next recovery, unless the server acknowledges another write before.
    Failed,
    /// It may have taken effect, or may yet.
    Unknown,
}

#[derive(Clone, Debug)]
struct Write<V> {
    value: V,
    began: Moment,
    refused: bool,
    /// It had certainly taken effect at this moment.
    by: Option<Moment>,
    /// If it ever takes effect, then before this moment.
    latest: Option<Moment>,
    /// The end of a read that saw another write and that began when this one could no longer take effect.
    gone: Option<Moment>,
}

/// All writes to one register.
#[derive(Clone, Debug)]
pub struct Register<V> {
    writes: Vec<Write<V>>,
}

impl<V: Clone + PartialEq + std::fmt::Debug> Register<V> {
    /// A register that holds `initial` before all writes.
    pub fn new(initial: V) -> Self {
        let first = Write {
            value: initial,
            began: 0,
            refused: false,
            by: Some(0),
            latest: Some(0),
            gone: None,
        };
        Register { writes: vec![first] }
    }

    /// Begins a write; the result names it.
    pub fn begin(&mut self, value: V, now: Moment) -> usize {
        self.writes.push(Write {
            value,
            began: now,
            refused: false,
            by: None,
            latest: None,
            gone: None,
        });
        self.writes.len() - 1
    }

    /// Ends a write.
    pub fn end(&mut self, write: usize, outcome: Outcome, now: Moment) {
        let write = &mut self.writes[write];
        match outcome {
            Outcome::Acknowledged => write.note_happened(now),
            Outcome::Refused => write.refused = true,
            Outcome::Failed | Outcome::Unknown => {}
        }
    }

    /// Records that a write never takes effect: it failed, or its server may no longer write.
    fn refuse(&mut self, write: usize) {
        self.writes[write].refused = true;
    }

    /// Records a recovery: a write that has not taken effect by now never will.
    pub fn recovered(&mut self, now: Moment) {
        for write in self.writes.iter_mut().filter(|w| w.latest.is_none()) {
            write.latest = Some(now);
        }
    }

    /// Checks a read between two moments that saw `value`.
    pub fn check(&mut self, value: &V, began: Moment, ended: Moment) -> Result<(), String> {
        let candidates: Vec<usize> = (0..self.writes.len())
            .filter(|&i| self.writes[i].value == *value)
            .collect();
        let possible: Vec<usize> = candidates
            .iter()
            .copied()
            .filter(|&i| self.may_be_seen(i, began, ended))
            .collect();
        match possible.as_slice() {
            [] => return Err(self.explain(value, &candidates, began, ended)),
            [only] => self.writes[*only].note_happened(ended),
            _ => {}
        }
        let over = |write: &&mut Write<V>| write.latest.is_some_and(|latest| latest < began) && write.value != *value;
        for write in self.writes.iter_mut().filter(over) {
            write.gone = Some(write.gone.map_or(ended, |gone| gone.min(ended)));
        }
        Ok(())
    }

    fn may_be_seen(&self, index: usize, began: Moment, ended: Moment) -> bool {
        let write = &self.writes[index];
        if write.refused || write.began > ended || write.gone.is_some_and(|gone| gone < began) {
            return false;
        }
        self.overwritten(index, began).is_none()
    }

    /// A write that certainly took effect between this one and `began`.
    fn overwritten(&self, index: usize, began: Moment) -> Option<&Write<V>> {
        let latest = self.writes[index].latest?;
        self.writes
            .iter()
            .find(|other| other.began > latest && other.by.is_some_and(|by| by < began))
    }

    fn explain(&self, value: &V, candidates: &[usize], began: Moment, ended: Moment) -> String {
        let certain = self.writes.iter().rev().find(|w| w.by.is_some_and(|by| by < began));
        let Some(&last) = candidates.last() else {
            return format!(
                "a read in {began}..{ended} saw {value:?}, which was never written; last certain write: {certain:?}"
            );
        };
        let by = self.overwritten(last, began);
        format!(
            "a read in {began}..{ended} saw {:?}, which was refused, gone, or overwritten by {by:?}; last certain write: \
             {certain:?}",
            self.writes[last]
        )
    }
}

impl<V> Write<V> {
    fn note_happened(&mut self, now: Moment) {
        self.by = Some(self.by.map_or(now, |by| by.min(now)));
        self.latest = Some(self.latest.map_or(now, |latest| latest.min(now)));
    }
}

/// A counter that operations only increment: its value is the number of those that took effect.
///
/// Additions without a response leave a range of possible sums, which could hide a loss. So each sum is also compared
/// with the newest sum seen before. Since then it grows at least by the additions acknowledged in between, and at most
/// by those that may have taken effect in between.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    additions: Vec<Addition>,
    seen: Option<Seen>,
}

/// A sum that a client has read.
#[derive(Clone, Copy, Debug)]
struct Seen {
    began: Moment,
    ended: Moment,
    sum: i64,
}

#[derive(Clone, Debug)]
struct Addition {
    began: Moment,
    acknowledged: Option<Moment>,
    refused: bool,
    /// If it ever takes effect, then before this moment.
    latest: Option<Moment>,
    /// The sum in its response.
    told: Option<i64>,
}

impl Counter {
    /// Begins an addition; the result names it.
    pub fn begin(&mut self, now: Moment) -> usize {
        self.additions.push(Addition {
            began: now,
            acknowledged: None,
            refused: false,
            latest: None,
            told: None,
        });
        self.additions.len() - 1
    }

    /// Ends an addition; `told` is the sum in its response, if that has one.
    pub fn end(&mut self, addition: usize, outcome: Outcome, told: Option<i64>, now: Moment) -> Result<(), String> {
        let began = self.additions[addition].began;
        match outcome {
            Outcome::Acknowledged => self.additions[addition].acknowledged = Some(now),
            Outcome::Refused => self.additions[addition].refused = true,
            Outcome::Failed | Outcome::Unknown => {}
        }
        let Some(told) = told else { return Ok(()) };
        if let Some(twin) = self.additions.iter().find(|a| a.told == Some(told)) {
            return Err(format!(
                "two increments were told {told}: one began at {began}, the other is {twin:?}"
            ));
        }
        let later = |a: &&Addition| a.acknowledged.is_some_and(|at| at < began) && a.told.is_some_and(|t| t >= told);
        if let Some(before) = self.additions.iter().find(later) {
            return Err(format!(
                "an increment that began at {began} was told {told}, after {before:?}"
            ));
        }
        self.additions[addition].told = Some(told);
        self.check_sum(told - 1, began, now)?;
        self.note_seen(told, began, now);
        Ok(())
    }

    /// Records a recovery: an addition that has not taken effect by now never will.
    pub fn recovered(&mut self, now: Moment) {
        for addition in self.additions.iter_mut().filter(|a| a.latest.is_none()) {
            addition.latest = Some(now);
        }
    }

    /// Checks a read between two moments that saw `sum`.
    pub fn check(&mut self, sum: i64, began: Moment, ended: Moment) -> Result<(), String> {
        self.check_sum(sum, began, ended)?;
        self.note_seen(sum, began, ended);
        Ok(())
    }

    fn note_seen(&mut self, sum: i64, began: Moment, ended: Moment) {
        if self.seen.is_none_or(|seen| seen.ended < ended) {
            self.seen = Some(Seen { began, ended, sum });
        }
    }

    fn check_sum(&self, sum: i64, began: Moment, ended: Moment) -> Result<(), String> {
        self.check_since_seen(sum, began, ended)?;
        let certain = self
            .additions
            .iter()
            .filter(|a| a.acknowledged.is_some_and(|at| at < began))
            .count() as i64;
        let possible = self.additions.iter().filter(|a| !a.refused && a.began < ended).count() as i64;
        if (certain..=possible).contains(&sum) {
            Ok(())
        } else {
            Err(format!(
                "a counter read in {began}..{ended} is {sum}, expected {certain}..={possible}"
            ))
        }
    }

    /// A sum that was seen stays, and no addition takes effect twice.
    fn check_since_seen(&self, sum: i64, began: Moment, ended: Moment) -> Result<(), String> {
        let Some(seen) = self.seen.filter(|seen| seen.ended < began) else {
            return Ok(());
        };
        let certain = |a: &&Addition| a.began > seen.ended && a.acknowledged.is_some_and(|at| at < began);
        // An addition that was acknowledged, or could no longer take effect, before that sum was read is part of it or
        // never takes effect.
        let over = |moment: Option<Moment>| moment.is_some_and(|at| at < seen.began);
        let possible = |a: &&Addition| !a.refused && a.began < ended && !over(a.acknowledged) && !over(a.latest);
        let count = |which: &dyn Fn(&&Addition) -> bool| self.additions.iter().filter(which).count() as i64;
        let expected = seen.sum + count(&certain)..=seen.sum + count(&possible);
        if expected.contains(&sum) {
            Ok(())
        } else {
            Err(format!(
                "a counter read in {began}..{ended} is {sum}, expected {expected:?} after {seen:?}"
            ))
        }
    }
}

/// A write or addition that failed.
#[derive(Clone, Debug)]
enum Failed {
    Write(Vec<u8>, usize, usize),
    Addition(Vec<u8>, usize),
}

/// The histories of all registers and counters by name.
#[derive(Debug, Default)]
pub struct Histories {
    now: Moment,
    /// Whether the server has several log streams. An acknowledgement by one says nothing about refusals by another.
    several_streams: bool,
    /// The last beginning of an acknowledged write, of a server with one log stream.
    settled: Moment,
    /// The failed writes of this life of the server, and when their clients learned of it.
    failed: Vec<(Failed, Moment)>,
    /// Registers by row and slot.
    pub registers: BTreeMap<(Vec<u8>, usize), Register<Option<u64>>>,
    /// Counters by row.
    pub counters: BTreeMap<Vec<u8>, Counter>,
}

impl Histories {
    /// An empty history, of a server with one log stream or several.
    pub fn new(several_streams: bool) -> Self {
        Histories {
            several_streams,
            ..Histories::default()
        }
    }

    /// The next moment.
    pub fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    /// The register of a row's slot.
    pub fn register(&mut self, row: &[u8], slot: usize) -> &mut Register<Option<u64>> {
        self.registers
            .entry((row.to_vec(), slot))
            .or_insert_with(|| Register::new(None))
    }

    /// The counter of a row.
    pub fn counter(&mut self, row: &[u8]) -> &mut Counter {
        self.counters.entry(row.to_vec()).or_default()
    }

    /// Begins a write to a row's slot; the result names it. `never` holds for a write to a replaced server.
    pub fn begin_write(&mut self, row: &[u8], slot: usize, value: Option<u64>, never: bool) -> usize {
        let now = self.tick();
        let register = self.register(row, slot);
        let write = register.begin(value, now);
        if never {
            register.refuse(write);
        }
        write
    }

    /// Begins an addition to a row's counter; the result names it. `never` holds for one to a replaced server.
    pub fn begin_addition(&mut self, row: &[u8], never: bool) -> usize {
        let now = self.tick();
        let counter = self.counter(row);
        let addition = counter.begin(now);
        counter.additions[addition].refused = never;
        addition
    }

    /// An addition of unknown outcome is asked for again, and counts once at most: it may take effect from now on, too.
    pub fn reopen_addition(&mut self, row: &[u8], addition: usize) {
        let of_addition =
            |failed: &Failed| matches!(failed, Failed::Addition(name, index) if name == row && *index == addition);
        self.failed.retain(|(failed, _)| !of_addition(failed));
        let again = &mut self.counter(row).additions[addition];
        assert!(
            again.acknowledged.is_none(),
            "the outcome of an acknowledged addition is known"
        );
        (again.latest, again.refused) = (None, false);
    }

    /// Ends a write to a row's slot.
    pub fn end_write(&mut self, row: &[u8], slot: usize, write: usize, outcome: Outcome) {
        let now = self.tick();
        let register = self.register(row, slot);
        let in_this_life = register.writes[write].latest.is_none();
        register.end(write, outcome, now);
        let began = register.writes[write].began;
        match outcome {
            Outcome::Acknowledged => self.settle(began),
            // A write that began before a recovery may have taken effect at it.
            Outcome::Failed if !in_this_life => {}
            Outcome::Failed => self.failed.push((Failed::Write(row.to_vec(), slot, write), now)),
            Outcome::Refused | Outcome::Unknown => {}
        }
    }

    /// Ends an addition to a row's counter.
    pub fn end_addition(
        &mut self,
        row: &[u8],
        addition: usize,
        outcome: Outcome,
        told: Option<i64>,
    ) -> Result<(), String> {
        let now = self.tick();
        let counter = self.counter(row);
        let in_this_life = counter.additions[addition].latest.is_none();
        let checked = counter.end(addition, outcome, told, now);
        let began = counter.additions[addition].began;
        match outcome {
            Outcome::Acknowledged => self.settle(began),
            Outcome::Failed if !in_this_life => {}
            Outcome::Failed => self.failed.push((Failed::Addition(row.to_vec(), addition), now)),
            Outcome::Refused | Outcome::Unknown => {}
        }
        checked
    }

    /// A write that failed before this moment never takes effect.
    pub fn settled(&self) -> Moment {
        self.settled
    }

    /// A write that began at `began` was acknowledged: writes that failed before never take effect.
    pub fn settle(&mut self, began: Moment) {
        if self.several_streams {
            return;
        }
        self.settled = self.settled.max(began);
        for (failed, learned) in std::mem::take(&mut self.failed) {
            match failed {
                failed if learned >= began => self.failed.push((failed, learned)),
                Failed::Write(row, slot, write) => self.register(&row, slot).refuse(write),
                Failed::Addition(row, addition) => self.counter(&row).additions[addition].refused = true,
            }
        }
    }

    /// Records a recovery.
    pub fn recovered(&mut self) {
        let now = self.tick();
        self.failed.clear();
        self.registers.values_mut().for_each(|register| register.recovered(now));
        self.counters.values_mut().for_each(|counter| counter.recovered(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `w<value> +`/`-`/`?` (began and ended, acknowledged, refused or unknown), `!` (recovered) and `r<value>`.
    /// Returns which reads were right.
    fn check(script: &str, expected: &str) {
        let mut register = Register::new(0);
        let (mut now, mut verdicts) = (0, String::new());
        for word in script.split_whitespace() {
            now += 2;
            let (kind, rest) = word.split_at(1);
            match kind {
                "w" => {
                    let (value, outcome) = rest.split_at(rest.len() - 1);
                    let outcome = match outcome {
                        "+" => Outcome::Acknowledged,
                        "-" => Outcome::Refused,
                        _ => Outcome::Unknown,
                    };
                    let write = register.begin(value.parse().unwrap(), now);
                    register.end(write, outcome, now + 1);
                }
                "!" => register.recovered(now),
                _ => verdicts.push(if register.check(&rest.parse().unwrap(), now, now + 1).is_ok() {
                    'y'
                } else {
                    'n'
                }),
            }
        }
        assert_eq!(verdicts, expected, "{script}");
    }

    #[test]
    fn registers() {
        check("r0 w1+ r1 r0", "yyn");
        check("w1+ w2+ r1 r2", "ny");
        check("w1- r1 r0", "ny");
        check("w1? r0 r1 r0", "yyn");
        check("w1? w2+ r1 r2", "yn");
        check("w1? w2+ r2 r1", "yy");
        check("w1? w2+ ! w3+ r1 r3", "ny");
        check("w1? ! r0 r1 r0", "yny");
        check("w1? r0 ! r1 r0", "yyn");
        check("w1? w2? ! r1 r2 r0", "ynn");
        check("w1? ! w2+ r2 r1", "yn");
        check("w1? ! w2? r0 r2 r1", "yyn");
        check("r7", "n");
    }

    #[test]
    fn who_waits_for_an_answer_past_a_recovery_has_no_doubt_either() {
        let mut register = Register::new(0);
        let write = register.begin(1, 1);
        register.recovered(2);
        assert!(register.check(&0, 3, 4).is_ok() && register.check(&1, 5, 6).is_err());
        register.end(write, Outcome::Acknowledged, 7);
        assert!(register.check(&0, 8, 9).is_err(), "it was acknowledged after all");
        let mut counter = Counter::default();
        let addition = counter.begin(1);
        counter.recovered(2);
        assert!(counter.check(0, 3, 4).is_ok() && counter.check(1, 5, 6).is_err());
        assert!(counter.end(addition, Outcome::Acknowledged, None, 7).is_ok());
        assert!(
            counter.check(0, 8, 9).is_err(),
            "a read after the recovery lacked what is acknowledged"
        );
    }

    #[test]
    fn what_an_outlived_server_is_asked_for_never_happens() {
        let mut histories = Histories::new(false);
        let write = histories.begin_write(b"r", 0, Some(7), true);
        let addition = histories.begin_addition(b"n", true);
        histories.end_write(b"r", 0, write, Outcome::Unknown);
        histories.end_addition(b"n", addition, Outcome::Unknown, None).unwrap();
        assert!(histories.register(b"r", 0).check(&Some(7), 10, 11).is_err());
        assert!(histories.counter(b"n").check(1, 10, 11).is_err());
    }

    #[test]
    fn an_addition_that_is_repeated_may_happen_after_a_recovery() {
        let mut histories = Histories::new(false);
        let addition = histories.begin_addition(b"n", false);
        histories.end_addition(b"n", addition, Outcome::Failed, None).unwrap();
        histories.recovered();
        assert!(histories.counter(b"n").check(0, 10, 11).is_ok());
        histories.reopen_addition(b"n", addition);
        histories.now = 20;
        histories
            .end_addition(b"n", addition, Outcome::Acknowledged, Some(1))
            .unwrap();
        assert!(histories.counter(b"n").check(1, 30, 31).is_ok());
        assert!(histories.counter(b"n").check(2, 32, 33).is_err(), "it counted twice");
    }

    #[test]
    fn counters() {
        let mut counter = Counter::default();
        let (a, b, c) = (counter.begin(1), counter.begin(2), counter.begin(3));
        assert!(counter.end(a, Outcome::Acknowledged, Some(1), 4).is_ok());
        assert!(counter.end(b, Outcome::Acknowledged, Some(1), 5).is_err(), "told twice");
        assert!(counter.end(c, Outcome::Unknown, None, 6).is_ok());
        assert!(counter.check(1, 7, 8).is_err() && counter.check(2, 7, 8).is_ok());
        assert!(counter.check(3, 7, 8).is_ok() && counter.check(4, 7, 8).is_err());
        let late = counter.begin(9);
        assert!(counter.end(late, Outcome::Acknowledged, Some(1), 10).is_err());
    }

    /// One addition acknowledged, one without a response.
    fn in_doubt() -> Counter {
        let mut counter = Counter::default();
        let (a, b) = (counter.begin(1), counter.begin(2));
        counter.end(a, Outcome::Acknowledged, None, 3).unwrap();
        counter.end(b, Outcome::Unknown, None, 4).unwrap();
        counter
    }

    #[test]
    fn what_a_counter_has_shown_stays() {
        let mut counter = in_doubt();
        assert!(counter.check(2, 5, 6).is_ok(), "it has happened");
        assert!(counter.check(1, 7, 8).is_err(), "and is lost again");
        counter.recovered(9);
        let more = counter.begin(10);
        counter.end(more, Outcome::Acknowledged, None, 11).unwrap();
        assert!(counter.check(2, 12, 13).is_err(), "one of the three is lost");
        assert!(counter.check(3, 12, 13).is_ok());
    }

    #[test]
    fn what_has_not_happened_by_a_recovery_never_does() {
        let mut counter = in_doubt();
        assert!(counter.check(1, 5, 6).is_ok(), "not yet");
        counter.recovered(7);
        assert!(counter.check(1, 8, 9).is_ok(), "not any more");
        assert!(counter.check(2, 10, 11).is_err(), "something was added twice");
        // A read only before that recovery would allow that the write took effect at it.
        let mut counter = in_doubt();
        assert!(counter.check(1, 5, 6).is_ok());
        counter.recovered(7);
        assert!(counter.check(2, 8, 9).is_ok());
    }
}
