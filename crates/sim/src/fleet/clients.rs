//! Clients of the fleet, and their reports to the checkers.
//!
//! Each tablet has a few rows with one value and a counter. A request without a response may take effect late: its server
//! may be paused, and its log be replayed later.

use super::{COUNTS, Fleet, LETTERS, VALUES, table_name};
use crate::history::{Counter, Moment, Register};
use crate::workload::outcome;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stele_client::{
    MutateRows, ReadRows, RmwOperation, RmwRule, RowOperation, ServiceError, ServiceResult, Step, TableService,
    TabletService,
};
use stele_types::{Cell, Mutation, RowMutation, RowRange, RowSet, RowWrites, TableName, TabletId, Timestamp};

/// Rows of values in a tablet.
const ROWS: u64 = 3;
/// Longest pause between two operations of a client, in milliseconds.
const PAUSE_MS_MAX: u64 = 700;
/// Attempts to read or write a row when there are no faults any more.
const CALLS_MAX: u32 = 60;

/// The state that all clients share.
pub(super) struct Clients {
    fleet: Arc<Fleet>,
    service: Arc<dyn TableService>,
    registers: Mutex<BTreeMap<Bytes, Register<Option<u64>>>>,
    counters: Mutex<BTreeMap<Bytes, Counter>>,
    now: Mutex<Moment>,
    next_value: Mutex<u64>,
    stopped: AtomicBool,
}

fn of_register(letter: usize, number: u64) -> Bytes {
    Bytes::from(format!("{}r{number}", LETTERS[letter]))
}

fn of_counter(letter: usize) -> Bytes {
    Bytes::from(format!("{}n", LETTERS[letter]))
}

/// A put of a value with filler, so that memtables and log segments fill up.
fn put(row: &Bytes, value: u64) -> RowMutation {
    let mut bytes = value.to_be_bytes().to_vec();
    bytes.resize(64 + (value % 7) as usize * 80, value as u8);
    RowMutation {
        row: row.clone(),
        mutations: vec![Mutation::Put {
            family: VALUES,
            qualifier: Bytes::new(),
            timestamp: Timestamp(1),
            value: bytes.into(),
        }],
    }
}

fn number(cell: &Cell) -> Option<u64> {
    Some(u64::from_be_bytes(cell.value.get(..8)?.try_into().ok()?))
}

impl Clients {
    pub(super) fn new(fleet: Arc<Fleet>, service: Arc<dyn TableService>) -> Arc<Self> {
        Arc::new(Clients {
            fleet,
            service,
            registers: Mutex::default(),
            counters: Mutex::default(),
            now: Mutex::new(1),
            next_value: Mutex::new(1),
            stopped: AtomicBool::new(false),
        })
    }

    /// One client of the router.
    pub(super) async fn client(self: Arc<Self>, operations: u64) {
        for _ in 0..operations {
            match self.fleet.below(10) {
                0..5 => {
                    let letter = self.fleet.below(LETTERS.len() as u64) as usize;
                    let row = of_register(letter, self.fleet.below(ROWS));
                    self.write(&row).await;
                }
                5..7 => self.increment().await,
                _ => {
                    let row = self.some_row();
                    self.read(&row).await;
                }
            }
            let pause = Duration::from_millis(self.fleet.below(PAUSE_MS_MAX));
            self.fleet.env.sleep(pause).await;
        }
    }

    /// A client that has not learned that servers were given up. Their logs are sealed, so they acknowledge nothing.
    pub(super) async fn haunt(self: Arc<Self>) {
        while !self.stopped.load(Ordering::Relaxed) {
            let pause = Duration::from_millis(self.fleet.below(PAUSE_MS_MAX));
            self.fleet.env.sleep(pause).await;
            let Some(zombie) = self.fleet.some_zombie() else {
                continue;
            };
            let letter = self.fleet.below(LETTERS.len() as u64) as usize;
            let (row, tablet) = (of_register(letter, self.fleet.below(ROWS)), TabletId(letter as u64 + 1));
            let (server, change) = (zombie.server.clone(), put(&row, self.next_value()));
            let write = async move { server.mutate(tablet, RowWrites::from(vec![change]), None).await };
            let answer = zombie.call(&self.fleet.env, write).await;
            self.fleet.verdict.lock().zombie_writes += 1;
            if matches!(answer, Ok(Ok(()))) {
                let what = format!(
                    "server {} was given up and has acknowledged a write of {row:?}",
                    zombie.id
                );
                self.fleet.violate(what);
            }
        }
    }

    /// Ends the clients that go on by themselves.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Reads every row, and writes the registers, which must succeed: there are no faults any more.
    pub(super) async fn check_everything(&self) {
        for letter in 0..LETTERS.len() {
            let registers = (0..ROWS).map(|number| of_register(letter, number));
            for row in registers.clone().chain([of_counter(letter)]) {
                self.succeed(&row, "read", || self.read(&row)).await;
            }
            for row in registers {
                self.succeed(&row, "written", || self.write(&row)).await;
                self.succeed(&row, "read", || self.read(&row)).await;
            }
        }
    }

    async fn succeed<F: Future<Output = bool>>(&self, row: &Bytes, done: &str, call: impl Fn() -> F) {
        for _ in 0..CALLS_MAX {
            if call().await {
                return;
            }
            self.fleet.env.sleep(Duration::from_secs(1)).await;
        }
        let what = format!("{row:?} cannot be {done}, although there are no faults");
        self.fleet.violate(what);
    }

