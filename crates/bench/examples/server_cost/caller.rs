//! gRPC calls at the lowest cost: framed bytes over HTTP/2, on a few sockets.

use anyhow::{Context, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, HeaderValue, Request, Uri};
use prost::Message;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpStream;
use tonic::codegen::http;

/// As many as Google's Go client opens for a process.
const SOCKETS: usize = 4;

/// Windows larger than any response measured here.
const STREAM_WINDOW_BYTES: u32 = 16 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
const FRAME_BYTES_MAX: u32 = 1 << 20;

/// The sockets to one server.
pub struct Caller {
    authority: String,
    headers: HeaderMap,
    sockets: Vec<SendRequest<Bytes>>,
    next: AtomicUsize,
}

impl Caller {
    pub async fn connect(address: &str) -> anyhow::Result<Self> {
        let mut sockets = Vec::new();
        for _ in 0..SOCKETS {
            let socket = TcpStream::connect(address).await?;
            socket.set_nodelay(true)?;
            let (sender, connection) = h2::client::Builder::new()
                .initial_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_frame_size(FRAME_BYTES_MAX)
                .enable_push(false)
                .handshake(socket)
                .await?;
            tokio::spawn(connection);
            sockets.push(sender);
        }
        let mut headers = HeaderMap::new();
        let fixed = HeaderValue::from_static;
        headers.insert(http::header::TE, fixed("trailers"));
        headers.insert(http::header::CONTENT_TYPE, fixed("application/grpc"));
        headers.insert(http::header::USER_AGENT, fixed("stele-server-cost/1"));
        // Flow control, reverse scans and progress of scans, as client libraries declare them.
        headers.insert("bigtable-features", fixed("CAEgAQ=="));
        Ok(Caller {
            authority: address.to_owned(),
            headers,
            sockets,
            next: AtomicUsize::new(0),
        })
    }

    /// The address of a method.
    pub fn uri(&self, path: &str) -> anyhow::Result<Uri> {
        let parts = Uri::builder().scheme("http").authority(self.authority.as_str());
        Ok(parts.path_and_query(path).build()?)
    }

    /// Sends a framed message. Passes each part of the response to `each`. Any status but OK is an error.
    pub async fn call(&self, uri: Uri, body: Bytes, mut each: impl FnMut(&[u8])) -> anyhow::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let socket = self.sockets.get(number % SOCKETS).context("no socket")?;
        let mut request = Request::post(uri).version(http::Version::HTTP_2).body(())?;
        *request.headers_mut() = self.headers.clone();
        let (answer, mut stream) = socket.clone().ready().await?.send_request(request, false)?;
        stream.send_data(body, true)?;
        let response = answer.await?;
        ensure!(
            response.headers().get("grpc-status").is_none(),
            "{:?}",
            response.headers()
        );
        let mut answer = response.into_body();
        while let Some(piece) = answer.data().await {
            let piece = piece?;
            answer.flow_control().release_capacity(piece.len())?;
            each(&piece);
        }
        let trailers = answer.trailers().await?.context("no trailers")?;
        ensure!(
            trailers.get("grpc-status").is_some_and(|code| code == "0"),
            "{trailers:?}"
        );
        Ok(())
    }
}

/// A message behind gRPC's prefix.
pub fn framed(message: &impl Message) -> anyhow::Result<Bytes> {
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(5 + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length)?);
    message.encode(&mut framed)?;
    Ok(framed.freeze())
}
