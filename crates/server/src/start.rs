//! `stele start`: from settings to a serving process and its shutdown.
//!
//! Sockets are bound before the data is opened, so a taken port costs nothing. The server responds to requests once
//! recovery is done. On SIGTERM or SIGINT the server stops accepting requests, finishes those in flight, flushes, and
//! exits with 0. A second signal ends it immediately; the log has all acknowledged writes. SIGHUP has the files of TLS read
//! again, and never ends the server.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the binary owns the sockets, the signals and the runtimes"
)]

use crate::banner::{Addresses, banner};
use crate::cluster::{self, Bound, Joined};
use crate::data_dir::Data;
use crate::encryption::Keys;
use crate::http::{PageConnections, Pages, Stage};
use crate::node::Node;
use crate::notify::Notifier;
use crate::security::{Security, callers};
use crate::{data_dir, hbase, listen, logging, open_files, otlp};
use anyhow::Context;
use futures::future::BoxFuture;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use stele_access::{Access, Forwarded, Rules};
use stele_bigtable::{BigtableFrontEnd, BigtableService, CallLimits, HTTP2_SETTINGS};
use stele_console::{About, Console};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_serving::{Acceptor, Application, EventLoops, PortSecurity, connections_max};
use stele_settings::Config;
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Runs the server to its end.
pub fn run(config: &Config) -> anyhow::Result<()> {
    logging::start(&config.log, config.log_json)?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let runtime = |name: &str, threads: usize| {
        tokio::runtime::Builder::new_multi_thread()
            .thread_name(name)
            .worker_threads(threads)
            .enable_all()
            .build()
            .context("starting threads")
    };
    let foreground = runtime("stele", cores)?;
    let background = runtime("stele-background", cores.div_ceil(2))?;
    let loops = Arc::new(EventLoops::start(cores).context("starting event loops")?);
    let env = TokioRuntime::env(foreground.handle().clone(), background.handle().clone());
    let env = match config.cluster {
        Some(_) => env.with_common_clock(),
        None => env,
    };
    let outcome = foreground.block_on(serve(config, env, &loops));
    // Tasks that still run have nothing to save and must not delay the exit.
    background.shutdown_background();
    foreground.shutdown_background();
    outcome
}