    fn some_row(&self) -> Bytes {
        let letter = self.fleet.below(LETTERS.len() as u64) as usize;
        match self.fleet.below(ROWS + 1) {
            ROWS => of_counter(letter),
            number => of_register(letter, number),
        }
    }

    pub(super) fn tick(&self) -> Moment {
        let mut now = self.now.lock();
        *now += 1;
        *now
    }

    fn next_value(&self) -> u64 {
        let mut next = self.next_value.lock();
        *next += 1;
        *next
    }

    fn note(&self, what: &str, answer: &ServiceResult<()>) {
        self.fleet.sim.note(&format!("{what}: {answer:?}"));
        if answer.is_ok() {
            self.fleet.verdict.lock().acknowledged += 1;
        }
    }

    /// Whether a register was written.
    async fn write(&self, row: &Bytes) -> bool {
        let value = self.next_value();
        let began = self.tick();
        let write = self.of_register(row, |known| known.begin(Some(value), began));
        let request = MutateRows {
            id: None,
            table: table_name(),
            rows: vec![put(row, value)].into(),
            durability: None,
        };
        let answer = self.service.mutate_rows(request).await;
        let answer = answer.and_then(|results| results.into_iter().collect::<ServiceResult<()>>());
        let ended = self.tick();
        self.of_register(row, |known| known.end(write, outcome(&answer), ended));
        self.note(&format!("write {row:?} = {value}"), &answer);
        answer.is_ok()
    }

    async fn increment(&self) {
        let row = of_counter(self.fleet.below(LETTERS.len() as u64) as usize);
        let began = self.tick();
        let addition = self.of_counter(&row, |known| known.begin(began));
        let request = RowOperation {
            id: None,
            table: table_name(),
            row: row.clone(),
            condition: None,
            steps: vec![Step::Modify(RmwRule::new(
                COUNTS,
                Bytes::new(),
                RmwOperation::Increment(1),
            ))],
            otherwise: Vec::new(),
            durability: None,
            token: None,
        };
        let answer = self.service.row_operation(request).await;
        let told = answer.as_ref().ok().and_then(|done| number(done.written.first()?));
        let (result, ended) = (outcome(&answer), self.tick());
        let told = told.map(|told| told as i64);
        let checked = self.of_counter(&row, |known| known.end(addition, result, told, ended));
        self.note(&format!("add to {row:?}, told {told:?}"), &answer.map(drop));
        if let Err(why) = checked {
            self.fleet.violate(format!("{row:?}: {why}"));
        }
    }

    /// Whether the row was read.
    async fn read(&self, row: &Bytes) -> bool {
        self.read_in(&table_name(), row, None).await
    }

    /// Checks a table that was made of a snapshot: each row must be as it was at some moment between the two. Whether all rows
    /// were read.
    pub(super) async fn check_copy(&self, table: &TableName, moments: (Moment, Moment)) -> bool {
        let mut all = true;
        for letter in 0..LETTERS.len() {
            let registers = (0..ROWS).map(|number| of_register(letter, number));
            for row in registers.chain([of_counter(letter)]) {
                all &= self.read_in(table, &row, Some(moments)).await;
            }
        }
        if all {
            self.fleet.verdict.lock().copies += 1;
        }
        all
    }

    /// Reads a row of a table. It is as it was during the read, or between other moments.
    async fn read_in(&self, table: &TableName, row: &Bytes, moments: Option<(Moment, Moment)>) -> bool {
        let request = ReadRows::new(table.clone(), RowSet::new(vec![RowRange::single(row)]));
        let began = self.tick();
        let found = self.cells(request).await;
        let (began, ended) = moments.unwrap_or((began, self.tick()));
        let cells = match found {
            Ok(cells) => cells,
            Err(error) => {
                self.fleet.sim.note(&format!("read {row:?} of {table} failed: {error}"));
                if error.kind == stele_types::ErrorKind::Corruption {
                    self.fleet
                        .violate(format!("a read of {row:?} of {table} met corruption: {error}"));
                }
                return false;
            }
        };
        // Increments leave older versions behind; the first is the newest.
        let value = cells.first().and_then(number);
        self.fleet
            .sim
            .note(&format!("read {row:?} of {table} in {began}..{ended}: {value:?}"));
        let checked = match row.ends_with(b"n") {
            true => self.of_counter(row, |known| known.check(value.unwrap_or(0) as i64, began, ended)),
            false => self.of_register(row, |known| known.check(&value, began, ended)),
        };
        if let Err(why) = checked {
            self.fleet.violate(format!("{row:?} of {table}: {why}"));
        }
        true
    }

    async fn cells(&self, request: ReadRows) -> Result<Vec<Cell>, ServiceError> {
        let mut stream = self.service.read_rows(request).await?;
        let mut cells = Vec::new();
        while let Some(batch) = stream.next().await? {
            cells.extend(batch.into_cells());
        }
        Ok(cells)
    }

    fn of_register<T>(&self, row: &Bytes, ask: impl FnOnce(&mut Register<Option<u64>>) -> T) -> T {
        let mut registers = self.registers.lock();
        ask(registers.entry(row.clone()).or_insert_with(|| Register::new(None)))
    }

    fn of_counter<T>(&self, row: &Bytes, ask: impl FnOnce(&mut Counter) -> T) -> T {
        ask(self.counters.lock().entry(row.clone()).or_default())
    }
}
