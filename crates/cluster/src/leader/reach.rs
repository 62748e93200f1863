//! Whether a leader reaches the other servers.
//!
//! Elections are by leases of the coordinator. A leader that reaches the coordinator and not the servers would lead for ever, and nothing
//! would be failed over, moved or changed. Such a leader is *cut off*: fewer than half of the servers with a session answer it, itself
//! counted as one that does. A server that does not reach the leader counts as one that does not answer: calls of clients that go through it
//! do not arrive.
//!
//! A leader that stays cut off ends its term and stands aside (`candidacy`). While fewer than half report, it decides nothing: it would
//! give the tablets of a dead server to those few. A server that answers probes may be too busy for a report, but not for long.

use std::time::Duration;

/// The shortest term of a leader that stands because nobody else does. Others are no better, so a change every few seconds helps nobody.
const LAST_RESORT_WAIT: Duration = Duration::from_secs(60);

/// The least time beyond a session for which a leader may be cut off: a few rounds in which servers do not answer.
const WAIT_MIN: Duration = Duration::from_secs(5);

/// How long servers may answer probes and send no report. After that the leader counts as cut off from them.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// How long a leader may be cut off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    wait: Duration,
    /// It decides although it is cut off: no other leader would do better.
    pub(crate) is_last_resort: bool,
}

impl Patience {
    /// Of most leaders, where sessions live for `ttl`. Longer than that by half, or five seconds: servers that die together have sessions
    /// for so long, and the coordinator may end one late. They are no reason to change the leader.
    pub(crate) fn of_session(ttl: Duration) -> Patience {
        Patience {
            wait: longer(ttl),
            is_last_resort: false,
        }
    }

    /// Of a leader that reaches too few servers from the beginning, as no other one leads.
    pub(crate) fn of_last_resort(ttl: Duration) -> Patience {
        Patience {
            wait: LAST_RESORT_WAIT.max(longer(ttl)),
            is_last_resort: true,
        }
    }
}

fn longer(ttl: Duration) -> Duration {
    ttl.saturating_add(WAIT_MIN.max(ttl / 2))
}

/// The state of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// Half of the servers or more report.
    Enough,
    /// Too few report for a decision.
    Few,
    /// It has been cut off for longer than its patience.
    FewForLong,
}

/// Observations of one term.
#[derive(Debug)]
pub(crate) struct Reach {
    patience: Patience,
    /// Since when it is cut off.
    since: Option<Duration>,
    /// Since when too few servers report.
    unreported: Option<Duration>,
}

/// The servers of a round. The leader counts itself as one of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    pub(crate) reported: usize,
    /// To a probe at least.
    pub(crate) answered: usize,
    /// With a session.
    pub(crate) servers: usize,
}

impl Reach {
    /// At the beginning of a term.
    pub(crate) fn new(patience: Patience) -> Reach {
        Reach {
            patience,
            since: None,
            unreported: None,
        }
    }

    /// Notes the outcome of a round.
    pub(crate) fn note(&mut self, count: Count, now: Duration) -> Reached {
        let is_half = |some: usize| 2 * some >= count.servers;
        if is_half(count.reported) {
            (self.since, self.unreported) = (None, None);
            return Reached::Enough;
        }
        let unreported = *self.unreported.get_or_insert(now);
        if is_half(count.answered) && now.saturating_sub(unreported) < BUSY_MAX {
            self.since = None;
            return Reached::Few;
        }
        let since = *self.since.get_or_insert(now);
        match now.saturating_sub(since) >= self.patience.wait {
            true => Reached::FewForLong,
            false => Reached::Few,
        }
    }

    pub(crate) fn is_last_resort(&self) -> bool {
        self.patience.is_last_resort
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1_000 + seconds)
    }

    /// All that answer report.
    fn of((reported, servers): (usize, usize)) -> Count {
        Count {
            reported,
            answered: reported,
            servers,
        }
    }

    #[test]
    fn servers_may_be_too_busy_for_reports_for_a_while() {
        let mut reach = Reach::new(Patience::of_session(TTL));
        let busy = Count {
            reported: 1,
            answered: 3,
            servers: 3,
        };
        assert_eq!(reach.note(busy, at(0)), Reached::Few, "nothing is decided");
        assert_eq!(reach.note(busy, at(59)), Reached::Few);
        assert_eq!(reach.note(of((2, 3)), at(60)), Reached::Enough);
        assert_eq!(reach.note(busy, at(61)), Reached::Few);
        assert_eq!(reach.note(busy, at(121)), Reached::Few, "its patience begins");
        assert_eq!(reach.note(busy, at(136)), Reached::FewForLong);
    }

    #[test]
    fn a_leader_is_cut_off_by_fewer_than_half() {
        let mut reach = Reach::new(Patience::of_session(TTL));
        for half_or_more in [(1, 1), (1, 2), (2, 3), (2, 4), (3, 5)] {
            assert_eq!(reach.note(of(half_or_more), at(0)), Reached::Enough, "{half_or_more:?}");
        }
        for fewer in [(1, 3), (1, 4), (2, 5), (49, 99)] {
            assert_eq!(reach.note(of(fewer), at(0)), Reached::Few, "{fewer:?}");
        }
    }

    #[test]
    fn only_a_leader_that_stays_cut_off_ends_its_term() {
        let mut reach = Reach::new(Patience::of_session(TTL));
        assert_eq!(reach.note(of((1, 3)), at(0)), Reached::Few);
        // Two of three died: their sessions end, and the leader is one of one.
        assert_eq!(reach.note(of((1, 3)), at(12)), Reached::Few);
        assert_eq!(reach.note(of((1, 1)), at(13)), Reached::Enough);
        assert_eq!(reach.note(of((1, 3)), at(14)), Reached::Few, "it begins again");
        assert_eq!(reach.note(of((1, 3)), at(28)), Reached::Few);
        assert_eq!(reach.note(of((1, 3)), at(29)), Reached::FewForLong);
        let mut last = Reach::new(Patience::of_last_resort(TTL));
        assert_eq!(last.note(of((1, 3)), at(0)), Reached::Few);
        assert_eq!(last.note(of((1, 3)), at(59)), Reached::Few);
        assert_eq!(last.note(of((1, 3)), at(60)), Reached::FewForLong);
        let mut short = Reach::new(Patience::of_session(Duration::from_secs(2)));
        assert_eq!(short.note(of((1, 3)), at(0)), Reached::Few);
        assert_eq!(short.note(of((1, 3)), at(6)), Reached::Few);
        assert_eq!(short.note(of((1, 3)), at(7)), Reached::FewForLong);
    }
}
