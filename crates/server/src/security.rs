//! Security of the running server: TLS of its ports and connections.
//!
//! Connections are those to other servers and to etcd. The files of certificates are read again when they change.

pub mod callers;
mod files;
mod keys;

use anyhow::Context;
use files::{Files, Watched};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_env::metrics::{IntGauge, Metrics};
use stele_etcd::{EtcdCoord, EtcdSecurity};
use stele_serving::{Application, Handshakes, PeerTls, PortSecurity, Tls};
use stele_settings::{EtcdFiles, PeerTlsFiles, SecurityConfig};
use tokio::signal::unix::{SignalKind, signal};

/// How often the files are compared with those in use. Tools that renew certificates run days before the old ones end.
const RELOAD_INTERVAL: Duration = Duration::from_secs(30);

/// Security of the ports.
pub struct Security {
    tls: Option<Arc<Tls>>,
    handshakes: Arc<Handshakes>,
}

impl Security {
    /// Reads the files of the settings, and reads them again as they change: within half a minute, or on SIGHUP.
    pub fn start(config: &SecurityConfig, env: &Env, metrics: &Metrics) -> anyhow::Result<Self> {
        let security = Security {
            tls: None,
            handshakes: Arc::new(Handshakes::new(env.clone(), metrics)),
        };
        let Some(files) = &config.tls else {
            return Ok(security);
        };
        let mut watched = Watched::new(files.clone());
        let material = watched.read().context("TLS")?;
        let named = named([Some(&files.certificate), Some(&files.key), files.client_ca.as_ref()]);
        let tls = Arc::new(Tls::new(&material).with_context(|| format!("TLS: {named}"))?);
        let failing = metrics.gauge(
            "stele_tls_reload_failing",
            "1 while the files of TLS cannot be used: the server goes on with those that it read before.",
        );
        let replaced = Arc::clone(&tls);
        let replace = move |material| replaced.replace(&material).context(named.clone());
        reload(("TLS", failing), watched, replace, env)?;
        Ok(Security {
            tls: Some(tls),
            ..security
        })
    }

    /// The protection of a port.
    pub fn port(&self, application: Application) -> PortSecurity {
        match &self.tls {
            None => PortSecurity::plain(),
            Some(tls) => PortSecurity::tls(Arc::clone(tls), application, Arc::clone(&self.handshakes)),
        }
    }
}

/// TLS between servers, from these files and as they change; `None` for plain text.
pub fn of_peers(files: Option<&PeerTlsFiles>, env: &Env, metrics: &Metrics) -> anyhow::Result<Option<Arc<PeerTls>>> {
    let Some(files) = files else { return Ok(None) };
    let mut watched = Watched::new(files.clone());
    let material = watched.read().context("TLS between servers")?;
    let named = named([Some(&files.certificate), Some(&files.key), Some(&files.authorities)]);
    let tls = PeerTls::new(&material, env.clone()).with_context(|| format!("TLS between servers: {named}"))?;
    let tls = Arc::new(tls);
    let failing = metrics.gauge(
        "stele_peer_tls_reload_failing",
        "1 while the files of TLS between servers cannot be used: the server goes on with those that it read before.",
    );
    let replaced = Arc::clone(&tls);
    let replace = move |material| replaced.replace(&material).context(named.clone());
    reload(("TLS between servers", failing), watched, replace, env)?;
    Ok(Some(tls))
}

/// The credentials for etcd, which are read again once there is a coordinator.
pub struct EtcdCredentials(Watched<EtcdFiles>);

impl EtcdCredentials {
    /// Reads the files.
    pub fn read(files: &EtcdFiles) -> anyhow::Result<(EtcdCredentials, EtcdSecurity)> {
        let mut watched = Watched::new(files.clone());
        let security = watched.read()?;
        Ok((EtcdCredentials(watched), security))
    }

    /// Has the coordinator use them as they change.
    pub fn follow(self, coord: Arc<EtcdCoord>, env: &Env, metrics: &Metrics) -> anyhow::Result<()> {
        if self.0.is_plain() {
            return Ok(());
        }
        let failing = metrics.gauge(
            "stele_etcd_credentials_reload_failing",
            "1 while the credentials for etcd cannot be used: the server goes on with those that it read before.",
        );
        let replace = move |security| coord.set_security(security).map_err(anyhow::Error::from);
        reload(("the connection to etcd", failing), self.0, replace, env)
    }
}

/// The names of files that are used together, for errors.
fn named(files: [Option<&PathBuf>; 3]) -> String {
    let names = files.into_iter().flatten().map(|path| path.display().to_string());
    names.collect::<Vec<_>>().join(", ")
}

/// Starts the task that replaces certificates.
fn reload<F: Files>(
    (what, failing): (&'static str, IntGauge),
    mut watched: Watched<F>,
    replace: impl Fn(F::Content) -> anyhow::Result<()> + Send + 'static,
    env: &Env,
) -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup()).context("signal handler")?;
    let clock = env.clone();
    env.spawn_background("certificates", async move {
        loop {
            let asked = tokio::select! {
                asked = hangup.recv() => asked.is_some(),
                () = clock.sleep(RELOAD_INTERVAL) => false,
            };
            let before = clock.blocking(move || {
                let changed = watched.changed();
                (watched, changed)
            });
            let Ok((back, changed)) = before.await else { return };
            watched = back;
            let outcome = match changed {
                Ok(None) => {
                    if asked {
                        tracing::info!("the files of {what} have not changed; other settings are read at a start only");
                    }
                    Ok(())
                }
                Ok(Some(content)) => replace(content).map(|()| tracing::info!("{what} goes on with the new files")),
                Err(error) => Err(error),
            };
            failing.set(i64::from(outcome.is_err()));
            if let Err(error) = outcome {
                tracing::error!("{what} goes on with the former files: {error:#}");
                watched.forget();
            }
        }
    });
    Ok(())
}
