//! The transit engine of HashiCorp Vault and of OpenBao, by their HTTP API.
//!
//! The id of a key-encryption key has the version of Vault's key: a start after a rotation in Vault wraps all data keys again.

use crate::client::{Answer, Client, data_key};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::Request;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use stele_encryption::{DataKey, KEY_BYTES, KeyContext, KeyError, KeyService, Wrapped};
use zeroize::Zeroizing;

/// A key of the transit engine.
pub(crate) struct Vault {
    client: Client,
    mount: String,
    key: String,
    /// The ids of all versions begin with it.
    prefix: String,
    id: String,
}

#[derive(Serialize)]
struct Operation<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    plaintext: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ciphertext: Option<&'a str>,
    associated_data: String,
}

#[derive(Deserialize)]
struct Answered<T> {
    data: T,
}

#[derive(Deserialize)]
struct Encrypted {
    ciphertext: String,
}

#[derive(Deserialize)]
struct Decrypted {
    plaintext: Zeroizing<String>,
}

#[derive(Default, Deserialize)]
struct Failure {
    #[serde(default)]
    errors: Vec<String>,
}

/// The version of the key that has encrypted: `vault:v3:…` is by the third.
fn version_of(ciphertext: &str) -> Option<u32> {
    let version = ciphertext.split(':').nth(1)?;
    version.strip_prefix('v')?.parse().ok()
}

/// The version of the key that an answer names, and the base64 of the data key that it has, for fuzz targets.
pub(crate) fn parts(answer: &Answer) -> (Option<u32>, Option<Zeroizing<String>>) {
    let encrypted = serde_json::from_slice::<Answered<Encrypted>>(&answer.body).ok();
    let decrypted = serde_json::from_slice::<Answered<Decrypted>>(&answer.body).ok();
    let _: Failure = serde_json::from_slice(&answer.body).unwrap_or_default();
    assert!(
        !(answer.status.is_success() && is_busy(answer)),
        "a success is not repeated"
    );
    let version = encrypted.and_then(|encrypted| version_of(&encrypted.data.ciphertext));
    (version, decrypted.map(|decrypted| decrypted.data.plaintext))
}

/// Whether another attempt may succeed. 412 and 472: a replica is behind. 473: a standby does not answer. 503: sealed.
fn is_busy(answer: &Answer) -> bool {
    answer.status.is_server_error() || [412, 429, 472, 473].contains(&answer.status.as_u16())
}

/// Whether another key has encrypted the ciphertext. A version that is too new is no sign of that: a replica may be behind.
fn is_refused(answer: &Answer) -> bool {
    let failure: Failure = serde_json::from_slice(&answer.body).unwrap_or_default();
    let tells = |error: &String| {
        let is_invalid = error.contains("invalid ciphertext") && !error.contains("too new");
        error.contains("authentication failed") || is_invalid
    };
    answer.status.as_u16() == 400 && failure.errors.iter().any(tells)
}

impl Vault {
    /// Finds the current version of the key.
    pub(crate) async fn connect(client: Client, mount: &str, key: &str) -> Result<Vault, KeyError> {
        let mut vault = Vault {
            client,
            mount: mount.to_owned(),
            key: key.to_owned(),
            prefix: format!("vault.{}.{key}.v", mount.replace('/', ".")),
            id: String::new(),
        };
        vault.id = vault.wrap(&DataKey::new([0; KEY_BYTES]), &[0; 32]).await?.by;
        Ok(vault)
    }

    async fn call(&self, operation: &str, body: &Operation<'_>) -> Result<Answer, KeyError> {
        let url = format!("{}/v1/{}/{operation}/{}", self.client.url, self.mount, self.key);
        let body = serde_json::to_vec(body).map_err(|error| self.client.failed(error))?;
        // Every copy shares these bytes, and the last one overwrites them.
        let body = Bytes::from_owner(Zeroizing::new(body));
        let mut attempts = self.client.attempts();
        loop {
            // An agent may have renewed the token.
            let request = self.request(&url, body.clone()).await?;
            let outcome = self.client.send(request).await;
            if !outcome.as_ref().map_or(true, is_busy) || !attempts.again().await {
                return outcome;
            }
        }
    }

