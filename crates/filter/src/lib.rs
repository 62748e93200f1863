//! Row filters are validated trees that are evaluated over one row at a time. The crate also derives the reduction of
//! rows that a filter allows a scan.
//!
//! A filter is a function from a row's cells to a row's cells, written as a tree of [`Filter`]s. The tree is plain
//! data, so that it can travel to the server that holds the row. [`Filter::compile`] checks all of it against a schema
//! and returns a [`CompiledFilter`]; [`Filter::compile_shared`] returns a cached one if possible. A scan uses it in
//! three steps:
//!
//! 1. Once per scan, [`CompiledFilter::pushdown`] lists the rows, families, columns, timestamps, versions and values
//!    that the scan need not fetch.
//! 2. Once per row, [`CompiledFilter::admits_row`] decides by row key and sampling, before any cell is read.
//! 3. For each admitted row, [`CompiledFilter::evaluate`] turns the fetched cells into the cells of the result. Partial
//!    rows are evaluated one by one, where the filter allows it ([`CompiledFilter::progress`]).
//!
//! The kinds are those of Bigtable's `RowFilter` (`google.bigtable.v2`, data.proto); `docs/filters.md` is the reference
//! of their meaning. Everything here is pure: no I/O, no async, no clock; randomness is an argument.
#![forbid(unsafe_code)]

mod ast;
mod automaton_cost;
mod cell_order;
mod column_cut;
mod compile;
mod compile_cache;
mod compiled;
mod compiled_size;
mod error;
mod evaluate;
mod labels;
mod limits;
mod list_memory;
mod need;
mod node;
mod partial_rows;
mod pushdown;
mod qualifier_range;
pub mod re2;
mod values;

pub use ast::Filter;
pub use automaton_cost::automaton_cost;
pub use column_cut::ColumnCut;
pub use compiled::CompiledFilter;
pub use error::FilterError;
pub use partial_rows::RowProgress;
pub use pushdown::{Pushdown, TimestampBounds};
pub use qualifier_range::QualifierRange;

#[cfg(test)]
mod model;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
