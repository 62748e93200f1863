//! The keys of the issuer of tokens: from a file, or from itself.
//!
//! An issuer is asked for its discovery document, which names the address of the keys, and then for those. It is asked again every
//! few minutes, and sooner if a token names a key that is not known. Failures leave the keys as they are, until those are too old.

use super::files;
use anyhow::{Context, bail};
use reqwest::{Client, redirect};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stele_access::oidc::{KeySet, Oidc};
use stele_env::Env;
use stele_env::metrics::{IntGauge, Metrics};
use stele_settings::{OidcConfig, check_key_address};

/// How often the file is compared with the keys in use.
const FILE_INTERVAL: Duration = Duration::from_secs(5);
/// How often the issuer is asked: a key that it withdraws counts for as long.
const ISSUER_INTERVAL: Duration = Duration::from_secs(300);
/// Pause between two questions at least: tokens with invented keys must not become a flood of them.
const ISSUER_PAUSE: Duration = Duration::from_secs(10);
/// How often it is looked whether a token has named an unknown key.
const TICK: Duration = Duration::from_secs(1);
/// Time of a question to the issuer.
const ASK_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of an answer of the issuer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The place of the keys.
enum Place {
    File(PathBuf),
    Issuer { client: Client, issuer: String },
}

/// Verifies tokens with the keys, and follows those. A file that cannot be used is an error; an issuer that does not answer is
/// asked again.
pub async fn follow(config: &OidcConfig, env: &Env, metrics: &Metrics) -> anyhow::Result<Arc<Oidc>> {
    let oidc = Oidc::new(config.options.clone());
    let failing = metrics.gauge(
        "stele_oidc_keys_failing",
        "1 while the keys of the issuer of OpenID Connect cannot be read: the server goes on with those that it read before.",
    );
    let place = match &config.jwks {
        Some(path) => Place::File(path.clone()),
        None => Place::Issuer {
            client: client()?,
            issuer: config.options.issuer.clone(),
        },
    };
    let mut follower = Follower {
        place,
        oidc: Arc::clone(&oidc),
        env: env.clone(),
        failing,
        last: Vec::new(),
    };
    let first = follower.read().await;
    match &follower.place {
        Place::File(_) => first.context("jwks")?,
        Place::Issuer { .. } => follower.note(first),
    }
    env.spawn_background("keys of the issuer", follower.run());
    Ok(oidc)
}

fn client() -> anyhow::Result<Client> {
    // Another part of the process may have chosen it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().timeout(ASK_LIMIT).redirect(redirect::Policy::none());
    client.build().context("the client of the issuer")
}

struct Follower {
    place: Place,
    oidc: Arc<Oidc>,
    env: Env,
    failing: IntGauge,
    /// The keys in use, as they were read.
    last: Vec<u8>,
}

impl Follower {
    async fn run(mut self) {
        loop {
            self.wait().await;
            let outcome = self.read().await;
            self.note(outcome);
        }
    }

    /// Until it is time to read the keys again.
    async fn wait(&self) {
        let (least, most) = match (&self.place, self.failing.get() > 0) {
            (Place::File(_), _) => return self.env.sleep(FILE_INTERVAL).await,
            (Place::Issuer { .. }, true) => (ISSUER_PAUSE, ISSUER_PAUSE),
            (Place::Issuer { .. }, false) => (ISSUER_PAUSE, ISSUER_INTERVAL),
        };
        let begun = self.env.now();
        loop {
            self.env.sleep(TICK).await;
            let waited = self.env.now().saturating_sub(begun);
            if waited >= most || (waited >= least && self.oidc.wants_keys()) {
                return;
            }
        }
    }

    /// Reads the keys, and uses them if they are others.
    async fn read(&mut self) -> anyhow::Result<()> {
        // Keys that are withdrawn after this moment may still be in the answer.
        let begun = self.env.now();
        let text = match &self.place {
            Place::File(path) => {
                let path = path.clone();
                let read = self.env.blocking(move || files::read(&path)).await;
                read.map_err(|_| anyhow::anyhow!("the server stops"))??
            }
            Place::Issuer { client, issuer } => keys_of(client, issuer).await?,
        };
        if text == self.last {
            self.oidc.confirm(begun);
            return Ok(());
        }
        let keys = KeySet::parse(&text).map_err(anyhow::Error::msg)?;
        tracing::info!(keys = keys.len(), "the keys of the issuer of OpenID Connect were read");
        self.oidc.set_keys(keys, begun);
        self.last = text;
        Ok(())
    }

    /// Logs the first of several failures.
    fn note(&self, outcome: anyhow::Result<()>) {
        let had_failed = self.failing.get() > 0;
        self.failing.set(i64::from(outcome.is_err()));
        match outcome {
            Err(error) if !had_failed => tracing::error!("the keys of the issuer of OpenID Connect: {error:#}"),
            _ => {}
        }
    }
}

/// The key set of an issuer.
async fn keys_of(client: &Client, issuer: &str) -> anyhow::Result<Vec<u8>> {
    let document = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let found: serde_json::Value = serde_json::from_slice(&ask(client, &document).await?).context(document.clone())?;
    let text = |name: &str| found.get(name).and_then(serde_json::Value::as_str);
    if text("issuer") != Some(issuer) {
        bail!(
            "{document} is of the issuer {:?}, not of {issuer:?}",
            text("issuer").unwrap_or_default()
        );
    }
    let place = text("jwks_uri").with_context(|| format!("{document} has no jwks_uri"))?;
    check_key_address(place)?;
    ask(client, place).await
}

/// The answer to a GET, as far as it is not too long.
async fn ask(client: &Client, place: &str) -> anyhow::Result<Vec<u8>> {
    let context = || place.to_owned();
    let mut response = client.get(place).send().await.with_context(context)?;
    if !response.status().is_success() {
        bail!("{place}: {}", response.status());
    }
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await.with_context(context)? {
        if answer.len() + chunk.len() > ANSWER_BYTES_MAX {
            bail!("{place}: the answer has more than {ANSWER_BYTES_MAX} bytes");
        }
        answer.extend_from_slice(&chunk);
    }
    Ok(answer)
}
