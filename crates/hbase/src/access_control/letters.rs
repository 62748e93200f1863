//! Letters of HBase's rights, and the access rules that they become.
//!
//! | letter | right |
//! |---|---|
//! | `R`, `W` | `read`, `write` |
//! | `A` | `admin`, which includes `C` |
//! | `C` | part of `admin`: refused without `A`, which it would give as well |
//! | `X` | none of its own: a coprocessor's call needs the rights to read or write its rows. Refused alone |
//!
//! A rule that is narrowed to a prefix of rows, or gives only `view`, has no letters. It is not shown, and no call here changes
//! it.
//!
//! Pure.

use crate::failure::{Failure, Outcome};
use crate::names;
use bytes::Bytes;
use stele_types::{AccessRule, Member, Resource, Rights};
use stele_wire::messages::{
    self, GlobalPermission, NamespacePermission, Permission, PermissionAction, PermissionType, TablePermission,
    UserPermission,
};

/// The user name that means every known caller, as in rules.
const ALL: &str = "allAuthenticatedUsers";

/// Precedes the name of a group.
const GROUP: &str = "@";

/// Precedes a domain, as in rules.
const DOMAIN: &str = "domain:";

/// The part of the cluster that rights are for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub resource: Resource,
    /// The family of a table that they are narrowed to.
    pub family: Option<String>,
    /// They are narrowed to a column, which no rule is.
    has_qualifier: bool,
}

impl Part {
    pub fn of(permission: &Permission) -> Outcome<Self> {
        let whole = |resource| Part {
            resource,
            family: None,
            has_qualifier: false,
        };
        match PermissionType::try_from(permission.r#type) {
            Ok(PermissionType::Global) => Ok(whole(Resource::Cluster)),
            Ok(PermissionType::Namespace) => {
                let of = permission.namespace_permission.as_ref();
                namespace(of.and_then(|of| of.namespace_name.as_deref())).map(whole)
            }
            Ok(PermissionType::Table) => {
                let of = permission.table_permission.as_ref();
                let is_named = |name: &&Bytes| !name.is_empty();
                let family = of.and_then(|of| of.family.as_ref()).filter(is_named);
                Ok(Part {
                    resource: table(of.and_then(|of| of.table_name.as_ref()))?,
                    family: family.map(family_text).transpose()?,
                    has_qualifier: of.and_then(|of| of.qualifier.as_ref()).filter(is_named).is_some(),
                })
            }
            Err(_) => Err(Failure::do_not_retry("The type of the permission is not known")),
        }
    }

    /// Fails for a part that no rule can be for.
    pub fn check_expressible(&self) -> Outcome<()> {
        match self.has_qualifier {
            true => Err(not_expressed("Rights on a column: grant them on its family")),
            false => Ok(()),
        }
    }
}

/// The family of a message, as text.
fn family_text(family: &Bytes) -> Outcome<String> {
    let text = std::str::from_utf8(family).map_err(|_| Failure::do_not_retry("The name of the family is not text"))?;
    Ok(text.to_owned())
}

/// The resource of a table's name.
pub(super) fn table(name: Option<&messages::TableName>) -> Outcome<Resource> {
    let name = name.ok_or_else(|| Failure::do_not_retry("TableName cannot be empty"))?;
    names::from_message(name).map(Resource::Table)
}

/// The resource of a namespace's name.
pub(super) fn namespace(name: Option<&[u8]>) -> Outcome<Resource> {
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    match name.filter(|name| names::is_legal_namespace(name)) {
        Some(name) => Ok(Resource::Namespace(name.to_owned())),
        None => Err(Failure::do_not_retry("The permission names no namespace")),
    }
}

/// The refusal of rights that rules do not have.
pub(super) fn not_expressed(what: &str) -> Failure {
    Failure::do_not_retry(format!("The access rules of this server do not have: {what}"))
}

/// The member of a user's name.
pub(super) fn member(user: &[u8]) -> Outcome<Member> {
    let named = std::str::from_utf8(user)
        .ok()
        .and_then(|user| match user.strip_prefix(GROUP) {
            _ if user == ALL || user.starts_with(DOMAIN) => Member::parse(user),
            Some(group) => Member::parse(&format!("group:{group}")),
            None => Member::parse(&format!("user:{user}")),
        });
    named.ok_or_else(|| {
        let message = format!(
            "{:?} is no name of a user: it has 1 to 256 bytes of text",
            user.escape_ascii().to_string()
        );
        Failure::do_not_retry(message)
    })
}

