//! A model of the service: maps in memory under one lock, with the caller's time.

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use stele_client::{
    CompactionState, Condition, ConditionTest, FamilyChange, GroupChange, MutateRows, NewFamily, NewSnapshot, NewTable,
    ReadRows, RmwOperation, RmwRule, RowOperation, RowOutcome, RowSample, RowStream, RowsOperation, ServiceError,
    ServiceResult, SnapshotCopy, SnapshotInfo, SnapshotName, SnapshotUpdate, Step, TableAdmin, TableGroups,
    TableService, TableUpdate, TabletInfo, TabletPlace, ViewChange,
};
use stele_env::tokio_env::TokioRuntime;
use stele_filter::Filter;
use stele_types::row::ReadCounts;
use stele_types::schema::Family;
use stele_types::{
    Cell, ErrorKind, FamilyId, GroupId, KeepDeleted, LocalityGroup, Mutation, RequestToken, RowBatch, RowMutation,
    RowRange, RowSet, SnapshotId, TableId, TableName, TableSchema, TabletId, Timestamp, ValueType, View,
};

type CellKey = (FamilyId, Bytes, Reverse<Timestamp>);
type Row = BTreeMap<CellKey, Bytes>;

#[derive(Clone)]
struct FakeTable {
    schema: Arc<TableSchema>,
    rows: BTreeMap<Bytes, Row>,
    splits: Vec<Bytes>,
    /// Rows and tokens of applied operations.
    applied: BTreeSet<(Bytes, Bytes)>,
}

#[derive(Default)]
struct State {
    tables: BTreeMap<TableName, FakeTable>,
    /// Number of tables created so far, which is the id of the last.
    made: u64,
    /// `None` for an instance that exists only because of a table.
    namespaces: BTreeMap<String, Option<Bytes>>,
    /// Returned by the next data call.
    failure: Option<ServiceError>,
    /// The data that the next table that is updated gets before.
    overtaking: Option<Vec<u8>>,
    snapshots: BTreeMap<SnapshotName, Arc<SnapshotInfo>>,
    /// Tables that were deleted, by name.
    deleted: BTreeMap<TableName, FakeTable>,
}

impl State {
    fn add_snapshot(&mut self, info: SnapshotInfo) -> ServiceResult<Arc<SnapshotInfo>> {
        if self.snapshots.contains_key(&info.name) {
            let message = format!("snapshot {} exists", info.name);
            return Err(ServiceError::new(ErrorKind::AlreadyExists, message));
        }
        let info = Arc::new(info);
        self.snapshots.insert(info.name.clone(), Arc::clone(&info));
        Ok(info)
    }
}

fn now_micros() -> i64 {
    TokioRuntime::current().wall_micros()
}

/// The model.
#[derive(Default)]
pub(crate) struct Fake {
    state: Mutex<State>,
    /// Held by tests to block changes of namespaces.
    pub updates: tokio::sync::Mutex<()>,
    /// Held by tests to block writes of rows.
    pub writes: tokio::sync::Mutex<()>,
}

impl Fake {
    /// Makes the next data call, or update of a snapshot, fail.
    pub fn fail_next(&self, kind: ErrorKind) {
        self.state.lock().failure = Some(ServiceError::new(kind, "planted"));
    }

    /// Changes the record of a namespace as another server would.
    pub fn set_namespace(&self, namespace: &str, data: Vec<u8>) {
        let mut state = self.state.lock();
        state.namespaces.insert(namespace.to_owned(), Some(data.into()));
    }

    /// Makes the families of a table keep their deleted cells, as HBase's may.
    pub fn keep_deleted(&self, table: &TableName) {
        let mut state = self.state.lock();
        let table = state.tables.get_mut(table).unwrap();
        let families = Arc::make_mut(&mut table.schema).families.values_mut();
        families.for_each(|family| family.deletes.keep = KeepDeleted::Yes);
    }

