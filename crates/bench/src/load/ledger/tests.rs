//! The rule against a simulated register: random interleavings of reads and writes by several clients.

use super::*;
use proptest::prelude::*;

const KEY: u64 = 70;

/// A register that behaves as one copy, and remembers the times of its values.
#[derive(Default)]
struct Register {
    /// Values in the order in which they took effect.
    values: Vec<u32>,
}

/// One client's operation under way.
enum Pending {
    Write(Write, bool),
    Read(Snapshot, u64, Option<u32>),
}

/// A step of one client: begin something, let it take effect at the server, end it.
#[derive(Debug, Clone, Copy)]
enum Action {
    Write,
    Read,
    TakeEffect,
    End,
    Fail,
}

fn actions() -> impl Strategy<Value = Vec<(usize, Action)>> {
    let action = prop_oneof![
        3 => Just(Action::Write),
        3 => Just(Action::Read),
        4 => Just(Action::TakeEffect),
        4 => Just(Action::End),
        1 => Just(Action::Fail),
    ];
    prop::collection::vec((0usize..4, action), 1..120)
}

/// The result of a read: finding and version, and whether that version had certainly been overwritten.
struct Answer {
    finding: Finding,
    version: u32,
    is_overwritten: bool,
}

/// Plays the actions. `serve` chooses the result of a read that takes effect.
fn play(actions: &[(usize, Action)], mut serve: impl FnMut(&Register) -> u32) -> Vec<Answer> {
    let ledger = Ledger::new(100).unwrap();
    let mut register = Register { values: vec![0] };
    let mut history = History::new();
    let mut clients: [Option<Pending>; 4] = [const { None }; 4];
    // Failed writes that the server has not carried out; it may do so later.
    let mut late: Vec<u32> = Vec::new();
    let mut answers = Vec::new();
    for &(client, action) in actions {
        clients[client] = match (clients[client].take(), action) {
            (None, Action::Write) => {
                history.begin();
                Some(Pending::Write(ledger.begin_write(KEY).unwrap().unwrap().0, false))
            }
            (None, Action::Read) => Some(Pending::Read(ledger.begin_read(KEY).unwrap(), history.tick(), None)),
            (None, Action::TakeEffect) => {
                register.values.extend(late.pop());
                None
            }
            (Some(Pending::Write(write, false)), Action::TakeEffect | Action::End) => {
                register.values.push(write.version);
                Some(Pending::Write(write, true))
            }
            (Some(Pending::Write(write, true)), Action::End) => {
                ledger.end_write(write, Ending::Acknowledged);
                history.end(write.version);
                None
            }
            (Some(Pending::Write(write, is_done)), Action::Fail) => {
                ledger.end_write(write, Ending::Unknown);
                if !is_done {
                    late.push(write.version);
                }
                None
            }
            (Some(Pending::Read(before, began, None)), Action::TakeEffect | Action::End) => {
                Some(Pending::Read(before, began, Some(serve(&register))))
            }
            (Some(Pending::Read(before, began, Some(version))), Action::End) => {
                answers.push(Answer {
                    finding: ledger.end_read(&before, version),
                    version,
                    is_overwritten: history.is_overwritten(version, began),
                });
                None
            }
            (other, _) => other,
        };
    }
    answers
}

fn newest(register: &Register) -> u32 {
    *register.values.last().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_register_that_behaves_as_one_copy_raises_no_alarm(actions in actions()) {
        for answer in play(&actions, newest) {
            prop_assert_eq!(answer.finding, Finding::Right, "version {}", answer.version);
        }
    }

    #[test]
    fn a_register_that_serves_an_overwritten_value_raises_an_alarm(
        actions in actions(),
        mut choices in prop::collection::vec(0usize..100, 1..8),
    ) {
        let serve = |register: &Register| {
            choices.rotate_left(1);
            register.values[register.values.len() - 1 - choices[0] % register.values.len()]
        };
        for answer in play(&actions, serve) {
            prop_assert!(answer.finding == Finding::Stale || !answer.is_overwritten, "version {}", answer.version);
        }
    }
}

/// The rule spelled out over a whole history, which the `Ledger` must match without remembering all of it.
struct History {
    clock: u64,
    /// Beginning and acknowledgement of each version, zero included.
    writes: Vec<(u64, Option<u64>)>,
}

impl History {
    fn new() -> Self {
        Self {
            clock: 1,
            writes: vec![(0, Some(1))],
        }
    }

    fn begin(&mut self) {
        let began = self.tick();
        self.writes.push((began, None));
    }

