//! Answers the data calls of the Bigtable API without storing anything.
//!
//! `cargo xtask measure` compares Stele with it: no server on the same transport can cost less than this one.
//!
//! | form | runtime | output of a connection |
//! |---|---|---|
//! | `plain` | two worker threads | tonic as usual |
//! | `coalesced` | two worker threads | gathered, see [`coalesced`] |
//! | `coalesced-per-core` | one thread per core, each with its own connections | gathered |
//!
//! Values are those of the measurement: 1000 bytes, and `--large-bytes` in a table named `large`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement needs real sockets and threads"
)]

mod coalesced;
mod service;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use coalesced::Coalesced;
use futures::Stream;
use service::Echo;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// As many cores as the comparison gives a server, even on a larger machine.
const WORKER_THREADS: usize = 2;

/// Accepted connections that no thread has taken yet. Clients open at most a few dozen.
const ACCEPTED_MAX: usize = 64;

#[derive(Parser)]
struct Arguments {
    #[arg(long, value_enum, default_value = "plain")]
    form: Form,
    /// Where to listen. The address is printed.
    #[arg(long, default_value = "127.0.0.1:0")]
    address: SocketAddr,
    /// Bytes of a value in the table `large`.
    #[arg(long, default_value_t = 512_000)]
    large_bytes: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    Plain,
    Coalesced,
    CoalescedPerCore,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let echo = Echo::new(arguments.large_bytes);
    let listener = TcpListener::bind(arguments.address)?;
    println!("{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    match arguments.form {
        Form::Plain => plain(listener, echo),
        Form::Coalesced => {
            let runtime = shared_runtime()?;
            hand_out(&listener, &[spawn(runtime, echo)])
        }
        Form::CoalescedPerCore => {
            let cores = std::thread::available_parallelism()?.get();
            let mut takers = Vec::new();
            for _ in 0..cores {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                takers.push(spawn(runtime, echo.clone()));
            }
            hand_out(&listener, &takers)
        }
    }
}

fn shared_runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
}

fn plain(listener: TcpListener, echo: Echo) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    shared_runtime()?.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        Server::builder()
            .add_service(echo)
            .serve_with_incoming(incoming)
            .await?;
        Ok(())
    })
}

/// Serves the connections sent to the returned channel, on a thread of its own that drives the runtime.
fn spawn(runtime: Runtime, echo: Echo) -> mpsc::Sender<TcpStream> {
    let (sender, receiver) = mpsc::channel(ACCEPTED_MAX);
    std::thread::spawn(move || {
        let served = runtime.block_on(
            Server::builder()
                .add_service(echo)
                .serve_with_incoming(connections(receiver)),
        );
        if let Err(error) = served {
            eprintln!("a server thread ended: {error}");
        }
    });
    sender
}

fn connections(receiver: mpsc::Receiver<TcpStream>) -> impl Stream<Item = std::io::Result<Coalesced>> {
    futures::stream::unfold(receiver, |mut receiver| async move {
        let socket = receiver.recv().await?;
        Some((Coalesced::new(socket), receiver))
    })
}

/// Accepts connections and gives them to the takers in turn, so that a client's connections are spread evenly.
fn hand_out(listener: &TcpListener, takers: &[mpsc::Sender<TcpStream>]) -> anyhow::Result<()> {
    for taker in takers.iter().cycle() {
        let (socket, _) = listener.accept()?;
        taker.blocking_send(socket).context("a server thread has ended")?;
    }
    Ok(())
}
