//! "Hypertable vs. HBase Performance Evaluation, Test 1", 2010.
//!
//! Hypertable 0.9.3.3 ran against HBase 0.20.4 on 10 machines.
//!
//! Four tablet servers had 5 GB each. 80 GB were written, scanned and read with values of 10,000 to 10 bytes. Random
//! reads were of 80 down to 2.5 GB, so that data is from four times to an eighth of the memory. Row keys have ten
//! bytes. The charts' figures are those of the published per-run reports: bytes of keys and values each second.

use super::dataset::Dataset;
use super::recipe::{Measure, Recipe, padded};
use super::sizing::Sizing;
use crate::plan::{Experiment, KeyOrder, Metric, Operation};

/// Digits of a row key.
const KEY_DIGITS: u8 = 10;

/// Bytes of a row key.
const KEY_BYTES: u64 = 10;

/// Volume of every test but the random reads.
const VOLUME: u64 = 80_000_000_000;

/// Clients that wrote, and clients that read: six and eight on each of four machines.
const WRITERS: u32 = 24;
const READERS: u32 = 32;

/// Value size, bytes each second of Hypertable, of HBase.
type SizeFigures = [(u32, Option<(f64, f64)>)];

const RANDOM_WRITE: &SizeFigures = &[
    (10_000, Some((43_775_006.0, 28_905_561.0))),
    (1_000, Some((40_755_087.0, 20_156_697.0))),
    (100, Some((28_916_185.0, 5_483_390.0))),
    (10, Some((10_951_963.0, 1_061_768.0))),
];

const SEQUENTIAL_READ: &SizeFigures = &[
    (10_000, Some((86_113_043.0, 7_421_951.0))),
    (1_000, Some((29_686_518.0, 17_633_598.0))),
    (100, Some((3_223_338.0, 1_407_679.0))),
];

const SCAN: &SizeFigures = &[
    (10_000, Some((98_344_308.0, 96_058_238.0))),
    (1_000, Some((136_163_768.0, 86_258_027.0))),
    (100, Some((91_401_965.0, 52_289_249.0))),
    (10, Some((44_744_039.0, 14_003_515.0))),
];

const SEQUENTIAL_WRITE: &SizeFigures = &[(10_000, None), (1_000, None), (100, None), (10, None)];

/// GB of data, rows in quick runs, Hypertable and HBase with uniform keys, with Zipf keys; bytes each second.
type ReadFigures = (&'static str, u64, u64, (f64, f64), (f64, f64));

const RANDOM_READ: [ReadFigures; 6] = [
    (
        "80",
        79_207_921,
        64_000,
        (20_535_629.0, 4_140_803.0),
        (36_901_296.0, 3_599_189.0),
    ),
    (
        "40",
        39_603_960,
        32_000,
        (23_172_612.0, 4_422_430.0),
        (32_763_952.0, 4_463_996.0),
    ),
    (
        "20",
        19_801_980,
        16_000,
        (25_199_797.0, 4_804_412.0),
        (38_113_208.0, 4_346_335.0),
    ),
    (
        "10",
        9_900_990,
        8_000,
        (38_820_491.0, 6_579_268.0),
        (57_077_263.0, 6_849_634.0),
    ),
    (
        "5",
        4_950_495,
        4_000,
        (46_631_078.0, 9_130_588.0),
        (57_673_091.0, 11_222_417.0),
    ),
    (
        "2.5",
        2_475_248,
        2_000,
        (49_628_607.0, 25_174_659.0),
        (56_591_206.0, 28_337_765.0),
    ),
];

/// Queries of a random read test.
const QUERIES: u64 = 20_000_000;

const VALUES: &str = "Values are incompressible random bytes, and tables are not compressed.";

const OTHER_CLUSTER: &str = "The document ran four tablet servers with 5 GB each on machines with two cores of 1.8 GHz; here it is whatever the address names.";

pub(super) fn experiments(sizing: &Sizing) -> Vec<Experiment> {
    vec![
        random_read(sizing),
        random_write(sizing),
        sequential_read(sizing),
        scan(sizing),
        sequential_write(sizing),
    ]
}

fn random_read(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B07",
        "Random read by data set size",
        "20 million reads of 1000 bytes, keys uniform or by Zipf's law, from data sets of four times the memory down to an \
         eighth of it. Where do caches begin to help?",
    )
    .metric(Metric::BytesPerSecond)
    .numbers("data set, as the document names it", "GB")
    .differs(VALUES)
    .differs(OTHER_CLUSTER)
    .differs(
        "The document does not give the exponent of its Zipf distribution; 0.8, as in the same authors' next evaluation.",
    );
    for (gb, rows, quick_rows, uniform, zipf) in RANDOM_READ {
        let name = gb.replace('.', "-");
        let data = Dataset::new(
            "random-read",
            sizing.count(rows, quick_rows),
            padded(KEY_DIGITS),
            sizing.random(1_000),
        );
        recipe.create(&data);
        recipe.load(&data, &format!("load-{name}gb"), WRITERS);
        recipe.settle(&data);
        for (series, order, (hypertable, hbase)) in [
            ("uniform", KeyOrder::Uniform, uniform),
            ("zipf", KeyOrder::Zipf { exponent: 0.8 }, zipf),
        ] {
            let read = Measure::table(
                data.only(Operation::Get, order),
                sizing.clients(READERS),
                sizing.operations_or(QUERIES, 0.9),
            );
            recipe.measure(&format!("read-{series}-{name}gb"), series, gb, read);
            recipe.publish("Hypertable", series, gb, hypertable, "");
            recipe.publish("HBase", series, gb, hbase, "");
        }
        if gb == "80" {
            let read = data.only(Operation::Get, KeyOrder::Uniform);
            recipe.open_loop(
                "read-uniform-open",
                Measure::table(read, READERS, sizing.seconds(180.0, 1.5)),
            );
        }
    }
    recipe.done()
}

