//! Handlers of GetIamPolicy, SetIamPolicy and TestIamPermissions.
//!
//! The policy of an instance, table, authorized view or backup is its access rules, as far as these are not narrowed to families
//! or rows. A binding of a role to a member is one rule. Rules that are narrowed have no form in a policy: `SetIamPolicy` leaves them.

use crate::accounting::Call;
use crate::context::{Context, table_status};
use crate::names::{BackupName, InstanceName, TableResource, ViewResource};
use crate::pb::iam::{
    Binding, GetIamPolicyRequest, Policy, SetIamPolicyRequest, TestIamPermissionsRequest, TestIamPermissionsResponse,
};
use crate::scope::Addressed;
use crate::status::{invalid, status, unimplemented};
use bytes::Bytes;
use std::collections::HashSet;
use stele_access::Rules;
use stele_client::SnapshotName;
use stele_client::access::ResourceRules;
use stele_types::access::RULES_MAX;
use stele_types::{AccessRule, Member, Resource, Rights};
use tonic::Status;

/// Memory of a binding in a response, with the names in it.
const BINDING_BYTES: usize = 512;

/// Roles and their rights. A rule with other rights is shown as several bindings.
///
/// The basic roles of Google give as much as three of Bigtable's. All rights include `VIEW`, so that bit tells them apart, and a
/// policy is read as it was set.
const ROLES: [(&str, Rights); 9] = [
    ("roles/bigtable.admin", Rights::ALL),
    ("roles/bigtable.user", Rights::READ.and(Rights::WRITE)),
    ("roles/bigtable.reader", Rights::READ),
    ("roles/owner", Rights::READ.and(Rights::WRITE).and(Rights::ADMIN)),
    ("roles/editor", Rights::READ.and(Rights::WRITE).and(Rights::VIEW)),
    ("roles/viewer", Rights::READ.and(Rights::VIEW)),
    ("roles/bigtable.viewer", Rights::VIEW),
    ("roles/stele.writer", Rights::WRITE),
    ("roles/stele.administrator", Rights::ADMIN),
];

/// Permissions of Google's, after `bigtable.`, by the right that they need.
const PERMISSIONS: [(Rights, &[&str]); 4] = [
    (
        Rights::READ,
        &[
            "tables.readRows",
            "tables.sampleRowKeys",
            "authorizedViews.readRows",
            "authorizedViews.sampleRowKeys",
            "backups.read",
            "instances.executeQuery",
        ],
    ),
    (Rights::WRITE, &["tables.mutateRows", "authorizedViews.mutateRows"]),
    (
        Rights::VIEW,
        &[
            "tables.get",
            "tables.list",
            "tables.checkConsistency",
            "tables.generateConsistencyToken",
            "authorizedViews.get",
            "authorizedViews.list",
            "backups.get",
            "backups.list",
            "instances.get",
            "instances.list",
            "instances.ping",
            "clusters.get",
            "clusters.list",
            "appProfiles.get",
            "appProfiles.list",
        ],
    ),
    (
        Rights::ADMIN,
        &[
            "tables.create",
            "tables.delete",
            "tables.update",
            "tables.getIamPolicy",
            "tables.setIamPolicy",
            "authorizedViews.create",
            "authorizedViews.delete",
            "authorizedViews.update",
            "authorizedViews.getIamPolicy",
            "authorizedViews.setIamPolicy",
            "backups.create",
            "backups.delete",
            "backups.update",
            "backups.restore",
            "backups.getIamPolicy",
            "backups.setIamPolicy",
            "instances.create",
            "instances.delete",
            "instances.update",
            "instances.getIamPolicy",
            "instances.setIamPolicy",
            "clusters.create",
            "clusters.delete",
            "clusters.update",
            "appProfiles.create",
            "appProfiles.delete",
            "appProfiles.update",
        ],
    ),
];

