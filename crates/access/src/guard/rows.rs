//! Rows as a caller may read and write them.

use super::Guard;
use super::narrow::narrowed;
use crate::grants::{Families, TableRights};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_client::{
    BatchReservation, BulkLoad, LoadTarget, Loaded, MutateRows, ReadRows, RowOperation, RowOutcome, RowSample,
    RowStream, RowsOperation, ServerPlace, ServiceError, ServiceResult, Step, TableService, TabletInfo, TabletPlace,
};
use stele_types::{
    ErrorKind, FamilyId, Mutation, Rights, RowBatch, RowRange, RowSet, RowWrites, TableId, TableName, TableSchema,
};

impl Guard {
    /// The families that a read may see; an error if there are none.
    fn readable(&self, operation: &'static str, table: &TableName, rows: &RowSet) -> ServiceResult<Families> {
        let grants = self.grants();
        let families = self.rights_on(&grants, table).families_of_rows(Rights::READ, rows);
        match families.is_none() {
            false => Ok(families),
            true => Err(self.denied(operation, table, Rights::READ)),
        }
    }

    /// The denial of a call on rows.
    fn denied(&self, operation: &'static str, table: &TableName, right: Rights) -> ServiceError {
        let on = format!("these rows or families of table {table}");
        let whole = self.resource(table);
        let is_narrowed = self.sees_table(table);
        let denied = match is_narrowed {
            true => self.allow(false, operation, &on, right),
            false => self.allow(false, operation, &whole, right),
        };
        denied
            .err()
            .unwrap_or_else(|| ServiceError::new(ErrorKind::PermissionDenied, on))
    }

    /// Checks the right to write rows. For narrowed rights it binds the request to the table whose families it has
    /// checked.
    fn check_writes(&self, operation: &'static str, request: &mut MutateRows) -> ServiceResult<()> {
        let grants = self.grants();
        let rights = self.rights_on(&grants, &request.table);
        if rights.has(Rights::WRITE) {
            return Ok(());
        }
        if !rights.is_seen() {
            return Err(self.denied(operation, &request.table, Rights::WRITE));
        }
        let schema = self.service.schema(&request.table)?;
        request.id.get_or_insert(schema.id);
        if may_write(&rights, &schema, &request.rows) {
            return Ok(());
        }
        Err(self.denied(operation, &request.table, Rights::WRITE))
    }

    /// Checks the rights for a row operation, and narrows its condition.
    fn check_operation(&self, request: &mut RowOperation) -> ServiceResult<()> {
        const OPERATION: &str = "row_operation";
        let grants = self.grants();
        let rights = self.rights_on(&grants, &request.table);
        let has_both = rights.has(Rights::READ.and(Rights::WRITE));
        if has_both {
            return Ok(());
        }
        if !rights.is_seen() {
            return Err(self.denied(OPERATION, &request.table, Rights::READ.and(Rights::WRITE)));
        }
        let schema = self.service.schema(&request.table)?;
        request.id.get_or_insert(schema.id);
        if let Some(condition) = &mut request.condition {
            let families = rights.families_of(Rights::READ, &RowRange::single(&request.row));
            if families.is_none() {
                return Err(self.denied(OPERATION, &request.table, Rights::READ));
            }
            condition.reads = narrowed(&families, condition.reads.take());
        }
        let may = |right: Rights, family: Option<FamilyId>| allows(&rights, &schema, right, &request.row, family);
        for step in request.steps.iter().chain(&request.otherwise) {
            let (family, reads) = match step {
                Step::Mutate(mutation) | Step::MutateNow(mutation) => (mutation.family(), false),
                Step::DeleteNewest { family, .. } => (Some(*family), false),
                // The new value comes back, and tells the former one.
                Step::Modify(rule) => (Some(rule.family), true),
            };
            if !may(Rights::WRITE, family) {
                return Err(self.denied(OPERATION, &request.table, Rights::WRITE));
            }
            if reads && !may(Rights::READ, family) {
                return Err(self.denied(OPERATION, &request.table, Rights::READ));
            }
        }
        Ok(())
    }
}

impl Guard {
    /// Whether a read of some rows sees all of their columns.
    pub fn reads_whole(&self, table: &TableName, rows: &RowSet) -> bool {
        let grants = self.grants();
        self.rights_on(&grants, table).families_of_rows(Rights::READ, rows) == Families::All
    }

