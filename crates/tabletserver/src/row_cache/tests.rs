//! Reads and writes race in random orders of steps. The tablet is a map. On threads of their own they race
//! in `threads`, and the order of their accesses to memory is tried out in `orders`.

mod orders;
mod threads;

use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;
use stele_env::{BlockingWork, Priority, Runtime};
use stele_types::{Family, FamilyId, GcRule, GroupId, TableId, TableName, Timestamp, ValueType};

const TABLET: TabletId = TabletId(7);
const FAMILY: FamilyId = FamilyId(1);

/// The cache reads the clock for its profile alone.
struct NoRuntime;

impl Runtime for NoRuntime {
    fn now(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }

    fn wall_micros(&self) -> i64 {
        0
    }

    fn random_u64(&self) -> u64 {
        0
    }

    fn sleep(&self, _: std::time::Duration) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(futures::future::ready(()))
    }

    fn spawn(&self, _: Priority, _: &'static str, _: futures::future::BoxFuture<'static, ()>) {}

    fn run_blocking(&self, _: BlockingWork) {}
}

fn cache(bytes: usize) -> Arc<RowCache> {
    RowCache::new(Env::new(Arc::new(NoRuntime)), bytes)
}

fn schema(version: u64, gc_rule: Option<GcRule>) -> TableSchema {
    let family = Family {
        name: "f".to_owned(),
        gc_rule,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    TableSchema {
        version,
        families: BTreeMap::from([(FAMILY, family)]),
        next_family: FamilyId(2),
        ..TableSchema::new(TableId(1), TableName::new("n", "t"))
    }
}

fn row(number: usize) -> Bytes {
    Bytes::from(vec![b'r', number as u8])
}

fn filter(number: usize) -> Option<Arc<Filter>> {
    match number {
        0 => None,
        n => Some(Arc::new(Filter::CellsPerColumn(n as i32))),
    }
}

/// The result of a read: the value, and under which filter and schema it was read.
fn result(row: &Bytes, value: u64, filter: usize, schema: u64) -> RowBatch {
    let mut batch = RowBatch::default();
    let content = format!("{value} {filter} {schema}");
    let cell = Cell::put(FAMILY, Bytes::from_static(b"q"), Timestamp(1), Bytes::from(content));
    batch.push_row(row.clone(), [cell]);
    batch
}

#[derive(Clone, Debug)]
enum Step {
    LookUp(usize, usize),
    /// By a read that has looked it up before, and begins only now.
    Begin(usize, usize),
    Snapshot(usize),
    Install(usize),
    BeginWrite(Vec<usize>),
    Apply(usize),
    EndWrite(usize),
    DropRows,
    ChangeSchema,
    Resize(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0usize..3, 0usize..2).prop_map(|(r, f)| Step::LookUp(r, f)),
        3 => (0usize..3, 0usize..2).prop_map(|(r, f)| Step::Begin(r, f)),
        12 => (0usize..8).prop_map(Step::Snapshot),
        12 => (0usize..8).prop_map(Step::Install),
        2 => prop::collection::vec(0usize..3, 1..3).prop_map(Step::BeginWrite),
        2 => (0usize..8).prop_map(Step::Apply),
        2 => (0usize..8).prop_map(Step::EndWrite),
        1 => Just(Step::DropRows),
        1 => Just(Step::ChangeSchema),
        1 => (0usize..400_000).prop_map(Step::Resize),
    ]
}

struct OpenRead {
    reading: Reading,
    row: usize,
    filter: usize,
    schema: u64,
    found: Option<RowBatch>,
}

struct OpenWrite {
    rows: Vec<usize>,
    value: u64,
    applied: bool,
    _writing: Writing,
}

/// The tablet, the reads and writes under way, and the cache.
struct Race {
    cache: Arc<RowCache>,
    values: [u64; 3],
    schema: u64,
    next_value: u64,
    reads: Vec<OpenRead>,
    writes: Vec<OpenWrite>,
    hits: u64,
}

