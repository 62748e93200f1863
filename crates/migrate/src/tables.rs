//! Schemas of the source, and the tables that are made of them in the target.
//!
//! A table is made with the source's own descriptor, so no option is lost: the target acts on it, keeps it for its
//! readers, or refuses it with an error.

use crate::args::Selection;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use stele_cli::escape::escape;
use stele_hbaseclient::master::{Effect, call, procedure};
use stele_hbaseclient::nonces::unlike_others;
use stele_hbaseclient::scan::View;
use stele_hbaseclient::{Cluster, Failure};
use stele_wire::exception::{NAMESPACE_EXISTS, TABLE_EXISTS};
use stele_wire::messages::{
    BytesBytesPair, CreateTableRequest, DEFAULT_NAMESPACE, GetTableDescriptorsRequest, GetTableDescriptorsResponse,
    GetTableStateResponse, NamespaceMessage, NamespaceRequest, OneTable, TableName, TableSchema, TableStateKind,
};
use stele_wire::region::table_text;

/// Namespace of the tables of HBase itself.
const SYSTEM_NAMESPACE: &[u8] = b"hbase";

/// Attribute of a family whose deletes act by sequence.
const NEW_VERSION_BEHAVIOR: &[u8] = b"NEW_VERSION_BEHAVIOR";

/// A table of the source.
#[derive(Clone, Debug)]
pub struct Table {
    /// `table` or `namespace:table`.
    pub name: String,
    /// Its descriptor.
    pub schema: TableSchema,
}

impl Table {
    fn new(schema: TableSchema) -> Result<Table> {
        let name = schema
            .table_name
            .as_ref()
            .context("the source has a table without a name")?;
        let name = String::from_utf8(table_text(name).to_vec())?;
        Ok(Table { name, schema })
    }
}

/// Whether deletes act by sequence in a family of a table.
fn deletes_by_sequence(schema: &TableSchema) -> bool {
    let by_sequence = |attribute: &BytesBytesPair| {
        attribute.first.eq_ignore_ascii_case(NEW_VERSION_BEHAVIOR) && attribute.second.eq_ignore_ascii_case(b"true")
    };
    let mut families = schema.column_families.iter();
    families.any(|family| family.attributes.iter().any(by_sequence))
}

/// The cells that are copied from one table to another. Where deletes act by sequence, tombstones are of no use: one of the
/// source hides no cell that was written after it, and one of the target none that is copied after it.
fn view(source: &TableSchema, target: Option<&TableSchema>) -> View {
    match deletes_by_sequence(source) || target.is_some_and(deletes_by_sequence) {
        true => View::Visible,
        false => View::Raw,
    }
}

/// The cells that are copied of each table, which the target may not have yet.
///
/// # Errors
/// A target that does not respond.
pub async fn views(target: &Cluster, tables: &[Table]) -> Result<Vec<(String, View)>> {
    let mut views = Vec::new();
    for table in tables {
        let name = table.schema.table_name.clone().unwrap_or_default();
        let found = descriptors(target, vec![name]).await;
        let found = found.context("reading the target's schemas")?;
        views.push((table.name.clone(), view(&table.schema, found.first())));
    }
    Ok(views)
}

/// Whether a table had to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It is new and empty.
    New,
    /// It was there.
    Before,
}

/// The chosen tables of the source, by name.
///
/// # Errors
/// No table that matches, or a disabled one.
pub async fn list(source: &Cluster, selection: &Selection) -> Result<Vec<Table>> {
    let all = descriptors(source, Vec::new())
        .await
        .context("reading the source's schemas")?;
    let mut tables = Vec::new();
    for schema in all {
        let Some(name) = &schema.table_name else { continue };
        let namespace = String::from_utf8_lossy(&name.namespace).into_owned();
        let is_system = name.namespace == SYSTEM_NAMESPACE;
        let table = Table::new(schema)?;
        if !is_system && selection.has(&namespace, &table.name) {
            tables.push(table);
        }
    }
    ensure!(!tables.is_empty(), "the source has no such table");
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    for table in &tables {
        check_enabled(source, table).await?;
    }
    Ok(tables)
}

async fn descriptors(cluster: &Cluster, table_names: Vec<TableName>) -> Result<Vec<TableSchema>, Failure> {
    let request = GetTableDescriptorsRequest {
        table_names,
        include_sys_tables: Some(false),
        ..GetTableDescriptorsRequest::default()
    };
    let answer: GetTableDescriptorsResponse = call(cluster, "GetTableDescriptors", &request).await?;
    Ok(answer.table_schema)
}

async fn check_enabled(source: &Cluster, table: &Table) -> Result<()> {
    let request = OneTable {
        table_name: table.schema.table_name.clone().unwrap_or_default(),
    };
    let answer: GetTableStateResponse = call(source, "GetTableState", &request).await?;
    ensure!(
        answer.table_state.state == TableStateKind::Enabled as i32,
        "table {} is disabled in the source: enable it, or leave it out by --tables",
        table.name
    );
    Ok(())
}