    /// Replaces the data of the next table that is updated, before that, as another server would.
    pub fn overtake_next(&self, front_end_data: Vec<u8>) {
        self.state.lock().overtaking = Some(front_end_data);
    }

    fn with_table<T>(&self, name: &TableName, f: impl FnOnce(&mut FakeTable) -> ServiceResult<T>) -> ServiceResult<T> {
        let mut state = self.state.lock();
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        f(state
            .tables
            .get_mut(name)
            .ok_or_else(|| ServiceError::not_found(format!("no table {name}")))?)
    }
}

impl FakeTable {
    /// Whether a request is for this table, and not for a former one of the same name.
    fn check(&self, id: Option<TableId>) -> ServiceResult<()> {
        if id.is_none_or(|id| id == self.schema.id) {
            Ok(())
        } else {
            Err(ServiceError::not_found("another table has taken the name"))
        }
    }

    fn apply(&mut self, change: &RowMutation) -> ServiceResult<()> {
        let row = self.rows.entry(change.row.clone()).or_default();
        for mutation in &change.mutations {
            match mutation {
                Mutation::Put {
                    family,
                    qualifier,
                    timestamp,
                    value,
                } => {
                    row.insert((*family, qualifier.clone(), Reverse(*timestamp)), value.clone());
                }
                Mutation::ExpiringPut { .. } => return Err(ServiceError::invalid("this API has no such cells")),
                Mutation::Merge {
                    family,
                    qualifier,
                    timestamp,
                    operand,
                } => {
                    let ValueType::Aggregate(kind) = self.schema.families[family].value_type else {
                        return Err(ServiceError::invalid("not an aggregate"));
                    };
                    let key = (*family, qualifier.clone(), Reverse(*timestamp));
                    let merged = match row.get(&key) {
                        Some(old) => Bytes::copy_from_slice(&kind.combine(old, operand).unwrap()),
                        None => operand.clone(),
                    };
                    row.insert(key, merged);
                }
                Mutation::DeleteRow { .. } => row.clear(),
                Mutation::DeleteFamily { family, .. } => row.retain(|(f, ..), _| f != family),
                Mutation::DeleteColumn {
                    family,
                    qualifier,
                    from,
                    to,
                } => {
                    row.retain(|(f, q, Reverse(t)), _| f != family || q != qualifier || t < from || t > to);
                }
                Mutation::DeleteVersion { .. } | Mutation::DeleteFamilyVersion { .. } => {
                    return Err(ServiceError::invalid("not made by this front end"));
                }
            }
        }
        self.rows.retain(|_, row| !row.is_empty());
        Ok(())
    }

    fn holds(&self, key: &Bytes, condition: &Condition) -> ServiceResult<bool> {
        let cells = self.filtered(key, condition.reads.as_deref())?;
        match &condition.test {
            ConditionTest::AnyCell => Ok(!cells.is_empty()),
            ConditionTest::Cells(test) => test.decide(&cells).map(|(holds, _)| holds),
            ConditionTest::Encoded(_) => Err(ServiceError::invalid("not made by this front end")),
        }
    }

    fn modify(&mut self, key: &Bytes, rule: &RmwRule) -> ServiceResult<Cell> {
        let row = self.rows.entry(key.clone()).or_default();
        let newest = row
            .iter()
            .find(|((f, q, _), _)| *f == rule.family && *q == rule.qualifier);
        let (at, old) = newest.map_or((1_000, Bytes::new()), |(key, value)| (key.2.0.0, value.clone()));
        let new: Bytes = match &rule.operation {
            RmwOperation::Append(more) => [&old[..], &more[..]].concat().into(),
            RmwOperation::Increment(by) => {
                let old = if old.is_empty() {
                    Bytes::from_static(&[0; 8])
                } else {
                    old
                };
                let old: [u8; 8] = old[..]
                    .try_into()
                    .map_err(|_| ServiceError::invalid("increment of a value that is not 8 bytes"))?;
                Bytes::copy_from_slice(&i64::from_be_bytes(old).wrapping_add(*by).to_be_bytes())
            }
        };
        row.insert(
            (rule.family, rule.qualifier.clone(), Reverse(Timestamp(at))),
            new.clone(),
        );
        Ok(Cell::put(rule.family, rule.qualifier.clone(), Timestamp(at), new))
    }

