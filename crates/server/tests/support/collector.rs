//! An OpenTelemetry collector that keeps the spans it gets.
//!
//! Its messages are written again here, from the definitions of the protocol, so that a mistake in those of the server shows.

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use parking_lot::Mutex;
use prost::Message;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use stele_bigtable::HTTP2_SETTINGS;
use stele_env::tokio_env::TokioRuntime;
use stele_serving::{Http2Service, RequestBody};
use tokio::net::TcpListener;
use tonic::codegen::http;

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

/// A span.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    pub trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(int32, tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(int64, optional, tag = "3")]
    number: Option<i64>,
}

/// The kind of a span for a request, as the protocol numbers it.
pub const SERVER: i32 = 2;

impl Span {
    /// Its attributes as text.
    pub fn attributes(&self) -> BTreeMap<&str, String> {
        let text = |value: &AnyValue| match (&value.text, value.number) {
            (Some(text), _) => text.clone(),
            (None, number) => number.unwrap().to_string(),
        };
        let attributes = self.attributes.iter();
        attributes
            .map(|attribute| (&attribute.key[..], text(attribute.value.as_ref().unwrap())))
            .collect()
    }
}

/// The collector. Its thread ends with the process.
pub struct Collector {
    /// Its address, as the server's settings have it.
    pub url: String,
    requests: Arc<Mutex<Vec<Bytes>>>,
}

impl Collector {
    pub fn start() -> Collector {
        let requests: Arc<Mutex<Vec<Bytes>>> = Arc::default();
        let kept = Keeper(Arc::clone(&requests));
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                while let Ok((socket, _)) = listener.accept().await {
                    let served =
                        stele_serving::serve(socket, kept.clone(), HTTP2_SETTINGS, TokioRuntime::current(), pending());
                    tokio::spawn(async move {
                        let _ = served.await;
                    });
                }
            });
        });
        Collector {
            url: format!("http://{}", told.recv().unwrap()),
            requests,
        }
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock();
        let decoded = requests.iter().map(|bytes| Request::decode(bytes.clone()).unwrap());
        let scopes = decoded
            .flat_map(|request| request.resource_spans)
            .flat_map(|of| of.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    /// Whether these bytes are anywhere in the requests so far.
    pub fn has_seen(&self, bytes: &[u8]) -> bool {
        let is_in = |request: &Bytes| request.windows(bytes.len()).any(|window| window == bytes);
        self.requests.lock().iter().any(is_in)
    }
}

#[derive(Clone)]
struct Keeper(Arc<Mutex<Vec<Bytes>>>);

impl Http2Service for Keeper {
    type Body = Answer;

    fn call(
        &self,
        request: http::Request<RequestBody>,
    ) -> impl Future<Output = http::Response<Answer>> + Send + 'static {
        let kept = Arc::clone(&self.0);
        async move {
            let path = request.uri().path().to_owned();
            assert_eq!(path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
            let (mut body, mut message) = (request.into_body(), BytesMut::new());
            while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                message.extend_from_slice(&frame.unwrap().into_data().unwrap());
            }
            kept.lock().push(message.freeze().split_off(5));
            let mut response = http::Response::new(Answer::default());
            let grpc = http::HeaderValue::from_static("application/grpc");
            response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
            response
        }
    }
}

/// An empty message, and the status OK.
#[derive(Default)]
struct Answer(u8);

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0 += 1;
        Poll::Ready(match self.0 {
            1 => Some(Ok(Frame::data(Bytes::from_static(&[0; 5])))),
            2 => {
                let ok = http::HeaderValue::from_static("0");
                let trailers = [(http::HeaderName::from_static("grpc-status"), ok)];
                Some(Ok(Frame::trailers(trailers.into_iter().collect())))
            }
            _ => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0 >= 2
    }
}
