//! Values of the largest size through the real process: written, read, passed over, flushed, overwritten, and there after
//! a kill; with memory within the budget and 200 MB.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "drives a real process over real sockets"
)]

use bytes::Bytes;
use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use v2::bigtable_client::BigtableClient;
use v2::mutation::{Mutation, SetCell};
use v2::row_filter::Filter;

const BUDGET_BYTES: u64 = 512 << 20;
/// What the project promises beyond the budget.
const BEYOND_BYTES: u64 = 200_000_000;
const LARGEST: usize = 100 << 20;
const TABLE: &str = "projects/p/instances/i/tables/t";
/// Longest wait for what happens by itself, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

struct Server {
    child: Child,
    client: BigtableClient<Channel>,
    address: String,
}

impl Server {
    async fn start(data: &Path) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_stele"))
            .args(["start", "--bigtable", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .args(["--memory", &BUDGET_BYTES.to_string(), "--data"])
            .arg(data)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = |line: String| {
            line.trim_start()
                .strip_prefix("Bigtable")
                .map(|at| at.trim().to_owned())
        };
        let address = lines.map(Result::unwrap).find_map(told).expect("the banner says where");
        let client = connect(&address).await;
        Server { child, client, address }
    }

    async fn write(&mut self, row: &str, value: Bytes) -> Result<(), tonic::Status> {
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
        self.client.mutate_row(request).await.map(drop)
    }

    /// The peak of the resident set since the last call.
    fn peak_bytes(&self) -> u64 {
        let proc = |file: &str| format!("/proc/{}/{file}", self.child.id());
        let status = fs::read_to_string(proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        fs::write(proc("clear_refs"), "5").unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    fn check_peak(&self, what: &str) {
        let peak = self.peak_bytes();
        println!("{what}: peak {} MiB", peak >> 20);
        assert!(peak <= BUDGET_BYTES + BEYOND_BYTES, "{what}: {} MiB", peak >> 20);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

async fn connect(address: &str) -> BigtableClient<Channel> {
    let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
    let channel = endpoint.connect().await.unwrap();
    BigtableClient::new(channel)
        .max_decoding_message_size(256 << 20)
        .max_encoding_message_size(256 << 20)
}

async fn create_table(address: &str) {
    let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let mut client = admin::bigtable_table_admin_client::BigtableTableAdminClient::new(channel);
    let table = admin::Table {
        column_families: [("f".to_owned(), admin::ColumnFamily::default())].into(),
        ..admin::Table::default()
    };
    let request = admin::CreateTableRequest {
        parent: "projects/p/instances/i".to_owned(),
        table_id: "t".to_owned(),
        table: Some(table),
        ..admin::CreateTableRequest::default()
    };
    client.create_table(request).await.unwrap();
}

/// Bytes that do not compress, the same for one seed.
fn noise(seed: u64, len: usize) -> Bytes {
    let mut state = seed | 1;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len).collect::<Vec<u8>>().into()
}

/// Key, bytes of the value and their checksum of every row. Who is told that others take all the room tries again, as
/// clients do.
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

/// Waits until the value files have so many bytes.
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
    let mut server = Server::start(&data).await;
    create_table(&server.address).await;
    let value = noise(1, LARGEST);
    let mut expected = Vec::new();
    for row in ["a", "b", "c"] {
        server.write(row, value.clone()).await.unwrap();
        let small = Bytes::from_static(b"small");
        server.write(&format!("{row}-small"), small.clone()).await.unwrap();
        expected.push((Bytes::from(row), LARGEST, crc32fast::hash(&value)));
        expected.push((
            Bytes::from(format!("{row}-small")),
            small.len(),
            crc32fast::hash(&small),
        ));
    }
    let refused = server.write("d", noise(1, LARGEST + 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    server.check_peak("written");
    assert_eq!(read(&mut server.client, None).await, expected);
    // A memtable that is so large is flushed at once, the last one after a while.
    wait_for_values(&data, |bytes| bytes >= 2 * LARGEST as u64).await;
    assert_eq!(read(&mut server.client, None).await, expected);
    server.check_peak("read");
    let keys = read(&mut server.client, Some(Filter::StripValueTransformer(true))).await;
    assert_eq!(keys.len(), expected.len());
    let peak = server.peak_bytes();
    assert!(peak < BUDGET_BYTES, "passing over values took {} MiB", peak >> 20);
    drop(server);

    let mut server = Server::start(&data).await;
    assert_eq!(read(&mut server.client, None).await, expected);
    server.check_peak("recovered and read");
    let readers = (0..2).map(|_| {
        let address = server.address.clone();
        tokio::spawn(async move { read(&mut connect(&address).await, None).await })
    });
    for reader in readers.collect::<Vec<_>>() {
        assert_eq!(reader.await.unwrap(), expected);
    }
    server.check_peak("two readers at once");
    for version in 2..4 {
        let value = noise(version, LARGEST);
        for row in ["a", "b", "c"] {
            server.write(row, value.clone()).await.unwrap();
        }
        for row in expected.iter_mut().filter(|(_, len, _)| *len == LARGEST) {
            row.2 = crc32fast::hash(&value);
        }
    }
    assert_eq!(read(&mut server.client, None).await, expected);
    server.check_peak("overwritten");
    wait_for_values(&data, |bytes| bytes <= 7 * LARGEST as u64).await;
    assert_eq!(read(&mut server.client, None).await, expected);
}
