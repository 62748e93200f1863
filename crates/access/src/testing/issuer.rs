//! An issuer of tokens of OpenID Connect, for tests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

/// An issuer with one Ed25519 key.
pub struct Issuer {
    key: Ed25519KeyPair,
    id: String,
}

impl Issuer {
    /// The key is made of the seed, and `id` names it.
    pub fn new(seed: u8, id: &str) -> Self {
        Issuer {
            key: Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a seed of 32 bytes"),
            id: id.to_owned(),
        }
    }

    /// The public key, as an entry of a key set.
    pub fn public(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.key.public_key());
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "use": "sig", "x": x})
    }

    /// The key set with these keys, as text.
    pub fn key_set(issuers: &[&Issuer]) -> String {
        let keys: Vec<Value> = issuers.iter().map(|issuer| issuer.public()).collect();
        json!({ "keys": keys }).to_string()
    }

    /// A token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": "EdDSA", "kid": self.id, "typ": "JWT"});
        self.signed(&header, claims)
    }

    /// A token with this header.
    pub fn signed(&self, header: &Value, claims: &Value) -> String {
        self.signed_text(&header.to_string(), claims.to_string().as_bytes())
    }

    /// The same of any header and any claims.
    pub fn signed_text(&self, header: &str, claims: &[u8]) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.key.sign(message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// The part of a token that is signed.
pub fn message(header: &Value, claims: &Value) -> String {
    let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", encoded(header), encoded(claims))
}