pub(crate) async fn get_policy(context: &Context, call: &Call, request: GetIamPolicyRequest) -> Result<Policy, Status> {
    let (resource, rules) = (resource_of(&request.resource)?, rules_of(context)?);
    let found = rules.get(&resource).map_err(status)?;
    check_exists(context, &request.resource, &resource).await?;
    let found = found.unwrap_or_else(no_rules);
    call.charge(found.rules.len() * BINDING_BYTES)?;
    Ok(policy(&found.rules, found.version))
}

pub(crate) async fn set_policy(context: &Context, call: &Call, request: SetIamPolicyRequest) -> Result<Policy, Status> {
    let (resource, rules) = (resource_of(&request.resource)?, rules_of(context)?);
    let wanted = request.policy.ok_or_else(|| invalid("policy must be set"))?;
    // Checks the caller's right, so that no one else has a policy read.
    let before = rules.get(&resource).map_err(status)?;
    let new = rules_of_policy(&wanted)?;
    check_exists(context, &request.resource, &resource).await?;
    let before = before.unwrap_or_else(no_rules);
    let former = match wanted.etag.is_empty() {
        // The narrowed rules below are those of this version.
        true => before.version,
        false => version_of(&wanted.etag)?,
    };
    let narrowed = before.rules.iter().filter(|rule| !rule.is_whole()).cloned();
    let all: Vec<AccessRule> = new.into_iter().chain(narrowed).collect();
    let version = rules.set(&resource, all.clone(), Some(former)).await.map_err(status)?;
    call.charge_response(all.len() * BINDING_BYTES);
    Ok(policy(&all, version))
}

/// Permissions on a resource that does not exist are none, and no error.
pub(crate) async fn test_permissions(
    context: &Context,
    _: &Call,
    request: TestIamPermissionsRequest,
) -> Result<TestIamPermissionsResponse, Status> {
    let (resource, rules) = (resource_of(&request.resource)?, rules_of(context)?);
    if let Some(wild) = request.permissions.iter().find(|permission| permission.contains('*')) {
        return Err(invalid(format!("permission {wild:?} has a wildcard")));
    }
    let mut permissions = request.permissions;
    let rights = rules.rights(&resource).map_err(status)?;
    permissions.retain(|permission| needed(permission).is_some_and(|right| rights.has(right)));
    if !permissions.is_empty() && check_exists(context, &request.resource, &resource).await.is_err() {
        permissions.clear();
    }
    Ok(TestIamPermissionsResponse { permissions })
}

fn needed(permission: &str) -> Option<Rights> {
    let name = permission.strip_prefix("bigtable.")?;
    let found = PERMISSIONS.iter().find(|(_, names)| names.contains(&name));
    found.map(|(right, _)| *right)
}

pub(crate) fn rules_of(context: &Context) -> Result<&Rules, Status> {
    let none = || unimplemented("This server has no access rules");
    context.rules.as_ref().ok_or_else(none)
}

/// The resource of a name: an instance, a table, an authorized view or a backup.
pub(crate) fn resource_of(name: &str) -> Result<Resource, Status> {
    if let Ok(table) = TableResource::parse(name) {
        return Ok(Resource::Table(table.name));
    }
    if let Ok(view) = ViewResource::parse(name) {
        return Ok(Resource::View {
            table: view.table.name,
            view: view.view,
        });
    }
    if let Ok(backup) = BackupName::parse(name) {
        return Ok(Resource::Snapshot {
            namespace: backup.instance.instance,
            name: backup.backup,
        });
    }
    match InstanceName::parse(name) {
        Ok(instance) => Ok(Resource::Namespace(instance.instance)),
        Err(_) => Err(invalid(format!(
            "{name:?} is neither an instance nor a table nor an authorized view nor a backup"
        ))),
    }
}

