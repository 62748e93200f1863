//! The same operations under other settings give the same results.
//!
//! One client runs a list of operations (writes of all kinds, read-modify-writes, conditional writes, reads and scans
//! in both directions, filtered or not) against two servers. One has everything in memory and is left alone. The other
//! has random settings of the server, the table, its locality groups and the storage. Between operations it flushes,
//! compacts, splits, moves families between groups, and loses its process or its power as its durability allows. Every
//! result must be the same.
//!
//! The test leaves out legitimate differences: rules of garbage collection, which a compaction may apply early, and the
//! timestamps that the server gives.
//!
//! A failing case is shrunk to few operations. `PROPTEST_CASES=2000` makes the search thorough.

use crate::tablet_model::history;

use bytes::Bytes;
use history::Change;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{
    Condition, GroupChange, GroupUpdate, MutateRows, NewFamily, NewTable, ReadRows, RmwOperation, RmwRule,
    RowOperation, ServiceError, ServiceResult, Step, TableAdmin, TableService,
};
use stele_filter::Filter;
use stele_sim::cluster::{Node, open_node, options};
use stele_sim::runtime::{Process, Sim, WALL_ORIGIN_MICROS};
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_tabletserver::{MemtableLimits, ServerOptions};
use stele_types::{
    AggregateKind, Cell, Compression, DeleteRule, Durability, ErrorKind, FamilyId, Mutation, RowMutation, RowRange,
    RowSet, TableName, TimeUnit, ValueType,
};

/// Steps of one run; more is a livelock.
const STEPS_MAX: u64 = 3_000_000;
/// Attempts at an operation that the server asks to try again.
const ATTEMPTS: u32 = 100;
/// Virtual time that all of a run takes at most. Timestamps of clients keep at least this distance from the clock's.
const RUN_MICROS_MAX: i64 = 50_000_000;

/// The operations of the client.
#[derive(Clone, Debug)]
enum Operation {
    Write(Vec<(Bytes, Vec<Change>)>),
    Increment(Bytes, Bytes, i64),
    Append(Bytes, Bytes),
    Check {
        row: Bytes,
        predicate: Option<Filter>,
        on_match: Option<Change>,
        otherwise: Option<Change>,
    },
    Scan {
        range: RowRange,
        reversed: bool,
        limit: u64,
        filter: Option<Filter>,
    },
}

/// An event between two operations.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    Nothing,
    Flush,
    CompactIfDue,
    CompactAll,
    Split,
    Restart,
    Pause,
    /// A family to a group, by number.
    Move(u32, usize),
    Alter(usize, GroupUpdate),
}

/// The settings of the server, the table and the storage.
#[derive(Clone, Debug)]
struct Settings {
    memtable_bytes: u64,
    log_segment_bytes: u64,
    log_streams: u32,
    tablet_bytes_max: u64,
    compactions_max: usize,
    cache_bytes: usize,
    row_cache_bytes: usize,
    value_separate_bytes: usize,
    compression: Compression,
    /// Of groups in addition to the default one.
    groups: Vec<GroupUpdate>,
    durability: Durability,
    splits: Vec<Bytes>,
    read_miss: f64,
    latency_micros: u64,
    /// By the number of the operation they come before, over and over.
    events: Vec<Event>,
}

