//! Builds an experiment stage by stage, by rules that hold for all of them.
//!
//! The rules: a table is checked after it was written and before it is dropped. It is dropped at the end. Every run has
//! a label and a seed of its own. A published figure is put next to the run that repeats it.

use super::dataset::Dataset;
use super::sizing::Sizing;
use crate::plan::{
    Activity, Axis, Experiment, KeyFormat, KeyOrder, Metric, OpenLoop, Operation, Point, Published, Role, Run, Stage,
    Stop, Workload,
};

/// An experiment under construction.
pub(super) struct Recipe<'a> {
    /// The chosen size.
    pub sizing: &'a Sizing,
    experiment: Experiment,
    /// Tables created and not dropped yet.
    open: Vec<String>,
}

/// Clients of a check: enough to hide round trips, and few enough that each scans long ranges.
const CHECK_CLIENTS: u32 = 8;

/// A run under construction; see [`Recipe::measure`].
pub(super) struct Measure {
    /// The work of the clients.
    pub activity: Activity,
    /// How many there are.
    pub clients: u32,
    /// Its end.
    pub stop: Stop,
}

impl Measure {
    /// Reads and writes of a table.
    pub fn table(workload: Workload, clients: u32, stop: Stop) -> Self {
        Self {
            activity: Activity::Table(workload),
            clients,
            stop,
        }
    }
}

impl<'a> Recipe<'a> {
    pub fn new(sizing: &'a Sizing, id: &str, title: &str, about: &str) -> Self {
        let experiment = Experiment {
            id: id.to_owned(),
            title: title.to_owned(),
            about: about.to_owned(),
            differences: sizing.size_difference().into_iter().collect(),
            ..Experiment::default()
        };
        Self {
            sizing,
            experiment,
            open: Vec::new(),
        }
    }

    /// The quantity on the vertical axis, when it is not operations per second.
    pub fn metric(mut self, metric: Metric) -> Self {
        self.experiment.metric = metric;
        self
    }

    /// A horizontal axis of numbers.
    pub fn numbers(mut self, label: &str, unit: &str) -> Self {
        self.experiment.axis = Axis {
            label: label.to_owned(),
            unit: unit.to_owned(),
            numeric: true,
        };
        self
    }

    /// A horizontal axis of names.
    pub fn names(mut self, label: &str) -> Self {
        self.experiment.axis = Axis {
            label: label.to_owned(),
            unit: String::new(),
            numeric: false,
        };
        self
    }

    /// A difference from the document.
    pub fn differs(mut self, text: impl Into<String>) -> Self {
        self.experiment.differences.push(text.into());
        self
    }

    /// A difference from the document at some sizes only.
    pub fn differs_if(self, is_so: bool, text: &str) -> Self {
        if is_so { self.differs(text) } else { self }
    }

    /// A figure of the document.
    pub fn publish(&mut self, system: &str, series: &str, x: &str, value: f64, note: &str) {
        self.figure(system, series, x, Some(value), note);
    }

    /// A run that the document reports as failed.
    pub fn publish_failure(&mut self, system: &str, series: &str, x: &str, cause: &str) {
        self.figure(system, series, x, None, cause);
    }

    fn figure(&mut self, system: &str, series: &str, x: &str, value: Option<f64>, note: &str) {
        self.experiment.published.push(Published {
            system: system.to_owned(),
            point: point(series, x),
            value,
            note: note.to_owned(),
        });
    }

    /// Creates a dataset's table again.
    pub fn create(&mut self, data: &Dataset) {
        self.create_table(data.table.clone());
    }

    /// Creates a table again.
    pub fn create_table(&mut self, table: crate::target::TableSpec) {
        if !self.open.contains(&table.name) {
            self.open.push(table.name.clone());
        }
        self.experiment.stages.push(Stage::Create(table));
    }

    /// Drops a dataset's table before the end.
    pub fn drop_table(&mut self, data: &Dataset) {
        self.open.retain(|name| *name != data.table.name);
        self.experiment.stages.push(Stage::Drop(data.table.name.clone()));
    }

    /// Has the server write its memory to files, so that the next runs read those.
    pub fn settle(&mut self, data: &Dataset) {
        self.experiment.stages.push(Stage::Settle {
            table: data.table.name.clone(),
            pause_seconds: self.sizing.pause_seconds(),
        });
    }

    /// Fills a table in key order through write buffers, and checks that everything arrived.
    pub fn load(&mut self, data: &Dataset, label: &str, clients: u32) {
        self.load_unchecked(data, label, clients);
        self.check(data, &format!("{label}-check"));
    }

