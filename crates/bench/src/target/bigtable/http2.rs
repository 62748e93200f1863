//! Calls over one HTTP/2 connection that is dialled again when it breaks.
//!
//! gRPC is a thin layer over HTTP/2, and this module is the part that the driver needs. A request is one message. A
//! response is some messages and a status in the trailers. A general client's stack (queues between tasks, boxed
//! services, header rewriting) costs about a third more CPU. For a read of 1000 bytes, tonic 0.14 took 10.4 µs with one
//! client and 6.6 µs with 64; this module takes 8.2 µs and 4.8 µs (`examples/bigtable_cost.rs`, same machine, same echo
//! server). A generator's cost distorts every figure.
//!
//! A connection belongs to the runtime on which it was dialled.

use super::frames::{Deframer, frame};
use crate::target::dial::Dial;
use bytes::Bytes;
use h2::client::SendRequest;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Request, StatusCode, Uri};
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tonic::codegen::http;
use tonic::{Code, Status};

/// Time for one call, or for the next message of a stream. Google's clients give a single attempt 20 s or more.
pub(super) const CALL_MS_MAX: u64 = 60_000;

/// Longest time for making a connection.
const DIAL_MS_MAX: u64 = 10_000;

/// Window of one stream: enough for a scan not to wait for a round trip.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;

/// Window of a connection: large responses of a few clients must not delay the others.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;

/// Largest frame accepted, so that most responses arrive in one frame and need not be joined.
const FRAME_BYTES_MAX: u32 = 1 << 20;

/// Reasons why a call has no response.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server's status.
    Status(Status),
    /// The connection could not be made, or broke, or the server reset the stream.
    Broken(String),
    /// The response violates the protocol.
    Protocol(String),
    /// No response in time.
    Late,
}

/// The methods in use.
#[derive(Debug, Clone, Copy)]
pub(super) enum Method {
    ReadRows,
    MutateRow,
    MutateRows,
    CheckAndMutateRow,
    ReadModifyWriteRow,
    CreateTable,
    DeleteTable,
    ListTables,
}

impl Method {
    /// In the order of the enum.
    const PATHS: [&str; 8] = [
        "/google.bigtable.v2.Bigtable/ReadRows",
        "/google.bigtable.v2.Bigtable/MutateRow",
        "/google.bigtable.v2.Bigtable/MutateRows",
        "/google.bigtable.v2.Bigtable/CheckAndMutateRow",
        "/google.bigtable.v2.Bigtable/ReadModifyWriteRow",
        "/google.bigtable.admin.v2.BigtableTableAdmin/CreateTable",
        "/google.bigtable.admin.v2.BigtableTableAdmin/DeleteTable",
        "/google.bigtable.admin.v2.BigtableTableAdmin/ListTables",
    ];
}

/// The address of a server.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    authority: String,
    dial: Dial,
    /// Of each [`Method`].
    uris: Vec<Uri>,
}

impl Origin {
    /// `host:port`, brackets around an IPv6 address.
    pub(super) fn new(authority: String, dial: Dial) -> Result<Self, http::Error> {
        let scheme = if dial.is_tls() { "https" } else { "http" };
        let uri = |path: &&str| {
            let parts = Uri::builder().scheme(scheme).authority(authority.as_str());
            parts.path_and_query(*path).build()
        };
        let uris = Method::PATHS.iter().map(uri).collect::<Result<_, _>>()?;
        Ok(Self { authority, dial, uris })
    }
}

/// A way to a server, or to one of several that serve the same tables.
pub(super) struct Channel {
    /// At least one.
    origins: Arc<[Origin]>,
    /// The connection in use, with a number that grows with each dial.
    live: Mutex<Option<Live>>,
    /// Held by the caller that dials.
    dialling: tokio::sync::Mutex<Dialling>,
}

struct Dialling {
    /// Connections so far.
    number: u64,
    /// The server that is tried first.
    origin: usize,
}

#[derive(Clone)]
struct Live {
    number: u64,
    origin: usize,
    sender: SendRequest<Bytes>,
}

impl Channel {
    /// Not dialled yet. The first of the servers that is tried is number `first`, modulo their count.
    pub(super) fn new(origins: Arc<[Origin]>, first: usize) -> Self {
        let dialling = Dialling {
            number: 0,
            origin: first % origins.len().max(1),
        };
        Self {
            origins,
            live: Mutex::new(None),
            dialling: tokio::sync::Mutex::new(dialling),
        }
    }

