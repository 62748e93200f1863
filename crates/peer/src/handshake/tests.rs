use super::*;

const OWNER: Identity = Identity {
    cluster: [7; 16],
    server: 2,
    epoch: 5,
};

fn hello(change: impl FnOnce(&mut Hello)) -> Hello {
    let mut hello = Hello {
        versions: 1..=1,
        caller: Identity {
            server: 1,
            epoch: 9,
            ..OWNER
        },
        owner: OWNER,
    };
    change(&mut hello);
    hello
}

#[test]
fn both_beginnings_round_trip_and_find_damage() {
    let hello = hello(|_| ());
    assert_eq!(Hello::decode(&hello.encode()), Ok(hello.clone()));
    for bit in 0..HELLO_BYTES * 8 {
        let mut damaged = hello.encode();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Hello::decode(&damaged).is_err());
    }
    for version in [Ok(3), Err(Refusal::Epoch), Err(Refusal::Draining)] {
        let answer = Answer {
            version,
            versions: 2..=4,
            owner: OWNER,
        };
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer.clone()));
        for bit in 0..ANSWER_BYTES * 8 {
            let mut damaged = answer.encode();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Answer::decode(&damaged).is_err());
        }
    }
    let nonsense = |at: usize| {
        let mut answer = Answer {
            version: Ok(1),
            versions: 1..=1,
            owner: OWNER,
        }
        .encode();
        answer[at] = at as u8 % 9;
        seal(&mut answer);
        Answer::decode(&answer)
    };
    assert!(nonsense(10).is_err(), "a version and a refusal");
    let mut refused = nonsense(14).unwrap();
    refused.version = Err(Refusal::Version);
    assert!(Answer::decode(&refused.encode()).is_ok());
}

#[test]
fn only_the_server_that_is_wanted_answers() {
    let judge = |hello: Hello| hello.judge(&OWNER, &(1..=2));
    assert_eq!(judge(hello(|_| ())), Ok(1));
    assert_eq!(judge(hello(|h| h.owner.epoch = 0)), Ok(1));
    assert_eq!(judge(hello(|h| h.owner.epoch = 4)), Err(Refusal::Epoch));
    assert_eq!(judge(hello(|h| h.owner.server = 3)), Err(Refusal::Server));
    assert_eq!(judge(hello(|h| h.owner.cluster = [8; 16])), Err(Refusal::Cluster));
}

#[test]
fn versions_side_by_side_meet_in_the_highest_common_one() {
    let judge = |caller, owner| hello(|h| h.versions = caller).judge(&OWNER, &owner);
    assert_eq!(judge(1..=2, 1..=3), Ok(2));
    assert_eq!(judge(2..=4, 1..=3), Ok(3));
    assert_eq!(judge(1..=1, 2..=3), Err(Refusal::Version));
    assert_eq!(judge(4..=5, 2..=3), Err(Refusal::Version));
}

#[test]
fn a_caller_compares_too() {
    let answer = |owner: Identity, version: u16| Answer {
        version: Ok(version),
        versions: 1..=9,
        owner,
    };
    assert_eq!(answer(OWNER, 1).accept(&hello(|_| ())), Ok(1));
    assert_eq!(answer(OWNER, 2).accept(&hello(|_| ())), Err(Refusal::Version));
    let other = Identity { epoch: 6, ..OWNER };
    assert_eq!(answer(other, 1).accept(&hello(|_| ())), Err(Refusal::Epoch));
}