/// Makes a table in the target, split at `splits`, if it is not there: calls `begin` then, first. One that is there must have its families.
///
/// # Errors
/// A descriptor that the target refuses, or a table without the families.
pub async fn make(
    source: &Cluster,
    target: &Cluster,
    table: &Table,
    (splits, drop_attributes): (Vec<Bytes>, &[String]),
    begin: impl FnOnce() -> Result<()>,
) -> Result<Made> {
    let name = table.schema.table_name.clone().unwrap_or_default();
    if let Some(found) = descriptors(target, vec![name.clone()]).await?.first() {
        check_families(table, found)?;
        return Ok(Made::Before);
    }
    begin()?;
    make_namespace(source, target, &name).await?;
    let request = CreateTableRequest {
        table_schema: without(table.schema.clone(), drop_attributes),
        split_keys: splits,
        nonce_group: Some(unlike_others()),
        nonce: Some(unlike_others()),
    };
    match procedure(target, "CreateTable", &request, Some(Effect::Enabled(name))).await {
        Err(failure) if failure.is_class(TABLE_EXISTS) => bail!("table {} is being made by another", table.name),
        Err(failure) => Err(failure).with_context(|| {
            format!(
                "the target refuses table {}; --drop-attribute NAME leaves an attribute out",
                table.name
            )
        }),
        Ok(()) => Ok(Made::New),
    }
}

fn check_families(table: &Table, found: &TableSchema) -> Result<()> {
    let has = |name: &Bytes| found.column_families.iter().any(|family| family.name == *name);
    let missing = table.schema.column_families.iter().find(|family| !has(&family.name));
    match missing {
        Some(family) => bail!(
            "table {} of the target has no family {}: add it, or drop the table",
            table.name,
            escape(&family.name)
        ),
        None => Ok(()),
    }
}

async fn make_namespace(source: &Cluster, target: &Cluster, name: &TableName) -> Result<()> {
    if name.namespace == DEFAULT_NAMESPACE.as_bytes() {
        return Ok(());
    }
    let request = NamespaceRequest {
        namespace_name: String::from_utf8(name.namespace.to_vec())?,
        nonce_group: None,
        nonce: None,
    };
    let described: NamespaceMessage = call(source, "GetNamespaceDescriptor", &request).await?;
    let request = NamespaceMessage {
        nonce_group: Some(unlike_others()),
        nonce: Some(unlike_others()),
        ..described
    };
    let effect = Effect::Namespace(String::from_utf8(name.namespace.to_vec())?);
    match procedure(target, "CreateNamespace", &request, Some(effect)).await {
        Err(failure) if !failure.is_class(NAMESPACE_EXISTS) => {
            Err(failure).with_context(|| format!("making namespace {}", escape(&name.namespace)))
        }
        _ => Ok(()),
    }
}

/// A descriptor without some attributes and settings, of the table and of its families.
fn without(mut schema: TableSchema, names: &[String]) -> TableSchema {
    let stays = |name: &[u8]| {
        !names
            .iter()
            .any(|dropped| dropped.as_bytes().eq_ignore_ascii_case(name))
    };
    schema.attributes.retain(|pair| stays(&pair.first));
    schema.configuration.retain(|pair| stays(pair.name.as_bytes()));
    for family in &mut schema.column_families {
        family.attributes.retain(|pair| stays(&pair.first));
        family.configuration.retain(|pair| stays(pair.name.as_bytes()));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_wire::messages::ColumnFamilySchema;

    fn table(attribute: (&'static str, &'static str)) -> Table {
        let pair = BytesBytesPair {
            first: attribute.0.into(),
            second: attribute.1.into(),
        };
        let family = ColumnFamilySchema {
            name: "f".into(),
            attributes: vec![pair],
            configuration: Vec::new(),
        };
        let name = TableName {
            namespace: "ns".into(),
            qualifier: "t".into(),
        };
        let schema = TableSchema {
            table_name: Some(name),
            column_families: vec![family],
            ..TableSchema::default()
        };
        Table::new(schema).unwrap()
    }

    #[test]
    fn tombstones_are_copied_where_deletes_act_by_timestamp_on_both_sides() {
        let plain = table(("VERSIONS", "3"));
        let off = table(("NEW_VERSION_BEHAVIOR", "false")).schema;
        let on = table(("NEW_VERSION_BEHAVIOR", "TRUE")).schema;
        assert_eq!(view(&plain.schema, None), View::Raw);
        assert_eq!(view(&plain.schema, Some(&off)), View::Raw);
        for (source, target) in [(&on, None), (&on, Some(&off)), (&off, Some(&on))] {
            assert_eq!(view(source, target), View::Visible);
        }
        assert_eq!(plain.name, "ns:t");
    }

    #[test]
    fn attributes_are_dropped_by_name() {
        let schema = table(("ENCRYPTION", "AES")).schema;
        assert_eq!(without(schema.clone(), &[]), schema);
        let less = without(schema, &["encryption".to_owned()]);
        assert!(less.column_families[0].attributes.is_empty());
    }

    #[test]
    fn a_missing_family_is_named() {
        let wanted = table(("VERSIONS", "3"));
        assert!(check_families(&wanted, &wanted.schema).is_ok());
        let error = check_families(&wanted, &TableSchema::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("ns:t") && error.contains("no family f"), "{error}");
    }
}
