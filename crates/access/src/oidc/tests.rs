//! Tokens of issuers, good and bad.

use super::*;
use crate::testing::issuer::{Issuer, message};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

const NOW: u64 = 1_800_000_000;

/// A key that only these tests use, as PKCS #8.
const RSA_KEY: &str = include_str!("testdata/rsa.pk8.txt");

fn options() -> OidcOptions {
    OidcOptions {
        issuer: "https://id.example".to_owned(),
        audience: "stele".to_owned(),
        user_claim: "sub".to_owned(),
        groups_claim: "realm.roles".to_owned(),
    }
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example",
        "aud": ["other", "stele"],
        "exp": NOW + 600,
        "nbf": NOW,
        "iat": NOW,
        "sub": "alice",
        "realm": {"roles": ["writers", "staff", "staff"]},
    })
}

/// The claims with another value of one; without it for null.
fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    let all = claims.as_object_mut().expect("an object");
    match value {
        Value::Null => all.remove(name),
        value => all.insert(name.to_owned(), value),
    };
    claims
}

fn of_keys(text: &str) -> Arc<Oidc> {
    let oidc = Oidc::new(options());
    oidc.set_keys(KeySet::parse(text.as_bytes()).unwrap(), Duration::ZERO);
    oidc
}

fn identify(oidc: &Oidc, token: &str) -> Result<Arc<Identity>, JwtRefused> {
    oidc.identify(token, NOW, Duration::ZERO)
}

#[test]
fn a_token_names_its_caller_and_groups_until_it_expires() {
    let issuer = Issuer::new(1, "k1");
    let oidc = of_keys(&Issuer::key_set(&[&issuer]));
    let token = issuer.token(&claims());
    let alice = identify(&oidc, &token).unwrap();
    assert_eq!(
        (&alice.user[..], &alice.groups[..]),
        ("alice", &["staff".to_owned(), "writers".to_owned()][..])
    );
    assert!(
        Arc::ptr_eq(&alice, &identify(&oidc, &token).unwrap()),
        "known by its digest"
    );
    let at = |seconds| oidc.identify(&token, seconds, Duration::ZERO);
    assert!(at(NOW + 600 + SKEW_SECONDS - 1).is_ok());
    assert_eq!(at(NOW + 600 + SKEW_SECONDS), Err(JwtRefused::Expired));
    let fresh = of_keys(&Issuer::key_set(&[&issuer]));
    assert_eq!(
        fresh.identify(&token, NOW + 660, Duration::ZERO),
        Err(JwtRefused::Expired)
    );
    let without = issuer.token(&with("realm", Value::Null));
    assert!(identify(&oidc, &without).unwrap().groups.is_empty());
}

#[test]
fn claims_must_be_those_of_the_settings() {
    let issuer = Issuer::new(1, "k1");
    let oidc = of_keys(&Issuer::key_set(&[&issuer]));
    let malformed = |refused: &JwtRefused| matches!(refused, JwtRefused::Malformed(_));
    for (name, value, expected) in [
        ("iss", json!("https://id.example/"), Some(JwtRefused::Issuer)),
        ("iss", Value::Null, Some(JwtRefused::Issuer)),
        ("aud", json!("other"), Some(JwtRefused::Audience)),
        ("aud", json!([]), Some(JwtRefused::Audience)),
        ("aud", Value::Null, Some(JwtRefused::Audience)),
        ("exp", json!(NOW - 61), Some(JwtRefused::Expired)),
        ("exp", Value::Null, None),
        ("exp", json!("tomorrow"), None),
        ("exp", json!(-1), None),
        ("nbf", json!(NOW + 61), Some(JwtRefused::NotYet)),
        ("iat", json!(NOW + 61), Some(JwtRefused::NotYet)),
        ("sub", Value::Null, Some(JwtRefused::Claim("sub".into()))),
        ("sub", json!(""), Some(JwtRefused::Claim("sub".into()))),
        ("sub", json!(7), Some(JwtRefused::Claim("sub".into()))),
        ("sub", json!("a\nb"), Some(JwtRefused::Claim("sub".into()))),
        (
            "realm",
            json!({"roles": [1]}),
            Some(JwtRefused::Claim("realm.roles".into())),
        ),
        (
            "realm",
            json!({"roles": vec!["g"; 257]}),
            Some(JwtRefused::Claim("realm.roles".into())),
        ),
    ] {
        let refused = identify(&oidc, &issuer.token(&with(name, value.clone()))).unwrap_err();
        match expected {
            Some(expected) => assert_eq!(refused, expected, "{name} {value}"),
            None => assert!(malformed(&refused), "{name} {value}: {refused}"),
        }
    }
    for (name, value) in [
        ("aud", json!("stele")),
        ("exp", json!(NOW - 59)),
        ("exp", json!(NOW as f64 + 0.5)),
        ("nbf", json!(NOW + 59)),
        ("nbf", Value::Null),
    ] {
        let token = issuer.token(&with(name, value.clone()));
        assert!(identify(&oidc, &token).is_ok(), "{name} {value}");
    }
}

