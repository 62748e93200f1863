//! Evidence that a server's process is gone, before its session ends.
//!
//! A host that refuses a connection to a server's port has no process that listens there, so nobody can read stale rows from
//! it. The server's log is sealed in storage before its tablets get another owner, so a wrong suspicion costs a restart and no
//! write. Short silence is no evidence: a silent server may still serve others, and its lease decides. A server that keeps its session and
//! answers the leader no call for [`SILENCE_WAIT`] counts as dead: it cannot be told of its tablets, and every change of a table waits for it.
//! Its process may live and trust its lease, so the lease has to pass before others serve its tablets. Of two servers neither knows which one is
//! cut off: silence condemns fewer than half.
//!
//! A network that lies looks like many deaths at one time. So evidence condemns no server if the dead would be more than half of
//! all. A session that ends counts as a death after [`RETURN_WAIT`]. While more than half have ended, it counts only after [`MASS_FAILURE_WAIT`]:
//! the servers mostly come back sooner than fewer than half of them could replay all logs.

use crate::view::{ServerView, Session, View};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use stele_types::ServerId;

/// A refusal counts for this long. The servers probe a suspect several times a second.
const EVIDENCE_AGE: Duration = Duration::from_secs(2);

/// Servers that must have been refused, if there are as many others. One alone may sit behind a broken link.
const WITNESSES: usize = 2;

/// How long a server may be without a session. When the coordinator was away, the sessions of all servers have ended, and each
/// takes a new one in a moment: some sooner than others.
pub(crate) const RETURN_WAIT: Duration = Duration::from_secs(2);

/// How long more than half of the servers may be without a session before their tablets are divided over the rest.
pub(crate) const MASS_FAILURE_WAIT: Duration = Duration::from_secs(60);

/// How long a server may answer nothing while its session lives. Broken links mostly heal sooner.
pub const SILENCE_WAIT: Duration = Duration::from_secs(60);

/// Longest time between two observations of one silence. A leader that was stopped in between has heard nobody.
const OBSERVED_EVERY: Duration = Duration::from_secs(10);

/// Refused connections between servers, as the leader hears of them, and servers that do not answer it.
#[derive(Clone, Debug, Default)]
pub struct Suspicions {
    /// By suspect: the servers that were refused, and when last.
    refusals: BTreeMap<ServerId, BTreeMap<ServerId, Duration>>,
    /// Since when servers have not answered, and when that was observed last.
    silences: BTreeMap<ServerId, (Duration, Duration)>,
}

/// The servers that count as dead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condemned {
    /// Which servers.
    pub dead: BTreeSet<ServerId>,
    /// Those of them that are only silent.
    pub silent: BTreeSet<ServerId>,
    /// Servers that look dead, but would make too many of all dead.
    pub held_back: BTreeSet<ServerId>,
}

impl Suspicions {
    /// A server was refused or reset a connection by another.
    pub fn refused(&mut self, witness: ServerId, suspect: ServerId, now: Duration) {
        if witness != suspect {
            self.refusals.entry(suspect).or_default().insert(witness, now);
        }
    }

    /// A server has answered: earlier refusals and silence are void.
    pub fn answered(&mut self, server: ServerId) {
        self.refusals.remove(&server);
        self.silences.remove(&server);
    }

    /// A server has not answered the leader. To be noted each time that it is asked.
    pub fn silent(&mut self, server: ServerId, now: Duration) {
        let (since, last) = self.silences.entry(server).or_insert((now, now));
        if now.saturating_sub(*last) > OBSERVED_EVERY {
            *since = now;
        }
        *last = now;
    }

    /// Forgets refusals that no longer count, and those of servers that are gone.
    pub fn expire(&mut self, view: &View, now: Duration) {
        self.refusals.retain(|suspect, witnesses| {
            witnesses.retain(|_, at| now.saturating_sub(*at) <= EVIDENCE_AGE);
            view.servers.contains_key(suspect) && !witnesses.is_empty()
        });
        self.silences.retain(|server, _| view.servers.contains_key(server));
    }

