//! Resource names of projects, instances, tables, clusters and app profiles.
//!
//! An instance is a namespace. The project is not stored, so the same table exists under every project, and a response
//! has the project of its request. Data calls accept any name that can be split into its parts, because a lookup does
//! not need the managed service's naming rules. Creation checks them.

use crate::status::{invalid, not_found};
use std::fmt;
use stele_types::TableName;
use tonic::Status;

/// The namespace of HBase's own tables, which is no instance.
pub(crate) const HBASE_NAMESPACE: &str = "hbase";

/// The pattern the emulator reports for instance names. Clients compare its text.
const INSTANCE_PATTERN: &str = r"^projects/[a-z][a-z0-9\\-]+[a-z0-9]/instances/[a-z][a-z0-9\\-]+[a-z0-9]$";

const TABLE_PATTERN: &str = "projects/<project>/instances/<instance>/tables/<table>";

const VIEW_PATTERN: &str = "projects/<project>/instances/<instance>/tables/<table>/authorizedViews/<view>";

const BACKUP_PATTERN: &str = "projects/<project>/instances/<instance>/clusters/<cluster>/backups/<backup>";

/// Longest id of a table made through this API (bigtable_table_admin.proto, `CreateTableRequest.table_id`).
const TABLE_ID_BYTES_MAX: usize = 50;

/// Longest id of an instance or cluster. The service's limits are 33 and 30; emulator users take longer ones.
const RESOURCE_ID_BYTES_MAX: usize = 64;

/// `projects/P/instances/I`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstanceName {
    pub project: String,
    pub instance: String,
}

impl InstanceName {
    /// Splits a name.
    pub fn parse(name: &str) -> Result<Self, Status> {
        match segments(name, ["projects", "instances"]) {
            Some([project, instance]) => Ok(InstanceName { project, instance }),
            None => Err(malformed_instance(name)),
        }
    }

    /// Checks the instance's id by the pattern of the managed service. Projects have more forms than the pattern.
    pub fn check(&self) -> Result<(), Status> {
        if is_service_id(&self.instance) {
            return Ok(());
        }
        Err(malformed_instance(&self.to_string()))
    }

    /// Whether it names the namespace of HBase's own tables. The record of that has the identity of the cluster.
    pub fn is_reserved(&self) -> bool {
        self.instance == HBASE_NAMESPACE
    }

    /// Refuses to make a table in, or to delete, an instance that cannot be seen either.
    pub fn check_not_reserved(&self) -> Result<(), Status> {
        match self.is_reserved() {
            true => Err(self.not_found()),
            false => Ok(()),
        }
    }

    /// The full name of one of its tables.
    pub fn table(&self, table: &str) -> String {
        format!("{self}/tables/{table}")
    }

    /// The full name of one of its clusters.
    pub fn cluster(&self, cluster: &str) -> String {
        format!("{self}/clusters/{cluster}")
    }

    /// The full name of one of its app profiles.
    pub fn app_profile(&self, profile: &str) -> String {
        format!("{self}/appProfiles/{profile}")
    }

    /// NOT_FOUND, in the words of the emulator.
    pub fn not_found(&self) -> Status {
        not_found(format!("instance \"{self}\" not found"))
    }
}

fn malformed_instance(name: &str) -> Status {
    invalid(format!(
        "Error in field 'instance_name' : Invalid name for collection instances : Should match \
         {INSTANCE_PATTERN} but found '{name}'"
    ))
}

/// Whether an instance has an id that the managed service would take: lower-case letters, digits and hyphens,
/// with a letter first and no hyphen last. The emulator's pattern asks for three characters, but its users have shorter
/// ids.
fn is_service_id(id: &str) -> bool {
    let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    id.starts_with(|c: char| c.is_ascii_lowercase()) && id.bytes().all(known) && !id.ends_with('-')
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "projects/{}/instances/{}", self.project, self.instance)
    }
}

/// `projects/P/instances/I/tables/T`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableResource {
    pub instance: InstanceName,
    pub name: TableName,
}

