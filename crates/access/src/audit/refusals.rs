//! The refused calls of the present second, which are not all written.
//!
//! Anybody can make refused calls, and the files that are kept have a bound. Without a limit a flood of such calls would push out
//! the lines of all others. Calls that were carried out, or failed, have no limit here.

use super::{Event, Outcome};
use std::collections::HashMap;

/// Calls of unknown callers that are written in a second; the others are only counted.
const UNKNOWN_PER_SECOND: u32 = 100;

/// Denied calls of one caller that are written in a second. A person makes fewer; a program in a loop tells nothing new after those.
const DENIED_PER_SECOND: u32 = 10;

/// Callers whose denied calls are counted apart in a second; the others share one place. Where names are only stated, one client
/// can have any number of them. So a second has 1,010 lines at most, and a line for the rest of each.
const DENIED_CALLERS_MAX: usize = 100;

/// A caller that was denied: its name, its proof, and the server that it called.
type Who = (String, &'static str, String);

/// The fate of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Written,
    /// A later line counts it.
    Counted,
    Dropped,
}

/// The counts of one second.
#[derive(Default)]
pub(super) struct Refusals {
    second: i64,
    unknown: u32,
    denied: HashMap<Who, Denied>,
}

#[derive(Default)]
struct Denied {
    written: u32,
    /// Those that were not written, and the time of the last of them.
    more: u64,
    last_us: i64,
}

impl Refusals {
    /// Decides about an event. If it is the first of its second, lines are due for the calls of the former one.
    pub fn count(&mut self, time_us: i64, event: &Event) -> (Fate, Vec<(i64, Event)>) {
        let second = time_us.div_euclid(1_000_000);
        let mut due = Vec::new();
        if self.second != second {
            due = self.due();
            (self.second, self.unknown) = (second, 0);
            self.denied.clear();
        }
        let fate = match event.outcome {
            Outcome::Done | Outcome::Failed => Fate::Written,
            Outcome::Unauthenticated => {
                self.unknown += 1;
                match self.unknown <= UNKNOWN_PER_SECOND {
                    true => Fate::Written,
                    false => Fate::Dropped,
                }
            }
            Outcome::Denied => self.count_denied(time_us, event),
        };
        (fate, due)
    }

    fn count_denied(&mut self, time_us: i64, event: &Event) -> Fate {
        let mut who: Who = (event.who.clone(), event.by, event.from.clone());
        if self.denied.len() >= DENIED_CALLERS_MAX && !self.denied.contains_key(&who) {
            who = ("others".to_owned(), "", String::new());
        }
        let denied = self.denied.entry(who).or_default();
        if denied.written < DENIED_PER_SECOND {
            denied.written += 1;
            return Fate::Written;
        }
        denied.more += 1;
        denied.last_us = time_us;
        Fate::Counted
    }

    /// Lines for the calls that were not written so far, with the time of the last call.
    pub fn due(&mut self) -> Vec<(i64, Event)> {
        let left = self.denied.iter_mut().filter(|(_, denied)| denied.more > 0);
        let line = |(who, denied): (&Who, &mut Denied)| {
            let more = std::mem::take(&mut denied.more);
            let event = Event {
                who: who.0.clone(),
                by: who.1,
                from: who.2.clone(),
                operation: "several",
                on: String::new(),
                outcome: Outcome::Denied,
                why: format!("{more} more denied"),
            };
            (denied.last_us, event)
        };
        left.map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(who: &str, outcome: Outcome) -> Event {
        Event {
            who: who.to_owned(),
            by: "token",
            from: String::new(),
            operation: "delete_table",
            on: "table n/t".to_owned(),
            outcome,
            why: String::new(),
        }
    }

    /// How many of these events are written.
    fn written(refusals: &mut Refusals, time_us: i64, event: &Event, count: usize) -> usize {
        let mut fates = (0..count).map(|_| refusals.count(time_us, event).0);
        fates.by_ref().filter(|fate| *fate == Fate::Written).count()
    }

    #[test]
    fn denied_calls_of_one_caller_leave_the_second_to_others() {
        let mut refusals = Refusals::default();
        let (mallory, bob) = (event("mallory", Outcome::Denied), event("bob", Outcome::Denied));
        assert_eq!(written(&mut refusals, 1_000_000, &mallory, 50), 10);
        assert_eq!(written(&mut refusals, 1_500_000, &bob, 3), 3);
        for outcome in [Outcome::Done, Outcome::Failed] {
            assert_eq!(
                written(&mut refusals, 1_500_000, &event("mallory", outcome), 1_000),
                1_000
            );
        }
        let (fate, due) = refusals.count(2_000_000, &mallory);
        assert_eq!((fate, due.len()), (Fate::Written, 1));
        let (time_us, line) = &due[0];
        assert_eq!(
            (&*line.who, &*line.why, *time_us),
            ("mallory", "40 more denied", 1_000_000)
        );
        assert_eq!(line.outcome, Outcome::Denied);
        assert!(refusals.due().is_empty());
    }

    #[test]
    fn callers_beyond_the_limit_share_a_place() {
        let mut refusals = Refusals::default();
        let mut all = 0;
        for caller in 0..10 * DENIED_CALLERS_MAX {
            let denied = event(&format!("user{caller}"), Outcome::Denied);
            all += written(&mut refusals, 0, &denied, 20);
        }
        assert_eq!(all, (DENIED_CALLERS_MAX + 1) * 10);
        assert_eq!(refusals.denied.len(), DENIED_CALLERS_MAX + 1);
        let due = refusals.due();
        let of_others = due.iter().find(|(_, line)| line.who == "others").unwrap();
        assert_eq!(
            of_others.1.why,
            format!("{} more denied", 9 * DENIED_CALLERS_MAX * 20 - 10)
        );
    }

    #[test]
    fn calls_of_unknown_callers_have_one_limit() {
        let mut refusals = Refusals::default();
        let unknown = event("", Outcome::Unauthenticated);
        assert_eq!(written(&mut refusals, -1, &unknown, 500), 100);
        assert_eq!(written(&mut refusals, 0, &unknown, 500), 100);
    }
}