impl Race {
    fn step(&mut self, step: Step) {
        match step {
            Step::LookUp(r, f) => self.look_up(r, f, true),
            Step::Begin(r, f) => self.look_up(r, f, false),
            Step::Snapshot(i) => {
                let open = self.reads.len().max(1);
                if let Some(read) = self.reads.get_mut(i % open) {
                    let found = result(&row(read.row), self.values[read.row], read.filter, read.schema);
                    read.found.get_or_insert(found);
                }
            }
            Step::Install(i) => {
                let i = i % self.reads.len().max(1);
                if self.reads.get(i).is_some_and(|r| r.found.is_some()) {
                    let read = self.reads.remove(i);
                    let found = read.found.unwrap_or_default();
                    let (schema, row, filter) = (schema(self.schema, None), row(read.row), filter(read.filter));
                    let of = RowRead {
                        tablet: TABLET,
                        schema: SchemaMark::of(&schema),
                        row: &row,
                        filter: filter.as_ref(),
                    };
                    self.cache
                        .install(read.reading, &of, &found, || Arc::new(schema.clone()), || 0);
                }
            }
            Step::BeginWrite(rows) => {
                let names: Vec<Bytes> = rows.iter().map(|r| row(*r)).collect();
                let keys = self.cache.keys(TABLET, names.iter().map(|r| &r[..]));
                self.next_value += 1;
                self.writes.push(OpenWrite {
                    rows,
                    value: self.next_value,
                    applied: false,
                    _writing: self.cache.writing(keys),
                });
            }
            Step::Apply(i) => {
                let open = self.writes.len().max(1);
                if let Some(write) = self.writes.get_mut(i % open) {
                    for r in &write.rows {
                        self.values[*r] = self.values[*r].max(write.value);
                    }
                    write.applied = true;
                }
            }
            Step::EndWrite(i) => {
                let i = i % self.writes.len().max(1);
                if self.writes.get(i).is_some_and(|w| w.applied) {
                    self.writes.remove(i);
                }
            }
            Step::DropRows => {
                let clearing = self.cache.clearing(TABLET);
                self.next_value += 1;
                self.values = [self.next_value; 3];
                drop(clearing);
            }
            Step::ChangeSchema => self.schema += 1,
            Step::Resize(bytes) => self.cache.set_capacity(bytes),
        }
    }

    fn look_up(&mut self, r: usize, f: usize, first: bool) {
        let (schema, row, filter) = (schema(self.schema, None), row(r), filter(f));
        let read = RowRead {
            tablet: TABLET,
            schema: SchemaMark::of(&schema),
            row: &row,
            filter: filter.as_ref(),
        };
        let lookup = match first {
            true => self.cache.lookup(&read, || 0),
            false => self.cache.reading(&read, || 0).map_or(Lookup::Uncached, Lookup::Miss),
        };
        match lookup {
            Lookup::Hit(kept) => {
                self.hits += 1;
                assert_eq!(kept.to_batch(), result(&row, self.values[r], f, self.schema), "stale");
            }
            Lookup::Miss(reading) => self.reads.push(OpenRead {
                reading,
                row: r,
                filter: f,
                schema: self.schema,
                found: None,
            }),
            Lookup::Uncached => {}
        }
    }
}

/// Runs a history; the hits it had.
fn race(steps: Vec<Step>) -> u64 {
    let mut race = Race {
        cache: cache(400_000),
        values: [0; 3],
        schema: 1,
        next_value: 0,
        reads: Vec::new(),
        writes: Vec::new(),
        hits: 0,
    };
    for step in steps {
        race.step(step);
    }
    race.hits
}

#[test]
fn hits_are_never_stale() {
    let config = ProptestConfig {
        cases: 1_000,
        source_file: Some(file!()),
        ..ProptestConfig::default()
    };
    let (mut runner, hits) = (TestRunner::new(config), std::cell::Cell::new(0));
    let result = runner.run(&prop::collection::vec(step(), 1..200), |steps| {
        hits.set(hits.get() + race(steps));
        Ok(())
    });
    assert_eq!(result.map_err(|error| error.to_string()), Ok(()), "{runner}");
    // Some eight hundred: most histories drop or change a row before it is kept.
    assert!(hits.get() > 100, "{} hits", hits.get());
}

