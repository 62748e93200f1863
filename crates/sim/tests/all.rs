//! All tests under simulation, in one program: each program links the whole server.

mod support {
    pub mod tables;
}

mod archive;
mod cluster;
mod damage;
mod damaged_tablet;
mod fleet;
mod freed;
mod full_disk;
mod hdfs;
mod large;
mod manifest_owners;
mod metamorphic;
mod peers;
mod simulation;
mod snapshots;
mod splits;
mod stuck_flush;
mod tablet_model;
