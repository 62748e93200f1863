//! The seam to the keeper of the key-encryption keys.
//!
//! A key file of the operator is one implementation; key management services are others.

use async_trait::async_trait;
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a key: AES-256.
pub const KEY_BYTES: usize = 32;

/// A key that encrypts files. Overwritten in memory when it is dropped, and never printed.
pub struct DataKey(Zeroizing<[u8; KEY_BYTES]>);

impl DataKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> DataKey {
        DataKey(Zeroizing::new(bytes))
    }

    /// The bytes, for a service that wraps them.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(…)")
    }
}

/// The use of a data key: 32 bytes that a wrapped key is bound to. A service refuses to unwrap a key under another context.
pub type KeyContext = [u8; 32];

/// A data key under a key-encryption key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapped {
    /// The id of the key-encryption key: 1 to 64 characters of `[A-Za-z0-9._-]`.
    pub by: String,
    /// The encrypted key: 1 to 4,096 bytes.
    pub bytes: Vec<u8>,
}

/// A failure to wrap or unwrap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The service does not have the key-encryption key.
    #[error("it is wrapped by the key {id:?}, which is not among the given ones ({known})")]
    Unknown {
        /// The id of the key-encryption key.
        id: String,
        /// The ids that there are.
        known: String,
    },
    /// It has one with this id, and it is not the right one.
    #[error("the key {id:?} does not unwrap it: another key had this id when the data were written")]
    Refused {
        /// The id.
        id: String,
    },
    /// The service failed.
    #[error("{0}")]
    Failed(String),
}

/// Wraps and unwraps data keys.
#[async_trait]
pub trait KeyService: Send + Sync + 'static {
    /// The id of the key-encryption key that wraps now.
    fn current(&self) -> &str;

    /// Wraps a data key by the current key.
    async fn wrap(&self, key: &DataKey, context: &KeyContext) -> Result<Wrapped, KeyError>;

    /// The data key; the current key or a former one has wrapped it.
    async fn unwrap(&self, wrapped: &Wrapped, context: &KeyContext) -> Result<DataKey, KeyError>;

    /// The same, and whether the key that wraps now has wrapped it. The id does not tell where two services have a key of one id.
    async fn unwrap_and_compare(&self, wrapped: &Wrapped, context: &KeyContext) -> Result<(DataKey, bool), KeyError> {
        let key = self.unwrap(wrapped, context).await?;
        Ok((key, wrapped.by == self.current()))
    }
}
