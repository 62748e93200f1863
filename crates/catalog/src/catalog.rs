//! Changes to the catalog.
//!
//! One [`Catalog`] per process; only the master changes it, one change at a time. A change is made in the coordinator first
//! and in memory when it is durable; one of a schema when tablets know of it as well.

mod access;
mod root;
mod shared;
mod snapshots;
mod switches;

pub use root::{ArchivedChain, EPOCHS, decode_moment, draw_epoch, next_moment, note_moment, noted_moment};
pub use shared::{Follower, Reassignment};

use crate::error::CatalogError;
use crate::following::{Following, Leading};
use crate::record::{self, NamespaceRecord};
use crate::view::{CatalogView, TableEntry, TabletEntry, check_joined};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stele_assignment::Assignment;
use stele_coord::{Condition, Coord, CoordError, TXN_BYTES_MAX, TXN_OPS_MAX, Txn, TxnOutcome, Write, next_epoch};
use stele_types::{AccessRule, Resource, RowRange, TableId, TableName, TableSchema, TabletId};

/// Result of a catalog operation.
pub type Result<T> = std::result::Result<T, CatalogError>;

/// The counter that identifiers of tables and tablets come from.
pub const IDS: &str = "ids";
/// Bits of an identifier behind the number of its block: one call gives a million.
const BLOCK_BITS: u32 = 20;

/// Records changed in one transaction: in a cluster the fence and the mark of a change have a place in it as well.
const RECORDS_TOGETHER: usize = TXN_OPS_MAX - 2;

/// The same in bytes of keys and values.
const RECORDS_BYTES_TOGETHER: usize = TXN_BYTES_MAX - (4 << 10);

/// The number of [`IDS`] that an identifier came from.
pub fn block_of(id: u64) -> u64 {
    id >> BLOCK_BITS
}

/// The catalog. In a cluster each term of a leader has one of its own ([`Catalog::lead`]), with the same view.
pub struct Catalog {
    coord: Arc<dyn Coord>,
    shown: Arc<Shown>,
    /// A transaction failed in a way that leaves its outcome open until another one succeeds.
    unsettled: AtomicBool,
    /// The newest revision of a transaction here.
    committed: AtomicU64,
    /// In a cluster the right to change records, for one term.
    leading: Option<Leading>,
}

/// The records in memory.
struct Shown {
    view: RwLock<Arc<CatalogView>>,
    /// Number of the view. Written under its lock.
    version: AtomicU64,
    /// In a cluster; otherwise this process alone changes the records, and its view with them.
    following: Option<Following>,
    /// Told of every change of the view, under its lock.
    observer: RwLock<Option<ViewObserver>>,
}

/// Told of a change: the view before and after it. It must be quick.
pub type ViewObserver = Arc<dyn Fn(&CatalogView, &CatalogView) + Send + Sync>;

impl Shown {
    fn new(view: CatalogView, following: Option<Following>) -> Arc<Shown> {
        Arc::new(Shown {
            view: RwLock::new(Arc::new(view)),
            version: AtomicU64::new(1),
            following,
            observer: RwLock::new(None),
        })
    }
}

