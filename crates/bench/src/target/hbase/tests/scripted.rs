//! Scripted servers in the test's process.
//!
//! Registry and `hbase:meta` respond from a [`Map`] that the test can change. Every other call goes to the test's
//! script, one function for each server.

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use stele_wire::cell::{CellRef, CellType};
use stele_wire::frame::{self, Request};
use stele_wire::messages::*;
use stele_wire::{meta, region};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A script's response to one call.
pub enum Reaction {
    /// A message and cells.
    Answer(Vec<u8>, Bytes),
    /// An exception of this class.
    Exception(&'static str),
    /// Closes the connection.
    HangUp,
    /// Nothing.
    Silence,
    /// Responds, but only behind the response to the call after this one.
    AfterNext(Vec<u8>, Bytes),
}

/// A response without cells.
pub fn answer(message: &impl Message) -> Reaction {
    Reaction::Answer(message.encode_to_vec(), Bytes::new())
}

/// A response with cells `(row, qualifier, value)` of family `f`.
pub fn answer_with(message: &impl Message, cells: &[(&str, &str, &str)]) -> Reaction {
    Reaction::Answer(message.encode_to_vec(), block(cells))
}

/// A cell block.
pub fn block(cells: &[(&str, &str, &str)]) -> Bytes {
    let mut out = BytesMut::new();
    for (row, qualifier, value) in cells {
        let (row, qualifier, value) = (row.as_bytes(), qualifier.as_bytes(), value.as_bytes());
        let cell = CellRef {
            row,
            family: b"f",
            qualifier,
            timestamp: 1,
            kind: CellType::Put,
            value,
        };
        cell.encode(&mut out).unwrap();
    }
    out.freeze()
}

/// The regions of the only table: first row, end, address.
#[derive(Default)]
pub struct Map {
    pub regions: Mutex<Vec<(&'static str, &'static str, String)>>,
    /// How often `hbase:meta` was read.
    pub lookups: Mutex<u32>,
}

impl Map {
    /// Makes one server responsible for everything.
    pub fn all_at(&self, address: &str) {
        *self.regions.lock() = vec![("", "", address.to_owned())];
    }
}

/// A server's reaction to a call: method and request.
pub type Script = Box<dyn FnMut(&str, Request) -> Reaction + Send>;

/// Starts a server, and returns its address.
pub async fn start(map: &Arc<Map>, script: impl FnMut(&str, Request) -> Reaction + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Box::new(script)));
    let (map, own) = (map.clone(), address.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, map.clone(), own.clone(), script.clone()));
        }
    });
    address
}

async fn serve(mut stream: TcpStream, map: Arc<Map>, own: String, script: Arc<Mutex<Script>>) {
    let (mut received, mut service, mut held) = (BytesMut::new(), None, BytesMut::new());
    while stream.read_buf(&mut received).await.is_ok_and(|n| n > 0) {
        if service.is_none() {
            service = frame::take_preamble(&mut received)
                .unwrap()
                .and_then(|header| header.service_name);
        }
        let Some(service) = &service else { continue };
        while let Some(frame) = frame::take_frame(&mut received, 64 << 20).unwrap() {
            let request = frame::decode_request(frame).unwrap();
            let call_id = request.header.call_id;
            let mut out = BytesMut::new();
            match react(service, request, &map, &own, &script) {
                Reaction::HangUp => return,
                Reaction::Silence => continue,
                Reaction::AfterNext(message, cells) => {
                    write(&mut held, call_id, None, Some(message), cells);
                    continue;
                }
                Reaction::Answer(message, cells) => write(&mut out, call_id, None, Some(message), cells),
                Reaction::Exception(class) => write(&mut out, call_id, Some(class), None, Bytes::new()),
            }
            out.extend_from_slice(&held.split());
            // In two parts, as networks do.
            let (first, second) = out.split_at(out.len() / 2);
            stream.write_all(first).await.unwrap();
            tokio::task::yield_now().await;
            stream.write_all(second).await.unwrap();
        }
    }
}