    fn filtered(&self, key: &Bytes, filter: Option<&Filter>) -> ServiceResult<Vec<Cell>> {
        let row = self.rows.get(key).cloned().unwrap_or_default();
        let cells: Vec<Cell> = row
            .into_iter()
            .map(|((family, qualifier, Reverse(timestamp)), value)| Cell::put(family, qualifier, timestamp, value))
            .collect();
        let Some(filter) = filter else {
            return Ok(cells);
        };
        let error = |e: stele_filter::FilterError| ServiceError::new(e.kind(), e.to_string());
        let compiled = filter.compile(&self.schema).map_err(error)?;
        if cells.is_empty() || !compiled.admits_row(key, &mut || 0.5) {
            return Ok(Vec::new());
        }
        compiled.evaluate(key, cells, usize::MAX, &mut || 0.5).map_err(error)
    }

    fn batches(&self, request: &ReadRows) -> ServiceResult<VecDeque<RowBatch>> {
        if let Some(filter) = &request.filter {
            filter
                .compile(&self.schema)
                .map_err(|e| ServiceError::new(e.kind(), e.to_string()))?;
        }
        self.check(request.id)?;
        let inside = |rows: &RowSet, key: &[u8]| rows.ranges().iter().any(|range| range.contains(key));
        let mut keys: Vec<&Bytes> = self.rows.keys().filter(|key| inside(&request.rows, key)).collect();
        if request.reversed {
            keys.reverse();
        }
        let mut batches = VecDeque::new();
        let mut returned = 0;
        for key in keys {
            let cells = self.filtered(key, request.filter.as_deref())?;
            returned += u64::from(!cells.is_empty());
            let mut batch = RowBatch::default();
            batch.push_row(key.clone(), cells);
            batch.scanned_through = Some(key.clone());
            batch.seen = ReadCounts {
                rows: 1,
                cells: self.rows[key].len() as u64,
            };
            batches.push_back(batch);
            if returned == request.rows_limit && request.rows_limit > 0 {
                break;
            }
        }
        Ok(batches)
    }
}

struct FakeStream(VecDeque<RowBatch>);

#[async_trait]
impl RowStream for FakeStream {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        Ok(self.0.pop_front())
    }
}

#[async_trait]
impl TableService for Fake {
    fn schema(&self, table: &TableName) -> ServiceResult<Arc<TableSchema>> {
        let state = self.state.lock();
        let table = state
            .tables
            .get(table)
            .ok_or_else(|| ServiceError::not_found("no such table"))?;
        Ok(Arc::clone(&table.schema))
    }

    async fn read_rows(&self, request: ReadRows) -> ServiceResult<Box<dyn RowStream>> {
        let batches = self.with_table(&request.table, |table| table.batches(&request))?;
        Ok(Box::new(FakeStream(batches)))
    }

    fn try_read_row(&self, request: &ReadRows) -> ServiceResult<Option<RowBatch>> {
        if request.one_row().is_none() {
            return Ok(None);
        }
        let mut batches = self.with_table(&request.table, |table| table.batches(request))?;
        // Every second row must be waited for.
        let first = batches.pop_front();
        Ok(first.filter(|_| batches.is_empty() && request.one_row().is_some_and(|row| row.len() % 2 == 0)))
    }

    async fn mutate_rows(&self, request: MutateRows) -> ServiceResult<Vec<ServiceResult<()>>> {
        let _turn = self.writes.lock().await;
        self.with_table(&request.table, |table| {
            table.check(request.id)?;
            Ok(request.rows.iter().map(|row| table.apply(&row.to_owned())).collect())
        })
    }

