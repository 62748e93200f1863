//! Encryption at rest: a storage over another one, and its keys.
//!
//! Terms: a *data key* encrypts the contents of files. A *key-encryption key* encrypts (*wraps*) data keys; a [`KeyService`] has it.
//! A *key ring* has the data keys of one data root, in files below `encryption/` of that root.
//!
//! * [`KeyRing`] reads, makes and rotates the data keys of a root.
//! * [`EncryptedStorage`] encrypts all files of a root but those that a start reads first.
//! * [`KeyFile`] is the key service that a file of the operator makes; [`KeyServices`] are several. Others implement [`KeyService`].
//!
//! The bytes are in `docs/formats/encryption.md`. A reader of the storage learns names, lengths and times of files, and no content. A
//! program that can write to the storage is not kept from changing contents: only damage is found.
//!
//! Must not know: tablets, logs, settings, servers.
#![forbid(unsafe_code)]

mod append;
mod cipher;
mod error;
mod header;
mod key_file;
mod keyring;
mod read;
mod record;
mod remembered;
mod service;
mod services;
mod storage;

pub use cipher::{RandomBytes, SystemRandom};
pub use error::EncryptionError;
pub use header::{FileHeader, HEADER_BYTES, MAGIC as FILE_MAGIC};
pub use key_file::{KeyFile, KeyFileError};
pub use keyring::{KeyRing, has_keys};
pub use record::{DIRECTORY, KeyName, KeyRecord, MAGIC as KEY_MAGIC, is_plain};
pub use service::{DataKey, KEY_BYTES, KeyContext, KeyError, KeyService, Wrapped};
pub use services::KeyServices;
pub use storage::EncryptedStorage;
