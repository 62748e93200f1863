//! Stores within the process that refuse requests for their time. Their clocks are ahead of this machine's, or behind it.

use super::*;
use crate::address::Address;
use crate::store::Store;
use crate::tests::env;
use crate::{ObjectMetrics, growing};
use bytes::Bytes;
use http::{HeaderValue, Method, Response};
use object_store::client::HttpResponseBody;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use stele_env::tokio_env::TokioRuntime;
use stele_storage::{AppendFile, StorageError};
use stele_types::ErrorKind;

/// The limit of stores.
const ALLOWED_SECS: u64 = 15 * 60;
const REFUSAL: &str = "<Error><Code>RequestTimeTooSkewed</Code></Error>";

/// A store with a clock of its own.
#[derive(Debug, Default)]
struct Fake {
    ahead_secs: AtomicI64,
    objects: Mutex<BTreeMap<String, Bytes>>,
    /// All requests, and those that were refused for their time.
    asked: AtomicU64,
    refused: AtomicU64,
    /// It gives no right to anything.
    denies: bool,
    /// A proxy puts a `Date` into responses that is so far ahead of this machine's clock.
    proxy_ahead_secs: Option<i64>,
    /// Puts that are accepted before the clock jumps, and whether their answers are lost.
    puts_until_jump: Mutex<Option<u32>>,
    loses_answers: bool,
}

impl Fake {
    fn ahead(ahead_secs: i64) -> Arc<Fake> {
        let fake = Fake::default();
        fake.ahead_secs.store(ahead_secs, Ordering::Relaxed);
        Arc::new(fake)
    }

