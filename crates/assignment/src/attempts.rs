//! Failed attempts to open and to close tablets: pauses, and servers that are unable.
//!
//! The owner of a tablet is asked again after a pause that doubles. The pause stays short after an error that may pass: storage that
//! was away comes back for all tablets at one moment, and rows wait for them. Another error meets the same tablet for hours: say that of a
//! file that a version of the program does not know.
//!
//! A tablet that moves may fail to be closed for as long: one that cannot be flushed stays where it is. After [`LASTING`] failures in a row its
//! owner is asked with the same pauses, and other moves do not wait for this one.
//!
//! A server is *unable* to open a tablet if it had [`LASTING`] errors in a row that do not pass. Another one is tried then.

use crate::view::{Attempted, FailedClosing, Owner};
use std::collections::BTreeMap;
use std::time::Duration;
use stele_types::{ErrorKind, ServerId, TabletId};

/// The first pause: as long as a round of the leader. Most errors of an opening have passed then.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause after an error that may pass.
const PASSING_PAUSE_MAX: Duration = Duration::from_secs(4);
/// The longest pause. Somebody has to act: a minute more does not matter, and the log has a line a minute.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Lasting errors after which a server is unable to open a tablet. One alone may have been a fault of the moment.
const LASTING: u32 = 2;
/// How long it stays unable. The cause may be mended, and a tablet that nobody can open goes round the servers once in this time.
const UNABLE_FOR: Duration = Duration::from_secs(600);

/// The failed attempts of one term of leadership.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    opening: BTreeMap<TabletId, Failed>,
    closing: BTreeMap<TabletId, Unclosed>,
}

/// Those to close a tablet that moves.
#[derive(Clone, Debug)]
struct Unclosed {
    owner: Owner,
    /// In a row, by this owner.
    count: u32,
    /// No attempt is made before.
    next: Duration,
    /// The last error.
    error: String,
}

/// Those to open a tablet.
#[derive(Clone, Debug, Default)]
struct Failed {
    /// The server that was asked last.
    server: Option<ServerId>,
    /// In a row, by this server.
    count: u32,
    /// No attempt is made before.
    next: Duration,
    /// Lasting errors by server: how many in a row, and when the last one was.
    lasting: BTreeMap<ServerId, (u32, Duration)>,
    /// The last error.
    error: String,
}

impl Attempts {
    /// A server has failed to open a tablet.
    pub fn failed(&mut self, tablet: TabletId, server: ServerId, (kind, error): (ErrorKind, &str), now: Duration) {
        let failed = self.opening.entry(tablet).or_default();
        if failed.server.replace(server) != Some(server) {
            failed.count = 0;
        }
        failed.next = now + pause(failed.count, kind);
        failed.count = failed.count.saturating_add(1);
        error.clone_into(&mut failed.error);
        match is_lasting(kind) {
            true => {
                let (count, last) = failed.lasting.entry(server).or_default();
                (*count, *last) = (count.saturating_add(1), now);
            }
            false => drop(failed.lasting.remove(&server)),
        }
    }

    /// A server has opened a tablet. Others that were unable to open it stay so: it would move back to one of them for balance.
    pub fn opened(&mut self, tablet: TabletId, server: ServerId, now: Duration) {
        let Some(failed) = self.opening.get_mut(&tablet) else {
            return;
        };
        let mut lasting = std::mem::take(&mut failed.lasting);
        lasting.retain(|id, errors| *id != server && is_unable(*errors, now));
        *failed = Failed {
            lasting,
            ..Failed::default()
        };
        if failed.lasting.is_empty() {
            self.opening.remove(&tablet);
        }
    }

    /// An owner has failed to close a tablet that moves.
    pub fn closing_failed(&mut self, tablet: TabletId, owner: Owner, (kind, error): (ErrorKind, &str), now: Duration) {
        let failed = self.closing.get(&tablet).filter(|failed| failed.owner == owner);
        let before = failed.map_or(0, |failed| failed.count);
        let paused = before.saturating_add(1).checked_sub(LASTING);
        let unclosed = Unclosed {
            owner,
            count: before.saturating_add(1),
            next: now + paused.map_or(Duration::ZERO, |doubled| pause(doubled, kind)),
            error: error.to_owned(),
        };
        self.closing.insert(tablet, unclosed);
    }

    /// A tablet was closed for its move, or the move has ended otherwise.
    pub fn closed(&mut self, tablet: TabletId) {
        self.closing.remove(&tablet);
    }

