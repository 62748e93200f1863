//! Tests of the checker on histories small enough to tell the right results by hand.

use super::*;
use bytes::Bytes;
use stele_types::Timestamp;

/// Keeps everything.
const ALL: FamilyId = FamilyId(1);
/// Keeps two versions of a column.
const TWO: FamilyId = FamilyId(2);

fn row() -> Row {
    Row::new(|family| (family == TWO).then_some(2))
}

fn value(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn put(family: FamilyId, timestamp: i64, number: u64) -> Mutation {
    Mutation::Put {
        family,
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(timestamp),
        value: value(number),
    }
}

fn delete(family: FamilyId, from: i64, to: i64) -> Mutation {
    Mutation::DeleteColumn {
        family,
        qualifier: Bytes::from_static(b"q"),
        from: Timestamp(from),
        to: Timestamp(to),
    }
}

/// A write that ends so, at moment 10.
fn write(row: &mut Row, mutations: &[Mutation], outcome: Outcome) {
    assert!(row.begin_write(&mutations.to_vec().into()));
    row.end_write(outcome, None, 10).unwrap();
}

fn puts(row: &mut Row, family: FamilyId, cells: &[(i64, u64)]) {
    for (timestamp, number) in cells {
        write(row, &[put(family, *timestamp, *number)], Outcome::Acknowledged);
    }
}

fn cells(family: FamilyId, cells: &[(i64, u64)]) -> Vec<Cell> {
    let cell = |(timestamp, number): &(i64, u64)| {
        Cell::put(family, Bytes::from_static(b"q"), Timestamp(*timestamp), value(*number))
    };
    cells.iter().map(cell).collect()
}

/// Whether a read of these timestamps and numbers, newest first, is right.
fn reads(row: &mut Row, family: FamilyId, expected: &[(i64, u64)]) -> bool {
    let read = row.begin_read(0);
    row.end_read(read, &View::All, Some(&cells(family, expected))).is_ok()
}

#[test]
fn deletes_hide_what_they_say_and_no_more() {
    let mut row = row();
    puts(&mut row, ALL, &[(1, 11), (2, 12), (3, 13), (4, 14)]);
    write(&mut row, &[delete(ALL, 2, 3)], Outcome::Acknowledged);
    assert!(
        !reads(&mut row, ALL, &[(4, 14), (3, 13), (2, 12), (1, 11)]),
        "it is ignored"
    );
    assert!(!reads(&mut row, ALL, &[(4, 14)]), "it has lost its beginning");
    assert!(!reads(&mut row, ALL, &[(1, 11)]), "it has lost its end");
    assert!(reads(&mut row, ALL, &[(4, 14), (1, 11)]));
    let up_to = Timestamp(1);
    let in_order = [Mutation::DeleteFamily { family: ALL, up_to }, put(ALL, 1, 21)];
    write(&mut row, &in_order, Outcome::Acknowledged);
    assert!(!reads(&mut row, ALL, &[(4, 14)]) && !reads(&mut row, ALL, &[(4, 14), (1, 11)]));
    assert!(reads(&mut row, ALL, &[(4, 14), (1, 21)]));
    let at = |timestamp| Mutation::DeleteFamilyVersion {
        family: ALL,
        timestamp: Timestamp(timestamp),
    };
    write(&mut row, &[at(4)], Outcome::Acknowledged);
    assert!(reads(&mut row, ALL, &[(1, 21)]));
    write(
        &mut row,
        &[Mutation::DeleteRow { up_to: Timestamp(0) }],
        Outcome::Acknowledged,
    );
    assert!(reads(&mut row, ALL, &[(1, 21)]) && !reads(&mut row, ALL, &[]));
}

#[test]
fn a_rule_counts_immediately() {
    let mut row = row();
    puts(&mut row, TWO, &[(1, 11), (2, 12), (3, 13)]);
    assert!(!reads(&mut row, TWO, &[(3, 13), (2, 12), (1, 11)]), "it has expired");
    assert!(!reads(&mut row, TWO, &[(3, 13)]), "one too many is hidden");
    assert!(!reads(&mut row, TWO, &[(3, 13), (1, 11)]), "the wrong one is hidden");
    assert!(reads(&mut row, TWO, &[(3, 13), (2, 12)]));
    puts(&mut row, ALL, &[(1, 21), (2, 22), (3, 23)]);
    let mut all = cells(ALL, &[(3, 23), (2, 22), (1, 21)]);
    all.extend(cells(TWO, &[(3, 13), (2, 12)]));
    let read = row.begin_read(0);
    assert!(row.end_read(read, &View::All, Some(&all)).is_ok());
}

#[test]
fn what_was_garbage_may_come_back_until_it_is_gone() {
    let deleted = || {
        let mut row = row();
        puts(&mut row, TWO, &[(1, 11), (2, 12), (3, 13)]);
        write(&mut row, &[delete(TWO, 3, 3)], Outcome::Acknowledged);
        row
    };
    let mut row = deleted();
    assert!(reads(&mut row, TWO, &[(2, 12), (1, 11)]) && reads(&mut row, TWO, &[(2, 12)]));
    assert!(
        !reads(&mut row, TWO, &[(2, 12), (1, 11)]),
        "it had been dropped for good"
    );
    let mut row = deleted();
    assert!(
        !reads(&mut row, TWO, &[]) && !reads(&mut row, TWO, &[(1, 11)]),
        "12 was never garbage"
    );
    puts(&mut row, TWO, &[(1, 21)]);
    assert!(!reads(&mut row, TWO, &[(2, 12)]) && !reads(&mut row, TWO, &[(2, 12), (1, 11)]));
    assert!(reads(&mut row, TWO, &[(2, 12), (1, 21)]));
}

#[test]
fn an_unanswered_write_has_happened_or_never_will() {
    let unanswered = |outcome| {
        let mut row = row();
        puts(&mut row, ALL, &[(1, 11), (2, 12)]);
        write(&mut row, &[delete(ALL, 1, 1), put(ALL, 2, 22)], outcome);
        row
    };
    let (old, new) = ([(2, 12), (1, 11)], [(2, 22)]);
    let mut row = unanswered(Outcome::Unknown);
    assert!(!row.begin_write(&vec![put(ALL, 1, 31)].into()), "the row rests");
    assert!(!reads(&mut row, ALL, &[(2, 12)]), "half of it");
    assert!(
        reads(&mut row, ALL, &old) && reads(&mut row, ALL, &new),
        "it happens late"
    );
    assert!(!reads(&mut row, ALL, &old), "and is lost again");
    let mut row = unanswered(Outcome::Unknown);
    row.recovered(0);
    assert!(reads(&mut row, ALL, &old) && !reads(&mut row, ALL, &new), "too late");
    let mut row = unanswered(Outcome::Failed);
    row.recovered(0);
    assert!(reads(&mut row, ALL, &new) && !reads(&mut row, ALL, &old));
    // It failed at moment 10, and the write that began at 11 was acknowledged.
    let mut row = unanswered(Outcome::Failed);
    row.recovered(11);
    assert!(!reads(&mut row, ALL, &new) && reads(&mut row, ALL, &old));
    // Here it failed before a recovery, and its client learned so afterwards.
    let mut row = unanswered(Outcome::Acknowledged);
    assert!(row.begin_write(&vec![put(ALL, 3, 13)].into()));
    row.recovered(0);
    row.end_write(Outcome::Failed, None, 10).unwrap();
    row.recovered(11);
    assert!(reads(&mut row, ALL, &[(3, 13), (2, 22)]));
    // And here a read between the two tells already that it never will.
    let mut row = unanswered(Outcome::Acknowledged);
    assert!(row.begin_write(&vec![put(ALL, 3, 13)].into()));
    row.recovered(0);
    assert!(reads(&mut row, ALL, &[(2, 22)]));
    assert!(!reads(&mut row, ALL, &[(3, 13), (2, 22)]));
    assert!(row.end_write(Outcome::Acknowledged, None, 10).is_err());
    assert!(row.begin_write(&vec![put(ALL, 3, 13)].into()), "nobody has to wait");
    // Or that it has.
    let mut row = unanswered(Outcome::Acknowledged);
    assert!(row.begin_write(&vec![put(ALL, 3, 13)].into()));
    row.recovered(0);
    assert!(reads(&mut row, ALL, &[(3, 13), (2, 22)]) && reads(&mut row, ALL, &[(3, 13), (2, 22)]));
    assert!(row.end_write(Outcome::Acknowledged, None, 10).is_ok());
    let mut row = unanswered(Outcome::Refused);
    assert!(!reads(&mut row, ALL, &new) && reads(&mut row, ALL, &old));
}

#[test]
fn a_doubt_that_nobody_ends_stays_one() {
    let mut row = row();
    for timestamp in [1, 2] {
        write(&mut row, &[put(ALL, timestamp, 10)], Outcome::Unknown);
        row.recovered(0);
    }
    puts(&mut row, ALL, &[(3, 13)]);
    assert!(
        !reads(&mut row, ALL, &[(2, 10), (1, 10)]),
        "what was acknowledged is missing"
    );
    assert!(reads(&mut row, ALL, &[(3, 13), (1, 10)]));
    assert!(!reads(&mut row, ALL, &[(3, 13), (2, 10)]) && !reads(&mut row, ALL, &[(3, 13)]));
}

#[test]
fn a_read_during_a_write_sees_it_or_not() {
    let beside = |seen: &[(i64, u64)], outcome| {
        let mut row = row();
        puts(&mut row, ALL, &[(1, 11)]);
        let read = row.begin_read(0);
        write(&mut row, &[put(ALL, 1, 12)], outcome);
        row.end_read(read, &View::All, Some(&cells(ALL, seen))).is_ok()
    };
    assert!(beside(&[(1, 11)], Outcome::Acknowledged) && beside(&[(1, 12)], Outcome::Acknowledged));
    assert!(beside(&[(1, 11)], Outcome::Refused) && !beside(&[(1, 12)], Outcome::Refused));
    assert!(!beside(&[], Outcome::Unknown) && beside(&[(1, 12)], Outcome::Unknown));
    // A write that is seen before its response has taken effect.
    let mut row = row();
    assert!(row.begin_write(&vec![put(ALL, 1, 11)].into()));
    assert!(reads(&mut row, ALL, &[(1, 11)]) && !reads(&mut row, ALL, &[]));
    assert!(row.end_write(Outcome::Refused, None, 10).is_err());
}

/// Two columns of two versions each.
fn small() -> (Row, Vec<Cell>) {
    let mut row = row();
    puts(&mut row, ALL, &[(1, 11), (2, 12)]);
    puts(&mut row, TWO, &[(1, 21), (2, 22)]);
    let mut all = cells(ALL, &[(2, 12), (1, 11)]);
    all.extend(cells(TWO, &[(2, 22), (1, 21)]));
    (row, all)
}

/// `expected` names the right result by the positions of its cells.
fn check_view(view: View, expected: &[usize]) {
    let (mut row, all) = small();
    let seen: Vec<Cell> = expected.iter().map(|place| all[*place].clone()).collect();
    let read = row.begin_read(0);
    assert!(row.end_read(read, &view, Some(&seen)).is_ok(), "{view:?}");
    let mut wrong = seen.clone();
    if wrong.pop().is_none() {
        wrong.push(all[0].clone());
    }
    let read = row.begin_read(0);
    assert!(row.end_read(read, &view, Some(&wrong)).is_err(), "{view:?}");
}

#[test]
fn views_leave_what_filters_must() {
    let chain = |first, second| View::Chain(Box::new(first), Box::new(second));
    let times = |from, to| View::Times { from, to };
    let columns = |from: &'static [u8], to: Option<&'static [u8]>| View::Columns {
        family: (TWO, "two"),
        from: Bytes::from_static(from),
        to: to.map(Bytes::from_static),
    };
    check_view(View::All, &[0, 1, 2, 3]);
    check_view(View::NewestOfColumn(1), &[0, 2]);
    check_view(View::FirstOfRow(3), &[0, 1, 2]);
    check_view(View::AfterFirst(3), &[3]);
    check_view(View::AfterFirst(4), &[]);
    check_view(columns(b"", Some(b"q\0")), &[2, 3]);
    check_view(columns(b"", Some(b"q")), &[]);
    check_view(columns(b"q\0", None), &[]);
    check_view(times(1, Some(2)), &[1, 3]);
    check_view(times(2, None), &[0, 2]);
    check_view(View::Numbers { from: 12, to: 22 }, &[0, 3]);
    check_view(chain(times(1, Some(2)), View::NewestOfColumn(1)), &[1, 3]);
    check_view(chain(View::NewestOfColumn(1), times(1, Some(2))), &[]);
    check_view(chain(View::Stripped, View::Numbers { from: 0, to: 99 }), &[]);
    let both = View::Both(Box::new(View::FirstOfRow(1)), Box::new(times(2, None)));
    check_view(both, &[0, 0, 2]);
    let (mut row, mut all) = small();
    all.iter_mut().for_each(|cell| cell.value = Bytes::new());
    let read = row.begin_read(0);
    assert!(row.end_read(read, &View::Stripped, Some(&all)).is_ok());
}

#[test]
fn a_rule_counts_before_a_filter() {
    let mut row = row();
    puts(&mut row, TWO, &[(1, 11), (2, 12), (3, 13)]);
    let oldest = View::Times { from: 1, to: Some(2) };
    let read = row.begin_read(0);
    assert!(row.end_read(read, &oldest, Some(&cells(TWO, &[(1, 11)]))).is_err());
    let read = row.begin_read(0);
    assert!(row.end_read(read, &oldest, Some(&[])).is_ok());
}

#[test]
fn a_condition_tells_what_the_row_held() {
    let change = Change {
        condition: Some(View::Times { from: 1, to: Some(2) }),
        on_match: vec![delete(TWO, 1, 1)],
        otherwise: vec![put(TWO, 1, 31)],
    };
    let ended = |before: &[(i64, u64)], outcome, matched| {
        let mut row = row();
        puts(&mut row, TWO, before);
        assert!(row.begin_write(&change));
        row.end_write(outcome, matched, 10).map(|()| row)
    };
    let there = [(1, 11), (2, 12)];
    assert!(ended(&there, Outcome::Acknowledged, Some(false)).is_err());
    let mut row = ended(&there, Outcome::Acknowledged, Some(true)).unwrap();
    assert!(!reads(&mut row, TWO, &[(2, 12), (1, 11)]) && reads(&mut row, TWO, &[(2, 12)]));
    // An expired cell matches nothing.
    let expired = [(1, 11), (2, 12), (3, 13)];
    assert!(ended(&expired, Outcome::Acknowledged, Some(true)).is_err());
    let mut row = ended(&there, Outcome::Unknown, None).unwrap();
    assert!(!reads(&mut row, TWO, &[(2, 12), (1, 31)]), "the other branch");
    assert!(reads(&mut row, TWO, &[(2, 12)]));
    // A result ends a doubt.
    let mut row = ended(&[(2, 12)], Outcome::Unknown, None).unwrap();
    row.recovered(0);
    assert!(row.begin_write(&change));
    assert!(row.end_write(Outcome::Acknowledged, Some(true), 11).is_ok());
    assert!(!reads(&mut row, TWO, &[(2, 12), (1, 31)]) && reads(&mut row, TWO, &[(2, 12)]));
}
