//! Rights of users: `grant`, `revoke`, `user_permission`, and questions for rights.
//!
//! They are calls of the master. Clients before 2.2 make them at the region of `hbase:acl` instead, as calls of
//! `AccessControlService`. HBase keeps its rights in that table; here they are access rules ([`crate::acl_table`]).
//!
//! [`letters`] has the translation. A call that it cannot express is refused, so that nobody gets more than was asked for. The
//! rules check that the caller administers the part of the cluster.

mod letters;

use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::names::{self, RESERVED_NAMESPACES};
use letters::{Change, Part};
use prost::Message;
use stele_types::{AccessRule, ErrorKind, Member, Resource, Rights};
use stele_wire::exception;
use stele_wire::messages::{
    CheckPermissionsRequest, CoprocessorServiceRequest, Empty, GetUserPermissionsRequest, GetUserPermissionsResponse,
    GrantRequest, HasPermissionRequest, HasPermissionResponse, HasUserPermissionsRequest, HasUserPermissionsResponse,
    Permission, PermissionType, RevokeRequest, UserPermission,
};

/// The service of regions.
pub(crate) const SERVICE: &str = "AccessControlService";

/// Attempts of a change while others change the same rules.
const ATTEMPTS_MAX: u32 = 8;

/// Rights that a question may name: a client asks for a page of them at most.
const QUESTIONS_MAX: usize = 1_000;

/// Serves a call of the master.
pub(crate) async fn of_master(shared: &Shared, call: &Call, method: &[u8]) -> Outcome<Reply> {
    match method {
        b"Grant" => {
            grant(shared, call.message("GrantRequest")?).await?;
            call.reply(&Empty {})
        }
        b"Revoke" => {
            revoke(shared, call.message("RevokeRequest")?).await?;
            call.reply(&Empty {})
        }
        b"GetUserPermissions" => call.reply(&list(shared, &call.message("GetUserPermissionsRequest")?)?),
        _ => call.reply(&ask(shared, &call.message("HasUserPermissionsRequest")?)?),
    }
}

/// Serves a call of the service: the name of the response's class, and its bytes. `None` for an unknown method.
pub(crate) async fn of_region(
    shared: &Shared,
    call: &Call,
    request: &CoprocessorServiceRequest,
) -> Outcome<Option<(&'static str, Vec<u8>)>> {
    let argument = request.call.request.clone();
    Ok(Some(match &request.call.method_name[..] {
        "Grant" => {
            grant(shared, call.decode("GrantRequest", argument)?).await?;
            ("AccessControlProtos$GrantResponse", Vec::new())
        }
        "Revoke" => {
            revoke(shared, call.decode("RevokeRequest", argument)?).await?;
            ("AccessControlProtos$RevokeResponse", Vec::new())
        }
        "GetUserPermissions" => {
            let found = list(shared, &call.decode("GetUserPermissionsRequest", argument)?)?;
            ("AccessControlProtos$GetUserPermissionsResponse", found.encode_to_vec())
        }
        "CheckPermissions" => {
            check(shared, &call.decode("CheckPermissionsRequest", argument)?)?;
            ("AccessControlProtos$CheckPermissionsResponse", Vec::new())
        }
        "HasPermission" => {
            let found = has(shared, call.decode("HasPermissionRequest", argument)?)?;
            ("AccessControlProtos$HasPermissionResponse", found.encode_to_vec())
        }
        _ => return Ok(None),
    }))
}

async fn grant(shared: &Shared, request: GrantRequest) -> Outcome<()> {
    let UserPermission { user, permission } = request.user_permission;
    let (member, part) = (letters::member(&user)?, Part::of(&permission)?);
    part.check_expressible()?;
    let rights = letters::given(letters::actions(&permission), &member)?;
    if part.family.is_some() && rights.has(Rights::ADMIN) {
        return Err(letters::not_expressed(
            "ADMIN and CREATE on a family: grant them on the table",
        ));
    }
    let change = match request.merge_existing_permissions.unwrap_or(false) {
        true => Change::Add(rights),
        false => Change::Replace(rights),
    };
    modify(shared, &part, &member, change).await
}

async fn revoke(shared: &Shared, request: RevokeRequest) -> Outcome<()> {
    let UserPermission { user, permission } = request.user_permission;
    let (member, part) = (letters::member(&user)?, Part::of(&permission)?);
    part.check_expressible()?;
    let rights = letters::taken(letters::actions(&permission))?;
    modify(shared, &part, &member, Change::Take(rights)).await
}

/// Changes the rules of the part's resource, again if others have changed them meanwhile.
async fn modify(shared: &Shared, part: &Part, member: &Member, change: Change) -> Outcome<()> {
    let rules = shared.rules()?;
    let mut attempt = 1;
    loop {
        let before = rules.get(&part.resource)?;
        let (own, version) = before.map_or_else(Default::default, |found| (found.rules.to_vec(), found.version));
        let all = letters::changed(&own, member, part.family.as_deref(), change);
        match rules.set(&part.resource, all, Some(version)).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind == ErrorKind::Aborted && attempt < ATTEMPTS_MAX => {}
            Err(error) if error.kind == ErrorKind::NotFound => make_missing(shared, &part.resource, attempt).await?,
            Err(error) => return Err(error.into()),
        }
        attempt += 1;
    }
}