/// Fails with NOT_FOUND if there is no such resource.
pub(crate) async fn check_exists(context: &Context, name: &str, resource: &Resource) -> Result<(), Status> {
    match resource {
        Resource::Cluster => Ok(()),
        Resource::Table(_) => {
            let table = TableResource::parse(name)?;
            let found = context.service.schema(&table.name);
            found.map(drop).map_err(|error| table_status(&table, error))
        }
        Resource::View { .. } => Addressed::View(ViewResource::parse(name)?).scope(context).map(drop),
        Resource::Snapshot { namespace, name } => {
            let found = context
                .admin
                .snapshot(&SnapshotName::new(namespace.clone(), name.clone()))
                .await;
            found.map(drop).map_err(status)
        }
        Resource::Namespace(namespace) => match context.admin.namespace(namespace).await.map_err(status)? {
            Some(_) => Ok(()),
            None => Err(InstanceName::parse(name)?.not_found()),
        },
    }
}

pub(crate) fn no_rules() -> ResourceRules {
    ResourceRules {
        rules: [].into(),
        version: 0,
    }
}

/// The rules of a policy, each once, up to the limit of a resource.
fn rules_of_policy(policy: &Policy) -> Result<Vec<AccessRule>, Status> {
    if !policy.audit_configs.is_empty() {
        return Err(invalid(
            "audit_configs are not supported: the server's settings say what is audited",
        ));
    }
    let (mut rules, mut known) = (Vec::new(), HashSet::new());
    for Binding {
        role,
        members,
        condition,
    } in &policy.bindings
    {
        if condition.is_some() {
            return Err(invalid(
                "conditions are not supported: narrow a rule to families or rows instead",
            ));
        }
        let rights = rights_of(role)?;
        for member in members {
            // A member that has been met is not parsed again.
            if !known.insert((member.as_str(), rights)) {
                continue;
            }
            if rules.len() == RULES_MAX {
                return Err(invalid(format!(
                    "The policy has more than {RULES_MAX} rules, the limit"
                )));
            }
            rules.push(AccessRule::whole(parse_member(member)?, rights));
        }
    }
    Ok(rules)
}

/// The rights of a role.
fn rights_of(role: &str) -> Result<Rights, Status> {
    let known = ROLES.iter().find(|(name, _)| *name == role);
    known.map(|(_, rights)| *rights).ok_or_else(|| {
        let names: Vec<&str> = ROLES.iter().map(|(name, _)| *name).collect();
        invalid(format!(
            "role {role:?} is not supported; the roles are {}",
            names.join(", ")
        ))
    })
}

fn parse_member(member: &str) -> Result<Member, Status> {
    Member::parse(member).ok_or_else(|| {
        invalid(format!(
            "member {member:?} is not supported: it must be user:NAME, serviceAccount:NAME, group:NAME, domain:NAME or \
             allAuthenticatedUsers"
        ))
    })
}

/// The policy of rules, in the order of [`ROLES`].
fn policy(rules: &[AccessRule], version: u64) -> Policy {
    let has_role = |rule: &AccessRule, at: usize| roles_of(rule.rights).any(|role| role == at);
    let bindings = ROLES.iter().enumerate().filter_map(|(at, (role, _))| {
        let of_role = rules.iter().filter(|rule| rule.is_whole() && has_role(rule, at));
        let members: Vec<String> = of_role.map(|rule| rule.member.to_string()).collect();
        (!members.is_empty()).then(|| Binding {
            role: (*role).to_owned(),
            members,
            condition: None,
        })
    });
    Policy {
        version: 1,
        bindings: bindings.collect(),
        audit_configs: Vec::new(),
        etag: Bytes::copy_from_slice(&version.to_be_bytes()),
    }
}

/// The roles that give these rights together: one of them, if one does.
fn roles_of(rights: Rights) -> impl Iterator<Item = usize> {
    let all = ROLES.iter().enumerate();
    let exact = all.clone().find(|(_, (_, role))| *role == rights).map(|(at, _)| at);
    all.filter(move |(at, (_, role))| match exact {
        Some(exact) => exact == *at,
        None => {
            let is_single = [Rights::READ, Rights::WRITE, Rights::ADMIN].contains(role);
            is_single && rights.has(*role)
        }
    })
    .map(|(at, _)| at)
}

