//! AWS KMS: the calls `Encrypt` and `Decrypt`, signed by Signature Version 4.
//!
//! Credentials come from the places that the AWS tools read, by the code that reaches S3.

use crate::client::{Answer, Client};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use object_store::aws::{AmazonS3Builder, AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpRequest, HttpRequestBody};
use reqwest::{Method, Request};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use stele_encryption::{DataKey, KEY_BYTES, KeyContext, KeyError, KeyService, Wrapped};
use zeroize::Zeroizing;

/// The name of the use of a data key in the encryption context. Decryption needs the same.
const CONTEXT_NAME: &str = "stele";

/// Errors after which another attempt may succeed. Most of them have status 400.
const BUSY: [&str; 6] = [
    "ThrottlingException",
    "RequestLimitExceeded",
    "LimitExceededException",
    "KMSInternalException",
    "DependencyTimeoutException",
    "KeyUnavailableException",
];

/// Errors of a data key that another key has encrypted, or for another use.
const REFUSED: [&str; 2] = ["InvalidCiphertextException", "IncorrectKeyException"];

/// A symmetric key of AWS KMS.
pub(crate) struct Aws {
    client: Client,
    region: String,
    credentials: AwsCredentialProvider,
    /// Its ARN. An alias may be of another key tomorrow.
    arn: String,
    id: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Operation<'a> {
    key_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plaintext: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ciphertext_blob: Option<String>,
    encryption_context: BTreeMap<&'a str, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Encrypted {
    ciphertext_blob: String,
    key_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Decrypted {
    plaintext: Zeroizing<String>,
}

#[derive(Default, Deserialize)]
struct Failure {
    #[serde(rename = "__type", default)]
    kind: String,
    #[serde(alias = "Message", default)]
    message: String,
}

impl Failure {
    fn of(answer: &Answer) -> Failure {
        let mut failure: Failure = serde_json::from_slice(&answer.body).unwrap_or_default();
        // Some answers have a namespace before the name of the error.
        if let Some((_, kind)) = failure.kind.rsplit_once('#') {
            failure.kind = kind.to_owned();
        }
        failure
    }
}

/// The id of the key of an ARN, if a data key can name it.
fn id_of(arn: &str) -> Option<String> {
    let name = arn.rsplit('/').next()?;
    let is_name = !name.is_empty() && name.len() <= 60 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    is_name.then(|| format!("aws.{name}"))
}

/// The id of the key that an answer names, and the base64 of the data key that it has, for fuzz targets.
pub(crate) fn parts(answer: &Answer) -> (Option<String>, Option<Zeroizing<String>>) {
    let encrypted = serde_json::from_slice::<Encrypted>(&answer.body).ok();
    let decrypted = serde_json::from_slice::<Decrypted>(&answer.body).ok();
    assert!(
        !Failure::of(answer).kind.contains('#'),
        "the name of an error has no namespace"
    );
    assert!(
        !(answer.status.is_success() && is_busy(answer)),
        "a success is not repeated"
    );
    let id = encrypted.and_then(|encrypted| id_of(&encrypted.key_id));
    (id, decrypted.map(|decrypted| decrypted.plaintext))
}

/// Whether another attempt may succeed.
fn is_busy(answer: &Answer) -> bool {
    let status = answer.status;
    let is_told = || BUSY.contains(&&Failure::of(answer).kind[..]);
    status.is_server_error() || status.as_u16() == 429 || (!status.is_success() && is_told())
}

impl Aws {
    /// Finds the key by an id, an alias or an ARN.
    pub(crate) async fn connect(client: Client, region: &str, key: &str) -> Result<Aws, KeyError> {
        // A client of S3 has the credentials of its environment; no bucket is ever asked for.
        let store = AmazonS3Builder::from_env().with_bucket_name("none").with_region(region);
        let store = store.build().map_err(|error| client.failed(error))?;
        Aws::find(client, store.credentials().clone(), region, key).await
    }

    async fn find(
        client: Client,
        credentials: AwsCredentialProvider,
        region: &str,
        key: &str,
    ) -> Result<Aws, KeyError> {
        let mut aws = Aws {
            credentials,
            client,
            region: region.to_owned(),
            arn: key.to_owned(),
            id: String::new(),
        };
        let found = aws.encrypt(&DataKey::new([0; KEY_BYTES]), &[0; 32]).await?;
        let Some(id) = id_of(&found.key_id) else {
            return Err(aws
                .client
                .failed(format!("the key has the unknown id {:?}", found.key_id)));
        };
        (aws.id, aws.arn) = (id, found.key_id);
        Ok(aws)
    }

