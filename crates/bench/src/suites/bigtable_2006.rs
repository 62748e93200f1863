//! The Bigtable paper's section 7: figure 6, and the text that explains it.
//!
//! The paper drove N tablet servers with N clients, 1 GB of 1000-byte random strings for each server, one string under each
//! row key. Its keys are not described; ten decimal digits here.

use super::dataset::Dataset;
use super::recipe::{Measure, Recipe, padded};
use super::sizing::Sizing;
use crate::plan::{Experiment, KeyOrder, Operation, Stop};

/// ≈ 1 GB of 1000-byte values for one tablet server.
const ROWS: u64 = 1_000_000;

/// 100 MB for the random reads from memory.
const MEMORY_ROWS: u64 = 100_000;

/// Figure 6: values of 1000 bytes read or written per second and tablet server, with 1, 50, 250 and 500 of them.
const FIGURE_6: [(&str, [f64; 4]); 6] = [
    (RANDOM_READS, [1_212.0, 593.0, 479.0, 241.0]),
    (MEMORY_READS, [10_811.0, 8_511.0, 8_000.0, 6_250.0]),
    (RANDOM_WRITES, [8_850.0, 3_745.0, 3_425.0, 2_000.0]),
    (SEQUENTIAL_READS, [4_425.0, 2_463.0, 2_625.0, 2_469.0]),
    (SEQUENTIAL_WRITES, [8_547.0, 3_623.0, 2_451.0, 1_905.0]),
    (SCANS, [15_385.0, 10_526.0, 9_524.0, 7_843.0]),
];

const RANDOM_READS: &str = "random reads";
const MEMORY_READS: &str = "random reads (mem)";
const RANDOM_WRITES: &str = "random writes";
const SEQUENTIAL_READS: &str = "sequential reads";
const SEQUENTIAL_WRITES: &str = "sequential writes";
const SCANS: &str = "scans";

/// The paper's one client, and a number that keeps a server busy in spite of round trips.
const CLIENTS: [(u32, &str); 2] = [(1, "1 client"), (16, "16 clients")];

pub(super) fn experiments(sizing: &Sizing) -> Vec<Experiment> {
    vec![
        figure_6(sizing),
        figure_6_scale(sizing),
        block_size(sizing),
        group_commit(sizing),
    ]
}

fn figure_6(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "figure-6",
        "Six operations on one tablet server",
        "How many 1000-byte values can be read or written each second? One string of random bytes under each row key, \
         sequential keys or the hash of them, about 1 GB altogether.",
    )
    .names("operation")
    .differs(
        "Bigtable kept its files in GFS on other machines and had 1 GB of memory; here the server and the generator share \
         a machine, and the server has the memory that its configuration gives it.",
    )
    .differs(
        "The paper drove one tablet server with one client process and does not say how many requests that had under way. \
         One is compared with the paper; 16 are shown beside it.",
    );
    for (clients, series) in CLIENTS {
        writes(&mut recipe, clients, series);
    }
    reads(&mut recipe);
    memory_reads(&mut recipe);
    for (test, figures) in FIGURE_6 {
        recipe.publish("Bigtable", "1 client", test, figures[0], "one tablet server");
    }
    recipe.done()
}

fn writes(recipe: &mut Recipe<'_>, clients: u32, series: &str) {
    let sizing = recipe.sizing;
    for (label, test, order) in [
        ("sequential-write", SEQUENTIAL_WRITES, KeyOrder::Sequential),
        ("random-write", RANDOM_WRITES, KeyOrder::Uniform),
    ] {
        // A quick run ends by time: the key space is larger than the number of rows written in it.
        let data = Dataset::new(label, sizing.count(ROWS, 400_000), padded(10), sizing.random(1_000));
        let label = format!("{label}-{clients}");
        recipe.create(&data);
        let run = Measure::table(
            data.only(Operation::Put, order),
            clients,
            sizing.operations_or(ROWS, 1.0),
        );
        recipe.measure(&label, series, test, run);
        recipe.check(&data, &format!("{label}-check"));
    }
}

