//! A comparison of stored bytes with a comparator: "stored OP given".

use super::comparator::Comparator;
use super::error::FilterError;
use std::cmp::Ordering;
use stele_wire::messages::CompareType;

/// An operator and its right side.
#[derive(Debug, Clone)]
pub(super) struct Comparison {
    op: CompareType,
    comparator: Option<Comparator>,
}

impl Comparison {
    /// # Errors
    /// An operator that compares, without a comparator.
    pub(super) fn new(op: CompareType, comparator: Option<Comparator>) -> Result<Self, FilterError> {
        if op != CompareType::NoOp && comparator.is_none() {
            return Err(FilterError::argument("a comparison needs a comparator"));
        }
        Ok(Self { op, comparator })
    }

    /// Whether stored bytes pass. `NoOp` lets nothing pass.
    pub(super) fn passes(&self, stored: &[u8]) -> Result<bool, FilterError> {
        let Some(comparator) = self.comparator.as_ref().filter(|_| self.op != CompareType::NoOp) else {
            return Ok(false);
        };
        let given = comparator.compare(stored)?;
        Ok(match self.op {
            CompareType::Less => given == Ordering::Greater,
            CompareType::LessOrEqual => given != Ordering::Less,
            CompareType::Equal => given == Ordering::Equal,
            CompareType::NotEqual => given != Ordering::Equal,
            CompareType::GreaterOrEqual => given != Ordering::Greater,
            CompareType::Greater => given == Ordering::Less,
            CompareType::NoOp => false,
        })
    }

    pub(super) fn op(&self) -> CompareType {
        self.op
    }

    pub(super) fn comparator(&self) -> Option<&Comparator> {
        self.comparator.as_ref()
    }
}