fn version_of(etag: &[u8]) -> Result<u64, Status> {
    let bytes = etag
        .try_into()
        .map_err(|_| invalid("the etag is not one of a policy"))?;
    Ok(u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(role: &str, members: &[&str]) -> Binding {
        Binding {
            role: role.to_owned(),
            members: members.iter().map(ToString::to_string).collect(),
            condition: None,
        }
    }

    #[test]
    fn a_policy_comes_back_as_it_was_set() {
        let bindings = vec![
            binding("roles/bigtable.admin", &["user:root"]),
            binding("roles/bigtable.user", &["user:alice", "serviceAccount:job@example.com"]),
            binding("roles/bigtable.reader", &["user:alice", "allAuthenticatedUsers"]),
            binding("roles/owner", &["user:root"]),
            binding("roles/editor", &["group:g"]),
            binding("roles/viewer", &["domain:example.com"]),
        ];
        let set = Policy {
            bindings: bindings.clone(),
            ..Policy::default()
        };
        let rules = rules_of_policy(&set).unwrap();
        assert_eq!(rules.len(), 8);
        let shown = policy(&rules, 7);
        assert_eq!((shown.bindings, version_of(&shown.etag).unwrap()), (bindings, 7));
    }

    #[test]
    fn other_rights_are_several_bindings() {
        let member = Member::User("a".into());
        let rule = AccessRule::whole(member, Rights::READ.and(Rights::ADMIN));
        let roles: Vec<String> = policy(&[rule], 1).bindings.into_iter().map(|b| b.role).collect();
        assert_eq!(roles, ["roles/bigtable.reader", "roles/stele.administrator"]);
        for bits in 1..=15 {
            let rights = Rights::from_bits(bits).unwrap();
            let given = roles_of(rights).fold(Rights::NONE, |all, at| all.and(ROLES[at].1));
            for right in [Rights::READ, Rights::WRITE, Rights::ADMIN, Rights::VIEW] {
                assert_eq!(given.has(right), rights.has(right), "{rights}");
            }
        }
    }

    #[test]
    fn a_policy_has_as_many_rules_as_a_resource() {
        let of = |members: Vec<String>| Policy {
            bindings: vec![Binding {
                role: "roles/bigtable.reader".to_owned(),
                members,
                condition: None,
            }],
            ..Policy::default()
        };
        let users = |count: usize| (0..count).map(|number| format!("user:{number}")).collect::<Vec<_>>();
        assert_eq!(rules_of_policy(&of(users(RULES_MAX))).unwrap().len(), RULES_MAX);
        let again = vec![users(RULES_MAX); 200].concat();
        assert_eq!(rules_of_policy(&of(again)).unwrap().len(), RULES_MAX);
        let refused = rules_of_policy(&of(users(RULES_MAX + 1))).unwrap_err();
        assert!(refused.message().contains("more than 256 rules"), "{refused}");
    }

    #[test]
    fn what_has_no_rule_is_refused() {
        let of = |bindings| Policy {
            bindings,
            ..Policy::default()
        };
        let conditional = Binding {
            condition: Some(Default::default()),
            ..binding("roles/bigtable.reader", &["user:a"])
        };
        for (policy, expected) in [
            (of(vec![binding("roles/browser", &["user:a"])]), "roles/browser"),
            (of(vec![binding("roles/bigtable.reader", &["allUsers"])]), "allUsers"),
            (of(vec![binding("roles/bigtable.reader", &["deleted:d"])]), "deleted:d"),
            (of(vec![conditional]), "conditions"),
        ] {
            let refused = rules_of_policy(&policy).unwrap_err();
            assert!(refused.message().contains(expected), "{refused}");
        }
        assert!(version_of(b"123").is_err());
    }

    #[test]
    fn names_of_resources() {
        let instance = "projects/p/instances/i";
        assert_eq!(resource_of(instance).unwrap(), Resource::Namespace("i".into()));
        let table = resource_of(&format!("{instance}/tables/t")).unwrap();
        assert_eq!(table.to_string(), "table i/t");
        let backup = resource_of(&format!("{instance}/clusters/c/backups/b")).unwrap();
        assert_eq!(backup.to_string(), "snapshot i/b");
        assert!(resource_of("projects/p").is_err());
    }
}
