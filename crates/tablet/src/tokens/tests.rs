//! The table of tokens by itself.

use super::*;
use bytes::Bytes;
use stele_memory::Pool;

const ROW: &[u8] = b"row";
const TABLET: TabletId = TabletId(1);
const SECOND: i64 = 1_000_000;
const NOW: i64 = 1_700_000_000 * SECOND;

fn nonce(nonce: u64) -> RequestToken {
    RequestToken::Nonce { group: 1, nonce }
}

fn dated(number: u64, start_micros: i64) -> RequestToken {
    let token = Bytes::copy_from_slice(&number.to_be_bytes());
    RequestToken::Dated { token, start_micros }
}

/// Memory for this many records without cells.
fn memory_for(records: usize) -> TokenMemory {
    TokenMemory::of(&Pool::new(64 << 20).limited(Part::RequestTokens, records * RECORD_BYTES))
}

fn table(memory: &TokenMemory) -> TokenTable {
    TokenTable::load(TABLET, None, memory).unwrap()
}

fn add(table: &TokenTable, token: &RequestToken, seq: u64) -> u64 {
    table.add(TokenRecord::new(token, ROW, NOW, true, &[]), SeqNo(seq))
}

fn is_known(table: &TokenTable, token: &RequestToken) -> bool {
    matches!(table.seen(token, ROW, NOW), Seen::Before(_))
}

#[test]
fn a_request_is_known_by_its_token_and_row() {
    let table = table(&memory_for(10));
    add(&table, &nonce(1), 5);
    assert!(is_known(&table, &nonce(1)) && !is_known(&table, &nonce(2)));
    assert_eq!(table.seen(&nonce(1), b"other", NOW), Seen::New);
}

#[test]
fn a_nonce_is_known_for_half_an_hour() {
    let table = table(&memory_for(10));
    add(&table, &nonce(1), 5);
    table.forget_expired(NOW + 1_800 * SECOND);
    assert!(is_known(&table, &nonce(1)));
    table.forget_expired(NOW + 1_801 * SECOND);
    assert!(!is_known(&table, &nonce(1)) && table.is_empty());
}

#[test]
fn a_dated_request_is_refused_when_its_record_may_be_gone() {
    let table = table(&memory_for(10));
    let seen = |start: i64| table.seen(&dated(1, start), ROW, NOW);
    assert_eq!(seen(NOW), Seen::New);
    assert_eq!(seen(NOW - 900 * SECOND), Seen::New);
    assert_eq!(seen(NOW - 901 * SECOND), Seen::TooOld);
    assert_eq!(seen(NOW + 60 * SECOND), Seen::New);
    assert_eq!(seen(NOW + 61 * SECOND), Seen::TooEarly);
    // The clock of the server goes back after the record was forgotten.
    add(&table, &dated(2, NOW), 5);
    table.forget_expired(NOW + 901 * SECOND);
    assert_eq!(table.seen(&dated(2, NOW), ROW, NOW + SECOND), Seen::TooOld);
    assert_eq!(table.seen(&dated(3, NOW + 1), ROW, NOW + SECOND), Seen::New);
}

#[test]
fn the_oldest_are_forgotten_for_want_of_memory() {
    let table = table(&memory_for(2));
    let forgotten: Vec<u64> = (1..4).map(|at| add(&table, &dated(at, NOW + at as i64), at)).collect();
    assert_eq!(forgotten, [0, 0, 1]);
    assert_eq!(table.seen(&dated(1, NOW + 1), ROW, NOW), Seen::TooOld);
    assert!(is_known(&table, &dated(2, NOW + 2)) && is_known(&table, &dated(3, NOW + 3)));
    // A nonce takes no date with it.
    let none = self::table(&memory_for(0));
    assert_eq!(add(&none, &nonce(1), 1), 1);
    assert_eq!(none.seen(&nonce(1), ROW, NOW), Seen::New);
    assert_eq!(add(&none, &dated(1, NOW), 2), 1);
    assert_eq!(none.seen(&dated(1, NOW), ROW, NOW), Seen::TooOld);
}

