//! Samples of processes, disks and the network during a run.
//!
//! The documents' authors watched `iostat` and `top` during every run, and found set-up faults, idle processors and
//! lock contention. [`Sampler`] records the same figures once a second. GC logs are read at the end. [`process_time`]
//! serves the exact ends of a run. Only this machine is sampled: a server elsewhere has rates and latencies, and no CPU
//! seconds.

mod discover;
mod disk;
mod gclog;
mod machine;
mod proc;
mod sampler;

pub use discover::{is_jvm, listener};
pub use machine::{file_system, machine};
pub use sampler::{Sampler, process_cpu, process_time};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A process to be watched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Name in tables: `regionserver`, `stele`, `generator`.
    pub name: String,
    /// Its id on this machine.
    pub pid: u32,
    /// Its GC log, if it is a JVM.
    pub gc_log: Option<String>,
}

/// CPU time of a process, and the marks by which it is known again.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessTime {
    /// Its id, which another process may have later.
    pub pid: u32,
    /// Ticks between boot and its start.
    pub started_ticks: u64,
    /// CPU seconds since its start, in user mode and in the kernel.
    pub seconds: f64,
}

/// One process at one moment; counters since its start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// Seconds since the suite's start.
    pub at: f64,
    /// [`Watched::name`].
    pub process: String,
    /// CPU seconds in user mode.
    pub user_seconds: f64,
    /// CPU seconds in the kernel.
    pub system_seconds: f64,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Page faults that needed no I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Bytes written to the device.
    pub written_bytes: u64,
}

/// The machine at one moment; counters since boot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// Seconds since the suite's start.
    pub at: f64,
    /// CPU seconds by state: `user`, `system`, `iowait`, `idle`, `steal`.
    pub cpu_seconds: BTreeMap<String, f64>,
    /// Bytes received by interface.
    pub received_bytes: BTreeMap<String, u64>,
    /// Bytes sent by interface.
    pub sent_bytes: BTreeMap<String, u64>,
    /// By disk: operations, bytes read, bytes written, busy ms, queue ms, in flight.
    pub disks: BTreeMap<String, DiskSample>,
}

/// One disk at one moment; counters since boot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskSample {
    /// Reads and writes completed.
    pub operations: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// ms during which at least one operation was under way.
    pub busy_millis: u64,
    /// Sum of ms that operations spent waiting and being served.
    pub wait_millis: u64,
    /// Operations under way.
    pub in_flight: u64,
}

/// A pause of a JVM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GcPause {
    /// [`Watched::name`].
    pub process: String,
    /// Seconds since the suite's start.
    pub at: f64,
    /// Its length.
    pub millis: f64,
    /// The cause named in the log.
    pub cause: String,
}

/// All samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Xray {
    /// Processes, once a second.
    pub processes: Vec<ProcessSample>,
    /// The machine, once a second.
    pub hosts: Vec<HostSample>,
    /// Pauses of JVMs.
    pub pauses: Vec<GcPause>,
}
