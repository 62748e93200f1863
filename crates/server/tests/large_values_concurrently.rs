//! Large values by many concurrent clients through the real process, with small budgets.
//!
//! The resident set always stays within the budget plus 200 MB. It is sampled every ten milliseconds from the start of
//! the process to its end.

use crate::support::noise;
use crate::support::resident;
use crate::support::server;
use crate::support::table;

use bytes::Bytes;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use noise::noise;
use resident::Watch;
use server::{OVERDRAFT_BYTES, Server};
use std::time::{Duration, Instant};
use table::{TABLE, connect, create_table};
use tonic::Code;
use tonic::transport::Channel;
use v2::bigtable_client::BigtableClient;
use v2::mutation::{Mutation, SetCell};
use v2::read_rows_response::cell_chunk::RowStatus;

/// Longest time until a client has got its turn, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);
const CLIENTS: usize = 8;
/// Values of a request that has several.
const VALUES: usize = 10;
/// The largest value.
const LARGEST: usize = 100 << 20;

/// A server that is watched.
struct Pressed {
    server: Server,
    budget: u64,
    watch: Option<Watch>,
}

impl Pressed {
    fn begin(budget_mib: u64, data: &std::path::Path) -> Pressed {
        let budget = budget_mib << 20;
        let server = Server::start(data, &["--memory", &budget.to_string()]);
        let watch = Some(Watch::new(server.pid()));
        Pressed { server, budget, watch }
    }

    /// Compares the maximum since the last call with the bound.
    fn check(&mut self, what: &str) {
        let seen = self.watch.take().unwrap().seen();
        println!(
            "{} MiB, {what}: peak {} MiB after {:?}, {} looks",
            self.budget >> 20,
            seen.peak_bytes >> 20,
            seen.at,
            seen.looks
        );
        assert!(
            seen.peak_bytes <= self.budget + OVERDRAFT_BYTES,
            "{what}: {} MiB with a budget of {}",
            seen.peak_bytes >> 20,
            self.budget >> 20
        );
        self.watch = Some(Watch::new(self.server.pid()));
    }
}

fn request(row: &str, values: usize, value: &Bytes) -> v2::MutateRowRequest {
    let put = |column: usize| v2::Mutation {
        mutation: Some(Mutation::SetCell(SetCell {
            family_name: "f".to_owned(),
            column_qualifier: Bytes::from(column.to_string()),
            timestamp_micros: 1_000,
            value: value.clone(),
        })),
    };
    v2::MutateRowRequest {
        table_name: TABLE.to_owned(),
        row_key: Bytes::copy_from_slice(row.as_bytes()),
        mutations: (0..values).map(put).collect(),
        ..v2::MutateRowRequest::default()
    }
}