    async fn encrypt(&self, key: &DataKey, context: &KeyContext) -> Result<Encrypted, KeyError> {
        let plaintext = Zeroizing::new(STANDARD.encode(key.bytes()));
        let operation = self.operation(Some(&plaintext), None, context);
        let answer = self.call("TrentService.Encrypt", &operation).await?;
        if !answer.status.is_success() {
            return Err(self.told(&answer));
        }
        serde_json::from_slice(&answer.body).map_err(|error| self.client.failed(error))
    }

    fn operation<'a>(
        &'a self,
        plaintext: Option<&'a str>,
        ciphertext: Option<&[u8]>,
        context: &KeyContext,
    ) -> Operation<'a> {
        Operation {
            key_id: &self.arn,
            plaintext,
            ciphertext_blob: ciphertext.map(|bytes| STANDARD.encode(bytes)),
            encryption_context: BTreeMap::from([(CONTEXT_NAME, STANDARD.encode(context))]),
        }
    }

    async fn call(&self, target: &'static str, operation: &Operation<'_>) -> Result<Answer, KeyError> {
        let body = serde_json::to_vec(operation).map_err(|error| self.client.failed(error))?;
        // Every copy shares these bytes, and the last one overwrites them.
        let body = Bytes::from_owner(Zeroizing::new(body));
        let mut attempts = self.client.attempts();
        loop {
            // Signatures have an end, so each attempt has its own.
            let request = self.request(target, body.clone()).await?;
            let outcome = self.client.send(request).await;
            if !outcome.as_ref().map_or(true, is_busy) || !attempts.again().await {
                return outcome;
            }
        }
    }

    async fn request(&self, target: &'static str, body: Bytes) -> Result<Request, KeyError> {
        let failed = |error: &dyn std::fmt::Display| self.client.failed(error);
        let credential = self.credentials.get_credential().await;
        let credential = credential.map_err(|error| failed(&error))?;
        let url = format!("{}/", self.client.url);
        let mut signed = HttpRequest::new(HttpRequestBody::empty());
        *signed.method_mut() = Method::POST;
        *signed.uri_mut() = url.parse().map_err(|_| failed(&"its URL is wrong"))?;
        let headers = signed.headers_mut();
        headers.insert(
            "content-type",
            reqwest::header::HeaderValue::from_static("application/x-amz-json-1.1"),
        );
        headers.insert("x-amz-target", reqwest::header::HeaderValue::from_static(target));
        let digest = ring::digest::digest(&ring::digest::SHA256, &body);
        AwsAuthorizer::new(&credential, "kms", &self.region)
            .try_authorize(&mut signed, Some(digest.as_ref()))
            .map_err(|error| failed(&error))?;
        let request = self
            .client
            .http
            .post(url)
            .headers(std::mem::take(signed.headers_mut()))
            .body(body);
        request.build().map_err(|error| failed(&error))
    }

    fn told(&self, answer: &Answer) -> KeyError {
        let failure = Failure::of(answer);
        let kind = match failure.kind.is_empty() {
            true => answer.status.to_string(),
            false => failure.kind,
        };
        self.client.failed(format!("{kind}: {}", failure.message))
    }
}

#[async_trait]
impl KeyService for Aws {
    fn current(&self) -> &str {
        &self.id
    }

    async fn wrap(&self, key: &DataKey, context: &KeyContext) -> Result<Wrapped, KeyError> {
        let encrypted = self.encrypt(key, context).await?;
        if encrypted.key_id != self.arn {
            return Err(self
                .client
                .failed(format!("the key {:?} has encrypted", encrypted.key_id)));
        }
        let bytes = STANDARD.decode(&encrypted.ciphertext_blob);
        Ok(Wrapped {
            by: self.id.clone(),
            bytes: bytes.map_err(|error| self.client.failed(error))?,
        })
    }

