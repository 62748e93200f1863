//! Changes of a table's descriptor and of its families.
//!
//! Each is a new descriptor of the whole table. Only differences become changes of the table. So a property that HBase's
//! attributes cannot describe, and that another interface has set, stays until a client changes its attribute.

use super::changes::{change, existing, failure};
use super::groups;
use crate::call::{Call, Reply};
use crate::descriptors::{self, FileOptions, Properties};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_client::{FamilyChange, NewFamily, TableUpdate};
use stele_types::{Family, TableSchema};
use stele_wire::exception;
use stele_wire::messages::{
    self, DeleteColumnRequest, FamilyRequest, GetSchemaAlterStatusResponse, ModifyTableRequest, OneTable,
};

/// Serves `ModifyTable`.
pub(super) async fn table(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: ModifyTableRequest = call.message("ModifyTableRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let shared = &*shared;
        let schema = existing(shared, &request.table_name)?;
        replace(shared, &schema, request.table_schema).await
    };
    change(shared, call, nonce, work).await
}

/// Serves `AddColumn`.
pub(super) async fn add_family(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: FamilyRequest = call.message("AddColumnRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let shared = &*shared;
        let schema = existing(shared, &request.table_name)?;
        let mut table = descriptors::shown(&schema);
        let name = &request.column_families.name;
        if table.column_families.iter().any(|family| family.name == name) {
            let table = crate::names::to_text(&schema.name);
            return Err(invalid(format!(
                "Column family '{}' in table '{table}' already exists so cannot be added",
                name.escape_ascii()
            )));
        }
        table.column_families.push(request.column_families);
        replace(shared, &schema, table).await
    };
    change(shared, call, nonce, work).await
}

/// Serves `ModifyColumn`.
pub(super) async fn modify_family(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: FamilyRequest = call.message("ModifyColumnRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let shared = &*shared;
        let schema = existing(shared, &request.table_name)?;
        let mut table = descriptors::shown(&schema);
        let name = request.column_families.name.clone();
        match table.column_families.iter_mut().find(|family| family.name == name) {
            Some(family) => *family = request.column_families,
            None => {
                let name = name.escape_ascii();
                return Err(invalid(format!(
                    "Family '{name}' does not exist, so it cannot be modified"
                )));
            }
        }
        replace(shared, &schema, table).await
    };
    change(shared, call, nonce, work).await
}

/// Serves `DeleteColumn`.
pub(super) async fn delete_family(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: DeleteColumnRequest = call.message("DeleteColumnRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let shared = &*shared;
        let schema = existing(shared, &request.table_name)?;
        let mut table = descriptors::shown(&schema);
        let families = table.column_families.len();
        table
            .column_families
            .retain(|family| family.name != request.column_name);
        let name = request.column_name.escape_ascii();
        if table.column_families.len() == families {
            return Err(invalid(format!(
                "Family '{name}' does not exist, so it cannot be deleted"
            )));
        }
        if table.column_families.is_empty() {
            return Err(invalid(format!(
                "Family '{name}' is the only column family in the table, so it cannot be deleted"
            )));
        }
        replace(shared, &schema, table).await
    };
    change(shared, call, nonce, work).await
}

fn invalid(message: String) -> Failure {
    Failure::new(exception::INVALID_FAMILY_OPERATION, message)
}

