//! Java's `BigDecimal` as HBase stores it.
//!
//! It has 4 bytes of scale, then the unscaled number in two's complement, big-endian.
//!
//! The number is `unscaled / 10^scale`. A comparison starts with signs, then takes the places of the first digits, then
//! the digits. So it never scales, and scales of any size cost nothing.

use crate::filters::error::FilterError;
use std::cmp::Ordering;

/// Longest unscaled number. Turning it into digits takes time in the square of its length: here, about 2 ms.
const UNSCALED_BYTES_MAX: usize = 4096;

const LIMB_BASE: u64 = 1_000_000_000;
const LIMB_DIGITS: usize = 9;

/// A decimal number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    /// Below, at or above zero.
    sign: Ordering,
    /// Power of ten of the digit before the first: the number is `0.DIGITS * 10^point`.
    point: i64,
    /// ASCII digits without zeros at either end; none for zero.
    digits: Vec<u8>,
}

impl Decimal {
    /// Reads stored bytes.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, FilterError> {
        let too_short = FilterError::Value("a BigDecimalComparator compares values of 5 bytes or more");
        let Some((scale, unscaled)) = bytes.split_first_chunk::<4>() else {
            return Err(too_short);
        };
        let Some(first) = unscaled.first() else {
            return Err(too_short);
        };
        if unscaled.len() > UNSCALED_BYTES_MAX {
            return Err(FilterError::Value("a decimal number has at most 4096 bytes"));
        }
        let negative = first & 0x80 != 0;
        let mut digits = digits(&magnitude(unscaled, negative));
        let scale = i64::from(i32::from_be_bytes(*scale));
        let point = digits.len() as i64 - scale;
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        let sign = match (digits.is_empty(), negative) {
            (true, _) => Ordering::Equal,
            (false, true) => Ordering::Less,
            (false, false) => Ordering::Greater,
        };
        Ok(Self { sign, point, digits })
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.sign.cmp(&other.sign).then_with(|| {
            let magnitude = || (self.point, &self.digits).cmp(&(other.point, &other.digits));
            match self.sign {
                Ordering::Less => magnitude().reverse(),
                Ordering::Equal => Ordering::Equal,
                Ordering::Greater => magnitude(),
            }
        })
    }
}

/// The absolute value of a number in two's complement.
fn magnitude(bytes: &[u8], negative: bool) -> Vec<u8> {
    if !negative {
        return bytes.to_vec();
    }
    let mut carry = true;
    let mut negated: Vec<u8> = bytes
        .iter()
        .rev()
        .map(|byte| {
            let (sum, overflow) = (!byte).overflowing_add(u8::from(carry));
            carry = overflow;
            sum
        })
        .collect();
    negated.reverse();
    negated
}

/// Decimal digits of an unsigned number, without zeros in front.
fn digits(bytes: &[u8]) -> Vec<u8> {
    // Least significant first.
    let mut limbs: Vec<u64> = Vec::new();
    for word in bytes.rchunks(4).rev() {
        let word_value = word.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
        let mut carry = word_value;
        for limb in &mut limbs {
            let value = (*limb << (8 * word.len())) + carry;
            *limb = value % LIMB_BASE;
            carry = value / LIMB_BASE;
        }
        while carry > 0 {
            limbs.push(carry % LIMB_BASE);
            carry /= LIMB_BASE;
        }
    }
    let mut text = String::with_capacity(limbs.len() * LIMB_DIGITS);
    for limb in limbs.iter().rev() {
        text.push_str(&format!("{limb:09}"));
    }
    text.trim_start_matches('0').as_bytes().to_vec()
}
