//! Commands that speak the public Bigtable API: import, export, scan, put, shell and others.
//!
//! They work against any server of that API, so nothing here knows how Stele stores data. [`Command`] is embedded in the
//! binary's command line, [`run`] executes one.
//!
//! Layers, pure first: [`escape`], [`timestamp`], [`records`], [`formats`], [`mapping`] know neither files nor network.
//! [`checkpoint`], [`compression`], [`progress`] know files. [`client`] knows the network. [`import`], [`export`],
//! [`show`], [`schema`], [`groups`], [`settings`], [`explain`], [`snapshots`] and [`backups`] are the
//! commands. The [`shell`] runs some of them on one connection. [`top`], [`slow`] and [`health`] ask the HTTP port of a server over [`http`].
//!
//! `docs/import-export.md` and `docs/console.md` are the references for users.
//!
//! Exit status: 0 success, 1 failure, 3 an import that finished but set bad records aside.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a command-line client, outside the server's determinism seam"
)]

pub mod access;
pub mod backups;
pub mod checkpoint;
pub mod client;
pub mod cluster;
pub mod command;
pub mod compression;
pub mod connection;
pub mod escape;
pub mod explain;
pub mod export;
pub mod file_lock;
pub mod formats;
pub mod groups;
pub mod health;
pub mod http;
pub mod import;
pub mod interrupt;
pub mod mapping;
pub mod output;
pub mod progress;
pub mod query;
pub mod records;
pub mod schema;
pub mod settings;
pub mod shell;
pub mod show;
pub mod sizes;
pub mod slow;
pub mod snapshots;
pub mod timestamp;
pub mod top;

pub use command::{Command, run};
