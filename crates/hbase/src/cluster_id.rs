//! The id of the cluster.
//!
//! It is made when a server starts for the first time, and kept in the record of the system's namespace. Clients compare
//! it to tell clusters apart.

use crate::failure::Failure;
use crate::names::SYSTEM_NAMESPACE;
use crate::namespace_data::NamespaceData;
use bytes::Bytes;
use stele_client::{ServiceError, ServiceResult, TableAdmin};
use stele_env::Env;
use stele_types::ErrorKind;

/// The id of the cluster; makes one if it has none.
///
/// # Errors
/// Those of the service, and `Corruption` for a record that cannot be read.
pub async fn cluster_id(admin: &dyn TableAdmin, env: &Env) -> ServiceResult<String> {
    let record = admin.namespace(SYSTEM_NAMESPACE).await?;
    let corrupt = |failure: Failure| ServiceError::new(ErrorKind::Corruption, failure.message);
    let before = record.clone().unwrap_or_else(Bytes::new);
    let mut data = NamespaceData::decode(SYSTEM_NAMESPACE, &before).map_err(corrupt)?;
    if !data.cluster_id.is_empty() {
        return Ok(data.cluster_id);
    }
    let id = uuid(env);
    data.cluster_id.clone_from(&id);
    let after = data.put_into(SYSTEM_NAMESPACE, &before).map_err(corrupt)?;
    match record {
        Some(_) => admin.update_namespace(SYSTEM_NAMESPACE, before, after).await?,
        None => admin.create_namespace(SYSTEM_NAMESPACE, after).await?,
    }
    Ok(id)
}

/// A random UUID.
fn uuid(env: &Env) -> String {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&env.random_u64().to_be_bytes());
    bytes[8..].copy_from_slice(&env.random_u64().to_be_bytes());
    uuid_of(bytes)
}

/// A UUID of random bytes, version 4.
pub fn uuid_of(bytes: [u8; 16]) -> String {
    let random = u128::from_be_bytes(bytes);
    let high = ((random >> 64) as u64 & !0xf000) | 0x4000;
    let low = (random as u64 & !(0b11 << 62)) | (0b10 << 62);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
