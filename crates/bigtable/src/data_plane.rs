//! The data plane: handlers of `google.bigtable.v2.Bigtable`.
//!
//! ReadRows, MutateRow and MutateRows are nearly all of the load. They work from the bytes of the request to the bytes of
//! the response, without a message in between where that is possible. Their futures are part of the service's future, so
//! they cost no allocation.

pub(crate) mod conditional;
pub(crate) mod mutate_rows;
mod once;
pub(crate) mod read_rows;
pub(crate) mod samples;

use crate::context::Context;
use crate::mutations::Resolver;
use stele_types::TableSchema;

/// A resolver for the mutations of one request.
fn resolver<'s>(context: &Context, schema: &'s TableSchema) -> Resolver<'s> {
    Resolver::new(schema, context.env.wall_micros())
}
