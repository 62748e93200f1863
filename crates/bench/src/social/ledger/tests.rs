use super::*;
use crate::plan::SocialSpec;
use proptest::prelude::*;
use std::sync::LazyLock;

fn network(users: u64, friends: u32) -> Arc<Network> {
    let spec = SocialSpec {
        users,
        friends,
        resources: 1,
        ..SocialSpec::default()
    };
    Arc::new(Network::new(&spec).unwrap())
}

fn judged(ledger: &Ledger, user: u64, list: List, sent: u64, users: &[u64]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut shown = Shown {
        users: users.to_vec(),
        ring: Vec::new(),
    };
    ledger.judge(user, list, sent, &mut shown, &mut verdict);
    verdict
}

fn counts(verdict: &Verdict) -> [u64; 3] {
    [verdict.missing, verdict.unexpected, verdict.stale]
}

#[test]
fn an_untouched_user_shows_the_ring() {
    let ledger = Ledger::new(network(10, 4), 0, 1);
    for touched in [false, true] {
        if touched {
            drop(ledger.reserve(0));
        }
        let of = |users: &[u64]| counts(&judged(&ledger, 0, List::Confirmed, 0, users));
        assert_eq!(of(&[9, 1, 8, 2]), [0, 0, 0]);
        assert_eq!(of(&[1, 8, 9]), [1, 0, 0]);
        assert_eq!(of(&[1, 2, 5, 8, 9]), [0, 1, 0]);
        assert_eq!(of(&[1, 2, 2, 8, 9, 9]), [0, 2, 0]);
        assert_eq!(of(&[]), [4, 0, 0]);
        assert_eq!(counts(&judged(&ledger, 0, List::Pending, 0, &[])), [0, 0, 0]);
        assert_eq!(counts(&judged(&ledger, 0, List::Pending, 0, &[1])), [0, 1, 0]);
    }
}

#[test]
fn an_invitation_must_be_seen_once_acknowledged_and_not_before() {
    let ledger = Ledger::new(network(100, 4), 0, 1);
    let pair = ledger.strangers(7, 50).unwrap();
    assert_eq!((pair.user(), pair.other()), (50, 7));
    let before = ledger.now();
    let change = pair.change_user(List::Pending, true);
    let of = |sent, users: &[u64]| counts(&judged(&ledger, 50, List::Pending, sent, users));
    assert_eq!([of(before, &[]), of(before, &[7])], [[0; 3]; 2]);
    change.acknowledge();
    assert_eq!(
        [of(before, &[]), of(before, &[7])],
        [[0; 3]; 2],
        "the read was sent before the acknowledgement"
    );
    assert_eq!([of(ledger.now(), &[]), of(ledger.now(), &[7])], [[0, 0, 1], [0, 0, 0]]);
    let delete = pair.change_user(List::Pending, false);
    assert_eq!(of(ledger.now(), &[]), [0; 3]);
    delete.acknowledge();
    assert_eq!([of(ledger.now(), &[]), of(ledger.now(), &[7])], [[0, 0, 0], [0, 0, 1]]);
}

#[test]
fn a_change_that_failed_stays_in_doubt_and_is_left_alone() {
    let ledger = Ledger::new(network(6, 2), 0, 1);
    let pair = ledger.friends(0, 0).unwrap();
    let (user, other) = (pair.user(), pair.other());
    drop(pair.change_user(List::Confirmed, false));
    pair.change_other(List::Confirmed, false).acknowledge();
    drop(pair);
    for friends in [vec![1, 5], vec![1, 5].into_iter().filter(|&f| f != other).collect()] {
        assert_eq!(
            counts(&judged(&ledger, user, List::Confirmed, ledger.now(), &friends)),
            [0; 3]
        );
    }
    assert!(!ledger.reserve(user).unwrap().with(|m| m.is_stranger(other)));
    for chance in 0..10 {
        let pair = ledger.friends(user, chance).unwrap();
        assert!((pair.user(), pair.other()) != (user, other) && (pair.user(), pair.other()) != (other, user));
    }
}

#[test]
fn nobody_is_reserved_twice_and_everybody_is_released() {
    let ledger = Ledger::new(network(4, 2), 0, 1);
    {
        let first = ledger.strangers(0, 0).unwrap();
        assert_eq!((first.other(), first.user()), (0, 2), "1 and 3 are friends of 0");
        let second = ledger.strangers(0, 0).unwrap();
        assert_eq!((second.other(), second.user()), (1, 3));
        assert!(ledger.strangers(0, 0).is_none());
        assert!(ledger.friends(0, 0).is_none());
    }
    assert!(
        ledger
            .shards
            .iter()
            .all(|shard| shard.lock().values().all(|member| !member.reserved))
    );
    assert!(ledger.friends(0, 0).is_some());
}

