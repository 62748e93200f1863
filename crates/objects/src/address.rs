//! An address selects a store and a prefix: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.
//!
//! Credentials and endpoints come from the variables that the providers' own tools read (`AWS_ACCESS_KEY_ID`,
//! `AWS_ENDPOINT_URL`, `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME`, …), and from options, which win.

use crate::ObjectMetrics;
use crate::clock::{StoreClock, Watched};
use crate::store::{Client, Store};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{HttpConnector, ReqwestConnector};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientConfigKey, RetryConfig};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_storage::check_path;

/// The library's own limit of a request, above all of ours.
const REQUEST_LIMIT: &str = "30 minutes";
/// To reach an existing host takes less than a second.
const CONNECT_LIMIT: &str = "5 seconds";

/// The account of Azure's emulator.
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";

/// A bucket and a prefix in it, with the client to reach them.
#[derive(Clone)]
pub struct Address {
    shown: String,
    client: Arc<dyn Client>,
    root: String,
    /// The store's, as the client's responses tell it.
    clock: Arc<StoreClock>,
    /// The account of Azure that a container is of, in lower case; `None` for other stores.
    account: Option<String>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// An error in an address or an option.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(String);

impl Address {
    /// A prefix of a store that the caller provides.
    pub fn of_client(client: Arc<dyn Client>, root: &str) -> Address {
        Address {
            shown: format!("{client}/{root}"),
            client,
            root: root.to_owned(),
            clock: Arc::default(),
            account: None,
        }
    }

    /// The address as it was given.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// The account of Azure, in lower case.
    pub(crate) fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// The same under another text.
    #[cfg(test)]
    pub(crate) fn shown_as(mut self, shown: &str) -> Address {
        shown.clone_into(&mut self.shown);
        self
    }

    /// Whether a text is an address of an object store, and not a folder.
    pub fn is_one(text: &str) -> bool {
        ["s3://", "gs://", "az://"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
    }

    /// An address with options such as `("endpoint", "https://127.0.0.1:7070")`. The keys are those of the `object_store`
    /// library, with or without the provider's prefix.
    pub fn parse(text: &str, options: &[(String, String)]) -> Result<Address, AddressError> {
        Address::parse_over(text, options, ReqwestConnector::default())
    }

    /// The same over the caller's connections.
    pub(crate) fn parse_over(
        text: &str,
        options: &[(String, String)],
        connector: impl HttpConnector,
    ) -> Result<Address, AddressError> {
        let wrong = |what: &str| AddressError(format!("{text:?}: {what}"));
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("no scheme such as s3://"))?;
        let (bucket, root) = rest.split_once('/').unwrap_or((rest, ""));
        let root = root.trim_end_matches('/');
        if bucket.is_empty() {
            return Err(wrong("no bucket"));
        }
        if !root.is_empty() && stele_storage::check_path(root).is_err() {
            return Err(wrong(
                "a prefix is of letters, digits, `.`, `_` and `-`, and of single slashes",
            ));
        }
        install_tls();
        let failed = |error: object_store::Error| AddressError(format!("{text:?}: {error}"));
        let url = format!("{scheme}://{bucket}");
        let clock = Arc::new(StoreClock::default());
        let watched = Watched {
            connector,
            clock: Arc::clone(&clock),
        };
        let account;
        // The three builders have the same methods and no trait.
        macro_rules! build {
            ($builder:ty, $key:ty) => {{
                let builder = <$builder>::from_env()
                    .with_url(url)
                    .with_retry(no_retries())
                    .with_http_connector(watched)
                    .with_config(<$key>::Client(ClientConfigKey::Timeout), REQUEST_LIMIT)
                    .with_config(<$key>::Client(ClientConfigKey::ConnectTimeout), CONNECT_LIMIT);
                let builder = options.iter().try_fold(builder, |builder, (key, value)| {
                    let known = <$key>::from_str(&key.to_ascii_lowercase());
                    let known = known.map_err(|_| AddressError(format!("unknown option {key:?} of {scheme}://")))?;
                    Ok(builder.with_config(known, value))
                })?;
                let set = |key: &str| builder.get_config_value(&<$key>::from_str(key).ok()?);
                check_endpoint(&set).map_err(|why| wrong(&why))?;
                check_sendable(&set).map_err(|why| wrong(&why))?;
                account = account_of(&set);
                Arc::new(builder.build().map_err(failed)?)
            }};
        }
        let client: Arc<dyn Client> = match scheme {
            "s3" => {
                let client = build!(AmazonS3Builder, AmazonS3ConfigKey);
                clock.sign_with(client.credentials());
                client
            }
            "gs" => build!(GoogleCloudStorageBuilder, GoogleConfigKey),
            "az" => build!(MicrosoftAzureBuilder, AzureConfigKey),
            _ => return Err(wrong("the schemes are s3, gs and az")),
        };
        assert!(!root.ends_with('/'), "keys are joined to the root with a slash");
        Ok(Address {
            shown: text.to_owned(),
            client,
            root: root.to_owned(),
            clock,
            account,
        })
    }