    /// As [`Self::load`], for tables whose check follows further writes.
    pub fn load_unchecked(&mut self, data: &Dataset, label: &str, clients: u32) {
        let put = self.sizing.buffered_put(data.row_bytes());
        let load = Measure::table(
            data.only(put, KeyOrder::Sequential),
            self.sizing.writers(clients),
            Stop::Operations(data.records),
        );
        self.push(label, Role::Load, None, load, None);
    }

    /// Reads the whole table and compares it with the record of writes.
    pub fn check(&mut self, data: &Dataset, label: &str) {
        let scan = Operation::Scan { rows_per_fetch: None };
        let check = Measure::table(
            data.only(scan, KeyOrder::Sequential),
            CHECK_CLIENTS,
            Stop::Operations(data.records),
        );
        self.push(label, Role::Check, None, check, None);
    }

    /// A run that is a point of the chart.
    pub fn measure(&mut self, label: &str, series: &str, x: &str, measure: Measure) {
        self.push(label, Role::Measure, Some(point(series, x)), measure, None);
    }

    /// The companion of closed loops: the same work at a fixed rate, so that a stall affects every operation due in it.
    /// Its throughput is the rate, so only its latencies are of interest.
    pub fn open_loop(&mut self, label: &str, mut measure: Measure) {
        measure.clients = measure.clients.max(OPEN_LOOP_CLIENTS_MIN);
        let rate = self.sizing.open_loop();
        self.push(label, Role::Measure, None, measure, Some(rate));
    }

    /// A load whose time is a point of the chart.
    pub fn timed_load(&mut self, label: &str, series: &str, x: &str, measure: Measure) {
        self.push(label, Role::Load, Some(point(series, x)), measure, None);
    }

    /// A load that is no point of the chart.
    pub fn plain_load(&mut self, label: &str, measure: Measure) {
        self.push(label, Role::Load, None, measure, None);
    }

    /// A check that is not the scan of one table.
    pub fn verify(&mut self, label: &str, measure: Measure) {
        self.push(label, Role::Check, None, measure, None);
    }

    /// Leaves out the published figures that match no run of this size.
    pub fn keep_matching_figures(&mut self) {
        let experiment = &mut self.experiment;
        let points: Vec<&Point> = experiment
            .stages
            .iter()
            .filter_map(|stage| match stage {
                Stage::Run(run) => run.point.as_ref(),
                _ => None,
            })
            .collect();
        experiment.published.retain(|figure| points.contains(&&figure.point));
    }

    /// The last run, to set fields that few runs have.
    pub fn last_run(&mut self) -> Option<&mut Run> {
        self.experiment.stages.iter_mut().rev().find_map(|stage| match stage {
            Stage::Run(run) => Some(run.as_mut()),
            _ => None,
        })
    }

    fn push(&mut self, label: &str, role: Role, point: Option<Point>, measure: Measure, rate: Option<OpenLoop>) {
        // A check has no warm-up to discard, and uncounted rows of a load would still be in the table.
        let warmup_seconds = match role {
            Role::Measure => self.sizing.warmup(measure.stop),
            Role::Load | Role::Check | Role::Warm => 0.0,
        };
        let name = format!("{}/{label}", self.experiment.id);
        self.experiment.stages.push(Stage::Run(Box::new(Run {
            label: label.to_owned(),
            role,
            point,
            activity: measure.activity,
            clients: measure.clients,
            stop: measure.stop,
            warmup_seconds,
            rate,
            seed: self.sizing.seed ^ xxhash_rust::xxh3::xxh3_64(name.as_bytes()),
            disruption: None,
        })));
    }

    /// Drops the remaining tables, and returns the experiment.
    pub fn done(mut self) -> Experiment {
        for table in std::mem::take(&mut self.open) {
            self.experiment.stages.push(Stage::Drop(table));
        }
        self.experiment
    }

    /// Returns an experiment that cannot be run here, without stages.
    pub fn unavailable(mut self, why: &str) -> Experiment {
        self.experiment.stages.clear();
        self.experiment.differences.clear();
        self.experiment.unavailable = Some(why.to_owned());
        self.experiment
    }
}

/// Clients of an open loop: enough that an operation never waits for one at the fixed rate unless the server is slow.
/// By Little's law, 64 clients carry 2,000 operations per second at up to 32 ms each.
const OPEN_LOOP_CLIENTS_MIN: u32 = 64;

/// A place in a chart.
fn point(series: &str, x: &str) -> Point {
    Point {
        series: series.to_owned(),
        x: x.to_owned(),
    }
}

/// Zero-padded decimal keys.
pub(super) fn padded(digits: u8) -> KeyFormat {
    KeyFormat::Padded { digits }
}