impl Catalog {
    /// Loads the catalog and removes tablet records that belong to no table.
    pub async fn load(coord: Arc<dyn Coord>) -> Result<Catalog> {
        let mut tablets: BTreeMap<TableId, Vec<TabletEntry>> = BTreeMap::new();
        for (key, versioned) in coord.list(record::TABLETS).await? {
            let corruption = |detail: String| CatalogError::Corruption {
                key: key.clone(),
                detail,
            };
            let (table, id) = record::parse_tablet_key(&key).ok_or_else(|| corruption("not a tablet key".into()))?;
            let (range, assignment) = record::decode_tablet(&versioned.value).map_err(corruption)?;
            let entry = TabletEntry {
                id,
                range,
                assignment,
                version: versioned.version,
            };
            tablets.entry(table).or_default().push(entry);
        }
        let mut view = CatalogView::default();
        for (key, versioned) in coord.list(record::TABLES).await? {
            let corruption = |detail: String| CatalogError::Corruption {
                key: key.clone(),
                detail,
            };
            let (schema, tablet_set) = record::decode_table(&versioned.value).map_err(corruption)?;
            let tablets = tablets.remove(&tablet_set).unwrap_or_default();
            let name = schema.name.clone();
            let entry = TableEntry::new(Arc::new(schema), versioned.version, tablets).map_err(corruption)?;
            view.tables.insert(name, Arc::new(entry.of_set(tablet_set)));
        }
        for (key, versioned) in coord.list(record::NAMESPACES).await? {
            let corruption = |detail: String| CatalogError::Corruption {
                key: key.clone(),
                detail,
            };
            let namespace: NamespaceRecord = record::decode(&versioned.value).map_err(corruption)?;
            let name = key.strip_prefix(record::NAMESPACES).unwrap_or_default().to_owned();
            view.namespaces
                .insert(name, (namespace.front_end_data, namespace.explicit));
        }
        view.snapshots = snapshots::load(&*coord).await?;
        view.access = Arc::new(access::load(&*coord).await?);
        view.switches = switches::load(&*coord).await?;
        let catalog = Catalog {
            coord,
            shown: Shown::new(view, None),
            unsettled: AtomicBool::new(false),
            committed: AtomicU64::new(0),
            leading: None,
        };
        for (table, leftover) in tablets {
            catalog
                .delete_tablet_records(table, leftover.iter().map(|t| t.id))
                .await?;
        }
        Ok(catalog)
    }

    /// The number of the view. Anything that was found in a view after its number was read holds as long as the number
    /// stays.
    pub fn version(&self) -> u64 {
        self.shown.version.load(Ordering::Acquire)
    }

    /// The catalog now.
    pub fn view(&self) -> Arc<CatalogView> {
        self.shown.view.read().clone()
    }

    /// Has an observer told of every change from now on, before the change is reported to anybody; the view that it begins
    /// with. There is one observer: a later one takes its place.
    pub fn observe(&self, observer: ViewObserver) -> Arc<CatalogView> {
        let view = self.shown.view.write();
        *self.shown.observer.write() = Some(observer);
        view.clone()
    }

    /// The table of this name.
    pub fn table(&self, name: &TableName) -> Result<Arc<TableEntry>> {
        self.shown
            .view
            .read()
            .table(name)
            .cloned()
            .ok_or_else(|| CatalogError::NoTable(name.clone()))
    }

    /// `count` new identifiers, unique over tables and tablets and for ever.
    pub async fn allocate_ids(&self, count: usize) -> Result<Vec<u64>> {
        // One durable block of 2^20 per call: 2^44 calls.
        if count > 1 << BLOCK_BITS {
            let message = format!("{count} identifiers, a call gives {} at most", 1u64 << BLOCK_BITS);
            return Err(CatalogError::Coord(CoordError::InvalidArgument { message }));
        }
        let block = next_epoch(&*self.coord, IDS).await?;
        Ok((0..count as u64).map(|n| (block << BLOCK_BITS) + n).collect())
    }

    /// Makes a table with its tablets. Their manifests exist already.
    pub async fn create_table(&self, schema: TableSchema, tablets: Vec<(TabletId, RowRange)>) -> Result<()> {
        self.create_table_with_rules(schema, tablets, &[]).await
    }

    /// The same, and access rules of the table in the same transaction: nobody finds it without them.
    pub async fn create_table_with_rules(
        &self,
        schema: TableSchema,
        tablets: Vec<(TabletId, RowRange)>,
        rules: &[AccessRule],
    ) -> Result<()> {
        if self.view().table(&schema.name).is_some() {
            return Err(CatalogError::TableExists(schema.name));
        }
        let (id, name) = (schema.id, schema.name.clone());
        let made: Vec<TabletId> = tablets.iter().map(|(tablet, _)| *tablet).collect();
        let outcome = self.put_table(schema, tablets, rules).await;
        let refused = match &outcome {
            Err(CatalogError::Coord(error)) => !error.is_ambiguous(),
            Err(CatalogError::Conflict { .. }) => true,
            _ => false,
        };
        // Records of a table that there is not would fill up the coordinator until the next start.
        if refused && let Err(error) = self.delete_tablet_records(id, made.into_iter()).await {
            tracing::warn!(table = %name, %error, "tablet records of a table that was not made are left over");
        }
        outcome
    }

