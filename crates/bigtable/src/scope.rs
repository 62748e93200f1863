//! The part of a table that a data call addresses: all, or an authorized view.
//!
//! A read through a view is narrowed to its rows and columns, so all other cells do not exist for it. Its counts and its progress tell
//! of none of them either. A write is refused if any
//! part of it is outside of the view, and so is a delete of a family or a row. The caller needs the right on the view only, which its
//! guard checks.

use crate::context::{Context, table_status};
use crate::names::{TableResource, ViewResource};
use crate::pb::v2;
use crate::pb::v2::mutation::Mutation as Kind;
use crate::pb::v2::value::Kind as ValueKind;
use crate::status::invalid;
use crate::wire::Mutation;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use stele_client::{ReadRows, TableService};
use stele_filter::Filter;
use stele_types::{RowSet, TableSchema, View, limits};
use tonic::Status;

/// A table as a call may use it.
pub(crate) struct Scope {
    pub table: TableResource,
    pub schema: Arc<TableSchema>,
    /// The service interface for this call.
    pub service: Arc<dyn TableService>,
    view: Option<View>,
}

/// The name of a table or of a view.
pub(crate) enum Addressed {
    Table(TableResource),
    View(ViewResource),
}

impl Addressed {
    /// That of a call. Naming neither, or two things, is an error.
    pub fn parse(table: &str, authorized_view: &str, materialized_view: &str) -> Result<Addressed, Status> {
        let named = [table, authorized_view, materialized_view];
        match named.iter().filter(|name| !name.is_empty()).count() {
            1 if !authorized_view.is_empty() => ViewResource::parse(authorized_view).map(Addressed::View),
            1 if !materialized_view.is_empty() => Err(Status::unimplemented(
                "Materialized views are not implemented: use table_name",
            )),
            1 => TableResource::parse(table).map(Addressed::Table),
            _ => Err(invalid(
                "Exactly one of table_name, authorized_view_name and materialized_view_name must be set",
            )),
        }
    }

    /// The table as it is now; NOT_FOUND if there is none, or no such view.
    pub fn scope(self, context: &Context) -> Result<Scope, Status> {
        match self {
            Addressed::Table(table) => Ok(Scope {
                schema: context.schema(&table)?,
                table,
                service: Arc::clone(&context.service),
                view: None,
            }),
            Addressed::View(view) => Scope::of_view(context, view),
        }
    }
}

impl Scope {
    /// Through a view; NOT_FOUND if there is none.
    fn of_view(context: &Context, view: ViewResource) -> Result<Scope, Status> {
        let service: Arc<dyn TableService> = match &context.guard {
            Some(guard) => guard.through(&view.view),
            None => Arc::clone(&context.service),
        };
        let schema = service.schema(&view.table.name);
        let schema = schema.map_err(|error| table_status(&view.table, error))?;
        let found = schema.views.get(&view.view).cloned();
        Ok(Scope {
            view: Some(found.ok_or_else(|| view.not_found())?),
            table: view.table,
            schema,
            service,
        })
    }

    /// Whether it is a view.
    pub fn is_view(&self) -> bool {
        self.view.is_some()
    }

    /// Those of some rows that the call may read.
    pub fn rows(&self, rows: RowSet) -> RowSet {
        match &self.view {
            None => rows,
            Some(view) => view.rows_of(&rows),
        }
    }

    /// Narrows a read.
    pub fn narrow(&self, read: &mut ReadRows) {
        if let Some(view) = &self.view {
            read.rows = view.rows_of(&read.rows);
            read.filter = self.filter(read.filter.take());
        }
    }

    /// The filter of a read, narrowed to the columns of the view. They come first in the chain, so that no part of the filter sees
    /// other cells, nor lets them out through a sink.
    pub fn filter(&self, filter: Option<Arc<Filter>>) -> Option<Arc<Filter>> {
        let Some(view) = &self.view else {
            return filter;
        };
        let columns = columns(view);
        Some(Arc::new(match filter {
            None => columns,
            Some(filter) => Filter::Chain(vec![columns, Filter::clone(&filter)]),
        }))
    }

    /// Refuses to write a row that is not in the view.
    pub fn check_row(&self, row: &[u8]) -> Result<(), Status> {
        match &self.view {
            Some(view) if !view.has_row(row) => Err(outside("row", row)),
            _ => Ok(()),
        }
    }

