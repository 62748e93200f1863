//! Tables and instances: listing, creating, dropping.

use super::retry::{Retry, is_outcome_unknown};
use super::{Client, TableRef, admin_v2, describe};
use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tonic::{Code, Status};

/// Reads of metadata are quick.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// A server of a cluster searches the leader for 30 s, and waits for its answer for 180 s. A client that gives up earlier does not
/// learn the outcome.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(240);
/// Pages of a listing at most, against a server whose page tokens never end.
const PAGES_MAX: usize = 10_000;

/// A table with its families and their garbage-collection rules as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Last component of the name.
    pub name: String,
    /// Family to rule.
    pub families: BTreeMap<String, String>,
}

/// A family to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFamily {
    /// Its name.
    pub name: String,
    /// Versions kept per column; all if absent.
    pub versions_max: Option<i32>,
}

impl NewFamily {
    fn column_family(&self) -> admin_v2::ColumnFamily {
        let rule = self.versions_max.map(|versions| admin_v2::GcRule {
            rule: Some(admin_v2::gc_rule::Rule::MaxNumVersions(versions)),
        });
        admin_v2::ColumnFamily {
            gc_rule: rule,
            ..admin_v2::ColumnFamily::default()
        }
    }
}

/// Repeats a call after the failures for which `$repeats` holds.
macro_rules! attempts {
    ($timeout:expr, $repeats:path, $stub:expr, $method:ident, $message:expr) => {{
        let (mut retry, message) = ($crate::client::retry::Retry::default(), $message);
        loop {
            let mut request = tonic::Request::new(message.clone());
            request.set_timeout($timeout);
            match $stub.clone().$method(request).await {
                Ok(response) => break Ok(response.into_inner()),
                Err(status) => match retry.after_if($repeats, status).await {
                    Ok(()) => {}
                    Err(status) => break Err(status),
                },
            }
        }
    }};
}

/// Repeats a call that reads, or that has one effect however often it is made.
macro_rules! call {
    ($stub:expr, $method:ident, $message:expr) => {
        attempts!(
            $crate::client::admin::CALL_TIMEOUT,
            $crate::client::retry::is_retryable,
            $stub,
            $method,
            $message
        )
    };
}

/// Repeats a change only while it is certain that none of its attempts was begun. Made again, it would undo changes that others have
/// made since: writes to a restored table, or a table that has the name of a dropped one.
macro_rules! change {
    ($stub:expr, $method:ident, $message:expr) => {
        attempts!(
            $crate::client::admin::CHANGE_TIMEOUT,
            $crate::client::retry::is_unbegun,
            $stub,
            $method,
            $message
        )
    };
}

mod access;
pub mod backups;
mod cluster;
mod explain;
pub mod groups;
pub(super) mod own;
pub mod settings;
pub mod snapshots;

pub(crate) use access::CLUSTER;

