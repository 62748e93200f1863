//! Serves `ReplicateWALEntry`: a real HBase ships its log here, as to any peer.
//!
//! Cells are written with the timestamps and the kinds that they have, so an entry that comes again, or late, changes nothing
//! more if the timestamps of a column differ. Of two puts with the same one, the put that is written last counts, also if the
//! source wrote it first. All of that holds where deletes act by timestamp: tables with a family whose deletes act by sequence
//! are refused.
//!
//! Entries of system tables and events of the log are passed over. A bulk load is refused, because its files are in the
//! source's file system. The source repeats a request that fails, so a request need not be atomic.
//!
//! A source deletes its log once an entry is acknowledged, and never ships that again. So entries are synced, also in a
//! table with a weaker durability.
//!
//! Back-pressure: a call ends when its rows are written, and a source has one call at a time for each of its threads. It
//! repeats a call that takes longer than the header says; so a call writes no more after that time, and few calls write at
//! a time ([`crate::replications`]). A write that has begun then is carried out. A call's
//! memory is that of its request, and of the changes of [`CELLS_MAX`] cells, which are written before the next ones are
//! converted. A request of 64 MiB, the most that a source sends, may have cells whose changes take ten times as much
//! together.

use crate::call::{Call, Reply};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::mutate::write;
use crate::mutations::Converter;
use crate::names::{self, SYSTEM_NAMESPACE};
use crate::pace::{CELL_UNITS, Pace};
use crate::replications::Turn;
use crate::selection::FamilySearch;
use crate::times;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;
use stele_types::{DeleteRule, Durability, Mutation, RowMutation, TableName, TableSchema};
use stele_wire::cell::{Cell, CellReader};
use stele_wire::messages::{Empty, ReplicateWalEntryRequest, WalEntry};
use stele_wire::tags;

/// Family of the events that a log has between changes.
const EVENTS: &[u8] = b"METAFAMILY";

/// Qualifier of the event of a bulk load.
const BULK_LOAD: &[u8] = b"HBASE::BULK_LOAD";

/// Cells that are converted and written together. Their changes take less than 5 MB, and one write of as many is long enough
/// that its own cost is small.
const CELLS_MAX: usize = 10_000;

/// Changes that are not written yet.
struct Batch<'r> {
    turn: Turn<'r>,
    tables: BTreeMap<TableName, Rows>,
    /// Their cells: [`CELLS_MAX`] at most.
    cells: usize,
}

/// Rows of one table, in the order of the request.
struct Rows {
    schema: Arc<TableSchema>,
    search: FamilySearch,
    rows: Vec<RowMutation>,
}

/// Serves a call.
pub(super) async fn replicate(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: ReplicateWalEntryRequest = call.message("ReplicateWALEntryRequest")?;
    let patience = call.request.header.timeout.filter(|timeout| *timeout > 0);
    let patience = patience.map(|ms| Duration::from_millis(u64::from(ms)));
    let turn = shared.replications.turn(&shared.env, patience).await?;
    let mut cells = call.cells_in_parts(CELLS_MAX)?;
    let mut batch = Batch {
        turn,
        tables: BTreeMap::new(),
        cells: 0,
    };
    let mut pace = Pace::new(&shared.env);
    for entry in &request.entry {
        batch.take(shared, entry, &mut cells, &mut pace).await?;
    }
    batch.write(shared).await?;
    call.reply(&Empty {})
}