    async fn put_table(
        &self,
        schema: TableSchema,
        tablets: Vec<(TabletId, RowRange)>,
        rules: &[AccessRule],
    ) -> Result<()> {
        let value = checked_table(&schema, schema.id)?;
        check_tablets(&schema, &tablets)?;
        let entries = self.put_tablets(schema.id, &tablets).await?;
        let key = record::table_key(&schema.name);
        let mut conditions = vec![Condition::absent(&key)];
        let mut writes = vec![Write::Put { key, value }];
        let namespace = schema.name.namespace.clone();
        let new_namespace = !self.view().namespaces.contains_key(&namespace);
        if new_namespace {
            let key = record::namespace_key(&namespace);
            conditions.push(Condition::absent(&key));
            writes.push(Write::Put {
                key,
                value: record::encode(&NamespaceRecord::default()),
            });
        }
        let resource = Resource::Table(schema.name.clone());
        if let Some((condition, write)) = self.rules_come(&resource, rules) {
            conditions.push(condition);
            writes.push(write);
        }
        let version = self.commit(conditions, writes).await?;
        self.rules_came(&resource, rules, version);
        let name = schema.name.clone();
        let entry = TableEntry::new(Arc::new(schema), version, entries).map_err(|detail| CatalogError::Corruption {
            key: record::table_key(&name),
            detail,
        })?;
        self.change(|view| {
            view.tables.insert(name, Arc::new(entry));
            if new_namespace {
                view.namespaces.insert(namespace, (Bytes::new(), false));
            }
        });
        Ok(())
    }

    /// Writes the records of tablets under a number that no table names yet, as many in a transaction as it takes.
    async fn put_tablets(&self, set: TableId, tablets: &[(TabletId, RowRange)]) -> Result<Vec<TabletEntry>> {
        let writes = tablets.iter().map(|(id, range)| self.put_tablet(set, *id, range));
        let writes: Vec<Write> = writes.collect::<Result<_>>()?;
        let mut changes = writes.into_iter().map(|write| (None, write)).peekable();
        let mut entries = Vec::with_capacity(tablets.len());
        let mut rest = tablets;
        while !rest.is_empty() {
            let (conditions, writes) = next_part(&mut changes);
            let written;
            (written, rest) = rest.split_at(writes.len());
            let version = self.commit(conditions, writes).await?;
            entries.extend(written.iter().map(|(id, range)| self.new_entry(*id, range, version)));
        }
        Ok(entries)
    }

    /// Forgets a table and returns its entry.
    pub async fn delete_table(&self, name: &TableName) -> Result<Arc<TableEntry>> {
        let entry = self.table(name)?;
        let key = record::table_key(name);
        let conditions = vec![Condition::version(&key, entry.version)];
        let views = entry.schema.views.keys().map(|view| view_of(name, view));
        let resources: Vec<Resource> = views.chain([Resource::Table(name.clone())]).collect();
        let rules = resources.iter().filter_map(|resource| self.rules_go(resource));
        let writes = [Write::Delete { key }].into_iter().chain(rules);
        self.commit(conditions, writes.collect()).await?;
        resources.iter().for_each(|resource| self.rules_gone(resource));
        self.change(|view| {
            view.tables.remove(name);
        });
        // The table is gone; should this fail, the next start removes the rest.
        let tablets = entry.tablets().iter().map(|t| t.id);
        if let Err(error) = self.delete_tablet_records(entry.tablet_set, tablets).await {
            tracing::warn!(table = %name, %error, "tablet records of a dropped table are left over");
        }
        Ok(entry)
    }