#[test]
fn a_fast_clock_costs_others_nothing() {
    let full = table(&memory_for(3));
    let ahead = NOW + 50 * SECOND;
    add(&full, &dated(1, ahead), 1);
    for at in 2..6 {
        add(&full, &dated(at, NOW + at as i64), at);
    }
    assert!(is_known(&full, &dated(1, ahead)) && is_known(&full, &dated(5, NOW + 5)));
    assert_eq!(full.seen(&dated(3, NOW + 3), ROW, NOW), Seen::TooOld);
    assert_eq!(full.seen(&dated(9, NOW + 10 * SECOND), ROW, NOW), Seen::New);
    // All records are ahead: that of an earlier request is not remembered, and no others are forgotten for it.
    let ahead_only = table(&memory_for(2));
    (1..3).for_each(|at| assert_eq!(add(&ahead_only, &dated(at, ahead), at), 0));
    assert_eq!((add(&ahead_only, &dated(3, NOW), 3), ahead_only.len()), (1, 2));
    assert_eq!(ahead_only.seen(&dated(3, NOW), ROW, NOW), Seen::TooOld);
    assert_eq!(ahead_only.seen(&dated(4, NOW + 1), ROW, NOW), Seen::New);
    // A repetition without a date would count again.
    assert_eq!(add(&ahead_only, &nonce(4), 4), 1);
    assert!(is_known(&ahead_only, &nonce(4)));
}

#[test]
fn a_dated_request_never_counts_twice() {
    let memory = memory_for(5);
    let mut table = table(&memory);
    let start = |at: u64| NOW + (at * 7_919 % 101) as i64 * SECOND / 2;
    for at in 1..200 {
        let token = dated(at, start(at));
        if table.seen(&token, ROW, NOW) == Seen::New {
            add(&table, &token, at);
            let repeated = table.seen(&token, ROW, NOW);
            assert!(matches!(repeated, Seen::Before(_) | Seen::TooOld), "{at}: {repeated:?}");
        }
        let known = |at: &u64| table.seen(&dated(*at, start(*at)), ROW, NOW) == Seen::New;
        assert_eq!((1..=at).find(known), None, "{at}");
        assert!(memory.0.used() <= 5 * RECORD_BYTES);
        // Its manifest keeps all of that.
        if at % 20 == 0 {
            let stored = table.stored(SeqNo(at), NOW);
            drop(std::mem::replace(&mut table, self::table(&memory)));
            table = TokenTable::load(TABLET, stored.as_ref(), &memory).unwrap();
        }
    }
}

/// Tables that are loaded take more than the share, but a table only replaces its own records then.
#[test]
fn others_do_not_lose_records_while_a_tablet_is_replaced() {
    let memory = memory_for(6);
    let (table, other) = (table(&memory), table(&memory));
    for at in 1..4 {
        add(&table, &nonce(at), at);
        add(&other, &nonce(at), at);
    }
    let stored = table.stored(SeqNo(9), NOW).unwrap();
    let half = TokenTable::load(TABLET, Some(&stored), &memory).unwrap();
    assert_eq!(add(&other, &nonce(4), 4), 1);
    assert_eq!(
        (half.len(), other.len(), memory.fair_part(3)),
        (3, 3, Some(6 * RECORD_BYTES / 4))
    );
    drop((half, table));
    assert_eq!((memory.0.used(), memory.fair_part(3)), (3 * RECORD_BYTES, None));
}

#[test]
fn memory_is_returned() {
    let memory = memory_for(100);
    let table = table(&memory);
    (1..101).for_each(|at| assert_eq!(add(&table, &nonce(at), at), 0));
    assert_eq!(memory.0.used(), 100 * RECORD_BYTES);
    table.forget_expired(i64::MAX);
    assert_eq!(memory.0.used(), 0);
    add(&table, &nonce(1), 1);
    drop(table);
    assert_eq!(memory.0.used(), 0);
}