    async fn mutate_rows_together(&self, request: MutateRows) -> ServiceResult<()> {
        self.mutate_rows(request).await?.into_iter().collect()
    }

    async fn rows_operation(&self, _: RowsOperation) -> ServiceResult<bool> {
        Err(ServiceError::invalid("the API has no such call"))
    }

    async fn row_operation(&self, request: RowOperation) -> ServiceResult<RowOutcome> {
        let _turn = self.writes.lock().await;
        self.with_table(&request.table, |table| {
            table.check(request.id)?;
            let token = request.token.as_ref().map(|token| match token {
                RequestToken::Dated { token, .. } => token.clone(),
                RequestToken::Nonce { group, nonce } => [group.to_be_bytes(), nonce.to_be_bytes()].concat().into(),
            });
            if let Some(token) = token
                && !table.applied.insert((request.row.clone(), token))
            {
                let (matched, written) = (true, Vec::new());
                return Ok(RowOutcome { matched, written });
            }
            let matched = match &request.condition {
                None => true,
                Some(condition) => table.holds(&request.row, condition)?,
            };
            let steps = if matched { &request.steps } else { &request.otherwise };
            let mut written = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Mutate(mutation) | Step::MutateNow(mutation) => table.apply(&RowMutation {
                        row: request.row.clone(),
                        mutations: vec![mutation.clone()],
                    })?,
                    Step::Modify(rule) => {
                        let cell = table.modify(&request.row, rule)?;
                        written.insert((cell.family, cell.qualifier.clone()), cell);
                    }
                    // The front end has none, and no option of a rule besides its operation.
                    Step::DeleteNewest { .. } => return Err(ServiceError::invalid("not a step of this front end")),
                }
            }
            let written = written.into_values().collect();
            Ok(RowOutcome { matched, written })
        })
    }

    async fn sample_row_keys(&self, table: &TableName, range: RowRange) -> ServiceResult<Vec<RowSample>> {
        self.with_table(table, |table| {
            let inside = table.splits.iter().filter(|split| range.contains(split)).cloned();
            let mut samples: Vec<_> = inside.map(|row| RowSample { row, offset_bytes: 0 }).collect();
            samples.push(RowSample {
                row: Bytes::new(),
                offset_bytes: 100,
            });
            Ok(samples)
        })
    }

    fn place_of(&self, table: &TableName, _: &[u8]) -> ServiceResult<TabletPlace> {
        self.schema(table)?;
        Ok(TabletPlace::here(TabletId(1), RowRange::all()))
    }

    fn places(&self, table: &TableName) -> ServiceResult<Vec<TabletPlace>> {
        self.with_table(table, |table| {
            let starts = [Bytes::new()].into_iter().chain(table.splits.iter().cloned());
            let ends = table.splits.iter().cloned().map(Some).chain([None]);
            let ranges = starts.zip(ends).map(|(start, end)| RowRange { start, end });
            let numbered = (1..).map(TabletId).zip(ranges);
            Ok(numbered.map(|(id, range)| TabletPlace::here(id, range)).collect())
        })
    }

    async fn tablets(&self, _: &TableName) -> ServiceResult<Vec<TabletInfo>> {
        Ok(Vec::new())
    }
}

fn add_family(schema: &mut TableSchema, family: NewFamily) -> ServiceResult<()> {
    if schema.family_named(&family.name).is_some() {
        return Err(ServiceError::new(
            ErrorKind::AlreadyExists,
            format!("family {:?} already exists", family.name),
        ));
    }
    let id = schema.next_family;
    schema.next_family = FamilyId(id.0 + 1);
    let NewFamily {
        name,
        gc_rule,
        value_type,
        deletes,
        front_end_data,
    } = family;
    schema.families.insert(
        id,
        Family {
            name,
            gc_rule,
            value_type,
            deletes,
            group: GroupId(0),
            front_end_data,
        },
    );
    Ok(())
}

