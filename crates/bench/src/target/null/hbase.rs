//! A server that speaks HBase's protocol and stores nothing.
//!
//! It is the whole cluster: registry, master, `hbase:meta` with one region for any table, and that region. Writes are
//! acknowledged unread. Reads return one row, made once and sent again and again. A scan with a limit returns that many
//! copies of the row. One without returns no row, since it would never end.
//!
//! One thread serves each connection, with blocking reads and writes, which is the cheapest way. [`serve_on_loop`] serves all on
//! one event loop instead, as Stele does. All requests of one read are answered by one write.

use bytes::{Bytes, BytesMut};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stele_wire::cell::{CellRef, CellType};
use stele_wire::frame::{self, REQUEST_BYTES_MAX, Request};
use stele_wire::messages::{
    self, CLIENT_META_SERVICE, CLIENT_SERVICE, ClusterStatus, Empty, ExceptionResponse, FlushRegionResponse,
    GetActiveMasterResponse, GetClusterIdResponse, GetClusterStatusResponse, GetMetaRegionLocationsResponse,
    GetProcedureResultResponse, GetResponse, IsMasterRunningResponse, MASTER_SERVICE, MutateResponse, MutationType,
    OneText, ProcedureResponse, ProcedureState, RegionInfo, RegionLocation, ResponseHeader, RowResult, ScanRequest,
    ScanResponse, ServerName,
};
use stele_wire::region::{META_TABLE, table_name};
use stele_wire::{WireError, exception, meta, region};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

mod shape;
#[cfg(test)]
mod tests;

/// Connections at a time: a few for each thread of a generator.
const CONNECTIONS_MAX: usize = 4096;

/// Bytes of a response to a scan, as with HBase.
const SCAN_BYTES: usize = 2 << 20;

/// Buffer for each read: a whole batch of writes.
const READ_BYTES: usize = 1 << 20;

/// All responses of the server, made once.
struct Answers {
    address: SocketAddr,
    /// Message and cells of every response to a Get.
    get: (GetResponse, Bytes),
    /// The same for increments.
    increment: (MutateResponse, Bytes),
    /// The rows of a response to a scan: copies of one row.
    rows: Bytes,
    rows_max: usize,
}

/// Starts a server on `listener`. Its threads end with their connections, and the first one with the process.
///
/// # Errors
/// A listener without an address.
pub fn start(listener: TcpListener, value_bytes: usize) -> std::io::Result<()> {
    let answers = Arc::new(Answers::new(listener.local_addr()?, value_bytes));
    let open = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (answers, open) = (answers.clone(), open.clone());
            std::thread::spawn(move || {
                // A client that disconnects, or does not speak the protocol, does not affect the others.
                let _ = connection(stream, &answers);
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    Ok(())
}

fn connection(mut stream: TcpStream, answers: &Answers) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = vec![0; READ_BYTES];
    let mut state = State::default();
    loop {
        let n = stream.read(&mut input)?;
        let Some(new) = input.get(..n).filter(|new| !new.is_empty()) else {
            return Ok(());
        };
        state.received.extend_from_slice(new);
        state.answer(answers)?;
        stream.write_all(&state.out)?;
        state.out.clear();
    }
}

/// Serves every connection on the runtime of the caller until the process ends.
///
/// # Errors
/// A listener without an address.
pub async fn serve_on_loop(listener: tokio::net::TcpListener, value_bytes: usize) -> std::io::Result<()> {
    let answers = Arc::new(Answers::new(listener.local_addr()?, value_bytes));
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let (stream, _) = listener.accept().await?;
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        let answers = answers.clone();
        tokio::spawn(async move {
            // A client that disconnects, or does not speak the protocol, does not affect the others.
            let _ = connection_on_loop(stream, &answers).await;
            drop(place);
        });
    }
}

async fn connection_on_loop(mut stream: tokio::net::TcpStream, answers: &Answers) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut state = State::default();
    state.received.reserve(READ_BYTES);
    while stream.read_buf(&mut state.received).await? > 0 {
        state.answer(answers)?;
        stream.write_all(&state.out).await?;
        state.out.clear();
        state.received.reserve(READ_BYTES);
    }
    Ok(())
}

/// A connection, but for its socket.
#[derive(Default)]
struct State {
    received: BytesMut,
    out: BytesMut,
    /// The service of the connection's header; `None` before it has arrived.
    service: Option<String>,
}