/// Makes a namespace that exists in HBase from the start, and here only when it is needed. Fails for any other missing resource.
async fn make_missing(shared: &Shared, resource: &Resource, attempt: u32) -> Outcome<()> {
    match resource {
        Resource::Namespace(name) if RESERVED_NAMESPACES.contains(&name.as_str()) && attempt < ATTEMPTS_MAX => {
            match shared.admin.create_namespace(name, Vec::new()).await {
                Err(error) if error.kind != ErrorKind::AlreadyExists => Err(error.into()),
                _ => Ok(()),
            }
        }
        Resource::Namespace(name) => Err(Failure::new(exception::NAMESPACE_NOT_FOUND, name.clone())),
        Resource::Table(name) => Err(names::table_not_found(name)),
        other => Err(Failure::do_not_retry(format!("{other} does not exist"))),
    }
}

/// The rights on a part, as far as HBase's letters can show them.
fn list(shared: &Shared, request: &GetUserPermissionsRequest) -> Outcome<GetUserPermissionsResponse> {
    let resource = match request.r#type.map(PermissionType::try_from) {
        Some(Ok(PermissionType::Table)) => letters::table(request.table_name.as_ref())?,
        Some(Ok(PermissionType::Namespace)) => letters::namespace(request.namespace_name.as_deref())?,
        Some(Ok(PermissionType::Global)) | None => Resource::Cluster,
        Some(Err(_)) => return Err(Failure::do_not_retry("The type of the permissions is not known")),
    };
    let rules = shared.rules()?;
    let found = rules.get(&resource)?;
    // No rule is narrowed to a column.
    let own: &[AccessRule] = match (&found, &request.column_qualifier) {
        (Some(found), None) => &found.rules,
        _ => &[],
    };
    let mut all = letters::shown(own, &resource);
    if resource == Resource::Cluster {
        all.extend(rules.superusers()?.iter().map(|name| letters::superuser(name)));
    }
    all.retain(|shown| {
        let table = shown.permission.table_permission.as_ref();
        let family = table.and_then(|table| table.family.as_ref());
        let is_family = request.column_family.is_none() || request.column_family.as_ref() == family;
        is_family && request.user_name.as_ref().is_none_or(|user| *user == shown.user)
    });
    Ok(GetUserPermissionsResponse { user_permission: all })
}

fn ask(shared: &Shared, request: &HasUserPermissionsRequest) -> Outcome<HasUserPermissionsResponse> {
    if request.permission.len() > QUESTIONS_MAX {
        let asked = request.permission.len();
        let message = format!("{asked} permissions in a call; the limit is {QUESTIONS_MAX}");
        return Err(Failure::do_not_retry(message));
    }
    let user = request.user_name.as_deref();
    let each = request
        .permission
        .iter()
        .map(|permission| holds(shared, user, permission));
    Ok(HasUserPermissionsResponse {
        has_user_permission: each.collect::<Outcome<_>>()?,
    })
}

fn has(shared: &Shared, request: HasPermissionRequest) -> Outcome<HasPermissionResponse> {
    let permission = Permission {
        r#type: PermissionType::Table as i32,
        table_permission: Some(request.table_permission),
        ..Permission::default()
    };
    Ok(HasPermissionResponse {
        has_permission: Some(holds(shared, Some(&request.user_name), &permission)?),
    })
}

/// Fails unless the caller has all of the rights.
fn check(shared: &Shared, request: &CheckPermissionsRequest) -> Outcome<()> {
    for permission in request.permission.iter().take(QUESTIONS_MAX) {
        if !holds(shared, None, permission)? {
            let part = Part::of(permission)?;
            let message = format!("Insufficient permissions on {}", part.resource);
            return Err(Failure::new(exception::ACCESS_DENIED, message));
        }
    }
    match request.permission.len() > QUESTIONS_MAX {
        true => Err(Failure::do_not_retry("too many permissions in a call")),
        false => Ok(()),
    }
}

/// Whether a user, or else the caller, has all rights of a permission. No rule is narrowed to a column, so a column has the
/// rights of its family.
fn holds(shared: &Shared, user: Option<&[u8]>, permission: &Permission) -> Outcome<bool> {
    let rules = shared.rules()?;
    let member = user.map(letters::member).transpose()?;
    let part = Part::of(permission)?;
    let has = |right| rules.holds(member.as_ref(), right, &part.resource, part.family.as_deref());
    for action in letters::actions(permission) {
        let mut holds = false;
        for right in letters::any_of(*action)? {
            holds |= has(*right)?;
        }
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
