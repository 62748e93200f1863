//! hstack's "HBase Performance Testing", April 2010: the methodology document.
//!
//! Seven servers with 24 disks each held 3 billion rows of 128 to 256 bytes in 1 to 5 columns. 300 and 600 threads of
//! four injectors read, wrote, and did both. Batch jobs over everything followed. It asks two questions without giving
//! figures: what happens when servers are killed, and what happens after days?

use super::dataset::Dataset;
use super::recipe::{Measure, Recipe, padded};
use super::sizing::Sizing;
use crate::plan::{Experiment, KeyFormat, KeyOrder, Metric, Operation, Stop, ValueSource, Values, Workload};

/// Rows of the table.
const ROWS: u64 = 3_000_000_000;

/// Rows of the batch job's large table.
const LARGE_ROWS: u64 = 530_000_000;

/// Requests of 300 threads; 600 threads made twice as many.
const REQUESTS: u64 = 3_000_000;

/// Days of the longevity test. The document only says that it takes days.
const DAYS: f64 = 3.0;

/// Kinds of request in the document's order.
const TESTS: [&str; 3] = ["get", "put", "70 % get, 30 % put"];

/// Threads, and requests each second for each kind.
const RATES: [(u32, [f64; 3]); 2] = [
    (300, [16_788.0, 40_000.0, 20_520.0]),
    (600, [10_776.0, 60_240.0, 22_659.0]),
];

/// Threads; mean, standard deviation and 90 % line in ms for each kind.
const LATENCIES: [(u32, [[f64; 3]; 3]); 2] = [
    (300, [[17.87, 29.87, 38.8], [7.50, 15.35, 12.1], [14.62, 15.83, 34.0]]),
    (600, [[55.68, 66.92, 161.6], [9.96, 17.08, 15.8], [26.48, 33.10, 64.3]]),
];

const OTHER_CLUSTER: &str =
    "The document ran seven region servers with 24 disks each and 6600 regions; here it is whatever the address names.";

const ROW_FORM: &str = "Rows have three columns of 43 to 85 bytes, which is the middle of the document's one to five columns \
                        and its 128 to 256 bytes; keys are a date and a hash, as its comments recommend.";

pub(super) fn experiments(sizing: &Sizing) -> Vec<Experiment> {
    vec![
        request_rate(sizing),
        request_latency(sizing),
        client_count(sizing),
        batch_scan(sizing),
        pulled_server(sizing),
        longevity(sizing),
    ]
}

/// The table of small rows.
fn small_rows(sizing: &Sizing, name: &str) -> Dataset {
    let values = Values {
        bytes: 43,
        bytes_max: Some(85),
        source: ValueSource::Incompressible,
        columns: 3,
        families: 0,
    };
    Dataset::new(
        name,
        sizing.count(ROWS, 30_000),
        KeyFormat::DateHash { days: 365 },
        values,
    )
}

fn workload(data: &Dataset, test: usize) -> Workload {
    let mix = match test {
        0 => vec![(Operation::Get, 1.0)],
        1 => vec![(Operation::Put, 1.0)],
        _ => vec![(Operation::Get, 0.7), (Operation::Put, 0.3)],
    };
    data.mix(mix, KeyOrder::Uniform)
}

/// File-name safe names of [`TESTS`].
fn label(test: usize) -> &'static str {
    match test {
        0 => "get",
        1 => "put",
        _ => "mix",
    }
}

/// The six combinations, over one table that is checked at the end.
fn six_runs(recipe: &mut Recipe<'_>, data: &Dataset) {
    let sizing = recipe.sizing;
    recipe.create(data);
    recipe.load(data, "load", 64);
    recipe.settle(data);
    for threads in [300_u32, 600] {
        for (test, series) in TESTS.iter().enumerate() {
            let requests = REQUESTS / 300 * u64::from(threads);
            let run = Measure::table(workload(data, test), threads, sizing.operations_or(requests, 1.0));
            recipe.measure(&format!("{}-{threads}", label(test)), series, &threads.to_string(), run);
        }
    }
}

fn request_rate(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B05",
        "Gets, puts and both: rate",
        "How many requests each second do 300 and 600 threads get out of a table of 3 billion small rows?",
    )
    .numbers("threads", "")
    .differs(ROW_FORM)
    .differs(OTHER_CLUSTER);
    let data = small_rows(sizing, "requests");
    six_runs(&mut recipe, &data);
    recipe.check(&data, "check");
    for (threads, rates) in RATES {
        for (series, rate) in TESTS.into_iter().zip(rates) {
            recipe.publish("HBase", series, &threads.to_string(), rate, "");
        }
    }
    recipe.done()
}

fn request_latency(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B05b",
        "Gets, puts and both: latency",
        "The same requests, by their latency: mean, standard deviation and 90 % line. The document's rates were computed \
         from the mean, so stalls are hidden in them; requests at a fixed rate, timed from when they were due, stand beside.",
    )
    .metric(Metric::MeanMillis)
    .numbers("threads", "")
    .differs(ROW_FORM)
    .differs(OTHER_CLUSTER);
    let data = small_rows(sizing, "latency");
    six_runs(&mut recipe, &data);
    for test in 0..TESTS.len() {
        let run = Measure::table(workload(&data, test), 300, sizing.seconds(180.0, 1.5));
        recipe.open_loop(&format!("{}-open", label(test)), run);
    }
    recipe.check(&data, "check");
    for (threads, latencies) in LATENCIES {
        for (series, [mean, deviation, line]) in TESTS.into_iter().zip(latencies) {
            let note = format!("standard deviation {deviation} ms, 90 % line {line} ms");
            recipe.publish("HBase", series, &threads.to_string(), mean, &note);
        }
    }
    recipe.done()
}