#[test]
fn a_manifest_has_the_records_of_mutations_in_files() {
    let memory = memory_for(10);
    let table = table(&memory);
    assert_eq!(table.stored(SeqNo(9), NOW), None);
    for at in 1..5 {
        add(&table, &nonce(at), at);
    }
    let stored = table.stored(SeqNo(2), NOW).unwrap();
    let opened = TokenTable::load(TABLET, Some(&stored), &memory).unwrap();
    assert_eq!(
        [1, 2, 3, 4].map(|at| is_known(&opened, &nonce(at))),
        [true, true, false, false]
    );
    // Replayed records come once.
    add(&opened, &nonce(3), 3);
    add(&opened, &nonce(3), 3);
    add(&opened, &nonce(1), 1);
    assert_eq!(opened.len(), 3);
    assert_eq!(opened.stored(SeqNo::ZERO, NOW), Some(stored));
}

#[test]
fn a_joined_tablet_knows_all() {
    let memory = memory_for(10);
    let part = |tokens: &[(u64, i64)]| {
        let table = table(&memory);
        for (at, start) in tokens {
            add(&table, &dated(*at, NOW + start), 1);
        }
        table.stored(SeqNo(1), NOW).unwrap()
    };
    // Halves of a split know the same request.
    let (left, right) = (part(&[(1, 10), (2, 30)]), part(&[(1, 10), (3, 20)]));
    let parts = [&left, &right].into_iter();
    let stored = joined(TABLET, parts, &memory).unwrap().unwrap();
    let whole = TokenTable::load(TABLET, Some(&stored), &memory).unwrap();
    assert_eq!(whole.len(), 3);
    add(&whole, &dated(4, NOW + 40), 2);
    assert_eq!(whole.forget_beyond(2 * RECORD_BYTES), 2);
    assert!(is_known(&whole, &dated(2, NOW + 30)) && is_known(&whole, &dated(4, NOW + 40)));
    assert_eq!(whole.seen(&dated(3, NOW + 20), ROW, NOW), Seen::TooOld);
    assert_eq!(joined(TABLET, std::iter::empty(), &memory).unwrap(), None);
}

#[test]
fn records_that_cannot_be_decoded_are_damage() {
    let stored = StoredTokens {
        records: Bytes::from_static(b"\xff"),
        forgotten_micros: 0,
    };
    let error = TokenTable::load(TABLET, Some(&stored), &TokenMemory::default()).unwrap_err();
    assert_eq!(error.kind(), stele_types::ErrorKind::Corruption);
    assert!(stored.inspect().contains("not decodable"));
}

#[test]
fn the_records_of_a_tablet_have_a_limit() {
    let table = table(&TokenMemory::default());
    let len = TokenRecord::new(&nonce(0), ROW, NOW, true, &[]).encoded_len();
    let fits = STORED_BYTES_MAX / len;
    let forgotten: u64 = (1..fits as u64 + 8).map(|at| add(&table, &nonce(at), at)).sum();
    assert_eq!((forgotten, table.len()), (7, fits));
    assert!(table.stored(SeqNo(u64::MAX), NOW).unwrap().records.len() <= STORED_BYTES_MAX);
}

/// A tablet that is opened from the manifest before the next flush must know them.
#[test]
fn a_full_manifest_exchanges_its_oldest_records_for_those_of_a_load() {
    let memory = TokenMemory::default();
    let table = table(&memory);
    let len = TokenRecord::new(&nonce(0), ROW, NOW, true, &[]).encoded_len();
    let fits = (STORED_BYTES_MAX / len) as u64;
    add(&table, &dated(1, NOW - SECOND), 1);
    for at in 2..=fits {
        add(&table, &nonce(at), at);
    }
    let load = TokenRecord::new(&nonce(0), ROW, NOW + SECOND, true, &[]);
    let stored = table.stored_with(&[load], SeqNo(fits), NOW).unwrap();
    let opened = TokenTable::load(TABLET, Some(&stored), &memory).unwrap();
    assert!(is_known(&opened, &nonce(0)) && is_known(&opened, &nonce(fits)));
    assert_eq!(opened.seen(&dated(1, NOW - SECOND), ROW, NOW), Seen::TooOld);
}