    /// Connects, unless there is a connection.
    pub(super) async fn dial(&self) -> Result<(), Failure> {
        self.live().await.map(drop)
    }

    /// A call whose response is one message.
    pub(super) async fn unary<A: Message + Default>(
        &self,
        method: Method,
        headers: &HeaderMap,
        request: &impl Message,
    ) -> Result<A, Failure> {
        let call = async {
            let mut answer = self.send(method, headers, frame(request)).await?;
            let Some(message) = answer.next_message().await? else {
                return Err(Failure::Protocol(format!("{method:?}: OK and no message")));
            };
            match answer.next_message::<A>().await? {
                None => Ok(message),
                Some(_) => Err(Failure::Protocol(format!("{method:?}: more than one message"))),
            }
        };
        self.in_time(call).await
    }

    /// A call whose response is many messages.
    pub(super) async fn stream(
        &self,
        method: Method,
        headers: &HeaderMap,
        request: &impl Message,
    ) -> Result<Streamed<'_>, Failure> {
        let answer = self.in_time(self.send(method, headers, frame(request))).await?;
        Ok(Streamed { channel: self, answer })
    }

    async fn in_time<T>(&self, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        match tokio::time::timeout(Duration::from_millis(CALL_MS_MAX), call).await {
            Ok(result) => result,
            Err(_) => {
                // The peer may have vanished silently. Other calls keep the old connection until they end.
                *self.live.lock() = None;
                Err(Failure::Late)
            }
        }
    }

    async fn send(&self, method: Method, headers: &HeaderMap, body: Bytes) -> Result<Answer, Failure> {
        let mut request = Request::new(());
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        *request.headers_mut() = headers.clone();
        let (mut sender, origin) = self.ready().await?;
        *request.uri_mut() = self.origins[origin].uris[method as usize].clone();
        let (answer, mut stream) = sender.send_request(request, false).map_err(broken)?;
        stream.send_data(body, true).map_err(broken)?;
        Answer::begin(answer.await.map_err(broken)?)
    }

    /// A connection that takes a request. One that broke while it was idle is replaced without an error.
    async fn ready(&self) -> Result<(SendRequest<Bytes>, usize), Failure> {
        let live = self.live().await?;
        if let Ok(sender) = live.sender.ready().await {
            return Ok((sender, live.origin));
        }
        self.forget(live.number);
        let live = self.live().await?;
        Ok((live.sender.ready().await.map_err(broken)?, live.origin))
    }

    fn forget(&self, number: u64) {
        let mut live = self.live.lock();
        if live.as_ref().is_some_and(|live| live.number == number) {
            *live = None;
        }
    }

    /// Connects to the server at `origin`, or to the next one that can be reached.
    async fn dial_any(&self, origin: &mut usize) -> Result<SendRequest<Bytes>, Failure> {
        let mut left = self.origins.len();
        loop {
            let server = &self.origins[*origin];
            let dialled = tokio::time::timeout(Duration::from_millis(DIAL_MS_MAX), dial(server)).await;
            let failure = match dialled {
                Ok(Ok(sender)) => return Ok(sender),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Broken(format!("{}: not connected within {DIAL_MS_MAX} ms", server.authority)),
            };
            *origin = (*origin + 1) % self.origins.len();
            left -= 1;
            if left == 0 {
                return Err(failure);
            }
        }
    }

    async fn live(&self) -> Result<Live, Failure> {
        let there = self.live.lock().clone();
        if let Some(live) = there {
            return Ok(live);
        }
        let mut dialling = self.dialling.lock().await;
        let there = self.live.lock().clone();
        if let Some(live) = there {
            return Ok(live);
        }
        let sender = self.dial_any(&mut dialling.origin).await?;
        dialling.number += 1;
        let live = Live {
            number: dialling.number,
            origin: dialling.origin,
            sender,
        };
        *self.live.lock() = Some(live.clone());
        Ok(live)
    }
}

async fn dial(origin: &Origin) -> Result<SendRequest<Bytes>, Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::Broken(format!("{}: {e}", origin.authority));
    let socket = origin.dial.connect(&origin.authority).await.map_err(|e| failed(&e))?;
    let (sender, connection) = h2::client::Builder::new()
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .enable_push(false)
        .handshake(socket)
        .await
        .map_err(|e| failed(&e))?;
    // Ends when the last sender is gone, or when the connection breaks, which fails the senders.
    tokio::spawn(connection);
    Ok(sender)
}

fn broken(error: h2::Error) -> Failure {
    Failure::Broken(error.to_string())
}