async fn serve(config: &Config, env: Env, loops: &Arc<EventLoops>) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let manager = Notifier::of_environment();
    let files = open_files::raise_limit();
    let bigtable = listen::bind("bigtable", config.bigtable).await?;
    let http = listen::bind("http", config.http).await?;
    let hbase = hbase::Port::bind(config).await?;
    let facade = hbase::bind_facade(config).await?;
    let (bigtable_at, http_at) = (bigtable.local_addr()?, http.local_addr()?);
    let metrics = Metrics::new();
    let (env, exporter) = otlp::start(config.traces.as_ref(), env, &bigtable_at.to_string(), &metrics)?;
    let security = Security::start(&config.security, &env, &metrics)?;
    let rights = config.security.access.as_ref();
    let proofs = callers::read_proofs(rights, &env, &metrics).await?;
    let pages = Pages::new(metrics.clone());
    let console = console(config, &env, &metrics, pages.clone(), [bigtable_at, http_at]);
    let router = pages.clone().router(&console);
    tokio::spawn(PageConnections::new(http, security.port(Application::Http1)).serve(router));
    let bound = Bound {
        bigtable: bigtable_at,
        hbase: hbase.address(),
        http: http_at,
    };
    // Before the first file is written.
    data_dir::check_user(&config.data)?;
    let (audit, forwarded) = callers::open_audit(&config.security, &env, &metrics).await?;
    manager.recovering();
    let started = tokio::select! {
        started = open(config, env.clone(), (bound, loops, forwarded), &metrics) => started?,
        // A store that does not respond is retried for minutes.
        () = signals.next() => return Ok(()),
    };
    let Started { node, data, stop_peers } = started;
    pages.set_server(node.server.clone());
    let hbase = hbase::Listeners::new(hbase, facade);
    let [hbase_at, facade_at] = hbase.addresses()?;
    let addresses = Addresses {
        bigtable: bigtable_at,
        hbase: hbase_at,
        facade: facade_at,
        http: http_at,
    };

    let front_end = bigtable_front_end(config, &node, env.clone(), &metrics);
    pages.set_front_end(front_end.gauges());
    let hbase_front_end = hbase::front_end(config, &node, env.clone(), hbase_at, &metrics).await?;
    let access = callers::start(rights, (proofs, audit), &node, (&env, &metrics));
    console.watch(parts_of(&node, access.access()));
    pages.set_stage(Stage::Ready);
    announce(config, &node, &addresses);
    let (front_end, hbase_front_end) = callers::secured(&access, &node, front_end, hbase_front_end);
    let acceptor = Acceptor::new(connections_max(config.memory, files), env.clone(), &metrics);
    let (stop, stopped) = watch::channel(false);
    let service = front_end.into_service();
    let serve_hbase = hbase::accept(&acceptor, &hbase, hbase_front_end, &security, loops, stopped.clone());
    let port = security.port(Application::Http2);
    let serve_connection = bigtable_connections(service, env.clone(), port, stopped.clone());

    manager.ready();
    tokio::select! {
        () = signals.next() => {}
        () = acceptor.accept(&bigtable, loops, serve_connection) => {}
        () = serve_hbase => {}
        // Nothing is left to save: the new owner has all acknowledged writes, and no others will be acknowledged.
        by = data.replaced() => return Err(replaced(config, &by)),
    }
    tracing::info!("stopping");
    manager.stopping();
    pages.set_stage(Stage::Stopping);
    // New connections are refused from here on.
    drop((bigtable, hbase));
    let _ = stop.send(true);
    let down = async {
        if env.timeout(config.drain_timeout, acceptor.all_ended()).await.is_err() {
            tracing::warn!("requests were still in flight after {:?}", config.drain_timeout);
        }
        cluster::leave(&node, &env, config.drain_timeout).await;
        let unflushed = node.server.shut_down().await;
        node.finish_archive(&env, config.drain_timeout).await;
        access.finish(&env, config.drain_timeout).await;
        // Other servers were answered until now, so that they know that this one is not gone.
        drop(stop_peers);
        // The coordination log stays open to the end, and so do log segments that are being finished.
        data.finish().await;
        if let Some(exporter) = exporter {
            exporter.finish(&env).await;
        }
        tracing::info!(unflushed, "stopped");
        Ok(())
    };
    tokio::select! {
        outcome = down => outcome,
        by = data.replaced() => Err(replaced(config, &by)),
        () = signals.next() => {
            tracing::warn!("stopped immediately; the log has all acknowledged writes");
            std::process::exit(130)
        }
    }
}

/// The front end of the Bigtable API.
fn bigtable_front_end(config: &Config, node: &Node, env: Env, metrics: &Metrics) -> BigtableFrontEnd {
    BigtableFrontEnd::with_limits(
        node.service.clone(),
        node.admin.clone(),
        env,
        metrics,
        CallLimits::for_memory(config.memory),
        node.server.pool().clone(),
    )
}

/// Serves connections of the Bigtable API.
fn bigtable_connections(
    service: BigtableService,
    env: Env,
    port: PortSecurity,
    stopped: watch::Receiver<bool>,
) -> impl Fn(TcpStream) -> BoxFuture<'static, ()> + Clone + Send + 'static {
    move |socket| {
        let (service, env, port, mut stopped) = (service.clone(), env.clone(), port.clone(), stopped.clone());
        Box::pin(async move {
            let Some(socket) = port.begin(socket).await else { return };
            let service = service.for_connection(socket.certificate_name());
            let drain = async move {
                let _ = stopped.wait_for(|stop| *stop).await;
            };
            if let Err(error) = stele_serving::serve(socket, service, HTTP2_SETTINGS, env, drain).await {
                tracing::debug!(%error, "a connection ended early");
            }
        })
    }
}

