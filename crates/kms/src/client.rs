//! Requests to a key management service, repeated while it is busy.

use crate::address::{Key, KmsAddress};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Certificate, ClientBuilder, Request, StatusCode, redirect};
use std::time::Duration;
use stele_encryption::{DataKey, KeyError};
use stele_env::Env;
use zeroize::Zeroizing;

/// Requests for one operation: a service that is busy for longer than their pauses fails it.
const ATTEMPTS: u32 = 6;
/// The pause after the first failure. Each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });
/// Time of one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of an answer. Those of a key have a few hundred.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// A client of one service.
pub(crate) struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) env: Env,
    /// The URL of the service.
    pub(crate) url: String,
    /// The address, for messages.
    shown: String,
}

/// An answer of the service. It may have a data key.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Zeroizing<Vec<u8>>,
}

impl Client {
    pub(crate) fn new(address: &KmsAddress, env: &Env) -> Result<Client, KeyError> {
        // Another part of the process may have chosen it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let failed = |error: &dyn std::fmt::Display| KeyError::Failed(format!("{address}: {error}"));
        let mut http = limited(reqwest::Client::builder(), &address.url);
        for certificate in authorities(address).map_err(|error| failed(&error))? {
            http = http.add_root_certificate(certificate);
        }
        Ok(Client {
            http: http.build().map_err(|error| failed(&error))?,
            env: env.clone(),
            url: address.url.clone(),
            shown: address.to_string(),
        })
    }

    /// An error of this service.
    pub(crate) fn failed(&self, problem: impl std::fmt::Display) -> KeyError {
        KeyError::Failed(format!("{}: {problem}", self.shown))
    }

    /// The attempts of one operation.
    pub(crate) fn attempts(&self) -> Attempts<'_> {
        Attempts {
            env: &self.env,
            made: 1,
            pause: PAUSE,
        }
    }

    /// The answer to a request.
    pub(crate) async fn send(&self, request: Request) -> Result<Answer, KeyError> {
        // The message of the library has the URL, and its causes say more than it does.
        let failed = |error: reqwest::Error| self.failed(causes(&error));
        let mut response = self.http.execute(request).await.map_err(failed)?;
        let status = response.status();
        // It never grows, so no copy of a key stays behind.
        let mut body = Zeroizing::new(Vec::with_capacity(ANSWER_BYTES_MAX));
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(self.failed(format!("the answer has more than {ANSWER_BYTES_MAX} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, body })
    }
}

/// The limits of all requests to a URL. Plain HTTP is for the loopback address: a proxy of the environment would read the token,
/// and bytes of keys.
fn limited(http: ClientBuilder, url: &str) -> ClientBuilder {
    let http = http.timeout(REQUEST_LIMIT).redirect(redirect::Policy::none());
    match url.starts_with("https://") {
        true => http,
        false => http.no_proxy(),
    }
}

/// Attempts with pauses between them.
pub(crate) struct Attempts<'a> {
    env: &'a Env,
    made: u32,
    pause: Duration,
}

impl Attempts<'_> {
    /// Waits for the time of the next attempt, if the operation has one.
    pub(crate) async fn again(&mut self) -> bool {
        if self.made == ATTEMPTS {
            return false;
        }
        // Servers that start together must not ask together again.
        let spread = self.env.random_below(self.pause.as_micros() as u64 / 2);
        self.env.sleep(self.pause + Duration::from_micros(spread)).await;
        self.made += 1;
        self.pause *= 2;
        true
    }
}

/// The authorities that the operator trusts for Vault besides those of the system.
fn authorities(address: &KmsAddress) -> Result<Vec<Certificate>, String> {
    let file = match address.key {
        Key::Vault { .. } => std::env::var_os("VAULT_CACERT"),
        Key::Aws { .. } => std::env::var_os("AWS_CA_BUNDLE"),
    };
    let Some(file) = file.filter(|file| !file.is_empty()) else {
        return Ok(Vec::new());
    };
    let shown = file.display();
    #[expect(clippy::disallowed_methods, reason = "a file of the operator, read at the start")]
    let text = std::fs::read(&file).map_err(|error| format!("{shown}: {error}"))?;
    Certificate::from_pem_bundle(&text).map_err(|error| format!("{shown}: {error}"))
}

/// The data key of its base64.
pub(crate) fn data_key(text: &str) -> Option<DataKey> {
    let bytes = Zeroizing::new(STANDARD.decode(text).ok()?);
    Some(DataKey::new(bytes[..].try_into().ok()?))
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use reqwest::Proxy;

    /// A proxy that is set explicitly stands for one of the environment.
    #[tokio::test]
    async fn plain_http_passes_no_proxy() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (proxy, service) = (Fake::start().await, Fake::start().await);
        let http = reqwest::Client::builder().proxy(Proxy::all(&proxy.url).unwrap());
        let http = limited(http, &service.url).build().unwrap();
        let request = http
            .post(format!("{}/v1/transit/encrypt/stele", service.url))
            .body("{}");
        assert!(request.send().await.unwrap().status().is_success());
        assert!(proxy.asked().is_empty(), "{:?}", proxy.asked());
        assert_eq!(service.asked().len(), 1);
    }
}
