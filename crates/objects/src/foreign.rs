//! A prefix of an object store whose files may be read.

use crate::ObjectMetrics;
use crate::address::Address;
use crate::store::Store;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_env::Env;
use stele_storage::foreign::{ForeignRoot, below};
use stele_storage::{ReadFile, Result, check_range};

/// The prefix of an address.
pub struct ForeignObjects {
    address: Address,
    store: Store,
}

impl ForeignObjects {
    /// Objects below an address.
    pub fn new(address: &Address, env: Env) -> ForeignObjects {
        ForeignObjects {
            store: address.store(env, ObjectMetrics::default()),
            address: address.clone(),
        }
    }
}

/// Whether a scheme of Hadoop, in lower case, is that of an address.
fn is_scheme(of_address: &str, scheme: &str) -> bool {
    match of_address {
        "s3" => matches!(scheme, "s3" | "s3a" | "s3n"),
        "az" => matches!(scheme, "az" | "abfs" | "abfss" | "wasb" | "wasbs"),
        other => other == scheme,
    }
}

/// Whether the authority of a URL, in lower case, is a bucket, or a container of this account. Hadoop names a container
/// of Azure `container@account.dfs.core.windows.net`, and other accounts may have one of the same name.
fn is_bucket((bucket, account): (&str, Option<&str>), authority: &str) -> bool {
    let is_lower = |text: &str| !text.contains(|c: char| c.is_ascii_uppercase());
    assert!(
        is_lower(bucket) && account.is_none_or(is_lower),
        "names are compared in lower case"
    );
    debug_assert!(is_lower(authority), "`below` gives authorities in lower case");
    match authority.split_once('@') {
        None => authority == bucket,
        Some((container, host)) => container == bucket && account.is_some() && host.split('.').next() == account,
    }
}

#[async_trait]
impl ForeignRoot for ForeignObjects {
    fn path_of<'u>(&self, url: &'u str) -> Option<&'u str> {
        let (scheme, rest) = self.address.shown().split_once("://")?;
        let (bucket, root) = rest.split_once('/').unwrap_or((rest, ""));
        let bucket = bucket.to_ascii_lowercase();
        let bucket = (&bucket[..], self.address.account());
        let is_same = |of_url: &str, authority: &str| is_scheme(scheme, of_url) && is_bucket(bucket, authority);
        below(url, root.trim_end_matches('/'), is_same)
    }

    async fn open(&self, path: &str, url: &str) -> Result<Arc<dyn ReadFile>> {
        let (len, _) = self.store.head(path).await?;
        Ok(Arc::new(ForeignObject {
            store: self.store.clone(),
            key: path.to_owned(),
            url: url.to_owned(),
            len,
        }))
    }
}

/// An object that is read without a cache: each byte is read once.
struct ForeignObject {
    store: Store,
    key: String,
    url: String,
    len: u64,
}

#[async_trait]
impl ReadFile for ForeignObject {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        check_range(&self.url, offset, len, self.len)?;
        let bytes = self.store.get_range(&self.key, offset, len).await?;
        assert_eq!(bytes.len(), len, "a range within an object is read whole");
        Ok(bytes)
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        check_range(&self.url, offset, len, self.len).err().map(Err)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &str {
        &self.url
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::{ObjectStoreExt, PutPayload};
    use stele_env::tokio_env::TokioRuntime;
    use stele_storage::foreign::ForeignFiles;
    use stele_types::ErrorKind;

    #[tokio::test]
    async fn objects_below_a_prefix_are_read() {
        let client = Arc::new(InMemory::new());
        let put = PutPayload::from_static(b"cells");
        client.put(&Path::from("stage/t/cf/f 1"), put).await.unwrap();
        let address = Address::of_client(client, "stage").shown_as("s3://bucket/stage");
        let root = ForeignObjects::new(&address, TokioRuntime::current());
        let files = ForeignFiles::new(vec![Arc::new(root)]);
        for url in ["s3a://bucket/stage/t/cf/f 1", "s3://Bucket/stage/t/cf/f 1"] {
            let file = files.open(url).await.unwrap();
            assert_eq!((file.len(), file.path()), (5, url));
            assert_eq!(file.read_at(1, 3).await.unwrap(), "ell");
            assert!(file.read_at(3, 3).await.is_err());
        }
        for (url, kind) in [
            ("s3a://bucket/stage/t/cf/other", ErrorKind::NotFound),
            ("s3a://bucket/other/t", ErrorKind::PermissionDenied),
            ("s3a://other/stage/t/cf/f 1", ErrorKind::PermissionDenied),
            ("gs://bucket/stage/t/cf/f 1", ErrorKind::PermissionDenied),
        ] {
            assert_eq!(
                files.open(url).await.err().map(|error| error.kind()),
                Some(kind),
                "{url}"
            );
        }
    }

    #[tokio::test]
    async fn a_container_of_another_account_is_outside() {
        let options = [("account_name", "mine"), ("access_key", "YQ==")];
        let options = options.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let address = Address::parse("az://c/stage", &options).unwrap();
        let root = ForeignObjects::new(&address, TokioRuntime::current());
        let own = "abfss://c@Mine.dfs.core.windows.net/stage/f";
        assert_eq!(root.path_of(own), Some("f"));
        assert_eq!(root.path_of("abfss://c@other.dfs.core.windows.net/stage/f"), None);
    }

    #[test]
    fn containers_of_azure_have_accounts() {
        let is_here = |authority| is_bucket(("c", Some("account")), authority);
        assert!(is_scheme("az", "abfss") && !is_scheme("gs", "s3a"));
        assert!(is_here("c@account.dfs.core.windows.net") && is_here("c@account.blob.core.windows.net"));
        assert!(is_here("c@account") && is_here("c"));
        for other in ["c@other.dfs.core.windows.net", "c@account2", "c@", "d@account", "d"] {
            assert!(!is_here(other), "{other}");
        }
        assert!(!is_bucket(("c", None), "c@account"), "the account is not known");
    }
}
