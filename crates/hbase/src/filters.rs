//! HBase's filters.
//!
//! A client sends a tree of them with a Get, a Scan or a condition.
//!
//! A filter is a state machine that the scan of one region drives. For each row it decides by the row's key, then for
//! each cell, then on the list of kept cells, and at last on the row. [`ScanFilter`] drives a tree as a region of HBase
//! 2.6 does, family by family.
//!
//! Terms: a *code* is a filter's verdict on a cell, with the place that the scan continues at. A *hint* is such a place
//! that the filter computes. A filter is *exhausted* when no later row can pass.
//!
//! Invariants:
//! * Decoding is bounded in depth, in nodes and in the memory of patterns, before anything is evaluated.
//! * Skipping rows outside of [`ScanFilter::row_ranges`] does not change any answer.
//! * Bytes from clients and cells never panic: they are refused or compared.
//!
//! It departs from HBase where that reads memory beyond a row or value, seeks past matching rows, or does not end.

mod cell;
mod columns;
mod comparator;
mod comparison;
mod cost;
mod decode;
mod error;
mod first;
mod fuzzy;
mod list;
mod node;
mod pushdown;
mod ranges;
mod rows;
mod scan;
mod single;
mod values;
mod wrapping;

pub use cell::FilterCell;
pub use comparator::Comparator;
pub use cost::Cost;
pub use decode::Charge;
pub use error::FilterError;
pub use pushdown::{Needs, RowBounds};
pub use scan::{FamilyVersions, Random, RowVerdict, ScanFilter, ScanShape};

#[cfg(test)]
mod tests;