impl State {
    /// Puts the responses to all requests that have arrived into `out`.
    fn answer(&mut self, answers: &Answers) -> std::io::Result<()> {
        if self.service.is_none() {
            let header = frame::take_preamble(&mut self.received).map_err(std::io::Error::other)?;
            self.service = header.map(|header| header.service_name.unwrap_or_default());
        }
        match &self.service {
            Some(service) => {
                answer_all(answers, service, &mut self.received, &mut self.out).map_err(std::io::Error::other)
            }
            None => Ok(()),
        }
    }
}

/// Responds to all requests that have arrived.
fn answer_all(answers: &Answers, service: &str, received: &mut BytesMut, out: &mut BytesMut) -> Result<(), WireError> {
    while let Some(frame) = frame::take_frame(received, REQUEST_BYTES_MAX)? {
        let request = frame::decode_request(frame)?;
        let method = request.header.method_name.clone().unwrap_or_default();
        let mut reply = Reply {
            call_id: request.header.call_id,
            out,
        };
        match service {
            CLIENT_SERVICE => answers.client(&method, &request, &mut reply)?,
            CLIENT_META_SERVICE => answers.registry(&method, &mut reply)?,
            MASTER_SERVICE => answers.master(&method, &mut reply)?,
            messages::ADMIN_SERVICE => reply.send(&FlushRegionResponse::default(), &())?,
            _ => reply.unknown(&method)?,
        }
    }
    Ok(())
}

/// The destination of a response.
struct Reply<'a> {
    call_id: Option<u32>,
    out: &'a mut BytesMut,
}

impl Reply<'_> {
    fn send(&mut self, message: &impl prost::Message, cells: &impl frame::CellBlock) -> Result<(), WireError> {
        let header = ResponseHeader {
            call_id: self.call_id,
            ..ResponseHeader::default()
        };
        frame::encode_response(self.out, header, Some(message), cells)
    }

    fn unknown(&mut self, method: &[u8]) -> Result<(), WireError> {
        let exception = ExceptionResponse {
            exception_class_name: Some(exception::DO_NOT_RETRY.to_owned()),
            stack_trace: Some(format!("an echo server has no {}", method.escape_ascii())),
            do_not_retry: Some(true),
            ..ExceptionResponse::default()
        };
        let header = ResponseHeader {
            call_id: self.call_id,
            exception: Some(exception),
            cell_block_meta: None,
        };
        frame::encode_response(self.out, header, None::<&Empty>, &())
    }
}

/// One cell of the row that is read.
fn cell(value: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    let cell = CellRef {
        row: b"row",
        family: b"family",
        qualifier: b"0",
        timestamp: 1,
        kind: CellType::Put,
        value,
    };
    // Its parts are shorter than their limits. Without a cell, the row would be empty.
    let _ = cell.encode(&mut out);
    out
}

impl Answers {
    fn new(address: SocketAddr, value_bytes: usize) -> Self {
        let one = Some(RowResult {
            associated_cell_count: Some(1),
            ..RowResult::default()
        });
        let row = cell(&vec![b'v'; value_bytes]).freeze();
        let rows_max = (SCAN_BYTES / row.len().max(1)).max(1);
        Self {
            address,
            increment: (
                MutateResponse {
                    result: one.clone(),
                    processed: Some(true),
                },
                cell(&1i64.to_be_bytes()).freeze(),
            ),
            rows: row.repeat(rows_max).into(),
            rows_max,
            get: (GetResponse { result: one }, row),
        }
    }

    fn server(&self) -> ServerName {
        let (host, port) = (self.address.ip().to_string(), self.address.port());
        ServerName {
            host_name: host,
            port: Some(u32::from(port)),
            start_code: Some(1),
        }
    }

    fn client(&self, method: &[u8], request: &Request, reply: &mut Reply<'_>) -> Result<(), WireError> {
        let message = request.message.clone();
        match method {
            b"Get" => reply.send(&self.get.0, &self.get.1),
            b"Mutate" => match shape::mutate_type(message)? {
                MutationType::Increment => reply.send(&self.increment.0, &self.increment.1),
                _ => reply.send(
                    &MutateResponse {
                        result: None,
                        processed: Some(true),
                    },
                    &(),
                ),
            },
            b"Multi" => reply.send(&shape::all_done(message)?, &()),
            b"Scan" => self.scan(messages::decode("ScanRequest", message)?, reply),
            _ => reply.unknown(method),
        }
    }

