//! The size of an experiment: the document's own size, a multiple of it, or quick.
//!
//! The document's size is multiplied in data volume and in the number of operations. Client counts and value sizes
//! stay, because they are the subject of the experiment. Quick has counts of its own and ends runs by time.

use super::SuiteOptions;
use crate::plan::{Disruption, OpenLoop, Operation, Stop, ValueSource, Values};

/// Client write buffer of the documents' loads: 12 MB for both systems.
pub(super) const BUFFER_BYTES: u64 = 12_000_000;

/// Rows in the buffer of quick writes, within [`QUICK_BUFFER_BYTES`]. A run of a second would be over before its
/// clients had filled 12 MB each: 24 of them, writing 10 bytes at 200,000 rows/s, need 70 s. Unsent rows do not count.
const QUICK_BUFFER_ROWS: u64 = 1_000;

/// Bounds of the buffer of quick writes.
const QUICK_BUFFER_BYTES: std::ops::RangeInclusive<u64> = 32 * 1024..=256 * 1024;

/// Clients of quick buffered writes: few enough that partly filled buffers are a small part of a run's writes.
const QUICK_WRITERS_MAX: u32 = 8;

/// Clients of quick runs, unless their number is the experiment. On two cores, more of them only queue.
const QUICK_CLIENTS_MAX: u32 = 64;

/// Operations due per second in quick open loops. The rate is well below the capacity of one server on two shared
/// cores, because above it an open loop measures only the length of the run.
const QUICK_RATE: f64 = 2_000.0;

/// Seconds of rest between runs, which the 2010 evaluation had as well.
const PAUSE_SECONDS: f64 = 60.0;

/// The chosen size, and the other options.
pub(super) struct Sizing {
    scale: f64,
    /// Whether quick sizes are meant.
    pub quick: bool,
    corpus: Option<String>,
    /// Seed from which the seeds of runs are derived.
    pub seed: u64,
    kill_command: Option<String>,
}

impl Sizing {
    pub fn new(options: &SuiteOptions) -> Self {
        Self {
            // Also turns NaN into a number. Every count has a minimum of its own.
            scale: options.scale.max(1e-9),
            quick: options.quick,
            corpus: options.corpus.clone(),
            seed: options.seed,
            kill_command: options.kill_command.clone().filter(|c| !c.trim().is_empty()),
        }
    }

    /// Rows or operations: the document's number to scale, or quick's.
    pub fn count(&self, document: u64, quick: u64) -> u64 {
        if self.quick {
            return quick;
        }
        // Exact for the document's own size; f64 would round its larger counts.
        if self.scale == 1.0 {
            return document;
        }
        (document as f64 * self.scale).round().max(1_000.0) as u64
    }

    /// Clients of a run, if their number is not the subject of the experiment.
    pub fn clients(&self, document: u32) -> u32 {
        if self.quick {
            document.min(QUICK_CLIENTS_MAX)
        } else {
            document
        }
    }

    /// End of a run: the document's number of operations to scale; quick runs end by time.
    pub fn operations_or(&self, document: u64, quick_seconds: f64) -> Stop {
        if self.quick {
            Stop::Seconds(quick_seconds)
        } else {
            Stop::Operations(self.count(document, 0))
        }
    }

    /// End of a run that is timed in the document too. Time is scaled down with the volume, but never below ten
    /// seconds. It is never scaled up: longer runs give no new information.
    pub fn seconds(&self, document: f64, quick: f64) -> Stop {
        if self.quick {
            Stop::Seconds(quick)
        } else {
            Stop::Seconds((document * self.scale.min(1.0)).max(10.0_f64.min(document)))
        }
    }

    /// Warm-up of a run that ends by time.
    pub fn warmup(&self, stop: Stop) -> f64 {
        match (stop, self.quick) {
            (Stop::Operations(_), _) => 0.0,
            (Stop::Seconds(_), true) => 0.3,
            (Stop::Seconds(seconds), false) => (seconds * 0.1).clamp(1.0, 30.0),
        }
    }

    /// Clients that write through buffers.
    pub fn writers(&self, document: u32) -> u32 {
        if self.quick {
            document.min(QUICK_WRITERS_MAX)
        } else {
            document
        }
    }

    /// A write of rows of this many bytes through a client's buffer.
    pub fn buffered_put(&self, row_bytes: u64) -> Operation {
        let (least, most) = (*QUICK_BUFFER_BYTES.start(), *QUICK_BUFFER_BYTES.end());
        Operation::BufferedPut {
            buffer_bytes: if self.quick {
                (QUICK_BUFFER_ROWS * row_bytes).clamp(least, most)
            } else {
                BUFFER_BYTES
            },
        }
    }

    /// Rest after a flush.
    pub fn pause_seconds(&self) -> f64 {
        if self.quick {
            0.2
        } else {
            PAUSE_SECONDS * self.scale.clamp(0.05, 1.0)
        }
    }

    /// Rate of an open loop. Except in quick suites, the user must know the capacity of the servers. This is about half
    /// of the capacity of one server of 2010, in the documents that give a figure.
    pub fn open_loop(&self) -> OpenLoop {
        OpenLoop {
            per_second: if self.quick { QUICK_RATE } else { 10_000.0 },
            poisson: true,
        }
    }

    /// Kills servers in the middle of a run. The command gets the server's place in its environment.
    pub fn disruption(&self, at_seconds: f64, role: &str, servers: u32) -> Option<Disruption> {
        let command = self.kill_command.as_ref()?;
        Some(Disruption {
            at_seconds,
            command: format!("export STELE_BENCH_PULL={role} STELE_BENCH_PULL_COUNT={servers}; {command}"),
        })
    }

    /// One value of this many random bytes in each row.
    pub fn random(&self, bytes: u32) -> Values {
        Values {
            bytes,
            bytes_max: None,
            source: ValueSource::Incompressible,
            columns: 1,
            families: 0,
        }
    }

    /// One value cut from the corpus; random bytes without one.
    pub fn text(&self, bytes: u32) -> Values {
        let source = match &self.corpus {
            Some(path) => ValueSource::Corpus { path: path.clone() },
            None => ValueSource::Incompressible,
        };
        Values {
            source,
            ..self.random(bytes)
        }
    }

    /// Difference to list where the document's values were text.
    pub fn text_difference(&self) -> &'static str {
        match self.corpus {
            Some(_) => "Values are cut from the corpus that was named, not from the document's 200 MB of Wikipedia.",
            None => {
                "Values are incompressible: no corpus was named. The document cut them from 200 MB of Wikipedia, so \
                     its systems wrote and cached less than the stated volume."
            }
        }
    }

    /// Difference to list for the size, if it is not the document's.
    pub fn size_difference(&self) -> Option<String> {
        if self.quick {
            return Some(format!(
                "Quick size: runs of about a second on small tables, at most {QUICK_CLIENTS_MAX} clients unless their \
                 number is the experiment, at most {QUICK_WRITERS_MAX} of them writing through buffers, and those of 32 to 256 \
                 KiB instead of 12 MB. All data fits in memory, so the \
                 document's ratio of data to memory is not kept."
            ));
        }
        (self.scale != 1.0).then(|| format!("Volume and number of operations are {} of the document's.", self.scale))
    }
}