#[async_trait]
impl TableAdmin for Fake {
    async fn create_table(&self, table: NewTable) -> ServiceResult<Arc<TableSchema>> {
        let mut state = self.state.lock();
        if state.tables.contains_key(&table.name) {
            return Err(ServiceError::new(
                ErrorKind::AlreadyExists,
                format!("table {} already exists", table.name),
            ));
        }
        state.namespaces.entry(table.name.namespace.clone()).or_default();
        state.made += 1;
        let mut schema = TableSchema {
            id: TableId(state.made),
            name: table.name.clone(),
            time_unit: table.time_unit,
            granularity: table.granularity,
            deletion_protection: table.deletion_protection,
            automated_backups: table.automated_backups,
            families: BTreeMap::new(),
            next_family: FamilyId(1),
            ..super::schema()
        };
        for family in table.families {
            add_family(&mut schema, family)?;
        }
        let schema = Arc::new(schema);
        let made = FakeTable {
            schema: Arc::clone(&schema),
            rows: BTreeMap::new(),
            splits: table.initial_splits,
            applied: BTreeSet::new(),
        };
        state.tables.insert(table.name, made);
        Ok(schema)
    }

    async fn delete_table(&self, name: &TableName) -> ServiceResult<()> {
        let protected = self.with_table(name, |table| Ok(table.schema.deletion_protection))?;
        if protected {
            return Err(ServiceError::new(
                ErrorKind::FailedPrecondition,
                format!("table {name} is protected"),
            ));
        }
        let mut state = self.state.lock();
        if let Some(table) = state.tables.remove(name) {
            state.deleted.insert(name.clone(), table);
        }
        Ok(())
    }

    async fn undelete_table(&self, name: &TableName) -> ServiceResult<Arc<TableSchema>> {
        let mut state = self.state.lock();
        if state.tables.contains_key(name) {
            let message = format!("table {name} exists");
            return Err(ServiceError::new(ErrorKind::AlreadyExists, message));
        }
        let kept = state.deleted.remove(name);
        let table = kept.ok_or_else(|| ServiceError::not_found(format!("table {name} is not kept")))?;
        let schema = table.schema.clone();
        state.tables.insert(name.clone(), table);
        Ok(schema)
    }

    async fn update_table(&self, name: &TableName, update: TableUpdate) -> ServiceResult<Arc<TableSchema>> {
        let overtaking = self.state.lock().overtaking.take();
        self.with_table(name, |table| {
            if let Some(data) = overtaking {
                let schema = Arc::make_mut(&mut table.schema);
                (schema.version, schema.front_end_data) = (schema.version + 1, data);
            }
            let now = (table.schema.id, table.schema.version);
            if update.former.is_some_and(|former| former != now) {
                return Err(ServiceError::new(ErrorKind::Aborted, "the table has changed"));
            }
            let mut schema = TableSchema::clone(&table.schema);
            schema.deletion_protection = update.deletion_protection.unwrap_or(schema.deletion_protection);
            schema.enabled = update.enabled.unwrap_or(schema.enabled);
            schema.automated_backups = update.automated_backups.unwrap_or(schema.automated_backups);
            schema.front_end_data = update
                .front_end_data
                .unwrap_or(std::mem::take(&mut schema.front_end_data));
            if let Some((name, change)) = update.view {
                change_view(&mut schema, name, change)?;
            }
            table.schema = Arc::new(schema);
            Ok(Arc::clone(&table.schema))
        })
    }

