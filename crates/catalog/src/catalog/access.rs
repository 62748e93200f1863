//! Records of access rules.

use super::{Catalog, Result};
use crate::error::CatalogError;
use crate::record;
use crate::record::access::{self, access_key, decode_rules, encode_rules};
use crate::view::{AccessView, ResourceRules};
use std::sync::Arc;
use stele_coord::{Condition, Coord, Write};
use stele_types::{AccessRule, Resource};

/// All rules.
pub(super) async fn load(coord: &dyn Coord) -> Result<AccessView> {
    let mut all = AccessView::new();
    for (key, versioned) in coord.list(access::ACCESS).await? {
        let corruption = |detail: String| CatalogError::Corruption {
            key: key.clone(),
            detail,
        };
        let resource = access::parse_access_key(&key).ok_or_else(|| corruption("not a key of access rules".into()))?;
        let rules = decode_rules(&resource, &versioned.value).map_err(corruption)?;
        let version = versioned.version;
        let rules = rules.into();
        all.insert(resource, ResourceRules { rules, version });
    }
    Ok(all)
}

impl Catalog {
    /// Replaces the rules of a resource. `former` is the version that the caller has read, 0 for no rules; `None` replaces any.
    pub async fn set_rules(&self, resource: &Resource, rules: Vec<AccessRule>, former: Option<u64>) -> Result<u64> {
        let mut conditions = self.existence(resource)?;
        let key = access_key(resource);
        let now = self.view().access.get(resource).map_or(0, |found| found.version);
        if former.is_some_and(|former| former != now) {
            return Err(CatalogError::Conflict { key });
        }
        conditions.push(match now {
            0 => Condition::absent(&key),
            version => Condition::version(&key, version),
        });
        let write = match rules.is_empty() {
            true => Write::Delete { key },
            false => Write::Put {
                key,
                value: encode_rules(&rules),
            },
        };
        if rules.is_empty() && now == 0 {
            return Ok(0);
        }
        let version = self.commit(conditions, vec![write]).await?;
        let version = if rules.is_empty() { 0 } else { version };
        self.change_rules(|all| {
            match rules.is_empty() {
                true => all.remove(resource),
                false => all.insert(
                    resource.clone(),
                    ResourceRules {
                        rules: rules.into(),
                        version,
                    },
                ),
            };
        });
        Ok(version)
    }

    /// The condition that the resource stays while its rules change.
    fn existence(&self, resource: &Resource) -> Result<Vec<Condition>> {
        Ok(match resource {
            Resource::Cluster => Vec::new(),
            Resource::Namespace(name) => match self.view().namespaces.contains_key(name) {
                true => Vec::new(),
                false => return Err(CatalogError::NoNamespace(name.clone())),
            },
            Resource::Table(name) => {
                vec![Condition::version(record::table_key(name), self.table(name)?.version)]
            }
            Resource::View { table, view } => {
                let entry = self.table(table)?;
                if !entry.schema.views.contains_key(view) {
                    return Err(CatalogError::NoView(table.clone(), view.clone()));
                }
                vec![Condition::version(record::table_key(table), entry.version)]
            }
            Resource::Snapshot { namespace, name } => {
                let version = self.snapshot(namespace, name)?.version;
                vec![Condition::version(record::snapshot_key(namespace, name), version)]
            }
        })
    }

    /// The rules of a resource that is made, if it gets some.
    pub(super) fn rules_come(&self, resource: &Resource, rules: &[AccessRule]) -> Option<(Condition, Write)> {
        let key = access_key(resource);
        let condition = match self.view().access.get(resource) {
            None => Condition::absent(&key),
            Some(found) => Condition::version(&key, found.version),
        };
        let value = encode_rules(rules);
        (!rules.is_empty()).then_some((condition, Write::Put { key, value }))
    }

    /// The same in memory.
    pub(super) fn rules_came(&self, resource: &Resource, rules: &[AccessRule], version: u64) {
        if !rules.is_empty() {
            let rules = rules.into();
            self.change_rules(|all| {
                all.insert(resource.clone(), ResourceRules { rules, version });
            });
        }
    }

    /// Reads the rules of a resource that was made by a change of unknown outcome.
    pub(super) async fn read_rules(&self, resource: &Resource) -> Result<()> {
        let key = access_key(resource);
        if let Some(found) = self.coord.get(&key).await? {
            let rules = decode_rules(resource, &found.value);
            let rules = rules.map_err(|detail| CatalogError::Corruption { key, detail })?;
            self.rules_came(resource, &rules, found.version);
        }
        Ok(())
    }

