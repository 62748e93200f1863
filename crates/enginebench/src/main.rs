//! `stele-bench-engine`: the tablet engine against RocksDB, in one process and one run.

fn main() {}
