//! A Cloud Bigtable server that stores nothing and responds immediately, to measure the generator's own cost.
//!
//! * ReadRows: one row for each requested key. For a range, as many rows as the limit demands, or [`SCAN_ROWS`] without
//!   one, with ascending keys that begin with the range's start. Every row has one cell of [`VALUE_BYTES`].
//! * Writes are acknowledged, a condition always holds, a counter is always one.
//! * Tables may be created, dropped and listed; there are none.
//!
//! It parses only the part of a request on which its response depends. Responses on one stream wait for the reader, so
//! that a long scan does not fill the memory.

use crate::target::bigtable::frames::{Deframer, frame};
use anyhow::{Context, anyhow};
use bytes::{BufMut, Bytes, BytesMut};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    Cell, CheckAndMutateRowResponse, Column, Family, MutateRowsResponse, ReadModifyWriteRowResponse, ReadRowsRequest,
    ReadRowsResponse, Row, mutate_rows_response, read_rows_response::CellChunk,
    read_rows_response::cell_chunk::RowStatus, row_range::StartKey,
};
use h2::SendStream;
use h2::server::SendResponse;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response};
use prost::Message;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::http;

/// Bytes of every value.
pub const VALUE_BYTES: usize = 1000;

/// Rows of a scan without a limit.
pub const SCAN_ROWS: u64 = 1000;

/// Rows of one message of a scan: about 64 kB, as servers send.
const MESSAGE_ROWS: u64 = 64;

/// Most calls in progress on one connection. Further ones wait in the client.
const CALLS_MAX: u32 = 16_384;

const STREAM_WINDOW_BYTES: u32 = 16 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 128 << 20;
const FRAME_BYTES_MAX: u32 = 1 << 20;

static VALUE: [u8; VALUE_BYTES] = [b'v'; VALUE_BYTES];

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Serves every connection until the process ends.
///
/// # Errors
/// None: a failure of a connection ends only that connection.
pub async fn serve(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                // A client that leaves in the middle of a call does not affect the others.
                tokio::spawn(async move { drop(connection(socket).await) });
            }
            // Out of file descriptors, perhaps: some may be closed soon.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn connection(socket: TcpStream) -> anyhow::Result<()> {
    socket.set_nodelay(true)?;
    let mut connection = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_streams(CALLS_MAX)
        .handshake::<_, Bytes>(socket)
        .await?;
    while let Some(call) = connection.accept().await {
        let (request, respond) = call?;
        tokio::spawn(async move { drop(answer(request, respond).await) });
    }
    Ok(())
}

async fn answer(request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>) -> anyhow::Result<()> {
    let (head, mut body) = request.into_parts();
    let message = whole(&mut body).await?;
    let mut response = Response::new(());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let method = head.uri.path().rsplit('/').next().unwrap_or_default();
    let canned = match method {
        "ReadRows" => {
            return read_rows(
                ReadRowsRequest::decode(message)?,
                respond.send_response(response, false)?,
            )
            .await;
        }
        "MutateRows" => mutate_rows(&message)?,
        "MutateRow" | "CreateTable" | "DeleteTable" | "ListTables" => frame(&()),
        "CheckAndMutateRow" => frame(&CheckAndMutateRowResponse {
            predicate_matched: true,
        }),
        "ReadModifyWriteRow" => frame(&counter()),
        _ => {
            // 12 is UNIMPLEMENTED.
            response
                .headers_mut()
                .insert(GRPC_STATUS, HeaderValue::from_static("12"));
            respond.send_response(response, true)?;
            return Ok(());
        }
    };
    let mut stream = respond.send_response(response, false)?;
    stream.send_data(canned, false)?;
    end(&mut stream)
}

fn end(stream: &mut SendStream<Bytes>) -> anyhow::Result<()> {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    Ok(stream.send_trailers(trailers)?)
}

/// The one message of a request. Reads on to the request's end: a request with an earlier response would be reset, and
/// a connection with too many resets is closed.
async fn whole(body: &mut h2::RecvStream) -> anyhow::Result<Bytes> {
    let mut deframer = Deframer::default();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        deframer.push(piece);
    }
    let message = deframer.pop().map_err(|why| anyhow!(why))?;
    message.context("a request without a whole message")
}

/// A request of which only the number of entries matters.
#[derive(Clone, PartialEq, Message)]
struct Entries {
    #[prost(bytes = "bytes", repeated, tag = "2")]
    entries: Vec<Bytes>,
}

fn mutate_rows(message: &Bytes) -> anyhow::Result<Bytes> {
    let request = Entries::decode(message.clone())?;
    let entry = |index| mutate_rows_response::Entry {
        index: index as i64,
        status: Some(Default::default()),
    };
    Ok(frame(&MutateRowsResponse {
        entries: (0..request.entries.len()).map(entry).collect(),
        rate_limit_info: None,
    }))
}

fn counter() -> ReadModifyWriteRowResponse {
    let cell = Cell {
        value: Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 1]),
        ..Cell::default()
    };
    let column = Column {
        cells: vec![cell],
        ..Column::default()
    };
    let family = Family {
        columns: vec![column],
        ..Family::default()
    };
    let row = Row {
        families: vec![family],
        ..Row::default()
    };
    ReadModifyWriteRowResponse { row: Some(row) }
}

