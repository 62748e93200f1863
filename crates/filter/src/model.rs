//! Tests random filters over random rows against a model.
//!
//! The model is a second evaluator, written from the meaning of the kinds. Filters are also compared with themselves
//! after the reduction that their pushdown promises to be harmless.

use crate::testing::{schema, show};
use crate::{CompiledFilter, Filter};
use bytes::Bytes;
use std::cmp::Reverse;
use std::ops::Bound;
use stele_types::{Cell, FamilyId, Labels, Timestamp};

/// A filter as a plain function from list to list; sunk cells go to `sunk`. The patterns that [`random_filter`] makes
/// are few, so they are matched by hand here.
fn reference(filter: &Filter, row: &[u8], input: &[Cell], sunk: &mut Vec<Cell>) -> Vec<Cell> {
    let keep =
        |test: &dyn Fn(&Cell) -> bool| -> Vec<Cell> { input.iter().filter(|cell| test(cell)).cloned().collect() };
    let inside = |start: &Bound<Bytes>, end: &Bound<Bytes>, bytes: &Bytes| {
        (match start {
            Bound::Included(s) => s <= bytes,
            Bound::Excluded(s) => s < bytes,
            Bound::Unbounded => true,
        }) && (match end {
            Bound::Included(e) => bytes <= e,
            Bound::Excluded(e) => bytes < e,
            Bound::Unbounded => true,
        })
    };
    let family_name = |cell: &Cell| ["", "a", "b", "c"][cell.family.0 as usize];
    match filter {
        Filter::Chain(members) => members
            .iter()
            .fold(input.to_vec(), |cells, m| reference(m, row, &cells, sunk)),
        Filter::Interleave(members) => {
            let mut all = Vec::new();
            for member in members {
                all.extend(reference(member, row, input, sunk));
            }
            sort(all)
        }
        Filter::Condition {
            predicate,
            on_true,
            on_false,
        } => {
            let matched = !reference(predicate, row, input, &mut Vec::new()).is_empty();
            let branch = if matched { on_true } else { on_false };
            branch
                .as_ref()
                .map_or(Vec::new(), |branch| reference(branch, row, input, sunk))
        }
        Filter::Sink => {
            sunk.extend_from_slice(input);
            Vec::new()
        }
        Filter::PassAll | Filter::FamiliesBefore(_) => input.to_vec(),
        Filter::BlockAll => Vec::new(),
        Filter::RowKeyRegex(pattern) if matches(pattern, row) => input.to_vec(),
        Filter::RowKeyRegex(_) => Vec::new(),
        Filter::RowSample(probability) if 0.5 < *probability => input.to_vec(),
        Filter::RowSample(_) => Vec::new(),
        Filter::FamilyRegex(p) => keep(&|cell| matches(p, family_name(cell).as_bytes())),
        Filter::Families(families) => keep(&|cell| families.contains(&cell.family)),
        Filter::QualifierRegex(p) => keep(&|cell| matches(p, &cell.qualifier)),
        Filter::ValueRegex(p) => keep(&|cell| matches(p, &cell.value)),
        Filter::ColumnRange { family, start, end } => {
            keep(&|cell| family_name(cell) == family && inside(start, end, &cell.qualifier))
        }
        Filter::TimestampRange { start, end } => {
            keep(&|cell| cell.timestamp.0 >= *start && end.is_none_or(|end| cell.timestamp.0 < end))
        }
        Filter::ValueRange { start, end } => keep(&|cell| inside(start, end, &cell.value)),
        Filter::ValueBitmask(mask) => {
            keep(&|cell| mask.len() == cell.value.len() && (0..mask.len()).all(|i| cell.value[i] & mask[i] == mask[i]))
        }
        Filter::CellsPerRowOffset(n) => input.iter().skip(*n as usize).cloned().collect(),
        Filter::CellsPerRow(n) => input.iter().take(*n as usize).cloned().collect(),
        Filter::CellsPerColumn(n) => {
            let column = |cell: &Cell| (cell.family, cell.qualifier.clone());
            let earlier = |i: usize| {
                input[..i]
                    .iter()
                    .filter(|other| column(other) == column(&input[i]))
                    .count()
            };
            let kept = (0..input.len()).filter(|i| earlier(*i) < *n as usize);
            kept.map(|i| input[i].clone()).collect()
        }
        Filter::StripValue => input
            .iter()
            .map(|cell| Cell {
                value: Bytes::new(),
                ..cell.clone()
            })
            .collect(),
        Filter::ApplyLabel(label) => {
            let labelled = |cell: &Cell| {
                let mut cell = Cell {
                    labels: Labels::none(),
                    ..cell.clone()
                };
                cell.labels.push(label.clone());
                cell
            };
            input.iter().map(labelled).collect()
        }
    }
}

