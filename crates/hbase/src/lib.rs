//! The HBase RPC front end.
//!
//! It serves unmodified HBase clients on the tables of the service interface. The crate translates: messages of the
//! protocol ([`stele_wire`]) become requests of [`stele_client::TableService`] and [`stele_client::TableAdmin`], and rows
//! become cell blocks.
//!
//! A connection ([`connection`]) is for one service, and `services` finds the handler of a call. Reads share `selection`,
//! which says which cells are wanted, and `cells`, which encodes them. A tablet is a region (`regions`), and the table in
//! which clients look regions up is made when it is read (`meta_table`). `coprocessor` has the services of regions that
//! clients call by name, and `facade` the nodes of ZooKeeper that some clients read first.
//!
//! Invariant: cells of a request's cell block are consumed in the order of its actions, also by those that fail.
#![forbid(unsafe_code)]

mod access_control;
mod acl_table;
mod admin;
mod bulk_load;
mod call;
mod call_rate;
mod cells;
mod cluster_id;
mod compression;
mod condition;
mod connection;
mod context;
mod coprocessor;
mod descriptors;
mod facade;
mod failure;
mod filtering;
pub mod filters;
mod front_end;
pub mod fuzzing;
mod get;
mod idle_bytes;
mod log_entries;
mod master;
mod meta_rows;
mod meta_scan;
mod meta_table;
mod metrics;
mod multi;
mod mutate;
mod mutations;
mod names;
mod namespace_data;
mod pace;
mod packing;
mod permissions;
mod procedures;
mod region_cache;
mod region_loads;
mod region_scan;
mod region_search;
mod regions;
mod registry;
mod replications;
mod row_memory;
mod scan;
mod scan_batch;
mod scanners;
mod selection;
mod services;
mod shared_fields;
mod switches;
#[cfg(test)]
mod test_service;
mod times;
mod token;
mod trace_context;
mod waiting;

pub use cluster_id::{cluster_id, uuid_of};
pub use condition::ConditionTests;
pub use connection::ConnectionError;
pub use context::Identity;
pub use front_end::HBaseFrontEnd;