/// The user's name of a member.
fn user(member: &Member) -> Bytes {
    Bytes::from(match member {
        Member::User(name) | Member::ServiceAccount(name) => name.clone(),
        Member::Group(name) => format!("{GROUP}{name}"),
        Member::Domain(_) => member.to_string(),
        Member::Authenticated => ALL.to_owned(),
    })
}

/// The letters of a permission.
pub(super) fn actions(permission: &Permission) -> &[i32] {
    let (global, namespace, table) = (
        permission.global_permission.as_ref().map(|of| &of.action[..]),
        permission.namespace_permission.as_ref().map(|of| &of.action[..]),
        permission.table_permission.as_ref().map(|of| &of.action[..]),
    );
    let of_type = match PermissionType::try_from(permission.r#type) {
        Ok(PermissionType::Global) => global,
        Ok(PermissionType::Namespace) => namespace,
        Ok(PermissionType::Table) => table,
        Err(_) => None,
    };
    of_type.unwrap_or_default()
}

/// The rights that letters give.
pub(super) fn given(actions: &[i32], member: &Member) -> Outcome<Rights> {
    match actions.is_empty() {
        true => Err(Failure::do_not_retry(format!(
            "No actions associated with user {member}"
        ))),
        false => rights(actions),
    }
}

/// The rights that letters take: without any, all.
pub(super) fn taken(actions: &[i32]) -> Outcome<Rights> {
    match actions.is_empty() {
        true => Ok(Rights::ALL),
        false => rights(actions),
    }
}

fn rights(actions: &[i32]) -> Outcome<Rights> {
    let (mut rights, mut creates) = (Rights::NONE, false);
    for action in actions {
        rights = rights.and(match letter(*action)? {
            PermissionAction::Read => Rights::READ,
            PermissionAction::Write => Rights::WRITE,
            PermissionAction::Admin => Rights::ADMIN,
            PermissionAction::Create => {
                creates = true;
                continue;
            }
            PermissionAction::Exec => continue,
        });
    }
    if creates && !rights.has(Rights::ADMIN) {
        return Err(not_expressed(
            "CREATE without ADMIN, since the right admin includes both",
        ));
    }
    match rights.is_none() {
        true => Err(not_expressed(
            "EXEC alone, since calls of coprocessors need the rights to read or write their rows",
        )),
        false => Ok(rights),
    }
}

/// The rights of which each allows the action of a letter.
pub(super) fn any_of(action: i32) -> Outcome<&'static [Rights]> {
    Ok(match letter(action)? {
        PermissionAction::Read => &[Rights::READ],
        PermissionAction::Write => &[Rights::WRITE],
        PermissionAction::Exec => &[Rights::READ, Rights::WRITE],
        PermissionAction::Create | PermissionAction::Admin => &[Rights::ADMIN],
    })
}

fn letter(action: i32) -> Outcome<PermissionAction> {
    PermissionAction::try_from(action).map_err(|_| Failure::do_not_retry(format!("Action {action} is not known")))
}

/// A change of the rights of a member on a part.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// It gets these, too.
    Add(Rights),
    /// It has these and no others.
    Replace(Rights),
    /// It loses these.
    Take(Rights),
}

/// Whether both mean the same callers.
fn is_same(a: &Member, b: &Member) -> bool {
    let name = |member: &Member| match member {
        Member::User(name) | Member::ServiceAccount(name) => Some(name.clone()),
        Member::Group(_) | Member::Domain(_) | Member::Authenticated => None,
    };
    a == b || name(a).is_some_and(|a| name(b) == Some(a))
}