    /// A prefix below this one.
    pub fn below(&self, path: &str) -> Address {
        assert!(check_path(path).is_ok(), "{path:?} is a path below a prefix");
        let join = |base: &str| match base.is_empty() {
            true => path.to_owned(),
            false => format!("{base}/{path}"),
        };
        Address {
            shown: join(self.shown.trim_end_matches('/')),
            client: Arc::clone(&self.client),
            root: join(&self.root),
            clock: Arc::clone(&self.clock),
            account: self.account.clone(),
        }
    }

    pub(crate) fn store(&self, env: Env, metrics: ObjectMetrics) -> Store {
        Store::new(Arc::clone(&self.client), &self.root, env, metrics).with_clock(Arc::clone(&self.clock))
    }
}

/// The retries are ours ([`crate::store`]).
fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        retry_timeout: Duration::ZERO,
        ..RetryConfig::default()
    }
}

/// The account of Azure that the options name, as the library chooses it.
fn account_of(set: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_emulated = set("use_emulator").is_some_and(|value| is_yes(&value));
    let of_emulator = || is_emulated.then(|| EMULATOR_ACCOUNT.to_owned());
    let account = set("account_name").or_else(of_emulator);
    account.map(|account| account.to_ascii_lowercase())
}

/// Refuses an endpoint without TLS where the settings do not allow one. The library does so with each request, and does not name
/// the option. `set` gives the value of an option; stores that have none of this name allow it.
fn check_endpoint(set: &impl Fn(&str) -> Option<String>) -> Result<(), String> {
    let is_on = |key: &str| set(key).is_some_and(|value| is_yes(&value));
    let endpoint = set("aws_endpoint_url_s3")
        .or_else(|| set("endpoint"))
        .unwrap_or_default();
    let is_plain = endpoint.to_ascii_lowercase().starts_with("http://");
    match is_plain && !is_on("allow_http") && !is_on("use_emulator") {
        true => Err(format!(
            "the endpoint {endpoint} is without TLS: give the option allow_http=true as well"
        )),
        false => Ok(()),
    }
}

/// Options that are URLs of requests.
const URLS: [&str; 6] = [
    "endpoint",
    "aws_endpoint_url_s3",
    "metadata_endpoint",
    "container_credentials_full_uri",
    "msi_endpoint",
    "authority_host",
];

/// Options that go into headers or URLs of requests.
const IN_HEADERS: [&str; 8] = [
    "access_key_id",
    "secret_access_key",
    "token",
    "region",
    "default_region",
    "account_name",
    "client_id",
    "tenant_id",
];

/// Refuses values of which no request can be made: the library panics where it builds one.
fn check_sendable(set: &impl Fn(&str) -> Option<String>) -> Result<(), String> {
    for option in URLS {
        let Some(value) = set(option).filter(|value| !value.is_empty()) else {
            continue;
        };
        let parsed = http::Uri::from_str(&value).ok();
        let is_sound =
            |uri: &http::Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some();
        if !parsed.as_ref().is_some_and(is_sound) {
            return Err(format!(
                "the option {option} is no URL such as https://host:port: {value:?}"
            ));
        }
    }
    for option in IN_HEADERS {
        if set(option).is_some_and(|value| http::HeaderValue::from_str(&value).is_err()) {
            return Err(format!(
                "the option {option} has a character that a request cannot have"
            ));
        }
    }
    Ok(())
}

