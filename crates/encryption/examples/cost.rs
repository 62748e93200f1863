//! Measures reads and appends of a folder with and without encryption.
//!
//! `cargo run --release -p stele-encryption --example cost -- FOLDER` writes 512 MiB to a file, as a compaction does, and reads it from
//! the page cache, in order and as blocks of 4 KiB anywhere. Each figure is the median of seven turns, with the least and the most. The
//! two ways take turns.
#![allow(clippy::unwrap_used, reason = "a measurement ends at the first error")]

use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stele_encryption::{EncryptedStorage, KeyFile, KeyRing, SystemRandom};
use stele_env::Env;
use stele_env::tokio_env::TokioRuntime;
use stele_storage::Storage;
use stele_storage::local::LocalStorage;

const FILE_BYTES: usize = 512 << 20;
/// As a compaction appends and reads ahead.
const PIECE_BYTES: usize = 256 << 10;
const BLOCK_BYTES: usize = 4 << 10;
const BLOCKS: u64 = 200_000;
const TURNS: usize = 7;

#[tokio::main]
async fn main() {
    let folder = std::env::args().nth(1).map(PathBuf::from).unwrap();
    let env = TokioRuntime::current();
    let plain: Arc<dyn Storage> = LocalStorage::open(&folder.join("plain"), env.clone()).unwrap();
    let below: Arc<dyn Storage> = LocalStorage::open(&folder.join("encrypted"), env.clone()).unwrap();
    let keys = KeyFile::parse(&format!("k {}", "5a".repeat(32)), Arc::new(SystemRandom)).unwrap();
    let ring = KeyRing::open(below.clone(), Arc::new(keys), Arc::new(SystemRandom)).await;
    let encrypted: Arc<dyn Storage> = EncryptedStorage::of_root(below, ring.unwrap());
    let ways = [("plain", plain), ("encrypted", encrypted)];
    let mut figures = vec![[const { Vec::new() }; 3]; ways.len()];
    for turn in 0..TURNS {
        for ((_, storage), figures) in ways.iter().zip(&mut figures) {
            let path = format!("sst/{turn}.sst");
            let mib = FILE_BYTES as f64 / f64::from(1 << 20);
            figures[0].push(mib / write(storage, &path, &env).await.as_secs_f64());
            figures[1].push(mib / in_order(storage, &path, &env).await.as_secs_f64());
            figures[2].push(anywhere(storage, &path, &env).await.as_nanos() as f64 / BLOCKS as f64);
            storage.delete(&path).await.unwrap();
        }
    }
    for ((name, _), figures) in ways.iter().zip(&mut figures) {
        let units = ["append MiB/s", "read in order MiB/s", "block of 4 KiB ns"];
        for (unit, turns) in units.iter().zip(figures) {
            turns.sort_by(f64::total_cmp);
            let (least, median, most) = (turns[0], turns[TURNS / 2], turns[TURNS - 1]);
            println!("{name:10} {unit:20} {median:8.0} ({least:.0} to {most:.0})");
        }
    }
}

async fn write(storage: &Arc<dyn Storage>, path: &str, env: &Env) -> Duration {
    let piece = Bytes::from((0..PIECE_BYTES).map(|at| (at * 31) as u8).collect::<Vec<u8>>());
    let began = env.now();
    let mut file = storage.create(path).await.unwrap();
    for _ in 0..FILE_BYTES / PIECE_BYTES {
        file.append(std::slice::from_ref(&piece)).await.unwrap();
    }
    let took = env.now() - began;
    file.sync().await.unwrap();
    took
}

async fn in_order(storage: &Arc<dyn Storage>, path: &str, env: &Env) -> Duration {
    let began = env.now();
    let file = storage.open(path).await.unwrap();
    for piece in 0..FILE_BYTES / PIECE_BYTES {
        let read = file.read_at((piece * PIECE_BYTES) as u64, PIECE_BYTES).await.unwrap();
        assert_eq!(read[PIECE_BYTES - 1], ((PIECE_BYTES - 1) * 31) as u8);
    }
    env.now() - began
}

async fn anywhere(storage: &Arc<dyn Storage>, path: &str, env: &Env) -> Duration {
    let file = storage.open(path).await.unwrap();
    let mut block = vec![0; BLOCK_BYTES];
    let began = env.now();
    for _ in 0..BLOCKS {
        let at = env.random_below((FILE_BYTES / BLOCK_BYTES) as u64) * BLOCK_BYTES as u64;
        match file.try_read_into(at, &mut block) {
            Some(read) => read.unwrap(),
            None => drop(file.read_at(at, BLOCK_BYTES).await.unwrap()),
        }
    }
    env.now() - began
}