async fn read_rows(request: ReadRowsRequest, mut stream: SendStream<Bytes>) -> anyhow::Result<()> {
    let rows = request.rows.unwrap_or_default();
    if !rows.row_keys.is_empty() {
        let chunks = rows.row_keys.into_iter().map(row).collect();
        send(&mut stream, frame(&response(chunks))).await?;
        return end(&mut stream);
    }
    let start = rows.row_ranges.into_iter().next().and_then(|range| range.start_key);
    let start = match start {
        Some(StartKey::StartKeyClosed(key) | StartKey::StartKeyOpen(key)) => key,
        None => Bytes::new(),
    };
    let limit = match u64::try_from(request.rows_limit) {
        Ok(0) | Err(_) => SCAN_ROWS,
        Ok(limit) => limit,
    };
    let mut sent = 0;
    while sent < limit {
        let upto = limit.min(sent + MESSAGE_ROWS);
        let chunks = (sent..upto).map(|i| row(numbered(&start, i))).collect();
        send(&mut stream, frame(&response(chunks))).await?;
        sent = upto;
    }
    end(&mut stream)
}

fn numbered(start: &Bytes, number: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(start.len() + 8);
    key.extend_from_slice(start);
    key.put_u64(number);
    key.freeze()
}

fn row(row_key: Bytes) -> CellChunk {
    CellChunk {
        row_key,
        family_name: Some("f".to_owned()),
        qualifier: Some(b"0".to_vec()),
        timestamp_micros: 1000,
        value: Bytes::from_static(&VALUE),
        row_status: Some(RowStatus::CommitRow(true)),
        ..CellChunk::default()
    }
}

fn response(chunks: Vec<CellChunk>) -> ReadRowsResponse {
    ReadRowsResponse {
        chunks,
        ..ReadRowsResponse::default()
    }
}

/// Sends as far as the reader's window permits.
async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> anyhow::Result<()> {
    stream.reserve_capacity(data.len());
    while !data.is_empty() {
        let room = match stream.capacity() {
            0 => std::future::poll_fn(|context| stream.poll_capacity(context))
                .await
                .context("the reader has gone")??,
            room => room,
        };
        stream.send_data(data.split_to(room.min(data.len())), false)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Columns, Put, Row, Scan, TableSpec, TargetError, open};
    use std::ops::ControlFlow;

    #[tokio::test]
    async fn every_operation_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener));
        let target = open(&format!("bigtable://{address}/null")).await.unwrap();
        let spec = TableSpec {
            name: "bench-null".into(),
            families: vec!["f".into()],
            ..TableSpec::default()
        };
        target.create_table(&spec).await.unwrap();
        target.describe().await.unwrap();
        let c = target.connect().await.unwrap();
        let put = |value: usize| Put {
            key: "r".into(),
            cells: vec![("f".into(), "0".into(), vec![0; value].into())],
        };
        c.put("bench-null", put(5_000_000)).await.unwrap();
        c.put_many("bench-null", (0..20_000).map(|_| put(1000)).collect())
            .await
            .unwrap();
        let row = c
            .get("bench-null", "r".into(), &Columns::default())
            .await
            .unwrap()
            .unwrap();
        assert_eq!((&row.key[..], row.cells[0].value.len()), (&b"r"[..], VALUE_BYTES));
        for (limit, expected) in [(None, SCAN_ROWS), (Some(7), 7), (Some(100_000), 100_000)] {
            let mut rows = 0;
            let scan = Scan {
                limit,
                ..Scan::default()
            };
            let sink = &mut |_: &Row| {
                rows += 1;
                ControlFlow::Continue(())
            };
            c.scan("bench-null", &scan, sink).await.unwrap();
            assert_eq!(rows, expected);
        }
        assert_eq!(
            c.increment("bench-null", "r".into(), "f", "n".into(), 1).await.unwrap(),
            1
        );
        let checked = c.check_and_put("bench-null", "f", "0".into(), Some("x".into()), put(1));
        assert!(checked.await.unwrap());
        c.delete("bench-null", "r".into(), None, &[]).await.unwrap();
        target.drop_table("bench-null").await.unwrap();
        assert_eq!(c.retries(), 0);
        server.abort();
    }

    /// As clients do that send the end of a request in a frame of its own.
    #[tokio::test]
    async fn requests_whose_end_comes_late_are_not_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let server = tokio::spawn(serve(listener));
        let (sender, connection) = h2::client::handshake(socket).await.unwrap();
        let connection = tokio::spawn(connection);
        // More than the resets that a connection survives.
        for _ in 0..1_200 {
            let request = Request::post("http://null/google.bigtable.v2.Bigtable/MutateRow")
                .body(())
                .unwrap();
            let (answer, mut stream) = sender
                .clone()
                .ready()
                .await
                .unwrap()
                .send_request(request, false)
                .unwrap();
            stream.send_data(frame(&()), false).unwrap();
            tokio::task::yield_now().await;
            stream.send_data(Bytes::new(), true).unwrap();
            let mut body = answer.await.unwrap().into_body();
            while let Some(piece) = body.data().await {
                piece.unwrap();
            }
            assert!(body.trailers().await.unwrap().is_some());
        }
        connection.abort();
        server.abort();
    }

    #[tokio::test]
    async fn nobody_there_is_a_connection_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let target = open(&format!("bigtable://{address}/null")).await.unwrap();
        let error = target.connect().await.err().unwrap();
        assert!(matches!(error, TargetError::Connection(_)), "{error}");
    }
}
