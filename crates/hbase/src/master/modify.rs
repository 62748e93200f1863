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
use crate::names;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_client::{ChangeAttempts, FamilyChange, NewFamily, ServiceError, TableUpdate};
use stele_types::{ErrorKind, Family, TableId, TableName, TableSchema};
use stele_wire::exception;
use stele_wire::messages::{
    self, DeleteColumnRequest, FamilyRequest, GetSchemaAlterStatusResponse, ModifyTableRequest, OneTable,
};

/// Serves `ModifyTable`.
pub(super) async fn table(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: ModifyTableRequest = call.message("ModifyTableRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let edit = |table: &mut messages::TableSchema, earlier: &Earlier| {
            earlier.check_families(table, &request.table_schema)?;
            table.clone_from(&request.table_schema);
            Ok(())
        };
        modify(&shared, &request.table_name, edit).await
    };
    change(shared, call, nonce, work).await
}

/// Serves `AddColumn`.
pub(super) async fn add_family(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: FamilyRequest = call.message("AddColumnRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let family = &request.column_families;
        let edit = |table: &mut messages::TableSchema, earlier: &Earlier| {
            let mut families = table.column_families.iter_mut();
            match families.find(|known| known.name == family.name) {
                Some(own) if earlier.is_begun => own.clone_from(family),
                Some(_) => {
                    let table = names::to_text(&names::from_message(&request.table_name)?);
                    return Err(invalid(format!(
                        "Column family '{}' in table '{table}' already exists so cannot be added",
                        family.name.escape_ascii()
                    )));
                }
                None => table.column_families.push(family.clone()),
            }
            Ok(())
        };
        modify(&shared, &request.table_name, edit).await
    };
    change(shared, call, nonce, work).await
}

/// Serves `ModifyColumn`.
pub(super) async fn modify_family(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: FamilyRequest = call.message("ModifyColumnRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let wanted = &request.column_families;
        let edit = |table: &mut messages::TableSchema, _: &Earlier| {
            let mut families = table.column_families.iter_mut();
            let Some(family) = families.find(|family| family.name == wanted.name) else {
                let name = wanted.name.escape_ascii();
                return Err(invalid(format!(
                    "Family '{name}' does not exist, so it cannot be modified"
                )));
            };
            family.clone_from(wanted);
            Ok(())
        };
        modify(&shared, &request.table_name, edit).await
    };
    change(shared, call, nonce, work).await
}

/// Serves `DeleteColumn`.
pub(super) async fn delete_family(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: DeleteColumnRequest = call.message("DeleteColumnRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let edit = |table: &mut messages::TableSchema, earlier: &Earlier| {
            let families = table.column_families.len();
            table
                .column_families
                .retain(|family| family.name != request.column_name);
            let name = request.column_name.escape_ascii();
            if table.column_families.len() == families && !earlier.is_begun {
                return Err(invalid(format!(
                    "Family '{name}' does not exist, so it cannot be deleted"
                )));
            }
            if table.column_families.is_empty() {
                return Err(invalid(format!(
                    "Family '{name}' is the only column family in the table, so it cannot be deleted"
                )));
            }
            Ok(())
        };
        modify(&shared, &request.table_name, edit).await
    };
    change(shared, call, nonce, work).await
}

fn invalid(message: String) -> Failure {
    Failure::new(exception::INVALID_FAMILY_OPERATION, message)
}

/// The earlier attempts at a change.
#[derive(Default)]
struct Earlier {
    /// The families of the table in the first attempt; `None` in the first.
    families: Option<BTreeSet<Bytes>>,
    /// Whether the families have been changed.
    is_begun: bool,
}

impl Earlier {
    /// Fails if others have added or dropped a family since the first attempt. A client that replaces all families has not seen these,
    /// and would drop the one, or make the other again without its cells.
    fn check_families(&self, found: &messages::TableSchema, wanted: &messages::TableSchema) -> Outcome<()> {
        let Some(first) = &self.families else {
            return Ok(());
        };
        let found = names_of(found);
        if found == names_of(wanted) || (found == *first && !self.is_begun) {
            return Ok(());
        }
        Err(Failure::do_not_retry(
            "Column families were added or dropped during the modification: look at them before you repeat it",
        ))
    }
}

fn names_of(table: &messages::TableSchema) -> BTreeSet<Bytes> {
    table.column_families.iter().map(|family| family.name.clone()).collect()
}

/// Edits the descriptor of a table. If another change of the table comes in between, through another server or API, the edit is made
/// again in the descriptor after that one. It is told of the earlier attempts then.
async fn modify(
    shared: &Shared,
    name: &messages::TableName,
    edit: impl Fn(&mut messages::TableSchema, &Earlier) -> Outcome<()> + Send + Sync,
) -> Outcome<()> {
    let mut earlier = Earlier::default();
    let modified = modify_after(shared, name, edit, &mut earlier).await;
    // The repetition of a call would find its families changed, and fail for that.
    modified.map_err(|failure| match earlier.is_begun {
        true => failure.once_begun(),
        false => failure,
    })
}