fn client_count(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "clients",
        "One client, then many",
        "The document's advice: begin with one client; latency should stay equal up to some number of them, and that number \
         is what there is to know.",
    )
    .numbers("clients", "")
    .differs(ROW_FORM);
    let data = small_rows(sizing, "clients");
    recipe.create(&data);
    recipe.load(&data, "load", 64);
    for (test, series) in TESTS.iter().enumerate().take(2) {
        for clients in [1_u32, 8, 64, 256, 512] {
            let run = Measure::table(workload(&data, test), clients, sizing.seconds(180.0, 0.8));
            recipe.measure(&format!("{}-{clients}", label(test)), series, &clients.to_string(), run);
        }
    }
    recipe.check(&data, "check");
    recipe.done()
}

fn batch_scan(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B06",
        "Batch read of everything",
        "Map-Reduce jobs read 530 million large rows in 2 h 40, and 3 billion small ones. How many rows each second reach a job?",
    )
    .metric(Metric::RowsPerSecond)
    .names("rows")
    .differs("Parallel scanners stand in for the input of a Map-Reduce job; there is no job behind them.")
    .differs("Keys are plain numbers, so that scanners can divide the rows among themselves without asking the server.")
    .differs("The document does not say how large its large rows were: 4 kB here. Small ones are those of the other tests.")
    .differs(OTHER_CLUSTER);
    let large = Dataset::new(
        "batch",
        sizing.count(LARGE_ROWS, 20_000),
        padded(10),
        sizing.random(4_000),
    );
    let small = Dataset {
        format: padded(10),
        ..small_rows(sizing, "batch")
    };
    for (x, name, data) in [("large", "large", large), ("small", "small", small)] {
        recipe.create(&data);
        recipe.load(&data, &format!("load-{name}"), 64);
        recipe.settle(&data);
        let scan = data.only(Operation::Scan { rows_per_fetch: None }, KeyOrder::Sequential);
        // A range is a tenth of a client's share: with more clients, quick scans would be of a few rows each.
        let clients = if sizing.quick { 4 } else { 28 };
        let run = Measure::table(scan, clients, sizing.operations_or(data.records, 1.2));
        recipe.measure(&format!("scan-{name}"), "batch read", x, run);
    }
    recipe.publish("HBase", "batch read", "large", 50_000.0, "rows a second");
    recipe.publish("HBase", "batch read", "small", 200_000.0, "peaks of 400,000");
    recipe.done()
}

fn pulled_server(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B24",
        "Servers killed under load",
        "\"How does the system behave once you pull the plug on a server? Or three?\" A third of the way into a run with 70 % \
         gets, a command of the user's kills them; afterwards every acknowledged row must still exist.",
    )
    .numbers("servers killed", "")
    .differs("The document asks the question and gives no figures.")
    .differs(
        "A single server can only be killed and started again; the command decides which process it kills.",
    );
    let seconds = if sizing.quick { 6.0 } else { 600.0 };
    for servers in [1_u32, 3] {
        let data = small_rows(sizing, "pull");
        let name = format!("pull-{servers}");
        recipe.create(&data);
        recipe.load(&data, &format!("{name}-load"), 64);
        let run = Measure::table(workload(&data, 2), sizing.clients(300), Stop::Seconds(seconds));
        recipe.measure(&name, "70 % get, 30 % put", &servers.to_string(), run);
        let disruption = sizing.disruption(seconds / 3.0, "server", servers);
        if disruption.is_none() {
            return recipe.unavailable(NO_KILL_COMMAND);
        }
        if let Some(run) = recipe.last_run() {
            run.disruption = disruption;
        }
        recipe.check(&data, &format!("{name}-check"));
    }
    recipe.done()
}

/// Explanation where servers cannot be killed.
pub(super) const NO_KILL_COMMAND: &str = "No command to kill a server was given. Give one with --kill-command. STELE_BENCH_PULL tells it the process to kill (server or \
     master), and STELE_BENCH_PULL_COUNT the number of them. It must start again every process that is needed afterwards.";

fn longevity(sizing: &Sizing) -> Experiment {
    let mut recipe = Recipe::new(
        sizing,
        "B25",
        "Longevity",
        "The document calls for tests of several days. Is the last quarter of the time as good as the first?",
    )
    .names("load")
    .differs(ROW_FORM)
    .differs(format!(
        "The document gives neither length nor figures. {} days at its own size, scaled down with it; ten seconds in quick \
         runs, which show that the test works and nothing about days.",
        DAYS
    ));
    let data = small_rows(sizing, "longevity");
    recipe.create(&data);
    recipe.load(&data, "load", 64);
    let stop = sizing.seconds(DAYS * 86_400.0, 10.0);
    let run = Measure::table(workload(&data, 2), sizing.clients(300), stop);
    recipe.measure("longevity", "70 % get, 30 % put", "mixed", run);
    recipe.check(&data, "check");
    recipe.done()
}