    async fn request(&self, url: &str, body: Bytes) -> Result<Request, KeyError> {
        let mut request = self
            .client
            .http
            .post(url)
            .header("content-type", "application/json")
            .header("x-vault-request", "true")
            .body(body);
        if let Some(token) = self.token().await? {
            let mut value = reqwest::header::HeaderValue::from_str(token.trim())
                .map_err(|_| self.client.failed("the token has characters that no header can have"))?;
            value.set_sensitive(true);
            request = request.header("x-vault-token", value);
        }
        if let Some(namespace) = variable("VAULT_NAMESPACE") {
            request = request.header("x-vault-namespace", namespace);
        }
        request.build().map_err(|error| self.client.failed(error))
    }

    /// The token of a variable, or of the file that agents and `vault login` write. An agent that adds one itself needs none.
    async fn token(&self) -> Result<Option<Zeroizing<String>>, KeyError> {
        if let Some(token) = variable("VAULT_TOKEN") {
            return Ok(Some(Zeroizing::new(token)));
        }
        let named = variable("VAULT_TOKEN_FILE").map(PathBuf::from);
        let usual = || variable("HOME").map(|home| PathBuf::from(home).join(".vault-token"));
        let is_named = named.is_some();
        let Some(file) = named.or_else(usual) else {
            return Ok(None);
        };
        let shown = file.display().to_string();
        let read = self.client.env.blocking(move || std::fs::read_to_string(file)).await;
        match read.map_err(|_| self.client.failed("the server stops"))? {
            Ok(text) => Ok(Some(Zeroizing::new(text))),
            Err(error) if !is_named && error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.client.failed(format!("the token: {shown}: {error}"))),
        }
    }

    fn told(&self, answer: &Answer) -> KeyError {
        let failure: Failure = serde_json::from_slice(&answer.body).unwrap_or_default();
        let errors = failure.errors.iter().map(|error| error.trim()).collect::<Vec<&str>>();
        self.client.failed(format!("{}: {}", answer.status, errors.join("; ")))
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[async_trait]
impl KeyService for Vault {
    fn current(&self) -> &str {
        &self.id
    }

    async fn wrap(&self, key: &DataKey, context: &KeyContext) -> Result<Wrapped, KeyError> {
        let plaintext = Zeroizing::new(STANDARD.encode(key.bytes()));
        let operation = Operation {
            plaintext: Some(&plaintext),
            ciphertext: None,
            associated_data: STANDARD.encode(context),
        };
        let answer = self.call("encrypt", &operation).await?;
        if !answer.status.is_success() {
            return Err(self.told(&answer));
        }
        let answered: Answered<Encrypted> =
            serde_json::from_slice(&answer.body).map_err(|error| self.client.failed(error))?;
        let ciphertext = answered.data.ciphertext;
        let Some(version) = version_of(&ciphertext) else {
            return Err(self.client.failed("a ciphertext without a version"));
        };
        Ok(Wrapped {
            by: format!("{}{version}", self.prefix),
            bytes: ciphertext.into_bytes(),
        })
    }

    async fn unwrap(&self, wrapped: &Wrapped, context: &KeyContext) -> Result<DataKey, KeyError> {
        let version = wrapped.by.strip_prefix(&self.prefix);
        if version.is_none_or(|version| version.parse::<u32>().is_err()) {
            return Err(KeyError::Unknown {
                id: wrapped.by.clone(),
                known: self.id.clone(),
            });
        }
        let refused = || KeyError::Refused { id: wrapped.by.clone() };
        let operation = Operation {
            plaintext: None,
            ciphertext: Some(str::from_utf8(&wrapped.bytes).map_err(|_| refused())?),
            associated_data: STANDARD.encode(context),
        };
        let answer = self.call("decrypt", &operation).await?;
        if !answer.status.is_success() {
            let error = self.told(&answer);
            return Err(if is_refused(&answer) { refused() } else { error });
        }
        let answered: Answered<Decrypted> =
            serde_json::from_slice(&answer.body).map_err(|_| self.client.failed("no key in the answer"))?;
        data_key(&answered.data.plaintext).ok_or_else(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KmsAddress;
    use crate::fake::Fake;
    use std::sync::Arc;
    use stele_encryption::KeyServices;
    use stele_env::tokio_env::TokioRuntime;

    async fn key_at(fake: &Fake) -> Result<Vault, KeyError> {
        let text = format!("{}/team/transit/stele", fake.url.replace("http://", "vault+http://"));
        let address = KmsAddress::parse(&text, |_| None).unwrap();
        let env = TokioRuntime::current();
        Vault::connect(Client::new(&address, &env).unwrap(), "team/transit", "stele").await
    }

    #[tokio::test]
    async fn a_key_comes_back_for_its_use_only_and_from_every_version() {
        let fake = Fake::start().await;
        let key = key_at(&fake).await.unwrap();
        assert_eq!(key.current(), "vault.team.transit.stele.v1");
        let wrapped = key.wrap(&DataKey::new([7; 32]), &[1; 32]).await.unwrap();
        assert!(wrapped.bytes.starts_with(b"vault:v1:"));
        fake.rotate();
        let again = key.wrap(&DataKey::new([7; 32]), &[1; 32]).await.unwrap();
        assert_eq!(again.by, "vault.team.transit.stele.v2");
        for wrapped in [&wrapped, &again] {
            assert_eq!(key.unwrap(wrapped, &[1; 32]).await.unwrap().bytes(), &[7; 32]);
        }
        assert_eq!(
            key.unwrap(&wrapped, &[2; 32]).await.unwrap_err(),
            KeyError::Refused { id: wrapped.by.clone() }
        );
        assert_eq!(key_at(&fake).await.unwrap().current(), "vault.team.transit.stele.v2");
        for by in ["vault.team.transit.stele.vx", "vault.transit.stele.v1", "aws.1"] {
            let other = Wrapped {
                by: by.to_owned(),
                ..wrapped.clone()
            };
            assert!(matches!(
                key.unwrap(&other, &[1; 32]).await,
                Err(KeyError::Unknown { .. })
            ));
        }
        let path = &fake.asked()[0].path;
        assert_eq!(path, "/v1/team/transit/encrypt/stele");
    }

    /// The mount and the key have the same names in both, and so do the versions.
    #[tokio::test]
    async fn a_data_key_comes_from_one_vault_to_another() {
        let (old, new) = (Fake::start().await, Fake::start().await);
        let wrapped = key_at(&old).await.unwrap();
        let wrapped = wrapped.wrap(&DataKey::new([7; 32]), &[1; 32]).await.unwrap();
        let one: Arc<dyn KeyService> = Arc::new(key_at(&new).await.unwrap());
        let both = KeyServices::of(vec![one, Arc::new(key_at(&old).await.unwrap())]).unwrap();
        assert_eq!(both.current(), wrapped.by);
        let version = r#"{"errors":["invalid ciphertext: version is too new"]}"#;
        for refusals in [0, 1] {
            new.fail(400, version, refusals);
            let (key, is_current) = both.unwrap_and_compare(&wrapped, &[1; 32]).await.unwrap();
            assert_eq!((key.bytes(), is_current), (&[7; 32], false));
        }
        let again = both.wrap(&DataKey::new([7; 32]), &[1; 32]).await.unwrap();
        assert_eq!(again.by, wrapped.by);
        assert!(both.unwrap_and_compare(&again, &[1; 32]).await.unwrap().1);
        // With a new one that fails, the old one has the key still.
        new.fail(403, r#"{"errors":["permission denied"]}"#, 2);
        assert!(!both.unwrap_and_compare(&wrapped, &[1; 32]).await.unwrap().1);
        let error = both.unwrap(&wrapped, &[2; 32]).await.unwrap_err();
        assert!(matches!(error, KeyError::Failed(_)), "{error}");
    }

    #[tokio::test]
    async fn a_sealed_vault_is_asked_again_and_others_fail() {
        let fake = Fake::start().await;
        let key = key_at(&fake).await.unwrap();
        fake.fail(503, r#"{"errors":["Vault is sealed"]}"#, 2);
        let wrapped = key.wrap(&DataKey::new([7; 32]), &[1; 32]).await.unwrap();
        fake.fail(403, r#"{"errors":["permission denied\n"]}"#, 1);
        let error = key.unwrap(&wrapped, &[1; 32]).await.unwrap_err().to_string();
        assert!(error.ends_with("403 Forbidden: permission denied"), "{error}");
        fake.fail(200, r#"{"data":{"ciphertext":"vault:1:x"}}"#, 1);
        let error = key
            .wrap(&DataKey::new([7; 32]), &[1; 32])
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("without a version"), "{error}");
    }
}