#[test]
fn no_other_algorithm_counts() {
    let issuer = Issuer::new(1, "k1");
    let oidc = of_keys(&Issuer::key_set(&[&issuer]));
    for algorithm in ["none", "None", "HS256", "RS1", "PS256", ""] {
        let header = json!({"alg": algorithm, "kid": "k1"});
        assert_eq!(
            identify(&oidc, &issuer.signed(&header, &claims())),
            Err(JwtRefused::Algorithm)
        );
        let unsigned = format!("{}.", message(&header, &claims()));
        assert_eq!(identify(&oidc, &unsigned), Err(JwtRefused::Algorithm));
    }
    // The key is of another algorithm than the token says.
    let header = json!({"alg": "RS256", "kid": "k1"});
    assert_eq!(
        identify(&oidc, &issuer.signed(&header, &claims())),
        Err(JwtRefused::Algorithm)
    );
    // A keyed hash with the public key as its secret.
    let header = json!({"alg": "HS256", "kid": "k1"});
    let message = message(&header, &claims());
    let public = issuer.public()["x"].as_str().unwrap().to_owned();
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &URL_SAFE_NO_PAD.decode(public).unwrap());
    let tag = URL_SAFE_NO_PAD.encode(ring::hmac::sign(&secret, message.as_bytes()));
    assert_eq!(identify(&oidc, &format!("{message}.{tag}")), Err(JwtRefused::Algorithm));
}

#[test]
fn changed_and_broken_tokens_are_refused() {
    let issuer = Issuer::new(1, "k1");
    let oidc = of_keys(&Issuer::key_set(&[&issuer]));
    let token = issuer.token(&claims());
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let other = message(&json!({"alg": "EdDSA", "kid": "k1"}), &with("sub", json!("root")));
    assert_eq!(
        identify(&oidc, &format!("{other}.{signature}")),
        Err(JwtRefused::Signature)
    );
    assert_eq!(identify(&oidc, &format!("{signed}.")), Err(JwtRefused::Signature));
    let long = format!("{token}{}", "A".repeat(TOKEN_BYTES_MAX));
    assert_eq!(identify(&oidc, &long), Err(JwtRefused::TooLong));
    for broken in [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c.d",
        "!.!.!",
        &format!("{token}.x"),
        &format!("{signed}.==="),
    ] {
        let refused = identify(&oidc, broken).unwrap_err();
        assert!(matches!(refused, JwtRefused::Malformed(_)), "{broken}: {refused}");
    }
    for header in [
        json!({"alg": "EdDSA", "kid": "k1", "crit": ["exp"]}),
        json!({"alg": "EdDSA", "kid": "k1", "typ": "logout+jwt"}),
        json!({"kid": "k1"}),
        json!([]),
    ] {
        let refused = identify(&oidc, &issuer.signed(&header, &claims())).unwrap_err();
        assert!(matches!(refused, JwtRefused::Malformed(_)), "{header}");
    }
}

#[test]
fn keys_come_and_go() {
    let (first, second) = (Issuer::new(1, "k1"), Issuer::new(2, "k2"));
    let oidc = of_keys(&Issuer::key_set(&[&first]));
    let (old, new) = (first.token(&claims()), second.token(&claims()));
    assert!(identify(&oidc, &old).is_ok() && !oidc.wants_keys());
    assert_eq!(identify(&oidc, &new), Err(JwtRefused::UnknownKey));
    assert!(oidc.wants_keys() && !oidc.wants_keys());
    let set = |issuers: &[&Issuer]| KeySet::parse(Issuer::key_set(issuers).as_bytes()).unwrap();
    oidc.set_keys(set(&[&first, &second]), Duration::ZERO);
    assert!(identify(&oidc, &old).is_ok() && identify(&oidc, &new).is_ok());
    // A token of a key that was withdrawn was verified before, and counts no longer.
    oidc.set_keys(set(&[&second]), Duration::ZERO);
    assert_eq!(identify(&oidc, &old), Err(JwtRefused::UnknownKey));
    assert!(identify(&oidc, &new).is_ok());
    // Another key of the same id.
    let impostor = Issuer::new(3, "k2").token(&claims());
    assert_eq!(identify(&oidc, &impostor), Err(JwtRefused::Signature));
    // Without an id the only key is meant, and no key where there are two.
    let nameless = second.signed(&json!({"alg": "EdDSA"}), &claims());
    assert!(identify(&oidc, &nameless).is_ok());
    oidc.set_keys(set(&[&first, &second]), Duration::ZERO);
    assert_eq!(identify(&oidc, &nameless), Err(JwtRefused::UnknownKey));
}