impl Client {
    /// The instances of the project, or `None` if the server does not list them (Google's emulator does not).
    pub async fn list_instances(&self) -> Result<Option<Vec<String>>> {
        let mut names = Vec::new();
        let mut page_token = String::new();
        for _ in 0..PAGES_MAX {
            let parent = format!("projects/{}", self.project);
            let request = admin_v2::ListInstancesRequest { parent, page_token };
            let page = match call!(self.instances, list_instances, request) {
                Ok(page) => page,
                Err(status) if status.code() == Code::Unimplemented => return Ok(None),
                Err(status) => return Err(describe(&status)).context("cannot list instances"),
            };
            names.extend(page.instances.iter().map(|instance| last_component(&instance.name)));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(Some(names));
            }
        }
        Err(anyhow!("the list of instances does not end"))
    }

    /// The tables of an instance with their families.
    pub async fn list_tables(&self, instance: &str) -> Result<Vec<TableInfo>> {
        let mut names = Vec::new();
        let mut page_token = String::new();
        for _ in 0..PAGES_MAX {
            let request = admin_v2::ListTablesRequest {
                parent: self.instance_name(instance),
                view: admin_v2::table::View::NameOnly.into(),
                page_token,
                ..admin_v2::ListTablesRequest::default()
            };
            let page = call!(self.tables, list_tables, request)
                .map_err(|status| describe(&status))
                .with_context(|| format!("cannot list the tables of {instance}"))?;
            names.extend(page.tables.iter().map(|table| last_component(&table.name)));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        // Names first and schemas one by one, because servers differ in which views a listing supports.
        let mut tables = Vec::with_capacity(names.len());
        for name in names {
            let table = TableRef {
                instance: instance.to_owned(),
                table: name,
            };
            // A table may be dropped between the two calls.
            tables.extend(self.get_table(&table).await?);
        }
        tables.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(tables)
    }

    /// One table, or `None` if there is none of this name.
    pub async fn get_table(&self, table: &TableRef) -> Result<Option<TableInfo>> {
        self.find_table(table)
            .await
            .map_err(|status| describe(&status))
            .with_context(|| format!("cannot look up {table}"))
    }

    /// Like [`get_table`](Self::get_table), for callers that need the kind of failure.
    pub async fn find_table(&self, table: &TableRef) -> Result<Option<TableInfo>, Status> {
        let request = admin_v2::GetTableRequest {
            name: self.table_name(table),
            view: admin_v2::table::View::SchemaView.into(),
        };
        match call!(self.tables, get_table, request) {
            Ok(found) => Ok(Some(TableInfo {
                name: last_component(&found.name),
                families: found
                    .column_families
                    .iter()
                    .map(|(name, family)| (name.clone(), show_rule(family.gc_rule.as_ref())))
                    .collect(),
            })),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Creates a table, and its instance if that is missing. False if the table exists.
    pub async fn create_table(&self, table: &TableRef, families: &[NewFamily], splits: &[Bytes]) -> Result<bool> {
        let request = admin_v2::CreateTableRequest {
            parent: self.instance_name(&table.instance),
            table_id: table.table.clone(),
            table: Some(admin_v2::Table {
                column_families: families
                    .iter()
                    .map(|family| (family.name.clone(), family.column_family()))
                    .collect(),
                ..admin_v2::Table::default()
            }),
            initial_splits: splits
                .iter()
                .map(|key| admin_v2::create_table_request::Split { key: key.clone() })
                .collect(),
        };
        let mut outcome = change!(self.tables, create_table, request.clone());
        if matches!(&outcome, Err(status) if status.code() == Code::NotFound) {
            self.create_instance(&table.instance).await?;
            // The instance is ready when the operation is; a table asked for earlier is refused as not found.
            let mut retry = Retry::default();
            while let Err(status) = &outcome
                && status.code() == Code::NotFound
                && retry.after(Status::unavailable(status.message())).await.is_ok()
            {
                outcome = change!(self.tables, create_table, request.clone());
            }
        }
        match outcome {
            Ok(_) => Ok(true),
            Err(status) if status.code() == Code::AlreadyExists => Ok(false),
            Err(status) => Err(not_made(
                describe(&status),
                &status,
                &format!("create {table}"),
                &format!("stele tables {}", table.instance),
            )),
        }
    }

    async fn create_instance(&self, instance: &str) -> Result<()> {
        let cluster = admin_v2::Cluster {
            serve_nodes: 1,
            ..admin_v2::Cluster::default()
        };
        let request = admin_v2::CreateInstanceRequest {
            parent: format!("projects/{}", self.project),
            instance_id: instance.to_owned(),
            instance: Some(admin_v2::Instance {
                display_name: instance.to_owned(),
                ..admin_v2::Instance::default()
            }),
            clusters: HashMap::from([(format!("{instance}-c1"), cluster)]),
        };
        match call!(self.instances, create_instance, request) {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::AlreadyExists => Ok(()),
            Err(status) => Err(describe(&status)).with_context(|| format!("cannot create instance {instance}")),
        }
    }

    /// Adds families to a table; those that exist are left as they are.
    pub async fn create_families(&self, table: &TableRef, families: &[NewFamily]) -> Result<()> {
        // In one call, because each change of a schema is written as a whole; one by one if one of them exists
        // meanwhile.
        if self.create_together(table, families).await? {
            return Ok(());
        }
        for family in families {
            self.create_together(table, std::slice::from_ref(family)).await?;
        }
        Ok(())
    }

    /// False when one of them exists; then none is made.
    async fn create_together(&self, table: &TableRef, families: &[NewFamily]) -> Result<bool> {
        use admin_v2::modify_column_families_request::{Modification, modification::Mod};
        let [first, ..] = families else { return Ok(true) };
        let create = |family: &NewFamily| Modification {
            id: family.name.clone(),
            r#mod: Some(Mod::Create(family.column_family())),
            ..Modification::default()
        };
        let request = admin_v2::ModifyColumnFamiliesRequest {
            name: self.table_name(table),
            modifications: families.iter().map(create).collect(),
            ..admin_v2::ModifyColumnFamiliesRequest::default()
        };
        match call!(self.tables, modify_column_families, request) {
            Ok(_) => Ok(true),
            Err(status) if status.code() == Code::AlreadyExists => Ok(false),
            Err(status) => {
                Err(describe(&status)).with_context(|| format!("cannot create family {} of {table}", first.name))
            }
        }
    }

    /// Drops a table and everything in it.
    pub async fn drop_table(&self, table: &TableRef) -> Result<()> {
        let request = admin_v2::DeleteTableRequest {
            name: self.table_name(table),
        };
        change!(self.tables, delete_table, request).map_err(|status| {
            let look = format!("stele tables {}", table.instance);
            not_made(describe(&status), &status, &format!("drop {table}"), &look)
        })
    }

    /// Makes a deleted table again.
    pub async fn undelete_table(&self, table: &TableRef) -> Result<()> {
        let request = admin_v2::UndeleteTableRequest {
            name: self.table_name(table),
        };
        let made = change!(self.tables, undelete_table, request).map_err(|status| {
            let look = format!("stele tables {}", table.instance);
            not_made(describe(&status), &status, &format!("undelete {table}"), &look)
        });
        made.map(drop)
    }
}

/// The error of a change that failed. If it may have been made all the same, the user has to `look` before repeating it.
pub fn not_made(error: anyhow::Error, status: &Status, change: &str, look: &str) -> anyhow::Error {
    match is_outcome_unknown(status) {
        false => error.context(format!("cannot {change}")),
        true => error.context(format!(
            "it is not known whether the server did {change}; see `{look}` before you repeat it"
        )),
    }
}

fn last_component(name: &str) -> String {
    name.rsplit('/').next().unwrap_or(name).to_owned()
}

/// A rule as text. Nesting is bounded by the message decoder's own recursion limit.
fn show_rule(rule: Option<&admin_v2::GcRule>) -> String {
    use admin_v2::gc_rule::Rule;
    let join = |rules: &[admin_v2::GcRule], word: &str| {
        let parts: Vec<_> = rules.iter().map(|rule| show_rule(Some(rule))).collect();
        format!("({})", parts.join(word))
    };
    match rule.and_then(|rule| rule.rule.as_ref()) {
        None => "all versions".to_owned(),
        Some(Rule::MaxNumVersions(versions)) => format!("versions > {versions}"),
        Some(Rule::MaxAge(age)) => format!("age > {} s", age.seconds),
        Some(Rule::Union(union)) => join(&union.rules, " or "),
        Some(Rule::Intersection(intersection)) => join(&intersection.rules, " and "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin_v2::gc_rule::{Rule, Union};

    #[test]
    fn rules_read_as_text() {
        let versions = admin_v2::GcRule {
            rule: Some(Rule::MaxNumVersions(2)),
        };
        let mut age = Rule::MaxAge(Default::default());
        if let Rule::MaxAge(age) = &mut age {
            age.seconds = 3600;
        }
        let age = admin_v2::GcRule { rule: Some(age) };
        let union = Rule::Union(Union {
            rules: vec![versions, age],
        });
        let union = admin_v2::GcRule { rule: Some(union) };
        assert_eq!(show_rule(Some(&union)), "(versions > 2 or age > 3600 s)");
        assert_eq!(show_rule(None), "all versions");
    }
}
