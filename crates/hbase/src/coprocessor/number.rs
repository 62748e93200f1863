//! Numbers of cells as HBase's column interpreters define them: `Long`, `Double` and `BigDecimal` of Java.
//!
//! A cell whose value has another length than the type is not a number and is left out. Longs wrap. Decimals have two
//! digits behind the point, and are rounded half to even, as the interpreter of HBase does with each value.
//!
//! Limit: a decimal has at most 38 digits; one beyond is an error, where Java's has no bound.

use crate::failure::{Failure, Outcome};
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message as _;
use std::cmp::Ordering;
use stele_wire::messages::{BigDecimalMsg, DoubleMsg, LongMsg};

/// Digits behind the point of a decimal.
const SCALE: i32 = 2;

/// Powers of ten below the largest number of 128 bits.
const POWER_MAX: u32 = 38;

/// A column interpreter: makes numbers of the cells of an aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interpreter {
    Long,
    Double,
    Decimal,
}

/// A number of an interpreter. Numbers of different interpreters never meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Long(i64),
    Double(f64),
    /// Hundredths.
    Decimal(i128),
}

impl Interpreter {
    /// The interpreter of a Java class.
    pub fn of_class(name: &str) -> Outcome<Self> {
        match name.strip_prefix("org.apache.hadoop.hbase.client.coprocessor.") {
            Some("LongColumnInterpreter") => Ok(Interpreter::Long),
            Some("DoubleColumnInterpreter") => Ok(Interpreter::Double),
            Some("BigDecimalColumnInterpreter") => Ok(Interpreter::Decimal),
            _ => Err(Failure::not_served(format!(
                "the column interpreter {:?}",
                name.escape_default().to_string()
            ))),
        }
    }

    /// The number in a cell's value; `None` when it has another length.
    pub fn read(self, value: &[u8]) -> Outcome<Option<Number>> {
        Ok(match self {
            Interpreter::Long => value
                .try_into()
                .ok()
                .map(|bytes| Number::Long(i64::from_be_bytes(bytes))),
            Interpreter::Double => value
                .try_into()
                .ok()
                .map(|bytes| Number::Double(f64::from_be_bytes(bytes))),
            Interpreter::Decimal => decimal(value)?.map(Number::Decimal),
        })
    }

    /// The message of a sum; without a number that of zero.
    pub fn sum(self, sum: Option<Number>) -> Bytes {
        sum.unwrap_or(match self {
            Interpreter::Long => Number::Long(0),
            Interpreter::Double => Number::Double(0.0),
            Interpreter::Decimal => Number::Decimal(0),
        })
        .message()
    }

    /// The message that stands for a missing sum of weights: the least number, as Java defines it for the type.
    pub fn least(self) -> Bytes {
        match self {
            Interpreter::Long => Number::Long(i64::MIN).message(),
            // Java's `Double.MIN_VALUE`: the least one above zero.
            Interpreter::Double => Number::Double(f64::from_bits(1)).message(),
            Interpreter::Decimal => decimal_message(325, 49),
        }
    }
}

impl Number {
    /// The message of the number.
    pub fn message(self) -> Bytes {
        match self {
            Number::Long(long_msg) => LongMsg { long_msg }.encode_to_vec().into(),
            Number::Double(double_msg) => DoubleMsg { double_msg }.encode_to_vec().into(),
            Number::Decimal(hundredths) => decimal_message(SCALE, hundredths),
        }
    }

