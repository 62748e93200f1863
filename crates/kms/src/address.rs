//! The address of a key: `aws-kms://REGION/KEY`, `aws-kms://ARN`, `vault://HOST[:PORT]/MOUNT/KEY`.

use std::fmt;

/// Bytes of the names of a mount and a key of Vault, so that they are an id of a key-encryption key together with a version.
const VAULT_NAMES_MAX: usize = 48;

/// A key of a key management service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KmsAddress {
    shown: String,
    /// Of the service, without a slash at its end.
    pub(crate) url: String,
    pub(crate) key: Key,
}

/// The service, and its name for the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// AWS KMS.
    Aws {
        region: String,
        /// An id, an alias or an ARN.
        key: String,
    },
    /// The transit engine of HashiCorp Vault, or of OpenBao.
    Vault { mount: String, key: String },
}

/// A text that is no address of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(String);

impl KmsAddress {
    /// Parses an address. `variable` gives variables of the environment: `AWS_ENDPOINT_URL_KMS` takes the place of the region's
    /// own endpoint.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<KmsAddress, AddressError> {
        let wrong = |problem: &str| AddressError(format!("{text:?}: {problem}"));
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong("no scheme such as aws-kms://"));
        };
        let (url, key) = match scheme {
            "aws-kms" => {
                let (region, key) = aws_key(rest)
                    .ok_or_else(|| wrong("an address is aws-kms://REGION/KEY or aws-kms:// and the ARN of a key"))?;
                let url = variable("AWS_ENDPOINT_URL_KMS").unwrap_or_else(|| {
                    let ending = if region.starts_with("cn-") { ".cn" } else { "" };
                    format!("https://kms.{region}.amazonaws.com{ending}")
                });
                (url, Key::Aws { region, key })
            }
            "vault" | "vault+http" => {
                let (host, names) = rest.split_once('/').unwrap_or((rest, ""));
                let (mount, key) = vault_key(names)
                    .filter(|_| !host.is_empty())
                    .ok_or_else(|| wrong("an address is vault://HOST[:PORT]/MOUNT/KEY"))?;
                if mount.len() + key.len() > VAULT_NAMES_MAX {
                    return Err(wrong("the names of mount and key have more than 48 characters"));
                }
                let scheme = if scheme == "vault" { "https" } else { "http" };
                (format!("{scheme}://{host}"), Key::Vault { mount, key })
            }
            _ => return Err(wrong("the schemes are aws-kms and vault")),
        };
        Ok(KmsAddress {
            shown: text.to_owned(),
            url: url.trim_end_matches('/').to_owned(),
            key,
        })
    }

    /// The URL that requests go to. Data keys pass there as plain text.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl fmt::Display for KmsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Region and name of a key of AWS KMS.
fn aws_key(rest: &str) -> Option<(String, String)> {
    let is_region = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if rest.starts_with("arn:") {
        let parts: Vec<&str> = rest.splitn(6, ':').collect();
        let [_, _, "kms", region, _, name] = parts[..] else {
            return None;
        };
        let is_key = name.starts_with("key/") || name.starts_with("alias/");
        return (is_region(region) && is_key && is_name(name)).then(|| (region.to_owned(), rest.to_owned()));
    }
    let (region, key) = rest.split_once('/')?;
    (is_region(region) && is_name(key)).then(|| (region.to_owned(), key.to_owned()))
}

/// Mount and name of a key of Vault.
fn vault_key(names: &str) -> Option<(String, String)> {
    let (mount, key) = names.rsplit_once('/')?;
    (is_name(mount) && is_name(key)).then(|| (mount.to_owned(), key.to_owned()))
}

/// Names, with single slashes between them.
fn is_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        !part.is_empty() && part != "." && part != ".." && part.bytes().all(allowed)
    };
    text.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<KmsAddress, AddressError> {
        KmsAddress::parse(text, |_| None)
    }

    #[test]
    fn an_address_has_a_url_and_a_key() {
        let aws = |region: &str, key: &str| Key::Aws {
            region: region.to_owned(),
            key: key.to_owned(),
        };
        let vault = |mount: &str, key: &str| Key::Vault {
            mount: mount.to_owned(),
            key: key.to_owned(),
        };
        let arn = "arn:aws:kms:eu-west-1:111122223333:key/mrk-1";
        for (text, url, key) in [
            (
                "aws-kms://eu-west-1/alias/stele",
                "https://kms.eu-west-1.amazonaws.com",
                aws("eu-west-1", "alias/stele"),
            ),
            (
                "aws-kms://cn-north-1/0a-1b",
                "https://kms.cn-north-1.amazonaws.com.cn",
                aws("cn-north-1", "0a-1b"),
            ),
            (
                &format!("aws-kms://{arn}")[..],
                "https://kms.eu-west-1.amazonaws.com",
                aws("eu-west-1", arn),
            ),
            (
                "vault://vault.example:8200/transit/stele",
                "https://vault.example:8200",
                vault("transit", "stele"),
            ),
            (
                "vault+http://127.0.0.1:8200/team/transit/stele",
                "http://127.0.0.1:8200",
                vault("team/transit", "stele"),
            ),
        ] {
            let address = parse(text).unwrap();
            assert_eq!((address.url(), &address.key), (url, &key), "{text}");
            assert_eq!(address.to_string(), text);
        }
        let variable = |name: &str| (name == "AWS_ENDPOINT_URL_KMS").then(|| "http://localhost:1/".to_owned());
        let address = KmsAddress::parse("aws-kms://eu-west-1/k", variable).unwrap();
        assert_eq!(address.url(), "http://localhost:1");
    }

    #[test]
    fn a_wrong_address_is_told() {
        let long = format!("vault://h/transit/{}", "k".repeat(42));
        for (text, problem) in [
            ("alias/stele", "no scheme"),
            ("gcp-kms://x/y", "the schemes are"),
            ("aws-kms://eu-west-1", "aws-kms://REGION/KEY"),
            ("aws-kms:///key", "aws-kms://REGION/KEY"),
            ("aws-kms://eu-west-1/a b", "aws-kms://REGION/KEY"),
            ("aws-kms://eu.example/key", "aws-kms://REGION/KEY"),
            ("aws-kms://arn:aws:s3:::bucket", "aws-kms://REGION/KEY"),
            ("aws-kms://arn:aws:kms:r:1:grant/x", "aws-kms://REGION/KEY"),
            ("vault://host", "vault://HOST"),
            ("vault://host/key", "vault://HOST"),
            ("vault:///transit/key", "vault://HOST"),
            ("vault://host/transit/../key", "vault://HOST"),
            ("vault://host/transit/key?x", "vault://HOST"),
            (&long, "more than 48"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains(text), "{error}");
        }
    }
}