impl Batch<'_> {
    /// Takes the cells of an entry out of the block, and adds them to the rows of its table. Full batches are written.
    async fn take(
        &mut self,
        shared: &Shared,
        entry: &WalEntry,
        cells: &mut CellReader,
        pace: &mut Pace<'_>,
    ) -> Outcome<()> {
        if !entry.key_value_bytes.is_empty() {
            return Err(Failure::not_served("a replicated entry with its cells in the message"));
        }
        let table = names::from_text(&entry.key.table_name)?;
        pace.spend(CELL_UNITS).await;
        for _ in 0..entry.associated_cell_count.unwrap_or(0) {
            let (cell, tags) = cells.read_with_tags()?;
            if cell.family == EVENTS {
                check_event(&cell)?;
            } else if table.namespace != SYSTEM_NAMESPACE {
                if self.cells == CELLS_MAX {
                    self.write(shared).await?;
                }
                self.cells += 1;
                self.rows(shared, &table)?.add(shared, cell, tags)?;
            }
            pace.spend(2 * CELL_UNITS).await;
        }
        Ok(())
    }

    fn rows(&mut self, shared: &Context, table: &TableName) -> Outcome<&mut Rows> {
        match self.tables.entry(table.clone()) {
            Entry::Occupied(rows) => Ok(rows.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(Rows {
                schema: sink(shared, table)?,
                search: FamilySearch::default(),
                rows: Vec::new(),
            })),
        }
    }

    /// Writes all changes, as long as the source waits for them.
    async fn write(&mut self, shared: &Shared) -> Outcome<()> {
        self.cells = 0;
        for Rows { schema, rows, .. } in std::mem::take(&mut self.tables).into_values() {
            self.turn.check(&shared.env)?;
            let results = write(shared, &schema, rows.into(), Some(Durability::Sync)).await?;
            results.into_iter().collect::<Outcome<Vec<()>>>()?;
        }
        Ok(())
    }
}

fn check_event(event: &Cell) -> Outcome<()> {
    match event.qualifier.starts_with(BULK_LOAD) {
        true => Err(Failure::not_served("the replication of a bulk load")),
        // Flushes, compactions and openings of the source's regions.
        false => Ok(()),
    }
}

/// The table that entries are written to.
fn sink(shared: &Context, table: &TableName) -> Outcome<Arc<TableSchema>> {
    let schema = shared.schema(table)?;
    // A family may have a rule of its own, such as one with `NEW_VERSION_BEHAVIOR`.
    if schema.deletes_only(DeleteRule::ByTimestamp) {
        return Ok(schema);
    }
    Err(Failure::do_not_retry(format!(
        "table {} cannot be a target of replication: its deletes act by sequence, so an entry that comes again would \
         delete newer cells",
        names::to_text(table)
    )))
}

