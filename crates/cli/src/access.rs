//! `rules`, `grant` and `revoke`: administration of access rules.

use crate::client::admin::CLUSTER;
use crate::connection::Connection;
use crate::escape::escape;
use crate::query::parse_bytes;
use crate::show::print;
use anyhow::Result;
use bytes::Bytes;
use clap::Args;
use std::fmt::Write as _;
use std::process::ExitCode;
use stele_adminapi::{AccessRule, ModifyRulesRequest, ResourceRules};

/// Arguments of `rules`.
#[derive(Args, Clone, Debug)]
pub struct RulesArgs {
    /// cluster, instance or instance/table [default: all that you administer]
    resource: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `grant` and `revoke`.
#[derive(Args, Clone, Debug)]
pub struct RuleArgs {
    /// A name, user:NAME, serviceAccount:NAME, group:NAME, domain:NAME or allAuthenticatedUsers
    member: String,
    /// Rights, separated by commas: read, write, admin, view
    rights: String,
    /// cluster, instance or instance/table
    resource: String,
    /// Only this family of a table; may be repeated
    #[arg(long, value_name = "FAMILY")]
    family: Vec<String>,
    /// Only rows of a table with this prefix
    #[arg(long, value_name = "PREFIX", value_parser = parse_bytes)]
    prefix: Option<Bytes>,
    #[command(flatten)]
    connection: Connection,
}

impl RuleArgs {
    fn rule(&self) -> AccessRule {
        let is_qualified = self.member.contains(':') || self.member == "allAuthenticatedUsers";
        AccessRule {
            member: match is_qualified {
                true => self.member.clone(),
                false => format!("user:{}", self.member),
            },
            rights: self.rights.split(',').map(|right| right.trim().to_owned()).collect(),
            families: self.family.clone(),
            row_prefix: self.prefix.as_deref().unwrap_or_default().to_vec(),
        }
    }
}

/// Prints rules.
pub async fn rules(args: RulesArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let name = args.resource.as_deref().map(|resource| client.resource_name(resource));
    let found = client.list_rules(name.unwrap_or_default()).await?;
    let shown: String = found.iter().map(show).collect();
    print(&shown)?;
    Ok(ExitCode::SUCCESS)
}

/// Gives rights.
pub async fn grant(args: RuleArgs) -> Result<ExitCode> {
    let (grant, revoke) = (vec![args.rule()], Vec::new());
    modify(args, revoke, grant).await
}

/// Takes rights.
pub async fn revoke(args: RuleArgs) -> Result<ExitCode> {
    let (grant, revoke) = (Vec::new(), vec![args.rule()]);
    modify(args, revoke, grant).await
}

async fn modify(args: RuleArgs, revoke: Vec<AccessRule>, grant: Vec<AccessRule>) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let request = ModifyRulesRequest {
        resource: client.resource_name(&args.resource),
        revoke,
        grant,
    };
    print(&show(&client.modify_rules(request).await?))?;
    Ok(ExitCode::SUCCESS)
}

/// A rule on each line.
fn show(resource: &ResourceRules) -> String {
    let mut out = String::new();
    let name = short_name(&resource.resource);
    for rule in &resource.rules {
        let _ = write!(out, "{name}  {}  {}", rule.member, rule.rights.join(","));
        if !rule.families.is_empty() {
            let _ = write!(out, "  families {}", rule.families.join(","));
        }
        if !rule.row_prefix.is_empty() {
            let _ = write!(out, "  rows {}…", escape(&rule.row_prefix));
        }
        out.push('\n');
    }
    out
}

/// `instance/table` of a full name.
fn short_name(name: &str) -> String {
    let segments: Vec<&str> = name.split('/').collect();
    match segments[..] {
        // As `resource_name` takes it.
        [_, _, "instances", CLUSTER] => format!("{CLUSTER}/"),
        [_, _, "instances", instance] => instance.to_owned(),
        [_, _, "instances", instance, "tables", table] => format!("{instance}/{table}"),
        [_, _, "instances", instance, "tables", table, "authorizedViews", view] => format!("{instance}/{table}/{view}"),
        [_, _, "instances", instance, _, _, "backups", backup] => format!("{instance}, backup {backup}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::fake::Fake;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RuleArgs,
    }

    #[tokio::test]
    async fn an_instance_named_cluster_is_not_the_cluster() {
        let (_, client) = Fake::start("", &[]).await;
        for name in ["cluster", "cluster/", "i", "i/t"] {
            assert_eq!(short_name(&client.resource_name(name)), name);
        }
        assert_eq!(client.resource_name("cluster"), "cluster");
        assert_eq!(client.resource_name("cluster/"), "projects/p/instances/cluster");
    }

    #[test]
    fn rules_are_lines() {
        let rule = AccessRule {
            member: "user:alice".into(),
            rights: vec!["read".into(), "write".into()],
            families: vec!["f".into()],
            row_prefix: b"a\"\x00\xff".to_vec(),
        };
        let resource = ResourceRules {
            resource: "projects/-/instances/i/tables/t".into(),
            rules: vec![rule],
        };
        assert_eq!(
            show(&resource),
            "i/t  user:alice  read,write  families f  rows a\"\\x00\\xff…\n"
        );
        let shown = show(&resource);
        let prefix = shown.split("rows ").nth(1).and_then(|shown| shown.strip_suffix("…\n"));
        let line = Line::try_parse_from(["revoke", "alice", "read", "i/t", "--prefix", prefix.unwrap()]);
        assert_eq!(line.unwrap().args.rule().row_prefix, resource.rules[0].row_prefix);
        assert_eq!(short_name("cluster"), "cluster");
        assert_eq!(short_name("projects/-/instances/cluster"), "cluster/");
        assert_eq!(short_name("projects/-/instances/i/clusters/-/backups/b"), "i, backup b");
    }
}
