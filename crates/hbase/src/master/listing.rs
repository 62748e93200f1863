//! Lists of tables: their names, their descriptors, their states.

use super::{changes, namespaces, patterns};
use crate::call::{Call, Reply};
use crate::descriptors;
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::{meta_table, names};
use patterns::Pattern;
use std::sync::Arc;
use stele_types::{TableName, TableSchema};
use stele_wire::messages::{
    self, GetTableDescriptorsRequest, GetTableNamesRequest, GetTableStateResponse, ListByStateRequest,
    NamespaceRequest, OneTable, TableNames, TableSchemas, TableState, TableStateKind,
};
use stele_wire::region;

/// A table of a list: `hbase:meta` has no schema.
enum Listed {
    Meta,
    Table(Arc<TableSchema>),
}

impl Listed {
    fn name(&self) -> TableName {
        match self {
            Listed::Meta => meta_name(),
            Listed::Table(schema) => schema.name.clone(),
        }
    }

    /// Whether its recorded state is this.
    fn has_state(&self, enabled: bool) -> bool {
        matches!(self, Listed::Table(schema) if schema.enabled == enabled)
    }

    fn descriptor(&self) -> messages::TableSchema {
        match self {
            Listed::Meta => descriptors::meta_table(),
            Listed::Table(schema) => descriptors::shown(schema),
        }
    }
}

/// The tables that a list may be of.
#[derive(Default)]
struct Wanted {
    /// Also those of the system.
    system: bool,
    namespace: Option<String>,
    regex: Option<String>,
    is_enabled: Option<bool>,
}

fn meta_name() -> TableName {
    TableName::new(names::SYSTEM_NAMESPACE, "meta")
}

/// Serves `GetTableNames`, `ListTableNamesByState`, `ListTableNamesByNamespace` and `GetTableState`.
pub(super) async fn names(shared: &Shared, call: &Call, method: &[u8]) -> Outcome<Reply> {
    let wanted = match method {
        b"ListTableNamesByState" => by_state(call)?,
        b"ListTableNamesByNamespace" => by_namespace(call)?,
        b"GetTableState" => return state(shared, call),
        _ => {
            let request: GetTableNamesRequest = call.message("GetTableNamesRequest")?;
            Wanted {
                system: request.include_sys_tables.unwrap_or(false),
                namespace: request.namespace.filter(|name| !name.is_empty()),
                regex: request.regex,
                is_enabled: None,
            }
        }
    };
    let tables = list(shared, wanted).await?;
    let names = tables.iter().map(|table| names::to_message(&table.name()));
    call.reply(&TableNames {
        table_name: names.collect(),
    })
}

/// Serves `GetTableDescriptors`, `ListTableDescriptorsByState` and `ListTableDescriptorsByNamespace`.
pub(super) async fn descriptors(shared: &Shared, call: &Call, method: &[u8]) -> Outcome<Reply> {
    let tables = match method {
        b"ListTableDescriptorsByState" => list(shared, by_state(call)?).await?,
        b"ListTableDescriptorsByNamespace" => list(shared, by_namespace(call)?).await?,
        _ => {
            let request: GetTableDescriptorsRequest = call.message("GetTableDescriptorsRequest")?;
            if request.table_names.is_empty() {
                let wanted = Wanted {
                    system: request.include_sys_tables.unwrap_or(false),
                    namespace: request.namespace.filter(|name| !name.is_empty()),
                    regex: request.regex,
                    is_enabled: None,
                };
                list(shared, wanted).await?
            } else {
                named(shared, &request)?
            }
        }
    };
    call.reply(&TableSchemas {
        table_schema: tables.iter().map(Listed::descriptor).collect(),
    })
}

/// Tables by name. One that does not exist is left out.
fn named(shared: &Shared, request: &GetTableDescriptorsRequest) -> Outcome<Vec<Listed>> {
    let pattern = request.regex.as_deref().map(Pattern::compile).transpose()?;
    let mut tables = Vec::new();
    for name in &request.table_names {
        let name = names::from_message(name)?;
        if pattern.as_ref().is_some_and(|pattern| !pattern.matches(&name)) {
            continue;
        }
        if name == meta_name() {
            tables.push(Listed::Meta);
        } else if let Ok(schema) = shared.service.schema(&name) {
            tables.push(Listed::Table(schema));
        }
    }
    Ok(tables)
}

fn by_state(call: &Call) -> Outcome<Wanted> {
    let request: ListByStateRequest = call.message("ListTableNamesByStateRequest")?;
    Ok(Wanted {
        system: true,
        is_enabled: Some(request.is_enabled),
        ..Wanted::default()
    })
}

fn by_namespace(call: &Call) -> Outcome<Wanted> {
    let request: NamespaceRequest = call.message("ListTableNamesByNamespaceRequest")?;
    Ok(Wanted {
        system: true,
        namespace: Some(request.namespace_name),
        ..Wanted::default()
    })
}

/// The tables, by name.
async fn list(shared: &Shared, wanted: Wanted) -> Outcome<Vec<Listed>> {
    let pattern = wanted.regex.as_deref().map(Pattern::compile).transpose()?;
    if let Some(namespace) = &wanted.namespace {
        namespaces::check_exists(shared, namespace).await?;
    }
    // Lists by state are made from recorded states, and hbase:meta has none.
    let mut tables = match wanted.is_enabled {
        None => vec![Listed::Meta],
        Some(_) => Vec::new(),
    };
    tables.extend(meta_table::all_tables(shared).await?.into_iter().map(Listed::Table));
    tables.retain(|table| {
        let name = table.name();
        let is_system = name.namespace == names::SYSTEM_NAMESPACE;
        (wanted.system || !is_system)
            && wanted
                .namespace
                .as_ref()
                .is_none_or(|namespace| *namespace == name.namespace)
            && pattern.as_ref().is_none_or(|pattern| pattern.matches(&name))
            && wanted.is_enabled.is_none_or(|enabled| table.has_state(enabled))
    });
    tables.sort_by_cached_key(|table| names::to_text(&table.name()));
    Ok(tables)
}

/// Serves `GetTableState`.
fn state(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: OneTable = call.message("GetTableStateRequest")?;
    let name = names::from_message(&request.table_name)?;
    let is_enabled = if names::to_text(&name) == region::META_TABLE {
        true
    } else {
        let schema = shared.service.schema(&name);
        schema
            .map_err(|error| -> Failure { changes::failure(&name, error) })?
            .enabled
    };
    let state = if is_enabled {
        TableStateKind::Enabled
    } else {
        TableStateKind::Disabled
    };
    call.reply(&GetTableStateResponse {
        table_state: TableState { state: state as i32 },
    })
}
