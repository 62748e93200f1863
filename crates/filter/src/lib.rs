//! Row filters: a tree, its validation, its evaluation over one row, and what a scan can be spared because of it.
//!
//! A filter is a function from a row's cells to a row's cells, written as a tree of [`Filter`]s. The tree is plain data,
//! so that it can travel to the server that holds the row. [`Filter::compile`] checks all of it against a schema and
//! gives a [`CompiledFilter`] ([`Filter::compile_shared`] perhaps that of the last request), which a scan uses in three
//! steps:
//!
//! 1. once per scan, [`CompiledFilter::pushdown`] says which rows, families, columns, timestamps, versions and values
//!    the scan need not even fetch;
//! 2. once per row, [`CompiledFilter::admits_row`] decides by row key and sampling, before any cell is read;
//! 3. for each admitted row, [`CompiledFilter::evaluate`] turns the cells that were fetched into the cells of the answer.
//!    Of a row that comes in pieces each is turned by itself, where the filter allows it ([`CompiledFilter::progress`]).
//!
//! The kinds are those of Bigtable's `RowFilter` (`google.bigtable.v2`, data.proto); `docs/filters.md` is the reference of
//! what each one means. Everything here is pure: no I/O, no async, no clock; randomness is an argument.
#![forbid(unsafe_code)]

mod ast;
mod compile;
mod compiled;
mod error;
mod evaluate;
mod known;
mod labels;
mod need;
mod partial_rows;
mod pushdown;
pub mod re2;
mod size;
mod values;

pub use ast::Filter;
pub use compiled::CompiledFilter;
pub use error::FilterError;
pub use partial_rows::RowProgress;
pub use pushdown::{ColumnCut, Pushdown, QualifierRange, TimestampBounds};

#[cfg(test)]
mod model;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
