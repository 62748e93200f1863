//! Khetrapal and Ganesh, "HBase and Hypertable for large scale distributed storage systems", Purdue University.
//!
//! One HBase node, and Hypertable on up to 20 small machines of EC2, next to the Bigtable paper's figures. The document
//! quotes 1208 random reads for Bigtable where the paper has 1212; the paper's figures are used.
//!
//! Tests had one client, as far as the document says. Keys are ten digits, and twelve where it says so.

use super::dataset::Dataset;
use super::hstack_2010::NO_KILL_COMMAND;
use super::recipe::{Measure, Recipe, padded};
use super::sizing::Sizing;
use crate::plan::{Experiment, KeyOrder, Metric, Operation, Stop, Values};

/// 1 GB in values of 1000 bytes.
const ROWS: u64 = 1_000_000;

const OVERWRITES: &str = "Quick writes go over rows that were loaded before.";

const UNBUFFERED: &str = "The document does not say whether writes were buffered by the client; here each is a call of its own, from one client.";

/// Rows for each fetch, rows each second.
const FETCHES: [(u32, f64); 3] = [(1, 1_600.0), (10, 9_000.0), (20, 18_000.0)];

/// Families; reads, sequential writes and random writes each second. The document tried 550 families and timed out.
/// Higher numbers are ours.
const FAMILIES: [(u32, Option<[f64; 3]>); 6] = [
    (100, Some([170.0, 250.0, 240.0])),
    (300, Some([165.0, 250.0, 250.0])),
    (500, Some([170.0, 260.0, 235.0])),
    (550, None),
    (1_000, None),
    (2_000, None),
];

/// Most families of a quick run. To drop a table, HBase first writes a file for each of its families, in a third of a
/// second each. 1000 families would take longer than the whole suite should.
const QUICK_FAMILIES_MAX: u32 = 300;

/// The four operations, in the order in which they are run over one table, and HBase's, Hypertable's and Bigtable's figures.
const FOUR: [(&str, f64, f64, f64); 4] = [
    ("sequential write", 1_600.0, 1_563.0, 8_547.0),
    ("sequential read", 310.0, 621.0, 4_425.0),
    ("random read", 290.0, 431.0, 1_212.0),
    ("random write", 1_550.0, 1_903.0, 8_850.0),
];

pub(super) fn experiments(sizing: &Sizing) -> Vec<Experiment> {
    vec![
        rows_per_fetch(sizing),
        families(sizing),
        one_region_server(sizing),
        one_range_server(sizing),
        value_size(sizing),
        server_count(sizing),
        fault_tolerance(sizing),
    ]
}

fn rows_per_fetch(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B12",
        "Scanner, rows for each fetch",
        "One scanner reads rows of 1000 bytes, fetching 1, 10 or 20 rows with each call.",
    )
    .metric(Metric::RowsPerSecond)
    .numbers("rows for each fetch", "")
    .differs("The Bigtable API streams rows and has no such setting: over bigtable:// the three runs are the same.");
    let data = Dataset::new("fetch", sizing.count(ROWS, 30_000), padded(10), sizing.random(1_000));
    recipe.create(&data);
    recipe.load(&data, "load", 8);
    recipe.settle(&data);
    for (rows, figure) in FETCHES {
        let x = rows.to_string();
        let scan = Operation::Scan {
            rows_per_fetch: Some(rows),
        };
        let run = Measure::table(
            data.only(scan, KeyOrder::Sequential),
            1,
            sizing.operations_or(ROWS, 1.0),
        );
        recipe.measure(&format!("scan-{rows}"), "scan", &x, run);
        recipe.publish("HBase", "scan", &x, figure, "");
    }
    recipe.done()
}

