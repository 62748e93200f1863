//! The rights that the rules give to one caller.
//!
//! Rules of a resource hold for its content, so a right on a table is looked up in three places. Narrowed rules are kept as
//! parts of a table. A *read* of rows may see a family if, for each of its ranges, a part that covers the range has the family.
//! Reads are narrowed to such families. A *write* is allowed as a whole or not at all.
//!
//! Pure.

use std::collections::{BTreeSet, HashMap};
use stele_client::access::AccessView;
use stele_types::{AccessRule, Resource, Rights, RowRange, RowSet, TableName};

/// The rights of one caller.
#[derive(Default)]
pub(crate) struct Grants {
    cluster: Rights,
    namespaces: HashMap<String, Rights>,
    tables: HashMap<TableName, TableGrants>,
    /// Of views by their tables and names, without those of the tables.
    views: HashMap<(TableName, String), Rights>,
    snapshots: HashMap<(String, String), Rights>,
}

#[derive(Default)]
struct TableGrants {
    whole: Rights,
    parts: Vec<Part>,
}

/// Rights on a part of a table.
struct Part {
    rights: Rights,
    /// None for all.
    families: Vec<String>,
    rows: RowRange,
}

/// The rights on one table.
pub(crate) struct TableRights<'g> {
    whole: Rights,
    parts: &'g [Part],
}

/// The families that a call may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Families {
    /// All, also those that are made later.
    All,
    /// These; if it is empty, none.
    Named(BTreeSet<String>),
}

impl Families {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        matches!(self, Families::Named(named) if named.is_empty())
    }

    fn intersect(self, other: Families) -> Families {
        match (self, other) {
            (Families::All, other) => other,
            (own, Families::All) => own,
            (Families::Named(own), Families::Named(other)) => {
                Families::Named(own.intersection(&other).cloned().collect())
            }
        }
    }
}

impl Grants {
    /// Those of a superuser.
    pub fn everything() -> Self {
        Grants {
            cluster: Rights::ALL,
            ..Grants::default()
        }
    }

    /// Those that rules give to the caller of this name, in these groups.
    pub fn of(all: &AccessView, name: &str, groups: &[String]) -> Self {
        let mut grants = Grants::default();
        for (resource, rules) in all {
            for rule in rules.rules.iter().filter(|rule| rule.member.is(name, groups)) {
                grants.add(resource, rule);
            }
        }
        grants
    }

    fn add(&mut self, resource: &Resource, rule: &AccessRule) {
        let rights = match resource {
            Resource::Cluster => &mut self.cluster,
            Resource::Namespace(name) => self.namespaces.entry(name.clone()).or_default(),
            Resource::View { table, view } => self.views.entry((table.clone(), view.clone())).or_default(),
            Resource::Snapshot { namespace, name } => {
                self.snapshots.entry((namespace.clone(), name.clone())).or_default()
            }
            Resource::Table(name) => {
                let table = self.tables.entry(name.clone()).or_default();
                if !rule.is_whole() {
                    table.parts.push(Part {
                        rights: rule.rights,
                        families: rule.families.clone(),
                        rows: RowRange::prefix(&rule.row_prefix),
                    });
                    return;
                }
                &mut table.whole
            }
        };
        *rights = rights.and(rule.rights);
    }

    /// Whether it has a right on the whole cluster.
    pub fn on_cluster(&self, right: Rights) -> bool {
        self.cluster.has(right)
    }

    /// The rights on a whole namespace.
    fn namespace(&self, name: &str) -> Rights {
        let own = self.namespaces.get(name).copied().unwrap_or_default();
        self.cluster.and(own)
    }

    /// Whether it has a right on a whole namespace.
    pub fn on_namespace(&self, name: &str, right: Rights) -> bool {
        self.namespace(name).has(right)
    }

    /// Whether the namespace, or anything in it, may be seen.
    pub fn sees_namespace(&self, name: &str) -> bool {
        self.on_namespace(name, Rights::VIEW)
            || self.tables.keys().any(|table| table.namespace == name)
            || self.views.keys().any(|(table, _)| table.namespace == name)
            || self.snapshots.keys().any(|(namespace, _)| namespace == name)
    }

