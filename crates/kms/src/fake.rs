//! A service for tests that answers as AWS KMS and as Vault.
//!
//! It keeps the keys that it was given: a ciphertext is a number. Tests with services that are not ours are in `cargo xtask kms`.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) body: Value,
    headers: HeaderMap,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

#[derive(Default)]
struct Kept {
    asked: Vec<Asked>,
    /// Encrypted keys: the plain text and its use.
    keys: Vec<(Value, Value)>,
    version: u32,
    /// Answers that come first: status, body, how often.
    failures: Vec<(u16, String, u32)>,
}

pub(crate) struct Fake {
    pub(crate) url: String,
    kept: Arc<Mutex<Kept>>,
}

impl Fake {
    pub(crate) const ARN: &str = "arn:aws:kms:eu-west-1:111122223333:key/0a-1b";

    pub(crate) async fn start() -> Fake {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let kept = Arc::new(Mutex::new(Kept {
            version: 1,
            ..Kept::default()
        }));
        let router = Router::new().fallback(answer).with_state(kept.clone());
        #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of its test")]
        tokio::spawn(async move { axum::serve(listener, router).await });
        Fake { url, kept }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.kept.lock().asked.clone()
    }

    /// Lets the next requests fail; no times forgets those that were to fail.
    pub(crate) fn fail(&self, status: u16, body: &str, times: u32) {
        let failures = &mut self.kept.lock().failures;
        match times {
            0 => failures.clear(),
            _ => failures.push((status, body.to_owned(), times)),
        }
    }

    pub(crate) fn rotate(&self) {
        self.kept.lock().version += 1;
    }
}

async fn answer(State(kept): State<Arc<Mutex<Kept>>>, request: Request) -> impl IntoResponse {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let mut kept = kept.lock();
    let path = parts.uri.path().to_owned();
    kept.asked.push(Asked {
        path: path.clone(),
        body: body.clone(),
        headers: parts.headers.clone(),
    });
    if let Some((status, text, times)) = kept.failures.first_mut() {
        let failure = (StatusCode::from_u16(*status).unwrap(), text.clone());
        *times -= 1;
        if *times == 0 {
            kept.failures.remove(0);
        }
        return failure;
    }
    let target = parts.headers.get("x-amz-target").map(|target| target.to_str().unwrap());
    let (status, answer) = match target {
        Some("TrentService.Encrypt") => {
            kept.keys
                .push((body["Plaintext"].clone(), body["EncryptionContext"].clone()));
            let blob = encode(&kept.keys.len().to_string());
            (200, json!({"CiphertextBlob": blob, "KeyId": Fake::ARN}))
        }
        Some("TrentService.Decrypt") => {
            match found(&kept, &decode(&body["CiphertextBlob"]), &body["EncryptionContext"]) {
                Some(key) => (200, json!({"Plaintext": key, "KeyId": Fake::ARN})),
                None => (400, json!({"__type": "InvalidCiphertextException"})),
            }
        }
        _ if path.contains("/encrypt/") => {
            kept.keys
                .push((body["plaintext"].clone(), body["associated_data"].clone()));
            let ciphertext = format!("vault:v{}:{}", kept.version, kept.keys.len());
            (200, json!({"data": {"ciphertext": ciphertext}}))
        }
        _ => {
            let ciphertext = body["ciphertext"].as_str().unwrap();
            let number = ciphertext.rsplit(':').next().unwrap();
            match found(&kept, number, &body["associated_data"]) {
                Some(key) => (200, json!({"data": {"plaintext": key}})),
                None => (400, json!({"errors": ["cipher: message authentication failed"]})),
            }
        }
    };
    (StatusCode::from_u16(status).unwrap(), answer.to_string())
}

/// The key of a ciphertext, for its own use.
fn found(kept: &Kept, number: &str, context: &Value) -> Option<Value> {
    let (key, of) = kept.keys.get(number.parse::<usize>().ok()?.checked_sub(1)?)?;
    (of == context).then(|| key.clone())
}

fn encode(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn decode(text: &Value) -> String {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap());
    String::from_utf8(bytes.unwrap()).unwrap()
}
