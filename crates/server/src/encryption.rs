//! Encryption at rest, as the settings ask for it.
//!
//! A root with data keys is never opened without their key-encryption key, and with a wrong one nothing is written. Where another
//! process may be the owner of the root, this is found out before it loses it.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stele_encryption::{EncryptedStorage, KeyFile, KeyRing, KeyService, KeyServices, SystemRandom, has_keys};
use stele_env::Env;
use stele_hdfs::{HdfsMetrics, HdfsStorage};
use stele_objects::ObjectStorage;
use stele_settings::{KeySources, Place};
use stele_storage::Storage;
use zeroize::Zeroizing;

/// The flag of offline commands.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct KeyArgs {
    /// The file with the key of encrypted data, as of `stele start`
    #[arg(long, env = "STELE_ENCRYPTION_KEY_FILE", value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
    /// The keys of encrypted data in a key management service, as of `stele start`
    #[arg(long, env = "STELE_ENCRYPTION_KMS", value_name = "ADDRESS,...")]
    encryption_kms: Option<String>,
}

impl KeyArgs {
    /// The keys.
    pub async fn open(&self, env: &Env) -> anyhow::Result<Keys> {
        let kms = self.encryption_kms.as_deref().unwrap_or_default();
        Keys::open(&KeySources::parse(self.encryption_key_file.clone(), kms)?, env).await
    }
}

/// The key-encryption keys, if data are to be encrypted.
#[derive(Clone, Default)]
pub struct Keys(Option<Arc<dyn KeyService>>);

impl Keys {
    /// The keys of these places; none without one.
    pub async fn open(sources: &KeySources, env: &Env) -> anyhow::Result<Keys> {
        let mut services = Vec::new();
        for address in &sources.kms {
            services.push(stele_kms::connect(address, env).await.context("encryption_kms")?);
        }
        if let Some(file) = &sources.file {
            services.push(Arc::new(key_file(file)?));
        }
        Ok(Keys(KeyServices::of(services)))
    }

    /// Whether there are none.
    pub fn are_none(&self) -> bool {
        self.0.is_none()
    }

    /// Refuses a place whose keys these are not, before this process becomes its owner. A folder has no owner but one that is gone.
    pub async fn check(&self, place: &Place, env: &Env) -> anyhow::Result<()> {
        let root: Arc<dyn Storage> = match place {
            Place::Folder(_) => return Ok(()),
            Place::Objects(address) => ObjectStorage::look(address, env.clone()).await?,
            Place::Hdfs(address) => HdfsStorage::share(address, env.clone(), None, HdfsMetrics::default()).await?,
        };
        let shown = place.to_string();
        match &self.0 {
            None => refuse_encrypted(&*root, &shown).await,
            Some(service) => Ok(KeyRing::check(&*root, &**service).await.with_context(|| shown)?),
        }
    }

    /// The storage of a root that this process may write to. With keys, encryption begins if it has not yet.
    pub async fn over(&self, root: Arc<dyn Storage>, shown: &str) -> anyhow::Result<Arc<dyn Storage>> {
        Ok(self.over_shared(root, shown).await?.0)
    }

    /// The same, with the data keys for further roots.
    pub async fn over_shared(
        &self,
        root: Arc<dyn Storage>,
        shown: &str,
    ) -> anyhow::Result<(Arc<dyn Storage>, Option<Arc<KeyRing>>)> {
        let Some(service) = &self.0 else {
            refuse_encrypted(&*root, shown).await?;
            return Ok((root, None));
        };
        let ring = KeyRing::open(root.clone(), service.clone(), Arc::new(SystemRandom)).await;
        let ring = ring.with_context(|| shown.to_owned())?;
        Ok((EncryptedStorage::of_root(root, ring.clone()), Some(ring)))
    }