/// Reads a row until it is kept.
fn keep(cache: &RowCache, read: &RowRead<'_>, batch: &RowBatch, schema: &TableSchema, now_micros: i64) {
    for _ in 0..2 {
        if let Lookup::Miss(reading) = cache.lookup(read, || now_micros) {
            cache.install(reading, read, batch, || Arc::new(schema.clone()), || now_micros);
        }
    }
}

fn kept_of(cache: &RowCache, read: &RowRead<'_>, now_micros: i64) -> Option<Kept> {
    match cache.lookup(read, || now_micros) {
        Lookup::Hit(kept) => Some(kept),
        Lookup::Miss(_) | Lookup::Uncached => None,
    }
}

fn found(cache: &RowCache, read: &RowRead<'_>, now_micros: i64) -> Option<RowBatch> {
    Some(kept_of(cache, read, now_micros)?.to_batch())
}

#[test]
fn a_result_is_kept_in_memory_of_its_own() {
    let (cache, schema, row) = (cache(1 << 20), schema(1, None), row(1));
    let block = Bytes::from(vec![1u8; 1 << 16]);
    let mut batch = RowBatch::default();
    let cells = [
        Cell::put(FAMILY, block.slice(10..20), Timestamp(5), block.slice(100..200)),
        Cell::put(FAMILY, block.slice(30..31), Timestamp(4), Bytes::new()),
    ];
    batch.push_row(row.clone(), cells);
    batch.seen.cells = 9;
    let read = RowRead {
        tablet: TABLET,
        schema: SchemaMark::of(&schema),
        row: &row,
        filter: None,
    };
    if let Lookup::Miss(reading) = cache.lookup(&read, || 0) {
        cache.install(reading, &read, &batch, || Arc::new(schema.clone()), || 0);
    }
    let kept = found(&cache, &read, 0);
    assert_eq!(kept.as_ref(), Some(&batch));
    drop((batch, kept));
    assert!(block.try_into_mut().is_ok(), "nothing holds the block");
    drop(cache.clearing(TABLET));
    assert_eq!(cache.stats().entries, 0);
}

/// Cells with anything that a filter may leave or add, and names of any length.
fn any_cell() -> impl Strategy<Value = Cell> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    let labels = prop::collection::vec("[a-zä]{0,6}", 0..3);
    let parts = (1u32..5, bytes(), any::<i64>(), bytes(), labels);
    parts.prop_map(|(family, qualifier, timestamp, value, labels)| {
        let mut cell = Cell::put(FamilyId(family), qualifier, Timestamp(timestamp), value);
        labels.into_iter().for_each(|label| cell.labels.push(label));
        cell
    })
}

proptest! {
    /// A hit gives the cached result, cell by cell and as a batch; several filters have results of their own.
    #[test]
    fn a_hit_gives_what_was_kept(
        row in prop::collection::vec(any::<u8>(), 0..100),
        results in prop::collection::vec((prop::collection::vec(any_cell(), 0..5), 0u64..9), 1..=VARIANTS_MAX),
    ) {
        let (cache, schema) = (cache(1 << 20), schema(1, None));
        let kept: Vec<(Option<Arc<Filter>>, RowBatch)> = results.into_iter().enumerate().map(|(n, (cells, seen))| {
            let mut batch = RowBatch::default();
            batch.push_row(&row[..], cells);
            batch.seen.cells = seen;
            batch.seen.rows = seen.min(1);
            (filter(n), batch)
        }).collect();
        let read = |filter| RowRead { tablet: TABLET, schema: SchemaMark::of(&schema), row: &row, filter };
        for (filter, batch) in &kept {
            keep(&cache, &read(filter.as_ref()), batch, &schema, 0);
        }
        for (filter, batch) in &kept {
            let hit = kept_of(&cache, &read(filter.as_ref()), 0).expect("it is there");
            prop_assert_eq!(&hit.to_batch(), batch);
            prop_assert_eq!(hit.cells_len(), batch.rows().flat_map(|(_, cells)| cells).count());
        }
        let other = [&row[..], b"x"].concat();
        let elsewhere = RowRead { row: &other, ..read(None) };
        prop_assert!(found(&cache, &elsewhere, 0).is_none());
        drop(cache.writing(cache.keys(TABLET, [&row[..]].into_iter())));
        for (filter, _) in &kept {
            prop_assert!(found(&cache, &read(filter.as_ref()), 0).is_none(), "written since");
        }
    }
}

