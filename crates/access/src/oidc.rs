//! Tokens of an OpenID Connect issuer.
//!
//! They are JSON Web Tokens (RFC 7519), signed with a key of the issuer's set (RFC 7517).
//!
//! A token is believed if its signature is that of a current key, its issuer and audience are the ones of the settings, and
//! its time has begun and not ended. Its claims name the caller and its groups.
//!
//! Invariants:
//! * The key decides about the algorithm ([`keys`]): a token cannot choose a weaker one, and `none` and keyed hashes are not there.
//! * A token that was verified once is known by its digest as long as the same keys count. With other keys it is verified again, so a
//!   key that is withdrawn takes its tokens with it.
//! * Keys that were not confirmed for [`KEYS_AGE_MAX`] count no longer: one of them may have been withdrawn.

mod keys;
mod token;

pub use keys::KeySet;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of the longest token. Headers of a call are not much longer.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// The clocks of the issuer and of this server differ by this much at most.
const SKEW_SECONDS: u64 = 60;

/// Keys count for this long after they were read. An issuer may be away for a night.
pub const KEYS_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Tokens that are known by their digests. When there are more, all are verified again.
const KNOWN_MAX: usize = 4_096;

/// The tokens that are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcOptions {
    /// Their issuer, as in the claim `iss`.
    pub issuer: String,
    /// The audience that they must name in `aud`.
    pub audience: String,
    /// The claim with the name of the caller.
    pub user_claim: String,
    /// The claim with the names of its groups.
    pub groups_claim: String,
}

/// The reason for which a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtRefused {
    /// It has too many bytes.
    #[error("the bearer token has more than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    /// It is no such token, or not one that is accepted.
    #[error("the bearer token is malformed: {0}")]
    Malformed(&'static str),
    /// It asks for an algorithm that does not count.
    #[error("the bearer token is signed by an algorithm other than RS256, ES256 and EdDSA")]
    Algorithm,
    /// The keys of the issuer are not known at the moment.
    #[error("the keys of the issuer of the bearer token are not known at the moment")]
    NoKeys,
    /// Its key is not one of the issuer's.
    #[error("the bearer token is signed with a key that the issuer does not have")]
    UnknownKey,
    /// Its signature is wrong.
    #[error("the signature of the bearer token is wrong")]
    Signature,
    /// Its time is over.
    #[error("the bearer token has expired")]
    Expired,
    /// Its time has not begun.
    #[error("the bearer token is not valid yet")]
    NotYet,
    /// It is of another issuer.
    #[error("the bearer token is of another issuer")]
    Issuer,
    /// It is for another service.
    #[error("the bearer token is for another audience")]
    Audience,
    /// It does not name its caller, or not as expected.
    #[error("the bearer token's claim {0:?} does not name a caller or groups")]
    Claim(String),
}

/// The caller that a token names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub user: String,
    /// Its groups, sorted.
    pub groups: Arc<[String]>,
    /// Seconds since 1970 from which on the token is refused.
    expires: u64,
}

/// Verifies the tokens of one issuer.
pub struct Oidc {
    options: OidcOptions,
    keys: ArcSwapOption<Current>,
    /// When the keys were confirmed the last time, in nanoseconds of the environment's clock.
    confirmed: AtomicU64,
    /// By the digest of the token.
    known: Mutex<HashMap<[u8; 32], Known>>,
    /// A token named an unknown key since the last [`Oidc::wants_keys`].
    wants_keys: AtomicBool,
}

struct Current {
    /// Another number for other keys.
    generation: u64,
    keys: KeySet,
}

struct Known {
    generation: u64,
    identity: Arc<Identity>,
}

impl Oidc {
    /// Without any keys, which [`Oidc::set_keys`] gives.
    pub fn new(options: OidcOptions) -> Arc<Self> {
        Arc::new(Oidc {
            options,
            keys: ArcSwapOption::empty(),
            confirmed: AtomicU64::new(0),
            known: Mutex::default(),
            wants_keys: AtomicBool::new(false),
        })
    }

    /// Replaces the keys by those that were read at this time. Tokens of keys that are gone are refused from now on.
    pub fn set_keys(&self, keys: KeySet, now: Duration) {
        let generation = self.keys.load().as_ref().map_or(1, |current| current.generation + 1);
        self.confirm(now);
        self.keys.store(Some(Arc::new(Current { generation, keys })));
        self.known.lock().clear();
    }

    /// The keys are still the same at this time.
    pub fn confirm(&self, now: Duration) {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.confirmed.fetch_max(now, Ordering::AcqRel);
    }

    /// Whether a token has named an unknown key since the last question: the issuer may have new ones.
    pub fn wants_keys(&self) -> bool {
        self.wants_keys.swap(false, Ordering::AcqRel)
    }

    /// The caller that a token names. `wall_seconds` are those since 1970, `now` is the environment's clock.
    pub fn identify(&self, token: &str, wall_seconds: u64, now: Duration) -> Result<Arc<Identity>, JwtRefused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(JwtRefused::TooLong);
        }
        let current = self.keys.load();
        let current = current.as_deref().ok_or(JwtRefused::NoKeys)?;
        let confirmed = Duration::from_nanos(self.confirmed.load(Ordering::Acquire));
        if now.saturating_sub(confirmed) > KEYS_AGE_MAX {
            return Err(JwtRefused::NoKeys);
        }
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let known = self.known.lock().get(&digest).and_then(|known| {
            let is_current = known.generation == current.generation;
            is_current.then(|| Arc::clone(&known.identity))
        });
        if let Some(identity) = known {
            return match token::is_over(identity.expires, wall_seconds) {
                true => Err(JwtRefused::Expired),
                false => Ok(identity),
            };
        }
        let parts = token::Parts::of(token)?;
        current.keys.verify(&parts).inspect_err(|refused| {
            if *refused == JwtRefused::UnknownKey {
                self.wants_keys.store(true, Ordering::Release);
            }
        })?;
        let identity = Arc::new(parts.identity(&self.options, wall_seconds)?);
        let mut all = self.known.lock();
        if all.len() >= KNOWN_MAX {
            all.clear();
        }
        let known = Known {
            generation: current.generation,
            identity: Arc::clone(&identity),
        };
        all.insert(digest, known);
        Ok(identity)
    }
}

#[cfg(test)]
mod tests;