    /// Checks the rights for an operation on several rows: each of them as an operation of its own.
    fn check_rows_operation(&self, request: &mut RowsOperation) -> ServiceResult<()> {
        let schema = self.service.schema(&request.table);
        let of_row = |row: &Bytes, id: Option<TableId>| RowOperation {
            table: request.table.clone(),
            id,
            row: row.clone(),
            condition: None,
            steps: Vec::new(),
            otherwise: Vec::new(),
            durability: None,
            token: None,
        };
        let mut checked = Vec::new();
        for (row, condition) in &request.conditions {
            let mut operation = of_row(row, request.id);
            operation.condition = Some(condition.clone());
            self.check_operation(&mut operation)?;
            checked.push((row.clone(), operation.condition.unwrap_or_else(|| condition.clone())));
        }
        for (row, steps) in &request.rows {
            let mut operation = of_row(row, request.id);
            operation.steps.clone_from(steps);
            self.check_operation(&mut operation)?;
        }
        request.conditions = checked;
        // After the checks, which come before existence.
        request.id.get_or_insert(schema?.id);
        Ok(())
    }
}

impl Guard {
    /// Checks the right to write all rows of a tablet in some families. Returns the table's id if the check went by its schema.
    fn may_load(&self, target: &LoadTarget) -> ServiceResult<Option<TableId>> {
        const OPERATION: &str = "bulk_load";
        let grants = self.grants();
        let rights = self.rights_on(&grants, &target.table);
        if rights.has(Rights::WRITE) {
            return Ok(None);
        }
        if !rights.is_seen() {
            return Err(self.denied(OPERATION, &target.table, Rights::WRITE));
        }
        let schema = self.service.schema(&target.table)?;
        let may = match rights.families_of(Rights::WRITE, &target.range) {
            Families::All => true,
            Families::Named(named) => {
                let may = |family| {
                    let family = schema.families.get(family);
                    family.is_some_and(|family| named.contains(&family.name))
                };
                !target.families.is_empty() && target.families.iter().all(may)
            }
        };
        match may {
            true => Ok(Some(schema.id)),
            false => Err(self.denied(OPERATION, &target.table, Rights::WRITE)),
        }
    }
}

/// Samples for callers that do not see all columns: the boundaries of tablets, which clients may know, without sizes. Other rows
/// may have cells in hidden columns alone, and sizes would tell of those.
fn boundaries(places: &[TabletPlace], range: &RowRange) -> Vec<RowSample> {
    let starts = places.iter().map(|place| &place.range.start);
    let within = starts.filter(|start| **start > range.start && range.contains(start));
    let all = within.cloned().chain([Bytes::new()]);
    all.map(|row| RowSample { row, offset_bytes: 0 }).collect()
}

/// Whether all changes of some rows are allowed.
fn may_write(rights: &TableRights<'_>, schema: &TableSchema, rows: &RowWrites) -> bool {
    rows.iter().all(|row| {
        let mut may = true;
        row.for_each(|mutation: Mutation<&[u8]>| {
            may = may && allows(rights, schema, Rights::WRITE, row.row, mutation.family());
        });
        may
    })
}

/// Whether a right holds for a family in a row. One that the schema lacks is an error of the layers below, but narrowed rights
/// have no such family.
fn allows(rights: &TableRights<'_>, schema: &TableSchema, right: Rights, row: &[u8], family: Option<FamilyId>) -> bool {
    let name = match family {
        None => None,
        Some(id) => match schema.families.get(&id) {
            Some(family) => Some(family.name.as_str()),
            None => return rights.has(right),
        },
    };
    rights.allows(right, row, name)
}

#[async_trait]
impl TableService for Guard {
    fn version(&self) -> Option<u64> {
        self.service.version()
    }

    fn schema(&self, table: &TableName) -> ServiceResult<Arc<TableSchema>> {
        self.check_seen("schema", table)?;
        self.service.schema(table)
    }

    async fn read_rows(&self, mut request: ReadRows) -> ServiceResult<Box<dyn RowStream>> {
        self.check_token("read_rows")?;
        // Before the rights are looked at: those that go meanwhile are noticed at the next batch.
        let version = self.access.admin().version();
        let families = self.readable("read_rows", &request.table, &request.rows)?;
        request.filter = narrowed(&families, request.filter.take());
        let (table, rows) = (request.table.clone(), request.rows.clone());
        let call = self.service.read_rows(request);
        let inner = self.audited_rows("read_rows", &table, call).await?;
        Ok(Box::new(Checked {
            guard: self.again(),
            version,
            inner,
            table,
            rows,
            families,
        }))
    }

    fn try_read_row(&self, request: &ReadRows) -> ServiceResult<Option<RowBatch>> {
        let read = match self.readable("read_rows", &request.table, &request.rows)? {
            Families::All => self.service.try_read_row(request),
            families => {
                let mut request = request.clone();
                request.filter = narrowed(&families, request.filter.take());
                let mut read = self.service.try_read_row(&request);
                if let Ok(Some(batch)) = &mut read {
                    batch.hide_others();
                }
                read
            }
        };
        // A read that would have to wait is written when it is made.
        if !matches!(read, Ok(None))
            && let Some(note) = self.note_rows("read_rows", &request.table)
        {
            note.write(read.as_ref().err());
        }
        read
    }