    fn end(&mut self, version: u32) {
        let ended = self.tick();
        self.writes[version as usize].1 = Some(ended);
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn is_overwritten(&self, version: u32, before: u64) -> bool {
        let Some(settled) = self.writes[version as usize].1 else {
            return false;
        };
        self.writes
            .iter()
            .any(|&(began, ended)| began > settled && ended.is_some_and(|ended| ended < before))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Writes only: at any time the versions allowed are exactly those that the rule leaves.
    #[test]
    fn the_ledger_remembers_exactly_what_the_rule_needs(actions in prop::collection::vec((0usize..4, 0u8..6), 1..100)) {
        let ledger = Ledger::new(100).unwrap();
        let mut history = History::new();
        let mut clients: [Option<Write>; 4] = [None; 4];
        for (client, action) in actions {
            match clients[client].take() {
                None => {
                    let (write, _) = ledger.begin_write(KEY).unwrap().unwrap();
                    history.begin();
                    clients[client] = Some(write);
                }
                Some(write) if action == 0 => {
                    ledger.end_write(write, Ending::Unknown);
                }
                Some(write) if action < 4 => {
                    ledger.end_write(write, Ending::Acknowledged);
                    history.end(write.version);
                }
                waiting => clients[client] = waiting,
            }
            let now = history.tick();
            // A read that does not end has no effect on the `Ledger`, so it is queried through one snapshot each time.
            let before = ledger.begin_read(KEY).unwrap();
            for version in 0..history.writes.len() as u32 {
                let allowed = match &before.candidates {
                    Candidates::One(only) => *only == version,
                    Candidates::Several(several) => several.contains(&version),
                    Candidates::UpTo(newest) => version <= *newest,
                    Candidates::Any => true,
                };
                let is_judged = !matches!(before.candidates, Candidates::Any);
                prop_assert!(!is_judged || allowed != history.is_overwritten(version, now), "version {}", version);
            }
        }
    }
}

#[test]
fn a_read_between_two_concurrent_writes_decides_which_was_last() {
    let ledger = Ledger::new(100).unwrap();
    let (one, _) = ledger.begin_write(KEY).unwrap().unwrap();
    let (two, _) = ledger.begin_write(KEY).unwrap().unwrap();
    assert!(!ledger.end_write(one, Ending::Acknowledged), "not alone");
    ledger.end_write(two, Ending::Acknowledged);
    let (first, second) = (ledger.begin_read(KEY).unwrap(), ledger.begin_read(KEY).unwrap());
    assert_eq!(ledger.end_read(&first, 1), Finding::Right);
    // This one began before the first result was known. Neither result is provably late.
    assert_eq!(ledger.end_read(&second, 1), Finding::Right);
    let third = ledger.begin_read(KEY).unwrap();
    assert_eq!(ledger.end_read(&third, 2), Finding::Stale);
}

#[test]
fn a_refused_write_was_never_there() {
    let ledger = Ledger::new(100).unwrap();
    let (write, before) = ledger.begin_write(KEY).unwrap().unwrap();
    assert_eq!(before.newest(), (0, true));
    assert!(ledger.end_write(write, Ending::Refused));
    let before = ledger.begin_read(KEY).unwrap();
    assert_eq!(ledger.end_read(&before, 1), Finding::Stale);
    assert_eq!(ledger.end_read(&before, 0), Finding::Right);
}

#[test]
fn quiet_keys_take_no_more_than_their_entry() {
    let ledger = Ledger::new(1_000).unwrap();
    for key in 0..1_000 {
        let (write, _) = ledger.begin_write(key).unwrap().unwrap();
        assert!(ledger.quiet().is_none());
        assert!(ledger.end_write(write, Ending::Acknowledged));
    }
    assert!(ledger.shards.iter().all(|shard| shard.lock().busy.is_empty()));
    assert_eq!(ledger.quiet(), Some(1_000));
    assert!(ledger.begin_read(1_000).is_none());
    assert!(ledger.begin_write(1_000).unwrap().is_none());
}

#[test]
fn what_is_remembered_of_one_key_is_bounded() {
    let ledger = Ledger::new(100).unwrap();
    for _ in 0..10_000 {
        let (write, _) = ledger.begin_write(KEY).unwrap().unwrap();
        ledger.end_write(write, Ending::Unknown);
        let (write, _) = ledger.begin_write(KEY).unwrap().unwrap();
        ledger.end_write(write, Ending::Acknowledged);
    }
    let shard = ledger.shards[(KEY % SHARDS) as usize].lock();
    assert!(shard.busy[&KEY].candidates.len() <= FAILED_MAX + 2);
}

#[test]
fn too_many_keys_are_refused() {
    assert!(Ledger::new(KEYS_MAX + 1).is_err());
}

#[test]
fn versions_never_begun_were_never_written() {
    let ledger = Ledger::new(100).unwrap();
    let before = ledger.begin_read(KEY).unwrap();
    let (write, _) = ledger.begin_write(KEY).unwrap().unwrap();
    assert_eq!(ledger.end_read(&before, 1), Finding::Right, "begun since");
    assert_eq!(ledger.end_read(&before, 2), Finding::NeverWritten);
    assert!(ledger.end_write(write, Ending::Acknowledged));
}

#[test]
fn two_conditional_writes_cannot_replace_the_same_version() {
    let ledger = Ledger::new(100).unwrap();
    let begin = || ledger.begin_write(KEY).unwrap().unwrap().0;
    let (one, two, three) = (begin(), begin(), begin());
    assert!(ledger.end_conditional_write(one, 0));
    assert!(ledger.end_conditional_write(two, 1));
    assert!(!ledger.end_conditional_write(three, 0), "lost update");
}