impl Rows {
    /// Adds a cell to the last row, if it is of that row.
    fn add(&mut self, shared: &Context, cell: Cell, tags: Bytes) -> Outcome<()> {
        let tags = tags::read(tags)?;
        if let Some(kind) = tags.foreign {
            return Err(Failure::not_served(format!(
                "a replicated cell with a tag of type {kind}"
            )));
        }
        let now = times::now(&self.schema, shared.env.wall_micros());
        let schema = &self.schema;
        let (row, mutation): (Bytes, Mutation) = Converter {
            schema,
            nonce_group: None,
            now,
            memory: None,
        }
        .logged(cell, tags.lifetime_ms, &mut self.search)?;
        match self.rows.last_mut() {
            Some(last) if last.row == row => last.mutations.push(mutation),
            _ => self.rows.push(RowMutation {
                row,
                mutations: vec![mutation],
            }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::test_service::{Client, Model, count_turns, failure};
    use bytes::{Bytes, BytesMut};
    use std::sync::Arc;
    use std::time::Duration;
    use stele_memory::{Part, Pool};
    use stele_wire::cell::{CellRef, CellType};
    use stele_wire::exception;
    use stele_wire::messages::{ADMIN_SERVICE, ConnectionHeader, ReplicateWalEntryRequest, WalEntry, WalKey};

    async fn client(model: &Arc<Model>, pool: &Pool) -> Client {
        let header = ConnectionHeader {
            service_name: Some(ADMIN_SERVICE.to_owned()),
            ..ConnectionHeader::default()
        };
        Client::open(&model.front_end(pool), 16 << 20, &header).await.0
    }

    /// Entries of as many cells each, and the block of these.
    fn entries(count: usize, cells: u32, value: &[u8]) -> (ReplicateWalEntryRequest, Bytes) {
        let mut block = BytesMut::new();
        for row in 0..count as u32 * cells {
            let cell = CellRef {
                row: &row.to_be_bytes(),
                family: b"info",
                qualifier: b"q",
                timestamp: 7,
                kind: CellType::Put,
                value,
            };
            cell.encode(&mut block).unwrap();
        }
        let entry = WalEntry {
            key: WalKey {
                table_name: "t".into(),
                ..WalKey::default()
            },
            associated_cell_count: Some(cells as i32),
            ..WalEntry::default()
        };
        let request = ReplicateWalEntryRequest {
            entry: vec![entry; count],
            ..ReplicateWalEntryRequest::default()
        };
        (request, block.freeze())
    }

    #[tokio::test]
    async fn entries_of_many_cells_let_other_calls_run() {
        let model = Model::new(&[""]);
        let mut client = client(&model, &Pool::default()).await;
        let (request, block) = entries(5, 10_000, b"v");
        client.send("ReplicateWALEntry", &request, &block).await;
        let turns = count_turns();
        let response = client.response().await;
        assert!(response.header.exception.is_none(), "{}", failure(&response));
        assert_eq!(model.mutations.lock().len(), 50_000);
        assert!(turns.get() >= 40, "a pause every thousand cells; {} turns", turns.get());
    }

    /// A source repeats a request that is too big for ever.
    #[tokio::test]
    async fn a_request_whose_changes_exceed_all_memory_of_requests_is_written_in_parts() {
        let model = Model::new(&[""]);
        let pool = Pool::default().limited(Part::Requests, 32 << 20);
        let mut client = client(&model, &pool).await;
        let (request, block) = entries(7, 30_001, b"a value of 16 B.");
        assert!(block.len() > 9 << 20);
        client.send("ReplicateWALEntry", &request, &block).await;
        let response = client.response().await;
        assert!(response.header.exception.is_none(), "{}", failure(&response));
        assert_eq!(model.mutations.lock().len(), 7 * 30_001);
    }

    /// A source that has given up sends the same entries again.
    #[tokio::test(start_paused = true)]
    async fn a_call_writes_no_more_once_its_source_has_given_up() {
        let model = Model::new(&[""]);
        model.writes.forget_permits(999);
        let mut client = client(&model, &Pool::default()).await;
        client.timeout = Some(60_000);
        let (request, block) = entries(3, 10_000, b"v");
        client.send("ReplicateWALEntry", &request, &block).await;
        // The second write waits.
        while model.mutations.lock().len() < 10_000 || model.latch.try_lock().is_some() {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(Duration::from_secs(61)).await;
        model.writes.add_permits(1_000);
        assert_eq!(failure(&client.response().await), exception::CALL_DROPPED);
        assert_eq!(model.mutations.lock().len(), 20_000);
        client.send("ReplicateWALEntry", &request, &block).await;
        let response = client.response().await;
        assert!(response.header.exception.is_none(), "{}", failure(&response));
        assert_eq!(model.mutations.lock().len(), 50_000);
    }

    /// Those that wait are dropped when their sources give up.
    #[allow(clippy::disallowed_methods, reason = "the test waits by the paused clock")]
    #[tokio::test(start_paused = true)]
    async fn few_calls_write_at_a_time() {
        let model = Model::new(&[""]);
        model.writes.forget_permits(1_000);
        let mut client = client(&model, &Pool::default()).await;
        client.timeout = Some(60_000);
        let (request, block) = entries(1, 1, b"v");
        for _ in 0..9 {
            client.send("ReplicateWALEntry", &request, &block).await;
        }
        let first = tokio::time::timeout(Duration::from_secs(100), client.response()).await;
        let dropped = first.expect("the source of a call that waits has given up");
        assert_eq!(dropped.header.call_id, Some(9));
        assert_eq!(failure(&dropped), exception::CALL_DROPPED);
        model.writes.add_permits(1_000);
        client.send("ReplicateWALEntry", &request, &block).await;
        for _ in 0..9 {
            let response = client.response().await;
            assert!(response.header.exception.is_none(), "{}", failure(&response));
        }
        assert_eq!(model.mutations.lock().len(), 9);
    }
}
