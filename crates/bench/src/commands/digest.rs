//! `stele-bench digest`: reads a table once and prints its size and a digest.
//!
//! The digest is SHA-256 over all cells in scan order. Each cell contributes row, family, qualifier and value, each
//! preceded by its length as four big-endian bytes. Another client that reads the same table computes the same digest.

use anyhow::Result;
use sha2::{Digest, Sha256};
use std::ops::ControlFlow;
use stele_bench::target::{self, Scan};

/// Arguments of `digest`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The server.
    #[arg(long)]
    target: String,
    /// The table.
    table: String,
    /// Rows per call, where the protocol can express it.
    #[arg(long)]
    rows_per_fetch: Option<u32>,
}

/// Prints rows, cells and digest.
pub async fn run(arguments: &Arguments) -> Result<bool> {
    let target = target::open(&arguments.target).await?;
    let connection = target.connect().await?;
    let scan = Scan {
        rows_per_fetch: arguments.rows_per_fetch,
        ..Scan::default()
    };
    let (mut rows, mut cells, mut digest) = (0_u64, 0_u64, Sha256::new());
    connection
        .scan(&arguments.table, &scan, &mut |row| {
            rows += 1;
            for cell in &row.cells {
                cells += 1;
                for part in [&row.key, &cell.family, &cell.qualifier, &cell.value] {
                    digest.update((part.len() as u32).to_be_bytes());
                    digest.update(part);
                }
            }
            ControlFlow::Continue(())
        })
        .await?;
    let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("rows {rows} cells {cells} sha256 {hex}");
    Ok(true)
}