fn reads(recipe: &mut Recipe<'_>) {
    let sizing = recipe.sizing;
    let data = Dataset::new("read", sizing.count(ROWS, 80_000), padded(10), sizing.random(1_000));
    recipe.create(&data);
    recipe.load(&data, "load", 16);
    recipe.settle(&data);
    let tests = [
        ("random-read", RANDOM_READS, Operation::Get, KeyOrder::Uniform),
        (
            "sequential-read",
            SEQUENTIAL_READS,
            Operation::Get,
            KeyOrder::Sequential,
        ),
        (
            "scan",
            SCANS,
            Operation::Scan { rows_per_fetch: None },
            KeyOrder::Sequential,
        ),
    ];
    for (clients, series) in CLIENTS {
        for (label, test, operation, order) in &tests {
            let run = Measure::table(
                data.only(operation.clone(), *order),
                clients,
                sizing.operations_or(ROWS, 1.0),
            );
            recipe.measure(&format!("{label}-{clients}"), series, test, run);
        }
    }
    let read = Measure::table(
        data.only(Operation::Get, KeyOrder::Uniform),
        16,
        sizing.operations_or(ROWS, 1.0),
    );
    recipe.open_loop("random-read-open", read);
    recipe.drop_table(&data);
}

fn memory_reads(recipe: &mut Recipe<'_>) {
    let sizing = recipe.sizing;
    let mut data = Dataset::new(
        "memory",
        sizing.count(MEMORY_ROWS, 10_000),
        padded(10),
        sizing.random(1_000),
    );
    data.table.in_memory = true;
    recipe.create(&data);
    recipe.load(&data, "memory-load", 16);
    recipe.settle(&data);
    for (clients, series) in CLIENTS {
        let stop = sizing.operations_or(ROWS, 1.0);
        let run = Measure::table(data.only(Operation::Get, KeyOrder::Uniform), clients, stop);
        recipe.measure(&format!("memory-read-{clients}"), series, MEMORY_READS, run);
    }
}

fn figure_6_scale(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "figure-6-scale",
        "Six operations on 50, 250 and 500 tablet servers",
        "How much of one server's rate remains when hundreds share a network, a lock service and a master?",
    )
    .numbers("tablet servers", "");
    for (test, figures) in FIGURE_6 {
        for (servers, figure) in ["50", "250", "500"].into_iter().zip(figures.into_iter().skip(1)) {
            recipe.publish("Bigtable", test, servers, figure, "values per second and tablet server");
        }
    }
    recipe.unavailable(
        "Needs a cluster of 50 to 500 tablet servers. With a cluster of any size, run this suite against it with as many \
         workers, and divide by the number of servers.",
    )
}

fn block_size(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "block-size",
        "Random reads with 64 KiB and 8 KiB blocks",
        "Each random read moves a whole sstable block: at 64 KiB, 1200 reads of 1000 bytes were 75 MB each second. The paper \
         advises smaller blocks, typically 8 KB, to applications that read like this.",
    )
    .numbers("block size", "KiB")
    .differs(
        "The Bigtable API has no block size: over bigtable:// both tables have the server's default. Over hbase:// it is set.",
    );
    for kib in [64, 8] {
        let mut data = Dataset::new("blocks", sizing.count(ROWS, 50_000), padded(10), sizing.random(1_000));
        data.table.block_bytes = Some(kib * 1024);
        recipe.create(&data);
        recipe.load(&data, &format!("load-{kib}k"), 16);
        recipe.settle(&data);
        let stop = sizing.operations_or(ROWS, 1.0);
        let run = Measure::table(data.only(Operation::Get, KeyOrder::Uniform), 16, stop);
        recipe.measure(&format!("random-read-{kib}k"), RANDOM_READS, &kib.to_string(), run);
    }
    recipe.done()
}

fn group_commit(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "group-commit",
        "One commit log for all writers",
        "Writes of all clients share one commit log and are synced in groups, which is why random writes are as fast as \
         sequential ones, and why more clients write more.",
    )
    .numbers("clients", "");
    let data = Dataset::new(
        "group-commit",
        sizing.count(ROWS, 400_000),
        padded(10),
        sizing.random(1_000),
    );
    recipe.create(&data);
    for clients in [1_u32, 8, 64] {
        let stop = match sizing.operations_or(ROWS / 10, 1.0) {
            // One client waits for each sync alone; a tenth of the writes is enough for its rate.
            Stop::Operations(n) if clients == 1 => Stop::Operations(n.div_ceil(10)),
            other => other,
        };
        let run = Measure::table(data.only(Operation::Put, KeyOrder::Uniform), clients, stop);
        recipe.measure(&format!("write-{clients}"), RANDOM_WRITES, &clients.to_string(), run);
    }
    recipe.check(&data, "check");
    recipe.done()
}