/// Writes as clients do: a write that the server asks to retry is retried.
async fn write(client: &mut BigtableClient<Channel>, row: &str, values: usize, value: &Bytes) {
    let begun = Instant::now();
    while let Err(status) = client.mutate_row(request(row, values, value)).await {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(begun.elapsed() < PATIENCE, "{status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Every client writes rows of its own, at the same time as the others.
async fn write_concurrently(address: &str, of: &str, rows: usize, values: usize, value: &Bytes) {
    let callers = (0..CLIENTS).map(|caller| {
        let (address, of, value) = (address.to_owned(), of.to_owned(), value.clone());
        tokio::spawn(async move {
            let mut client = connect(&address).await;
            for row in 0..rows {
                write(&mut client, &format!("{of}-{caller}-{row}"), values, &value).await;
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
}

/// Rows that do not all fit into memory, read until the block cache has reached its capacity: later requests find no
/// free memory.
async fn fill_the_cache(pressed: &Pressed) {
    const ROWS: usize = 1_000;
    const VALUE_BYTES: usize = 4_000;
    let address = &pressed.server.bigtable;
    let mut client = connect(address).await;
    let requests = (pressed.budget as usize / (ROWS * VALUE_BYTES)).max(1);
    for batch in 0..requests {
        let value = noise(batch as u64, VALUE_BYTES);
        let entries = (0..ROWS).map(|row| v2::mutate_rows_request::Entry {
            row_key: Bytes::from(format!("small-{batch}-{row}")),
            mutations: request("", 1, &value).mutations,
            ..v2::mutate_rows_request::Entry::default()
        });
        let request = v2::MutateRowsRequest {
            table_name: TABLE.to_owned(),
            entries: entries.collect(),
            ..v2::MutateRowsRequest::default()
        };
        let mut answers = client.mutate_rows(request).await.unwrap().into_inner();
        while let Some(answer) = answers.message().await.unwrap() {
            let failed = answer.entries.iter().filter_map(|entry| entry.status.as_ref());
            assert_eq!(failed.filter(|status| status.code != 0).count(), 0);
        }
    }
    let begun = Instant::now();
    let wanted = pressed.budget / 4;
    while pressed.server.metric("stele_block_cache_bytes") < wanted {
        assert!(begun.elapsed() < PATIENCE, "the cache stays empty");
        let (mut after, mut found) = (Bytes::new(), 0);
        let read = read(address, "small", &mut after, &mut found, VALUE_BYTES, Duration::ZERO);
        read.await.unwrap();
        assert_eq!(found, requests * ROWS);
    }
}

/// Every client reads its rows of that name, with a pause after every message.
async fn read_concurrently(address: &str, of: &str, rows: usize, bytes: usize, pause: Duration) {
    let callers = (0..CLIENTS).map(|caller| {
        let (address, of) = (address.to_owned(), format!("{of}-{caller}"));
        tokio::spawn(async move {
            let begun = Instant::now();
            let mut after = Bytes::new();
            let mut found = 0;
            while let Err(status) = read(&address, &of, &mut after, &mut found, bytes, pause).await {
                assert_eq!(status.code(), Code::Unavailable, "client {caller}: {status}");
                assert!(begun.elapsed() < PATIENCE, "client {caller}, row {found}: {status}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            assert_eq!(found, rows, "client {caller}");
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
}

/// Reads on behind the last row there is.
async fn read(
    address: &str,
    of: &str,
    after: &mut Bytes,
    found: &mut usize,
    bytes: usize,
    pause: Duration,
) -> Result<(), tonic::Status> {
    let start = if after.is_empty() {
        v2::row_range::StartKey::StartKeyClosed(Bytes::from(format!("{of}-")))
    } else {
        v2::row_range::StartKey::StartKeyOpen(after.clone())
    };
    let end = v2::row_range::EndKey::EndKeyOpen(Bytes::from(format!("{of}.")));
    let range = v2::RowRange {
        start_key: Some(start),
        end_key: Some(end),
    };
    let request = v2::ReadRowsRequest {
        table_name: TABLE.to_owned(),
        rows: Some(v2::RowSet {
            row_keys: Vec::new(),
            row_ranges: vec![range],
        }),
        ..v2::ReadRowsRequest::default()
    };
    let mut answers = connect(address).await.read_rows(request).await?.into_inner();
    let (mut key, mut len) = (Bytes::new(), 0);
    while let Some(answer) = answers.message().await? {
        for chunk in answer.chunks {
            if chunk.row_status == Some(RowStatus::ResetRow(true)) {
                len = 0;
                continue;
            }
            if !chunk.row_key.is_empty() {
                (key, len) = (chunk.row_key, 0);
            }
            len += chunk.value.len();
            if chunk.row_status == Some(RowStatus::CommitRow(true)) {
                assert_eq!(len, bytes, "{key:?}");
                *after = key.clone();
                *found += 1;
            }
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    Ok(())
}

/// The most that the smallest budget accepts: requests of 30 MB. Larger ones are refused before any memory is reserved
/// for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_mib() {
    let scratch = tempfile::tempdir().unwrap();
    let mut pressed = Pressed::begin(64, &scratch.path().join("data"));
    let address = pressed.server.bigtable.clone();
    create_table(&address).await;
    fill_the_cache(&pressed).await;
    pressed.check("a full cache");
    let several = noise(1, 3_000_000);
    write_concurrently(&address, "several", 1, VALUES, &several).await;
    pressed.check("ten values a request");
    let single = noise(2, 30_000_000);
    write_concurrently(&address, "single", 1, 1, &single).await;
    pressed.check("one value a request");
    let largest = noise(3, LARGEST);
    let refusals = (0..CLIENTS).map(|caller| {
        let (address, largest) = (address.clone(), largest.clone());
        tokio::spawn(async move {
            let mut client = connect(&address).await;
            client.mutate_row(request(&format!("no-{caller}"), 1, &largest)).await
        })
    });
    for refused in refusals.collect::<Vec<_>>() {
        assert_eq!(refused.await.unwrap().unwrap_err().code(), Code::ResourceExhausted);
    }
    pressed.check("requests that are too large");
    read_concurrently(&address, "several", 1, VALUES * several.len(), Duration::ZERO).await;
    pressed.check("reads of ten values");
    read_concurrently(&address, "single", 1, single.len(), Duration::ZERO).await;
    pressed.check("reads of one value");
    read_concurrently(&address, "several", 1, VALUES * several.len(), Duration::from_millis(2)).await;
    pressed.check("slow scans");
}

/// From 256 MiB on the largest values are taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_256_mib() {
    let scratch = tempfile::tempdir().unwrap();
    let mut pressed = Pressed::begin(256, &scratch.path().join("data"));
    let address = pressed.server.bigtable.clone();
    create_table(&address).await;
    fill_the_cache(&pressed).await;
    pressed.check("a full cache");
    let several = noise(1, LARGEST / VALUES - 1024);
    write_concurrently(&address, "several", 1, VALUES, &several).await;
    pressed.check("ten values a request");
    let single = noise(2, LARGEST);
    write_concurrently(&address, "single", 1, 1, &single).await;
    pressed.check("one value a request");
    read_concurrently(&address, "several", 1, VALUES * several.len(), Duration::ZERO).await;
    pressed.check("reads of ten values");
    read_concurrently(&address, "single", 1, single.len(), Duration::ZERO).await;
    pressed.check("reads of one value");
    read_concurrently(
        &address,
        "several",
        1,
        VALUES * several.len(),
        Duration::from_micros(200),
    )
    .await;
    pressed.check("slow scans");
}
