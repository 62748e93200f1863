//! The keys of an issuer, from the JSON of a key set.
//!
//! RFC 7517, RFC 7518 and RFC 8037 define it.
//!
//! Each key has one algorithm: RSA keys `RS256`, keys of the curve P-256 `ES256`, Ed25519 keys `EdDSA`. Other keys of a set do
//! not count, among them symmetric ones: their secret would be that of the issuer alone.

use super::JwtRefused;
use super::token::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

/// Keys of a set at most: issuers have two or three, those of many tenants some dozens.
const KEYS_MAX: usize = 256;

/// Bytes of the text of a key set at most.
pub(super) const SET_BYTES_MAX: usize = 1 << 20;

/// Bytes of the smallest modulus of an RSA key: 2,048 bits.
const MODULUS_BYTES_MIN: usize = 256;

/// Bytes of a coordinate of P-256, and of an Ed25519 key.
const COORDINATE_BYTES: usize = 32;

/// The keys whose signatures count.
#[derive(Debug, PartialEq, Eq)]
pub struct KeySet(Vec<Key>);

#[derive(Debug, PartialEq, Eq)]
struct Key {
    id: Option<String>,
    material: Material,
}

#[derive(Debug, PartialEq, Eq)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct SetJson {
    keys: Vec<serde_json::Value>,
}

/// The fields of a key that matter.
#[derive(Deserialize)]
struct KeyJson {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Parses the text of a key set; the error names the fault. A set without any key that counts is none: with it an issuer
    /// withdraws all of its keys.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        if text.len() > SET_BYTES_MAX {
            return Err(format!("the key set has more than {SET_BYTES_MAX} bytes"));
        }
        let set: SetJson = serde_json::from_slice(text).map_err(|error| format!("not a key set: {error}"))?;
        if set.keys.len() > KEYS_MAX {
            return Err(format!(
                "the key set has {} keys; the limit is {KEYS_MAX}",
                set.keys.len()
            ));
        }
        Ok(KeySet(set.keys.into_iter().filter_map(key).collect()))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no key counts, and thus no token.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Verifies the signature of a token.
    pub(super) fn verify(&self, token: &Parts<'_>) -> Result<(), JwtRefused> {
        let algorithm = token.algorithm();
        if !["RS256", "ES256", "EdDSA"].contains(&algorithm) {
            return Err(JwtRefused::Algorithm);
        }
        // Without an id the only key is meant.
        let is_named = |key: &&Key| match token.key_id() {
            Some(id) => key.id.as_deref() == Some(id),
            None => self.0.len() == 1,
        };
        let mut named = self.0.iter().filter(is_named).peekable();
        if named.peek().is_none() {
            return Err(JwtRefused::UnknownKey);
        }
        let mut of_algorithm = named.filter(|key| key.material.algorithm() == algorithm).peekable();
        if of_algorithm.peek().is_none() {
            return Err(JwtRefused::Algorithm);
        }
        let is_signed = of_algorithm.any(|key| key.material.has_signed(token.signed(), token.signature()));
        is_signed.then_some(()).ok_or(JwtRefused::Signature)
    }
}

/// A key that counts.
fn key(json: serde_json::Value) -> Option<Key> {
    let key: KeyJson = serde_json::from_value(json).ok()?;
    if key.usage.as_deref().is_some_and(|usage| usage != "sig") {
        return None;
    }
    let material = match (key.kty.as_str(), key.crv.as_deref()) {
        ("RSA", _) => {
            let modulus = bytes(key.n.as_deref()?)?;
            let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
            let modulus = modulus.get(zeros..)?.to_vec();
            let exponent = bytes(key.e.as_deref()?)?;
            (modulus.len() >= MODULUS_BYTES_MIN).then_some(Material::Rsa { modulus, exponent })?
        }
        ("EC", Some("P-256")) => {
            let (x, y) = (coordinate(key.x.as_deref()?)?, coordinate(key.y.as_deref()?)?);
            Material::P256([&[4], &x[..], &y[..]].concat())
        }
        ("OKP", Some("Ed25519")) => Material::Ed25519(coordinate(key.x.as_deref()?)?),
        _ => return None,
    };
    let is_for = key
        .alg
        .as_deref()
        .is_none_or(|algorithm| algorithm == material.algorithm());
    is_for.then_some(Key { id: key.kid, material })
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

fn coordinate(text: &str) -> Option<Vec<u8>> {
    bytes(text).filter(|bytes| bytes.len() == COORDINATE_BYTES)
}

impl Material {
    /// The only algorithm of the key.
    fn algorithm(&self) -> &'static str {
        match self {
            Material::Rsa { .. } => "RS256",
            Material::P256(_) => "ES256",
            Material::Ed25519(_) => "EdDSA",
        }
    }

    fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            Material::Rsa { modulus, exponent } => {
                let key = RsaPublicKeyComponents {
                    n: &modulus[..],
                    e: &exponent[..],
                };
                key.verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            Material::P256(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Material::Ed25519(key) => UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature),
        };
        verified.is_ok()
    }
}
