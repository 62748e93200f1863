//! All tests of the real process, in one program: each program links the whole server.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "drives a real process over real sockets"
)]

mod support {
    pub mod certificates;
    pub mod collector;
    pub mod noise;
    pub mod resident;
    pub mod server;
    pub mod table;
}

mod access;
mod backup;
mod console;
mod deploy;
mod encryption;
mod explain;
mod families;
mod full_disk;
mod hbase;
mod hostile;
mod hostile_rows;
mod large_values;
mod large_values_concurrently;
mod migrate;
mod process;
mod s3;
mod shell;
mod table_settings;
mod tls;
mod traces;
mod wide_rows;