fn random_write(sizing: &Sizing) -> Experiment {
    let recipe = Recipe::new(
        sizing,
        "B08",
        "Random write of 80 GB",
        "24 clients with buffers of 12 MB write values of 10,000 to 10 bytes under hashed keys.",
    )
    .differs(
        "The document's summary has smaller figures (40.4, 39.7, 28.6 and 9.66 MB/s; HBase 28.3, 19.4 and 5.51 MB/s, and \
         none for 10 bytes) than its published reports, which are used here.",
    );
    writes(recipe, "random-write", KeyOrder::Uniform, RANDOM_WRITE)
}

fn sequential_write(sizing: &Sizing) -> Experiment {
    let recipe = Recipe::new(
        sizing,
        "B11",
        "Sequential write of 80 GB",
        "The same in key order. The document left it out for \"too many HDFS errors\", so there is nothing to compare with.",
    );
    writes(recipe, "sequential-write", KeyOrder::Sequential, SEQUENTIAL_WRITE)
}

/// Writes each size into a table of its own and checks it.
fn writes(recipe: Recipe<'_>, test: &str, order: KeyOrder, figures: &SizeFigures) -> Experiment {
    let sizing = recipe.sizing;
    let series = test.replace('-', " ");
    let mut recipe = sized(recipe);
    for (bytes, published) in figures {
        let rows = rows_of(*bytes);
        // A quick run ends by time, so its key space must exceed the writes of the fastest store.
        let quick_space = if *bytes >= 1_000 { 400_000 } else { 4_000_000 };
        let data = Dataset::new(
            test,
            sizing.count(rows, quick_space),
            padded(KEY_DIGITS),
            sizing.random(*bytes),
        );
        let put = sizing.buffered_put(data.row_bytes());
        let run = Measure::table(
            data.only(put, order),
            sizing.writers(WRITERS),
            sizing.operations_or(rows, 0.9),
        );
        recipe.create(&data);
        recipe.measure(&format!("{test}-{bytes}b"), &series, &bytes.to_string(), run);
        recipe.check(&data, &format!("check-{bytes}b"));
        publish(&mut recipe, &series, *bytes, *published);
    }
    recipe.done()
}

fn sequential_read(sizing: &Sizing) -> Experiment {
    let recipe = Recipe::new(
        sizing,
        "B09",
        "Sequential read, one call for each row",
        "32 clients read every row in key order, each by a call of its own, which shows the cost of calls.",
    )
    .differs(
        "The document read what random writes had left, so a quarter of its 80 million keys were empty and it counted only \
         rows that came back. Here tables are filled in key order and every read must find its row.",
    );
    reads(recipe, "sequential-read", &Operation::Get, SEQUENTIAL_READ)
}

fn scan(sizing: &Sizing) -> Experiment {
    let recipe = Recipe::new(
        sizing,
        "B10",
        "Scan",
        "The same rows through scanners, many in each response.",
    )
    .differs("The document's text says 32 clients, its published files 24; 24 are used, and four in quick runs, so that each scan is long enough.");
    reads(recipe, "scan", &Operation::Scan { rows_per_fetch: None }, SCAN)
}

/// Fills a table of each size and reads it through.
fn reads(recipe: Recipe<'_>, test: &str, operation: &Operation, figures: &SizeFigures) -> Experiment {
    let sizing = recipe.sizing;
    let series = test.replace('-', " ");
    let clients = match operation {
        // A range is a tenth of a client's share: with more clients, quick scans would be of a few rows each.
        Operation::Scan { .. } if sizing.quick => 4,
        Operation::Scan { .. } => WRITERS,
        _ => READERS,
    };
    let mut recipe = sized(recipe);
    for (bytes, published) in figures {
        let rows = rows_of(*bytes);
        let quick_rows = match *bytes {
            10_000.. => 4_000,
            1_000.. => 40_000,
            _ => 80_000,
        };
        let data = Dataset::new(
            test,
            sizing.count(rows, quick_rows),
            padded(KEY_DIGITS),
            sizing.random(*bytes),
        );
        let run = Measure::table(
            data.only(operation.clone(), KeyOrder::Sequential),
            sizing.clients(clients),
            sizing.operations_or(rows, 0.9),
        );
        recipe.create(&data);
        recipe.load(&data, &format!("load-{bytes}b"), WRITERS);
        recipe.settle(&data);
        recipe.measure(&format!("{test}-{bytes}b"), &series, &bytes.to_string(), run);
        publish(&mut recipe, &series, *bytes, *published);
    }
    recipe.done()
}

/// Parameters common to the tests of one volume and several value sizes.
fn sized(recipe: Recipe<'_>) -> Recipe<'_> {
    recipe
        .metric(Metric::BytesPerSecond)
        .numbers("value size", "B")
        .differs(VALUES)
        .differs(OTHER_CLUSTER)
}

fn publish(recipe: &mut Recipe<'_>, series: &str, bytes: u32, figures: Option<(f64, f64)>) {
    let Some((hypertable, hbase)) = figures else { return };
    let x = bytes.to_string();
    recipe.publish("Hypertable", series, &x, hypertable, "");
    recipe.publish("HBase", series, &x, hbase, "");
}

/// Number of rows of the volume: the document counts keys and values.
fn rows_of(bytes: u32) -> u64 {
    VOLUME / (u64::from(bytes) + KEY_BYTES)
}