    /// Whether it has a right on a snapshot.
    pub fn on_snapshot(&self, namespace: &str, name: &str, right: Rights) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        let own = self.snapshots.get(&key).copied().unwrap_or_default();
        self.namespace(namespace).and(own).has(right)
    }

    /// The rights on a table.
    pub fn table(&self, name: &TableName) -> TableRights<'_> {
        let own = self.tables.get(name);
        let whole = own.map_or(Rights::NONE, |table| table.whole);
        TableRights {
            whole: self.namespace(&name.namespace).and(whole),
            parts: own.map_or(&[], |table| &table.parts),
        }
    }

    /// The rights on a table through one of its views. A caller who may use a whole table may use its views.
    pub fn through(&self, table: &TableName, view: &str) -> TableRights<'_> {
        let own = self.views.get(&(table.clone(), view.to_owned()));
        TableRights {
            whole: self.table(table).whole.and(own.copied().unwrap_or_default()),
            parts: &[],
        }
    }

    /// The rights on a whole resource, without those of parts.
    pub fn on(&self, resource: &Resource) -> Rights {
        match resource {
            Resource::Cluster => self.cluster,
            Resource::Namespace(name) => self.namespace(name),
            Resource::Table(name) => self.table(name).whole,
            Resource::View { table, view } => self.through(table, view).whole,
            Resource::Snapshot { namespace, name } => {
                let key = (namespace.clone(), name.clone());
                let own = self.snapshots.get(&key).copied().unwrap_or_default();
                self.namespace(namespace).and(own)
            }
        }
    }
}

impl Grants {
    /// Whether a right holds for a whole resource, or for one family of a table in all of its rows.
    pub fn holds(&self, right: Rights, resource: &Resource, family: Option<&str>) -> bool {
        match (resource, family) {
            (Resource::Table(name), Some(family)) => match self.table(name).families_of(right, &RowRange::all()) {
                Families::All => true,
                Families::Named(named) => named.contains(family),
            },
            _ => self.on(resource).has(right),
        }
    }
}

impl TableRights<'_> {
    /// Whether it has a right on the whole table.
    pub fn has(&self, right: Rights) -> bool {
        self.whole.has(right)
    }

    /// Whether the table may be seen: a right on any part of it is enough.
    pub fn is_seen(&self) -> bool {
        self.whole.has(Rights::VIEW) || !self.parts.is_empty()
    }

    /// The families of all rows of a range that a right holds for.
    pub fn families_of(&self, right: Rights, range: &RowRange) -> Families {
        if self.whole.has(right) {
            return Families::All;
        }
        let mut named = BTreeSet::new();
        for part in self.parts {
            if part.rights.has(right) && covers(&part.rows, range) {
                if part.families.is_empty() {
                    return Families::All;
                }
                named.extend(part.families.iter().cloned());
            }
        }
        Families::Named(named)
    }

    /// The same for all ranges of a set. Of no rows, those of any part.
    pub fn families_of_rows(&self, right: Rights, rows: &RowSet) -> Families {
        let has_part = self.parts.iter().any(|part| part.rights.has(right));
        let none = match self.whole.has(right) || (rows.is_empty() && has_part) {
            true => return Families::All,
            false => Families::Named(BTreeSet::new()),
        };
        let of_each = rows.ranges().iter().map(|range| self.families_of(right, range));
        of_each.reduce(Families::intersect).unwrap_or(none)
    }

    /// Whether a right holds for a family in a row; for the whole row without a family.
    pub fn allows(&self, right: Rights, row: &[u8], family: Option<&str>) -> bool {
        let of_family = |part: &Part| match family {
            None => part.families.is_empty(),
            Some(family) => part.families.is_empty() || part.families.iter().any(|own| own == family),
        };
        let allows = |part: &Part| part.rights.has(right) && part.rows.contains(row) && of_family(part);
        self.whole.has(right) || self.parts.iter().any(allows)
    }
}

