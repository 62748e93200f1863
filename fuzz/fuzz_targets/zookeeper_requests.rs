//! Frames of ZooKeeper's protocol: any bytes are refused or decoded.
//!
//! An encoded request is the same again.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use stele_wire::zookeeper::nodes::{self, Master, MetaRegionServer};
use stele_wire::zookeeper::{ConnectRequest, ConnectResponse, Request, take_frame};

fuzz_target!(|bytes: &[u8]| {
    let mut received = BytesMut::from(bytes);
    while let Ok(Some(frame)) = take_frame(&mut received) {
        record(frame);
    }
    record(Bytes::copy_from_slice(bytes));
});

fn record(frame: Bytes) {
    if let Ok(connect) = ConnectRequest::decode(frame.clone()) {
        let mut out = BytesMut::new();
        connect.encode(&mut out);
        let again = take_frame(&mut out).expect("it is short enough").expect("it is whole");
        assert_eq!(ConnectRequest::decode(again), Ok(connect));
    }
    if let Ok((header, request)) = Request::decode(frame.clone()) {
        let mut out = BytesMut::new();
        request.encode(header.xid, &mut out);
        // Watches are written as lists without names, which are no longer than those that were read.
        let again = take_frame(&mut out).expect("it is short enough").expect("it is whole");
        let (same_header, same) = Request::decode(again).expect("it was encoded");
        assert_eq!((same_header.xid, same), (header.xid, request));
    }
    let _ = ConnectResponse::decode(frame.clone());
    let _ = nodes::decode::<Master>("master", frame.clone());
    let _ = nodes::decode::<MetaRegionServer>("meta-region-server", frame);
}