/// The rules of a resource after a change. Rules with a prefix of rows stay.
pub(super) fn changed(before: &[AccessRule], member: &Member, family: Option<&str>, change: Change) -> Vec<AccessRule> {
    let families: Vec<String> = family.map(str::to_owned).into_iter().collect();
    let mut all = Vec::with_capacity(before.len() + 1);
    for rule in before {
        let is_member = rule.row_prefix.is_empty() && is_same(&rule.member, member);
        let is_meant = is_member && family.is_some_and(|family| rule.families.iter().any(|own| own == family));
        if is_meant && rule.families.len() > 1 {
            // The family gets a rule of its own, which the change is for.
            let mut others = rule.clone();
            others.families.retain(|own| Some(own.as_str()) != family);
            all.push(others);
        }
        let families = if is_meant {
            families.clone()
        } else {
            rule.families.clone()
        };
        all.push(AccessRule {
            families,
            ..rule.clone()
        });
    }
    let is_meant =
        |rule: &AccessRule| rule.row_prefix.is_empty() && rule.families == families && is_same(&rule.member, member);
    for rule in all.iter_mut().filter(|rule| is_meant(rule)) {
        rule.rights = match change {
            Change::Add(_) => rule.rights,
            Change::Replace(_) => Rights::NONE,
            Change::Take(taken) => rule.rights.without(taken),
        };
    }
    if let Change::Add(given) | Change::Replace(given) = change {
        match all.iter_mut().find(|rule| is_meant(rule)) {
            Some(rule) => rule.rights = rule.rights.and(given),
            None => all.push(AccessRule {
                families: families.clone(),
                ..AccessRule::whole(member.clone(), given)
            }),
        }
    }
    all.retain(|rule| !rule.rights.is_none());
    all
}

/// The rules of a resource as HBase's rights, each with one family at most.
pub(super) fn shown(rules: &[AccessRule], resource: &Resource) -> Vec<UserPermission> {
    let mut all = Vec::new();
    for rule in rules.iter().filter(|rule| rule.row_prefix.is_empty()) {
        let action = letters_of(rule.rights);
        if action.is_empty() {
            continue;
        }
        let families = rule.families.iter().map(|family| Some(Bytes::from(family.clone())));
        let parts: Vec<Option<Bytes>> = match rule.families.is_empty() {
            true => vec![None],
            false => families.collect(),
        };
        for family in parts {
            all.push(UserPermission {
                user: user(&rule.member),
                permission: permission(resource, family, action.clone()),
            });
        }
    }
    all
}

/// A superuser, which has all rights without a rule.
pub(super) fn superuser(name: &str) -> UserPermission {
    use PermissionAction::{Admin, Create, Exec, Read, Write};
    let action = [Read, Write, Exec, Create, Admin].map(|action| action as i32).to_vec();
    UserPermission {
        user: Bytes::from(name.to_owned()),
        permission: permission(&Resource::Cluster, None, action),
    }
}

fn letters_of(rights: Rights) -> Vec<i32> {
    use PermissionAction::{Admin, Create, Read, Write};
    let all = [
        (Rights::READ, Read),
        (Rights::WRITE, Write),
        (Rights::ADMIN, Create),
        (Rights::ADMIN, Admin),
    ];
    let has = all.iter().filter(|(right, _)| rights.has(*right));
    has.map(|(_, letter)| *letter as i32).collect()
}

