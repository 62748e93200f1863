//! A client of the public Bigtable API, for any server that implements it.
//!
//! Reads and dated writes are repeated after transient errors, other changes only if they were not begun: see [`retry`]. A read
//! continues after its last row. A write repeats only the entries that are not acknowledged. [`chunks`] assembles rows and is
//! pure.
//!
//! Messages may have up to [`MESSAGE_BYTES_MAX`]. That limit and HTTP/2 flow control bound the memory.

pub mod admin;
pub mod chunks;
#[cfg(test)]
pub(crate) mod fake;
pub mod read;
pub mod retry;
mod security;

pub use security::{SecurityOptions, TlsOptions};

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin_v2;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use prost::Message;
use read::{ReadQuery, RowStream};
use retry::{Retry, is_retryable, is_unbegun};
use std::error::Error as _;
use std::str::FromStr;
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use admin_v2::bigtable_instance_admin_client::BigtableInstanceAdminClient;
use admin_v2::bigtable_table_admin_client::BigtableTableAdminClient;
use v2::bigtable_client::BigtableClient;
use v2::mutate_rows_request::Entry;

/// The largest message accepted: a row has at most 256 MiB, and a server may send it as one. Listings, such as the tablets of a
/// cluster, exceed the 4 MiB that a client takes by default.
const MESSAGE_BYTES_MAX: usize = 512 << 20;
/// Flow control windows: the bytes in flight while this side is busy compressing or printing.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a batch of writes, which normally takes milliseconds. After it the batch is repeated.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

type Stub = InterceptedService<Channel, Features>;

/// A connection to one server.
#[derive(Clone)]
pub struct Client {
    data: BigtableClient<Stub>,
    tables: BigtableTableAdminClient<Stub>,
    instances: BigtableInstanceAdminClient<Stub>,
    own: admin::own::OwnClient,
    project: String,
}

/// A table as the user names it: `instance/table`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRef {
    /// Instance.
    pub instance: String,
    /// Table within it.
    pub table: String,
}

impl FromStr for TableRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((instance, table)) if !instance.is_empty() && !table.is_empty() && !table.contains('/') => {
                Ok(TableRef {
                    instance: instance.to_owned(),
                    table: table.to_owned(),
                })
            }
            _ => Err("a table is given as instance/table".to_owned()),
        }
    }
}

impl std::fmt::Display for TableRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.instance, self.table)
    }
}

/// States the client's features and its identity on every call.
#[derive(Clone)]
struct Features {
    features: MetadataValue<Ascii>,
    authorization: Option<MetadataValue<Ascii>>,
}

impl Features {
    fn new(authorization: Option<MetadataValue<Ascii>>) -> Result<Self> {
        let flags = v2::FeatureFlags {
            reverse_scans: true,
            last_scanned_row_responses: true,
            ..v2::FeatureFlags::default()
        };
        Ok(Features {
            features: URL_SAFE.encode(flags.encode_to_vec()).parse()?,
            authorization,
        })
    }
}

impl Interceptor for Features {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        metadata.insert("bigtable-features", self.features.clone());
        if let Some(authorization) = &self.authorization {
            metadata.insert("authorization", authorization.clone());
        }
        Ok(request)
    }
}

/// Whether the server answers any call, be it with an error. A server under TLS closes plain connections, and those of clients
/// without the certificate that it requires, after the client has taken them for connected.
async fn is_answered(data: &mut BigtableClient<InterceptedService<Channel, Features>>) -> bool {
    let answer = data.ping_and_warm(v2::PingAndWarmRequest::default()).await;
    // A status with a source was made here, from a broken connection; tonic cancels calls on one that is closed.
    answer.map_or_else(
        |status| status.source().is_none() && status.code() != Code::Cancelled,
        |_| true,
    )
}

impl Client {
    /// Connects to `HOST:PORT`. Fails immediately if no server listens there, since that is mostly a mistyped address.
    /// A connection that is lost later is made again.
    pub async fn connect(address: &str, project: &str) -> Result<Client> {
        Client::connect_with(address, project, &SecurityOptions::default()).await
    }