/// Whether all rows of `inner` are in `outer`.
fn covers(outer: &RowRange, inner: &RowRange) -> bool {
    let begins = inner.start >= outer.start;
    let ends = match (&outer.end, &inner.end) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(outer), Some(inner)) => inner <= outer,
    };
    begins && ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use stele_client::access::ResourceRules;
    use stele_types::Member;

    fn table() -> TableName {
        TableName::new("n", "t")
    }

    fn part(rights: Rights, families: &[&str], prefix: &'static str) -> AccessRule {
        AccessRule {
            families: families.iter().map(ToString::to_string).collect(),
            row_prefix: Bytes::from_static(prefix.as_bytes()),
            ..AccessRule::whole(Member::User("alice".into()), rights)
        }
    }

    fn grants(rules: Vec<(Resource, AccessRule)>) -> Grants {
        let mut all = AccessView::new();
        for (resource, rule) in rules {
            let entry = all.entry(resource).or_insert(ResourceRules {
                rules: [].into(),
                version: 1,
            });
            entry.rules = entry.rules.iter().cloned().chain([rule]).collect();
        }
        Grants::of(&all, "alice", &["staff".to_owned()])
    }

    fn named(families: &[&str]) -> Families {
        Families::Named(families.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn rights_hold_for_what_a_resource_contains() {
        let of = |resource| grants(vec![(resource, part(Rights::READ, &[], ""))]);
        let other = TableName::new("n", "other");
        let stranger = TableName::new("m", "t");
        let cases = [
            (Resource::Cluster, [true, true, true]),
            (Resource::Namespace("n".into()), [true, true, false]),
            (Resource::Table(table()), [true, false, false]),
        ];
        for (resource, expected) in cases {
            let grants = of(resource.clone());
            let found = [&table(), &other, &stranger].map(|name| grants.table(name).has(Rights::READ));
            assert_eq!(found, expected, "{resource}");
            assert!(!grants.table(&table()).has(Rights::WRITE));
            assert!(grants.sees_namespace("n"));
        }
        assert!(!of(Resource::Table(table())).sees_namespace("m"));
        let snapshot = Resource::Snapshot {
            namespace: "n".into(),
            name: "s".into(),
        };
        let grants = of(snapshot);
        assert!(grants.on_snapshot("n", "s", Rights::READ) && !grants.on_snapshot("n", "x", Rights::VIEW));
        assert!(!grants.table(&table()).is_seen());
    }

    #[test]
    fn rules_of_others_give_nothing() {
        let mut rule = part(Rights::ALL, &[], "");
        rule.member = Member::User("bob".into());
        assert!(!grants(vec![(Resource::Cluster, rule.clone())]).on_cluster(Rights::VIEW));
        rule.member = Member::Group("other".into());
        assert!(!grants(vec![(Resource::Cluster, rule.clone())]).on_cluster(Rights::VIEW));
        for member in [Member::Authenticated, Member::Group("staff".into())] {
            rule.member = member;
            assert!(grants(vec![(Resource::Cluster, rule.clone())]).on_cluster(Rights::ALL));
        }
    }

    #[test]
    fn a_read_sees_the_families_of_every_range() {
        let grants = grants(vec![
            (Resource::Table(table()), part(Rights::READ, &["a"], "")),
            (Resource::Table(table()), part(Rights::READ, &["b"], "x")),
            (Resource::Table(table()), part(Rights::READ, &[], "xy")),
            (Resource::Table(table()), part(Rights::WRITE, &["c"], "")),
        ]);
        let rights = grants.table(&table());
        let prefix = |text: &'static str| RowRange::prefix(&Bytes::from_static(text.as_bytes()));
        assert_eq!(rights.families_of(Rights::READ, &RowRange::all()), named(&["a"]));
        assert_eq!(rights.families_of(Rights::READ, &prefix("x")), named(&["a", "b"]));
        assert_eq!(rights.families_of(Rights::READ, &prefix("xyz")), Families::All);
        let rows = RowSet::new(vec![prefix("w"), prefix("xyz")]);
        assert_eq!(rights.families_of_rows(Rights::READ, &rows), named(&["a"]));
        assert!(!rights.has(Rights::READ) && rights.is_seen());
        assert!(rights.allows(Rights::WRITE, b"q", Some("c")));
        assert!(!rights.allows(Rights::WRITE, b"q", None));
        assert!(!rights.allows(Rights::WRITE, b"xy", Some("a")));
        assert!(rights.allows(Rights::READ, b"xy1", None));
    }

    #[test]
    fn rows_outside_of_a_prefix_are_not_covered() {
        let grants = grants(vec![(Resource::Table(table()), part(Rights::READ, &[], "b"))]);
        let rights = grants.table(&table());
        let range = |start: &'static str, end: Option<&'static str>| RowRange {
            start: Bytes::from_static(start.as_bytes()),
            end: end.map(|end| Bytes::from_static(end.as_bytes())),
        };
        for (range, expected) in [
            (range("b", Some("c")), true),
            (range("ba", Some("bb")), true),
            (range("a", Some("bb")), false),
            (range("ba", Some("ca")), false),
            (range("b", None), false),
            (RowRange::all(), false),
            (RowRange::single(&Bytes::from_static(b"c")), false),
        ] {
            let families = rights.families_of(Rights::READ, &range);
            assert_eq!(!families.is_none(), expected, "{range:?}");
        }
        // A prefix of the greatest bytes has no end.
        let ff = |text: &'static [u8]| RowRange::prefix(&Bytes::from_static(text));
        assert!(covers(&ff(b"\xff"), &ff(b"\xff\xff")) && !covers(&ff(b"\xff\xff"), &ff(b"\xff")));
        assert!(rights.families_of_rows(Rights::WRITE, &RowSet::new(vec![])).is_none());
    }
}