/// A node with its storage.
struct Started {
    node: Node,
    data: Data,
    /// Ends the connections of other servers of its cluster.
    stop_peers: Option<watch::Sender<bool>>,
}

/// Opens the data and recovers it, or joins a cluster.
async fn open(
    config: &Config,
    env: Env,
    ports: (Bound, &Arc<EventLoops>, Option<Arc<Forwarded>>),
    metrics: &Metrics,
) -> anyhow::Result<Started> {
    if let Some(of) = &config.cluster {
        let Joined { node, data, stop_peers } = cluster::join(config, of, env, ports, metrics).await?;
        return Ok(Started {
            node,
            data,
            stop_peers: Some(stop_peers),
        });
    }
    let keys = Keys::open(&config.security.encryption, &env).await?;
    let data = data_dir::open(config, &keys, env.clone(), metrics).await?;
    let node = tokio::select! {
        node = Node::start(env, (data.storage.clone(), keys), config, metrics) => node?,
        by = data.replaced() => return Err(replaced(config, &by)),
    };
    Ok(Started {
        node,
        data,
        stop_peers: None,
    })
}

fn console(config: &Config, env: &Env, metrics: &Metrics, pages: Pages, [bigtable, http]: [SocketAddr; 2]) -> Console {
    let mut ports = vec![("bigtable", bigtable.to_string()), ("http", http.to_string())];
    ports.extend(config.hbase.map(|hbase| ("hbase", hbase.to_string())));
    let about = About {
        version: env!("CARGO_PKG_VERSION"),
        data: config.data.to_string(),
        archive: config.archive_log.as_ref().map(|archive| archive.address.clone()),
        memory: config.memory,
        is_guarded: config.security.access.is_some(),
        is_cluster: config.cluster.is_some(),
        is_local: http.ip().to_canonical().is_loopback(),
        ports,
    };
    Console::new(env.clone(), metrics.clone(), about, pages)
}

/// The parts of a node that the console shows.
fn parts_of(node: &Node, access: Option<Arc<Access>>) -> stele_console::Parts {
    stele_console::Parts {
        server: node.server.clone(),
        service: node.service.clone(),
        admin: node.admin.clone(),
        slow: node.slow.clone(),
        rules: Rules::open(node.rules.clone()),
        access,
    }
}

/// Another server is the owner of the data now.
#[derive(Debug)]
pub struct TakenOver(String);

impl std::fmt::Display for TakenOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TakenOver {}

/// The error of a server that is no longer the owner. One of a cluster may join it again immediately, as another server.
fn replaced(config: &Config, by: &str) -> anyhow::Error {
    let sentence = format!("{} was taken over by another server ({by}); this one ends", config.data);
    match config.cluster {
        None => TakenOver(sentence).into(),
        Some(_) => anyhow::anyhow!(sentence),
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Never awaited here: without a receiver, SIGHUP would end a server without TLS.
    _hangup: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("signal handler")?;
        let interrupt = signal(SignalKind::interrupt()).context("signal handler")?;
        let hangup = signal(SignalKind::hangup()).context("signal handler")?;
        Ok(Signals {
            terminate,
            interrupt,
            _hangup: hangup,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Prints the addresses. The process that started the server may no longer read them; that is no failure.
fn announce(config: &Config, node: &Node, addresses: &Addresses) {
    let report = &node.recovery;
    let is_alone = config.cluster.is_none();
    let data = match is_alone {
        true => format!(
            "{} ({} tablets, recovered in {:?})",
            config.data, report.tablets, report.duration
        ),
        // Tablets are recovered as they are assigned.
        false => config.data.to_string(),
    };
    let _ = std::io::stdout().write_all(banner(config, addresses, &data).as_bytes());
    if is_alone {
        tracing::info!(
            tablets = report.tablets,
            log_bytes = report.log_bytes,
            log_records = report.log_records,
            torn_bytes = report.torn_bytes,
            "recovered in {:?}",
            report.duration
        );
    }
}