    /// The order of numbers of one interpreter.
    pub fn cmp(&self, other: &Number) -> Ordering {
        match (self, other) {
            (Number::Long(a), Number::Long(b)) => a.cmp(b),
            (Number::Double(a), Number::Double(b)) => compare(*a, *b),
            (Number::Decimal(a), Number::Decimal(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }

    fn plus(self, other: Number) -> Outcome<Number> {
        match (self, other) {
            (Number::Long(a), Number::Long(b)) => Ok(Number::Long(a.wrapping_add(b))),
            (Number::Double(a), Number::Double(b)) => Ok(Number::Double(a + b)),
            (Number::Decimal(a), Number::Decimal(b)) => a.checked_add(b).map(Number::Decimal).ok_or_else(too_large),
            _ => Ok(self),
        }
    }

    /// The number times itself.
    pub fn squared(self) -> Outcome<Number> {
        match self {
            Number::Long(number) => Ok(Number::Long(number.wrapping_mul(number))),
            Number::Double(number) => Ok(Number::Double(number * number)),
            Number::Decimal(number) => {
                let square = number.checked_mul(number).ok_or_else(too_large)?;
                rescaled(square, 2 * SCALE).map(Number::Decimal)
            }
        }
    }
}

/// The sum of two numbers of which either may be missing.
pub(crate) fn add(sum: Option<Number>, number: Option<Number>) -> Outcome<Option<Number>> {
    match (sum, number) {
        (Some(sum), Some(number)) => sum.plus(number).map(Some),
        (sum, number) => Ok(sum.or(number)),
    }
}

/// Java's order of doubles: all NaN are one number above all others, and -0 is below 0.
fn compare(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.total_cmp(&b),
        (a, b) => a.cmp(&b),
    }
}

/// The hundredths of a stored decimal: 4 bytes of scale, then the unscaled number. `None` for a value that has no number.
fn decimal(value: &[u8]) -> Outcome<Option<i128>> {
    let Some((scale, unscaled)) = value.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let Some(first) = unscaled.first() else {
        return Ok(None);
    };
    let sign = if first & 0x80 == 0 { 0 } else { 0xff };
    // Bytes that only repeat the sign may be in front.
    let extra = unscaled.len().saturating_sub(size_of::<i128>());
    let (front, number) = unscaled.split_at(extra);
    let mut bytes = [sign; size_of::<i128>()];
    for (to, from) in bytes.iter_mut().rev().zip(number.iter().rev()) {
        *to = *from;
    }
    let number = i128::from_be_bytes(bytes);
    if front.iter().any(|byte| *byte != sign) || (number < 0) != (sign != 0) {
        return Err(too_large());
    }
    rescaled(number, i32::from_be_bytes(*scale)).map(Some)
}

/// The hundredths of `unscaled / 10^scale`, rounded half to even.
fn rescaled(unscaled: i128, scale: i32) -> Outcome<i128> {
    let digits = i64::from(scale) - i64::from(SCALE);
    let power = u32::try_from(digits.unsigned_abs()).unwrap_or(u32::MAX);
    if unscaled == 0 || digits == 0 {
        return Ok(unscaled);
    }
    if digits < 0 {
        let factor = 10i128.checked_pow(power).ok_or_else(too_large)?;
        return unscaled.checked_mul(factor).ok_or_else(too_large);
    }
    if power > POWER_MAX {
        // Below half of a hundredth: the unscaled number has at most 39 digits, and is below half of that power.
        return Ok(0);
    }
    let divisor = 10i128.pow(power);
    let (quotient, rest) = (unscaled / divisor, unscaled % divisor);
    let is_up = match rest.unsigned_abs().cmp(&(divisor.unsigned_abs() / 2)) {
        Ordering::Less => false,
        Ordering::Equal => quotient % 2 != 0,
        Ordering::Greater => true,
    };
    Ok(quotient + if is_up { unscaled.signum() } else { 0 })
}

fn decimal_message(scale: i32, unscaled: i128) -> Bytes {
    let bytes = unscaled.to_be_bytes();
    let sign = if unscaled < 0 { 0xff } else { 0 };
    // As few bytes as keep the sign in the first of them.
    let is_needless = |pair: &[u8]| pair[0] == sign && (pair[1] ^ sign) & 0x80 == 0;
    let needless = bytes.windows(2).take_while(|pair| is_needless(pair)).count();
    let mut out = BytesMut::with_capacity(4 + bytes.len());
    out.put_i32(scale);
    out.put_slice(bytes.get(needless..).unwrap_or_default());
    let message = BigDecimalMsg {
        bigdecimal_msg: out.freeze(),
    };
    message.encode_to_vec().into()
}

fn too_large() -> Failure {
    Failure::do_not_retry("a decimal number of an aggregation has more than 38 digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(scale: i32, unscaled: &[u8]) -> Vec<u8> {
        [&scale.to_be_bytes()[..], unscaled].concat()
    }

    fn hundredths(scale: i32, unscaled: &[u8]) -> Outcome<Option<i128>> {
        decimal(&stored(scale, unscaled))
    }

    #[test]
    fn values_of_another_length_are_no_numbers() {
        assert_eq!(Interpreter::Long.read(&7i64.to_be_bytes()), Ok(Some(Number::Long(7))));
        assert_eq!(Interpreter::Long.read(b"1234567"), Ok(None));
        assert_eq!(
            Interpreter::Double.read(&1.5f64.to_be_bytes()),
            Ok(Some(Number::Double(1.5)))
        );
        assert_eq!(Interpreter::Double.read(b""), Ok(None));
        assert_eq!(hundredths(0, b""), Ok(None));
        assert_eq!(Interpreter::Decimal.read(b"123"), Ok(None));
    }

    #[test]
    fn decimals_have_two_digits_and_are_rounded_half_to_even() {
        assert_eq!(hundredths(0, &[5]), Ok(Some(500)));
        assert_eq!(hundredths(3, &[15]), Ok(Some(2)));
        assert_eq!(hundredths(3, &[25]), Ok(Some(2)));
        assert_eq!(hundredths(3, &[26]), Ok(Some(3)));
        assert_eq!(hundredths(3, &[(-35i8) as u8]), Ok(Some(-4)));
        assert_eq!(hundredths(-1, &[(-1i8) as u8]), Ok(Some(-1000)));
        assert_eq!(hundredths(i32::MAX, &[0x7f; 16]), Ok(Some(0)));
        assert_eq!(hundredths(i32::MIN, &[0]), Ok(Some(0)));
        // Bytes that repeat the sign do not make a number longer.
        assert_eq!(hundredths(2, &[[0; 20].as_slice(), &[9]].concat()), Ok(Some(9)));
        assert_eq!(hundredths(2, &[0xff; 40]), Ok(Some(-1)));
        for (scale, unscaled) in [
            (2, vec![1; 17]),
            (i32::MIN, vec![1]),
            (2, [vec![0], vec![0xff; 16]].concat()),
        ] {
            assert!(hundredths(scale, &unscaled).is_err());
        }
    }

    #[test]
    fn decimals_are_written_in_the_fewest_bytes() {
        let bytes = |number| {
            let message = BigDecimalMsg::decode(Number::Decimal(number).message()).unwrap();
            message.bigdecimal_msg.get(4..).unwrap().to_vec()
        };
        for (number, expected) in [
            (0, vec![0]),
            (127, vec![0x7f]),
            (128, vec![0, 0x80]),
            (-1, vec![0xff]),
            (-128, vec![0x80]),
            (-129, vec![0xff, 0x7f]),
        ] {
            assert_eq!(bytes(number), expected, "{number}");
        }
        assert_eq!(bytes(i128::MIN).len(), 16);
    }

    #[test]
    fn sums_and_squares_are_those_of_java() {
        let long = |number| Some(Number::Long(number));
        assert_eq!(add(long(i64::MAX), long(1)), Ok(long(i64::MIN)));
        assert_eq!(add(None, long(3)), Ok(long(3)));
        assert_eq!(Number::Decimal(15).squared(), Ok(Number::Decimal(2)));
        assert!(Number::Decimal(i128::MAX).squared().is_err());
        assert_eq!(compare(f64::NAN, f64::INFINITY), Ordering::Greater);
        assert_eq!(compare(-0.0, 0.0), Ordering::Less);
        assert_eq!(compare(-f64::NAN, f64::NAN), Ordering::Equal);
    }
}