/// Nothing happens, everything is in memory.
fn plain() -> Settings {
    Settings {
        memtable_bytes: 16 << 20,
        log_segment_bytes: 4 << 20,
        log_streams: 1,
        tablet_bytes_max: 64 << 20,
        compactions_max: 1,
        cache_bytes: 1 << 20,
        row_cache_bytes: 0,
        value_separate_bytes: 1 << 20,
        compression: Compression::None,
        groups: Vec::new(),
        durability: Durability::Sync,
        splits: Vec::new(),
        read_miss: 0.0,
        latency_micros: 0,
        events: vec![Event::Nothing],
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let server = (
        prop_oneof![Just(2u64 << 10), Just(12 << 10), Just(16 << 20)],
        prop_oneof![Just(2u64 << 10), Just(6 << 10), Just(4 << 20)],
        1u32..4,
        prop_oneof![Just(4u64 << 10), Just(16 << 10), Just(64 << 20)],
        1usize..3,
        prop_oneof![Just(0usize), Just(32 << 10), Just(1 << 20)],
        prop_oneof![Just(0usize), Just(4 << 10), Just(1 << 20)],
        prop_oneof![Just(1usize), Just(12), Just(1 << 20)],
    );
    let durability = prop_oneof![
        2 => Just(Durability::Sync),
        1 => Just(Durability::Flush),
        1 => Just(Durability::None)
    ];
    let table = (compression(), durability, vec(history::row(), 0..3), vec(group(), 0..4));
    let backend = (
        prop_oneof![Just(0.0), Just(0.3), Just(1.0)],
        prop_oneof![Just(0u64), Just(300)],
    );
    (server, table, backend, vec(event(), 1..40)).prop_map(|(server, table, backend, events)| Settings {
        memtable_bytes: server.0,
        log_segment_bytes: server.1,
        log_streams: server.2,
        tablet_bytes_max: server.3,
        compactions_max: server.4,
        cache_bytes: server.5,
        row_cache_bytes: server.6,
        value_separate_bytes: server.7,
        compression: table.0,
        groups: table.3,
        durability: table.1,
        splits: table.2,
        read_miss: backend.0,
        latency_micros: backend.1,
        events,
    })
}

fn compression() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::None),
        Just(Compression::Lz4),
        Just(Compression::Snappy),
        Just(Compression::Zstd)
    ]
}

fn group() -> impl Strategy<Value = GroupUpdate> {
    let zstd = (
        option::of(1u8..12),
        option::of(prop_oneof![Just(1u32 << 10), Just(8 << 10)]),
    );
    let rest = (
        option::of(prop_oneof![Just(1u32 << 10), Just(1 << 20)]),
        option::of(prop_oneof![Just(0u32), Just(1), Just(16)]),
        option::of(any::<bool>()),
        option::of(Just(1u64 << 20)),
    );
    (compression(), zstd, rest).prop_map(|(compression, zstd, rest)| GroupUpdate {
        compression: Some(compression),
        zstd_level: zstd.0.filter(|_| compression == Compression::Zstd),
        dictionary_bytes: zstd.1.filter(|_| compression == Compression::Zstd),
        block_bytes: rest.0,
        filter_bits_per_row: rest.1,
        in_memory: rest.2,
        file_bytes: rest.3,
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Nothing),
        4 => Just(Event::Flush),
        3 => Just(Event::CompactIfDue),
        1 => Just(Event::CompactAll),
        1 => Just(Event::Split),
        2 => Just(Event::Restart),
        2 => Just(Event::Pause),
        3 => (1u32..=4, 0usize..4).prop_map(|(family, group)| Event::Move(family, group)),
        1 => (0usize..4, group()).prop_map(|(at, group)| Event::Alter(at, group)),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        12 => vec((history::row(), vec(history::change(), 1..5)), 1..4).prop_map(Operation::Write),
        2 => (history::row(), history::qualifier(), -5i64..6).prop_map(|(r, q, n)| Operation::Increment(r, q, n)),
        1 => (history::row(), history::qualifier()).prop_map(|(r, q)| Operation::Append(r, q)),
        2 => (history::row(), option::of(history::filter()), option::of(history::change()), option::of(history::change()))
            .prop_map(|(row, predicate, on_match, otherwise)| Operation::Check { row, predicate, on_match, otherwise }),
        4 => history::row().prop_map(|row| Operation::Scan {
            range: RowRange::single(&row),
            reversed: false,
            limit: 0,
            filter: None
        }),
        8 => (history::range(), any::<bool>(), 0u64..4, option::of(history::filter()))
            .prop_map(|(range, reversed, limit, filter)| Operation::Scan { range, reversed, limit, filter }),
    ]
}

fn table() -> TableName {
    TableName::new("metamorphic", "table")
}

impl Settings {
    fn options(&self) -> ServerOptions {
        ServerOptions {
            durability: self.durability,
            memtables: MemtableLimits::new(self.memtable_bytes * 8, self.memtable_bytes),
            row_cache_bytes: self.row_cache_bytes,
            value_separate_bytes: self.value_separate_bytes,
            log_bytes_max: self.log_segment_bytes * 6,
            log_segment_bytes: self.log_segment_bytes,
            log_streams: self.log_streams,
            tablet_bytes_max: self.tablet_bytes_max,
            compactions_max: self.compactions_max,
            admission_wait_max: Duration::from_secs(10),
            ..options()
        }
    }

