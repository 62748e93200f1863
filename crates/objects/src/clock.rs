//! The clock of the store, as its responses tell it.
//!
//! A signature has a time, and a store refuses one that is far from its own clock: S3 and Azure from 15 minutes on. The
//! refusal has the status of a missing right. Here it is told apart by the `Date` of the response, and becomes an error that
//! names the cause and that another attempt may not meet. Requests to S3 are then signed with the store's time
//! ([`crate::signing`]). Those to Azure are not, so their attempts fail until the clock is set right. Requests to Google have
//! tokens without a time of their own.
//!
//! This module reads no clock. The time of this machine is the one that the client library has signed a request with.

use crate::signing::{sign_again, signing_time};
use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt;
use http::StatusCode;
use http::header::{DATE, HeaderMap};
use object_store::ClientOptions;
use object_store::aws::AwsCredential;
use object_store::client::{
    CredentialProvider, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// From this difference on, a refusal is one of the time. Stores allow 15 minutes, and none is known to allow less than
/// this. A smaller one is the time that a request was under way, and a `Date` in whole seconds.
const REFUSED_FROM_SECS: u64 = 5 * 60;

/// The code of a refusal for the time by S3.
const S3_CODE: &str = "RequestTimeTooSkewed";
/// The same by Azure, which has it for wrong signatures, too.
const AZURE_AUTHENTICATION: &str = "AuthenticationFailed";
const AZURE_CODE: &str = "x-ms-error-code";

/// Bytes of the text of a refusal. Error texts of stores are shorter.
const TEXT_BYTES_MAX: usize = 2 << 10;

type S3Credentials = dyn CredentialProvider<Credential = AwsCredential>;

/// The difference between two clocks, shared by all requests of one client. Seconds by which the store's clock is ahead of
/// this machine's.
#[derive(Debug, Default)]
pub(crate) struct StoreClock {
    /// By the last response to a request without a body. Others are longer under way.
    ahead_secs: AtomicI64,
    /// By the last refusal: added to the times of signatures. 0 until there is one.
    correction_secs: AtomicI64,
    /// Those of a client of S3, which owns them, and also this through its connections.
    credentials: OnceLock<Weak<S3Credentials>>,
}

impl StoreClock {
    /// Seconds by which the store's clock is ahead; 0 before the first response.
    pub(crate) fn ahead_secs(&self) -> i64 {
        self.ahead_secs.load(Ordering::Relaxed)
    }

    /// Lets requests that these credentials have signed be signed again.
    pub(crate) fn sign_with(&self, credentials: &Arc<S3Credentials>) {
        let first = self.credentials.set(Arc::downgrade(credentials));
        assert!(first.is_ok(), "a client has one source of credentials");
    }

    /// Gives a request the store's time, if that is known to differ. Returns the seconds that were added.
    async fn correct(&self, request: &mut HttpRequest, own: DateTime<Utc>) -> i64 {
        let correction = self.correction_secs.load(Ordering::Relaxed);
        let credentials = self.credentials.get().and_then(Weak::upgrade);
        let (true, Some(credentials)) = (correction != 0, credentials) else {
            return 0;
        };
        assert!(
            correction.unsigned_abs() >= REFUSED_FROM_SECS,
            "only a difference that a store refuses is corrected"
        );
        // Without them the library would not have signed.
        let Ok(credential) = credentials.get_credential().await else {
            return 0;
        };
        let time = own.checked_add_signed(TimeDelta::seconds(correction));
        let signed = time.and_then(|time| sign_again(request, &credential, time));
        signed.map_or(0, |()| correction)
    }

    /// Whether a request was refused for its time, and not for a missing right. `off_secs` is the difference of its time to the `Date`.
    fn is_for_time(&self, headers: &HeaderMap, text: &str, off_secs: u64, added_secs: i64) -> bool {
        let code = headers
            .get(AZURE_CODE)
            .and_then(|code| code.to_str().ok())
            .unwrap_or_default();
        let names = |code_of_time: &str| code == code_of_time || text.contains(code_of_time);
        let is_signed_again = self.credentials.get().is_some_and(|known| known.strong_count() > 0);
        match off_secs >= REFUSED_FROM_SECS {
            // If it is for a missing right, the next attempt is refused with the store's time.
            true if is_signed_again => true,
            true => names(S3_CODE) || names(AZURE_AUTHENTICATION),
            // A proxy has put its own `Date` into earlier responses, which is not the time of the store.
            false => added_secs != 0 && names(S3_CODE),
        }
    }

    /// Notes the difference after a refusal of a request to whose time `added_secs` were added.
    fn learn(&self, ahead_secs: i64, added_secs: i64) {
        let is_small = ahead_secs.unsigned_abs() < REFUSED_FROM_SECS;
        let is_wrong = ahead_secs.abs_diff(added_secs) < REFUSED_FROM_SECS;
        let correction = if is_small || is_wrong { 0 } else { ahead_secs };
        let before = self.correction_secs.swap(correction, Ordering::Relaxed);
        if before.abs_diff(correction) >= REFUSED_FROM_SECS {
            tracing::warn!(
                ahead_secs,
                "the object store refused a request for its time, because its clock differs from this machine's"
            );
        }
    }
}

/// A refusal for the time of the request.
#[derive(Debug)]
pub(crate) struct RefusedForTime {
    /// Of the store's clock, compared with this machine's.
    ahead_secs: i64,
    /// Of the store.
    text: String,
}

impl std::error::Error for RefusedForTime {}

impl std::fmt::Display for RefusedForTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let by_secs = self.ahead_secs.unsigned_abs();
        let minutes = by_secs.saturating_add(30) / 60;
        match self.ahead_secs {
            _ if by_secs < REFUSED_FROM_SECS => {
                write!(f, "this machine's clock was set while it asked the object store")?
            }
            1.. => write!(f, "this machine's clock is {minutes} minutes behind the object store's")?,
            _ => write!(
                f,
                "this machine's clock is {minutes} minutes ahead of the object store's"
            )?,
        }
        write!(f, ", which refuses such requests: {}", self.text)
    }
}