    /// Replaces a table's schema. `tell` is called when it is durable, and only after that the view has it. A client
    /// that finds a new family in the view writes to it, and a tablet that does not know the family would lose its
    /// cells at a flush.
    pub async fn update_schema<F: Future<Output = ()>>(
        &self,
        schema: TableSchema,
        tell: impl FnOnce(Arc<TableSchema>) -> F,
    ) -> Result<Arc<TableSchema>> {
        let name = schema.name.clone();
        let entry = self.table(&name)?;
        let key = record::table_key(&name);
        let conditions = vec![Condition::version(&key, entry.version)];
        let former = entry.schema.views.keys();
        let gone = former.filter(|view| !schema.views.contains_key(*view));
        let gone: Vec<Resource> = gone.map(|view| view_of(&name, view)).collect();
        let put = Write::Put {
            key,
            value: checked_table(&schema, entry.tablet_set)?,
        };
        let rules = gone.iter().filter_map(|view| self.rules_go(view));
        let version = self
            .commit(conditions, [put].into_iter().chain(rules).collect())
            .await?;
        gone.iter().for_each(|view| self.rules_gone(view));
        let schema = Arc::new(schema);
        tell(schema.clone()).await;
        let changed = entry.with_schema(schema.clone(), version);
        self.change(|view| {
            view.tables.insert(name, Arc::new(changed));
        });
        Ok(schema)
    }

    /// Replaces some tablets by others that cover the same rows, in one transaction: all together are as many as one
    /// transaction takes.
    pub async fn replace_tablets(
        &self,
        table: &TableName,
        old: &[TabletId],
        new: Vec<(TabletId, RowRange)>,
    ) -> Result<()> {
        let entry = self.table(table)?;
        let set = entry.tablet_set;
        let (mut conditions, mut writes) = (Vec::new(), Vec::new());
        for id in old {
            let key = record::tablet_key(set, *id);
            let Some(replaced) = entry.tablets().iter().find(|tablet| tablet.id == *id) else {
                return Err(CatalogError::Conflict { key });
            };
            if !self.is_at_home(replaced, &new) {
                return Err(CatalogError::Conflict { key });
            }
            conditions.push(Condition::version(&key, replaced.version));
            writes.push(Write::Delete { key });
        }
        for (tablet, range) in &new {
            writes.push(self.put_tablet(set, *tablet, range)?);
        }
        let version = self.commit(conditions, writes).await?;
        let kept = entry.tablets().iter().filter(|tablet| !old.contains(&tablet.id));
        let mut tablets: Vec<TabletEntry> = kept.cloned().collect();
        tablets.extend(new.iter().map(|(id, range)| self.new_entry(*id, range, version)));
        let changed = TableEntry::new(entry.schema.clone(), entry.version, tablets)
            .map_err(|detail| CatalogError::Corruption {
                key: record::table_key(table),
                detail,
            })?
            .of_set(set);
        self.change(|view| {
            view.tables.insert(table.clone(), Arc::new(changed));
        });
        Ok(())
    }

    /// Whether a tablet is still with the server that has made the new ones of its files. Another owner has taken writes since
    /// that are in none of these. The transaction is conditional on the record that is looked at here.
    fn is_at_home(&self, old: &TabletEntry, new: &[(TabletId, RowRange)]) -> bool {
        let Some(leading) = &self.leading else {
            return true;
        };
        let Some(owner) = old.assignment.owner else {
            return false;
        };
        let mut homes = new.iter().map(|(tablet, _)| leading.homes.home_of(*tablet));
        homes.all(|home| home.is_some_and(|home| home.server == owner.server && home.epoch >= owner.epoch))
    }