    fn counts(&self) -> (u64, u64) {
        (self.asked.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    fn now(&self) -> DateTime<Utc> {
        let micros = TokioRuntime::current().wall_micros();
        let now = DateTime::from_timestamp_micros(micros).unwrap();
        now + TimeDelta::seconds(self.ahead_secs.load(Ordering::Relaxed))
    }

    /// Status and content.
    fn answer(&self, method: &Method, path: &str, content: Option<Bytes>, time: DateTime<Utc>) -> (u16, Bytes) {
        let off_secs = (self.now() - time).num_seconds().unsigned_abs();
        if off_secs > ALLOWED_SECS {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let text = if method == Method::HEAD { "" } else { REFUSAL };
            return (403, Bytes::from_static(text.as_bytes()));
        }
        if self.denies || path.ends_with("/denied") {
            return (403, Bytes::from_static(b"<Code>AccessDenied</Code>"));
        }
        let mut objects = self.objects.lock();
        match content {
            Some(content) if method == Method::PUT => {
                objects.insert(path.to_owned(), content);
                let mut left = self.puts_until_jump.lock();
                *left = left.and_then(|left| left.checked_sub(1));
                if *left == Some(0) {
                    self.ahead_secs.fetch_add(28 * 60, Ordering::Relaxed);
                }
                (if self.loses_answers { 500 } else { 200 }, Bytes::new())
            }
            _ => match objects.get(path) {
                Some(content) => (200, content.clone()),
                None => (404, Bytes::new()),
            },
        }
    }
}

/// Its connections.
#[derive(Clone, Debug)]
struct Connections(Arc<Fake>);

impl HttpConnector for Connections {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connections {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let fake = &self.0;
        fake.asked.fetch_add(1, Ordering::Relaxed);
        let headers = request.headers();
        let time = signing_time(headers)
            .or_else(|| date(headers))
            .expect("a signed request");
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        // The content plays no part.
        let content = (request.body().content_length() > 0).then(|| Bytes::from_static(b"content"));
        let (status, content) = fake.answer(&method, &path, content, time);
        let now = match fake.proxy_ahead_secs {
            Some(ahead_secs) => fake.now() + TimeDelta::seconds(ahead_secs),
            None => fake.now(),
        };
        let now = now.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let azure_code = match fake.denies {
            true => "AuthorizationFailure",
            false => "AuthenticationFailed",
        };
        let length = content.len();
        let content = if method == Method::HEAD { Bytes::new() } else { content };
        let response = Response::builder()
            .status(status)
            .header(DATE, &now)
            .header("last-modified", &now)
            .header("etag", HeaderValue::from_static("\"1\""))
            .header("content-length", length)
            .header(AZURE_CODE, if status == 403 { azure_code } else { "" });
        Ok(response.body(HttpResponseBody::from(content)).unwrap())
    }
}

fn address(fake: &Arc<Fake>, text: &str, options: &[(&str, &str)]) -> Address {
    let owned = options
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Address::parse_over(text, &owned.collect::<Vec<_>>(), Connections(fake.clone())).unwrap()
}

fn s3(fake: &Arc<Fake>) -> (Store, ObjectMetrics) {
    let options = [
        ("access_key_id", "key"),
        ("secret_access_key", "secret"),
        ("region", "r"),
    ];
    let metrics = ObjectMetrics::default();
    let address = address(fake, "s3://bucket/p", &options);
    (address.store(env(1), metrics.clone()), metrics)
}

fn azure(fake: &Arc<Fake>) -> Store {
    let address = address(
        fake,
        "az://container/p",
        &[("account_name", "a"), ("access_key", "YQ==")],
    );
    address.store(env(1), ObjectMetrics::default())
}

#[tokio::test(start_paused = true)]
async fn requests_to_s3_get_the_time_of_the_store() {
    for ahead_secs in [28 * 60, -28 * 60, 2 * 24 * 3600] {
        let fake = Fake::ahead(ahead_secs);
        let (store, metrics) = s3(&fake);
        store.put_new("a", &[Bytes::from_static(b"content")]).await.unwrap();
        assert_eq!(fake.counts(), (2, 1), "one request was refused, and then signed again");
        assert_eq!(store.get("a").await.unwrap(), "content");
        assert_eq!(store.head("a").await.unwrap().0, 7);
        assert_eq!(fake.counts(), (4, 1), "the time of the store is known");
        let shown = metrics.clock_offset.get();
        assert!((shown - ahead_secs).abs() <= 2, "{shown}");

        // The clock of this machine is set right.
        fake.ahead_secs.store(0, Ordering::Relaxed);
        assert_eq!(store.head("a").await.unwrap().0, 7);
        assert_eq!(store.get("a").await.unwrap(), "content");
        assert_eq!(fake.counts(), (7, 2));
        assert!(metrics.clock_offset.get().abs() <= 2);
    }
}

#[tokio::test(start_paused = true)]
async fn the_clock_is_the_named_cause_where_nothing_can_be_signed_again() {
    for (ahead_secs, named) in [(28 * 60, "28 minutes behind"), (-16 * 60, "16 minutes ahead of")] {
        let fake = Fake::ahead(ahead_secs);
        let store = azure(&fake);
        let put = store.put_new("a", &[Bytes::from_static(b"content")]).await.unwrap_err();
        let error = store.head("a").await.unwrap_err();
        for error in [put, error] {
            let text = error.to_string();
            assert!(matches!(error, StorageError::WrongTime { .. }), "{text}");
            assert!(error.kind().is_retryable(), "{text}");
            assert!(text.contains(&format!("this machine's clock is {named}")), "{text}");
        }
        assert_eq!(fake.counts(), (16, 16), "attempts have a limit");
        fake.ahead_secs.store(0, Ordering::Relaxed);
        store.put_new("a", &[Bytes::from_static(b"content")]).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_none_of_the_clock() {
    let fake = Fake {
        // Less than stores refuse.
        ahead_secs: AtomicI64::new(200),
        denies: true,
        ..Fake::default()
    };
    let fake = Arc::new(fake);
    for store in [s3(&fake).0, azure(&fake)] {
        let before = fake.counts().0;
        let error = store.get("a").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
        assert!(error.to_string().contains("AccessDenied"), "{error}");
        assert_eq!(fake.counts().0 - before, 1, "it is not repeated");
    }
}

/// The same while the clock differs: only the store's code tells both apart where nothing is signed again.
#[tokio::test(start_paused = true)]
async fn a_missing_right_is_told_while_the_clock_is_wrong() {
    let fake = Fake {
        ahead_secs: AtomicI64::new(600),
        denies: true,
        ..Fake::default()
    };
    let fake = Arc::new(fake);
    for (store, attempts) in [(s3(&fake).0, 2), (azure(&fake), 1)] {
        let before = fake.counts().0;
        let error = store.get("a").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
        assert!(error.to_string().contains("AccessDenied"), "{error}");
        assert_eq!(fake.counts().0 - before, attempts);
    }
}

/// Requests are signed with the proxy's time after a refusal, which the store refuses then.
#[tokio::test(start_paused = true)]
async fn the_clock_of_a_proxy_is_not_kept() {
    let fake = Fake {
        proxy_ahead_secs: Some(20 * 60),
        ..Fake::default()
    };
    let fake = Arc::new(fake);
    let (store, _) = s3(&fake);
    store.get("denied").await.unwrap_err();
    store.put_new("a", &[Bytes::from_static(b"content")]).await.unwrap();
    assert_eq!(store.get("a").await.unwrap(), "content");
    store.get("denied").await.unwrap_err();
    assert_eq!(store.get("a").await.unwrap(), "content");
}

#[tokio::test(start_paused = true)]
async fn a_put_that_may_have_happened_was_not_only_refused() {
    let fake = Fake {
        loses_answers: true,
        puts_until_jump: Mutex::new(Some(1)),
        ..Fake::default()
    };
    let fake = Arc::new(fake);
    let error = azure(&fake).put_new("a", &[Bytes::from_static(b"content")]).await;
    let error = error.unwrap_err();
    assert_eq!(fake.counts(), (8, 7));
    assert!(matches!(error, StorageError::Io { .. }), "{error}");
    assert!(error.to_string().contains("28 minutes behind"), "{error}");
}

/// A group of the log whose beginning is in the store may turn up, so the error of its rest is not one that says otherwise.
#[tokio::test(start_paused = true)]
async fn a_group_that_is_stored_in_part_was_not_only_refused() {
    for (puts, is_begun) in [(1, false), (2, true)] {
        let fake = Fake::ahead(0);
        *fake.puts_until_jump.lock() = Some(puts);
        let storage = crate::ObjectStorage::with(
            azure(&fake),
            env(1),
            stele_storage::remote::cache::ChunkCache::open(None, env(1))
                .await
                .unwrap(),
            (stele_storage::remote::Access::Member, 0, false),
        );
        let mut log = growing::create(&storage.shared, "log/0000/1.log").await.unwrap();
        if is_begun {
            log.append(&[Bytes::from(vec![1; 17 << 20])]).await.unwrap();
        }
        log.append(&[Bytes::from_static(b"rest")]).await.unwrap();
        let error = log.sync().await.unwrap_err();
        assert_eq!(matches!(error, StorageError::Io { .. }), is_begun, "{error}");
        assert_eq!(matches!(error, StorageError::WrongTime { .. }), !is_begun, "{error}");
    }
}
