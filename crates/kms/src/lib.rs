//! Key-encryption keys that stay in a key management service.
//!
//! A [`KmsAddress`] names a key, and [`connect`] makes a [`KeyService`] of it. The service wraps data keys by requests to AWS KMS or
//! to the transit engine of HashiCorp Vault: the key-encryption key itself never reaches this process. A data key is bound to its use
//! by the encryption context of AWS KMS, and by the associated data of Vault.
//!
//! Must not know: storage, data roots, settings.
#![forbid(unsafe_code)]

mod address;
mod aws;
mod client;
#[cfg(test)]
mod fake;
pub mod fuzzing;
mod vault;

pub use address::{AddressError, KmsAddress};

use address::Key;
use aws::Aws;
use client::Client;
use std::sync::Arc;
use stele_encryption::{DataKey, KEY_BYTES, KeyError, KeyService};
use stele_env::Env;
use vault::Vault;

/// The key of an address. It has wrapped and unwrapped a trial key when this returns: nothing is ever written with a key that
/// cannot be used later.
pub async fn connect(address: &KmsAddress, env: &Env) -> Result<Arc<dyn KeyService>, KeyError> {
    let client = Client::new(address, env)?;
    let service: Arc<dyn KeyService> = match &address.key {
        Key::Aws { region, key } => Arc::new(Aws::connect(client, region, key).await?),
        Key::Vault { mount, key } => Arc::new(Vault::connect(client, mount, key).await?),
    };
    let (trial, context) = ([0x5a; KEY_BYTES], [0; 32]);
    let wrapped = service.wrap(&DataKey::new(trial), &context).await?;
    if service.unwrap(&wrapped, &context).await?.bytes() != &trial {
        return Err(KeyError::Failed(format!("{address}: a trial key came back changed")));
    }
    Ok(service)
}
