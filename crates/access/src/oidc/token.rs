//! A token taken apart: `HEADER.CLAIMS.SIGNATURE`, each in base64url.
//!
//! The claims are decoded only after the signature was verified.
//!
//! Pure.

use super::{Identity, JwtRefused, OidcOptions, SKEW_SECONDS};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use stele_types::Member;

/// Groups of a token at most. Issuers that have more for a caller leave the claim out.
const GROUPS_MAX: usize = 256;

/// The types of tokens that name callers; without one it is the first.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// A token.
pub(super) struct Parts<'t> {
    header: Header,
    claims: &'t str,
    /// The header and the claims as they were signed.
    signed: &'t [u8],
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    /// Extensions that a reader must understand.
    crit: Option<Value>,
}

impl<'t> Parts<'t> {
    /// Takes a token apart, and decodes its header.
    pub fn of(token: &'t str) -> Result<Self, JwtRefused> {
        let malformed = JwtRefused::Malformed;
        let (signed, signature) = token.rsplit_once('.').ok_or(malformed("it has no three parts"))?;
        let (header, claims) = signed.split_once('.').ok_or(malformed("it has no three parts"))?;
        if claims.contains('.') {
            return Err(malformed("it has more than three parts"));
        }
        let header = decoded(header)?;
        let header: Header = serde_json::from_slice(&header).map_err(|_| malformed("its header is not one"))?;
        if header.crit.is_some() {
            return Err(malformed("its header asks for extensions"));
        }
        let is_known = |typ: &String| TYPES.contains(&typ.to_ascii_lowercase().as_str());
        if !header.typ.as_ref().is_none_or(is_known) {
            return Err(malformed("it is of another type"));
        }
        Ok(Parts {
            header,
            claims,
            signed: signed.as_bytes(),
            signature: decoded(signature)?,
        })
    }

    pub fn algorithm(&self) -> &str {
        &self.header.alg
    }

    pub fn key_id(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    pub fn signed(&self) -> &[u8] {
        self.signed
    }

    pub fn signature(&self) -> &[u8] {
        &self.signature
    }

    /// Checks the claims, and finds the caller that they name.
    pub fn identity(&self, options: &OidcOptions, now: u64) -> Result<Identity, JwtRefused> {
        let claims = decoded(self.claims)?;
        let claims: Map<String, Value> =
            serde_json::from_slice(&claims).map_err(|_| JwtRefused::Malformed("its claims are not an object"))?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("iss") != Some(options.issuer.as_str()) {
            return Err(JwtRefused::Issuer);
        }
        let is_for = match claims.get("aud") {
            Some(Value::String(one)) => *one == options.audience,
            Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(options.audience.as_str())),
            _ => false,
        };
        if !is_for {
            return Err(JwtRefused::Audience);
        }
        let expires = time(&claims, "exp")?.ok_or(JwtRefused::Malformed("it has no time at which it expires"))?;
        if is_over(expires, now) {
            return Err(JwtRefused::Expired);
        }
        for begin in ["nbf", "iat"] {
            if time(&claims, begin)?.is_some_and(|begin| begin > now.saturating_add(SKEW_SECONDS)) {
                return Err(JwtRefused::NotYet);
            }
        }
        let wrong = |name: &str| JwtRefused::Claim(name.to_owned());
        let user = claim(&claims, &options.user_claim).and_then(Value::as_str);
        let user = user.filter(|name| Member::parse(&format!("user:{name}")).is_some());
        Ok(Identity {
            user: user.ok_or_else(|| wrong(&options.user_claim))?.to_owned(),
            groups: groups(&claims, &options.groups_claim)?,
            expires,
        })
    }
}

/// Whether the time of a token is over.
pub(super) fn is_over(expires: u64, now: u64) -> bool {
    now >= expires.saturating_add(SKEW_SECONDS)
}

fn decoded(part: &str) -> Result<Vec<u8>, JwtRefused> {
    let decoded = URL_SAFE_NO_PAD.decode(part);
    decoded.map_err(|_| JwtRefused::Malformed("a part is not in base64url"))
}

/// A time in seconds since 1970. Issuers write fractions, too.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<u64>, JwtRefused> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    let seconds = value.as_f64().filter(|seconds| (0.0..1e15).contains(seconds));
    match seconds {
        Some(seconds) => Ok(Some(seconds as u64)),
        None => Err(JwtRefused::Malformed("a time is not one")),
    }
}

/// The claim of this name, or else the one at this path of names with dots between them.
fn claim<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    if let Some(found) = claims.get(name) {
        return Some(found);
    }
    let mut names = name.split('.');
    let first = claims.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name))
}

/// The groups; none without the claim.
fn groups(claims: &Map<String, Value>, name: &str) -> Result<Arc<[String]>, JwtRefused> {
    let wrong = || JwtRefused::Claim(name.to_owned());
    let mut groups: Vec<String> = match claim(claims, name) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(all)) => {
            let each = all.iter().map(|one| one.as_str().map(str::to_owned));
            each.collect::<Option<_>>().ok_or_else(wrong)?
        }
        Some(_) => return Err(wrong()),
    };
    if groups.len() > GROUPS_MAX {
        return Err(wrong());
    }
    // No rule can name the others.
    groups.retain(|group| Member::parse(&format!("group:{group}")).is_some());
    groups.sort_unstable();
    groups.dedup();
    Ok(groups.into())
}
