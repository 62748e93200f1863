//! Handlers of `stele.admin.v1.Access`, a service that the Bigtable API does not have.
//!
//! It has all rules, also those that are narrowed to families and rows, and those of the whole cluster.

use crate::accounting::Call;
use crate::context::Context;
use crate::iam::{check_exists, no_rules, resource_of, rules_of};
use crate::pb::own as pb;
use crate::status::{invalid, status};
use stele_access::rules::{changed, check_given};
use stele_client::access::ResourceRules;
use stele_types::{AccessRule, ErrorKind, Member, Resource, Rights, TableName};
use tonic::Status;

/// Memory of a rule in a response, besides the names and the prefix in it.
const RULE_BYTES: usize = 256;

/// Attempts while others change the same rules.
const ATTEMPTS_MAX: u32 = 8;

pub(crate) async fn list_rules(
    context: &Context,
    call: &Call,
    request: pb::ListRulesRequest,
) -> Result<pb::ListRulesResponse, Status> {
    let rules = rules_of(context)?;
    let found = match request.resource.as_str() {
        "" => rules.list().map_err(status)?,
        name => {
            let resource = named(name)?;
            let found = rules.get(&resource).map_err(status)?;
            check_exists(context, name, &resource).await?;
            found.into_iter().map(|found| (resource.clone(), found)).collect()
        }
    };
    let bytes = |rules: &ResourceRules| rules.rules.iter().map(shown_bytes).sum::<usize>();
    call.charge(found.iter().map(|(_, rules)| bytes(rules)).sum())?;
    Ok(pb::ListRulesResponse {
        resources: found
            .iter()
            .map(|(resource, found)| shown(resource, &found.rules))
            .collect(),
    })
}

pub(crate) async fn modify_rules(
    context: &Context,
    call: &Call,
    request: pb::ModifyRulesRequest,
) -> Result<pb::ResourceRules, Status> {
    let (resource, rules) = (named(&request.resource)?, rules_of(context)?);
    let parsed = |rules: &[pb::AccessRule]| rules.iter().map(rule_of).collect::<Result<Vec<_>, _>>();
    let (revoke, grant) = (parsed(&request.revoke)?, parsed(&request.grant)?);
    let mut attempt = 1;
    loop {
        let before = rules.get(&resource).map_err(status)?;
        check_exists(context, &request.resource, &resource).await?;
        let before = before.unwrap_or_else(no_rules);
        if attempt == 1 {
            // A later attempt may find the rules that an earlier one has made, although its outcome was not known.
            check_given(&before.rules, &revoke).map_err(status)?;
        }
        let all = changed(&before.rules, &revoke, &grant);
        match rules.set(&resource, all.clone(), Some(before.version)).await {
            Ok(_) => {
                call.charge_response(all.iter().map(shown_bytes).sum());
                return Ok(shown(&resource, &all));
            }
            Err(error) if error.kind == ErrorKind::Aborted && attempt < ATTEMPTS_MAX => attempt += 1,
            Err(error) => return Err(status(error)),
        }
    }
}

fn named(name: &str) -> Result<Resource, Status> {
    match name {
        Resource::CLUSTER => Ok(Resource::Cluster),
        name => resource_of(name),
    }
}

fn rule_of(rule: &pb::AccessRule) -> Result<AccessRule, Status> {
    let member =
        Member::parse(&rule.member).ok_or_else(|| invalid(format!("member {:?} is not known", rule.member)))?;
    let rights = Rights::of_names(&rule.rights).map_err(invalid)?;
    if rights.is_none() {
        return Err(invalid("a rule without a right"));
    }
    let mut families = rule.families.clone();
    families.sort_unstable();
    families.dedup();
    Ok(AccessRule {
        member,
        rights,
        families,
        row_prefix: rule.row_prefix.clone().into(),
    })
}

fn shown_bytes(rule: &AccessRule) -> usize {
    let families: usize = rule.families.iter().map(|family| family.len() + 32).sum();
    RULE_BYTES + families + rule.row_prefix.len()
}

fn shown(resource: &Resource, rules: &[AccessRule]) -> pb::ResourceRules {
    let name = match resource {
        Resource::Cluster => Resource::CLUSTER.to_owned(),
        Resource::Namespace(name) => format!("projects/-/instances/{name}"),
        Resource::Table(name) => format!("projects/-/instances/{}/tables/{}", name.namespace, name.table),
        Resource::View { table, view } => {
            let TableName { namespace, table } = table;
            format!("projects/-/instances/{namespace}/tables/{table}/authorizedViews/{view}")
        }
        Resource::Snapshot { namespace, name } => format!("projects/-/instances/{namespace}/clusters/-/backups/{name}"),
    };
    let rule = |rule: &AccessRule| pb::AccessRule {
        member: rule.member.to_string(),
        rights: rule.rights.names().map(str::to_owned).collect(),
        families: rule.families.clone(),
        row_prefix: rule.row_prefix.to_vec(),
    };
    pb::ResourceRules {
        resource: name,
        rules: rules.iter().map(rule).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(member: &str, rights: &[&str], families: &[&str]) -> AccessRule {
        let strings = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        rule_of(&pb::AccessRule {
            member: format!("user:{member}"),
            rights: strings(rights),
            families: strings(families),
            row_prefix: Vec::new(),
        })
        .unwrap()
    }

    #[test]
    fn rights_are_given_to_and_taken_from_the_same_part() {
        let before = [rule("a", &["read"], &[]), rule("a", &["read", "write"], &["f"])];
        let all = changed(&before, &[], &[rule("a", &["write"], &[]), rule("b", &["admin"], &[])]);
        let expected = [
            rule("a", &["read", "write"], &[]),
            rule("a", &["read", "write"], &["f"]),
            rule("b", &["admin"], &[]),
        ];
        assert_eq!(all, expected);
        let all = changed(
            &all,
            &[rule("a", &["write", "read"], &["f"]), rule("b", &["read"], &[])],
            &[],
        );
        assert_eq!(all, [rule("a", &["read", "write"], &[]), rule("b", &["admin"], &[])]);
        assert_eq!(rule("a", &["read"], &["g", "f", "g"]).families, ["f", "g"]);
    }

    #[test]
    fn rules_name_their_mistakes() {
        let good = pb::AccessRule {
            member: "user:a".into(),
            rights: vec!["read".into()],
            ..Default::default()
        };
        assert!(rule_of(&good).is_ok());
        for bad in [
            pb::AccessRule {
                member: "a".into(),
                ..good.clone()
            },
            pb::AccessRule {
                rights: vec!["all".into()],
                ..good.clone()
            },
            pb::AccessRule { rights: vec![], ..good },
        ] {
            assert!(rule_of(&bad).is_err(), "{bad:?}");
        }
        assert_eq!(named("cluster").unwrap(), Resource::Cluster);
    }
}