fn families(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B13",
        "Column families",
        "How many column families does a table bear? Rows with a value of 1000 bytes in each of 100, 300, 500 and 550 families; \
         the last one timed out, sometimes 600 worked. 1000 and 2000 are ours.",
    )
    .numbers("column families", "")
    .differs(
        "The document does not say whether it counts rows or values. Its figures do not depend on the number of families, so \
         they are hardly rows that grow with it; rows are counted here, so compare shapes only.",
    )
    .differs(UNBUFFERED)
    .differs_if(sizing.quick, "Quick runs stop at 300 families, because some servers take minutes to drop a table with more.");
    let series = ["read", "sequential write", "random write"];
    let most = if sizing.quick { QUICK_FAMILIES_MAX } else { u32::MAX };
    for (count, figures) in FAMILIES.into_iter().filter(|(count, _)| *count <= most) {
        family_runs(&mut recipe, count);
        for (place, series) in series.into_iter().enumerate() {
            let x = count.to_string();
            match figures.and_then(|f| f.get(place).copied()) {
                Some(figure) => recipe.publish("HBase", series, &x, figure, ""),
                None if count == 550 && place == 0 => recipe.publish_failure("HBase", series, &x, "timeout"),
                None => (),
            }
        }
    }
    recipe.done()
}

/// Writes, reads and overwrites rows with a value in each of `count` families.
fn family_runs(recipe: &mut Recipe<'_>, count: u32) {
    let sizing = recipe.sizing;
    let values = Values {
        families: count,
        ..sizing.random(1_000)
    };
    // The volume is the same for every number of families: 1 GB, and 10 MB in quick runs.
    let rows = sizing.count(ROWS, 10_000).div_ceil(u64::from(count));
    let data = Dataset::new("families", rows, padded(10), values);
    let x = count.to_string();
    let writes = |order| Measure::table(data.only(Operation::Put, order), 1, Stop::Operations(rows));
    recipe.create(&data);
    recipe.measure(
        &format!("sequential-write-{count}"),
        "sequential write",
        &x,
        writes(KeyOrder::Sequential),
    );
    let read = data.only(Operation::Get, KeyOrder::Uniform);
    recipe.measure(
        &format!("read-{count}"),
        "read",
        &x,
        Measure::table(read, 1, sizing.operations_or(rows, 0.7)),
    );
    recipe.measure(
        &format!("random-write-{count}"),
        "random write",
        &x,
        writes(KeyOrder::Uniform),
    );
    recipe.check(&data, &format!("check-{count}"));
}

fn one_region_server(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B14",
        "1 GB on one HBase region server",
        "A million rows of 1000 bytes, written and read in order and at random by one client.",
    )
    .names("operation")
    .differs(UNBUFFERED)
    .differs_if(sizing.quick, OVERWRITES);
    four_operations(&mut recipe, "region-server", 10);
    for (test, hbase, ..) in FOUR {
        recipe.publish("HBase", "1 client", test, hbase, "");
    }
    recipe.done()
}

fn one_range_server(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B15",
        "One Hypertable range server against one Bigtable tablet server",
        "About 1 GB under random keys of 12 bytes, next to the first column of the Bigtable paper's figure 6.",
    )
    .names("operation")
    .differs(UNBUFFERED)
    .differs_if(sizing.quick, OVERWRITES);
    four_operations(&mut recipe, "range-server", 12);
    for (test, _, hypertable, bigtable) in FOUR {
        recipe.publish("Hypertable", "1 client", test, hypertable, "");
        recipe.publish(
            "Bigtable",
            "1 client",
            test,
            bigtable,
            "the paper's figure 6, one tablet server",
        );
    }
    recipe.done()
}

