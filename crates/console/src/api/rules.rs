//! `/api/rules`: access rules of the resources that the caller administers, and changes of them.

use super::{Answer, Body, Browsed, Failure, Json, Parameters, Served, show_table, table_name};
use crate::text;
use serde::{Deserialize, Serialize};
use stele_access::rules::{changed, check_given};
use stele_client::access::ResourceRules;
use stele_types::{AccessRule, ErrorKind, Member, Resource, Rights};

/// Resources of an answer.
const LIMIT_MAX: usize = 500;
const LIMIT: usize = 100;

/// Attempts while others change the same rules.
const ATTEMPTS_MAX: u32 = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Only resources with this in their names.
    search: Option<String>,
    offset: Option<usize>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct All {
    /// Callers are checked. Otherwise the rules have no effect yet.
    obeyed: bool,
    total: usize,
    offset: usize,
    resources: Vec<OfResource>,
}

#[derive(Serialize)]
struct OfResource {
    resource: String,
    /// A backup has rules, which are not changed here.
    is_backup: bool,
    rules: Vec<Rule>,
}

#[derive(Serialize)]
struct Rule {
    member: String,
    rights: Vec<&'static str>,
    families: Vec<String>,
    prefix: String,
}

pub(super) async fn get(served: Served, Parameters(wanted): Parameters<Wanted>) -> Answer<All> {
    let search = wanted.search.unwrap_or_default();
    let mut all: Vec<(String, Resource, ResourceRules)> = served.rules.list()?.into_iter().map(named).collect();
    all.retain(|(name, ..)| name.contains(&search));
    all.sort_by(|(a, ..), (b, ..)| (a != Resource::CLUSTER, a).cmp(&(b != Resource::CLUSTER, b)));
    let (offset, limit) = (wanted.offset.unwrap_or(0), wanted.limit.unwrap_or(LIMIT).min(LIMIT_MAX));
    let page = all.iter().skip(offset).take(limit);
    Ok(Json(All {
        obeyed: served.guard.is_some(),
        total: all.len(),
        offset,
        resources: page
            .map(|(name, resource, rules)| show(name, resource, rules))
            .collect(),
    }))
}

fn named((resource, rules): (Resource, ResourceRules)) -> (String, Resource, ResourceRules) {
    let name = match &resource {
        Resource::Cluster => Resource::CLUSTER.to_owned(),
        // An instance of that name, which earlier versions could make.
        Resource::Namespace(name) if name == Resource::CLUSTER => format!("{name}/"),
        Resource::Namespace(name) => name.clone(),
        Resource::Table(name) => show_table(name),
        Resource::View { table, view } => format!("{}/{view}", show_table(table)),
        Resource::Snapshot { namespace, name } => format!("{namespace}/{name}"),
    };
    (name, resource, rules)
}

fn show(name: &str, resource: &Resource, rules: &ResourceRules) -> OfResource {
    let rule = |rule: &AccessRule| Rule {
        member: rule.member.to_string(),
        rights: rule.rights.names().collect(),
        families: rule.families.clone(),
        prefix: text::escape(&rule.row_prefix),
    };
    OfResource {
        resource: name.to_owned(),
        is_backup: matches!(resource, Resource::Snapshot { .. }),
        rules: rules.rules.iter().map(rule).collect(),
    }
}

/// A right to give or to take.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    /// `cluster`, a namespace, a table, or a view.
    resource: String,
    /// `grant` or `revoke`.
    change: String,
    /// As rules name it; a name without a colon is a user.
    member: String,
    rights: Vec<String>,
    #[serde(default)]
    families: Vec<String>,
    #[serde(default)]
    prefix: String,
}

#[derive(Serialize)]
pub(super) struct Changed {
    version: u64,
}

pub(super) async fn change(served: Browsed, Body(change): Body<Change>) -> Answer<Changed> {
    let resource = resource(&change.resource)?;
    let rule = change.rule()?;
    let (revoke, grant) = match change.change.as_str() {
        "grant" => (Vec::new(), vec![rule]),
        "revoke" => (vec![rule], Vec::new()),
        other => return Err(Failure::invalid(format!("a change is grant or revoke, not {other:?}"))),
    };
    let mut attempt = 1;
    loop {
        let before = served.rules.get(&resource)?;
        let (own, version) = before.map_or_else(Default::default, |found| (found.rules.to_vec(), found.version));
        if attempt == 1 {
            // A later attempt may find the rules that an earlier one has made, although its outcome was not known.
            check_given(&own, &revoke)?;
        }
        let all = changed(&own, &revoke, &grant);
        match served.rules.set(&resource, all, Some(version)).await {
            Ok(version) => return Ok(Json(Changed { version })),
            Err(error) if error.kind == ErrorKind::Aborted && attempt < ATTEMPTS_MAX => attempt += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

fn resource(name: &str) -> Result<Resource, Failure> {
    Ok(match name.splitn(3, '/').collect::<Vec<_>>()[..] {
        [""] => return Err(Failure::invalid("a rule is of the cluster, an instance or a table")),
        [Resource::CLUSTER] => Resource::Cluster,
        [namespace] | [namespace, ""] if !namespace.is_empty() => Resource::Namespace(namespace.to_owned()),
        [namespace, table, view] => Resource::View {
            table: table_name(&format!("{namespace}/{table}"))?,
            view: view.to_owned(),
        },
        _ => Resource::Table(table_name(name)?),
    })
}

impl Change {
    fn rule(&self) -> Result<AccessRule, Failure> {
        let is_qualified = self.member.contains(':') || self.member == "allAuthenticatedUsers";
        let member = match is_qualified {
            true => self.member.clone(),
            false => format!("user:{}", self.member),
        };
        let member = Member::parse(&member).ok_or_else(|| {
            Failure::invalid(
                "a member is a name, user:NAME, serviceAccount:NAME, group:NAME, domain:NAME or allAuthenticatedUsers",
            )
        })?;
        let rights = Rights::of_names(&self.rights).map_err(Failure::invalid)?;
        if rights.is_none() {
            return Err(Failure::invalid("a rule needs a right"));
        }
        let mut families = self.families.clone();
        families.sort_unstable();
        families.dedup();
        Ok(AccessRule {
            member,
            rights,
            families,
            row_prefix: text::unescape(&self.prefix).map_err(Failure::invalid)?.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_types::TableName;

    #[test]
    fn an_instance_named_cluster_is_not_the_cluster() {
        let table = || TableName::new("cluster", "t");
        for (shown, of) in [
            ("cluster", Resource::Cluster),
            ("cluster/", Resource::Namespace("cluster".to_owned())),
            ("n", Resource::Namespace("n".to_owned())),
            ("cluster/t", Resource::Table(table())),
            (
                "cluster/t/v",
                Resource::View {
                    table: table(),
                    view: "v".to_owned(),
                },
            ),
        ] {
            let rules = ResourceRules {
                rules: Vec::new().into(),
                version: 0,
            };
            assert_eq!(named((of.clone(), rules)).0, shown);
            assert_eq!(resource(shown).ok(), Some(of), "{shown}");
        }
        assert!(resource("").is_err() && resource("/").is_err());
    }
}