fn sort(mut cells: Vec<Cell>) -> Vec<Cell> {
    cells.sort_by_key(|cell| (cell.family, cell.qualifier.clone(), Reverse(cell.timestamp)));
    cells
}

/// Patterns are an optional `.` or literal letters, then an optional `.*`, or one alternative of two letters.
fn matches(pattern: &[u8], subject: &[u8]) -> bool {
    if let [a, b'|', b] = pattern {
        return subject == [*a] || subject == [*b];
    }
    let (head, open) = match pattern.strip_suffix(b".*") {
        Some(head) => (head, true),
        None => (pattern, false),
    };
    let long_enough = if open {
        subject.len() >= head.len()
    } else {
        subject.len() == head.len()
    };
    long_enough && head.iter().zip(subject).all(|(p, s)| *p == b'.' || p == s)
}

/// A linear congruential generator: the same cases on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }

    fn pick(&mut self, texts: &[&'static str]) -> Bytes {
        Bytes::from_static(texts[self.below(texts.len())].as_bytes())
    }

    fn bounds(&mut self, texts: &[&'static str]) -> (Bound<Bytes>, Bound<Bytes>) {
        let (a, b) = (self.pick(texts), self.pick(texts));
        let bound = |kind: usize, bytes: Bytes| match kind {
            0 => Bound::Included(bytes),
            1 => Bound::Excluded(bytes),
            _ => Bound::Unbounded,
        };
        let (low, high) = (a.clone().min(b.clone()), a.max(b));
        (bound(self.below(3), low), bound(self.below(3), high))
    }
}

fn random_filter(random: &mut Random, depth: usize, sinks: bool) -> Filter {
    let kinds = if depth == 0 { 17 } else { 26 };
    let small = |random: &mut Random| random.below(4) as i32;
    match random.below(kinds) {
        0 => Filter::PassAll,
        1 if random.below(3) == 0 => Filter::BlockAll,
        1 | 2 if sinks => Filter::Sink,
        1 | 2 => Filter::StripValue,
        3 => Filter::RowKeyRegex(random.pick(&["row", "r.*", "ro.", ".*", "x", "r|s", "s.*"])),
        4 => Filter::RowSample(if random.below(3) == 0 { 0.4 } else { 0.6 }),
        5 => Filter::FamilyRegex(random.pick(&["a", "b", ".", "a|b", "d", ".*"])),
        6 => Filter::QualifierRegex(random.pick(&["x", "y", ".", "x|y", "x.*", "", ".*"])),
        7 => Filter::ValueRegex(random.pick(&["v", "w", ".*", "", "v.*", "v|w"])),
        8 => {
            let (start, end) = random.bounds(&["", "x", "xx", "y"]);
            let family = ["a", "b", "d"][random.below(3)].to_owned();
            Filter::ColumnRange { family, start, end }
        }
        9 | 10 => {
            let start = random.below(5) as i64;
            let end = Some(start + random.below(4) as i64).filter(|_| random.below(3) > 0);
            Filter::TimestampRange { start, end }
        }
        11 => {
            let (start, end) = random.bounds(&["", "v", "w"]);
            Filter::ValueRange { start, end }
        }
        12 => Filter::ValueBitmask(random.pick(&["v", "w", "", "\u{1}", "vv"])),
        13 => Filter::CellsPerRowOffset(small(random)),
        14 => Filter::CellsPerRow(small(random) + 1),
        15 => Filter::CellsPerColumn(small(random) % 2 + 1),
        16 => Filter::Families((0..random.below(3)).map(|_| FamilyId(random.below(5) as u32)).collect()),
        17..=21 => {
            let members = 2 + random.below(3);
            Filter::Chain((0..members).map(|_| random_filter(random, depth - 1, sinks)).collect())
        }
        22..=24 => {
            let members = 2 + random.below(2);
            let members = (0..members).map(|n| {
                let member = random_filter(random, depth - 1, sinks);
                // One member tells its copies from the others'.
                if n == 0 && depth == 3 && sinks {
                    return Filter::Chain(vec![member, Filter::ApplyLabel("l".to_owned())]);
                }
                member
            });
            Filter::Interleave(members.collect())
        }
        _ => {
            let mut branch = || {
                let filter = Box::new(random_filter(random, depth - 1, false));
                Some(filter).filter(|_| random.below(4) > 0)
            };
            let (on_true, on_false) = (branch(), branch());
            let predicate = Box::new(random_filter(random, depth - 1, false));
            Filter::Condition {
                predicate,
                on_true,
                on_false,
            }
        }
    }
}

fn random_row(random: &mut Random) -> Vec<Cell> {
    let mut cells: Vec<Cell> = (0..random.below(14))
        .map(|_| {
            let family = FamilyId(1 + random.below(3) as u32);
            let qualifier = random.pick(&["", "x", "xx", "y"]);
            let timestamp = Timestamp(random.below(6) as i64);
            Cell::put(family, qualifier, timestamp, random.pick(&["", "v", "w", "vv"]))
        })
        .collect();
    cells = sort(cells);
    cells.dedup_by(|a, b| (a.family, &a.qualifier, a.timestamp) == (b.family, &b.qualifier, b.timestamp));
    cells
}

/// Copies of a cell that differ only in their order are the same result. The order of equal cells is unspecified, but
/// sunk cells come after the others.
fn check(seed: u64, filter: &Filter, row: &[u8], cells: &[Cell]) {
    let compiled = filter.compile(&schema()).unwrap();
    let mut sunk = Vec::new();
    let mut expected = reference(filter, row, cells, &mut sunk);
    expected.extend(sunk);
    let expected = show(&sort(expected));
    let mut middle = || 0.5;
    let answer = compiled.apply(row, cells.to_vec(), &mut middle).unwrap();
    assert_eq!(show(&answer), expected, "seed {seed}: {filter:?} of {}", show(cells));

    let pushdown = compiled.pushdown();
    if !row.starts_with(&pushdown.row_prefix) {
        assert_eq!(expected, "", "seed {seed}: {filter:?} with {pushdown:?}");
    }
    check_partial_rows(seed, &compiled, row, cells, &expected);
    let reduced = pushdown.reduce(cells.to_vec());
    check_partial_rows(seed, &compiled, row, &reduced, &expected);
    if let Some(families) = pushdown.families() {
        assert!(reduced.iter().all(|cell| families.contains(&cell.family)));
    }
    let answer = compiled.apply(row, reduced, &mut middle).unwrap();
    assert_eq!(
        show(&answer),
        expected,
        "seed {seed}: {filter:?} of {} with {pushdown:?}",
        show(cells)
    );
}

/// The results of the parts of a row, joined, are the result of the row, wherever the parts end.
fn check_partial_rows(seed: u64, compiled: &CompiledFilter, row: &[u8], cells: &[Cell], expected: &str) {
    let mut middle = || 0.5;
    let Some(mut progress) = compiled.progress().filter(|_| compiled.admits_row(row, &mut middle)) else {
        return;
    };
    let mut random = Random(seed);
    let (mut answer, mut rest) = (Vec::new(), cells);
    while !rest.is_empty() {
        let (partial_row, after) = rest.split_at(random.below(rest.len() + 1).min(3));
        rest = after;
        let cells = compiled.evaluate_partial_row(row, partial_row.to_vec(), &mut progress, usize::MAX, &mut middle);
        answer.extend(cells.unwrap());
    }
    assert_eq!(
        show(&answer),
        expected,
        "seed {seed}: {compiled:?} of {} in pieces",
        show(cells)
    );
}

#[test]
fn random_filters_over_random_rows() {
    let (mut answers, mut reductions, mut partial_rows) = (0, 0, 0);
    for seed in 0..30_000 {
        let mut random = Random(seed);
        random.below(2);
        let filter = random_filter(&mut random, 3, true);
        for row in [&b"row"[..], b"s"] {
            let cells = random_row(&mut random);
            check(seed, &filter, row, &cells);
            let compiled = filter.compile(&schema()).unwrap();
            answers += usize::from(compiled.apply(row, cells.clone(), &mut || 0.5) != Ok(vec![]));
            partial_rows += usize::from(compiled.progress().is_some());
            reductions += usize::from(compiled.pushdown().reduce(cells.clone()) != cells);
        }
    }
    // The test is worth nothing if most filters block everything or reduce nothing.
    assert!(answers > 10_000 && reductions > 10_000, "{answers} {reductions}");
    assert!(partial_rows > 30_000, "{partial_rows}");
}
