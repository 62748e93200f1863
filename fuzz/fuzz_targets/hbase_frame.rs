//! Frames of HBase's protocol: any bytes are refused or decoded, independent of how they arrive.
//!
//! An encoded frame has the same content. Messages behind frames are decoded too.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use stele_wire::decoded_size::decoded_bytes;
use stele_wire::frame;
use stele_wire::messages::{self, decode};

const LIMIT: usize = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    let mut whole = BytesMut::from(bytes);
    if let Ok(Some(header)) = frame::take_preamble(&mut whole) {
        let mut again = BytesMut::new();
        frame::encode_preamble(&mut again, &header);
        assert_eq!(frame::take_preamble(&mut again), Ok(Some(header)));
    }
    let mut whole = BytesMut::from(bytes);
    let mut pieces = BytesMut::new();
    let mut late = bytes.iter();
    while let Ok(Some(frame)) = frame::take_frame(&mut whole, LIMIT) {
        let same = loop {
            if let Ok(Some(same)) = frame::take_frame(&mut pieces, LIMIT) {
                break same;
            }
            pieces.extend_from_slice(&[*late.next().expect("the frame was there")]);
        };
        assert_eq!(frame, same);
        request(&frame);
        response(&frame);
    }
    message(&Bytes::copy_from_slice(bytes));
});

fn request(frame: &Bytes) {
    let Ok(mut request) = frame::decode_request(frame.clone()) else {
        return;
    };
    message(&request.message);
    let header = request.header.clone();
    let mut out = BytesMut::new();
    frame::encode_request(&mut out, header, &Raw(request.message.clone()), &request.cells).expect("it fits");
    let length = out.len();
    let again = frame::take_frame(&mut out, length)
        .expect("of that length")
        .expect("whole");
    // Fields that the encoder decides by itself.
    request.header.request_param = Some(true);
    let cells = request.cells.len() as u32;
    request.header.cell_block_meta = (cells > 0).then_some(messages::CellBlockMeta { length: Some(cells) });
    assert_eq!(frame::decode_request(again), Ok(request));
}

fn response(frame: &Bytes) {
    let Ok(mut response) = frame::decode_response(frame.clone()) else {
        return;
    };
    let message = Raw(response.message.clone());
    let message = response.header.exception.is_none().then_some(&message);
    let mut out = BytesMut::new();
    frame::encode_response(&mut out, response.header.clone(), message, &response.cells).expect("it fits");
    let length = out.len();
    let again = frame::take_frame(&mut out, length)
        .expect("of that length")
        .expect("whole");
    let cells = response.cells.len() as u32;
    response.header.cell_block_meta = (cells > 0).then_some(messages::CellBlockMeta { length: Some(cells) });
    assert_eq!(frame::decode_response(again), Ok(response));
}

/// Elements that a decoder makes were counted before, or the bytes were refused.
fn counted(bytes: &Bytes) {
    if let (Ok(estimate), Ok(request)) = (
        decoded_bytes::<messages::PackedMultiRequest>("MultiRequest", bytes),
        decode::<messages::PackedMultiRequest>("MultiRequest", bytes.clone()),
    ) {
        let actions: usize = request.region_action.iter().map(|region| region.action.len()).sum();
        let regions = request.region_action.len() * size_of::<messages::PackedRegionAction>();
        assert!(estimate >= actions * size_of::<Bytes>() + regions);
    }
    if let (Ok(estimate), Ok(request)) = (
        decoded_bytes::<messages::MutateRequest>("MutateRequest", bytes),
        decode::<messages::MutateRequest>("MutateRequest", bytes.clone()),
    ) {
        let families = &request.mutation.column_value;
        let cells: usize = families.iter().map(|family| family.qualifier_value.len()).sum();
        assert!(estimate >= cells * size_of::<messages::QualifierValue>());
    }
    if let (Ok(estimate), Ok(request)) = (
        decoded_bytes::<messages::GetRequest>("GetRequest", bytes),
        decode::<messages::GetRequest>("GetRequest", bytes.clone()),
    ) {
        assert!(estimate >= request.get.column.len() * size_of::<messages::Column>());
    }
}

/// The bytes as messages of each kind that nests.
fn message(bytes: &Bytes) {
    counted(bytes);
    let _ = decode::<messages::MultiRequest>("MultiRequest", bytes.clone());
    let _ = decode::<messages::MultiResponse>("MultiResponse", bytes.clone());
    let _ = decode::<messages::MutateRequest>("MutateRequest", bytes.clone());
    let _ = decode::<messages::GetRequest>("GetRequest", bytes.clone());
    let _ = decode::<messages::ScanRequest>("ScanRequest", bytes.clone());
    let _ = decode::<messages::ScanResponse>("ScanResponse", bytes.clone());
    let _ = decode::<messages::CoprocessorServiceRequest>("CoprocessorServiceRequest", bytes.clone());
    let _ = decode::<messages::AggregateRequest>("AggregateRequest", bytes.clone());
    let _ = decode::<messages::MutateRowsRequest>("MutateRowsRequest", bytes.clone());
    let _ = decode::<messages::ReplicateWalEntryRequest>("ReplicateWALEntryRequest", bytes.clone());
    let _ = decode::<messages::CreateTableRequest>("CreateTableRequest", bytes.clone());
    let _ = decode::<messages::GetClusterStatusResponse>("GetClusterStatusResponse", bytes.clone());
}

/// A message as the bytes that it is.
#[derive(Debug, Default)]
struct Raw(Bytes);

impl prost::Message for Raw {
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