/// Gives a table a new descriptor. The options of files that families keep change first, because that change may be
/// refused, and a refused call has dropped no family. Then the families change: if the server stops before the descriptor is
/// stored, the one that is shown follows the families.
async fn replace(shared: &Shared, schema: &TableSchema, mut table: messages::TableSchema) -> Outcome<()> {
    descriptors::complete(&mut table, schema.delete_rule);
    let after = Properties::of(&table, schema.delete_rule)?;
    let before = Properties::of(&descriptors::shown(schema), schema.delete_rule).ok();
    let of_table = |error| failure(&schema.name, error);
    let mut files = after.files.clone();
    let had = |name: &str| before.as_ref().and_then(|before| before.files.get(name));
    files.retain(|name, files| had(name) != Some(files));
    let (of_kept, of_new): (BTreeMap<_, _>, BTreeMap<_, _>) = files
        .into_iter()
        .partition(|(name, _)| schema.family_named(name).is_some());
    let mut kept = TableSchema::clone(schema);
    let is_wanted = |family: &Family| after.families.iter().any(|wanted| wanted.name == family.name);
    kept.families
        .retain(|_, family| !descriptors::is_shown(family) || is_wanted(family));
    groups::check_count(kept.groups.len(), of_kept.values().chain(of_new.values()))?;
    let move_to_groups = async |schema: &TableSchema, files: &BTreeMap<String, FileOptions>| {
        let changes = groups::changes(schema, files, false);
        match changes.is_empty() {
            true => Ok(()),
            false => shared.admin.modify_groups(&schema.name, changes).await.map(drop),
        }
    };
    move_to_groups(&kept, &of_kept).await.map_err(of_table)?;
    let changes = family_changes(schema, before.as_ref(), &after);
    if !changes.is_empty() {
        let changed = shared.admin.modify_families(&schema.name, changes).await;
        changed.map_err(of_table)?;
    }
    if !of_new.is_empty() {
        let changed = shared.service.schema(&schema.name).map_err(of_table)?;
        move_to_groups(&changed, &of_new).await.map_err(of_table)?;
    }
    let durability = before.as_ref().map(|before| before.durability);
    let tablet_bytes_max = before.as_ref().map(|before| before.tablet_bytes_max);
    let update = TableUpdate {
        durability: (durability != Some(after.durability)).then_some(after.durability),
        read_only: (schema.read_only != after.read_only).then_some(after.read_only),
        tablet_bytes_max: (tablet_bytes_max != Some(after.tablet_bytes_max)).then_some(after.tablet_bytes_max),
        front_end_data: Some(descriptors::stored(&table)),
        ..TableUpdate::default()
    };
    shared
        .admin
        .update_table(&schema.name, update)
        .await
        .map(drop)
        .map_err(of_table)
}

/// The changes that lead from the families of a table to those of a descriptor.
fn family_changes(schema: &TableSchema, before: Option<&Properties>, after: &Properties) -> Vec<FamilyChange> {
    let wanted = |name: &str| after.families.iter().any(|family| family.name == name);
    let shown = |name: &str| before.and_then(|before| before.families.iter().find(|family| family.name == name));
    let dropped = schema.families.values();
    let dropped = dropped.filter(|family| descriptors::is_shown(family) && !wanted(&family.name));
    let mut changes: Vec<FamilyChange> = dropped
        .map(|family| FamilyChange::Drop {
            name: family.name.clone(),
        })
        .collect();
    for family in &after.families {
        if schema.family_named(&family.name).is_none() {
            changes.push(FamilyChange::Create(NewFamily::clone(family)));
        } else if shown(&family.name).map(|shown| (&shown.gc_rule, shown.deletes))
            != Some((&family.gc_rule, family.deletes))
        {
            changes.push(FamilyChange::Update {
                name: family.name.clone(),
                gc_rule: Some(family.gc_rule.clone()),
                value_type: None,
                deletes: Some(family.deletes),
                front_end_data: None,
            });
        }
    }
    changes
}

/// Serves `GetSchemaAlterStatus`: all regions have the newest schema.
pub(super) fn alter_status(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: OneTable = call.message("GetSchemaAlterStatusRequest")?;
    let schema = existing(shared, &request.table_name)?;
    let places = shared
        .service
        .places(&schema.name)
        .map_err(|error| failure(&schema.name, error))?;
    call.reply(&GetSchemaAlterStatusResponse {
        yet_to_update_regions: Some(0),
        total_regions: Some(u32::try_from(places.len()).unwrap_or(u32::MAX)),
    })
}
