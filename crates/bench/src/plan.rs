//! The plan of a benchmark: suites, experiments, stages, runs. Plain data, written into the bundle unchanged.
//!
//! Terms: a *suite* reproduces one document. It has *experiments*, one for each row of the list of published
//! experiments (`docs/benchmarking.md`). An experiment is a list of *stages* that one target goes through from an empty
//! state: create a table, load it, measure, check, drop it. A *run* is a stage in which clients are busy. Targets take
//! turns experiment by experiment.
//!
//! A run's operations are numbered. Operation `i` has the same content wherever it is carried out. A range of
//! operations can therefore go to any worker, and to another one when the first has died.

use crate::target::TableSpec;
use serde::{Deserialize, Serialize};

/// A document's experiments.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// `hypertable-2012` and so on.
    pub name: String,
    /// Title of the document.
    pub document: String,
    /// 1.0 is the document's own size.
    pub scale: f64,
    /// Its experiments in the document's order.
    pub experiments: Vec<Experiment>,
}

/// One row of the list of published experiments.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Stable id, `B01`…`B26`, or a name of ours.
    pub id: String,
    /// The subject, in a few words.
    pub title: String,
    /// One or two sentences: the question, and the document's method.
    pub about: String,
    /// Differences from the document, with reasons.
    pub differences: Vec<String>,
    /// The quantity on the vertical axis.
    pub metric: Metric,
    /// The quantity on the horizontal axis.
    pub axis: Axis,
    /// Stages of each target, in order. Empty if `unavailable` gives a reason.
    pub stages: Vec<Stage>,
    /// The document's figures.
    pub published: Vec<Published>,
    /// Reason why it cannot be run here (protocol, or a need of more machines); listed in the report.
    pub unavailable: Option<String>,
}

/// The quantity of a chart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Operations acknowledged per second.
    #[default]
    OperationsPerSecond,
    /// Key and value bytes per second.
    BytesPerSecond,
    /// Rows returned per second.
    RowsPerSecond,
    /// Seconds of the whole run: load times.
    Seconds,
    /// Mean latency.
    MeanMillis,
    /// Share of reads that missed an acknowledged write.
    StalePercent,
}

/// The horizontal axis of an experiment's chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Such as "value size".
    pub label: String,
    /// Such as "B"; empty for plain counts and names.
    pub unit: String,
    /// Whether `Point::x` are numbers on a (logarithmic) axis, or names of bars.
    pub numeric: bool,
}

/// The place of a run, or of a published figure, in its chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// One line or one group of bars for each target; several series make several panels.
    pub series: String,
    /// Position on the axis: a number in the axis' unit, or a name.
    pub x: String,
}

/// A figure from the document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// `Hypertable`, `HBase`, `Bigtable`.
    pub system: String,
    /// The point of the run that it is compared with.
    pub point: Point,
    /// In the experiment's metric. Absent if the document says that the run failed.
    pub value: Option<f64>,
    /// Remark, such as the failure's cause.
    pub note: String,
}

/// One step of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Drops the table if it exists, and creates it.
    Create(TableSpec),
    /// Drops a table.
    Drop(String),
    /// Asks the server to flush, and waits a short time for background work to end.
    Settle {
        /// Table to flush.
        table: String,
        /// Seconds to wait afterwards.
        pause_seconds: f64,
    },
    /// Clients are busy.
    Run(Box<Run>),
}

/// Purpose of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Fills the table. Reported, but no point of a chart unless it has one.
    Load,
    /// The subject of the experiment.
    #[default]
    Measure,
    /// Reads everything back and compares. Decides whether earlier runs were right.
    Check,
    /// Lets servers compile and caches fill. Its figures are kept, but not charted.
    Warm,
}

/// A stage in which clients are busy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Unique within the experiment, file-name safe: `write-1000b`.
    pub label: String,
    /// Its purpose.
    pub role: Role,
    /// Its place in the experiment's chart, if it has one.
    pub point: Option<Point>,
    /// The work of the clients.
    pub activity: Activity,
    /// Clients over all workers, each with one operation at a time.
    pub clients: u32,
    /// Its end.
    pub stop: Stop,
    /// Seconds at the beginning whose operations are done but not counted. Only with [`Stop::Seconds`].
    pub warmup_seconds: f64,
    /// Closed loop when absent. Otherwise an open loop at this rate, in which latencies count from the time when each
    /// operation was due.
    pub rate: Option<OpenLoop>,
    /// Seed of all its random choices.
    pub seed: u64,
    /// Kills servers during the run.
    pub disruption: Option<Disruption>,
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// After this many operations.
    Operations(u64),
    /// After this many seconds (warm-up not included). Ranges are handed out until then.
    Seconds(f64),
}

impl Default for Stop {
    fn default() -> Self {
        Self::Operations(0)
    }
}

/// An open loop: operations are due at given times, however fast the server is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OpenLoop {
    /// Operations due per second, over all workers.
    pub per_second: f64,
    /// Exponential gaps (a Poisson process) instead of even ones.
    pub poisson: bool,
}

/// Servers killed while load runs: a stress test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Disruption {
    /// Seconds after the run's start.
    pub at_seconds: f64,
    /// Shell command given by the user, run once; its output goes into the bundle.
    pub command: String,
}

/// The work of clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Reads and writes of one table.
    Table(Workload),
    /// The BG social network.
    Social(SocialSpec),
}

impl Default for Activity {
    fn default() -> Self {
        Self::Table(Workload::default())
    }
}