fn permission(resource: &Resource, family: Option<Bytes>, action: Vec<i32>) -> Permission {
    let mut permission = Permission::default();
    let kind = match resource {
        Resource::Table(name) => {
            permission.table_permission = Some(TablePermission {
                table_name: Some(names::to_message(name)),
                family,
                qualifier: None,
                action,
            });
            PermissionType::Table
        }
        Resource::Namespace(name) => {
            permission.namespace_permission = Some(NamespacePermission {
                namespace_name: Some(Bytes::from(name.clone())),
                action,
            });
            PermissionType::Namespace
        }
        // Snapshots and views have no rights in HBase, and no call here asks for theirs.
        Resource::Cluster | Resource::Snapshot { .. } | Resource::View { .. } => {
            permission.global_permission = Some(GlobalPermission { action });
            PermissionType::Global
        }
    };
    permission.r#type = kind as i32;
    permission
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(member: &str, rights: Rights, families: &[&str], prefix: &'static str) -> AccessRule {
        AccessRule {
            families: families.iter().map(ToString::to_string).collect(),
            row_prefix: Bytes::from_static(prefix.as_bytes()),
            ..AccessRule::whole(Member::parse(member).unwrap(), rights)
        }
    }

    const RW: Rights = Rights::READ.and(Rights::WRITE);

    #[test]
    fn a_change_is_for_one_member_and_one_part() {
        let before = [
            rule("user:a", Rights::READ, &[], ""),
            rule("user:b", RW, &["f", "g"], ""),
            rule("user:b", Rights::READ, &[], "p"),
        ];
        let a = Member::User("a".into());
        let b = Member::User("b".into());
        let of_a = |change| changed(&before, &a, None, change)[0].clone();
        assert_eq!(of_a(Change::Add(Rights::WRITE)), rule("user:a", RW, &[], ""));
        assert_eq!(
            of_a(Change::Replace(Rights::WRITE)),
            rule("user:a", Rights::WRITE, &[], "")
        );
        assert_eq!(of_a(Change::Take(Rights::WRITE)), before[0]);
        assert_eq!(changed(&before, &a, None, Change::Take(Rights::ALL)), before[1..]);
        // Rights on the whole table are not those on its families.
        assert_eq!(changed(&before, &b, None, Change::Take(Rights::ALL)), before);
        let expected = [
            before[0].clone(),
            rule("user:b", RW, &["g"], ""),
            rule("user:b", Rights::READ, &["f"], ""),
            before[2].clone(),
        ];
        assert_eq!(changed(&before, &b, Some("f"), Change::Take(Rights::WRITE)), expected);
        let added = changed(&before, &b, Some("h"), Change::Add(Rights::READ));
        assert_eq!(added[3], rule("user:b", Rights::READ, &["h"], ""));
    }

    #[test]
    fn a_service_account_is_the_user_of_its_name() {
        let before = [rule("serviceAccount:a", RW, &[], ""), rule("group:a", RW, &[], "")];
        let a = Member::User("a".into());
        assert_eq!(changed(&before, &a, None, Change::Take(Rights::ALL)), before[1..]);
    }

    #[test]
    fn letters_are_rights_or_refused() {
        use PermissionAction::{Admin, Create, Exec, Read, Write};
        let of = |letters: &[PermissionAction]| {
            let actions: Vec<i32> = letters.iter().map(|letter| *letter as i32).collect();
            given(&actions, &Member::Authenticated).map_err(|failure| failure.message.into_owned())
        };
        assert_eq!(of(&[Read, Exec]), Ok(Rights::READ));
        assert_eq!(of(&[Read, Write, Exec, Create, Admin]), Ok(RW.and(Rights::ADMIN)));
        assert!(of(&[Read, Create]).unwrap_err().contains("CREATE without ADMIN"));
        assert!(of(&[Exec]).unwrap_err().contains("EXEC alone"));
        assert!(of(&[]).unwrap_err().contains("No actions"));
        assert!(given(&[5], &Member::Authenticated).is_err());
        assert_eq!(taken(&[]), Ok(Rights::ALL));
    }

    #[test]
    fn rules_are_shown_by_family_as_far_as_letters_go() {
        let table = Resource::Table(stele_types::TableName::new("default", "t"));
        let rules = [
            rule("user:a", RW.and(Rights::ADMIN), &[], ""),
            rule("group:g", Rights::READ, &["f", "g"], ""),
            rule("user:a", Rights::VIEW, &[], ""),
            rule("user:a", Rights::READ, &[], "p"),
        ];
        let shown: Vec<_> = shown(&rules, &table)
            .into_iter()
            .map(|shown| {
                let part = shown.permission.table_permission.unwrap();
                (shown.user, part.family, part.action)
            })
            .collect();
        let expected = [
            ("a", None, vec![0, 1, 3, 4]),
            ("@g", Some("f"), vec![0]),
            ("@g", Some("g"), vec![0]),
        ]
        .map(|(user, family, action)| (Bytes::from(user), family.map(Bytes::from), action));
        assert_eq!(shown, expected);
        for name in ["a", "@g", "domain:d", "allAuthenticatedUsers"] {
            assert_eq!(user(&member(name.as_bytes()).unwrap()), name);
        }
        for name in [&b""[..], b"@", b"domain:", b"a\nb", b"\xff"] {
            assert!(member(name).is_err());
        }
    }
}
