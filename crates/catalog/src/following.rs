//! The catalog of a cluster in memory: it follows the records by a watch.
//!
//! The leader changes records, and learns of its own changes like everybody else. So there is one way from records to the
//! view. A change of a table comes in several events. While its tablets leave a hole or overlap, the view keeps the former
//! table. The owner of a tablet is known from its event on.
//!
//! A record that cannot be read is of a newer version, or damaged. Of access rules it gives no right. Any other one leaves the
//! former record in force, in an event and when records are listed again. A listing without former records fails, except for
//! access rules and switches: no row and no file depends on these.

use crate::error::CatalogError;
use crate::record::access::{self, decode_rules, parse_access_key};
use crate::record::switches::{SWITCHES, decode_switches};
use crate::record::{self, NamespaceRecord};
use crate::view::{AccessView, CatalogView, ResourceRules, SnapshotEntry, TableEntry, TabletEntry};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use stele_assignment::Owner;
use stele_coord::{Condition, Versioned, WatchEvent};
use stele_types::{Switches, TableId, TableName, TableSchema, TabletId};
use tokio::sync::watch;

/// Told of changed schemas before the view has them.
#[async_trait]
pub trait SchemaListener: Send + Sync + 'static {
    /// Tablets of the table that are served here shall obey this schema when this returns.
    async fn changed(&self, schema: Arc<TableSchema>);
}

/// Knows the owners of new tablets until their records exist.
pub trait Homes: Send + Sync + 'static {
    /// The server that made a tablet and serves it, or will.
    fn home_of(&self, tablet: TabletId) -> Option<Owner>;
}

/// The right to change records.
pub(crate) struct Leading {
    /// Fails once another server leads.
    pub(crate) fence: Condition,
    pub(crate) homes: Arc<dyn Homes>,
}

/// The shared state of a catalog that follows records.
pub(crate) struct Following {
    /// The owner of each tablet that has one.
    pub(crate) owners: RwLock<HashMap<TabletId, Owner>>,
    /// The revision up to which the view is complete.
    pub(crate) applied: watch::Sender<u64>,
}

impl Default for Following {
    fn default() -> Self {
        Following {
            owners: RwLock::default(),
            applied: watch::Sender::new(0),
        }
    }
}

/// The table of a record.
#[derive(Clone)]
struct Table {
    schema: Arc<TableSchema>,
    set: TableId,
    version: u64,
}

/// The records, decoded.
#[derive(Default)]
pub(crate) struct Records {
    tables: BTreeMap<TableName, Table>,
    tablets: BTreeMap<TableId, BTreeMap<TabletId, TabletEntry>>,
    namespaces: BTreeMap<String, (NamespaceRecord, u64)>,
    snapshots: BTreeMap<(String, String), Arc<SnapshotEntry>>,
    rules: AccessView,
    /// With the version of their record, 0 if there is none.
    switches: (Switches, u64),
    /// The table that names a set.
    named_by: HashMap<TableId, TableName>,
    /// The keys of records of tables and tablets that cannot be read.
    unreadable: BTreeSet<String>,
    /// Tables whose tablets leave a hole or overlap.
    torn: BTreeSet<TableName>,
    dirty: Dirty,
}

/// The parts of the view that changed records concern.
#[derive(Default)]
struct Dirty {
    tables: BTreeSet<TableName>,
    others: bool,
    rules: bool,
}

fn corruption(key: &str, detail: String) -> CatalogError {
    CatalogError::Corruption {
        key: key.to_owned(),
        detail,
    }
}

/// Logs that a record cannot be read, where the others are followed.
pub(crate) fn note_unreadable(error: &CatalogError) {
    tracing::error!(%error, "a catalog record cannot be read: the former one stays in force, or no rule if it is one of access rules");
}

/// The table name of a key.
fn name_of(key: &str) -> Option<TableName> {
    let (namespace, table) = key.strip_prefix(record::TABLES)?.split_once('/')?;
    Some(TableName::new(namespace, table))
}