    /// The removal of the rules of a resource that goes, if it has some. Another resource of its name must not have them.
    pub(super) fn rules_go(&self, resource: &Resource) -> Option<Write> {
        let key = access_key(resource);
        // A view that follows the records lacks those that it cannot read.
        let may_have = self.shown.following.is_some() || self.view().access.contains_key(resource);
        may_have.then_some(Write::Delete { key })
    }

    /// The same in memory.
    pub(super) fn rules_gone(&self, resource: &Resource) {
        if self.view().access.contains_key(resource) {
            self.change_rules(|all| {
                all.remove(resource);
            });
        }
    }

    fn change_rules(&self, change: impl FnOnce(&mut AccessView)) {
        self.change(|view| {
            let mut all = AccessView::clone(&view.access);
            change(&mut all);
            view.access = Arc::new(all);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use stele_coord::EmbeddedCoord;
    use stele_env::tokio_env::TokioRuntime;
    use stele_storage::memory::MemoryStorage;
    use stele_types::{Member, Rights};

    fn rule(name: &str) -> AccessRule {
        AccessRule::whole(Member::User(name.into()), Rights::READ)
    }

    #[tokio::test]
    async fn rules_are_replaced_by_version_and_survive_a_start() {
        let coord = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
        let coord: Arc<dyn Coord> = coord.await.unwrap();
        let catalog = Catalog::load(Arc::clone(&coord)).await.unwrap();
        let namespace = Resource::Namespace("n".into());
        let missing = catalog.set_rules(&namespace, vec![rule("a")], None).await;
        assert!(matches!(missing, Err(CatalogError::NoNamespace(_))));
        catalog.create_namespace("n", Bytes::new()).await.unwrap();
        let first = catalog.set_rules(&namespace, vec![rule("a")], Some(0)).await.unwrap();
        let stale = catalog.set_rules(&namespace, vec![rule("b")], Some(0)).await;
        assert!(matches!(stale, Err(CatalogError::Conflict { .. })));
        let second = catalog
            .set_rules(&namespace, vec![rule("b")], Some(first))
            .await
            .unwrap();
        let again = Catalog::load(Arc::clone(&coord)).await.unwrap();
        let loaded = again.view().access.get(&namespace).cloned().unwrap();
        assert_eq!((&loaded.rules[..], loaded.version), (&[rule("b")][..], second));
        assert_eq!(again.set_rules(&namespace, Vec::new(), None).await.unwrap(), 0);
        assert!(again.view().access.is_empty());
    }

    #[tokio::test]
    async fn a_table_is_made_with_its_rules_or_not_at_all() {
        use crate::catalog::tests::schema;
        use stele_types::{RowRange, TabletId};
        let coord = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
        let coord: Arc<dyn Coord> = coord.await.unwrap();
        let catalog = Catalog::load(Arc::clone(&coord)).await.unwrap();
        let other = Catalog::load(Arc::clone(&coord)).await.unwrap();
        let whole = |id| vec![(TabletId(id), RowRange::all())];
        let before = coord.list("").await.unwrap().len();
        let rules = [[rule("a")], [rule("b")]];
        let made = catalog.create_table_with_rules(schema(1, 1), whole(10), &rules[0]);
        made.await.unwrap();
        let resource = Resource::Table(schema(1, 1).name);
        let loaded = Catalog::load(Arc::clone(&coord)).await.unwrap();
        for catalog in [&catalog, &loaded] {
            assert_eq!(catalog.view().access[&resource].rules[..], [rule("a")]);
        }
        // One transaction gave both records their version.
        let version = loaded.table(&schema(1, 1).name).unwrap().version;
        assert_eq!(loaded.view().access[&resource].version, version);
        let second = other.create_table_with_rules(schema(2, 1), whole(20), &rules[1]);
        assert!(matches!(second.await, Err(CatalogError::Conflict { .. })));
        assert!(other.view().access.is_empty(), "the table was not made");
        catalog.delete_table(&schema(1, 1).name).await.unwrap();
        let left = coord.list("").await.unwrap().len();
        assert_eq!(left, before + 1, "the namespace alone is left");
    }

    #[tokio::test]
    async fn rules_go_with_their_resource() {
        let coord = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
        let coord: Arc<dyn Coord> = coord.await.unwrap();
        let catalog = Catalog::load(Arc::clone(&coord)).await.unwrap();
        catalog.create_namespace("n", Bytes::new()).await.unwrap();
        let namespace = Resource::Namespace("n".into());
        catalog.set_rules(&namespace, vec![rule("a")], None).await.unwrap();
        catalog.delete_namespace("n").await.unwrap();
        catalog.create_namespace("n", Bytes::new()).await.unwrap();
        assert!(catalog.view().access.is_empty());
        assert!(Catalog::load(coord).await.unwrap().view().access.is_empty());
    }
}
