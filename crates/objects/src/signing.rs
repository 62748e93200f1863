//! Signs requests to S3 again, with another time: Signature Version 4 of AWS.
//!
//! The client library signs each request with the time of this machine's clock, and has no setting for another one. The
//! signature names its own inputs: the key, the day, the region and the headers that it covers. A new one for the same
//! request therefore needs only the secret of that key.

use chrono::{DateTime, NaiveDateTime, Utc};
use http::Method;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use object_store::aws::AwsCredential;
use object_store::client::HttpRequest;
use reqwest::Url;
use ring::{digest, hmac};
use std::fmt::Write;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";
const TIME_HEADER: &str = "x-amz-date";
const HASH_HEADER: &str = "x-amz-content-sha256";
const TIME_FORMAT: &str = "%Y%m%dT%H%M%SZ";

/// The time of a signature, in whole seconds; `None` when a request has none of this kind.
pub(crate) fn signing_time(headers: &HeaderMap) -> Option<DateTime<Utc>> {
    let text = headers.get(TIME_HEADER)?.to_str().ok()?;
    let time = NaiveDateTime::parse_from_str(text, TIME_FORMAT).ok()?;
    Some(time.and_utc())
}

/// The inputs that the value of an `Authorization` header names.
struct Inputs<'a> {
    key_id: &'a str,
    region: &'a str,
    /// Names of headers in lower case, sorted, with semicolons between them.
    headers: &'a str,
}