    fn scan(&self, request: ScanRequest, reply: &mut Reply<'_>) -> Result<(), WireError> {
        let of_meta = request
            .region
            .as_ref()
            .is_some_and(|region| region.value.starts_with(META_TABLE.as_bytes()));
        if of_meta {
            let start = request.scan.and_then(|scan| scan.start_row).unwrap_or_default();
            return self.meta_row(&start, reply);
        }
        let limit = request.limit_of_rows.unwrap_or_default() as usize;
        let most = request.number_of_rows.unwrap_or_default() as usize;
        let count = if request.close_scanner() {
            0
        } else {
            limit.min(most).min(self.rows_max)
        };
        let more = count < limit && count > 0;
        let response = ScanResponse {
            cells_per_result: vec![1; count],
            scanner_id: Some(1),
            // Without a limit, the region is over and has no rows.
            more_results: Some(more || limit == 0),
            more_results_in_region: Some(more),
            ttl: Some(60_000),
            ..ScanResponse::default()
        };
        let bytes = count * self.get.1.len();
        reply.send(&response, &self.rows.slice(..bytes.min(self.rows.len())))
    }

    /// The row of the only region of a table, whose name is before the first comma of a key.
    fn meta_row(&self, key: &[u8], reply: &mut Reply<'_>) -> Result<(), WireError> {
        let table = key.split(|b| *b == b',').next().unwrap_or_default();
        let info = RegionInfo {
            region_id: 1,
            table_name: table_name(&Bytes::copy_from_slice(table)),
            start_key: Some(Bytes::new()),
            end_key: Some(Bytes::new()),
            ..RegionInfo::default()
        };
        let row = region::name(&info);
        let mut cells = BytesMut::new();
        for (qualifier, value) in [
            (meta::REGION_INFO, meta::encode_region_info(&info)),
            (meta::SERVER, self.address.to_string().into()),
            (meta::SERVER_START_CODE, Bytes::copy_from_slice(&1u64.to_be_bytes())),
        ] {
            let (family, kind) = (meta::INFO_FAMILY, CellType::Put);
            CellRef {
                row: &row,
                family,
                qualifier,
                timestamp: 1,
                kind,
                value: &value,
            }
            .encode(&mut cells)?;
        }
        let response = ScanResponse {
            cells_per_result: vec![3],
            more_results: Some(false),
            more_results_in_region: Some(false),
            ..ScanResponse::default()
        };
        reply.send(&response, &cells.freeze())
    }

    fn registry(&self, method: &[u8], reply: &mut Reply<'_>) -> Result<(), WireError> {
        match method {
            b"GetClusterId" => reply.send(
                &GetClusterIdResponse {
                    cluster_id: Some("null".into()),
                },
                &(),
            ),
            b"GetActiveMaster" => reply.send(
                &GetActiveMasterResponse {
                    server_name: Some(self.server()),
                },
                &(),
            ),
            b"GetMetaRegionLocations" => {
                let region_info = RegionInfo {
                    region_id: 1,
                    table_name: table_name(&Bytes::from_static(META_TABLE.as_bytes())),
                    ..RegionInfo::default()
                };
                let location = RegionLocation {
                    region_info,
                    server_name: Some(self.server()),
                    seq_num: -1,
                };
                reply.send(
                    &GetMetaRegionLocationsResponse {
                        meta_locations: vec![location],
                    },
                    &(),
                )
            }
            _ => reply.unknown(method),
        }
    }

    fn master(&self, method: &[u8], reply: &mut Reply<'_>) -> Result<(), WireError> {
        match method {
            b"IsMasterRunning" => reply.send(
                &IsMasterRunningResponse {
                    is_master_running: true,
                },
                &(),
            ),
            b"CreateTable" | b"DisableTable" | b"DeleteTable" => {
                reply.send(&ProcedureResponse { proc_id: Some(1) }, &())
            }
            b"getProcedureResult" => {
                let state = ProcedureState::Finished as i32;
                reply.send(
                    &GetProcedureResultResponse {
                        state,
                        ..GetProcedureResultResponse::default()
                    },
                    &(),
                )
            }
            b"GetClusterStatus" => {
                let cluster_status = ClusterStatus {
                    hbase_version: Some(OneText { text: "null".into() }),
                    master: Some(self.server()),
                    servers_name: vec![self.server()],
                    ..ClusterStatus::default()
                };
                reply.send(&GetClusterStatusResponse { cluster_status }, &())
            }
            _ => reply.unknown(method),
        }
    }
}