    /// The servers that count as dead now. A server whose session has ended stays dead; one that was condemned on evidence stays
    /// condemned only once its log is sealed, so the caller acts on it.
    pub fn condemned(&self, view: &View, now: Duration) -> Condemned {
        let ended = |wait: Duration| {
            view.servers
                .iter()
                .filter(move |(_, server)| matches!(server.session, Session::Ended(ago) if ago >= wait))
                .map(|(id, _)| *id)
        };
        // A server whose log is sealed was condemned before, and so was one that a leader has given up.
        let is_given_up = |server: &ServerView| server.is_sealed() || server.session == Session::Ended(Duration::MAX);
        let sealed = view.servers.iter().filter(|(_, server)| is_given_up(server));
        let mut dead: BTreeSet<ServerId> = sealed.map(|(id, _)| *id).collect();
        // Dead and done: they neither vote nor count as victims of a present failure.
        let known = view.servers.len() - dead.len();
        let present = |id: &ServerId| !dead.contains(id);
        let gone: BTreeSet<ServerId> = ended(Duration::ZERO).filter(present).collect();
        let suspected: BTreeSet<ServerId> = view
            .servers
            .keys()
            .filter(|id| present(id) && !gone.contains(id) && self.is_suspected(view, **id, now))
            .copied()
            .collect();
        let silent: BTreeSet<ServerId> = view
            .servers
            .keys()
            .filter(|id| present(id) && !gone.contains(id) && !suspected.contains(id) && self.is_silent(**id, now))
            .copied()
            .collect();
        let mut condemned_silent = BTreeSet::new();
        let mut held_back = BTreeSet::new();
        let at_most_half = |count: usize| count * 2 <= known;
        if at_most_half(gone.len()) {
            dead.extend(ended(RETURN_WAIT).filter(|id| gone.contains(id)));
            match at_most_half(gone.len() + suspected.len()) {
                true => dead.extend(&suspected),
                false => held_back.extend(&suspected),
            }
            if 2 * (gone.len() + suspected.len() + silent.len()) < known {
                dead.extend(&silent);
                condemned_silent = silent;
            } else {
                held_back.extend(silent);
            }
        } else {
            held_back.extend(suspected);
            held_back.extend(&gone);
            let waited: Vec<ServerId> = ended(MASS_FAILURE_WAIT).filter(|id| held_back.contains(id)).collect();
            for id in waited {
                held_back.remove(&id);
                dead.insert(id);
            }
        }
        Condemned {
            dead,
            silent: condemned_silent,
            held_back,
        }
    }

    fn is_silent(&self, server: ServerId, now: Duration) -> bool {
        self.silences.get(&server).is_some_and(|(since, last)| {
            last.saturating_sub(*since) >= SILENCE_WAIT && now.saturating_sub(*last) <= OBSERVED_EVERY
        })
    }