    /// Refuses mutations of a row if one of them is outside of the view.
    pub fn check_mutations(&self, row: &[u8], mutations: &[Mutation]) -> Result<(), Status> {
        self.check_row(row)?;
        match &self.view {
            None => Ok(()),
            Some(view) => mutations.iter().try_for_each(|mutation| check_mutation(view, mutation)),
        }
    }

    /// Refuses rules of a read-modify-write if one of them is outside of the view.
    pub fn check_rules(&self, row: &[u8], rules: &[v2::ReadModifyWriteRule]) -> Result<(), Status> {
        self.check_row(row)?;
        let Some(view) = &self.view else {
            return Ok(());
        };
        let mut rules = rules.iter();
        rules.try_for_each(|rule| check_column(view, &rule.family_name, &rule.column_qualifier))
    }
}

/// The cells of a view. Its ranges are disjoint, so no cell occurs twice. A name that is too long for a family is left out: each range
/// would repeat it.
fn columns(view: &View) -> Filter {
    let range = |(family, range): (&str, stele_types::RowRange)| Filter::ColumnRange {
        family: family.to_owned(),
        start: Bound::Included(range.start),
        end: range.end.map_or(Bound::Unbounded, Bound::Excluded),
    };
    let all = view.columns().into_iter();
    let possible = all.filter(|(family, _)| family.len() <= limits::FAMILY_NAME_BYTES_MAX);
    let mut ranges: Vec<Filter> = possible.map(range).collect();
    match (ranges.len(), ranges.pop()) {
        (_, None) => Filter::BlockAll,
        (1, Some(only)) => only,
        (_, Some(last)) => {
            ranges.push(last);
            Filter::Interleave(ranges)
        }
    }
}

fn check_mutation(view: &View, mutation: &Mutation) -> Result<(), Status> {
    let raw = |value: &Option<v2::Value>| match value.as_ref().and_then(|value| value.kind.as_ref()) {
        Some(ValueKind::RawValue(bytes) | ValueKind::BytesValue(bytes)) => bytes.clone(),
        // It is refused as malformed afterwards, if the empty qualifier is in the view.
        _ => Bytes::new(),
    };
    match &mutation.mutation {
        Some(Kind::SetCell(set)) => check_column(view, &set.family_name, &set.column_qualifier),
        Some(Kind::AddToCell(add)) => check_column(view, &add.family_name, &raw(&add.column_qualifier)),
        Some(Kind::MergeToCell(merge)) => check_column(view, &merge.family_name, &raw(&merge.column_qualifier)),
        Some(Kind::DeleteFromColumn(delete)) => check_column(view, &delete.family_name, &delete.column_qualifier),
        Some(Kind::DeleteFromFamily(_) | Kind::DeleteFromRow(_)) => Err(Status::permission_denied(
            "Families and rows cannot be deleted through an authorized view: delete columns",
        )),
        // Refused as malformed afterwards.
        None => Ok(()),
    }
}

fn check_column(view: &View, family: &str, qualifier: &[u8]) -> Result<(), Status> {
    match view.has_column(family, qualifier) {
        true => Ok(()),
        false => {
            let column = [family.as_bytes(), b":", qualifier].concat();
            Err(outside("column", &column))
        }
    }
}

fn outside(what: &str, name: &[u8]) -> Status {
    let shown = name[..name.len().min(256)].escape_ascii();
    Status::permission_denied(format!("The {what} {shown} is outside of the authorized view"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_target() {
        let table = "projects/p/instances/i/tables/t";
        assert!(Addressed::parse(table, "", "").is_ok());
        assert!(Addressed::parse("", &format!("{table}/authorizedViews/v"), "").is_ok());
        assert_eq!(
            Addressed::parse("", "v", "").err().map(|status| status.code()),
            Some(tonic::Code::InvalidArgument)
        );
        assert_eq!(
            Addressed::parse("", "", "v").err().map(|status| status.code()),
            Some(tonic::Code::Unimplemented)
        );
        assert_eq!(
            Addressed::parse(table, "v", "").err().map(|status| status.code()),
            Some(tonic::Code::InvalidArgument)
        );
        assert_eq!(
            Addressed::parse("", "", "").err().map(|status| status.code()),
            Some(tonic::Code::InvalidArgument)
        );
    }
}