    fn backend(&self) -> FaultPlan {
        FaultPlan {
            read_miss: self.read_miss,
            latency_max: Duration::from_micros(self.latency_micros),
            ..FaultPlan::default()
        }
    }

    fn new_table(&self) -> NewTable {
        let types = [
            ValueType::Bytes,
            ValueType::Aggregate(AggregateKind::Sum),
            ValueType::Bytes,
            ValueType::Aggregate(AggregateKind::Max),
        ];
        let family = |(number, value_type)| NewFamily {
            name: format!("f{number}"),
            gc_rule: None,
            value_type,
            deletes: Default::default(),
            front_end_data: Vec::new(),
        };
        NewTable {
            name: table(),
            time_unit: TimeUnit::Micros,
            granularity: 1,
            delete_rule: DeleteRule::BySequence,
            durability: None,
            deletion_protection: false,
            families: (1..).zip(types).map(family).collect(),
            initial_splits: self.splits.clone(),
            compression: self.compression,
            automated_backups: None,
            front_end_data: Vec::new(),
        }
    }
}

/// A server, and the storage that outlives it.
struct Machine {
    sim: Sim,
    settings: Settings,
    storage: Arc<FaultyStorage>,
    process: Process,
    node: Node,
    /// Of the values made so far.
    values: i64,
}

impl Machine {
    async fn new(sim: Sim, settings: Settings) -> Result<Machine, String> {
        let storage = FaultyStorage::new(sim.process().env());
        storage.set_plan(settings.backend());
        let (process, node) = start(&sim, &settings, &storage).await?;
        let made = node.master.create_table(settings.new_table()).await;
        made.map_err(|e| e.to_string())?;
        let groups = settings
            .groups
            .iter()
            .zip(1..)
            .map(|(options, number)| GroupChange::Create {
                name: format!("g{number}"),
                options: options.clone(),
            });
        let made = node.master.modify_groups(&table(), groups.collect()).await;
        made.map_err(|e| e.to_string())?;
        Ok(Machine {
            sim,
            settings,
            storage,
            process,
            node,
            values: 0,
        })
    }

    /// Group 0 is the default one.
    async fn change_groups(&self, at: usize, change: impl FnOnce(String) -> GroupChange) -> Result<(), String> {
        let group = match at % (self.settings.groups.len() + 1) {
            0 => "default".to_owned(),
            number => format!("g{number}"),
        };
        match self.node.master.modify_groups(&table(), vec![change(group)]).await {
            // An earlier move is not complete.
            Err(error) if error.kind == ErrorKind::FailedPrecondition => Ok(()),
            changed => changed.map(drop).map_err(|e| e.to_string()),
        }
    }