/// Reads and writes of one table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The table.
    pub table: String,
    /// Operations and their weights; they need not sum to one.
    pub mix: Vec<(Operation, f64)>,
    /// Which keys.
    pub keys: Keys,
    /// Which values.
    pub values: Values,
    /// Whether reads are compared with the record of writes. Off only for controls.
    pub verify: bool,
}

/// One kind of operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Writes one row and waits for the acknowledgement.
    Put,
    /// Writes one row into the client's buffer. Sends the buffer when it is full, and at the end of a range.
    BufferedPut {
        /// Bytes of the buffer; the documents' clients used 12 MB.
        buffer_bytes: u64,
    },
    /// Writes one row that did not exist before (YCSB's insert). Its key follows the loaded keys.
    Insert,
    /// Reads one row.
    Get,
    /// Reads up to `rows` rows from a key on.
    ShortScan {
        /// Most rows read. With `vary`, the number is uniform from one up to this, as in YCSB.
        rows: u32,
        /// See `rows`.
        vary: bool,
        /// Rows per call, where the protocol can express it.
        rows_per_fetch: Option<u32>,
    },
    /// Reads a whole range of keys: operation `i` is key `i`, and one scan covers as many operations as its range has.
    Scan {
        /// Rows per call, where the protocol can express it.
        rows_per_fetch: Option<u32>,
    },
    /// Adds one to a counter column.
    Increment,
    /// Writes the next version if the current one equals the expected one.
    CheckAndPut,
    /// Reads a row and writes it back changed, in two calls (YCSB F).
    ReadModifyWrite,
}

/// Which keys a workload touches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Keys {
    /// Distinct keys: keys are numbers in `[0, records)`.
    pub records: u64,
    /// Order in which operations go through them.
    pub order: KeyOrder,
    /// How a number becomes a row key.
    pub format: KeyFormat,
}

/// How operation `i` chooses its key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOrder {
    /// Key `i`.
    #[default]
    Sequential,
    /// Hash of `i` modulo `records`: uniform, with repetitions, as the Bigtable paper's random writes.
    Uniform,
    /// Zipf: rank `r` has probability proportional to `1 / r^exponent`; ranks are scattered over the key space by a hash.
    Zipf {
        /// 0.8 and 0.99 are the usual ones.
        exponent: f64,
    },
    /// Zipf over age: the newest keys most often (YCSB D).
    Latest {
        /// Exponent of the Zipf distribution of ages.
        exponent: f64,
    },
    /// A share of the keys gets a share of the operations, both uniformly.
    Hotspot {
        /// Share of keys that are hot, in (0, 1).
        keys: f64,
        /// Share of operations on them, in (0, 1).
        operations: f64,
    },
}

/// How a key number becomes a row key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyFormat {
    /// Decimal, zero-padded to `digits`: order of numbers is order of rows.
    Padded {
        /// Width.
        digits: u8,
    },
    /// `prefix` and zero-padded decimal.
    Prefixed {
        /// Text before the digits.
        prefix: String,
        /// Width of the number.
        digits: u8,
    },
    /// `user` and the decimal of a 64-bit hash, zero-padded to 20 digits: YCSB's hashed order.
    #[default]
    YcsbHashed,
    /// Date and hash: `yyyyMMdd` cycling over `days`, and 16 hex digits of a hash.
    DateHash {
        /// Number of different dates.
        days: u32,
    },
}

/// Which values a workload writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Values {
    /// Bytes of each value, at least [`crate::load::values::VALUE_BYTES_MIN`].
    pub bytes: u32,
    /// Largest size when sizes vary uniformly (`bytes` is the smallest); the same as `bytes` when absent.
    pub bytes_max: Option<u32>,
    /// Source of their content.
    pub source: ValueSource,
    /// Columns of a row, each in the first family under qualifiers `0`, `1`, …; at least 1.
    pub columns: u32,
    /// Families that a row's columns are spread over, one column in each; replaces `columns` when not zero.
    pub families: u32,
}

/// Source of the content of values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueSource {
    /// Pseudo-random bytes.
    #[default]
    Incompressible,
    /// Parts of a text file.
    Corpus {
        /// Its path on every worker.
        path: String,
    },
}

/// The BG social network (`docs/benchmarking.md`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SocialSpec {
    /// Users.
    pub users: u64,
    /// Confirmed friends of each user when loaded; even.
    pub friends: u32,
    /// Resources that each user owns.
    pub resources: u32,
    /// Bytes of a profile image; zero for none. The thumbnail has a twelfth of it, at most 12 kB.
    pub image_bytes: u32,
    /// Exponent parameter of BG's `dzipfian` distribution of users.
    pub zipf_mean: f64,
    /// The work of clients.
    pub mode: SocialMode,
}

/// The work of BG's clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocialMode {
    /// Operation `i` inserts user `i` with image, friendships and resources.
    #[default]
    Load,
    /// Actions and their weights.
    Actions(Vec<(SocialAction, f64)>),
}

/// BG's actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocialAction {
    /// Profile with image, counts of friends and pending invitations.
    ViewProfile,
    /// All friends with thumbnails: a join.
    ListFriends,
    /// Pending invitations with their senders' profiles.
    ViewFriendRequests,
    /// Invites another user.
    InviteFriend,
    /// Accepts an invitation.
    AcceptFriend,
    /// Rejects an invitation.
    RejectFriend,
    /// Ends a friendship.
    ThawFriendship,
    /// A user's top resources.
    ViewTopResources,
    /// Comments on a resource.
    ViewComments,
}
