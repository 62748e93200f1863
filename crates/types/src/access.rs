//! Access rules: the rights of members on resources.
//!
//! A *rule* gives rights to a member. It belongs to a *resource*: the whole cluster, a namespace, a table, an authorized view of
//! a table, or a snapshot. A rule of a resource holds for all that the resource contains. A rule of a table can be narrowed to
//! some families and to rows with a prefix. Rules only give: without a rule nothing is allowed.

use crate::ids::TableName;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of the longest name of a member.
pub const MEMBER_BYTES_MAX: usize = 256;

/// Rules of one resource: as many as an operator can still read.
pub const RULES_MAX: usize = 256;

/// Bytes of all rules of a resource, far below a transaction of the catalog.
pub const RULES_BYTES_MAX: usize = 128 << 10;

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Rights(u8);

impl TryFrom<u32> for Rights {
    type Error = String;

    fn try_from(bits: u32) -> Result<Self, String> {
        Rights::from_bits(bits).ok_or_else(|| format!("rights {bits}"))
    }
}

impl From<Rights> for u32 {
    fn from(rights: Rights) -> u32 {
        rights.bits()
    }
}

impl Rights {
    /// None.
    pub const NONE: Rights = Rights(0);
    /// Reading cells.
    pub const READ: Rights = Rights(1);
    /// Writing and deleting cells.
    pub const WRITE: Rights = Rights(2);
    /// Making, changing and dropping the content of the resource, and changing its rules.
    pub const ADMIN: Rights = Rights(4);
    /// Seeing that a resource exists, and its properties. Every other right includes it.
    pub const VIEW: Rights = Rights(8);
    /// All.
    pub const ALL: Rights = Rights(15);

    /// Each right with its name.
    const NAMED: [(&str, Rights); 4] = [
        ("read", Rights::READ),
        ("write", Rights::WRITE),
        ("admin", Rights::ADMIN),
        ("view", Rights::VIEW),
    ];

    /// From the number of [`Rights::bits`]; `None` for a number of no rights.
    pub fn from_bits(bits: u32) -> Option<Self> {
        let bits = u8::try_from(bits).ok()?;
        (bits & !Rights::ALL.0 == 0).then_some(Rights(bits))
    }

    /// The number of a set: 1 read, 2 write, 4 admin, 8 view.
    pub fn bits(self) -> u32 {
        u32::from(self.0)
    }

    /// The rights of either.
    #[must_use]
    pub const fn and(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    /// These without those of another set.
    #[must_use]
    pub fn without(self, other: Rights) -> Rights {
        Rights(self.0 & !other.0)
    }

    /// Whether it has all of these.
    pub fn has(self, wanted: Rights) -> bool {
        let own = if self.0 == 0 { self } else { self.and(Rights::VIEW) };
        own.0 & wanted.0 == wanted.0
    }

    /// Whether it has none.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The names of the rights that were given: `view` only if it was given by name.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let given = Rights::NAMED
            .into_iter()
            .filter(move |(_, right)| self.0 & right.0 != 0);
        given.map(|(name, _)| name)
    }

    /// The rights of these names. An error is a sentence about the first name that is not known.
    pub fn of_names(names: &[String]) -> Result<Rights, String> {
        names.iter().try_fold(Rights::NONE, |rights, name| {
            let known = Rights::NAMED.iter().find(|(known, _)| known == name);
            let (_, right) = known.ok_or_else(|| format!("right {name:?} is not known"))?;
            Ok(rights.and(*right))
        })
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names().collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join("+"))
    }
}

/// Those that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Member {
    /// The caller of this name.
    User(String),
    /// The caller of this name, which an operator calls a service account.
    ServiceAccount(String),
    /// The callers whose credentials say that they are in the group of this name.
    Group(String),
    /// The callers whose names end in `@` and this domain.
    Domain(String),
    /// Every known caller.
    Authenticated,
}