    async fn modify_families(&self, name: &TableName, changes: Vec<FamilyChange>) -> ServiceResult<Arc<TableSchema>> {
        self.with_table(name, |table| {
            let mut schema = TableSchema::clone(&table.schema);
            let id_of = |schema: &TableSchema, name: &str| {
                let found = schema.family_named(name).map(|(id, _)| id);
                found.ok_or_else(|| ServiceError::not_found(format!("no family {name}")))
            };
            for change in changes {
                match change {
                    FamilyChange::Create(family) => add_family(&mut schema, family)?,
                    FamilyChange::Update {
                        name,
                        gc_rule,
                        value_type,
                        deletes,
                        front_end_data,
                    } => {
                        let id = id_of(&schema, &name)?;
                        let family = schema.families.get_mut(&id).unwrap();
                        family.gc_rule = gc_rule.unwrap_or(family.gc_rule.take());
                        family.value_type = value_type.unwrap_or(family.value_type);
                        family.deletes = deletes.unwrap_or(family.deletes);
                        if let Some(data) = front_end_data {
                            family.front_end_data = data;
                        }
                    }
                    FamilyChange::Drop { .. } if schema.deletion_protection => {
                        let message = format!("table {} is protected", schema.name);
                        return Err(ServiceError::new(ErrorKind::FailedPrecondition, message));
                    }
                    FamilyChange::Drop { name } => {
                        let id = id_of(&schema, &name)?;
                        schema.families.remove(&id);
                    }
                }
            }
            table.schema = Arc::new(schema);
            Ok(Arc::clone(&table.schema))
        })
    }

    async fn groups(&self, name: &TableName) -> ServiceResult<TableGroups> {
        self.with_table(name, |table| {
            let schema = Arc::clone(&table.schema);
            Ok(TableGroups {
                unsettled: schema
                    .groups
                    .iter()
                    .flat_map(|group| group.left.iter().copied())
                    .collect(),
                schema,
            })
        })
    }

    /// Checks nothing but names: the master checks the rest.
    async fn modify_groups(&self, name: &TableName, changes: Vec<GroupChange>) -> ServiceResult<TableGroups> {
        let missing = || ServiceError::not_found("no such group or family");
        self.with_table(name, |table| {
            let mut schema = TableSchema::clone(&table.schema);
            for change in changes {
                let named =
                    |schema: &TableSchema, name: &str| schema.groups.iter().position(|group| group.name == name);
                match change {
                    GroupChange::Create { name, options } => {
                        let id = GroupId(schema.groups.len() as u32);
                        let mut group = LocalityGroup::new(id, name, stele_types::Compression::Lz4);
                        options.apply(&mut group.options);
                        schema.groups.push(group);
                    }
                    GroupChange::Alter { name, options } => {
                        let at = named(&schema, &name).ok_or_else(missing)?;
                        options.apply(&mut schema.groups[at].options);
                    }
                    GroupChange::MoveFamily { family, group } => {
                        let at = named(&schema, &group).ok_or_else(missing)?;
                        let (id, _) = schema.family_named(&family).ok_or_else(missing)?;
                        let (to, from) = (schema.groups[at].id, schema.group_of(id));
                        schema.families.get_mut(&id).unwrap().group = to;
                        schema.groups[from.0 as usize].left.insert(id);
                    }
                }
            }
            table.schema = Arc::new(schema);
            Ok(())
        })?;
        self.groups(name).await
    }

    async fn drop_row_range(&self, name: &TableName, range: RowRange) -> ServiceResult<()> {
        self.with_table(name, |table| {
            table.rows.retain(|key, _| !range.contains(key));
            Ok(())
        })
    }

    async fn flush(&self, _: &TableName, _: Option<TabletId>) -> ServiceResult<()> {
        Ok(())
    }

    async fn compact(&self, _: &TableName, _: Option<TabletId>, _: bool) -> ServiceResult<()> {
        Ok(())
    }

    async fn compactions(&self, _: &TableName) -> ServiceResult<Vec<(TabletId, CompactionState)>> {
        Ok(Vec::new())
    }

    async fn split(&self, name: &TableName, _: TabletId, _: Option<Bytes>) -> ServiceResult<(TabletId, TabletId)> {
        Err(ServiceError::not_found(format!("table {name} has no tablets")))
    }

