//! Records of access rules, one for each resource that has some.

use super::{decode, encode};
use bytes::Bytes;
use prost::Message;
use stele_types::access::check_rules;
use stele_types::{AccessRule, Member, Resource, Rights, TableName};

/// Prefix of records of access rules.
pub const ACCESS: &str = "catalog/access/";

#[derive(Clone, PartialEq, Message)]
struct AccessRecord {
    #[prost(message, repeated, tag = "1")]
    rules: Vec<RuleRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct RuleRecord {
    #[prost(string, tag = "1")]
    member: String,
    /// Sum of 1 read, 2 write, 4 admin, 8 view.
    #[prost(uint32, tag = "2")]
    rights: u32,
    #[prost(string, repeated, tag = "3")]
    families: Vec<String>,
    #[prost(bytes = "bytes", tag = "4")]
    row_prefix: Bytes,
}

/// Key of the record of a resource.
pub fn access_key(resource: &Resource) -> String {
    match resource {
        Resource::Cluster => format!("{ACCESS}cluster"),
        Resource::Namespace(name) => format!("{ACCESS}namespace/{name}"),
        Resource::Table(name) => format!("{ACCESS}table/{}/{}", name.namespace, name.table),
        Resource::View { table, view } => format!("{ACCESS}view/{}/{}/{view}", table.namespace, table.table),
        Resource::Snapshot { namespace, name } => format!("{ACCESS}snapshot/{namespace}/{name}"),
    }
}

/// The resource of a record's key. Only a result of [`access_key`] is valid.
pub fn parse_access_key(key: &str) -> Option<Resource> {
    let rest = key.strip_prefix(ACCESS)?;
    let (kind, name) = rest.split_once('/').unwrap_or((rest, ""));
    let of_two = || name.split_once('/');
    let resource = match kind {
        "cluster" => Resource::Cluster,
        "namespace" => Resource::Namespace(name.to_owned()),
        "table" => of_two().map(|(namespace, table)| Resource::Table(TableName::new(namespace, table)))?,
        "view" => {
            let (namespace, rest) = of_two()?;
            let (table, view) = rest.split_once('/')?;
            Resource::View {
                table: TableName::new(namespace, table),
                view: view.to_owned(),
            }
        }
        "snapshot" => of_two().map(|(namespace, name)| Resource::Snapshot {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })?,
        _ => return None,
    };
    (access_key(&resource) == key).then_some(resource)
}

/// Encodes the rules of a resource.
pub fn encode_rules(rules: &[AccessRule]) -> Bytes {
    let record = |rule: &AccessRule| RuleRecord {
        member: rule.member.to_string(),
        rights: rule.rights.bits(),
        families: rule.families.clone(),
        row_prefix: rule.row_prefix.clone(),
    };
    encode(&AccessRecord {
        rules: rules.iter().map(record).collect(),
    })
}

/// Decodes the rules of a resource; the error says why not. An unknown right or member is an error: rules that are not
/// understood must not be taken for others.
pub fn decode_rules(resource: &Resource, bytes: &[u8]) -> Result<Vec<AccessRule>, String> {
    let record: AccessRecord = decode(bytes)?;
    let rule = |rule: RuleRecord| -> Result<AccessRule, String> {
        Ok(AccessRule {
            member: Member::parse(&rule.member).ok_or_else(|| format!("member {:?}", rule.member))?,
            rights: Rights::from_bits(rule.rights).ok_or_else(|| format!("rights {}", rule.rights))?,
            families: rule.families,
            row_prefix: rule.row_prefix,
        })
    };
    let rules = record.rules.into_iter().map(rule).collect::<Result<Vec<_>, _>>()?;
    check_rules(resource, &rules)?;
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte for byte. A change of these bytes is a new version.
    const RULES: &[u8] = b"\x01\x0a\x15\x0a\x0auser:alice\x10\x03\x1a\x01f\"\x02ab\
        \x0a\x19\x0a\x15allAuthenticatedUsers\x10\x08";

    fn rules() -> Vec<AccessRule> {
        let narrow = AccessRule {
            families: vec!["f".into()],
            row_prefix: Bytes::from_static(b"ab"),
            ..AccessRule::whole(Member::User("alice".into()), Rights::READ.and(Rights::WRITE))
        };
        vec![narrow, AccessRule::whole(Member::Authenticated, Rights::VIEW)]
    }

    #[test]
    fn rules_are_stored_byte_for_byte() {
        let table = Resource::Table(TableName::new("n", "t"));
        let encoded = encode_rules(&rules());
        assert_eq!(encoded.escape_ascii().to_string(), RULES.escape_ascii().to_string());
        assert_eq!(decode_rules(&table, &encoded).unwrap(), rules());
        assert!(
            decode_rules(&Resource::Cluster, &encoded)
                .unwrap_err()
                .contains("narrowed")
        );
    }

    #[test]
    fn rules_that_are_not_understood_are_refused() {
        let table = Resource::Table(TableName::new("n", "t"));
        for (from, to) in [("user:", "uSer:"), ("\x10\x08", "\x10\x18"), ("\x10\x08", "\x10\x00")] {
            let encoded = encode_rules(&rules());
            let at = encoded.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            let mut changed = encoded.to_vec();
            changed[at..at + to.len()].copy_from_slice(to.as_bytes());
            assert!(decode_rules(&table, &changed).is_err(), "{to:?}");
        }
    }

    #[test]
    fn keys_have_one_spelling() {
        let snapshot = Resource::Snapshot {
            namespace: "n".into(),
            name: "s".into(),
        };
        let table = Resource::Table(TableName::new("n", "t"));
        let view = Resource::View {
            table: TableName::new("n", "t"),
            view: "v".into(),
        };
        for resource in [
            Resource::Cluster,
            Resource::Namespace("n".into()),
            table,
            view,
            snapshot,
        ] {
            assert_eq!(parse_access_key(&access_key(&resource)), Some(resource));
        }
        for key in [
            "catalog/access/",
            "catalog/access/cluster/",
            "catalog/access/table/t",
            "catalog/access/view/n/t",
            "x",
        ] {
            assert_eq!(parse_access_key(key), None, "{key}");
        }
    }
}