impl Member {
    /// Whether a caller of this name, in these groups, is meant.
    pub fn is(&self, name: &str, groups: &[String]) -> bool {
        match self {
            Member::User(member) | Member::ServiceAccount(member) => member == name,
            Member::Group(member) => groups.contains(member),
            Member::Domain(domain) => name.rsplit_once('@').is_some_and(|(_, of)| of == domain),
            Member::Authenticated => true,
        }
    }

    /// From text as of [`fmt::Display`]; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let name = |name: &str| {
            let fits = !name.is_empty() && name.len() <= MEMBER_BYTES_MAX && !name.chars().any(char::is_control);
            fits.then(|| name.to_owned())
        };
        match text.split_once(':') {
            Some(("user", member)) => name(member).map(Member::User),
            Some(("serviceAccount", member)) => name(member).map(Member::ServiceAccount),
            Some(("group", member)) => name(member).map(Member::Group),
            Some(("domain", member)) if !member.contains('@') => name(member).map(Member::Domain),
            None if text == ALL_AUTHENTICATED => Some(Member::Authenticated),
            _ => None,
        }
    }
}

/// How [`Member::Authenticated`] is spelled, as in Google's policies.
const ALL_AUTHENTICATED: &str = "allAuthenticatedUsers";

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Member::User(name) => write!(f, "user:{name}"),
            Member::ServiceAccount(name) => write!(f, "serviceAccount:{name}"),
            Member::Group(name) => write!(f, "group:{name}"),
            Member::Domain(name) => write!(f, "domain:{name}"),
            Member::Authenticated => f.write_str(ALL_AUTHENTICATED),
        }
    }
}

/// A part of the cluster that rules belong to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Resource {
    /// Everything.
    Cluster,
    /// A namespace with its tables and snapshots; an instance of Bigtable.
    Namespace(String),
    /// A table.
    Table(TableName),
    /// An authorized view of a table. A rule of it gives rights through the view alone.
    View {
        /// The table.
        table: TableName,
        /// The name of the view.
        view: String,
    },
    /// A snapshot or backup.
    Snapshot {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Resource {
    /// The name of [`Resource::Cluster`] in requests about rules. No new namespace may have it.
    pub const CLUSTER: &str = "cluster";
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Cluster => f.write_str("the cluster"),
            Resource::Namespace(name) => write!(f, "namespace {name}"),
            Resource::Table(name) => write!(f, "table {name}"),
            Resource::View { table, view } => write!(f, "view {view} of table {table}"),
            Resource::Snapshot { namespace, name } => write!(f, "snapshot {namespace}/{name}"),
        }
    }
}

/// One rule of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessRule {
    /// Those it is for.
    pub member: Member,
    /// Their rights.
    pub rights: Rights,
    /// The families of a table that it is narrowed to; none for all.
    pub families: Vec<String>,
    /// The prefix of rows of a table that it is narrowed to; empty for all.
    pub row_prefix: Bytes,
}

impl AccessRule {
    /// A rule for the whole resource.
    pub fn whole(member: Member, rights: Rights) -> Self {
        AccessRule {
            member,
            rights,
            families: Vec::new(),
            row_prefix: Bytes::new(),
        }
    }

    /// Whether it is for the whole resource.
    pub fn is_whole(&self) -> bool {
        self.families.is_empty() && self.row_prefix.is_empty()
    }
}