    async fn merge(&self, name: &TableName, _: Vec<TabletId>) -> ServiceResult<TabletId> {
        Err(ServiceError::not_found(format!("table {name} has no tablets")))
    }

    async fn truncate(&self, name: &TableName, _: bool) -> ServiceResult<()> {
        self.with_table(name, |table| {
            table.rows.clear();
            Ok(())
        })
    }

    async fn create_snapshot(&self, new: NewSnapshot) -> ServiceResult<Arc<SnapshotInfo>> {
        let schema = self.schema(&new.table)?;
        let mut state = self.state.lock();
        state.made += 1;
        let info = SnapshotInfo {
            kept: None,
            id: SnapshotId(state.made),
            name: new.name.clone(),
            schema,
            created_micros: now_micros(),
            completed_micros: now_micros(),
            expires_micros: new.expires_micros,
            tablets: 1,
            bytes: 7,
            front_end_data: new.front_end_data.into(),
        };
        state.add_snapshot(info)
    }

    async fn copy_snapshot(&self, copy: SnapshotCopy) -> ServiceResult<Arc<SnapshotInfo>> {
        let source = self.snapshot(&copy.source).await?;
        let mut state = self.state.lock();
        state.made += 1;
        let info = SnapshotInfo {
            kept: None,
            id: SnapshotId(state.made),
            name: copy.name.clone(),
            expires_micros: copy.expires_micros,
            front_end_data: copy.front_end_data.into(),
            ..SnapshotInfo::clone(&source)
        };
        state.add_snapshot(info)
    }

    async fn list_snapshots(&self, namespace: Option<&str>) -> ServiceResult<Vec<Arc<SnapshotInfo>>> {
        let state = self.state.lock();
        let is_wanted = |info: &&Arc<SnapshotInfo>| namespace.is_none_or(|wanted| info.name.namespace == wanted);
        Ok(state.snapshots.values().filter(is_wanted).cloned().collect())
    }

    async fn snapshot(&self, name: &SnapshotName) -> ServiceResult<Arc<SnapshotInfo>> {
        let found = self.state.lock().snapshots.get(name).cloned();
        found.ok_or_else(|| ServiceError::not_found(format!("no snapshot {name}")))
    }

    async fn update_snapshot(&self, name: &SnapshotName, update: SnapshotUpdate) -> ServiceResult<Arc<SnapshotInfo>> {
        let mut info = SnapshotInfo::clone(&*self.snapshot(name).await?);
        if let Some(failure) = self.state.lock().failure.take() {
            return Err(failure);
        }
        info.expires_micros = update.expires_micros.unwrap_or(info.expires_micros);
        if let Some(data) = update.front_end_data {
            info.front_end_data = data.into();
        }
        let info = Arc::new(info);
        self.state.lock().snapshots.insert(name.clone(), Arc::clone(&info));
        Ok(info)
    }

    async fn delete_snapshot(&self, name: &SnapshotName) -> ServiceResult<()> {
        let removed = self.state.lock().snapshots.remove(name);
        removed
            .map(drop)
            .ok_or_else(|| ServiceError::not_found(format!("no snapshot {name}")))
    }

    /// Rows are not part of it: the master's tests have them.
    async fn clone_snapshot(
        &self,
        name: &SnapshotName,
        table: &TableName,
        front_end_data: Option<Vec<u8>>,
    ) -> ServiceResult<Arc<TableSchema>> {
        let source = self.snapshot(name).await?;
        let mut state = self.state.lock();
        if state.tables.contains_key(table) {
            return Err(ServiceError::new(ErrorKind::AlreadyExists, "the table exists"));
        }
        let mut schema = TableSchema::clone(&source.schema);
        schema.name = table.clone();
        schema.front_end_data = front_end_data.unwrap_or(schema.front_end_data);
        let schema = Arc::new(schema);
        let made = FakeTable {
            schema: Arc::clone(&schema),
            rows: BTreeMap::new(),
            splits: Vec::new(),
            applied: BTreeSet::new(),
        };
        state.tables.insert(table.clone(), made);
        Ok(schema)
    }