/// The namespace and the name of the key of a snapshot.
fn snapshot_of(key: &str) -> Option<(String, String)> {
    let (namespace, name) = key.strip_prefix(record::SNAPSHOTS)?.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

impl Records {
    /// The records of a listing of `catalog/`. Access rules and switches that cannot be read are none.
    pub(crate) fn of_listing(listing: Vec<(String, Versioned)>) -> Result<Records, CatalogError> {
        let mut records = Records::default();
        for (key, current) in listing {
            match records.put(&key, &current) {
                Err(error) if key.starts_with(access::ACCESS) || key == SWITCHES => note_unreadable(&error),
                taken => taken?,
            }
        }
        Ok(records)
    }

    /// The records of another listing. One that cannot be read stays as it was, and access rules give no right.
    pub(crate) fn listed_again(&self, listing: Vec<(String, Versioned)>) -> Records {
        let mut records = Records::default();
        for (key, current) in listing {
            if let Err(error) = records.put(&key, &current) {
                note_unreadable(&error);
                records.keep(&key, self);
                records.mark_unreadable(&key);
            }
        }
        records
    }

    fn mark_unreadable(&mut self, key: &str) {
        if key.starts_with(record::TABLES) || key.starts_with(record::TABLETS) {
            self.unreadable.insert(key.to_owned());
        }
    }

    /// Takes the former record of a key over, if there is one.
    fn keep(&mut self, key: &str, former: &Records) {
        if let Some((set, id)) = record::parse_tablet_key(key) {
            let known = former.tablets.get(&set).and_then(|of_set| of_set.get(&id));
            if let Some(tablet) = known {
                self.tablets.entry(set).or_default().insert(id, tablet.clone());
            }
        } else if let Some(name) = name_of(key) {
            if let Some(table) = former.tables.get(&name) {
                self.named_by.insert(table.set, name.clone());
                self.tables.insert(name, table.clone());
            }
        } else if let Some(name) = key.strip_prefix(record::NAMESPACES) {
            let known = former.namespaces.get(name).cloned();
            self.namespaces.extend(known.map(|known| (name.to_owned(), known)));
        } else if let Some(name) = snapshot_of(key) {
            let known = former.snapshots.get(&name).cloned();
            self.snapshots.extend(known.map(|known| (name, known)));
        } else if key == SWITCHES {
            self.switches = former.switches;
        }
    }

    /// Takes an event in. An event that is older than the record is ignored.
    pub(crate) fn apply(&mut self, event: &WatchEvent) -> Result<(), CatalogError> {
        match event {
            WatchEvent::Put { key, current } => {
                let taken = self.put(key, current);
                match taken.is_ok() {
                    true => drop(self.unreadable.remove(key)),
                    false => self.mark_unreadable(key),
                }
                taken
            }
            WatchEvent::Deleted { key, revision } => {
                self.delete(key, *revision);
                self.unreadable.remove(key);
                Ok(())
            }
            WatchEvent::Resync => Ok(()),
        }
    }

    fn put(&mut self, key: &str, current: &Versioned) -> Result<(), CatalogError> {
        let (value, version) = (&current.value, current.version);
        let refuse = |detail: String| corruption(key, detail);
        if let Some((set, id)) = record::parse_tablet_key(key) {
            let (range, assignment) = record::decode_tablet(value).map_err(refuse)?;
            let of_set = self.tablets.entry(set).or_default();
            if of_set.get(&id).is_none_or(|known| known.version <= version) {
                let entry = TabletEntry {
                    id,
                    range,
                    assignment,
                    version,
                };
                of_set.insert(id, entry);
                self.dirty.tables.extend(self.named_by.get(&set).cloned());
            }
        } else if let Some(name) = name_of(key) {
            let (schema, set) = record::decode_table(value).map_err(refuse)?;
            if schema.name != name {
                return Err(corruption(key, format!("the record is of table {}", schema.name)));
            }
            let former = self.tables.get(&name);
            if former.is_none_or(|known| known.version <= version) {
                if let Some(former) = former {
                    self.named_by.remove(&former.set);
                }
                self.named_by.insert(set, name.clone());
                let schema = Arc::new(schema);
                self.tables.insert(name.clone(), Table { schema, set, version });
                self.dirty.tables.insert(name);
            }
        } else if let Some(name) = key.strip_prefix(record::NAMESPACES) {
            let namespace: NamespaceRecord = record::decode(value).map_err(refuse)?;
            if self.namespaces.get(name).is_none_or(|(_, known)| *known <= version) {
                self.namespaces.insert(name.to_owned(), (namespace, version));
                self.dirty.others = true;
            }
        } else if let Some(name) = snapshot_of(key) {
            let entry = record::decode_snapshot(value, version).map_err(refuse)?;
            if self.snapshots.get(&name).is_none_or(|known| known.version <= version) {
                self.snapshots.insert(name, Arc::new(entry));
                self.dirty.others = true;
            }
        } else if key.starts_with(access::ACCESS) {
            self.put_rules(key, current)?;
        } else if key == SWITCHES && self.switches.1 <= version {
            self.switches = (decode_switches(value).map_err(refuse)?, version);
            self.dirty.others = true;
        }
        Ok(())
    }

    /// Rules that cannot be read are none: they give no right then, while the former ones might give one that was taken.
    fn put_rules(&mut self, key: &str, current: &Versioned) -> Result<(), CatalogError> {
        let Some(resource) = parse_access_key(key) else {
            return Err(corruption(key, "not a key of access rules".to_owned()));
        };
        let version = current.version;
        if self.rules.get(&resource).is_some_and(|known| known.version > version) {
            return Ok(());
        }
        self.dirty.rules = true;
        match decode_rules(&resource, &current.value) {
            Ok(rules) => {
                let rules = rules.into();
                self.rules.insert(resource, ResourceRules { rules, version });
                Ok(())
            }
            Err(detail) => {
                self.rules.remove(&resource);
                Err(corruption(key, detail))
            }
        }
    }

    fn delete(&mut self, key: &str, revision: u64) {
        if let Some((set, id)) = record::parse_tablet_key(key) {
            if let Some(of_set) = self.tablets.get_mut(&set) {
                if of_set.get(&id).is_some_and(|known| known.version < revision) {
                    of_set.remove(&id);
                    self.dirty.tables.extend(self.named_by.get(&set).cloned());
                }
                if of_set.is_empty() {
                    self.tablets.remove(&set);
                }
            }
        } else if let Some(name) = name_of(key) {
            if let Some(known) = self.tables.get(&name).filter(|known| known.version < revision) {
                self.named_by.remove(&known.set);
                self.tables.remove(&name);
                self.dirty.tables.insert(name);
            }
        } else if let Some(name) = key.strip_prefix(record::NAMESPACES) {
            if self.namespaces.get(name).is_some_and(|(_, known)| *known < revision) {
                self.namespaces.remove(name);
                self.dirty.others = true;
            }
        } else if let Some(name) = snapshot_of(key)
            && self.snapshots.get(&name).is_some_and(|known| known.version < revision)
        {
            self.snapshots.remove(&name);
            self.dirty.others = true;
        } else if let Some(resource) = parse_access_key(key)
            && self.rules.get(&resource).is_some_and(|known| known.version < revision)
        {
            self.rules.remove(&resource);
            self.dirty.rules = true;
        } else if key == SWITCHES && self.switches.1 < revision {
            self.switches = (Switches::default(), revision);
            self.dirty.others = true;
        }
    }

    /// The owners of all tablets.
    pub(crate) fn owners(&self) -> HashMap<TabletId, Owner> {
        let tablets = self.tablets.values().flat_map(BTreeMap::values);
        let owned = tablets.filter_map(|tablet| Some((tablet.id, tablet.assignment.owner?)));
        owned.collect()
    }

    /// The tablet of a key that an event named, and its owner.
    pub(crate) fn owner_at(&self, key: &str) -> Option<(TabletId, Option<Owner>)> {
        let (set, id) = record::parse_tablet_key(key)?;
        let found = self.tablets.get(&set).and_then(|tablets| tablets.get(&id));
        Some((id, found.and_then(|tablet| tablet.assignment.owner)))
    }

    /// Everything is to be built again.
    pub(crate) fn touch_all(&mut self, view: &CatalogView) {
        self.dirty.tables.extend(self.tables.keys().cloned());
        self.dirty.tables.extend(view.tables.keys().cloned());
        self.dirty.others = true;
        self.dirty.rules = true;
    }

    /// Schemas that are to replace those of the view. Those of tables that it does not show yet are among them: this server may have
    /// made tablets of such a table already, and a change may come together with the creation.
    pub(crate) fn changed_schemas(&self, view: &CatalogView) -> Vec<Arc<TableSchema>> {
        let changed = |name: &TableName| {
            let next = &self.tables.get(name)?.schema;
            let shown = view.table(name).filter(|shown| shown.schema.id == next.id);
            let is_newer = shown.is_none_or(|shown| shown.schema.version < next.version);
            is_newer.then(|| next.clone())
        };
        self.dirty.tables.iter().filter_map(changed).collect()
    }

    /// Brings a view up to date with the events since the last time.
    pub(crate) fn update(&mut self, view: &mut CatalogView) {
        let Dirty { tables, others, rules } = std::mem::take(&mut self.dirty);
        for name in tables {
            let Some(table) = self.tables.get(&name) else {
                view.tables.remove(&name);
                self.torn.remove(&name);
                continue;
            };
            let tablets = self.tablets.get(&table.set);
            let tablets = tablets
                .map(|tablets| tablets.values().cloned().collect())
                .unwrap_or_default();
            match TableEntry::new(table.schema.clone(), table.version, tablets) {
                Ok(entry) => {
                    self.torn.remove(&name);
                    view.tables.insert(name, Arc::new(entry.of_set(table.set)));
                }
                // The rest of the change follows.
                Err(_) => drop(self.torn.insert(name)),
            }
        }
        view.is_outdated = !self.unreadable.is_empty() || !self.torn.is_empty();
        if others {
            let data = |(name, (record, _)): (&String, &(NamespaceRecord, u64))| {
                let data: Bytes = record.front_end_data.clone();
                (name.clone(), (data, record.explicit))
            };
            view.namespaces = self.namespaces.iter().map(data).collect();
            view.snapshots = self.snapshots.clone();
            view.switches = self.switches.0;
        }
        if rules {
            view.access = Arc::new(self.rules.clone());
        }
    }
}
