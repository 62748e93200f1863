//! A scripted server in the process of a test.
//!
//! It is the only server of its cluster, and each table has one region there. Every call but those of the registry and of
//! `hbase:meta` goes to the script.
#![allow(clippy::unwrap_used, reason = "a wrong script is an error of the test")]

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use stele_wire::cell::{CellRef, CellType};
use stele_wire::frame::{self, Request};
use stele_wire::messages::{
    CLIENT_META_SERVICE, Empty, ExceptionResponse, GetActiveMasterResponse, GetClusterIdResponse,
    GetMetaRegionLocationsResponse, RegionInfo, RegionLocation, ResponseHeader, Scan, ScanRequest, ScanResponse,
    ServerName, decode,
};
use stele_wire::{meta, region};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Largest request of a test.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Reacts to a call: gets the method, the request and the response to be written.
type Script = Box<dyn FnMut(&str, &Request, &mut Answer) + Send>;

/// The response to a call.
pub struct Answer {
    call_id: Option<u32>,
    out: BytesMut,
}

impl Answer {
    /// Responds by a message and cells.
    pub fn give(&mut self, message: &impl Message, cells: &Bytes) {
        let header = ResponseHeader {
            call_id: self.call_id,
            ..ResponseHeader::default()
        };
        frame::encode_response(&mut self.out, header, Some(message), cells).unwrap();
    }

    /// Responds by an exception of this class.
    pub fn throw(&mut self, class: &str) {
        let header = ResponseHeader {
            call_id: self.call_id,
            exception: Some(ExceptionResponse {
                exception_class_name: Some(class.to_owned()),
                ..ExceptionResponse::default()
            }),
            ..ResponseHeader::default()
        };
        frame::encode_response(&mut self.out, header, None::<&Empty>, &()).unwrap();
    }
}

/// Encodes cells.
pub fn block<'a>(cells: impl IntoIterator<Item = CellRef<'a>>) -> Bytes {
    let mut out = BytesMut::new();
    cells.into_iter().for_each(|cell| cell.encode(&mut out).unwrap());
    out.freeze()
}

/// Starts a server on the runtime of the caller, and returns its address.
pub async fn start(script: impl FnMut(&str, &Request, &mut Answer) + Send + 'static) -> String {
    start_for(None, script).await
}

/// Starts a server whose registry names another one for all regions, if it is given.
pub async fn start_for(
    other: Option<&str>,
    script: impl FnMut(&str, &Request, &mut Answer) + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Box::new(script)));
    let own = other.unwrap_or(&address).to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, own.clone(), Arc::clone(&script)));
        }
    });
    address
}

async fn serve(mut stream: TcpStream, own: String, script: Arc<Mutex<Script>>) {
    let (mut received, mut service) = (BytesMut::new(), None);
    while stream.read_buf(&mut received).await.is_ok_and(|n| n > 0) {
        if service.is_none() {
            let header = frame::take_preamble(&mut received).unwrap();
            service = header.and_then(|header| header.service_name);
        }
        let Some(service) = &service else { continue };
        while let Some(frame) = frame::take_frame(&mut received, REQUEST_BYTES_MAX).unwrap() {
            let request = frame::decode_request(frame).unwrap();
            let mut answer = Answer {
                call_id: request.header.call_id,
                out: BytesMut::new(),
            };
            react(service, &request, &own, &script, &mut answer);
            stream.write_all(&answer.out).await.unwrap();
        }
    }
}

fn react(service: &str, request: &Request, own: &str, script: &Mutex<Script>, answer: &mut Answer) {
    let method = String::from_utf8_lossy(request.header.method_name.as_deref().unwrap_or_default()).into_owned();
    if service == CLIENT_META_SERVICE {
        return registry(&method, own, answer);
    }
    if method == "Scan" {
        let scan: ScanRequest = decode("ScanRequest", request.message.clone()).unwrap();
        if scan
            .region
            .is_some_and(|region| region.value.starts_with(b"hbase:meta,"))
        {
            return look_up(&scan.scan.unwrap(), own, answer);
        }
    }
    script.lock()(&method, request, answer);
}

fn registry(method: &str, own: &str, answer: &mut Answer) {
    if method == "GetClusterId" {
        let id = GetClusterIdResponse {
            cluster_id: Some(own.to_owned()),
        };
        return answer.give(&id, &Bytes::new());
    }
    let (host, port) = own.rsplit_once(':').unwrap();
    let server_name = Some(ServerName {
        host_name: host.into(),
        port: Some(port.parse().unwrap()),
        start_code: Some(1),
    });
    if method == "GetActiveMaster" {
        return answer.give(&GetActiveMasterResponse { server_name }, &Bytes::new());
    }
    let location = RegionLocation {
        region_info: RegionInfo {
            region_id: 1,
            ..RegionInfo::default()
        },
        server_name,
        seq_num: -1,
    };
    let locations = GetMetaRegionLocationsResponse {
        meta_locations: vec![location],
    };
    answer.give(&locations, &Bytes::new());
}

/// Responds to the backwards read of one row of `hbase:meta`.
fn look_up(scan: &Scan, own: &str, answer: &mut Answer) {
    let key = scan.start_row.clone().unwrap();
    let table = key.split(|byte| *byte == b',').next().unwrap();
    let info = RegionInfo {
        region_id: 1,
        table_name: region::table_name(&Bytes::copy_from_slice(table)),
        start_key: Some(Bytes::new()),
        end_key: Some(Bytes::new()),
        ..RegionInfo::default()
    };
    let (row, described) = (region::name(&info), meta::encode_region_info(&info));
    let cell = |(qualifier, value)| CellRef {
        row: &row,
        family: meta::INFO_FAMILY,
        qualifier,
        timestamp: 1,
        kind: CellType::Put,
        value,
    };
    let cells = [(meta::REGION_INFO, &described[..]), (meta::SERVER, own.as_bytes())].map(cell);
    let response = ScanResponse {
        cells_per_result: vec![2],
        more_results: Some(false),
        ..ScanResponse::default()
    };
    answer.give(&response, &block(cells));
}