    fn is_suspected(&self, view: &View, suspect: ServerId, now: Duration) -> bool {
        let is_witness = |id: &ServerId| {
            view.servers
                .get(id)
                .is_some_and(|server| server.session == Session::Alive && !server.is_sealed())
        };
        let others = view
            .servers
            .keys()
            .filter(|id| **id != suspect && is_witness(id))
            .count();
        let needed = others.clamp(1, WITNESSES);
        let refusals = self.refusals.get(&suspect).into_iter().flatten();
        refusals
            .filter(|(witness, at)| is_witness(witness) && now.saturating_sub(**at) <= EVIDENCE_AGE)
            .count()
            >= needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{LogState, ServerView};

    const NOW: Duration = Duration::from_secs(100);

    fn servers(count: u32) -> View {
        let server = ServerView {
            session: Session::Alive,
            log: LogState::Open,
            log_streams: 0,
            draining: false,
            answers: true,
            report: BTreeMap::new(),
        };
        View {
            servers: (1..=count).map(|id| (ServerId(id), server.clone())).collect(),
            tables: Vec::new(),
            no_balance: false,
        }
    }

    fn set(ids: &[u32]) -> BTreeSet<ServerId> {
        ids.iter().map(|id| ServerId(*id)).collect()
    }

    fn end(view: &mut View, id: u32, ago: Duration) {
        view.servers.get_mut(&ServerId(id)).expect("it is known").session = Session::Ended(ago);
    }

    #[test]
    fn two_witnesses_condemn_and_one_does_not() {
        let (view, mut suspicions) = (servers(4), Suspicions::default());
        suspicions.refused(ServerId(1), ServerId(4), NOW);
        suspicions.refused(ServerId(4), ServerId(4), NOW);
        assert_eq!(suspicions.condemned(&view, NOW), Condemned::default());
        suspicions.refused(ServerId(2), ServerId(4), NOW);
        assert_eq!(suspicions.condemned(&view, NOW).dead, set(&[4]));
        suspicions.answered(ServerId(4));
        assert_eq!(suspicions.condemned(&view, NOW), Condemned::default());
    }

    #[test]
    fn refusals_expire() {
        let (view, mut suspicions) = (servers(3), Suspicions::default());
        suspicions.refused(ServerId(1), ServerId(3), NOW);
        suspicions.refused(ServerId(2), ServerId(3), NOW);
        let later = NOW + EVIDENCE_AGE + Duration::from_millis(1);
        assert_eq!(suspicions.condemned(&view, later), Condemned::default());
        suspicions.expire(&view, later);
        assert!(suspicions.refusals.is_empty());
    }

    #[test]
    fn long_silence_counts_if_it_was_observed_all_the_time() {
        let (view, silent) = (servers(3), ServerId(3));
        let observe = |suspicions: &mut Suspicions, from: Duration, until: Duration| {
            let times = (0..).map(|second| from + Duration::from_secs(second));
            for now in times.take_while(|now| *now <= until) {
                suspicions.silent(silent, now);
            }
            let condemned = suspicions.condemned(&view, until);
            assert_eq!(condemned.dead, condemned.silent);
            condemned.dead
        };
        let mut suspicions = Suspicions::default();
        let almost = NOW + SILENCE_WAIT - Duration::from_secs(1);
        assert_eq!(observe(&mut suspicions, NOW, almost), set(&[]));
        assert_eq!(observe(&mut suspicions, almost, NOW + SILENCE_WAIT), set(&[3]));
        suspicions.answered(silent);
        assert_eq!(
            observe(&mut suspicions, NOW + SILENCE_WAIT, NOW + SILENCE_WAIT),
            set(&[])
        );
        // The leader observed nothing for a while.
        let later = NOW + SILENCE_WAIT + OBSERVED_EVERY + Duration::from_secs(1);
        let until = NOW + SILENCE_WAIT * 2 + OBSERVED_EVERY;
        assert_eq!(observe(&mut suspicions, later, until), set(&[]));
        assert_eq!(
            observe(&mut suspicions, until, until + Duration::from_secs(1)),
            set(&[3])
        );
    }

    /// The session of a silent server passes before its log is sealed.
    #[test]
    fn a_server_that_was_given_up_does_not_hold_back_the_next() {
        let (mut view, mut suspicions) = (servers(3), Suspicions::default());
        end(&mut view, 3, Duration::MAX);
        suspicions.refused(ServerId(1), ServerId(2), NOW);
        let condemned = suspicions.condemned(&view, NOW);
        assert_eq!((condemned.dead, condemned.held_back), (set(&[2, 3]), set(&[])));
    }

    #[test]
    fn silence_condemns_fewer_than_half() {
        for (count, silent, dead) in [
            (2, set(&[2]), set(&[])),
            (3, set(&[3]), set(&[3])),
            (4, set(&[3, 4]), set(&[])),
            (5, set(&[4, 5]), set(&[4, 5])),
        ] {
            let (view, mut suspicions) = (servers(count), Suspicions::default());
            for second in 0..=SILENCE_WAIT.as_secs() {
                for server in &silent {
                    suspicions.silent(*server, Duration::from_secs(second));
                }
            }
            let condemned = suspicions.condemned(&view, SILENCE_WAIT);
            let held_back = &silent - &dead;
            assert_eq!((condemned.dead, condemned.held_back), (dead, held_back), "of {count}");
        }
        // One that was refused is no longer only silent.
        let (view, mut suspicions) = (servers(2), Suspicions::default());
        for second in 0..=SILENCE_WAIT.as_secs() {
            suspicions.silent(ServerId(2), Duration::from_secs(second));
        }
        suspicions.refused(ServerId(1), ServerId(2), SILENCE_WAIT);
        let condemned = suspicions.condemned(&view, SILENCE_WAIT);
        assert_eq!((condemned.dead, condemned.silent), (set(&[2]), set(&[])));
    }

    #[test]
    fn of_two_servers_one_witness_is_enough() {
        let (view, mut suspicions) = (servers(2), Suspicions::default());
        suspicions.refused(ServerId(1), ServerId(2), NOW);
        assert_eq!(suspicions.condemned(&view, NOW).dead, set(&[2]));
    }

    #[test]
    fn evidence_against_more_than_half_is_held_back() {
        let (view, mut suspicions) = (servers(5), Suspicions::default());
        for suspect in [3, 4, 5] {
            suspicions.refused(ServerId(1), ServerId(suspect), NOW);
            suspicions.refused(ServerId(2), ServerId(suspect), NOW);
        }
        let condemned = suspicions.condemned(&view, NOW);
        assert_eq!((condemned.dead, condemned.held_back), (set(&[]), set(&[3, 4, 5])));
    }

    #[test]
    fn ended_sessions_count_unless_they_are_most_of_all() {
        let (mut view, suspicions) = (servers(4), Suspicions::default());
        end(&mut view, 1, RETURN_WAIT);
        end(&mut view, 2, RETURN_WAIT / 2);
        assert_eq!(
            suspicions.condemned(&view, NOW).dead,
            set(&[1]),
            "the other may come back"
        );
        end(&mut view, 2, RETURN_WAIT);
        assert_eq!(suspicions.condemned(&view, NOW).dead, set(&[1, 2]));
        end(&mut view, 3, MASS_FAILURE_WAIT);
        let condemned = suspicions.condemned(&view, NOW);
        assert_eq!((condemned.dead, condemned.held_back), (set(&[3]), set(&[1, 2])));
    }

    #[test]
    fn a_server_whose_log_is_sealed_stays_dead_and_frees_the_guard() {
        let (mut view, mut suspicions) = (servers(4), Suspicions::default());
        for id in [3, 4] {
            view.servers.get_mut(&ServerId(id)).expect("it is known").log = LogState::Sealed;
        }
        suspicions.refused(ServerId(1), ServerId(2), NOW);
        assert_eq!(suspicions.condemned(&view, NOW).dead, set(&[2, 3, 4]));
    }
}
