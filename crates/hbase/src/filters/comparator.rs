//! Comparators: how a filter compares stored bytes with a value of its own.

mod decimal;
mod java;
mod pattern;
mod substring;

use super::decode::Charge;
use super::error::FilterError;
use bytes::Bytes;
use decimal::Decimal;
pub(super) use pattern::Copied;
use pattern::Pattern;
use std::cmp::Ordering;
use stele_wire::messages::{self, BitwiseOp, decode};
use substring::occurs;

const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

/// A value to compare stored bytes with.
#[derive(Debug, Clone)]
pub struct Comparator(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Binary(Bytes),
    /// Compares no more bytes than the value has.
    Prefix(Bytes),
    /// Compares the bytes at an offset.
    Component(Bytes, usize),
    Bit(Bytes, BitwiseOp),
    Long(i64),
    Null,
    Decimal(Decimal),
    Pattern(Box<Pattern>),
    /// In lower case.
    Substring(String),
}

/// How a comparator reads stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// As they are.
    Bytes,
    Decimal,
    Substring,
    /// With the work for each byte, as a multiple of that of a usual pattern.
    Pattern(Copied, usize),
}

impl Comparator {
    /// Decodes a comparator. The memory of a pattern is charged before it is compiled.
    ///
    /// # Errors
    /// A class that is unknown, arguments that it does not take, or no memory.
    pub fn decode(comparator: &messages::Comparator, charge: &mut Charge<'_>) -> Result<Self, FilterError> {
        let unknown = || FilterError::UnknownClass(String::from_utf8_lossy(&comparator.name).into_owned());
        let name = std::str::from_utf8(&comparator.name).map_err(|_| unknown())?;
        let bytes = comparator.serialized_comparator.clone().unwrap_or_default();
        let value = |what, bytes| -> Result<Bytes, FilterError> {
            let message: messages::ValueComparator = decode(what, bytes)?;
            Ok(message.comparable.value.unwrap_or_default())
        };
        Ok(Self(match name.strip_prefix(PACKAGE).ok_or_else(unknown)? {
            "BinaryComparator" => Kind::Binary(value("BinaryComparator", bytes)?),
            "BinaryPrefixComparator" => Kind::Prefix(value("BinaryPrefixComparator", bytes)?),
            "BinaryComponentComparator" => {
                let message: messages::BinaryComponentComparator = decode("BinaryComponentComparator", bytes)?;
                Kind::Component(message.value, message.offset as usize)
            }
            "BitComparator" => {
                let message: messages::BitComparator = decode("BitComparator", bytes)?;
                let op = BitwiseOp::try_from(message.bitwise_op)
                    .map_err(|_| FilterError::argument("a BitComparator needs an operator"))?;
                Kind::Bit(message.comparable.value.unwrap_or_default(), op)
            }
            "LongComparator" => Kind::Long(long(&value("LongComparator", bytes)?)?),
            "NullComparator" => Kind::Null,
            "BigDecimalComparator" => Kind::Decimal(Decimal::read(&value("BigDecimalComparator", bytes)?)?),
            "RegexStringComparator" => {
                let message = decode("RegexStringComparator", bytes)?;
                Kind::Pattern(Box::new(Pattern::compile(&message, charge)?))
            }
            "SubstringComparator" => {
                let message: messages::SubstringComparator = decode("SubstringComparator", bytes)?;
                Kind::Substring(message.substr.to_lowercase())
            }
            _ => return Err(unknown()),
        }))
    }

    /// Compares its value with stored bytes. Some comparators only know equal and greater.
    ///
    /// # Errors
    /// Bytes that are no value of the comparator's type.
    pub fn compare(&self, stored: &[u8]) -> Result<Ordering, FilterError> {
        let found = |found| if found { Ordering::Equal } else { Ordering::Greater };
        Ok(match &self.0 {
            Kind::Binary(value) => value[..].cmp(stored),
            Kind::Prefix(value) => value[..].cmp(head(stored, value.len())),
            Kind::Component(value, offset) => {
                let stored = stored.get(*offset..).unwrap_or_default();
                value[..].cmp(head(stored, value.len()))
            }
            Kind::Bit(value, op) => found(any_bit(value, stored, *op)),
            Kind::Long(value) => value.cmp(&long(stored)?),
            // No stored value is null.
            Kind::Null => Ordering::Greater,
            Kind::Decimal(value) => value.compare(&Decimal::read(stored)?),
            Kind::Pattern(pattern) => found(pattern.finds(stored)),
            Kind::Substring(text) => found(occurs(text, stored)),
        })
    }

    /// Whether its value is empty, which stands for "no value" in a condition.
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Kind::Binary(value) | Kind::Prefix(value) | Kind::Component(value, _) | Kind::Bit(value, _) => {
                value.is_empty()
            }
            Kind::Null => true,
            Kind::Substring(text) => text.is_empty(),
            Kind::Long(_) | Kind::Decimal(_) | Kind::Pattern(_) => false,
        }
    }

    /// The value of a `BinaryComparator`.
    pub(super) fn as_binary(&self) -> Option<&Bytes> {
        match &self.0 {
            Kind::Binary(value) => Some(value),
            _ => None,
        }
    }

    /// The value of a `BinaryPrefixComparator`.
    pub(super) fn as_prefix(&self) -> Option<&Bytes> {
        match &self.0 {
            Kind::Prefix(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn reading(&self) -> Reading {
        match &self.0 {
            Kind::Decimal(_) => Reading::Decimal,
            Kind::Pattern(pattern) => Reading::Pattern(pattern.copied(), pattern.cost()),
            Kind::Substring(_) => Reading::Substring,
            _ => Reading::Bytes,
        }
    }

    /// Bytes that a comparison with a stored value takes: a pattern copies some values to decode them.
    pub fn copied_bytes(&self, stored: &[u8]) -> usize {
        match &self.0 {
            Kind::Pattern(pattern) => pattern.copied().reserved(stored),
            _ => 0,
        }
    }
}

fn head(bytes: &[u8], length: usize) -> &[u8] {
    bytes.get(..length).unwrap_or(bytes)
}

fn long(bytes: &[u8]) -> Result<i64, FilterError> {
    let bytes = bytes.try_into();
    let bytes = bytes.map_err(|_| FilterError::Value("a LongComparator compares values of 8 bytes"))?;
    Ok(i64::from_be_bytes(bytes))
}

/// Whether any bit is left after combining byte by byte; values of different lengths have none.
fn any_bit(value: &[u8], stored: &[u8], op: BitwiseOp) -> bool {
    value.len() == stored.len()
        && value.iter().zip(stored).any(|(&a, &b)| {
            0 != match op {
                BitwiseOp::And => a & b,
                BitwiseOp::Or => a | b,
                BitwiseOp::Xor => a ^ b,
            }
        })
}

#[cfg(test)]
mod tests;