/// Whether the library takes a value as true.
fn is_yes(value: &str) -> bool {
    ["1", "true", "on", "yes", "y"].contains(&value.to_ascii_lowercase().as_str())
}

/// Selects the TLS library's implementation of its algorithms, which must be done once.
fn install_tls() {
    // It fails if another caller has already installed one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library would panic at the first request.
    #[test]
    fn options_of_which_no_request_can_be_made_are_refused() {
        let refused = |option: &str, value: &str| {
            let options = [(option.to_owned(), value.to_owned())];
            let error = Address::parse("s3://bucket/root", &options).err();
            error.expect("it is refused").to_string()
        };
        for endpoint in ["minio:9000", "ftp://host", "https://", "host", "https://a b"] {
            assert!(refused("endpoint", endpoint).contains("endpoint"), "{endpoint}");
        }
        assert!(refused("access_key_id", "key\n").contains("access_key_id"));
        assert!(refused("region", "eu\r").contains("region"));
    }

    #[test]
    fn addresses() {
        for good in ["s3://bucket", "s3://bucket/a/b-1/", "gs://bucket/a"] {
            Address::parse(good, &[]).unwrap();
        }
        for (bad, why) in [
            ("bucket/a", "scheme"),
            ("ftp://bucket", "schemes"),
            ("s3:///a", "no bucket"),
            ("s3://bucket/a//b", "prefix"),
            ("s3://bucket/a b", "prefix"),
        ] {
            let error = Address::parse(bad, &[]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let option = |key: &str| [(key.to_owned(), "http://127.0.0.1:1".to_owned())];
        let error = Address::parse("s3://bucket", &option("endpint")).unwrap_err();
        assert!(error.to_string().contains("endpint"), "{error}");
        assert!(Address::is_one("s3://x") && !Address::is_one("./data"));
    }

    #[test]
    fn only_containers_of_azure_have_accounts() {
        let account = |address: &str, options: &[(&str, &str)]| {
            let owned = options
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let address = Address::parse(address, &owned.collect::<Vec<_>>()).unwrap();
            address.below("a").account().map(str::to_owned)
        };
        let named = [("account_name", "Mine"), ("access_key", "YQ==")];
        assert_eq!(account("az://container", &named).as_deref(), Some("mine"));
        let emulated = account("az://container", &[("use_emulator", "true")]);
        assert_eq!(emulated.as_deref(), Some(EMULATOR_ACCOUNT));
        assert_eq!((account("s3://b", &[]), account("gs://b", &[])), (None, None));
    }

    #[test]
    fn an_endpoint_without_tls_is_to_be_allowed() {
        let parse = |address: &str, options: &[(&str, &str)]| {
            let owned = options
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let parsed = Address::parse(address, &owned.collect::<Vec<_>>());
            parsed.map(|_| ()).map_err(|error| error.to_string())
        };
        let account = [("account_name", "a"), ("access_key", "YQ==")];
        for (address, more) in [("s3://bucket", &[][..]), ("az://container", &account)] {
            let with = |options: &[(&str, &str)]| parse(address, &[more, options].concat());
            for plain in ["http://127.0.0.1:1", "HTTP://h:1"] {
                let error = with(&[("endpoint", plain)]).unwrap_err();
                assert!(error.contains("allow_http=true"), "{error}");
                assert!(with(&[("endpoint", plain), ("allow_http", "false")]).is_err());
                for yes in ["true", "yes", "1"] {
                    assert_eq!(with(&[("endpoint", plain), ("allow_http", yes)]), Ok(()));
                }
            }
            assert_eq!(with(&[("endpoint", "https://127.0.0.1:1")]), Ok(()));
        }
        assert_eq!(parse("az://container", &[("use_emulator", "true")]), Ok(()));
        let first = [("aws_endpoint_url_s3", "https://h:1"), ("endpoint", "http://h:1")];
        assert_eq!(parse("s3://bucket", &first), Ok(()));
    }
}