    /// The storage of a root that nothing is to be changed in: it may be plain text.
    pub async fn look(&self, root: Arc<dyn Storage>, shown: &str) -> anyhow::Result<Arc<dyn Storage>> {
        let Some(service) = &self.0 else {
            refuse_encrypted(&*root, shown).await?;
            return Ok(root);
        };
        let ring = KeyRing::look(root.clone(), service.clone(), Arc::new(SystemRandom)).await;
        Ok(match ring.with_context(|| shown.to_owned())? {
            Some(ring) => EncryptedStorage::of_root(root, ring),
            None => root,
        })
    }
}

/// A root under the keys of another one, if there are any.
pub fn beside(root: Arc<dyn Storage>, keys: Option<&Arc<KeyRing>>) -> Arc<dyn Storage> {
    match keys {
        Some(keys) => EncryptedStorage::beside(root, keys.clone()),
        None => root,
    }
}

fn key_file(file: &Path) -> anyhow::Result<KeyFile> {
    let shown = || format!("encryption_key_file: {}", file.display());
    let text = Zeroizing::new(std::fs::read_to_string(file).with_context(shown)?);
    let keys = KeyFile::parse(&text, Arc::new(SystemRandom)).with_context(shown)?;
    warn_of_readers(file);
    Ok(keys)
}

async fn refuse_encrypted(root: &dyn Storage, shown: &str) -> anyhow::Result<()> {
    if has_keys(root).await? {
        bail!(
            "{shown} is encrypted: give the file with its key, --encryption-key-file, or the address of its key, \
             --encryption-kms (for a server also the settings encryption_key_file and encryption_kms)"
        );
    }
    Ok(())
}

#[cfg(unix)]
fn warn_of_readers(file: &Path) {
    use std::os::unix::fs::MetadataExt;
    if std::fs::metadata(file).is_ok_and(|file| file.mode() & 0o004 != 0) {
        tracing::warn!("{}: every user of this machine can read the keys", file.display());
    }
}

#[cfg(not(unix))]
fn warn_of_readers(_: &Path) {}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "writes key files as an operator does")]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;
    use stele_storage::local::LocalStorage;

    #[tokio::test]
    async fn an_encrypted_folder_needs_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let env = TokioRuntime::current();
        let open = async |path: PathBuf| Keys::open(&KeySources::parse(Some(path), "").unwrap(), &env).await;
        let right = open(file("right", format!("k1 {}\n", "11".repeat(32)))).await.unwrap();
        let wrong = open(file("wrong", format!("k1 {}\n", "22".repeat(32)))).await.unwrap();
        let damaged = open(file("damaged", "k1 1111\n".to_owned())).await;
        let error = format!("{:#}", damaged.err().unwrap());
        assert!(error.contains("damaged: line 1") && !error.contains("1111"), "{error}");
        let absent = open(folder.path().join("absent")).await.err().unwrap();
        assert!(format!("{absent:#}").contains("encryption_key_file"), "{absent:#}");

        let root = LocalStorage::open(&folder.path().join("data"), TokioRuntime::current()).unwrap();
        let plain = Keys::default().over(root.clone(), "DATA").await.unwrap();
        plain.put_if_absent("sst/1", "plain".into()).await.unwrap();
        // Looking begins no encryption.
        right.look(root.clone(), "DATA").await.unwrap();
        Keys::default().over(root.clone(), "DATA").await.unwrap();
        let open = right.over(root.clone(), "DATA").await.unwrap();
        open.put_if_absent("sst/2", "secret".into()).await.unwrap();
        for path in ["sst/1", "sst/2"] {
            let looking = right.look(root.clone(), "DATA").await.unwrap();
            assert_eq!(
                looking.read_all(path).await.unwrap(),
                open.read_all(path).await.unwrap()
            );
        }
        for refused in [
            Keys::default().over(root.clone(), "DATA").await.err(),
            Keys::default().look(root.clone(), "DATA").await.err(),
        ] {
            let error = format!("{:#}", refused.unwrap());
            assert!(
                error.contains("DATA is encrypted") && error.contains("--encryption-key-file"),
                "{error}"
            );
        }
        let error = format!("{:#}", wrong.over(root.clone(), "DATA").await.err().unwrap());
        assert!(error.contains("\"k1\" does not unwrap it"), "{error}");
    }
}