    /// Replaces all tablets of a table by others that cover the same rows. Their number is not limited: their records go
    /// under the number `set`, which no table names before. One transaction then makes the table name it. `id` is the table's, in
    /// case another has taken its name. The table gets the schema in `restored`, if any, under the next version.
    pub async fn replace_all_tablets(
        &self,
        (table, id): (&TableName, TableId),
        set: TableId,
        new: Vec<(TabletId, RowRange)>,
        restored: Option<&TableSchema>,
    ) -> Result<()> {
        let outcome = self.name_other_tablets((table, id), set, &new, restored).await;
        let former = match &outcome {
            Ok(former) => Some((former.tablet_set, former.tablets().iter().map(|t| t.id).collect())),
            Err(error) if error.is_ambiguous() => None,
            Err(_) => Some((set, new.iter().map(|(id, _)| *id).collect::<Vec<_>>())),
        };
        // Should this fail, the next start removes the rest.
        if let Some((set, tablets)) = former
            && let Err(error) = self.delete_tablet_records(set, tablets.into_iter()).await
        {
            tracing::warn!(%table, %error, "tablet records that no table names are left over");
        }
        outcome.map(drop)
    }

    /// Returns the former entry.
    async fn name_other_tablets(
        &self,
        (table, id): (&TableName, TableId),
        set: TableId,
        new: &[(TabletId, RowRange)],
        restored: Option<&TableSchema>,
    ) -> Result<Arc<TableEntry>> {
        let entry = self.table(table)?;
        let key = record::table_key(table);
        if entry.schema.id != id {
            return Err(CatalogError::Conflict { key });
        }
        let schema = match restored {
            None => entry.schema.clone(),
            Some(restored) => Arc::new(TableSchema {
                version: entry.schema.version + 1,
                ..restored.clone()
            }),
        };
        assert!(
            schema.id == id && schema.name == *table,
            "a table keeps its number and its name"
        );
        let value = checked_table(&schema, set)?;
        check_tablets(&schema, new)?;
        let tablets = self.put_tablets(set, new).await?;
        let conditions = vec![Condition::version(&key, entry.version)];
        let writes = vec![Write::Put {
            key: key.clone(),
            value,
        }];
        let version = self.commit(conditions, writes).await?;
        let changed = TableEntry::new(schema, version, tablets)
            .map_err(|detail| CatalogError::Corruption { key, detail })?
            .of_set(set);
        self.change(|view| {
            view.tables.insert(table.clone(), Arc::new(changed));
        });
        Ok(entry)
    }

    /// Makes a namespace, or turns one that came with a table into one made on purpose.
    pub async fn create_namespace(&self, name: &str, data: Bytes) -> Result<()> {
        if self.view().namespaces.get(name).is_some_and(|(_, explicit)| *explicit) {
            return Err(CatalogError::NamespaceExists(name.to_owned()));
        }
        self.put_namespace(name, data).await
    }

    /// Replaces a namespace's data. The caller has read `former`: other data there now is an error, but for the new data,
    /// which an earlier attempt of the same call may have written.
    pub async fn update_namespace(&self, name: &str, former: &[u8], data: Bytes) -> Result<()> {
        match self.view().namespaces.get(name) {
            None => return Err(CatalogError::NoNamespace(name.to_owned())),
            Some((current, true)) if *current == data => return Ok(()),
            Some((current, _)) if current == former => {}
            Some(_) => {
                let key = record::namespace_key(name);
                return Err(CatalogError::Conflict { key });
            }
        }
        self.put_namespace(name, data).await
    }

    async fn put_namespace(&self, name: &str, data: Bytes) -> Result<()> {
        let value = record::encode(&NamespaceRecord {
            front_end_data: data.clone(),
            explicit: true,
        });
        self.commit(
            Vec::new(),
            vec![Write::Put {
                key: record::namespace_key(name),
                value,
            }],
        )
        .await?;
        self.change(|view| {
            view.namespaces.insert(name.to_owned(), (data, true));
        });
        Ok(())
    }