/// Two rows of the same hash are told apart by name, and two tablets of the same name by number.
#[test]
fn a_collision_is_no_hit() {
    let (cache, schema, mine, other) = (cache(1 << 20), schema(1, None), row(1), row(2));
    let read = |row, tablet| RowRead {
        tablet,
        schema: SchemaMark::of(&schema),
        row,
        filter: None,
    };
    keep(&cache, &read(&mine, TABLET), &result(&mine, 1, 0, 1), &schema, 0);
    assert!(found(&cache, &read(&mine, TABLET), 0).is_some());
    let key = RowKey::new(TABLET, &mine);
    let shard = &cache.shards[key.shard()];
    let shape = Shape::of(None).expect("nothing is in its way").hash;
    let find = |row, tablet| shard.find(key, &read(row, tablet), shape, &|| 0).is_ok();
    assert!(find(&mine, TABLET));
    assert!(!find(&other, TABLET), "another row");
    assert!(!find(&mine, TabletId(8)), "another tablet");
}

#[test]
fn age_rules_end_an_entry() {
    let rule = GcRule::Union(vec![GcRule::MaxVersions(3), GcRule::MaxAgeMicros(1_000)]);
    let (schema, row) = (schema(1, Some(rule)), row(1));
    let mut batch = RowBatch::default();
    let cell = |timestamp| Cell::put(FAMILY, Bytes::new(), Timestamp(timestamp), Bytes::new());
    batch.push_row(row.clone(), [900, 500].map(cell));
    let read = |filter| RowRead {
        tablet: TABLET,
        schema: SchemaMark::of(&schema),
        row: &row,
        filter,
    };
    let cache = cache(1 << 20);
    keep(&cache, &read(None), &batch, &schema, 1_200);
    assert!(found(&cache, &read(None), 1_500).is_some());
    assert_eq!(found(&cache, &read(None), 1_501), None, "the older cell is garbage");
    assert_eq!(found(&cache, &read(None), 1_199), None, "the clock was set back");
    let first = Arc::new(Filter::CellsPerRow(1));
    keep(&cache, &read(Some(&first)), &batch, &schema, 1_200);
    assert_eq!(
        found(&cache, &read(Some(&first)), 1_200),
        None,
        "depends on cells it does not have"
    );
    let newest = Arc::new(Filter::CellsPerColumn(1));
    keep(&cache, &read(Some(&newest)), &batch, &schema, 1_200);
    assert!(found(&cache, &read(Some(&newest)), 1_200).is_some());
}

#[test]
fn lots_and_switches_keep_out() {
    let (cache, row, batch) = (cache(1 << 20), row(1), result(&row(1), 1, 0, 1));
    let mut schema = schema(1, None);
    let sample = Arc::new(Filter::Chain(vec![Filter::PassAll, Filter::RowSample(0.5)]));
    let read = RowRead {
        tablet: TABLET,
        schema: SchemaMark::of(&schema),
        row: &row,
        filter: Some(&sample),
    };
    assert!(matches!(cache.lookup(&read, || 0), Lookup::Uncached));
    schema.row_cache = false;
    let read = RowRead {
        tablet: TABLET,
        schema: SchemaMark::of(&schema),
        row: &row,
        filter: None,
    };
    assert!(matches!(cache.lookup(&read, || 0), Lookup::Uncached));
    schema.row_cache = true;
    let read = RowRead {
        tablet: TABLET,
        schema: SchemaMark::of(&schema),
        row: &row,
        filter: None,
    };
    let off = self::cache(0);
    keep(&off, &read, &batch, &schema, 0);
    assert!(matches!(off.lookup(&read, || 0), Lookup::Uncached));
}