/// The four operations over one table. At the document's size the sequential write fills it. A quick one ends by time,
/// so the table is filled before, because reads must find every key.
fn four_operations(recipe: &mut Recipe<'_>, name: &str, key_digits: u8) {
    let sizing = recipe.sizing;
    let data = Dataset::new(
        name,
        sizing.count(ROWS, 20_000),
        padded(key_digits),
        sizing.random(1_000),
    );
    let run = |operation, order| Measure::table(data.only(operation, order), 1, sizing.operations_or(ROWS, 1.0));
    let [sequential_write, sequential_read, random_read, random_write] = FOUR.map(|(test, ..)| test);
    recipe.create(&data);
    if sizing.quick {
        recipe.load(&data, "load", 8);
    }
    recipe.measure(
        "sequential-write",
        "1 client",
        sequential_write,
        run(Operation::Put, KeyOrder::Sequential),
    );
    recipe.check(&data, "sequential-check");
    recipe.settle(&data);
    recipe.measure(
        "sequential-read",
        "1 client",
        sequential_read,
        run(Operation::Get, KeyOrder::Sequential),
    );
    recipe.measure(
        "random-read",
        "1 client",
        random_read,
        run(Operation::Get, KeyOrder::Uniform),
    );
    recipe.measure(
        "random-write",
        "1 client",
        random_write,
        run(Operation::Put, KeyOrder::Uniform),
    );
    recipe.check(&data, "random-check");
}

fn value_size(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B16",
        "Random write by value size",
        "One client writes values of growing size at random.",
    )
    .metric(Metric::BytesPerSecond)
    .numbers("value size", "B")
    .differs("The document shows its figures only as an image that cannot be read off; neither they nor its sizes are given here.")
    .differs(UNBUFFERED);
    for bytes in [10_u32, 100, 1_000, 10_000, 100_000] {
        let rows = (ROWS * 1_000 / u64::from(bytes)).min(10 * ROWS);
        let data = Dataset::new(
            "value-size",
            sizing.count(rows, 100_000),
            padded(12),
            sizing.random(bytes),
        );
        let run = Measure::table(
            data.only(Operation::Put, KeyOrder::Uniform),
            1,
            sizing.operations_or(rows, 0.7),
        );
        recipe.create(&data);
        recipe.measure(&format!("write-{bytes}b"), "random write", &bytes.to_string(), run);
        recipe.check(&data, &format!("check-{bytes}b"));
    }
    recipe.done()
}

fn server_count(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B17",
        "Range servers",
        "Random writes and reads of 1000 bytes with as many clients as range servers, 1 to 20 of them. The document's curves \
         are images; its text has random writes grow by 1.6 when servers grow by 3.2, and random reads by 3 when they grow \
         by 20.",
    )
    .numbers("servers", "")
    .differs(
        "This is the column of one server. For more, give the address of a cluster of 2, 5, 10 or 20 servers, a worker for \
         each, and compare the bundles with `stele-bench report`.",
    );
    let data = Dataset::new("servers", sizing.count(ROWS, 20_000), padded(12), sizing.random(1_000));
    recipe.create(&data);
    recipe.load(&data, "load", 8);
    recipe.settle(&data);
    for (label, series, operation) in [
        ("random-read", "random read", Operation::Get),
        ("random-write", "random write", Operation::Put),
    ] {
        let run = Measure::table(
            data.only(operation, KeyOrder::Uniform),
            1,
            sizing.operations_or(ROWS, 1.0),
        );
        recipe.measure(label, series, "1", run);
    }
    recipe.check(&data, "check");
    recipe.done()
}

fn fault_tolerance(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B26",
        "The only server killed, the master killed",
        "The document lost the data of a killed range server, and its whole cluster with the HBase master. A third of the way \
         into a run of writes, a command of the user's kills one or the other; every acknowledged row must be there afterwards.",
    )
    .names("killed")
    .differs("The document gives no figures: data was lost, or the cluster was down.");
    let seconds = if sizing.quick { 4.5 } else { 180.0 };
    for role in ["server", "master"] {
        let data = Dataset::new("kill", sizing.count(ROWS, 100_000), padded(10), sizing.random(1_000));
        let Some(disruption) = sizing.disruption(seconds / 3.0, role, 1) else {
            return recipe.unavailable(NO_KILL_COMMAND);
        };
        let run = Measure::table(data.only(Operation::Put, KeyOrder::Uniform), 16, Stop::Seconds(seconds));
        recipe.create(&data);
        recipe.measure(&format!("kill-{role}"), "random write", role, run);
        if let Some(run) = recipe.last_run() {
            run.disruption = Some(disruption);
        }
        recipe.check(&data, &format!("check-{role}"));
    }
    recipe.done()
}