    /// Forgets tablets that are not among some.
    pub fn retain(&mut self, is_known: impl Fn(TabletId) -> bool) {
        self.opening.retain(|tablet, _| is_known(*tablet));
        self.closing.retain(|tablet, _| is_known(*tablet));
    }

    /// The attempts to open and to close a tablet, for a decision. Those of a former owner are none of its owner's.
    pub fn of(&self, tablet: TabletId, owner: Option<Owner>, now: Duration) -> Attempted {
        let closing = match self.closing.get(&tablet) {
            Some(failed) if Some(failed.owner) != owner || failed.count < LASTING => FailedClosing::None,
            Some(failed) if now < failed.next => FailedClosing::Waits,
            Some(_) => FailedClosing::Due,
            None => FailedClosing::None,
        };
        let Some(failed) = self.opening.get(&tablet) else {
            return Attempted {
                closing,
                ..Attempted::default()
            };
        };
        let unable = failed.lasting.iter().filter(|(_, errors)| is_unable(**errors, now));
        Attempted {
            waits: now < failed.next && failed.server == owner.map(|owner| owner.server),
            unable: unable.map(|(server, _)| *server).collect(),
            closing,
        }
    }

    /// The last error of each tablet that is not open.
    pub fn errors(&self) -> BTreeMap<TabletId, String> {
        let failed = self.opening.iter().filter(|(_, failed)| failed.count > 0);
        failed.map(|(tablet, failed)| (*tablet, failed.error.clone())).collect()
    }

    /// The last error of each tablet that is not closed for its move.
    pub fn closing_errors(&self) -> BTreeMap<TabletId, String> {
        let failed = self.closing.iter();
        failed.map(|(tablet, failed)| (*tablet, failed.error.clone())).collect()
    }

    /// When the next attempt is due of those that wait now.
    pub fn next_due(&self, now: Duration) -> Option<Duration> {
        let openings = self.opening.values().map(|failed| failed.next);
        let closings = self.closing.values().map(|failed| failed.next);
        openings.chain(closings).filter(|next| *next > now).min()
    }
}

/// The pause after an error, which doubles.
fn pause(doubled: u32, kind: ErrorKind) -> Duration {
    let longest = match is_lasting(kind) {
        true => PAUSE_MAX,
        false => PASSING_PAUSE_MAX,
    };
    PAUSE_MIN.saturating_mul(1 << doubled.min(16)).min(longest)
}

/// Whether a server with this count of lasting errors, the last one then, is unable to open the tablet now.
fn is_unable((count, last): (u32, Duration), now: Duration) -> bool {
    count >= LASTING && now.saturating_sub(last) < UNABLE_FOR
}

