//! Tokens of an issuer and its keys, from clients and from the network.
//!
//! The first byte chooses: a key set, a token, or claims that are signed with the right key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use std::time::Duration;
use stele_access::oidc::{KeySet, Oidc, OidcOptions};
use stele_access::testing::issuer::Issuer;

/// Seconds since 1970 at which tokens are shown.
const NOW: u64 = 1_800_000_000;

static ISSUER: LazyLock<Issuer> = LazyLock::new(|| Issuer::new(1, "k1"));

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    if choice % 3 == 0 {
        if let Ok(keys) = KeySet::parse(rest) {
            assert!(!keys.is_empty());
        }
        return;
    }
    let oidc = Oidc::new(OidcOptions {
        issuer: "i".to_owned(),
        audience: "a".to_owned(),
        user_claim: "sub".to_owned(),
        groups_claim: "realm.roles".to_owned(),
    });
    let keys = KeySet::parse(Issuer::key_set(&[&ISSUER]).as_bytes()).expect("a good key");
    oidc.set_keys(keys, Duration::ZERO);
    let token = match choice % 3 {
        1 => match std::str::from_utf8(rest) {
            Ok(token) => token.to_owned(),
            Err(_) => return,
        },
        _ => ISSUER.signed_text(r#"{"alg":"EdDSA","kid":"k1"}"#, rest),
    };
    if let Ok(found) = oidc.identify(&token, NOW, Duration::ZERO) {
        assert!(!found.user.is_empty() && found.groups.is_sorted());
        assert_eq!(oidc.identify(&token, NOW, Duration::ZERO).expect("known"), found);
    }
});