impl RefusedForTime {
    /// Whether this is the cause of an error.
    pub(crate) fn is_cause_of(error: &(dyn std::error::Error + 'static)) -> bool {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        causes.any(|cause| cause.is::<RefusedForTime>())
    }
}

/// Makes connections that watch the store's clock.
#[derive(Debug)]
pub(crate) struct Watched<C> {
    pub(crate) connector: C,
    pub(crate) clock: Arc<StoreClock>,
}

impl<C: HttpConnector> HttpConnector for Watched<C> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Connection {
            inner: self.connector.connect(options)?,
            clock: Arc::clone(&self.clock),
        }))
    }
}

#[derive(Debug)]
struct Connection {
    inner: HttpClient,
    clock: Arc<StoreClock>,
}

#[async_trait]
impl HttpService for Connection {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let Some(own) = signing_time(request.headers()).or_else(|| date(request.headers())) else {
            return self.inner.execute(request).await;
        };
        let added_secs = self.clock.correct(&mut request, own).await;
        let has_body = request.body().content_length() > 0;
        let response = self.inner.execute(request).await?;
        let Some(of_store) = date(response.headers()) else {
            return Ok(response);
        };
        let ahead_secs = of_store.signed_duration_since(own).num_seconds();
        if !has_body {
            self.clock.ahead_secs.store(ahead_secs, Ordering::Relaxed);
        }
        if response.status() != StatusCode::FORBIDDEN {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let text = beginning(body).await;
        if !self
            .clock
            .is_for_time(&head.headers, &text, ahead_secs.abs_diff(added_secs), added_secs)
        {
            return Ok(HttpResponse::from_parts(head, text.into()));
        }
        self.clock.learn(ahead_secs, added_secs);
        Err(HttpError::new(
            HttpErrorKind::Unknown,
            RefusedForTime { ahead_secs, text },
        ))
    }
}

/// The beginning of the text of a response, as far as it arrives. A response to HEAD has none.
async fn beginning(body: HttpResponseBody) -> String {
    let mut pieces = body.bytes_stream();
    let mut bytes = Vec::new();
    while bytes.len() < TEXT_BYTES_MAX
        && let Some(Ok(piece)) = pieces.next().await
    {
        let left = TEXT_BYTES_MAX - bytes.len();
        bytes.extend_from_slice(&piece[..piece.len().min(left)]);
    }
    assert!(bytes.len() <= TEXT_BYTES_MAX, "a text has a limit");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The time of a message, in whole seconds.
fn date(headers: &HeaderMap) -> Option<DateTime<Utc>> {
    let text = headers.get(DATE)?.to_str().ok()?;
    DateTime::parse_from_rfc2822(text).ok().map(|date| date.to_utc())
}

#[cfg(test)]
mod tests;