/// The same. Also notes the attempts.
async fn modify_after(
    shared: &Shared,
    name: &messages::TableName,
    edit: impl Fn(&mut messages::TableSchema, &Earlier) -> Outcome<()> + Send + Sync,
    earlier: &mut Earlier,
) -> Outcome<()> {
    let mut attempts = ChangeAttempts::default();
    loop {
        let schema = existing(shared, name)?;
        let mut table = descriptors::shown(&schema);
        let found = names_of(&table);
        edit(&mut table, earlier)?;
        earlier.families.get_or_insert(found);
        match replace(shared, &schema, table, &mut earlier.is_begun).await {
            Ok(()) => return Ok(()),
            Err(Refused::Finally(failure)) => return Err(failure),
            Err(Refused::Overtaken(error)) => attempts.again(&shared.env, error).await?,
        }
    }
}

/// The end of a change that was not made, or in part.
enum Refused {
    Finally(Failure),
    /// Another change was first.
    Overtaken(ServiceError),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Refused::Finally(failure)
    }
}

/// The steps of a change of a table.
struct Steps<'a> {
    shared: &'a Shared,
    table: &'a TableName,
    id: TableId,
    /// The version of the schema, unless others change it: each step makes one.
    version: u64,
}

impl Steps<'_> {
    async fn move_to_groups(
        &mut self,
        schema: &TableSchema,
        files: &BTreeMap<String, FileOptions>,
    ) -> Result<(), Refused> {
        let changes = groups::changes(schema, files, false);
        if !changes.is_empty() {
            let changed = self.shared.admin.modify_groups(self.table, changes).await;
            changed.map_err(|error| self.refused(error))?;
            self.version += 1;
        }
        Ok(())
    }

    async fn modify_families(&mut self, changes: Vec<FamilyChange>) -> Result<(), Refused> {
        let changed = self.shared.admin.modify_families(self.table, changes).await;
        changed.map_err(|error| self.refused(error))?;
        self.version += 1;
        Ok(())
    }

    /// The last step. The descriptor replaces the one that it was made of, and no other.
    async fn update_table(self, descriptor: Vec<u8>, update: TableUpdate) -> Result<(), Refused> {
        let update = TableUpdate {
            former: Some((self.id, self.version)),
            front_end_data: Some(descriptor),
            ..update
        };
        match self.shared.admin.update_table(self.table, update.clone()).await {
            Ok(_) => Ok(()),
            // The same error says that the change is made, but a server has not followed it.
            Err(error) if error.kind == ErrorKind::Aborted => match self.has_made(&update) {
                true => Ok(()),
                false => Err(Refused::Overtaken(error)),
            },
            Err(error) => Err(failure(self.table, error).into()),
        }
    }

    /// Whether a newer schema has everything that an update sets. Then it is made here, or the same call has made it through another
    /// server. The descriptor alone does not say so: the one before may be equal, and other settings differ.
    fn has_made(&self, update: &TableUpdate) -> bool {
        let Ok(schema) = self.shared.service.schema(self.table) else {
            return false;
        };
        let is_newer = schema.id == self.id && schema.version > self.version;
        let settings = update.durability.is_none_or(|wanted| wanted == schema.durability)
            && update.read_only.is_none_or(|wanted| wanted == schema.read_only)
            && update
                .tablet_bytes_max
                .is_none_or(|wanted| wanted == schema.tablet_bytes_max);
        is_newer && settings && update.front_end_data.as_ref() == Some(&schema.front_end_data)
    }

    /// A family or a group that should be there is not, or one is there that should not: others have changed the table.
    fn refused(&self, error: ServiceError) -> Refused {
        let is_there = self.shared.service.schema(self.table).is_ok();
        match error.kind {
            ErrorKind::NotFound | ErrorKind::AlreadyExists if is_there => {
                Refused::Overtaken(ServiceError::new(ErrorKind::Aborted, error.message))
            }
            _ => failure(self.table, error).into(),
        }
    }
}

/// Gives a table a new descriptor. The options of files that families keep change first, because that change may be
/// refused, and a refused call has dropped no family. Then the families change: if the server stops before the descriptor is
/// stored, the one that is shown follows the families.
async fn replace(
    shared: &Shared,
    schema: &TableSchema,
    mut table: messages::TableSchema,
    is_begun: &mut bool,
) -> Result<(), Refused> {
    descriptors::complete(&mut table, schema.delete_rule);
    let after = Properties::of(&table, schema.delete_rule)?;
    let before = Properties::of(&descriptors::shown(schema), schema.delete_rule).ok();
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
    let mut steps = Steps {
        shared,
        table: &schema.name,
        id: schema.id,
        version: schema.version,
    };
    steps.move_to_groups(&kept, &of_kept).await?;
    let changes = family_changes(schema, before.as_ref(), &after);
    if !changes.is_empty() {
        steps.modify_families(changes).await?;
        *is_begun = true;
    }
    if !of_new.is_empty() {
        let changed = shared.service.schema(&schema.name);
        let changed = changed.map_err(|error| failure(&schema.name, error))?;
        steps.move_to_groups(&changed, &of_new).await?;
    }
    let durability = before.as_ref().map(|before| before.durability);
    let tablet_bytes_max = before.as_ref().map(|before| before.tablet_bytes_max);
    let update = TableUpdate {
        durability: (durability != Some(after.durability)).then_some(after.durability),
        read_only: (schema.read_only != after.read_only).then_some(after.read_only),
        tablet_bytes_max: (tablet_bytes_max != Some(after.tablet_bytes_max)).then_some(after.tablet_bytes_max),
        ..TableUpdate::default()
    };
    steps
        .update_table(descriptors::stored_after(&table, schema), update)
        .await
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

#[cfg(test)]
mod tests;
