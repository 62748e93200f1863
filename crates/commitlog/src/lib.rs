//! Commit log: segments, records, group commit, replay.
