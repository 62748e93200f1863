//! Echo servers, one for each protocol, which reveal the cost of the generator.
//!
//! `null://hbase` starts this same program with the hidden subcommand `null-server --protocol hbase`, waits for the
//! line `listening ADDRESS`, and drives that address with the protocol's usual driver. Everything is as with a real
//! server, but responses are prepared and cost almost nothing. The server ends when its standard input does, so that
//! none is left behind however the bench ends.
//!
//! Parameters: `bytes=N` (HBase), the value of every cell that is read, 1,000 when absent; `loop=1` (HBase), one event loop serves
//! all connections instead of a thread for each; `connections=N` (Bigtable) as for the driver.

use super::{Connection, Result, TableSpec, Target, TargetError, TargetUrl};
use anyhow::Context;
use async_trait::async_trait;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

pub mod bigtable;
pub mod hbase;

/// For how long the server may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Default size of a value: that of most of the documents.
const VALUE_BYTES: u64 = 1000;

/// Largest value that a parameter may request.
const VALUE_BYTES_MAX: u64 = 8 << 20;

/// Starts the server, and makes a target at its address.
///
/// # Errors
/// A protocol without an echo server, or a process that does not start.
pub async fn open(url: &TargetUrl) -> Result<Arc<dyn Target>> {
    let protocol = Protocol::of(url)?;
    let name = url.name_or(&format!("null-{}", url.host))?;
    let program = std::env::current_exe().map_err(|e| not_started(&e.to_string()))?;
    let mut command = Command::new(program);
    command.args(["null-server", "--protocol", &protocol.text()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut server = command.spawn().map_err(|e| not_started(&e.to_string()))?;
    let address = tokio::time::timeout(START_TIMEOUT, listening(&mut server)).await;
    let address = address.map_err(|_| not_started("it printed no address"))??;
    let inner = match protocol {
        Protocol::Hbase { .. } => super::hbase::open(&TargetUrl::parse(&format!("hbase://{address}"))?)?,
        Protocol::Bigtable => super::bigtable::open(&TargetUrl {
            parameters: url.parameters.clone(),
            ..TargetUrl::parse(&format!("bigtable://{address}/null"))?
        })?,
    };
    Ok(Arc::new(NullTarget {
        name,
        inner,
        _server: server,
    }))
}

/// The imitated protocol.
enum Protocol {
    Hbase {
        value_bytes: u64,
        /// Whether one event loop serves all connections.
        on_loop: bool,
    },
    Bigtable,
}

impl Protocol {
    fn of(url: &TargetUrl) -> Result<Self> {
        match url.host.as_str() {
            "hbase" => {
                url.allow_parameters(&["bytes", "loop"])?;
                Ok(Self::Hbase {
                    value_bytes: url.number("bytes", 1..=VALUE_BYTES_MAX, VALUE_BYTES)?,
                    on_loop: url.number("loop", 0..=1, 0)? == 1,
                })
            }
            "bigtable" => {
                url.allow_parameters(&["connections"])?;
                Ok(Self::Bigtable)
            }
            other => Err(TargetError::Unsupported(format!("no echo server speaks {other:?}"))),
        }
    }

    /// The argument of the subcommand: host and query of an address.
    fn text(&self) -> String {
        match self {
            Self::Hbase { value_bytes, on_loop } => format!("hbase?bytes={value_bytes}&loop={}", u8::from(*on_loop)),
            Self::Bigtable => "bigtable".to_owned(),
        }
    }
}

fn not_started(why: &str) -> TargetError {
    TargetError::Connection(format!("the echo server did not start: {why}"))
}

/// The address that the server prints.
async fn listening(server: &mut Child) -> Result<String> {
    let stdout = server.stdout.take().ok_or_else(|| not_started("no output"))?;
    let line = BufReader::new(stdout)
        .lines()
        .next_line()
        .await
        .map_err(|e| not_started(&e.to_string()))?;
    let line = line.ok_or_else(|| not_started("it ended"))?;
    let address = line
        .strip_prefix("listening ")
        .ok_or_else(|| not_started(&format!("it printed {line:?}")))?;
    Ok(address.to_owned())
}

/// The subcommand `null-server`: serves one protocol on a port of its own until standard input ends. `protocol` is the
/// host and query of a `null` address, such as `hbase?bytes=1000`.
///
/// # Errors
/// A protocol without an echo server, or no port.
pub async fn serve(protocol: &str) -> anyhow::Result<()> {
    let protocol = Protocol::of(&TargetUrl::parse(&format!("null://{protocol}"))?)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("binding a port")?;
    let address = listener.local_addr()?;
    println!("listening {address}");
    match protocol {
        Protocol::Hbase {
            value_bytes,
            on_loop: true,
        } => {
            listener.set_nonblocking(true)?;
            tokio::select! {
                served = hbase::serve_on_loop(tokio::net::TcpListener::from_std(listener)?, value_bytes as usize) => Ok(served?),
                () = input_ends() => Ok(()),
            }
        }
        Protocol::Hbase { value_bytes, .. } => {
            hbase::start(listener, value_bytes as usize)?;
            input_ends().await;
            Ok(())
        }
        Protocol::Bigtable => {
            listener.set_nonblocking(true)?;
            tokio::select! {
                served = bigtable::serve(tokio::net::TcpListener::from_std(listener)?) => served,
                () = input_ends() => Ok(()),
            }
        }
    }
}

/// Waits until the process that started this one has closed its standard input, or has died.
async fn input_ends() {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        // The bytes are ignored; only the end of the input counts.
        while input.read(&mut [0; 1024]).is_ok_and(|n| n > 0) {}
        let _ = ended.send(());
    });
    let _ = end.await;
}

/// A driver, and the server that it drives.
struct NullTarget {
    name: String,
    inner: Arc<dyn Target>,
    /// Killed when dropped.
    _server: Child,
}

#[async_trait]
impl Target for NullTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn stores(&self) -> bool {
        false
    }

    async fn create_table(&self, table: &TableSpec) -> Result<()> {
        self.inner.create_table(table).await
    }

    async fn drop_table(&self, name: &str) -> Result<()> {
        self.inner.drop_table(name).await
    }

    async fn flush_table(&self, name: &str) -> Result<()> {
        self.inner.flush_table(name).await
    }

    async fn connect(&self) -> Result<Arc<dyn Connection>> {
        self.inner.connect().await
    }

    async fn describe(&self) -> Result<Vec<(String, String)>> {
        self.inner.describe().await
    }
}