    async fn unwrap(&self, wrapped: &Wrapped, context: &KeyContext) -> Result<DataKey, KeyError> {
        if wrapped.by != self.id {
            return Err(KeyError::Unknown {
                id: wrapped.by.clone(),
                known: self.id.clone(),
            });
        }
        let operation = self.operation(None, Some(&wrapped.bytes), context);
        let answer = self.call("TrentService.Decrypt", &operation).await?;
        if !answer.status.is_success() {
            return Err(match REFUSED.contains(&&Failure::of(&answer).kind[..]) {
                true => KeyError::Refused { id: self.id.clone() },
                false => self.told(&answer),
            });
        }
        let decrypted: Decrypted =
            serde_json::from_slice(&answer.body).map_err(|_| self.client.failed("no key in the answer"))?;
        crate::client::data_key(&decrypted.plaintext).ok_or_else(|| KeyError::Refused { id: self.id.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KmsAddress;
    use crate::fake::Fake;
    use object_store::StaticCredentialProvider;
    use object_store::aws::AwsCredential;
    use std::sync::Arc;
    use stele_env::tokio_env::TokioRuntime;

    async fn key_at(fake: &Fake, key: &str) -> Result<Aws, KeyError> {
        let url = fake.url.clone();
        let address = KmsAddress::parse(&format!("aws-kms://eu-west-1/{key}"), |_| Some(url.clone())).unwrap();
        let env = TokioRuntime::current();
        let credentials = Arc::new(StaticCredentialProvider::new(AwsCredential {
            key_id: "ID".to_owned(),
            secret_key: "SECRET".to_owned(),
            token: Some("SESSION".to_owned()),
        }));
        Aws::find(Client::new(&address, &env).unwrap(), credentials, "eu-west-1", key).await
    }

    #[tokio::test]
    async fn a_key_comes_back_for_its_use_only() {
        let fake = Fake::start().await;
        let key = key_at(&fake, "alias/stele").await.unwrap();
        assert_eq!(key.current(), "aws.0a-1b");
        let wrapped = key.wrap(&DataKey::new([7; 32]), &[1; 32]).await.unwrap();
        assert_eq!(wrapped.by, "aws.0a-1b");
        assert_eq!(key.unwrap(&wrapped, &[1; 32]).await.unwrap().bytes(), &[7; 32]);
        let refused = KeyError::Refused {
            id: "aws.0a-1b".to_owned(),
        };
        assert_eq!(key.unwrap(&wrapped, &[2; 32]).await.unwrap_err(), refused);
        let damaged = Wrapped {
            bytes: b"other".to_vec(),
            ..wrapped.clone()
        };
        assert_eq!(key.unwrap(&damaged, &[1; 32]).await.unwrap_err(), refused);
        let other = Wrapped {
            by: "aws.2c".to_owned(),
            ..wrapped
        };
        assert!(matches!(
            key.unwrap(&other, &[1; 32]).await,
            Err(KeyError::Unknown { .. })
        ));

        let asked = fake.asked();
        let (first, last) = (&asked[0], &asked[asked.len() - 1]);
        assert_eq!(first.body["KeyId"], "alias/stele");
        assert_eq!(last.body["KeyId"], Fake::ARN, "an alias is followed once");
        assert!(
            first.header("authorization").contains("/eu-west-1/kms/aws4_request")
                && !first.header("authorization").contains("SECRET"),
            "{first:?}"
        );
        assert_eq!(first.header("x-amz-security-token"), "SESSION");
        assert_eq!(first.header("content-type"), "application/x-amz-json-1.1");
    }

    #[tokio::test]
    async fn a_busy_service_is_asked_again_and_others_fail() {
        let fake = Fake::start().await;
        let key = key_at(&fake, "0a-1b").await.unwrap();
        let wrap = async || key.wrap(&DataKey::new([7; 32]), &[1; 32]).await;
        fake.fail(400, r#"{"__type":"com.amazonaws.kms#ThrottlingException"}"#, 2);
        fake.fail(500, "<html>", 1);
        assert!(wrap().await.is_ok());
        fake.fail(400, r#"{"__type":"DisabledException","message":"is disabled"}"#, 1);
        let before = fake.asked().len();
        let error = wrap().await.unwrap_err().to_string();
        assert!(
            error.contains("aws-kms://eu-west-1/0a-1b: DisabledException: is disabled"),
            "{error}"
        );
        assert_eq!(fake.asked().len(), before + 1);
        fake.fail(503, "", 100);
        assert!(wrap().await.unwrap_err().to_string().contains("503"));
        assert_eq!(fake.asked().len(), before + 7, "attempts are bounded");
    }

    #[tokio::test]
    async fn an_answer_of_any_length_and_content_is_an_error() {
        let fake = Fake::start().await;
        let key = key_at(&fake, "0a-1b").await.unwrap();
        let wrapped = key.wrap(&DataKey::new([7; 32]), &[1; 32]).await.unwrap();
        for body in [
            "",
            "{}",
            "[1]",
            r#"{"Plaintext":"AAEC"}"#,
            r#"{"Plaintext":7}"#,
            &"x".repeat(1 << 20),
        ] {
            fake.fail(200, body, 12);
            assert!(key.unwrap(&wrapped, &[1; 32]).await.is_err(), "{:?}", body.get(..9));
            assert!(key.wrap(&DataKey::new([7; 32]), &[1; 32]).await.is_err());
            fake.fail(200, "", 0);
        }
    }
}