    /// Forgets a namespace, which must be empty.
    pub async fn delete_namespace(&self, name: &str) -> Result<()> {
        let view = self.view();
        if !view.namespaces.contains_key(name) {
            return Err(CatalogError::NoNamespace(name.to_owned()));
        }
        debug_assert!(
            view.tables_of(name).next().is_none(),
            "the caller drops the tables first"
        );
        let resource = Resource::Namespace(name.to_owned());
        let key = record::namespace_key(name);
        let writes = [Write::Delete { key }].into_iter().chain(self.rules_go(&resource));
        self.commit(Vec::new(), writes.collect()).await?;
        self.rules_gone(&resource);
        self.change(|view| {
            view.namespaces.remove(name);
        });
        Ok(())
    }

    async fn delete_tablet_records(&self, table: TableId, tablets: impl Iterator<Item = TabletId>) -> Result<()> {
        let keys: Vec<String> = tablets.map(|t| record::tablet_key(table, t)).collect();
        for chunk in keys.chunks(RECORDS_TOGETHER) {
            let writes = chunk.iter().map(|key| Write::Delete { key: key.clone() }).collect();
            self.commit(Vec::new(), writes).await?;
        }
        Ok(())
    }

    /// The assignment of a new tablet: none, unless the process is one of a cluster.
    fn assignment_of(&self, tablet: TabletId) -> Assignment {
        Assignment {
            owner: self.leading.as_ref().and_then(|leading| leading.homes.home_of(tablet)),
            ..Assignment::default()
        }
    }

    fn put_tablet(&self, set: TableId, tablet: TabletId, range: &RowRange) -> Result<Write> {
        let assignment = self.assignment_of(tablet);
        if self.shown.following.is_some() && assignment.owner.is_none() {
            return Err(CatalogError::NotLeader);
        }
        Ok(Write::Put {
            key: record::tablet_key(set, tablet),
            value: record::encode_tablet(range, &assignment),
        })
    }

    fn new_entry(&self, id: TabletId, range: &RowRange, version: u64) -> TabletEntry {
        TabletEntry {
            id,
            range: range.clone(),
            assignment: self.assignment_of(id),
            version,
        }
    }

    async fn commit(&self, mut conditions: Vec<Condition>, mut writes: Vec<Write>) -> Result<u64> {
        self.add_fence(&mut conditions, &mut writes)?;
        match self.coord.txn(Txn { conditions, writes }).await {
            Ok(TxnOutcome::Committed { revision }) => {
                // First: another caller that finds nothing unsettled waits for the view up to it.
                self.committed.fetch_max(revision, Ordering::AcqRel);
                self.unsettled.store(false, Ordering::Release);
                self.wait_applied(revision).await;
                Ok(revision)
            }
            Ok(TxnOutcome::Conflict { key }) if self.is_fence(&key) => Err(CatalogError::NotLeader),
            Ok(TxnOutcome::Conflict { key }) => Err(CatalogError::Conflict { key }),
            Err(error) => {
                if error.is_ambiguous() {
                    self.unsettled.store(true, Ordering::Release);
                }
                Err(error.into())
            }
        }
    }

    /// After a change of unknown outcome: makes sure that it has not happened and will not. A change that was refused
    /// must not come back with the next start. Afterwards the view has it if it has happened, and every other change that was
    /// committed here.
    pub async fn settle(&self) -> Result<()> {
        if !self.unsettled.load(Ordering::Acquire) {
            // A concurrent change may have settled it, and wait for the view still.
            self.wait_applied(self.committed.load(Ordering::Acquire)).await;
        } else {
            let write = Write::Put {
                key: "catalog/settled".to_owned(),
                value: Bytes::new(),
            };
            self.commit(Vec::new(), vec![write]).await?;
        }
        Ok(())
    }

