//! The keys of the issuer of tokens: from a file, or from itself.
//!
//! An issuer is asked for its discovery document, which names the address of the keys, and then for those. It is asked again every
//! few minutes, and sooner if a token names a key that is not known. Failures leave the keys as they are, until those are too old.
//!
//! A set without any key that counts is no failure to read it: the issuer has withdrawn all keys, so none counts from then on. Only
//! a start with such a file fails, because it is more likely a mistake.

use super::files;
use anyhow::{Context, bail, ensure};
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
/// The fault of a set without keys that count.
const NO_KEY: &str = "the issuer of OpenID Connect has no key for RS256, ES256 or EdDSA";

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
        "1 while the keys of the issuer of OpenID Connect cannot be read, and the server goes on with those that it read before, \
         or while the issuer has no key that counts.",
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
        count: 0,
    };
    let first = follower.read().await;
    match &follower.place {
        Place::File(_) => ensure!(first.context("jwks")? > 0, "jwks: {NO_KEY}"),
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
    /// How many of them count.
    count: usize,
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

    /// Reads the keys, and uses them if they are others. Returns how many count.
    async fn read(&mut self) -> anyhow::Result<usize> {
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
            return Ok(self.count);
        }
        let keys = KeySet::parse(&text).map_err(anyhow::Error::msg)?;
        self.count = keys.len();
        match self.count {
            0 => tracing::error!("{NO_KEY}: its tokens are refused from now on"),
            keys => tracing::info!(keys, "the keys of the issuer of OpenID Connect were read"),
        }
        self.oidc.set_keys(keys, begun);
        self.last = text;
        Ok(self.count)
    }

    /// Logs the first of several failures. A set without keys was logged as it was read.
    fn note(&self, outcome: anyhow::Result<usize>) {
        let had_failed = self.failing.get() > 0;
        let has_keys = outcome.as_ref().is_ok_and(|count| *count > 0);
        self.failing.set(i64::from(!has_keys));
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

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the operator's file")]
mod tests {
    use super::*;
    use stele_access::oidc::OidcOptions;
    use stele_access::testing::issuer::Issuer;
    use stele_env::tokio_env::TokioRuntime;

    #[tokio::test]
    async fn a_file_withdraws_keys_but_a_mistake_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jwks");
        let metrics = Metrics::new();
        let failing = metrics.gauge("failing", "1 while keys cannot be read.");
        let config = OidcConfig {
            options: OidcOptions {
                issuer: "https://id.example".to_owned(),
                audience: "stele".to_owned(),
                user_claim: "sub".to_owned(),
                groups_claim: "groups".to_owned(),
            },
            jwks: Some(path.clone()),
        };
        let mut follower = Follower {
            place: Place::File(path.clone()),
            oidc: Oidc::new(config.options.clone()),
            env: TokioRuntime::current(),
            failing: failing.clone(),
            last: Vec::new(),
            count: 0,
        };
        let issuer = Issuer::new(1, "k1");
        let exp = TokioRuntime::current().wall_micros() / 1_000_000 + 600;
        let claims = serde_json::json!({"iss": "https://id.example", "aud": "stele", "exp": exp, "sub": "alice"});
        let token = issuer.token(&claims);
        let full = Issuer::key_set(&[&issuer]);
        // After each text: whether the token counts, and whether the keys fail.
        for (text, counts, fails) in [
            (&*full, true, 0),
            ("{", true, 1),
            ("{\"keys\":[]}", false, 1),
            ("{\"keys\":[]}", false, 1),
            (&*full, true, 0),
        ] {
            std::fs::write(&path, text).unwrap();
            let outcome = follower.read().await;
            follower.note(outcome);
            let now = u64::try_from(exp).unwrap() - 600;
            let known = follower.oidc.identify(&token, now, follower.env.now());
            assert_eq!((known.is_ok(), failing.get()), (counts, fails), "{text}");
        }
        std::fs::write(&path, "{\"keys\":[]}").unwrap();
        let error = follow(&config, &follower.env, &metrics).await.err().unwrap();
        assert!(error.to_string().contains(NO_KEY), "{error}");
    }
}
