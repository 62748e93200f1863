//! Backups of tables outside of the data root.
//!
//! They are in a folder, an object store or HDFS. The server copies: only it can hold files by snapshots, give numbers to restored ones, and read any kind of data root while
//! it runs (`docs/adr/0036-the-server-copies-backups.md`). Bytes: `docs/formats/backup.md`. For users: `docs/backups.md`.
//!
//! Terms: a *destination* is the place of backups. Its *state* is the list of its backups. A *work* is one order that is carried
//! out. An *attempt* is a work that makes a backup, perhaps not to its end. A *root* is a data root, which files have their numbers in.
//!
//! Modules, from the bottom up: [`format`], [`paths`]: bytes and names. [`destination`]: the state and the documents. [`work`]:
//! progress and rate. `places`: storages in use. [`archive`]: the log of a server. [`copy`]: one file. `copying`: all files of a backup. `digest`: the rows of a table. [`create`], [`restore`], [`verify`], [`delete`]: the works. [`works`]: runs them.
#![forbid(unsafe_code)]

pub mod archive;
pub mod copy;
mod copying;
pub mod create;
pub mod delete;
pub mod destination;
mod digest;
mod error;
pub mod format;
pub mod paths;
mod places;
pub mod restore;
mod restore_at;
mod root;
pub mod verify;
pub mod work;
mod works;

pub use error::{BackupError, Result};
pub use places::{OpenDestination, OpenedPlace, PlaceToOpen, Places};
pub use root::{Barrier, DataRoot, Leveling};
pub use works::{Archives, Backups};

#[cfg(test)]
mod tests;