/// Whether the same server fails again in the same way, and another one may not. A refusal of the assignment itself is none: the
/// tablet cannot leave a server unopened that has served it under the same epoch.
fn is_lasting(kind: ErrorKind) -> bool {
    use ErrorKind::{Aborted, Busy, Cancelled, FailedPrecondition, Unavailable};
    !matches!(kind, Aborted | Busy | Cancelled | FailedPrecondition | Unavailable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use stele_types::Epoch;

    const TABLET: TabletId = TabletId(7);
    const ONE: ServerId = ServerId(1);
    const LATER: Duration = Duration::from_secs(1_000);

    fn owner(server: ServerId) -> Owner {
        Owner {
            server,
            epoch: Epoch(1),
        }
    }

    /// The pauses after this many errors of a kind, in milliseconds.
    fn pauses(kind: ErrorKind, count: usize) -> Vec<u128> {
        let (mut attempts, mut now) = (Attempts::default(), LATER);
        let mut pauses = Vec::new();
        for _ in 0..count {
            attempts.failed(TABLET, ONE, (kind, "planted"), now);
            let next = attempts.next_due(now).expect("it waits");
            let waits = |at, server| attempts.of(TABLET, Some(owner(server)), at).waits;
            assert!(waits(now, ONE) && !waits(next, ONE));
            assert!(!waits(now, ServerId(2)), "it has not been asked");
            pauses.push((next - now).as_millis());
            now = next;
        }
        pauses
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let lasting = [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000];
        assert_eq!(pauses(ErrorKind::Corruption, 10), lasting);
        let passing = [250, 500, 1_000, 2_000, 4_000, 4_000];
        assert_eq!(pauses(ErrorKind::Unavailable, 6), passing);
        assert_eq!(pauses(ErrorKind::Corruption, 100).last(), Some(&60_000));
    }

    #[test]
    fn a_server_is_unable_after_lasting_errors_for_a_while() {
        let mut attempts = Attempts::default();
        let fail = |attempts: &mut Attempts, server, kind| attempts.failed(TABLET, server, (kind, "planted"), LATER);
        for _ in 0..5 {
            fail(&mut attempts, ONE, ErrorKind::Unavailable);
        }
        fail(&mut attempts, ONE, ErrorKind::Corruption);
        fail(&mut attempts, ServerId(2), ErrorKind::Unimplemented);
        assert_eq!(attempts.of(TABLET, Some(owner(ONE)), LATER).unable, BTreeSet::new());
        fail(&mut attempts, ONE, ErrorKind::Corruption);
        let unable = |attempts: &Attempts, at| attempts.of(TABLET, Some(owner(ONE)), at).unable;
        assert_eq!(unable(&attempts, LATER), BTreeSet::from([ONE]));
        assert_eq!(unable(&attempts, LATER + UNABLE_FOR), BTreeSet::new());
        fail(&mut attempts, ONE, ErrorKind::Unavailable);
        assert_eq!(unable(&attempts, LATER), BTreeSet::new(), "it failed in another way");
        assert_eq!(attempts.errors(), BTreeMap::from([(TABLET, "planted".to_owned())]));
        attempts.opened(TABLET, ServerId(2), LATER);
        assert_eq!(attempts.of(TABLET, Some(owner(ONE)), LATER), Attempted::default());
        assert_eq!((attempts.next_due(LATER), attempts.errors()), (None, BTreeMap::new()));
    }

    #[test]
    fn a_server_stays_unable_when_another_one_opens_the_tablet() {
        let mut attempts = Attempts::default();
        for _ in 0..LASTING {
            attempts.failed(TABLET, ONE, (ErrorKind::Corruption, "planted"), LATER);
        }
        attempts.opened(TABLET, ServerId(2), LATER);
        let expected = Attempted {
            unable: BTreeSet::from([ONE]),
            ..Attempted::default()
        };
        assert_eq!(attempts.of(TABLET, Some(owner(ONE)), LATER), expected);
        assert_eq!((attempts.next_due(LATER), attempts.errors()), (None, BTreeMap::new()));
        attempts.opened(TABLET, ONE, LATER);
        assert_eq!(attempts.of(TABLET, Some(owner(ONE)), LATER), Attempted::default());
    }

    #[test]
    fn a_tablet_that_is_not_closed_waits_after_two_failures_for_longer_and_longer() {
        let (mut attempts, mut now) = (Attempts::default(), LATER);
        let closing = |attempts: &Attempts, of, at| attempts.of(TABLET, Some(of), at).closing;
        let mut fail = |attempts: &mut Attempts, kind| {
            attempts.closing_failed(TABLET, owner(ONE), (kind, "planted"), now);
            let next = attempts.next_due(now).unwrap_or(now);
            assert_eq!(closing(attempts, owner(ONE), now) == FailedClosing::Waits, next > now);
            let pause = (next - now).as_millis();
            now = next;
            pause
        };
        assert_eq!(fail(&mut attempts, ErrorKind::Unimplemented), 0);
        assert_eq!(closing(&attempts, owner(ONE), LATER), FailedClosing::None);
        let pauses: Vec<u128> = (0..10).map(|_| fail(&mut attempts, ErrorKind::Unimplemented)).collect();
        assert_eq!(pauses[..4], [250, 500, 1_000, 2_000]);
        assert_eq!(pauses.last(), Some(&60_000));
        assert_eq!(fail(&mut attempts, ErrorKind::Busy), 4_000);
        assert_eq!(
            attempts.closing_errors(),
            BTreeMap::from([(TABLET, "planted".to_owned())])
        );
        assert_eq!(closing(&attempts, owner(ONE), now), FailedClosing::Due);
        let again = Owner {
            epoch: Epoch(2),
            ..owner(ONE)
        };
        assert_eq!(closing(&attempts, again, now), FailedClosing::None, "it came back");
        attempts.closed(TABLET);
        assert_eq!(closing(&attempts, owner(ONE), now), FailedClosing::None);
        assert_eq!(attempts.next_due(LATER), None);
    }
}