impl<'a> Inputs<'a> {
    fn parse(authorization: &'a str) -> Option<Inputs<'a>> {
        let mut fields = authorization.strip_prefix(ALGORITHM)?.split(',').map(str::trim);
        let credential = fields.next()?.strip_prefix("Credential=")?;
        let headers = fields.next()?.strip_prefix("SignedHeaders=")?;
        // From the end, because the id of a key may have a slash.
        let mut scope = credential.rsplitn(5, '/');
        let (_end, service, region, _day) = (scope.next()?, scope.next()?, scope.next()?, scope.next()?);
        let key_id = scope.next()?;
        (service == SERVICE).then_some(Inputs {
            key_id,
            region,
            headers,
        })
    }
}

/// Signs a request again with this time. `None`, and nothing is changed, when it has no signature by this credential.
pub(crate) fn sign_again(request: &mut HttpRequest, credential: &AwsCredential, time: DateTime<Utc>) -> Option<()> {
    let headers = request.headers();
    let authorization = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let inputs = Inputs::parse(authorization)?;
    if inputs.key_id != credential.key_id {
        return None;
    }
    let url = Url::parse(&request.uri().to_string()).ok()?;
    let time_text = time.format(TIME_FORMAT).to_string();
    let canonical = canonical_request(request.method(), &url, headers, (inputs.headers, &time_text))?;
    let (day, region) = (time.format("%Y%m%d").to_string(), inputs.region);
    let scope = format!("{day}/{region}/{SERVICE}/aws4_request");
    let hash = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let to_sign = format!("{ALGORITHM}\n{time_text}\n{scope}\n{hash}");
    let secret = format!("AWS4{}", credential.secret_key);
    let parts = [day.as_str(), region, SERVICE, "aws4_request", &to_sign];
    let start = secret.into_bytes();
    let signature = parts.iter().fold(start, |key, part| keyed_hash(&key, part));
    let (key_id, signed) = (inputs.key_id, inputs.headers);
    let signature = hex(&signature);
    assert_eq!(signature.len(), 64, "a signature is a SHA-256");
    let authorization =
        format!("{ALGORITHM} Credential={key_id}/{scope}, SignedHeaders={signed}, Signature={signature}");
    let authorization = HeaderValue::from_str(&authorization).ok()?;
    let time = HeaderValue::from_str(&time_text).ok()?;
    request.headers_mut().insert(AUTHORIZATION, authorization);
    request.headers_mut().insert(TIME_HEADER, time);
    Some(())
}

/// The text that a signature covers. `None` when a header of it is missing.
fn canonical_request(method: &Method, url: &Url, headers: &HeaderMap, (signed, time): (&str, &str)) -> Option<String> {
    let mut lines = String::new();
    for name in signed.split(';') {
        let value = match name {
            // The HTTP client adds it.
            "host" => host(url)?,
            TIME_HEADER => time.to_owned(),
            name => canonical_values(headers, name)?,
        };
        let _ = writeln!(lines, "{name}:{value}");
    }
    debug_assert!(lines.ends_with('\n'), "each header ends its line");
    let hash = headers.get(HASH_HEADER)?.to_str().ok()?;
    let (path, query) = (url.path(), canonical_query(url));
    Some(format!("{method}\n{path}\n{query}\n{lines}\n{signed}\n{hash}"))
}

/// The host with its port, unless that is the one of the scheme.
fn host(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

/// The values of a header with a comma between them and single spaces within them. `None` when there are none.
fn canonical_values(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = Vec::new();
    for value in headers.get_all(name) {
        let words: Vec<&str> = std::str::from_utf8(value.as_bytes()).ok()?.split_whitespace().collect();
        values.push(words.join(" "));
    }
    (!values.is_empty()).then(|| values.join(","))
}

/// The query with its parameters encoded strictly, and sorted as they are encoded.
fn canonical_query(url: &Url) -> String {
    let pairs = url.query_pairs();
    let mut pairs: Vec<(String, String)> = pairs.map(|(key, value)| (encode(&key), encode(&value))).collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join("&")
}

/// Percent-encodes all but the unreserved characters of RFC 3986.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    debug_assert!(encoded.is_ascii() && encoded.len() >= text.len(), "encoding only adds");
    encoded
}

fn keyed_hash(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    assert_eq!(text.len(), 2 * bytes.len(), "a byte has two digits");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeDelta;
    use object_store::aws::AwsAuthorizer;
    use object_store::client::HttpRequestBody;

    fn credential(token: Option<&str>) -> AwsCredential {
        AwsCredential {
            key_id: "KEY/1".to_owned(),
            secret_key: "secret+/=".to_owned(),
            token: token.map(str::to_owned),
        }
    }

    fn signed(method: Method, uri: &str, body: &'static str, credential: &AwsCredential) -> HttpRequest {
        let mut request = HttpRequest::new(HttpRequestBody::from(body.to_owned()));
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().unwrap();
        let headers = request.headers_mut();
        headers.insert("x-amz-meta-mark", HeaderValue::from_static(" two   words "));
        headers.insert("if-none-match", HeaderValue::from_static("*"));
        let authorizer = AwsAuthorizer::new(credential, SERVICE, "eu-west-1");
        authorizer.try_authorize(&mut request, None).unwrap();
        request
    }

    /// Requests that the library has signed get the same signature for the same time, and another one for another time.
    #[test]
    fn the_signature_is_that_of_the_library() {
        for (method, uri, body) in [
            (Method::PUT, "http://127.0.0.1:7070/bucket/log/0000/1.log.1", "content"),
            (Method::GET, "https://bucket.s3.eu-west-1.amazonaws.com:443/a%20b/c", ""),
            (
                Method::GET,
                "https://h/bucket?list-type=2&prefix=a%2Fb%20c&delimiter=%2F",
                "",
            ),
            (Method::POST, "http://h/b/key?uploads", ""),
            (
                Method::PUT,
                "http://h/b/k?uploadId=a%2Bb~&partNumber=3&partNumber=10",
                "x",
            ),
        ] {
            for token in [None, Some("SESSION")] {
                let credential = credential(token);
                let by_library = signed(method.clone(), uri, body, &credential);
                let time = signing_time(by_library.headers()).unwrap();
                let mut request = by_library.clone();
                request
                    .headers_mut()
                    .insert(TIME_HEADER, HeaderValue::from_static("wrong"));
                sign_again(&mut request, &credential, time).unwrap();
                assert_eq!(request.headers(), by_library.headers(), "{uri}");

                let later = time + TimeDelta::days(2);
                sign_again(&mut request, &credential, later).unwrap();
                assert_eq!(signing_time(request.headers()), Some(later));
                let [first, second] = [&by_library, &request].map(|request| &request.headers()[AUTHORIZATION]);
                assert_ne!(first, second, "{uri}");
            }
        }
    }

    #[test]
    fn requests_without_a_signature_by_the_credential_stay() {
        let key = credential(None);
        let time = DateTime::UNIX_EPOCH;
        let sound = signed(Method::GET, "http://h/b/k", "", &key);
        let other = AwsCredential {
            key_id: "OTHER".to_owned(),
            ..credential(None)
        };
        assert_eq!(sign_again(&mut sound.clone(), &other, time), None);
        let all =
            "AWS4-HMAC-SHA256 Credential=KEY/1/20260101/r/s3/aws4_request, SignedHeaders=host;absent, Signature=0";
        for wrong in [
            "Bearer a",
            "AWS4-HMAC-SHA256",
            "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=b",
            all,
        ] {
            let mut request = sound.clone();
            let value = HeaderValue::from_str(wrong).unwrap();
            request.headers_mut().insert(AUTHORIZATION, value);
            let before = request.headers().clone();
            assert_eq!(sign_again(&mut request, &key, time), None, "{wrong}");
            assert_eq!(request.headers(), &before);
        }
        let mut plain = HttpRequest::new(HttpRequestBody::empty());
        assert_eq!(sign_again(&mut plain, &key, time), None);
        assert_eq!(signing_time(plain.headers()), None);
    }
}