    /// Finds out the outcome of an unsettled [`Catalog::create_table`]: settles it, and checks whether the record of
    /// that name is of this very table. If it is, the catalog knows the table from now on. If not, it never will, and
    /// no record of the table is left.
    pub async fn find_out_created(
        &self,
        schema: &TableSchema,
        tablets: &[(TabletId, RowRange)],
    ) -> Result<Option<Arc<TableEntry>>> {
        self.settle().await?;
        let key = record::table_key(&schema.name);
        let corruption = |detail: String| CatalogError::Corruption {
            key: key.clone(),
            detail,
        };
        let found = self.coord.get(&key).await?;
        let found = found.map(|found| record::decode_table(&found.value).map(|(schema, _)| (schema, found.version)));
        let found = found.transpose().map_err(corruption)?;
        let Some((schema, version)) = found.filter(|(found, _)| found.id == schema.id) else {
            self.delete_tablet_records(schema.id, tablets.iter().map(|(id, _)| *id))
                .await?;
            return Ok(None);
        };
        let mut entries = Vec::with_capacity(tablets.len());
        for (id, range) in tablets {
            // One that is missing leaves a hole, which is an error below.
            if let Some(found) = self.coord.get(&record::tablet_key(schema.id, *id)).await? {
                entries.push(self.new_entry(*id, range, found.version));
            }
        }
        self.read_rules(&Resource::Table(schema.name.clone())).await?;
        let name = schema.name.clone();
        let entry = Arc::new(TableEntry::new(Arc::new(schema), version, entries).map_err(corruption)?);
        self.change(|view| {
            let namespace = view.namespaces.entry(name.namespace.clone());
            namespace.or_insert((Bytes::new(), false));
            view.tables.insert(name, entry.clone());
        });
        Ok(Some(entry))
    }

    /// Changes the view after a change of records. A view that follows the records has it already.
    fn change(&self, change: impl FnOnce(&mut CatalogView)) {
        if self.shown.following.is_none() {
            self.change_view(change);
        }
    }

    fn change_view(&self, change: impl FnOnce(&mut CatalogView)) {
        let mut view = self.shown.view.write();
        let mut next = CatalogView::clone(&view);
        change(&mut next);
        if let Some(observer) = &*self.shown.observer.read() {
            observer(&view, &next);
        }
        *view = Arc::new(next);
        // Behind the view: a reader of the old number may find the new view, but not the reverse.
        self.shown.version.fetch_add(1, Ordering::Release);
    }
}

/// The next of some changes of records, as many as one transaction takes; none at their end.
fn next_part(changes: &mut Peekable<impl Iterator<Item = (Option<Condition>, Write)>>) -> (Vec<Condition>, Vec<Write>) {
    let (mut conditions, mut writes) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    while let Some((condition, write)) = changes.next_if(|(condition, write)| {
        bytes += write.bytes() + condition.as_ref().map_or(0, |condition| condition.key.len());
        // One always fits: a record of a tablet has two rows of 32 KiB at most.
        writes.is_empty() || (writes.len() < RECORDS_TOGETHER && bytes <= RECORDS_BYTES_TOGETHER)
    }) {
        conditions.extend(condition);
        writes.push(write);
    }
    (conditions, writes)
}

/// The record of a table, if it can be read again.
fn checked_table(schema: &TableSchema, set: TableId) -> Result<Bytes> {
    let record = record::checked_table(schema, set);
    record.map_err(|detail| CatalogError::Corruption {
        key: record::table_key(&schema.name),
        detail,
    })
}

/// Refuses tablets that leave a hole or overlap, before anything is recorded: no start would succeed with them.
fn check_tablets(schema: &TableSchema, tablets: &[(TabletId, RowRange)]) -> Result<()> {
    let mut sorted: Vec<_> = tablets.iter().map(|(id, range)| (*id, range)).collect();
    sorted.sort_by(|a, b| a.1.start.cmp(&b.1.start));
    check_joined(sorted.into_iter()).map_err(|detail| CatalogError::Corruption {
        key: record::table_key(&schema.name),
        detail,
    })
}

/// A view of a table, as rules are about it.
fn view_of(table: &TableName, view: &str) -> Resource {
    Resource::View {
        table: table.clone(),
        view: view.to_owned(),
    }
}

#[cfg(test)]
mod tests;
