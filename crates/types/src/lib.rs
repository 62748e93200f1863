//! The data model of Stele: cells, keys, mutations, schemas, limits and error kinds.
//!
//! A cell is (row, family, qualifier, timestamp) → value; see `docs/data-model.md`. This crate does no I/O, knows no
//! clock and no async, so everything in it can be tested exhaustively and fuzzed.
#![forbid(unsafe_code)]

pub mod access;
pub mod error;
pub mod gc;
pub mod ids;
pub mod kept;
pub mod key;
pub mod lifetime;
pub mod limits;
pub mod mutation;
pub mod range;
pub mod row;
pub mod schema;
pub mod stream;
pub mod switches;
pub mod token;
pub mod varint;
pub mod view;
pub mod writes;

pub use access::{AccessRule, Member, Resource, Rights};
pub use error::ErrorKind;
pub use gc::{GcRule, GcView};
pub use ids::{
    Epoch, FamilyId, FileId, FilesInUse, GroupId, SeqNo, ServerId, SnapshotId, TableId, TableName, TabletId, TimeUnit,
    Timestamp,
};
pub use kept::Kept;
pub use key::{CellKey, CellKind, KeyBuf};
pub use mutation::{AggregateKind, Mutation, RowMutation};
pub use range::{RowRange, RowSet};
pub use row::{Cell, Labels, ReadCounts, RowBatch};
pub use schema::{
    AutomatedBackups, Compression, DeleteRule, Deletes, Durability, Family, GroupOptions, KeepDeleted, LocalityGroup,
    TableSchema, ValueType,
};
pub use stream::stream_of;
pub use switches::{Switches, SwitchesChange};
pub use token::RequestToken;
pub use view::{ColumnSubset, View, Views};
pub use writes::{RowWrite, RowWrites, RowWritesBuilder, ServerTime, Span};