#[test]
fn another_user_answers_when_the_wanted_one_has_no_invitation() {
    let ledger = Ledger::new(network(100, 2), 0, 1);
    assert!(ledger.invited(3, 0).is_none());
    let pair = ledger.strangers(7, 50).unwrap();
    pair.change_user(List::Pending, true).acknowledge();
    ledger.note_invited(pair.user());
    assert!(ledger.invited(3, 0).is_none(), "both are reserved");
    drop(pair);
    let pair = ledger.invited(3, 0).unwrap();
    assert_eq!((pair.user(), pair.other()), (50, 7));
    pair.change_user(List::Pending, false).acknowledge();
    drop(pair);
    assert!(ledger.invited(3, 0).is_none());
    assert!(ledger.invited.lock().is_empty());
}

#[test]
fn workers_act_within_their_blocks_only() {
    let network = network(10, 4);
    let blocks: Vec<_> = (0..3).map(|w| Ledger::new(network.clone(), w, 3).block()).collect();
    assert_eq!(blocks, [0..3, 3..6, 6..10]);
    let ledger = Ledger::new(network, 1, 3);
    for chance in 0..100 {
        let pair = ledger.friends(3 + chance % 3, chance).unwrap();
        assert!(blocks[1].contains(&pair.user()) && blocks[1].contains(&pair.other()));
    }
    assert!(ledger.strangers(4, 1).is_none(), "all three of the block are friends");
}

#[test]
fn ties_that_ended_are_forgotten_at_a_limit_and_others_are_not() {
    let users = PAST_TIES_MAX as u64 + 10;
    let ledger = Ledger::new(network(users, 2), 0, 1);
    drop(ledger.reserve(0));
    for other in 2..users - 1 {
        ledger.begin(0, List::Confirmed, other, false).acknowledge();
    }
    let shard = ledger.shard(0).lock();
    let ties = &shard[&0].confirmed;
    assert_eq!(ties.len(), PAST_TIES_MAX);
    assert!(find(ties, 1).is_ok() && find(ties, users - 1).is_ok() && find(ties, 2).is_err());
}

/// An event of one tie.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The opposite of the last change is sent.
    Send,
    Acknowledge,
    /// A read is sent.
    Ask,
    /// The response to the oldest read arrives, with or without the tie.
    Answer(bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Send),
        2 => Just(Event::Acknowledge),
        3 => Just(Event::Ask),
        4 => any::<bool>().prop_map(Event::Answer),
    ]
}

/// The rule as it is written, over the whole history: times are positions in the list of events.
#[derive(Default)]
struct History(Vec<(usize, Option<usize>, bool)>);

impl History {
    fn allows(&self, loaded: bool, sent: usize, answered: usize, shown: bool) -> bool {
        let settled = self
            .0
            .iter()
            .rev()
            .find(|(_, acknowledged, _)| acknowledged.is_some_and(|at| at < sent));
        let overlapping = |&&(begun, acknowledged, _): &&(usize, Option<usize>, bool)| {
            begun < answered && acknowledged.is_none_or(|at| at > sent)
        };
        settled.map_or(loaded, |(_, _, value)| *value) == shown
            || self.0.iter().filter(overlapping).any(|(_, _, value)| *value == shown)
    }
}

/// Made once: it has pools of a megabyte from which contents are cut.
static TEN_USERS: LazyLock<Arc<Network>> = LazyLock::new(|| network(10, 2));

proptest! {
    #[test]
    fn judgements_are_those_of_the_whole_history(is_friend: bool, events in prop::collection::vec(event(), 1..60)) {
        let ledger = Ledger::new(Arc::clone(&TEN_USERS), 0, 1);
        drop(ledger.reserve(0));
        let other = if is_friend { 1 } else { 5 };
        let mut history = History::default();
        let mut change = None;
        let mut reads = VecDeque::new();
        for (at, event) in events.into_iter().enumerate() {
            match event {
                Event::Send if change.is_none() => {
                    let present = !history.0.last().map_or(is_friend, |last| last.2);
                    change = Some(ledger.begin(0, List::Confirmed, other, present));
                    history.0.push((at, None, present));
                }
                Event::Acknowledge => if let Some(change) = change.take() {
                    change.acknowledge();
                    history.0.last_mut().unwrap().1 = Some(at);
                },
                Event::Ask => reads.push_back((at, ledger.now())),
                Event::Answer(shown) => if let Some((asked, sent)) = reads.pop_front() {
                    let mut users = vec![1, 9];
                    users.retain(|&user| user != other);
                    users.extend(shown.then_some(other));
                    let verdict = judged(&ledger, 0, List::Confirmed, sent, &users);
                    prop_assert_eq!(verdict.is_right(), history.allows(is_friend, asked, at, shown), "at {}", at);
                },
                Event::Send => {}
            }
        }
    }
}
