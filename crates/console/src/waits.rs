//! Since when tablets wait for something.
//!
//! Waits are looked for once a second, so a time may be a second short. There are as many entries as tablets that wait, each
//! with as many as there are kinds of waits.

use std::collections::BTreeMap;
use std::time::Duration;
use stele_tabletserver::status::Wait;
use stele_types::TabletId;

/// The waits of all tablets at the last look.
#[derive(Debug, Default)]
pub struct Waits(BTreeMap<(TabletId, Wait), Duration>);

impl Waits {
    /// Notes the waits of this moment: those that were there before keep their beginnings.
    pub fn note(&mut self, waiting: Vec<(TabletId, Vec<Wait>)>, now: Duration) {
        let all = waiting.into_iter().flat_map(|(tablet, waits)| {
            let of_tablet = waits.into_iter();
            of_tablet.map(move |wait| (tablet, wait))
        });
        self.0 = all.map(|key| (key, self.0.get(&key).copied().unwrap_or(now))).collect();
    }

    /// How long a tablet has been waiting; nothing for a wait that no look has found yet.
    pub fn lasts(&self, tablet: TabletId, wait: Wait, now: Duration) -> Duration {
        let since = self.0.get(&(tablet, wait));
        since.map_or(Duration::ZERO, |since| now.saturating_sub(*since))
    }

    /// How many tablets wait for each thing, and the longest time.
    pub fn by_kind(&self, now: Duration) -> BTreeMap<Wait, (usize, Duration)> {
        let mut kinds: BTreeMap<Wait, (usize, Duration)> = BTreeMap::new();
        for ((_, wait), since) in &self.0 {
            let (count, longest) = kinds.entry(*wait).or_default();
            *count += 1;
            *longest = (*longest).max(now.saturating_sub(*since));
        }
        kinds
    }

    /// The waits that last longest, the longest first.
    pub fn longest(&self, now: Duration, count: usize) -> Vec<(TabletId, Wait, Duration)> {
        let lasts =
            |((tablet, wait), since): (&(TabletId, Wait), &Duration)| (*tablet, *wait, now.saturating_sub(*since));
        let mut all: Vec<_> = self.0.iter().map(lasts).collect();
        all.sort_by_key(|(_, _, lasts)| std::cmp::Reverse(*lasts));
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_keeps_its_beginning_until_it_ends() {
        let (mut waits, second) = (Waits::default(), Duration::from_secs);
        let (a, b) = (TabletId(1), TabletId(2));
        waits.note(vec![(a, vec![Wait::Flush]), (b, vec![Wait::Slowed])], second(10));
        waits.note(vec![(a, vec![Wait::Flush, Wait::Slowed])], second(14));
        assert_eq!(waits.lasts(a, Wait::Flush, second(15)), second(5));
        assert_eq!(waits.lasts(a, Wait::Slowed, second(15)), second(1));
        assert_eq!(waits.lasts(b, Wait::Slowed, second(15)), Duration::ZERO);
        assert_eq!(waits.longest(second(15), 1), [(a, Wait::Flush, second(5))]);
        assert_eq!(waits.by_kind(second(15))[&Wait::Slowed], (1, second(1)));
        waits.note(Vec::new(), second(16));
        waits.note(vec![(a, vec![Wait::Flush])], second(20));
        assert_eq!(waits.lasts(a, Wait::Flush, second(20)), Duration::ZERO);
    }
}