impl TableResource {
    /// Splits a name.
    pub fn parse(name: &str) -> Result<Self, Status> {
        match segments(name, ["projects", "instances", "tables"]) {
            Some([project, instance, table]) => {
                let name = TableName::new(instance.clone(), table);
                Ok(TableResource {
                    instance: InstanceName { project, instance },
                    name,
                })
            }
            None => Err(invalid(format!(
                "Invalid table name: should be {TABLE_PATTERN} but found '{name}'"
            ))),
        }
    }
}

impl fmt::Display for TableResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/tables/{}", self.instance, self.name.table)
    }
}

/// `projects/P/instances/I/clusters/C/backups/B`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackupName {
    pub instance: InstanceName,
    pub cluster: String,
    pub backup: String,
}

impl BackupName {
    /// Splits a name.
    pub fn parse(name: &str) -> Result<Self, Status> {
        match segments(name, ["projects", "instances", "clusters", "backups"]) {
            Some([project, instance, cluster, backup]) => Ok(BackupName {
                instance: InstanceName { project, instance },
                cluster,
                backup,
            }),
            None => Err(invalid(format!(
                "Invalid backup name: should be {BACKUP_PATTERN} but found '{name}'"
            ))),
        }
    }
}

impl fmt::Display for BackupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/backups/{}", self.instance.cluster(&self.cluster), self.backup)
    }
}

/// `projects/P/instances/I/tables/T/authorizedViews/V`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ViewResource {
    pub table: TableResource,
    pub view: String,
}

impl ViewResource {
    /// Splits a name.
    pub fn parse(name: &str) -> Result<Self, Status> {
        match segments(name, ["projects", "instances", "tables", "authorizedViews"]) {
            Some([project, instance, table, view]) => Ok(ViewResource {
                table: TableResource {
                    name: TableName::new(instance.clone(), table),
                    instance: InstanceName { project, instance },
                },
                view,
            }),
            None => Err(invalid(format!(
                "Invalid authorized view name: should be {VIEW_PATTERN} but found '{name}'"
            ))),
        }
    }

    /// NOT_FOUND.
    pub fn not_found(&self) -> Status {
        not_found(format!("authorized view \"{self}\" not found"))
    }
}

impl fmt::Display for ViewResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/authorizedViews/{}", self.table, self.view)
    }
}

/// `projects/P`.
pub(crate) fn parse_project(name: &str) -> Result<String, Status> {
    match segments(name, ["projects"]) {
        Some([project]) => Ok(project),
        None => Err(invalid(format!(
            "Invalid project name: should be projects/<project> but found '{name}'"
        ))),
    }
}

/// `projects/P/instances/I/<collection>/C`: an instance and the last id.
pub(crate) fn parse_child(name: &str, collection: &str) -> Result<(InstanceName, String), Status> {
    match segments(name, ["projects", "instances", collection]) {
        Some([project, instance, child]) => Ok((InstanceName { project, instance }, child)),
        None => Err(invalid(format!(
            "Invalid name: should be projects/<project>/instances/<instance>/{collection}/<id> but found '{name}'"
        ))),
    }
}

/// Checks the id of a table to be made: `[_a-zA-Z0-9][-_.a-zA-Z0-9]{0,49}`.
pub(crate) fn check_table_id(id: &str) -> Result<(), Status> {
    let begins_well = id
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    if begins_well && id.len() <= TABLE_ID_BYTES_MAX && id.bytes().all(is_id_byte) {
        return Ok(());
    }
    Err(invalid(format!(
        "Invalid table id '{id}': should match [_a-zA-Z0-9][-_.a-zA-Z0-9]{{0,49}}"
    )))
}

/// Checks the id of an authorized view to be made: as that of a table.
pub(crate) fn check_view_id(id: &str) -> Result<(), Status> {
    check_table_id(id).map_err(|_| {
        invalid(format!(
            "Invalid authorized view id '{id}': should match [_a-zA-Z0-9][-_.a-zA-Z0-9]{{0,49}}"
        ))
    })
}