fn write(out: &mut BytesMut, call_id: Option<u32>, class: Option<&str>, message: Option<Vec<u8>>, cells: Bytes) {
    let exception = class.map(|class| ExceptionResponse {
        exception_class_name: Some(class.to_owned()),
        stack_trace: Some("the script says so\n\tat a line".into()),
        ..ExceptionResponse::default()
    });
    let header = ResponseHeader {
        call_id,
        exception,
        cell_block_meta: None,
    };
    frame::encode_response(out, header, message.map(Encoded).as_ref(), &cells).unwrap();
}

/// A message encoded before.
#[derive(Debug, Default)]
struct Encoded(Vec<u8>);

impl Message for Encoded {
    fn encode_raw(&self, out: &mut impl bytes::BufMut) {
        out.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        _tag: u32,
        _wire_type: prost::encoding::WireType,
        _buf: &mut impl bytes::Buf,
        _context: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

fn react(service: &str, request: Request, map: &Map, own: &str, script: &Mutex<Script>) -> Reaction {
    let method = String::from_utf8_lossy(request.header.method_name.as_deref().unwrap_or_default()).into_owned();
    match (service, method.as_str()) {
        (CLIENT_META_SERVICE, "GetClusterId") => answer(&GetClusterIdResponse {
            cluster_id: Some("test".into()),
        }),
        (CLIENT_META_SERVICE, "GetMetaRegionLocations") => {
            let region_info = RegionInfo {
                region_id: 1,
                ..RegionInfo::default()
            };
            let location = RegionLocation {
                region_info,
                server_name: Some(server(own)),
                seq_num: -1,
            };
            answer(&GetMetaRegionLocationsResponse {
                meta_locations: vec![location],
            })
        }
        (CLIENT_META_SERVICE, "GetActiveMaster") => answer(&GetActiveMasterResponse {
            server_name: Some(server(own)),
        }),
        (CLIENT_SERVICE, "Scan") => {
            let scan: ScanRequest = decode("ScanRequest", request.message.clone()).unwrap();
            match scan.region {
                Some(region) if region.value.starts_with(b"hbase:meta,") => look_up(map, &scan.scan.unwrap()),
                _ => script.lock()(&method, request),
            }
        }
        _ => script.lock()(&method, request),
    }
}

fn server(address: &str) -> ServerName {
    let (host, port) = address.rsplit_once(':').unwrap();
    ServerName {
        host_name: host.into(),
        port: Some(port.parse().unwrap()),
        start_code: Some(1),
    }
}

/// Responds to the backwards read of one row of `hbase:meta`.
fn look_up(map: &Map, scan: &Scan) -> Reaction {
    *map.lookups.lock() += 1;
    let key = scan.start_row.clone().unwrap();
    let mut parts = key.splitn(2, |b| *b == b',');
    let (table, rest) = (parts.next().unwrap(), parts.next().unwrap());
    let row = &rest[..rest.len() - 15];
    let regions = map.regions.lock().clone();
    let found = regions.iter().rfind(|(start, _, _)| start.as_bytes() <= row);
    let none = ScanResponse {
        more_results: Some(false),
        ..ScanResponse::default()
    };
    let Some((start, end, address)) = found.filter(|_| table == b"bench-t") else {
        return answer(&none);
    };
    let info = RegionInfo {
        region_id: 1,
        table_name: region::table_name(&Bytes::copy_from_slice(table)),
        start_key: Some(Bytes::from_static(start.as_bytes())),
        end_key: Some(Bytes::from_static(end.as_bytes())),
        ..RegionInfo::default()
    };
    let name = region::name(&info);
    let mut cells = BytesMut::new();
    for (qualifier, value) in [
        (meta::REGION_INFO, meta::encode_region_info(&info)),
        (meta::SERVER, address.clone().into()),
    ] {
        let (family, kind) = (meta::INFO_FAMILY, CellType::Put);
        CellRef {
            row: &name,
            family,
            qualifier,
            timestamp: 1,
            kind,
            value: &value,
        }
        .encode(&mut cells)
        .unwrap();
    }
    let response = ScanResponse {
        cells_per_result: vec![2],
        ..none
    };
    Reaction::Answer(response.encode_to_vec(), cells.freeze())
}
