//! Values of the largest size through the real process.
//!
//! They are written, read, passed over, flushed and overwritten, and are there after a kill. Memory stays within the
//! budget plus 200 MB.

use crate::support::noise;
use crate::support::server;
use crate::support::table;

use bytes::Bytes;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use noise::noise;
use server::{OVERDRAFT_BYTES, Server};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use table::{TABLE, connect, create_table};
use tonic::Code;
use tonic::transport::Channel;
use v2::bigtable_client::BigtableClient;
use v2::mutation::{Mutation, SetCell};
use v2::row_filter::Filter;

const BUDGET_BYTES: u64 = 512 << 20;
const LARGEST: usize = 100 << 20;
/// Longest wait for background work on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

async fn start(data: &Path) -> (Server, BigtableClient<Channel>) {
    let server = Server::start(data, &["--memory", &BUDGET_BYTES.to_string()]);
    let client = connect(&server.bigtable).await;
    (server, client)
}

async fn write(client: &mut BigtableClient<Channel>, row: &str, value: Bytes) -> Result<(), tonic::Status> {
    let cell = SetCell {
        family_name: "f".to_owned(),
        column_qualifier: Bytes::from_static(b"q"),
        timestamp_micros: 1_000,
        value,
    };
    let request = v2::MutateRowRequest {
        table_name: TABLE.to_owned(),
        row_key: Bytes::copy_from_slice(row.as_bytes()),
        mutations: vec![v2::Mutation {
            mutation: Some(Mutation::SetCell(cell)),
        }],
        ..v2::MutateRowRequest::default()
    };
    client.mutate_row(request).await.map(drop)
}

/// The peak of the resident set since the last call.
fn take_peak(server: &Server) -> u64 {
    let peak = server.peak_bytes();
    server.forget_peak();
    peak
}

fn check_peak(server: &Server, what: &str) {
    let peak = take_peak(server);
    println!("{what}: peak {} MiB", peak >> 20);
    assert!(peak <= BUDGET_BYTES + OVERDRAFT_BYTES, "{what}: {} MiB", peak >> 20);
}

/// Key, bytes of the value and their checksum of every row. A refusal because other requests use all memory is retried,
/// as clients do.
async fn read(client: &mut BigtableClient<Channel>, filter: Option<Filter>) -> Vec<(Bytes, usize, u32)> {
    let begun = Instant::now();
    loop {
        match try_read(client, filter.clone()).await {
            Err(status) if status.code() == Code::Unavailable && begun.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            outcome => return outcome.unwrap(),
        }
    }
}

async fn try_read(
    client: &mut BigtableClient<Channel>,
    filter: Option<Filter>,
) -> Result<Vec<(Bytes, usize, u32)>, tonic::Status> {
    let request = v2::ReadRowsRequest {
        table_name: TABLE.to_owned(),
        filter: filter.map(|filter| v2::RowFilter { filter: Some(filter) }),
        ..v2::ReadRowsRequest::default()
    };
    let mut answers = client.read_rows(request).await?.into_inner();
    let mut rows: Vec<(Bytes, usize, u32)> = Vec::new();
    while let Some(answer) = answers.message().await? {
        for chunk in answer.chunks {
            if !chunk.row_key.is_empty() {
                rows.push((chunk.row_key, 0, 0));
            }
            let (_, len, sum) = rows.last_mut().expect("a row begins with its key");
            *len += chunk.value.len();
            let mut hasher = crc32fast::Hasher::new_with_initial(*sum);
            hasher.update(&chunk.value);
            *sum = hasher.finalize();
        }
    }
    Ok(rows)
}

/// Bytes of the value files.
fn value_bytes(data: &Path) -> u64 {
    let Ok(files) = fs::read_dir(data.join("sst")) else {
        return 0;
    };
    let values = files
        .flatten()
        .filter(|file| file.path().extension().is_some_and(|e| e == "val"));
    values
        .filter_map(|file| file.metadata().ok())
        .map(|file| file.len())
        .sum()
}

/// Waits until the value files have this number of bytes.
async fn wait_for_values(data: &Path, wanted: impl Fn(u64) -> bool) {
    let begun = Instant::now();
    while !wanted(value_bytes(data)) {
        assert!(begun.elapsed() < PATIENCE, "{} bytes of value files", value_bytes(data));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn the_largest_values_are_as_good_as_any() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    let (server, mut client) = start(&data).await;
    create_table(&server.bigtable).await;
    let value = noise(1, LARGEST);
    let mut expected = Vec::new();
    for row in ["a", "b", "c"] {
        write(&mut client, row, value.clone()).await.unwrap();
        let small = Bytes::from_static(b"small");
        write(&mut client, &format!("{row}-small"), small.clone())
            .await
            .unwrap();
        expected.push((Bytes::from(row), LARGEST, crc32fast::hash(&value)));
        expected.push((
            Bytes::from(format!("{row}-small")),
            small.len(),
            crc32fast::hash(&small),
        ));
    }
    let refused = write(&mut client, "d", noise(1, LARGEST + 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    check_peak(&server, "written");
    assert_eq!(read(&mut client, None).await, expected);
    // A memtable of this size is flushed immediately, the last one after a while.
    wait_for_values(&data, |bytes| bytes >= 2 * LARGEST as u64).await;
    assert_eq!(read(&mut client, None).await, expected);
    check_peak(&server, "read");
    let keys = read(&mut client, Some(Filter::StripValueTransformer(true))).await;
    assert_eq!(keys.len(), expected.len());
    let peak = take_peak(&server);
    assert!(peak < BUDGET_BYTES, "passing over values took {} MiB", peak >> 20);
    drop(server);

    let (server, mut client) = start(&data).await;
    assert_eq!(read(&mut client, None).await, expected);
    check_peak(&server, "recovered and read");
    let readers = (0..2).map(|_| {
        let address = server.bigtable.clone();
        tokio::spawn(async move { read(&mut connect(&address).await, None).await })
    });
    for reader in readers.collect::<Vec<_>>() {
        assert_eq!(reader.await.unwrap(), expected);
    }
    check_peak(&server, "two readers at once");
    for version in 2..4 {
        let value = noise(version, LARGEST);
        for row in ["a", "b", "c"] {
            write(&mut client, row, value.clone()).await.unwrap();
        }
        for row in expected.iter_mut().filter(|(_, len, _)| *len == LARGEST) {
            row.2 = crc32fast::hash(&value);
        }
    }
    assert_eq!(read(&mut client, None).await, expected);
    check_peak(&server, "overwritten");
    wait_for_values(&data, |bytes| bytes <= 7 * LARGEST as u64).await;
    assert_eq!(read(&mut client, None).await, expected);
}