/// Checks the id of a backup to be made: `[_a-zA-Z0-9][-_.a-zA-Z0-9]*`, 50 bytes at most.
pub(crate) fn check_backup_id(id: &str) -> Result<(), Status> {
    check_table_id(id).map_err(|_| {
        invalid(format!(
            "Invalid backup id '{id}': should match [_a-zA-Z0-9][-_.a-zA-Z0-9]{{0,49}}"
        ))
    })
}

/// Checks the id of an instance, cluster or app profile to be made, by explicit call or with its first table.
pub(crate) fn check_resource_id(what: &str, id: &str) -> Result<(), Status> {
    if !id.is_empty() && id.len() <= RESOURCE_ID_BYTES_MAX && id.bytes().all(is_id_byte) {
        return Ok(());
    }
    Err(invalid(format!(
        "Invalid {what} id '{id}': should match [-_.a-zA-Z0-9]{{1,{RESOURCE_ID_BYTES_MAX}}}"
    )))
}

/// Checks the name of a family to be made: `[-_.a-zA-Z0-9]+`, 64 bytes at most.
pub(crate) fn check_family_id(id: &str) -> Result<(), Status> {
    let max = stele_types::limits::BIGTABLE_FAMILY_NAME_BYTES_MAX;
    if !id.is_empty() && id.len() <= max && id.bytes().all(is_id_byte) {
        return Ok(());
    }
    Err(invalid(format!(
        "Invalid column family id '{id}': should match [-_.a-zA-Z0-9]{{1,{max}}}"
    )))
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// The ids of a name that alternates between these collections and ids.
fn segments<const N: usize>(name: &str, collections: [&str; N]) -> Option<[String; N]> {
    let mut parts = name.split('/');
    let mut ids: [String; N] = std::array::from_fn(|_| String::new());
    for (id, collection) in ids.iter_mut().zip(collections) {
        if parts.next()? != collection {
            return None;
        }
        let part = parts.next()?;
        if part.is_empty() {
            return None;
        }
        part.clone_into(id);
    }
    parts.next().is_none().then_some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_and_join() {
        let table = TableResource::parse("projects/d.com:p/instances/i/tables/t").unwrap();
        assert_eq!(table.name, TableName::new("i", "t"));
        assert_eq!(table.instance.table("t"), "projects/d.com:p/instances/i/tables/t");
        assert_eq!(parse_project("projects/p").unwrap(), "p");
        assert_eq!(
            parse_child("projects/p/instances/i/clusters/c", "clusters").unwrap().1,
            "c"
        );
        for bad in [
            "",
            "t",
            "projects/p/instances/i/tables/",
            "projects/p/instances/i/tables/t/x",
            "projects//instances/i/tables/t",
        ] {
            assert!(TableResource::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn malformed_instances_get_the_emulators_words() {
        for bad in [
            "",
            "  ",
            "//",
            "projects/foo",
            "projects/foo/instances/",
            "projects/foo/instances/a10/bar",
        ] {
            let error = InstanceName::parse(bad).unwrap_err();
            assert_eq!(
                error.message(),
                format!(
                    "Error in field 'instance_name' : Invalid name for collection instances : Should match \
                     ^projects/[a-z][a-z0-9\\\\-]+[a-z0-9]/instances/[a-z][a-z0-9\\\\-]+[a-z0-9]$ but found '{bad}'"
                )
            );
        }
    }

    #[test]
    fn ids_are_checked() {
        for good in ["t", "_x", "0", "a-b.c_d", &"t".repeat(50)] {
            assert!(check_table_id(good).is_ok(), "{good}");
        }
        for bad in ["", "-t", ".t", "a b", "a/b", "é", &"t".repeat(51)] {
            assert!(check_table_id(bad).is_err(), "{bad}");
        }
        assert!(check_family_id("-f.").is_ok() && check_family_id("f:").is_err() && check_family_id("").is_err());
    }
}