#[test]
fn a_set_without_keys_withdraws_all_of_them() {
    let issuer = Issuer::new(1, "k1");
    let token = issuer.token(&claims());
    for nothing in [
        "{\"keys\":[]}",
        "{\"keys\":[{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"k1\"}]}",
    ] {
        let oidc = of_keys(&Issuer::key_set(&[&issuer]));
        assert!(identify(&oidc, &token).is_ok());
        let set = KeySet::parse(nothing.as_bytes()).unwrap();
        assert!(set.is_empty());
        oidc.set_keys(set, Duration::ZERO);
        assert_eq!(identify(&oidc, &token), Err(JwtRefused::UnknownKey));
        // Nor is there an only key that a token without an id could mean.
        let nameless = issuer.signed(&json!({"alg": "EdDSA"}), &claims());
        assert_eq!(identify(&oidc, &nameless), Err(JwtRefused::UnknownKey));
        assert!(oidc.wants_keys(), "the issuer may have others by now");
    }
}

#[test]
fn keys_count_while_they_are_confirmed() {
    let issuer = Issuer::new(1, "k1");
    let token = issuer.token(&claims());
    assert_eq!(identify(&Oidc::new(options()), &token), Err(JwtRefused::NoKeys));
    let oidc = of_keys(&Issuer::key_set(&[&issuer]));
    let late = KEYS_AGE_MAX + Duration::from_secs(1);
    assert!(oidc.identify(&token, NOW, KEYS_AGE_MAX).is_ok());
    assert_eq!(oidc.identify(&token, NOW, late), Err(JwtRefused::NoKeys));
    oidc.confirm(late);
    assert!(oidc.identify(&token, NOW, late).is_ok());
}

#[test]
fn all_three_algorithms_are_verified() {
    let random = SystemRandom::new();
    let rsa_key: String = RSA_KEY.split_whitespace().collect();
    let rsa = RsaKeyPair::from_pkcs8(&STANDARD.decode(rsa_key).unwrap()).unwrap();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let p256 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
    let ed25519 = Issuer::new(1, "ed");
    let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let (modulus, exponent): (Vec<u8>, Vec<u8>) = {
        let components = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(rsa.public());
        (components.n, components.e)
    };
    let point = p256.public_key().as_ref();
    let keys = json!({"keys": [
        {"kty": "RSA", "kid": "rsa", "alg": "RS256", "n": encoded(&modulus), "e": encoded(&exponent)},
        {"kty": "EC", "crv": "P-256", "kid": "ec", "x": encoded(&point[1..33]), "y": encoded(&point[33..])},
        ed25519.public(),
    ]});
    let oidc = of_keys(&keys.to_string());
    let sign = |algorithm: &str, id: &str| {
        let message = message(&json!({"alg": algorithm, "kid": id}), &claims());
        let signature = match id {
            "rsa" => {
                let mut signature = vec![0; rsa.public().modulus_len()];
                rsa.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature)
                    .unwrap();
                signature
            }
            _ => p256.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec(),
        };
        format!("{message}.{}", encoded(&signature))
    };
    for token in [sign("RS256", "rsa"), sign("ES256", "ec"), ed25519.token(&claims())] {
        assert_eq!(identify(&oidc, &token).unwrap().user, "alice");
        let (signed, _) = token.rsplit_once('.').unwrap();
        let zeros = format!("{signed}.{}", encoded(&[0; 64]));
        assert_eq!(identify(&oidc, &zeros), Err(JwtRefused::Signature));
    }
    assert_eq!(identify(&oidc, &sign("ES256", "rsa")), Err(JwtRefused::Algorithm));
}

#[test]
fn keys_that_do_not_count_are_left_out() {
    let good = Issuer::new(1, "k1").public();
    let count = |keys: Value| KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).map(|set| set.len());
    assert_eq!(count(json!([good])), Ok(1));
    let with = |name: &str, value: Value| {
        let mut key = good.clone();
        key[name] = value;
        key
    };
    for bad in [
        with("use", json!("enc")),
        with("alg", json!("ES256")),
        with("crv", json!("X25519")),
        with("x", json!("AAAA")),
        json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "k1"}),
        json!({"kty": "RSA", "n": "wQAB", "e": "AQAB"}),
        json!("key"),
    ] {
        assert_eq!(count(json!([bad, good])), Ok(1), "{bad}");
        assert_eq!(count(json!([bad])), Ok(0), "{bad}");
    }
    assert!(count(json!(vec![good; 257])).unwrap_err().contains("the limit"));
    assert!(KeySet::parse(b"{}").is_err() && KeySet::parse(&vec![b' '; keys::SET_BYTES_MAX + 1]).is_err());
}
