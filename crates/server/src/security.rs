//! Security of the running server: TLS of its ports.
//!
//! The files of certificates are read again when they change.

pub mod callers;
mod files;

use crate::config::SecurityConfig;
use anyhow::Context;
use files::Watched;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_env::metrics::{IntGauge, Metrics};
use stele_serving::{Application, Handshakes, PortSecurity, Tls};
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
        let tls = Arc::new(Tls::new(&material).context("TLS")?);
        let failing = metrics.gauge(
            "stele_tls_reload_failing",
            "1 while the files of TLS cannot be used: the server goes on with those that it read before.",
        );
        reload(watched, Arc::clone(&tls), env, failing)?;
        Ok(Security {
            tls: Some(tls),
            ..security
        })
    }

    /// Whether the ports are under TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The protection of a port.
    pub fn port(&self, application: Application) -> PortSecurity {
        match &self.tls {
            None => PortSecurity::plain(),
            Some(tls) => PortSecurity::tls(Arc::clone(tls), application, Arc::clone(&self.handshakes)),
        }
    }
}

/// Starts the task that replaces certificates.
fn reload(mut watched: Watched, tls: Arc<Tls>, env: &Env, failing: IntGauge) -> anyhow::Result<()> {
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
                Ok(None) if asked => {
                    tracing::info!("the files of TLS have not changed");
                    Ok(())
                }
                Ok(None) => Ok(()),
                Ok(Some(material)) => tls.replace(&material).map_err(anyhow::Error::from).map(|()| {
                    tracing::info!("TLS goes on with the new certificates");
                }),
                Err(error) => Err(error),
            };
            failing.set(i64::from(outcome.is_err()));
            if let Err(error) = outcome {
                tracing::error!("TLS goes on with the former certificates: {error:#}");
                watched.forget();
            }
        }
    });
    Ok(())
}
