//! The messages of comparators, with which filters compare parts of cells.
//!
//! [`super::client`] has [`super::Comparator`], which carries them, and the message of `BinaryComparator`.

use super::client::ByteArrayComparable;
use bytes::Bytes;

/// Message of the comparators that hold nothing but a value: `LongComparator` (8 bytes, big-endian),
/// `BinaryPrefixComparator` and `BigDecimalComparator` (4 bytes of scale, then the unscaled number).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ValueComparator {
    /// The value to compare with.
    #[prost(message, required, tag = "1")]
    pub comparable: ByteArrayComparable,
}

/// Message of `BitComparator`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BitComparator {
    /// The value to combine with.
    #[prost(message, required, tag = "1")]
    pub comparable: ByteArrayComparable,
    /// See [`BitwiseOp`].
    #[prost(enumeration = "BitwiseOp", required, tag = "2")]
    pub bitwise_op: i32,
}

/// Combinations of two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum BitwiseOp {
    /// Bits of both.
    And = 1,
    /// Bits of either.
    Or = 2,
    /// Bits of one only.
    Xor = 3,
}

/// Message of `BinaryComponentComparator`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BinaryComponentComparator {
    /// The bytes to compare with.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub value: Bytes,
    /// Where they are expected in the stored bytes.
    #[prost(uint32, required, tag = "2")]
    pub offset: u32,
}

/// Message of `RegexStringComparator`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegexStringComparator {
    /// The expression, in Java's syntax.
    #[prost(string, required, tag = "1")]
    pub pattern: String,
    /// Flags of `java.util.regex.Pattern`.
    #[prost(int32, required, tag = "2")]
    pub pattern_flags: i32,
    /// Character set of the stored bytes; UTF-8 when empty.
    #[prost(string, required, tag = "3")]
    pub charset: String,
    /// `JAVA` or `JONI`; `JAVA` when absent.
    #[prost(string, optional, tag = "4")]
    pub engine: Option<String>,
}

/// Message of `SubstringComparator`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SubstringComparator {
    /// The text to find, in any case.
    #[prost(string, required, tag = "1")]
    pub substr: String,
}