    async fn happen(&mut self, event: Event) -> Result<(), String> {
        let served = self.node.server().all_served();
        let named = event.clone();
        let text = |e: stele_tablet::TabletError| format!("{named:?}: {e}");
        match event {
            Event::Nothing => {}
            Event::Move(family, at) => {
                let family = format!("f{family}");
                self.change_groups(at, |group| GroupChange::MoveFamily { family, group })
                    .await?;
            }
            Event::Alter(at, ref options) => {
                let options = options.clone();
                self.change_groups(at, |name| GroupChange::Alter { name, options })
                    .await?;
            }
            Event::Pause => self.process.env().sleep(Duration::from_millis(700)).await,
            Event::Restart => self.restart().await?,
            Event::Split => drop(self.node.master.split_due().await.map_err(|e| e.to_string())?),
            Event::Flush | Event::CompactIfDue | Event::CompactAll => {
                for served in served {
                    let done = match event {
                        Event::Flush => served.tablet.flush().await.map(drop),
                        Event::CompactIfDue => served.tablet.compact_if_due().await.map(drop),
                        _ => served.tablet.compact_all().await,
                    };
                    match done {
                        // Split meanwhile.
                        Err(stele_tablet::TabletError::Closed { .. }) => {}
                        done => done.map_err(text)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// An end that acknowledged writes survive, and a new start.
    async fn restart(&mut self) -> Result<(), String> {
        if self.settings.durability == Durability::None {
            match self.node.server().shut_down().await {
                0 => {}
                failed => return Err(format!("{failed} tablets not flushed at shutdown")),
            }
        }
        self.process.kill();
        match self.settings.durability {
            Durability::Sync => self.storage.crash(),
            _ => self.storage.kill(),
        }
        self.storage = self.storage.reopen();
        (self.process, self.node) = start(&self.sim, &self.settings, &self.storage).await?;
        Ok(())
    }

    async fn run(&mut self, operation: &Operation) -> Result<String, String> {
        let before = self.values;
        for _ in 0..ATTEMPTS {
            // An operation that is tried again writes the same values.
            self.values = before;
            match self.attempt(operation).await {
                Err(error) if error.is_retryable() => self.process.env().sleep(Duration::from_millis(20)).await,
                Ok(answer) => return Ok(answer),
                Err(error) => return Ok(format!("{:?}", error.kind)),
            }
        }
        Err(format!("{operation:?} was put off {ATTEMPTS} times"))
    }

    async fn attempt(&mut self, operation: &Operation) -> ServiceResult<String> {
        let router = self.node.router.clone();
        match operation {
            Operation::Write(rows) => {
                let rows: Vec<RowMutation> = rows.iter().map(|(row, changes)| self.change(row, changes)).collect();
                let mut left = rows;
                while let Some(row) = left.first().cloned() {
                    let request = MutateRows {
                        id: None,
                        table: table(),
                        rows: vec![row].into(),
                        durability: None,
                    };
                    match router
                        .mutate_rows(request)
                        .await?
                        .into_iter()
                        .collect::<ServiceResult<()>>()
                    {
                        Err(error) if error.is_retryable() => {
                            self.process.env().sleep(Duration::from_millis(20)).await;
                        }
                        done => {
                            done?;
                            left.remove(0);
                        }
                    }
                }
                Ok("written".to_owned())
            }
            Operation::Increment(row, qualifier, by) => {
                let operation = RmwOperation::Increment(*by);
                self.read_modify_write(row, FamilyId(1), qualifier, operation).await
            }
            Operation::Append(row, qualifier) => {
                let operation = RmwOperation::Append(Bytes::from_static(b"+"));
                self.read_modify_write(row, FamilyId(3), qualifier, operation).await
            }
            Operation::Check {
                row,
                predicate,
                on_match,
                otherwise,
            } => {
                let mut steps = |change: &Option<Change>| {
                    let mutation = change.clone().map(|change| self.mutation(change));
                    mutation.into_iter().map(Step::Mutate).collect()
                };
                let request = RowOperation {
                    id: None,
                    table: table(),
                    row: row.clone(),
                    condition: Some(Condition::any_cell(predicate.clone().map(Arc::new))),
                    steps: steps(on_match),
                    otherwise: steps(otherwise),
                    durability: None,
                    token: None,
                };
                Ok(router.row_operation(request).await?.matched.to_string())
            }
            Operation::Scan {
                range,
                reversed,
                limit,
                filter,
            } => {
                let request = ReadRows {
                    filter: filter.clone().map(Arc::new),
                    rows_limit: *limit,
                    reversed: *reversed,
                    ..ReadRows::new(table(), RowSet::new(vec![range.clone()]))
                };
                let mut stream = router.read_rows(request).await?;
                let mut answer = String::new();
                while let Some(batch) = stream.next().await? {
                    batch.rows().for_each(|(row, cells)| show(&mut answer, row, cells));
                }
                Ok(answer)
            }
        }
    }

    async fn read_modify_write(
        &self,
        row: &Bytes,
        family: FamilyId,
        qualifier: &Bytes,
        operation: RmwOperation,
    ) -> Result<String, ServiceError> {
        let rule = RmwRule::new(family, qualifier.clone(), operation);
        let request = RowOperation {
            id: None,
            table: table(),
            row: row.clone(),
            condition: None,
            steps: vec![Step::Modify(rule)],
            otherwise: Vec::new(),
            durability: None,
            token: None,
        };
        let cells = self.node.router.row_operation(request).await?.written;
        // So that no two of them get one timestamp.
        self.process.env().sleep(Duration::from_micros(10)).await;
        let mut answer = String::new();
        show(&mut answer, row, &cells);
        Ok(answer)
    }

    fn change(&mut self, row: &Bytes, changes: &[Change]) -> RowMutation {
        RowMutation {
            row: row.clone(),
            mutations: changes.iter().map(|change| self.mutation(change.clone())).collect(),
        }
    }

    fn mutation(&mut self, change: Change) -> Mutation {
        self.values += 1;
        let number = self.values.to_be_bytes();
        match change {
            Change::Put {
                family,
                qualifier,
                timestamp,
                long,
            } => Mutation::Put {
                family,
                qualifier,
                timestamp,
                // Aggregates want eight bytes, and so do increments.
                value: if long && family.0 == 3 {
                    number.repeat(1_000).into()
                } else {
                    Bytes::copy_from_slice(&number)
                },
            },
            Change::Add {
                family,
                qualifier,
                timestamp,
                operand,
            } => Mutation::Merge {
                family,
                qualifier,
                timestamp,
                operand: Bytes::copy_from_slice(&operand.to_be_bytes()),
            },
            Change::DeleteRow(up_to) => Mutation::DeleteRow { up_to },
            Change::DeleteFamily(family, up_to) => Mutation::DeleteFamily { family, up_to },
            Change::DeleteFamilyVersion(family, timestamp) => Mutation::DeleteFamilyVersion { family, timestamp },
            Change::DeleteColumn(family, qualifier, from, to) => Mutation::DeleteColumn {
                family,
                qualifier,
                from,
                to,
            },
            Change::DeleteVersion(family, qualifier, timestamp) => Mutation::DeleteVersion {
                family,
                qualifier,
                timestamp,
            },
        }
    }
}

async fn start(sim: &Sim, settings: &Settings, storage: &Arc<FaultyStorage>) -> Result<(Process, Node), String> {
    let process = sim.process();
    let started = open_node(
        process.clone(),
        process.env(),
        storage.clone(),
        settings.options(),
        settings.cache_bytes,
    );
    Ok((process.clone(), started.await?))
}

/// A row as text; timestamps that the server gave, which lie near its clock, are left out.
fn show(out: &mut String, row: &[u8], cells: &[Cell]) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{}:", row.escape_ascii());
    for cell in cells {
        let since_start = cell.timestamp.0 - WALL_ORIGIN_MICROS;
        let timestamp = if (0..RUN_MICROS_MAX).contains(&since_start) {
            "now".to_owned()
        } else {
            since_start.to_string()
        };
        let value = &cell.value;
        let shown = value.get(..16).unwrap_or(value).escape_ascii();
        let _ = write!(
            out,
            " {}/{}@{timestamp}={}*{shown}",
            cell.family,
            cell.qualifier.escape_ascii(),
            value.len()
        );
    }
    out.push('\n');
}

/// The results of all operations, and of a final scan in either direction.
fn answers(seed: u64, settings: &Settings, operations: &[Operation]) -> Result<Vec<String>, String> {
    let sim = Sim::new(seed, STEPS_MAX);
    let (settings, mut operations) = (settings.clone(), operations.to_vec());
    operations.extend([false, true].map(|reversed| Operation::Scan {
        range: RowRange::all(),
        reversed,
        limit: 0,
        filter: None,
    }));
    let run = {
        let sim = sim.clone();
        async move {
            let mut machine = Machine::new(sim, settings.clone()).await?;
            let mut answers = Vec::new();
            for (operation, event) in operations.iter().zip(settings.events.iter().cycle()) {
                machine.happen(event.clone()).await?;
                answers.push(machine.run(operation).await?);
            }
            let took = machine.process.env().wall_micros() - WALL_ORIGIN_MICROS;
            assert!(
                took < RUN_MICROS_MAX,
                "timestamps depend on the run being short: {took} µs"
            );
            machine.process.kill();
            Ok::<_, String>(answers)
        }
    };
    sim.run(run).map_err(|stalled| stalled.to_string())?
}

/// Cases: enough to notice obvious faults, in some seconds.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(32);
    ProptestConfig {
        cases,
        max_shrink_iters: 3_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn settings_do_not_change_answers(
        seed in any::<u64>(),
        other in settings(),
        operations in vec(operation(), 1..60),
    ) {
        let expected = answers(seed, &plain(), &operations).map_err(TestCaseError::fail)?;
        let found = answers(seed, &other, &operations).map_err(TestCaseError::fail)?;
        for (number, (expected, found)) in expected.iter().zip(&found).enumerate() {
            prop_assert_eq!(found, expected, "answer {} to {:?}", number, operations.get(number));
        }
        prop_assert_eq!(found.len(), expected.len());
    }
}
