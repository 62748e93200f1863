//! Comparators as HBase evaluates them.

use super::Comparator;
use crate::filters::FilterError;
use bytes::Bytes;
use std::cmp::Ordering;
use stele_wire::messages::{self, decode};

/// Comparisons recorded from HBase 2.6.4 on Java 17, all bytes in hexadecimal, `-` for none:
/// * `values VALUE ...` are the stored values of the lines behind it.
/// * `comparator MESSAGE RESULTS` has the message of a comparator, with `@` for the Java package, and how it compares
///   with each value: `<`, `=`, `>`, or `!` for an exception.
const RECORDED: &str = include_str!("../../../testdata/comparators.txt");

const PACKAGE: &str = "6f72672e6170616368652e6861646f6f702e68626173652e66696c7465722e";

fn bytes(hex: &str) -> Bytes {
    let digits: Vec<_> = hex.bytes().filter_map(|digit| char::from(digit).to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

fn result(result: Result<Ordering, FilterError>) -> char {
    match result {
        Ok(Ordering::Less) => '<',
        Ok(Ordering::Equal) => '=',
        Ok(Ordering::Greater) => '>',
        Err(_) => '!',
    }
}

#[test]
fn comparisons_are_those_of_hbase() {
    let (mut values, mut count, mut wrong) = (Vec::new(), 0, Vec::new());
    for (number, line) in RECORDED.lines().enumerate() {
        let fields: Vec<_> = line.split(' ').collect();
        if fields[0] == "values" {
            values = fields[1..].iter().map(|hex| bytes(hex)).collect();
            continue;
        }
        count += 1;
        let message: messages::Comparator = decode("Comparator", bytes(&fields[1].replace('@', PACKAGE))).unwrap();
        let found: String = match Comparator::decode(&message, &mut |_| true) {
            Err(e) => e.to_string(),
            Ok(comparator) => values.iter().map(|value| result(comparator.compare(value))).collect(),
        };
        if found != fields[2] {
            let message = String::from_utf8_lossy(message.serialized_comparator.as_deref().unwrap()).into_owned();
            let at = found.chars().zip(fields[2].chars()).position(|(a, b)| a != b);
            let value = at.map(|at| String::from_utf8_lossy(&values[at]).into_owned());
            wrong.push(format!("line {}: {message:?}: {found} at {value:?}", number + 1));
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 300, "{count}");
}
