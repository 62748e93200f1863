//! Checks of answers of key management services, and of addresses, for fuzz targets.

use crate::address::{Key, KmsAddress};
use crate::client::{Answer, data_key};
use crate::{aws, vault};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::StatusCode;
use stele_encryption::{KEY_BYTES, KeyRecord, Wrapped};
use zeroize::Zeroizing;

/// Checks the body of an answer with any status, of each service.
///
/// # Panics
/// If an answer has an id that no data key can name, or if a success counts as busy.
pub fn answer(status: u16, body: &[u8]) {
    let answer = Answer {
        status: StatusCode::from_u16(status).unwrap_or(StatusCode::OK),
        body: Zeroizing::new(body.to_vec()),
    };
    let (id, of_aws) = aws::parts(&answer);
    let (version, of_vault) = vault::parts(&answer);
    let version = version.map(|version| format!("vault.transit.k.v{version}"));
    id.into_iter().chain(version).for_each(check_id);
    for key in of_aws.iter().chain(&of_vault) {
        check_key(key);
    }
}

/// Checks the text of an address.
///
/// # Panics
/// If the address is not shown as it was given, or if its parts can be another path of the service.
pub fn address(text: &str) {
    let Ok(address) = KmsAddress::parse(text, |_| None) else {
        return;
    };
    assert_eq!(address.to_string(), text);
    assert!(!address.url().ends_with('/') && address.url().contains("://"));
    // The key of AWS KMS is no part of a URL.
    let in_url = match &address.key {
        Key::Aws { region, .. } => [region, ""],
        Key::Vault { mount, key } => [&mount[..], key],
    };
    for name in in_url {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        assert!(name.chars().all(is_plain) && !name.split('/').any(|part| part == ".."));
    }
}

/// The id of a key is one that the record of a data key can have.
fn check_id(by: String) {
    let wrapped = Wrapped { by, bytes: vec![0] };
    assert!(KeyRecord::takes(&wrapped), "{:?}", wrapped.by);
}

/// A data key is the one of its base64.
fn check_key(text: &str) {
    if let Some(key) = data_key(text) {
        assert_eq!(key.bytes().len(), KEY_BYTES);
        assert_eq!(STANDARD.encode(key.bytes()), text);
    }
}