    /// The same with TLS and a token, as far as these are given.
    pub async fn connect_with(address: &str, project: &str, security: &SecurityOptions) -> Result<Client> {
        let (bare, tls) = security.tls_of(address)?;
        // First, so that nothing is asked of a server that must not get the token.
        let authorization = security.authorization(bare, tls.is_some())?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{bare}"))
            .with_context(|| format!("`{address}` is not an address (HOST:PORT)"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20));
        if let Some(tls) = tls {
            endpoint = endpoint
                .tls_config(tls)
                .map_err(|error| anyhow!("TLS: {}", innermost(&error)))?;
        }
        let channel = endpoint
            .connect()
            .await
            .map_err(|error| anyhow!("cannot connect to {bare}: {}", innermost(&error)))?;
        let stub = InterceptedService::new(channel, Features::new(authorization)?);
        let mut data = BigtableClient::new(stub.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        ensure!(
            is_answered(&mut data).await,
            "{bare} closes the connection: it is not a gRPC server{}",
            match (scheme, &security.tls.tls_cert) {
                ("https", None) => ", or it requires a certificate of the client (--tls-cert, --tls-key)",
                ("https", Some(_)) => ", or it requires another certificate of the client (--tls-cert, --tls-key)",
                _ => ", or it is under TLS (https://)",
            }
        );
        Ok(Client {
            data,
            tables: BigtableTableAdminClient::new(stub.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
            own: admin::own::OwnClient::new(stub.clone()),
            instances: BigtableInstanceAdminClient::new(stub).max_decoding_message_size(MESSAGE_BYTES_MAX),
            project: project.to_owned(),
        })
    }

    /// The full name of an instance.
    fn instance_name(&self, instance: &str) -> String {
        format!("projects/{}/instances/{instance}", self.project)
    }

    /// The full name of a table.
    pub fn table_name(&self, table: &TableRef) -> String {
        format!("{}/tables/{}", self.instance_name(&table.instance), table.table)
    }

    /// Starts reading; rows arrive through [`RowStream::next`].
    pub fn read_rows(&self, table: &TableRef, query: ReadQuery) -> RowStream {
        RowStream::new(self.data.clone(), self.table_name(table), query)
    }

    /// Writes rows; returns the entries which the server refuses for good, by index. Entries that fail for a passing
    /// reason are repeated.
    pub async fn mutate_rows(&self, table: &TableRef, entries: &[Entry]) -> Result<Vec<(usize, Status)>, Status> {
        self.mutate_rows_if(is_retryable, table, entries).await
    }

    /// The same with repetitions after these failures.
    async fn mutate_rows_if(
        &self,
        repeats: fn(&Status) -> bool,
        table: &TableRef,
        entries: &[Entry],
    ) -> Result<Vec<(usize, Status)>, Status> {
        let table_name = self.table_name(table);
        let mut refused = Vec::new();
        let mut open: Vec<usize> = (0..entries.len()).collect();
        let mut retry = Retry::default();
        loop {
            let before = open.len();
            let failure = self
                .mutate_once(repeats, &table_name, entries, &mut open, &mut refused)
                .await;
            let Some(failure) = failure.filter(|_| !open.is_empty()) else {
                return Ok(refused);
            };
            if open.len() < before {
                retry.progressed();
            }
            retry.after_if(repeats, failure).await?;
        }
    }

    /// One attempt at the open entries. Removes those that are settled, and returns why the others are not.
    async fn mutate_once(
        &self,
        repeats: fn(&Status) -> bool,
        table_name: &str,
        entries: &[Entry],
        open: &mut Vec<usize>,
        refused: &mut Vec<(usize, Status)>,
    ) -> Option<Status> {
        let sent = std::mem::take(open);
        let mut request = routed(
            table_name,
            v2::MutateRowsRequest {
                table_name: table_name.to_owned(),
                entries: sent.iter().filter_map(|at| entries.get(*at)).cloned().collect(),
                ..v2::MutateRowsRequest::default()
            },
        );
        request.set_timeout(WRITE_TIMEOUT);
        let mut outcomes: Vec<Option<Status>> = vec![None; sent.len()];
        let mut failure = None;
        match self.data.clone().mutate_rows(request).await {
            Err(status) => failure = Some(status),
            Ok(response) => {
                let mut stream = response.into_inner();
                loop {
                    match stream.message().await {
                        Ok(Some(message)) => note_outcomes(message, &mut outcomes),
                        Ok(None) => break,
                        Err(status) => {
                            failure = Some(status);
                            break;
                        }
                    }
                }
            }
        }
        for (at, outcome) in sent.into_iter().zip(outcomes) {
            match outcome {
                Some(status) if status.code() == Code::Ok => {}
                Some(status) if repeats(&status) => {
                    open.push(at);
                    failure.get_or_insert(status);
                }
                Some(status) => refused.push((at, status)),
                None => open.push(at),
            }
        }
        failure.or_else(|| (!open.is_empty()).then(|| Status::aborted("the server left entries unanswered")))
    }

    /// Writes one row, with a timestamp in each cell.
    pub async fn mutate_row(&self, table: &TableRef, entry: Entry) -> Result<(), Status> {
        only(self.mutate_rows(table, &[entry]).await?)
    }

    /// Changes one row. It is not repeated once the server may have begun: a deletion without timestamps would take
    /// later writes of others. Idempotency tokens do not help, servers obey them for additions only.
    pub async fn mutate_row_once(&self, table: &TableRef, entry: Entry) -> Result<(), Status> {
        only(self.mutate_rows_if(is_unbegun, table, &[entry]).await?)
    }
}

/// The outcome of the only entry.
fn only(mut refused: Vec<(usize, Status)>) -> Result<(), Status> {
    refused.pop().map_or(Ok(()), |(_, status)| Err(status))
}

fn note_outcomes(message: v2::MutateRowsResponse, outcomes: &mut [Option<Status>]) {
    for entry in message.entries {
        let outcome = usize::try_from(entry.index).ok().and_then(|at| outcomes.get_mut(at));
        if let Some(outcome) = outcome {
            let status = entry.status.unwrap_or_default();
            *outcome = Some(Status::new(Code::from_i32(status.code), status.message));
        }
    }
}

/// A request with the header by which proxies route, see AIP-4222.
fn routed<T>(table_name: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let encoded = table_name.replace('%', "%25").replace('/', "%2F");
    // A name that cannot be a header is refused by the server anyway.
    if let Ok(value) = format!("table_name={encoded}").parse() {
        request.metadata_mut().insert("x-goog-request-params", value);
    }
    request
}

/// A status as one line.
pub fn describe(status: &Status) -> anyhow::Error {
    let name = format!("{:?}", status.code());
    match std::error::Error::source(status) {
        Some(source) => anyhow!("{name}: {}", innermost(source)),
        None => anyhow!("{name}: {}", status.message().replace('\n', " ")),
    }
}

/// The innermost cause; its wrappers are names of layers.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests;
