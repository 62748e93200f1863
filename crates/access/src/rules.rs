//! The administration of rules, as a caller has it.

use crate::grants::Grants;
use crate::guard::Guard;
use std::sync::Arc;
use stele_client::access::ResourceRules;
use stele_client::{AccessAdmin, ServiceError, ServiceResult};
use stele_types::{AccessRule, ErrorKind, Member, Resource, Rights};

/// The rules for one caller, or for everybody where callers are not known.
#[derive(Clone)]
pub struct Rules {
    admin: Arc<dyn AccessAdmin>,
    guard: Option<Arc<Guard>>,
}

impl Rules {
    /// Without checks: rules can be written before the server obeys them.
    pub fn open(admin: Arc<dyn AccessAdmin>) -> Self {
        Rules { admin, guard: None }
    }

    /// The same rules for a caller.
    #[must_use]
    pub fn of(&self, guard: Arc<Guard>) -> Self {
        Rules {
            admin: Arc::clone(&self.admin),
            guard: Some(guard),
        }
    }

    /// The rules of a resource and their version; `None` if it has none.
    pub fn get(&self, resource: &Resource) -> ServiceResult<Option<ResourceRules>> {
        if let Some(guard) = &self.guard {
            guard.check_rules("get_rules", resource)?;
        }
        Ok(self.admin.rules().get(resource).cloned())
    }

    /// The rules of all resources that the caller administers.
    pub fn list(&self) -> ServiceResult<Vec<(Resource, ResourceRules)>> {
        if let Some(guard) = &self.guard {
            guard.check_known()?;
        }
        let all = self.admin.rules();
        let is_shown = |resource: &Resource| {
            let rights = self.guard.as_ref().map_or(Rights::ALL, |guard| guard.rights(resource));
            rights.has(Rights::ADMIN)
        };
        let shown = all.iter().filter(|(resource, _)| is_shown(resource));
        Ok(shown
            .map(|(resource, rules)| (resource.clone(), rules.clone()))
            .collect())
    }

    /// Replaces the rules of a resource: [`AccessAdmin::set_rules`].
    pub async fn set(&self, resource: &Resource, rules: Vec<AccessRule>, former: Option<u64>) -> ServiceResult<u64> {
        let set = self.admin.set_rules(resource, rules, former);
        match &self.guard {
            Some(guard) => guard.audited_rules("set_rules", resource, set).await,
            None => set.await,
        }
    }

    /// Whether rights hold for a whole resource, or for one family of a table in all of its rows. They are those of the caller, or
    /// of the member `other`, for which an administrator of the resource may ask. The groups of another caller are not known.
    pub fn holds(
        &self,
        other: Option<&Member>,
        right: Rights,
        resource: &Resource,
        family: Option<&str>,
    ) -> ServiceResult<bool> {
        let own =
            |guard: &Arc<Guard>| -> ServiceResult<bool> { Ok(guard.known_grants()?.holds(right, resource, family)) };
        let Some(member) = other else {
            return self.guard.as_ref().map_or(Ok(true), own);
        };
        if let Some(guard) = &self.guard {
            match member {
                Member::User(name) if *name == guard.caller().name() => return own(guard),
                _ => guard.check_rules("get_rights", resource)?,
            }
            if matches!(member, Member::User(name) if guard.superusers().contains(name)) {
                return Ok(true);
            }
        }
        let (name, groups) = match member {
            Member::User(name) | Member::ServiceAccount(name) => (name.clone(), Vec::new()),
            Member::Group(name) => (String::new(), vec![name.clone()]),
            Member::Domain(name) => (format!("@{name}"), Vec::new()),
            Member::Authenticated => (String::new(), Vec::new()),
        };
        Ok(Grants::of(&self.admin.rules(), &name, &groups).holds(right, resource, family))
    }

    /// The names of the callers that may do everything, for a caller that administers the cluster; none where callers are not
    /// known.
    pub fn superusers(&self) -> ServiceResult<Vec<String>> {
        let Some(guard) = &self.guard else {
            return Ok(Vec::new());
        };
        guard.check_rules("get_superusers", &Resource::Cluster)?;
        let mut names: Vec<String> = guard.superusers().iter().cloned().collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The rights on a whole resource.
    pub fn rights(&self, resource: &Resource) -> ServiceResult<Rights> {
        match &self.guard {
            None => Ok(Rights::ALL),
            Some(guard) => guard.check_known().map(|()| guard.rights(resource)),
        }
    }
}

/// Fails if there is a right to take that no rule gives. A caller that names another member, or another part, would take it for
/// taken.
pub fn check_given(before: &[AccessRule], revoke: &[AccessRule]) -> ServiceResult<()> {
    let is_given = |taken: &AccessRule| {
        let rights = before.iter().filter(|rule| same(rule, taken));
        rights
            .map(|rule| rule.rights)
            .any(|rights| rights.without(taken.rights) != rights)
    };
    match revoke.iter().find(|taken| !is_given(taken)) {
        None => Ok(()),
        Some(taken) => Err(ServiceError::new(
            ErrorKind::NotFound,
            format!(
                "no rule for exactly these rows and families gives {} {}: either it was taken before, or another rule gives it",
                taken.member,
                taken.rights.names().collect::<Vec<_>>().join(", "),
            ),
        )),
    }
}

/// Whether rules have the same member and the same part.
fn same(a: &AccessRule, b: &AccessRule) -> bool {
    (&a.member, &a.families, &a.row_prefix) == (&b.member, &b.families, &b.row_prefix)
}

/// The rules after a change. Rights are taken from, and given to, the rule with the same member and the same part.
pub fn changed(before: &[AccessRule], revoke: &[AccessRule], grant: &[AccessRule]) -> Vec<AccessRule> {
    let mut all = before.to_vec();
    for taken in revoke {
        for rule in all.iter_mut().filter(|rule| same(rule, taken)) {
            rule.rights = rule.rights.without(taken.rights);
        }
    }
    for given in grant {
        match all.iter_mut().find(|rule| same(rule, given)) {
            Some(rule) => rule.rights = rule.rights.and(given.rights),
            None => all.push(given.clone()),
        }
    }
    all.retain(|rule| !rule.rights.is_none());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rights_that_a_rule_gives_can_be_taken() {
        let rule = |member: &str, rights: Rights, prefix: &'static [u8]| AccessRule {
            member: Member::User(member.to_owned()),
            rights,
            families: Vec::new(),
            row_prefix: prefix.into(),
        };
        let before = [rule("bob", Rights::READ.and(Rights::WRITE), b"\xff\x01")];
        let kind = |taken| check_given(&before, &[taken]).map_err(|error| error.kind);
        assert_eq!(kind(rule("bob", Rights::READ, b"\xff\x01")), Ok(()));
        assert_eq!(kind(rule("bob", Rights::READ.and(Rights::ADMIN), b"\xff\x01")), Ok(()));
        for other in [
            rule("bob", Rights::ADMIN, b"\xff\x01"),
            rule("bob", Rights::READ, b""),
            rule("bob", Rights::READ, b"\\xff\\x01"),
            rule("eve", Rights::READ, b"\xff\x01"),
        ] {
            assert_eq!(kind(other), Err(ErrorKind::NotFound));
        }
    }
}