    async fn restore_snapshot(&self, name: &SnapshotName, table: &TableName) -> ServiceResult<Arc<TableSchema>> {
        let source = self.snapshot(name).await?;
        self.with_table(table, |found| {
            found.rows.clear();
            found.schema = Arc::clone(&source.schema);
            Ok(Arc::clone(&found.schema))
        })
    }

    async fn list_tables(&self, namespace: &str) -> ServiceResult<Vec<Arc<TableSchema>>> {
        let state = self.state.lock();
        let inside = state
            .tables
            .values()
            .filter(|table| table.schema.name.namespace == namespace);
        Ok(inside.map(|table| Arc::clone(&table.schema)).collect())
    }

    async fn create_namespace(&self, namespace: &str, data: Vec<u8>) -> ServiceResult<()> {
        let mut state = self.state.lock();
        let slot = state.namespaces.entry(namespace.to_owned()).or_default();
        if slot.is_some() {
            return Err(ServiceError::new(ErrorKind::AlreadyExists, "the namespace exists"));
        }
        *slot = Some(data.into());
        Ok(())
    }

    async fn update_namespace(&self, namespace: &str, former: Bytes, data: Vec<u8>) -> ServiceResult<()> {
        let _through = self.updates.lock().await;
        let mut state = self.state.lock();
        let slot = state
            .namespaces
            .get_mut(namespace)
            .ok_or_else(|| ServiceError::not_found("no such namespace"))?;
        if slot.as_ref().is_some_and(|current| *current != former) {
            return Err(ServiceError::new(ErrorKind::Aborted, "the namespace has changed"));
        }
        *slot = Some(data.into());
        Ok(())
    }

    async fn delete_namespace(&self, namespace: &str, _: bool) -> ServiceResult<()> {
        let mut state = self.state.lock();
        state
            .namespaces
            .remove(namespace)
            .ok_or_else(|| ServiceError::not_found("no such namespace"))?;
        state.tables.retain(|name, _| name.namespace != namespace);
        Ok(())
    }

    async fn namespace(&self, namespace: &str) -> ServiceResult<Option<Bytes>> {
        Ok(self
            .state
            .lock()
            .namespaces
            .get(namespace)
            .map(|data| data.clone().unwrap_or_default()))
    }

    async fn list_namespaces(&self) -> ServiceResult<Vec<(String, Bytes)>> {
        let state = self.state.lock();
        Ok(state
            .namespaces
            .iter()
            .map(|(name, data)| (name.clone(), data.clone().unwrap_or_default()))
            .collect())
    }
}

fn change_view(schema: &mut TableSchema, name: String, change: ViewChange) -> ServiceResult<()> {
    schema.version += 1;
    let version = schema.version;
    let found = schema.views.get(&name);
    let former = match &change {
        ViewChange::Create(_) => None,
        ViewChange::Replace { former, .. } | ViewChange::Delete { former } => *former,
    };
    match (found, &change) {
        (Some(_), ViewChange::Create(_)) => return Err(ServiceError::new(ErrorKind::AlreadyExists, name)),
        (None, ViewChange::Replace { .. } | ViewChange::Delete { .. }) => return Err(ServiceError::not_found(name)),
        (Some(found), _) if former.is_some_and(|former| former != found.version) => {
            return Err(ServiceError::new(ErrorKind::Aborted, name));
        }
        (Some(found), ViewChange::Delete { .. }) if found.is_protected => {
            return Err(ServiceError::new(ErrorKind::FailedPrecondition, name));
        }
        _ => {}
    }
    match change {
        ViewChange::Create(view) | ViewChange::Replace { view, .. } => {
            schema.views.insert(name, View { version, ..view });
        }
        ViewChange::Delete { .. } => drop(schema.views.remove(&name)),
    }
    Ok(())
}