/// Checks the rules of a resource; the error names the fault.
pub fn check_rules(resource: &Resource, rules: &[AccessRule]) -> Result<(), String> {
    if rules.len() > RULES_MAX {
        return Err(format!("{} rules of {resource}; the limit is {RULES_MAX}", rules.len()));
    }
    let mut bytes = 0;
    for rule in rules {
        if Member::parse(&rule.member.to_string()).as_ref() != Some(&rule.member) {
            return Err("a member needs a name of 1 to 256 bytes without control characters".to_owned());
        }
        if rule.rights.is_none() {
            return Err(format!("a rule for {} gives no right", rule.member));
        }
        if !rule.is_whole() && !matches!(resource, Resource::Table(_)) {
            return Err(format!("a rule of {resource} cannot be narrowed to families or rows"));
        }
        if !rule.is_whole() && rule.rights.has(Rights::ADMIN) {
            return Err("the right admin cannot be narrowed to families or rows".to_owned());
        }
        bytes += 64 + rule.member.to_string().len() + rule.row_prefix.len();
        bytes += rule.families.iter().map(|family| family.len() + 8).sum::<usize>();
    }
    match bytes > RULES_BYTES_MAX {
        true => Err(format!(
            "the rules of {resource} take more than {RULES_BYTES_MAX} bytes"
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_right_includes_view() {
        for bits in 1..=15 {
            assert!(Rights::from_bits(bits).unwrap().has(Rights::VIEW), "{bits}");
        }
        assert!(!Rights::NONE.has(Rights::VIEW) && Rights::NONE.has(Rights::NONE));
        assert!(!Rights::READ.has(Rights::WRITE) && !Rights::ADMIN.has(Rights::READ));
        assert_eq!(Rights::from_bits(16), None);
        assert_eq!(Rights::READ.and(Rights::WRITE).to_string(), "read+write");
    }

    #[test]
    fn rights_have_names() {
        for bits in 0..=15 {
            let rights = Rights::from_bits(bits).unwrap();
            let names: Vec<String> = rights.names().map(str::to_owned).collect();
            assert_eq!(names.len(), bits.count_ones() as usize);
            assert_eq!(Rights::of_names(&names), Ok(rights));
        }
        let unknown = ["read".to_owned(), "Write".to_owned()];
        assert_eq!(
            Rights::of_names(&unknown),
            Err("right \"Write\" is not known".to_owned())
        );
    }

    #[test]
    fn members_have_one_spelling() {
        for text in [
            "user:alice@example.com",
            "serviceAccount:a:b",
            "group:g",
            "domain:example.com",
            "allAuthenticatedUsers",
        ] {
            assert_eq!(Member::parse(text).unwrap().to_string(), text);
        }
        let long = format!("user:{}", "n".repeat(257));
        for text in [
            "alice",
            "user:",
            "allUsers",
            "group:",
            "domain:",
            "domain:a@b",
            "user:a\nb",
            "",
            &long,
        ] {
            assert_eq!(Member::parse(text), None, "{text}");
        }
        assert!(Member::Authenticated.is("anyone", &[]) && !Member::User("a".into()).is("b", &["a".into()]));
        let domain = Member::Domain("b.org".into());
        assert!(domain.is("a@b.org", &[]) && domain.is("x@a@b.org", &[]));
        for other in ["b.org", "a@ab.org", "a@b.org.c", "a@b.org@c", "a@B.org"] {
            assert!(!domain.is(other, &["b.org".into()]), "{other}");
        }
        assert!(Member::Group("a".into()).is("b", &["a".into()]) && !Member::Group("b".into()).is("b", &[]));
    }

    #[test]
    fn only_rules_of_tables_are_narrow() {
        let rule = AccessRule {
            families: vec!["f".into()],
            ..AccessRule::whole(Member::Authenticated, Rights::READ)
        };
        let table = Resource::Table(TableName::new("n", "t"));
        assert!(check_rules(&table, std::slice::from_ref(&rule)).is_ok());
        for resource in [Resource::Cluster, Resource::Namespace("n".into())] {
            assert!(
                check_rules(&resource, std::slice::from_ref(&rule))
                    .unwrap_err()
                    .contains("narrowed")
            );
        }
        let admin = AccessRule {
            rights: Rights::ADMIN,
            ..rule.clone()
        };
        assert!(check_rules(&table, &[admin]).is_err());
        let none = AccessRule::whole(Member::Authenticated, Rights::NONE);
        assert!(check_rules(&table, &[none]).is_err());
        let large = AccessRule {
            row_prefix: vec![b'r'; RULES_BYTES_MAX].into(),
            ..rule.clone()
        };
        assert!(check_rules(&table, &[large]).is_err());
        assert!(check_rules(&table, &vec![rule; RULES_MAX + 1]).is_err());
    }
}