/// The messages of a response, each of them in time. Dropping it before its end cancels the call.
pub(super) struct Streamed<'c> {
    channel: &'c Channel,
    answer: Answer,
}

impl Streamed<'_> {
    /// The next message, or `None` after a status of success.
    pub(super) async fn next_message<A: Message + Default>(&mut self) -> Result<Option<A>, Failure> {
        // Most messages of a scan have arrived already. Only waiting needs a timer.
        match self.answer.pop()? {
            Some(message) => Ok(Some(message)),
            None => self.channel.in_time(self.answer.next_message()).await,
        }
    }
}

/// A response as it arrives.
struct Answer {
    body: h2::RecvStream,
    deframer: Deframer,
    /// The status, if it came with the headers.
    ended_well: bool,
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

impl Answer {
    fn begin(response: http::Response<h2::RecvStream>) -> Result<Self, Failure> {
        if response.status() != StatusCode::OK {
            return Err(of_http_status(response.status()));
        }
        let ended_well = status_of(response.headers())?;
        Ok(Self {
            body: response.into_body(),
            deframer: Deframer::default(),
            ended_well,
        })
    }

    fn pop<A: Message + Default>(&mut self) -> Result<Option<A>, Failure> {
        let Some(message) = self.deframer.pop().map_err(Failure::Protocol)? else {
            return Ok(None);
        };
        let decoded = A::decode(message);
        decoded
            .map(Some)
            .map_err(|e| Failure::Protocol(format!("a message that cannot be decoded: {e}")))
    }

    async fn next_message<A: Message + Default>(&mut self) -> Result<Option<A>, Failure> {
        loop {
            if let Some(message) = self.pop()? {
                return Ok(Some(message));
            }
            match self.body.data().await {
                Some(piece) => {
                    let piece = piece.map_err(broken)?;
                    self.body.flow_control().release_capacity(piece.len()).map_err(broken)?;
                    self.deframer.push(piece);
                }
                None => return self.end().await.map(|()| None),
            }
        }
    }

    async fn end(&mut self) -> Result<(), Failure> {
        if let Some(trailers) = self.body.trailers().await.map_err(broken)? {
            self.ended_well |= status_of(&trailers)?;
        }
        match (self.ended_well, self.deframer.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => Err(Failure::Protocol("the response ends within a message".into())),
            // Proxies and dying servers end a stream in this way. Google's clients treat it like a broken connection.
            (false, _) => Err(Failure::Broken("the response ended without a status".into())),
        }
    }
}

/// Whether there is a status. A status of failure is an error.
fn status_of(headers: &HeaderMap) -> Result<bool, Failure> {
    match headers.get(GRPC_STATUS) {
        None => Ok(false),
        Some(code) if code.as_bytes() == b"0" => Ok(true),
        Some(code) => {
            let parsed = Status::from_header_map(headers).filter(|status| status.code() != Code::Ok);
            Err(parsed.map_or_else(|| Failure::Protocol(format!("status {code:?}")), Failure::Status))
        }
    }
}

/// gRPC's table for responses that do not come from a gRPC server.
fn of_http_status(status: StatusCode) -> Failure {
    let text = format!("HTTP status {status}");
    match status.as_u16() {
        429 | 502..=504 => Failure::Broken(text),
        400 => Failure::Status(Status::internal(text)),
        401 => Failure::Status(Status::unauthenticated(text)),
        403 => Failure::Status(Status::permission_denied(text)),
        404 => Failure::Status(Status::unimplemented(text)),
        _ => Failure::Status(Status::unknown(text)),
    }
}

/// Headers of a call: those that gRPC requires, the client's features, and the call's table, by which Google's front
/// ends route it.
pub(super) fn headers(
    features: &HeaderValue,
    authorization: Option<&HeaderValue>,
    routing: &str,
) -> Result<HeaderMap, http::header::InvalidHeaderValue> {
    let mut headers = HeaderMap::with_capacity(6);
    headers.extend(authorization.map(|token| (http::header::AUTHORIZATION, token.clone())));
    let fixed = HeaderValue::from_static;
    headers.insert(http::header::TE, fixed("trailers"));
    headers.insert(http::header::CONTENT_TYPE, fixed("application/grpc"));
    let agent = concat!("stele-bench/", env!("CARGO_PKG_VERSION"));
    headers.insert(http::header::USER_AGENT, fixed(agent));
    headers.insert(HeaderName::from_static("bigtable-features"), features.clone());
    headers.insert(HeaderName::from_static("x-goog-request-params"), routing.parse()?);
    Ok(headers)
}
