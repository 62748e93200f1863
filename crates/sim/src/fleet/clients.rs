//! Clients of the fleet, and their reports to the checkers.
//!
//! Each tablet has a few rows with one value ([`rows`]), and a counter. The clients put values and delete them, by cell, family or row,
//! and a deletion is a write like any other. They read single rows, and scan over tablets ([`scans`]). A request without a response may
//! take effect late: its server may be paused, and its log be replayed later.

mod rows;
mod scans;

use super::{COUNTS, Fleet, LETTERS, table_name};
use crate::history::{Counter, Moment, Register};
use crate::workload::outcome;
use bytes::Bytes;
use parking_lot::Mutex;
use rows::{Change, DELETIONS, ROWS, content, is_counter, number, of_counter, of_register, rows_of};
use scans::Scan;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stele_client::{
    MutateRows, ReadRows, RmwOperation, RmwRule, RowOperation, ServiceError, ServiceResult, Step, TableService,
    TabletService,
};
use stele_types::{Cell, ErrorKind, RowRange, RowSet, RowWrites, TableName, TabletId};

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
            match self.fleet.below(20) {
                0..7 => {
                    let row = self.some_register();
                    self.write(&row).await;
                }
                7..10 => {
                    let row = self.some_register();
                    self.delete(&row).await;
                }
                10..13 => self.increment().await,
                13..17 => {
                    let row = self.some_row();
                    self.read(&row).await;
                }
                _ => self.scan_some().await,
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
            let (server, change) = (zombie.server.clone(), Change::Put(self.next_value()).of(&row));
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

    /// Reads every row in all ways, and changes the registers, which must succeed: there are no faults any more.
    pub(super) async fn check_everything(&self) {
        for row in rows_of(&RowRange::all()) {
            let name = row.escape_ascii().to_string();
            self.succeed(&name, "read", || self.read(&row)).await;
        }
        for reversed in [false, true] {
            self.succeed("the table", "scanned", || self.scan_all(reversed)).await;
        }
        for row in rows_of(&RowRange::all()).iter().filter(|row| !is_counter(row)) {
            let name = row.escape_ascii().to_string();
            match self.fleet.below(4) {
                0 => self.succeed(&name, "deleted", || self.delete(row)).await,
                _ => self.succeed(&name, "written", || self.write(row)).await,
            }
            self.succeed(&name, "read", || self.read(row)).await;
        }
        for reversed in [false, true] {
            self.succeed("the table", "scanned", || self.scan_all(reversed)).await;
        }
    }

    async fn succeed<F: Future<Output = bool>>(&self, what: &str, done: &str, call: impl Fn() -> F) {
        for _ in 0..CALLS_MAX {
            if call().await {
                return;
            }
            self.fleet.env.sleep(Duration::from_secs(1)).await;
        }
        let what = format!("{what} cannot be {done}, although there are no faults");
        self.fleet.violate(what);
    }

    fn some_register(&self) -> Bytes {
        let letter = self.fleet.below(LETTERS.len() as u64) as usize;
        of_register(letter, self.fleet.below(ROWS))
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
        self.change(row, Change::Put(self.next_value())).await
    }

    /// Whether a register, or its value, was deleted.
    async fn delete(&self, row: &Bytes) -> bool {
        let change = match self.fleet.below(DELETIONS) {
            0 => Change::DeleteRow,
            way => Change::DeleteValue(self.next_value(), way),
        };
        let is_deleted = self.change(row, change).await;
        self.fleet.verdict.lock().deletions += u64::from(is_deleted);
        is_deleted
    }

    async fn change(&self, row: &Bytes, change: Change) -> bool {
        let began = self.tick();
        let write = self.of_register(row, |known| known.begin(change.number(), began));
        let request = MutateRows {
            id: None,
            table: table_name(),
            rows: vec![change.of(row)].into(),
            durability: None,
        };
        let answer = self.service.mutate_rows(request).await;
        let answer = answer.and_then(|results| results.into_iter().collect::<ServiceResult<()>>());
        let ended = self.tick();
        self.of_register(row, |known| known.end(write, outcome(&answer), ended));
        self.note(&format!("{change:?} of {row:?}"), &answer);
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
        let all = match self.fleet.below(2) {
            0 => {
                let scan = Scan::new(table.clone(), RowRange::all(), self.fleet.below(2) == 0);
                self.scan(scan.between(moments)).await
            }
            _ => {
                let mut all = true;
                for row in rows_of(&RowRange::all()) {
                    all &= self.read_in(table, &row, Some(moments)).await;
                }
                all
            }
        };
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
        let moments = moments.unwrap_or((began, self.tick()));
        match &found {
            Ok(cells) => self.check_row(table, row, cells, moments),
            Err(error) => self.note_failed_read("read", table, error),
        }
        found.is_ok()
    }

    /// A read may fail, but not find damage.
    fn note_failed_read(&self, what: &str, table: &TableName, error: &ServiceError) {
        self.fleet.sim.note(&format!("{what} of {table} failed: {error}"));
        if error.kind == ErrorKind::Corruption {
            self.fleet
                .violate(format!("a {what} of {table} met corruption: {error}"));
        }
    }

    /// A row was found with these cells, and is as it was between two moments.
    fn check_row(&self, table: &TableName, row: &Bytes, cells: &[Cell], (began, ended): (Moment, Moment)) {
        let checked = match is_counter(row) {
            true => {
                // Increments leave older versions behind; the first is the newest.
                let sum = cells.first().and_then(number).unwrap_or(0);
                self.fleet
                    .sim
                    .note(&format!("{row:?} of {table} in {began}..{ended}: sum {sum}"));
                self.of_counter(row, |known| known.check(sum as i64, began, ended))
            }
            false => content(cells).and_then(|found| {
                self.fleet
                    .sim
                    .note(&format!("{row:?} of {table} in {began}..{ended}: {found:?}"));
                self.of_register(row, |known| known.check(&found, began, ended))
            }),
        };
        if let Err(why) = checked {
            self.fleet.violate(format!("{row:?} of {table}: {why}"));
        }
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