    async fn mutate_rows(&self, mut request: MutateRows) -> ServiceResult<Vec<ServiceResult<()>>> {
        self.check_writes("mutate_rows", &mut request)?;
        let table = request.table.clone();
        let call = self.service.mutate_rows(request);
        self.audited_rows("mutate_rows", &table, call).await
    }

    async fn mutate_rows_together(&self, mut request: MutateRows) -> ServiceResult<()> {
        self.check_writes("mutate_rows_together", &mut request)?;
        let table = request.table.clone();
        let call = self.service.mutate_rows_together(request);
        self.audited_rows("mutate_rows_together", &table, call).await
    }

    async fn row_operation(&self, mut request: RowOperation) -> ServiceResult<RowOutcome> {
        self.check_operation(&mut request)?;
        let table = request.table.clone();
        let call = self.service.row_operation(request);
        self.audited_rows("row_operation", &table, call).await
    }

    async fn rows_operation(&self, mut request: RowsOperation) -> ServiceResult<bool> {
        self.check_rows_operation(&mut request)?;
        let table = request.table.clone();
        let call = self.service.rows_operation(request);
        self.audited_rows("rows_operation", &table, call).await
    }

    fn check_load(&self, target: &LoadTarget) -> ServiceResult<()> {
        self.may_load(target)?;
        self.service.check_load(target)
    }

    async fn bulk_load(&self, mut load: BulkLoad) -> ServiceResult<Loaded> {
        let table = load.table.clone();
        let checked = self.may_load(&LoadTarget {
            table: table.clone(),
            range: load.tablet.1.clone(),
            families: load.sources.iter().map(|source| source.family).collect(),
        })?;
        load.id = load.id.or(checked);
        let call = self.service.bulk_load(load);
        self.audited_rows("bulk_load", &table, call).await
    }

    async fn sample_row_keys(&self, table: &TableName, range: RowRange) -> ServiceResult<Vec<RowSample>> {
        let families = self.readable("sample_row_keys", table, &RowSet::new(vec![range.clone()]))?;
        match families {
            Families::All if self.view.is_none() => self.on_behalf(self.service.sample_row_keys(table, range)).await,
            _ => Ok(boundaries(&self.service.places(table)?, &range)),
        }
    }

    fn place_of(&self, table: &TableName, row: &[u8]) -> ServiceResult<TabletPlace> {
        self.check_seen("place_of", table)?;
        self.service.place_of(table, row)
    }

    fn places(&self, table: &TableName) -> ServiceResult<Vec<TabletPlace>> {
        self.check_seen("places", table)?;
        self.service.places(table)
    }

    fn other_servers(&self) -> Vec<Arc<ServerPlace>> {
        // Addresses of servers are told to every known caller.
        self.service.other_servers()
    }

    async fn tablets(&self, table: &TableName) -> ServiceResult<Vec<TabletInfo>> {
        self.check_seen("tablets", table)?;
        let mut tablets = self.on_behalf(self.service.tablets(table)).await?;
        if !self.knows_figures(table) {
            tablets.iter_mut().for_each(|tablet| tablet.figures = None);
        }
        Ok(tablets)
    }
}

/// A read that ends with an error if the caller loses its right meanwhile, or its token counts no longer.
struct Checked {
    guard: Guard,
    inner: Box<dyn RowStream>,
    table: TableName,
    rows: RowSet,
    /// As the read began.
    families: Families,
    /// Version of the rules that were checked last.
    version: u64,
}

impl Checked {
    /// A batch as the caller may have it.
    fn shown(&self, mut batch: RowBatch) -> RowBatch {
        if self.families != Families::All {
            batch.hide_others();
        }
        batch
    }

    fn check(&mut self) -> ServiceResult<()> {
        self.guard.check_token("read_rows")?;
        self.guard.check_known()?;
        let version = self.guard.access.admin().version();
        if version == self.version {
            return Ok(());
        }
        let now = self.guard.readable("read_rows", &self.table, &self.rows)?;
        if now != self.families {
            let message = "the rights of the caller changed during the read: begin it again";
            return Err(ServiceError::new(ErrorKind::PermissionDenied, message));
        }
        self.version = version;
        Ok(())
    }
}

#[async_trait]
impl RowStream for Checked {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        self.check()?;
        let batch = self.guard.on_behalf(self.inner.next()).await?;
        Ok(batch.map(|batch| self.shown(batch)))
    }

    async fn next_within(&mut self, room: &mut dyn BatchReservation) -> ServiceResult<Option<RowBatch>> {
        self.check()?;
        let batch = self.guard.on_behalf(self.inner.next_within(room)).await?;
        Ok(batch.map(|batch| self.shown(batch)))
    }
}
